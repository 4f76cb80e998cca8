//! Where batches wait for the commit: an active buffer that all threads fill, sealed ones in LSN order behind it,
//! and spares.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    buffer::Buffer,
    layout::{Lsn, batch_len},
};

/// A sealed buffer and the range of the log in it.
pub(crate) struct Chunk {
    pub buffer: Arc<Buffer>,
    pub base: Lsn,
    pub len: u64,
}

impl Chunk {
    pub fn end(&self) -> Lsn {
        self.base + self.len
    }
}

pub(crate) struct Appender {
    /// `queue.active`, for who does not hold the lock.
    active: AtomicPtr<Buffer>,
    epoch: AtomicU32,
    crc_seed: u32,
    capacity: u64,
    queue: Mutex<Queue>,
}

struct Queue {
    active: Arc<Buffer>,
    sealed: VecDeque<Chunk>,
    /// The one that was used last is the last.
    spares: Vec<Arc<Buffer>>,
    /// Spares that were not used since [`Appender::trim`] looked.
    idle: usize,
    /// Every buffer that ever was active: a thread that found it so may come late (see `buffer.rs`).
    pool: Vec<Arc<Buffer>>,
}

impl Appender {
    /// Batches from `tail` on, in buffers of `capacity` bytes.
    pub fn new(tail: Lsn, capacity: u64, epoch: u32, crc_seed: u32) -> Self {
        // One is filled, one written, and one ready to be swapped in.
        let pool: Vec<_> = (0..3).map(|_| Arc::new(Buffer::new(capacity))).collect();
        let active = pool[0].clone();
        active.install(tail);
        Self {
            active: AtomicPtr::new(Arc::as_ptr(&active).cast_mut()),
            epoch: AtomicU32::new(epoch),
            crc_seed,
            capacity,
            queue: Mutex::new(Queue {
                active,
                sealed: VecDeque::new(),
                spares: pool[1..].to_vec(),
                idle: 0,
                pool,
            }),
        }
    }

    #[inline]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Changes the epoch. Nobody may append meanwhile.
    pub fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Appends a batch in this server's epoch; returns its LSN.
    #[inline]
    pub fn append(&self, payload: &[u8], durable: Lsn) -> Lsn {
        self.append_as(payload, self.epoch(), durable)
    }

    /// Appends a batch; returns its LSN.
    pub fn append_as(&self, payload: &[u8], epoch: u32, durable: Lsn) -> Lsn {
        let len = batch_len(payload.len());
        // Before the reservation, so that nobody waits for it.
        let crc = holdfast_io::crc32c_append(self.crc_seed, payload);
        let active = self.active();
        match active.reserve(len) {
            Some(offset) => active.fill(offset, payload, crc, epoch, durable),
            None => self.append_to_next(len, payload, crc, epoch, durable),
        }
    }

    fn active(&self) -> &Buffer {
        let active = self.active.load(Ordering::Acquire);
        // SAFETY: it points to a buffer in `queue.pool`, which is only ever added to while `self` lives.
        unsafe { &*active }
    }

    #[cold]
    fn append_to_next(&self, len: u64, payload: &[u8], crc: u32, epoch: u32, durable: Lsn) -> Lsn {
        assert!(u32::try_from(payload.len()).is_ok(), "a batch is smaller than 4 GiB");
        // A batch larger than a buffer gets one of its own, that no other thread ever sees. Made before the lock
        // is taken, as it may be huge.
        let own = (len > self.capacity).then(|| Arc::new(Buffer::new(len)));
        let mut queue = self.queue.lock();
        let (buffer, offset) = loop {
            // Another thread may have installed the next buffer before us.
            if let Some(offset) = queue.active.reserve(len) {
                break (queue.active.clone(), offset);
            }
            let end = queue.seal_active();
            if let Some(buffer) = own {
                buffer.install(end);
                let offset = buffer.reserve(len).expect("a new buffer of this size");
                buffer.seal();
                queue.sealed.push_back(Chunk { buffer: buffer.clone(), base: end, len });
                self.install(&mut queue, end + len);
                break (buffer, offset);
            }
            self.install(&mut queue, end);
        };
        drop(queue);
        buffer.fill(offset, payload, crc, epoch, durable)
    }

    fn install(&self, queue: &mut Queue, base: Lsn) {
        let next = queue.spares.pop().unwrap_or_else(|| {
            let buffer = Arc::new(Buffer::new(self.capacity));
            queue.pool.push(buffer.clone());
            buffer
        });
        queue.idle = queue.idle.min(queue.spares.len());
        next.install(base);
        self.active.store(Arc::as_ptr(&next).cast_mut(), Ordering::Release);
        queue.active = next;
    }

