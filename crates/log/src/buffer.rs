//! A piece of the log in memory, filled by many threads at once without a lock.
//!
//! A thread reserves a range with one `fetch_add`, fills it, and adds its length to `completed`. Sealing sets a
//! bit in the same word as the reservations, so that a reservation comes either before the seal, and is waited
//! for, or after it, and is refused.
//!
//! **Recycling.** Buffers are reused, so a thread may stall between finding the active buffer and its
//! `fetch_add`, and wake when that buffer has been written and lies among the spares, or is active again at
//! another place of the log. While it is a spare it is still sealed, and the reservation is refused; the number
//! that it added is overwritten by [`Buffer::install`]. If it is active again, the reservation is as good as any,
//! because the capacity never changes and the base is read only after the reservation succeeded: from then on
//! the buffer cannot be sealed and recycled before the thread has completed.

use std::ptr;

use holdfast_io::{AlignedBuf, BLOCK};

use crate::{
    layout::{BATCH_ALIGN, BATCH_HEADER, BatchHeader, Lsn, block_ceil, block_offset},
    sync::{AtomicPtr, AtomicU64, Mutex, Ordering, spin_loop, yield_now},
};

const SEALED: u64 = 1 << 63;
/// `completed` counts bytes below this bit and batches above it.
const BATCH_SHIFT: u32 = 40;
const COMPLETED: u64 = (1 << BATCH_SHIFT) - 1;
const UNKNOWN: u64 = u64::MAX;

/// Keeps two words that all threads write out of one cache line (pairs of which are fetched together).
#[repr(align(128))]
struct Line<T>(T);

/// Memory for a contiguous range of the log.
pub(crate) struct Buffer {
    /// Bytes reserved, and [`SEALED`]. More than `capacity` once a reservation did not fit.
    reserved: Line<AtomicU64>,
    /// Bytes and batches filled.
    completed: Line<AtomicU64>,
    base: Line<AtomicU64>,
    /// Where the reservations that did fit end; known once one did not.
    end: AtomicU64,
    capacity: u64,
    /// Starts at the block that holds `base`; null while there is no memory. What it points to is only written in ranges
    /// that one thread owns: a reservation until it is completed, and all of it by the committer once the buffer is sealed
    /// and complete.
    start: AtomicPtr<u8>,
    /// Owns what `start` points to; never touched otherwise.
    memory: Mutex<Option<AlignedBuf>>,
}

