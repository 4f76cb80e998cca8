//! A data folder of which not everything can be read.

use crate::{BLOCK, Durability, File, Io, ReadQueue};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    io::{self, ErrorKind},
    sync::Arc,
};

/// A data folder whose files read as zeroes where they cannot be read or end: for salvage, which checks all that it uses by
/// checksums. Nothing can be written.
pub struct Tolerant {
    io: Arc<dyn Io>,
    faults: Arc<Faults>,
}

/// File, offset and error of blocks that could not be read.
type Faults = Mutex<BTreeSet<(String, u64, String)>>;

impl Tolerant {
    /// The folder behind `io`, as far as it can be read.
    pub fn new(io: Arc<dyn Io>) -> Tolerant {
        Tolerant { io, faults: Arc::default() }
    }

    /// What could not be read so far: file, offset of the block, and the system's error.
    pub fn faults(&self) -> Vec<(String, u64, String)> {
        self.faults.lock().iter().cloned().collect()
    }
}

struct TolerantFile {
    file: Arc<dyn File>,
    faults: Arc<Faults>,
}

fn refused<T>() -> io::Result<T> {
    Err(ErrorKind::ReadOnlyFilesystem.into())
}

impl TolerantFile {
    fn read_blocks(&self, buf: &mut [u8], offset: u64) {
        let len = self.file.len().unwrap_or(0);
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let part = (BLOCK - (at % BLOCK as u64) as usize).min(rest.len());
            let (block, behind) = rest.split_at_mut(part);
            block.fill(0);
            let there = len.saturating_sub(at).min(part as u64) as usize;
            if there > 0
                && let Err(error) = self.file.read_at(&mut block[..there], at)
            {
                block.fill(0);
                let fault = (self.file.name().to_owned(), at, error.to_string());
                self.faults.lock().insert(fault);
            }
            (at, rest) = (at + part as u64, behind);
        }
    }
}

impl File for TolerantFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.file.read_at(buf, offset).is_err() {
            self.read_blocks(buf, offset);
        }
        Ok(())
    }

    fn write_at(&self, _: &[&[u8]], _: u64, _: Durability) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn punch_hole(&self, _: u64, _: u64) -> io::Result<bool> {
        refused()
    }
}

impl Io for Tolerant {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        if create {
            return refused();
        }
        let file = self.io.open(name, false)?;
        Ok(Arc::new(TolerantFile { file, faults: self.faults.clone() }))
    }

    fn identity(&self, name: &str) -> io::Result<Option<[u8; 16]>> {
        self.io.identity(name)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.io.list(folder)
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.io.free_bytes()
    }

    fn below(&self) -> Option<&dyn Io> {
        self.io.below()
    }

    fn is_below(&self, name: &str) -> bool {
        self.io.is_below(name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, SimIo};

    #[test]
    fn what_cannot_be_read_is_zero_and_told_and_the_rest_is_there() {
        let sim = SimIo::new(1);
        let file = sim.open("file", true).expect("a file");
        file.write_at(&[&[7; 3 * BLOCK + 100]], 0, Durability::Durable).expect("room");
        let tolerant = Tolerant::new(Arc::new(sim.clone()));
        let file = tolerant.open("file", false).expect("a file");
        let mut bytes = vec![1; 4 * BLOCK];
        file.read_at(&mut bytes, 0).expect("tolerant");
        assert!(bytes[..3 * BLOCK + 100].iter().all(|&byte| byte == 7));
        assert!(bytes[3 * BLOCK + 100..].iter().all(|&byte| byte == 0));
        assert_eq!(tolerant.faults(), []);
        // The read of all fails, and that of the first block.
        sim.fault(Fault::read("file"));
        sim.fault(Fault::read("file").after(1));
        file.read_at(&mut bytes, 100).expect("tolerant");
        let first = BLOCK - 100;
        assert!(bytes[..first].iter().all(|&byte| byte == 0));
        assert!(bytes[first..2 * BLOCK].iter().all(|&byte| byte == 7));
        let [(name, offset, _)] = &tolerant.faults()[..] else { panic!("{:?}", tolerant.faults()) };
        assert_eq!((&name[..], *offset), ("file", 100));
        assert_eq!(tolerant.open("new", true).err().map(|e| e.kind()), Some(ErrorKind::ReadOnlyFilesystem));
    }
}
