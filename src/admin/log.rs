//! What the server tells its operator, in Redis's format: `pid:M 20 Nov 2026 23:22:00.123 * message`, in UTC.

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
    time::{SystemTime, UNIX_EPOCH},
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
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = Utc::from_unix(since.as_secs());
    let line = format!("{}:M {time}.{:03} {mark} {message}\n", process::id(), since.subsec_millis());
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

/// A date and time.
struct Utc {
    year: i64,
    month: usize,
    day: u64,
    second_of_day: u64,
}

impl Utc {
    /// From seconds since 1970.
    fn from_unix(seconds: u64) -> Utc {
        // Years that begin in March have their leap day at the end, so a day's number gives year and month directly.
        let days = seconds / 86_400 + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = (march_month + 2) % 12;
        let year = (year_of_era + era * 400 + u64::from(month < 2)) as i64;
        Utc { year, month: month as usize, day, second_of_day: seconds % 86_400 }
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let (minutes, second) = (self.second_of_day / 60, self.second_of_day % 60);
        let (hour, minute) = (minutes / 60, minutes % 60);
        write!(f, "{:02} {} {} {hour:02}:{minute:02}:{second:02}", self.day, MONTHS[self.month], self.year)
    }
}

#[cfg(test)]
mod tests {
    use super::Utc;

    #[test]
    fn dates() {
        for (seconds, shown) in [
            (0, "01 Jan 1970 00:00:00"),
            (951_782_400, "29 Feb 2000 00:00:00"),
            (1_709_251_199, "29 Feb 2024 23:59:59"),
            (1_709_251_200, "01 Mar 2024 00:00:00"),
            (4_102_444_799, "31 Dec 2099 23:59:59"),
        ] {
            assert_eq!(Utc::from_unix(seconds).to_string(), shown);
        }
    }
}
