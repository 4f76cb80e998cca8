//! Dictionaries of Zstandard (RFC 8878, section 5): what small values have in common lies once beside the log, and each value is
//! compressed as if it came behind that.
//!
//! A dictionary is a file of its own, `dictionary-N` (`docs/format.md`, "Items"). It is durable before the first value is
//! compressed with it, never changes, and stays, since a value that names it may be anywhere in the log.

use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, Io, Result, crc32c};
use std::{collections::BTreeMap, io::ErrorKind};
use zstd::zstd_safe::{CDict, DDict, get_dict_id};

/// The greatest number of a dictionary, and so how many there are at most. A frame names one in a byte.
pub(crate) const NUMBER_MAX: u32 = 64;
/// Bytes of a dictionary at most.
pub(crate) const BYTES_MAX: usize = 32 << 10;
/// Values of more bytes have enough in common with themselves.
pub(crate) const VALUE_MAX: usize = 8 << 10;

const PREFIX: &str = "dictionary-";
const MAGIC: &[u8; 8] = b"HFDICTIO";
/// Magic, store id, length, CRC-32C of the dictionary and these.
const HEAD: usize = 32;

/// A dictionary, as the trainer makes it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Dictionary {
    number: u32,
    bytes: Vec<u8>,
}

impl Dictionary {
    /// Gives what was trained a number, which frames name it by; `None`: it is no dictionary.
    pub fn new(number: u32, mut bytes: Vec<u8>) -> Option<Dictionary> {
        // The format: a magic number, and the number of the dictionary.
        bytes.get_mut(4..8)?.copy_from_slice(&number.to_le_bytes());
        let is_sound = bytes.len() <= BYTES_MAX && get_dict_id(&bytes).is_some_and(|id| id.get() == number);
        is_sound.then_some(Dictionary { number, bytes })
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// What compresses with it.
    pub fn encoder(&self, level: i32) -> Option<CDict<'static>> {
        CDict::try_create(&self.bytes, level)
    }

    /// What expands values that were compressed with it.
    pub fn decoder(&self) -> Option<DDict<'static>> {
        DDict::try_create(&self.bytes)
    }

    /// Writes it, durably, into a file of its own; returns how many bytes that took.
    pub fn write(&self, io: &dyn Io, store_id: [u8; 16]) -> Result<u64> {
        let name = file_name(self.number);
        let mut file_bytes = AlignedBuf::zeroed((HEAD + self.bytes.len()).next_multiple_of(BLOCK));
        let (head, rest) = file_bytes.split_at_mut(HEAD);
        head[..8].copy_from_slice(MAGIC);
        head[8..24].copy_from_slice(&store_id);
        head[24..28].copy_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        rest[..self.bytes.len()].copy_from_slice(&self.bytes);
        let crc = checksum(head, &self.bytes);
        head[28..].copy_from_slice(&crc.to_le_bytes());
        let failed = |e| Error::io(format!("write {name}"), e);
        let file = io.open(&name, true).map_err(failed)?;
        file.write_at(&[&file_bytes], 0, Durability::Durable).map_err(failed)?;
        file.sync().map_err(failed)?;
        io.sync_dir("").map_err(failed)?;
        Ok(file_bytes.len() as u64)
    }

    /// Reads that of a number.
    fn read(
        io: &dyn Io,
        store_id: [u8; 16],
        number: u32,
    ) -> Result<std::result::Result<Dictionary, &'static str>> {
        let name = file_name(number);
        let failed = |e| Error::io(format!("read {name}"), e);
        let file = io.open(&name, false).map_err(failed)?;
        let len = file.len().map_err(failed)?;
        if !(HEAD as u64..=(HEAD + BYTES_MAX + BLOCK) as u64).contains(&len) {
            return Ok(Err("it has not the length of a dictionary"));
        }
        let mut bytes = vec![0; len as usize];
        match file.read_at(&mut bytes, 0) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(Err("it is cut short")),
            read => read.map_err(failed)?,
        }
        let (head, rest) = bytes.split_at(HEAD);
        let len = u32::from_le_bytes([head[24], head[25], head[26], head[27]]) as usize;
        let Some(dictionary) = rest.get(..len) else { return Ok(Err("it is cut short")) };
        Ok(match () {
            () if &head[..8] != MAGIC => Err("it is no dictionary"),
            () if head[8..24] != store_id => Err("it is another store's"),
            () if checksum(head, dictionary).to_le_bytes() != head[28..] => {
                Err("its checksum does not match")
            }
            () => Dictionary::new(number, dictionary.to_vec()).ok_or("its number is another one"),
        })
    }
}

