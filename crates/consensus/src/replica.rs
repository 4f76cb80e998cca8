//! One of several servers that have the same log, of which one appends.
//!
//! A replica *follows* first: it stores in its own log what the leader has appended, and says so when that is durable. When the others
//! elect it, its log is handed to whoever opens the store on it, and what that appends goes to the others from then on: see
//! [`Groups`]. A leader that is one no more can take nothing back of what its store has done in memory, so everything is dropped
//! then, and opened again from the medium.

use crate::{
    MemberId, Message, Role,
    code::{Decoder, Encoder},
    engine::{self, ELECTION_TICKS, Patience},
    entries::{EachBatch, Entries, base_of_bytes, base_to_bytes, first_base, seal_len},
    journal::{Journal, Records},
    members::{Change, Members, Refused},
};
use holdfast_io::{Error, Io, Result};
use holdfast_log::{Agreement, Groups, Log, Lsn, Replayed};
use parking_lot::Mutex;
use raft::{
    CAMPAIGN_TRANSFER, Config, Progress, ProgressState, RawNode, StateRole, Storage as _,
    eraftpb::{Entry, EntryType, HardState, MessageType},
};
use slog::{Discard, Logger, o};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

/// Of the time in which nobody else is elected, what a leader relies on: nine intervals between ten ticks, and clocks that differ by a
/// tenth.
const LEASE_TICKS: u64 = 8;
/// Bytes of entries in a message, unless a single one has more.
const MESSAGE_BYTES: u64 = 1 << 20;
/// How often a commit looks whether another replica leads at last.
const HAND_OVER_LOOK: Duration = Duration::from_millis(1);
/// The age of a sign of life, in ticks, up to which a replica counts as one that answers.
const ANSWERS_TICKS: u64 = 10;
/// Messages with entries that one replica is sent before it has answered.
const IN_FLIGHT: usize = 256;

/// Reads a replica's log, to be opened in a term, of which everything below an LSN is agreed on.
pub type ReadLog = Box<dyn Fn(u32, Lsn, EachBatch) -> Result<Replayed> + Send + Sync>;

/// What one replica sends to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// When it was sent, by the sender's clock: microseconds.
    stamp: u64,
    /// The stamp of the last sign of life of a leader, if it is for that.
    echo: u64,
    /// What it is about.
    pub message: Message,
}

impl Envelope {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::default();
        out.u64(self.stamp).u64(self.echo).bytes(&self.message.encode());
        out.0
    }

    /// An envelope of these bytes; `None`: they are none.
    pub fn decode(bytes: &[u8]) -> Option<Envelope> {
        let mut bytes = Decoder(bytes);
        let (stamp, echo) = (bytes.u64().ok()?, bytes.u64().ok()?);
        let message = Message::decode(bytes.bytes().ok()?)?;
        bytes.end().ok().map(|()| Envelope { stamp, echo, message })
    }
}

/// With what a copy of a leader's log begins and ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extract {
    /// For [`Replica::adopt`].
    pub base: Vec<u8>,
    /// Number and term of the last entry, which is decided.
    pub last: (u64, u64),
    /// The leader's term, and who it is.
    pub voted: (u64, MemberId),
}

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

struct Inner {
    raft: RawNode<Entries>,
    io: Arc<dyn Io>,
    read_log: ReadLog,
    /// How long a tick is: microseconds.
    tick_us: u64,
    /// As they are decided.
    members: Members,
    /// As the leader, the bytes of those that are to be: for the next entry, and of the one whose seal was made last.
    proposed: Option<Vec<u8>>,
    sealed: Vec<u8>,
    state: State,
    /// The last entry that is decided, as far as it is known here; and that was at the last tick.
    decided: u64,
    decided_before: u64,
    /// Entries that are not durable here: the engine's number of them, and where they end.
    unwritten: VecDeque<(u64, Lsn)>,
    ticks: u64,
    patience: Patience,
    /// The stamp of the leader's last sign of life.
    heard: (MemberId, u64),
    /// What others have echoed of this leader's stamps, and when it became one.
    echoed: BTreeMap<MemberId, u64>,
    leads_since: u64,
    /// It leads, and has told another one to.
    hands_over: bool,
    outbox: Vec<Envelope>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It stores what the leader appends.
    Follows,
    /// Somebody else has its log open, to take a checkpoint.
    Rests,
    /// A store appends to its log.
    Leads,
    /// It led, and another one does, or nobody.
    Deposed,
}

