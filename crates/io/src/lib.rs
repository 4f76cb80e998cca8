//! The only seam to the outside: files, clock and randomness.
//!
//! Everything that Holdfast's engine learns from the world, and everything it leaves there, passes through
//! [`Io`] and [`File`]. [`RealIo`] is the operating system. [`SimIo`] is a machine in memory, driven by a seed,
//! on which power can fail at any operation and any subset of the unflushed sectors survives.
//!
//! # Media assumptions
//! * A sector of [`SECTOR`] bytes is written whole or not at all; sectors of one write survive independently.
//! * What [`File::write_at`] with [`Durability::Durable`], or a later [`File::sync`], has returned from, survives.
//! * Creating, removing or resizing a file survives once [`Io::sync_dir`] (for its name) and [`File::sync`] (for
//!   its length) have returned.
//! * The medium may return other bytes than were written; so nothing read is used before its checksum.

mod aligned;
mod crc;
mod histogram;
mod moment;
mod parallel;
mod reads;
mod real;
mod scm;
mod sealed;
mod sim;
mod spread;
mod tolerant;
mod uring;

use std::{fmt, io, sync::Arc};

use rustix::io::Errno;

pub use aligned::AlignedBuf;
pub use crc::{crc32c, crc32c_append, crc32c_of_both};
pub use histogram::{Counts, Histogram, longest_like};
pub use moment::Moment;
pub use parallel::in_parallel;
pub use reads::ReadQueue;
pub use real::RealIo;
pub use scm::{LINE, Scm, ScmMedium, ScmOptions, ScmStats, WORD, WriteBack, WriteDelay, dirty_shutdowns};
pub use sim::{Fault, Outcome, PowerCut, ScmBug, SimIo};
pub use spread::{FolderUse, Further, OpenFolder, Spread, SpreadFiles, open_damaged_folders, open_folders};
pub use tolerant::Tolerant;

/// The unit that a medium writes atomically, in bytes.
pub const SECTOR: usize = 512;
/// The unit in which Holdfast writes, in bytes; offsets and lengths that are multiples of it need no copy.
pub const BLOCK: usize = 4096;

/// What a successful write promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The bytes survive a power cut.
    Durable,
    /// The bytes survive a crash of the process; a power cut only after [`File::sync`].
    Volatile,
}

/// An open file. Reads and writes are positioned and may run concurrently.
pub trait File: Send + Sync {
    /// The name it was opened by, relative to the data folder.
    fn name(&self) -> &str;
    /// Fills `buf` from `offset`. Reading past the end is an [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Asks for `len` bytes from `offset`: `queue` will show them with `tag`.
    fn begin_read(&self, queue: &mut ReadQueue, offset: u64, len: usize, tag: u64) {
        queue.read_now(len, tag, |buf| self.read_at(buf, offset));
    }
    /// Writes all of `bufs`, one after another, at `offset`, growing the file if needed.
    fn write_at(&self, bufs: &[&[u8]], offset: u64, durability: Durability) -> io::Result<()>;
    /// Makes every earlier write, and the length, durable.
    fn sync(&self) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeroes) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Gives the space of `len` bytes from `offset`, multiples of [`BLOCK`], back to the medium. They read as zeroes then, and are
    /// allocated anew when they are written. False: the file system cannot do that. Durable after [`File::sync`].
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<bool>;
    /// Makes `len` bytes from `offset` a part of the file for which the medium has memory; what is new is zero, and the first store to it
    /// costs no more than others do. Only files in storage-class memory ([`Io::scm`]) know it, as they do [`File::store`].
    fn allocate(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Stores bytes in place. They reach the medium at any time from then on, each word of [`WORD`] bytes by itself, and at the latest
    /// when this thread has fenced ([`Io::fence`]); until then nobody else stores to these words.
    fn store(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// As [`File::read_at`], of what [`File::allocate`] has made room for and nobody stores to meanwhile. In storage-class memory it is no
    /// system call, and one that is damaged ends the process: for what was read or written before.
    fn load(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buf, offset)
    }
}

/// Allocates what a new file needs.
pub type FillFile<'a> = &'a dyn Fn(&dyn File) -> io::Result<()>;

