!> Holdfast's client library for Fortran 2008, over holdfast.h.
!>
!> A buffer is the address and the bytes of an array of any rank: c_loc(a), c_sizeof(a). Elements are stored as they lie in
!> memory, the first index fastest (column-major), so that C and Python see the indices in reverse order. The buffer of
!> hf_iset and hf_iget is the library's until the request's state says that it is free: declare such arrays ASYNCHRONOUS and
!> TARGET, contiguous, and not as temporaries.
!>
!> Functions return hf_ok, hf_in_progress, or an error, which is negative; times are in milliseconds, and negative
!> ones for ever.
module holdfast
  use, intrinsic :: iso_c_binding
  implicit none
  private

  public :: hf_open, hf_close, hf_iset, hf_bset, hf_iget, hf_command, hf_flush, hf_test, hf_wait, hf_wait_all, hf_cancel
  public :: hf_result, hf_message, hf_release, hf_event_fd, hf_reply, hf_options

  !> Kind of the numbers of clients and requests.
  integer, parameter, public :: hf_handle = c_int64_t

  integer(c_int), parameter, public :: hf_ok = 0, hf_in_progress = 1, hf_e_server = -1, hf_e_too_small = -2, &
    hf_e_lost = -3, hf_e_timed_out = -4, hf_e_cancelled = -5, hf_e_refused = -6, hf_e_redirected = -7, &
    hf_e_full = -8, hf_e_no_request = -9, hf_e_no_client = -10, hf_e_invalid = -11, hf_e_setup = -12, &
    hf_e_too_large = -13
  integer(c_int), parameter, public :: hf_queued = 0, hf_buffer_free = 1, hf_done = 2
  integer(c_int), parameter, public :: hf_not_executed = 0, hf_maybe_executed = 1, hf_executed = 2
  integer(c_int), parameter, public :: hf_nil = 0, hf_string = 1, hf_status = 2, hf_error = 3, hf_integer = 4, &
    hf_double = 5, hf_bool = 6, hf_array = 7, hf_map = 8, hf_set = 9, hf_filled = 10

  !> Flags of hf_command, which may be added up.
  integer(c_int32_t), parameter, public :: hf_read_only = 2, hf_listed = 4, hf_untimed = 8

  !> See struct hf_reply in holdfast.h.
  type, bind(C) :: hf_reply
    integer(c_int) :: type, executed
    integer(c_int64_t) :: integer
    real(c_double) :: number
    type(c_ptr) :: data
    integer(c_size_t) :: len
    type(c_ptr) :: items
    integer(c_size_t) :: count
  end type

  !> See struct hf_options in holdfast.h; hf_open sets the size and the servers.
  type, bind(C) :: hf_options
    integer(c_size_t) :: size = 0
    type(c_ptr) :: servers = c_null_ptr, user = c_null_ptr, password = c_null_ptr, name = c_null_ptr
    type(c_ptr) :: tls_ca_file = c_null_ptr, tls_cert_file = c_null_ptr, tls_key_file = c_null_ptr
    type(c_ptr) :: tls_server_name = c_null_ptr
    integer(c_int32_t) :: database = 0, protocol = 0, thread = 0, resends_max = 0
    integer(c_size_t) :: requests_max = 0, bytes_max = 0, reply_bytes_max = 0
    integer(c_int64_t) :: request_timeout_ms = 0, connect_timeout_ms = 0
  end type

  interface
    function c_open(options, client, error, error_size) bind(C, name="hf_open") result(status)
      import :: c_int, c_size_t, c_char, hf_options, hf_handle
      type(hf_options), intent(in) :: options
      integer(hf_handle), intent(out) :: client
      character(kind=c_char), intent(out) :: error(*)
      integer(c_size_t), value :: error_size
      integer(c_int) :: status
    end function
    function c_iset(client, key, key_len, value, value_len, request) bind(C, name="hf_iset") result(status)
      import :: c_int, c_size_t, c_char, c_ptr, hf_handle
      integer(hf_handle), value :: client
      character(kind=c_char), intent(in) :: key(*)
      type(c_ptr), value :: value
      integer(c_size_t), value :: key_len, value_len
      integer(hf_handle), intent(out) :: request
      integer(c_int) :: status
    end function
    function c_bset(client, key, key_len, value, value_len, request) bind(C, name="hf_bset") result(status)
      import :: c_int, c_size_t, c_char, c_ptr, hf_handle
      integer(hf_handle), value :: client
      character(kind=c_char), intent(in) :: key(*)
      type(c_ptr), value :: value
      integer(c_size_t), value :: key_len, value_len
      integer(hf_handle), intent(out) :: request
      integer(c_int) :: status
    end function
    function c_iget(client, key, key_len, buffer, capacity, request) bind(C, name="hf_iget") result(status)
      import :: c_int, c_size_t, c_char, c_ptr, hf_handle
      integer(hf_handle), value :: client
      character(kind=c_char), intent(in) :: key(*)
      type(c_ptr), value :: buffer
      integer(c_size_t), value :: key_len, capacity
      integer(hf_handle), intent(out) :: request
      integer(c_int) :: status
    end function
    function c_command(client, argc, argv, lens, key_at, flags, buffer, capacity, request) bind(C, name="hf_command") &
        result(status)
      import :: c_int, c_int32_t, c_size_t, c_ptr, hf_handle
      integer(hf_handle), value :: client
      integer(c_size_t), value :: argc, capacity
      type(c_ptr), intent(in) :: argv(*)
      integer(c_size_t), intent(in) :: lens(*)
      integer(c_int), value :: key_at
      integer(c_int32_t), value :: flags
      type(c_ptr), value :: buffer
      integer(hf_handle), intent(out) :: request
      integer(c_int) :: status
    end function
    function c_message(client, request, to, size) bind(C, name="hf_message") result(status)
      import :: c_int, c_size_t, c_char, hf_handle
      integer(hf_handle), value :: client, request
      character(kind=c_char), intent(out) :: to(*)
      integer(c_size_t), value :: size
      integer(c_int) :: status
    end function
    !> Closes a client; its requests are gone.
    function hf_close(client) bind(C, name="hf_close") result(status)
      import :: c_int, hf_handle
      integer(hf_handle), value :: client
      integer(c_int) :: status
    end function
    !> Sends what waits to be sent.
    function hf_flush(client) bind(C, name="hf_flush") result(status)
      import :: c_int, hf_handle
      integer(hf_handle), value :: client
      integer(c_int) :: status
    end function
    !> hf_ok if the request is done; how far it is.
    function hf_test(client, request, state) bind(C, name="hf_test") result(status)
      import :: c_int, hf_handle
      integer(hf_handle), value :: client, request
      integer(c_int), intent(out) :: state
      integer(c_int) :: status
    end function
    !> Waits until the request is done.
    function hf_wait(client, request, timeout_ms) bind(C, name="hf_wait") result(status)
      import :: c_int, c_int64_t, hf_handle
      integer(hf_handle), value :: client, request
      integer(c_int64_t), value :: timeout_ms
      integer(c_int) :: status
    end function
    !> Waits until all requests are done.
    function hf_wait_all(client, requests, count, timeout_ms) bind(C, name="hf_wait_all") result(status)
      import :: c_int, c_int64_t, c_size_t, hf_handle
      integer(hf_handle), value :: client
      integer(hf_handle), intent(in) :: requests(*)
      integer(c_size_t), value :: count
      integer(c_int64_t), value :: timeout_ms
      integer(c_int) :: status
    end function
    !> Ends a request; its buffers are free.
    function hf_cancel(client, request) bind(C, name="hf_cancel") result(status)
      import :: c_int, hf_handle
      integer(hf_handle), value :: client, request
      integer(c_int) :: status
    end function
    !> The result of a request that is done, until it is released.
    function hf_result(client, request, reply) bind(C, name="hf_result") result(status)
      import :: c_int, hf_handle, hf_reply
      integer(hf_handle), value :: client, request
      type(hf_reply), intent(out) :: reply
      integer(c_int) :: status
    end function
    !> Lets go of a request, which is cancelled if it is not done.
    function hf_release(client, request) bind(C, name="hf_release") result(status)
      import :: c_int, hf_handle
      integer(hf_handle), value :: client, request
      integer(c_int) :: status
    end function
    !> A descriptor that is readable when progress can be made.
    function hf_event_fd(client) bind(C, name="hf_event_fd") result(fd)
      import :: c_int, hf_handle
      integer(hf_handle), value :: client
      integer(c_int) :: fd
    end function
  end interface