/// The files of dictionaries in a data folder, sound or not.
pub(crate) fn files(io: &dyn Io) -> Result<Vec<String>> {
    Ok(numbers(io)?.into_iter().map(file_name).collect())
}

fn numbers(io: &dyn Io) -> Result<Vec<u32>> {
    let files = io.list("").map_err(|e| Error::io("list the data folder", e))?;
    let mut numbers: Vec<u32> =
        files.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).collect();
    numbers.retain(|number| (1..=NUMBER_MAX).contains(number));
    numbers.sort_unstable();
    Ok(numbers)
}

fn file_name(number: u32) -> String {
    format!("{PREFIX}{number}")
}

fn checksum(head: &[u8], dictionary: &[u8]) -> u32 {
    crc32c(&[&head[..28], dictionary].concat())
}

/// The dictionaries of a store.
#[derive(Default)]
pub(crate) struct Dictionaries {
    decoders: BTreeMap<u32, DDict<'static>>,
    newest: Option<Dictionary>,
    /// Of the newest one, with its level.
    encoder: Option<(i32, CDict<'static>)>,
    /// The greatest number that a file has, sound or not.
    number_max: u32,
}

impl Dictionaries {
    /// Reads all that lie in the folder. Those that are not sound are told: values that name them cannot be expanded.
    pub fn read(io: &dyn Io, store_id: [u8; 16], notes: &mut Vec<String>) -> Result<Dictionaries> {
        let mut dictionaries = Dictionaries::default();
        for number in numbers(io)? {
            dictionaries.number_max = number;
            match Dictionary::read(io, store_id, number)? {
                Ok(dictionary) => dictionaries.add(dictionary),
                Err(what) => notes.push(format!("{} is not used: {what}", file_name(number))),
            }
        }
        Ok(dictionaries)
    }

    /// Adds one that is durable, which is the newest from now on.
    pub fn add(&mut self, dictionary: Dictionary) {
        let number = dictionary.number();
        self.number_max = self.number_max.max(number);
        self.decoders.extend(dictionary.decoder().map(|decoder| (number, decoder)));
        (self.newest, self.encoder) = (Some(dictionary), None);
    }

    /// The number of the next one; `None`: there are too many already.
    pub fn next_number(&self) -> Option<u32> {
        (self.number_max < NUMBER_MAX).then_some(self.number_max + 1)
    }

    /// How many there are that can be used.
    pub fn len(&self) -> usize {
        self.decoders.len()
    }

    /// Makes what [`Dictionaries::encoder`] returns for this level.
    pub fn prepare(&mut self, level: i32) {
        if self.encoder(level).is_none() {
            let encoder = self.newest.as_ref().and_then(|newest| newest.encoder(level));
            self.encoder = encoder.map(|encoder| (level, encoder));
        }
    }

    /// What compresses with the newest one, if that is [prepared](Dictionaries::prepare) for the level.
    pub fn encoder(&self, level: i32) -> Option<&CDict<'static>> {
        self.encoder.as_ref().filter(|(of, _)| *of == level).map(|(_, encoder)| encoder)
    }

    /// What expands a frame that names a dictionary.
    pub fn decoder(&self, number: u32) -> Option<&DDict<'static>> {
        self.decoders.get(&number)
    }
}
