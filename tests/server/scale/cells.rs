//! Cells: the parts of the data that change by themselves, each of which is known by a kind and a place, and holds one version of its
//! value or nothing.

use crate::harness::{Rng, array, bulk, noise};
use holdfast_resp::Reply;
use std::time::{SystemTime, UNIX_EPOCH};

/// Fields of a small hash.
pub const GROUP: u32 = 40;
/// Bytes of a part of a large string, and parts of each.
pub const PART_BYTES: usize = 100;
pub const PARTS: u32 = 2000;
/// Sets a field that goes by itself.
const SET_UNTIL: &str = r#"
    redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
    return redis.call("HPEXPIREAT", KEYS[1], ARGV[3], "FIELDS", 1, ARGV[1])
"#;
/// How far the server's clock may be behind ours, in ms, if its thread is stopped while it looks at it; it is never ahead.
const CLOCK_SLACK: u64 = 250;

/// Where cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Keys with a string each, which may expire.
    Text,
    /// Fields of many small hashes.
    Grouped,
    /// Fields of one huge hash, which may expire.
    Field,
    /// Members of a huge sorted set.
    Score,
    /// Members of a huge set.
    Member,
    /// Items of a huge list, to which more are added at the end and from which those in front are taken.
    Item,
    /// Entries of a huge stream.
    Entry,
    /// Ranges of bytes of large strings.
    Part,
}

impl Kind {
    pub const ALL: [Kind; 8] = [
        Kind::Text,
        Kind::Grouped,
        Kind::Field,
        Kind::Score,
        Kind::Member,
        Kind::Item,
        Kind::Entry,
        Kind::Part,
    ];

    /// Whether cells are added at the end only.
    pub fn grows_at_its_end(self) -> bool {
        matches!(self, Kind::Item | Kind::Entry)
    }
}

/// What is at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// 0: nothing.
    pub version: u32,
    /// When it goes by itself; 0: never.
    pub expires_ms: u64,
}

impl Cell {
    /// Whether something may be there at one of these times, by a server.
    pub fn may_be_there(&self, from: u64) -> bool {
        self.version > 0 && (self.expires_ms == 0 || from < self.expires_ms + CLOCK_SLACK)
    }

    /// Whether nothing may be.
    pub fn may_be_gone(&self, to: u64) -> bool {
        self.version == 0 || (self.expires_ms > 0 && to >= self.expires_ms)
    }
}

/// The time by the clock that servers expire keys by.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis() as u64
}

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

pub fn words<const N: usize>(words: [&dyn AsRef<[u8]>; N]) -> Words {
    words.iter().map(|word| word.as_ref().to_vec()).collect()
}

/// The cells of one writer: where they are, and which commands change and show them.
#[derive(Clone, Copy)]
pub struct Place {
    pub writer: usize,
    pub kind: Kind,
    pub place: u32,
}

impl Place {
    /// The key that the cell is in.
    pub fn key(&self) -> String {
        let (writer, place) = (self.writer, self.place);
        match self.kind {
            Kind::Text => format!("text:{writer}:{place}"),
            Kind::Grouped => format!("group:{writer}:{}", place / GROUP),
            Kind::Part => format!("parts:{writer}:{}", place / PARTS),
            kind => format!("{kind:?}:{writer}"),
        }
    }

    /// Its name in a collection.
    pub fn name(&self) -> String {
        match self.kind {
            Kind::Grouped => format!("f{}", self.place % GROUP),
            Kind::Member => format!("{:07}:{}", self.place, "member".repeat(self.place as usize % 20)),
            Kind::Entry => format!("{}-7", self.place + 1),
            _ => format!("{:07}", self.place),
        }
    }

    /// Where it is in a large string.
    fn offset(&self) -> usize {
        (self.place % PARTS) as usize * PART_BYTES
    }

    /// A version of its value: most are short, some a few pages, and half do not compress.
    pub fn value(&self, version: u32) -> Vec<u8> {
        let Place { writer, kind, place } = *self;
        // Small hashes are renamed and copied.
        let place = if kind == Kind::Grouped { place % GROUP } else { place };
        let mut value = format!("{kind:?}:{writer}:{place}:{version}:").into_bytes();
        let seed = (u64::from(place) << 32 | u64::from(version)) * 8 + kind as u64;
        let mut rng = Rng(seed);
        let len = match rng.below(512) {
            _ if kind == Kind::Part => PART_BYTES,
            0 => 5_000 + rng.below(30_000) as usize,
            1..=50 => rng.below(2000) as usize,
            _ => rng.below(200) as usize,
        };
        let missing = len.saturating_sub(value.len());
        value.extend(if version.is_multiple_of(2) { noise(seed, missing) } else { vec![b'x'; missing] });
        value
    }

