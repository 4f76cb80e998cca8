//! `holdfast compare`: whether two servers hold the same, before one takes over from the other. It knows only commands that Redis and
//! Valkey have, too.

use crate::util::console::outln;
use crate::{
    import::{Address, Connection, Login},
    util::progress::Progress,
};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::BTreeMap,
    fmt::Write,
    io::{self, Error, ErrorKind},
    thread,
    time::Duration,
};

/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(300);
/// A key that differs is looked at again after so long, and so often: what is written meanwhile reaches a replica a little later.
const AGAIN: Duration = Duration::from_millis(500);
const LOOKS: u32 = 4;
/// Keys that differ and are named.
const NAMED_MAX: usize = 20;
/// Bytes of a key's name that are shown.
const SHOWN: usize = 200;
/// Keys that are asked for at once.
const STEP: &[u8] = b"1000";
/// Keys that are looked at together, and elements, or bytes of strings, that their values have together.
const TOGETHER: usize = 256;
const SIZE_MAX: u64 = 64 << 10;

/// Which servers are compared, and how.
pub struct Request {
    /// Whose keys are looked at.
    pub from: Address,
    /// Who asks there.
    pub from_login: Login,
    /// Who is to have them.
    pub to: Address,
    /// Who asks there.
    pub to_login: Login,
    /// How many keys are compared, about; `None`: all.
    pub sample: Option<u64>,
}

/// Compares, and prints what was found; what differs is an error.
pub fn compare(request: &Request) -> Result<(), String> {
    let open = |address: &Address, login| {
        let connection = address.connect(PATIENCE).and_then(|connection| connection.log_in(login));
        connection
            .map(|connection| Side { connection, address: address.clone() })
            .map_err(|e| format!("{address}: {e}"))
    };
    let mut from = open(&request.from, &request.from_login)?;
    let mut to = open(&request.to, &request.to_login)?;
    let (keys_from, keys_to) = (from.counts()?, to.counts()?);
    let mut counts_differ = false;
    let mut databases: Vec<u64> = keys_from.keys().chain(keys_to.keys()).copied().collect();
    databases.sort_unstable();
    databases.dedup();
    for db in &databases {
        let count = |counts: &BTreeMap<u64, u64>| counts.get(db).copied().unwrap_or(0);
        let (a, b) = (count(&keys_from), count(&keys_to));
        outln!("db{db}: {a} keys, and {b}");
        counts_differ |= a != b;
    }
    let all: u64 = keys_from.values().sum();
    let mut found = Found { all, share: share(request.sample, all), ..Found::default() };
    let mut progress = Progress::counting("keys");
    for db in keys_from.keys() {
        from.select(*db)?;
        to.select(*db)?;
        compare_database(*db, &mut from, &mut to, &mut found, &mut progress)?;
    }
    progress.end();
    outln!("compared: {} keys", found.compared);
    outln!("different: {}", found.different);
    found.named.iter().for_each(|line| outln!("  {line}"));
    match (counts_differ, found.different) {
        (_, 1..) => Err("the servers do not hold the same".into()),
        (true, 0) => {
            Err("the servers do not hold as many keys; if one is written, or expires keys, ask again".into())
        }
        (false, 0) => {
            outln!("ok");
            Ok(())
        }
    }
}

/// Which share of the keys is compared.
fn share(sample: Option<u64>, all: u64) -> f64 {
    sample.map_or(1.0, |sample| sample as f64 / all.max(1) as f64)
}

/// What was found so far.
#[derive(Default)]
struct Found {
    all: u64,
    share: f64,
    seen: u64,
    compared: u64,
    different: u64,
    named: Vec<String>,
}

impl Found {
    fn note(&mut self, db: u64, key: &[u8], what: &str) {
        self.different += 1;
        if self.named.len() < NAMED_MAX {
            let more = if key.len() > SHOWN { "..." } else { "" };
            let name = key[..key.len().min(SHOWN)].escape_ascii();
            self.named.push(format!("db{db} \"{name}\"{more}: {what}"));
        }
    }
}

