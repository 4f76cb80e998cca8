//! What a writer's keys hold after each of its steps.

use crate::harness::{Client, Rng, array, number, ok};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

type Bytes = Vec<u8>;

/// Keys of each kind that a writer has.
const KEYS: u64 = 4;
/// The kinds: text, counter, hash, counts of n-grams, list, set, sorted set, stream, vectors of numbers and of strings, vertices of a
/// graph, and texts that are only written all together.
const KINDS: [&str; 12] =
    ["text", "count", "hash", "ngram", "list", "set", "zset", "stream", "numbers", "words", "graph", "group"];
/// The length of a vector of numbers: it is a large string.
const NUMBERS: u64 = 3000;
/// What it begins with.
const NUMBERS_HEADER: &[u8; 8] = b"\0VECTOR\x02";

/// One key of a writer.
pub fn key(writer: usize, kind: &str, number: u64) -> String {
    format!("{writer}:{kind}:{number}")
}

/// The keys of a writer's group: the same step wrote all of them. Once it is there it stays.
fn group(writer: usize) -> impl Iterator<Item = String> {
    (0..KEYS).map(move |number| key(writer, "group", number))
}

/// A key of the group that is no text: no other step touches it.
fn group_of(writer: usize, kind: &str) -> String {
    key(writer, kind, KEYS)
}

/// The commands of a step that write a writer's group.
fn write_group(writer: usize, number: u64, rng: &mut Rng) -> Vec<Vec<Bytes>> {
    let mut commands: Vec<_> = group(writer).map(|key| words(&["SET", &key, &value(number, rng)])).collect();
    commands.push(words(&["HSET", &group_of(writer, "hash"), "field", &value(number, rng)]));
    commands.push(words(&["ZADD", &group_of(writer, "zset"), &number.to_string(), "member"]));
    commands.push(words(&["XADD", &group_of(writer, "stream"), &format!("{number}-*"), "field", "value"]));
    commands.push(words(&["XTRIM", &group_of(writer, "stream"), "MAXLEN", "5"]));
    commands
}

/// The commands that read it: each reply tells the same step.
pub fn read_group(writer: usize) -> Vec<String> {
    let mut commands: Vec<_> = group(writer).map(|key| format!("GET {key}")).collect();
    commands.push(format!("HGET {} field", group_of(writer, "hash")));
    commands.push(format!("ZSCORE {} member", group_of(writer, "zset")));
    commands.push(read_newest("stream", &group_of(writer, "stream")));
    commands
}

/// A command that reads a random key of a writer, of a kind whose values tell who wrote them.
pub fn read_one(writer: usize, rng: &mut Rng) -> String {
    let kind = ["text", "hash", "list", "zset", "stream"][rng.below(5) as usize];
    read_newest(kind, &key(writer, kind, rng.below(KEYS)))
}

fn read_newest(kind: &str, key: &str) -> String {
    match kind {
        "text" => format!("GET {key}"),
        "hash" => format!("HVALS {key}"),
        "list" => format!("LRANGE {key} 0 -1"),
        "zset" => format!("ZREVRANGE {key} 0 0 WITHSCORES"),
        _ => format!("XREVRANGE {key} + - COUNT 1"),
    }
}

/// The newest step that a reply of [`read_group`] or [`read_one`] tells of; `None`: there is no such key.
pub fn step_of(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Array(items) => match items.first() {
            Some(Reply::Array(entry)) => number(&entry[0]),
            // A member and its score, or values.
            _ => items.iter().filter_map(number).max(),
        },
        reply => number(reply),
    }
}

/// Something that a writer does, in one command or several in MULTI. Every value that it writes begins with its number.
#[derive(Clone)]
pub struct Step {
    commands: Vec<Vec<Bytes>>,
    is_multi: bool,
}

impl Step {
    /// A writer's step of a number.
    pub fn random(writer: usize, number: u64, rng: &mut Rng) -> Step {
        if !rng.one_in(5) {
            return Step { commands: vec![command(writer, number, rng)], is_multi: false };
        }
        let mut commands = write_group(writer, number, rng);
        for _ in 0..rng.below(4) {
            commands.insert(rng.below(commands.len() as u64 + 1) as usize, command(writer, number, rng));
        }
        Step { commands, is_multi: true }
    }

