//! What the tests of the log share.

use std::sync::Arc;

use holdfast_io::{BLOCK, Further, Io, Result, SimIo, Spread, crc32c};
use holdfast_log::{Appendfsync, FILES, Log, LogOptions, Lsn, ReplayReport, Replayed};

/// Small segments, so that little data crosses many.
pub fn options() -> LogOptions {
    LogOptions {
        segment_size: 16 << 10,
        max_segments: 256,
        segments_above_max: 256,
        store_id: *b"0123456789abcdef",
        epoch: 1,
        crc_seed: 0x5EED,
        appendfsync: Appendfsync::Always,
        max_pending_bytes: 1 << 20,
        ended_at: None,
        agreed: None,
    }
}

/// Bytes of log in a segment of [`options`].
pub const SEGMENT_PAYLOAD: u64 = (16 << 10) - 4096;

/// A machine with one kind of medium or the other.
pub fn any_machine(seed: u64) -> SimIo {
    if seed % 4 == 1 { SimIo::on_scm(seed) } else { SimIo::new(seed) }
}

/// The data folder of a machine: as it is, or with a folder on a drive below it.
pub fn any_folders(sim: &SimIo, seed: u64) -> Result<Arc<dyn Io>> {
    if has_drive_below(seed) { with_drive_below(sim) } else { Ok(Arc::new(sim.clone())) }
}

pub fn has_drive_below(seed: u64) -> bool {
    seed / 4 % 2 == 1
}

/// The data folder `home`, with the folder `drive` below it.
pub fn with_drive_below(sim: &SimIo) -> Result<Arc<dyn Io>> {
    let below = [Further { path: "drive".to_owned(), is_below: true }];
    Spread::open(sim.folder("home"), "home", FILES, &below, &|further, _| {
        Ok(sim.folder_on_drive(further.path))
    })
}

pub type Batches = Vec<(Lsn, Vec<u8>)>;

/// Opens a log and collects what is replayed.
pub fn open(io: Arc<dyn Io>, o: LogOptions, from: Lsn) -> Result<(Arc<Log>, ReplayReport, Batches)> {
    let (replayed, batches) = replay(io, o, from, from)?;
    let report = replayed.report.clone();
    Ok((replayed.open()?, report, batches))
}

/// Replays a log of which everything below `durable` is known to be so.
pub fn replay(io: Arc<dyn Io>, o: LogOptions, from: Lsn, durable: Lsn) -> Result<(Replayed, Batches)> {
    let mut batches = Batches::new();
    let replayed = Log::replay(io, o, from, durable, &mut |lsn, payload| {
        batches.push((lsn, payload.to_vec()));
        Ok(())
    })?;
    Ok((replayed, batches))
}

/// What was written of a segment lies within what its header says of its reach: a start looks no further.
pub fn assert_nothing_is_beyond_its_reach(sim: &SimIo) {
    let u64_at =
        |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    for folder in ["log", "home/log", "drive/log"] {
        for name in sim.list(folder).unwrap_or_default() {
            let name = format!("{folder}/{name}");
            let bytes = sim.snapshot(&name);
            let is_whole =
                |half: &[u8]| half.len() >= 128 && crc32c(&half[..124]).to_le_bytes() == half[124..128];
            let halves = bytes.get(..BLOCK).into_iter().flat_map(|block| block.chunks(BLOCK / 2));
            // It was being made.
            let Some(header) = { halves }.find(|half| is_whole(half)) else { continue };
            let (start, reach) = (u64_at(header, 32) * SEGMENT_PAYLOAD, u64_at(header, 72) as usize);
            for at in (reach..bytes.len()).step_by(16) {
                let lsn = start + (at - BLOCK) as u64;
                assert_ne!(u64_at(&bytes, at + 8), lsn, "{name} has a batch beyond its reach, {reach}");
            }
        }
    }
}

/// A payload that differs from those of other numbers.
pub fn payload(number: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(number);
    (0..len).map(|i| if i % 97 < 50 { rng.draw() as u8 } else { number as u8 }).collect()
}

/// A sequence of numbers from a seed (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

/// The seeds to try: `HOLDFAST_SEED` alone if it is set, else `count` of them.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("HOLDFAST_SEED") {
        Ok(seed) => vec![seed.parse().expect("HOLDFAST_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}
