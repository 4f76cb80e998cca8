//! Hash tables: from a few entries to thousands of millions, growing a bucket at a time.
//!
//! A bucket (256 bytes) is `15 one-byte fingerprints (0: empty), zero u8, 15 x (word u64, hash u64)`. The word is the
//! owner's and never 0: the offset of an element's block, or the element itself. The hash is all 64 bits of it, so
//! that growing reads no element.
//!
//! Buckets are found through a trie over the hash, from its top bit down. A *slot* names a bucket or, where one more
//! bit must tell two buckets apart, a *node*: 2^k slots, taken by the next k bits. A node doubles until it has 256
//! slots; then a child takes its slot. A bucket that needs fewer bits than its node has (its *local* bits) fills
//! several adjacent slots. A slot word is `offset | bits << 48 | NODE`: a bucket's local bits or a node's k. The slot
//! of the root is in the table's owner and is, as a node, one of no bits.
//!
//! So each bucket holds one contiguous range of hashes, whatever has been split or merged. A scan's cursor is a hash:
//! everything below it has been returned, and every element is returned exactly once unless buckets merge meanwhile.
//!
//! A full bucket splits in two (about 150 bytes of redo) and two siblings that together are half empty merge. A
//! chain or a probe into a neighbour would fill buckets better than 69 %, but costs every miss a second bucket.

mod look;

use std::collections::HashSet;

use holdfast_heap::{Arena, Full, Tx};
use siphasher::sip::SipHasher13;

use super::{absent::no_look, sample::choose};
use crate::util::probe;

const BUCKET: usize = 256;
const ENTRIES: usize = 15;
const ALL_ENTRIES: u32 = (1 << ENTRIES) - 1;
const ENTRY: usize = 16;
/// Two sibling buckets with no more entries than this become one.
const MERGE: usize = 8;
/// Buckets that are tried for a random entry, on average.
const TRIES: u64 = 4;
/// Log2 of the slots of a node that does not double any more.
const NODE_BITS_MAX: u32 = 8;

const NODE: u64 = 1 << 63;
const BITS_SHIFT: u32 = 48;
const OFFSET: u64 = (1 << BITS_SHIFT) - 1;
/// A cursor is the top 48 bits of a hash, so that it stays an exact integer in clients whose numbers are doubles.
const CURSOR_SHIFT: u32 = 16;

/// The hash of elements: SipHash-1-3 under a secret, so that clients cannot make elements collide.
#[derive(Clone, Copy)]
pub struct Hasher {
    sip: SipHasher13,
}

impl Hasher {
    /// A hasher with a key. The hashes are stored: a data folder has one key for ever.
    pub fn new(key: [u64; 2]) -> Hasher {
        Hasher { sip: SipHasher13::new_with_keys(key[0], key[1]) }
    }

    /// The hash of `bytes`.
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.sip.hash(bytes)
    }
}

/// A table, named by the heap offset of its root slot.
#[derive(Clone, Copy)]
pub struct Table {
    root: u64,
}

/// An entry that [`Table::find`] found; outdated by any change of the table.
#[derive(Clone, Copy)]
pub struct Found {
    /// The entry's word.
    pub word: u64,
    hash: u64,
    bucket: u64,
    index: usize,
}

impl Found {
    /// The hash of the element.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// Where an entry will be looked for soon; outdated by any change of the table.
#[derive(Clone, Copy)]
pub struct Ahead {
    hash: u64,
    bucket: u64,
}

/// Where an entry that is not there would go; outdated by any change of the table.
#[derive(Clone, Copy)]
pub struct Gap {
    hash: u64,
    bucket: u64,
}

impl Gap {
    /// The hash of the element.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

impl Ahead {
    /// The word of the entry that a search will come upon first.
    #[inline]
    pub fn word(self, arena: &Arena) -> Option<u64> {
        let Ahead { hash, bucket } = self;
        let mut entries = candidates(arena, bucket, hash);
        entries.find(|entry| arena.u64(entry + 8) == hash).map(|entry| arena.u64(entry))
    }
}

/// Where a hash leads: a bucket, and the node whose slots name it.
#[derive(Clone, Copy)]
struct Place {
    bucket: u64,
    /// The bucket's local bits.
    bits: u32,
    /// The slot that names the node.
    owner: u64,
    /// The node's first slot; the root slot itself if that names the bucket.
    node: u64,
    node_bits: u32,
    /// Bits of the hash that lead to the node.
    depth: u32,
}

/// A try of [`Table::random`]. Each takes as many random words, whatever comes of it, so that it is known what the next one is.
struct Draw {
    hash: u64,
    chance: u64,
    nth: u64,
}

impl Draw {
    fn new(random: &mut impl FnMut() -> u64) -> Draw {
        Draw { hash: random(), chance: random(), nth: random() }
    }

