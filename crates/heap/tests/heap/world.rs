//! A heap with a log in memory and a model beside it, on a simulated machine.

use std::{collections::BTreeMap, sync::Arc};

use holdfast_heap::{Arena, Checkpoint, Heap, HeapOptions, HeapRoot, Load, PAGE, SortedRedo, Tx};
use holdfast_io::{Io, Result, SimIo};

/// A small generator, so that a failing case is its seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// Mostly small, up to several extents.
    pub fn size(&mut self) -> usize {
        let limit = [64, 64, 600, 600, 6000, 6000, 60_000, 300_000, 700_000][self.below(9) as usize];
        1 + self.below(limit) as usize
    }
}

/// A part of a batch in the log.
enum Record {
    Redo(Vec<u8>),
    /// What the store does by an item: bytes that were patched.
    Item(u64, Vec<u8>),
}

/// A change to the model.
#[derive(Clone)]
enum Change {
    Alloc { arena: usize, offset: u64, size: usize, bytes: Vec<u8> },
    Write { offset: u64, at: usize, bytes: Vec<u8> },
    Free { offset: u64 },
}

struct Block {
    arena: usize,
    size: usize,
    /// Its first bytes.
    bytes: Vec<u8>,
}

type Blocks = BTreeMap<u64, Block>;

