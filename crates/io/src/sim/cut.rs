//! What storage-class memory may hold after a power cut, one outcome after another, and all of them where they are not too many.
//!
//! What is not fenced is cut into words of 8 bytes. Streamed stores persist as any subset of their words. Ordinary stores to one line
//! persist as a prefix of their order, which is one of these subsets. So each subset is an outcome if there are few words. If there are
//! more, each combination of prefixes of the lines is one, or at least each combination of whole lines; and others are drawn.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
};

use super::{
    Machine, SimIo,
    disk::{Names, Undecided, Unit},
    rng::Rng,
};
use crate::{LINE, Scm, WORD};

/// So many outcomes of a power cut are listed: all subsets of 12 lines.
const LISTED_MAX: u64 = 1 << 12;

/// A moment at which the power may go.
pub struct PowerCut {
    undecided: Undecided,
    /// The units of each line, by their indices; a length or a name is by itself.
    groups: Vec<Vec<usize>>,
    /// Of the files without any unit.
    base: u64,
    /// Which of the machine's moments it is.
    number: u64,
    machine: Machine,
    scm: Option<Arc<Scm>>,
    images: AtomicU64,
}

/// One of the things that a power cut may leave.
pub struct Outcome {
    /// By unit.
    survives: Vec<bool>,
    /// Outcomes with the same one leave the same names and bytes.
    pub fingerprint: u64,
}

/// How outcomes are listed.
#[derive(Clone, Copy, PartialEq)]
enum Listing {
    Subsets,
    Prefixes,
    WholeLines,
}

impl Listing {
    /// How many ways there are for a line with so many words.
    fn ways(self, words: usize) -> Option<u64> {
        match self {
            Listing::Subsets => 1u64.checked_shl(words as u32),
            Listing::Prefixes => Some(words as u64 + 1),
            Listing::WholeLines => Some(2),
        }
    }

    /// Whether a word of a line survives.
    fn survives(self, way: u64, word: usize) -> bool {
        match self {
            Listing::Subsets => way >> word & 1 == 1,
            Listing::Prefixes => (word as u64) < way,
            Listing::WholeLines => way == 1,
        }
    }
}

impl PowerCut {
    pub(super) fn of(machine: &Machine, scm: Option<Arc<Scm>>) -> PowerCut {
        let undecided = machine.names.undecided();
        let mut groups: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
        for (at, unit) in undecided.units.iter().enumerate() {
            let key = match unit {
                Unit::Word { is_certain: true, .. } => continue,
                Unit::Word { file, offset, .. } => (*file, offset / LINE),
                Unit::Len { .. } | Unit::Name { .. } => (usize::MAX, at),
            };
            groups.entry(key).or_default().push(at);
        }
        let base =
            undecided.files.iter().map(|file| of_bytes(&file.name, &file.bytes)).fold(0, u64::wrapping_add);
        let groups = groups.into_values().collect();
        let (number, machine) = (machine.operations, machine.like(Names::default(), 0));
        PowerCut { undecided, groups, base, number, machine, scm, images: AtomicU64::new(0) }
    }

    /// How often lines are written back that one time would do for: each store to a line that another one has stored to since the fence before.
    pub fn redundant_lines(&self) -> usize {
        let mut stores = HashSet::new();
        let mut lines = HashSet::new();
        for unit in &self.undecided.units {
            if let Unit::Word { file, offset, change, is_certain: false, .. } = unit {
                let line = (*file, offset / LINE);
                stores.insert((line, *change));
                lines.insert(line);
            }
        }
        stores.len() - lines.len()
    }

    /// What it may leave: all that is listed if that is not more than `max`, else so many at random, and beside them some that are not listed.
    pub fn outcomes(&self, max: u64, seed: u64) -> Vec<Outcome> {
        let mut rng = Rng::new(seed ^ self.number << 32);
        let count = |listing: Listing| {
            let mut ways = self.groups.iter().map(|group| listing.ways(group.len()));
            ways.try_fold(1u64, |all, ways| all.checked_mul(ways?).filter(|&all| all <= LISTED_MAX))
        };
        let listings = [Listing::Subsets, Listing::Prefixes, Listing::WholeLines];
        let listing = listings.into_iter().find_map(|listing| Some((listing, count(listing)?)));
        let mut chosen = Vec::new();
        if let Some((listing, count)) = listing {
            let has_all = listing == Listing::Subsets;
            let listed_max = if has_all { max } else { max.div_ceil(2) };
            match count <= max {
                true => chosen.extend((0..count).map(|number| self.listed(listing, number))),
                false => chosen.extend((0..listed_max).map(|_| self.listed(listing, rng.draw() % count))),
            }
            if has_all {
                return self.with_fingerprints(chosen);
            }
        }
        for _ in chosen.len() as u64..max {
            let odds = [16, 128, 240][(rng.draw() % 3) as usize];
            chosen.push(self.undecided.units.iter().map(|_| rng.chance(odds)).collect());
        }
        self.with_fingerprints(chosen)
    }

