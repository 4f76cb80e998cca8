//! Replicas that are added and removed.

use super::{Inner, Replica};
use crate::{
    MemberId,
    engine::ELECTION_TICKS,
    members::{Change, Members, Peer, Refused},
};
use holdfast_io::Result;
use raft::{Progress, StateRole, Storage as _};
use std::{collections::BTreeMap, mem, result};

impl Replica {
    /// The replicas, as is decided, as far as it is known here.
    pub fn members(&self) -> Members {
        self.inner.lock().members.clone()
    }

    /// The same, and as the leader, with those that were removed and still count for others, as far as it is known: until a majority of those
    /// that are left knows durably that they do not, none of them may be destroyed. Without them, others would elect nobody.
    pub fn counted(&self) -> Members {
        let inner = self.inner.lock();
        let mut members = inner.members.clone();
        members.peers.extend(inner.leaving().into_iter().flatten().map(|(id, peer)| (*id, peer.clone())));
        members
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
    pub fn propose(&self, change: &Change) -> result::Result<Members, Refused> {
        let mut inner = self.inner.lock();
        if !inner.leads() || inner.hands_over {
            return Err(Refused::NotLeader);
        }
        let raft = &inner.raft.raft;
        let (own, term) = (raft.id, inner.raft.store().term(inner.decided).unwrap_or_default());
        // Two leaders that do not know of each other's changes must not both have theirs decided (D. Ongaro, "bug in single-server membership changes",
        // raft-dev 2015). Since changes count only when they are decided, the second condition is enough; the first is for certain.
        if term != raft.term || inner.is_changing() || inner.leaving().is_some() {
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
}

impl Inner {
    /// The members are others from the entry of this number on: durably, before anybody is told that it is decided.
    pub(super) fn change(&mut self, index: u64, members: Members) -> Result<()> {
        let change = self.members.change_to(&members);
        let state = self.raft.apply_conf_change(&change);
        let mut state = state.expect("one more or less, or one that votes from now on");
        state.voters.sort_unstable();
        state.learners.sort_unstable();
        assert_eq!(state, members.state());
        let mut removed = mem::replace(&mut self.members, members).peers;
        removed.retain(|id, _| !self.members.peers.contains_key(id));
        if !removed.is_empty() {
            self.removed = (index, removed);
        }
        let decided = self.raft.raft.hard_state();
        self.raft.mut_store().remember_decided(&decided)?;
        let raft = &mut self.raft.raft;
        self.echoed.retain(|id, _| self.members.peers.contains_key(id));
        let steps_down = match raft.state {
            StateRole::Follower => false,
            // Somebody who refused it a vote has told it that the change is decided. It has asked others than may elect it now, and may be none
            // of them any more: the engine, which sees no change of members in such an entry, would have it lead all the same, and panic.
            StateRole::PreCandidate | StateRole::Candidate => true,
            // An earlier leader had begun it.
            StateRole::Leader => !self.members.votes(raft.id),
        };
        if steps_down {
            raft.become_follower(raft.term, 0);
        }
        Ok(())
    }

    /// As the leader, those that were removed last, unless a majority of those that are left knows of it durably: who does says so, and has
    /// those of the others that may be elected know it, too, when they ask it for its vote.
    fn leaving(&self) -> Option<&BTreeMap<MemberId, Peer>> {
        let (index, removed) = &self.removed;
        let raft = &self.raft.raft;
        // The leader itself may know what it has not stored.
        let known = |progress: &Progress| progress.committed_index.min(progress.matched);
        let knows = |id: &MemberId| raft.prs().get(*id).is_some_and(|it| known(it) >= *index);
        let is_known = || self.members.voters().filter(knows).count() >= self.members.majority();
        (raft.state == StateRole::Leader && !removed.is_empty() && !is_known()).then_some(removed)
    }

    /// The members as they will be if all is decided that was begun.
    pub(super) fn latest_members(&self) -> Members {
        let begun = self.proposed.as_ref().unwrap_or(&self.sealed);
        let last = self.raft.store().last_number();
        let appended = || self.raft.store().change_behind(self.decided, last).map(|(_, members)| members);
        Members::decode(begun).ok().or_else(appended).unwrap_or_else(|| self.members.clone())
    }

    /// Whether a change of the members was begun that is not decided.
    pub(super) fn is_changing(&self) -> bool {
        self.latest_members() != self.members
    }

    /// As the leader, whether a replica has answered within the time after which others elect another leader.
    pub(super) fn answers(&self, id: MemberId) -> bool {
        let since = self.io.monotonic_us().saturating_sub(ELECTION_TICKS as u64 * self.tick_us);
        id == self.raft.raft.id || self.echoed.get(&id).is_some_and(|echo| *echo > since)
    }
}
