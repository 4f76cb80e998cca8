//! The segments of a log and their files: what is kept, what is free, and how much may be made.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use holdfast_io::{AlignedBuf, BLOCK, Error, File, Io, Result};

use crate::{
    Limit,
    layout::{Entry, SegmentHeader},
};

/// The folder of the data folder that the log's files are in.
pub const FOLDER: &str = "log";

/// One kept segment.
pub(crate) struct Segment {
    pub seq: u64,
    pub file: SlotFile,
    crossing: AtomicU64,
    first: AtomicU64,
    reach: AtomicU32,
}

impl Segment {
    pub fn new(seq: u64, file: SlotFile, entry: Entry, reach: u32) -> Self {
        let (crossing, first) = (AtomicU64::new(entry.crossing), AtomicU64::new(entry.first));
        Self { seq, file, crossing, first, reach: AtomicU32::new(reach) }
    }

    /// Up to where in the file it may have been written to; the header says so, durably.
    pub fn reach(&self) -> u64 {
        self.reach.load(Ordering::Relaxed).into()
    }

    /// To be called once the header says so.
    pub fn set_reach(&self, reach: u32) {
        self.reach.store(reach, Ordering::Relaxed);
    }

    pub fn entry(&self) -> Entry {
        let first = self.first.load(Ordering::Acquire);
        Entry { crossing: self.crossing.load(Ordering::Relaxed), first }
    }

    pub fn set_entry(&self, entry: Entry) {
        self.crossing.store(entry.crossing, Ordering::Relaxed);
        self.first.store(entry.first, Ordering::Release);
    }

    /// Whether nothing was written to it yet.
    pub fn is_empty(&self) -> bool {
        self.first.load(Ordering::Acquire) == 0
    }
}

/// A file for a segment.
#[derive(Clone)]
pub(crate) struct SlotFile {
    /// Its name, as a number.
    pub slot: u32,
    /// Whether it is in the folder below the others.
    pub is_below: bool,
    pub file: Arc<dyn File>,
}

impl SlotFile {
    /// Opens the file with a number.
    pub fn open(io: &dyn Io, slot: u32, create: bool) -> Result<SlotFile> {
        let name = file_name(slot);
        let file = io.open(&name, create).map_err(|e| Error::io(format!("open {name}"), e))?;
        Ok(SlotFile { slot, is_below: io.is_below(&name), file })
    }
}

impl Deref for SlotFile {
    type Target = dyn File;

    fn deref(&self) -> &Self::Target {
        &*self.file
    }
}

pub(crate) struct Table {
    pub kept: BTreeMap<u64, Arc<Segment>>,
    /// Freed, but kept for a pin.
    pub held: BTreeMap<u64, Arc<Segment>>,
    /// The sequence number that is prepared next.
    pub next: u64,
    pub above: Tier,
    /// None may be there, unless there is such a folder.
    pub below: Tier,
    /// The last file that was refused was so for want of open files, rather than of room.
    pub is_out_of_files: bool,
    /// Older segments are below, or cannot be read.
    pub lowest_above: u64,
    pub limits: FileLimits,
    /// Files that there may be. That is more than these limits allow while there are more that are needed.
    pub files_max: u64,
}

impl Table {
    pub fn files(&self) -> u64 {
        self.above.files + self.below.files
    }

    /// Files that what is kept takes, and what is still to be prepared up to the segment `last`.
    pub fn needed(&self, last: u64) -> u64 {
        self.kept.range(..=last).count() as u64 + (last + 1).saturating_sub(self.next)
    }

    pub fn tier(&mut self, is_below: bool) -> &mut Tier {
        if is_below { &mut self.below } else { &mut self.above }
    }

    pub fn add_spare(&mut self, file: SlotFile) {
        self.tier(file.is_below).spares.push(file);
    }

    /// Whether a file more may be made there, as far as is known without asking the medium.
    pub fn may_create(&self, is_below: bool) -> bool {
        let tier = if is_below { &self.below } else { &self.above };
        self.files_are_allowed(is_below) && (!tier.is_full || tier.is_tried)
    }

    /// The same, whatever the medium.
    pub fn files_are_allowed(&self, is_below: bool) -> bool {
        let tier = if is_below { &self.below } else { &self.above };
        self.files() < self.files_max && tier.files < tier.files_max
    }

    /// The first number from `first` on that no file has.
    pub fn free_slot(&self, first: u32) -> u32 {
        let segments = self.kept.values().chain(self.held.values()).map(|segment| segment.file.slot);
        let spares = self.above.spares.iter().chain(&self.below.spares).map(|file| file.slot);
        let used: BTreeSet<u32> = segments.chain(spares).collect();
        (first..).find(|slot| !used.contains(slot)).expect("fewer files than numbers")
    }
}

/// Files that there should be at most.
#[derive(Clone, Copy)]
pub(crate) struct FileLimits {
    /// See [`LogOptions::max_segments`](crate::LogOptions::max_segments).
    pub by_options: u64,
    /// See [`Log::set_open_files_max`](crate::Log::set_open_files_max).
    pub open: u64,
    /// See [`Log::set_bytes_max`](crate::Log::set_bytes_max).
    pub by_budget: u64,
}

impl FileLimits {
    pub fn least(self) -> u64 {
        self.by_options.min(self.open).min(self.by_budget)
    }

    /// Which of them is the least.
    pub fn limit(self) -> Limit {
        match self.least() {
            least if least == self.by_options => Limit::Options,
            least if least == self.open => Limit::OpenFiles,
            _ => Limit::Budget,
        }
    }
}

/// The files above, or below.
#[derive(Default)]
pub(crate) struct Tier {
    /// Those that hold nothing that is needed.
    pub spares: Vec<SlotFile>,
    /// How many there are, with those.
    pub files: u64,
    /// How many there may be.
    pub files_max: u64,
    /// The medium refused to hold another one, and was not tried again since.
    pub is_full: bool,
    /// That is being tried; to everybody else it is full until there is a file.
    pub is_tried: bool,
}

/// How much room there is, as of when it was measured last.
#[derive(Default)]
pub(crate) struct Space {
    /// Bytes of the medium that are left for others.
    pub reserve: AtomicU64,
    /// Of these, what was added since space was measured.
    pub unmeasured: AtomicU64,
    /// The log's end if everything free were prepared.
    pub end: AtomicU64,
    /// Whether that is where it is because of the medium, rather than of the log's own limit.
    pub medium_limits: AtomicBool,
    /// Whether the medium does not tell how much of it is free.
    pub medium_unknown: AtomicBool,
    /// Whether the log takes more than [`FileLimits`] allow.
    pub is_too_large: AtomicBool,
    /// Files above that should move down.
    pub surplus: AtomicU64,
}

/// The name of a file, by its number.
pub(crate) fn file_name(slot: u32) -> String {
    format!("{FOLDER}/{slot:08x}")
}

/// The number of a file, by its name within the folder.
pub(crate) fn slot_of(name: &str) -> Option<u32> {
    let is_hex = name.len() == 8 && name.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u32::from_str_radix(name, 16).ok()).flatten()
}

/// The header of a segment's file; `None`: it never had one.
pub(crate) fn read_header(file: &dyn File, name: &str) -> Result<Option<SegmentHeader>> {
    let mut block = AlignedBuf::zeroed(BLOCK);
    file.read_at(&mut block, 0).map_err(|e| Error::io(format!("read {name}"), e))?;
    SegmentHeader::read(&block, name)
}
