//! The functions that C calls.
//!
//! The contract of them all, which their `# Safety` sections refer to as *the contract*:
//!
//! * A pointer with a length is null, or has so many bytes or elements that may be read, and for results written. Null is
//!   an error where something is needed.
//! * A string is null, or ends with a zero byte.
//! * Bytes that are handed over by `hf_iset`, `hf_iget` or `hf_command` stay valid and are not touched until the request's state says that they are free.
//!
//! Everything else that a caller may do wrong is seen: closed clients, released requests, and numbers that never were
//! any are error codes, as are null, sizes that cannot be, and results that are not there.

// The names are those of the header.
#![allow(non_camel_case_types)]

use crate::handles::Handles;
use holdfast_client::{
    COPIED_MAX, Client, Command, Config, Error, Executed, Protocol, Reply, RequestId, State, Target, Tls,
};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    os::fd::AsRawFd,
    ptr, slice,
    time::Duration,
};

/// A client; 0 is none.
pub type hf_client = u64;

/// A request of a client; 0 is none.
pub type hf_request = u64;

/// What a call, or a request, came to. Errors are negative.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum hf_status {
    /// It is done.
    HF_OK = 0,
    /// It is not done yet, or nothing is there yet.
    HF_IN_PROGRESS = 1,
    /// The server has replied with an error, which is the reply's data.
    HF_E_SERVER = -1,
    /// The string does not fit into the buffer; the reply's integer is its length.
    HF_E_TOO_SMALL = -2,
    /// The connection was lost.
    HF_E_LOST = -3,
    /// The request has taken too long.
    HF_E_TIMED_OUT = -4,
    /// The request was cancelled.
    HF_E_CANCELLED = -5,
    /// The server lets nobody in.
    HF_E_REFUSED = -6,
    /// Another server has the key.
    HF_E_REDIRECTED = -7,
    /// Too many requests or bytes are held: take results, or make progress.
    HF_E_FULL = -8,
    /// There is no such request: it was released, or never was.
    HF_E_NO_REQUEST = -9,
    /// There is no such client: it was closed, or never was.
    HF_E_NO_CLIENT = -10,
    /// An argument that cannot be right: null, a wrong size, a command that is refused.
    HF_E_INVALID = -11,
    /// The client could not be set up: addresses, certificates, descriptors.
    HF_E_SETUP = -12,
    /// The reply takes more than `reply_bytes_max`, and nothing of it was kept.
    HF_E_TOO_LARGE = -13,
}
use hf_status::*;

/// How far a request has come.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum hf_state {
    /// Buffers are in use.
    HF_QUEUED = 0,
    /// Buffers that were handed over for sending are the caller's again; one for the reply is not.
    HF_BUFFER_FREE = 1,
    /// All buffers are the caller's again, and the result is there.
    HF_DONE = 2,
}

/// Whether a server has executed a request.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum hf_executed {
    /// It has not, and will not.
    HF_NOT_EXECUTED = 0,
    /// It may have, or may still do so.
    HF_MAYBE_EXECUTED = 1,
    /// It has.
    HF_EXECUTED = 2,
}

/// What a reply is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum hf_type {
    /// Nothing: there is no such key, element, or reply.
    HF_NIL = 0,
    /// Bytes: data and len.
    HF_STRING = 1,
    /// A short text such as OK: data and len.
    HF_STATUS = 2,
    /// An error: data and len.
    HF_ERROR = 3,
    /// integer.
    HF_INTEGER = 4,
    /// number.
    HF_DOUBLE = 5,
    /// integer is 0 or 1.
    HF_BOOL = 6,
    /// items and count.
    HF_ARRAY = 7,
    /// items and count; keys and values take turns.
    HF_MAP = 8,
    /// items and count.
    HF_SET = 9,
    /// A string that is in the caller's buffer: len.
    HF_FILLED = 10,
}

