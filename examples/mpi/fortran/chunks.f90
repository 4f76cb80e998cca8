! Stores and loads chunks of 16 bytes to 1 MiB: each process has its own, which are in the library's hands while they are on their way.
!
!   mpifort holdfast.f90 example.f90 chunks.f90 -o chunks $(pkg-config --libs holdfast) && mpirun -n 4 chunks 127.0.0.1:6379 1000

module buffers
  use example
  implicit none

  integer, parameter :: largest = 1048576, most_bytes = 64 * largest
  integer(c_int64_t), asynchronous, target :: chunks(largest / 8, window_size)
  integer :: words

contains

  !> Each chunk has other words than all others.
  pure function word(at, number)
    integer, intent(in) :: at, number
    integer(c_int64_t) :: word
    word = (at - 1) * 2654435761_c_int64_t + (int(number, c_int64_t) * ranks + rank) * 1048583 + 8 * words
  end function

  function key_of(number) result(key)
    integer, intent(in) :: number
    character(len=40) :: key
    write (key, '(a, i0, a, i0, a, i0)') 'chunk:', 8 * words, ':', rank, ':', number
  end function

  subroutine store(in, number)
    type(window), intent(inout) :: in
    integer, intent(in) :: number
    integer :: at, i
    at = place(in, number)
    do i = 1, words
      chunks(i, at) = word(i, number)
    end do
    if (hf_iset(client, trim(key_of(number)), c_loc(chunks(1, at)), 8_c_size_t * words, in%requests(at)) /= hf_ok) &
      call fail('iset')
  end subroutine

  subroutine stored(from, at, number, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, number
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    ! To store a chunk twice does no harm.
    if (status /= hf_ok) then
      call store(from, number)
    else if (reply%type /= hf_status) then
      call fail('another reply')
    end if
  end subroutine

  subroutine loaded(from, at, number, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, number
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    integer :: i
    if (status /= hf_ok) call fail('a chunk is missing')
    if (reply%type /= hf_filled .or. reply%len /= 8 * words) call fail('another length')
    do i = 1, words
      if (chunks(i, at) /= word(i, number)) call fail('another chunk')
    end do
  end subroutine
end module

program store_and_load
  use buffers
  implicit none

  integer, parameter :: sizes(11) = [16, 32, 64, 128, 256, 512, 1024, 2048, 16384, 131072, largest]
  type(window) :: stores, loads
  character(len=20) :: part
  integer :: amount, nth, count, number, at
  real(c_double) :: started

  amount = begin()
  stores%told => stored
  loads%told => loaded
  do nth = 1, size(sizes)
    words = sizes(nth) / 8
    count = max(1, min(amount, most_bytes / ranks / sizes(nth)))

    started = start_clock()
    do number = 0, count - 1
      call store(stores, number)
      if (number == count / 2) call tell_half()
    end do
    call end_all(stores)
    write (part, '(a, i0)') 'store-', sizes(nth)
    call tell(trim(part), started, count)

    started = start_clock()
    do number = 0, count - 1
      at = place(loads, number)
      if (hf_iget(client, trim(key_of(number)), c_loc(chunks(1, at)), 8_c_size_t * words, loads%requests(at)) /= hf_ok) &
        call fail('iget')
    end do
    call end_all(loads)
    write (part, '(a, i0)') 'load-', sizes(nth)
    call tell(trim(part), started, count)
  end do
  call finish()
end program
