//! The keys of a history: of which kinds they are, how they are named, and which of them take turns at a place.

use super::{
    ELEMENTS,
    history::{Element, Key, Rule},
};
use crate::{cluster::faults::SLOTS, harness::Rng};
use holdfast_store::hash_slot;
use std::{ops::Range, sync::LazyLock};

/// Tags of the slots that move, as many as there may be.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let tags = (0..).map(|n| format!("{{{n}}}"));
    tags.filter(|tag| u64::from(hash_slot(tag.as_bytes())) < SLOTS).take(40).collect()
});

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
}

/// More than any key's number.
const UNDELIVERED: Key = 1 << 40;

/// The number of what a stream's group was not given yet: that is as a queue of its own.
pub fn undelivered(stream: Key) -> Key {
    stream + UNDELIVERED
}

/// The number of what it was given and has not acknowledged.
pub fn pending(stream: Key) -> Key {
    stream + 2 * UNDELIVERED
}

pub fn rule(key: Key) -> Rule {
    match key / UNDELIVERED {
        0 => kind(key).rule(),
        1 => Rule::Queue,
        _ => Rule::Pool,
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
