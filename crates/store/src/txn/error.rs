//! Why a transaction could not do something.

use crate::{collections::serial::ImportError, partition::cold::Cold};
use holdfast_heap::Full;
use holdfast_log::Admission;
use std::fmt;

/// Why an operation could not be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The key holds another type of value.
    WrongType,
    /// The value is on the medium only: end the transaction, [`crate::Store::fetch`] it, and run again with the result.
    Cold(Cold),
    /// The heap has no room.
    Full,
    /// The log does not take what this would write. Nothing has changed; if it is [`Admission::Busy`], end the transaction and
    /// run again after progress.
    NotAdmitted(Admission),
    /// No batch of the log holds this, or other servers do not agree on so much at once. Nothing has changed.
    TooLarge,
    /// The string is not a HyperLogLog.
    NotASketch,
    /// The registers of a HyperLogLog are not what they should be.
    DamagedSketch,
    /// The medium returned bytes that fail their check; says where.
    Corrupt(String),
    /// There is no database of this number.
    NoDatabase(u8),
    /// The key is none of those that were named for the transaction.
    NotNamed,
}

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Full> for Error {
    fn from(_: Full) -> Error {
        Error::Full
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::WrongType => "Operation against a key holding the wrong kind of value",
            Error::Cold(_) => "the value must be fetched first",
            Error::NotASketch => "Key is not a valid HyperLogLog string value.",
            Error::DamagedSketch => "Corrupted HLL object detected",
            Error::Corrupt(why) => why,
            Error::NotAdmitted(Admission::Failed) => "the log has failed, so data cannot be changed",
            Error::NotAdmitted(_) => "the log has no room for this",
            Error::TooLarge => "a command or transaction cannot write so much at once",
            Error::Full => "command not allowed when used memory > 'maxmemory'.",
            Error::NoDatabase(_) => "there is no such database",
            Error::NotNamed => "the key was not named for the transaction",
        })
    }
}

impl std::error::Error for Error {}

impl From<ImportError> for Error {
    fn from(error: ImportError) -> Error {
        match error {
            ImportError::Full => Error::Full,
            // It has passed its checksum.
            ImportError::Malformed(what) => Error::Corrupt(format!("a frozen collection: {what}")),
        }
    }
}