impl Buffer {
    /// A sealed buffer that can take `capacity` bytes of batches.
    pub fn new(capacity: u64) -> Self {
        Self {
            reserved: Line(AtomicU64::new(SEALED)),
            completed: Line(AtomicU64::new(0)),
            base: Line(AtomicU64::new(0)),
            end: AtomicU64::new(UNKNOWN),
            capacity,
            start: AtomicPtr::new(ptr::null_mut()),
            memory: Mutex::new(None),
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        if self.start.load(Ordering::Relaxed).is_null() { 0 } else { self.capacity }
    }

    /// Gives the memory of a sealed and written buffer back, until it is installed again. A thread that found it active
    /// may still come late, but it does not get past the seal.
    pub fn release_memory(&self) {
        debug_assert!(self.reserved.0.load(Ordering::Relaxed) & SEALED != 0);
        self.start.store(ptr::null_mut(), Ordering::Relaxed);
        *self.memory.lock() = None;
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The LSN of the first byte.
    pub fn base(&self) -> Lsn {
        self.base.0.load(Ordering::Relaxed)
    }

    /// Opens a sealed and written (or new) buffer for reservations from `base` on.
    pub fn install(&self, base: Lsn) {
        debug_assert!(self.reserved.0.load(Ordering::Relaxed) & SEALED != 0);
        if self.start.load(Ordering::Relaxed).is_null() {
            let mut memory = AlignedBuf::zeroed(BLOCK + block_ceil(self.capacity) as usize);
            self.start.store(memory.as_mut_ptr(), Ordering::Relaxed);
            *self.memory.lock() = Some(memory);
        }
        self.completed.0.store(0, Ordering::Relaxed);
        self.end.store(UNKNOWN, Ordering::Relaxed);
        self.base.0.store(base, Ordering::Release);
        // Not a store: what late reservations have added meanwhile comes before it.
        self.reserved.0.swap(0, Ordering::Release);
    }

    /// Takes the next `len` bytes; returns their offset from the base, or `None` if they do not fit or the
    /// buffer is sealed. Who gets an offset must [`Buffer::fill`] it soon.
    pub fn reserve(&self, len: u64) -> Option<u64> {
        let offset = self.reserved.0.fetch_add(len, Ordering::AcqRel);
        if offset & SEALED != 0 || offset > self.capacity {
            return None;
        }
        if offset + len > self.capacity {
            // Ours is the first that does not fit; who seals must learn where the others end.
            self.end.store(offset, Ordering::Release);
            return None;
        }
        Some(offset)
    }

    /// Writes a batch into the reserved range at `offset`; returns its LSN. `payload_crc` continues the seed.
    #[inline(always)]
    pub fn fill(&self, offset: u64, payload: &[u8], payload_crc: u32, epoch: u32, durable: Lsn) -> Lsn {
        let base = self.base();
        let header = BatchHeader { payload_len: payload.len() as u32, lsn: base + offset, epoch, durable };
        let len = header.batch_len();
        debug_assert!(offset + len <= self.capacity);
        let bytes = header.encode(payload_crc);
        // SAFETY: `offset .. offset + len` is reserved for us alone and within the memory, which is a block larger than the
        // capacity, and which is there from the install that let us reserve until we have completed. All parts lie within
        // `len`. The padding is less than a granule, and what is written of it too much is overwritten.
        unsafe {
            let at = self.start.load(Ordering::Relaxed).add(block_offset(base) + offset as usize);
            at.add(len as usize - BATCH_ALIGN).write_bytes(0, BATCH_ALIGN);
            at.add(BATCH_HEADER).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
            at.copy_from_nonoverlapping(bytes.as_ptr(), BATCH_HEADER);
        }
        self.completed.0.fetch_add(len | 1 << BATCH_SHIFT, Ordering::Release);
        header.lsn
    }

    /// Whether something was reserved since it was installed.
    pub fn is_used(&self) -> bool {
        self.reserved.0.load(Ordering::Relaxed) & !SEALED != 0
    }

    /// Bytes reserved so far by batches that fit. Not to be called while another thread may seal.
    pub fn reserved(&self) -> u64 {
        self.end_of(self.reserved.0.load(Ordering::Acquire))
    }

    /// Where in the log the reservations so far end; `None` while it is full, sealed, or being opened again.
    pub fn tail(&self) -> Option<Lsn> {
        // The seal is older than the next base, and that older than the reservations behind it: between two looks that find
        // the same base, what is reserved and not sealed is so from that base on.
        let base = self.base.0.load(Ordering::Acquire);
        let reserved = self.reserved.0.load(Ordering::Acquire);
        (reserved <= self.capacity && self.base() == base).then_some(base + reserved)
    }

    /// The batches at its start, if it begins at `base` and whatever was reserved so far is filled. Only for the committer, before
    /// it gives back what begins there: others may seal the buffer meanwhile, and fill what comes behind.
    pub fn filled(&self, base: Lsn) -> Option<&[u8]> {
        let begins = self.base.0.load(Ordering::Acquire);
        // Not the other way round: what is reserved is no less than what is completed, so if it was no more later, no reservation
        // was open.
        let completed = self.completed.0.load(Ordering::Acquire) & COMPLETED;
        let reserved = self.reserved.0.load(Ordering::Acquire);
        if begins != base || self.base() != base || completed != reserved || completed > self.capacity {
            return None;
        }
        // SAFETY: the bytes are within the memory and filled, nobody writes to them before the committer, who is our only caller, gives the
        // buffer back, and it has not been installed elsewhere meanwhile: its base is the same.
        Some(unsafe {
            std::slice::from_raw_parts(
                self.start.load(Ordering::Relaxed).add(block_offset(base)),
                completed as usize,
            )
        })
    }

    /// Refuses reservations from now on; returns the bytes reserved before.
    pub fn seal(&self) -> u64 {
        let reserved = self.reserved.0.fetch_or(SEALED, Ordering::AcqRel);
        debug_assert!(reserved & SEALED == 0);
        self.end_of(reserved)
    }

    fn end_of(&self, reserved: u64) -> u64 {
        if reserved <= self.capacity {
            return reserved;
        }
        let mut end = UNKNOWN;
        spin_until(|| {
            end = self.end.load(Ordering::Acquire);
            end != UNKNOWN
        });
        end
    }

    /// Waits until the `len` bytes that were reserved before the seal are filled, and returns the sealed buffer
    /// with the number of its batches.
    pub fn wait_complete(&self, len: u64) -> (Sealed<'_>, u64) {
        let mut completed = 0;
        spin_until(|| {
            completed = self.completed.0.load(Ordering::Acquire);
            completed & COMPLETED == len
        });
        (Sealed { buffer: self, len }, completed >> BATCH_SHIFT)
    }
}

/// A sealed buffer with no thread left in it. Only the committer makes one, and one at a time of a buffer.
pub(crate) struct Sealed<'a> {
    buffer: &'a Buffer,
    len: u64,
}

impl<'a> Sealed<'a> {
    /// The batches.
    pub fn bytes(&self) -> &'a [u8] {
        let start = block_offset(self.buffer.base());
        // SAFETY: the buffer is sealed and complete, so that nobody writes to it before the committer, who is our only
        // caller, gives it back or completes its blocks, which changes none of these bytes; and they are within the memory.
        unsafe {
            std::slice::from_raw_parts(
                self.buffer.start.load(Ordering::Relaxed).add(start),
                self.len as usize,
            )
        }
    }