fn compare_database(
    db: u64,
    from: &mut Side,
    to: &mut Side,
    found: &mut Found,
    progress: &mut Progress,
) -> Result<(), String> {
    let mut cursor = b"0".to_vec();
    loop {
        let reply = from.call(&[b"SCAN", &cursor, b"COUNT", STEP])?;
        let Reply::Array(parts) = &reply else { return Err(from.misunderstood(&reply)) };
        let [Reply::Bulk(next), Reply::Array(keys)] = &parts[..] else {
            return Err(from.misunderstood(&reply));
        };
        found.seen += keys.len() as u64;
        progress.show(found.seen, found.all);
        let keys = keys.iter().filter_map(Reply::as_bytes);
        let keys: Vec<&[u8]> = keys.filter(|_| fastrand::f64() < found.share).collect();
        found.compared += keys.len() as u64;
        for some in keys.chunks(TOGETHER) {
            for key in suspects(from, to, some)? {
                if let Some(what) = difference(from, to, key)? {
                    found.note(db, key, &what);
                }
            }
        }
        if next == b"0" {
            return Ok(());
        }
        cursor.clone_from(next);
    }
}

/// Those of some keys that seem to differ, or are better looked at alone. Commands for many keys are on their way at once: one after another, a
/// million keys took four minutes.
fn suspects<'k>(from: &mut Side, to: &mut Side, keys: &[&'k [u8]]) -> Result<Vec<&'k [u8]>, String> {
    let (ours, theirs) = (from.outlines(keys)?, to.outlines(keys)?);
    let (mut suspects, mut together) = (Vec::new(), Vec::new());
    let mut size = 0;
    for (key, (ours, theirs)) in keys.iter().zip(ours.into_iter().zip(theirs)) {
        match ours {
            Some(outline) if Some(&outline) == theirs.as_ref() && outline.size <= SIZE_MAX => {
                if size + outline.size > SIZE_MAX {
                    compare_values(from, to, &mut together, &mut suspects)?;
                    size = 0;
                }
                size += outline.size;
                together.push((*key, outline.kind));
            }
            _ => suspects.push(*key),
        }
    }
    compare_values(from, to, &mut together, &mut suspects)?;
    Ok(suspects)
}

/// Compares the values of keys, whose types are given, and adds those that seem to differ to `suspects`.
fn compare_values<'k>(
    from: &mut Side,
    to: &mut Side,
    keys: &mut Vec<(&'k [u8], String)>,
    suspects: &mut Vec<&'k [u8]>,
) -> Result<(), String> {
    // What is of a type that is not known is taken to be the same.
    keys.retain(|(key, kind)| value_command(kind, key).is_some());
    for side in [&mut *from, &mut *to] {
        side.ask(keys.iter().filter_map(|(key, kind)| value_command(kind, key)))?;
    }
    for (key, kind) in keys.drain(..) {
        let (ours, theirs) = (from.reply()?, to.reply()?);
        let is_error = matches!(ours, Reply::Error(_));
        if is_error || value_of(&kind, ours) != value_of(&kind, theirs) {
            suspects.push(key);
        }
    }
    Ok(())
}

/// What a key is, without its value.
#[derive(PartialEq)]
struct Outline {
    kind: String,
    expiry: Expiry,
    /// Elements, or bytes of a string.
    size: u64,
}

/// The command for the value of a key of a type, if that is known.
fn value_command<'k>(kind: &str, key: &'k [u8]) -> Option<Vec<&'k [u8]>> {
    Some(match kind {
        "string" => vec![b"GET", key],
        "list" => vec![b"LRANGE", key, b"0", b"-1"],
        "set" => vec![b"SMEMBERS", key],
        "hash" => vec![b"HGETALL", key],
        "zset" => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
        "stream" => vec![b"XRANGE", key, b"-", b"+"],
        _ => return None,
    })
}

/// The command for the size of a key of a type; one that has an answer, if the type is not known.
fn size_command<'k>(kind: &str, key: &'k [u8]) -> Vec<&'k [u8]> {
    let name: &[u8] = match kind {
        "string" => b"STRLEN",
        "list" => b"LLEN",
        "set" => b"SCARD",
        "hash" => b"HLEN",
        "zset" => b"ZCARD",
        "stream" => b"XLEN",
        _ => b"EXISTS",
    };
    vec![name, key]
}

