//! Sorted sets: one block, or a tree of (score, element) with a table of the members.
//!
//! A small one is a block at `ROOT` ([`small`]). A large one has, for each member, an element block `score f64, length
//! u32, member`, a word in the table at `AUX`, and a key `score f64, element u64` in the tree at `AUX2`: comparing keys
//! reads the members only where scores are equal.
//!
//! Everything that is ordered goes by ranks: a range of scores or of names is first turned into a range of ranks, in
//! O(log n), which is then counted, walked from either end, or removed.
//!
//! Scores are numbers: whoever calls keeps NaN out.

mod small;
#[cfg(test)]
mod tests;

use std::{
    cmp::Ordering,
    collections::BTreeSet,
    ops::{Bound, Range},
};

use holdfast_heap::{Arena, Full, Tx};

use super::{
    Context,
    absent::{Absent, Finder},
    object::{self, AUX, AUX2, Encoding, ROOT, Type},
    ordered::{self, Key, Ordered},
    sample::{Wanted, below},
    table::{Found, Gap, Table},
};
use small::Small;
pub use small::block_size as small_block_size;

const SCORE: usize = 8;
/// Bytes of an element block before its member.
const ELEMENT: usize = 12;

/// Scores from one to another.
pub type ScoreRange = (Bound<f64>, Bound<f64>);

/// A member with its score.
pub type Scored<'a> = (&'a [u8], f64);

fn tree(obj: u64) -> Ordered {
    Ordered::at(obj + AUX2)
}

fn table(obj: u64) -> Table {
    Table::at(obj + AUX)
}

fn small(obj: u64) -> Small {
    Small::at(obj + ROOT)
}

fn is_small(arena: &Arena, obj: u64) -> bool {
    object::encoding(arena, obj) == Encoding::Listpack
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

fn key(score: f64, element: u64) -> Key {
    let mut key = [0; 16];
    key[..SCORE].copy_from_slice(&score.to_le_bytes());
    key[SCORE..].copy_from_slice(&element.to_le_bytes());
    key
}

fn score_of(key: &Key) -> f64 {
    f64::from_bits(number(&key[..SCORE]))
}

fn element_of(key: &Key) -> u64 {
    number(&key[SCORE..])
}

fn member_of(arena: &Arena, element: u64) -> &[u8] {
    arena.bytes(element + ELEMENT as u64, arena.u32(element + SCORE as u64) as usize)
}

fn element_score(arena: &Arena, element: u64) -> f64 {
    f64::from_bits(arena.u64(element))
}

/// Whether a comes before b.
fn precedes(a: Scored, b: Scored) -> bool {
    a.1 < b.1 || a.1 == b.1 && a.0 < b.0
}

/// Whether a key comes before a member with a score.
fn key_precedes(arena: &Arena, key: &Key, scored: Scored) -> bool {
    let score = score_of(key);
    score < scored.1 || score == scored.1 && member_of(arena, element_of(key)) < scored.0
}

fn search(arena: &Arena, cx: Context, obj: u64, member: &[u8]) -> Result<Found, Gap> {
    table(obj).search(arena, cx.hasher.hash(member), |element| member_of(arena, element) == member)
}

/// Bytes of the block to which a small set moves when these members come to it; `None`: they are in it, or have room where it is.
pub fn grown_size<'m>(arena: &Arena, obj: u64, members: impl Iterator<Item = &'m [u8]>) -> Option<usize> {
    let view = small(obj).view(arena);
    let new = members.filter(|member| view.find(member).is_none());
    let (count, bytes) = new.fold((0, 0), |(count, bytes), member| (count + 1, bytes + member.len()));
    if count > 0 { small(obj).grown_size(arena, count, bytes) } else { None }
}

/// Looks for what a command that names this member will use of a large sorted set.
pub fn look(finder: &Finder, cx: Context, obj: u64, member: &[u8]) -> Result<Option<u64>, Absent> {
    let element = table(obj).try_find(finder.arena, cx.hasher.hash(member), finder.look())?;
    element.map_or(Ok(()), |element| look_at(finder, element))?;
    Ok(element)
}