fn deposed() -> Error {
    Error::Unusable("this server leads no more".into())
}

impl Replica {
    /// Makes the journal of a replica whose log is a copy of another one's, with the base that comes with it: [that of a
    /// leader](Replica::extract), as one that has voted for it in its term; or [that of a new set](Replica::first_base), in the epoch of the log,
    /// with no vote (0).
    ///
    /// # Errors
    /// The medium's, or `base` is none.
    pub fn adopt(
        io: Arc<dyn Io>,
        folder: &str,
        id: MemberId,
        base: &[u8],
        voted: (u64, MemberId),
    ) -> Result<()> {
        let base =
            base_of_bytes(base).ok_or_else(|| Error::Unusable("what comes with a copy is no base".into()))?;
        let (term, vote) = voted;
        let commit = base.get_metadata().index;
        let mut journal = Journal::create(io, folder, id, base)?;
        let mut records = Records::default();
        records.vote(&HardState { term, vote, commit, ..HardState::default() });
        journal.append(records)
    }

    /// The base that a set of `members` begins with, who all have the same log up to `end`, for [`Replica::adopt`].
    pub fn first_base(members: &Members, end: Lsn) -> Vec<u8> {
        base_to_bytes(&first_base(members, end))
    }

    /// What a copy of the log from `from` on to `to` begins and ends with; entries end at both or below. `None`: this one does not lead, or
    /// knows no entries that are so old, or not all of this is decided.
    pub fn extract(&self, from: Lsn, to: Lsn) -> Option<Extract> {
        let inner = self.inner.lock();
        let entries = inner.raft.store();
        let base = entries.base_at(from, inner.decided).filter(|_| inner.leads())?;
        let last = entries.entry_ending_at(to).filter(|last| last.0 <= inner.decided)?;
        let raft = &inner.raft.raft;
        Some(Extract { base: base_to_bytes(&base), last, voted: (raft.term, raft.id) })
    }

    /// Whether a copy has what this one lacks, and takes nothing back of what it has promised. What it has acknowledged, and the copy has not, is
    /// void: it does not follow on what is decided.
    pub fn is_of_use(&self, copy: &Extract) -> bool {
        let inner = self.inner.lock();
        inner.raft.raft.term <= copy.voted.0 && !inner.raft.store().has(copy.last)
    }

    /// The term in which it is.
    pub fn term(&self) -> u64 {
        self.inner.lock().raft.raft.term
    }

    /// As the leader, the replicas that lack entries which are here no more, and so need a copy; since this was asked last.
    pub fn take_behind(&self) -> BTreeSet<MemberId> {
        self.inner.lock().raft.mut_store().take_behind()
    }

    /// The number of the last entry that is stored.
    pub fn last(&self) -> u64 {
        self.inner.lock().raft.store().last_number()
    }

