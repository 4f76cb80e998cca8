//! Unions, intersections and differences.

use super::write_members;
use crate::{command::error::WRONG_TYPE, commands::prelude::*};
use holdfast_resp::parse_double;
use holdfast_store::{
    Type,
    zset_algebra::{Aggregate, Input, Members},
};

const BAD_WEIGHT: Stop = Stop::new("ERR weight value is not a float");
const NEGATIVE_LIMIT: Stop = Stop::new("ERR LIMIT can't be negative");

/// Which members of several sets are in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Those of any.
    Union,
    /// Those of all.
    Intersection,
    /// Those of the first only.
    Difference,
}

impl Operation {
    fn members(self, txn: &mut Txn, db: u8, args: &CombineArgs) -> holdfast_store::Result<Members> {
        match self {
            Operation::Union => txn.zset_union(db, &args.inputs, args.aggregate),
            Operation::Intersection => txn.zset_intersection(db, &args.inputs, args.aggregate),
            Operation::Difference => txn.zset_difference(db, &args.inputs),
        }
    }
}

/// The arguments behind the keys.
struct CombineArgs<'a> {
    inputs: Vec<Input<'a>>,
    aggregate: Aggregate,
    with_scores: bool,
}

/// Reads the number of keys, argument `at`, and the keys. Their types are seen to before anything else.
fn parse_keys<'a>(call: &Call<'a>, txn: &mut Txn, at: usize) -> Result<Vec<Input<'a>>, Stop> {
    let numkeys = call.int(at)?;
    if numkeys < 1 {
        let name = call.command.name;
        return Err(format!("ERR at least 1 input key is needed for '{name}' command").into());
    }
    let keys = call.args.from(at + 1);
    if numkeys as usize > keys.len() {
        return Err(SYNTAX);
    }
    let db = call.db();
    let inputs: Vec<Input> =
        keys.iter().take(numkeys as usize).map(|key| Input { key, weight: 1.0 }).collect();
    if inputs.iter().any(|input| !matches!(txn.type_of(db, input.key), None | Some(Type::Set | Type::Zset))) {
        return Err(WRONG_TYPE);
    }
    Ok(inputs)
}

impl<'a> CombineArgs<'a> {
    fn parse(
        call: &Call<'a>,
        txn: &mut Txn,
        at: usize,
        operation: Operation,
        store: bool,
    ) -> Result<Self, Stop> {
        let inputs = parse_keys(call, txn, at)?;
        let mut option = at + 1 + inputs.len();
        let mut args = CombineArgs { inputs, aggregate: Aggregate::Sum, with_scores: false };
        let weighs = operation != Operation::Difference;
        while option < call.args.len() {
            let left = call.args.len() - option - 1;
            if weighs && call.is(option, "weights") && left >= args.inputs.len() {
                for input in &mut args.inputs {
                    option += 1;
                    input.weight = parse_double(call.args.at(option)).ok_or(BAD_WEIGHT)?;
                }
            } else if weighs && call.is(option, "aggregate") && left >= 1 {
                option += 1;
                args.aggregate = match () {
                    () if call.is(option, "sum") => Aggregate::Sum,
                    () if call.is(option, "min") => Aggregate::Min,
                    () if call.is(option, "max") => Aggregate::Max,
                    () => return Err(SYNTAX),
                };
            } else if !store && call.is(option, "withscores") {
                args.with_scores = true;
            } else {
                return Err(SYNTAX);
            }
            option += 1;
        }
        Ok(args)
    }
}

/// ZUNION, ZINTER, ZDIFF.
pub fn combine(call: &mut Call, txn: &mut Txn, operation: Operation) -> Answer {
    let args = CombineArgs::parse(call, txn, 1, operation, false)?;
    let members = operation.members(txn, call.db(), &args)?;
    let members = members.iter().map(|(member, score)| (&member[..], *score));
    write_members(&mut call.out, members, args.with_scores);
    Ok(Done)
}

/// ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE.
pub fn store(call: &mut Call, txn: &mut Txn, operation: Operation) -> Answer {
    let args = CombineArgs::parse(call, txn, 2, operation, true)?;
    let db = call.db();
    let members = operation.members(txn, db, &args)?;
    let to = call.args.at(1);
    let was_there = call.notifies(Class::GENERIC) && txn.exists(db, to);
    txn.zset_replace(db, to, members.iter().map(|(member, score)| (member, *score)))?;
    call.notify_stored(Class::ZSET, call.command.name, to, !members.is_empty(), was_there);
    call.reply_int(members.len() as i64)
}

pub fn zintercard(call: &mut Call, txn: &mut Txn) -> Answer {
    let inputs = parse_keys(call, txn, 1)?;
    let mut limit = 0;
    let mut option = 2 + inputs.len();
    while option < call.args.len() {
        if !call.is(option, "limit") || option + 1 == call.args.len() {
            return Err(SYNTAX);
        }
        limit = call.int_from(option + 1, 0, NEGATIVE_LIMIT)? as u64;
        option += 2;
    }
    let count = txn.zset_intersection_len(call.db(), &inputs, limit)?;
    call.reply_int(count as i64)
}
