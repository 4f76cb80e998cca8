//! Where the heap is, in a file of its own or in its home in storage-class memory: how it is opened there, and moved when the store is opened
//! another way than the last time.

use super::options::Options;
use crate::format::{HEAP, payload::Changes, superblock::Superblock};
use holdfast_heap::{Arena, Heap, HeapOptions, Home, HomeMethod, Recovery, SortedRedo};
use holdfast_io::{AlignedBuf, Durability, Error, File, Io, Result};
use holdfast_log::{Log, Lsn, Participant};
use std::{io::ErrorKind, sync::Arc};

/// The file is moved in parts of this size; those that are zero take no room.
const MOVED_BYTES: usize = 256 << 10;

/// A heap, to which the log is being replayed.
pub(super) struct Opened {
    target: Target,
    options: HeapOptions,
    /// Whether the log has all that was changed since the last checkpoint. Else it has only items, to which the heap refers.
    pub has_redo: bool,
    changes: Changes,
    rules: Rules,
}

/// What the options say of the heap's pages.
#[derive(Clone, Copy)]
struct Rules {
    on_unreadable: fn(&Error) -> !,
    memory_bytes_max: usize,
}

/// Moves the heap's file to the folder below, if there is one and it is to lie there. A power cut leaves it where it was, or there, or in both: then
/// the one below may be a part of it, and the other one counts.
pub(super) fn place_heap(io: &dyn Io, is_below: bool) -> Result<()> {
    let Some(below) = io.below().filter(|_| !io.is_below(HEAP)) else { return Ok(()) };
    if !is_below {
        return match below.remove(HEAP) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io("remove a part of heap", e)),
            _ => Ok(()),
        };
    }
    let failed = |what: &'static str| move |e| Error::io(what, e);
    let from = io.open(HEAP, false).map_err(failed("open heap"))?;
    let len = from.len().map_err(failed("open heap"))?;
    let to = below.open(HEAP, true).map_err(failed("move heap"))?;
    let copy = || {
        // What an interrupted move has left goes.
        to.set_len(0).and_then(|()| to.set_len(len))?;
        let mut memory = AlignedBuf::zeroed(MOVED_BYTES.min(len as usize));
        let mut at = 0;
        while at < len {
            let piece = (len - at).min(memory.len() as u64) as usize;
            let bytes = &mut memory[..piece];
            from.read_at(bytes, at)?;
            if bytes.iter().any(|&byte| byte != 0) {
                to.write_at(&[bytes], at, Durability::Volatile)?;
            }
            at += piece as u64;
        }
        to.sync().and_then(|()| below.sync_dir(""))
    };
    if let Err(error) = copy() {
        below.remove(HEAP).map_err(failed("move heap"))?;
        return Err(Error::io("move heap", error));
    }
    io.remove(HEAP).and_then(|()| io.sync_dir("")).map_err(failed("move heap"))
}

/// Commits to a home along with the log.
pub(super) struct AtHome(pub Arc<Home>);

impl Participant for AtHome {
    fn commit(&self, end: Lsn, write: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.0.commit(end, write)
    }
}

/// What is changed by the replay.
enum Target {
    /// A heap in memory.
    Memory(Arc<Heap>, Recovery),
    /// A home, from which the heap is opened then.
    Home(Arc<Home>),
}

impl Opened {
    pub fn open(io: &Arc<dyn Io>, superblock: &Superblock, options: &Options) -> Result<Opened> {
        let heap_options = HeapOptions { max_bytes: options.heap_bytes_max, arenas: superblock.partitions };
        let target = match superblock.home {
            None => {
                if !io.is_read_only() {
                    // A start may have been interrupted that was making it.
                    Home::remove(&**io)?;
                }
                let file = io.open(HEAP, false).map_err(|e| Error::io("open heap", e))?;
                let (heap, redo) = Heap::open(file, heap_options, &superblock.heap)?;
                Target::Memory(heap, redo)
            }
            Some(_) if io.scm().is_none() && !io.is_read_only() => {
                let why = "the heap lies in storage-class memory: start with the option medium as before";
                return Err(Error::Unusable(why.into()));
            }
            Some(was) => {
                let method = options.home.unwrap_or(was);
                let home = Home::open(io.clone(), superblock.store_id, superblock.partitions, method)?;
                if options.home.is_some() && !io.is_read_only() {
                    Target::Home(home)
                } else {
                    // One that is only read gets no file, and so can take no checkpoint.
                    let file = match io.is_read_only() {
                        true => None,
                        false => Some(io.open(HEAP, true).map_err(|e| Error::io("create heap", e))?),
                    };
                    let (heap, redo) = Heap::take_over(&home, file, heap_options)?;
                    Target::Memory(heap, redo)
                }
            }
        };
        let &Options { on_unreadable, memory_bytes_max, .. } = options;
        let rules = Rules { on_unreadable, memory_bytes_max };
        if let Target::Memory(heap, _) = &target {
            rules.apply(heap);
        }
        let has_redo = matches!(superblock.home, None | Some(HomeMethod::Lat));
        Ok(Opened { target, options: heap_options, has_redo, changes: Changes::default(), rules })
    }

