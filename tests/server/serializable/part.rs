//! Parts of transactions: by which commands each is done, and what the replies say.

use super::{
    ELEMENTS,
    history::{Element, Key, Op},
    keys::{Kind, Shape, kind, pending, undelivered},
};
use crate::harness::{is_error, items, number, text};
use holdfast_resp::Reply;

/// How long a command waits for something to come to a key that has nothing.
const BLOCK_MS: u64 = 5;
const BLOCK_SECONDS: f64 = BLOCK_MS as f64 / 1000.0;

/// What a transaction is made of.
#[derive(Clone, Debug)]
pub enum Part {
    /// Something is done with one key.
    Op(Op),
    /// An element is moved from one key to another one, whose number is higher, so that it never comes back: the first of a queue, or of a pool this.
    Move(Key, Key, Element),
    /// An element is taken from the first of two keys that has one.
    TakeAny([Key; 2]),
    /// The next entry of a stream is given to a consumer of its group.
    Deliver(Key),
    /// An entry of this ID is acknowledged, which has this element.
    Acknowledge(Key, Element, String),
    /// What is not acknowledged goes to another consumer.
    Claim(Key),
    /// An element, the field of a hash, expires after so many milliseconds.
    Expire(Key, Element, u64),
}

impl Part {
    /// The key from which something comes, or to which it is added.
    pub fn key(&self) -> Key {
        match self {
            Part::Op(op) => op.key(),
            Part::Move(from, ..) => *from,
            Part::TakeAny([first, _]) => *first,
            Part::Deliver(stream) | Part::Acknowledge(stream, ..) | Part::Claim(stream) => *stream,
            Part::Expire(key, ..) => *key,
        }
    }

    pub fn adds(&self) -> bool {
        matches!(self, Part::Op(Op::Add(..) | Op::Set(..)) | Part::Move(..))
    }

    /// Whether something is taken later.
    pub fn takes_later(&self) -> bool {
        matches!(self, Part::Expire(.., after_ms) if *after_ms > 0)
    }

    /// What was done, by its reply. `waits`: until there was something.
    pub fn told(&self, reply: &Reply, waits: bool) -> Vec<Op> {
        match self {
            Part::Op(op) => both(told(op, reply)),
            Part::Deliver(stream) => match reply {
                Reply::Null => vec![Op::Take(undelivered(*stream), None)],
                // There is no group yet.
                reply if has_no_group(reply) => Vec::new(),
                reply => {
                    let (_, element) = delivered(reply);
                    vec![Op::Take(undelivered(*stream), Some(element)), Op::Add(pending(*stream), element)]
                }
            },
            Part::Acknowledge(stream, element, _) => {
                vec![told(&Op::Take(pending(*stream), Some(*element)), reply)]
            }
            Part::Claim(stream) if has_no_group(reply) => vec![Op::Read(pending(*stream), Vec::new())],
            Part::Claim(stream) => {
                let found = items(&items(reply)[1]).iter().map(|entry| entry_of(entry).1);
                vec![Op::Read(pending(*stream), found.collect())]
            }
            Part::Expire(key, element, _) => vec![match number(&items(reply)[0]) {
                Some(2) => Op::Take(*key, Some(*element)),
                found => Op::Look(*key, *element, found == Some(1)),
            }],
            Part::Move(from, to, element) => {
                match told(&Op::Take(*from, (kind(*from) == Kind::Pool).then_some(*element)), reply) {
                    Op::Take(from, Some(element)) => {
                        vec![Op::Take(from, Some(element)), Op::Add(*to, element)]
                    }
                    not_found => vec![not_found],
                }
            }
            Part::TakeAny(keys) => match reply {
                Reply::Null => keys.map(|key| Op::Take(key, None)).to_vec(),
                reply => {
                    let [name, mut taken] = [0, 1].map(|at| &items(reply)[at]);
                    while let Reply::Array(parts) = taken {
                        taken = &parts[0];
                    }
                    let key = text(name).rsplit(':').next().and_then(|key| key.parse().ok());
                    let taken = told(&Op::Take(key.expect("a key's name"), None), taken);
                    // Of two that have come together, who has waited gets the one that has come first.
                    let missed = Some(Op::Take(keys[0], None)).filter(|_| key == Some(keys[1]) && !waits);
                    missed.into_iter().chain([taken]).collect()
                }
            },
        }
    }

    /// What it may have done, if its reply was lost.
    pub fn lost(&self) -> Vec<Op> {
        match self {
            // It is not known what was added.
            Part::Op(Op::Add(key, _)) if kind(*key) == Kind::Counter => Vec::new(),
            Part::Op(op @ (Op::Add(..) | Op::Set(..))) => both(op.clone()),
            Part::Op(Op::Take(key, _)) => vec![Op::Take(*key, None)],
            Part::Op(_) => Vec::new(),
            Part::Move(from, to, _) => vec![Op::Take(*from, None), Op::Bring(*to)],
            Part::TakeAny(keys) => keys.map(|key| Op::Take(key, None)).to_vec(),
            Part::Deliver(stream) => vec![Op::Take(undelivered(*stream), None), Op::Bring(pending(*stream))],
            Part::Acknowledge(stream, ..) => vec![Op::Take(pending(*stream), None)],
            Part::Claim(_) => Vec::new(),
            Part::Expire(key, ..) => vec![Op::Take(*key, None)],
        }
    }
}