    /// Completes the first and the last of the units (blocks, or parts of such) that it touches, and returns all of them.
    /// `prefix`: what comes before the base in its unit.
    pub fn into_units(self, unit: usize, prefix: &[u8]) -> &'a [u8] {
        let base = self.buffer.base();
        assert!(BLOCK.is_multiple_of(unit) && prefix.len() as u64 == base % unit as u64);
        let start = block_offset(base) - prefix.len();
        let end = block_offset(base) + self.len as usize;
        let padded = end.next_multiple_of(unit);
        // SAFETY: the buffer is sealed and complete, so that nobody writes to it before the committer, who is
        // our only caller, gives it back; and `padded` bytes are within the memory.
        unsafe {
            let memory = self.buffer.start.load(Ordering::Relaxed);
            memory.add(start).copy_from_nonoverlapping(prefix.as_ptr(), prefix.len());
            memory.add(end).write_bytes(0, padded - end);
            std::slice::from_raw_parts(memory.add(start), padded - start)
        }
    }
}

/// Waits for what another running thread does within nanoseconds, unless it was preempted.
fn spin_until(mut done: impl FnMut() -> bool) {
    let mut rounds = 0;
    while !done() {
        rounds += 1;
        if rounds < 200 && !cfg!(loom) { spin_loop() } else { yield_now() }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::{
        sync::{Arc, atomic::AtomicBool},
        thread,
    };

    const LEN: u64 = 32;

    fn append(buffer: &Buffer, byte: u8) -> Option<Lsn> {
        let offset = buffer.reserve(LEN)?;
        Some(buffer.fill(offset, &[byte; 8], 0, 1, 0))
    }

    /// What is in the buffer once it is sealed: each batch where its appender was told, and nothing else.
    fn check(buffer: &Buffer, base: Lsn, lens: u64, appended: &[(Lsn, u8)]) {
        let (sealed, batches) = buffer.wait_complete(lens);
        assert_eq!((batches, lens), (appended.len() as u64, appended.len() as u64 * LEN));
        let blocks = sealed.into_units(BLOCK, &[]);
        for &(lsn, byte) in appended {
            let batch = &blocks[(lsn - base) as usize..][..LEN as usize];
            assert_eq!(BatchHeader::decode(batch).lsn, lsn);
            assert_eq!(batch[BATCH_HEADER..], [byte; 8]);
        }
    }

    /// Who reserves is waited for, and who comes after the seal is refused, or, once the buffer is open again, lands there.
    #[test]
    fn a_batch_is_in_the_buffer_before_or_after_it_was_sealed_and_used_again() {
        crate::sync::model(|| {
            const NEXT: Lsn = 8192;
            let buffer = Arc::new(Buffer::new(4 * LEN));
            buffer.install(4096);
            let late = thread::spawn({
                let buffer = buffer.clone();
                move || append(&buffer, 7)
            });
            let mine = append(&buffer, 9).expect("there is room");
            let len = buffer.seal();
            // The late one is among them, or not.
            let (first, _) = buffer.wait_complete(len);
            let blocks = first.into_units(BLOCK, &[]).to_vec();
            buffer.install(NEXT);
            let lsn = late.join().expect("it appends");
            let second = buffer.seal();
            let (before, after): (Vec<_>, Vec<_>) =
                lsn.map(|lsn| (lsn, 7)).into_iter().partition(|&(lsn, _)| lsn < NEXT);
            assert_eq!(len, (1 + before.len() as u64) * LEN);
            for (lsn, byte) in before.into_iter().chain([(mine, 9)]) {
                assert_eq!(blocks[(lsn - 4096) as usize + BATCH_HEADER..][..8], [byte; 8]);
            }
            check(&buffer, NEXT, second, &after);
        });
    }

    /// What is filled at its start is seen whole or not at all while others append.
    #[test]
    fn nothing_that_is_not_filled_is_seen_while_others_append() {
        crate::sync::model(|| {
            const BASE: Lsn = 4096;
            let buffer = Arc::new(Buffer::new(4 * LEN));
            buffer.install(BASE);
            // Stand-ins for the bytes of batches, whose order the model does not try.
            let written: Arc<[AtomicBool; 2]> = Arc::default();
            let threads = [7, 9].map(|byte| {
                let (buffer, written) = (buffer.clone(), written.clone());
                thread::spawn(move || {
                    let offset = buffer.reserve(LEN).expect("there is room");
                    written[(offset / LEN) as usize].store(true, Ordering::Relaxed);
                    buffer.fill(offset, &[byte; 8], 0, 1, 0)
                })
            });
            let seen = buffer.filled(BASE).map_or(0, <[u8]>::len) as u64 / LEN;
            assert!((0..seen).all(|batch| written[batch as usize].load(Ordering::Relaxed)));
            threads.into_iter().for_each(|thread| _ = thread.join().expect("it appends"));
            let filled = buffer.filled(BASE).expect("all is");
            for (batch, lsn) in filled.chunks(LEN as usize).zip([BASE, BASE + LEN]) {
                assert_eq!(BatchHeader::decode(batch).lsn, lsn);
            }
            assert_eq!((filled.len() as u64, buffer.filled(BASE + LEN)), (2 * LEN, None));
            buffer.seal();
            assert_eq!(buffer.filled(BASE), None);
        });
    }

    /// A batch that does not fit is put nowhere, and the seal learns where the others end.
    #[test]
    fn what_does_not_fit_leaves_the_others_as_they_are() {
        crate::sync::model(|| {
            let buffer = Arc::new(Buffer::new(LEN));
            buffer.install(4096);
            let other = thread::spawn({
                let buffer = buffer.clone();
                move || append(&buffer, 7)
            });
            let mine = append(&buffer, 9);
            let len = buffer.seal();
            let other = other.join().expect("it appends");
            let appended: Vec<_> =
                [(mine, 9), (other, 7)].into_iter().filter_map(|(lsn, byte)| Some((lsn?, byte))).collect();
            check(&buffer, 4096, len, &appended);
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_does_not_fit_and_what_comes_after_the_seal() {
        let buffer = Buffer::new(128);
        assert_eq!(buffer.reserve(32), None, "a spare is sealed");
        buffer.install(4096 + 16);
        assert_eq!(buffer.reserve(64), Some(0));
        assert_eq!(buffer.tail(), Some(4096 + 16 + 64));
        assert_eq!(buffer.reserve(96), None);
        assert_eq!(buffer.tail(), None, "where the log goes on is not known yet");
        assert_eq!(buffer.reserve(32), None, "nothing is let in behind a batch that did not fit");
        assert_eq!(buffer.reserved(), 64);
        assert_eq!(buffer.seal(), 64);
        assert_eq!(buffer.tail(), None);
        assert_eq!(buffer.reserve(32), None);
    }

    #[test]
    fn works_again_after_its_memory_was_given_back() {
        let buffer = Buffer::new(128);
        assert_eq!(buffer.memory(), 0);
        for round in 0..2 {
            buffer.install(4096);
            assert_eq!(buffer.memory(), 128);
            assert_eq!(buffer.reserve(48), Some(0));
            buffer.fill(0, &[round; 24], 0, 1, 0);
            let (sealed, _) = buffer.wait_complete(buffer.seal());
            assert_eq!(sealed.into_units(BLOCK, &[])[24..48], [round; 24]);
            buffer.release_memory();
            assert_eq!(buffer.memory(), 0);
            assert_eq!(buffer.reserve(48), None, "who comes late");
        }
    }

    #[test]
    fn completes_first_and_last_unit() {
        let buffer = Buffer::new(8192);
        buffer.install(4096 + 48);
        let offset = buffer.reserve(48).expect("room");
        assert_eq!(buffer.fill(offset, b"0123456789", 0, 1, 0), 4096 + 48);
        let len = buffer.seal();
        let (sealed, batches) = buffer.wait_complete(len);
        assert_eq!(batches, 1);
        let blocks = sealed.into_units(BLOCK, &[7; 48]);
        assert_eq!(blocks.len(), BLOCK);
        assert_eq!(blocks[..48], [7; 48]);
        assert_eq!(&blocks[72..82], b"0123456789");
        assert!(blocks[82..].iter().all(|&byte| byte == 0));
        let (sealed, _) = buffer.wait_complete(len);
        let words = sealed.into_units(32, &[8; 16]);
        assert_eq!(words.len(), 64);
        assert_eq!(words[..16], [8; 16]);
        assert_eq!(&words[40..50], b"0123456789");
    }
}