/// The value that the command for it has returned.
fn value_of(kind: &str, reply: Reply) -> Value {
    let elements = match reply {
        Reply::Array(_) if kind == "stream" => return Value::Stream(reply),
        Reply::Bulk(value) => vec![value],
        Reply::Array(elements) => {
            elements.iter().map(|element| element.as_bytes().unwrap_or_default().to_vec()).collect()
        }
        // It is gone.
        _ => return Value::None,
    };
    match kind {
        "set" => Value::Elements(sorted(elements)),
        "hash" => Value::Elements(sorted(elements.chunks(2).map(pair).collect())),
        "zset" => {
            Value::Scores(elements.chunks_exact(2).map(|pair| (pair[0].clone(), score(&pair[1]))).collect())
        }
        _ => Value::Elements(elements),
    }
}

/// How a key differs, if it does for long.
fn difference(from: &mut Side, to: &mut Side, key: &[u8]) -> Result<Option<String>, String> {
    let mut last = None;
    for look in 0..LOOKS {
        if look > 0 {
            thread::sleep(AGAIN);
        }
        let (a, b) = (from.content(key)?, to.content(key)?);
        if a == b {
            return Ok(None);
        }
        last = Some(a.differs_from(&b));
    }
    Ok(last)
}

/// What a key holds.
#[derive(PartialEq)]
struct Content {
    kind: String,
    value: Value,
    expiry: Expiry,
}

/// When a key expires, as a Unix time in milliseconds; -1: never. `None`: a Redis before 7.0 says only how long it takes until then, which is
/// not compared.
#[derive(Clone, Copy)]
struct Expiry(Option<i64>);

impl PartialEq for Expiry {
    fn eq(&self, other: &Expiry) -> bool {
        self.0.is_none() || other.0.is_none() || self.0 == other.0
    }
}

/// A value, in an order that its elements have on any server.
#[derive(PartialEq)]
enum Value {
    /// It is not there, or of a type that is not known.
    None,
    Elements(Vec<Vec<u8>>),
    Scores(BTreeMap<Vec<u8>, u64>),
    Stream(Reply),
}

impl Content {
    fn differs_from(&self, other: &Content) -> String {
        let mut what = String::new();
        if self.kind != other.kind {
            write!(what, "type {}, and {}", self.kind, other.kind).expect("writing to a string cannot fail");
        } else if self.value != other.value {
            what.push_str("another value");
        } else {
            what.push_str("another time to expire");
        }
        what
    }
}

/// A server.
struct Side {
    connection: Connection,
    address: Address,
}

impl Side {
    fn call(&mut self, args: &[&[u8]]) -> Result<Reply, String> {
        let reply = self.connection.call(args);
        reply.map_err(|error| format!("{}: {}: {error}", self.address, args[0].escape_ascii()))
    }

    fn misunderstood(&self, reply: &Reply) -> String {
        let shown: String = format!("{reply:?}").chars().take(SHOWN).collect();
        Error::new(ErrorKind::InvalidData, format!("{}: an unexpected reply, {shown}", self.address))
            .to_string()
    }

    fn select(&mut self, db: u64) -> Result<(), String> {
        self.call(&[b"SELECT", db.to_string().as_bytes()]).map(drop)
    }

    /// The number of keys of each database that has any.
    fn counts(&mut self) -> Result<BTreeMap<u64, u64>, String> {
        let reply = self.call(&[b"INFO", b"keyspace"])?;
        let text = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
        let lines = text.lines().filter_map(|line| {
            let (db, rest) = line.strip_prefix("db")?.split_once(":keys=")?;
            Some((db.parse().ok()?, rest.split(',').next()?.parse().ok()?))
        });
        Ok(lines.collect())
    }