fn has_no_group(reply: &Reply) -> bool {
    is_error(reply, "NOGROUP")
}

/// The ID of the entry that a group was given, and its element.
pub fn delivered(reply: &Reply) -> (String, Element) {
    entry_of(&items(&items(&items(reply)[0])[1])[0])
}

/// The ID of an entry of a stream, and its element.
fn entry_of(entry: &Reply) -> (String, Element) {
    let [id, fields] = [0, 1].map(|at| &items(entry)[at]);
    (text(id), element_of(&items(fields)[1]))
}

/// What is added to a stream is also there for its group.
fn both(op: Op) -> Vec<Op> {
    match op {
        Op::Add(key, n) if kind(key) == Kind::Stream => vec![op, Op::Add(undelivered(key), n)],
        op => vec![op],
    }
}

/// A read of all that a key has.
pub fn read(key: Key) -> Op {
    if kind(key) == Kind::Value { Op::Get(key, None) } else { Op::Read(key, Vec::new()) }
}

/// The element that begins a text.
fn parse(text: &str) -> Element {
    text.split(':').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn element_of(reply: &Reply) -> Element {
    parse(&text(reply))
}

/// A part of a transaction with what its reply says.
pub fn told(op: &Op, reply: &Reply) -> Op {
    match (op, reply) {
        (_, Reply::Error(why)) => panic!("{op:?}: {}", why.escape_ascii()),
        // Which one it was tells the reply.
        (Op::Add(key, _), reply) if kind(*key) == Kind::Counter => {
            Op::Add(*key, number(reply).expect("a number"))
        }
        (Op::Add(..) | Op::Set(..) | Op::Bring(_), _) => op.clone(),
        (Op::Take(key, Some(element)), reply) => match number(reply) {
            Some(1) => op.clone(),
            _ => Op::Look(*key, *element, false),
        },
        (Op::Take(key, None), Reply::Null) => Op::Take(*key, None),
        (Op::Take(key, None), Reply::Array(parts)) => {
            // Of BLPOP and BZPOPMIN the key comes first.
            let at = usize::from(parts.len() == 3 || kind(*key) == Kind::Queue);
            Op::Take(*key, parts.get(at).map(element_of))
        }
        (Op::Take(key, None), reply) => Op::Take(*key, Some(element_of(reply))),
        (Op::Get(key, _), Reply::Null) => Op::Get(*key, None),
        (Op::Get(key, _), reply) => Op::Get(*key, Some(element_of(reply))),
        (Op::Look(key, element, _), reply) => {
            Op::Look(*key, *element, !matches!(reply, Reply::Null) && number(reply) != Some(0))
        }
        (Op::Read(key, _), Reply::Null) => Op::Read(*key, Vec::new()),
        (Op::Read(key, _), Reply::Bulk(bytes)) if kind(*key) == Kind::Bits => {
            let is_set = |bit: &u64| bytes[*bit as usize / 8] & (0x80 >> (bit % 8)) != 0;
            Op::Read(*key, (0..bytes.len() as u64 * 8).filter(is_set).collect())
        }
        (Op::Read(key, _), reply) => {
            let found = match kind(*key) {
                Kind::Counter => (1..=element_of(reply)).collect(),
                Kind::Text => text(reply).split_terminator(',').map(parse).collect(),
                Kind::Stream => items(reply).iter().map(|entry| entry_of(entry).1).collect(),
                _ => {
                    let found = if let Reply::Set(found) = reply { found } else { items(reply) };
                    found.iter().map(element_of).collect()
                }
            };
            Op::Read(*key, found)
        }
    }
}

impl Shape {
    /// The command that executes a part of a transaction.
    pub fn command_of(self, part: &Part) -> String {
        match part {
            Part::Op(op) => self.command(op),
            Part::Move(from, to, element) => {
                let (kind, from, to) = (kind(*from), self.name(*from), self.name(*to));
                match kind {
                    Kind::Queue => format!("LMOVE {from} {to} LEFT RIGHT"),
                    _ => format!("SMOVE {from} {to} {element}:{}", self.padding()),
                }
            }
            Part::TakeAny(keys) => {
                let [first, second] = keys.map(|key| self.name(key));
                match kind(keys[0]) {
                    Kind::Queue => format!("LMPOP 2 {first} {second} LEFT"),
                    _ => format!("ZMPOP 2 {first} {second} MIN"),
                }
            }
            Part::Deliver(stream) => {
                format!("XREADGROUP GROUP group consumer COUNT 1 STREAMS {} >", self.name(*stream))
            }
            Part::Acknowledge(stream, _, id) => format!("XACK {} group {id}", self.name(*stream)),
            Part::Claim(stream) => {
                format!("XAUTOCLAIM {} group other 0 - COUNT {ELEMENTS}", self.name(*stream))
            }
            Part::Expire(key, n, after_ms) => {
                format!("HPEXPIRE {} {after_ms} FIELDS 1 {n}:", self.name(*key))
            }
        }
    }

    /// What comes before that in its transaction.
    pub fn command_before(self, part: &Part) -> Option<String> {
        match part {
            Part::Deliver(stream) => Some(format!("XGROUP CREATE {} group 0 MKSTREAM", self.name(*stream))),
            _ => None,
        }
    }

    /// The command that executes a part by itself: some wait for something to come to keys that have nothing.
    pub fn command_alone(self, part: &Part) -> String {
        let command = self.command_of(part);
        match part {
            Part::Op(Op::Read(key, _)) if kind(*key) == Kind::Stream => {
                format!("XREAD BLOCK {BLOCK_MS} STREAMS {} 0", self.name(*key))
            }
            Part::Op(Op::Take(key, _)) if matches!(kind(*key), Kind::Queue | Kind::Ranking) => {
                format!("B{command} {BLOCK_SECONDS}")
            }
            Part::Move(from, ..) if kind(*from) == Kind::Queue => format!("B{command} {BLOCK_SECONDS}"),
            Part::TakeAny(keys) => {
                let word = if kind(keys[0]) == Kind::Queue { "BLPOP" } else { "BZPOPMIN" };
                let [first, second] = keys.map(|key| self.name(key));
                format!("{word} {first} {second} {BLOCK_SECONDS}")
            }
            Part::Deliver(_) => command.replace("COUNT 1", &format!("COUNT 1 BLOCK {BLOCK_MS}")),
            _ => command,
        }
    }

    fn padding(self) -> String {
        "x".repeat(self.pad)
    }

    /// The command that does something with one key.
    pub fn command(self, op: &Op) -> String {
        let (key, n) = match op {
            Op::Add(key, n) | Op::Set(key, n) | Op::Look(key, n, _) => (*key, *n),
            Op::Take(key, n) => (*key, n.unwrap_or_default()),
            Op::Read(key, _) | Op::Get(key, _) | Op::Bring(key) => (*key, 0),
        };
        let (name, pad) = (self.name(key), self.padding());
        match (op, kind(key)) {
            (Op::Add(..), Kind::List | Kind::Queue) => format!("RPUSH {name} {n}:{pad}"),
            (Op::Add(..), Kind::Stream) => format!("XADD {name} * n {n}:{pad}"),
            (Op::Add(..), Kind::Text) => format!("APPEND {name} {n}:{pad},"),
            (Op::Add(..), Kind::Set | Kind::Pool) => format!("SADD {name} {n}:{pad}"),
            (Op::Add(..), Kind::SortedSet) => format!("ZADD {name} 1 {n}:{pad}"),
            (Op::Add(..), Kind::Ranking) => format!("ZADD {name} {} {n}:{pad}", n + 1),
            (Op::Add(..), Kind::Hash | Kind::Bin) => format!("HSET {name} {n}: :{pad}"),
            (Op::Add(..), Kind::Bits) => format!("SETBIT {name} {n} 1"),
            (Op::Add(..), Kind::Counter) => format!("INCR {name}"),
            (Op::Take(..), Kind::Queue) => format!("LPOP {name}"),
            (Op::Take(..), Kind::Pool) => format!("SPOP {name}"),
            (Op::Take(..), Kind::Ranking) => format!("ZPOPMIN {name}"),
            (Op::Take(..), Kind::Bin) => format!("HDEL {name} {n}:"),
            (Op::Set(..), _) => format!("SET {name} {n}:{pad}"),
            (Op::Get(..), _) => format!("GET {name}"),
            (Op::Read(..), Kind::List | Kind::Queue) => format!("LRANGE {name} 0 -1"),
            (Op::Read(..), Kind::Stream) => format!("XRANGE {name} - +"),
            (Op::Read(..), Kind::Text | Kind::Bits | Kind::Counter) => format!("GET {name}"),
            (Op::Read(..), Kind::Set | Kind::Pool) => format!("SMEMBERS {name}"),
            (Op::Read(..), Kind::SortedSet | Kind::Ranking) => format!("ZRANGE {name} 0 -1"),
            (Op::Read(..), Kind::Hash | Kind::Bin) => format!("HKEYS {name}"),
            (Op::Look(..), Kind::Set | Kind::Pool) => format!("SISMEMBER {name} {n}:{pad}"),
            (Op::Look(..), Kind::SortedSet | Kind::Ranking) => format!("ZSCORE {name} {n}:{pad}"),
            (Op::Look(..), Kind::Hash | Kind::Bin) => format!("HEXISTS {name} {n}:"),
            (Op::Look(..), Kind::Bits) => format!("GETBIT {name} {n}"),
            (op, kind) => unreachable!("{op:?} of a {kind:?}"),
        }
    }
}