/// For hf_command: the arguments are handed over, not copied.
pub const HF_LENT: u32 = 1;
/// For hf_command: the command changes nothing, so that it may be executed again.
pub const HF_READ_ONLY: u32 = 2;
/// For hf_command: the request is to be told by hf_next_completion.
pub const HF_LISTED: u32 = 4;
/// For hf_command: the request may take as long as it likes.
pub const HF_UNTIMED: u32 = 8;

/// A reply, or a part of one. It and what it points to are the library's until the request is released.
#[repr(C)]
pub struct hf_reply {
    /// What it is.
    pub r#type: hf_type,
    /// Whether the request was executed.
    pub executed: hf_executed,
    /// An integer, a truth value, or the length that a buffer should have had.
    pub integer: i64,
    /// A floating-point number.
    pub number: f64,
    /// The bytes of a string; a zero byte does not follow them.
    pub data: *const c_char,
    /// How many they are.
    pub len: usize,
    /// The elements of an array, a set or a map.
    pub items: *const hf_reply,
    /// How many they are; a pair of a map is two.
    pub count: usize,
}

/// What a client is told at the start. What is 0 or null is as usual; size has to be set.
#[repr(C)]
pub struct hf_options {
    /// sizeof(struct hf_options).
    pub size: usize,
    /// Addresses, separated by spaces: HOST:PORT, [IPv6]:PORT, or the path of a Unix socket.
    pub servers: *const c_char,
    /// The user's name.
    pub user: *const c_char,
    /// The password.
    pub password: *const c_char,
    /// The connections' name.
    pub name: *const c_char,
    /// A PEM file with the certificates of those who sign servers; with it, TLS is spoken.
    pub tls_ca_file: *const c_char,
    /// A PEM file with the client's certificate, and one with its key.
    pub tls_cert_file: *const c_char,
    /// See tls_cert_file.
    pub tls_key_file: *const c_char,
    /// The name in the servers' certificates, if it is another one than the host's.
    pub tls_server_name: *const c_char,
    /// The database.
    pub database: u32,
    /// 2 for RESP2, 0 or 3 for RESP3.
    pub protocol: u32,
    /// Whether a thread of the library's own makes progress.
    pub thread: u32,
    /// Times that a request may be sent again: 0 for 5.
    pub resends_max: u32,
    /// Requests in flight or not released: 0 for 65,536.
    pub requests_max: usize,
    /// Bytes of requests in flight and of results: 0 for 1 GiB.
    pub bytes_max: usize,
    /// Bytes of one reply: 0 for 1 GiB.
    pub reply_bytes_max: usize,
    /// Milliseconds that a request may take: 0 for 30,000, negative for any time.
    pub request_timeout_ms: i64,
    /// Milliseconds that a connection may take to be made: 0 for 5,000.
    pub connect_timeout_ms: i64,
}

/// The elements of a reply as C sees them. Slices point into each other, and to strings of the reply in the client.
pub struct Tree(Vec<Box<[hf_reply]>>);

// SAFETY: its pointers lead to memory that does not change until the request is released, which needs the lock that
// this is behind.
unsafe impl Send for Tree {}

static HANDLES: Handles = Handles::new();

/// Bytes that C has handed over.
struct LentBytes(*const u8, usize);

// SAFETY: by the contract nobody changes the bytes while the library has them, on whichever thread it reads them.
unsafe impl Send for LentBytes {}

impl AsRef<[u8]> for LentBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: made by `bytes` from a slice that, by the contract, is valid until this is dropped.
        unsafe { slice::from_raw_parts(self.0, self.1) }
    }
}

/// A buffer that C has handed over for a reply.
struct LentBuffer(*mut u8, usize);

// SAFETY: as for `LentBytes`; and by the contract nobody else looks at the bytes.
unsafe impl Send for LentBuffer {}

impl AsMut<[u8]> for LentBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: checked not to be null, and by the contract valid, and nobody else's, until this is dropped.
        unsafe { slice::from_raw_parts_mut(self.0, self.1) }
    }
}

/// Bytes from C; `None` if they are null and should not be, or more than there can be.
///
/// # Safety
/// The contract; the caller chooses a lifetime that ends before the bytes are invalid.
unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Option<&'a [u8]> {
    match (data.is_null(), len) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        (false, 1..=0x7fff_ffff_ffff_ffff) => {
            // SAFETY: not null; the contract says that so many bytes can be read.
            Some(unsafe { slice::from_raw_parts(data.cast(), len) })
        }
        _ => None,
    }
}

