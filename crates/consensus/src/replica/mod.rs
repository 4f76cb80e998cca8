//! One of several servers that have the same log, of which one appends.
//!
//! A replica *follows* first: it stores in its own log what the leader has appended, and says so when that is durable. When the others
//! elect it, its log [leads](Log::lead), and what is appended to that goes to the others from then on: see
//! [`Groups`]. A leader that is one no more can take nothing back of what its store has done in memory, so everything is dropped
//! then, and opened again from the medium.

mod changes;
mod copies;
mod envelope;
mod inner;

use crate::{
    MemberId, Role,
    engine::{self, Patience},
    entries::{EachBatch, Entries},
    journal::Journal,
};
pub use copies::Extract;
pub use envelope::Envelope;
use holdfast_io::{Error, Io, Result};
use holdfast_log::{Groups, Log, Lsn, Replayed};
use inner::{Inner, State, deposed};
use parking_lot::Mutex;
use raft::{Config, Progress, RawNode, StateRole};
use slog::{Discard, Logger, o};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

/// Bytes of entries in a message, unless a single one has more.
const MESSAGE_BYTES: u64 = 1 << 20;
/// How often a commit looks whether another replica leads at last.
const HAND_OVER_LOOK: Duration = Duration::from_millis(1);
/// Messages with entries that one replica is sent before it has answered.
const IN_FLIGHT: usize = 256;
/// Bytes of log that one replica is sent before it has answered, and what is read for one answer.
const WINDOW_BYTES: u64 = 16 << 20;
/// Bytes of entries that are read for one answer, and one more message: the leader's lock is held meanwhile.
const TURN_BYTES: u64 = 4 << 20;

/// Bytes of an entry at most: a message holds it, and the lengths in that have 32 bits.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;
/// How many bytes a second a replica takes and stores at least, before the leader counts it as one that does not answer.
const BYTES_PER_SECOND: u64 = 16 << 20;

/// Reads a replica's log, to be opened in a term, of which everything below an LSN is agreed on.
pub type ReadLog = Box<dyn Fn(u32, Lsn, EachBatch) -> Result<Replayed> + Send + Sync>;

/// A replica.
pub struct Replica {
    inner: Mutex<Inner>,
    on_messages: Box<dyn Fn() + Send + Sync>,
}

/// Another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Who it is.
    pub id: MemberId,
    /// Whether it counts for a majority.
    pub votes: bool,
    /// Everything below is known to be durable there.
    pub end: Lsn,
    /// The age of the last sign of life that it has answered: microseconds.
    pub silent_us: u64,
}

impl Replica {
    /// The term in which it is.
    pub fn term(&self) -> u64 {
        self.inner.lock().raft.raft.term
    }

    /// The number of the last entry that is stored.
    pub fn last(&self) -> u64 {
        self.inner.lock().raft.store().last_number()
    }