    /// The index of an entry of a bucket, if that is accepted: in proportion to its density, relative to [`TRIES`] times the mean.
    fn accept(&self, used: u32, depth: u32, count: u64) -> Option<usize> {
        let density = u128::from(used.count_ones()) << depth;
        let is_accepted = density > (u128::from(self.chance) * u128::from(TRIES) * u128::from(count)) >> 64;
        let nth = (u128::from(self.nth) * u128::from(used.count_ones())) >> 64;
        is_accepted.then(|| Ones(used).nth(nth as usize).expect("fewer than the entries in use"))
    }
}

impl Place {
    /// Bits of the hash that lead to the bucket.
    fn bucket_depth(&self) -> u32 {
        self.depth + self.bits
    }

    /// How many slots name the bucket.
    fn span(&self) -> usize {
        1 << (self.node_bits - self.bits)
    }

    /// The index in the node of the first slot that names the bucket.
    fn first_slot(&self, hash: u64) -> usize {
        index(hash, self.depth, self.node_bits) & !(self.span() - 1)
    }

    /// The bucket that was split from this one, or this one from that, if neither has been since.
    fn sibling(&self, arena: &Arena, hash: u64) -> Option<u64> {
        if self.bits == 0 {
            return None;
        }
        let word = arena.u64(self.node + (self.first_slot(hash) ^ self.span()) as u64 * 8);
        (word & NODE == 0 && slot_bits(word) == self.bits).then_some(word & OFFSET)
    }
}

/// Bits `depth..depth + bits` of a hash, from the top.
fn index(hash: u64, depth: u32, bits: u32) -> usize {
    if bits == 0 { 0 } else { (hash << depth >> (64 - bits)) as usize }
}

/// The first hash after those that share the first `depth` bits with `hash`; none after the last.
fn range_end(hash: u64, depth: u32) -> Option<u64> {
    let rest = u64::MAX.checked_shr(depth).unwrap_or(0);
    (hash | rest).checked_add(1)
}

fn slot(offset: u64, bits: u32) -> u64 {
    offset | u64::from(bits) << BITS_SHIFT
}

fn slot_bits(word: u64) -> u32 {
    ((word & !NODE) >> BITS_SHIFT) as u32
}

fn fingerprint(hash: u64) -> u8 {
    (hash as u8).max(1)
}

fn fingerprints(arena: &Arena, bucket: u64) -> &[u8; 16] {
    arena.bytes(bucket, 16).try_into().expect("16 bytes")
}

/// A bit for each entry in use.
fn in_use(arena: &Arena, bucket: u64) -> u32 {
    !probe::matches(fingerprints(arena, bucket), 0) & ALL_ENTRIES
}

/// Whether a removal that leaves so many entries in a bucket looks at its sibling: of two that are merged, one is at most half of the two.
fn merges(left: usize) -> bool {
    left <= MERGE / 2
}

fn entry_at(bucket: u64, index: usize) -> u64 {
    bucket + ((1 + index) * ENTRY) as u64
}

/// The entries of a bucket with the fingerprint of a hash.
#[inline]
fn candidates(arena: &Arena, bucket: u64, hash: u64) -> impl Iterator<Item = u64> {
    Ones(probe::matches(fingerprints(arena, bucket), fingerprint(hash)) & ALL_ENTRIES)
        .map(move |index| entry_at(bucket, index))
}

/// The positions of the ones in a mask.
#[derive(Clone)]
struct Ones(u32);

impl Iterator for Ones {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let mask = self.0;
        self.0 &= mask.wrapping_sub(1);
        (mask != 0).then(|| mask.trailing_zeros() as usize)
    }
}

impl Table {
    /// The table whose root slot lies at heap offset `root`; 0 there is no table.
    pub fn at(root: u64) -> Table {
        Table { root }
    }

    /// Makes an empty table.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; nothing has changed.
    pub fn create(self, arena: &mut Arena, tx: &mut Tx) -> Result<(), Full> {
        let bucket = arena.alloc(tx, BUCKET)?;
        arena.write(tx, bucket, &[0; ENTRY]);
        arena.write_u64(tx, self.root, slot(bucket, 0));
        Ok(())
    }

