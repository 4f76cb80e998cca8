//! One member of a group.

use crate::{
    MemberId, Message,
    code::{Decoder, Encoder, Malformed},
    engine::{self, ELECTION_TICKS, Patience, Sense},
    journal::{Journal, Records},
};
use holdfast_io::{Error, Io, Result};
use raft::{
    Config, ProgressState, RawNode, StateRole,
    eraftpb::{ConfChange, ConfChangeType, ConfState, Entry, EntryType, HardState, Snapshot},
};
use slog::{Discard, Logger, o};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

/// Ticks after which a proposal is made again that was not decided meanwhile.
const RETRY_TICKS: u64 = 10;
/// Bytes of entries in a message.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Messages with entries that one member is sent before it has answered.
const IN_FLIGHT: usize = 64;
/// Bytes of entries that are not decided at most.
const UNDECIDED_BYTES: u64 = 64 << 20;
/// Entries by which a learner may be behind to be made a voter.
const LAG_MAX: u64 = 64;
/// The index of the state that a group begins with.
const FIRST_INDEX: u64 = 1;

/// What the entries of a group mean. The same entries in the same order lead to the same state and outcomes on each member.
pub trait Machine {
    /// What comes of an entry.
    type Outcome;

    /// Applies an entry.
    fn apply(&mut self, entry: &[u8]) -> Self::Outcome;

    /// The state, for [`Machine::load`].
    fn save(&self) -> Vec<u8>;

    /// Takes a state in the place of its own; the error says what is wrong with it.
    ///
    /// # Errors
    /// It is none.
    fn load(&mut self, state: &[u8]) -> std::result::Result<(), String>;

    /// Who is to be a member of the group, those first that are to vote first.
    fn members(&self) -> Vec<MemberId>;
}

/// How a group is.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Members that vote; the others only follow. Odd numbers are best.
    pub voters_max: usize,
}

/// What a member is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It says what the next entry is.
    Leader,
    /// It follows a leader.
    Follower {
        /// Whom.
        leader: MemberId,
    },
    /// It knows no leader: no entry can be decided as far as it knows.
    Leaderless,
}

/// A proposal that was decided.
#[derive(Debug, PartialEq, Eq)]
pub struct Finished<O> {
    /// What [`Member::propose`] returned for it.
    pub number: u64,
    /// What came of it; `None`: that was lost, since the member has got the state behind it from another one.
    pub outcome: Option<O>,
}

/// A member.
pub struct Member<M: Machine> {
    raft: RawNode<Journal>,
    machine: M,
    options: Options,
    /// The machine's state is that after this entry.
    applied: u64,
    members: ConfState,
    /// The last proposal of each member that was applied: none is applied twice, however often it was made.
    done: BTreeMap<MemberId, u64>,
    /// Proposals of this member, of which the first one is on its way.
    proposals: VecDeque<(u64, Vec<u8>)>,
    next_proposal: u64,
    proposed_at: Option<u64>,
    /// Ticks so far, and at which a member was heard.
    now: u64,
    heard: BTreeMap<MemberId, u64>,
    patience: Patience,
    outbox: Vec<Message>,
    finished: Vec<Finished<M::Outcome>>,
}

impl<M: Machine> Member<M> {
    /// Makes the first member of a new group.
    ///
    /// # Errors
    /// The medium's.
    pub fn found(
        io: Arc<dyn Io>,
        folder: &str,
        id: MemberId,
        machine: M,
        options: Options,
    ) -> Result<Member<M>> {
        let mut snapshot = Snapshot { data: save(&machine, &BTreeMap::new()).into(), ..Snapshot::default() };
        let about = snapshot.mut_metadata();
        (about.index, about.term) = (FIRST_INDEX, 1);
        about.mut_conf_state().voters = vec![id];
        let journal = Journal::create(io.clone(), folder, id, snapshot)?;
        Member::begin(&*io, journal, machine, options)
    }

