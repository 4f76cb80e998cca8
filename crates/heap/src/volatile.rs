//! An arena without a file: for what is laid out only to be read, and gone when that is done.

use std::{io, sync::Arc};

use holdfast_io::{Durability, File, Result};

use crate::{Arena, Heap, HeapOptions};

impl Arena {
    /// The only arena of an empty heap that is never brought to a medium: `max_bytes` of address space at most. Its
    /// redo records are of no use; [`Tx::committed`](crate::Tx::committed) gives the memory of what was freed back.
    pub fn volatile(max_bytes: u64) -> Result<Arena> {
        let (_, mut arenas) = Heap::create(Arc::new(NoFile), HeapOptions { max_bytes, arenas: 1 })?;
        Ok(arenas.remove(0))
    }
}

/// Stands where a heap has its file. Only checkpoints and absent pages lead there, and there are neither.
pub(crate) struct NoFile;

fn refuse<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl File for NoFile {
    fn name(&self) -> &str {
        "volatile memory"
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        refuse()
    }

    fn write_at(&self, _: &[&[u8]], _: u64, _: Durability) -> io::Result<()> {
        refuse()
    }

    fn sync(&self) -> io::Result<()> {
        refuse()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        refuse()
    }

    fn punch_hole(&self, _: u64, _: u64) -> io::Result<bool> {
        refuse()
    }
}
