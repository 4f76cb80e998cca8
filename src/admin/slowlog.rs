//! The slow log: the commands that took longest of late.

use crate::command::{
    Command,
    redact::{REDACTED, is_secret},
};
use holdfast_resp::Args;
use std::{
    collections::VecDeque,
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Arguments remembered of a command.
const ARGS_MAX: usize = 32;
/// Bytes remembered of an argument.
const ARG_BYTES_MAX: usize = 128;

/// A slow command.
#[derive(Clone)]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// When it ended, in seconds since 1970.
    pub time_s: u64,
    /// How long it took.
    pub duration: Duration,
    /// The command, long ones shortened.
    pub args: Vec<Vec<u8>>,
    /// Who sent it.
    pub addr: String,
    /// The client's name.
    pub name: Vec<u8>,
}

/// The newest slow commands.
#[derive(Default)]
pub struct Slowlog {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    next_id: u64,
    /// Newest first.
    entries: VecDeque<Entry>,
}

impl Slowlog {
    /// Adds a command; the oldest beyond `max_len` are forgotten.
    pub fn add(
        &self,
        command: &Command,
        args: Args,
        duration: Duration,
        addr: &str,
        name: Vec<u8>,
        max_len: usize,
    ) {
        let time_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut inner = self.inner.lock().expect("no holder panics");
        let id = inner.next_id;
        inner.next_id += 1;
        inner.entries.push_front(Entry {
            id,
            time_s,
            duration,
            args: shorten(command, args),
            addr: addr.to_owned(),
            name,
        });
        inner.entries.truncate(max_len);
    }

    /// The newest `count`.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.inner.lock().expect("no holder panics").entries.iter().take(count).cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.inner.lock().expect("no holder panics").entries.len()
    }

    /// Forgets the oldest beyond `max_len`.
    pub fn truncate(&self, max_len: usize) {
        self.inner.lock().expect("no holder panics").entries.truncate(max_len);
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.inner.lock().expect("no holder panics").entries.clear();
    }
}

fn shorten(command: &Command, args: Args) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut short: Vec<Vec<u8>> = args
        .iter()
        .enumerate()
        .take(shown)
        .map(|(index, arg)| if is_secret(command, args, index) { REDACTED } else { arg })
        .map(|arg| match arg.len().checked_sub(ARG_BYTES_MAX) {
            None | Some(0) => arg.to_vec(),
            Some(more) => [&arg[..ARG_BYTES_MAX], format!("... ({more} more bytes)").as_bytes()].concat(),
        })
        .collect();
    if shown < args.len() {
        short.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_resp::OwnedArgs;

    #[test]
    fn long_commands_are_shortened() {
        let args: OwnedArgs = (0..40).map(|i| "x".repeat(if i == 1 { 130 } else { 1 })).collect();
        let short = shorten(&Command::NEW, args.args());
        assert_eq!(short.len(), 32);
        assert_eq!(short[1], format!("{}... (2 more bytes)", "x".repeat(128)).into_bytes());
        assert_eq!(short[31], b"... (9 more arguments)");
    }

    #[test]
    fn keeps_the_newest() {
        let log = Slowlog::default();
        let args: OwnedArgs = ["get"].into_iter().collect();
        for _ in 0..5 {
            log.add(&Command::NEW, args.args(), Duration::from_millis(20), "a:1", Vec::new(), 3);
        }
        assert_eq!(log.newest(10).iter().map(|e| e.id).collect::<Vec<_>>(), [4, 3, 2]);
        log.clear();
        assert_eq!(log.len(), 0);
    }
}
