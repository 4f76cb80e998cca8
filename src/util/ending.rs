//! The orderly end of the process, and the signals that ask for it, SIGTERM and SIGINT. They are not handled but stay pending until they are taken,
//! so that none is forgotten by a server of a replica set that changes what it is, and executes itself anew: what is pending then still is.

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal, raise},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{
    io, mem,
    os::fd::AsFd,
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};
use tokio::sync::watch::{self, Sender};

/// By which signal.
static ASKED: LazyLock<Sender<Option<&'static str>>> = LazyLock::new(|| watch::Sender::new(None));
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// Whether a signal ends the process in order, and not at once.
static ENDS_IN_ORDER: AtomicBool = AtomicBool::new(false);
/// Who has it may take signals.
static TAKING: Mutex<()> = Mutex::new(());

/// Has a thread take the signals, which end the process at once so far. To be called by the main thread while it has no other one, as those have
/// its mask. Signals that were held back by [`hold_signals`] and have their handlers now come.
///
/// # Errors
/// The system's.
pub fn watch_signals() -> io::Result<()> {
    let asking = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
    asking.thread_set_mask()?;
    let signals = SignalFd::with_flags(&asking, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            let mut pending = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut pending, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => take(&signals),
                Err(error) => panic!("cannot wait for signals: {error}"),
            }
        }
    })?;
    Ok(())
}

/// Takes a signal if there is one.
fn take(signals: &SignalFd) {
    let _taking = TAKING.lock().expect("no holder panics");
    let Some(taken) = signals.read_signal().expect("signals can be read") else {
        return;
    };
    let signal = Signal::try_from(taken.ssi_signo as i32).expect("one of the two");
    if !ENDS_IN_ORDER.load(SeqCst) {
        let _ = SigSet::from(signal).thread_unblock();
        // Which ends the process.
        let _ = raise(signal);
    }
    HAS_BEGUN.store(true, SeqCst);
    if ASKED.borrow().is_none() {
        ASKED.send_replace(Some(signal.as_str()));
    }
}

/// The signals end the process in order from now on.
pub fn end_in_order() {
    ENDS_IN_ORDER.store(true, SeqCst);
}

/// Leaves all signals pending from now on, for the program that this thread is about to execute. Whether the process ends, or was asked to.
pub fn hold_signals() -> bool {
    mem::forget(TAKING.lock().expect("no holder panics"));
    // Those that have handlers here, too, or they would end the program before it has some.
    let _ = SigSet::all().thread_set_mask();
    has_begun()
}

/// The process ends from now on.
pub fn begin() {
    HAS_BEGUN.store(true, SeqCst);
}

/// Whether the process ends, or was asked to.
pub fn has_begun() -> bool {
    HAS_BEGUN.load(SeqCst)
}

/// Waits until the process is asked to end, by the signal of that name; or returns at once if it was before.
pub async fn asked() -> &'static str {
    let mut asked = ASKED.subscribe();
    let name = asked.wait_for(Option::is_some).await.expect("it is never closed");
    name.expect("waited for")
}
