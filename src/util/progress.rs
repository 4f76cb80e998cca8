//! How far something has come: a bar on a terminal, and else a line now and then. On the standard error, since that is no
//! result.

use crate::util::console::errln;
use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// What is shown.
pub struct Progress {
    on_terminal: bool,
    shown: Instant,
    has_bar: bool,
    /// What is counted; bytes, if nothing else is.
    what: Option<&'static str>,
}

impl Progress {
    const BAR_EVERY: Duration = Duration::from_millis(100);
    const LINE_EVERY: Duration = Duration::from_secs(10);

    /// Nothing is shown so far.
    pub fn new() -> Progress {
        let on_terminal = io::stderr().is_terminal();
        Progress { on_terminal, shown: Instant::now(), has_bar: false, what: None }
    }

    /// The same of things that are no bytes.
    pub fn counting(what: &'static str) -> Progress {
        let mut progress = Progress::new();
        progress.what = Some(what);
        progress
    }

    /// Shows how many of how many are done, if it is time to.
    pub fn show(&mut self, done: u64, all: u64) {
        let every = if self.on_terminal { Self::BAR_EVERY } else { Self::LINE_EVERY };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let line = line(done, all, self.what);
        if self.on_terminal {
            eprint!("\r{line}");
            // A bar that is not seen does no harm.
            let _ = io::stderr().flush();
            self.has_bar = true;
        } else {
            errln!("{line}");
        }
    }

    /// Takes the bar away.
    pub fn end(&mut self) {
        if self.has_bar {
            eprint!("\r{:1$}\r", "", line(0, 1, self.what).chars().count() + 20);
            self.has_bar = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

fn line(done: u64, all: u64, what: Option<&str>) -> String {
    const WIDTH: usize = 40;
    let share = if all == 0 { 1.0 } else { (done as f64 / all as f64).min(1.0) };
    let full = (share * WIDTH as f64) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
    let percent = (share * 100.0) as u64;
    match what {
        None => format!("[{bar}] {percent:3} % of {} MiB", all >> 20),
        Some(what) => format!("[{bar}] {percent:3} % of {all} {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_bar_grows() {
        assert_eq!(line(0, 100 << 20, None), "[----------------------------------------]   0 % of 100 MiB");
        assert_eq!(
            line(50 << 20, 100 << 20, None),
            "[####################--------------------]  50 % of 100 MiB"
        );
        assert_eq!(
            line(101 << 20, 100 << 20, None),
            "[########################################] 100 % of 100 MiB"
        );
        assert_eq!(line(0, 0, None), "[########################################] 100 % of 0 MiB");
        assert_eq!(line(1, 2, Some("keys")), "[####################--------------------]  50 % of 2 keys");
    }
}
