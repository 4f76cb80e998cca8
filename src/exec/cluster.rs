//! Commands on a node of a cluster: those whose keys are not here are sent to the node that has them, in Redis's words
//! (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Redirection and resharding").

use crate::{
    command::{
        Command, Flags,
        error::{LOADING, Stop},
        keys::CallKeys,
    },
    config::Opt,
    exec::{invocation::Invocation, turn::Turn},
    server::{Server, cluster::View, replica_set::ReplicaSet},
    session::Session,
};
use holdfast_cluster::{MemberId, Seat};
use holdfast_resp::Args;
use holdfast_store::{Txn, hash_slot};

/// Nobody leads the replica set of a node.
pub const NO_LEADER: Stop =
    Stop::new("CLUSTERDOWN the servers of this part of the cluster have no leader now");
const TRYAGAIN: Stop = Stop::new("TRYAGAIN Multiple keys request during rehashing of slot");

/// Why a command is not executed here.
pub(super) enum Elsewhere {
    /// Its keys are in several slots.
    CrossSlot,
    /// The cluster is down.
    Down,
    /// The cluster is down, and answers reads only.
    OnlyReads,
    /// Nobody has the slot.
    Unbound,
    /// It is about to be seen: try again soon.
    Later,
    /// Another node is to be asked, or this one again.
    Ask(Stop),
}

impl From<Elsewhere> for Stop {
    fn from(why: Elsewhere) -> Stop {
        match why {
            Elsewhere::CrossSlot => Stop::new("CROSSSLOT Keys in request don't hash to the same slot"),
            Elsewhere::Down => Stop::new("CLUSTERDOWN The cluster is down"),
            Elsewhere::OnlyReads => {
                Stop::new("CLUSTERDOWN The cluster is down and only accepts read commands")
            }
            Elsewhere::Unbound => Stop::new("CLUSTERDOWN Hash slot not served"),
            Elsewhere::Later => Stop::new("TRYAGAIN The slot is about to move to another node"),
            Elsewhere::Ask(stop) => stop,
        }
    }
}

/// Whether a command may be executed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It may.
    Here,
    /// It may if its keys are still there: this slot is on its way to that node.
    Leaving(u16, MemberId),
    /// It may, unless it has several keys that are not all there yet: the slot is on its way here.
    Coming,
}

/// The slot of all keys, and of all channels of a shard, that a call names.
#[derive(Default)]
struct OneSlot(Option<u16>);

impl OneSlot {
    fn add(&mut self, key: &[u8]) -> Result<(), Elsewhere> {
        let slot = hash_slot(key);
        if *self.0.get_or_insert(slot) == slot { Ok(()) } else { Err(Elsewhere::CrossSlot) }
    }

    fn add_call(&mut self, command: &Command, args: Args, keys: &CallKeys) -> Result<(), Elsewhere> {
        let channels = match command.name {
            "spublish" => args.len().min(2),
            "ssubscribe" | "sunsubscribe" => args.len(),
            _ => 0,
        };
        (1..channels).try_for_each(|index| self.add(args.at(index)))?;
        keys.known(command, args).iter().try_for_each(|&(index, _)| self.add(args.at(index)))
    }
}

/// The slot of all keys, and of all channels of a shard, that a call names; `None`: it names none.
///
/// # Errors
/// They are in several.
pub fn slot_of(command: &Command, args: Args) -> Result<Option<u16>, Stop> {
    let mut slot = OneSlot::default();
    slot.add_call(command, args, &CallKeys::default())?;
    Ok(slot.0)
}