    /// Makes a member that hears of its group when the group's leader speaks to it.
    ///
    /// # Errors
    /// The medium's.
    pub fn join(
        io: Arc<dyn Io>,
        folder: &str,
        id: MemberId,
        machine: M,
        options: Options,
    ) -> Result<Member<M>> {
        let journal = Journal::create(io.clone(), folder, id, Snapshot::default())?;
        Member::begin(&*io, journal, machine, options)
    }

    /// Opens the member whose journal is in a folder; `None`: there is none.
    ///
    /// # Errors
    /// The medium's, or the journal is damaged.
    pub fn open(io: Arc<dyn Io>, folder: &str, machine: M, options: Options) -> Result<Option<Member<M>>> {
        let journal = Journal::open(io.clone(), folder)?;
        journal.map(|journal| Member::begin(&*io, journal, machine, options)).transpose()
    }

    /// Removes the member from a folder.
    ///
    /// # Errors
    /// The medium's.
    pub fn remove(io: &dyn Io, folder: &str) -> Result<()> {
        Journal::remove(io, folder)
    }

    fn begin(io: &dyn Io, journal: Journal, machine: M, options: Options) -> Result<Member<M>> {
        let patience = Patience::new(io);
        let (snapshot, opened) = (journal.snapshot().clone(), journal.opened());
        let applied = snapshot.get_metadata().index;
        let config = Config {
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: IN_FLIGHT,
            max_uncommitted_size: UNDECIDED_BYTES,
            ..engine::config(journal.member(), applied)
        };
        let raft = RawNode::new(&config, journal, &Logger::root(Discard, o!()));
        let raft = raft.map_err(|e| Error::Unusable(format!("the journal of a member: {e}")))?;
        let mut member = Member {
            raft,
            machine,
            options,
            applied,
            members: ConfState::default(),
            done: BTreeMap::new(),
            proposals: VecDeque::new(),
            next_proposal: opened << 32,
            proposed_at: None,
            now: 0,
            heard: BTreeMap::new(),
            patience,
            outbox: Vec::new(),
            finished: Vec::new(),
        };
        if !snapshot.is_empty() {
            member.load(&snapshot)?;
        }
        if member.members.voters == [member.id()] {
            // There is nobody else to be asked.
            member.raft.campaign().expect("a member that votes");
        }
        member.patience.impose(&mut member.raft.raft);
        Ok(member)
    }

    fn load(&mut self, snapshot: &Snapshot) -> Result<()> {
        let about = snapshot.get_metadata();
        let unusable =
            |why: String| Error::Unusable(format!("the state of a group after entry {}: {why}", about.index));
        let (done, state) = split(&snapshot.data).map_err(|Malformed| unusable("not its form".into()))?;
        self.machine.load(state).map_err(unusable)?;
        self.done = done;
        self.applied = about.index;
        self.members = about.get_conf_state().clone();
        self.forget_decided();
        Ok(())
    }

    /// Who it is.
    pub fn id(&self) -> MemberId {
        self.raft.raft.id
    }

    /// What it is.
    pub fn role(&self) -> Role {
        match (self.raft.raft.state, self.raft.raft.leader_id) {
            (StateRole::Leader, _) => Role::Leader,
            (_, 0) => Role::Leaderless,
            (_, leader) => Role::Follower { leader },
        }
    }

    /// The term: counts leaders.
    pub fn term(&self) -> u64 {
        self.raft.raft.term
    }

    /// The number of the last entry that was applied.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Its machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Who votes, and who follows only.
    pub fn members(&self) -> (&[MemberId], &[MemberId]) {
        (&self.members.voters, &self.members.learners)
    }

    /// How many ticks ago another member was heard last; `None`: not since this one was opened.
    pub fn silence(&self, of: MemberId) -> Option<u64> {
        self.heard.get(&of).map(|at| self.now - at)
    }

    /// Time goes on by a tick. Whoever owns a member decides how long that is; an election takes ten to twenty of them, and a few
    /// messages.
    pub fn tick(&mut self) {
        self.now += 1;
        self.raft.tick();
        self.patience.impose(&mut self.raft.raft);
        if self.proposed_at.is_some_and(|at| self.now - at >= RETRY_TICKS) {
            self.proposed_at = None;
        }
        self.offer();
        self.change_members();
    }