    fn content(&mut self, key: &[u8]) -> Result<Content, String> {
        let reply = self.call(&[b"TYPE", key])?;
        let Reply::Simple(kind) = &reply else { return Err(self.misunderstood(&reply)) };
        let kind = String::from_utf8_lossy(kind).into_owned();
        let value = self.value(&kind, key);
        let value = match value {
            // It is of another type by now.
            Err(error) if error.contains("WRONGTYPE") => Value::None,
            value => value?,
        };
        let expiry = match self.connection.call(&[b"PEXPIRETIME", key]) {
            Ok(Reply::Int(at)) => Expiry(Some(at)),
            Err(error) if is_refusal(&error) => Expiry(None),
            Err(error) => return Err(format!("{}: {error}", self.address)),
            Ok(reply) => return Err(self.misunderstood(&reply)),
        };
        Ok(Content { kind, value, expiry })
    }

    fn value(&mut self, kind: &str, key: &[u8]) -> Result<Value, String> {
        match value_command(kind, key) {
            Some(command) => Ok(value_of(kind, self.call(&command)?)),
            None => Ok(Value::None),
        }
    }

    /// Sends commands, each of which has a [`Side::reply`].
    fn ask<'k>(&mut self, commands: impl Iterator<Item = Vec<&'k [u8]>>) -> Result<(), String> {
        let mut requests = Vec::new();
        commands.for_each(|command| write_command(&mut requests, &command));
        self.connection.ask(&requests).map_err(|error| format!("{}: {error}", self.address))
    }

    fn reply(&mut self) -> Result<Reply, String> {
        self.connection.reply().map_err(|error| format!("{}: {error}", self.address))
    }

    /// What some keys are; `None`, where the server does not say.
    fn outlines(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Outline>>, String> {
        self.ask(keys.iter().flat_map(|key| [vec![b"TYPE", *key], vec![b"PEXPIRETIME", *key]]))?;
        let mut kinds = Vec::new();
        for _ in keys {
            let (kind, at) = (self.reply()?, self.reply()?);
            let at = Expiry(if let Reply::Int(at) = at { Some(at) } else { None });
            kinds.push(match kind {
                Reply::Simple(kind) => Some((String::from_utf8_lossy(&kind).into_owned(), at)),
                _ => None,
            });
        }
        let kind_of = |kind: &Option<(String, _)>| kind.as_ref().map_or(String::new(), |it| it.0.clone());
        self.ask(keys.iter().zip(&kinds).map(|(key, kind)| size_command(&kind_of(kind), key)))?;
        let outlines = kinds.into_iter().map(|kind| {
            let size = self.reply()?;
            let Reply::Int(size) = size else { return Ok(None) };
            Ok(kind.map(|(kind, expiry)| Outline { kind, expiry, size: size as u64 }))
        });
        outlines.collect()
    }
}

/// Whether a server has replied with an error, and the connection is as good as before.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::Other
}

fn sorted(mut elements: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    elements.sort_unstable();
    elements
}

/// A field and its value as one element, which no other two are.
fn pair(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = (parts[0].len() as u64).to_be_bytes().to_vec();
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole
}

/// A score: versions write the same number with more or with fewer digits.
fn score(text: &[u8]) -> u64 {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    // 0 and -0 are the same score.
    number.map_or(u64::MAX, |number| (number + 0.0).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_numbers_and_pairs_tell_where_they_are_cut() {
        assert_eq!(score(b"0.10000000000000001"), score(b"0.1"));
        assert_eq!((score(b"-0"), score(b"inf")), (score(b"0"), f64::INFINITY.to_bits()));
        assert_ne!(score(b"1"), score(b"2"));
        assert_ne!(pair(&[b"a".to_vec(), b"bc".to_vec()]), pair(&[b"ab".to_vec(), b"c".to_vec()]));
    }

    #[test]
    fn an_expiry_that_is_not_told_is_not_compared() {
        let [none, never, once] = [None, Some(-1), Some(1)].map(Expiry);
        assert!(none == never && once == none && once == once && never != once);
    }

    #[test]
    fn a_sample_is_a_share() {
        assert_eq!((share(None, 10), share(Some(5), 10), share(Some(5), 0)), (1.0, 0.5, 5.0));
    }
}
