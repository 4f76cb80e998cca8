"""Counts the n-grams of a text that is spread over the processes: each scans its part, and increments counts that all share.

    mpirun -n 4 python3 ngrams.py 127.0.0.1:6379 10000
"""

import numpy
from mpi4py import MPI

import holdfast
from example import Window, amount, client, fail, finish, random_numbers, rank, ranks, start_clock, tell, tell_half, world

WORDS, KEYS = 100, 16
CONSONANTS, VOWELS = "bdfgklmnpr", "aeiou"

words = [CONSONANTS[word // 10] + VOWELS[word // 10 % 5] + CONSONANTS[word % 10] + VOWELS[word % 5]
         for word in range(WORDS)]
numbers = {word: number for number, word in enumerate(words)}
bigrams = [f"{first} {second}" for first in words for second in words]

# The text of this process; small words are frequent ones.
draw = random_numbers(rank + 1)
text = " ".join(words[draw(1 + draw(WORDS))] for _ in range(amount + 1))

# What this process knows of each n-gram: increments that were acknowledged, and those of which nobody can tell.
acknowledged = numpy.zeros(len(bigrams), numpy.int64)
doubtful = numpy.zeros(len(bigrams), numpy.int64)


def incremented(bigram, reply):
    if not isinstance(reply, holdfast.Error):
        acknowledged[bigram] += 1
    elif reply.executed == holdfast.Executed.UNKNOWN:
        # A second attempt might count twice.
        doubtful[bigram] += 1


started = start_clock()
window = Window(incremented)
scanned = text.split()
for at in range(amount):
    bigram = numbers[scanned[at]] * WORDS + numbers[scanned[at + 1]]
    window.begin(bigram, client.submit, "NGRAM.INCR", f"ngrams:{bigram % KEYS}", bigrams[bigram])
    if at == amount // 2:
        tell_half()
window.end_all()
tell("ngrams", started, amount)

expected, possible = numpy.empty_like(acknowledged), numpy.empty_like(doubtful)
world.Allreduce(acknowledged, expected, MPI.SUM)
world.Allreduce(doubtful, possible, MPI.SUM)


def compare(bigram, reply):
    if not expected[bigram] <= reply[0] <= expected[bigram] + possible[bigram]:
        fail(f"{bigrams[bigram]}: {reply[0]} instead of {expected[bigram]} and at most {possible[bigram]} more")


started = start_clock()
window = Window(compare)
mine = range(rank, len(bigrams), ranks)
for bigram in mine:
    window.begin(bigram, client.submit, "NGRAM.GET", f"ngrams:{bigram % KEYS}", bigrams[bigram], read_only=True)
window.end_all()
tell("ngrams-read", started, len(mine))
finish()
