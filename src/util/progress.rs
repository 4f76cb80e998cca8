//! How far something has come: a bar on a terminal, and else a line now and then. On the standard error, since that is no
//! result.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

/// What is shown.
pub struct Progress {
    on_terminal: bool,
    shown: Instant,
    has_bar: bool,
}

impl Progress {
    const BAR_EVERY: Duration = Duration::from_millis(100);
    const LINE_EVERY: Duration = Duration::from_secs(10);

    /// Nothing is shown so far.
    pub fn new() -> Progress {
        Progress { on_terminal: io::stderr().is_terminal(), shown: Instant::now(), has_bar: false }
    }

    /// Shows how many bytes of how many are done, if it is time to.
    pub fn show(&mut self, done: u64, all: u64) {
        let every = if self.on_terminal { Self::BAR_EVERY } else { Self::LINE_EVERY };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let line = line(done, all);
        if self.on_terminal {
            eprint!("\r{line}");
            // A bar that is not seen does no harm.
            let _ = io::stderr().flush();
            self.has_bar = true;
        } else {
            eprintln!("{line}");
        }
    }

    /// Takes the bar away.
    pub fn end(&mut self) {
        if self.has_bar {
            eprint!("\r{:1$}\r", "", line(0, 1).chars().count() + 20);
        }
    }
}

fn line(done: u64, all: u64) -> String {
    const WIDTH: usize = 40;
    let share = if all == 0 { 1.0 } else { (done as f64 / all as f64).min(1.0) };
    let full = (share * WIDTH as f64) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
    format!("[{bar}] {:3} % of {} MiB", (share * 100.0) as u64, all >> 20)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_bar_grows() {
        assert_eq!(line(0, 100 << 20), "[----------------------------------------]   0 % of 100 MiB");
        assert_eq!(line(50 << 20, 100 << 20), "[####################--------------------]  50 % of 100 MiB");
        assert_eq!(line(101 << 20, 100 << 20), "[########################################] 100 % of 100 MiB");
        assert_eq!(line(0, 0), "[########################################] 100 % of 0 MiB");
    }
}
