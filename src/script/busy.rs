//! Scripts that run for longer than `busy-reply-threshold`. While there is one, clients may do little more than kill it.

use crate::command::error::Stop;
use holdfast_io::Moment;
use holdfast_resp::OwnedArgs;
use holdfast_store::Store;
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock,
    atomic::{AtomicBool, Ordering::Relaxed},
};

const BUSY_SCRIPT: Stop =
    Stop::new("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.");
const BUSY_FUNCTION: Stop =
    Stop::new("BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.");
const NOT_BUSY: Stop = Stop::new("NOTBUSY No scripts in execution right now.");
const UNKILLABLE: Stop = Stop::new(
    "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script \
     termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
);

/// A script that runs for long.
pub struct Running {
    /// Its digest, or the function's name.
    pub name: String,
    /// Whether EVAL has begun it.
    pub is_eval: bool,
    /// The command that has begun it.
    pub command: OwnedArgs,
    /// When that was.
    pub started: Moment,
    /// Once either is so.
    fate: OnceLock<Fate>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It has written, and so must come to its end.
    Writes,
    /// It is to end, and may not write any more.
    Killed,
}

impl Running {
    /// One that has not written.
    pub fn new(name: String, is_eval: bool, command: OwnedArgs, started: Moment) -> Running {
        Running { name, is_eval, command, started, fate: OnceLock::new() }
    }

    /// Notes that it begins to write; false: it was killed before.
    pub fn begin_to_write(&self) -> bool {
        *self.fate.get_or_init(|| Fate::Writes) == Fate::Writes
    }

    /// Has it end; false: it has written before.
    fn kill(&self) -> bool {
        *self.fate.get_or_init(|| Fate::Killed) == Fate::Killed
    }

    /// Whether it is to end.
    pub fn is_killed(&self) -> bool {
        self.fate.get() == Some(&Fate::Killed)
    }

    fn busy(&self) -> Stop {
        if self.is_eval { BUSY_SCRIPT } else { BUSY_FUNCTION }
    }
}

/// Something to be done; whether it could be.
type Deferred = Box<dyn FnMut(&Store) -> bool + Send>;

/// All of them.
#[derive(Default)]
pub struct Busy {
    any: AtomicBool,
    running: Mutex<Vec<Arc<Running>>>,
    deferred: Mutex<Vec<Deferred>>,
}

impl Busy {
    /// Whether there is any.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.any.load(Relaxed)
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Running>>> {
        self.running.lock().expect("no holder panics")
    }

    /// Adds one.
    pub fn begin(&self, running: Arc<Running>) {
        let mut all = self.all();
        all.push(running);
        self.any.store(true, Relaxed);
    }

    /// It has ended.
    pub fn end(&self, running: &Arc<Running>) {
        let mut all = self.all();
        all.retain(|other| !Arc::ptr_eq(other, running));
        self.any.store(!all.is_empty(), Relaxed);
    }

    /// The one that runs longest.
    pub fn first(&self) -> Option<Arc<Running>> {
        self.all().first().cloned()
    }

    /// The error of commands that must wait; `None`: not any more.
    #[cold]
    pub fn error(&self) -> Option<Stop> {
        self.first().map(|running| running.busy())
    }

    /// Has all of them end; to be called where none can write.
    pub fn kill_all(&self) {
        self.all().iter().for_each(|running| _ = running.kill());
    }

    /// SCRIPT KILL, FUNCTION KILL.
    pub fn kill(&self, is_eval: bool) -> Result<(), Stop> {
        let all = self.all();
        let first = all.first().ok_or(NOT_BUSY)?;
        if all.iter().any(|running| running.is_eval == is_eval && running.kill()) {
            return Ok(());
        }
        let may_end = |running: &Arc<Running>| running.fate.get() != Some(&Fate::Writes);
        Err(if all.iter().any(may_end) { first.busy() } else { UNKILLABLE })
    }

    /// Does something that locks partitions, as soon as no script that is busy holds them. `f` says whether it could be
    /// done.
    pub fn when_over(&self, store: &Store, mut f: impl FnMut(&Store) -> bool + Send + 'static) {
        // The script may be one of this very thread's.
        if self.is_on() || !f(store) {
            self.put_off(Box::new(f));
        }
    }

    fn put_off(&self, deferred: Deferred) {
        self.deferred.lock().expect("no holder panics").push(deferred);
    }

    /// Does what has been put off.
    pub fn do_deferred(&self, store: &Store) {
        if self.is_on() {
            return;
        }
        let deferred = std::mem::take(&mut *self.deferred.lock().expect("no holder panics"));
        deferred.into_iter().for_each(|mut f| {
            if !f(store) {
                self.put_off(f);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_is_not_killed_and_who_is_killed_does_not_write() {
        let busy = Busy::default();
        let begin = || {
            let running = Arc::new(Running::new("name".into(), true, OwnedArgs::default(), Moment::now()));
            busy.begin(running.clone());
            running
        };
        let (killed, writes) = (begin(), begin());
        assert!(writes.begin_to_write());
        assert!(busy.kill(true).is_ok() && killed.is_killed() && !killed.begin_to_write());
        assert!(writes.begin_to_write() && !writes.is_killed(), "the other one is left alone");
        assert!(busy.kill(true).is_ok(), "it has not ended yet");
        busy.end(&killed);
        busy.kill_all();
        assert!(busy.kill(true) == Err(UNKILLABLE) && !writes.is_killed());
    }
}