fn change(blocks: &mut Blocks, change: Change) {
    match change {
        Change::Alloc { arena, offset, size, bytes } => {
            assert!(blocks.insert(offset, Block { arena, size, bytes }).is_none());
        }
        Change::Write { offset, at, bytes } => {
            blocks.get_mut(&offset).unwrap().bytes[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Change::Free { offset } => assert!(blocks.remove(&offset).is_some()),
    }
}

#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    changes: Vec<Change>,
}

/// What the superblock says, and so what is replayed.
#[derive(Clone, Copy)]
struct Superblock {
    root: HeapRoot,
    replay_from: usize,
}

/// A checkpoint in the making.
struct Running {
    checkpoint: Checkpoint,
    replay_from: usize,
    /// Length of the log when pages were last copied.
    newest: usize,
    left: Vec<usize>,
}

pub struct World {
    pub random: Random,
    pub sim: SimIo,
    pub heap: Arc<Heap>,
    pub arenas: Vec<Arena>,
    options: HeapOptions,
    log: Vec<Batch>,
    /// Batches that cannot be lost any more.
    durable: usize,
    superblock: Superblock,
    running: Option<Running>,
    blocks: Blocks,
    tx: Tx,
    /// Whether a transaction is going on.
    is_open: bool,
}

impl World {
    pub fn new(seed: u64, max_bytes: u64, arenas: u16) -> World {
        let sim = SimIo::new(seed);
        let options = HeapOptions { max_bytes, arenas };
        let file = sim.open("heap", true).unwrap();
        sim.sync_dir("").unwrap();
        let (heap, mut arenas) = Heap::create(file, options).unwrap();
        let finished = checkpoint_now(&heap, &mut arenas).unwrap();
        let superblock = Superblock { root: *finished.root(), replay_from: 0 };
        finished.commit();
        World {
            random: Random(seed),
            sim,
            heap,
            arenas,
            options,
            log: Vec::new(),
            durable: 0,
            superblock,
            running: None,
            blocks: Blocks::new(),
            tx: Tx::new(),
            is_open: false,
        }
    }

    /// Executes a transaction and appends it to the log; sometimes a checkpoint ends in between.
    pub fn transact(&mut self, growth: u64) -> Result<()> {
        let mut batch = Batch::default();
        for _ in 0..1 + self.random.below(4) {
            let changes = match self.random.below(10) {
                n if n < growth => self.alloc(),
                n if n < 8 => self.free(),
                _ if self.random.chance(2) => {
                    let arena = self.random.below(self.arenas.len() as u64) as usize;
                    let extents = self.random.below(4) as usize;
                    self.arenas[arena].give_back(&mut self.tx, extents);
                    Vec::new()
                }
                _ => self.write(&mut batch),
            };
            for c in changes {
                change(&mut self.blocks, c.clone());
                batch.changes.push(c);
            }
        }
        batch.records.push(Record::Redo(std::mem::take(&mut self.tx.buf)));
        self.tx.clear();
        let heap = self.heap.clone();
        self.is_open = true;
        let result = if self.random.chance(8) { self.finish_checkpoint() } else { Ok(()) };
        self.is_open = false;
        if !Arc::ptr_eq(&heap, &self.heap) {
            return result; // the process has ended meanwhile, and this transaction with it
        }
        self.log.push(batch);
        self.tx.committed();
        result
    }

    /// Takes pages out of memory that were not used of late.
    pub fn evict(&mut self) -> u64 {
        let arena = self.random.below(self.arenas.len() as u64) as usize;
        let extents_max = 1 + self.random.below(60) as usize;
        self.arenas[arena].evict(extents_max).pages
    }

    fn some_bytes(&mut self, len: usize) -> Vec<u8> {
        // Some are zero, so that pages become zero again.
        let byte = if self.random.chance(4) { 0 } else { self.random.below(256) as u8 };
        let mut bytes = vec![byte; len];
        if let Some(last) = bytes.last_mut().filter(|_| byte != 0) {
            *last = self.random.below(256) as u8;
        }
        bytes
    }

    fn some_block(&mut self) -> Option<u64> {
        let from = self.random.below(self.options.max_bytes);
        self.blocks.range(from..).next().or(self.blocks.iter().next()).map(|(&offset, _)| offset)
    }

    fn alloc(&mut self) -> Vec<Change> {
        let (arena, size) = (self.random.below(self.arenas.len() as u64) as usize, self.random.size());
        let Ok(offset) = self.arenas[arena].alloc(&mut self.tx, size) else { return Vec::new() };
        assert_eq!(offset % if size % PAGE == 0 { PAGE as u64 } else { 16 }, 0);
        let before = self.blocks.range(..offset + size as u64).next_back();
        assert!(before.is_none_or(|(&at, block)| at + block.size as u64 <= offset), "blocks overlap");
        let len = if self.random.chance(4) { size } else { size.min(2 * PAGE) };
        let bytes = self.some_bytes(len);
        if bytes.iter().all(|&byte| byte == 0) {
            self.arenas[arena].fill(&mut self.tx, offset, len, 0);
        } else {
            self.arenas[arena].write(&mut self.tx, offset, &bytes);
        }
        // What is behind them is undefined, but the same after a restart: a write that changes nothing is not recorded.
        let bytes = self.arenas[arena].bytes(offset, size.min(16 * PAGE).max(len)).to_vec();
        vec![Change::Alloc { arena, offset, size, bytes }]
    }

    fn free(&mut self) -> Vec<Change> {
        let Some(offset) = self.some_block() else { return Vec::new() };
        let Block { arena, size, .. } = self.blocks[&offset];
        self.arenas[arena].free(&mut self.tx, offset, size);
        vec![Change::Free { offset }]
    }

    /// Writes, copies or patches a part of a block.
    fn write(&mut self, batch: &mut Batch) -> Vec<Change> {
        let Some(offset) = self.some_block() else { return Vec::new() };
        let Block { arena, ref bytes, .. } = self.blocks[&offset];
        let total = bytes.len();
        let len = 1 + self.random.below(total.min(200) as u64) as usize;
        let at = self.random.below((total - len + 1) as u64) as usize;
        let to = offset + at as u64;
        let mut bytes = self.some_bytes(len);
        match self.random.below(4) {
            0 => self.arenas[arena].write(&mut self.tx, to, &bytes),
            3 if len >= 8 => {
                // An integer, all or some of whose bytes change.
                bytes = self.blocks[&offset].bytes[at..at + 8].to_vec();
                let changed = self.random.below(8) as usize..8;
                bytes[changed].fill(self.random.below(256) as u8);
                let value = u64::from_le_bytes(bytes[..].try_into().unwrap());
                self.arenas[arena].write_changed_u64(&mut self.tx, to, value);
            }
            1 => {
                let from = self.random.below((total - len + 1) as u64) as usize;
                bytes = self.blocks[&offset].bytes[from..from + len].to_vec();
                self.arenas[arena].copy(&mut self.tx, offset + from as u64, to, len);
            }
            _ => {
                self.arenas[arena].patch(to, &bytes);
                batch.records.push(Record::Redo(std::mem::take(&mut self.tx.buf)));
                self.tx.clear();
                batch.records.push(Record::Item(to, bytes.clone()));
            }
        }
        vec![Change::Write { offset, at, bytes }]
    }

    /// Makes a step of a checkpoint; starts one if none is running.
    pub fn checkpoint_step(&mut self) -> Result<()> {
        let Some(running) = &mut self.running else {
            let replay_from = self.log.len();
            let left = (0..self.arenas.len()).collect();
            let checkpoint = self.heap.begin_checkpoint();
            self.running = Some(Running { checkpoint, replay_from, newest: replay_from, left });
            return Ok(());
        };
        match self.random.below(20) {
            0..3 => self.write_checkpoint(),
            3 => {
                self.running = None;
                Ok(())
            }
            4..6 => self.finish_checkpoint(),
            _ if running.left.is_empty() => self.finish_checkpoint(),
            _ => {
                let i = self.random.below(running.left.len() as u64) as usize;
                let pages_max = 1 << self.random.below(9);
                running.newest = self.log.len();
                let more = running.checkpoint.copy(&mut self.arenas[running.left[i]], pages_max);
                if !more {
                    running.left.swap_remove(i);
                }
                if self.random.chance(2) { self.write_checkpoint() } else { Ok(()) }
            }
        }
    }

    fn write_checkpoint(&mut self) -> Result<()> {
        let result = self.running.as_mut().map_or(Ok(()), |running| running.checkpoint.write());
        if result.is_err() {
            self.running = None;
        }
        result
    }

    /// Ends a checkpoint that has copied everything.
    fn finish_checkpoint(&mut self) -> Result<()> {
        let Some(running) = self.running.take_if(|running| running.left.is_empty()) else { return Ok(()) };
        let finished = running.checkpoint.finish()?;
        if self.random.chance(4) {
            return Ok(()); // dropped: the superblock could not be written
        }
        // I-3
        self.durable = self.durable.max(running.newest);
        self.superblock = Superblock { root: *finished.root(), replay_from: running.replay_from };
        if !self.random.chance(10) {
            finished.commit();
        } else {
            // The process ends between the superblock and the commit.
            std::mem::forget(finished);
            self.restart(false)?;
        }
        Ok(())
    }

    /// The process ends, or the power fails; then everything is recovered and compared.
    pub fn restart(&mut self, power_cut: bool) -> Result<()> {
        self.running = None;
        let volatile = (self.log.len() - self.durable) as u64;
        let lost = if self.random.chance(2) { 0 } else { self.random.below(volatile + 1) as usize };
        let kept = self.log.len() - lost;
        // I-14: what replay makes is what was there, if nothing was lost.
        let images = |arenas: &[Arena]| arenas.iter().map(Arena::image).collect::<Vec<_>>();
        let expected = (lost == 0 && !self.is_open).then(|| images(&self.arenas));
        if power_cut {
            self.sim = self.sim.crash();
        }
        self.log.truncate(kept);
        self.durable = kept;
        let file = self.sim.open("heap", false).unwrap();
        let (heap, mut recovery) = Heap::open(file, self.options, &self.superblock.root)?;
        // One record after another, or many at once.
        let (sorts, mut sorted) = (self.random.chance(2), SortedRedo::default());
        for record in self.log[self.superblock.replay_from..].iter().flat_map(|batch| &batch.records) {
            let mut take = |record: &holdfast_heap::Record| match sorts {
                true => {
                    sorted.add(record);
                    Ok(())
                }
                false => recovery.apply(record),
            };
            match record {
                Record::Redo(redo) => {
                    holdfast_heap::Record::all(redo).try_for_each(|record| take(&record.unwrap()))?
                }
                Record::Item(offset, bytes) => {
                    take(&holdfast_heap::Record::Write { offset: *offset, bytes })?
                }
            }
            if self.random.chance(20) {
                recovery.apply_sorted(std::mem::take(&mut sorted))?;
            }
            if self.random.chance(100) {
                heap.load_next(Load::All, 10_000)?;
            }
        }
        recovery.apply_sorted(sorted)?;
        self.arenas = recovery.finish()?;
        self.heap = heap;
        (self.tx, self.is_open) = (Tx::new(), false);
        self.blocks = Blocks::new();
        let changes = self.log.iter().flat_map(|batch| &batch.changes);
        changes.for_each(|c| change(&mut self.blocks, c.clone()));
        match self.random.below(3) {
            0 => while self.heap.load_next(Load::All, 100_000)? {},
            1 => drop(self.heap.load_next(Load::All, 1 << 20)?),
            _ => {}
        }
        if self.random.chance(2) {
            self.check_blocks();
            self.heap.verify()?;
        }
        for (expected, found) in expected.iter().flatten().zip(images(&self.arenas)) {
            assert_eq!(expected.first_difference(&found), None);
        }
        Ok(())
    }

    /// Compares everything with the model.
    pub fn check_blocks(&self) {
        for (&offset, block) in &self.blocks {
            let found = self.arenas[block.arena].bytes(offset, block.bytes.len());
            assert!(found == block.bytes, "the block of {} bytes at {offset} differs", block.size);
        }
        for (i, arena) in self.arenas.iter().enumerate() {
            let blocks = self.blocks.values().filter(|block| block.arena == i);
            let allocated: u64 = blocks.map(|block| Arena::usable_size(block.size) as u64).sum();
            assert_eq!(arena.allocated_bytes(), allocated);
            arena.check().unwrap();
        }
        assert_eq!(self.heap.held_bytes(), self.heap.stats().resident_bytes, "every byte is accounted for");
    }

    /// Frees all blocks.
    pub fn clear(&mut self) {
        while let Some((offset, block)) = self.blocks.pop_first() {
            self.arenas[block.arena].free(&mut self.tx, offset, block.size);
        }
        self.tx.committed();
    }
}

/// A checkpoint without anything going on beside it.
pub fn checkpoint_now(heap: &Arc<Heap>, arenas: &mut [Arena]) -> Result<holdfast_heap::Finished> {
    let mut checkpoint = heap.begin_checkpoint();
    for arena in arenas {
        while checkpoint.copy(arena, 64) {
            checkpoint.write()?;
        }
    }
    checkpoint.finish()
}
