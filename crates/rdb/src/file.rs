//! RDB files: what Redis and Valkey save.
//!
//! A file begins with its format and version (`REDIS0011`, `VALKEY080`). Records follow: facts about the file, libraries
//! of functions, and for each database its keys, each with its value. The last record is the end, behind which there is
//! a checksum of all before it (CRC-64, 8 bytes; 0: none was made; before version 5 there is none).
//!
//! [`Reader`] takes memory for one string, or one piece of a collection, at a time, not for the file; only a stream is
//! read as a whole. Versions up to 12 of Redis and 80 of Valkey are read; other ones, and what modules have written,
//! are refused by name. What is wrong is found where it is met, but a damaged value may look sound: only
//! [`Reader::next_record`] returning `None` says that the file is whole.

use crate::{
    Strings, Value, crc64,
    decode::{self, EMPTY, Elements, PieceLimit},
    kind, opcode,
    reader::{self, CUT, Input},
    unread::{self, Unread},
};
use std::{
    fmt,
    io::{self, Chain, Cursor, Read},
    result,
};

/// The highest version of Redis's format that is read.
pub const REDIS_VERSION_MAX: u16 = crate::VERSION_MAX;
/// The version of Valkey's format that is read; before it, Valkey wrote Redis's.
pub const VALKEY_VERSION: u16 = 80;

/// The first version with a checksum.
const VERSION_CHECKSUM: u16 = 5;
/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// A piece of a collection has about so much at most.
const PIECE: PieceLimit = PieceLimit { elements: 2048, bytes: 1 << 20 };
/// Bytes of a key or a name that an error shows.
const SHOWN: usize = 64;

/// What a file holds, in its order.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A fact about the file: its name and its value.
    Aux(Vec<u8>, Vec<u8>),
    /// The source of a library of functions.
    Library(Vec<u8>),
    /// The keys that follow are of this database.
    Database(u64),
    /// So many keys are said to follow in this database, and so many of them with an expiry.
    Sizes(u64, u64),
    /// A key, whose value follows.
    Key(Key),
    /// A value or a piece of one: of a collection the elements that follow on those before.
    Value {
        /// What has been read. The last piece may be without elements.
        value: Value,
        /// Whether nothing of this value came before.
        is_first: bool,
        /// Whether nothing of this value follows.
        is_last: bool,
    },
    /// In the place of a value: a collection without elements, which old versions left behind and no version loads.
    Nothing,
}

/// A key and what is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: Vec<u8>,
    /// When it expires: Unix time in milliseconds.
    pub expires_ms: Option<u64>,
    /// For how long it has not been used, in seconds.
    pub idle_s: Option<u64>,
    /// How often it was used, on the logarithmic scale of LFU.
    pub frequency: Option<u8>,
}