    /// The end of the last batch appended.
    #[inline]
    pub fn tail(&self) -> Lsn {
        self.active().tail().unwrap_or_else(|| self.tail_once_swapped())
    }

    #[cold]
    fn tail_once_swapped(&self) -> Lsn {
        let queue = self.queue.lock();
        // Nobody seals while we hold the lock.
        queue.active.base() + queue.active.reserved()
    }

    /// Whether a batch waits to be taken.
    pub fn is_pending(&self) -> bool {
        let queue = self.queue.lock();
        !queue.sealed.is_empty() || queue.active.is_used()
    }

    /// As [`Buffer::filled`], of what begins at `base`, unless other buffers come between or behind it.
    pub fn filled(&self, base: Lsn) -> Option<&[u8]> {
        self.active().filled(base)
    }

    /// Moves what was appended to `group`, in order, until it holds `limit` bytes.
    pub fn take(&self, group: &mut Vec<Chunk>, limit: u64) {
        let mut queue = self.queue.lock();
        let mut bytes: u64 = group.iter().map(|chunk| chunk.len).sum();
        while bytes < limit {
            let Some(chunk) = queue.sealed.pop_front() else { break };
            bytes += chunk.len;
            group.push(chunk);
        }
        // Then all are taken. The active one only once: others keep appending while we look.
        if bytes < limit && queue.active.is_used() {
            let end = queue.seal_active();
            self.install(&mut queue, end);
            group.extend(queue.sealed.pop_front());
        }
    }

    /// Moves all that was appended to `group`, and behind it a batch of its own, before anybody else's.
    pub fn take_sealed(&self, group: &mut Vec<Chunk>, payload: &[u8], durable: Lsn) {
        let len = batch_len(payload.len());
        let buffer = Arc::new(Buffer::new(len));
        let crc = holdfast_io::crc32c_append(self.crc_seed, payload);
        let mut queue = self.queue.lock();
        let end = queue.seal_active();
        buffer.install(end);
        let offset = buffer.reserve(len).expect("a new buffer of this size");
        buffer.seal();
        queue.sealed.push_back(Chunk { buffer: buffer.clone(), base: end, len });
        self.install(&mut queue, end + len);
        group.extend(queue.sealed.drain(..));
        drop(queue);
        buffer.fill(offset, payload, crc, self.epoch(), durable);
    }

    /// Gives the buffer of a written chunk back.
    pub fn recycle(&self, chunk: Chunk) {
        // A larger one was made for a single batch.
        if chunk.buffer.capacity() == self.capacity {
            self.queue.lock().spares.push(chunk.buffer);
        }
    }

    /// Gives the memory of buffers back that were not needed since the last call.
    pub fn trim(&self) {
        let mut queue = self.queue.lock();
        queue.spares[..queue.idle].iter().for_each(|spare| spare.release_memory());
        queue.idle = queue.spares.len();
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> u64 {
        let queue = self.queue.lock();
        let own =
            queue.sealed.iter().map(|chunk| &chunk.buffer).filter(|buffer| buffer.capacity() > self.capacity);
        queue.pool.iter().chain(own).map(|buffer| buffer.memory()).sum()
    }
}

impl Queue {
    /// Seals the active buffer; returns where it ends. The caller installs another.
    fn seal_active(&mut self) -> Lsn {
        let (base, len) = (self.active.base(), self.active.seal());
        let buffer = self.active.clone();
        if len > 0 {
            self.sealed.push_back(Chunk { buffer, base, len });
        } else {
            self.spares.push(buffer);
        }
        base + len
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{sync::atomic::AtomicBool, thread};

    #[test]
    fn who_has_appended_sees_it_below_the_tail_while_others_append_and_buffers_are_swapped() {
        const BATCHES: u64 = 20_000;
        const PAYLOAD: [u8; 24] = [7; 24];
        const THREADS: u64 = 2;
        let (appender, done) = (Appender::new(4096, 4096, 1, 0), AtomicBool::new(false));
        let append = || {
            for _ in 0..BATCHES {
                let end = appender.append(&PAYLOAD, 0) + batch_len(PAYLOAD.len());
                let tail = appender.tail();
                assert!(tail >= end && appender.tail() >= tail, "{tail} after {end}");
            }
        };
        let recycle = || {
            while !done.load(Ordering::Relaxed) {
                let mut group = Vec::new();
                appender.take(&mut group, 1 << 20);
                for chunk in group {
                    chunk.buffer.wait_complete(chunk.len);
                    appender.recycle(chunk);
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(recycle);
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(append)).collect();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            done.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.expect("an appender"));
        });
        assert_eq!(appender.tail(), 4096 + THREADS * BATCHES * batch_len(PAYLOAD.len()));
    }
}
