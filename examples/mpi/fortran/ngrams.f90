! Counts the n-grams of a text that is spread over the processes: each scans its part, and increments counts that all share.
!
!   mpifort holdfast.f90 example.f90 ngrams.f90 -o ngrams $(pkg-config --libs holdfast) && mpirun -n 4 ngrams 127.0.0.1:6379 10000

module ngram_counts
  use example
  implicit none

  integer, parameter :: words = 100, keys = 16
  character(len=*), parameter :: consonants = 'bdfgklmnpr', vowels = 'aeiou'
  !> What this process knows of each n-gram: increments that were acknowledged, and those of which nobody can tell.
  integer(c_int64_t) :: acknowledged(0:words * words - 1) = 0, doubtful(0:words * words - 1) = 0
  integer(c_int64_t) :: expected(0:words * words - 1), possible(0:words * words - 1)

contains

  !> A word has four letters, of two syllables.
  function spell(word) result(text)
    integer, intent(in) :: word
    character(len=4) :: text
    integer :: first, second
    first = word / 10
    second = mod(word, 10)
    text = consonants(first + 1:first + 1) // vowels(mod(first, 5) + 1:mod(first, 5) + 1) // &
      consonants(second + 1:second + 1) // vowels(mod(second, 5) + 1:mod(second, 5) + 1)
  end function

  function word_number(text) result(word)
    character(len=*), intent(in) :: text
    integer :: word
    word = 10 * (index(consonants, text(1:1)) - 1) + index(consonants, text(3:3)) - 1
  end function

  function bigram_name(bigram) result(text)
    integer, intent(in) :: bigram
    character(len=9) :: text
    text = spell(bigram / words) // ' ' // spell(mod(bigram, words))
  end function

  function key_of(bigram) result(key)
    integer, intent(in) :: bigram
    character(len=16) :: key
    write (key, '(a, i0)') 'ngrams:', mod(bigram, keys)
  end function

  subroutine incremented(from, at, bigram, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, bigram
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    if (status == hf_ok) then
      acknowledged(bigram) = acknowledged(bigram) + 1
    else if (reply%executed == hf_maybe_executed) then
      ! A second attempt might count twice.
      doubtful(bigram) = doubtful(bigram) + 1
    end if
  end subroutine

  subroutine compare(from, at, bigram, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, bigram
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    type(hf_reply), pointer :: counts(:)
    if (status /= hf_ok .or. reply%count /= 1) call fail('no count')
    call c_f_pointer(reply%items, counts, [1])
    if (counts(1)%integer < expected(bigram) .or. counts(1)%integer > expected(bigram) + possible(bigram)) &
      call fail('a wrong count of ' // bigram_name(bigram))
  end subroutine
end module

program ngrams
  use ngram_counts
  implicit none

  type(window) :: increments, reads
  character(len=16) :: args(3)
  character(len=:), allocatable :: text
  integer(c_int64_t) :: random
  integer :: amount, at, word, before, bigram, requests
  real(c_double) :: started

  amount = begin()
  random = rank + 1
  allocate (character(len=5 * (amount + 1)) :: text)
  do at = 0, amount
    ! Small words are frequent ones.
    text(5 * at + 1:5 * at + 5) = spell(draw(random, 1 + draw(random, words)))
  end do

  increments%told => incremented
  started = start_clock()
  before = word_number(text)
  do at = 1, amount
    word = word_number(text(5 * at + 1:))
    bigram = before * words + word
    args = [character(len=16) :: 'NGRAM.INCR', key_of(bigram), bigram_name(bigram)]
    call command(increments, bigram, args)
    before = word
    if (at == amount / 2) call tell_half()
  end do
  call end_all(increments)
  call tell('ngrams', started, amount)

  call MPI_Allreduce(acknowledged, expected, size(expected), MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_Allreduce(doubtful, possible, size(possible), MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
  reads%told => compare
  requests = 0
  started = start_clock()
  do bigram = rank, words * words - 1, ranks
    args = [character(len=16) :: 'NGRAM.GET', key_of(bigram), bigram_name(bigram)]
    call command(reads, bigram, args, hf_read_only)
    requests = requests + 1
  end do
  call end_all(reads)
  call tell('ngrams-read', started, requests)
  call finish()
end program
