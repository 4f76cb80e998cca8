//! One that has no store open, as a node of a cluster: it tells what it knows of that, and sends clients to the nodes that have the keys.

use super::front::Front;
use crate::{
    command::{
        error::{SYNTAX, Stop},
        table::Lookup,
    },
    commands::{NO_SLOTS, check_replicates, parse_meeting, take_over},
    exec::{
        call::{unknown_subcommand, wrong_arity},
        cluster::{is_of_set, slot_of, to_leader},
    },
    server::cluster::{Order, View},
};
use holdfast_cluster::{Change, Name};
use holdfast_resp::{Args, Writer};
use holdfast_store::hash_slot;
use std::{sync::mpsc::TryRecvError, time::Duration};
use tokio::time::sleep;

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
        let owner = view.map.owner(slot);
        Some(match owner.and_then(|id| Some((id, view.map.members().get(&id)?))) {
            None => Stop::new("CLUSTERDOWN Hash slot not served"),
            Some(_) if !view.is_ok => Stop::new("CLUSTERDOWN The cluster is down"),
            Some((id, _)) if is_of_set(&self.set, &view, id) => to_leader(&self.set, &view, slot),
            Some((_, owner)) => view.redirection("MOVED", slot, owner).into(),
        })
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
                check_replicates(&self.set, &view, known(&view, args.at(2))?)?;
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
                take_over(&self.set)?;
                out.ok();
            }
            "countkeysinslot" | "getkeysinslot" => return Err(self.refusal()),
            _ => return Err(NO_SLOTS),
        }
        Ok(())
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
