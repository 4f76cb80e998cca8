//! DUMP and RESTORE: values in Redis's serialization.

mod streams;

use crate::commands::prelude::*;
use holdfast_rdb::{self as rdb, Error, Value, decode, encode};
use holdfast_store::Type;

const ROW: Command =
    Command { group: "generic", categories: Categories::KEYSPACE, since: "2.6.0", ..Command::NEW };

/// RESTORE, also under the name by which a server of a cluster calls it.
const RESTORE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM),
    categories: Categories::KEYSPACE.and(Categories::DANGEROUS),
    keys: &[KeySpec::one(KeyAccess::OW.and(KeyAccess::UPDATE), 1)],
    complexity: "O(1) to create the new key and additional O(N*M) to reconstruct the serialized value, where N is the number of objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1). However for sorted set values the complexity is O(N*M*log(N)) because inserting values into sorted sets is O(log(N)).",
    ..ROW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "dump",
        syntax: "key",
        flags: Flags::READONLY,
        keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
        summary: "Returns a serialized representation of the value stored at a key.",
        complexity: "O(1) to access the key and additional O(N*M) to serialize it, where N is the number of objects composing the value and M their average size. For small string values the time complexity is thus O(1)+O(1*M) where M is small, so simply O(1).",
        ..ROW
    }
    .by(Keyed(dump))
    .using(uses::all),
    Command {
        name: "restore",
        syntax: "key ttl:i serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME=seconds:i@5.0.0] [FREQ=frequency:i@5.0.0]",
        summary: "Creates a key from the serialized representation of a value.",
        ..RESTORE
    }
    .by(Keyed(restore)),
    Command {
        name: "restore-asking",
        syntax: "key ttl:i serialized-value [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME=seconds:i@5.0.0] [FREQ=frequency:i@5.0.0]",
        group: "server",
        since: "3.0.0",
        summary: "An internal command for migrating keys in a cluster.",
        ..RESTORE
    }
    .by(Keyed(restore)),
];

const BUSY_KEY: Stop = Stop::new("BUSYKEY Target key name already exists.");
const NEGATIVE_TTL: Stop = Stop::new("ERR Invalid TTL value, must be >= 0");
const NEGATIVE_IDLE_TIME: Stop = Stop::new("ERR Invalid IDLETIME value, must be >= 0");
const BAD_FREQUENCY: Stop = Stop::new("ERR Invalid FREQ value, must be >= 0 and <= 255");
const BAD_FOOTER: Stop = Stop::new("ERR DUMP payload version or checksum are wrong");
const BAD_FORMAT: Stop = Stop::new("ERR Bad data format");

fn dump(call: &mut Call, txn: &mut Txn) -> Answer {
    call.out.bulk_or_null(serialize(txn, call.db(), call.args.at(1), encode::stream)?);
    Ok(Done)
}

/// How a stream becomes a payload.
pub type EncodeStream = fn(&rdb::stream::Stream) -> Vec<u8>;

/// The value of a key as a payload.
pub fn serialize(txn: &mut Txn, db: u8, key: &[u8], stream: EncodeStream) -> Result<Option<Vec<u8>>, Stop> {
    let Some(ty) = txn.type_of(db, key) else { return Ok(None) };
    Ok(match ty {
        Type::String => txn.get(db, key)?.map(encode::string),
        Type::List => txn.list_at(db, key)?.map(|list| encode::list(list.len(), list.range(0, -1))),
        Type::Set => txn.set_at(db, key)?.map(|set| encode::set(set.len(), set.members())),
        Type::Zset => {
            txn.zset_at(db, key)?.map(|zset| encode::zset(zset.len(), zset.iter(0..u64::MAX, true)))
        }
        Type::Hash => txn.hash_at(db, key)?.map(|hash| {
            let fields = hash.fields().map(|field| encode::Field {
                name: field.name,
                value: field.value,
                expires: field.expires,
            });
            encode::hash(&fields.collect::<Vec<_>>())
        }),
        Type::Stream => txn.stream_at(db, key)?.map(|it| stream(&streams::export(it))),
    })
}

/// The options of RESTORE.
struct Options {
    replace: bool,
    absolute: bool,
    idle_s: Option<u64>,
    uses: Option<u8>,
}

impl Options {
    fn parse(call: &Call) -> Result<Options, Stop> {
        let mut options = Options { replace: false, absolute: false, idle_s: None, uses: None };
        let mut at = 4;
        while at < call.args.len() {
            let has_value = at + 1 < call.args.len();
            if call.is(at, "replace") {
                options.replace = true;
            } else if call.is(at, "absttl") {
                options.absolute = true;
            } else if call.is(at, "idletime") && has_value && options.uses.is_none() {
                at += 1;
                let idle_s = u64::try_from(call.int(at)?).map_err(|_| NEGATIVE_IDLE_TIME)?;
                options.idle_s = Some(idle_s);
            } else if call.is(at, "freq") && has_value && options.idle_s.is_none() {
                at += 1;
                let uses = u8::try_from(call.int(at)?).map_err(|_| BAD_FREQUENCY)?;
                options.uses = Some(uses);
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

fn restore(call: &mut Call, txn: &mut Txn) -> Answer {
    let options = Options::parse(call)?;
    let (db, key) = (call.db(), call.args.at(1));
    let was_there = txn.exists(db, key);
    if was_there && !options.replace {
        return Err(BUSY_KEY);
    }
    let ttl = u64::try_from(call.int(2)?).map_err(|_| NEGATIVE_TTL)?;
    let value = decode(call.args.at(3)).map_err(|error| match error {
        Error::Footer => BAD_FOOTER,
        Error::Malformed(_) => BAD_FORMAT,
    })?;
    let from = if options.absolute { 0 } else { txn.now_ms() };
    let expires = (ttl != 0).then(|| ttl.saturating_add(from));
    if expires.is_some_and(|at| txn.has_expired(at)) {
        if txn.remove(db, key) {
            call.notify(Class::GENERIC, "del", key);
        }
    } else {
        store(txn, db, key, &value)?;
        if expires.is_some() {
            txn.set_expiry(db, key, expires)?;
        }
        if let Some(idle_s) = options.idle_s {
            txn.set_idle_s(db, key, idle_s);
        }
        if let Some(uses) = options.uses {
            txn.set_uses(db, key, uses);
        }
        call.notify(Class::GENERIC, "restore", key);
    }
    call.reply_ok()
}

/// Makes a value that of a key, whatever it held.
pub fn store(txn: &mut Txn, db: u8, key: &[u8], value: &Value) -> Result<(), Stop> {
    match value {
        Value::String(value) => txn.set(db, key, value, false)?,
        Value::List(elements) => txn.list_replace(db, key, elements.iter())?,
        Value::Set(members) => txn.set_replace(db, key, members.iter())?,
        Value::Zset(members) => txn.zset_replace(db, key, members.iter())?,
        Value::Hash(fields) => {
            let fields = fields.iter().map(|field| (field.name, field.value, field.expires));
            txn.hash_replace(db, key, fields)?;
        }
        Value::Stream(stream) => {
            if !txn.stream_replace(db, key, &streams::draft(stream))? {
                return Err(BAD_FORMAT);
            }
        }
    }
    Ok(())
}