/// A data folder and what else an engine needs from a machine.
pub trait Io: Send + Sync {
    /// Opens a file by its name relative to the data folder, e.g. `log/0000002a`; creates it (and its parent
    /// folder) if `create`. Opening a missing file without `create` is [`io::ErrorKind::NotFound`].
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>>;
    /// Whether nothing can be created, written or removed: [`io::ErrorKind::ReadOnlyFilesystem`].
    fn is_read_only(&self) -> bool {
        false
    }
    /// Lets another process have the folder, which must not be changed from here any more.
    fn unlock(&self) {}
    /// The storage-class memory that files lie in, if they do: then a write to the middle of a file takes no system call, costs what its
    /// lines cost, and is durable when it returns.
    fn scm(&self) -> Option<&Scm> {
        None
    }
    /// Makes durable what this thread has stored ([`File::store`]). The stores of other threads are not.
    fn fence(&self) -> io::Result<()> {
        Ok(())
    }
    /// What tells a file, or the folder itself (`""`), from any copy of it, as long as it is there; `None`: nothing does.
    fn identity(&self, _name: &str) -> io::Result<Option<[u8; 16]>> {
        Ok(None)
    }
    /// Removes a file by name.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Names of the files in a folder of the data folder (`""`: itself), relative to that folder, sorted; folders
    /// are left out. A missing folder counts as empty.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    /// Makes creations and removals in a folder durable.
    fn sync_dir(&self, folder: &str) -> io::Result<()>;
    /// Bytes that can still be allocated on the medium; `None`: it does not tell, as some network file systems do not.
    fn free_bytes(&self) -> io::Result<Option<u64>>;
    /// How many new files of so many bytes each there is room for which need not be beside the others and do not lie below, while `reserve`
    /// bytes are to be left for these. Less than none: as many files' bytes are missing of the reserve.
    fn room_for_files(&self, reserve: u64, file_bytes: u64) -> io::Result<Option<i64>> {
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(self.free_bytes()?.map(|free| (bytes(free) - bytes(reserve)).div_euclid(bytes(file_bytes))))
    }
    /// The same of the further folder on a slower medium.
    fn room_below(&self, _reserve: u64, _file_bytes: u64) -> io::Result<Option<i64>> {
        Ok(Some(0))
    }
    /// The further folder on a slower medium, if there is one: new files go there if their names say so ([`SpreadFiles`]).
    fn below(&self) -> Option<&dyn Io> {
        None
    }
    /// Whether a file lies there.
    fn is_below(&self, _name: &str) -> bool {
        false
    }
    /// What its further folders hold; none, if it has none ([`Spread`]).
    fn further_folders(&self) -> Vec<FolderUse> {
        Vec::new()
    }
    /// Makes a new file, and fills it. A folder that has no room for it, whatever its medium tells, gets no more of them than are removed there
    /// until it has taken one that is made `again`; another one gets this file, if there is one ([`Spread`]). What a file took that could not
    /// be filled may have to be removed.
    fn create(&self, name: &str, _again: bool, fill: FillFile<'_>) -> io::Result<Arc<dyn File>> {
        let file = self.open(name, true)?;
        fill(&*file).map(|()| file)
    }
    /// Whether a file may be made [again](Io::create) in a folder that has refused one.
    fn has_refused(&self) -> bool {
        false
    }
    /// A queue in which a thread can have so many reads under way at once.
    ///
    /// # Errors
    /// There is nothing like it on this machine.
    fn read_queue(&self, depth: u32) -> io::Result<ReadQueue>;
    /// Wall clock: milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> u64;
    /// The same, or some milliseconds ago: for who asks so often that it shows, and needs no more than seconds.
    fn about_now_ms(&self) -> u64 {
        self.now_ms()
    }
    /// Monotonic clock: microseconds since some start.
    fn monotonic_us(&self) -> u64;
    /// Fills `buf` with random bytes (from the system; from the seed when simulated).
    fn random(&self, buf: &mut [u8]);
}

/// Why the engine could not do what it was asked.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused; `what` names the operation and the file.
    Io {
        /// Operation and file, e.g. `write log/0000002a`.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A medium returned bytes that fail their check.
    Corrupt {
        /// File name relative to the data folder.
        file: String,
        /// Offset of the failing unit in the file, in bytes.
        offset: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The data folder cannot be used as asked (made by a newer version, other geometry, already in use).
    Unusable(String),
}

/// The engine's result type.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Wraps a system error with the operation that failed.
    pub fn io(what: impl Into<String>, source: io::Error) -> Self {
        Error::Io { what: what.into(), source }
    }

    /// Whether the medium had no room: that is no failure of it, and there may be room later. A quota that is used up is the
    /// same.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Io { source, .. } if is_full(source))
    }

    /// Whether the process, or the system, has as many files open as it may.
    pub fn is_out_of_files(&self) -> bool {
        let codes = [Errno::MFILE, Errno::NFILE].map(|errno| Some(errno.raw_os_error()));
        matches!(self, Error::Io { source, .. } if codes.contains(&source.raw_os_error()))
    }

    /// Names a failed check.
    pub fn corrupt(file: &str, offset: u64, what: impl Into<String>) -> Self {
        Error::Corrupt { file: file.to_owned(), offset, what: what.into() }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { what, source } => write!(f, "{what}: {source}"),
            Error::Corrupt { file, offset, what } => write!(f, "corrupt: {file} at offset {offset}: {what}"),
            Error::Unusable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
