//! What a command is going to use of a collection and is not in memory: found by the same descents that the command will make.
//!
//! What a command will use is told by its arguments. Where they tell too much, that costs a read at most; what they do not tell
//! is read when it is used, with the collection's partition locked.

use super::{
    Context,
    absent::{Absent, Finder},
    any, hash, list,
    object::{self, Type},
    positions_between, set, stream, string, zset,
};
use std::ops::{Bound, Range};

/// Elements of a collection of which all is looked for. What is larger is read as it is used.
const ALL_MAX: u64 = 1 << 16;
/// The header of each kind of packed block, at most.
const PACKED_HEADER: usize = 12;

/// What a command is going to use of what is under a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Use<'a> {
    /// A field or a member.
    Element(&'a [u8]),
    /// A member of a sorted set and its place in the order, and the place that another score gives it.
    Place(&'a [u8], Option<f64>),
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
    /// Bytes of a string, from one to before another, which may be beyond its end.
    Bytes(usize, usize),
    /// All of it, whatever it is.
    All,
}

impl Finder<'_> {
    /// Looks for what a command will use of a collection.
    pub fn find(&self, cx: Context, obj: u64, uses: &[Use]) {
        if uses.is_empty() || self.look()(obj, object::HEADER as usize).is_err() {
            return;
        }
        let (arena, ty) = (self.arena, object::ty(self.arena, obj));
        if object::is_packed(arena, obj) {
            let block = arena.u64(obj + object::ROOT);
            if block != 0 && self.look()(block, PACKED_HEADER).is_ok() {
                self.go_on(self.look()(block, any::packed_size(arena, obj, ty).1 as usize));
            }
            return;
        }
        for wanted in uses {
            self.go_on(self.find_one(cx, obj, ty, wanted));
        }
    }

    fn find_one(&self, cx: Context, obj: u64, ty: Type, wanted: &Use) -> Result<(), Absent> {
        let count = object::count(self.arena, obj);
        match (ty, *wanted) {
            (Type::Hash, Use::Element(name)) => hash::look(self, cx, obj, name),
            (Type::Set, Use::Element(member)) => set::look(self, cx, obj, member),
            (Type::Zset, Use::Element(member)) => zset::look(self, cx, obj, member).map(drop),
            (Type::Zset, Use::Place(member, score)) => zset::look_at_place(self, cx, obj, member, score),
            (Type::Zset, Use::Positions { first, last, reverse }) => {
                let Range { start, end } = positions_between(first, last, count);
                let ranks = if reverse { count - end..count - start } else { start..end };
                zset::look_at_ranks(self, obj, ranks, reverse)
            }
            (Type::Zset, Use::Scores { min, max, reverse, count }) => {
                zset::look_at_scores(self, obj, (min, max), reverse, count)
            }
            (Type::List, Use::Positions { first, last, .. }) => {
                let range = positions_between(first, last, count);
                list::look(self, obj, range.start, range.end - range.start)
            }
            (Type::Stream, Use::Ids { from, to, reverse, count }) => {
                stream::look(self, obj, from, to, reverse, count)
            }
            (Type::String, Use::Bytes(start, end)) => string::look(self, obj, start..end),
            (Type::String, Use::All) => string::look(self, obj, 0..usize::MAX),
            (_, Use::All) if count <= ALL_MAX => {
                self.find_all(obj, ty);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn find_all(&self, obj: u64, ty: Type) {
        match ty {
            Type::Hash => hash::look_at_all(self, obj),
            Type::Set => set::look_at_all(self, obj),
            Type::Zset => zset::look_at_all(self, obj),
            Type::List => list::look_at_all(self, obj),
            Type::Stream => stream::look_at_all(self, obj),
            Type::String => {}
        }
    }
}