/// Why a file cannot be read further.
#[derive(Debug)]
pub enum FileError {
    /// The system says so.
    Io(io::Error),
    /// It is not, or no longer, what it should be.
    Refused {
        /// Bytes from the start of the file, about.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Io(error) => error.fmt(f),
            FileError::Refused { offset, what } => write!(f, "at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for FileError {}

/// The result of reading a file.
pub type Result<T> = result::Result<T, FileError>;

/// Reads a file.
pub struct Reader<R> {
    reader: reader::Reader<Buffered<R>>,
    version: u16,
    is_valkey: bool,
    state: State,
    /// The key that was read last.
    key: Vec<u8>,
    /// Memory for names.
    name: Vec<u8>,
}

enum State {
    Records,
    /// A key was read, whose value is of this type.
    Value {
        kind: u8,
    },
    Pieces {
        elements: Elements,
        is_first: bool,
    },
    End,
}

impl<R: Read> Reader<R> {
    /// Begins with a file.
    pub fn new(source: R) -> Result<Reader<R>> {
        let input = Buffered {
            source,
            buffer: Vec::new(),
            next: 0,
            fresh: 0,
            crc: 0,
            crc_ahead: 0,
            before: 0,
            failure: None,
        };
        let mut reader = Reader {
            reader: reader::Reader::unlimited(input),
            version: 0,
            is_valkey: false,
            state: State::Records,
            key: Vec::new(),
            name: Vec::new(),
        };
        let magic = reader.get(|reader| reader.bytes::<9>()).map_err(|error| match error {
            FileError::Refused { .. } => refused(0, "no RDB file: it is too short"),
            error => error,
        })?;
        let (is_valkey, digits) = match &magic {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (false, &digits[..]),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (true, &digits[..]),
            _ => return Err(refused(0, "no RDB file: it begins with neither REDIS nor VALKEY")),
        };
        let all_digits = digits.iter().all(u8::is_ascii_digit);
        let version =
            std::str::from_utf8(digits).ok().filter(|_| all_digits).and_then(|text| text.parse().ok());
        let known = if is_valkey { VALKEY_VERSION..=VALKEY_VERSION } else { 1..=REDIS_VERSION_MAX };
        reader.version = version.filter(|version| known.contains(version)).ok_or_else(|| {
            let what = format!(
                "version {} of the format is not known: up to {REDIS_VERSION_MAX} of Redis and {VALKEY_VERSION} of \
                 Valkey are",
                magic.escape_ascii()
            );
            refused(0, what)
        })?;
        reader.is_valkey = is_valkey;
        Ok(reader)
    }

    /// The version of the format.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// How many bytes of the file were read.
    pub fn position(&self) -> u64 {
        self.reader.input.position()
    }

    /// The next record, if that is a key, and it is at hand with all of its value, which is small: it counts as read with that. Where it is
    /// damaged, who reads the value finds out.
    #[inline]
    pub fn next_unread(&mut self) -> Option<Unread<'_>> {
        let State::Records = self.state else { return None };
        let Buffered { buffer, next, .. } = &mut self.reader.input;
        let (unread, len) = unread::find(&buffer[*next..], &mut self.name)?;
        *next += len;
        Some(unread)
    }

    /// Checks that nothing follows the end, which must have been reached.
    pub fn end(self) -> Result<()> {
        let position = self.position();
        match self.into_rest().read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(refused(position, "something follows the end of the file")),
            Err(error) => Err(FileError::Io(error)),
        }
    }

    /// What follows the end of the file, which must have been reached.
    pub fn into_rest(self) -> Chain<Cursor<Vec<u8>>, R> {
        assert!(matches!(self.state, State::End), "the end was read");
        let Buffered { source, mut buffer, next, .. } = self.reader.input;
        buffer.drain(..next);
        Cursor::new(buffer).chain(source)
    }

    /// The next record; `None` once the whole file was read, and its checksum is right.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        match std::mem::replace(&mut self.state, State::End) {
            State::Records => self.record(),
            State::Value { kind } => {
                let begun = self.get(|reader| Elements::begin(reader, kind));
                match self.of_key(begun)? {
                    Some(elements) => self.piece(elements, true),
                    None => {
                        self.state = State::Records;
                        let value = self.get(|reader| unless_empty(decode::whole(reader, kind)));
                        Ok(Some(whole(self.of_key(value)?)))
                    }
                }
            }
            State::Pieces { elements, is_first } => self.piece(elements, is_first),
            State::End => Ok(None),
        }
    }

    fn piece(&mut self, mut elements: Elements, is_first: bool) -> Result<Option<Record>> {
        let value = self.get(|reader| unless_empty(elements.next(reader, PIECE)));
        let value = self.of_key(value)?;
        let is_last = elements.is_at_end();
        self.state = if is_last { State::Records } else { State::Pieces { elements, is_first: false } };
        Ok(Some(match value {
            Some(value) => Record::Value { value, is_first, is_last },
            None if is_first => Record::Nothing,
            // Only of a list nodes can be empty behind others.
            None => Record::Value { value: Value::List(Strings::default()), is_first, is_last },
        }))
    }

    fn record(&mut self) -> Result<Option<Record>> {
        let mut key = Key::default();
        loop {
            let code = self.get(|reader| reader.u8())?;
            let is_of_key =
                matches!(code, opcode::EXPIRES_MS | opcode::EXPIRES_S | opcode::IDLE | opcode::FREQUENCY);
            if code >= opcode::SLOT_IMPORT && !is_of_key && key != Key::default() {
                return Err(self.refuse("an expiry or a use of no key"));
            }
            self.state = State::Records;
            match code {
                opcode::AUX => {
                    let (name, value) = self.get(|reader| Ok((reader.string()?, reader.string()?)))?;
                    return Ok(Some(Record::Aux(name, value)));
                }
                opcode::LIBRARY => return Ok(Some(Record::Library(self.get(|reader| reader.string())?))),
                opcode::DATABASE => return Ok(Some(Record::Database(self.get(|reader| reader.length())?))),
                opcode::SIZES => {
                    let (keys, expiring) = self.get(|reader| Ok((reader.length()?, reader.length()?)))?;
                    return Ok(Some(Record::Sizes(keys, expiring)));
                }
                // The number of a hash slot, its keys, and those that expire.
                opcode::SLOT_INFO => {
                    self.get(|reader| Ok((reader.length()?, reader.length()?, reader.length()?)))?;
                }
                opcode::EXPIRES_MS => {
                    key.expires_ms = Some(self.get(|reader| Ok(u64::from_le_bytes(reader.bytes()?)))?);
                }
                opcode::EXPIRES_S => {
                    let seconds = self.get(|reader| Ok(u32::from_le_bytes(reader.bytes()?)))?;
                    key.expires_ms = Some(u64::from(seconds) * 1000);
                }
                opcode::IDLE => key.idle_s = Some(self.get(|reader| reader.length())?),
                opcode::FREQUENCY => key.frequency = Some(self.get(|reader| reader.u8())?),
                opcode::END => return self.end_record(),
                opcode::MODULE_AUX => {
                    let id = self.get(|reader| reader.length())?;
                    return Err(
                        self.refuse(format!("data of the module {}: modules are not known", module(id)))
                    );
                }
                opcode::EARLY_LIBRARY => {
                    return Err(self.refuse("functions of a release candidate of Redis 7.0"));
                }
                opcode::SLOT_IMPORT => {
                    return Err(self.refuse("the state of a slot migration of Valkey that was not over"));
                }
                kind => {
                    key.name = self.get(|reader| reader.string())?;
                    let kind = self.known(kind, &key.name)?;
                    self.state = State::Value { kind };
                    self.key.clear();
                    self.key.extend_from_slice(&key.name);
                    return Ok(Some(Record::Key(key)));
                }
            }
        }
    }

    /// The type of a value, if it is known.
    fn known(&mut self, kind: u8, key: &[u8]) -> Result<u8> {
        const MODULE: u8 = 6;
        const MODULE_2: u8 = 7;
        const UNUSED: u8 = 8;
        match kind {
            MODULE | MODULE_2 => {
                let (id, of) = (self.get(|reader| reader.length())?, show(key));
                let what = format!("the key {of} is of the module {}: modules are not known", module(id));
                Err(self.refuse(what))
            }
            kind::HASH_METADATA_EARLY if self.is_valkey => Ok(kind::HASH_VALKEY),
            kind if kind <= kind::STREAM_3 && kind != UNUSED => Ok(kind),
            kind if kind <= kind::HASH_LISTPACK_EX && kind != UNUSED && !self.is_valkey => Ok(kind),
            kind => {
                let of = show(key);
                Err(self.refuse(format!("the key {of} is of a type that is not known: {kind}")))
            }
        }
    }

    fn end_record(&mut self) -> Result<Option<Record>> {
        if self.version >= VERSION_CHECKSUM {
            let sum = self.reader.input.checksum();
            let expected = self.get(|reader| Ok(u64::from_le_bytes(reader.bytes()?)))?;
            if expected != 0 && expected != sum {
                return Err(self.refuse("the checksum of the file is another: it is damaged"));
            }
        }
        self.state = State::End;
        Ok(None)
    }

    /// Reads something, and tells where it went wrong.
    fn get<T>(
        &mut self,
        read: impl FnOnce(&mut reader::Reader<Buffered<R>>) -> crate::Result<T>,
    ) -> Result<T> {
        read(&mut self.reader).map_err(|error| match self.reader.input.failure.take() {
            Some(failure) => FileError::Io(failure),
            None if error == CUT => self.refuse("the file is cut short"),
            None => self.refuse(error.to_string()),
        })
    }

    /// Names the key that an error is about.
    fn of_key<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error {
            FileError::Refused { offset, what } => FileError::Refused {
                offset,
                what: format!("{what}, in the value of the key {}", show(&self.key)),
            },
            error => error,
        })
    }

    fn refuse(&self, what: impl Into<String>) -> FileError {
        refused(self.position(), what)
    }
}

