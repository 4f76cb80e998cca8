//! Commands, and who has their bytes when.

use crate::error::Error;
use smallvec::SmallVec;
use std::mem;

/// Arguments that are lent are copied all the same up to this length, since that costs less.
pub const COPIED_MAX: usize = 4096;
/// Arguments of one command.
const ARGS_MAX: usize = 1 << 20;

/// Bytes that the library has until it drops them.
pub type Lent = Box<dyn AsRef<[u8]> + Send>;

/// Arguments; as many as most commands have take no memory of their own.
pub(crate) type Args<'a> = SmallVec<[Arg<'a>; 4]>;

pub(crate) enum Arg<'a> {
    Copied(&'a [u8]),
    Lent(Lent),
}

impl Arg<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Arg::Copied(bytes) => bytes,
            Arg::Lent(bytes) => (**bytes).as_ref(),
        }
    }
}

/// Where the bytes of a reply go if it is a string.
pub enum Target {
    /// Here; [`crate::Filled`] hands it back.
    Vec(Vec<u8>),
    /// Here. The library has it until the request is done, then drops it.
    Lent(Box<dyn AsMut<[u8]> + Send>),
}

impl Target {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Target::Vec(bytes) => bytes,
            Target::Lent(bytes) => (**bytes).as_mut(),
        }
    }
}

/// A command: its name and its arguments, which may be any bytes.
///
/// ```
/// use holdfast_client::Command;
/// let command = Command::new("HSET").arg("key").arg("field").arg(b"\0\xff");
/// let script = Command::new("EVAL").arg("return 1").arg("1").arg("key").key(3);
/// ```
pub struct Command<'a> {
    pub(crate) args: Args<'a>,
    pub(crate) key: Option<usize>,
    pub(crate) read_only: bool,
    pub(crate) listed: bool,
    pub(crate) untimed: bool,
    pub(crate) target: Option<Target>,
}

impl<'a> Command<'a> {
    /// A command by its name.
    pub fn new(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Command<'a> {
        let mut args = Args::new();
        args.push(Arg::Copied(name.as_ref()));
        Command { args, key: Some(1), read_only: false, listed: false, untimed: false, target: None }
    }

    /// An argument that is copied: it is the caller's again when [`crate::Client::submit`] returns.
    pub fn arg(mut self, arg: &'a (impl AsRef<[u8]> + ?Sized)) -> Command<'a> {
        self.args.push(Arg::Copied(arg.as_ref()));
        self
    }

    /// An argument that the library has until the request's [`crate::State`] says that it is free. It is not copied,
    /// unless it is short.
    pub fn lent(mut self, arg: Lent) -> Command<'a> {
        self.args.push(Arg::Lent(arg));
        self
    }

    /// Which argument is the first key, the name being argument 0; it is 1 if this is not called. `None`: the command
    /// has none, and goes to the first server.
    pub fn key(mut self, at: impl Into<Option<usize>>) -> Command<'a> {
        self.key = at.into();
        self
    }

    /// The command changes nothing, so that it may be executed again if it is not known whether it was.
    pub fn read_only(mut self) -> Command<'a> {
        self.read_only = true;
        self
    }

    /// The request is to appear in [`crate::Client::next_completion`] when it is done.
    pub fn listed(mut self) -> Command<'a> {
        self.listed = true;
        self
    }

    /// The request may take as long as it likes, e.g. BLPOP. It has a connection of its own meanwhile, so that nothing waits
    /// behind it, and is in no order with others; WAIT and WAITAOF, which are about those before them, are.
    pub fn untimed(mut self) -> Command<'a> {
        self.untimed = true;
        self
    }

    /// If the reply is a string, its bytes are to go here.
    pub fn into(mut self, target: Target) -> Command<'a> {
        self.target = Some(target);
        self
    }

    /// Whether it is about the requests before it.
    pub(crate) fn waits_for_others(&self) -> bool {
        let name = self.arg_bytes(0).unwrap_or_default();
        name.eq_ignore_ascii_case(b"WAIT") || name.eq_ignore_ascii_case(b"WAITAOF")
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let Arg::Copied(name) = self.args[0] else { return Err(Error::Invalid("the command has no name")) };
        if name.is_empty() {
            return Err(Error::Invalid("the command has no name"));
        }
        if self.args.len() > ARGS_MAX {
            return Err(Error::Invalid("the command has too many arguments"));
        }
        let second = match self.args.get(1) {
            Some(Arg::Copied(arg)) => arg,
            _ => &b""[..],
        };
        if changes_connection(name, second) {
            return Err(Error::Invalid(
                "the command changes the connection, which is shared by all requests and may be made again",
            ));
        }
        Ok(())
    }

    /// The bytes of an argument.
    pub(crate) fn arg_bytes(&self, at: usize) -> Option<&[u8]> {
        self.args.get(at).map(Arg::bytes)
    }
}