/// A string from C: `Ok(None)` for null, `Err` for one that is not UTF-8.
///
/// # Safety
/// The contract.
unsafe fn text(string: *const c_char) -> Result<Option<String>, Error> {
    if string.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; the contract says that it ends.
    let string = unsafe { CStr::from_ptr(string) };
    string.to_str().map(|text| Some(text.to_owned())).map_err(|_| Error::Invalid("an option is not in UTF-8"))
}

fn status(error: &Error) -> hf_status {
    match error {
        Error::Server(_) => HF_E_SERVER,
        Error::TooSmall { .. } => HF_E_TOO_SMALL,
        Error::TooLarge { .. } => HF_E_TOO_LARGE,
        Error::Lost { .. } => HF_E_LOST,
        Error::TimedOut { .. } => HF_E_TIMED_OUT,
        Error::Cancelled { .. } => HF_E_CANCELLED,
        Error::Refused(_) => HF_E_REFUSED,
        Error::Redirected(_) => HF_E_REDIRECTED,
        Error::Full => HF_E_FULL,
        Error::NoSuchRequest => HF_E_NO_REQUEST,
        Error::InProgress => HF_IN_PROGRESS,
        Error::Invalid(_) => HF_E_INVALID,
        Error::Setup(_) => HF_E_SETUP,
    }
}

fn timeout(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// Calls with a client; what comes back is the result as C sees it.
fn with(client: hf_client, call: impl FnOnce(&Client) -> Result<hf_status, hf_status>) -> hf_status {
    let Some(handle) = HANDLES.get(client) else { return HF_E_NO_CLIENT };
    match call(&handle) {
        // Another thread has closed it while this one waited.
        Ok(HF_IN_PROGRESS) if HANDLES.get(client).is_none() => HF_E_NO_CLIENT,
        Ok(status) | Err(status) => status,
    }
}

fn request(number: hf_request) -> Result<RequestId, hf_status> {
    RequestId::from_u64(number).ok_or(HF_E_NO_REQUEST)
}

/// Hands a command over, and its number to C.
///
/// # Safety
/// The contract, for `out`.
unsafe fn submit(
    handle: &Client,
    command: Command<'_>,
    out: *mut hf_request,
) -> Result<hf_status, hf_status> {
    if out.is_null() {
        return Err(HF_E_INVALID);
    }
    let id = handle.submit(command).map_err(|e| status(&e))?;
    // SAFETY: not null; the contract.
    unsafe { out.write(id.to_u64()) };
    Ok(HF_OK)
}

/// An argument: handed over if that is wanted and pays.
fn arg<'a>(command: Command<'a>, bytes: &'a [u8], lent: bool) -> Command<'a> {
    if lent && bytes.len() > COPIED_MAX {
        command.lent(Box::new(LentBytes(bytes.as_ptr(), bytes.len())))
    } else {
        command.arg(bytes)
    }
}

/// A buffer for the reply; none if it is null and has no length.
fn into<'a>(command: Command<'a>, buffer: *mut c_void, capacity: usize) -> Result<Command<'a>, hf_status> {
    match (buffer.is_null(), capacity) {
        (true, 0) => Ok(command),
        (true, _) => Err(HF_E_INVALID),
        (false, 0..=0x7fff_ffff_ffff_ffff) => {
            Ok(command.into(Target::Lent(Box::new(LentBuffer(buffer.cast(), capacity)))))
        }
        _ => Err(HF_E_INVALID),
    }
}

/// Sets up a client. Connections are made when the first request needs them. `error`, which may be null, gets what went
/// wrong as a string, cut to `error_size` bytes with the zero byte.
///
/// # Safety
/// The contract; `options`, if it is not null, has at least its first field.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_open(
    options: *const hf_options,
    client: *mut hf_client,
    error: *mut c_char,
    error_size: usize,
) -> hf_status {
    // SAFETY: the contract.
    match unsafe { open(options, client) } {
        Ok(()) => HF_OK,
        Err((status, text)) => {
            // SAFETY: the contract.
            unsafe { copy_text(&text, error, error_size) };
            status
        }
    }
}

