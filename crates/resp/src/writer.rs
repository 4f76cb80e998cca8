//! Replies. Types that only RESP3 knows become what Redis sends in their place over RESP2.

use crate::double::write_double;

/// The version of the protocol that a client has chosen with HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    /// What a connection starts with.
    #[default]
    Resp2,
    /// Maps, sets, doubles, booleans, pushes.
    Resp3,
}

/// The place of an aggregate whose length is not known yet; see [`Writer::defer`].
#[derive(Clone, Copy, Debug)]
pub struct Deferred(usize);

/// Appends replies to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    proto: Proto,
    errors: u32,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>, proto: Proto) -> Self {
        Writer { out, proto, errors: 0 }
    }

    /// A writer to the same place, for a part of the reply.
    pub fn reborrow(&mut self) -> Writer<'_> {
        Writer { out: self.out, proto: self.proto, errors: 0 }
    }

    /// The protocol in use.
    pub fn proto(&self) -> Proto {
        self.proto
    }

    /// Changes the protocol for what follows.
    pub fn set_proto(&mut self, proto: Proto) {
        self.proto = proto;
    }

    /// Errors written so far.
    pub fn errors(&self) -> u32 {
        self.errors
    }

    /// Everything in the buffer, also what was there before this writer.
    pub fn written(&self) -> &[u8] {
        self.out
    }

    /// Lets `f` append what is encoded already.
    pub fn raw(&mut self, f: impl FnOnce(&mut Vec<u8>)) {
        f(self.out);
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string; `text` must have no line breaks.
    pub fn simple(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        debug_assert!(!text.iter().any(|b| matches!(b, b'\r' | b'\n')));
        self.out.push(b'+');
        self.out.extend_from_slice(text);
        self.end();
    }

    /// An error: its code, a space and its text. Line breaks in it become spaces.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.errors += 1;
        self.out.push(b'-');
        self.out.extend(text.as_ref().iter().map(|&b| if matches!(b, b'\r' | b'\n') { b' ' } else { b }));
        self.end();
    }

    /// An integer.
    pub fn int(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A bulk string.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.out.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// A key of a map, whose value is to be written next.
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.bulk(name);
        self
    }

    /// A bulk string, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// A bulk string of so many bytes, in slices.
    pub fn bulk_of<'b>(&mut self, len: usize, slices: impl Iterator<Item = &'b [u8]>) {
        self.out.reserve(len + 32);
        self.header(b'$', len as i64);
        let start = self.out.len();
        slices.for_each(|slice| self.out.extend_from_slice(slice));
        assert_eq!(self.out.len() - start, len, "a bulk string of another length than its header says");
        self.end();
    }

    /// An integer as a bulk string.
    pub fn bulk_int(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value));
    }

    /// Two numbers joined by a hyphen as a bulk string: the ID of a stream's entry.
    pub fn bulk_id(&mut self, ms: u64, seq: u64) {
        let (mut ms_digits, mut seq_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (ms, seq) = (ms_digits.format(ms), seq_digits.format(seq));
        self.header(b'$', (ms.len() + 1 + seq.len()) as i64);
        self.out.extend_from_slice(ms.as_bytes());
        self.out.push(b'-');
        self.out.extend_from_slice(seq.as_bytes());
        self.end();
    }

    /// No value; over RESP2 a null bulk string.
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.proto {
            Proto::Resp2 => b"$-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// No value where an array was expected; differs from [`Writer::null`] over RESP2 only.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.proto {
            Proto::Resp2 => b"*-1\r\n",
            Proto::Resp3 => b"_\r\n",
        });
    }

    /// The header of an array of `len` replies, which follow.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// The header of a map of `len` pairs; over RESP2 an array of twice as many.
    pub fn map(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.array(len * 2),
            Proto::Resp3 => self.header(b'%', len as i64),
        }
    }

    /// The header of a set; over RESP2 an array.
    pub fn set(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.array(len),
            Proto::Resp3 => self.header(b'~', len as i64),
        }
    }

    /// The header of an out-of-band message; over RESP2 an array.
    pub fn push(&mut self, len: usize) {
        match self.proto {
            Proto::Resp2 => self.array(len),
            Proto::Resp3 => self.header(b'>', len as i64),
        }
    }

    /// An attribute of `len` pairs, in front of the reply that it belongs to. RESP3 only.
    pub fn attribute(&mut self, len: usize) {
        debug_assert_eq!(self.proto, Proto::Resp3);
        self.header(b'|', len as i64);
    }

    /// A floating-point number; over RESP2 a bulk string.
    pub fn double(&mut self, value: f64) {
        match self.proto {
            Proto::Resp2 => {
                let mut text = Vec::with_capacity(32);
                write_double(&mut text, value);
                self.bulk(text);
            }
            Proto::Resp3 => {
                self.out.push(b',');
                write_double(self.out, value);
                self.end();
            }
        }
    }

    /// A floating-point number in digits of the caller's; over RESP2 a bulk string.
    pub fn double_text(&mut self, digits: &str) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits),
            Proto::Resp3 => {
                self.out.push(b',');
                self.out.extend_from_slice(digits.as_bytes());
                self.end();
            }
        }
    }

    /// A truth value; over RESP2 the integer 1 or 0.
    pub fn bool(&mut self, value: bool) {
        self.out.extend_from_slice(match (self.proto, value) {
            (Proto::Resp2, true) => b":1\r\n",
            (Proto::Resp2, false) => b":0\r\n",
            (Proto::Resp3, true) => b"#t\r\n",
            (Proto::Resp3, false) => b"#f\r\n",
        });
    }

    /// A text with a format of three letters (`txt`, `mkd`); over RESP2 a bulk string.
    pub fn verbatim(&mut self, format: &str, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        debug_assert_eq!(format.len(), 3);
        match self.proto {
            Proto::Resp2 => self.bulk(text),
            Proto::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.extend_from_slice(format.as_bytes());
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.end();
            }
        }
    }

    /// An integer of any size in decimal; over RESP2 a bulk string.
    pub fn big_number(&mut self, digits: impl AsRef<[u8]>) {
        match self.proto {
            Proto::Resp2 => self.bulk(digits),
            Proto::Resp3 => {
                self.out.push(b'(');
                self.out.extend_from_slice(digits.as_ref());
                self.end();
            }
        }
    }

    /// Marks the place of an aggregate whose elements are to be counted while they are written. Setting its length
    /// moves them once, so prefer a known length.
    pub fn defer(&self) -> Deferred {
        Deferred(self.out.len())
    }

    /// Puts the header of an array of `len` replies at `place`.
    pub fn set_array(&mut self, place: Deferred, len: usize) {
        self.insert(place, |writer| writer.array(len));
    }

    /// Puts the header of a map of `len` pairs at `place`.
    pub fn set_map(&mut self, place: Deferred, len: usize) {
        self.insert(place, |writer| writer.map(len));
    }

    /// Puts the header of a set of `len` replies at `place`.
    pub fn set_set(&mut self, place: Deferred, len: usize) {
        self.insert(place, |writer| writer.set(len));
    }

    /// Puts a bulk string at `place`.
    pub fn set_bulk(&mut self, place: Deferred, bytes: impl AsRef<[u8]>) {
        self.insert(place, |writer| writer.bulk(bytes));
    }

    /// Puts the ID of a stream's entry at `place`; see [`Writer::bulk_id`].
    pub fn set_id(&mut self, place: Deferred, ms: u64, seq: u64) {
        self.insert(place, |writer| writer.bulk_id(ms, seq));
    }

    /// Takes back everything written since `place`.
    pub fn rewind(&mut self, place: Deferred) {
        self.out.truncate(place.0);
    }

    fn insert(&mut self, place: Deferred, header: impl FnOnce(&mut Writer)) {
        let body_end = self.out.len();
        header(self);
        let header_len = self.out.len() - body_end;
        self.out[place.0..].rotate_right(header_len);
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        let digit = |unit: i64| b'0' + (value / unit % 10) as u8;
        match value {
            0..=9 => self.out.extend_from_slice(&[kind, digit(1), b'\r', b'\n']),
            10..=99 => self.out.extend_from_slice(&[kind, digit(10), digit(1), b'\r', b'\n']),
            100..=999 => self.out.extend_from_slice(&[kind, digit(100), digit(10), digit(1), b'\r', b'\n']),
            _ => self.longer_header(kind, value),
        }
    }

    fn longer_header(&mut self, kind: u8, value: i64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(value).as_bytes();
        self.out.reserve(digits.len() + 3);
        self.out.push(kind);
        self.out.extend_from_slice(digits);
        self.end();
    }

    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(proto: Proto, f: impl Fn(&mut Writer)) -> String {
        let mut out = Vec::new();
        f(&mut Writer::new(&mut out, proto));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_type_in_both_protocols() {
        type Case = (fn(&mut Writer), &'static str, &'static str);
        let cases: [Case; 18] = [
            (|w| w.ok(), "+OK\r\n", "+OK\r\n"),
            (|w| w.simple("PONG"), "+PONG\r\n", "+PONG\r\n"),
            (|w| w.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|w| w.int(-5), ":-5\r\n", ":-5\r\n"),
            (|w| w.bulk("hi"), "$2\r\nhi\r\n", "$2\r\nhi\r\n"),
            (|w| w.bulk_int(100), "$3\r\n100\r\n", "$3\r\n100\r\n"),
            (|w| w.bulk_id(12, 0), "$4\r\n12-0\r\n", "$4\r\n12-0\r\n"),
            (|w| w.null(), "$-1\r\n", "_\r\n"),
            (|w| w.null_array(), "*-1\r\n", "_\r\n"),
            (|w| w.array(2), "*2\r\n", "*2\r\n"),
            (|w| w.map(2), "*4\r\n", "%2\r\n"),
            (|w| w.set(2), "*2\r\n", "~2\r\n"),
            (|w| w.push(2), "*2\r\n", ">2\r\n"),
            (|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|w| w.double_text("1.50"), "$4\r\n1.50\r\n", ",1.50\r\n"),
            (|w| w.bool(true), ":1\r\n", "#t\r\n"),
            (|w| w.verbatim("txt", "hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|w| w.big_number("123"), "$3\r\n123\r\n", "(123\r\n"),
        ];
        for (f, resp2, resp3) in cases {
            assert_eq!(written(Proto::Resp2, f), resp2);
            assert_eq!(written(Proto::Resp3, f), resp3);
        }
    }

    #[test]
    fn headers_of_all_lengths() {
        for value in [0, 9, 10, 42, 99, 100, 107, 999, 1000, 1_234_567_890, i64::MAX, -1, -9, -10, i64::MIN] {
            assert_eq!(written(Proto::Resp2, |w| w.int(value)), format!(":{value}\r\n"));
        }
    }

    #[test]
    fn deferred_headers_go_before_their_elements() {
        let nested = |w: &mut Writer| {
            w.ok();
            let outer = w.defer();
            let inner = w.defer();
            w.int(1);
            w.int(2);
            w.set_map(inner, 1);
            w.set_array(outer, 1);
        };
        assert_eq!(written(Proto::Resp3, nested), "+OK\r\n*1\r\n%1\r\n:1\r\n:2\r\n");
    }
}
