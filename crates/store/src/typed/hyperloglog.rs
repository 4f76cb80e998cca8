//! HyperLogLogs: how many different elements were added, about. They are strings in Redis's format, so that one which
//! was read from a Redis and set here is counted on, and the other way round.
//!
//! An element's hash chooses one of 16384 *registers*, and the register keeps the longest run of zeroes, plus one, that
//! the rest of a hash has begun with. From the registers the number of elements is estimated by Ertl's formula ("New
//! cardinality estimation algorithms for HyperLogLog sketches", arXiv 1702.01284).
//!
//! The string begins with a header of 16 bytes: `HYLL`, the encoding (0 dense, 1 sparse), three bytes of 0, and the last
//! estimate (8 bytes, little-endian), whose highest bit says that registers have changed since. Then come the registers:
//!
//! * dense: 6 bits each, the first one in the lowest bits of the first byte;
//! * sparse: runs of equal registers. `00nnnnnn`: n+1 of 0; `01nnnnnn nnnnnnnn`: n+1 of 0; `1vvvvvnn`: n+1 of v+1.

use crate::txn::{
    Txn,
    error::{Error, Result},
};

/// Bits of a hash that choose a register.
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash that are searched for a run of zeroes.
const RUN_BITS: u32 = 64 - INDEX_BITS;

const MAGIC: &[u8; 4] = b"HYLL";
const DENSE: u8 = 0;
const SPARSE: u8 = 1;
const ENCODING_AT: usize = 4;
const ESTIMATE_AT: usize = 8;
const STALE: u64 = 1 << 63;
const HEADER: usize = 16;
const DENSE_LEN: usize = HEADER + REGISTERS * 6 / 8;

/// What a sparse run can hold.
const VALUE_MAX: u8 = 32;
const VALUES_MAX: usize = 4;
const ZEROES_MAX: usize = 64;
/// Runs that are looked at for neighbours to join after a change.
const JOINED_MAX: usize = 5;

/// How a sketch keeps its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SketchEncoding {
    /// All, in 6 bits each.
    Dense,
    /// As runs of equal ones.
    Sparse,
}

/// A HyperLogLog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch(Vec<u8>);

/// All registers, a byte each.
pub type Registers = [u8; REGISTERS];

/// Equal registers in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Their value.
    pub value: u8,
    /// How many they are.
    pub len: usize,
    /// Whether this is the long form of a run of zeroes.
    pub is_long: bool,
}

impl Run {
    /// The run at the start of some bytes.
    fn decode(bytes: &[u8]) -> Result<Run> {
        match *bytes {
            [first, ..] if first & 0x80 != 0 => {
                Ok(Run { value: (first >> 2 & 31) + 1, len: usize::from(first & 3) + 1, is_long: false })
            }
            [first, ..] if first & 0x40 == 0 => {
                Ok(Run { value: 0, len: usize::from(first) + 1, is_long: false })
            }
            [first, second, ..] => {
                let len = usize::from(first & 0x3f) << 8 | usize::from(second);
                Ok(Run { value: 0, len: len + 1, is_long: true })
            }
            _ => Err(Error::DamagedSketch),
        }
    }

    /// Bytes that it takes.
    fn bytes(self) -> usize {
        1 + usize::from(self.is_long)
    }
}

/// Appends a run, unless its length is 0.
fn encode(out: &mut Vec<u8>, value: u8, len: usize) {
    match (value, len) {
        (_, 0) => {}
        (0, ..=ZEROES_MAX) => out.push(len as u8 - 1),
        (0, _) => out.extend_from_slice(&(0x4000 | (len as u16 - 1)).to_be_bytes()),
        _ => out.push(0x80 | (value - 1) << 2 | (len as u8 - 1)),
    }
}

impl Default for Sketch {
    fn default() -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[ENCODING_AT] = SPARSE;
        encode(&mut bytes, 0, REGISTERS);
        Sketch(bytes)
    }
}