/// The same for one that ranks the member, or gives it the score that `score` makes of its own, or removes it.
pub fn look_at_place(
    finder: &Finder,
    cx: Context,
    obj: u64,
    member: &[u8],
    score: impl Fn(Option<f64>) -> Option<f64>,
) -> Result<(), Absent> {
    let arena = finder.arena;
    let element = look(finder, cx, obj, member)?;
    let old = element.map(|element| element_score(arena, element));
    let score = score(old);
    match (element, score) {
        (None, Some(_)) => finder.look_to_alloc(ELEMENT + member.len()),
        (Some(_), None) => finder.go_on(table(obj).look_to_remove(finder, cx.hasher.hash(member))),
        _ => {}
    }
    for score in old.into_iter().chain(score) {
        let below = |key: &Key| {
            if score_of(key) == score {
                look_at(finder, element_of(key))?;
            }
            Ok(key_precedes(arena, key, (member, score)))
        };
        if let Ok(Some(place)) = tree(obj).look_at_way(finder, below)
            && old == Some(score)
        {
            finder.go_on(tree(obj).look_behind(finder, place));
        }
    }
    Ok(())
}

/// Looks for the members of a large sorted set at these ranks, and for what is needed to remove them if the command may do so.
pub fn look_at_ranks(finder: &Finder, cx: Context, obj: u64, ranks: Range<u64>) {
    let arena = finder.arena;
    tree(obj).try_each(arena, ranks.clone(), finder.look(), |key| {
        let element = element_of(key);
        if look_at(finder, element).is_ok() && finder.writes {
            let hash = cx.hasher.hash(member_of(arena, element));
            finder.go_on(table(obj).look_to_remove(finder, hash));
        }
    });
    if finder.writes && !ranks.is_empty() {
        finder.go_on(tree(obj).look_to_remove_ranks(finder, ranks));
    }
}

/// Looks for so many random members of a large sorted set, different ones or each drawn anew.
pub fn look_at_random(
    finder: &Finder,
    cx: Context,
    obj: u64,
    wanted: Wanted,
    mut random: impl FnMut() -> u64,
) {
    let len = len(finder.arena, obj);
    let look = |rank| look_at_ranks(finder, cx, obj, rank..rank + 1);
    match wanted {
        Wanted::Different(count) => {
            random_ranks(len, count, &mut random)
                .into_iter()
                .take_while(|_| !finder.is_full())
                .for_each(look);
        }
        Wanted::Any(count) => {
            let ranks = (0..count).map(|_| random_rank(len, &mut random));
            ranks.take_while(|_| !finder.is_full()).for_each(look);
        }
    }
}

/// Looks for what finds all members of a large sorted set by their names.
pub fn look_at_table(finder: &Finder, obj: u64) {
    table(obj).try_each(finder.arena, finder.look(), |_| ());
}

/// Looks for what a step of a [`scan`] of a large sorted set passes.
pub fn look_at_scan(finder: &Finder, obj: u64, cursor: u64, count: usize) {
    table(obj).look_at_scan(finder, cursor, count, |element| look_at(finder, element));
}

/// Looks for all members.
pub fn look_at_all(finder: &Finder, obj: u64) {
    tree(obj).try_each(finder.arena, 0..u64::MAX, finder.look(), |key| {
        finder.go_on(look_at(finder, element_of(key)));
    });
}

/// Looks for so many members with scores in a range of a large sorted set, from the least one on; from the greatest one if
/// `reverse`.
pub fn look_at_scores(
    finder: &Finder,
    cx: Context,
    obj: u64,
    (min, max): (Bound<f64>, Bound<f64>),
    reverse: bool,
    count: u64,
) -> Result<(), Absent> {
    let before = |key: &Key| Ok(is_before(score_of(key), min));
    let up_to = |key: &Key| Ok(is_up_to(score_of(key), max));
    let ranks = tree(obj).look_between(finder, before, up_to, reverse, count)?;
    look_at_ranks(finder, cx, obj, ranks);
    Ok(())
}

