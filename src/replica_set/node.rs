//! One that follows, as a node of a cluster: it tells what it knows of that, and sends clients to the nodes that have the keys.

use super::front::Front;
use crate::{
    command::{
        error::{LOADING, SYNTAX, Stop},
        table::Lookup,
    },
    commands::parse_meeting,
    exec::{
        call::{unknown_subcommand, wrong_arity},
        cluster::slot_of,
    },
    server::cluster::{Order, View},
};
use holdfast_cluster::{Change, Name, Seat};
use holdfast_resp::{Args, Writer};
use holdfast_store::hash_slot;
use std::{sync::mpsc::TryRecvError, time::Duration};
use tokio::time::sleep;

const NO_LEADER: Stop = Stop::new("CLUSTERDOWN the servers of this part of the cluster have no leader now");
const NO_SLOTS: Stop =
    Stop::new("ERR the node does not lead its replica set: slots are given to the one that does");
/// How often it is looked whether an order was carried out.
const LOOK: Duration = Duration::from_millis(10);

impl Front {
    /// Whoever has the keys that a call names, as the error that sends the client there; `None`: it names none.
    pub(super) fn elsewhere(&self, args: &Args) -> Option<Stop> {
        if !self.cluster.is_on() {
            return None;
        }
        let Lookup::Found(id) = self.table.lookup(*args) else { return None };
        let slot = match slot_of(self.table.command(id), *args) {
            Ok(slot) => slot?,
            Err(why) => return Some(why),
        };
        let view = self.cluster.view();
        Some(match view.map.owner(slot).and_then(|owner| view.map.members().get(&owner)) {
            None => Stop::new("CLUSTERDOWN Hash slot not served"),
            Some(_) if !view.is_ok => Stop::new("CLUSTERDOWN The cluster is down"),
            Some(owner)
                if owner.seat.is_some_and(|seat| Some(seat.set) == self.seat().map(|own| own.set)) =>
            {
                self.to_leader(&view, slot)
            }
            Some(owner) => view.redirection("MOVED", slot, owner).into(),
        })
    }

    fn seat(&self) -> Option<Seat> {
        self.set.seat()
    }

    /// Sends a client to the leader of this set, which the map may not know yet.
    fn to_leader(&self, view: &View, slot: u16) -> Stop {
        let set = self.set.view();
        let (Some(seat), Some((server, address))) = (self.seat(), set.leader()) else { return NO_LEADER };
        if server == seat.server {
            return LOADING;
        }
        let leader = Some(Seat { server, ..seat });
        match view.map.members().values().find(|member| member.seat == leader) {
            Some(member) => view.redirection("MOVED", slot, member).into(),
            None => format!("MOVED {slot} {}:{}", address.host, address.port).into(),
        }
    }

    /// Answers CLUSTER.
    pub(super) async fn cluster(&self, args: &Args<'_>, out: &mut Writer<'_>) -> Result<(), Stop> {
        if !self.cluster.is_on() {
            return Err(Stop::new("ERR This instance has cluster support disabled"));
        }
        let command = match self.table.lookup(*args) {
            Lookup::Found(id) => self.table.command(id),
            Lookup::UnknownSubcommand(id) => return Err(unknown_subcommand(self.table.command(id), *args)),
            Lookup::UnknownCommand => return Err(self.refusal()),
        };
        if !command.accepts(args.len()) {
            return Err(wrong_arity(command));
        }
        let view = self.cluster.view();
        match command.short_name() {
            "nodes" => view.tell_nodes(out),
            "info" => view.tell_info(out),
            "slots" => view.tell_slots(out),
            "shards" => view.tell_shards(self.set.view().extent.1, out),
            "links" => view.tell_links(out),
            "myid" => out.bulk(view.name.to_string()),
            "myshardid" => out.bulk(view.own_shard()),
            "keyslot" => out.int(hash_slot(args.at(2)).into()),
            "replicas" | "slaves" => view.tell_replicas(known(&view, args.at(2))?, out)?,
            "count-failure-reports" => {
                known(&view, args.at(2))?;
                out.int(0);
            }
            "getslotmigrations" => out.array(0),
            "saveconfig" => out.ok(),
            "meet" => {
                let (host, bus_port) = parse_meeting(*args)?;
                self.cluster.order(Order::Meet(host, bus_port));
                out.ok();
            }
            "replicate" => {
                self.replicate(&view, known(&view, args.at(2))?)?;
                out.ok();
            }
            "forget" => {
                let name = known(&view, args.at(2))?;
                if name == view.name {
                    return Err(Stop::new("ERR I tried hard but I can't forget myself..."));
                }
                self.order(|answer| Order::Change(Box::new(move |_| Change::Forget { name }), answer))
                    .await?;
                out.ok();
            }
            "reset" => {
                let is_hard = match args.get(2).map(<[u8]>::to_ascii_lowercase).as_deref() {
                    None | Some(b"soft") => false,
                    Some(b"hard") => true,
                    Some(_) => return Err(SYNTAX),
                };
                self.order(|answer| Order::Reset(is_hard, answer)).await?;
                out.ok();
            }
            "failover" => {
                let own = self.seat().ok_or(NO_LEADER)?.server;
                self.set.view().leader().ok_or(NO_LEADER)?;
                self.set.hand_over(own);
                out.ok();
            }
            "countkeysinslot" | "getkeysinslot" => return Err(self.refusal()),
            _ => return Err(NO_SLOTS),
        }
        Ok(())
    }

    /// Which data a server has follows from its replica set: it can be told so, and not be told otherwise.
    fn replicate(&self, view: &View, master: Name) -> Result<(), Stop> {
        if master == view.name {
            return Err(Stop::new("ERR Can't replicate myself"));
        }
        let is_of_set = |seat: Seat| Some(seat.set) == self.seat().map(|own| own.set);
        let master = view.map.id_of(master).and_then(|id| view.map.members().get(&id));
        match master.and_then(|master| master.seat).is_some_and(is_of_set) {
            true => Ok(()),
            false => Err(Stop::new(
                "ERR the node is of a replica set, and a replica of the one that leads that: to have it in another one, REPLICASET REMOVE it, and \
                 REPLICASET ADD it there",
            )),
        }
    }

    /// Has the thread that takes part in the cluster carry out an order.
    async fn order(
        &self,
        order: impl FnOnce(std::sync::mpsc::SyncSender<Result<(), String>>) -> Order,
    ) -> Result<(), Stop> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let ends = || Stop::new("ERR the server ends");
        if !self.cluster.order(order(sender)) {
            return Err(ends());
        }
        loop {
            match receiver.try_recv() {
                Ok(outcome) => return outcome.map_err(Stop::from),
                Err(TryRecvError::Empty) => sleep(LOOK).await,
                Err(TryRecvError::Disconnected) => return Err(ends()),
            }
        }
    }
}

/// The name of a node that is known.
fn known(view: &View, digits: &[u8]) -> Result<Name, Stop> {
    let name = Name::parse(digits).filter(|name| view.map.id_of(*name).is_some());
    name.ok_or_else(|| [b"ERR Unknown node ", digits].concat().into())
}