    /// Takes in what a batch of the log has changed.
    pub fn replay(&mut self, lsn: Lsn, bytes: &[u8]) -> Result<()> {
        if !self.has_redo {
            return Ok(());
        }
        match &mut self.target {
            Target::Memory(_, recovery) => self.changes.each(lsn, bytes, |change| recovery.apply(change)),
            Target::Home(home) => self.changes.each(lsn, bytes, |change| home.apply(change)),
        }
    }

    /// Takes in what some batches have changed.
    pub fn apply_sorted(&mut self, redo: SortedRedo) -> Result<()> {
        match &mut self.target {
            Target::Memory(_, recovery) => recovery.apply_sorted(redo),
            Target::Home(home) => redo.records().try_for_each(|record| home.apply(&record)),
        }
    }

    /// Takes in redo that was condensed.
    pub fn apply_condensed(&mut self, redo: &[u8]) -> Result<()> {
        match &mut self.target {
            Target::Memory(_, recovery) => recovery.apply_encoded(redo),
            Target::Home(_) => Err(Error::Unusable("what a home lacks is not condensed".into())),
        }
    }

    /// The heap, with all that was replayed so far, to be followed.
    ///
    /// # Errors
    /// It lies in a home, or a header cannot be read.
    pub fn follow(self) -> Result<(Arc<Heap>, Vec<Arena>)> {
        match self.target {
            Target::Memory(heap, redo) => Ok((heap, redo.follow()?)),
            Target::Home(_) => {
                Err(Error::Unusable("a heap that is changed in place cannot be followed".into()))
            }
        }
    }

    /// The heap, with all that was replayed.
    pub fn finish(self) -> Result<(Arc<Heap>, Vec<Arena>)> {
        match self.target {
            Target::Memory(heap, redo) => Ok((heap, redo.finish()?)),
            Target::Home(home) => {
                home.fence()?;
                let (heap, arenas) = Heap::open_home(home, self.options)?;
                self.rules.apply(&heap);
                Ok((heap, arenas))
            }
        }
    }
}

impl Rules {
    /// Before any of its pages is used.
    fn apply(self, heap: &Heap) {
        heap.on_unreadable(self.on_unreadable);
        if heap.absent_bytes() > self.memory_bytes_max as u64 / 2 {
            heap.use_small_pages();
        }
    }
}

/// Has the heap where the options want it, and says so in the superblock, which is of another opinion. Nothing of the log is to be replayed any more then.
pub(super) fn move_heap(
    io: &Arc<dyn Io>,
    log: &Log,
    (heap, mut arenas): (Arc<Heap>, Vec<Arena>),
    (superblock, file): (&mut Superblock, &dyn File),
    options: &Options,
) -> Result<(Arc<Heap>, Vec<Arena>)> {
    let mut next = Superblock {
        generation: superblock.generation + 1,
        checkpoint_lsn: log.tail(),
        durable_lsn: log.durable(),
        epoch: log.epoch(),
        home: options.home,
        ..superblock.clone()
    };
    for (arena, extent) in heap.with_redo() {
        arenas[usize::from(arena)].apply_redo(extent)?;
    }
    let moved = match (superblock.home, options.home) {
        (None, Some(method)) => {
            let home = Home::create(io.clone(), next.store_id, next.partitions, method)?;
            heap.move_to(&home, &arenas)?;
            next.write(file)?;
            drop((heap, arenas));
            io.remove(HEAP).and_then(|()| io.sync_dir("")).map_err(|e| Error::io("remove heap", e))?;
            let options = HeapOptions { max_bytes: options.heap_bytes_max, arenas: next.partitions };
            Heap::open_home(home, options)?
        }
        (Some(_), None) => {
            io.sync_dir("").map_err(|e| Error::io("create heap", e))?;
            let mut checkpoint = heap.begin_checkpoint();
            for arena in &mut arenas {
                while checkpoint.copy(arena, 1 << 16) {
                    checkpoint.write()?;
                }
            }
            checkpoint.write()?;
            let finished = checkpoint.finish()?;
            next.heap = *finished.root();
            next.write(file)?;
            finished.commit();
            Home::remove(&**io)?;
            (heap, arenas)
        }
        _ => {
            next.write(file)?;
            (heap, arenas)
        }
    };
    moved.0.on_unreadable(options.on_unreadable);
    *superblock = next;
    Ok(moved)
}