    /// Asks for the memory of the bucket in which a hash will be looked for. All of the table must be in memory.
    #[inline]
    pub fn prefetch_bucket(self, arena: &Arena, hash: u64) -> Ahead {
        let bucket = self.bucket(arena, hash);
        probe::prefetch(arena.bytes(bucket, BUCKET));
        Ahead { hash, bucket }
    }

    /// The entry with this hash whose word `is` accepts, or where it would go.
    #[inline]
    pub fn search(self, arena: &Arena, hash: u64, mut is: impl FnMut(u64) -> bool) -> Result<Found, Gap> {
        let bucket = self.bucket(arena, hash);
        Ones(probe::matches(fingerprints(arena, bucket), fingerprint(hash)) & ALL_ENTRIES)
            .find_map(|index| {
                let entry = entry_at(bucket, index);
                let word = arena.u64(entry);
                (arena.u64(entry + 8) == hash && is(word)).then_some(Found { word, hash, bucket, index })
            })
            .ok_or(Gap { hash, bucket })
    }

    /// The entry with this hash whose word `is` accepts.
    #[inline]
    pub fn find(self, arena: &Arena, hash: u64, is: impl FnMut(u64) -> bool) -> Option<Found> {
        self.search(arena, hash, is).ok()
    }

    /// Where an entry with this hash goes, of an element that is not in the table.
    pub fn gap(self, arena: &Arena, hash: u64) -> Gap {
        Gap { hash, bucket: self.bucket(arena, hash) }
    }

    /// Adds an entry; `word` is not 0.
    ///
    /// # Errors
    /// [`Full`] if the arena has no room; the entries are unchanged.
    pub fn insert(self, arena: &mut Arena, tx: &mut Tx, gap: Gap, word: u64) -> Result<(), Full> {
        debug_assert_ne!(word, 0);
        let Gap { hash, mut bucket } = gap;
        loop {
            let Some(index) = Ones(!in_use(arena, bucket) & ALL_ENTRIES).next() else {
                self.split(arena, tx, hash)?;
                bucket = self.bucket(arena, hash);
                continue;
            };
            arena.write_array(tx, entry_at(bucket, index), &encode(word, hash));
            arena.write_u8(tx, bucket + index as u64, fingerprint(hash));
            return Ok(());
        }
    }

    /// Gives an entry another word, which is not 0.
    pub fn replace(self, arena: &mut Arena, tx: &mut Tx, found: Found, word: u64) {
        debug_assert_ne!(word, 0);
        arena.write_changed_u64(tx, entry_at(found.bucket, found.index), word);
    }

    /// Removes an entry.
    pub fn remove(self, arena: &mut Arena, tx: &mut Tx, found: Found) {
        arena.write_u8(tx, found.bucket + found.index as u64, 0);
        if merges(in_use(arena, found.bucket).count_ones() as usize) {
            self.merge(arena, tx, found.hash);
        }
    }

    /// The words of all entries.
    pub fn words(self, arena: &Arena) -> Words<'_> {
        Words { arena, table: self, bucket: 0, rest: Ones(0), next: Some(0) }
    }

    /// Passes about `count` words (whole buckets) from `cursor` on to `each`, and returns the next cursor, 0 at the
    /// end. An element that is in the table from the scan's start to its end is passed at least once.
    pub fn scan(self, arena: &Arena, cursor: u64, count: usize, mut each: impl FnMut(u64)) -> u64 {
        let mut at = cursor << CURSOR_SHIFT;
        let mut passed = 0;
        loop {
            let place = self.descend(arena, at);
            for index in Ones(in_use(arena, place.bucket)) {
                each(arena.u64(entry_at(place.bucket, index)));
                passed += 1;
            }
            let Some(end) = range_end(at, place.bucket_depth()) else { return 0 };
            at = end;
            let cursor = at >> CURSOR_SHIFT;
            if passed >= count && cursor << CURSOR_SHIFT == at {
                return cursor;
            }
        }
    }

