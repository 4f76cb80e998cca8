//! Small sorted sets: one block, whose entries stay where they were written and are ordered by their offsets.
//!
//! ```text
//! size u32 | capacity u16, count u16, end u16, dead u16 | offset u16 × capacity | entries
//! ```
//! The first `count` offsets name the entries in order; an entry is `score f64, length u16, member`. So a new score
//! logs itself and the offsets between the old rank and the new one, where packed entries in order would log half
//! of the block, twice. Entries that no offset names are dead; `dead` counts their bytes until the block is rebuilt.

use std::ops::Range;

use holdfast_heap::{Arena, Full, Tx};

use super::{
    super::{ENTRIES_MAX, PACKED_BYTES_MAX},
    Scored, precedes,
};

const HEADER: usize = 12;
const COUNT: u64 = 6;
/// Bytes of an entry before its member.
const ENTRY: usize = 10;

/// A small set, by the heap offset of the word that names its block; 0 there is an empty set.
#[derive(Clone, Copy)]
pub(super) struct Small {
    root: u64,
}

/// Bytes of a block that holds a set.
#[inline]
pub fn block_size(arena: &Arena, block: u64) -> usize {
    arena.u32(block) as usize
}

/// A block read as a whole, or nothing.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    fn u16(self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    fn capacity(self) -> usize {
        if self.bytes.is_empty() { 0 } else { self.u16(4) }
    }

    /// The number of members.
    pub fn len(self) -> usize {
        if self.bytes.is_empty() { 0 } else { self.u16(COUNT as usize) }
    }

    fn end(self) -> usize {
        self.u16(8)
    }

    fn dead(self) -> usize {
        self.u16(10)
    }

    /// Bytes of the entries that an offset names.
    fn live(self) -> usize {
        if self.bytes.is_empty() { 0 } else { self.end() - HEADER - 2 * self.capacity() - self.dead() }
    }

    /// Bytes of the block.
    pub fn block_len(self) -> usize {
        self.bytes.len()
    }

    /// Whether so many more members, of so many bytes together, are within what offsets of 16 bits can name, with what a block has to spare.
    pub fn can_take(self, members: usize, bytes: usize) -> bool {
        self.len() + members <= ENTRIES_MAX && self.live() + ENTRY * members + bytes <= PACKED_BYTES_MAX
    }

    fn offset(self, rank: usize) -> usize {
        self.u16(HEADER + 2 * rank)
    }

    /// The offsets from `rank` on.
    fn offsets(self, rank: usize) -> &'a [u8] {
        &self.bytes[HEADER + 2 * rank..HEADER + 2 * self.len()]
    }

    /// The member with that rank.
    pub fn get(self, rank: usize) -> Scored<'a> {
        let entry = &self.bytes[self.offset(rank)..];
        let score = f64::from_le_bytes(entry[..8].try_into().expect("8 bytes"));
        let len = usize::from(u16::from_le_bytes([entry[8], entry[9]]));
        (&entry[ENTRY..ENTRY + len], score)
    }

    /// The first rank whose member does not satisfy `below`.
    pub fn partition_point(self, mut below: impl FnMut(Scored<'a>) -> bool) -> usize {
        partition_point(self.len(), |rank| below(self.get(rank)))
    }

    /// The rank of a member.
    pub fn find(self, member: &[u8]) -> Option<usize> {
        (0..self.len()).find(|&rank| self.get(rank).0 == member)
    }
}

impl Small {
    /// The set whose block the word at `root` names.
    pub fn at(root: u64) -> Small {
        Small { root }
    }

