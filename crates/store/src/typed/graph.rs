//! Directed graphs. A vertex is a key, and its value a sorted set: its members are the vertices at the other ends of its
//! edges, and a member's score says which edges those are: 1 to it, 3 from it, 2 both. So those that a vertex leads to are
//! the members with the scores 1 and 2, and those that lead to it the ones with 2 and 3.
//!
//! An edge is written down at both of its ends: its *halves*.

use crate::{
    collections::{
        object::Encoding,
        redo_max,
        zset::{self, Writer},
    },
    format::entry_word::Type,
    txn::{
        Txn,
        error::{Error, Result},
    },
    typed::zset::Zset,
};
use std::ops::{
    Bound::{self, Included},
    Range, RangeBounds,
};

/// Which half of an edge a vertex has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The edge begins at the vertex.
    Out = 1,
    /// It ends there.
    In = 2,
}

/// One of the two halves of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half<'k> {
    /// The key of the vertex that has it.
    pub vertex: &'k [u8],
    /// Whether it is the edge's beginning or its end.
    pub direction: Direction,
    /// The vertex at the other end.
    pub other: &'k [u8],
}

impl<'k> Half<'k> {
    /// Both halves of an edge, in the order in which they are added.
    pub fn both(from: &'k [u8], to: &'k [u8]) -> [Half<'k>; 2] {
        [
            Half { vertex: to, direction: Direction::In, other: from },
            Half { vertex: from, direction: Direction::Out, other: to },
        ]
    }
}

/// The halves that a vertex has of the edges between it and another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves(u8);

impl Halves {
    const NONE: Halves = Halves(0);

    /// What a member's score says; `None`: the sorted set is no vertex.
    pub fn from_score(score: f64) -> Option<Halves> {
        [1, 3, 2].map(Halves).into_iter().find(|halves| halves.score() == score)
    }

    fn score(self) -> f64 {
        match self.0 {
            1 => 1.0,
            3 => 2.0,
            _ => 3.0,
        }
    }

    /// Whether this one is there.
    pub fn has(self, direction: Direction) -> bool {
        self.0 & direction as u8 != 0
    }

    /// How many they are.
    pub fn count(self) -> u64 {
        self.0.count_ones().into()
    }

    fn of(half: Direction) -> Halves {
        Halves(half as u8)
    }

    fn and(self, others: Halves) -> Halves {
        Halves(self.0 | others.0)
    }

    fn without(self, others: Halves) -> Halves {
        Halves(self.0 & !others.0)
    }
}

/// The score of a member that only one half is there of.
pub fn score(half: Direction) -> f64 {
    Halves::of(half).score()
}

/// Between which scores the members are that have a half.
pub fn scores(half: Direction) -> (Bound<f64>, Bound<f64>) {
    match half {
        Direction::Out => (Included(1.0), Included(2.0)),
        Direction::In => (Included(2.0), Included(3.0)),
    }
}

/// Whether a member with this score has a half.
pub fn has(score: f64, half: Direction) -> bool {
    scores(half).contains(&score)
}

/// The ranks of the members of a vertex that have a half.
pub fn ranks(vertex: Zset, half: Direction) -> Range<u64> {
    let (min, max) = scores(half);
    vertex.ranks_by_score(min, max)
}

/// What [`Txn::graph_set`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed<'k> {
    /// Halves that were not as they should be: those that edges begin with.
    pub out_halves: u64,
    /// And those that they end with.
    pub in_halves: u64,
    /// The vertices that have had them, or have them now.
    pub vertices: Vec<&'k [u8]>,
}

/// What a vertex that is made or goes comes to besides its members, and a split of a large one, in elements ([`redo_max`]).
const ELEMENTS_OF_VERTEX: usize = 4;
const ELEMENTS_OF_SPLIT: usize = 16;

/// A vertex, its neighbour, and halves that the vertex has of the edges between them.
type Entry<'k> = (&'k [u8], &'k [u8], Halves);

/// What a transaction is to do with a vertex.
#[derive(Default)]
struct Work {
    members: usize,
    bytes: usize,
    longest: usize,
}

impl Work {
    fn of<'m>(members: impl IntoIterator<Item = &'m [u8]>) -> Work {
        let mut work = Work::default();
        for member in members {
            work.members += 1;
            work.bytes += member.len();
            work.longest = work.longest.max(member.len());
        }
        work
    }
}

/// The halves that a vertex has of the edges between it and another one; an error if it is a sorted set of something else.
fn halves(vertex: Option<Zset>, other: &[u8]) -> Result<Halves> {
    match vertex.and_then(|vertex| vertex.score(other)) {
        None => Ok(Halves::NONE),
        Some(score) => Halves::from_score(score).ok_or(Error::WrongType),
    }
}

/// Whether all scores of a sorted set are those of a vertex.
fn is_vertex(zset: Zset) -> bool {
    let count = |score: f64| {
        let ranks = zset.ranks_by_score(Included(score), Included(score));
        ranks.end - ranks.start
    };
    count(1.0) + count(2.0) + count(3.0) == zset.len()
}

