//! Transactions on keys of all kinds: as commands, and what their replies say.

use super::{
    ELEMENTS,
    history::{Element, Key, Op, Rule},
};
use crate::{
    cluster::faults::SLOTS,
    harness::{Rng, is_error, items, number, redirected_to, text},
};
use holdfast_resp::{Reply, write_command};
use holdfast_store::hash_slot;
use std::{collections::BTreeSet, iter, ops::Range, ptr, slice, sync::LazyLock};

/// Tags of the slots that move, as many as there may be.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tags = (0..).map(|n| format!("{{{n}}}"));
    tags.filter(|tag| u64::from(hash_slot(tag.as_bytes())) < SLOTS).take(40).collect()
});

/// Executes commands, of which each is its count of words, and these, and takes some time before each.
const SCRIPT: &str = "local replies, at = {}, 2
while ARGV[at] do
  for turn = 1, ARGV[1] do end
  local count = tonumber(ARGV[at])
  replies[#replies + 1] = redis.pcall(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
return replies";

/// Commands that leave what a key has as it is, together, or come to nothing. `KEY` is its name.
pub const SAME: [&[&str]; 10] = [
    &["RENAME KEY KEY:other", "RENAME KEY:other KEY"],
    &["COPY KEY KEY:other", "RENAME KEY:other KEY"],
    &["EXPIRE KEY 100000"],
    &["PERSIST KEY"],
    &["LTRIM KEY 0 -1"],
    &["SUNIONSTORE KEY KEY"],
    &["ZRANGESTORE KEY KEY 0 -1"],
    &["XTRIM KEY MAXLEN 100000"],
    &["ZREM KEY other"],
    &["HDEL KEY other"],
];

/// Commands that leave nothing of a key: at once, but for the first of these, which does so soon.
pub const CLEAR: [&[&str]; 6] = [
    &["PEXPIRE KEY 30"],
    &["DEL KEY"],
    &["UNLINK KEY"],
    &["PEXPIREAT KEY 1"],
    &["RENAME KEY KEY:other", "DEL KEY:other"],
    &["SET KEY other", "GETDEL KEY"],
];

/// How long a command waits for something to come to a key that has nothing.
const BLOCK_MS: u64 = 5;
const BLOCK_SECONDS: f64 = BLOCK_MS as f64 / 1000.0;
/// Elements that a key has at once, at most, with those that were moved to it.
const ELEMENTS_MAX: usize = 10 * ELEMENTS as usize;

/// How a key holds its elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    List,
    Stream,
    Text,
    Set,
    SortedSet,
    Hash,
    /// A string with a bit for each.
    Bits,
    /// How many there are.
    Counter,
    /// The one that was set last.
    Value,
    /// A list of which the first one is taken.
    Queue,
    /// A set of which any is taken.
    Pool,
    /// A sorted set of which the first one is taken.
    Ranking,
    /// A hash of which one that is named is taken.
    Bin,
}

const KINDS: [Kind; 13] = [
    Kind::List,
    Kind::Stream,
    Kind::Text,
    Kind::Set,
    Kind::SortedSet,
    Kind::Hash,
    Kind::Bits,
    Kind::Counter,
    Kind::Value,
    Kind::Queue,
    Kind::Pool,
    Kind::Ranking,
    Kind::Bin,
];

impl Kind {
    pub fn rule(self) -> Rule {
        match self {
            Kind::List | Kind::Stream | Kind::Text => Rule::Ordered,
            Kind::Set | Kind::SortedSet | Kind::Hash | Kind::Bits | Kind::Value => Rule::Unordered,
            Kind::Counter => Rule::Counted,
            Kind::Queue => Rule::Queue,
            Kind::Pool | Kind::Ranking | Kind::Bin => Rule::Pool,
        }
    }

    /// Whether MGET reads it.
    pub fn is_string(self) -> bool {
        matches!(self, Kind::Text | Kind::Bits | Kind::Counter | Kind::Value)
    }

    /// Whether it can be asked for one element.
    pub fn can_look(self) -> bool {
        matches!(self, Kind::Set | Kind::SortedSet | Kind::Hash | Kind::Bits) || self.rule() == Rule::Pool
    }

    /// Whether elements are taken.
    pub fn can_take(self) -> bool {
        matches!(self.rule(), Rule::Queue | Rule::Pool)
    }

    /// Whether elements are moved to another key.
    pub fn can_move(self) -> bool {
        matches!(self, Kind::Queue | Kind::Pool)
    }
}

/// What keys a history has.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Of each kind, at a time.
    pub keys: usize,
    /// Bytes that an element has more than it needs.
    pub pad: usize,
    /// Whether the names of keys have tags, a key of each kind the same one. Else each may be of any slot.
    pub has_tags: bool,
}