/// # Safety
/// The same.
unsafe fn open(options: *const hf_options, client: *mut hf_client) -> Result<(), (hf_status, String)> {
    let failed = |error: Error| (status(&error), error.to_string());
    if options.is_null() || client.is_null() {
        return Err(failed(Error::Invalid("options or client is null")));
    }
    // SAFETY: not null; the contract.
    let size = unsafe { ptr::addr_of!((*options).size).read() };
    if size != size_of::<hf_options>() {
        return Err(failed(Error::Invalid("size is not that of the library's hf_options")));
    }
    // SAFETY: its size is that of the structure that we know.
    let opened = unsafe { config(&*options) }.and_then(Client::new).map_err(failed)?;
    let number = HANDLES.insert(opened).ok_or_else(|| (HF_E_FULL, "too many clients are open".to_owned()))?;
    // SAFETY: not null; the contract.
    unsafe { client.write(number) };
    Ok(())
}

/// # Safety
/// The contract, for the strings.
unsafe fn config(options: &hf_options) -> Result<Config, Error> {
    // SAFETY: the contract.
    let text = |string| unsafe { text(string) };
    let servers = text(options.servers)?.ok_or(Error::Invalid("servers is null"))?;
    let mut config = Config::new(servers.split_ascii_whitespace())?;
    config.user = text(options.user)?;
    config.password = text(options.password)?;
    config.name = text(options.name)?;
    config.database = options.database;
    config.thread = options.thread != 0;
    config.protocol = match options.protocol {
        0 | 3 => Protocol::Resp3,
        2 => Protocol::Resp2,
        _ => return Err(Error::Invalid("the protocol is 2 or 3")),
    };
    let identity = (text(options.tls_cert_file)?, text(options.tls_key_file)?);
    let server_name = text(options.tls_server_name)?;
    config.tls = match (text(options.tls_ca_file)?, identity) {
        (Some(ca), (Some(cert), Some(key))) => {
            Some(Tls { ca_file: ca.into(), identity: Some((cert.into(), key.into())), server_name })
        }
        (Some(ca), (None, None)) => Some(Tls { ca_file: ca.into(), identity: None, server_name }),
        (None, (None, None)) if server_name.is_none() => None,
        (None, _) => return Err(Error::Invalid("TLS needs tls_ca_file")),
        _ => return Err(Error::Invalid("a certificate needs its key: tls_cert_file and tls_key_file")),
    };
    let or = |value: usize, usual| if value == 0 { usual } else { value };
    config.requests_max = or(options.requests_max, config.requests_max);
    config.bytes_max = or(options.bytes_max, config.bytes_max);
    config.reply_bytes_max = or(options.reply_bytes_max, config.reply_bytes_max);
    if options.resends_max != 0 {
        config.resends_max = options.resends_max;
    }
    if options.request_timeout_ms != 0 {
        config.request_timeout = timeout(options.request_timeout_ms);
    }
    if options.connect_timeout_ms != 0 {
        let negative = Error::Invalid("connect_timeout_ms is negative");
        config.connect_timeout = timeout(options.connect_timeout_ms).ok_or(negative)?;
    }
    Ok(config)
}

/// Copies a text, cut if need be, with a zero byte; returns the bytes of the whole text without it.
///
/// # Safety
/// The contract.
unsafe fn copy_text(text: &str, to: *mut c_char, size: usize) -> usize {
    if !to.is_null() && size > 0 {
        let len = text.len().min(size - 1);
        // SAFETY: not null; by the contract `size` bytes can be written, and nothing of ours is there.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), to, len);
            to.add(len).write(0);
        }
    }
    text.len()
}

