//! The arguments of a command, as slices of the buffer that they arrived in.

use std::{fmt, ops::Index};

/// Where an argument lies, in bytes from the start of its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A command: its name at index 0, then its arguments.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The arguments that lie at `spans` in `buf`.
    #[inline]
    pub fn new(buf: &'a [u8], spans: &'a [Span]) -> Self {
        Args { buf, spans }
    }

    /// How many there are, the name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is not even a name.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`. Panics if there is none: a command's arity has been checked before.
    #[inline]
    pub fn at(&self, index: usize) -> &'a [u8] {
        let Span { start, end } = self.spans[index];
        &self.buf[start..end]
    }

    /// The argument at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.buf[span.start..span.end])
    }

    /// All arguments in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        let buf = self.buf;
        self.spans.iter().map(move |span| &buf[span.start..span.end])
    }

    /// The arguments from `index` on; none if there are not so many.
    pub fn from(&self, index: usize) -> Args<'a> {
        Args { buf: self.buf, spans: self.spans.get(index..).unwrap_or_default() }
    }

    /// The first so many arguments; all, if there are not so many.
    pub fn first(&self, count: usize) -> Args<'a> {
        Args { buf: self.buf, spans: self.spans.get(..count).unwrap_or(self.spans) }
    }

    /// Bytes in all arguments together.
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.end - span.start).sum()
    }

    /// Bytes from the first argument to the end of the last one, whatever lies between them: not less than
    /// [`Args::bytes`], and known without a look at each.
    #[inline]
    pub fn extent(&self) -> usize {
        match self.spans {
            [first, .., last] => last.end - first.start,
            [only] => only.end - only.start,
            [] => 0,
        }
    }

    /// A copy that outlives the buffer.
    pub fn to_owned(&self) -> OwnedArgs {
        let mut owned =
            OwnedArgs { buf: Vec::with_capacity(self.bytes()), spans: Vec::with_capacity(self.len()) };
        for arg in self.iter() {
            owned.push(arg);
        }
        owned
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|arg| arg.escape_ascii().to_string())).finish()
    }
}

/// A command that owns its bytes, e.g. one queued by MULTI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedArgs {
    buf: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// Appends one argument.
    pub fn push(&mut self, arg: &[u8]) {
        let start = self.buf.len();
        self.buf.extend_from_slice(arg);
        self.spans.push(Span { start, end: self.buf.len() });
    }

    /// The arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(&self.buf, &self.spans)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.buf.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

impl<A: AsRef<[u8]>> FromIterator<A> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = A>>(args: I) -> Self {
        let mut owned = OwnedArgs::default();
        for arg in args {
            owned.push(arg.as_ref());
        }
        owned
    }
}
