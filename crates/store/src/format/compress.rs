//! Values in the log may be compressed, one by one: the copies in memory never are. What that saves is room in the log.
//!
//! A compressed value is `codec u8, length before u32, bytes of the codec` (`docs/format.md`, "Items"). Each is complete in itself, so that
//! a read of one item is enough to have its value, and the cleaner moves it as it is. What small values have in common may lie in a
//! [dictionary](super::dictionary), which is made of samples of them.

use super::dictionary::{BYTES_MAX, Dictionaries, Dictionary, VALUE_MAX};
use parking_lot::{Mutex, RwLock};
use std::{
    cell::{Cell, RefCell},
    ops::Deref,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, compress_bound, get_dict_id_from_frame};

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
/// Bytes of samples, and how many of them, of which a dictionary is made.
const SAMPLE_BYTES: usize = 2 << 20;
const SAMPLES: usize = 16 << 10;
/// Of so many small values of a thread one becomes a sample at first; after each try to make a dictionary of fewer.
const SAMPLE_STRIDE: u32 = 4;
const SAMPLE_STRIDE_MAX: u32 = 4 << 10;
/// Of so many samples one is not trained with, but tells what the dictionary is worth.
const TRIAL_STRIDE: usize = 8;
/// Memory of buffers that is kept for the next value.
const KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static ZSTD_OF_THREAD: RefCell<Option<(i32, zstd::bulk::Compressor<'static>)>> = const { RefCell::new(None) };
    static ZSTD_WITH_DICTIONARY: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static EXPANDER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    /// Small values that might have become samples.
    static SMALL_VALUES: Cell<u32> = const { Cell::new(0) };
    /// Values in a row that did not become smaller.
    static MISSED: Cell<u32> = const { Cell::new(0) };
}

/// What compresses the values of a store.
#[derive(Default)]
pub(crate) struct Compression {
    /// The setting in a word; 0: nothing is compressed.
    setting: AtomicU64,
    dictionaries: RwLock<Dictionaries>,
    samples: Mutex<Samples>,
    /// Of so many small values of a thread one becomes a sample; 0: there are enough.
    sample_stride: AtomicU32,
    /// Why a dictionary could not be written, until somebody asks.
    failure: Mutex<Option<String>>,
    counters: Counters,
}

/// What is to be done with values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressionSetting {
    /// How they are compressed.
    pub codec: Option<Codec>,
    /// Those of fewer bytes are not.
    pub len_min: usize,
    /// Whether what small ones have in common may lie in dictionaries. Only Zstandard uses them.
    pub dictionaries: bool,
}

impl Default for CompressionSetting {
    fn default() -> CompressionSetting {
        CompressionSetting { codec: None, len_min: LEN_MIN, dictionaries: true }
    }
}

const WITH_DICTIONARIES: u64 = 1 << 16;

impl CompressionSetting {
    fn word(&self) -> u64 {
        let codec = match self.codec {
            Some(Codec::Lz4) => u64::from(LZ4),
            Some(Codec::Zstd(level)) => u64::from(ZSTD) | (level as u64 & 0xff) << 8,
            None => return 0,
        };
        let dictionaries = if self.dictionaries { WITH_DICTIONARIES } else { 0 };
        codec | dictionaries | u64::from(u32::try_from(self.len_min).unwrap_or(u32::MAX)) << 32
    }

    fn read(word: u64) -> CompressionSetting {
        let codec = match word as u8 {
            0 => None,
            LZ4 => Some(Codec::Lz4),
            _ => Some(Codec::Zstd((word >> 8) as u8 as i32)),
        };
        let dictionaries = word & WITH_DICTIONARIES != 0;
        CompressionSetting { codec, len_min: (word >> 32) as usize, dictionaries }
    }
}

/// Small values, one behind another.
#[derive(Default)]
pub(crate) struct Samples {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl Samples {
    fn add(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.lens.push(value.len());
    }

    fn are_enough(&self) -> bool {
        self.bytes.len() >= SAMPLE_BYTES || self.lens.len() >= SAMPLES
    }

    /// Some of them to train with, and some to see what came of it.
    fn split(&self) -> (Samples, Vec<&[u8]>) {
        let (mut training, mut trials, mut rest) = (Samples::default(), Vec::new(), &self.bytes[..]);
        for (number, len) in self.lens.iter().enumerate() {
            let (value, behind) = rest.split_at(*len);
            rest = behind;
            match number % TRIAL_STRIDE {
                0 => trials.push(value),
                _ => training.add(value),
            }
        }
        (training, trials)
    }
}

#[derive(Default)]
struct Counters {
    before: AtomicU64,
    after: AtomicU64,
    kept: AtomicU64,
    failures: AtomicU64,
}

/// What was compressed since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompressionStats {
    /// Whether values are compressed that are written now.
    pub is_active: bool,
    /// Bytes of values that were compressed.
    pub bytes_before: u64,
    /// Bytes that they took then.
    pub bytes_after: u64,
    /// Values that are stored as they are, since compressing them saved too little, or had saved too little before.
    pub kept_values: u64,
    /// Dictionaries that values may have been compressed with, ever.
    pub dictionaries: usize,
    /// Dictionaries that were made and could not be written.
    pub dictionary_failures: u64,
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
    pub fn new(codec: Option<Codec>) -> Compression {
        let compression = Compression::default();
        compression.set(CompressionSetting { codec, ..CompressionSetting::default() });
        compression.sample_stride.store(SAMPLE_STRIDE, Relaxed);
        compression
    }