impl Sketch {
    /// A sketch in the bytes of a string. Damage of a sparse one is found later, when its runs are read.
    pub fn new(bytes: &[u8]) -> Result<Sketch> {
        let is_sketch = bytes.len() >= HEADER
            && bytes.starts_with(MAGIC)
            && match bytes[ENCODING_AT] {
                DENSE => bytes.len() == DENSE_LEN,
                encoding => encoding == SPARSE,
            };
        if is_sketch { Ok(Sketch(bytes.to_vec())) } else { Err(Error::NotASketch) }
    }

    /// The bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How it keeps its registers.
    pub fn encoding(&self) -> SketchEncoding {
        if self.0[ENCODING_AT] == DENSE { SketchEncoding::Dense } else { SketchEncoding::Sparse }
    }

    /// The runs of a sparse sketch; nothing follows an error.
    pub fn runs(&self) -> impl Iterator<Item = Result<Run>> {
        let mut rest = &self.0[HEADER..];
        std::iter::from_fn(move || {
            let run = Run::decode(rest.get(..).filter(|rest| !rest.is_empty())?);
            rest = run.as_ref().map_or(&[], |run| &rest[run.bytes()..]);
            Some(run)
        })
    }

    /// All registers.
    pub fn registers(&self) -> Result<Box<Registers>> {
        let mut registers = Box::new([0; REGISTERS]);
        self.merge_into(&mut registers)?;
        Ok(registers)
    }

    /// Raises registers to those of this sketch.
    fn merge_into(&self, registers: &mut Registers) -> Result<()> {
        if self.encoding() == SketchEncoding::Dense {
            for (index, register) in registers.iter_mut().enumerate() {
                *register = (*register).max(self.dense(index));
            }
            return Ok(());
        }
        let mut rest = &mut registers[..];
        for run in self.runs() {
            let run = run?;
            let (now, later) = rest.split_at_mut_checked(run.len).ok_or(Error::DamagedSketch)?;
            now.iter_mut().for_each(|register| *register = (*register).max(run.value));
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(Error::DamagedSketch) }
    }

    /// The last estimate, if no register has changed since.
    pub fn cached_estimate(&self) -> Option<u64> {
        let bytes = self.0[ESTIMATE_AT..HEADER].try_into().expect("eight bytes");
        Some(u64::from_le_bytes(bytes)).filter(|estimate| estimate & STALE == 0)
    }

    /// About how many different elements were added.
    pub fn estimate(&self) -> Result<u64> {
        Ok(estimate(&*self.registers()?))
    }

    /// Remembers an estimate.
    pub fn cache_estimate(&mut self, estimate: u64) {
        self.0[ESTIMATE_AT..HEADER].copy_from_slice(&estimate.to_le_bytes());
    }

    /// Says that the registers are not those any more that the last estimate was made from.
    pub fn forget_estimate(&mut self) {
        self.0[HEADER - 1] |= (STALE >> 56) as u8;
    }

    /// Adds an element; whether a register has changed. A sparse sketch that would take more than `sparse_bytes_max`
    /// becomes dense.
    pub fn add(&mut self, element: &[u8], sparse_bytes_max: usize) -> Result<bool> {
        let (index, value) = place(element);
        self.raise(index, value, sparse_bytes_max)
    }

    /// Raises a register to a value; whether it was lower.
    fn raise(&mut self, index: usize, value: u8, sparse_bytes_max: usize) -> Result<bool> {
        let raised = match self.encoding() {
            SketchEncoding::Dense => self.raise_dense(index, value),
            SketchEncoding::Sparse => self.raise_sparse(index, value, sparse_bytes_max)?,
        };
        if raised {
            self.forget_estimate();
        }
        Ok(raised)
    }

