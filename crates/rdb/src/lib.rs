//! Values in Redis's serialization, the one of RDB files: what DUMP returns and RESTORE takes, and [`functions`] likewise;
//! and those files themselves, which [`file`] reads and [`writer`] writes.
//!
//! A *payload* is a type (1 byte), the value, the version of the format (2 bytes) and a checksum of all that (CRC-64, 8
//! bytes); numbers of the footer are little-endian. [`decode`] reads everything that Redis up to 7.4 writes and its
//! older encodings, except modules' values. It takes memory for what is there, never for what is announced, and not much more
//! than a payload has bytes when its strings are decompressed; it finds out what is not sound: payloads come from clients.
//!
//! [`encode`](mod@encode) writes the plain encodings, which all versions since Redis 4 read, and says so in the version. A
//! stream needs Redis 7.0, a hash whose fields expire 7.4.

mod crc;
mod decode;
pub mod encode;
pub mod file;
pub mod functions;
mod lzf;
mod opcode;
mod packed;
mod payload;
mod reader;
pub mod stream;
mod strings;
pub mod unread;
pub mod writer;

pub use crc::crc64;
pub use decode::decode;
pub use strings::{Field, Fields, Members, Strings};

use std::fmt;

/// The highest version of the format that is read.
pub const VERSION_MAX: u16 = 12;
/// The version of what is written, unless it needs a higher one.
const VERSION: u16 = 9;
/// The version that has streams which know what was deleted.
const VERSION_STREAM: u16 = 10;
/// The version that has streams which know when consumers were last active.
const VERSION_ACTIVITY: u16 = 11;
/// The version that has hashes with expiring fields.
const VERSION_EXPIRING: u16 = 12;
/// Bytes of version and checksum.
const FOOTER: usize = 10;

/// Types of serialized values.
mod kind {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    pub const ZSET: u8 = 3;
    pub const HASH: u8 = 4;
    pub const ZSET_2: u8 = 5;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const ZSET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    pub const LIST_QUICKLIST: u8 = 14;
    pub const STREAM: u8 = 15;
    pub const HASH_LISTPACK: u8 = 16;
    pub const ZSET_LISTPACK: u8 = 17;
    pub const LIST_QUICKLIST_2: u8 = 18;
    pub const STREAM_2: u8 = 19;
    pub const SET_LISTPACK: u8 = 20;
    pub const STREAM_3: u8 = 21;
    /// Of release candidates of Redis 7.4, likewise the next one.
    pub const HASH_METADATA_EARLY: u8 = 22;
    pub const HASH_LISTPACK_EX_EARLY: u8 = 23;
    pub const HASH_METADATA: u8 = 24;
    pub const HASH_LISTPACK_EX: u8 = 25;
    /// What Valkey 9 writes as type 22.
    pub const HASH_VALKEY: u8 = 255;
}

/// A value. Collections have at least one element, and no element twice where that matters.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// A list, in its order.
    List(Strings),
    /// A set.
    Set(Strings),
    /// A sorted set, in any order; no score is NaN.
    Zset(Members),
    /// A hash.
    Hash(Fields),
    /// A stream, which may be without entries.
    Stream(Box<stream::Stream>),
}

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The footer: it is of a newer version, or the checksum is another.
    Footer,
    /// What comes before; says what is wrong.
    Malformed(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::Footer => "wrong version or checksum",
            Error::Malformed(what) => what,
        })
    }
}

impl std::error::Error for Error {}

/// The result of reading.
pub type Result<T> = std::result::Result<T, Error>;