    /// Takes the dictionaries that the folder has. Nothing can be expanded that names one before that.
    pub fn set_dictionaries(&self, dictionaries: Dictionaries) {
        self.change(|kept| *kept = dictionaries);
    }

    /// Says how values are compressed from now on.
    pub fn set(&self, setting: CompressionSetting) {
        self.change(|_| self.setting.store(setting.word(), Release));
    }

    /// Changes the dictionaries or the setting, and makes what compresses with the newest one.
    fn change(&self, change: impl FnOnce(&mut Dictionaries)) {
        let mut dictionaries = self.dictionaries.write();
        change(&mut dictionaries);
        if let Some(Codec::Zstd(level)) = self.setting().codec {
            dictionaries.prepare(level);
        }
    }

    fn setting(&self) -> CompressionSetting {
        CompressionSetting::read(self.setting.load(Acquire))
    }

    /// A value as it is to be stored; `None`: as it is.
    #[inline]
    pub fn compress(&self, value: &[u8]) -> Option<Compressed> {
        match self.setting.load(Acquire) {
            0 => None,
            word => self.compress_by(CompressionSetting::read(word), value),
        }
    }

    fn compress_by(&self, setting: CompressionSetting, value: &[u8]) -> Option<Compressed> {
        let CompressionSetting { codec, len_min, dictionaries } = setting;
        if !(len_min.max(SAVED_MIN)..=TRIED_MAX).contains(&value.len()) {
            return None;
        }
        let missed = MISSED.get();
        let is_worth_trying = missed < MISSES || missed.is_multiple_of(STRIDE);
        let compressed = match codec {
            Some(Codec::Zstd(level)) if dictionaries && value.len() <= VALUE_MAX => {
                self.sample(value);
                let dictionaries = self.dictionaries.read();
                is_worth_trying
                    .then(|| encode(Codec::Zstd(level), dictionaries.encoder(level), value))
                    .flatten()
            }
            codec if is_worth_trying => encode(codec?, None, value),
            _ => None,
        };
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

    /// Takes a small value as a sample, if it is its turn.
    fn sample(&self, value: &[u8]) {
        let stride = self.sample_stride.load(Relaxed);
        let turn = SMALL_VALUES.get().wrapping_add(1);
        SMALL_VALUES.set(turn);
        // Nobody waits for another one's sample.
        if stride > 0
            && turn.is_multiple_of(stride)
            && let Some(mut samples) = self.samples.try_lock()
            && !samples.are_enough()
        {
            samples.add(value);
        }
    }

    /// Takes the samples, once there are enough.
    pub fn take_samples(&self) -> Option<Samples> {
        let mut samples = self.samples.lock();
        samples.are_enough().then(|| std::mem::take(&mut *samples))
    }

    /// A dictionary made of samples, if values become smaller by a tenth with it.
    pub fn train(&self, samples: &Samples) -> Option<Dictionary> {
        let stride = self.sample_stride.load(Relaxed);
        self.sample_stride.store((stride * SAMPLE_STRIDE).min(SAMPLE_STRIDE_MAX), Relaxed);
        let Some(Codec::Zstd(level)) = self.setting().codec else { return None };
        let number = self.dictionaries.read().next_number()?;
        let (training, trials) = samples.split();
        let bytes = zstd::dict::from_continuous(&training.bytes, &training.lens, BYTES_MAX).ok()?;
        let dictionary = Dictionary::new(number, bytes)?;
        let encoder = dictionary.encoder(level)?;
        let stored = |encoder: Option<&CDict>| -> usize {
            let len = |value: &&[u8]| {
                encode(Codec::Zstd(level), encoder, value).map_or(value.len(), |bytes| bytes.len())
            };
            trials.iter().map(len).sum()
        };
        let before = stored(self.dictionaries.read().encoder(level));
        (stored(Some(&encoder)) <= before - before / 10).then_some(dictionary)
    }

    /// Compresses small values with a dictionary, which is durable, from now on.
    pub fn adopt(&self, dictionary: Dictionary) {
        self.change(|dictionaries| dictionaries.add(dictionary));
    }

    /// A dictionary could not be written: values are compressed as they were before.
    pub fn note_failure(&self, why: String) {
        self.counters.failures.fetch_add(1, Relaxed);
        *self.failure.lock() = Some(why);
    }

    /// Why the last dictionary could not be written, if that was since the last call.
    pub fn take_failure(&self) -> Option<String> {
        self.failure.lock().take()
    }

    /// A compressed value as it was before; the error says what is wrong with it.
    pub fn expand(&self, stored: &[u8]) -> Result<Vec<u8>, &'static str> {
        let number = stored.get(HEAD..).filter(|_| stored[0] == ZSTD).and_then(get_dict_id_from_frame);
        let Some(number) = number else { return expand(stored, None) };
        let dictionaries = self.dictionaries.read();
        let decoder = dictionaries.decoder(number.get());
        expand(stored, Some(decoder.ok_or("the dictionary of a compressed value is missing")?))
    }