    /// Reads it.
    pub fn view(self, arena: &Arena) -> View<'_> {
        let bytes = match arena.u64(self.root) {
            0 => &[],
            block => arena.bytes(block, arena.u32(block) as usize),
        };
        View { bytes }
    }

    /// Whether another member is within what offsets can name.
    pub fn can_take(self, arena: &Arena, member: &[u8]) -> bool {
        self.view(arena).can_take(1, member.len())
    }

    /// Bytes of the block to which it moves if so many members come to it, of so many bytes together; `None`: they have room where it is.
    pub fn grown_size(self, arena: &Arena, members: usize, bytes: usize) -> Option<usize> {
        let view = self.view(arena);
        let need = ENTRY * members + bytes;
        let has_room = view.len() + members <= view.capacity() && view.end() + need <= view.bytes.len();
        (!has_room).then(|| shape_for(view.len(), view.live() + need).1)
    }

    /// Adds a member that is not in the set; [`Small::can_take`] holds for it.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; nothing has changed.
    pub fn insert(self, arena: &mut Arena, tx: &mut Tx, scored: Scored) -> Result<(), Full> {
        let view = self.view(arena);
        let (len, need) = (view.len(), ENTRY + scored.0.len());
        if len == view.capacity() || view.end() + need > view.bytes.len() {
            self.rebuild(arena, tx, need)?;
        }
        let view = self.view(arena);
        let (end, dead) = (view.end(), view.dead());
        let rank = view.partition_point(|other| precedes(other, scored));
        let offsets = [&(end as u16).to_le_bytes(), view.offsets(rank)].concat();
        let block = arena.u64(self.root);
        arena.write(tx, block + end as u64, &encode(scored));
        arena.write_changed(tx, block + (HEADER + 2 * rank) as u64, &offsets);
        set_counts(arena, tx, block, len + 1, end + need, dead);
        Ok(())
    }

    /// Gives an empty set its members, in their order, which [`can_hold`] has said to be few enough.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; nothing has changed.
    pub fn fill(self, arena: &mut Arena, tx: &mut Tx, members: &[Scored]) -> Result<(), Full> {
        debug_assert!(self.view(arena).bytes.is_empty());
        let live = members.iter().map(|(member, _)| ENTRY + member.len()).sum();
        self.write(arena, tx, members.iter().copied(), members.len(), live, 0)
    }

    /// Gives the member at `rank` another score, and the rank that goes with it.
    pub fn set_score(self, arena: &mut Arena, tx: &mut Tx, rank: usize, score: f64) {
        let view = self.view(arena);
        let scored = (view.get(rank).0, score);
        let offset = view.offset(rank);
        // Its new rank is the number of other members that precede it.
        let other = |i: usize| view.get(i + usize::from(i >= rank));
        let to = partition_point(view.len() - 1, |i| precedes(other(i), scored));
        let from = rank.min(to);
        let mut offsets: Vec<[u8; 2]> =
            (from..=rank.max(to)).map(|rank| (view.offset(rank) as u16).to_le_bytes()).collect();
        let moved = offsets.remove(rank - from);
        offsets.insert(to - from, moved);
        let block = arena.u64(self.root);
        let end = view.end();
        arena.write_changed_u64(tx, block + offset as u64, score.to_bits());
        arena.write_changed(tx, block + (HEADER + 2 * from) as u64, offsets.as_flattened());
        arena.record_anew_if_shorter(tx, block, end);
    }

    /// Removes the members with these ranks, which must be within the set.
    pub fn remove(self, arena: &mut Arena, tx: &mut Tx, ranks: Range<usize>) {
        let view = self.view(arena);
        let len = view.len() - ranks.len();
        if len == 0 {
            return self.free(arena, tx);
        }
        let dead = view.dead() + ranks.clone().map(|rank| ENTRY + view.get(rank).0.len()).sum::<usize>();
        let end = view.end();
        let offsets = view.offsets(ranks.end).to_vec();
        let block = arena.u64(self.root);
        arena.write_changed(tx, block + (HEADER + 2 * ranks.start) as u64, &offsets);
        set_counts(arena, tx, block, len, end, dead);
        if dead > 64.max(self.view(arena).live() / 2) {
            // Without room for a smaller block the larger one is kept.
            let _ = self.rebuild(arena, tx, 0);
        }
    }

    /// Frees the block; the set is then empty.
    pub fn free(self, arena: &mut Arena, tx: &mut Tx) {
        let block = arena.u64(self.root);
        if block != 0 {
            let size = arena.u32(block) as usize;
            arena.free(tx, block, size);
            arena.write_u64(tx, self.root, 0);
        }
    }

    /// Moves what is alive to a block with room for one more entry of `need` bytes, and a quarter to spare.
    fn rebuild(self, arena: &mut Arena, tx: &mut Tx, need: usize) -> Result<(), Full> {
        // A copy, because the members are read while the arena changes.
        let old = self.view(arena).bytes.to_vec();
        let view = View { bytes: &old };
        self.write(arena, tx, (0..view.len()).map(|rank| view.get(rank)), view.len(), view.live(), need)
    }

    /// Puts `len` members, whose entries have `live` bytes, into a new block with room for `need` bytes more, and a quarter to spare.
    fn write<'m>(
        self,
        arena: &mut Arena,
        tx: &mut Tx,
        members: impl Iterator<Item = Scored<'m>>,
        len: usize,
        live: usize,
        need: usize,
    ) -> Result<(), Full> {
        let (capacity, size) = shape_for(len, live + need);
        let start = HEADER + 2 * capacity;
        let mut content = vec![0; start];
        content.reserve(live);
        content[..4].copy_from_slice(&(size as u32).to_le_bytes());
        let counts = [capacity as u16, len as u16, (start + live) as u16].map(u16::to_le_bytes);
        content[4..10].copy_from_slice(counts.as_flattened());
        for (rank, scored) in members.enumerate() {
            let offset = (content.len() as u16).to_le_bytes();
            content[HEADER + 2 * rank..][..2].copy_from_slice(&offset);
            encode_into(&mut content, scored);
        }
        let block = arena.alloc(tx, size)?;
        arena.write(tx, block, &content);
        self.free(arena, tx);
        arena.write_u64(tx, self.root, block);
        Ok(())
    }

    /// Bytes allocated for the block.
    pub fn heap_bytes(self, arena: &Arena) -> u64 {
        match arena.u64(self.root) {
            0 => 0,
            block => Arena::usable_size(block_size(arena, block)) as u64,
        }
    }

    /// Checks that the offsets name different entries, or says what is wrong.
    pub fn check(self, arena: &Arena) -> Result<(), String> {
        let view = self.view(arena);
        let start = HEADER + 2 * view.capacity();
        let mut places: Vec<(usize, usize)> = (0..view.len())
            .map(|rank| (view.offset(rank), view.offset(rank) + ENTRY + view.get(rank).0.len()))
            .collect();
        places.sort_unstable();
        let inside = places.iter().all(|place| start <= place.0 && place.1 <= view.end());
        let apart = places.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        let live: usize = places.iter().map(|place| place.1 - place.0).sum();
        if inside && apart && live == view.live() && view.len() <= view.capacity() {
            return Ok(());
        }
        Err(format!("the offsets of block {:#x} do not name its entries", arena.u64(self.root)))
    }
}

