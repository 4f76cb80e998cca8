//! The operating system: Linux, with direct I/O where the file system takes it.

use std::{
    fs,
    io::{self, ErrorKind, IoSlice},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, statvfs},
    io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr},
    rand::{GetRandomFlags, getrandom},
    time::{ClockId, clock_gettime},
};

use crate::{AlignedBuf, BLOCK, Durability, Error, File, Io, ReadQueue, Result, Scm, scm::ScmFile};

/// A folder of the file system.
///
/// Files are opened for direct I/O (`O_DIRECT`) where the file system takes it. On such a file a read that is not
/// aligned to [`BLOCK`] in memory, offset or length is copied through an [`AlignedBuf`], and such a write goes
/// through the page cache. Linux keeps the two coherent as long as they do not overlap in time on one block.
pub struct RealIo {
    dir: PathBuf,
    direct: bool,
    read_only: bool,
    lock: OnceLock<[Option<fs::File>; 2]>,
    start: Instant,
    stopped_at_ms: Option<u64>,
    scm: Option<Arc<Scm>>,
}

impl RealIo {
    /// Uses the folder `dir`, which is created if it is missing.
    pub fn new(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        create_folder(&dir).map_err(|e| Error::io("create the folder", e))?;
        let (lock, start) = (OnceLock::new(), Instant::now());
        Ok(Self { dir, direct: true, read_only: false, lock, start, stopped_at_ms: None, scm: None })
    }

    /// Uses the folder `dir` as it is: nothing in it will change.
    pub fn read_only(dir: impl Into<PathBuf>) -> Self {
        let (lock, start) = (OnceLock::new(), Instant::now());
        Self { dir: dir.into(), direct: true, read_only: true, lock, start, stopped_at_ms: None, scm: None }
    }

    /// Whether files opened from now on bypass the page cache where they can. The default is to do so.
    pub fn with_direct(self, direct: bool) -> Self {
        Self { direct, ..self }
    }

    /// Has the wall clock stand still at a time, if there is one: for who replays what was done earlier.
    pub fn with_clock_stopped(self, stopped_at_ms: Option<u64>) -> Self {
        Self { stopped_at_ms, ..self }
    }

    /// Takes the folder for one on storage-class memory: files opened from now on are written by stores.
    ///
    /// # Errors
    /// [`Error::Unusable`]: its files cannot be mapped as they must be. Or a system error.
    pub fn on_scm(self, scm: Arc<Scm>) -> Result<Self> {
        const TRIED: &str = "scm-tried";
        let this = Self { direct: false, scm: Some(scm.clone()), ..self };
        let tried = this.open_real(TRIED, true).and_then(|file| ScmFile::new(file, scm)?.try_mapping());
        let removed = fs::remove_file(this.dir.join(TRIED));
        if let Err(e) = tried {
            let is_refused =
                matches!(Errno::from_io_error(&e), Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::NODEV));
            return Err(match is_refused {
                true => Error::Unusable(format!(
                    "it is not on memory that persists: the file system must be mounted with DAX, and the memory must be persistent ({e})"
                )),
                false => Error::io("map a file", e),
            });
        }
        removed.map_err(|e| Error::io(format!("remove {TRIED}"), e))?;
        Ok(this)
    }

    /// Takes the folder for this process until the `RealIo` is dropped; [`Error::Unusable`] if another one has it. Those who
    /// only read share it, and leave it as it is: where there is no file to lock, the lock on the folder itself is all.
    pub fn lock(&self) -> Result<()> {
        let path = self.dir.join("lock");
        let how = match self.read_only {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        let lock = |file: fs::File| -> io::Result<Option<fs::File>> {
            flock(&file, how)?;
            Ok(Some(file))
        };
        let locked = || -> io::Result<[Option<fs::File>; 2]> {
            let file = match self.read_only {
                true => fs::File::open(&path),
                false => fs::OpenOptions::new().write(true).create(true).truncate(false).open(&path),
            };
            let file = match file {
                Err(e) if self.read_only && e.kind() == ErrorKind::NotFound => None,
                file => lock(file?)?,
            };
            let folder = match lock(fs::File::open(&self.dir)?) {
                // Of some file systems over a network only files can be locked.
                Err(e) if e.kind() != ErrorKind::WouldBlock => None,
                folder => folder?,
            };
            Ok([file, folder])
        };
        match locked() {
            Ok(locks) => {
                // A second lock of our own cannot get here: flock belongs to the open file, not to the process.
                self.lock.set(locks).expect("the lock was free");
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                Err(Error::Unusable("it is in use by another process".to_owned()))
            }
            Err(e) => Err(Error::io("lock it", e)),
        }
    }

    fn open_real(&self, name: &str, create: bool) -> io::Result<RealFile> {
        let path = self.dir.join(name);
        if create {
            check_writable(self.read_only)?;
            create_folder(path.parent().expect("a file lies in the data folder"))?;
        }
        let mut options = fs::OpenOptions::new();
        options.read(true).write(!self.read_only).create(create);
        let direct = if self.direct { open_direct(&mut options, &path)? } else { None };
        let (file, direct) = match direct {
            Some(file) => (file, true),
            None => (options.custom_flags(0).open(&path)?, false),
        };
        Ok(RealFile { name: name.to_owned(), path, file: Arc::new(file), direct, read_only: self.read_only })
    }
}