    /// A message has come.
    pub fn step(&mut self, mut message: Message) {
        match Sense::of(&message.0, &self.raft.raft) {
            Sense::Sound => {}
            Sense::None => return,
            // The next leader finds out what it lacks.
            Sense::Lost => message.0.commit = self.raft.raft.raft_log.last_index(),
        }
        self.heard.insert(message.from(), self.now);
        // The error says that it is of no use now: to a member that is none any more, or a proposal without a leader. Both are
        // told by nothing coming of it.
        let _ = self.raft.step(message.0);
        self.patience.impose(&mut self.raft.raft);
    }

    /// A message could not be sent, so that it is of no use to send many.
    pub fn unreachable(&mut self, message: &Message) {
        self.raft.report_unreachable(message.to());
        if message.has_snapshot() {
            self.raft.report_snapshot(message.to(), raft::SnapshotStatus::Failure);
        }
    }

    /// A message was sent as a whole.
    pub fn sent(&mut self, message: &Message) {
        if message.has_snapshot() {
            self.raft.report_snapshot(message.to(), raft::SnapshotStatus::Finish);
        }
    }

    /// Has the group decide on an entry, and makes the proposal again until it has; its number in [`Member::take_finished`]. Proposals of
    /// a member are decided in their order.
    pub fn propose(&mut self, entry: Vec<u8>) -> u64 {
        self.next_proposal += 1;
        self.proposals.push_back((self.next_proposal, entry));
        self.offer();
        self.next_proposal
    }

    /// Proposals that are not decided.
    pub fn undecided(&self) -> usize {
        self.proposals.len()
    }

    /// Does not make a proposal again. The group may have decided on it all the same, or do so yet.
    pub fn give_up(&mut self, number: u64) {
        if self.proposals.front().is_some_and(|(first, _)| *first == number) {
            self.proposed_at = None;
        }
        self.proposals.retain(|(known, _)| *known != number);
    }

    /// Sends the first proposal on its way, if it is not.
    fn offer(&mut self) {
        let (None, Some((number, entry))) = (self.proposed_at, self.proposals.front()) else { return };
        let mut context = Encoder::default();
        context.u64(self.raft.raft.id).u64(*number);
        // Without a leader it is made again later.
        if self.raft.propose(context.into_bytes(), entry.clone()).is_ok() {
            self.proposed_at = Some(self.now);
        }
    }

    /// As leader, makes the group's members those that the machine names, one change after another.
    fn change_members(&mut self) {
        if self.raft.raft.state != StateRole::Leader || self.raft.raft.has_pending_conf() {
            return;
        }
        match self.next_change() {
            // The engine's leader cannot stay one without a vote.
            Some(change) if change.node_id == self.id() => self.hand_over(),
            Some(change) => {
                // One that is refused is made again. Who applies it reads what it is beside the engine's own form of it.
                let mut context = Encoder::default();
                let kind = CHANGES.iter().position(|kind| *kind == change.change_type).expect("one of them");
                context.u8(kind as u8).u64(change.node_id);
                let _ = self.raft.propose_conf_change(context.into_bytes(), change);
            }
            None => {}
        }
    }