    /// Makes it dense; whether it was not.
    pub fn make_dense(&mut self) -> Result<bool> {
        if self.encoding() == SketchEncoding::Dense {
            return Ok(false);
        }
        let registers = self.registers()?;
        self.0.truncate(HEADER);
        self.0.resize(DENSE_LEN, 0);
        self.0[ENCODING_AT] = DENSE;
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value != 0) {
            self.raise_dense(index, *value);
        }
        Ok(true)
    }

    /// Where a register is: its first byte, and its lowest bit there.
    fn dense_place(index: usize) -> (usize, usize) {
        (HEADER + index * 6 / 8, index * 6 % 8)
    }

    fn dense(&self, index: usize) -> u8 {
        let (at, bit) = Sketch::dense_place(index);
        let next = self.0.get(at + 1).copied().unwrap_or(0);
        (u16::from_le_bytes([self.0[at], next]) >> bit) as u8 & 63
    }

    fn raise_dense(&mut self, index: usize, value: u8) -> bool {
        let lower = self.dense(index) < value;
        if lower {
            let (at, bit) = Sketch::dense_place(index);
            let [clear, set] = [63u16, value.into()].map(|bits| (bits << bit).to_le_bytes());
            for (byte, (clear, set)) in self.0[at..].iter_mut().zip(clear.into_iter().zip(set)) {
                *byte = *byte & !clear | set;
            }
        }
        lower
    }

    fn raise_sparse(&mut self, index: usize, value: u8, sparse_bytes_max: usize) -> Result<bool> {
        if value > VALUE_MAX {
            self.make_dense()?;
            return Ok(self.raise_dense(index, value));
        }
        // The run that the register is in, and the one before.
        let (mut before, mut at, mut first) = (HEADER, HEADER, 0);
        let run = loop {
            let run = Run::decode(&self.0[at..])?;
            if index < first + run.len {
                break run;
            }
            (before, at, first) = (at, at + run.bytes(), first + run.len);
        };
        if run.value >= value {
            return Ok(false);
        }
        let mut runs = Vec::with_capacity(5);
        encode(&mut runs, run.value, index - first);
        encode(&mut runs, value, 1);
        encode(&mut runs, run.value, first + run.len - 1 - index);
        if runs.len() > run.bytes() && self.0.len() + runs.len() - run.bytes() > sparse_bytes_max {
            self.make_dense()?;
            return Ok(self.raise_dense(index, value));
        }
        self.0.splice(at..at + run.bytes(), runs);
        self.join_runs(before);
        Ok(true)
    }

    /// Joins runs of the same value, from the one at `at` on. As many and in the same order as in Redis, so that the
    /// bytes are the same.
    fn join_runs(&mut self, mut at: usize) {
        for _ in 0..JOINED_MAX {
            let Ok(run) = Run::decode(&self.0[at..]) else { return };
            let next = Run::decode(&self.0[at + run.bytes()..]);
            let next = next.ok().filter(|next| run.value != 0 && next.value == run.value);
            match next.map(|next| run.len + next.len).filter(|len| *len <= VALUES_MAX) {
                Some(len) => {
                    let mut joined = Vec::with_capacity(1);
                    encode(&mut joined, run.value, len);
                    self.0.splice(at..at + 2, joined);
                }
                None => at += run.bytes(),
            }
        }
    }
}

/// The register that an element belongs to, and the value that it raises it to.
fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    // Bounds the run of zeroes.
    let rest = hash >> INDEX_BITS | 1 << RUN_BITS;
    (hash as usize & (REGISTERS - 1), rest.trailing_zeros() as u8 + 1)
}

