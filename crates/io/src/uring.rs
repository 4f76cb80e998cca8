//! `io_uring`, for reads. The kernel writes into buffers that this file owns until it is done with them.

use std::{
    collections::VecDeque,
    fs,
    io::{self, ErrorKind},
    mem,
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
};

use io_uring::{IoUring, opcode, types::Fd};

use crate::AlignedBuf;

/// The most that one entry asks for: the rest is asked for when it has come.
const LEN_MAX: u32 = 1 << 30;

/// A read.
pub(crate) struct Read {
    pub tag: u64,
    pub buf: AlignedBuf,
    /// Of `buf` the first `len` bytes are read, and these are wanted.
    pub wanted: Range<usize>,
    pub len: usize,
    /// How many of them have been read.
    pub done: usize,
    /// Where the first of them is in the file.
    pub offset: u64,
    /// Open as long as this is.
    pub file: Option<Arc<fs::File>>,
}

impl Read {
    /// The file, and what is still to be read of it: from where, and to where.
    pub fn rest(&mut self) -> Option<(&fs::File, u64, &mut [u8])> {
        let rest = &mut self.buf[self.done..self.len];
        Some((self.file.as_deref()?, self.offset + self.done as u64, rest))
    }

    /// Counts bytes that were read; whether these are all that are wanted.
    pub fn advance(&mut self, read: usize) -> bool {
        self.done += read;
        self.done >= self.wanted.end
    }
}

/// A ring, and the reads that are under way in it.
pub(crate) struct Ring {
    ring: IoUring,
    /// Each at the place that its entry names. The kernel may write to the buffers of those that are pushed.
    reads: Vec<Option<Read>>,
    free: Vec<usize>,
    /// Pushed since the last system call.
    pushed: usize,
}

impl Ring {
    /// A ring for so many reads at a time.
    pub fn new(depth: u32) -> io::Result<Self> {
        // The thread is not interrupted when a read ends: it looks when its descriptor tells.
        let ring = IoUring::builder().setup_coop_taskrun().build(depth)?;
        let depth = depth as usize;
        Ok(Self { ring, reads: (0..depth).map(|_| None).collect(), free: (0..depth).collect(), pushed: 0 })
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the ring, which is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Adds a read, which goes on its way with the next [`Ring::submit`]. There must be room.
    pub fn push(&mut self, read: Read) {
        let place = self.free.pop().expect("the caller has asked for room");
        self.reads[place] = Some(read);
        self.push_rest(place);
    }

    /// Pushes what a read still lacks.
    fn push_rest(&mut self, place: usize) {
        let read = self.reads[place].as_mut().expect("a read has this place");
        let (file, offset, rest) = read.rest().expect("a read of the operating system's has its file");
        let len = u32::try_from(rest.len()).unwrap_or(LEN_MAX).min(LEN_MAX);
        let entry = opcode::Read::new(Fd(file.as_raw_fd()), rest.as_mut_ptr(), len)
            .offset(offset)
            .build()
            .user_data(place as u64);
        // SAFETY: the file is open and the buffer is ours, does not move and is not touched, until the read's completion has
        // been seen: `reads` holds both until then, and `drop` waits for it.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there are as many entries as places");
        self.pushed += 1;
    }

    /// Sends what was pushed on its way.
    pub fn submit(&mut self) -> io::Result<()> {
        while self.pushed > 0 {
            match self.ring.submit() {
                Ok(sent) => self.pushed -= sent,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sends what was pushed on its way, and waits until a read has ended, if any is under way.
    pub fn wait(&mut self) -> io::Result<()> {
        self.submit()?;
        if self.free.len() == self.reads.len() {
            return Ok(());
        }
        loop {
            match self.ring.submit_and_wait(1) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    /// Adds the reads that have ended to `ended`.
    pub fn reap(&mut self, ended: &mut VecDeque<(Read, io::Result<()>)>) {
        loop {
            let Some(completion) = self.ring.completion().next() else { return };
            let place = completion.user_data() as usize;
            let read = self.reads[place].as_mut().expect("an entry that was pushed");
            let result = match completion.result() {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                read_len if read_len > 0 => {
                    if !read.advance(read_len as usize) {
                        self.push_rest(place);
                        continue;
                    }
                    Ok(())
                }
                error => {
                    let error = io::Error::from_raw_os_error(-error);
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) {
                        self.push_rest(place);
                        continue;
                    }
                    Err(error)
                }
            };
            let read = self.reads[place].take().expect("seen above");
            self.free.push(place);
            ended.push_back((read, result));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut ended = VecDeque::new();
        while self.free.len() < self.reads.len() {
            if self.wait().is_err() {
                // The kernel may write to the buffers at any time.
                mem::forget(mem::take(&mut self.reads));
                return;
            }
            self.reap(&mut ended);
        }
    }
}
