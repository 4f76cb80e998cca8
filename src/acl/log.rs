//! What users were refused of late.

use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// Where something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// In a command of its own.
    TopLevel,
    /// In a transaction.
    Multi,
    /// In a script.
    Lua,
}

impl Context {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// Something that was refused, once or several times.
#[derive(Clone)]
pub struct Entry {
    /// How often.
    pub count: u64,
    /// `command`, `key`, `channel` or `auth`.
    pub reason: &'static str,
    /// Where.
    pub context: Context,
    /// The command, key or channel.
    pub object: Vec<u8>,
    /// Who was refused.
    pub user: Vec<u8>,
    /// The client that was refused last, as CLIENT LIST shows it.
    pub client: String,
    /// Its number.
    pub id: u64,
    /// When it happened first, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it happened last.
    pub updated_ms: u64,
}

/// Refusals that are alike are one entry if they come within this time, in milliseconds.
const ALIKE_MS: u64 = 60_000;
/// Entries among which one is looked for that is alike.
const ALIKE_AMONG: usize = 10;

/// The log.
#[derive(Default)]
pub struct AclLog {
    inner: Mutex<Inner>,
    /// Refusals so far: of log-ins, commands, keys, channels.
    counts: [AtomicU64; 4],
}

const REASONS: [&str; 4] = ["auth", "command", "key", "channel"];

#[derive(Default)]
struct Inner {
    next_id: u64,
    /// Newest first.
    entries: VecDeque<Entry>,
}

impl AclLog {
    /// Adds a refusal to a client, as CLIENT LIST shows that; with more than `max_len` entries the oldest are forgotten.
    pub fn add(
        &self,
        reason: &'static str,
        context: Context,
        object: &[u8],
        user: &[u8],
        client: impl FnOnce() -> String,
        max_len: usize,
    ) {
        let kind = REASONS.iter().position(|known| *known == reason).expect("one of the reasons");
        self.counts[kind].fetch_add(1, Relaxed);
        let mut inner = self.inner.lock().expect("no holder panics");
        if max_len == 0 {
            return;
        }
        let now_ms = now_ms();
        let alike = |entry: &Entry| {
            entry.reason == reason
                && entry.context == context
                && now_ms.abs_diff(entry.updated_ms) <= ALIKE_MS
                && entry.object == object
                && entry.user == user
        };
        let at = inner.entries.iter().take(ALIKE_AMONG).position(alike);
        let mut entry = match at.and_then(|at| inner.entries.remove(at)) {
            Some(entry) => entry,
            None => {
                let id = inner.next_id;
                inner.next_id += 1;
                Entry {
                    count: 0,
                    reason,
                    context,
                    object: object.to_vec(),
                    user: user.to_vec(),
                    client: String::new(),
                    id,
                    created_ms: now_ms,
                    updated_ms: now_ms,
                }
            }
        };
        entry.count += 1;
        entry.client = client();
        entry.updated_ms = now_ms;
        inner.entries.push_front(entry);
        inner.entries.truncate(max_len);
    }

    /// The newest `count`.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.inner.lock().expect("no holder panics").entries.iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.inner.lock().expect("no holder panics").entries.clear();
    }

    /// How often each was refused: log-ins, commands, keys, channels.
    pub fn counts(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|kind: usize| self.counts[kind].load(Relaxed))
    }

    /// CONFIG RESETSTAT.
    pub fn reset_counts(&self) {
        self.counts.iter().for_each(|count| count.store(0, Relaxed));
    }
}

/// Unix time in milliseconds.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
