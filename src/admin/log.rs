//! What the server tells its operator, on the standard error or in a file: as lines in Redis's format, `pid:M 20 Nov 2026 23:22:00.123 *
//! message` in the machine's time zone, or as a JSON object a line. Where the standard error is the journal of systemd, a line begins with
//! its priority instead, and the journal knows time and process. To syslog it goes as well, if it is to.

use crate::{admin::syslog::Syslog, util::console::is_stderr_the_journal};
use jiff::{Timestamp, Zoned};
use serde_json::json;
use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    process,
    sync::{
        LazyLock, OnceLock, RwLock,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
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

impl Level {
    /// As the option `loglevel` calls it.
    fn name(self) -> &'static str {
        ["debug", "verbose", "notice", "warning"][self as usize]
    }

    /// As Redis marks it in a line.
    fn mark(self) -> &'static str {
        [".", "-", "*", "#"][self as usize]
    }

    /// The severity that syslog and the journal know: debug, informational, notice, warning.
    pub fn severity(self) -> u8 {
        7 - self as u8
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Notice as u8);
static IS_JSON: AtomicBool = AtomicBool::new(false);
static FILE: RwLock<Option<File>> = RwLock::new(None);
static SYSLOG: OnceLock<Syslog> = OnceLock::new();
static IS_JOURNAL: LazyLock<bool> = LazyLock::new(is_stderr_the_journal);

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

/// Whether lines are JSON objects from now on.
pub fn set_json(is_json: bool) {
    IS_JSON.store(is_json, Relaxed);
}

/// Sends what is logged from now on to syslog as well. Only the first call counts.
pub fn set_syslog(syslog: Syslog) {
    SYSLOG.get_or_init(|| syslog);
}

/// Logs a message; use [`log!`].
pub fn write(level: Level, message: fmt::Arguments) {
    if (level as u8) < LEVEL.load(Relaxed) {
        return;
    }
    let message = message.to_string();
    if let Some(syslog) = SYSLOG.get() {
        syslog.send(level.severity(), &message);
    }
    let file = FILE.read().expect("no holder panics");
    let is_journal = file.is_none() && *IS_JOURNAL;
    let is_json = IS_JSON.load(Relaxed);
    let line = match (is_json, is_journal) {
        (true, _) => json_line(level, &message),
        // The journal would take each line for a message of its own.
        (false, true) => message.replace('\n', " "),
        (false, false) => {
            let time = Zoned::now().strftime("%d %b %Y %H:%M:%S%.3f").to_string();
            format!("{}:M {time} {} {message}", process::id(), level.mark())
        }
    };
    let priority = if is_journal { format!("<{}>", level.severity()) } else { String::new() };
    let line = format!("{priority}{line}\n");
    // There is nowhere to report that reporting failed.
    let _ = match &*file {
        Some(file) => (&*file).write_all(line.as_bytes()),
        None => io::stderr().write_all(line.as_bytes()),
    };
}

fn json_line(level: Level, message: &str) -> String {
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
    json!({ "time": time, "level": level.name(), "pid": process::id(), "message": message }).to_string()
}

/// Logs a formatted message: `log!(Notice, "{n} clients")`.
macro_rules! log {
    ($level:ident, $($message:tt)*) => {
        $crate::admin::log::write($crate::admin::log::Level::$level, format_args!($($message)*))
    };
}
pub(crate) use log;
