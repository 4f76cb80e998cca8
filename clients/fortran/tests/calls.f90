! hf_command right and wrong, against a server whose address is the argument.

program calls
  use, intrinsic :: iso_c_binding
  use holdfast
  implicit none

  integer(hf_handle) :: client, request
  type(hf_reply) :: reply
  character(len=200) :: address
  character(len=8) :: set(3)

  call get_command_argument(1, address)
  call check(hf_open(address, client) == hf_ok, 'open')
  set = [character(len=8) :: 'SET', 'key', 'a  ']
  call check(hf_command(client, set, request, lens=[3_c_size_t, 3_c_size_t, 9_c_size_t]) == hf_e_invalid, 'too long')
  call check(hf_command(client, set, request, lens=[3_c_size_t, 3_c_size_t, -1_c_size_t]) == hf_e_invalid, 'negative')
  call check(hf_command(client, set, request, lens=[3_c_size_t, 3_c_size_t]) == hf_e_invalid, 'too few')
  call check(request == 0, 'no request')
  call check(hf_command(client, set, request, lens=[3_c_size_t, 3_c_size_t, 8_c_size_t]) == hf_ok, 'set')
  call done
  call check(hf_command(client, [character(len=6) :: 'STRLEN', 'key'], request, flags=hf_read_only) == hf_ok, 'strlen')
  call done
  call check(reply%integer == 8, 'blanks that count')
  call check(hf_close(client) == hf_ok, 'close')
  print '(a)', 'ok'

contains

  subroutine done
    call check(hf_wait(client, request, 30000_c_int64_t) == hf_ok, 'wait')
    call check(hf_result(client, request, reply) == hf_ok, 'result')
    call check(hf_release(client, request) == hf_ok, 'release')
  end subroutine

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    print '(2a)', 'not so: ', what
    stop 1
  end subroutine
end program