impl Io for RealIo {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let file = self.open_real(name, create)?;
        Ok(match &self.scm {
            Some(scm) => Arc::new(ScmFile::new(file, scm.clone())?),
            None => Arc::new(file),
        })
    }

    fn scm(&self) -> Option<&Scm> {
        self.scm.as_deref()
    }

    fn fence(&self) -> io::Result<()> {
        if let Some(scm) = &self.scm {
            scm.fence();
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn unlock(&self) {
        for file in self.lock.get().into_iter().flatten().flatten() {
            // What cannot be unlocked is so at the end of the process.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }

    fn identity(&self, name: &str) -> io::Result<Option<[u8; 16]>> {
        let metadata = fs::metadata(self.dir.join(name))?;
        // Not every file system knows when a file was made.
        let made = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made = made.map_or(0, |made| made.as_nanos() as u64);
        let mut identity = [0; 16];
        identity[..8].copy_from_slice(&metadata.ino().to_le_bytes());
        identity[8..].copy_from_slice(&made.to_le_bytes());
        Ok(Some(identity))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_writable(self.read_only)?;
        fs::remove_file(self.dir.join(name))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.dir.join(folder)) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                // A name that is not UTF-8 is not one of ours.
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        match sync_folder(&self.dir.join(folder)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let stat = statvfs(&self.dir)?;
        // A file system of no blocks at all is one that does not count them.
        Ok((stat.f_blocks > 0).then(|| stat.f_bavail * stat.f_frsize))
    }

    fn read_queue(&self, depth: u32) -> io::Result<ReadQueue> {
        ReadQueue::new(depth)
    }

    fn now_ms(&self) -> u64 {
        if let Some(stopped_at_ms) = self.stopped_at_ms {
            return stopped_at_ms;
        }
        // Not the coarse clock, which is 4 ms behind at times: a client that reads its own clock would see keys outlive their
        // expiry. A clock set before 1970 reads as 1970.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
    }

    fn about_now_ms(&self) -> u64 {
        if let Some(stopped_at_ms) = self.stopped_at_ms {
            return stopped_at_ms;
        }
        let time = clock_gettime(ClockId::RealtimeCoarse);
        u64::try_from(time.tv_sec).unwrap_or_default() * 1000 + time.tv_nsec as u64 / 1_000_000
    }

    fn monotonic_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn random(&self, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            let got = retry_on_intr(|| getrandom(&mut *buf, GetRandomFlags::empty()));
            let got = got.expect("Linux has getrandom since 3.17");
            buf = &mut buf[got..];
        }
    }
}

/// A file of the file system.
pub(crate) struct RealFile {
    name: String,
    path: PathBuf,
    file: Arc<fs::File>,
    direct: bool,
    read_only: bool,
}

impl File for RealFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if !self.direct || (is_aligned(buf) && is_multiple(offset)) {
            return self.fill(buf, offset, buf.len());
        }
        let skip = offset as usize % BLOCK;
        let wanted = skip + buf.len();
        let mut bounce = AlignedBuf::zeroed(wanted.next_multiple_of(BLOCK));
        self.fill(&mut bounce, offset - skip as u64, wanted)?;
        buf.copy_from_slice(&bounce[skip..wanted]);
        Ok(())
    }

    fn begin_read(&self, queue: &mut ReadQueue, offset: u64, len: usize, tag: u64) {
        let unit = if self.direct { BLOCK } else { 1 };
        if !queue.push(&self.file, offset, len, unit, tag) {
            queue.read_now(len, tag, |buf| self.read_at(buf, offset));
        }
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64, durability: Durability) -> io::Result<()> {
        check_writable(self.read_only)?;
        if !self.direct || (is_multiple(offset) && bufs.iter().all(|buf| is_aligned(buf))) {
            return write_all(&self.file, bufs, offset, durability);
        }
        write_all(&fs::OpenOptions::new().write(true).open(&self.path)?, bufs, offset, durability)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        check_writable(self.read_only)?;
        self.file.set_len(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<bool> {
        check_writable(self.read_only)?;
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Err(Errno::OPNOTSUPP) => Ok(false),
            done => Ok(done.map(|()| true)?),
        }
    }
}

impl RealFile {
    /// The open file.
    pub fn file(&self) -> &fs::File {
        &self.file
    }

    /// Refuses what would change the file, if that is only read.
    pub fn check_writable(&self) -> io::Result<()> {
        check_writable(self.read_only)
    }

    /// Reads into `buf` until at least `wanted` bytes of it are filled.
    fn fill(&self, buf: &mut [u8], offset: u64, wanted: usize) -> io::Result<()> {
        let mut done = 0;
        while done < wanted {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A direct read that stopped at an odd end of the file cannot go on from there.
                Err(_) if offset + done as u64 >= self.len()? => return Err(ErrorKind::UnexpectedEof.into()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn check_writable(read_only: bool) -> io::Result<()> {
    if read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
}

/// Opens for direct I/O; `None` if the file system refuses that.
fn open_direct(options: &mut fs::OpenOptions, path: &Path) -> io::Result<Option<fs::File>> {
    match options.custom_flags(OFlags::DIRECT.bits() as i32).open(path) {
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::OPNOTSUPP)) => Ok(None),
        result => result.map(Some),
    }
}

/// Writes all of `bufs`, with as few calls as the kernel lets us.
fn write_all(file: &fs::File, bufs: &[&[u8]], mut offset: u64, durability: Durability) -> io::Result<()> {
    let mut slices: Vec<_> = bufs.iter().map(|buf| IoSlice::new(buf)).collect();
    let mut rest = &mut slices[..];
    let mut flags = match durability {
        Durability::Durable => ReadWriteFlags::DSYNC,
        Durability::Volatile => ReadWriteFlags::empty(),
    };
    let mut sync_after = false;
    // Leading empty buffers would make a call that writes nothing.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match retry_on_intr(|| pwritev2(file, rest, offset, flags)) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
            // A kernel or file system that does not know the flag.
            Err(Errno::OPNOTSUPP) if !flags.is_empty() => {
                flags = ReadWriteFlags::empty();
                sync_after = true;
            }
            Err(e) => return Err(e.into()),
        }
    }
    if sync_after { file.sync_data() } else { Ok(()) }
}

/// Creates a folder and its missing parents, durably.
fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_folder(parent)?;
    match fs::create_dir(folder) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && folder.is_dir() => {}
        result => result?,
    }
    sync_folder(parent)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

fn is_aligned(buf: &[u8]) -> bool {
    (buf.as_ptr() as usize).is_multiple_of(BLOCK) && buf.len().is_multiple_of(BLOCK)
}

fn is_multiple(offset: u64) -> bool {
    offset.is_multiple_of(BLOCK as u64)
}
