//! What a replica does with ticks, messages and what is appended, under its lock.

use super::{BYTES_PER_SECOND, ENTRY_BYTES_MAX, Envelope, IN_FLIGHT, ReadLog, TURN_BYTES, WINDOW_BYTES};
use crate::{
    MemberId, Message,
    engine::{ELECTION_TICKS, Patience, Sense},
    entries::{Entries, seal_len},
    members::{Members, Peer},
};
use holdfast_io::{Error, Io, Result};
use holdfast_log::{Log, Lsn};
use raft::{
    CAMPAIGN_TRANSFER, Progress, ProgressState, RawNode, StateRole,
    eraftpb::{Entry, EntryType, MessageType},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Of the time in which nobody else is elected, what a leader relies on: nine intervals between ten ticks, and clocks that differ by a
/// tenth.
const LEASE_TICKS: u64 = 8;
pub(super) struct Inner {
    pub(super) raft: RawNode<Entries>,
    pub(super) io: Arc<dyn Io>,
    pub(super) read_log: ReadLog,
    /// How long a tick is: microseconds.
    pub(super) tick_us: u64,
    /// As they are decided.
    pub(super) members: Members,
    /// Those that were removed last, and by which entry.
    pub(super) removed: (u64, BTreeMap<MemberId, Peer>),
    /// As the leader, the bytes of those that are to be: for the next entry, and of the one whose seal was made last.
    pub(super) proposed: Option<Vec<u8>>,
    pub(super) sealed: Vec<u8>,
    pub(super) state: State,
    /// The last entry that is decided, as far as it is known here; and that was at the last tick.
    pub(super) decided: u64,
    pub(super) decided_before: u64,
    /// Entries that are not durable here: the engine's number of them, and where they end.
    pub(super) unwritten: VecDeque<(u64, Lsn)>,
    pub(super) ticks: u64,
    pub(super) patience: Patience,
    /// The stamp of the leader's last sign of life.
    pub(super) heard: (MemberId, u64),
    /// What others have echoed of this leader's stamps, and when it became one.
    pub(super) echoed: BTreeMap<MemberId, u64>,
    pub(super) leads_since: u64,
    /// It leads, and has told another one to.
    pub(super) hands_over: bool,
    pub(super) outbox: Vec<Envelope>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It stores what the leader appends.
    Follows,
    /// A store appends to its log.
    Leads,
    /// It led, and another one does, or nobody.
    Deposed,
}

pub(super) fn deposed() -> Error {
    Error::Unusable("this server leads no more".into())
}

/// Bytes of log that another replica was sent and has not answered; of the message by which a leader finds out what it has, those of one entry.
fn in_flight(entries: &Entries, progress: &Progress) -> u64 {
    let end_of = |index: u64| entries.end_of(index).unwrap_or_default();
    let next = progress.next_idx;
    match progress.state {
        ProgressState::Replicate => end_of(next - 1) - end_of(progress.matched),
        ProgressState::Probe if progress.paused => end_of(next).saturating_sub(end_of(next - 1)),
        _ => 0,
    }
}

impl Inner {
    pub(super) fn log(&self) -> Option<Arc<Log>> {
        self.raft.store().log.clone()
    }

    pub(super) fn leads(&self) -> bool {
        self.state == State::Leads && self.raft.raft.state == StateRole::Leader
    }

    pub(super) fn agreed(&self) -> Lsn {
        self.raft.store().end_of(self.decided).unwrap_or_default()
    }

    pub(super) fn step(&mut self, envelope: Envelope) -> Result<()> {
        let Envelope { stamp, echo, message } = envelope;
        let (kind, from, term) = (message.0.msg_type, message.from(), message.0.term);
        let is_of_use = match kind {
            MessageType::MsgAppend => self.takes(&message),
            // Before it was stopped it may have promised a leader not to vote for another one so soon: but not one that hands over, or
            // of an earlier term.
            MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => {
                self.ticks >= ELECTION_TICKS as u64 || message.0.context == CAMPAIGN_TRANSFER
            }
            MessageType::MsgPropose | MessageType::MsgSnapshot => false,
            _ => true,
        };
        let sense = Sense::of(&message.0, &self.raft.raft);
        if !is_of_use || self.state == State::Deposed || sense == Sense::None {
            return Ok(());
        }
        if sense == Sense::Lost {
            let end = self.raft.store().end();
            return Err(Error::corrupt("log", end, "it ends before what this server has acknowledged"));
        }
        if self.raft.raft.state == StateRole::Leader && term == self.raft.raft.term {
            let known = self.echoed.entry(from).or_default();
            *known = echo.max(*known);
        }
        self.choose_how_to_tell();
        self.limit_in_flight();
        self.raft.store().allow(TURN_BYTES);
        // The error says that it is of no use now.
        let _ = self.raft.step(message.0);
        self.raft.store().allow(u64::MAX);
        self.draw_patience();
        let is_sign_of_life = matches!(kind, MessageType::MsgAppend | MessageType::MsgHeartbeat);
        if is_sign_of_life && (term, from) == (self.raft.raft.term, self.raft.raft.leader_id) {
            self.heard = (from, stamp);
        }
        Ok(())
    }

    /// As leader, tells the others of what is decided with the next entry, if there is something for one, and else at once: a message of its own
    /// to each of them costs as much as an entry.
    fn choose_how_to_tell(&mut self) {
        let has_more = self.log().is_some_and(|log| log.tail() > self.raft.store().end());
        self.raft.skip_bcast_commit(self.leads() && has_more);
    }

    /// As leader, takes those for alive who have been sent so much that they may still be at it.
    pub(super) fn wait_for_long_ones(&mut self) {
        if !self.leads() {
            return;
        }
        let now = self.io.monotonic_us();
        let Inner { raft, echoed, leads_since, .. } = self;
        let prs = raft.raft.prs();
        let is_at_it = |(id, progress): &(&MemberId, &Progress)| {
            let heard = echoed.get(id).copied().unwrap_or_default().max(*leads_since);
            let silent_us = now.saturating_sub(heard);
            silent_us < in_flight(raft.store(), progress) * 1_000_000 / BYTES_PER_SECOND
        };
        let at_it: Vec<_> = prs.iter().filter(is_at_it).map(|(id, _)| *id).collect();
        for id in at_it {
            if let Some(progress) = raft.raft.mut_prs().get_mut(id) {
                progress.recent_active = true;
            }
        }
    }

    /// As leader, has those wait who are sent much that they have not answered. Each sign of life lets one more message go, by which they notice
    /// that one before it was lost.
    fn limit_in_flight(&mut self) {
        if !self.leads() {
            return;
        }
        let entries = self.raft.store();
        let limit = |(&id, progress): (&MemberId, &Progress)| {
            let is_full = in_flight(entries, progress) >= WINDOW_BYTES;
            (id, if is_full { progress.ins.count().max(1) } else { IN_FLIGHT })
        };
        let limits: Vec<_> = self.raft.raft.prs().iter().map(limit).collect();
        limits.into_iter().for_each(|(id, limit)| self.raft.raft.adjust_max_inflight_msgs(id, limit));
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
    pub(super) fn work(&mut self) -> Result<()> {
        match self.state {
            State::Leads => {
                self.work_as_leader();
                if self.state == State::Deposed { self.say_last() } else { Ok(()) }
            }
            State::Deposed => Ok(()),
            State::Follows => self.work_as_follower(),
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
            self.decide(ready.committed_entries())?;
            self.send(ready.take_persisted_messages());
            let mut rest = self.raft.advance_append(ready);
            self.send(rest.take_messages());
            self.decide(rest.committed_entries())?;
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
    pub(super) fn read_again(&mut self, last: u64) -> Result<()> {
        let (term, agreed) = (self.raft.raft.term as u32, self.agreed());
        let Inner { raft, read_log, .. } = self;
        raft.mut_store().read(last, |f| read_log(term, agreed, f))
    }

    pub(super) fn work_as_leader(&mut self) {
        let behind = self.raft.raft.prs().iter().map(|(_, progress)| progress.next_idx - 1).min();
        self.raft.mut_store().reach(behind.unwrap_or(u64::MAX));
        while self.raft.raft.state == StateRole::Leader && self.raft.has_ready() {
            let mut ready = self.raft.ready();
            assert!(ready.entries().is_empty(), "what the leader appends is begun at once");
            self.send(ready.take_messages());
            let decided = ready.take_committed_entries();
            self.raft.advance_append_async(ready);
            if self.decide(&decided).is_err() {
                // Whose journal fails leads no more.
                let raft = &mut self.raft.raft;
                raft.become_follower(raft.term, 0);
            }
        }
        if self.raft.raft.state != StateRole::Leader {
            self.state = State::Deposed;
            self.outbox.clear();
        }
    }

    /// As one that leads no more, votes for who has asked for that: with another replica away nobody else does when this one hands over.
    fn say_last(&mut self) -> Result<()> {
        if self.raft.has_ready() {
            let mut ready = self.raft.ready();
            if let Some(vote) = ready.hs() {
                self.raft.mut_store().remember(vote)?;
            }
            self.send(ready.take_persisted_messages());
        }
        Ok(())
    }

    /// As leader, begins an entry.
    pub(super) fn begin(&mut self, batches: Vec<u8>, end: Lsn) -> Result<()> {
        let seal = self.raft.store().next_seal(self.raft.raft.term);
        let members = std::mem::take(&mut self.sealed);
        if batches.len() > ENTRY_BYTES_MAX {
            return Err(Error::Unusable("what was written at once is too much to be agreed on".into()));
        }
        let start = end - batches.len() as u64 - seal_len(members.len());
        if !self.leads() || start != self.raft.store().end() {
            return Err(deposed());
        }
        self.limit_in_flight();
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
        self.decide(&decided)
    }

    /// As leader, has everything below `end` on its medium.
    pub(super) fn written(&mut self, end: Lsn) {
        let mut last = None;
        while let Some(&(number, _)) = self.unwritten.front().filter(|(_, to)| *to <= end) {
            last = Some(number);
            self.unwritten.pop_front();
        }
        if let Some(number) = last.filter(|_| self.leads()) {
            self.choose_how_to_tell();
            self.raft.on_persist_ready(number);
            self.raft.mut_store().trim(end);
            self.work_as_leader();
        }
    }

    /// Entries are decided.
    fn decide(&mut self, entries: &[Entry]) -> Result<()> {
        let Some(last) = entries.last() else { return Ok(()) };
        while let Some((index, members)) = self.raft.store().change_behind(self.decided, last.index) {
            self.decided = index;
            self.change(index, members)?;
        }
        self.decided = last.index;
        self.raft.advance_apply_to(last.index);
        Ok(())
    }

    fn send(&mut self, messages: Vec<raft::eraftpb::Message>) {
        let (leader, heard) = self.heard;
        self.outbox.extend(messages.into_iter().map(|message| Envelope {
            stamp: 0,
            echo: if message.to == leader { heard } else { 0 },
            message: Message(message),
        }));
    }

    pub(super) fn lease_us(&self) -> u64 {
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

    pub(super) fn draw_patience(&mut self) {
        let is_new = self.patience.impose(&mut self.raft.raft);
        if is_new && self.raft.raft.state == StateRole::Leader {
            self.echoed.clear();
            self.leads_since = self.io.monotonic_us();
        }
    }
}
