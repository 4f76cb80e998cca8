//! Writing RDB files, which [`file`](crate::file) reads: uncompressed, with a checksum.

use crate::{
    FOOTER, crc64, opcode,
    payload::{put_length, put_string},
};
use std::io::{self, Write};

/// The version of Redis 7.0.
pub const REDIS_7_0: u16 = 10;
/// The version of Redis 7.2 and Valkey 8.
pub const REDIS_7_2: u16 = 11;
/// The version of Redis 7.4, which has hashes with expiring fields.
pub const REDIS_7_4: u16 = 12;

/// Bytes that are written at once, unless a value is longer.
const CHUNK: usize = 256 << 10;

/// Writes a file.
pub struct Writer<W> {
    out: W,
    version: u16,
    /// What is not written yet.
    buffer: Vec<u8>,
    /// The checksum of what is.
    crc: u64,
    database: Option<u64>,
}

/// A payload needs this newer version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newer(pub u16);

/// The version of the format that a payload needs, as [`encode`](mod@crate::encode) has made it.
pub fn version_of(payload: &[u8]) -> u16 {
    let footer = &payload[payload.len() - FOOTER..];
    u16::from_le_bytes([footer[0], footer[1]])
}

impl<W: Write> Writer<W> {
    /// Begins with a file of a version.
    pub fn new(out: W, version: u16) -> Writer<W> {
        let buffer = format!("REDIS{version:04}").into_bytes();
        Writer { out, version, buffer, crc: 0, database: None }
    }

    /// Adds a fact about the file.
    pub fn aux(&mut self, name: &str, value: &str) -> io::Result<()> {
        self.buffer.push(opcode::AUX);
        put_string(&mut self.buffer, name.as_bytes());
        put_string(&mut self.buffer, value.as_bytes());
        self.write_some()
    }

    /// Adds the source of a library of functions.
    pub fn library(&mut self, source: &[u8]) -> io::Result<()> {
        self.buffer.push(opcode::LIBRARY);
        put_string(&mut self.buffer, source);
        self.write_some()
    }

    /// Adds a key of a database with its value, as [`encode`](mod@crate::encode) has made it, and when it expires: Unix time in milliseconds.
    /// If the value needs a newer version, nothing is added.
    pub fn key(
        &mut self,
        database: u64,
        key: &[u8],
        expires_ms: Option<u64>,
        payload: &[u8],
    ) -> io::Result<Result<(), Newer>> {
        let value = &payload[..payload.len() - FOOTER];
        let needed = version_of(payload);
        if needed > self.version {
            return Ok(Err(Newer(needed)));
        }
        if self.database != Some(database) {
            self.buffer.push(opcode::DATABASE);
            put_length(&mut self.buffer, database);
            self.database = Some(database);
        }
        if let Some(at) = expires_ms {
            self.buffer.push(opcode::EXPIRES_MS);
            self.buffer.extend_from_slice(&at.to_le_bytes());
        }
        let (kind, value) = value.split_first().expect("a type");
        self.buffer.push(*kind);
        put_string(&mut self.buffer, key);
        if value.len() >= CHUNK {
            self.flush()?;
            self.crc = crc64(self.crc, value);
            self.out.write_all(value)?;
        } else {
            self.buffer.extend_from_slice(value);
        }
        self.write_some().map(Ok)
    }

    /// Writes the end, and returns what was written to, which is flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.buffer.push(opcode::END);
        self.flush()?;
        self.out.write_all(&self.crc.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_some(&mut self) -> io::Result<()> {
        if self.buffer.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.crc = crc64(self.crc, &self.buffer);
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