/// The same for a member, and those with scores in the ranges that follow from its own.
pub fn look_around(
    finder: &Finder,
    cx: Context,
    obj: u64,
    member: &[u8],
    ranges: impl Fn(f64) -> Vec<ScoreRange>,
) -> Result<(), Absent> {
    let element = look(finder, cx, obj, member)?;
    for range in element.map(|element| ranges(element_score(finder.arena, element))).into_iter().flatten() {
        finder.go_on(look_at_scores(finder, cx, obj, range, false, u64::MAX));
    }
    Ok(())
}

/// The same for names in a range, where all members have the same score. To find out where a name belongs takes names along the way.
pub fn look_at_names(
    finder: &Finder,
    cx: Context,
    obj: u64,
    (min, max): (Bound<&[u8]>, Bound<&[u8]>),
    reverse: bool,
    count: u64,
) -> Result<(), Absent> {
    let name = |key: &Key| {
        look_at(finder, element_of(key))?;
        Ok(member_of(finder.arena, element_of(key)))
    };
    let before = |key: &Key| Ok(is_before(name(key)?, min));
    let up_to = |key: &Key| Ok(is_up_to(name(key)?, max));
    let ranks = tree(obj).look_between(finder, before, up_to, reverse, count)?;
    look_at_ranks(finder, cx, obj, ranks);
    Ok(())
}

/// Whether a score or name is below those of a range, by its lower bound.
fn is_before<T: PartialOrd>(value: T, min: Bound<T>) -> bool {
    match min {
        Bound::Included(min) => value < min,
        Bound::Excluded(min) => value <= min,
        Bound::Unbounded => false,
    }
}

/// Whether a score or name is not above those of a range, by its upper bound.
fn is_up_to<T: PartialOrd>(value: T, max: Bound<T>) -> bool {
    match max {
        Bound::Included(max) => value <= max,
        Bound::Excluded(max) => value < max,
        Bound::Unbounded => true,
    }
}

fn look_at(finder: &Finder, element: u64) -> Result<(), Absent> {
    finder.look()(element, ELEMENT)?;
    finder.look()(element, block_size(finder.arena, element))
}

fn find_element(arena: &Arena, cx: Context, obj: u64, member: &[u8]) -> Option<u64> {
    search(arena, cx, obj, member).ok().map(|found| found.word)
}

/// Makes an empty sorted set under `key` and returns its object.
///
/// # Errors
/// [`Full`] if the arena has no room.
pub fn create(arena: &mut Arena, tx: &mut Tx, key: &[u8]) -> Result<u64, Full> {
    object::create(arena, tx, key, Type::Zset, Encoding::Listpack)
}

/// The number of members.
pub fn len(arena: &Arena, obj: u64) -> u64 {
    object::count(arena, obj)
}

/// The score of a member.
pub fn score(arena: &Arena, cx: Context, obj: u64, member: &[u8]) -> Option<f64> {
    if is_small(arena, obj) {
        let view = small(obj).view(arena);
        return view.find(member).map(|rank| view.get(rank).1);
    }
    find_element(arena, cx, obj, member).map(|element| element_score(arena, element))
}

/// How many members come before this one.
pub fn rank(arena: &Arena, cx: Context, obj: u64, member: &[u8]) -> Option<u64> {
    if is_small(arena, obj) {
        return small(obj).view(arena).find(member).map(|rank| rank as u64);
    }
    let element = find_element(arena, cx, obj, member)?;
    let scored = (member, element_score(arena, element));
    Some(tree(obj).rank(arena, |key| key_precedes(arena, key, scored)))
}

/// The ranks of the members with scores between two bounds.
pub fn ranks_by_score(arena: &Arena, obj: u64, min: Bound<f64>, max: Bound<f64>) -> Range<u64> {
    ranks_between(arena, obj, (min, max), |scored| scored.1, score_of)
}

/// The ranks of the members between two names. All members must have the same score: else the range means nothing.
pub fn ranks_by_name(arena: &Arena, obj: u64, min: Bound<&[u8]>, max: Bound<&[u8]>) -> Range<u64> {
    ranks_between(arena, obj, (min, max), |scored| scored.0, |key| member_of(arena, element_of(key)))
}