fn refused(offset: u64, what: impl Into<String>) -> FileError {
    FileError::Refused { offset, what: what.into() }
}

/// A value that is not read in pieces.
fn whole(value: Option<Value>) -> Record {
    value.map_or(Record::Nothing, |value| Record::Value { value, is_first: true, is_last: true })
}

/// No value, where what is wrong is only that it has no elements.
fn unless_empty(value: crate::Result<Value>) -> crate::Result<Option<Value>> {
    match value {
        Err(EMPTY) => Ok(None),
        value => value.map(Some),
    }
}

/// The beginning of a name, as an error shows it.
fn show(name: &[u8]) -> String {
    let more = if name.len() > SHOWN { "..." } else { "" };
    format!("\"{}\"{more}", name[..name.len().min(SHOWN)].escape_ascii())
}

/// The name of a module: nine characters of 6 bits each, above 10 bits of a version.
fn module(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).rev().map(|at| char::from(CHARACTERS[(id >> (10 + 6 * at) & 63) as usize])).collect()
}

/// Bytes of a file, which are summed up as they are read.
struct Buffered<R> {
    source: R,
    buffer: Vec<u8>,
    /// Where in the buffer to go on.
    next: usize,
    /// Where that begins which came last, and the checksum of all before it.
    fresh: usize,
    crc: u64,
    /// The checksum of all that has come: it is made at once, which has the bytes at hand when they are looked at.
    crc_ahead: u64,
    /// Bytes of the file before those in the buffer.
    before: u64,
    failure: Option<io::Error>,
}