impl Turn<'_> {
    /// Whether a command may be executed on this node of a cluster, or the error that sends the client elsewhere.
    #[cold]
    pub(super) fn way(&self, session: &Session, invocation: &Invocation) -> Result<Way, Elsewhere> {
        let Invocation { args, keys, .. } = *invocation;
        let command = invocation.command();
        let mut slot = OneSlot::default();
        let (mut only_reads, mut is_one) = (!command.flags.has(Flags::WRITE), true);
        if command.name == "exec" {
            is_one = false;
            for call in session.multi.iter().flat_map(|multi| &multi.queue) {
                let queued = self.worker.server.table.command(call.id);
                only_reads &= !queued.flags.has(Flags::WRITE);
                slot.add_call(queued, call.args.args(), &call.keys)?;
            }
        } else {
            slot.add_call(command, args, keys)?;
            is_one &= !command.categories.has(crate::command::Categories::SCRIPTING);
        }
        let Some(slot) = slot.0 else { return Ok(Way::Here) };
        let cluster = &self.worker.server.cluster;
        if cluster.serves(slot) {
            return Ok(Way::Here);
        }
        let view = cluster.view();
        let owner = view.map.owner(slot).ok_or(Elsewhere::Unbound)?;
        if !view.is_ok {
            match self.worker.server.config.is_on(Opt::ClusterAllowReadsWhenDown) {
                true if only_reads => {}
                true => return Err(Elsewhere::OnlyReads),
                false => return Err(Elsewhere::Down),
            }
        }
        if let Some(set) = self.worker.server.replication.set()
            && is_of_set(set, &view, owner)
        {
            let is_of_shard = matches!(command.name, "spublish" | "ssubscribe" | "sunsubscribe");
            let may_read = session.reads_replicas && only_reads;
            // What has gone key by key is where its leader says.
            let is_whole = || !view.map.moves().contains_key(&slot) && cluster.has_data_of(view.data);
            return match is_of_shard || may_read && is_whole() {
                true => Ok(Way::Here),
                false => Err(Elsewhere::Ask(to_leader(set, &view, slot))),
            };
        }
        if cluster.is_frozen(slot) {
            return Err(Elsewhere::Later);
        }
        // MIGRATE may also bring back what has come: `redis-cli --cluster fix` does where both nodes have keys.
        let imports =
            || view.map.moves().get(&slot).and_then(|way| way.from).is_some_and(|(by, _)| by == view.id);
        let asks = match command.name {
            "restore-asking" => true,
            "migrate" => imports(),
            _ => session.asks(),
        };
        let way = route(&view, slot, owner, asks)?;
        // Between a look at the keys and what is done to them nobody may move them. Only what runs in one transaction from here on knows.
        if way != Way::Here && !is_one && command.name != "migrate" {
            return Err(Elsewhere::Ask(TRYAGAIN));
        }
        Ok(way)
    }

    /// Whether a script may call a command, whose partitions it has locked. All its keys are in one slot, the one that `slot` says if it is
    /// known, unless it may go `across` slots of this node. A slot that it has `held` since it was here stays here for it. What is on its
    /// way to another node it must not touch: the script cannot be told to ask there.
    #[cold]
    pub(super) fn script_may_use(
        &self,
        session: &Session,
        invocation: &Invocation,
        slot: &mut Option<u16>,
        across: bool,
        held: &mut Vec<u16>,
    ) -> Result<(), Stop> {
        let mut used = OneSlot::default();
        used.add_call(invocation.command(), invocation.args, invocation.keys).map_err(|_| {
            let why = "in script attempted to access keys that don't hash to the same slot";
            Stop::from(format!("ERR Command '{}' {why}", invocation.command().name))
        })?;
        let Some(wanted) = used.0 else { return Ok(()) };
        if !held.contains(&wanted) {
            match self.way(session, invocation) {
                Ok(Way::Here) => held.push(wanted),
                Err(Elsewhere::Down) => {
                    let why = "ERR Script attempted to execute a command while the cluster is down";
                    return Err(Stop::new(why));
                }
                Err(Elsewhere::OnlyReads) => {
                    let why = "ERR Script attempted to execute a write command while the cluster is down and readonly";
                    return Err(Stop::new(why));
                }
                Ok(Way::Leaving(..) | Way::Coming)
                | Err(Elsewhere::CrossSlot | Elsewhere::Unbound | Elsewhere::Later | Elsewhere::Ask(_)) => {
                    return Err(Stop::new(
                        "ERR Script attempted to access a non local key in a cluster node",
                    ));
                }
            }
        }
        if *slot.get_or_insert(wanted) != wanted && !across {
            return Err(Stop::new("ERR Script attempted to access keys that do not hash to the same slot"));
        }
        Ok(())
    }

    /// Whether the keys of a call in a slot that moves are all there, under their lock; or who is to be asked.
    pub(super) fn are_there(
        &self,
        session: &Session,
        way: Way,
        txn: &mut Txn,
        invocation: &Invocation,
    ) -> Result<(), Stop> {
        let (mut there, mut missing) = (0, 0);
        let db = self.worker.server.store.database(session.db as u8);
        for &(index, _) in invocation.known_keys() {
            match txn.type_of(db, invocation.args.at(index)) {
                Some(_) => there += 1,
                None => missing += 1,
            }
        }
        // By what was known when the way was chosen: meanwhile the slot may have become the other node's, and what is missing here is there.
        match way {
            _ if missing == 0 => Ok(()),
            Way::Leaving(slot, to) if there == 0 => {
                let view = self.worker.server.cluster.view();
                let target = view.map.members().get(&to).ok_or(TRYAGAIN)?;
                Err(view.redirection("ASK", slot, target).into())
            }
            // Who asks has been sent here for what is not there any more.
            Way::Coming if there + missing == 1 => Ok(()),
            Way::Leaving(..) | Way::Coming => Err(TRYAGAIN),
            Way::Here => Ok(()),
        }
    }
}