/// The ranks of the members of which something is between two bounds, in which they are ordered: `of_small` tells it in a small set,
/// `of_key` in a large one.
fn ranks_between<'a, T: PartialOrd + Copy>(
    arena: &'a Arena,
    obj: u64,
    (min, max): (Bound<T>, Bound<T>),
    of_small: impl Fn(Scored<'a>) -> T,
    of_key: impl Fn(&Key) -> T,
) -> Range<u64> {
    let rank = |below: &dyn Fn(T) -> bool| {
        if is_small(arena, obj) {
            small(obj).view(arena).partition_point(|scored| below(of_small(scored))) as u64
        } else {
            tree(obj).rank(arena, |key| below(of_key(key)))
        }
    };
    let start = if min == Bound::Unbounded { 0 } else { rank(&|value| is_before(value, min)) };
    let end = if max == Bound::Unbounded { len(arena, obj) } else { rank(&|value| is_up_to(value, max)) };
    start..end.max(start)
}

/// The members whose ranks are in `ranks`, which may reach beyond the set; backwards if `reverse`.
pub fn iter(arena: &Arena, obj: u64, ranks: Range<u64>, reverse: bool) -> Iter<'_> {
    let end = ranks.end.min(len(arena, obj));
    let ranks = ranks.start.min(end)..end;
    let left = (ranks.end - ranks.start) as usize;
    let source = if is_small(arena, obj) {
        Source::Small { view: small(obj).view(arena), ranks: ranks.start as usize..end as usize, reverse }
    } else {
        Source::Large(arena, tree(obj).iter(arena, ranks, reverse))
    };
    Iter { source, left }
}

/// Members in order; see [`iter`].
#[derive(Clone)]
pub struct Iter<'a> {
    source: Source<'a>,
    left: usize,
}

