//! A client: what other threads may know of a connection.

use crate::{
    admin::stats::WorkerStats,
    command::table::{CommandId, Table},
    util::counter::Counter,
};
use holdfast_io::Moment;
use std::{
    fmt::Write,
    sync::{
        Mutex,
        atomic::{AtomicI64, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Bytes of a buffer as every connection may have one. Larger ones are grown for it.
pub const BUFFER_SIZE: usize = 16 * 1024;

/// A connection as CLIENT LIST shows it. Its own worker writes, anyone reads.
pub struct Client {
    /// Its number; numbers are never used again.
    pub id: u64,
    /// The peer, `ip:port`, or the path of the Unix socket.
    pub addr: String,
    /// The server's end.
    pub laddr: String,
    /// Which worker serves it.
    pub worker: usize,
    /// Its file descriptor.
    pub fd: i32,
    created: Moment,
    names: Mutex<Names>,
    /// When it sent something last, in milliseconds since `created`.
    active_ms: AtomicU64,
    waits_for: Mutex<Vec<(u8, Vec<u8>)>>,
    command: AtomicU16,
    db: AtomicUsize,
    multi: AtomicI64,
    /// Bytes of the commands that MULTI has queued.
    multi_bytes: AtomicUsize,
    /// Keys that it watches.
    watched: AtomicUsize,
    net_input: Counter,
    net_output: Counter,
    commands: Counter,
    resp: AtomicU8,
    pub(super) flags: AtomicU16,
    input: AtomicUsize,
    input_free: AtomicUsize,
    output: AtomicUsize,
    memory: AtomicUsize,
    /// CLIENT TRACKING: who is told in its place; -1: it tracks nothing.
    redirect: AtomicI64,
    /// Channels, patterns and channels of shards that it is subscribed to.
    subscriptions: [AtomicUsize; 3],
}

#[derive(Default)]
struct Names {
    name: Vec<u8>,
    lib_name: Vec<u8>,
    lib_ver: Vec<u8>,
    user: Vec<u8>,
}

/// What the letters in CLIENT LIST's `flags` stand for.
pub mod flag {
    /// It is shown all commands.
    pub const MONITOR: u16 = 1 << 8;
    /// It is disconnected, since clients take too much memory.
    pub const EVICTED: u16 = 1 << 9;
    /// It waits in a blocking command.
    pub const BLOCKED: u16 = 1;
    /// It tracks keys.
    pub const TRACKING: u16 = 1 << 1;
    /// The client that is told in its place is gone.
    pub const BROKEN_REDIRECT: u16 = 1 << 2;
    /// It tracks keys by their prefixes.
    pub const BCAST: u16 = 1 << 3;
    /// It closes after its reply.
    pub const CLOSING: u16 = 1 << 4;
    /// It came by a Unix socket.
    pub const UNIX: u16 = 1 << 5;
    /// CLIENT NO-EVICT.
    pub const NO_EVICT: u16 = 1 << 6;
    /// CLIENT NO-TOUCH.
    pub const NO_TOUCH: u16 = 1 << 7;
    /// It is subscribed to something.
    pub const SUBSCRIBED: u16 = 1 << 10;

    /// It is the primary, over a connection within the process.
    pub const PRIMARY: u16 = 1 << 11;

    /// Letters, each at its bit.
    pub const LETTERS: &str = "btRBcUeT";
}

/// Which names a client can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Channels.
    Channel,
    /// Patterns that channels' names match.
    Pattern,
    /// Channels that belong to a shard.
    Shard,
}

/// Classes of clients, in the order of `client-output-buffer-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Asks.
    Normal = 0,
    /// Listens.
    PubSub = 2,
}

/// Sizes of a connection's buffers, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// Read and not executed.
    pub input: usize,
    /// Room beyond that.
    pub input_free: usize,
    /// Replies not sent.
    pub output: usize,
    /// All memory held.
    pub memory: usize,
}

const NO_COMMAND: u16 = u16::MAX;

impl Client {
    /// A connection that was just accepted.
    pub fn new(id: u64, addr: String, laddr: String, worker: usize, fd: i32, is_unix: bool) -> Self {
        Client {
            id,
            addr,
            laddr,
            worker,
            fd,
            created: Moment::now(),
            names: Mutex::default(),
            active_ms: AtomicU64::new(0),
            waits_for: Mutex::default(),
            command: AtomicU16::new(NO_COMMAND),
            db: AtomicUsize::new(0),
            multi: AtomicI64::new(-1),
            multi_bytes: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            net_input: Counter::default(),
            net_output: Counter::default(),
            commands: Counter::default(),
            resp: AtomicU8::new(2),
            flags: AtomicU16::new(if is_unix { flag::UNIX } else { 0 }),
            input: AtomicUsize::new(0),
            input_free: AtomicUsize::new(0),
            output: AtomicUsize::new(0),
            memory: AtomicUsize::new(0),
            redirect: AtomicI64::new(-1),
            subscriptions: Default::default(),
        }
    }