    fn next_change(&self) -> Option<ConfChange> {
        let change = |kind, node_id| {
            let mut change = ConfChange { node_id, ..ConfChange::default() };
            change.set_change_type(kind);
            Some(change)
        };
        let wanted = self.machine.members();
        let (voters, learners) = (&self.members.voters, &self.members.learners);
        let is_known = |id: &MemberId| voters.contains(id) || learners.contains(id);
        // Who is new learns first: one that cannot be reached would not be missed.
        if let Some(&new) = wanted.iter().find(|id| !is_known(id)) {
            return change(ConfChangeType::AddLearnerNode, new);
        }
        let may_vote: BTreeSet<_> = wanted.iter().take(self.options.voters_max).collect();
        if let Some(&ready) = learners.iter().find(|id| may_vote.contains(id) && self.is_caught_up(**id)) {
            return change(ConfChangeType::AddNode, ready);
        }
        let mut gone = learners.iter().chain(voters).filter(|id| !wanted.contains(id));
        if let Some(&gone) = gone.find(|id| self.spares(**id)) {
            return change(ConfChangeType::RemoveNode, gone);
        }
        // One that is to vote no more since another one votes in its place.
        let all_vote = may_vote.iter().all(|id| voters.contains(id));
        let too_many = voters.iter().find(|id| !may_vote.contains(id) && self.spares(**id));
        too_many.filter(|_| all_vote).and_then(|&id| change(ConfChangeType::AddLearnerNode, id))
    }

    /// Whether without the vote of a member those that are heard still are a majority.
    fn spares(&self, id: MemberId) -> bool {
        let rest = || self.members.voters.iter().filter(move |&&voter| voter != id);
        let is_heard = |&&voter: &&MemberId| {
            voter == self.id() || self.silence(voter).is_some_and(|ticks| ticks < ELECTION_TICKS as u64)
        };
        2 * rest().filter(is_heard).count() > rest().count()
    }

    /// Whether another member has answered lately, and has nearly all entries.
    fn is_caught_up(&self, id: MemberId) -> bool {
        let raft = &self.raft.raft;
        raft.prs().get(id).is_some_and(|progress| {
            progress.recent_active
                && progress.state == ProgressState::Replicate
                && progress.matched + LAG_MAX >= raft.raft_log.committed
        })
    }

    /// As leader, has another member that votes become it. One that cannot does not: this one goes on then.
    fn hand_over(&mut self) {
        let voters = self.members.voters.iter().filter(|&&id| id != self.id() && self.is_caught_up(id));
        if let Some(&next) = voters.min_by_key(|&&id| self.silence(id)) {
            self.raft.transfer_leader(next);
        }
    }

    /// Does what the last ticks, messages and proposals have led to: remembers, applies, answers. After an error the member is to be
    /// opened anew.
    ///
    /// # Errors
    /// The medium's, or a state from another member that is none.
    pub fn work(&mut self) -> Result<()> {
        while self.raft.has_ready() {
            let mut ready = self.raft.ready();
            self.send(ready.take_messages());
            let mut records = Records::default();
            if !ready.snapshot().is_empty() {
                records.snapshot(ready.snapshot());
            }
            if let Some(vote) = ready.hs() {
                records.vote(vote);
            }
            ready.entries().iter().for_each(|entry| records.entry(entry));
            match ready.must_sync() {
                true => self.raft.mut_store().append(records)?,
                false => self.raft.mut_store().note(records),
            }
            if !ready.snapshot().is_empty() {
                let snapshot = ready.snapshot().clone();
                self.load(&snapshot)?;
            }
            self.apply(ready.take_committed_entries())?;
            self.send(ready.take_persisted_messages());
            let mut rest = self.raft.advance(ready);
            if let Some(commit) = rest.commit_index() {
                let mut records = Records::default();
                let raft = &self.raft.raft;
                records.vote(&HardState { term: raft.term, vote: raft.vote, commit, ..HardState::default() });
                self.raft.mut_store().note(records);
            }
            self.send(rest.take_messages());
            self.apply(rest.take_committed_entries())?;
            self.raft.advance_apply();
            self.patience.impose(&mut self.raft.raft);
            // The engine takes nothing new while it is told what has become of the last.
            self.offer();
        }
        if self.raft.store().wants_snapshot()
            && self.applied > self.raft.store().snapshot().get_metadata().index
        {
            let state = save(&self.machine, &self.done);
            let (applied, members) = (self.applied, self.members.clone());
            self.raft.mut_store().compact(applied, &members, state)?;
        }
        Ok(())
    }

