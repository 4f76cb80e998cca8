//! What a handler returns.

use crate::{
    command::error::Stop,
    session::{progress::Progress, snapshot::SnapshotRequest},
};
use holdfast_store::Cold;
use std::{fmt, thread, time::Duration};
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
    /// [`crate::exec::call::Call::wait_for`].
    Wait(Option<Instant>),
    /// Nothing is written. Read these from the medium, then run the handler again with them.
    Fetch(Vec<Cold>),
    /// A part of it is done, which is committed; nothing is written. Let others run, then run the handler again.
    Partial,
    /// Nothing was executed: it is not the time. Try again then.
    Postpone(Instant),
    /// Nothing was executed: there is no room now for what it would write. Try again in the order of [`crate::commit::admission`].
    Busy,
    /// Nothing was executed: others that write wait for room already. Wait behind them.
    Queue,
    /// Nothing was executed: it wants the interpreter of scripts for itself, and a stack of its own ([`crate::script::stack`]). Run it
    /// again there, in its turn ([`crate::exec::worker::Worker::script_turn`]).
    OnStack,
    /// Nothing was executed: a key is kept for a client that has waited for it. Try again when that has looked.
    WaiterFirst,
    /// Nothing was executed: a script holds what it needs for long. Try again when that may be over.
    LockBusy,
    /// Nothing is written. Do this where it may wait, then run the handler again with what it comes to.
    WaitFor(Work),
    /// Nothing is written. Send what the server holds at one moment, as an RDB file, and close the connection.
    SendSnapshot(SnapshotRequest),
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

    /// Whether it is for others to end the wait, and they may take their time.
    pub fn may_take_long(&self) -> bool {
        use Outcome::{Busy, Partial, Postpone, Queue, Wait, WaitFor};
        matches!(self, Wait(_) | Partial | Postpone(_) | Busy | Queue | WaitFor(_))
    }

    /// Tries again in a while.
    pub fn postpone(while_: Duration) -> Outcome {
        Outcome::Postpone(Instant::now() + while_)
    }
}

/// An outcome, or why there is none.
pub type Answer = Result<Outcome, Stop>;