    /// Notes that it has sent something.
    pub fn touch(&self, now: Moment) {
        self.active_ms.store(now.ms_since(self.created), Relaxed);
    }

    /// How long it has been silent.
    pub fn idle(&self) -> Duration {
        self.created.elapsed().saturating_sub(Duration::from_millis(self.active_ms.load(Relaxed)))
    }

    /// How long it has been connected.
    pub fn age(&self) -> Duration {
        self.created.elapsed()
    }

    /// Shows others which keys its command waits for, by the number of their database.
    pub fn set_waits_for(&self, keys: Vec<(u8, Vec<u8>)>) {
        *self.waits_for.lock().expect("no holder panics") = keys;
    }

    /// The keys that its command waits for, if it does.
    pub fn waits_for(&self) -> Vec<(u8, Vec<u8>)> {
        self.waits_for.lock().expect("no holder panics").clone()
    }

    /// How many keys it watches.
    pub fn watched(&self) -> usize {
        self.watched.load(Relaxed)
    }

    /// Notes which command it executes.
    #[inline]
    pub fn set_command(&self, id: CommandId) {
        self.command.store(id.0, Relaxed);
    }

    /// The command that it executes, or executed last.
    pub fn command(&self) -> CommandId {
        CommandId(self.command.load(Relaxed))
    }

    /// Shows others the state of its session: the database, how many commands MULTI has queued and their bytes, how many
    /// keys are watched, the protocol.
    pub fn publish_session(&self, db: usize, multi: Option<(usize, usize)>, watched: usize, resp: u8) {
        self.db.store(db, Relaxed);
        self.multi.store(multi.map_or(-1, |(queued, _)| queued as i64), Relaxed);
        self.multi_bytes.store(multi.map_or(0, |(_, bytes)| bytes), Relaxed);
        self.watched.store(watched, Relaxed);
        self.resp.store(resp, Relaxed);
    }

    /// Counts bytes that were read from it.
    pub fn count_input(&self, bytes: usize) {
        self.net_input.add(bytes as u64);
    }

    /// Counts bytes that were sent to it.
    pub fn count_output(&self, bytes: usize) {
        self.net_output.add(bytes as u64);
    }

    /// Bytes that were sent to it.
    pub fn output_bytes(&self) -> u64 {
        self.net_output.get()
    }

    /// Counts a command.
    pub fn count_command(&self) {
        self.commands.add(1);
    }

    /// Shows others its buffers.
    pub fn publish_buffers(&self, buffers: Buffers) {
        self.input.store(buffers.input, Relaxed);
        self.input_free.store(buffers.input_free, Relaxed);
        self.output.store(buffers.output, Relaxed);
        self.memory.store(buffers.memory, Relaxed);
    }

    /// Bytes read and not executed.
    pub fn input(&self) -> usize {
        self.input.load(Relaxed)
    }

    /// Bytes of output that are not sent.
    pub fn output(&self) -> usize {
        self.output.load(Relaxed)
    }

    /// Shows others how many bytes were read and not executed, and how much room there is beyond.
    pub fn publish_input(&self, bytes: usize, free: usize) {
        self.input.store(bytes, Relaxed);
        self.input_free.store(free, Relaxed);
    }

    /// Shows others how many bytes of output are not sent.
    pub fn publish_output(&self, bytes: usize) {
        self.output.store(bytes, Relaxed);
    }

    /// Sets or clears some of the bits in [`flag`].
    pub fn set_flag(&self, flag: u16, on: bool) {
        if on {
            self.flags.fetch_or(flag, Relaxed);
        } else {
            self.flags.fetch_and(!flag, Relaxed);
        }
    }

    /// Notes that it does not wait in a blocking command any more, with the counters of its worker; whether it did. Who
    /// unblocks it does so at once, so that nobody counts it from then on.
    pub fn end_block(&self, stats: &WorkerStats) -> bool {
        let was_blocked = self.flags.fetch_and(!flag::BLOCKED, Relaxed) & flag::BLOCKED != 0;
        if was_blocked {
            stats.blocked.fetch_sub(1, Relaxed);
            self.set_waits_for(Vec::new());
        }
        was_blocked
    }

    /// All bits of [`flag`] that are set.
    pub fn flags(&self) -> u16 {
        self.flags.load(Relaxed)
    }