#[derive(Clone)]
enum Source<'a> {
    Small { view: small::View<'a>, ranks: Range<usize>, reverse: bool },
    Large(&'a Arena, ordered::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Scored<'a>;

    fn next(&mut self) -> Option<Scored<'a>> {
        self.left = self.left.checked_sub(1)?;
        match &mut self.source {
            Source::Small { view, ranks, reverse } => {
                let rank = if *reverse { ranks.next_back() } else { ranks.next() };
                rank.map(|rank| view.get(rank))
            }
            Source::Large(arena, keys) => {
                keys.next().map(|key| (member_of(arena, element_of(key)), score_of(key)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Passes about `count` members from `cursor` on (all, if the set is small) to `each` and returns the next cursor, 0
/// at the end. A member that is in the set all the time is passed at least once.
pub fn scan(arena: &Arena, obj: u64, cursor: u64, count: usize, mut each: impl FnMut(&[u8], f64)) -> u64 {
    if is_small(arena, obj) {
        iter(arena, obj, 0..u64::MAX, false).for_each(|(member, score)| each(member, score));
        return 0;
    }
    let each = |element| each(member_of(arena, element), element_score(arena, element));
    table(obj).scan(arena, cursor, count, each)
}

/// Bytes of the block that a small set lies in; `None`: it is a large one.
pub fn packed_bytes(arena: &Arena, obj: u64) -> Option<usize> {
    is_small(arena, obj).then(|| small(obj).view(arena).block_len())
}

/// Whether a set is small, and may be a large one with so many more members, of so many bytes together, the longest of so
/// many.
pub fn may_enlarge(
    arena: &Arena,
    cx: Context,
    obj: u64,
    members: usize,
    bytes: usize,
    longest: usize,
) -> bool {
    if !is_small(arena, obj) {
        return false;
    }
    let view = small(obj).view(arena);
    view.len() + members > cx.limits.zset_max_listpack_entries
        || longest > cx.limits.zset_max_listpack_value
        || !view.can_take(members, bytes)
}

/// A random member of a sorted set that is not empty.
pub fn random(arena: &Arena, obj: u64, mut random: impl FnMut() -> u64) -> Scored<'_> {
    let rank = random_rank(len(arena, obj), &mut random);
    iter(arena, obj, rank..rank + 1, false).next().expect("a rank within the set")
}

/// `sample` different random members, all if there are no more, in order.
pub fn sample(arena: &Arena, obj: u64, sample: usize, mut random: impl FnMut() -> u64) -> Vec<Scored<'_>> {
    let len = len(arena, obj);
    if sample as u64 >= len {
        return iter(arena, obj, 0..u64::MAX, false).collect();
    }
    let member = |rank| iter(arena, obj, rank..rank + 1, false).next().expect("a rank within the set");
    random_ranks(len, sample as u64, &mut random).into_iter().map(member).collect()
}

fn random_rank(len: u64, random: &mut impl FnMut() -> u64) -> u64 {
    below(len as usize, random()) as u64
}

/// Different ranks, by Robert Floyd's algorithm.
fn random_ranks(len: u64, sample: u64, random: &mut impl FnMut() -> u64) -> BTreeSet<u64> {
    let mut ranks = BTreeSet::new();
    for last in len - sample..len {
        let rank = random_rank(last + 1, random);
        if !ranks.insert(rank) {
            ranks.insert(last);
        }
    }
    ranks
}

/// Changes a sorted set.
pub struct Writer<'a> {
    arena: &'a mut Arena,
    tx: &'a mut Tx,
    obj: u64,
    cx: Context<'a>,
}

impl<'a> Writer<'a> {
    /// Changes the sorted set at `obj` within `tx`.
    pub fn new(arena: &'a mut Arena, tx: &'a mut Tx, obj: u64, cx: Context<'a>) -> Self {
        Writer { arena, tx, obj, cx }
    }

    /// Gives a member its score, adding it if need be, and returns the score that it had.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; the set has not changed.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Result<Option<f64>, Full> {
        debug_assert!(!score.is_nan());
        // There is one zero: -0 equals 0, but would print otherwise.
        let score = score + 0.0;
        if is_small(self.arena, self.obj) {
            let view = small(self.obj).view(self.arena);
            if let Some(rank) = view.find(member) {
                let old = view.get(rank).1;
                if old != score {
                    small(self.obj).set_score(self.arena, self.tx, rank, score);
                }
                return Ok(Some(old));
            }
            let limits = self.cx.limits;
            let fits = view.len() < limits.zset_max_listpack_entries
                && member.len() <= limits.zset_max_listpack_value
                && small(self.obj).can_take(self.arena, member);
            if fits {
                small(self.obj).insert(self.arena, self.tx, (member, score))?;
                self.count(1);
                return Ok(None);
            }
            self.enlarge()?;
        }
        let element = match search(self.arena, self.cx, self.obj, member) {
            Ok(found) => found.word,
            Err(gap) => {
                self.insert_large((member, score), gap)?;
                self.count(1);
                return Ok(None);
            }
        };
        let old = element_score(self.arena, element);
        if old != score {
            let place =
                tree(self.obj).place(self.arena, |key| key_precedes(self.arena, key, (member, score)));
            tree(self.obj).insert(self.arena, self.tx, place, &key(score, element))?;
            self.remove_key((member, old));
            self.arena.write_changed_u64(self.tx, element, score.to_bits());
        }
        Ok(Some(old))
    }

    /// Gives an empty set different members with their scores, which are numbers: by one write, if they are few.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; some members may be there then.
    pub fn fill<'m>(&mut self, members: impl Iterator<Item = (&'m [u8], f64)> + Clone) -> Result<(), Full> {
        let limits = self.cx.limits;
        // There is one zero.
        let few =
            members.clone().take(limits.zset_max_listpack_entries + 1).map(|(m, score)| (m, score + 0.0));
        let mut few: Vec<Scored> = few.collect();
        let fits = few.len() <= limits.zset_max_listpack_entries
            && few.iter().all(|(member, _)| member.len() <= limits.zset_max_listpack_value)
            && small::can_hold(&few);
        if few.is_empty() {
            return Ok(());
        }
        if !fits {
            self.enlarge()?;
            return members.into_iter().try_for_each(|(member, score)| self.insert(member, score).map(drop));
        }
        few.sort_unstable_by(|a, b| if precedes(*a, *b) { Ordering::Less } else { Ordering::Greater });
        small(self.obj).fill(self.arena, self.tx, &few)?;
        self.count(few.len() as i64);
        Ok(())
    }

    /// Removes a member; false if there was none.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        if is_small(self.arena, self.obj) {
            let Some(rank) = small(self.obj).view(self.arena).find(member) else { return false };
            self.remove_ranks(rank as u64..rank as u64 + 1);
            return true;
        }
        let Some(element) = find_element(self.arena, self.cx, self.obj, member) else { return false };
        self.remove_key((member, element_score(self.arena, element)));
        self.drop_element(element);
        self.count(-1);
        true
    }

    /// Removes the members whose ranks are in `ranks`, which must be within the set.
    pub fn remove_ranks(&mut self, ranks: Range<u64>) {
        let mut left = ranks.end.saturating_sub(ranks.start) as usize;
        if left == 0 {
            return;
        }
        self.count(-(left as i64));
        if is_small(self.arena, self.obj) {
            return small(self.obj).remove(self.arena, self.tx, ranks.start as usize..ranks.end as usize);
        }
        while left > 0 {
            let position = tree(self.obj).by_rank(self.arena, ranks.start).expect("ranks within the set");
            let keys = tree(self.obj).keys_in_leaf(self.arena, position).take(left);
            let elements: Vec<u64> = keys.map(element_of).collect();
            tree(self.obj).remove(self.arena, self.tx, &position, elements.len());
            elements.iter().for_each(|&element| self.drop_element(element));
            left -= elements.len();
        }
    }

    fn count(&mut self, delta: i64) {
        object::add_count(self.arena, self.tx, self.obj, delta);
    }

    /// Turns a small set into a large one.
    fn enlarge(&mut self) -> Result<(), Full> {
        let view = small(self.obj).view(self.arena);
        let members: Vec<(Vec<u8>, f64)> = (0..view.len())
            .map(|rank| view.get(rank))
            .map(|(member, score)| (member.to_vec(), score))
            .collect();
        table(self.obj).create(self.arena, self.tx)?;
        for (member, score) in members {
            let gap = table(self.obj).gap(self.arena, self.cx.hasher.hash(&member));
            if let Err(full) = self.insert_large((&member, score), gap) {
                let mut all = usize::MAX;
                tree(self.obj).release(self.arena, self.tx, &mut all, free_element);
                table(self.obj).release(self.arena, self.tx, 0, &mut all, |_, _, _, _| {});
                self.arena.write_changed_u64(self.tx, self.obj + AUX, 0);
                return Err(full);
            }
        }
        small(self.obj).free(self.arena, self.tx);
        object::set_encoding(self.arena, self.tx, self.obj, Encoding::Skiplist);
        Ok(())
    }

    /// Adds a member that is not there; whoever calls counts it.
    fn insert_large(&mut self, scored: Scored, gap: Gap) -> Result<(), Full> {
        let (member, score) = scored;
        let size = ELEMENT + member.len();
        let element = self.arena.alloc(self.tx, size)?;
        self.arena.write_by(self.tx, element, size, |out| {
            out[..SCORE].copy_from_slice(&score.to_le_bytes());
            out[SCORE..ELEMENT].copy_from_slice(&(member.len() as u32).to_le_bytes());
            out[ELEMENT..].copy_from_slice(member);
        });
        if let Err(full) = table(self.obj).insert(self.arena, self.tx, gap, element) {
            self.arena.free(self.tx, element, size);
            return Err(full);
        }
        let place = tree(self.obj).place(self.arena, |key| key_precedes(self.arena, key, scored));
        if let Err(full) = tree(self.obj).insert(self.arena, self.tx, place, &key(score, element)) {
            self.drop_element(element);
            return Err(full);
        }
        Ok(())
    }

    /// Takes a member's key out of the tree.
    fn remove_key(&mut self, scored: Scored) {
        let position = tree(self.obj).find(self.arena, |key| key_precedes(self.arena, key, scored));
        tree(self.obj).remove(self.arena, self.tx, &position.expect("each member has a key"), 1);
    }

    /// Takes a member out of the table and frees its element.
    fn drop_element(&mut self, element: u64) {
        let hash = self.cx.hasher.hash(member_of(self.arena, element));
        let found = table(self.obj).find(self.arena, hash, |word| word == element);
        table(self.obj).remove(self.arena, self.tx, found.expect("each element is in the table"));
        free_block(self.arena, self.tx, element);
    }
}

