//! Why a command stops: errors in Redis's words, and what it has to wait for.

use holdfast_store::{Admission, Cold, LockBusy};
use std::borrow::Cow;

/// Why a handler stops. It must not have changed anything before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Reply with an error: a code in capital letters, a space, and words.
    Error(Cow<'static, [u8]>),
    /// A value is on the medium only. The handler runs again when it, and what else the command needs, is fetched.
    Cold(Cold),
    /// A script holds what is needed for long.
    LockBusy,
    /// The log has no room now for what the command would write. The handler runs again when it may have.
    Busy,
}

impl Stop {
    /// An error with a fixed text.
    pub const fn new(text: &'static str) -> Self {
        Stop::Error(Cow::Borrowed(text.as_bytes()))
    }

    /// What it says, for who does not wait.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Stop::Error(text) => String::from_utf8_lossy(text),
            Stop::Cold(_) | Stop::LockBusy | Stop::Busy => "the store is busy".into(),
        }
    }
}

impl From<String> for Stop {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<Vec<u8>> for Stop {
    fn from(text: Vec<u8>) -> Self {
        Stop::Error(Cow::Owned(text))
    }
}

impl From<LockBusy> for Stop {
    fn from(_: LockBusy) -> Self {
        Stop::LockBusy
    }
}

impl From<holdfast_store::Error> for Stop {
    fn from(error: holdfast_store::Error) -> Self {
        match error {
            holdfast_store::Error::WrongType => WRONG_TYPE,
            holdfast_store::Error::Cold(cold) => Stop::Cold(cold),
            holdfast_store::Error::Full => OUT_OF_MEMORY,
            holdfast_store::Error::NotAdmitted(Admission::Busy) => Stop::Busy,
            holdfast_store::Error::NotAdmitted(Admission::Failed) => LOG_FAILED,
            holdfast_store::Error::NotAdmitted(_) => DISK_FULL,
            holdfast_store::Error::NotASketch => NOT_A_SKETCH,
            holdfast_store::Error::DamagedSketch => DAMAGED_SKETCH,
            error => format!("ERR {error}").into(),
        }
    }
}

/// The client has to authenticate first.
pub const NOAUTH: Stop = Stop::new("NOAUTH Authentication required.");
/// The reply to AUTH without a name where no password is needed.
pub const NO_PASSWORD_SET: Stop = Stop::new(
    "ERR AUTH <password> called without any password configured for the default user. \
     Are you sure your configuration is correct?",
);
/// The reply to HELLO from a client that has not said who it is.
pub const HELLO_NOAUTH: Stop = Stop::new(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> \
     option can be used to authenticate the client and select the RESP protocol version at the same time",
);
/// It has not done so.
pub const WRONGPASS: Stop = Stop::new("WRONGPASS invalid username-password pair or user is disabled.");
/// HELLO names another protocol than 2 or 3.
pub const NOPROTO: Stop = Stop::new("NOPROTO unsupported protocol version");
/// The server is a replica.
pub const READONLY: Stop = Stop::new("READONLY You can't write against a read only replica.");
/// It is one, and its data may be out of date.
pub const MASTERDOWN: Stop =
    Stop::new("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");
/// Its data are not there yet.
pub const LOADING: Stop = Stop::new("LOADING Redis is loading the dataset in memory");
/// A command of a transaction was refused, and with it the transaction.
pub const EXECABORT: Stop = Stop::new("EXECABORT Transaction discarded because of previous errors.");
/// The arguments are not what the command expects.
pub const SYNTAX: Stop = Stop::new("ERR syntax error");
/// An argument should be an integer.
pub const NOT_INTEGER: Stop = Stop::new("ERR value is not an integer or out of range");
/// An argument should be a floating-point number.
pub const NOT_DOUBLE: Stop = Stop::new("ERR value is not a valid float");
/// A count should not be negative.
pub const NOT_POSITIVE: Stop = Stop::new("ERR value is out of range, must be positive");
/// The key holds another type of value.
pub const WRONG_TYPE: Stop = Stop::new("WRONGTYPE Operation against a key holding the wrong kind of value");
/// The string is not a HyperLogLog.
const NOT_A_SKETCH: Stop = Stop::new("WRONGTYPE Key is not a valid HyperLogLog string value.");
/// The registers of a HyperLogLog are not what they should be.
const DAMAGED_SKETCH: Stop = Stop::new("INVALIDOBJ Corrupted HLL object detected");
/// The number of a database is beyond the last one.
pub const NO_DATABASE: Stop = Stop::new("ERR DB index is out of range");
/// The heap has no room.
pub const OUT_OF_MEMORY: Stop = Stop::new("OOM command not allowed when used memory > 'maxmemory'.");
/// The log has no room.
pub const DISK_FULL: Stop = Stop::new(
    "OOM command not allowed: the disk is full, or the log has reached 'log-max-size'. Deleting keys makes room.",
);
/// How the error begins of a write while the log has failed.
pub const LOG_FAILED_TEXT: &str = "MISCONF Writing to the log has failed, so data cannot be changed";
/// The log has failed. Admission tells why.
const LOG_FAILED: Stop = Stop::new(LOG_FAILED_TEXT);
/// CLIENT UNBLOCK … ERROR.
pub const UNBLOCKED: Stop = Stop::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
