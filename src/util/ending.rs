//! The orderly end of the process, and the signals that ask for it, SIGTERM and SIGINT. The first one is kept, since nobody may look for it at that
//! moment: a server of a replica set changes what it is, and begins again.

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag::{register, register_conditional_default},
};
use std::{
    future::poll_fn,
    io,
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    thread,
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::watch::{self, Receiver},
};

static ASKED: OnceLock<Receiver<Option<&'static str>>> = OnceLock::new();
static HAS_BEGUN: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Whether a signal ends the process at once.
static ENDS_AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Takes the signals from now on. Has no effect a second time.
///
/// # Errors
/// The system's.
pub fn take_signals() -> io::Result<()> {
    if ASKED.get().is_some() {
        return Ok(());
    }
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let kinds = [(SignalKind::terminate(), "SIGTERM"), (SignalKind::interrupt(), "SIGINT")];
    let mut signals = {
        let _context = runtime.enter();
        let [terminate, interrupt] = kinds.map(|(kind, name)| signal(kind).map(|signal| (signal, name)));
        [terminate?, interrupt?]
    };
    for signal in [SIGTERM, SIGINT] {
        // In this order: one that comes now is seen by who is about to execute a program, or ends the process.
        register(signal, HAS_BEGUN.clone())?;
        register_conditional_default(signal, ENDS_AT_ONCE.clone())?;
    }
    let (asks, asked) = watch::channel(None);
    thread::Builder::new().name("signals".into()).spawn(move || {
        let first = poll_fn(|cx| {
            let arrived = signals
                .iter_mut()
                .find_map(|(signal, name)| signal.poll_recv(cx).is_ready().then_some(*name));
            arrived.map_or(Poll::Pending, Poll::Ready)
        });
        let first = runtime.block_on(first);
        asks.send_replace(Some(first));
        // That never is: who waits later is told, too.
        runtime.block_on(asks.closed());
    })?;
    ASKED.get_or_init(|| asked);
    Ok(())
}

/// Has the signals end the process at once from now on, since it is about to execute a program, and they would be forgotten. Whether one came before,
/// or the process ends anyhow.
pub fn end_at_once() -> bool {
    ENDS_AT_ONCE.store(true, SeqCst);
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
    let mut asked = ASKED.get().expect("the signals were taken").clone();
    let name = asked.wait_for(Option::is_some).await.expect("who tells of them stays");
    name.expect("waited for")
}