/// Closes a client. Its requests are gone; other threads that wait return HF_E_NO_CLIENT, and all buffers are the caller's again once
/// their calls have returned.
#[unsafe(no_mangle)]
pub extern "C" fn hf_close(client: hf_client) -> hf_status {
    let Some(handle) = HANDLES.remove(client) else { return HF_E_NO_CLIENT };
    handle.close();
    HF_OK
}

/// Sets a string. The value is the library's until the request's state is HF_BUFFER_FREE.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_iset(
    client: hf_client,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    out: *mut hf_request,
) -> hf_status {
    // SAFETY: the contract.
    unsafe { set(client, key, key_len, value, value_len, true, out) }
}

/// Sets a string. The value is the caller's again when the call returns.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bset(
    client: hf_client,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    out: *mut hf_request,
) -> hf_status {
    // SAFETY: the contract.
    unsafe { set(client, key, key_len, value, value_len, false, out) }
}

/// # Safety
/// The contract.
unsafe fn set(
    client: hf_client,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
    lent: bool,
    out: *mut hf_request,
) -> hf_status {
    with(client, |handle| {
        // SAFETY: the contract; what is not lent is copied before the call returns.
        let (key, value) = unsafe { (bytes(key, key_len), bytes(value, value_len)) };
        let command = Command::new("SET").arg(key.ok_or(HF_E_INVALID)?);
        let command = arg(command, value.ok_or(HF_E_INVALID)?, lent);
        // SAFETY: the contract.
        unsafe { submit(handle, command, out) }
    })
}

/// Gets a string right into a buffer, which is the library's until the request is done. With null and 0 it is as
/// hf_bget.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_iget(
    client: hf_client,
    key: *const c_void,
    key_len: usize,
    buffer: *mut c_void,
    capacity: usize,
    out: *mut hf_request,
) -> hf_status {
    with(client, |handle| {
        // SAFETY: the contract; the key is copied before the call returns.
        let key = unsafe { bytes(key, key_len) };
        let command = Command::new("GET").arg(key.ok_or(HF_E_INVALID)?).read_only();
        // SAFETY: the contract.
        unsafe { submit(handle, into(command, buffer, capacity)?, out) }
    })
}

/// Gets a string, which will be in memory of the library.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bget(
    client: hf_client,
    key: *const c_void,
    key_len: usize,
    out: *mut hf_request,
) -> hf_status {
    // SAFETY: the contract.
    unsafe { hf_iget(client, key, key_len, ptr::null_mut(), 0, out) }
}

/// Hands over any command: its name and arguments, which of them is the first key (1 for most commands, negative for none),
/// HF_ flags, and a buffer for the reply, or null.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_command(
    client: hf_client,
    argc: usize,
    argv: *const *const c_void,
    lens: *const usize,
    key_at: c_int,
    flags: u32,
    buffer: *mut c_void,
    capacity: usize,
    out: *mut hf_request,
) -> hf_status {
    with(client, |handle| {
        if argc == 0 || argc > 1 << 20 || argv.is_null() || lens.is_null() || flags > 15 {
            return Err(HF_E_INVALID);
        }
        // SAFETY: not null; the contract.
        let (argv, lens) = unsafe { (slice::from_raw_parts(argv, argc), slice::from_raw_parts(lens, argc)) };
        let mut args = Vec::with_capacity(argc);
        for (&data, &len) in argv.iter().zip(lens) {
            // SAFETY: the contract.
            args.push(unsafe { bytes(data, len) }.ok_or(HF_E_INVALID)?);
        }
        let mut command = Command::new(args[0]).key(usize::try_from(key_at).ok());
        for bytes in &args[1..] {
            command = arg(command, bytes, flags & HF_LENT != 0);
        }
        if flags & HF_READ_ONLY != 0 {
            command = command.read_only();
        }
        if flags & HF_LISTED != 0 {
            command = command.listed();
        }
        if flags & HF_UNTIMED != 0 {
            command = command.untimed();
        }
        // SAFETY: the contract.
        unsafe { submit(handle, into(command, buffer, capacity)?, out) }
    })
}

/// Sends what waits to be sent, without waiting for anything.
#[unsafe(no_mangle)]
pub extern "C" fn hf_flush(client: hf_client) -> hf_status {
    with(client, |handle| {
        handle.flush();
        Ok(HF_OK)
    })
}