fn free_block(arena: &mut Arena, tx: &mut Tx, element: u64) {
    let size = block_size(arena, element);
    arena.free(tx, element, size);
}

fn block_size(arena: &Arena, element: u64) -> usize {
    ELEMENT + arena.u32(element + SCORE as u64) as usize
}

fn free_element(arena: &mut Arena, tx: &mut Tx, key: &Key) {
    free_block(arena, tx, element_of(key));
}

/// Frees blocks until `budget` is spent or the payload is gone (true). `ROOT` then says where in the table it is.
pub(super) fn release(arena: &mut Arena, tx: &mut Tx, obj: u64, budget: &mut usize) -> bool {
    if is_small(arena, obj) {
        small(obj).free(arena, tx);
        *budget = budget.saturating_sub(1);
        return true;
    }
    if !tree(obj).release(arena, tx, budget, free_element) {
        return false;
    }
    let position = arena.u64(obj + ROOT);
    let Some(position) = table(obj).release(arena, tx, position, budget, |_, _, _, _| {}) else {
        return true;
    };
    arena.write_changed_u64(tx, obj + ROOT, position);
    false
}

/// Looks for what [`release`] uses of a large sorted set.
pub(super) fn look_to_release(finder: &Finder, obj: u64, budget: &mut usize) -> Result<(), Absent> {
    tree(obj).look_to_release(finder, budget, |key, _| {
        finder.go_on(finder.look()(element_of(key), ELEMENT));
    })?;
    // As long as the tree has elements, the word is 0.
    let position = finder.arena.u64(obj + ROOT);
    table(obj).look_from(finder, position, budget, (1, 0), |_| Ok(()));
    Ok(())
}

