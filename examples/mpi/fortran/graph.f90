! Makes a random directed graph: each process draws two vertices, and adds the edge if there is none, until it has added as many as
! it is to.
!
!   mpifort holdfast.f90 example.f90 graph.f90 -o graph $(pkg-config --libs holdfast) && mpirun -n 4 graph 127.0.0.1:6379 50000

module edges
  use example
  implicit none

  integer, allocatable :: heads(:), tails(:)
  !> Whether a request to add the edge was lost, so that it may be there since.
  logical, allocatable :: lost(:)
  integer :: added = 0, doubtful = 0
  integer(c_int64_t) :: degrees

contains

  !> What is to be asked of an end of an edge: of where it begins by an even tag, of where it ends by an odd one.
  function end_of(name, tag) result(args)
    character(len=*), intent(in) :: name
    integer, intent(in) :: tag
    character(len=24) :: args(3)
    args(1) = name
    if (mod(tag, 2) == 0) then
      write (args(2), '(a, i0)') 'graph:out:', tails(tag / 2)
      write (args(3), '(i0)') heads(tag / 2)
    else
      write (args(2), '(a, i0)') 'graph:in:', heads(tag / 2)
      write (args(3), '(i0)') tails(tag / 2)
    end if
  end function

  !> Adds one end of an edge; the reply for where it begins says whether it is new.
  subroutine add_end(in, tag)
    type(window), intent(inout) :: in
    integer, intent(in) :: tag
    call command(in, tag, end_of('SADD', tag))
  end subroutine

  subroutine edge_added(from, at, tag, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, tag
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    if (status /= hf_ok) then
      ! To add an edge twice does no harm.
      if (mod(tag, 2) == 0 .and. reply%executed == hf_maybe_executed) lost(tag / 2) = .true.
      call add_end(from, tag)
    else if (mod(tag, 2) == 0) then
      if (reply%integer == 1) then
        added = added + 1
      else if (lost(tag / 2)) then
        doubtful = doubtful + 1
      end if
    end if
  end subroutine

  subroutine is_there(from, at, tag, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, tag
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    if (status /= hf_ok .or. reply%integer /= 1) call fail('an edge is missing')
  end subroutine

  subroutine degree(from, at, tag, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, tag
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    if (status /= hf_ok) call fail('no degree')
    degrees = degrees + reply%integer
  end subroutine
end module

program graph
  use edges
  implicit none

  type(window) :: additions, looks, counts
  character(len=24) :: args(2)
  character(len=3), parameter :: ends(2) = ['out', 'in ']
  integer(c_int64_t) :: random, own(2), all(2), mine(1), total(1)
  integer :: amount, vertices, drawn, tag, which, vertex
  logical :: told
  real(c_double) :: started

  amount = begin()
  random = rank + 1
  ! Of all edges that there may be, a hundredth.
  vertices = max(100, 10 * int(sqrt(real(amount, c_double) * ranks)) + 10)
  allocate (heads(0:2 * amount + 999), tails(0:2 * amount + 999), lost(0:2 * amount + 999))
  lost = .false.

  additions%told => edge_added
  drawn = 0
  told = .false.
  started = start_clock()
  do
    ! What is on its way may be new or not; only as many are begun as can be needed.
    do while (added + doubtful + (additions%begun - additions%ended) / 2 < amount)
      if (drawn > ubound(heads, 1)) call fail('hardly any edge is new')
      tails(drawn) = draw(random, vertices)
      heads(drawn) = draw(random, vertices)
      call add_end(additions, 2 * drawn)
      call add_end(additions, 2 * drawn + 1)
      drawn = drawn + 1
      if (.not. told .and. drawn >= amount / 2) then
        told = .true.
        call tell_half()
      end if
    end do
    if (additions%begun == additions%ended) exit
    call end_oldest(additions)
  end do
  call tell('graph', started, 2 * drawn)

  ! Every edge of this process is there, seen from both ends.
  looks%told => is_there
  started = start_clock()
  do tag = 0, 2 * drawn - 1
    call command(looks, tag, end_of('SISMEMBER', tag), hf_read_only)
  end do
  call end_all(looks)
  call tell('graph-read', started, 2 * drawn)

  ! There are as many as were new, and none but those, seen from both ends.
  own = [int(added, c_int64_t), int(doubtful, c_int64_t)]
  call MPI_Allreduce(own, all, 2, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
  counts%told => degree
  do which = 1, 2
    degrees = 0
    do vertex = rank, vertices - 1, ranks
      args(1) = 'SCARD'
      write (args(2), '(3a, i0)') 'graph:', trim(ends(which)), ':', vertex
      call command(counts, vertex, args, hf_read_only)
    end do
    call end_all(counts)
    mine = degrees
    call MPI_Allreduce(mine, total, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
    if (total(1) < all(1) .or. total(1) > all(1) + all(2)) call fail('another number of edges')
  end do
  call finish()
end program
