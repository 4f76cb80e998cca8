//! What the server tells its operator, in Redis's format: `pid:M 20 Nov 2026 23:22:00.123 * message`, in the
//! machine's time zone.

use jiff::Zoned;
use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    process,
    sync::{
        RwLock,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

/// How important a message is; the order is that of the option `loglevel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For those who change the server.
    Debug,
    /// Rarely useful.
    Verbose,
    /// What an operator wants to know.
    Notice,
    /// What an operator must know.
    Warning,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Notice as u8);
static FILE: RwLock<Option<File>> = RwLock::new(None);

/// Sends what is logged from now on to a file. If that is the one that is in use, and was renamed meanwhile, a new one takes
/// its place. After an error all stays as it was.
pub fn open_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    *FILE.write().expect("no holder panics") = Some(file);
    Ok(())
}

/// Logs messages of a level and above from now on, by its place in [`Level`]; beyond the last: none.
pub fn set_level(level: u8) {
    LEVEL.store(level, Relaxed);
}

/// Logs a message; use [`log!`].
pub fn write(level: Level, message: fmt::Arguments) {
    if (level as u8) < LEVEL.load(Relaxed) {
        return;
    }
    let mark = [".", "-", "*", "#"][level as usize];
    let time = Zoned::now();
    let line = format!("{}:M {} {mark} {message}\n", process::id(), time.strftime("%d %b %Y %H:%M:%S%.3f"));
    // There is nowhere to report that reporting failed.
    let _ = match &*FILE.read().expect("no holder panics") {
        Some(file) => (&*file).write_all(line.as_bytes()),
        None => io::stderr().write_all(line.as_bytes()),
    };
}

/// Logs a formatted message: `log!(Notice, "{n} clients")`.
macro_rules! log {
    ($level:ident, $($message:tt)*) => {
        $crate::admin::log::write($crate::admin::log::Level::$level, format_args!($($message)*))
    };
}
pub(crate) use log;
