//! Copies of a leader's log for replicas that lack what is kept no longer, or have lost all.

use super::Replica;
use crate::{
    MemberId,
    entries::{base_of_bytes, base_to_bytes, first_base},
    journal::{Journal, Records},
    members::Members,
};
use holdfast_io::{Error, Io, Result};
use holdfast_log::Lsn;
use raft::{ProgressState, eraftpb::HardState};
use std::{collections::BTreeSet, sync::Arc};

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

    /// As the leader, the replicas that lack entries which are here no more, and so need a copy; since this was asked last.
    pub fn take_behind(&self) -> BTreeSet<MemberId> {
        self.inner.lock().raft.mut_store().take_behind()
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
}