impl<R> Buffered<R> {
    fn position(&self) -> u64 {
        self.before + self.next as u64
    }

    /// The checksum of all that was read.
    fn checksum(&self) -> u64 {
        // More came only for what reaches into it.
        crc64(self.crc, &self.buffer[self.fresh..self.next])
    }
}

impl<R: Read> Buffered<R> {
    /// Reads on until so many bytes are there.
    fn fill(&mut self, len: usize) -> crate::Result<()> {
        self.before += self.next as u64;
        self.buffer.drain(..self.next);
        self.next = 0;
        (self.fresh, self.crc) = (self.buffer.len(), self.crc_ahead);
        if self.buffer.capacity() > 4 * CHUNK.max(len) {
            self.buffer.shrink_to(2 * CHUNK.max(len));
        }
        // Grows with what is there, not with what is announced.
        let missing = (len - self.buffer.len()).max(CHUNK) as u64;
        if let Err(error) = self.source.by_ref().take(missing).read_to_end(&mut self.buffer) {
            self.failure = Some(error);
            return Err(CUT);
        }
        self.crc_ahead = crc64(self.crc, &self.buffer[self.fresh..]);
        if self.buffer.len() < len { Err(CUT) } else { Ok(()) }
    }
}

impl<R: Read> Input for Buffered<R> {
    fn take(&mut self, len: usize) -> crate::Result<&[u8]> {
        if self.buffer.len() - self.next < len {
            self.fill(len)?;
        }
        self.next += len;
        Ok(&self.buffer[self.next - len..self.next])
    }
}