impl Shape {
    pub fn places(self) -> usize {
        KINDS.len() * self.keys
    }

    /// How many parts keys are in, of one of which a transaction is.
    pub fn parts(self) -> usize {
        if self.has_tags { self.keys } else { 1 }
    }

    /// The places of a part.
    pub fn places_of(self, part: usize) -> Range<usize> {
        let count = self.places() / self.parts();
        part * count..(part + 1) * count
    }

    /// The place that a key takes.
    pub fn place(self, key: Key) -> usize {
        key % self.places()
    }

    /// The part that a key is of.
    pub fn part(self, key: Key) -> usize {
        self.place(key) / (self.places() / self.parts())
    }

    /// The n-th key that takes a place.
    pub fn key(self, place: usize, nth: u64) -> Key {
        nth as usize * self.places() + place
    }

    /// The name of a key.
    pub fn name(self, key: Key) -> String {
        let tag = if self.has_tags { &TAGS[self.part(key)] } else { "" };
        format!("{tag}{:?}:{key}", kind(key))
    }

    /// The command that executes a part of a transaction.
    fn command_of(self, part: &Part) -> String {
        let (from, to, element) = match part {
            Part::Op(op) => return self.command(op),
            Part::Move(from, to, element) => (self.name(*from), self.name(*to), element),
        };
        match kind(part.key()) {
            Kind::Queue => format!("LMOVE {from} {to} LEFT RIGHT"),
            _ => format!("SMOVE {from} {to} {element}:{}", self.padding()),
        }
    }

    fn padding(self) -> String {
        "x".repeat(self.pad)
    }

    /// The same of one that is about one key.
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

pub fn kind(key: Key) -> Kind {
    KINDS[key % KINDS.len()]
}

/// A place of the same kind, of these.
pub fn place_alike(place: usize, places: Range<usize>, rng: &mut Rng) -> usize {
    let alike = places.filter(|other| kind(*other) == kind(place));
    let alike: Vec<usize> = alike.collect();
    alike[rng.below(alike.len() as u64) as usize]
}

/// The n-th element that is added to a key. No other one has it from which elements are moved to where it is.
pub fn element(key: Key, n: u64) -> Element {
    if kind(key).can_move() { key as u64 * ELEMENTS + n } else { n }
}

/// What a transaction is made of.
#[derive(Clone, Debug)]
pub enum Part {
    /// Something is done with one key.
    Op(Op),
    /// An element is moved from one key to another one, whose number is higher, so that it never comes back: the first of a queue, or of a pool this.
    Move(Key, Key, Element),
}

impl Part {
    /// The key from which something comes, or to which it is added.
    fn key(&self) -> Key {
        match self {
            Part::Op(op) => op.key(),
            Part::Move(from, ..) => *from,
        }
    }

    fn adds(&self) -> bool {
        matches!(self, Part::Op(Op::Add(..) | Op::Set(..)) | Part::Move(..))
    }

    /// What was done, by its reply.
    fn told(&self, reply: &Reply) -> Vec<Op> {
        let (from, to, element) = match self {
            Part::Op(op) => return vec![told(op, reply)],
            Part::Move(from, to, element) => (*from, *to, *element),
        };
        match told(&Op::Take(from, (kind(from) == Kind::Pool).then_some(element)), reply) {
            Op::Take(from, Some(element)) => vec![Op::Take(from, Some(element)), Op::Add(to, element)],
            not_found => vec![not_found],
        }
    }

    /// What it may have done, if its reply was lost.
    fn lost(&self) -> Vec<Op> {
        match self {
            // It is not known what was added.
            Part::Op(Op::Add(key, _)) if kind(*key) == Kind::Counter => Vec::new(),
            Part::Op(op @ (Op::Add(..) | Op::Set(..))) => vec![op.clone()],
            Part::Op(Op::Take(key, _)) => vec![Op::Take(*key, None)],
            Part::Op(_) => Vec::new(),
            Part::Move(from, to, _) => vec![Op::Take(*from, None), Op::Bring(*to)],
        }
    }
}

/// A read of all that a key has.
pub fn read(key: Key) -> Op {
    if kind(key) == Kind::Value { Op::Get(key, None) } else { Op::Read(key, Vec::new()) }
}

/// A part of a transaction with what its reply says.
pub fn told(op: &Op, reply: &Reply) -> Op {
    let parse = |text: &str| -> Element {
        text.split(':').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let element = |reply: &Reply| parse(&text(reply));
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
            Op::Take(*key, parts.get(at).map(element))
        }
        (Op::Take(key, None), reply) => Op::Take(*key, Some(element(reply))),
        (Op::Get(key, _), Reply::Null) => Op::Get(*key, None),
        (Op::Get(key, _), reply) => Op::Get(*key, Some(element(reply))),
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
                Kind::Counter => (1..=element(reply)).collect(),
                Kind::Text => text(reply).split_terminator(',').map(parse).collect(),
                Kind::Stream => {
                    items(reply).iter().map(|entry| element(&items(&items(entry)[1])[1])).collect()
                }
                _ => {
                    let found = if let Reply::Set(found) = reply { found } else { items(reply) };
                    found.iter().map(element).collect()
                }
            };
            Op::Read(*key, found)
        }
    }
}