    pub fn stats(&self) -> CompressionStats {
        let Counters { before, after, kept, failures } = &self.counters;
        CompressionStats {
            is_active: self.setting.load(Relaxed) != 0,
            bytes_before: before.load(Relaxed),
            bytes_after: after.load(Relaxed),
            kept_values: kept.load(Relaxed),
            dictionaries: self.dictionaries.read().len(),
            dictionary_failures: failures.load(Relaxed),
        }
    }
}

/// Compresses a value, if that saves enough.
fn encode(codec: Codec, dictionary: Option<&CDict>, value: &[u8]) -> Option<Compressed> {
    let len_max = value.len() - SAVED_MIN.max(value.len() / SAVED_MIN);
    let mut out = BUFFER.take();
    out.clear();
    out.push(if codec == Codec::Lz4 { LZ4 } else { ZSTD });
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    let bound = match codec {
        Codec::Lz4 => lz4_flex::block::get_maximum_output_size(value.len()),
        Codec::Zstd(_) => compress_bound(value.len()),
    };
    out.resize(HEAD + bound, 0);
    let mut out = Compressed(out);
    let target = &mut out.0[HEAD..];
    let len = match (codec, dictionary) {
        (Codec::Lz4, _) => lz4_flex::block::compress_into(value, target).ok(),
        (Codec::Zstd(_), Some(dictionary)) => ZSTD_WITH_DICTIONARY.with_borrow_mut(|context| {
            let context = context.get_or_insert_with(CCtx::create);
            context.compress_using_cdict(target, value, dictionary).ok()
        }),
        (Codec::Zstd(level), None) => ZSTD_OF_THREAD.with_borrow_mut(|compressor| {
            if compressor.as_ref().is_none_or(|(of, _)| *of != level) {
                *compressor = Some((level, zstd::bulk::Compressor::new(level).ok()?));
            }
            compressor.as_mut()?.1.compress_to_buffer(value, target).ok()
        }),
    };
    out.0.truncate(HEAD + len?);
    (out.len() <= len_max).then_some(out)
}