    /// Whether one of the bits in [`flag`] is set.
    #[inline]
    pub fn has_flag(&self, flag: u16) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.memory.load(Relaxed)
    }

    /// Shows others who is told of changed keys in its place, 0 for itself; `None`: it tracks none.
    pub fn set_redirect(&self, redirect: Option<u64>) {
        self.redirect.store(redirect.map_or(-1, |id| id as i64), Relaxed);
    }

    /// Shows others how many names of a kind it is subscribed to.
    pub fn set_subscriptions(&self, kind: Kind, count: usize) {
        self.subscriptions[kind as usize].store(count, Relaxed);
        self.set_flag(flag::SUBSCRIBED, self.subscriptions.iter().any(|count| count.load(Relaxed) > 0));
    }

    /// How many names of a kind it is subscribed to.
    pub fn subscriptions(&self, kind: Kind) -> usize {
        self.subscriptions[kind as usize].load(Relaxed)
    }

    /// Whether it is subscribed to anything.
    #[inline]
    pub fn is_subscribed(&self) -> bool {
        self.has_flag(flag::SUBSCRIBED)
    }

    /// Which limits its output has.
    #[inline]
    pub fn class(&self) -> Class {
        if self.is_subscribed() { Class::PubSub } else { Class::Normal }
    }

    /// Whether it has chosen RESP3.
    pub fn speaks_resp3(&self) -> bool {
        self.resp.load(Relaxed) == 3
    }

    /// CLIENT SETNAME.
    pub fn set_name(&self, name: &[u8]) {
        self.names.lock().expect("no holder panics").name = name.to_vec();
    }

    /// CLIENT GETNAME; empty: none.
    pub fn name(&self) -> Vec<u8> {
        self.names.lock().expect("no holder panics").name.clone()
    }

    /// The names that it has given: its own, its library's, and that one's version.
    pub fn names(&self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let names = self.names.lock().expect("no holder panics");
        (names.name.clone(), names.lib_name.clone(), names.lib_ver.clone())
    }

    /// CLIENT SETINFO LIB-NAME.
    pub fn set_lib_name(&self, name: &[u8]) {
        self.names.lock().expect("no holder panics").lib_name = name.to_vec();
    }

    /// CLIENT SETINFO LIB-VER.
    pub fn set_lib_ver(&self, version: &[u8]) {
        self.names.lock().expect("no holder panics").lib_ver = version.to_vec();
    }

    /// Shows others which user it is.
    pub fn set_user(&self, user: &[u8]) {
        self.names.lock().expect("no holder panics").user = user.to_vec();
    }

    /// The name of the user that it is.
    pub fn user(&self) -> Vec<u8> {
        self.names.lock().expect("no holder panics").user.clone()
    }

    /// Its line in CLIENT LIST, without a line break.
    pub fn describe(&self, table: &Table) -> String {
        let names = self.names.lock().expect("no holder panics");
        let text = String::from_utf8_lossy;
        let flags = self.flags.load(Relaxed);
        let multi = self.multi.load(Relaxed);
        let mut letters: String = flag::LETTERS
            .chars()
            .enumerate()
            .filter(|(bit, _)| flags >> bit & 1 == 1)
            .map(|(_, letter)| letter)
            .collect();
        if multi >= 0 {
            letters.insert(0, 'x');
        }
        if self.is_subscribed() {
            letters.insert(0, 'P');
        }
        if flags & flag::MONITOR != 0 {
            letters.insert(0, 'O');
        }
        if flags & flag::PRIMARY != 0 {
            letters.insert(0, 'M');
        }
        if letters.is_empty() {
            letters.push('N');
        }
        let command = match self.command.load(Relaxed) {
            NO_COMMAND => "NULL",
            id => table.command(CommandId(id)).name,
        };
        let output = self.output.load(Relaxed);
        // What is more than the buffer that every connection may have.
        let output_list = if output > BUFFER_SIZE { output } else { 0 };
        let events = if output > 0 { "rw" } else { "r" };
        let mut line = String::with_capacity(400);
        write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={letters} db={} sub={} psub={} ssub={} \
             multi={multi} watch={} qbuf={} qbuf-free={} argv-mem=0 multi-mem={} rbs={BUFFER_SIZE} rbp=0 obl={output} \
             oll={} omem={output_list} tot-mem={} events={events} cmd={command} user={} redir={} resp={} lib-name={} \
             lib-ver={} tot-net-in={} tot-net-out={} tot-cmds={}",
            self.id,
            self.addr,
            self.laddr,
            self.fd,
            text(&names.name),
            self.created.elapsed().as_secs(),
            self.idle().as_secs(),
            self.db.load(Relaxed),
            self.subscriptions(Kind::Channel),
            self.subscriptions(Kind::Pattern),
            self.subscriptions(Kind::Shard),
            self.watched.load(Relaxed),
            self.input.load(Relaxed),
            self.input_free.load(Relaxed),
            self.multi_bytes.load(Relaxed),
            u8::from(output_list > 0),
            self.memory(),
            text(&names.user),
            self.redirect.load(Relaxed),
            self.resp.load(Relaxed),
            text(&names.lib_name),
            text(&names.lib_ver),
            self.net_input.get(),
            self.output_bytes(),
            self.commands.get(),
        )
        .expect("writing to a string cannot fail");
        line
    }
}
