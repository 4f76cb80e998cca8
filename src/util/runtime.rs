//! A thread's own event loop.

use std::io;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// One that has sockets, timers, and tasks that stay in this thread.
///
/// # Errors
/// The system's.
pub fn local() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_io().enable_time().build_local(LocalOptions::default())
}
