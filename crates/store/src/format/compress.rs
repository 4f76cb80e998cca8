//! Values in the log may be compressed, one by one: the copies in memory never are. What that saves is room in the log.
//!
//! A compressed value is `codec u8, length before u32, bytes of the codec` (`docs/format.md`, "Items"). Each is complete in itself, so that
//! a read of one item is enough to have its value, and the cleaner moves it as it is.

use parking_lot::Mutex;
use std::{
    cell::{Cell, RefCell},
    ops::Deref,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// How values are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Blocks of LZ4: the fastest.
    Lz4,
    /// Frames of Zstandard, of a level from 1 to 19: the greater, the smaller and slower.
    Zstd(i32),
}

const LZ4: u8 = 1;
const ZSTD: u8 = 2;
/// Bytes before the codec's own.
const HEAD: usize = 5;
/// Values of fewer bytes are not tried, unless told otherwise: the head takes most of what could be saved.
pub const LEN_MIN: usize = 64;
/// Values of more bytes are not tried: others wait for the value's partition meanwhile, some ms for LZ4, a third of a second for
/// the highest level of Zstandard.
const TRIED_MAX: usize = 1 << 20;
/// Bytes that a compressed value has before, at most.
const LEN_MAX: usize = 16 << 20;
/// What is saved at least, as a share of the value, and in bytes: items begin at multiples of 16.
const SAVED_MIN: usize = 16;
/// After so many values in a row that did not become smaller, a thread tries only each so many-th, until one does.
const MISSES: u32 = 16;
const STRIDE: u32 = 64;
/// Memory of buffers that is kept for the next value.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static ZSTD_OF_THREAD: RefCell<Option<(i32, zstd::bulk::Compressor<'static>)>> = const { RefCell::new(None) };
    static EXPANDER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    /// Values in a row that did not become smaller.
    static MISSED: Cell<u32> = const { Cell::new(0) };
}

/// What compresses the values of a store.
#[derive(Default)]
pub(crate) struct Compression {
    setting: Mutex<Setting>,
    /// The setting in a word, while it has an effect; 0: nothing is compressed.
    active: AtomicU64,
    counters: Counters,
}

/// What is to be done with values.
#[derive(Default)]
struct Setting {
    codec: Option<Codec>,
    len_min: u32,
    /// Whether the folder says, on the medium, that values in it may be compressed.
    is_allowed: bool,
}

impl Setting {
    fn word(&self) -> u64 {
        let codec = match self.codec {
            Some(Codec::Lz4) => u64::from(LZ4),
            Some(Codec::Zstd(level)) => u64::from(ZSTD) | (level as u64 & 0xff) << 8,
            None => return 0,
        };
        codec | u64::from(self.len_min) << 32
    }

    fn read(word: u64) -> Option<(Codec, usize)> {
        let codec = match word as u8 {
            0 => return None,
            LZ4 => Codec::Lz4,
            _ => Codec::Zstd((word >> 8) as u8 as i32),
        };
        Some((codec, (word >> 32) as usize))
    }
}

#[derive(Default)]
struct Counters {
    before: AtomicU64,
    after: AtomicU64,
    kept: AtomicU64,
}

/// What was compressed since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// Whether values are compressed now. Those that are to be are not before the data folder says so for good.
    pub is_active: bool,
    /// Bytes of values that were compressed.
    pub bytes_before: u64,
    /// Bytes that they took then.
    pub bytes_after: u64,
    /// Values that are stored as they are, since compressing them saved too little, or had saved too little before.
    pub kept_values: u64,
}

/// A compressed value.
pub(crate) struct Compressed(Vec<u8>);

impl Deref for Compressed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Compressed {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT_BYTES {
            BUFFER.set(std::mem::take(&mut self.0));
        }
    }
}

impl Compression {
    /// `is_allowed`: whether the folder says already that values in it may be compressed.
    pub fn new(codec: Option<Codec>, is_allowed: bool) -> Compression {
        let compression = Compression::default();
        compression.change(|setting| *setting = Setting { codec, len_min: LEN_MIN as u32, is_allowed });
        compression
    }

    /// Says how values are compressed from now on, or once that is allowed; whether it is, or need not be.
    pub fn set(&self, codec: Option<Codec>, len_min: usize) -> bool {
        let len_min = u32::try_from(len_min).unwrap_or(u32::MAX);
        self.change(|setting| *setting = Setting { codec, len_min, is_allowed: setting.is_allowed });
        codec.is_none() || self.setting.lock().is_allowed
    }

