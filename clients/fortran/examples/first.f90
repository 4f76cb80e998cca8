! A first program: sets a grid while it goes on computing, and gets it back into place.
!
!   gfortran holdfast.f90 first.f90 -o first $(pkg-config --libs holdfast) && ./first 127.0.0.1:6379

program first
  use, intrinsic :: iso_c_binding
  use holdfast
  implicit none

  real(c_double), asynchronous, target :: grid(512, 256), copy(512, 256)
  integer(hf_handle) :: client, set, get
  integer(c_int) :: status, state
  type(hf_reply) :: reply
  character(len=200) :: address, error
  real(c_double) :: total
  integer :: i, j

  address = '127.0.0.1:6379'
  if (command_argument_count() > 0) call get_command_argument(1, address)
  if (hf_open(address, client, error) /= hf_ok) call fail(error)
  do j = 1, 256
    do i = 1, 512
      grid(i, j) = i + 1000 * j
    end do
  end do

  ! The grid may be read while the request is on its way, and not be changed.
  if (hf_iset(client, 'grid', c_loc(grid), c_sizeof(grid), set) /= hf_ok) call fail('iset')
  total = sum(grid)
  if (hf_wait(client, set, -1_c_int64_t) /= hf_ok) call fail('wait')
  if (hf_result(client, set, reply) /= hf_ok) then
    status = hf_message(client, set, error)
    call fail(error)
  end if

  if (hf_iget(client, 'grid', c_loc(copy), c_sizeof(copy), get) /= hf_ok) call fail('iget')
  do while (hf_test(client, get, state) == hf_in_progress)
    if (hf_wait(client, get, 100_c_int64_t) < 0) call fail('wait')
  end do
  if (state /= hf_done .or. hf_result(client, get, reply) /= hf_ok) call fail('the grid')
  if (any(abs(copy - grid) > 0)) call fail('another grid')
  print '(i0, a, f0.0, a, f0.0)', reply%len, ' bytes, sum ', total, ' last ', copy(512, 256)

  status = hf_release(client, get)
  if (hf_release(client, get) /= hf_e_no_request) call fail('released twice')
  status = hf_release(client, set)
  status = hf_close(client)
  if (hf_close(client) /= hf_e_no_client) call fail('closed twice')

contains

  subroutine fail(what)
    character(len=*), intent(in) :: what
    print '(a)', trim(what)
    stop 1
  end subroutine
end program
