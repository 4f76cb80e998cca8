//! NGRAM: counts of n-grams, or of anything else that has a name. They are fields of a hash, with the count as the value,
//! so that all commands of hashes work with them, too. Redis has no such commands.

use crate::{
    command::error::NOT_INTEGER,
    commands::{
        hashes::{OVERFLOW, counter},
        prelude::*,
    },
};
use holdfast_resp::parse_int;
use holdfast_store::hash::{Expiry, Hash, Value};
use std::collections::HashMap;

const NGRAM: Command =
    Command { categories: Categories::HASH, since: "7.2.0", group: "ngram", ..Command::NEW };
const INCREMENT: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 1)],
    complexity: "O(N) where N is the number of n-grams in the call.",
    ..NGRAM
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "ngram.get",
        syntax: "key ngram...",
        flags: Flags::READONLY.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
        summary: "Returns the counts of one or more n-grams. Returns 0 for those that were never counted.",
        complexity: "O(N) where N is the number of n-grams in the call.",
        ..NGRAM
    }
    .by(Keyed(get))
    .using(uses::elements),
    Command {
        name: "ngram.incr",
        syntax: "key ngram...",
        summary: "Counts one or more n-grams. One that is there several times is counted so often. Uses 0 as initial count if the n-gram doesn't exist.",
        ..INCREMENT
    }
    .by(Keyed(incr))
    .using(uses::elements),
    Command {
        name: "ngram.incrby",
        syntax: "key data(ngram count:i)...",
        summary: "Adds a number to the count of each of one or more n-grams. Uses 0 as initial count if the n-gram doesn't exist.",
        ..INCREMENT
    }
    .by(Keyed(incrby))
    .using(uses::pairs),
];

/// The most digits of a count, its sign included.
const DIGITS_MAX: usize = 20;

fn get(call: &mut Call, txn: &mut Txn) -> Answer {
    let hash = txn.hash_at(call.db(), call.args.at(1))?;
    let ngrams = call.args.from(2);
    let counts: Vec<i64> = ngrams.iter().map(|ngram| count(hash, ngram)).collect::<Result<_, _>>()?;
    write_counts(call, counts)
}

fn incr(call: &mut Call, txn: &mut Txn) -> Answer {
    let ngrams = call.args.from(2);
    add(call, txn, ngrams.iter().map(|ngram| Ok((ngram, 1))))
}

fn incrby(call: &mut Call, txn: &mut Txn) -> Answer {
    let args = call.args;
    if args.len() % 2 == 1 {
        return Err(wrong_arity(call.command));
    }
    let by = |at| parse_int(args.at(at)).ok_or(NOT_INTEGER);
    add(call, txn, (2..args.len()).step_by(2).map(move |at| Ok((args.at(at), by(at + 1)?))))
}

/// Adds to the counts, one after the other, and replies with what each came to; or changes none.
fn add<'a>(
    call: &mut Call<'a>,
    txn: &mut Txn,
    ngrams: impl Iterator<Item = Result<(&'a [u8], i64), Stop>>,
) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let hash = txn.hash_at(db, key)?;
    let mut sums: HashMap<&[u8], i64> = HashMap::new();
    let mut fields: Vec<(&[u8], Value)> = Vec::new();
    let mut counts = Vec::new();
    let mut bytes = 0;
    for ngram in ngrams {
        let (ngram, by) = ngram?;
        let old = match sums.get(ngram) {
            Some(&sum) => sum,
            None => count(hash, ngram)?,
        };
        let new = old.checked_add(by).ok_or(OVERFLOW)?;
        sums.insert(ngram, new);
        fields.push((ngram, Value::int(new)));
        counts.push(new);
        bytes += ngram.len() + DIGITS_MAX;
    }
    // The new counts may be longer than the arguments, which alone are reserved so far.
    txn.reserve_elements(2 * fields.len() as u64, bytes)?;
    txn.hash_set(db, key, fields.iter().map(|(ngram, count)| (*ngram, &**count)), Expiry::Keep)?;
    call.notify(Class::HASH, "hincrby", key);
    write_counts(call, counts)
}

fn count(hash: Option<Hash>, ngram: &[u8]) -> Result<i64, Stop> {
    counter(hash.and_then(|hash| hash.get(ngram)).map(|field| field.value))
}

fn write_counts(call: &mut Call, counts: Vec<i64>) -> Answer {
    call.out.array(counts.len());
    counts.into_iter().for_each(|count| call.out.int(count));
    Ok(Done)
}