    /// Whether values are to be compressed, if that is allowed.
    pub fn is_wanted(&self) -> bool {
        self.setting.lock().codec.is_some()
    }

    /// The folder says now, durably, that values in it may be compressed.
    pub fn allow(&self) {
        self.change(|setting| setting.is_allowed = true);
    }

    fn change(&self, change: impl FnOnce(&mut Setting)) {
        let mut setting = self.setting.lock();
        change(&mut setting);
        self.active.store(if setting.is_allowed { setting.word() } else { 0 }, Release);
    }

    /// A value as it is to be stored; `None`: as it is.
    #[inline]
    pub fn compress(&self, value: &[u8]) -> Option<Compressed> {
        match self.active.load(Acquire) {
            0 => None,
            word => self.compress_by(word, value),
        }
    }

    fn compress_by(&self, word: u64, value: &[u8]) -> Option<Compressed> {
        let (codec, len_min) = Setting::read(word)?;
        if !(len_min.max(SAVED_MIN)..=TRIED_MAX).contains(&value.len()) {
            return None;
        }
        let missed = MISSED.get();
        let is_worth_trying = missed < MISSES || missed % STRIDE == 0;
        let compressed = if is_worth_trying { encode(codec, value) } else { None };
        match &compressed {
            Some(bytes) => {
                MISSED.set(0);
                self.counters.before.fetch_add(value.len() as u64, Relaxed);
                self.counters.after.fetch_add(bytes.len() as u64, Relaxed);
            }
            None => {
                // It stays above the number of misses that it takes.
                MISSED.set(if missed == MISSES + STRIDE { MISSES + 1 } else { missed + 1 });
                self.counters.kept.fetch_add(1, Relaxed);
            }
        }
        compressed
    }

    pub fn stats(&self) -> CompressionStats {
        let Counters { before, after, kept } = &self.counters;
        CompressionStats {
            is_active: self.active.load(Relaxed) != 0,
            bytes_before: before.load(Relaxed),
            bytes_after: after.load(Relaxed),
            kept_values: kept.load(Relaxed),
        }
    }
}

/// Compresses a value, if that saves enough.
fn encode(codec: Codec, value: &[u8]) -> Option<Compressed> {
    let len_max = value.len() - SAVED_MIN.max(value.len() / SAVED_MIN);
    let mut out = BUFFER.take();
    out.clear();
    out.push(if codec == Codec::Lz4 { LZ4 } else { ZSTD });
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    let bound = match codec {
        Codec::Lz4 => lz4_flex::block::get_maximum_output_size(value.len()),
        Codec::Zstd(_) => zstd::zstd_safe::compress_bound(value.len()),
    };
    out.resize(HEAD + bound, 0);
    let mut out = Compressed(out);
    let target = &mut out.0[HEAD..];
    let len = match codec {
        Codec::Lz4 => lz4_flex::block::compress_into(value, target).ok(),
        Codec::Zstd(level) => ZSTD_OF_THREAD.with_borrow_mut(|compressor| {
            if compressor.as_ref().is_none_or(|(of, _)| *of != level) {
                *compressor = Some((level, zstd::bulk::Compressor::new(level).ok()?));
            }
            compressor.as_mut()?.1.compress_to_buffer(value, target).ok()
        }),
    };
    out.0.truncate(HEAD + len?);
    (out.len() <= len_max).then_some(out)
}