    /// A random entry of a table with `count` entries, at least one.
    ///
    /// A random hash picks a bucket in proportion to its range of hashes; it is accepted in proportion to its
    /// density, relative to four times the mean, so that every entry is as likely as any other. Only a bucket that
    /// is denser than that, about one in 100,000, is not given its due.
    pub fn random(self, arena: &Arena, count: u64, mut random: impl FnMut() -> u64) -> Found {
        loop {
            let draw = Draw::new(&mut random);
            let place = self.descend(arena, draw.hash);
            if let Some(index) = draw.accept(in_use(arena, place.bucket), place.bucket_depth(), count) {
                let entry = entry_at(place.bucket, index);
                let (word, hash) = (arena.u64(entry), arena.u64(entry + 8));
                return Found { word, hash, bucket: place.bucket, index };
            }
        }
    }

    /// `sample` different random words of a table with `count` entries, all if there are no more.
    pub fn sample(
        self,
        arena: &Arena,
        count: u64,
        sample: usize,
        mut random: impl FnMut() -> u64,
    ) -> Vec<u64> {
        // Up to a third of them, a word is new at the second draw at the latest, on average.
        if sample as u64 >= count / 3 {
            return choose(self.words(arena).collect(), sample, random);
        }
        let mut seen = HashSet::with_capacity(sample);
        let mut words = Vec::with_capacity(sample);
        while words.len() < sample {
            let word = self.random(arena, count, &mut random).word;
            if seen.insert(word) {
                words.push(word);
            }
        }
        words
    }

    /// Frees up to about `budget` blocks of the table from `position` on (0 at first), and each entry's own by
    /// `free`, which counts them. Returns where to go on; none when the table is gone. Nothing else may be done with
    /// the table meanwhile.
    pub fn release(
        self,
        arena: &mut Arena,
        tx: &mut Tx,
        position: u64,
        budget: &mut usize,
        mut free: impl FnMut(&mut Arena, &mut Tx, u64, &mut usize),
    ) -> Option<u64> {
        let mut at = position;
        let mut path = Vec::new();
        while *budget > 0 {
            // Nodes whose range lies wholly before the position are freed already; `at` does not lead into them.
            path.clear();
            let place =
                self.descend_by(arena, at, |place| path.push((place.node, place.node_bits, place.depth)));
            for index in Ones(in_use(arena, place.bucket)) {
                let word = arena.u64(entry_at(place.bucket, index));
                free(arena, tx, word, budget);
            }
            let end = range_end(at, place.bucket_depth());
            arena.free(tx, place.bucket, BUCKET);
            *budget = budget.saturating_sub(1);
            for &(node, bits, _) in path.iter().rev().take_while(|(_, _, depth)| range_end(at, *depth) == end)
            {
                arena.free(tx, node, node_size(bits));
                *budget = budget.saturating_sub(1);
            }
            at = end?;
        }
        Some(at)
    }

    /// Bytes allocated for buckets and nodes.
    pub fn heap_bytes(self, arena: &Arena) -> u64 {
        let (mut bytes, mut next) = (0, Some(0));
        let mut path = Vec::new();
        while let Some(at) = next {
            path.clear();
            let place = self.descend_by(arena, at, |place| path.push((place.node_bits, place.depth)));
            let end = range_end(at, place.bucket_depth());
            // A node is counted with the last of its buckets.
            let ended = path.iter().filter(|(_, depth)| range_end(at, *depth) == end);
            bytes += Arena::usable_size(BUCKET);
            bytes += ended.map(|(bits, _)| Arena::usable_size(node_size(*bits))).sum::<usize>();
            next = end;
        }
        bytes as u64
    }

    /// The bucket of a hash.
    #[inline]
    fn bucket(self, arena: &Arena, hash: u64) -> u64 {
        let Ok((bucket, _)) = self.try_bucket(arena, hash, no_look);
        bucket
    }

    /// The same with its depth, unless `look` fails of a slot before it is read, by its place and length.
    #[inline]
    fn try_bucket<E>(
        self,
        arena: &Arena,
        hash: u64,
        look: impl Fn(u64, usize) -> Result<(), E>,
    ) -> Result<(u64, u32), E> {
        let mut word = arena.u64(self.root);
        let (mut hash, mut depth, mut node_bits) = (hash, 0, 0);
        while word & NODE != 0 {
            depth += node_bits;
            node_bits = slot_bits(word);
            let at = (word & OFFSET) + (hash >> (64 - node_bits)) * 8;
            look(at, 8)?;
            word = arena.u64(at);
            hash <<= node_bits;
        }
        Ok((word & OFFSET, depth + slot_bits(word)))
    }

    fn descend(self, arena: &Arena, hash: u64) -> Place {
        self.descend_by(arena, hash, |_| ())
    }