    /// Appends what the client sends.
    pub fn write(&self, out: &mut Bytes) {
        if self.is_multi {
            write_command(out, &["MULTI"]);
        }
        self.commands.iter().for_each(|command| write_command(out, command));
        if self.is_multi {
            write_command(out, &["EXEC"]);
        }
    }

    /// How many replies the server gives.
    pub fn replies(&self) -> usize {
        self.commands.len() + if self.is_multi { 2 } else { 0 }
    }

    /// Does it to the model, and returns the replies that the server must give.
    pub fn apply(&self, model: &mut Model) -> Vec<Reply> {
        let mut replies: Vec<Reply> = self.commands.iter().map(|command| model.apply(command)).collect();
        if self.is_multi {
            let queued = Reply::Simple(b"QUEUED".to_vec());
            let results = array(std::mem::replace(&mut replies, vec![queued; self.commands.len()]));
            replies.insert(0, ok());
            replies.push(results);
        }
        replies
    }
}

/// A value that names the step that wrote it.
fn value(number: u64, rng: &mut Rng) -> String {
    let len = if rng.one_in(200) { rng.below(100_000) } else { rng.below(200) };
    format!("{number}:{}", "x".repeat(len as usize))
}

fn words(words: &[&str]) -> Vec<Bytes> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn command(writer: usize, number: u64, rng: &mut Rng) -> Vec<Bytes> {
    let key_number = rng.below(KEYS);
    let key = |kind: &str| key(writer, kind, key_number);
    // No number, which a reader would take for a step.
    let member = format!("m{}", rng.below(400));
    let value = value(number, rng);
    match rng.below(30) {
        0..5 => words(&["SET", &key("text"), &value]),
        5 => words(&["APPEND", &key("text"), &value]),
        6..9 => words(&["INCR", &key("count")]),
        9..11 => words(&["HSET", &key("hash"), &member, &value]),
        11 => words(&["HDEL", &key("hash"), &member]),
        12 => words(&[if rng.one_in(2) { "LPUSH" } else { "RPUSH" }, &key("list"), &value]),
        13..15 => words(&[if rng.one_in(2) { "LPOP" } else { "RPOP" }, &key("list")]),
        15..17 => words(&["SADD", &key("set"), &member]),
        17 => words(&["ZADD", &key("zset"), &number.to_string(), &member]),
        18 if rng.one_in(2) => words(&["SREM", &key("set"), &member]),
        18 => words(&["ZREM", &key("zset"), &member]),
        _ if rng.one_in(10) => words(&["DEL", &key(KINDS[rng.below(10) as usize])]),
        20 => words(&["XADD", &key("stream"), &format!("{number}-*"), "field", &value]),
        // Never all: who reads a stream cannot tell an empty one from none.
        21 => words(&["XTRIM", &key("stream"), "MAXLEN", &(1 + rng.below(50)).to_string()]),
        22 => words(&["NGRAM.INCR", &key("ngram"), &member, &member]),
        23 => words(&["NGRAM.INCRBY", &key("ngram"), &member, &number.to_string(), "all", "-1"]),
        24 if rng.one_in(5) => words(&["VEC.CREATE", &key("numbers"), "INT64", "LEN", &NUMBERS.to_string()]),
        24 | 25 => {
            let (one, other) = (rng.below(NUMBERS).to_string(), rng.below(NUMBERS).to_string());
            let number = number.to_string();
            words(&["VEC.SET", &key("numbers"), &one, &number, &other, &number])
        }
        26 if rng.one_in(3) => words(&["VEC.CREATE", &key("words"), "STRING", "VALUES", "a", &value, "b"]),
        26 => words(&["VEC.SET", &key("words"), "0", &value, "2", &member]),
        27 => words(&["GRAPH.ADDEDGE", &key("graph"), &key("graph"), &key("graph"), &key("graph")]),
        28 => words(&["GRAPH.REMOVEEDGE", &key("graph"), &key("graph")]),
        29 if rng.one_in(5) => words(&["GRAPH.REMOVEVERTEX", &key("graph")]),
        _ => words(&["SET", &key("text"), &value]),
    }
}

