//! Commands on a node of a cluster: those whose keys are not here are sent to the node that has them, in Redis's words
//! (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>, "Redirection and resharding").

use crate::{
    command::{Command, Flags, error::Stop, keys::CallKeys},
    config::Opt,
    exec::turn::Turn,
    server::cluster::View,
    session::Session,
};
use holdfast_cluster::Member;
use holdfast_resp::Args;
use holdfast_store::{Txn, hash_slot};

const CROSSSLOT: Stop = Stop::new("CROSSSLOT Keys in request don't hash to the same slot");
const TRYAGAIN: Stop = Stop::new("TRYAGAIN Multiple keys request during rehashing of slot");
const DOWN: Stop = Stop::new("CLUSTERDOWN The cluster is down");
const DOWN_READS: Stop = Stop::new("CLUSTERDOWN The cluster is down and only accepts read commands");
const UNBOUND: Stop = Stop::new("CLUSTERDOWN Hash slot not served");

/// Whether a command may be executed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It may.
    Here,
    /// It may if its keys are there: this slot is on its way to another node, or from one.
    Moving(u16),
}

/// The slot of all keys, and of all channels of a shard, that a call names.
#[derive(Default)]
struct OneSlot(Option<u16>);

impl OneSlot {
    fn add(&mut self, key: &[u8]) -> Result<(), Stop> {
        let slot = hash_slot(key);
        if *self.0.get_or_insert(slot) == slot { Ok(()) } else { Err(CROSSSLOT) }
    }

    fn add_call(&mut self, command: &Command, args: Args, keys: &CallKeys) -> Result<(), Stop> {
        let channels = match command.name {
            "spublish" => args.len().min(2),
            "ssubscribe" | "sunsubscribe" => args.len(),
            _ => 0,
        };
        (1..channels).try_for_each(|index| self.add(args.at(index)))?;
        keys.known(command, args).iter().try_for_each(|&(index, _)| self.add(args.at(index)))
    }
}

impl Turn<'_> {
    /// Whether a command may be executed on this node of a cluster, or the error that sends the client elsewhere.
    #[cold]
    pub(super) fn way(
        &self,
        session: &Session,
        command: &Command,
        args: Args,
        keys: &CallKeys,
    ) -> Result<Way, Stop> {
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
        let way = route(&view, slot, session.asks() || command.name == "restore-asking")?;
        if !view.is_ok {
            match self.worker.server.config.is_on(Opt::ClusterAllowReadsWhenDown) {
                true if only_reads => {}
                true => return Err(DOWN_READS),
                false => return Err(DOWN),
            }
        }
        // Between a look at the keys and what is done to them nobody may move them. Only what runs in one transaction from here on knows.
        if way != Way::Here && !is_one && command.name != "migrate" { Err(TRYAGAIN) } else { Ok(way) }
    }

    /// Whether the keys of a call in a slot that moves are all there, under their lock; or who is to be asked.
    pub(super) fn are_there(
        &self,
        session: &Session,
        slot: u16,
        txn: &mut Txn,
        command: &Command,
        args: Args,
        keys: &CallKeys,
    ) -> Result<(), Stop> {
        let (mut there, mut missing) = (0, 0);
        for &(index, _) in keys.known(command, args) {
            match txn.type_of(session.db as u8, args.at(index)) {
                Some(_) => there += 1,
                None => missing += 1,
            }
        }
        let view = self.worker.server.cluster.view();
        if view.map.owner(slot) != Some(view.id) {
            // It comes here, and who asks has been sent here for what is not there any more.
            return if missing > 0 && there + missing > 1 { Err(TRYAGAIN) } else { Ok(()) };
        }
        let target = view.map.moves().get(&slot).and_then(|way| way.to);
        match target.and_then(|to| view.map.members().get(&to)) {
            Some(target) if missing > 0 && there == 0 => Err(redirection("ASK", slot, target)),
            Some(_) if missing > 0 => Err(TRYAGAIN),
            _ => Ok(()),
        }
    }
}

fn route(view: &View, slot: u16, asks: bool) -> Result<Way, Stop> {
    let way = view.map.moves().get(&slot).copied().unwrap_or_default();
    let is_coming = way.from.is_some_and(|(by, _)| by == view.id);
    match view.map.owner(slot) {
        Some(owner) if owner == view.id => Ok(if way.to.is_some() { Way::Moving(slot) } else { Way::Here }),
        _ if is_coming && asks => Ok(Way::Moving(slot)),
        Some(owner) => {
            let owner = view.map.members().get(&owner).ok_or(UNBOUND)?;
            Err(redirection("MOVED", slot, owner))
        }
        None => Err(UNBOUND),
    }
}

fn redirection(word: &str, slot: u16, to: &Member) -> Stop {
    let address = &to.address;
    let port = if address.port > 0 { address.port } else { address.tls_port };
    format!("{word} {slot} {}:{port}", address.host).into()
}