/// Makes progress, and waits no longer than so many milliseconds for a request to be done; negative: an hour.
#[unsafe(no_mangle)]
pub extern "C" fn hf_progress(client: hf_client, timeout_ms: i64) -> hf_status {
    with(client, |handle| {
        handle.progress(timeout(timeout_ms).unwrap_or(Duration::from_secs(3600)));
        Ok(HF_OK)
    })
}

/// Makes what progress there is without waiting: HF_OK if the request is done, else HF_IN_PROGRESS. `state`, which may be null,
/// gets how far it is.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_test(client: hf_client, id: hf_request, state: *mut hf_state) -> hf_status {
    with(client, |handle| {
        let now = handle.test(request(id)?).map_err(|e| status(&e))?;
        if !state.is_null() {
            let value = match now {
                State::Queued => hf_state::HF_QUEUED,
                State::BufferFree => hf_state::HF_BUFFER_FREE,
                State::Done => hf_state::HF_DONE,
            };
            // SAFETY: not null; the contract.
            unsafe { state.write(value) };
        }
        Ok(if now == State::Done { HF_OK } else { HF_IN_PROGRESS })
    })
}

fn done(done: Result<bool, Error>) -> Result<hf_status, hf_status> {
    done.map(|done| if done { HF_OK } else { HF_IN_PROGRESS }).map_err(|e| status(&e))
}

/// Waits until the buffers that were handed over for sending are the caller's again, or so many milliseconds; negative: for any time.
#[unsafe(no_mangle)]
pub extern "C" fn hf_wait_buffer(client: hf_client, id: hf_request, timeout_ms: i64) -> hf_status {
    with(client, |handle| {
        let state = handle.wait_for(request(id)?, State::BufferFree, timeout(timeout_ms));
        done(state.map(|state| state >= State::BufferFree))
    })
}

/// Waits until the request is done, or so many milliseconds; negative: for any time.
#[unsafe(no_mangle)]
pub extern "C" fn hf_wait(client: hf_client, id: hf_request, timeout_ms: i64) -> hf_status {
    with(client, |handle| done(handle.wait(request(id)?, timeout(timeout_ms))))
}

/// # Safety
/// The contract.
unsafe fn requests(ids: *const hf_request, count: usize) -> Result<Vec<RequestId>, hf_status> {
    if ids.is_null() || count == 0 || count > u32::MAX as usize {
        return Err(HF_E_INVALID);
    }
    // SAFETY: not null; the contract.
    let ids = unsafe { slice::from_raw_parts(ids, count) };
    ids.iter().map(|&id| request(id)).collect()
}

/// Waits until one of the requests is done; `index` gets which.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_wait_any(
    client: hf_client,
    ids: *const hf_request,
    count: usize,
    timeout_ms: i64,
    index: *mut usize,
) -> hf_status {
    let mut found = 0;
    // SAFETY: the contract; of `found` indices there is room for one, and one is asked for.
    unsafe { some(client, ids, count, timeout_ms, index, 1, &mut found) }
}

/// Waits until at least one of the requests is done; `indices` has room for `count`, and gets which are; `found` gets how many.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_wait_some(
    client: hf_client,
    ids: *const hf_request,
    count: usize,
    timeout_ms: i64,
    indices: *mut usize,
    found: *mut usize,
) -> hf_status {
    // SAFETY: the contract.
    unsafe { some(client, ids, count, timeout_ms, indices, count, found) }
}

/// # Safety
/// The contract; `indices` has room for `room`.
unsafe fn some(
    client: hf_client,
    ids: *const hf_request,
    count: usize,
    timeout_ms: i64,
    indices: *mut usize,
    room: usize,
    found: *mut usize,
) -> hf_status {
    with(client, |handle| {
        if indices.is_null() || found.is_null() {
            return Err(HF_E_INVALID);
        }
        // SAFETY: the contract.
        let ids = unsafe { requests(ids, count) }?;
        let done = handle.wait_some(&ids, timeout(timeout_ms)).map_err(|e| status(&e))?;
        for (nth, &at) in done.iter().take(room).enumerate() {
            // SAFETY: `nth` is below `room`.
            unsafe { indices.add(nth).write(at) };
        }
        // SAFETY: not null; the contract.
        unsafe { found.write(done.len()) };
        Ok(if done.is_empty() { HF_IN_PROGRESS } else { HF_OK })
    })
}

