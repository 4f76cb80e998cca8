//! CLUSTER MIGRATESLOTS and its kin, by Valkey's names: slots go to another node as a whole.

use super::order::{leader_view, named_slots, ordered, view};
use crate::{commands::prelude::*, exec::call::wrong_subcommand, server::cluster::Order};
use holdfast_cluster::Name;
use std::sync::atomic::Ordering::Relaxed;

/// CLUSTER MIGRATESLOTS SLOTSRANGE first last [first last ...] NODE node-id
pub fn migrate_slots(call: &mut Call) -> Answer {
    leader_view(call)?;
    let len = call.args.len();
    if len < 7 || len.is_multiple_of(2) {
        return Err(wrong_subcommand(call.args));
    }
    if !call.is(2, "slotsrange") || !call.is(len - 2, "node") {
        return Err(SYNTAX);
    }
    let slots = named_slots(call, 3..len - 2, true)?;
    let digits = call.args.at(len - 1);
    let to = Name::parse(digits).ok_or_else(|| Stop::from([b"ERR Unknown node ", digits].concat()))?;
    ordered(call, |answer| Order::Export(slots, to, answer))
}

/// CLUSTER GETSLOTMIGRATIONS: those that this node has begun since its start, and those that bring it slots.
pub fn get_slot_migrations(call: &mut Call) -> Answer {
    let view = view(call)?;
    let exports = call.server().cluster.exports();
    let name = |id: u64| view.map.members().get(&id).map(|member| member.name).unwrap_or_default();
    let transfers = view.map.transfers().iter();
    let imports: Vec<_> = transfers.filter(|(_, transfer)| transfer.to == view.id).collect();
    call.out.array(exports.len() + imports.len());
    for export in exports {
        let state = export.state.lock().expect("no holder panics").clone();
        call.out.map(9);
        tell(call, "name", &format!("{:040x}", export.number));
        tell(call, "operation", "EXPORT");
        tell(call, "slot_ranges", &export.slots.to_string());
        tell(call, "source_node", &view.name.to_string());
        tell(call, "target_node", &export.to.to_string());
        for (field, ms) in [("create_time", export.began_ms), ("last_update_time", state.since_ms)] {
            call.out.bulk(field);
            call.out.int((ms / 1000) as i64);
        }
        tell(call, "state", state.word);
        tell(call, "message", &state.message);
    }
    for (number, transfer) in imports {
        call.out.map(6);
        tell(call, "name", &format!("{number:040x}"));
        tell(call, "operation", "IMPORT");
        tell(call, "slot_ranges", &transfer.slots.to_string());
        tell(call, "source_node", &name(transfer.from).to_string());
        tell(call, "target_node", &view.name.to_string());
        tell(call, "state", "replicating");
    }
    Ok(Done)
}

fn tell(call: &mut Call, field: &str, text: &str) {
    call.out.bulk(field);
    call.out.bulk(text);
}

/// CLUSTER CANCELSLOTMIGRATIONS: those that this node has begun end, unless they have arrived.
pub fn cancel_slot_migrations(call: &mut Call) -> Answer {
    view(call)?;
    call.server().cluster.exports().iter().for_each(|export| export.is_cancelled.store(true, Relaxed));
    call.reply_ok()
}