/// How parts are sent as one.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// There is one.
    Single,
    /// Reads of strings.
    Mget,
    Multi,
    /// Before each of its parts a loop has so many turns.
    Script(u64),
}

/// A transaction that is to be executed.
pub struct Plan {
    /// As which it is sent.
    pub form: Form,
    /// What it does.
    pub parts: Vec<Part>,
    /// What of [`SAME`] it does besides, to which key, before which of these.
    pub same: Vec<(usize, Key, usize)>,
    /// After which of these it does what of [`CLEAR`] to the key that was read.
    pub clears: Option<(usize, usize)>,
    /// Of its keys.
    pub shape: Shape,
    /// Whether the keys are asked for where they go.
    pub asks: bool,
}

/// What has become of it.
pub enum Answer {
    /// It was executed, and did this.
    Done(Vec<Op>),
    /// It was not executed.
    Refused(Refusal),
    /// Its reply, or what that says, does not tell.
    Lost,
}

/// Why it was not.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// A key has changed that is watched.
    Changed,
    /// The keys are where this port is.
    Moved(u16),
    /// The keys may be where this port is by now.
    Ask(u16),
    /// Some are there and some elsewhere, or nobody knows, or a script runs for long.
    Later,
    /// There is no room.
    Full,
}

impl Plan {
    /// The commands, and of which part of the transaction each is.
    fn commands(&self) -> Vec<(Option<&Part>, String)> {
        let mut commands = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            for (_, key, how) in self.same.iter().filter(|(before, ..)| *before == at) {
                let name = self.shape.name(*key);
                commands.extend(SAME[*how].iter().map(|command| (None, command.replace("KEY", &name))));
            }
            commands.push((Some(part), self.shape.command_of(part)));
            if let Some((_, how)) = self.clears.filter(|(after, _)| *after == at) {
                let name = self.shape.name(part.key());
                commands.extend(CLEAR[how].iter().map(|command| (None, command.replace("KEY", &name))));
            }
        }
        commands
    }

    /// Whether it clears a key soon after, if that is still there then.
    pub fn expires(&self) -> bool {
        self.clears.is_some_and(|(_, how)| how == 0)
    }

    /// What it takes, if it clears a key and it is not known what that had.
    pub fn cleared(&self) -> Vec<Op> {
        let cleared = self.clears.map(|(after, _)| self.parts[after].key());
        let takes = cleared.map(|key| iter::repeat_n(Op::Take(key, None), ELEMENTS_MAX));
        takes.into_iter().flatten().collect()
    }

    /// What it may have done, if its reply was lost.
    pub fn lost(&self) -> Vec<Op> {
        self.parts.iter().flat_map(Part::lost).chain(self.cleared()).collect()
    }

    pub fn write(&self, request: &mut Vec<u8>) {
        let commands: Vec<String> = self.commands().into_iter().map(|(_, command)| command).collect();
        let mut write = |command: &str| {
            write_command(request, &command.split_whitespace().collect::<Vec<_>>());
        };
        if self.asks {
            write("ASKING");
        }
        match self.form {
            Form::Single => match &self.parts[0] {
                Part::Op(Op::Read(key, _)) if kind(*key) == Kind::Stream => {
                    write(&format!("XREAD BLOCK {BLOCK_MS} STREAMS {} 0", self.shape.name(*key)));
                }
                Part::Move(from, ..) if kind(*from) == Kind::Queue => {
                    write(&format!("B{} {BLOCK_SECONDS}", commands[0]));
                }
                Part::Op(Op::Take(key, _)) if matches!(kind(*key), Kind::Queue | Kind::Ranking) => {
                    let word = if kind(*key) == Kind::Queue { "BLPOP" } else { "BZPOPMIN" };
                    write(&format!("{word} {} {BLOCK_SECONDS}", self.shape.name(*key)));
                }
                _ => write(&commands[0]),
            },
            Form::Mget => {
                let names = commands.iter().map(|command| command.split_whitespace().last().expect("a name"));
                write(&format!("MGET {}", names.collect::<Vec<_>>().join(" ")));
            }
            Form::Multi => {
                write("MULTI");
                commands.iter().for_each(|command| write(command));
                write("EXEC");
            }
            Form::Script(turns) => {
                let words: Vec<Vec<&str>> =
                    commands.iter().map(|command| command.split_whitespace().collect()).collect();
                let keys: BTreeSet<&str> = words
                    .iter()
                    .flat_map(|words| match words[0] {
                        "RENAME" | "COPY" | "LMOVE" | "SMOVE" => &words[1..3],
                        _ => &words[1..2],
                    })
                    .copied()
                    .collect();
                let mut args: Vec<String> = vec!["EVAL".into(), SCRIPT.into(), keys.len().to_string()];
                args.extend(keys.into_iter().map(str::to_owned));
                args.push(turns.to_string());
                for words in words {
                    args.push(words.len().to_string());
                    args.extend(words.into_iter().map(str::to_owned));
                }
                write_command(request, &args);
            }
        }
    }

    /// What its replies say, of which `next` is the next one, unless it is lost.
    pub fn read(&self, mut next: impl FnMut() -> Option<Reply>) -> Answer {
        let mut refusal = None;
        let commands = self.commands();
        // OK to ASKING; OK to MULTI, and QUEUED for each.
        let before =
            usize::from(self.asks) + if let Form::Multi = self.form { 1 + commands.len() } else { 0 };
        for _ in 0..before {
            let Some(reply) = next() else { return Answer::Lost };
            refusal = refusal.or(refused(&reply));
        }
        let Some(reply) = next() else { return Answer::Lost };
        if let Some(refusal) = refusal {
            assert!(is_error(&reply, "EXECABORT"), "{refusal:?}, and {:?}: {reply:?}", self.parts);
            return Answer::Refused(refusal);
        }
        if let Some(refusal) = refused(&reply) {
            return Answer::Refused(refusal);
        }
        if may_be_executed(&reply) {
            return Answer::Lost;
        }
        let reply = match (self.form, &self.parts[0], reply) {
            // Of XREAD, as XRANGE has it.
            (Form::Single, Part::Op(Op::Read(key, _)), Reply::Array(mut streams))
                if kind(*key) == Kind::Stream =>
            {
                let Some(Reply::Array(mut stream)) = streams.pop() else { panic!("{streams:?}") };
                stream.pop().expect("its entries")
            }
            (Form::Single, Part::Op(Op::Read(..)), Reply::Map(mut streams)) => {
                streams.pop().expect("its entries").1
            }
            (.., reply) => reply,
        };
        let replies = match (self.form, &reply) {
            (Form::Single, reply) => slice::from_ref(reply),
            (_, Reply::Array(replies)) => replies,
            (Form::Multi, Reply::Null) => return Answer::Refused(Refusal::Changed),
            (form, reply) => panic!("{form:?} {:?}: {reply:?}", self.parts),
        };
        assert_eq!(replies.len(), commands.len(), "{:?}: {replies:?}", self.parts);
        let mut ops = Vec::new();
        for (at, ((part, _), reply)) in commands.iter().zip(replies).enumerate() {
            let Some(part) = part else { continue };
            if is_error(reply, "OOM") {
                // EXEC has room for all that its commands come to, or for none, unless they only remove.
                let adds = self.parts.iter().any(Part::adds);
                assert!(matches!(self.form, Form::Script(_)) || !adds, "{commands:?}: {replies:?}");
                continue;
            }
            ops.extend(part.told(reply));
            let clears =
                self.clears.filter(|(after, _)| !self.expires() && ptr::eq(*part, &self.parts[*after]));
            if let (Some((_, how)), Some(Op::Read(key, found))) = (clears, ops.last().cloned())
                && !replies[at + 1..][..CLEAR[how].len()].iter().any(|reply| is_error(reply, ""))
            {
                ops.extend(found.into_iter().map(|element| Op::Take(key, Some(element))));
            }
        }
        Answer::Done(ops)
    }
}

/// Whether a node does not execute a command, nor a transaction with it.
pub fn refused(reply: &Reply) -> Option<Refusal> {
    let Reply::Error(why) = reply else { return None };
    let why = String::from_utf8_lossy(why);
    match (why.split(' ').next()?, redirected_to(&why)) {
        ("MOVED", Some(port)) => Some(Refusal::Moved(port)),
        ("ASK", Some(port)) => Some(Refusal::Ask(port)),
        ("TRYAGAIN" | "CLUSTERDOWN" | "BUSY", _) => Some(Refusal::Later),
        ("OOM", _) => Some(Refusal::Full),
        ("EXECABORT", _) if why.contains(" OOM ") => Some(Refusal::Full),
        _ => None,
    }
}

/// Whether a server does not execute commands, or not any more: whatever was sent may have been executed.
pub fn may_be_executed(reply: &Reply) -> bool {
    ["READONLY", "MASTERDOWN", "LOADING", "EXECABORT", "UNBLOCKED"].iter().any(|word| is_error(reply, word))
}