    /// As the leader, has heard that the last entry of another replica is `last`, and sends it what follows, if that is more than it is known
    /// to have. Whether that replica gets all that it lacks, as far as is known.
    pub fn has_last(&self, id: MemberId, last: u64) -> bool {
        let mut inner = self.inner.lock();
        let last = last.min(inner.raft.store().last_number());
        let is_leader = inner.leads();
        let Some(progress) = inner.raft.raft.mut_prs().get_mut(id).filter(|_| is_leader) else {
            return false;
        };
        // What it was sent lies below.
        if progress.next_idx <= last {
            progress.become_probe();
            progress.next_idx = last + 1;
            return true;
        }
        progress.state == ProgressState::Replicate
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
            if inner.state == State::Rests {
                // It could not be elected now.
                return;
            }
            inner.ticks += 1;
            inner.decided_before = inner.decided;
            inner.raft.tick();
            if inner.hands_over && inner.raft.raft.lead_transferee.is_none() {
                inner.state = State::Deposed;
            }
            inner.draw_patience();
        })
    }

    /// Another replica has sent something.
    ///
    /// # Errors
    /// As [`Replica::tick`].
    pub fn step(&self, envelope: Envelope) -> Result<()> {
        self.with(|inner| inner.step(envelope))
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

    /// As the leader, whether it may give a copy to a replica that has lost its data, and what it had promised, of which it has heard since then, by
    /// this one's clock, in microseconds: see [`Replica::adopt`]. For one that votes, all others who do must have answered what was sent
    /// since; nothing depends on what another one has promised, so that a majority, which no other leader has, is enough.
    pub fn may_renew(&self, id: MemberId, since_us: u64) -> bool {
        let inner = self.inner.lock();
        let own = inner.raft.raft.id;
        let has_answered =
            |id: &MemberId| *id == own || inner.echoed.get(id).is_some_and(|echo| *echo >= since_us);
        let latest = inner.latest_members();
        let may_renew = |members: &Members| match latest.votes(id) || inner.members.votes(id) {
            true => members.voters().filter(|voter| *voter != id).all(|voter| has_answered(&voter)),
            false => members.voters().filter(has_answered).count() >= members.majority(),
        };
        // Its number is not another one's then, whatever becomes of this leader.
        let is_decided = inner.members.peers.contains_key(&id);
        is_decided && inner.leads() && may_renew(&inner.members) && may_renew(&latest)
    }

    /// The replicas, as is decided, as far as it is known here.
    pub fn members(&self) -> Members {
        self.inner.lock().members.clone()
    }

    /// Where replicas are, those of changes too that are not decided: who was added last may have to be answered before.
    pub fn addresses(&self) -> BTreeMap<MemberId, String> {
        let inner = self.inner.lock();
        let (entries, mut after) = (inner.raft.store(), inner.decided);
        let mut addresses = BTreeMap::new();
        let mut add = |members: Members| {
            addresses.extend(members.peers.into_iter().map(|(id, peer)| (id, peer.address)));
        };
        add(inner.members.clone());
        while let Some((index, members)) = entries.change_behind(after, entries.last_number()) {
            after = index;
            add(members);
        }
        addresses
    }

    /// As the leader, has the next entry change the members. There must be one: something is to be appended to the log then. When that is
    /// agreed on, they are others. Returns what they are then.
    ///
    /// # Errors
    /// They are not to be changed so, or not now.
    pub fn propose(&self, change: &Change) -> std::result::Result<Members, Refused> {
        let mut inner = self.inner.lock();
        if !inner.leads() || inner.hands_over {
            return Err(Refused::NotLeader);
        }
        let raft = &inner.raft.raft;
        let (own, term) = (raft.id, inner.raft.store().term(inner.decided).unwrap_or_default());
        // Two leaders that do not know of each other's changes must not both have theirs decided (D. Ongaro, "bug in single-server membership changes",
        // raft-dev 2015). Since changes count only when they are decided, the second condition is enough; the first is for certain.
        if term != raft.term || inner.is_changing() {
            return Err(Refused::NotYet);
        }
        let members = inner.members.after(change)?;
        if *change == Change::Remove(own) {
            return Err(Refused::Leads);
        }
        let answer = members.voters().filter(|id| inner.answers(*id)).count();
        if answer < members.majority() {
            return Err(Refused::NoMajority);
        }
        inner.proposed = Some(members.encode());
        Ok(members)
    }

    /// As the leader, one that does not vote yet, and has all that was decided a tick ago: so it can vote.
    pub fn has_caught_up(&self) -> Option<MemberId> {
        let inner = self.inner.lock();
        let mut learners = inner.members.peers.iter().filter(|(_, peer)| !peer.votes).map(|(id, _)| *id);
        let has_all = |id: &MemberId| {
            let progress = inner.raft.raft.prs().get(*id);
            inner.answers(*id) && progress.is_some_and(|it| it.matched >= inner.decided_before)
        };
        learners.find(has_all).filter(|_| inner.leads())
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

    /// As the one that is elected, leaves the log to a store, which is to be opened in this term and with this agreement, and told by
    /// [`Replica::attach`]. `None`: another one is elected, or nobody.
    pub fn lead(self: &Arc<Self>) -> Option<(u32, Agreement)> {
        let mut inner = self.inner.lock();
        let (is_elected, id) = (inner.raft.raft.state == StateRole::Leader, inner.raft.raft.id);
        if inner.state != State::Follows || !is_elected || !inner.members.votes(id) {
            return None;
        }
        inner.state = State::Leads;
        Some(self.leave_log(&mut inner))
    }

    /// As one that follows, leaves the log to a store that takes a checkpoint, appends nothing, and is dropped before
    /// [`Replica::resume`]. `None`: not all that is stored is agreed on now.
    pub fn rest(self: &Arc<Self>) -> Option<(u32, Agreement)> {
        let mut inner = self.inner.lock();
        let is_ready = inner.decided == inner.raft.store().last_number();
        if inner.state != State::Follows || inner.raft.raft.state != StateRole::Follower || !is_ready {
            return None;
        }
        inner.state = State::Rests;
        Some(self.leave_log(&mut inner))
    }

    fn leave_log(self: &Arc<Self>, inner: &mut Inner) -> (u32, Agreement) {
        inner.raft.mut_store().log = None;
        let groups: Weak<dyn Groups> = Arc::downgrade(&(self.clone() as Arc<dyn Groups>));
        let agreement = Agreement { groups: Some(groups), agreed: inner.agreed() };
        (inner.raft.raft.term as u32, agreement)
    }

    /// The log of the store that leads: others are sent what they need of it.
    pub fn attach(&self, log: &Arc<Log>) {
        self.inner.lock().raft.mut_store().log = Some(log.clone());
        // An error would be of what is done besides, and comes again.
        let _ = self.with(|_| {});
    }

    /// Goes on storing what the leader appends.
    ///
    /// # Errors
    /// As [`Replica::tick`].
    pub fn resume(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        assert_eq!(inner.state, State::Rests);
        inner.state = State::Follows;
        let last = inner.raft.store().last_number();
        inner.read_again(last)
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

impl Inner {
    fn log(&self) -> Option<Arc<Log>> {
        self.raft.store().log.clone()
    }

    fn leads(&self) -> bool {
        self.state == State::Leads && self.raft.raft.state == StateRole::Leader
    }

    fn agreed(&self) -> Lsn {
        self.raft.store().end_of(self.decided).unwrap_or_default()
    }

    fn step(&mut self, envelope: Envelope) {
        let Envelope { stamp, echo, message } = envelope;
        let (kind, from, term) = (message.0.msg_type, message.from(), message.0.term);
        let is_of_use = match kind {
            MessageType::MsgAppend => self.takes(&message),
            // Before it was stopped it may have promised a leader not to vote for another one so soon: but not one that hands over, or
            // of an earlier term.
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                self.ticks >= ELECTION_TICKS as u64 || message.0.context == CAMPAIGN_TRANSFER
            }
            MessageType::MsgPropose | MessageType::MsgSnapshot | MessageType::MsgReadIndex => false,
            _ => true,
        };
        if !is_of_use || self.state == State::Deposed {
            return;
        }
        if self.raft.raft.state == StateRole::Leader && term == self.raft.raft.term {
            let known = self.echoed.entry(from).or_default();
            *known = echo.max(*known);
        }
        // The error says that it is of no use now.
        let _ = self.raft.step(message.0);
        self.draw_patience();
        let is_sign_of_life = matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat);
        if is_sign_of_life && (term, from) == (self.raft.raft.term, self.raft.raft.leader_id) {
            self.heard = (from, stamp);
        }
    }

    /// Whether the log can take what a message brings, and that is what it was.
    fn takes(&self, message: &Message) -> bool {
        if message.0.entries.is_empty() {
            return true;
        }
        let Some(log) = self.raft.store().log.as_ref().filter(|_| self.state == State::Follows) else {
            return false;
        };
        let is_intact = |entry: &Entry| {
            entry.get_entry_type() == EntryType::EntryNormal
                && (entry.context.is_empty() || Members::decode(&entry.context).is_ok())
                && log.check(&entry.data, entry.term as u32)
        };
        message.0.entries.iter().all(is_intact)
    }

    /// Does what the last ticks and messages have led to.
    fn work(&mut self) -> Result<()> {
        match self.state {
            State::Leads => {
                self.work_as_leader();
                Ok(())
            }
            State::Deposed => Ok(()),
            State::Follows | State::Rests => self.work_as_follower(),
        }
    }

    fn work_as_follower(&mut self) -> Result<()> {
        while self.raft.has_ready() {
            let mut ready = self.raft.ready();
            self.send(ready.take_messages());
            if let Some(vote) = ready.hs() {
                self.raft.mut_store().remember(vote)?;
            }
            self.store(ready.take_entries())?;
            self.decide(ready.committed_entries());
            self.send(ready.take_persisted_messages());
            let mut rest = self.raft.advance_append(ready);
            self.send(rest.take_messages());
            self.decide(rest.committed_entries());
            self.draw_patience();
        }
        Ok(())
    }

    /// Stores entries, durably.
    fn store(&mut self, entries: Vec<Entry>) -> Result<()> {
        let Some(first) = entries.first() else { return Ok(()) };
        if first.index <= self.raft.store().last_number() {
            // Another leader had begun them, and nobody was told of them.
            self.raft.mut_store().log = None;
            self.read_again(first.index - 1)?;
        }
        let log = self.log().ok_or_else(deposed)?;
        for entry in entries {
            let seal = self.raft.store().next_seal(entry.term);
            log.store(&entry.data)?;
            log.append_in(entry.term as u32, &seal.encode(&entry.context));
            self.raft.mut_store().push(seal, entry, log.tail());
        }
        let end = log.tail();
        while log.durable_here() < end {
            log.request_durable(end);
            if !log.commit_once()? && log.durable_here() < end {
                return Err(Error::io(
                    "store what was appended elsewhere",
                    std::io::ErrorKind::StorageFull.into(),
                ));
            }
        }
        self.raft.mut_store().trim(end);
        Ok(())
    }

    /// Opens the log again, up to an entry; what lies behind is overwritten.
    fn read_again(&mut self, last: u64) -> Result<()> {
        let (term, agreed) = (self.raft.raft.term as u32, self.agreed());
        let Inner { raft, read_log, .. } = self;
        raft.mut_store().read(last, |f| read_log(term, agreed, f))
    }

    fn work_as_leader(&mut self) {
        let behind = self.raft.raft.prs().iter().map(|(_, progress)| progress.next_idx - 1).min();
        self.raft.mut_store().reach(behind.unwrap_or(u64::MAX));
        while self.raft.raft.state == StateRole::Leader && self.raft.has_ready() {
            let mut ready = self.raft.ready();
            assert!(ready.entries().is_empty(), "what the leader appends is begun at once");
            self.send(ready.take_messages());
            let decided = ready.take_committed_entries();
            self.raft.advance_append_async(ready);
            self.decide(&decided);
        }
        if self.raft.raft.state != StateRole::Leader {
            // What made it so is forgotten: nobody has been told of it.
            self.state = State::Deposed;
            self.outbox.clear();
        }
    }

    /// As leader, begins an entry.
    fn begin(&mut self, batches: Vec<u8>, end: Lsn) -> Result<()> {
        let seal = self.raft.store().next_seal(self.raft.raft.term);
        let members = std::mem::take(&mut self.sealed);
        let start = end - batches.len() as u64 - seal_len(members.len());
        if !self.leads() || start != self.raft.store().end() {
            return Err(deposed());
        }
        self.raft.propose(members, batches).map_err(|_| deposed())?;
        let mut ready = self.raft.ready();
        let Ok([entry]) = <[Entry; 1]>::try_from(ready.take_entries()) else { return Err(deposed()) };
        if (entry.index, entry.term, entry.get_entry_type())
            != (seal.index, seal.term, EntryType::EntryNormal)
        {
            return Err(deposed());
        }
        self.raft.mut_store().push(seal, entry, end);
        self.unwritten.push_back((ready.number(), end));
        self.send(ready.take_messages());
        let decided = ready.take_committed_entries();
        self.raft.advance_append_async(ready);
        self.decide(&decided);
        Ok(())
    }

    /// As leader, has everything below `end` on its medium.
    fn written(&mut self, end: Lsn) {
        let mut last = None;
        while let Some(&(number, _)) = self.unwritten.front().filter(|(_, to)| *to <= end) {
            last = Some(number);
            self.unwritten.pop_front();
        }
        if let Some(number) = last.filter(|_| self.leads()) {
            self.raft.on_persist_ready(number);
            self.raft.mut_store().trim(end);
            self.work_as_leader();
        }
    }

    /// Entries are decided.
    fn decide(&mut self, entries: &[Entry]) {
        let Some(last) = entries.last() else { return };
        while let Some((index, members)) = self.raft.store().change_behind(self.decided, last.index) {
            self.decided = index;
            self.change(members);
        }
        self.decided = last.index;
        self.raft.advance_apply_to(last.index);
    }

    /// The members are others.
    fn change(&mut self, members: Members) {
        let change = self.members.change_to(&members);
        let state = self.raft.apply_conf_change(&change);
        let mut state = state.expect("one more or less, or one that votes from now on");
        state.voters.sort_unstable();
        state.learners.sort_unstable();
        assert_eq!(state, members.state());
        self.members = members;
        let raft = &mut self.raft.raft;
        self.echoed.retain(|id, _| self.members.peers.contains_key(id));
        if !self.members.votes(raft.id) && raft.state == StateRole::Leader {
            // An earlier leader had begun it.
            raft.become_follower(raft.term, 0);
        }
    }

    /// The members as they will be if all is decided that was begun.
    fn latest_members(&self) -> Members {
        let begun = self.proposed.as_ref().unwrap_or(&self.sealed);
        let last = self.raft.store().last_number();
        let appended = || self.raft.store().change_behind(self.decided, last).map(|(_, members)| members);
        Members::decode(begun).ok().or_else(appended).unwrap_or_else(|| self.members.clone())
    }

    /// Whether a change of the members was begun that is not decided.
    fn is_changing(&self) -> bool {
        self.latest_members() != self.members
    }

    /// As the leader, whether a replica has answered of late.
    fn answers(&self, id: MemberId) -> bool {
        let since = self.io.monotonic_us().saturating_sub(ANSWERS_TICKS * self.tick_us);
        id == self.raft.raft.id || self.echoed.get(&id).is_some_and(|echo| *echo > since)
    }

    fn send(&mut self, messages: Vec<raft::eraftpb::Message>) {
        let (leader, heard) = self.heard;
        self.outbox.extend(messages.into_iter().map(|message| Envelope {
            stamp: 0,
            echo: if message.to == leader { heard } else { 0 },
            message: Message(message),
        }));
    }

    fn lease_us(&self) -> u64 {
        if !self.leads() || self.hands_over {
            return 0;
        }
        let own = self.raft.raft.id;
        let now = self.io.monotonic_us();
        let echo = |id: MemberId| match id == own {
            true => now,
            false => self.echoed.get(&id).copied().unwrap_or_default(),
        };
        let mut echoes: Vec<u64> = self.members.voters().map(echo).collect();
        echoes.sort_unstable_by(|a, b| b.cmp(a));
        let majority = echoes[echoes.len() / 2];
        if majority < self.leads_since { 0 } else { majority + LEASE_TICKS * self.tick_us }
    }

    fn draw_patience(&mut self) {
        let is_new = self.patience.impose(&mut self.raft.raft);
        if is_new && self.raft.raft.state == StateRole::Leader {
            self.echoed.clear();
            self.leads_since = self.io.monotonic_us();
        }
    }
}
