//! Libraries of functions, as FUNCTION DUMP returns them: one after another, with the footer of a payload.

use crate::{
    Error, Result,
    payload::{finish, put_string},
    reader::{Reader, open},
};

/// What comes before each library.
const LIBRARY: u8 = 245;
/// What came before one in a version of Redis that was never released.
const EARLY_LIBRARY: u8 = 246;
/// The version of the format that has libraries.
const VERSION: u16 = 11;

/// The payload of the libraries of these sources.
pub fn encode<'s>(sources: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    for source in sources {
        out.push(LIBRARY);
        put_string(&mut out, source);
    }
    finish(out, VERSION)
}

/// The sources of the libraries. What is malformed is said in Redis's words.
pub fn decode(payload: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut reader = Reader::new(open(payload)?);
    let mut sources = Vec::new();
    while !reader.is_at_end() {
        let source = match reader.u8()? {
            LIBRARY => reader.string().map_err(|_| "failed loading the given functions payload"),
            EARLY_LIBRARY => Err("Pre-GA function format not supported"),
            _ => Err("given type is not a function"),
        };
        sources.push(source.map_err(Error::Malformed)?);
    }
    Ok(sources)
}
