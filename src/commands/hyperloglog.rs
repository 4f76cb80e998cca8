//! HyperLogLogs: PFADD, PFCOUNT, PFMERGE, and what tests use, PFDEBUG and PFSELFTEST.

use crate::{commands::prelude::*, util::random::random};
use holdfast_store::{
    Result,
    hyperloglog::{Sketch, SketchEncoding},
};

const ROW: Command = Command {
    group: "hyperloglog",
    categories: Categories::HYPERLOGLOG,
    since: "2.8.9",
    flags: Flags::WRITE.and(Flags::DENYOOM),
    ..Command::NEW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "pfadd",
        syntax: "key [element...]",
        flags: ROW.flags.and(Flags::FAST),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::INSERT), 1)],
        summary: "Adds elements to a HyperLogLog key. Creates the key if it doesn't exist.",
        complexity: "O(1) to add every element.",
        ..ROW
    }
    .by(Keyed(pfadd)),
    Command {
        name: "pfcount",
        syntax: "key...",
        flags: Flags::READONLY.and(Flags::MAY_REPLICATE),
        keys: &[KeySpec::range(KeyAccess::RW.and(KeyAccess::ACCESS), 1, -1, 1)],
        summary: "Returns the approximated cardinality of the set(s) observed by the HyperLogLog key(s).",
        complexity: "O(1) with a very small average constant time when called with a single key. O(N) with N being the number of keys, and much bigger constant times, when called with multiple keys.",
        ..ROW
    }
    .by(Keyed(pfcount)),
    Command {
        name: "pfdebug",
        syntax: "subcommand key",
        flags: ROW.flags.and(Flags::ADMIN),
        keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS), 2)],
        summary: "Internal commands for debugging HyperLogLog values.",
        complexity: "N/A",
        ..ROW
    }
    .by(Keyed(pfdebug)),
    Command {
        name: "pfmerge",
        syntax: "destkey:k [sourcekey:k1...]",
        keys: &[
            KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::INSERT), 1),
            KeySpec::range(KeyAccess::RO.and(KeyAccess::ACCESS), 2, -1, 1),
        ],
        summary: "Merges one or more HyperLogLog values into a single key.",
        complexity: "O(N) to merge N HyperLogLogs, but with high constant times.",
        ..ROW
    }
    .by(Keyed(pfmerge)),
    Command {
        name: "pfselftest",
        flags: Flags::ADMIN,
        summary: "An internal command for testing HyperLogLog values.",
        complexity: "N/A",
        ..ROW
    }
    .by(Plain(pfselftest)),
];

const NO_KEY: Stop = Stop::new("ERR The specified key does not exist");
const NOT_SPARSE: Stop = Stop::new("ERR HLL encoding is not sparse");

fn pfadd(call: &mut Call, txn: &mut Txn) -> Answer {
    let key = call.args.at(1);
    let changed = txn.sketch_add(call.db(), key, call.args.from(2).iter())?;
    if changed {
        call.notify(Class::STRING, "pfadd", key);
    }
    call.reply_int(changed.into())
}

fn pfcount(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    if call.args.len() > 2 {
        let count = txn.sketch_count(db, call.args.from(1).iter())?;
        call.out.int(count as i64);
        return Ok(Done);
    }
    let Some(mut sketch) = txn.sketch_at(db, key)? else {
        call.out.int(0);
        return Ok(Done);
    };
    let count = match sketch.cached_estimate() {
        Some(count) => count,
        None => {
            let count = sketch.estimate()?;
            // It need not be remembered where there is no room.
            if let Ok(None) = call.turn.admit(call.session, sketch.as_bytes().len(), true) {
                sketch.cache_estimate(count);
                txn.set(db, key, sketch.as_bytes(), true)?;
            }
            count
        }
    };
    call.reply_int(count as i64)
}

fn pfmerge(call: &mut Call, txn: &mut Txn) -> Answer {
    let to = call.args.at(1);
    txn.sketch_merge(call.db(), to, call.args.from(2).iter())?;
    // Redis calls it so.
    call.notify(Class::STRING, "pfadd", to);
    call.reply_ok()
}

fn pfdebug(call: &mut Call, txn: &mut Txn) -> Answer {
    let (db, key) = (call.db(), call.args.at(2));
    let mut sketch = txn.sketch_at(db, key)?.ok_or(NO_KEY)?;
    let is_sparse = sketch.encoding() == SketchEncoding::Sparse;
    if call.is(1, "getreg") {
        let registers = sketch.registers()?;
        call.out.array(registers.len());
        registers.iter().for_each(|value| call.out.int((*value).into()));
    } else if call.is(1, "decode") {
        if !is_sparse {
            return Err(NOT_SPARSE);
        }
        let text = describe(&sketch)?;
        call.out.bulk(text);
    } else if call.is(1, "encoding") {
        call.out.simple(if is_sparse { "sparse" } else { "dense" });
    } else if !call.is(1, "todense") {
        return Err([b"ERR Unknown PFDEBUG subcommand '", call.args.at(1), b"'"].concat().into());
    }
    // Redis looks at registers in this encoding only.
    let made = (call.is(1, "getreg") || call.is(1, "todense")) && sketch.make_dense()?;
    if made {
        txn.set(db, key, sketch.as_bytes(), true)?;
    }
    if call.is(1, "todense") {
        call.out.int(made.into());
    }
    Ok(Done)
}

/// The runs of a sparse sketch: `z:n` and `Z:n` are n registers of 0, `v:x,n` are n of x.
fn describe(sketch: &Sketch) -> Result<String> {
    let runs = sketch.runs().map(|run| {
        run.map(|run| match run.value {
            0 if run.is_long => format!("Z:{}", run.len),
            0 => format!("z:{}", run.len),
            value => format!("v:{value},{}", run.len),
        })
    });
    Ok(runs.collect::<Result<Vec<_>>>()?.join(" "))
}

/// Adds random elements to sketches in both encodings, and compares the estimates with each other and with the truth.
fn pfselftest(call: &mut Call) -> Answer {
    const ELEMENTS: u64 = 100_000;
    let (mut dense, mut sparse) = (Sketch::default(), Sketch::default());
    dense.make_dense()?;
    let (seed, mut checked) = (random(), 1);
    for count in 1..=ELEMENTS {
        let element = (count ^ seed).to_le_bytes();
        dense.add(&element, 0)?;
        sparse.add(&element, 3000)?;
        if count != checked {
            continue;
        }
        checked *= 10;
        let estimate = dense.estimate()?;
        if sparse.estimate()? != estimate {
            return Err(Stop::new("TESTFAILED dense/sparse disagree"));
        }
        // Seven times the standard error.
        let error_max = (count as f64 * 0.057).ceil();
        let error = estimate.abs_diff(count);
        if error as f64 > error_max {
            let what = format!("TESTFAILED Too big error. card:{count} abserr:{error}");
            return Err(what.into());
        }
    }
    call.reply_ok()
}
