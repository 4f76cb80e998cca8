//! Strings: GET, SET.

use crate::{
    answer::{Answer, Outcome::*},
    call::Call,
    command::{Categories, Command, Flags, Handler::Keyed, KeyAccess, KeySpec},
};
use holdfast_store::Txn;

const ROW: Command = Command { group: "string", categories: Categories::STRING, ..Command::NEW };

/// The rows.
pub static COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: 2,
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
        summary: "Returns the string value of a key.",
        handler: Keyed(get),
        ..ROW
    },
    Command {
        name: "set",
        arity: -3,
        flags: Flags::WRITE.and(Flags::DENYOOM),
        keys: &[KeySpec::one(
            KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE).and(KeyAccess::VARIABLE_FLAGS),
            1,
        )],
        summary: "Sets the string value of a key, ignoring its type. The key is created if it doesn't exist.",
        handler: Keyed(set),
        ..ROW
    },
];

fn get(call: &mut Call, txn: &mut Txn) -> Answer {
    match txn.get(call.db(), call.args.at(1))? {
        Some(value) => call.out.bulk(value),
        None => call.out.null(),
    }
    Ok(Done)
}

fn set(call: &mut Call, txn: &mut Txn) -> Answer {
    txn.set(call.db(), call.args.at(1), call.args.at(2), false)?;
    call.out.ok();
    Ok(Done)
}
