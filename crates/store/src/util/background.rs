//! Threads of the store's own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle, Thread},
};

/// A thread that parks when it has nothing to do.
pub(crate) struct Background {
    handle: JoinHandle<()>,
    stopping: Arc<AtomicBool>,
}

impl Background {
    /// Starts it; `run` is to return soon once its flag is set.
    pub fn start(name: &str, run: impl FnOnce(&AtomicBool) + Send + 'static) -> Background {
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        let handle = thread::Builder::new()
            .name(name.into())
            .spawn(move || run(&stop))
            .expect("the system starts a thread");
        Background { handle, stopping }
    }

    /// To be unparked by who has something for it to do.
    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }

    /// Has it return, and waits for that.
    pub fn stop(self) {
        self.stopping.store(true, Relaxed);
        self.thread().unpark();
        self.handle.join().expect("panics abort");
    }
}