/// How many offsets a block has for so many members, and its bytes if their entries take so many: a quarter to spare.
fn shape_for(len: usize, bytes: usize) -> (usize, usize) {
    let capacity = len + len / 4 + 2;
    (capacity, Arena::usable_size(HEADER + 2 * capacity + bytes + bytes / 4))
}

/// The first of `0..len` that does not satisfy `below`.
fn partition_point(len: usize, mut below: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = (low + high) / 2;
        if below(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Whether these members are within what the offsets of an empty set can name.
pub fn can_hold(members: &[Scored]) -> bool {
    View { bytes: &[] }.can_take(members.len(), members.iter().map(|(member, _)| member.len()).sum())
}

fn encode(scored: Scored) -> Vec<u8> {
    let mut entry = Vec::with_capacity(ENTRY + scored.0.len());
    encode_into(&mut entry, scored);
    entry
}

fn encode_into(out: &mut Vec<u8>, (member, score): Scored) {
    out.extend_from_slice(&score.to_le_bytes());
    out.extend_from_slice(&(member.len() as u16).to_le_bytes());
    out.extend_from_slice(member);
}

fn set_counts(arena: &mut Arena, tx: &mut Tx, block: u64, count: usize, end: usize, dead: usize) {
    let counts = [count as u16, end as u16, dead as u16].map(u16::to_le_bytes);
    arena.write_changed(tx, block + COUNT, counts.as_flattened());
    arena.record_anew_if_shorter(tx, block, end);
}