/// Waits until all the requests are done.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_wait_all(
    client: hf_client,
    ids: *const hf_request,
    count: usize,
    timeout_ms: i64,
) -> hf_status {
    with(client, |handle| {
        // SAFETY: the contract.
        let ids = unsafe { requests(ids, count) }?;
        done(handle.wait_all(&ids, timeout(timeout_ms)))
    })
}

/// Ends a request. All buffers are the caller's again; the result says whether the server may execute it.
#[unsafe(no_mangle)]
pub extern "C" fn hf_cancel(client: hf_client, id: hf_request) -> hf_status {
    with(client, |handle| handle.cancel(request(id)?).map(|()| HF_OK).map_err(|e| status(&e)))
}

/// The next request with HF_LISTED that is done; HF_IN_PROGRESS if there is none.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_next_completion(client: hf_client, out: *mut hf_request) -> hf_status {
    with(client, |handle| {
        if out.is_null() {
            return Err(HF_E_INVALID);
        }
        let Some(id) = handle.next_completion() else { return Ok(HF_IN_PROGRESS) };
        // SAFETY: not null; the contract.
        unsafe { out.write(id.to_u64()) };
        Ok(HF_OK)
    })
}

/// A descriptor that is readable when hf_progress, and then hf_next_completion, are to be called; -1 if there is no such client. It is the
/// client's: it must not be read from or closed.
#[unsafe(no_mangle)]
pub extern "C" fn hf_event_fd(client: hf_client) -> c_int {
    HANDLES.get(client).map_or(-1, |client| client.event_fd().as_raw_fd())
}

/// The result of a request that is done: HF_OK and the reply, or why there is none. It can be asked for until the request
/// is released.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_result(client: hf_client, id: hf_request, out: *mut hf_reply) -> hf_status {
    with(client, |handle| {
        if out.is_null() {
            return Err(HF_E_INVALID);
        }
        let id = request(id)?;
        let result = handle.peek_with(id, |result, filled, beside| match (result, filled) {
            (Ok(_), Some(len)) => {
                let reply = hf_reply { r#type: hf_type::HF_FILLED, len, ..nil(hf_executed::HF_EXECUTED) };
                (HF_OK, reply)
            }
            (Ok(reply), None) if !has_items(reply) => (HF_OK, scalar(reply, hf_executed::HF_EXECUTED)),
            (Ok(reply), None) => {
                let tree = beside.get_or_insert_with(|| {
                    let mut tree = Tree(Vec::new());
                    lay_out(items(reply), &mut tree);
                    Box::new(tree)
                });
                (HF_OK, top(reply, tree.downcast_ref().expect("nobody else keeps anything there")))
            }
            (Err(error), _) => (status(error), of_error(error)),
        });
        let (status, reply) = result.map_err(|e| self::status(&e))?;
        // SAFETY: not null; the contract.
        unsafe { out.write(reply) };
        Ok(status)
    })
}

/// What went wrong with a request, as a string, cut to `size` bytes with the zero byte.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_message(
    client: hf_client,
    id: hf_request,
    to: *mut c_char,
    size: usize,
) -> hf_status {
    with(client, |handle| {
        if to.is_null() || size == 0 {
            return Err(HF_E_INVALID);
        }
        let text = handle.peek(request(id)?, |result, _| match result {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        });
        // SAFETY: the contract.
        unsafe { copy_text(&text.map_err(|e| status(&e))?, to, size) };
        Ok(HF_OK)
    })
}

/// Lets go of a request and its result, if there is one; it is cancelled if it is not done.
#[unsafe(no_mangle)]
pub extern "C" fn hf_release(client: hf_client, id: hf_request) -> hf_status {
    with(client, |handle| handle.release(request(id)?).map(|()| HF_OK).map_err(|e| status(&e)))
}

