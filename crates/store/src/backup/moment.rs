//! What a server has pinned, read where it lies: as the data folder that a backup of it would restore. It can only be read, and only for
//! as long as it is pinned; so who reads asks in the end whether it was.

use super::{plan::Plan, view::SuperblockFile};
use crate::format::{
    HEAP, dictionary,
    superblock::{self, Superblock},
};
use holdfast_io::{File, Io, ReadQueue};
use holdfast_log::view_segment;
use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

impl Plan {
    /// The moment as a data folder, for [`crate::Store::open_on`]. `source` is the server's folder.
    pub fn view(self, source: Arc<dyn Io>) -> Arc<dyn Io> {
        Arc::new(MomentView { source, plan: self })
    }
}

struct MomentView {
    source: Arc<dyn Io>,
    plan: Plan,
}

/// The number of a segment's file in the folder that is shown: these are numbered without gaps.
fn segment_number(name: &str) -> Option<usize> {
    usize::from_str_radix(name.strip_prefix("log/")?, 16).ok()
}

impl Io for MomentView {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        if create {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        let Plan { superblock, moment, segments } = &self.plan;
        if name == superblock::FILE {
            // The log is there up to the moment, and nothing of it may be missing.
            let superblock = Superblock { durable_lsn: *moment, ..superblock.clone() };
            return Ok(Arc::new(SuperblockFile::new(&superblock)));
        }
        match segment_number(name) {
            Some(number) => {
                let place = segments.get(number).ok_or(ErrorKind::NotFound)?;
                view_segment(&*self.source, &self.plan.identity(), place, *moment).map_err(io::Error::other)
            }
            None => self.source.open(name, false),
        }
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        match folder {
            "" => {
                let mut names = dictionary::files(&*self.source).map_err(io::Error::other)?;
                names.extend([HEAP.to_owned(), superblock::FILE.to_owned()]);
                names.sort_unstable();
                Ok(names)
            }
            "log" => Ok((0..self.plan.segments.len()).map(|number| format!("{number:08x}")).collect()),
            _ => Ok(Vec::new()),
        }
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.source.free_bytes()
    }

    fn read_queue(&self, depth: u32) -> io::Result<ReadQueue> {
        self.source.read_queue(depth)
    }

    fn now_ms(&self) -> u64 {
        self.source.now_ms()
    }

    fn monotonic_us(&self) -> u64 {
        self.source.monotonic_us()
    }

    fn random(&self, buf: &mut [u8]) {
        self.source.random(buf);
    }
}