/// What a key holds. `Debug` is for messages about a few small ones.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    List(VecDeque<Bytes>),
    Set(BTreeSet<Bytes>),
    Sorted(BTreeMap<Bytes, u64>),
    /// The step and the number within it make the ID.
    Stream(VecDeque<(u64, u64, Bytes)>),
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            Value::Text(_) => false,
            Value::Hash(fields) => fields.is_empty(),
            Value::List(elements) => elements.is_empty(),
            Value::Set(members) => members.is_empty(),
            Value::Sorted(members) => members.is_empty(),
            Value::Stream(entries) => entries.is_empty(),
        }
    }
}

/// All keys of a writer.
#[derive(Clone, Default, PartialEq)]
pub struct Model(BTreeMap<Bytes, Value>);

/// The collection in a key, made if there is none.
macro_rules! collection {
    ($model:expr, $key:expr, $kind:ident) => {
        match $model.0.entry($key.clone()).or_insert_with(|| Value::$kind(Default::default())) {
            Value::$kind(collection) => collection,
            other => unreachable!("a key keeps its kind: {other:?}"),
        }
    };
}

/// Adds to the count of an n-gram; returns what it comes to.
fn count(counts: &mut BTreeMap<Bytes, Bytes>, ngram: &[u8], by: i64) -> Reply {
    let old = counts
        .get(ngram)
        .map_or(0, |digits| std::str::from_utf8(digits).expect("digits").parse::<i64>().expect("a number"));
    counts.insert(ngram.to_vec(), (old + by).to_string().into_bytes());
    Reply::Int(old + by)
}