/// A compressed value as it was before; the error says what is wrong with it.
pub(crate) fn expand(stored: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (head, bytes) = stored.split_first_chunk::<HEAD>().ok_or("compressed value cut short")?;
    let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    // Before anything is allocated: a byte of LZ4 stands for no more than 255, and three bytes, a block of zstd, for no more than 128 KiB.
    let len_max = match head[0] {
        LZ4 => bytes.len().saturating_mul(255),
        ZSTD => (bytes.len() / 3).saturating_mul(128 << 10),
        _ => return Err("unknown codec of a compressed value"),
    };
    if len > len_max.min(LEN_MAX) {
        return Err("length of a compressed value");
    }
    let mut value = vec![0; len];
    let expanded = match head[0] {
        LZ4 => lz4_flex::block::decompress_into(bytes, &mut value).ok(),
        ZSTD => EXPANDER.with_borrow_mut(|expander| {
            if expander.is_none() {
                *expander = Some(zstd::bulk::Decompressor::new().ok()?);
            }
            expander.as_mut()?.decompress_to_buffer(bytes, &mut value[..]).ok()
        }),
        _ => None,
    };
    if expanded == Some(len) { Ok(value) } else { Err("compressed value does not expand") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODECS: [Codec; 3] = [Codec::Lz4, Codec::Zstd(1), Codec::Zstd(19)];

    #[test]
    fn what_repeats_becomes_smaller_and_comes_back() {
        for len in [64, 100, 1000, 70_000, TRIED_MAX] {
            let value: Vec<u8> = b"{\"name\": \"value\"}, ".iter().copied().cycle().take(len).collect();
            for codec in CODECS {
                let compression = Compression::new(Some(codec), true);
                let compressed = compression.compress(&value).expect("it repeats");
                assert!(compressed.len() + SAVED_MIN <= len, "{codec:?}: {} of {len}", compressed.len());
                assert!(expand(&compressed).unwrap() == value);
                let stats = compression.stats();
                let expected = (len as u64, compressed.len() as u64, 0);
                assert_eq!((stats.bytes_before, stats.bytes_after, stats.kept_values), expected);
            }
        }
    }

    #[test]
    fn what_saves_nothing_stays_and_is_tried_ever_more_rarely() {
        let mut random = fastrand::Rng::with_seed(7);
        let noise: Vec<u8> = (0..1000).map(|_| random.u8(..)).collect();
        let text = b"abc".repeat(100);
        let compression = Compression::new(Some(Codec::Lz4), true);
        for _ in 0..10_000 {
            assert!(compression.compress(&noise).is_none());
        }
        let tried_after = (0..).position(|_| compression.compress(&text).is_some()).unwrap();
        assert!((1..=STRIDE as usize).contains(&tried_after), "{tried_after}");
        assert!(compression.compress(&text).is_some(), "one was enough");
        assert!(compression.compress(&text[..LEN_MIN - 1]).is_none());
        assert!(compression.compress(&vec![0; TRIED_MAX + 1]).is_none());
        assert!(Compression::new(None, true).compress(&text).is_none());
    }

    #[test]
    fn values_are_compressed_as_is_said_but_not_before_it_is_allowed() {
        let text = b"abc".repeat(100);
        let compression = Compression::new(None, false);
        let is_compressed = |len| compression.compress(&text[..len]).map(|bytes| bytes[0]);
        assert!(compression.set(None, 64) && !compression.is_wanted());
        assert!(!compression.set(Some(Codec::Zstd(19)), 200) && compression.is_wanted());
        assert_eq!((is_compressed(300), compression.stats().is_active), (None, false));
        compression.allow();
        assert_eq!((is_compressed(199), is_compressed(200)), (None, Some(ZSTD)));
        assert!(compression.set(Some(Codec::Lz4), 0) && compression.stats().is_active);
        assert_eq!((is_compressed(0), is_compressed(15), is_compressed(64)), (None, None, Some(LZ4)));
        assert!(compression.set(Some(Codec::Lz4), usize::MAX));
        assert_eq!(is_compressed(300), None);
        assert!(compression.set(None, 0));
        assert_eq!((is_compressed(300), compression.stats().is_active), (None, false));
    }

    #[test]
    fn a_length_that_is_not_true_is_an_error() {
        let text = b"abc".repeat(100);
        for codec in CODECS {
            let compressed = Compression::new(Some(codec), true).compress(&text).unwrap();
            for len in [0, 1, 299, 301, 100_000, LEN_MAX as u32, LEN_MAX as u32 + 1, u32::MAX] {
                let mut lie = compressed.to_vec();
                lie[1..HEAD].copy_from_slice(&len.to_le_bytes());
                assert!(expand(&lie).is_err(), "{codec:?}: {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn all_values_come_back(value in proptest::collection::vec(0..4u8, 64..3000), codec in 0..3usize) {
            if let Some(compressed) = Compression::new(Some(CODECS[codec]), true).compress(&value) {
                prop_assert_eq!(expand(&compressed).unwrap(), value);
            }
        }

        #[test]
        fn any_bytes_are_a_value_or_an_error(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), codec in 0..4u8) {
            if let Some(first) = bytes.first_mut() {
                *first = codec;
            }
            if let Some(top) = bytes.get_mut(4) {
                *top = 0;
            }
            let _ = expand(&bytes);
        }
    }
}