/// A compressed value as it was before, by the dictionary that it names; the error says what is wrong with it.
fn expand(stored: &[u8], dictionary: Option<&DDict>) -> Result<Vec<u8>, &'static str> {
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
        ZSTD => EXPANDER.with_borrow_mut(|context| {
            let context = context.get_or_insert_with(DCtx::create);
            match dictionary {
                Some(dictionary) => context.decompress_using_ddict(&mut value[..], bytes, dictionary).ok(),
                None => context.decompress(&mut value[..], bytes).ok(),
            }
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

    /// Of a store that has compressed values.
    fn store_with(codec: Option<Codec>) -> Compression {
        Compression::new(codec)
    }

    #[test]
    fn what_repeats_becomes_smaller_and_comes_back() {
        for len in [64, 100, 1000, 70_000, TRIED_MAX] {
            let value: Vec<u8> = b"{\"name\": \"value\"}, ".iter().copied().cycle().take(len).collect();
            for codec in CODECS {
                let compression = store_with(Some(codec));
                let compressed = compression.compress(&value).expect("it repeats");
                assert!(compressed.len() + SAVED_MIN <= len, "{codec:?}: {} of {len}", compressed.len());
                assert!(compression.expand(&compressed).unwrap() == value);
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
        let compression = store_with(Some(Codec::Lz4));
        for _ in 0..10_000 {
            assert!(compression.compress(&noise).is_none());
        }
        let tried_after = (0..).position(|_| compression.compress(&text).is_some()).unwrap();
        assert!((1..=STRIDE as usize).contains(&tried_after), "{tried_after}");
        assert!(compression.compress(&text).is_some(), "one was enough");
        assert!(compression.compress(&text[..LEN_MIN - 1]).is_none());
        assert!(compression.compress(&vec![0; TRIED_MAX + 1]).is_none());
        assert!(store_with(None).compress(&text).is_none());
    }

    #[test]
    fn values_are_compressed_as_is_said() {
        let text = b"abc".repeat(100);
        let compression = store_with(None);
        let setting = |codec, len_min| CompressionSetting { codec, len_min, ..CompressionSetting::default() };
        let is_compressed = |len| compression.compress(&text[..len]).map(|bytes| bytes[0]);
        assert_eq!((is_compressed(300), compression.stats().is_active), (None, false));
        compression.set(setting(Some(Codec::Zstd(19)), 200));
        assert_eq!((is_compressed(199), is_compressed(200)), (None, Some(ZSTD)));
        compression.set(setting(Some(Codec::Lz4), 0));
        assert!(compression.stats().is_active);
        assert_eq!((is_compressed(0), is_compressed(15), is_compressed(64)), (None, None, Some(LZ4)));
        compression.set(setting(Some(Codec::Lz4), usize::MAX));
        assert_eq!(is_compressed(300), None);
        compression.set(setting(None, 0));
        assert_eq!((is_compressed(300), compression.stats().is_active), (None, false));
    }

    #[test]
    fn a_length_that_is_not_true_is_an_error() {
        let text = b"abc".repeat(100);
        for codec in CODECS {
            let compression = store_with(Some(codec));
            let compressed = compression.compress(&text).unwrap();
            for len in [0, 1, 299, 301, 100_000, LEN_MAX as u32, LEN_MAX as u32 + 1, u32::MAX] {
                let mut lie = compressed.to_vec();
                lie[1..HEAD].copy_from_slice(&len.to_le_bytes());
                assert!(compression.expand(&lie).is_err(), "{codec:?}: {len}");
            }
        }
    }

    /// A value like those of a service: names that all have, and numbers.
    fn record(number: u32) -> Vec<u8> {
        let random = number.wrapping_mul(0x9e37_79b9);
        format!(
            "{{\"customer\":{},\"currency\":\"EUR\",\"amount\":{},\"state\":\"delivered\",\"at\":{random}}}",
            number % 1000,
            random >> 20
        )
        .into_bytes()
    }

    /// Bytes that some records become, from a number on.
    fn stored(compression: &Compression, from: u32) -> usize {
        // What saved nothing before is tried again.
        (from..from + STRIDE).for_each(|number| drop(compression.compress(&record(number))));
        let len = |number| match compression.compress(&record(number)) {
            Some(compressed) => {
                assert!(compression.expand(&compressed).unwrap() == record(number));
                compressed.len()
            }
            None => record(number).len(),
        };
        (from..from + 100).map(len).sum()
    }

    #[test]
    fn what_small_values_have_in_common_lies_in_a_dictionary() {
        let compression = store_with(Some(Codec::Zstd(3)));
        assert!(compression.take_samples().is_none());
        let mut number = 0;
        let samples = loop {
            compression.compress(&record(number));
            number += 1;
            if let Some(samples) = compression.take_samples() {
                break samples;
            }
        };
        assert!(number >= SAMPLES as u32 * SAMPLE_STRIDE);
        let (plain, dictionary) =
            (stored(&compression, number), compression.train(&samples).expect("it pays"));
        assert_eq!((dictionary.number(), stored(&compression, number)), (1, plain));
        compression.adopt(dictionary.clone());
        let small = stored(&compression, number);
        assert!(small * 3 < plain * 2, "{small} of {plain}");
        // Another one like it saves nothing more, and is looked for more rarely.
        assert!(compression.train(&samples).is_none());
        let rarely = number + SAMPLES as u32 * SAMPLE_STRIDE * 2;
        (number..rarely).for_each(|number| drop(compression.compress(&record(number))));
        assert!(compression.take_samples().is_none());
        // Another level has its own tables of it, and without dictionaries all is as before.
        let level = |level, dictionaries| CompressionSetting {
            codec: Some(Codec::Zstd(level)),
            dictionaries,
            ..CompressionSetting::default()
        };
        compression.set(level(9, true));
        assert!(stored(&compression, number) * 3 < plain * 2);
        let compressed = compression.compress(&record(7)).unwrap();
        compression.set(level(3, false));
        assert_eq!(stored(&compression, number), plain);
        // What was compressed with it needs it.
        assert!(compression.expand(&compressed).unwrap() == record(7));
        let missing = store_with(Some(Codec::Zstd(3))).expand(&compressed).unwrap_err();
        assert_eq!(missing, "the dictionary of a compressed value is missing");
    }

    proptest! {
        #[test]
        fn all_values_come_back(value in proptest::collection::vec(0..4u8, 64..3000), codec in 0..3usize) {
            let compression = store_with(Some(CODECS[codec]));
            if let Some(compressed) = compression.compress(&value) {
                prop_assert_eq!(compression.expand(&compressed).unwrap(), value);
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
            let _ = store_with(None).expand(&bytes);
        }
    }
}