impl Txn<'_> {
    /// The halves that a vertex has of the edges between it and another one; an error if it is a key of something else.
    pub fn graph_halves(&mut self, db: u8, vertex: &[u8], other: &[u8]) -> Result<Halves> {
        halves(self.zset_at(db, vertex)?, other)
    }

    /// Sees to it that halves are there, or not there. All are, or, without room for them, none.
    pub fn graph_set<'k>(
        &mut self,
        db: u8,
        wanted: impl IntoIterator<Item = Half<'k>>,
        there: bool,
    ) -> Result<Changed<'k>> {
        let entry = |half: Half<'k>| (half.vertex, half.other, Halves::of(half.direction));
        let mut wanted: Vec<Entry> = wanted.into_iter().map(entry).collect();
        // In the order of the keys, so that what is written does not depend on chance, and each vertex is looked up once.
        wanted.sort_unstable_by_key(|&(vertex, other, _)| (vertex, other));
        wanted.dedup_by(|next, kept| {
            let is_same = (next.0, next.1) == (kept.0, kept.1);
            if is_same {
                kept.2 = kept.2.and(next.2);
            }
            is_same
        });
        let (mut changed, mut entries) = (Changed::default(), Vec::<Entry>::new());
        for of_vertex in wanted.chunk_by(|one, next| one.0 == next.0) {
            let vertex = self.zset_at(db, of_vertex[0].0)?;
            for &(name, other, asked) in of_vertex {
                let old = halves(vertex, other)?;
                let now = if there { old.and(asked) } else { old.without(asked) };
                let differs = |half| u64::from(old.has(half) != now.has(half));
                changed.out_halves += differs(Direction::Out);
                changed.in_halves += differs(Direction::In);
                if now != old {
                    entries.push((name, other, now));
                }
            }
        }
        if entries.is_empty() {
            return Ok(changed);
        }
        let by_vertex = || entries.chunk_by(|one, next| one.0 == next.0);
        let works: Vec<_> = by_vertex()
            .map(|of_vertex| (of_vertex[0].0, Work::of(of_vertex.iter().map(|&(_, other, _)| other))))
            .collect();
        let redo = self.warm_vertices(db, &works)?;
        let heap = &self.shared().heap;
        if there && heap.allocated_bytes() + redo as u64 > heap.bytes_max() {
            return Err(Error::Full);
        }
        self.reserve_besides(redo)?;
        let make = there.then_some(Encoding::Listpack);
        for of_vertex in by_vertex() {
            let vertex = of_vertex[0].0;
            self.change(db, vertex, Type::Zset, make, |arena, tx, context, obj| {
                let mut writer = Writer::new(arena, tx, obj, context);
                for &(_, other, now) in of_vertex {
                    if now == Halves::NONE {
                        writer.remove(other);
                    } else {
                        writer.insert(other, now.score())?;
                    }
                }
                Ok(())
            })?;
            changed.vertices.push(vertex);
        }
        Ok(changed)
    }

    /// The first of a vertex's neighbours, `count` at most, and the halves that it has of the edges between them; an error if the
    /// key has something else, be it behind the first ones.
    pub fn graph_neighbours(&mut self, db: u8, vertex: &[u8], count: u64) -> Result<Vec<(Vec<u8>, Halves)>> {
        let Some(zset) = self.zset_at(db, vertex)? else { return Ok(Vec::new()) };
        if !is_vertex(zset) {
            return Err(Error::WrongType);
        }
        let halves = |score| Halves::from_score(score).ok_or(Error::WrongType);
        zset.iter(0..count, false).map(|(other, score)| Ok((other.to_vec(), halves(score)?))).collect()
    }

    /// Removes all halves of the edges between a vertex and its first neighbours, which are those that [`Txn::graph_neighbours`]
    /// has returned, and returns the vertices that had any. All go, or, without room for that, none. Keys of neighbours that are no
    /// vertices are left as they are.
    pub fn graph_detach<'k>(
        &mut self,
        db: u8,
        vertex: &'k [u8],
        neighbours: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<Vec<&'k [u8]>> {
        let (mut works, mut count) = (Vec::new(), 0);
        for neighbour in neighbours {
            count += 1;
            let zset = match self.zset_at(db, neighbour) {
                Err(Error::WrongType) => None,
                found => found?,
            };
            if neighbour != vertex && zset.is_some_and(|zset| is_vertex(zset) && zset.score(vertex).is_some())
            {
                works.push((neighbour, Work::of([vertex])));
            }
        }
        works.sort_unstable_by_key(|&(neighbour, _)| neighbour);
        let redo = self.warm_vertices(db, &works)?;
        self.warm(db, vertex, Type::Zset)?;
        self.reserve_besides(redo + redo_max(count, 0))?;
        let mut changed: Vec<&[u8]> = works.into_iter().map(|(neighbour, _)| neighbour).collect();
        for neighbour in &changed {
            self.zset_remove(db, neighbour, [vertex])?;
        }
        if count > 0 {
            changed.push(vertex);
        }
        if self.zset_at(db, vertex)?.is_some_and(|zset| zset.len() == count as u64) {
            self.remove(db, vertex);
        } else {
            self.zset_remove_ranks(db, vertex, 0..count as u64)?;
        }
        Ok(changed)
    }

    /// Has vertices in memory, and returns the bytes of log that what is to be done with them takes at most.
    fn warm_vertices(&mut self, db: u8, works: &[(&[u8], Work)]) -> Result<usize> {
        let (mut elements, mut bytes, mut conversions) = (0, 0, 0);
        for (vertex, work) in works {
            elements += 2 * work.members + ELEMENTS_OF_VERTEX;
            bytes += vertex.len() + work.bytes;
            let Some(located) = self.warm_object(db, vertex, Type::Zset)? else { continue };
            let (arena, context) = self.parts(vertex, located);
            match zset::packed_bytes(arena, located.obj) {
                // It may be written anew.
                Some(packed) => bytes += packed,
                None => elements += ELEMENTS_OF_SPLIT,
            }
            if zset::may_enlarge(arena, context, located.obj, work.members, work.bytes, work.longest) {
                conversions += redo_max(zset::len(arena, located.obj) as usize, 0)
            }
        }
        // What is made of some members may get another encoding by the next.
        Ok(2 * redo_max(elements, bytes) + conversions)
    }
}