/// Lets go of several requests, up to the first that is none.
///
/// # Safety
/// The contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_release_all(
    client: hf_client,
    ids: *const hf_request,
    count: usize,
) -> hf_status {
    with(client, |handle| {
        // SAFETY: the contract.
        let ids = unsafe { requests(ids, count) }?;
        handle.release_all(&ids).map(|()| HF_OK).map_err(|e| status(&e))
    })
}

fn nil(executed: hf_executed) -> hf_reply {
    hf_reply {
        r#type: hf_type::HF_NIL,
        executed,
        integer: 0,
        number: 0.0,
        data: ptr::null(),
        len: 0,
        items: ptr::null(),
        count: 0,
    }
}

fn string(r#type: hf_type, bytes: &[u8], executed: hf_executed) -> hf_reply {
    hf_reply { r#type, data: bytes.as_ptr().cast(), len: bytes.len(), ..nil(executed) }
}

fn of_error(error: &Error) -> hf_reply {
    let executed = match error.executed() {
        Executed::No => hf_executed::HF_NOT_EXECUTED,
        Executed::Unknown => hf_executed::HF_MAYBE_EXECUTED,
        Executed::Yes => hf_executed::HF_EXECUTED,
    };
    match error {
        Error::Server(text) => string(hf_type::HF_ERROR, text, executed),
        Error::TooSmall { needed } => hf_reply { integer: *needed as i64, ..nil(executed) },
        _ => nil(executed),
    }
}

fn has_items(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(_) | Reply::Set(_) | Reply::Push(_) | Reply::Map(_))
}

/// The elements of a reply in their order.
fn items(reply: &Reply) -> Vec<&Reply> {
    match reply {
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items.iter().collect(),
        Reply::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
        _ => Vec::new(),
    }
}

fn scalar(reply: &Reply, executed: hf_executed) -> hf_reply {
    match reply {
        Reply::Simple(text) => string(hf_type::HF_STATUS, text, executed),
        Reply::Error(text) => string(hf_type::HF_ERROR, text, executed),
        Reply::Bulk(text) | Reply::BigNumber(text) | Reply::Verbatim(_, text) => {
            string(hf_type::HF_STRING, text, executed)
        }
        Reply::Int(value) => hf_reply { r#type: hf_type::HF_INTEGER, integer: *value, ..nil(executed) },
        Reply::Bool(value) => {
            hf_reply { r#type: hf_type::HF_BOOL, integer: i64::from(*value), ..nil(executed) }
        }
        Reply::Double(value) => hf_reply { r#type: hf_type::HF_DOUBLE, number: *value, ..nil(executed) },
        Reply::Null => nil(executed),
        Reply::Array(_) | Reply::Push(_) => hf_reply { r#type: hf_type::HF_ARRAY, ..nil(executed) },
        Reply::Set(_) => hf_reply { r#type: hf_type::HF_SET, ..nil(executed) },
        Reply::Map(_) => hf_reply { r#type: hf_type::HF_MAP, ..nil(executed) },
    }
}

/// Lays elements out, those of their own first; the last slice of the tree is theirs.
fn lay_out(items: Vec<&Reply>, tree: &mut Tree) {
    let mut slice = Vec::with_capacity(items.len());
    for item in items {
        let mut reply = scalar(item, hf_executed::HF_EXECUTED);
        if has_items(item) {
            lay_out(self::items(item), tree);
            let inner = tree.0.last().expect("what was just laid out");
            (reply.items, reply.count) = (inner.as_ptr(), inner.len());
        }
        slice.push(reply);
    }
    tree.0.push(slice.into());
}

/// The reply whose elements the tree has.
fn top(reply: &Reply, tree: &Tree) -> hf_reply {
    let items = tree.0.last().expect("a tree has the elements of its reply");
    hf_reply { items: items.as_ptr(), count: items.len(), ..scalar(reply, hf_executed::HF_EXECUTED) }
}