    /// The command that puts a cell there: of items, the one behind the last; `front` is the first item's place.
    pub fn put(&self, cell: Cell, front: u32, is_next: bool) -> Words {
        let (key, name, value) = (self.key(), self.name(), self.value(cell.version));
        match self.kind {
            Kind::Text if cell.expires_ms > 0 => {
                words([&"SET", &key, &value, &"PXAT", &cell.expires_ms.to_string()])
            }
            Kind::Text => words([&"SET", &key, &value]),
            Kind::Grouped | Kind::Field if cell.expires_ms > 0 => {
                words([&"EVAL", &SET_UNTIL, &"1", &key, &name, &value, &cell.expires_ms.to_string()])
            }
            Kind::Grouped | Kind::Field => words([&"HSET", &key, &name, &value]),
            Kind::Score => words([&"ZADD", &key, &cell.version.to_string(), &name]),
            Kind::Member => words([&"SADD", &key, &name]),
            Kind::Item if is_next => words([&"RPUSH", &key, &value]),
            Kind::Item => words([&"LSET", &key, &(self.place - front).to_string(), &value]),
            Kind::Entry => words([&"XADD", &key, &name, &"value", &value]),
            Kind::Part => words([&"SETRANGE", &key, &self.offset().to_string(), &value]),
        }
    }

    /// The command that takes it away: of items, the first.
    pub fn take(&self) -> Words {
        let (key, name) = (self.key(), self.name());
        match self.kind {
            Kind::Text => words([&"UNLINK", &key]),
            Kind::Grouped | Kind::Field => words([&"HDEL", &key, &name]),
            Kind::Score => words([&"ZREM", &key, &name]),
            Kind::Member => words([&"SREM", &key, &name]),
            Kind::Item => words([&"LPOP", &key]),
            Kind::Entry => words([&"XDEL", &key, &name]),
            Kind::Part => words([&"SETRANGE", &key, &self.offset().to_string(), &[0; PART_BYTES]]),
        }
    }

    /// The command that shows it.
    pub fn look(&self, front: u32) -> Words {
        let (key, name) = (self.key(), self.name());
        match self.kind {
            Kind::Text => words([&"GET", &key]),
            Kind::Grouped | Kind::Field => words([&"HGET", &key, &name]),
            Kind::Score => words([&"ZSCORE", &key, &name]),
            Kind::Member => words([&"SISMEMBER", &key, &name]),
            Kind::Item => words([&"LINDEX", &key, &(self.place - front).to_string()]),
            Kind::Entry => words([&"XRANGE", &key, &name, &name]),
            Kind::Part => {
                let last = self.offset() + PART_BYTES - 1;
                words([&"GETRANGE", &key, &self.offset().to_string(), &last.to_string()])
            }
        }
    }

    /// What that command answers if the cell is there.
    pub fn present(&self, version: u32) -> Reply {
        match self.kind {
            Kind::Score => bulk(version.to_string()),
            Kind::Member => Reply::Int(1),
            Kind::Entry => array([self.entry(version)]),
            _ => bulk(self.value(version)),
        }
    }

    /// The entry of a stream.
    pub fn entry(&self, version: u32) -> Reply {
        array([bulk(self.name()), array([bulk("value"), bulk(self.value(version))])])
    }

    /// What it answers if nothing is there; a part that nothing is at is zeroes, or behind the string's end.
    pub fn absent(&self) -> Reply {
        match self.kind {
            Kind::Member => Reply::Int(0),
            Kind::Entry => array([]),
            Kind::Part => bulk([0; PART_BYTES]),
            _ => Reply::Null,
        }
    }

    /// Whether what it has answered between two times is what a cell says.
    pub fn is_shown_by(&self, cell: Cell, reply: &Reply, [from, to]: [u64; 2]) -> bool {
        let is_absent = match (self.kind, reply) {
            (Kind::Part, Reply::Bulk(bytes)) => bytes.iter().all(|&byte| byte == 0),
            _ => *reply == self.absent(),
        };
        if is_absent {
            cell.may_be_gone(to)
        } else {
            cell.may_be_there(from) && *reply == self.present(cell.version)
        }
    }
}
