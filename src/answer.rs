//! What a handler returns.

use crate::progress::Progress;
use holdfast_store::{Admission, Cold, HeldUp};
use std::{borrow::Cow, fmt, thread, time::Duration};
use tokio::{
    sync::oneshot,
    time::{self, Instant},
};

/// What is to be done after a handler.
#[derive(Debug)]
pub enum Outcome {
    /// Its reply is written; go on.
    Done,
    /// Its reply is written; send it and close the connection.
    Close,
    /// Nothing is written. Wait until a key is written or until the time given, then run the handler again; see
    /// [`crate::call::Call::wait_for`].
    Wait(Option<Instant>),
    /// Nothing is written. Read these from the medium, then run the handler again with them.
    Fetch(Vec<Cold>),
    /// Nothing was executed: it is not the time. Try again then.
    Postpone(Instant),
    /// Nothing was executed: there is no room now for what it would write. Try again in the order of [`crate::admission`].
    Busy,
    /// Nothing was executed: others that write wait for room already. Wait behind them.
    Queue,
    /// Nothing was executed: it is to be done on a stack of its own ([`crate::script::stack`]). Run it again there.
    OnStack,
    /// Nothing was executed: a key is kept for a client that has waited for it. Try again when that has looked.
    Behind,
    /// Nothing was executed: a script holds what it needs for long. Try again when that may be over.
    HeldUp,
    /// Nothing is written. Do this where it may wait, then run the handler again with what it comes to.
    WaitFor(Work),
}

/// How long a command waits that has found no thread.
const THREAD_RETRY: Duration = Duration::from_millis(100);

/// Something to do in a thread of its own. What it comes to is how far the command has come.
pub struct Work(Box<dyn FnOnce() -> Progress + Send>);

impl Work {
    /// This.
    pub fn new(work: impl FnOnce() -> Progress + Send + 'static) -> Work {
        Work(Box::new(work))
    }

    /// Begins it; `None`: for now there is no thread for it.
    pub fn begin(self) -> impl Future<Output = Option<Progress>> {
        let (sender, receiver) = oneshot::channel();
        // Whoever waits for it may be gone.
        let work = move || drop(sender.send((self.0)()));
        let started = thread::Builder::new().name("work".into()).spawn(work);
        async move {
            if started.is_err() {
                time::sleep(THREAD_RETRY).await;
            }
            receiver.await.ok()
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

impl Outcome {
    /// Whether the command is over.
    #[inline]
    pub fn is_final(&self) -> bool {
        matches!(self, Outcome::Done | Outcome::Close)
    }

    /// Tries again in a while.
    pub fn postpone(while_: Duration) -> Outcome {
        Outcome::Postpone(Instant::now() + while_)
    }
}

/// An outcome, or why there is none.
pub type Answer = Result<Outcome, Stop>;

/// Why a handler stops. It must not have changed anything before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Reply with an error: a code in capital letters, a space, and words.
    Error(Cow<'static, [u8]>),
    /// A value is on the medium only. The handler runs again when it, and what else the command needs, is fetched.
    Cold(Cold),
    /// A script holds what is needed for long.
    HeldUp,
    /// The log has no room now for what the command would write. The handler runs again when it may have.
    Busy,
}

impl Stop {
    /// An error with a fixed text.
    pub const fn new(text: &'static str) -> Self {
        Stop::Error(Cow::Borrowed(text.as_bytes()))
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

impl From<HeldUp> for Stop {
    fn from(_: HeldUp) -> Self {
        Stop::HeldUp
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

/// Why a waiting handler runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It has not waited: this is the first time.
    First,
    /// A key that it waited for was written.
    Signal,
    /// The time is over, or CLIENT UNBLOCK said so.
    Timeout,
    /// CLIENT UNBLOCK … ERROR.
    Unblocked,
}

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
/// The log has failed; [`crate::dispatch::Turn::admit_log`] tells why.
const LOG_FAILED: Stop = Stop::new("MISCONF Writing to the log has failed, so data cannot be changed");
/// CLIENT UNBLOCK … ERROR.
pub const UNBLOCKED: Stop = Stop::new("UNBLOCKED client unblocked via CLIENT UNBLOCK");
