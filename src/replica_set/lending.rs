//! As the leader, gives another server a copy of its data: one that has lost its own, or is so far behind that what it lacks of the log is
//! kept no longer.
//!
//! A server that has lost its data has also forgotten what it has promised: for whom it has voted, and what it has acknowledged. So the
//! copy is of a moment at which every other server that votes has answered this leader since then. Had the forgetful one voted for another
//! candidate of a later term, that candidate, which is one of them, would have refused to answer; and what it had acknowledged to this leader,
//! or an earlier one, this leader has. One that was just added, and does not vote, has promised nothing, unless to a later leader; so it is
//! enough that a majority knows of none.

use super::{
    founding::drawn,
    frame::{Frame, Hello, Kind},
    giving::Giving,
};
use crate::admin::log::log;
use holdfast_consensus::{MemberId, Replica};
use holdfast_store::{Begin, Io, Lease, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// After what time without a question a copy is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a server that has got a copy may take to begin with it.
const SETTLE: Duration = Duration::from_secs(20);

/// What is lent.
#[derive(Default)]
pub struct Lending {
    /// Who has lost its data: by what it knows itself, and when it was first heard of, in microseconds of the machine's clock.
    blank: BTreeMap<MemberId, (u64, u64)>,
    /// Who is too far behind.
    behind: BTreeSet<MemberId>,
    /// Who has got a copy, and has not been heard of since.
    given: Vec<(MemberId, Instant)>,
    lease: Option<Loan>,
    giving: Option<Giving>,
    asked: Option<Instant>,
}

/// For whom a moment is kept.
struct Loan {
    to: MemberId,
    /// By what it knows itself, if it has lost its data; else 0.
    nonce: u64,
    lease: Lease,
}

impl Lending {
    /// Another server has said what it has.
    pub fn hear(&mut self, hello: &Hello, replica: Option<&Replica>, now_us: u64) {
        let Some(from) = hello.from else { return };
        if replica.is_some_and(|replica| replica.has_last(from, hello.last)) {
            // It needs no copy, or has it. If that is not enough, it lacks something again.
            self.behind.remove(&from);
            self.given.retain(|(to, _)| *to != from);
        }
        // It has its copy, or has begun again, and may have acknowledged what is not in that copy.
        let is_over = |nonce: u64| nonce > 0 && (nonce != hello.nonce || hello.kind == Kind::Member);
        if self.lease.as_ref().is_some_and(|loan| loan.to == from && is_over(loan.nonce)) {
            self.end();
        }
        if !hello.kind.needs_all() {
            self.blank.remove(&from);
        } else if self.blank.get(&from).is_none_or(|(nonce, _)| *nonce != hello.nonce) {
            self.blank.insert(from, (hello.nonce, now_us));
        }
    }

    /// Begins what can begin, and ends what nobody asks for any more. Returns what is to be sent, and to whom.
    pub fn tick(
        &mut self,
        (set, own): (u64, MemberId),
        replica: &Replica,
        store: &Store,
        io: &Arc<dyn Io>,
    ) -> Option<(MemberId, Frame)> {
        self.given.retain(|(_, at)| at.elapsed() < SETTLE);
        let behind = replica.take_behind().into_iter();
        self.behind.extend(behind.filter(|id| self.given.iter().all(|(to, _)| to != id)));
        let members = replica.members();
        self.behind.retain(|id| members.peers.contains_key(id));
        if self.asked.is_some_and(|asked| asked.elapsed() > PATIENCE) {
            log!(Warning, "Nobody asks for the copy any more");
            self.end();
        }
        // What one that has lost its data waits for may need one that is behind.
        if !self.behind.is_empty() && self.giving.is_none() {
            self.lease.take_if(|loan| loan.nonce > 0);
        }
        if self.lease.is_none() {
            let blank = self.blank.iter().find(|(id, (_, since))| replica.may_renew(**id, *since));
            let blank = blank.map(|(id, (nonce, _))| (*id, *nonce));
            let (to, nonce) = self.behind.first().map(|id| (*id, 0)).or(blank)?;
            let Begin::Leased(lease) = store.begin_backup() else { return None };
            self.lease = Some(Loan { to, nonce, lease });
            self.asked = Some(Instant::now());
        }
        let Loan { to, nonce, lease } = self.lease.as_ref()?;
        if self.giving.is_none() {
            match plan(lease, *nonce > 0, replica, store, io, (set, own)) {
                Ok(giving) => self.giving = giving,
                Err(error) => {
                    self.fail(&error);
                    return None;
                }
            }
        }
        self.giving.as_ref().map(|giving| (*to, giving.offer(*to, *nonce)))
    }

    /// Answers who copies.
    pub fn give(&mut self, to: MemberId, copy: u64, name: &str, offset: u64) -> Option<Frame> {
        let Loan { lease, .. } = self.lease.as_ref().filter(|loan| loan.to == to)?;
        let part = self.giving.as_ref()?.part(copy, name, offset).transpose()?.map_err(|e| e.to_string());
        self.asked = Some(Instant::now());
        // What is kept still was kept when it was read.
        match part.and_then(|part| lease.check().map(|()| part).map_err(|e| e.to_string())) {
            Ok(part) => {
                if name.is_empty() {
                    self.given.push((to, Instant::now()));
                    self.end();
                }
                Some(part)
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    fn fail(&mut self, error: &str) {
        log!(Warning, "cannot give a copy: {error}");
        self.end();
    }

    fn end(&mut self) {
        if let Some(loan) = self.lease.take() {
            self.behind.remove(&loan.to);
            self.blank.remove(&loan.to);
        }
        (self.giving, self.asked) = (None, None);
    }
}

/// What is copied; `None`: not all that must be in it is agreed on yet. For one that has lost its data that is all that the leader had when
/// the lease began.
fn plan(
    lease: &Lease,
    is_blank: bool,
    replica: &Replica,
    store: &Store,
    io: &Arc<dyn Io>,
    (set, own): (u64, MemberId),
) -> Result<Option<Giving>, String> {
    // An entry ends there: what is written at once here, or agreed on, is always an entry.
    let moment = store.log().durable();
    let plan = if is_blank { lease.plan_up_to(moment) } else { lease.plan_of_less(moment) };
    let Some(plan) = plan.map_err(|e| e.to_string())? else { return Ok(None) };
    let Some(extract) = replica.extract(plan.replays_from(), moment) else {
        return Err("it leads no more, or knows no entry that is so old".into());
    };
    Giving::new(set, own, drawn(&**io), plan.view(io.clone()), extract).map(Some).map_err(|e| e.to_string())
}