/// Bytes allocated for the payload; see [`any::heap_bytes`](super::any::heap_bytes).
pub(super) fn heap_bytes(arena: &Arena, obj: u64) -> u64 {
    if is_small(arena, obj) {
        return small(obj).heap_bytes(arena);
    }
    let elements = table(obj).words(arena).map(|element| Arena::usable_size(block_size(arena, element)));
    tree(obj).heap_bytes(arena) + table(obj).heap_bytes(arena) + elements.sum::<usize>() as u64
}

/// Checks the structure and returns the number of members, or says what is wrong.
pub fn check(arena: &Arena, cx: Context, obj: u64) -> Result<u64, String> {
    let sum = if is_small(arena, obj) {
        small(obj).check(arena)?;
        small(obj).view(arena).len() as u64
    } else {
        let in_tree = tree(obj).check(arena, |key, next| {
            key_precedes(arena, key, (member_of(arena, element_of(next)), score_of(next)))
        })?;
        let in_table = table(obj).check(arena)?;
        if in_tree != in_table {
            return Err(format!("sorted set {obj:#x} has {in_tree} keys and {in_table} elements"));
        }
        in_tree
    };
    if sum != len(arena, obj) {
        return Err(format!("sorted set {obj:#x} counts {} members and has {sum}", len(arena, obj)));
    }
    let members = iter(arena, obj, 0..sum, false);
    for (before, scored) in
        iter(arena, obj, 1..sum, false).zip(members).map(|(scored, before)| (before, scored))
    {
        if !precedes(before, scored) {
            return Err(format!("sorted set {obj:#x} is out of order at {scored:?}"));
        }
    }
    match iter(arena, obj, 0..sum, false).find(|scored| score(arena, cx, obj, scored.0) != Some(scored.1)) {
        Some(lost) => Err(format!("sorted set {obj:#x} does not find its member {lost:?}")),
        None => Ok(sum),
    }
}