contains

  !> Sets up a client for servers at addresses that are separated by spaces. `error` says what went wrong.
  function hf_open(servers, client, error, options) result(status)
    character(len=*), intent(in) :: servers
    integer(hf_handle), intent(out) :: client
    character(len=*), intent(out), optional :: error
    type(hf_options), intent(in), optional :: options
    integer(c_int) :: status
    type(hf_options) :: with
    character(kind=c_char), target :: addresses(len_trim(servers) + 1)
    character(kind=c_char) :: text(256)
    integer :: i

    if (present(options)) with = options
    do i = 1, len_trim(servers)
      addresses(i) = servers(i:i)
    end do
    addresses(size(addresses)) = c_null_char
    with%size = c_sizeof(with)
    with%servers = c_loc(addresses)
    client = 0
    text(1) = c_null_char
    status = c_open(with, client, text, size(text, kind=c_size_t))
    if (present(error)) call to_fortran(text, error)
  end function

  !> Sets a string to the bytes of an array, which is the library's until the request's state is hf_buffer_free.
  function hf_iset(client, key, buffer, bytes, request) result(status)
    integer(hf_handle), intent(in) :: client
    character(len=*), intent(in) :: key
    type(c_ptr), intent(in) :: buffer
    integer(c_size_t), intent(in) :: bytes
    integer(hf_handle), intent(out) :: request
    integer(c_int) :: status
    request = 0
    status = c_iset(client, key, len(key, kind=c_size_t), buffer, bytes, request)
  end function

  !> The same; the array is the caller's again on return.
  function hf_bset(client, key, buffer, bytes, request) result(status)
    integer(hf_handle), intent(in) :: client
    character(len=*), intent(in) :: key
    type(c_ptr), intent(in) :: buffer
    integer(c_size_t), intent(in) :: bytes
    integer(hf_handle), intent(out) :: request
    integer(c_int) :: status
    request = 0
    status = c_bset(client, key, len(key, kind=c_size_t), buffer, bytes, request)
  end function

  !> Gets a string into an array, which is the library's until the request is done.
  function hf_iget(client, key, buffer, bytes, request) result(status)
    integer(hf_handle), intent(in) :: client
    character(len=*), intent(in) :: key
    type(c_ptr), intent(in) :: buffer
    integer(c_size_t), intent(in) :: bytes
    integer(hf_handle), intent(out) :: request
    integer(c_int) :: status
    request = 0
    status = c_iget(client, key, len(key, kind=c_size_t), buffer, bytes, request)
  end function

  !> Hands over any command: its name and arguments, whose trailing blanks do not count unless `lens` says how long each is; which
  !> of them is the first key (1 for most commands, negative for none); flags; and a buffer for the reply. The arguments are copied.
  !> Lengths of more than an argument has are hf_e_invalid.
  function hf_command(client, args, request, lens, key_at, flags, buffer, bytes) result(status)
    integer(hf_handle), intent(in) :: client
    character(len=*), intent(in), target, contiguous :: args(:)
    integer(hf_handle), intent(out) :: request
    integer(c_size_t), intent(in), optional :: lens(:)
    integer(c_int), intent(in), optional :: key_at
    integer(c_int32_t), intent(in), optional :: flags
    type(c_ptr), intent(in), optional :: buffer
    integer(c_size_t), intent(in), optional :: bytes
    integer(c_int) :: status
    type(c_ptr) :: argv(size(args)), to
    integer(c_size_t) :: lengths(size(args)), capacity
    integer(c_int) :: key
    integer(c_int32_t) :: with
    integer :: i

    request = 0
    status = hf_e_invalid
    if (present(lens)) then
      if (size(lens) /= size(args)) return
      if (any(lens < 0 .or. lens > len(args))) return
    end if
    do i = 1, size(args)
      argv(i) = c_loc(args(i)(1:1))
      lengths(i) = len_trim(args(i), kind=c_size_t)
    end do
    if (present(lens)) lengths = lens
    key = 1
    if (present(key_at)) key = key_at
    with = 0
    if (present(flags)) with = flags
    to = c_null_ptr
    capacity = 0
    if (present(buffer) .and. present(bytes)) then
      to = buffer
      capacity = bytes
    end if
    status = c_command(client, size(args, kind=c_size_t), argv, lengths, key, with, to, capacity, request)
  end function

  !> What went wrong with a request.
  function hf_message(client, request, text) result(status)
    integer(hf_handle), intent(in) :: client, request
    character(len=*), intent(out) :: text
    integer(c_int) :: status
    character(kind=c_char) :: found(256)
    found(1) = c_null_char
    status = c_message(client, request, found, size(found, kind=c_size_t))
    call to_fortran(found, text)
  end function

  subroutine to_fortran(from, to)
    character(kind=c_char), intent(in) :: from(:)
    character(len=*), intent(out) :: to
    integer :: i
    to = ''
    do i = 1, min(len(to), size(from))
      if (from(i) == c_null_char) exit
      to(i:i) = from(i)
    end do
  end subroutine

end module
