//! What can go wrong, and whether the server may have done what it was asked to.

use std::fmt;

/// Whether a request that failed was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It was not, and will not be.
    No,
    /// It was sent in full and no reply came: it may have been, or may still be.
    Unknown,
    /// The server has replied.
    Yes,
}

/// Why a call or a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The server's error reply.
    Server(Vec<u8>),
    /// The reply is a string of `needed` bytes, and the caller's buffer holds fewer.
    TooSmall {
        /// The length of the string in bytes.
        needed: usize,
    },
    /// The reply takes more than [`crate::Config::reply_bytes_max`], and nothing of it was kept.
    TooLarge {
        /// That limit in bytes.
        max: usize,
    },
    /// The connection was lost, and the request may not be sent again.
    Lost {
        /// Whether it was executed.
        executed: Executed,
        /// What happened to the connection.
        cause: String,
    },
    /// The request took longer than [`crate::Config::request_timeout`].
    TimedOut {
        /// Whether it was executed.
        executed: Executed,
        /// What the connection waited for, or why it could not be made.
        cause: String,
    },
    /// The caller has cancelled the request.
    Cancelled {
        /// Whether it was executed.
        executed: Executed,
    },
    /// The server let nobody in: wrong password, wrong protocol, too many clients.
    Refused(String),
    /// Another server has the key, and the request cannot be sent there: its buffer was given back, or it was sent
    /// around too often. It was not executed.
    Redirected(String),
    /// As many requests, or bytes, are held as the configuration allows. Nothing was sent.
    Full,
    /// No such request: it was released, or never was.
    NoSuchRequest,
    /// The request is not done.
    InProgress,
    /// An argument that cannot be right. Nothing was sent.
    Invalid(&'static str),
    /// The client could not be set up.
    Setup(String),
}

impl Error {
    /// Whether the server has done what it was asked to.
    pub fn executed(&self) -> Executed {
        match self {
            Error::Server(_) | Error::TooSmall { .. } | Error::TooLarge { .. } => Executed::Yes,
            Error::Lost { executed, .. }
            | Error::TimedOut { executed, .. }
            | Error::Cancelled { executed } => *executed,
            Error::InProgress | Error::NoSuchRequest => Executed::Unknown,
            Error::Refused(_) | Error::Redirected(_) | Error::Full | Error::Invalid(_) | Error::Setup(_) => {
                Executed::No
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let executed = |f: &mut fmt::Formatter<'_>, executed: &Executed| match executed {
            Executed::No => f.write_str("; it was not executed"),
            Executed::Unknown => f.write_str("; it is unknown whether it was executed"),
            Executed::Yes => Ok(()),
        };
        match self {
            Error::Server(text) => f.write_str(&String::from_utf8_lossy(text)),
            Error::TooSmall { needed } => {
                write!(f, "the reply of {needed} bytes does not fit into the buffer")
            }
            Error::TooLarge { max } => {
                write!(f, "the reply takes more than the {max} bytes that one may have (reply_bytes_max)")
            }
            Error::Lost { executed: was, cause } => {
                write!(f, "the connection was lost ({cause})")?;
                executed(f, was)
            }
            Error::TimedOut { executed: was, cause } => {
                write!(f, "the request timed out ({cause})")?;
                executed(f, was)
            }
            Error::Cancelled { executed: was } => {
                f.write_str("the request was cancelled")?;
                executed(f, was)
            }
            Error::Refused(text) => write!(f, "the server refused the connection: {text}"),
            Error::Redirected(text) => write!(f, "another server has the key: {text}"),
            Error::Full => f.write_str("too many requests or bytes are in flight"),
            Error::NoSuchRequest => f.write_str("there is no such request"),
            Error::InProgress => f.write_str("the request is not done"),
            Error::Invalid(what) => f.write_str(what),
            Error::Setup(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