    /// What is to be sent to other members. Any of it may be lost, come late, or come twice.
    pub fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.outbox)
    }

    /// Proposals of this member that were decided.
    pub fn take_finished(&mut self) -> Vec<Finished<M::Outcome>> {
        std::mem::take(&mut self.finished)
    }

    fn send(&mut self, messages: Vec<raft::eraftpb::Message>) {
        self.outbox.extend(messages.into_iter().map(Message));
    }

    fn apply(&mut self, entries: Vec<Entry>) -> Result<()> {
        for entry in entries {
            match entry.get_entry_type() {
                EntryType::EntryNormal => self.apply_entry(&entry),
                EntryType::EntryConfChange => {
                    let change = decode_change(&entry.context).map_err(|Malformed| unusable(entry.index))?;
                    self.resign_before(&change);
                    // After a restart it must not go by members that are none any more: the engine asks nobody for a vote before it has
                    // applied what it knows to be decided.
                    self.raft.mut_store().remember_decided()?;
                    self.members = self.raft.apply_conf_change(&change).map_err(|_| unusable(entry.index))?;
                }
                EntryType::EntryConfChangeV2 => return Err(unusable(entry.index)),
            }
            self.applied = entry.index;
        }
        Ok(())
    }

    /// The engine's leader must vote. One that another leader's change deprives of that leads no more.
    fn resign_before(&mut self, change: &ConfChange) {
        let raft = &mut self.raft.raft;
        let deprives = change.change_type != ConfChangeType::AddNode && change.node_id == raft.id;
        if deprives && raft.state == StateRole::Leader {
            raft.become_follower(raft.term, 0);
        }
    }

    fn apply_entry(&mut self, entry: &Entry) {
        let mut context = Decoder(&entry.context);
        // A leader begins its term with an entry that says nothing.
        let (Ok(member), Ok(number)) = (context.u64(), context.u64()) else { return };
        let done = self.done.entry(member).or_default();
        if number <= *done {
            return;
        }
        *done = number;
        let outcome = self.machine.apply(&entry.data);
        if member == self.raft.raft.id && self.proposals.front().is_some_and(|(first, _)| *first == number) {
            self.proposals.pop_front();
            self.proposed_at = None;
            self.finished.push(Finished { number, outcome: Some(outcome) });
        }
    }

    /// Reports what was decided without this member having applied it.
    fn forget_decided(&mut self) {
        let done = self.done.get(&self.raft.raft.id).copied().unwrap_or_default();
        while let Some(&(number, _)) = self.proposals.front().filter(|(number, _)| *number <= done) {
            self.proposals.pop_front();
            self.finished.push(Finished { number, outcome: None });
            self.proposed_at = None;
        }
    }
}

/// Changes of members, numbered as in entries.
const CHANGES: [ConfChangeType; 3] =
    [ConfChangeType::AddNode, ConfChangeType::RemoveNode, ConfChangeType::AddLearnerNode];

fn decode_change(context: &[u8]) -> std::result::Result<ConfChange, Malformed> {
    let mut context = Decoder(context);
    let kind = *CHANGES.get(usize::from(context.u8()?)).ok_or(Malformed)?;
    let mut change = ConfChange { node_id: context.u64()?, ..ConfChange::default() };
    change.set_change_type(kind);
    Ok(change)
}

/// An entry that no member makes.
fn unusable(index: u64) -> Error {
    Error::Unusable(format!("entry {index} of the group is no change of members"))
}

fn save<M: Machine>(machine: &M, done: &BTreeMap<MemberId, u64>) -> Vec<u8> {
    let mut out = Encoder::default();
    let flat: Vec<u64> = done.iter().flat_map(|(&member, &number)| [member, number]).collect();
    out.numbers(&flat).bytes(&machine.save());
    out.into_bytes()
}

fn split(state: &[u8]) -> std::result::Result<(BTreeMap<MemberId, u64>, &[u8]), Malformed> {
    let mut state = Decoder(state);
    let flat = state.numbers()?;
    let done = flat.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let machine = state.bytes()?;
    state.end()?;
    Ok((done, machine))
}
