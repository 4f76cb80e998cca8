//! What a handler returns.

use std::borrow::Cow;
use tokio::time::Instant;

/// What is to be done after a handler.
#[derive(Debug)]
pub enum Outcome {
    /// Its reply is written; go on.
    Done,
    /// Its reply is written; send it and close the connection.
    Close,
    /// Nothing is written. Wait until the call is woken, or until the time given, then run the handler again
    /// ([`crate::call::Call::wake`] tells why).
    Wait(Option<Instant>),
}

/// An outcome, or the error to reply with.
pub type Answer = Result<Outcome, ErrorReply>;

/// Why a waiting handler runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It has not waited: this is the first time.
    First,
    /// Something that it waited for has happened, perhaps.
    Signal,
    /// The time is over, or CLIENT UNBLOCK said so.
    Timeout,
    /// CLIENT UNBLOCK … ERROR.
    Unblocked,
}

/// The text of an error reply: a code in capital letters, a space, and words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReply(Cow<'static, [u8]>);

impl ErrorReply {
    /// A fixed text.
    pub const fn new(text: &'static str) -> Self {
        ErrorReply(Cow::Borrowed(text.as_bytes()))
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<String> for ErrorReply {
    fn from(text: String) -> Self {
        ErrorReply(Cow::Owned(text.into_bytes()))
    }
}

impl From<Vec<u8>> for ErrorReply {
    fn from(text: Vec<u8>) -> Self {
        ErrorReply(Cow::Owned(text))
    }
}

/// The arguments are not what the command expects.
pub const SYNTAX: ErrorReply = ErrorReply::new("ERR syntax error");
/// An argument should be an integer.
pub const NOT_INTEGER: ErrorReply = ErrorReply::new("ERR value is not an integer or out of range");
