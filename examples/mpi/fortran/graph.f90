! Makes a random directed graph: each process draws pairs of vertices, and adds those edges of them that are not there, some at a time,
! until it has added as many as it is to.
!
!   mpifort holdfast.f90 example.f90 graph.f90 -o graph $(pkg-config --libs holdfast) && mpirun -n 4 graph 127.0.0.1:6379 50000

module edges
  use example
  implicit none

  !> How many edges a request adds at most.
  integer, parameter :: edges_a_request = 10

  integer, allocatable :: heads(:), tails(:)
  !> Of each request: its first edge, and how many it has.
  integer, allocatable :: firsts(:), counts(:)
  !> Whether a request to add the edges was lost, so that they may be there since.
  logical, allocatable :: lost(:)
  !> Edges whose requests have ended, the new ones among them, and those of which nobody can tell.
  integer :: ended = 0, added = 0, doubtful = 0
  integer(c_int64_t) :: outgoing = 0, incoming = 0

contains

  function name(vertex)
    integer, intent(in) :: vertex
    character(len=24) :: name
    write (name, '(a, i0)') 'graph:', vertex
  end function

  !> Begins the request of this number.
  subroutine add(in, tag)
    type(window), intent(inout) :: in
    integer, intent(in) :: tag
    character(len=24) :: args(1 + 2 * edges_a_request)
    integer :: i
    args(1) = 'GRAPH.ADDEDGE'
    do i = 1, counts(tag)
      args(2 * i) = name(tails(firsts(tag) + i - 1))
      args(2 * i + 1) = name(heads(firsts(tag) + i - 1))
    end do
    call command(in, tag, args(:1 + 2 * counts(tag)))
  end subroutine

  subroutine edges_added(from, at, tag, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, tag
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    if (status /= hf_ok) then
      ! To add an edge twice does no harm.
      if (reply%executed == hf_maybe_executed) lost(tag) = .true.
      call add(from, tag)
      return
    end if
    ended = ended + counts(tag)
    added = added + int(reply%integer)
    if (lost(tag)) doubtful = doubtful + counts(tag) - int(reply%integer)
  end subroutine

  subroutine is_there(from, at, tag, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, tag
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    logical :: there
    ! The score of a neighbour says which edges there are: 2 or 3 if one leads from it.
    there = merge(reply%integer == 1, reply%number >= 2, mod(tag, 2) == 0)
    if (status /= hf_ok .or. .not. there) call fail('an edge is missing')
  end subroutine

  subroutine degree(from, at, tag, status, reply)
    type(window), intent(inout) :: from
    integer, intent(in) :: at, tag
    integer(c_int), intent(in) :: status
    type(hf_reply), intent(in) :: reply
    type(hf_reply), pointer :: fields(:)
    if (status /= hf_ok .or. reply%count /= 4) call fail('no degree')
    call c_f_pointer(reply%items, fields, [4])
    outgoing = outgoing + fields(2)%integer
    incoming = incoming + fields(4)%integer
  end subroutine
end module

program graph
  use edges
  implicit none

  type(window) :: additions, looks, degrees
  character(len=24) :: args(3)
  integer(c_int64_t) :: random, own(4), all(4)
  integer :: amount, vertices, space, drawn, missing, requests, tag, vertex, i
  logical :: told
  real(c_double) :: started

  amount = begin()
  random = rank + 1
  ! Of all edges that there may be, a hundredth.
  vertices = max(100, 10 * int(sqrt(real(amount, c_double) * ranks)) + 10)
  space = 2 * amount + 1000
  allocate (heads(space), tails(space), firsts(space), counts(space), lost(space))
  lost = .false.

  additions%told => edges_added
  drawn = 0
  requests = 0
  told = .false.
  started = start_clock()
  do
    ! What is on its way may be new or not; only as many are begun as can be needed.
    do
      missing = amount - (added + doubtful + drawn - ended)
      if (missing <= 0) exit
      requests = requests + 1
      firsts(requests) = drawn + 1
      counts(requests) = min(missing, edges_a_request)
      if (drawn + counts(requests) > space) call fail('hardly any edge is new')
      do i = 1, counts(requests)
        drawn = drawn + 1
        tails(drawn) = draw(random, vertices)
        heads(drawn) = draw(random, vertices)
      end do
      call add(additions, requests)
      if (.not. told .and. drawn >= amount / 2) then
        told = .true.
        call tell_half()
      end if
    end do
    if (additions%begun == additions%ended) exit
    call end_oldest(additions)
  end do
  call tell('graph', started, requests)

  ! Every edge of this process is there, seen from both ends.
  looks%told => is_there
  started = start_clock()
  do tag = 2, 2 * drawn + 1
    if (mod(tag, 2) == 0) then
      args = [character(len=24) :: 'GRAPH.ISCONNECTED', name(tails(tag / 2)), name(heads(tag / 2))]
    else
      args = [character(len=24) :: 'ZSCORE', name(heads(tag / 2)), name(tails(tag / 2))]
    end if
    call command(looks, tag, args, hf_read_only)
  end do
  call end_all(looks)
  call tell('graph-read', started, 2 * drawn)

  ! There are as many as were new, and none but those, seen from both ends.
  degrees%told => degree
  do vertex = rank, vertices - 1, ranks
    call command(degrees, vertex, [character(len=24) :: 'GRAPH.DEGREE', name(vertex)], hf_read_only)
  end do
  call end_all(degrees)
  own = [outgoing, incoming, int(added, c_int64_t), int(doubtful, c_int64_t)]
  call MPI_Allreduce(own, all, 4, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierror)
  if (all(1) /= all(2) .or. all(1) < all(3) .or. all(1) > all(3) + all(4)) call fail('another number of edges')
  if (added + doubtful < amount) call fail('fewer edges than wanted')
  call finish()
end program
