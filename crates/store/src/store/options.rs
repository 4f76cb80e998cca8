//! How a store is opened, and what a start found.

use crate::{
    format::{compress::Codec, superblock::Superblock},
    partition::budget::Process,
};
use holdfast_heap::HomeMethod;
use holdfast_io::{Error, Io, Result};
use holdfast_log::{Appendfsync, LogOptions, Lsn};
use std::process;

/// How a store is opened. The geometry (partitions, segment size) is fixed when the data folder is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Partitions: a power of two up to 1024.
    pub partitions: u16,
    /// Bytes of a log segment, a power of two, at least 64 KiB; `None`: 32 MiB, or less if the log or the
    /// medium is small.
    pub segment_size: Option<u32>,
    /// Bytes of log on the medium at most; at least eight segments.
    pub log_bytes_max: u64,
    /// Bytes of log at most in the folders above one that lies below, if there is such a one: what is older moves there. At least eight
    /// segments.
    pub log_bytes_above_max: u64,
    /// The heap's file lies in the folder below, too, if there is one. A start moves it there; it does not move it back.
    pub heap_below: bool,
    /// Bytes that the whole data folder may take: the log gets what the heap leaves of them. `u64::MAX`: what the medium holds.
    pub disk_bytes_max: u64,
    /// Bytes of heap at most.
    pub heap_bytes_max: u64,
    /// Bytes of RAM that the store may take: the heap and what goes with it, and what is left for copies of items.
    pub memory_bytes_max: usize,
    /// Whether RAM keeps copies of values that were written or read, and what is known of the uses of keys. Who writes only needs neither.
    pub keeps_copies: bool,
    /// The folder is new, filled ([`Store::begin_filling`](crate::Store::begin_filling)) and closed: only then is anything in it of use. So what fills it
    /// changes the heap without redo in the log, unless the heap has a home. A folder that was not closed is refused from then on.
    pub is_filled: bool,
    /// If all RAM of the process counts against `memory_bytes_max`: copies of items then yield to what else the process holds.
    pub process: Option<Process>,
    /// The heap lies in storage-class memory as it is, and transactions change it so; `None`: in a file that checkpoints write. It may
    /// be another one than at the last start.
    pub home: Option<HomeMethod>,
    /// When writes are made durable.
    pub appendfsync: Appendfsync,
    /// What [`Store::let_go`](crate::Store::let_go) has returned in the process that had the data folder up to now.
    pub ended_at: Option<Lsn>,
    /// Other servers that are to have what is written, too.
    pub replication: Option<Replication>,
    /// How values are compressed that are written from now on; see [`Store::set_compression`](crate::Store::set_compression).
    pub compression: Option<Codec>,
    /// Bytes of log after which a checkpoint is taken, at least.
    pub checkpoint_bytes: u64,
    /// Batches after which one is taken, if they are more bytes than the heap has.
    pub checkpoint_batches: u64,
    /// Threads for commits and maintenance. Without them, the caller drives both (for tests).
    pub background: bool,
    /// Ends the process when a page of the heap that is needed cannot be read or is damaged; see [`Heap::on_unreadable`](holdfast_heap::Heap::on_unreadable).
    pub on_unreadable: fn(&Error) -> !,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            partitions: 64,
            segment_size: None,
            log_bytes_max: u64::MAX,
            log_bytes_above_max: u64::MAX,
            heap_below: false,
            disk_bytes_max: u64::MAX,
            heap_bytes_max: 64 << 30,
            memory_bytes_max: usize::MAX,
            keeps_copies: true,
            is_filled: false,
            process: None,
            home: None,
            appendfsync: Appendfsync::Always,
            ended_at: None,
            replication: None,
            compression: None,
            checkpoint_bytes: 128 << 20,
            // A start replays so many in some 0.2 s.
            checkpoint_batches: 600_000,
            background: true,
            on_unreadable: |error| {
                eprintln!("{error}");
                process::abort()
            },
        }
    }
}