    /// Follows `hash` to its bucket and shows `visit` each node on the way.
    fn descend_by(self, arena: &Arena, hash: u64, mut visit: impl FnMut(&Place)) -> Place {
        let mut place =
            Place { bucket: 0, bits: 0, owner: self.root, node: self.root, node_bits: 0, depth: 0 };
        let mut at = self.root;
        loop {
            let word = arena.u64(at);
            if word & NODE == 0 {
                return Place { bucket: word & OFFSET, bits: slot_bits(word), ..place };
            }
            place.depth += place.node_bits;
            place.owner = at;
            place.node = word & OFFSET;
            place.node_bits = slot_bits(word);
            visit(&place);
            at = place.node + index(hash, place.depth, place.node_bits) as u64 * 8;
        }
    }

    /// Splits the bucket of a hash.
    fn split(self, arena: &mut Arena, tx: &mut Tx, hash: u64) -> Result<(), Full> {
        let mut place = self.descend(arena, hash);
        let depth = place.bucket_depth();
        assert!(depth < 64, "more than {ENTRIES} elements of one hash in the table at {:#x}", self.root);
        let bucket = arena.alloc(tx, BUCKET)?;
        if place.bits == place.node_bits {
            let grown = grow(arena, tx, &mut place, hash);
            if grown.is_err() {
                arena.free(tx, bucket, BUCKET);
                return grown;
            }
        }

        let mut left = *fingerprints(arena, place.bucket);
        let mut content = [0; BUCKET];
        let mut moved = 0;
        for (index, fingerprint) in left[..ENTRIES].iter_mut().enumerate() {
            let entry = arena.bytes(entry_at(place.bucket, index), ENTRY);
            if hash_of(entry) << depth >> 63 == 1 {
                content[moved] = std::mem::take(fingerprint);
                moved += 1;
                content[moved * ENTRY..(moved + 1) * ENTRY].copy_from_slice(entry);
            }
        }
        arena.write(tx, bucket, &content[..(1 + moved) * ENTRY]);
        arena.write_changed(tx, place.bucket, &left);

        let half = place.span() / 2;
        let bits = place.bits + 1;
        let mut slots = Vec::with_capacity(2 * half * 8);
        for word in [slot(place.bucket, bits), slot(bucket, bits)] {
            (0..half).for_each(|_| slots.extend_from_slice(&word.to_le_bytes()));
        }
        arena.write(tx, place.node + place.first_slot(hash) as u64 * 8, &slots);
        Ok(())
    }

    /// Merges the bucket of a hash with its sibling, if they are siblings still and would half fill one.
    fn merge(self, arena: &mut Arena, tx: &mut Tx, hash: u64) {
        let place = self.descend(arena, hash);
        let Some(sibling) = place.sibling(arena, hash) else { return };
        let (span, first) = (place.span(), place.first_slot(hash));
        let used = in_use(arena, place.bucket);
        let mut sibling_free = Ones(!in_use(arena, sibling) & ALL_ENTRIES);
        if sibling_free.clone().count() + MERGE < ENTRIES + used.count_ones() as usize {
            return;
        }
        for index in Ones(used) {
            let to = sibling_free.next().expect("counted above");
            let print = arena.u8(place.bucket + index as u64);
            arena.copy(tx, entry_at(place.bucket, index), entry_at(sibling, to), ENTRY);
            arena.write_u8(tx, sibling + to as u64, print);
        }
        arena.free(tx, place.bucket, BUCKET);
        let slots = slot(sibling, place.bits - 1).to_le_bytes().repeat(2 * span);
        arena.write(tx, place.node + (first & !span) as u64 * 8, &slots);
        if place.bits == place.node_bits {
            self.shrink(arena, tx, &place);
        }
    }

    /// Halves a node in which no slot needs its last bit, as often as that is so.
    fn shrink(self, arena: &mut Arena, tx: &mut Tx, place: &Place) {
        let slots = arena.bytes(place.node, node_size(place.node_bits));
        let words = slots.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        // A child's slot needs all bits of its parent.
        let bits = words
            .map(|word| if word & NODE != 0 { place.node_bits } else { slot_bits(word) })
            .max()
            .expect("a node has slots");
        if bits == place.node_bits {
            return;
        }
        if bits == 0 {
            // Its only bucket takes the node's place, where all bits of the parent lead.
            let bucket = arena.u64(place.node) & OFFSET;
            let parent_bits = if place.owner == self.root { 0 } else { NODE_BITS_MAX };
            arena.write_u64(tx, place.owner, slot(bucket, parent_bits));
        } else {
            let kept: Vec<u8> =
                slots.chunks_exact(8).step_by(1 << (place.node_bits - bits)).flatten().copied().collect();
            let Ok(node) = arena.alloc(tx, kept.len()) else { return };
            arena.write(tx, node, &kept);
            arena.write_u64(tx, place.owner, slot(node, bits) | NODE);
        }
        arena.free(tx, place.node, node_size(place.node_bits));
    }

