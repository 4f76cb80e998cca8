//! Reads that are under way at the same time, for a thread that does other things meanwhile.

use std::{collections::VecDeque, fs, io, ops::Range, os::fd::BorrowedFd, sync::Arc};

use crate::{
    AlignedBuf, BLOCK,
    uring::{Read, Ring},
};

/// Buffers that are kept for the next reads, and how long they are.
const SPARES: usize = 64;
const SPARE_LEN: usize = 4 * BLOCK;

/// What one thread reads, many things at once.
///
/// [`File::begin_read`](crate::File::begin_read) asks for a read, [`ReadQueue::submit`] sends what was asked for on its way, and [`ReadQueue::reap`] shows
/// what has arrived. On the operating system that is `io_uring`: the device is given all of it in one system call, and the
/// queue's descriptor becomes readable when something has arrived. Elsewhere a read is done when it is asked for.
///
/// At most as many reads are under way as the queue is deep. What is asked for beyond waits in it for its turn, so whoever asks
/// must have a limit of its own.
pub struct ReadQueue {
    ring: Option<Ring>,
    waiting: VecDeque<Request>,
    ended: VecDeque<(Read, io::Result<()>)>,
    spares: Vec<AlignedBuf>,
}

/// A read that was asked for and is not on its way; it has no memory yet.
struct Request {
    tag: u64,
    file: Arc<fs::File>,
    offset: u64,
    len: usize,
    /// What is read begins and ends at multiples of this.
    unit: usize,
}

impl ReadQueue {
    /// A queue whose reads are done when they are asked for.
    pub fn immediate() -> Self {
        Self::with(None)
    }

    /// A queue of the operating system's, in which so many reads are under way at most.
    ///
    /// # Errors
    /// The kernel has no `io_uring`, or does not let this process use it.
    pub(crate) fn new(depth: u32) -> io::Result<Self> {
        Ring::new(depth).map(|ring| Self::with(Some(ring)))
    }

    fn with(ring: Option<Ring>) -> Self {
        Self { ring, waiting: VecDeque::new(), ended: VecDeque::new(), spares: Vec::new() }
    }

    /// Becomes readable when something has arrived; `None`: whatever was asked for has.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(Ring::descriptor)
    }

    /// Sends what was asked for on its way, as much as may be under way at once.
    ///
    /// # Errors
    /// The kernel does not take it now. What was asked for is kept for the next call.
    pub fn submit(&mut self) -> io::Result<()> {
        self.fill();
        self.ring.as_mut().map_or(Ok(()), Ring::submit)
    }

    /// The same, and waits until something has arrived, if anything is under way.
    ///
    /// # Errors
    /// As of [`ReadQueue::submit`].
    pub fn wait(&mut self) -> io::Result<()> {
        self.fill();
        match &mut self.ring {
            Some(ring) if self.ended.is_empty() => ring.wait(),
            _ => Ok(()),
        }
    }

    /// Hands the ring what has waited, as far as it has room.
    fn fill(&mut self) {
        while self.ring.as_ref().is_some_and(Ring::has_room) {
            let Some(request) = self.waiting.pop_front() else { break };
            let skip = (request.offset % request.unit as u64) as usize;
            let wanted = skip..skip + request.len;
            let len = wanted.end.next_multiple_of(request.unit);
            let mut read = self.read(request.tag, wanted, len);
            read.offset = request.offset - skip as u64;
            read.file = Some(request.file);
            if let Some(ring) = &mut self.ring {
                ring.push(read);
            }
        }
    }

    /// Shows `each` what has arrived: the tag that it was asked for with, and the bytes.
    ///
    /// # Errors
    /// As of [`ReadQueue::submit`], which it does in the end: for what has waited for room, or has come in part.
    pub fn reap(&mut self, mut each: impl FnMut(u64, io::Result<&[u8]>)) -> io::Result<()> {
        if let Some(ring) = &mut self.ring {
            ring.reap(&mut self.ended);
        }
        while let Some((read, result)) = self.ended.pop_front() {
            each(read.tag, result.map(|()| &read.buf[read.wanted]));
            if read.buf.len() == SPARE_LEN && self.spares.len() < SPARES {
                self.spares.push(read.buf);
            }
        }
        self.submit()
    }

    /// Asks for `len` bytes at `offset` of a file of the operating system, or of a multiple of `unit` bytes around them.
    /// False if this queue is not the operating system's.
    pub(crate) fn push(
        &mut self,
        file: &Arc<fs::File>,
        offset: u64,
        len: usize,
        unit: usize,
        tag: u64,
    ) -> bool {
        if self.ring.is_some() {
            self.waiting.push_back(Request { tag, file: file.clone(), offset, len, unit });
        }
        self.ring.is_some()
    }

    /// Has `len` bytes read at once.
    pub(crate) fn read_now(
        &mut self,
        len: usize,
        tag: u64,
        read_at: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) {
        let mut read = self.read(tag, 0..len, len);
        let result = read_at(&mut read.buf[..len]);
        self.ended.push_back((read, result));
    }

    fn read(&mut self, tag: u64, wanted: Range<usize>, len: usize) -> Read {
        let spare = if len <= SPARE_LEN { self.spares.pop() } else { None };
        let buf = spare.unwrap_or_else(|| AlignedBuf::zeroed(len.max(SPARE_LEN)));
        Read { tag, buf, wanted, len, done: 0, offset: 0, file: None }
    }
}