    /// The outcome with a number.
    fn listed(&self, listing: Listing, mut number: u64) -> Vec<bool> {
        let mut survives = vec![false; self.undecided.units.len()];
        for group in &self.groups {
            let ways = listing.ways(group.len()).expect("few words");
            let way = number % ways;
            number /= ways;
            group.iter().enumerate().for_each(|(word, &at)| survives[at] = listing.survives(way, word));
        }
        survives
    }

    fn with_fingerprints(&self, chosen: Vec<Vec<bool>>) -> Vec<Outcome> {
        chosen
            .into_iter()
            .map(|survives| Outcome { fingerprint: self.fingerprint(&survives), survives })
            .collect()
    }

    fn fingerprint(&self, survives: &[bool]) -> u64 {
        let Undecided { files, units, .. } = &self.undecided;
        if units.iter().any(|unit| matches!(unit, Unit::Len { .. } | Unit::Name { .. })) {
            let (names, files) = self.undecided.decide(survives);
            let names = names.iter().map(|(name, &file)| of_bytes(name, &files[file]));
            return names.fold(1, u64::wrapping_add);
        }
        let mut words: BTreeMap<(usize, usize), [u8; WORD]> = BTreeMap::new();
        let word_of = |file: usize, number: usize| {
            let mut word = [0; WORD];
            let bytes = files[file].bytes.get(number * WORD..).unwrap_or_default();
            let len = bytes.len().min(WORD);
            word[..len].copy_from_slice(&bytes[..len]);
            word
        };
        for (unit, survives) in units.iter().zip(survives) {
            if let Unit::Word { file, offset, bytes, len, is_certain, .. } = unit
                && (*survives || *is_certain)
            {
                let number = offset / WORD;
                let word = words.entry((*file, number)).or_insert_with(|| word_of(*file, number));
                word[offset % WORD..][..*len].copy_from_slice(&bytes[..*len]);
            }
        }
        words.into_iter().fold(self.base, |sum, ((file, number), word)| {
            let name = of_name(&files[file].name);
            let (new, old) = (of_word(name, number, word), of_word(name, number, word_of(file, number)));
            sum.wrapping_add(new).wrapping_sub(old)
        })
    }

    /// A machine that finds itself in possession of this.
    pub fn image(&self, outcome: &Outcome) -> SimIo {
        let (names, files) = self.undecided.decide(&outcome.survives);
        let names = Names::on_medium(names, files, &self.undecided.files);
        let seed = self.number ^ self.images.fetch_add(1, Relaxed) << 32;
        SimIo::with(self.machine.like(names, seed), self.scm.clone())
    }
}

fn mixed(number: u64) -> u64 {
    Rng::new(number).draw()
}

fn of_name(name: &str) -> u64 {
    name.bytes().fold(name.len() as u64, |sum, byte| mixed(sum ^ u64::from(byte)))
}

/// Zero for a word of zeroes, as there is behind the end of a file.
fn of_word(name: u64, number: usize, word: [u8; WORD]) -> u64 {
    match u64::from_le_bytes(word) {
        0 => 0,
        word => mixed(name ^ mixed(number as u64) ^ word),
    }
}

fn of_bytes(name: &str, bytes: &[u8]) -> u64 {
    let file = of_name(name);
    let words = bytes.chunks(WORD).enumerate();
    words.fold(mixed(file ^ bytes.len() as u64), |sum, (number, bytes)| {
        let mut word = [0; WORD];
        word[..bytes.len()].copy_from_slice(bytes);
        sum.wrapping_add(of_word(file, number, word))
    })
}
