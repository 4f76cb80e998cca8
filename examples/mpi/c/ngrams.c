/* Counts the n-grams of a text that is spread over the processes: each scans its part, and increments counts that all share.

   mpicc ngrams.c -o ngrams $(pkg-config --cflags --libs holdfast) && mpirun -n 4 ngrams 127.0.0.1:6379 10000 */

#include "example.h"

enum { WORDS = 100, BIGRAMS = WORDS * WORDS, KEYS = 16, NAME = 16 };

/* What this process knows of each n-gram: increments that were acknowledged, and those of which nobody can tell. */
static long acknowledged[BIGRAMS], doubtful[BIGRAMS];

static const char consonants[] = "bdfgklmnpr", vowels[] = "aeiou";

/* A word has four letters, of two syllables. */
static void spell(int word, char *to)
{
    int first = word / 10, second = word % 10;
    to[0] = consonants[first];
    to[1] = vowels[first % 5];
    to[2] = consonants[second];
    to[3] = vowels[second % 5];
}

static int word_number(const char *text)
{
    return (int)(strchr(consonants, text[0]) - consonants) * 10 + (int)(strchr(consonants, text[2]) - consonants);
}

/* The text of this process; small words are frequent ones. */
static char *write_text(long words)
{
    long long random = rank + 1;
    char *text = malloc(words * 5 + 1), *end = text;
    for (long i = 0; i < words; i++) {
        spell(draw(&random, 1 + draw(&random, WORDS)), end);
        end += 4;
        *end++ = ' ';
    }
    *end = 0;
    return text;
}

static char names[BIGRAMS][NAME], keys[KEYS][NAME];

static void incremented(struct window *window, long bigram, hf_status status, const hf_reply *reply)
{
    (void)window;
    (void)reply;
    if (status == HF_OK)
        acknowledged[bigram]++;
    else
        /* A second attempt might count twice. */
        doubtful[bigram] += reply->executed == HF_MAYBE_EXECUTED;
}

static long expected[BIGRAMS], possible[BIGRAMS];

static void compare(struct window *window, long bigram, hf_status status, const hf_reply *reply)
{
    long count;
    (void)window;
    if (status != HF_OK || reply->count != 1)
        fail("no count");
    count = reply->items[0].integer;
    if (count < expected[bigram] || count > expected[bigram] + possible[bigram]) {
        fprintf(stderr, "%s: %ld instead of %ld to %ld\n", names[bigram], count, expected[bigram],
                expected[bigram] + possible[bigram]);
        fail("a wrong count");
    }
}

int main(int argc, char **argv)
{
    long words = begin(argc, argv), requests = 0;
    struct window window = { .ended_with = incremented }, reads = { .ended_with = compare };
    char *text = write_text(words + 1);
    double started;
    int before;

    for (int key = 0; key < KEYS; key++)
        snprintf(keys[key], NAME, "ngrams:%d", key);
    for (int bigram = 0; bigram < BIGRAMS; bigram++) {
        spell(bigram / WORDS, names[bigram]);
        names[bigram][4] = ' ';
        spell(bigram % WORDS, names[bigram] + 5);
    }

    started = start_clock();
    before = word_number(text);
    for (long at = 1; at <= words; at++) {
        int word = word_number(text + at * 5), bigram = before * WORDS + word;
        command(&window, bigram, 0, 3, (const char *[]){ "NGRAM.INCR", keys[bigram % KEYS], names[bigram] });
        before = word;
        if (at == words / 2)
            tell_half();
    }
    end_all(&window);
    tell("ngrams", started, words);

    MPI_Allreduce(acknowledged, expected, BIGRAMS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(doubtful, possible, BIGRAMS, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    started = start_clock();
    for (int bigram = rank; bigram < BIGRAMS; bigram += ranks, requests++)
        command(&reads, bigram, HF_READ_ONLY, 3,
                (const char *[]){ "NGRAM.GET", keys[bigram % KEYS], names[bigram] });
    end_all(&reads);
    tell("ngrams-read", started, requests);
    free(text);
    return finish();
}
