//! What a command is going to use of a collection and is not in memory: found by the same descents that the command will make.
//!
//! What a command will use is told by its arguments. Where they tell too much, that costs a read at most; what they do not tell
//! is read when it is used, with the collection's partition locked.

use super::{
    Context,
    absent::{Absent, Finder},
    any, hash,
    list::{self, End},
    object::{self, Type},
    positions_between,
    sample::{Wanted, draws},
    set, stream, string, zset,
};
use std::ops::{Bound, Range};

/// The header of each kind of packed block, at most.
const PACKED_HEADER: usize = 12;

/// What a command is going to use of what is under a key.
#[derive(Clone, Copy, Debug)]
pub enum Use<'a> {
    /// A field or a member.
    Element(&'a [u8]),
    /// A field that is set to a value.
    Field(&'a [u8], &'a [u8]),
    /// A member of a sorted set and its place in the order, and the place that another score gives it.
    Place(&'a [u8], Option<f64>),
    /// The same with the place that a score so much greater gives it.
    Moved(&'a [u8], f64),
    /// An element that is put before the first one of a list, or behind the last one.
    Pushed(End, &'a [u8]),
    /// Elements of a list, or members of a sorted set, from one position to another, both included; below zero they count from the
    /// end.
    Positions {
        /// The first one.
        first: i64,
        /// The last one.
        last: i64,
        /// Whether members of a sorted set are counted from the greatest on.
        reverse: bool,
    },
    /// Members of a sorted set by their scores.
    Scores {
        /// The least score.
        min: Bound<f64>,
        /// The greatest score.
        max: Bound<f64>,
        /// From the greatest on.
        reverse: bool,
        /// As many, at most.
        count: u64,
    },
    /// Members of a sorted set by their names, where all have the same score.
    Names {
        /// The least name.
        min: Bound<&'a [u8]>,
        /// The greatest name.
        max: Bound<&'a [u8]>,
        /// From the greatest on.
        reverse: bool,
        /// As many, at most.
        count: u64,
    },
    /// A member of a sorted set, and others whose scores are in ranges that follow from its own.
    Around {
        /// The member.
        member: &'a [u8],
        /// Tells the ranges by its score and the extent.
        ranges: fn(f64, [f64; 2]) -> Vec<zset::ScoreRange>,
        /// What else they depend on.
        extent: [f64; 2],
    },
    /// Entries of a stream.
    Ids {
        /// The least ID.
        from: stream::Id,
        /// The greatest ID.
        to: stream::Id,
        /// From the greatest on.
        reverse: bool,
        /// As many, at most.
        count: u64,
    },
    /// What a group of a stream has not delivered yet, and where that will be pending.
    Unread {
        /// The group's name.
        group: &'a [u8],
        /// The name of the consumer who gets it.
        consumer: &'a [u8],
        /// As many entries, at most.
        count: u64,
    },
    /// What is pending in a group of a stream.
    Pending {
        /// The group's name.
        group: &'a [u8],
        /// The name of the consumer whose it is, or may be; `None`: anybody's.
        owner: Option<&'a [u8]>,
        /// The least ID.
        from: stream::Id,
        /// The greatest ID.
        to: stream::Id,
        /// As many, at most.
        count: u64,
        /// The entries themselves, too.
        entries: bool,
    },
    /// Members or fields that a step of a scan passes.
    Scan {
        /// Where it goes on.
        cursor: u64,
        /// About as many.
        count: usize,
    },
    /// Members or fields that are chosen at random.
    Random {
        /// As many.
        wanted: Wanted,
        /// Tells what is [drawn](super::sample::draws).
        seed: u64,
    },
    /// What is found of sets and sorted sets by the members of the smallest one: what all have.
    Common,
    /// The same by the members of the first one: what no other has.
    Rest,
    /// Bytes of a string, from one to before another, which may be beyond its end.
    Bytes(usize, usize),
    /// How many elements there are.
    Length,
    /// What it takes to remove it at once, if it is small.
    Removal,
    /// All of it, whatever it is.
    All,
}

impl Finder<'_> {
    /// Looks for what a command will use of a collection, its header in any case.
    pub fn find(&self, cx: Context, obj: u64, uses: &[Use]) {
        if let [] | [Use::Length] = uses {
            return self.go_on(self.look()(obj, object::HEADER as usize));
        }
        let Ok(is_packed) = self.look_at_packed(obj) else { return };
        let ty = object::ty(self.arena, obj);
        if !is_packed {
            uses.iter().for_each(|wanted| self.find_one(cx, obj, ty, wanted));
        } else if self.writes {
            self.look_to_grow(cx, obj, ty, uses);
        }
    }

    /// Looks for the block to which a packed collection moves, if what comes to it has no room where it is.
    fn look_to_grow(&self, cx: Context, obj: u64, ty: Type, uses: &[Use]) {
        let arena = self.arena;
        let fields = uses.iter().filter_map(|wanted| match *wanted {
            Use::Field(name, value) => Some((name, value)),
            _ => None,
        });
        let pushed = uses.iter().filter_map(|wanted| match *wanted {
            Use::Pushed(end, element) => Some((end, element)),
            _ => None,
        });
        let members = uses.iter().filter_map(|wanted| match *wanted {
            Use::Element(member) | Use::Place(member, Some(_)) | Use::Moved(member, _) => Some(member),
            _ => None,
        });
        let size = match ty {
            Type::Hash => hash::grown_size(arena, obj, fields),
            Type::List => list::grown_size(arena, cx, obj, pushed),
            Type::Set => set::grown_size(arena, obj, members),
            Type::Zset => zset::grown_size(arena, obj, members),
            Type::Stream | Type::String => None,
        };
        if let Some(size) = size {
            self.look_to_alloc(size);
        }
    }

    /// Looks for the header of a collection and, if it lies in one block, for that; whether it does.
    fn look_at_packed(&self, obj: u64) -> Result<bool, Absent> {
        let (arena, look) = (self.arena, self.look());
        look(obj, object::HEADER as usize)?;
        if !object::is_packed(arena, obj) {
            return Ok(false);
        }
        let block = arena.u64(obj + object::ROOT);
        if block != 0 {
            look(block, PACKED_HEADER)?;
            look(block, any::packed_size(arena, obj, object::ty(arena, obj)).1 as usize)?;
        }
        Ok(true)
    }

    /// Looks for what it takes to remove so many expired fields of a hash.
    pub fn find_expired(&self, obj: u64, expired_ms: u64, count: usize) {
        if let Ok(false) = self.look_at_packed(obj) {
            self.go_on(hash::look_to_purge(self, obj, expired_ms, count as u64));
        }
    }

    /// Looks for what it takes to [destroy](any::destroy_some) so many blocks of an object, and takes them off the budget as that does.
    pub fn find_blocks(&self, obj: u64, budget: &mut usize) {
        if let Ok(false) = self.look_at_packed(obj) {
            self.go_on(match object::ty(self.arena, obj) {
                Type::List => list::look_to_release(self, obj, budget),
                Type::Set => set::look_to_release(self, obj, budget),
                Type::Zset => zset::look_to_release(self, obj, budget),
                Type::Hash => hash::look_to_release(self, obj, budget),
                Type::Stream => stream::look_to_release(self, obj, budget),
                Type::String => string::look_to_release(self, obj, budget),
            });
        }
        *budget = budget.saturating_sub(1);
    }

    /// Whether the header of an object is in memory, which has its key.
    pub fn has_name(self, obj: u64) -> bool {
        let header = object::HEADER as usize;
        self.look()(obj, header).is_ok() && self.look()(obj, object::header_size(self.arena, obj)).is_ok()
    }

    /// Whether all of an object is in memory, its key included.
    pub fn has_whole(self, cx: Context, obj: u64) -> bool {
        let (arena, look) = (self.arena, self.look());
        if look(obj, object::HEADER as usize).is_err() || look(obj, object::header_size(arena, obj)).is_err()
        {
            return false;
        }
        drop(look);
        self.find(cx, obj, &[Use::All]);
        if object::ty(arena, obj) == Type::Stream {
            self.go_on(stream::look_at_groups(&self, obj));
        }
        self.into_pages().is_empty()
    }

    fn find_one(&self, cx: Context, obj: u64, ty: Type, wanted: &Use) {
        let count = object::count(self.arena, obj);
        match (ty, *wanted) {
            // Then all of it is looked through, or most is drawn.
            (_, Use::Random { wanted, .. }) if wanted.count() >= count / 3 => {
                self.find_one(cx, obj, ty, &Use::All);
            }
            (_, Use::Removal) if count < any::LARGE => {
                self.find_one(cx, obj, ty, &Use::All);
                match ty {
                    Type::Hash => hash::look_at_expiries(self, obj),
                    Type::Zset => zset::look_at_table(self, obj),
                    _ => {}
                }
            }
            (Type::Hash, Use::Random { wanted, seed }) => {
                hash::look_at_random(self, obj, wanted.count(), draws(seed));
            }
            (Type::Set, Use::Random { wanted, seed }) => {
                set::look_at_random(self, obj, wanted.count(), draws(seed));
            }
            (Type::Zset, Use::Random { wanted, seed }) => {
                zset::look_at_random(self, cx, obj, wanted, draws(seed));
            }
            (Type::Hash, Use::Scan { cursor, count }) => hash::look_at_scan(self, obj, cursor, count),
            (Type::Set, Use::Scan { cursor, count }) => set::look_at_scan(self, obj, cursor, count),
            (Type::Zset, Use::Scan { cursor, count }) => zset::look_at_scan(self, obj, cursor, count),
            (Type::Hash, Use::Element(name)) => self.go_on(hash::look(self, cx, obj, name)),
            (Type::Hash, Use::Field(name, value)) => {
                self.go_on(hash::look_to_set(self, cx, obj, name, value));
            }
            (Type::Hash, Use::All) => hash::look_at_all(self, obj),
            (Type::Set, Use::Element(member)) => self.go_on(set::look(self, cx, obj, member)),
            (Type::Set, Use::All) => set::look_at_all(self, obj),
            (Type::Zset, Use::Element(member)) => self.go_on(zset::look(self, cx, obj, member).map(drop)),
            (Type::Zset, Use::Place(member, score)) => {
                self.go_on(zset::look_at_place(self, cx, obj, member, |_| score));
            }
            (Type::Zset, Use::Moved(member, by)) => {
                let moved = |score: Option<f64>| Some(score.unwrap_or(0.0) + by);
                self.go_on(zset::look_at_place(self, cx, obj, member, moved));
            }
            (Type::Zset, Use::Positions { first, last, reverse }) => {
                let Range { start, end } = positions_between(first, last, count);
                zset::look_at_ranks(
                    self,
                    cx,
                    obj,
                    if reverse { count - end..count - start } else { start..end },
                );
            }
            (Type::Zset, Use::Scores { min, max, reverse, count }) => {
                self.go_on(zset::look_at_scores(self, cx, obj, (min, max), reverse, count));
            }
            (Type::Zset, Use::Around { member, ranges, extent }) => {
                let ranges = |score| ranges(score, extent);
                self.go_on(zset::look_around(self, cx, obj, member, ranges));
            }
            (Type::Zset, Use::Names { min, max, reverse, count }) => {
                self.go_on(zset::look_at_names(self, cx, obj, (min, max), reverse, count));
            }
            (Type::Zset, Use::All) => zset::look_at_all(self, obj),
            (Type::List, Use::Positions { first, last, .. }) => {
                list::look(self, cx, obj, positions_between(first, last, count));
            }
            (Type::List, Use::All) => list::look(self, cx, obj, 0..count),
            (Type::Stream, Use::Ids { from, to, reverse, count }) => {
                self.go_on(stream::look(self, obj, from, to, reverse, count));
            }
            (Type::Stream, Use::Unread { group, consumer, count }) => {
                self.go_on(stream::look_at_unread(self, obj, group, consumer, count));
            }
            (Type::Stream, Use::Pending { group, owner, from, to, count, entries }) => {
                self.go_on(stream::look_at_pending(self, obj, (group, owner), (from, to), count, entries));
            }
            (Type::Stream, Use::All) => stream::look_at_entries(self, obj, 0..count),
            (Type::String, Use::Bytes(start, end)) => self.go_on(string::look(self, obj, start..end)),
            (Type::String, Use::All) => self.go_on(string::look(self, obj, 0..usize::MAX)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collections::{
        Hasher, Limits,
        object::ROOT,
        testing::{self, Random},
    };
    use holdfast_heap::{Arena, Tx};

    /// Elements come to small collections, some of which are there already: where one moves, that was told, with the size of its new block.
    #[test]
    fn where_a_packed_collection_grows_is_known() {
        let (hasher, mut random) = (Hasher::new([1, 2]), Random::new(1));
        let limits = Limits {
            hash_max_listpack_value: 200,
            set_max_listpack_value: 200,
            zset_max_listpack_value: 200,
            ..Limits::default()
        };
        let cx = testing::context(&hasher, &limits);
        let (mut arena, mut tx) = (testing::arena(64 << 20), Tx::new());
        let mut moves = [0; 4];
        for round in 0..400 {
            let ty = [Type::Hash, Type::List, Type::Set, Type::Zset][round % 4];
            let create = [hash::create, list::create, set::create, zset::create][round % 4];
            let obj = create(&mut arena, &mut tx, b"key").expect("room");
            for _ in 0..40 {
                let element = vec![b'a' + random.below(26) as u8; 1 + random.below(120) as usize];
                let (element, end) =
                    (&element[..], if random.below(2) == 0 { End::Front } else { End::Back });
                let told = match ty {
                    Type::Hash => hash::grown_size(&arena, obj, [(element, element)].into_iter()),
                    Type::Set => set::grown_size(&arena, obj, [element].into_iter()),
                    Type::Zset => zset::grown_size(&arena, obj, [element].into_iter()),
                    _ => list::grown_size(&arena, cx, obj, [(end, element)].into_iter()),
                };
                let before = arena.u64(obj + ROOT);
                match ty {
                    Type::Hash => {
                        let mut writer = hash::Writer::new(&mut arena, &mut tx, obj, cx);
                        writer.set(element, element, hash::Expiry::Keep).map(drop)
                    }
                    Type::Set => set::Writer::new(&mut arena, &mut tx, obj, cx).add(element).map(drop),
                    Type::Zset => {
                        zset::Writer::new(&mut arena, &mut tx, obj, cx).insert(element, 1.0).map(drop)
                    }
                    _ => list::Writer::new(&mut arena, &mut tx, obj, cx).push(end, element),
                }
                .expect("room");
                let after = arena.u64(obj + ROOT);
                if before == 0 || !object::is_packed(&arena, obj) {
                    continue;
                }
                let size = any::packed_size(&arena, obj, ty).1 as usize;
                assert_eq!(told.map(Arena::usable_size), (before != after).then_some(size), "{ty:?}");
                moves[round % 4] += usize::from(before != after);
            }
            testing::destroy(&mut arena, &mut tx, obj);
        }
        assert!(moves.iter().all(|&moves| moves > 300), "{moves:?}");
    }
}