impl Model {
    /// Whether a writer's group is there.
    pub fn has_group(&self, writer: usize) -> bool {
        group(writer).any(|key| self.0.contains_key(key.as_bytes()))
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Does a command; returns the server's reply.
    fn apply(&mut self, command: &[Bytes]) -> Reply {
        let [name, key, args @ ..] = command else { unreachable!("every command has a key") };
        let number = |n: usize| Reply::Int(n as i64);
        let reply = match (name.as_slice(), args) {
            (b"SET", [value]) => {
                self.0.insert(key.clone(), Value::Text(value.clone()));
                ok()
            }
            (b"APPEND", [value]) => {
                let text = collection!(self, key, Text);
                text.extend_from_slice(value);
                number(text.len())
            }
            (b"INCR", []) => {
                let text = collection!(self, key, Text);
                let next = std::str::from_utf8(text).expect("digits").parse().unwrap_or(0) + 1;
                *text = next.to_string().into_bytes();
                number(next)
            }
            (b"DEL", []) => number(usize::from(self.0.remove(key).is_some())),
            (b"HSET", [field, value]) => {
                let old = collection!(self, key, Hash).insert(field.clone(), value.clone());
                number(usize::from(old.is_none()))
            }
            (b"HDEL", [field]) => number(usize::from(collection!(self, key, Hash).remove(field).is_some())),
            (b"NGRAM.INCR", ngrams) => {
                array(ngrams.iter().map(|ngram| count(collection!(self, key, Hash), ngram, 1)))
            }
            (b"NGRAM.INCRBY", args) => array(args.chunks_exact(2).map(|pair| {
                let by = std::str::from_utf8(&pair[1]).expect("digits").parse().expect("a number");
                count(collection!(self, key, Hash), &pair[0], by)
            })),
            (b"VEC.CREATE", [_, len, _]) if len == b"LEN" => {
                let zeroes = vec![0; NUMBERS as usize * size_of::<i64>()];
                self.0.insert(key.clone(), Value::Text([&NUMBERS_HEADER[..], &zeroes].concat()));
                ok()
            }
            (b"VEC.CREATE", [_, _, strings @ ..]) => {
                self.0.insert(key.clone(), Value::List(strings.iter().cloned().collect()));
                ok()
            }
            (b"VEC.SET", pairs) => {
                let parse = |digits: &[u8]| {
                    std::str::from_utf8(digits).expect("digits").parse::<usize>().expect("a number")
                };
                for pair in pairs.chunks_exact(2) {
                    let index = parse(&pair[0]);
                    match self.0.get_mut(key) {
                        Some(Value::List(strings)) => strings[index] = pair[1].clone(),
                        Some(Value::Text(numbers)) => {
                            let at = NUMBERS_HEADER.len() + index * size_of::<i64>();
                            numbers[at..at + size_of::<i64>()]
                                .copy_from_slice(&(parse(&pair[1]) as i64).to_le_bytes());
                        }
                        None => return Reply::Error(b"ERR no such key".to_vec()),
                        Some(other) => unreachable!("a key keeps its kind: {other:?}"),
                    }
                }
                ok()
            }
            (b"GRAPH.ADDEDGE" | b"GRAPH.REMOVEEDGE", _) => {
                let adds = name == b"GRAPH.ADDEDGE";
                let edges = command[1..].chunks_exact(2).map(|edge| self.set_edge(&edge[0], &edge[1], adds));
                number(edges.filter(|changes| *changes).count())
            }
            (b"GRAPH.REMOVEVERTEX", []) => {
                let vertices: Vec<Bytes> = collection!(self, key, Sorted).keys().cloned().collect();
                let mut edges = 0;
                for other in &vertices {
                    edges += usize::from(self.set_edge(key, other, false));
                    edges += usize::from(self.set_edge(other, key, false));
                }
                number(edges)
            }
            (b"LPUSH", [element]) => {
                let list = collection!(self, key, List);
                list.push_front(element.clone());
                number(list.len())
            }
            (b"RPUSH", [element]) => {
                let list = collection!(self, key, List);
                list.push_back(element.clone());
                number(list.len())
            }
            (b"LPOP", []) => collection!(self, key, List).pop_front().map_or(Reply::Null, Reply::Bulk),
            (b"RPOP", []) => collection!(self, key, List).pop_back().map_or(Reply::Null, Reply::Bulk),
            (b"SADD", [member]) => number(usize::from(collection!(self, key, Set).insert(member.clone()))),
            (b"SREM", [member]) => number(usize::from(collection!(self, key, Set).remove(member))),
            (b"ZADD", [score, member]) => {
                let score = std::str::from_utf8(score).expect("digits").parse().expect("a number");
                let old = collection!(self, key, Sorted).insert(member.clone(), score);
                number(usize::from(old.is_none()))
            }
            (b"ZREM", [member]) => {
                number(usize::from(collection!(self, key, Sorted).remove(member).is_some()))
            }
            (b"XADD", [id, _, value]) => {
                let stream = collection!(self, key, Stream);
                let step = id.strip_suffix(b"-*").expect("a step and an asterisk");
                let step = std::str::from_utf8(step).expect("digits").parse().expect("a number");
                let seq = stream.back().filter(|last| last.0 == step).map_or(0, |last| last.1 + 1);
                stream.push_back((step, seq, value.clone()));
                Reply::Bulk(format!("{step}-{seq}").into_bytes())
            }
            (b"XTRIM", [_, len]) => {
                let len = std::str::from_utf8(len).expect("digits").parse().expect("a number");
                let stream = collection!(self, key, Stream);
                let excess = stream.len().saturating_sub(len);
                stream.drain(..excess);
                number(excess)
            }
            _ => unreachable!("{}", name.escape_ascii()),
        };
        if self.0.get(key).is_some_and(Value::is_empty) {
            self.0.remove(key);
        }
        reply
    }

    /// Adds or removes an edge; returns whether that is a change.
    fn set_edge(&mut self, from: &Bytes, to: &Bytes, adds: bool) -> bool {
        let mut changes = false;
        // The scores are those of a graph: 1 is an edge to the member, 3 one from it, 2 are both.
        for (vertex, other, half, opposite) in [(to, from, 3, 1), (from, to, 1, 3)] {
            let members = collection!(self, vertex, Sorted);
            let old = members.get(other).copied();
            let had = old == Some(half) || old == Some(2);
            let new = match (old == Some(opposite) || old == Some(2), adds) {
                (true, true) => Some(2),
                (true, false) => Some(opposite),
                (false, true) => Some(half),
                (false, false) => None,
            };
            match new {
                Some(score) => _ = members.insert(other.clone(), score),
                None => _ = members.remove(other),
            }
            if members.is_empty() {
                self.0.remove(vertex);
            }
            changes = had != adds;
        }
        changes
    }

    /// What the server has in a writer's keys.
    pub fn read(client: &mut Client, writer: usize) -> Model {
        let mut model = Model::default();
        for kind in KINDS {
            for number in 0..=KEYS {
                let key = key(writer, kind, number);
                let reply = client.call(&match kind {
                    "hash" | "ngram" => format!("HGETALL {key}"),
                    "list" | "words" => format!("LRANGE {key} 0 -1"),
                    "set" => format!("SMEMBERS {key}"),
                    "zset" | "graph" => format!("ZRANGE {key} 0 -1 WITHSCORES"),
                    "stream" => format!("XRANGE {key} - +"),
                    _ => format!("GET {key}"),
                });
                let value = match reply {
                    Reply::Null => continue,
                    Reply::Array(items) if items.is_empty() => continue,
                    Reply::Bulk(text) => Value::Text(text),
                    Reply::Array(items) if kind == "stream" => {
                        Value::Stream(items.iter().map(read_entry).collect())
                    }
                    Reply::Array(items) => {
                        let items = items.iter().map(|item| item.as_bytes().expect("a string").to_vec());
                        read_collection(kind, items.collect())
                    }
                    other => panic!("{key}: {other:?}"),
                };
                model.0.insert(key.into_bytes(), value);
            }
        }
        model
    }

    /// Which keys differ from another model, and how.
    pub fn differences(&self, other: &Model) -> Vec<String> {
        let keys: BTreeSet<&Bytes> = self.0.keys().chain(other.0.keys()).collect();
        let differing = keys.into_iter().filter(|key| self.0.get(*key) != other.0.get(*key));
        let short = |value: Option<&Value>| format!("{value:?}").chars().take(2000).collect::<String>();
        differing
            .map(|key| {
                let [here, there] = [self, other].map(|model| short(model.0.get(key)));
                format!("{}: {here} against {there}", key.escape_ascii())
            })
            .collect()
    }
}

/// What the model knows of an entry: `[step-seq [field value]]`.
fn read_entry(entry: &Reply) -> (u64, u64, Bytes) {
    let Reply::Array(parts) = entry else { panic!("no entry: {entry:?}") };
    let (Reply::Bulk(id), Reply::Array(fields)) = (&parts[0], &parts[1]) else {
        panic!("no entry: {entry:?}")
    };
    let id = std::str::from_utf8(id).expect("an ID");
    let (step, seq) = id.split_once('-').expect("an ID");
    let number = |text: &str| text.parse().expect("a number");
    (number(step), number(seq), fields[1].as_bytes().expect("a value").to_vec())
}

fn read_collection(kind: &str, items: Vec<Bytes>) -> Value {
    let pairs = || items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    match kind {
        "hash" | "ngram" => Value::Hash(pairs().collect()),
        "list" | "words" => Value::List(items.into()),
        "set" => Value::Set(items.into_iter().collect()),
        "zset" | "graph" => {
            let score = |text: &[u8]| std::str::from_utf8(text).expect("digits").parse().expect("a number");
            Value::Sorted(pairs().map(|(member, text)| (member, score(&text))).collect())
        }
        _ => unreachable!("{kind} is no collection"),
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, command) in self.commands.iter().enumerate() {
            let separator = if nth == 0 { "" } else { "; " };
            write!(f, "{separator}{}", command.join(&b' ').escape_ascii())?;
        }
        Ok(())
    }
}