/// How a store is one of several that have the same log.
#[derive(Clone, Copy, Debug)]
pub struct Replication {
    /// A term that is not earlier than any in the log.
    pub term: u32,
    /// Everything below is known to be durable on as many servers as must have it.
    pub agreed: Lsn,
}

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Whether the data folder was made by this start.
    pub created: bool,
    /// Bytes of log replayed.
    pub replayed_bytes: u64,
    /// Batches replayed.
    pub replayed_batches: u64,
    /// Microseconds from opening to serving.
    pub us: u64,
    /// Whether the folder is a copy of one that was in use.
    pub is_copy: bool,
    /// A torn tail that was cut, or a damaged superblock that was healed, unless the store is only read: file, offset, what.
    pub notes: Vec<String>,
}

/// Segments that a log may have at least: some are being written, cleaned and made ready.
const SEGMENTS_MIN: u64 = 8;
/// And at most.
const SEGMENTS_MAX: u64 = 1 << 20;
/// Segments that a log of limited size is made of, unless that makes them too small or too large: what is written to, kept
/// for cleaning and not yet clean is a small part of so many.
const SEGMENTS: u64 = 512;
/// Segments above a folder that lies below, for the same reason.
const SEGMENTS_ABOVE: u64 = 32;
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 32 << 20;

impl Options {
    pub(crate) fn segment_size(&self, io: &dyn Io) -> u32 {
        let medium = io.free_bytes().ok().flatten().unwrap_or(u64::MAX);
        let log = self.log_bytes_max.min(self.disk_bytes_max).min(medium);
        let above = match io.below().map(|_| io.room_for_files(0, 1).ok().flatten()) {
            Some(room) => self.log_bytes_above_max.min(room.map_or(u64::MAX, |room| room.max(0) as u64)),
            None => u64::MAX,
        };
        let fitting = (log / SEGMENTS).min(above / SEGMENTS_ABOVE);
        let fitting = fitting.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        self.segment_size.unwrap_or(1 << fitting.ilog2())
    }
}

pub(crate) fn log_options(superblock: &Superblock, options: &Options) -> LogOptions {
    let segments =
        |bytes: u64| (bytes / u64::from(superblock.segment_size)).clamp(SEGMENTS_MIN, SEGMENTS_MAX) as u32;
    LogOptions {
        segment_size: superblock.segment_size,
        max_segments: segments(options.log_bytes_max),
        segments_above_max: segments(options.log_bytes_above_max),
        store_id: superblock.store_id,
        epoch: options.replication.map_or(superblock.epoch, |replication| replication.term),
        crc_seed: superblock.crc_seed(),
        appendfsync: options.appendfsync,
        max_pending_bytes: max_pending_bytes(options.memory_bytes_max),
        ended_at: options.ended_at,
        agreed: options.replication.map(|replication| replication.agreed),
    }
}

/// Bytes that may wait for the log to be written, of the RAM that the store may take (I-7).
pub(crate) fn max_pending_bytes(memory_bytes_max: usize) -> usize {
    (memory_bytes_max / 16).clamp(1 << 20, 64 << 20)
}

/// Whether the heap can have the home that is wanted on this machine.
pub(crate) fn check_home(o: &Options, io: &dyn Io) -> Result<()> {
    if o.home.is_some() && io.scm().is_none() && !io.is_read_only() {
        return Err(Error::Unusable("only in storage-class memory can the heap be changed in place".into()));
    }
    Ok(())
}

pub(crate) fn check_options(o: &Options) -> Result<()> {
    let wrong = if !o.partitions.is_power_of_two() || o.partitions > 1024 {
        "partitions must be a power of two up to 1024"
    } else if o.segment_size.is_some_and(|size| !size.is_power_of_two() || size < 64 << 10) {
        "the segment size must be a power of two of at least 64 KiB"
    } else {
        return Ok(());
    };
    Err(Error::Unusable(wrong.into()))
}