    /// Checks the structure and returns the number of entries, or says what is wrong.
    pub fn check(self, arena: &Arena) -> Result<u64, String> {
        let mut count = 0;
        let mut next = Some(0);
        while let Some(at) = next {
            let place = self.descend(arena, at);
            let depth = place.bucket_depth();
            let wrong = |what: &str| Err(format!("bucket at {:#x}: {what}", place.bucket));
            if place.bits > place.node_bits {
                return wrong("more local bits than its node has");
            }
            let slots = arena.bytes(place.node + place.first_slot(at) as u64 * 8, place.span() * 8);
            if slots.chunks_exact(8).any(|word| *word != slot(place.bucket, place.bits).to_le_bytes()) {
                return wrong("its slots differ");
            }
            for index in Ones(in_use(arena, place.bucket)) {
                let entry = arena.bytes(entry_at(place.bucket, index), ENTRY);
                let hash = hash_of(entry);
                if fingerprint(hash) != fingerprints(arena, place.bucket)[index] {
                    return wrong("a fingerprint is not its entry's");
                }
                if hash < at || range_end(at, depth).is_some_and(|end| hash >= end) {
                    return wrong("an entry belongs elsewhere");
                }
                if entry[..8] == [0; 8] {
                    return wrong("an entry without a word");
                }
                count += 1;
            }
            next = range_end(at, depth);
        }
        Ok(count)
    }
}

/// Makes a node of one bit more in place of the place's. A node that does not double any more stays; the bucket's
/// slot becomes a child with one bit.
fn grow(arena: &mut Arena, tx: &mut Tx, place: &mut Place, hash: u64) -> Result<(), Full> {
    if place.node_bits == NODE_BITS_MAX {
        let at = place.node + index(hash, place.depth, place.node_bits) as u64 * 8;
        let depth = place.bucket_depth();
        *place = Place { bits: 0, owner: at, node: at, node_bits: 0, depth, bucket: place.bucket };
    }
    let bits = place.node_bits + 1;
    let mut slots = Vec::with_capacity(node_size(bits));
    if place.node_bits == 0 {
        slots.extend(slot(place.bucket, 0).to_le_bytes().repeat(2));
    } else {
        for word in arena.bytes(place.node, node_size(place.node_bits)).chunks_exact(8) {
            slots.extend_from_slice(word);
            slots.extend_from_slice(word);
        }
    }
    let node = arena.alloc(tx, slots.len())?;
    arena.write(tx, node, &slots);
    arena.write_u64(tx, place.owner, slot(node, bits) | NODE);
    if place.node_bits > 0 {
        arena.free(tx, place.node, node_size(place.node_bits));
    }
    place.node = node;
    place.node_bits = bits;
    Ok(())
}

fn node_size(bits: u32) -> usize {
    8 << bits
}

fn encode(word: u64, hash: u64) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..8].copy_from_slice(&word.to_le_bytes());
    entry[8..].copy_from_slice(&hash.to_le_bytes());
    entry
}

fn hash_of(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry[8..ENTRY].try_into().expect("8 bytes"))
}

/// The words of a table; see [`Table::words`].
pub struct Words<'a> {
    arena: &'a Arena,
    table: Table,
    bucket: u64,
    /// The entries of the bucket that are still to come.
    rest: Ones,
    /// The first hash after the bucket's.
    next: Option<u64>,
}

impl Iterator for Words<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            if let Some(index) = self.rest.next() {
                return Some(self.arena.u64(entry_at(self.bucket, index)));
            }
            let at = self.next?;
            let place = self.table.descend(self.arena, at);
            self.bucket = place.bucket;
            self.rest = Ones(in_use(self.arena, place.bucket));
            self.next = range_end(at, place.bucket_depth());
        }
    }
}

#[cfg(test)]
mod tests;
