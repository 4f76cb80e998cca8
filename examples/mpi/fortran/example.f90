!> What the three programs share: the client, a window of requests on their way, random numbers, and what is printed.
module example
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: output_unit, error_unit
  use mpi
  use holdfast
  implicit none
  public

  integer, parameter :: window_size = 32

  integer :: rank, ranks, ierror
  integer(hf_handle) :: client
  !> Requests whose outcome a lost connection has left unknown.
  integer(c_int64_t) :: unknown = 0

  !> Requests on their way. They are replied to in order, so the oldest is the one to wait for.
  type :: window
    integer(hf_handle) :: requests(window_size) = 0
    integer :: tags(window_size) = 0
    integer :: begun = 0, ended = 0
    procedure(has_ended), pointer, nopass :: told => null()
  end type

  abstract interface
    !> Is told of each request that has ended, by its place in the window and the tag that the caller has given it. It may begin
    !> another one.
    subroutine has_ended(from, at, tag, status, reply)
      import :: window, c_int, hf_reply
      type(window), intent(inout) :: from
      integer, intent(in) :: at, tag
      integer(c_int), intent(in) :: status
      type(hf_reply), intent(in) :: reply
    end subroutine
  end interface

contains

  subroutine fail(what)
    character(len=*), intent(in) :: what
    write (error_unit, '(a, i0, 2a)') 'rank ', rank, ': ', trim(what)
    call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
    stop 1
  end subroutine

  !> Every program is called with the servers' addresses and how much each process is to do.
  function begin() result(amount)
    integer :: amount
    character(len=1000) :: servers, number
    character(len=200) :: error
    call MPI_Init(ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    if (command_argument_count() < 2) call fail('the arguments are SERVERS and the requests of a process')
    call get_command_argument(1, servers)
    call get_command_argument(2, number)
    read (number, *) amount
    if (hf_open(servers, client, error) /= hf_ok) call fail(error)
  end function

  !> Draws a number below another one (Park and Miller's generator).
  function draw(state, below) result(drawn)
    integer(c_int64_t), intent(inout) :: state
    integer, intent(in) :: below
    integer :: drawn
    state = mod(state * 48271_c_int64_t, 2147483647_c_int64_t)
    drawn = int(mod(state, int(below, c_int64_t)))
  end function

  subroutine end_oldest(from)
    type(window), intent(inout) :: from
    integer :: at
    integer(c_int) :: status, ignored
    integer(hf_handle) :: request
    type(hf_reply) :: reply
    character(len=200) :: text
    at = mod(from%ended, window_size) + 1
    from%ended = from%ended + 1
    request = from%requests(at)
    if (hf_wait(client, request, -1_c_int64_t) /= hf_ok) call fail('wait')
    status = hf_result(client, request, reply)
    ! Whoever has lost a connection goes on; the library makes another one. All else ends the program.
    if (status /= hf_ok .and. status /= hf_e_lost) then
      ignored = hf_message(client, request, text)
      call fail(text)
    end if
    if (status == hf_e_lost .and. reply%executed == hf_maybe_executed) unknown = unknown + 1
    call from%told(from, at, from%tags(at), status, reply)
    ignored = hf_release(client, request)
  end subroutine

  !> The place of one more request.
  function place(in, tag) result(at)
    type(window), intent(inout) :: in
    integer, intent(in) :: tag
    integer :: at
    do while (in%begun - in%ended >= window_size)
      call end_oldest(in)
    end do
    at = mod(in%begun, window_size) + 1
    in%begun = in%begun + 1
    in%tags(at) = tag
  end function

  subroutine end_all(in)
    type(window), intent(inout) :: in
    do while (in%ended < in%begun)
      call end_oldest(in)
    end do
  end subroutine

  !> Begins a command.
  subroutine command(in, tag, args, flags)
    type(window), intent(inout) :: in
    integer, intent(in) :: tag
    character(len=*), intent(in) :: args(:)
    integer(c_int32_t), intent(in), optional :: flags
    integer :: at
    at = place(in, tag)
    if (hf_command(client, args, in%requests(at), flags=flags) /= hf_ok) call fail(args(1))
  end subroutine

  !> Tells those who want to disturb the program that it is in the midst of it.
  subroutine tell_half()
    if (rank == 0) then
      write (output_unit, '(a)') 'half'
      flush (output_unit)
    end if
  end subroutine

  function start_clock() result(started)
    real(c_double) :: started
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    started = MPI_Wtime()
  end function

  !> Prints what a part of the program took: its requests, those of all processes, in so many seconds.
  subroutine tell(part, started, requests)
    character(len=*), intent(in) :: part
    real(c_double), intent(in) :: started
    integer, intent(in) :: requests
    real(c_double) :: seconds(1), slowest(1), total(1)
    integer(c_int64_t) :: own(2), all(2)
    seconds = MPI_Wtime() - started
    own = [int(requests, c_int64_t), unknown]
    call MPI_Reduce(seconds, slowest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, ierror)
    call MPI_Reduce(seconds, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
    call MPI_Reduce(own, all, 2, MPI_INTEGER8, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
    if (rank == 0) then
      write (output_unit, '(3a, i0, a, i0, a, f0.6, a, f0.3, a, i0)') 'result ', part, ' ', ranks, ' ', all(1), ' ', slowest(1), &
        ' ', total(1) / real(all(1), c_double) * 1e6_c_double, ' ', all(2)
      flush (output_unit)
    end if
  end subroutine

  subroutine finish()
    integer(c_int) :: ignored
    ignored = hf_close(client)
    if (rank == 0) write (output_unit, '(a)') 'verified'
    call MPI_Finalize(ierror)
  end subroutine

end module