    /// Opens the replica whose journal is in a folder. `on_messages` is called when there are messages to be taken, by a thread that
    /// commits among others.
    ///
    /// # Errors
    /// The medium's; there is no journal, or it or the log is damaged.
    pub fn open(
        io: Arc<dyn Io>,
        folder: &str,
        tick_us: u64,
        read_log: ReadLog,
        on_messages: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Arc<Replica>> {
        let journal = Journal::open(io.clone(), folder)?;
        let journal = journal.ok_or_else(|| Error::Unusable(format!("no replica is in {folder}")))?;
        let mut entries = Entries::new(journal)?;
        let (term, agreed) = (entries.vote().term as u32, entries.end());
        entries.read(u64::MAX, |f| read_log(term, agreed, f))?;
        let patience = Patience::new(&*io);
        let (base, members) = (entries.base().get_metadata().index, entries.first_members().clone());
        let config = Config {
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: IN_FLIGHT,
            ..engine::config(entries.member(), base)
        };
        let raft = RawNode::new(&config, entries, &Logger::root(Discard, o!()));
        let raft = raft.map_err(|e| Error::Unusable(format!("the journal of a replica: {e}")))?;
        let mut inner = Inner {
            raft,
            io,
            read_log,
            tick_us,
            members,
            removed: (base, BTreeMap::new()),
            proposed: None,
            sealed: Vec::new(),
            state: State::Follows,
            decided: base,
            decided_before: base,
            unwritten: VecDeque::new(),
            ticks: 0,
            patience,
            heard: (0, 0),
            echoed: BTreeMap::new(),
            leads_since: 0,
            hands_over: false,
            outbox: Vec::new(),
        };
        inner.draw_patience();
        inner.work()?;
        Ok(Arc::new(Replica { inner: Mutex::new(inner), on_messages }))
    }

    /// Does something, and what follows from it.
    fn with(&self, f: impl FnOnce(&mut Inner)) -> Result<()> {
        let mut inner = self.inner.lock();
        f(&mut inner);
        let worked = inner.work();
        if worked.is_err() {
            // It may say what is not durable.
            inner.outbox.clear();
        }
        let (agreed, has_messages) = (inner.agreed(), !inner.outbox.is_empty());
        let is_deposed = inner.state == State::Deposed;
        let log = if is_deposed { inner.raft.mut_store().log.take() } else { inner.log() };
        drop(inner);
        // Without the lock: who is told may wait for a thread that commits, and that for us.
        match log {
            Some(log) if is_deposed => log.fail(&deposed()),
            Some(log) => log.agree(agreed),
            None => {}
        }
        if has_messages {
            (self.on_messages)();
        }
        worked
    }

    /// Time has gone on by a tick since the last call, at least: who was late does not make up for it.
    ///
    /// # Errors
    /// The medium's: the replica is to be opened anew, as after every error.
    pub fn tick(&self) -> Result<()> {
        self.with(|inner| {
            inner.ticks += 1;
            inner.decided_before = inner.decided;
            inner.wait_for_long_ones();
            inner.raft.tick();
            if inner.hands_over && inner.raft.raft.lead_transferee.is_none() {
                inner.state = State::Deposed;
            }
            inner.draw_patience();
        })
    }

    /// A part of a long message has come: who sends it need say nothing else, though none of it says who leads.
    pub fn is_being_sent(&self) {
        self.inner.lock().raft.raft.election_elapsed = 0;
    }

    /// Another replica has sent something.
    ///
    /// # Errors
    /// As [`Replica::tick`]; also [`Error::Corrupt`] if it says that more was acknowledged here than there is.
    pub fn step(&self, envelope: Envelope) -> Result<()> {
        let mut stepped = Ok(());
        self.with(|inner| stepped = inner.step(envelope))?;
        stepped
    }

    /// Something could not be sent.
    pub fn unreachable(&self, to: MemberId) {
        self.inner.lock().raft.report_unreachable(to);
    }

    /// What is to be sent to other replicas. Any of it may be lost, come late, or come twice.
    pub fn take_messages(&self) -> Vec<Envelope> {
        let mut inner = self.inner.lock();
        let now = inner.io.monotonic_us();
        let mut messages = std::mem::take(&mut inner.outbox);
        messages.iter_mut().for_each(|envelope| envelope.stamp = now);
        messages
    }

    /// Who it is.
    pub fn id(&self) -> MemberId {
        self.inner.lock().raft.raft.id
    }

    /// What it is. One that is elected leads once [`Replica::lead`] was called.
    pub fn role(&self) -> Role {
        let inner = self.inner.lock();
        match (inner.raft.raft.state, inner.raft.raft.leader_id) {
            (StateRole::Leader, _) => Role::Leader,
            (_, 0) => Role::Leaderless,
            (_, leader) => Role::Follower { leader },
        }
    }

    /// Where the log ends, and up to where it is known to be agreed on.
    pub fn extent(&self) -> (Lsn, Lsn) {
        let inner = self.inner.lock();
        (inner.raft.store().end(), inner.agreed())
    }

    /// The other replicas, as the leader knows them.
    pub fn others(&self) -> Vec<Other> {
        let inner = self.inner.lock();
        let (own, now) = (inner.raft.raft.id, inner.io.monotonic_us());
        let others = inner.raft.raft.prs().iter().filter(|(id, _)| **id != own);
        let other = |(&id, progress): (&MemberId, &Progress)| Other {
            id,
            votes: inner.members.votes(id),
            end: inner.raft.store().end_of(progress.matched).unwrap_or_default(),
            silent_us: inner.echoed.get(&id).map_or(u64::MAX, |echo| now.saturating_sub(*echo)),
        };
        others.map(other).collect()
    }

    /// As the leader, has another replica lead as soon as it has all. Nothing is begun any more, and nothing that was read is told: who is
    /// told to lead asks for votes at once, whatever a lease says. If that comes to nothing in time, this one leads no more all the same.
    pub fn hand_over(&self, to: MemberId) {
        let hand_over = |inner: &mut Inner| {
            if inner.leads() && to != inner.raft.raft.id && inner.members.votes(to) {
                inner.hands_over = true;
                inner.raft.transfer_leader(to);
            }
        };
        // An error would be of what is done besides, and comes again.
        let _ = self.with(hand_over);
    }

    /// Whether another replica is about to lead.
    pub fn hands_over(&self) -> bool {
        let inner = self.inner.lock();
        inner.hands_over && inner.leads()
    }

    /// Whether it led, and leads no more, or its log has failed: its store is to be dropped, and then the replica.
    pub fn is_deposed(&self) -> bool {
        let inner = self.inner.lock();
        let has_failed = || inner.log().is_some_and(|log| log.failed().is_some());
        inner.state == State::Deposed || (inner.state == State::Leads && has_failed())
    }

    /// As the one that is elected, has its log [lead](Log::lead): nobody but the store that has followed it appends from then on, once all that
    /// was stored is agreed on. Returns the term. `None`: another one is elected, or nobody; or it leads already.
    pub fn lead(self: &Arc<Self>) -> Option<u64> {
        let mut inner = self.inner.lock();
        let (is_elected, id) = (inner.raft.raft.state == StateRole::Leader, inner.raft.raft.id);
        if inner.state != State::Follows || !is_elected || !inner.members.votes(id) {
            return None;
        }
        let (log, term) = (inner.log()?, inner.raft.raft.term);
        inner.state = State::Leads;
        let groups: Weak<dyn Groups> = Arc::downgrade(&(self.clone() as Arc<dyn Groups>));
        log.lead(term as u32, groups);
        Some(term)
    }

    /// The log that it stores to, or that leads. As one that follows, it is another one after entries that are void were cut off, and until then
    /// whoever reads it may, up to what is durable there. `None`: it led, and leads no more.
    pub fn log(&self) -> Option<Arc<Log>> {
        self.inner.lock().log()
    }

    /// Until when no other replica leads, by this one's clock: microseconds. What was read before may be replied by then, whenever the
    /// reply leaves. 0: it does not lead.
    pub fn lease_us(&self) -> u64 {
        self.inner.lock().lease_us()
    }
}

impl Groups for Replica {
    fn seal(&self) -> Result<Vec<u8>> {
        while self.hands_over() {
            thread::sleep(HAND_OVER_LOOK);
        }
        let mut inner = self.inner.lock();
        if !inner.leads() {
            return Err(deposed());
        }
        inner.sealed = inner.proposed.take().unwrap_or_default();
        Ok(inner.raft.store().next_seal(inner.raft.raft.term).encode(&inner.sealed))
    }

    fn begin(&self, batches: Vec<u8>, end: Lsn) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.begin(batches, end)?;
        let has_messages = !inner.outbox.is_empty();
        drop(inner);
        if has_messages {
            (self.on_messages)();
        }
        Ok(())
    }

    fn durable_here(&self, end: Lsn) -> Lsn {
        let mut inner = self.inner.lock();
        inner.written(end);
        let (agreed, has_messages) = (inner.agreed(), !inner.outbox.is_empty());
        drop(inner);
        if has_messages {
            (self.on_messages)();
        }
        agreed
    }

    fn keep_from(&self, from: Lsn) -> Result<()> {
        let mut inner = self.inner.lock();
        let decided = inner.decided;
        inner.raft.mut_store().keep_from(from, decided)
    }
}
