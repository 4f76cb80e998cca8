//! `holdfast check`: verifies a data folder offline, and leaves it as it is.

use holdfast_store::{OpenError, Options, Store};
use std::{
    io::{self, IsTerminal, Write},
    path::Path,
    process,
    time::{Duration, Instant},
};

/// Checks everything in `dir` and prints what it found; the error says what is wrong, with file and offset.
pub fn check(dir: &Path) -> Result<(), String> {
    if !dir.join("superblock").is_file() {
        return Err(format!("{} is not a data folder: it has no superblock", dir.display()));
    }
    let failed = |error: OpenError| match error {
        OpenError::Corrupt { .. } => format!(
            "{error}\n\
             Something in {} is damaged. If its medium has returned other bytes than were written, see to that first. To go \
             on, restore the folder from a backup; keep the damaged one until all is there again.",
            dir.display()
        ),
        error => format!("{}: {error}", dir.display()),
    };
    let on_unreadable = |error: &OpenError| -> ! {
        eprintln!("{error}");
        process::exit(1)
    };
    let options = Options { on_unreadable, ..Options::default() };
    let store = Store::open_read_only(dir, options).map_err(failed)?;
    let recovery = store.recovery();
    for note in &recovery.notes {
        println!("note: {note}");
    }
    println!("replayed: {} batches, {} bytes", recovery.replayed_batches, recovery.replayed_bytes);
    let mut progress = Progress::new();
    let report = store.check_telling(&mut |done, all| progress.show(done, all));
    progress.end();
    let report = report.map_err(failed)?;
    println!("keys: {}", report.keys);
    println!(
        "items: {}, {} bytes, {} of them frozen collections",
        report.items, report.live_bytes, report.frozen
    );
    println!("heap: {} bytes, {} pages in the last checkpoint", report.heap_bytes, report.heap_pages);
    println!("ok");
    Ok(())
}

/// How far the check has come: a bar on a terminal, and else a line now and then. On the standard error, since that is no
/// result.
struct Progress {
    on_terminal: bool,
    shown: Instant,
    has_bar: bool,
}

impl Progress {
    const BAR_EVERY: Duration = Duration::from_millis(100);
    const LINE_EVERY: Duration = Duration::from_secs(10);

    fn new() -> Progress {
        Progress { on_terminal: io::stderr().is_terminal(), shown: Instant::now(), has_bar: false }
    }

    fn show(&mut self, done: u64, all: u64) {
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
    fn end(&mut self) {
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