/// Commands after which replies are no longer one for each request, or mean something else.
fn changes_connection(name: &[u8], second: &[u8]) -> bool {
    // The shortest and the longest of them: QUIT, PUNSUBSCRIBE.
    let mut upper = [0; 12];
    let Some(upper) = upper.get_mut(..name.len()).filter(|upper| upper.len() >= 4) else { return false };
    upper.copy_from_slice(name);
    upper.make_ascii_uppercase();
    match &*upper {
        b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE" | b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE" => {
            true
        }
        b"MONITOR" | b"SYNC" | b"PSYNC" | b"HELLO" | b"AUTH" | b"QUIT" | b"RESET" | b"SELECT" => true,
        b"MULTI" | b"EXEC" | b"DISCARD" | b"WATCH" | b"UNWATCH" => true,
        b"ASKING" | b"READONLY" | b"READWRITE" => true,
        b"CLIENT" => second.eq_ignore_ascii_case(b"REPLY") || second.eq_ignore_ascii_case(b"TRACKING"),
        _ => false,
    }
}

/// A command as it goes over the wire: bytes, and what is lent between them.
#[derive(Default)]
pub(crate) struct Wire {
    pub bytes: Vec<u8>,
    /// Before which of the bytes it goes.
    pub lent: Vec<(usize, Lent)>,
}

/// Appends a command to `out`; what is lent, and not short, is taken out and handed to `lend` with the place in `out` where it goes.
/// Returns the command's length on the wire.
pub(crate) fn encode(args: &mut [Arg<'_>], out: &mut Vec<u8>, mut lend: impl FnMut(usize, Lent)) -> usize {
    let start = out.len();
    let mut lent_bytes = 0;
    let mut digits = itoa::Buffer::new();
    let mut head = |out: &mut Vec<u8>, kind: u8, len: usize| match len {
        0..10 => out.extend_from_slice(&[kind, b'0' + len as u8, b'\r', b'\n']),
        _ => {
            out.push(kind);
            out.extend_from_slice(digits.format(len).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    };
    head(out, b'*', args.len());
    for arg in args {
        let bytes = arg.bytes();
        head(out, b'$', bytes.len());
        if bytes.len() <= COPIED_MAX || matches!(arg, Arg::Copied(_)) {
            out.extend_from_slice(bytes);
        } else if let Arg::Lent(lent) = mem::replace(arg, Arg::Copied(b"")) {
            lent_bytes += (*lent).as_ref().len();
            lend(out.len(), lent);
        }
        out.extend_from_slice(b"\r\n");
    }
    out.len() - start + lent_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_change_the_connection_are_refused() {
        for name in ["subscribe", "PUnsubscribe", "MULTI", "exec", "Quit", "select"] {
            assert!(matches!(Command::new(name).check(), Err(Error::Invalid(_))), "{name}");
        }
        assert!(Command::new("client").arg("Reply").check().is_err());
        assert!(Command::new("CLIENT").arg("LIST").check().is_ok());
        assert!(Command::new("").check().is_err());
        for name in ["GET", "PUBLISH", "SUBSCRIBED", "ALONGCOMMANDNAME"] {
            assert!(Command::new(name).check().is_ok(), "{name}");
        }
    }

    #[test]
    fn what_is_lent_is_left_out_unless_it_is_short() {
        let (mut out, mut lent) = (Vec::new(), Vec::new());
        let command = Command::new("MSET").arg("a").lent(Box::new(vec![b'x'; COPIED_MAX + 1])).arg("b");
        let mut command = command.lent(Box::new(vec![b'y'; 2]));
        let len = encode(&mut command.args, &mut out, |at, bytes| lent.push((at, bytes)));
        assert_eq!(out, b"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$4097\r\n\r\n$1\r\nb\r\n$2\r\nyy\r\n");
        assert_eq!(len, out.len() + COPIED_MAX + 1);
        assert_eq!(lent.len(), 1);
        assert!(out[..lent[0].0].ends_with(b"$4097\r\n"));
    }
}