/// Whether keys that a call looks at without naming them are all here, on a node of a cluster: they are if they are in the
/// slot of the key that it names, and that does not move.
pub fn check_unnamed<'k>(
    server: &Server,
    session: &Session,
    named: &[u8],
    mut unnamed: impl Iterator<Item = &'k [u8]>,
) -> Result<(), Stop> {
    if !server.cluster.is_on() || session.is_primary {
        return Ok(());
    }
    let slot = hash_slot(named);
    if unnamed.any(|key| hash_slot(key) != slot) {
        return Err(Elsewhere::CrossSlot.into());
    }
    let is_followed = || {
        let view = server.cluster.view();
        let owner = view.map.owner(slot);
        server.replication.set().is_some_and(|set| owner.is_some_and(|owner| is_of_set(set, &view, owner)))
    };
    if server.cluster.serves(slot) || is_followed() { Ok(()) } else { Err(TRYAGAIN) }
}

/// Whether a node is of a replica set.
pub fn is_of_set(set: &ReplicaSet, view: &View, node: MemberId) -> bool {
    let seat = view.map.members().get(&node).and_then(|member| member.seat);
    seat.is_some_and(|seat| set.seat().is_some_and(|own| own.set == seat.set))
}

/// Sends a client to the leader of a replica set, of which this server is a follower, and which the map may not know yet.
pub fn to_leader(set: &ReplicaSet, view: &View, slot: u16) -> Stop {
    let known = set.view();
    let (Some(seat), Some((server, address))) = (set.seat(), known.leader()) else { return NO_LEADER };
    if server == seat.server {
        return LOADING;
    }
    let leader = Some(Seat { server, ..seat });
    match view.map.members().values().find(|member| member.seat == leader) {
        Some(member) => view.redirection("MOVED", slot, member).into(),
        None => format!("MOVED {slot} {}:{}", address.host, address.port).into(),
    }
}

/// Whether a slot that some node owns is here, on its way, or elsewhere.
fn route(view: &View, slot: u16, owner: MemberId, asks: bool) -> Result<Way, Elsewhere> {
    if owner == view.id {
        let to = view.map.moves().get(&slot).and_then(|way| way.to);
        return Ok(to.map_or(Way::Here, |to| Way::Leaving(slot, to)));
    }
    if asks && view.map.receiver(slot) == Some(view.id) {
        return Ok(Way::Coming);
    }
    let owner = view.map.members().get(&owner).ok_or(Elsewhere::Unbound)?;
    if owner.name == view.name {
        // It has joined the others, and has not heard yet as which one of them.
        return Err(Elsewhere::Down);
    }
    Err(Elsewhere::Ask(view.redirection("MOVED", slot, owner).into()))
}