/// MurmurHash64A with Redis's seed.
fn hash(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| word ^ word >> 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let words = bytes.chunks_exact(8);
    let rest = words.remainder();
    for word in words {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        hash = (hash ^ mix(word.wrapping_mul(FACTOR)).wrapping_mul(FACTOR)).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    mix(mix(hash).wrapping_mul(FACTOR))
}

/// About how many different elements these registers have seen.
fn estimate(registers: &Registers) -> u64 {
    let mut histogram = [0u32; 64];
    registers.iter().for_each(|value| histogram[usize::from(*value)] += 1);
    let all = REGISTERS as f64;
    let longest = RUN_BITS as usize + 1;
    let mut z = all * tau((all - f64::from(histogram[longest])) / all);
    for value in (1..longest).rev() {
        z = (z + f64::from(histogram[value])) * 0.5;
    }
    z += all * sigma(f64::from(histogram[0]) / all);
    // 1 / (2 ln 2).
    const ALPHA: f64 = 0.721_347_520_444_481_7;
    (ALPHA * all * all / z).round() as u64
}

/// For the share of registers that are 0.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

/// For the share of registers that are not at their highest value.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

impl Txn<'_> {
    /// The HyperLogLog at a key.
    pub fn sketch_at(&mut self, db: u8, key: &[u8]) -> Result<Option<Sketch>> {
        self.get(db, key)?.map(Sketch::new).transpose()
    }

    /// Adds elements to the HyperLogLog at a key; whether one was made or a register has changed.
    pub fn sketch_add<'e>(
        &mut self,
        db: u8,
        key: &[u8],
        elements: impl IntoIterator<Item = &'e [u8]>,
    ) -> Result<bool> {
        let found = self.sketch_at(db, key)?;
        let mut changed = found.is_none();
        let mut sketch = found.unwrap_or_default();
        let bytes_max = self.limits(key).hll_sparse_max_bytes;
        for element in elements {
            changed |= sketch.add(element, bytes_max)?;
        }
        if changed {
            sketch.forget_estimate();
            self.set(db, key, sketch.as_bytes(), true)?;
        }
        Ok(changed)
    }

    /// About how many different elements were added to the HyperLogLogs at some keys, all together.
    pub fn sketch_count<'k>(&mut self, db: u8, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<u64> {
        let mut registers = Box::new([0; REGISTERS]);
        for key in keys {
            if let Some(sketch) = self.sketch_at(db, key)? {
                sketch.merge_into(&mut registers)?;
            }
        }
        Ok(estimate(&registers))
    }

    /// Adds to the HyperLogLog at a key what was added to those at some others.
    pub fn sketch_merge<'k>(
        &mut self,
        db: u8,
        to: &[u8],
        keys: impl IntoIterator<Item = &'k [u8]>,
    ) -> Result<()> {
        let found = self.sketch_at(db, to)?;
        let mut registers = found.as_ref().map_or(Ok(Box::new([0; REGISTERS])), Sketch::registers)?;
        let mut merged = found.unwrap_or_default();
        let mut is_dense = merged.encoding() == SketchEncoding::Dense;
        for key in keys {
            if let Some(sketch) = self.sketch_at(db, key)? {
                is_dense |= sketch.encoding() == SketchEncoding::Dense;
                sketch.merge_into(&mut registers)?;
            }
        }
        if is_dense {
            merged.make_dense()?;
        }
        let bytes_max = self.limits(to).hll_sparse_max_bytes;
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value != 0) {
            merged.raise(index, *value, bytes_max)?;
        }
        merged.forget_estimate();
        self.set(db, to, merged.as_bytes(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_elements(count: u32, sparse_bytes_max: usize) -> Sketch {
        let mut sketch = Sketch::default();
        (0..count).for_each(|number| _ = sketch.add(&number.to_le_bytes(), sparse_bytes_max).unwrap());
        sketch
    }

    #[test]
    fn elements_go_where_redis_puts_them() {
        // By PFDEBUG GETREG of Redis 7.0.
        for (element, expected) in [
            ("", (5938, 2)),
            ("a", (12711, 2)),
            ("1234567", (10327, 3)),
            ("12345678", (10579, 3)),
            ("a longer element, of 37 bytes in all!", (8112, 1)),
        ] {
            assert_eq!(place(element.as_bytes()), expected, "{element}");
        }
    }

    #[test]
    fn estimates_are_near() {
        for count in [0, 1, 10, 1000, 50_000] {
            let (sparse, dense) = (with_elements(count, 3000), with_elements(count, 0));
            let estimate = sparse.estimate().unwrap();
            assert_eq!(dense.estimate().unwrap(), estimate);
            // Six times the standard error.
            let error = estimate.abs_diff(count.into()) as f64;
            assert!(error <= (f64::from(count) * 0.05).ceil(), "{count}: {estimate}");
        }
    }

    #[test]
    fn both_encodings_hold_the_same_registers() {
        for bytes_max in [0, 100, 3000, usize::MAX] {
            let mut model = [0u8; REGISTERS];
            let mut sketch = Sketch::default();
            for number in 0..2000u32 {
                let element = number.to_be_bytes();
                let (index, value) = place(&element);
                assert_eq!(sketch.add(&element, bytes_max), Ok(model[index] < value));
                model[index] = model[index].max(value);
                assert!(
                    sketch.encoding() == SketchEncoding::Dense
                        || sketch.as_bytes().len() <= bytes_max.max(18)
                );
            }
            assert_eq!(*sketch.registers().unwrap(), model);
            let was_sparse = sketch.encoding() == SketchEncoding::Sparse;
            assert_eq!(sketch.make_dense(), Ok(was_sparse));
            assert_eq!(*sketch.registers().unwrap(), model);
            assert_eq!(Sketch::new(sketch.as_bytes()), Ok(sketch));
        }
    }

    #[test]
    fn runs_that_are_equal_join() {
        let mut sketch = Sketch::default();
        for index in [0, 1, 3, 2, 4, 16383] {
            assert_eq!(sketch.raise(index, 7, 3000), Ok(true));
        }
        assert_eq!(sketch.raise(2, 7, 3000), Ok(false));
        let runs: Vec<(u8, usize)> =
            sketch.runs().map(|run| run.map(|run| (run.value, run.len)).unwrap()).collect();
        assert_eq!(runs, [(7, 4), (7, 1), (0, 16378), (7, 1)]);
        // One too high for a run.
        assert_eq!(sketch.raise(5, VALUE_MAX + 1, 3000), Ok(true));
        assert_eq!(sketch.encoding(), SketchEncoding::Dense);
        assert_eq!(sketch.registers().unwrap()[..7], [7, 7, 7, 7, 7, 33, 0]);
    }

    #[test]
    fn estimates_are_remembered() {
        let mut sketch = Sketch::default();
        assert_eq!(sketch.cached_estimate(), Some(0));
        sketch.add(b"a", 3000).unwrap();
        assert_eq!(sketch.cached_estimate(), None);
        sketch.cache_estimate(1);
        assert_eq!(sketch.cached_estimate(), Some(1));
        sketch.add(b"a", 3000).unwrap();
        assert_eq!(sketch.cached_estimate(), Some(1));
    }

    #[test]
    fn what_is_no_sketch_is_told() {
        let (sparse, dense) = (with_elements(50, 3000).0, with_elements(50, 0).0);
        for bytes in [&b""[..], b"HYLL", &dense[..dense.len() - 1], &[&dense[..], b"x"].concat()] {
            assert_eq!(Sketch::new(bytes), Err(Error::NotASketch));
        }
        let mut other = sparse.clone();
        other[ENCODING_AT] = 2;
        assert_eq!(Sketch::new(&other), Err(Error::NotASketch));
        for damaged in [&sparse[..sparse.len() - 1], &sparse[..HEADER], &[&sparse[..], b"\x40"].concat()] {
            let mut sketch = Sketch::new(damaged).unwrap();
            assert_eq!(sketch.estimate(), Err(Error::DamagedSketch));
            assert_eq!(sketch.make_dense(), Err(Error::DamagedSketch));
            // Whether this finds the damage depends on the register.
            (0..REGISTERS).step_by(99).for_each(|index| drop(sketch.raise(index, 20, usize::MAX)));
        }
    }
}
