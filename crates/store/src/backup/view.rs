//! A backup as the data folder that it would be if it were restored. It can only be read.

use super::manifest::Manifest;
use crate::format::superblock::{self, Superblock};
use holdfast_io::{File, Io, ReadQueue};
use std::{
    io::{self, ErrorKind},
    sync::Arc,
};

/// The data folder.
pub(super) struct View {
    io: Arc<dyn Io>,
    manifest: Manifest,
}

impl View {
    pub fn new(io: Arc<dyn Io>, manifest: Manifest) -> View {
        View { io, manifest }
    }
}

/// The superblock that a restored folder has.
pub(super) fn superblock_of(manifest: &Manifest) -> Superblock {
    // The log is there up to the moment, and nothing of it may be missing.
    Superblock { durable_lsn: manifest.moment, ..manifest.superblock.clone() }
}

impl Io for View {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        if create {
            return Err(ErrorKind::ReadOnlyFilesystem.into());
        }
        if name == superblock::FILE {
            return Ok(Arc::new(SuperblockFile::new(&superblock_of(&self.manifest))));
        }
        let file = self.manifest.files.iter().find(|file| file.place == name);
        self.io.open(&file.ok_or(ErrorKind::NotFound)?.name, false)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let within = |place: &str| match folder {
            "" => Some(place).filter(|place| !place.contains('/')).map(str::to_owned),
            folder => place.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned),
        };
        let places = self.manifest.files.iter().map(|file| file.place.as_str());
        let mut names: Vec<String> = places.chain([superblock::FILE]).filter_map(within).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.io.free_bytes()
    }

    fn read_queue(&self, depth: u32) -> io::Result<ReadQueue> {
        self.io.read_queue(depth)
    }

    fn now_ms(&self) -> u64 {
        self.io.now_ms()
    }

    fn monotonic_us(&self) -> u64 {
        self.io.monotonic_us()
    }

    fn random(&self, buf: &mut [u8]) {
        self.io.random(buf);
    }
}

/// A superblock in memory.
pub(super) struct SuperblockFile(Vec<u8>);

impl SuperblockFile {
    /// Both copies of it.
    pub fn new(superblock: &Superblock) -> SuperblockFile {
        let copy = superblock.encode();
        SuperblockFile([&copy[..], &copy[..]].concat())
    }
}

impl File for SuperblockFile {
    fn name(&self) -> &str {
        superblock::FILE
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let from = self.0[start..].get(..buf.len()).ok_or(ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(from);
        Ok(())
    }

    fn write_at(&self, _: &[&[u8]], _: u64, _: holdfast_io::Durability) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(ErrorKind::ReadOnlyFilesystem.into())
    }

    fn punch_hole(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }
}
