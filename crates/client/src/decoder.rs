//! Replies as they arrive, in pieces of any size.
//!
//! Nothing is looked at twice: what is complete of an aggregate is kept on a stack. The bytes of a string at the top
//! level go to the caller's buffer, if there is one, as they come, and the connection may read them from its socket
//! right to where they belong ([`Decoder::gap`]).

use holdfast_resp::{BadReply, Reply, parse_int};
use std::mem;

/// Aggregates in aggregates deeper than this are refused.
const DEPTH_MAX: usize = 64;
/// A line longer than this is none.
const LINE_MAX: usize = 64 << 10;
/// What an element counts for towards the limit, beside its bytes.
const ELEMENT_BYTES: usize = 64;

/// What was found.
#[derive(Debug, PartialEq)]
pub enum Decoded {
    /// A reply.
    Reply(Reply),
    /// A message that answers no request.
    Push(Reply),
    /// A string of so many bytes, which are in the caller's buffer.
    Filled(usize),
    /// A string of so many bytes, more than the caller's buffer holds. What the buffer holds is not to be used.
    TooSmall(usize),
    /// A reply beyond the limit, of which nothing was kept.
    TooLarge,
}

/// Where bytes of a string that has begun, and has not all arrived, are to go.
pub enum Gap<'a> {
    /// The caller's buffer, from this byte to that.
    Target(usize, usize),
    /// Behind these, so many.
    Collect(&'a mut Vec<u8>, usize),
}

/// An aggregate whose elements have not all arrived.
struct Frame {
    kind: u8,
    count: usize,
    arrived: usize,
    /// Those that have arrived, unless the reply is too large.
    items: Vec<Reply>,
}

enum Body {
    Collect(Vec<u8>),
    Target,
    Discard,
}

/// A string whose bytes have not all arrived.
struct Bulk {
    kind: u8,
    len: usize,
    /// Bytes that have arrived, the line break included.
    got: usize,
    body: Body,
}

/// Reads the replies of one connection.
pub struct Decoder {
    stack: Vec<Frame>,
    bulk: Option<Bulk>,
    /// Bytes that the reply may still take.
    left: usize,
    bytes_max: usize,
    /// It takes more: what arrives of it is looked through for its end.
    is_too_large: bool,
}

impl Decoder {
    /// One that passes over replies of more bytes, elements counted with 64 each.
    pub fn new(bytes_max: usize) -> Decoder {
        Decoder { stack: Vec::new(), bulk: None, left: bytes_max, bytes_max, is_too_large: false }
    }

    /// Reads on. Returns how many bytes of `input` are done with, and a reply if one is complete; without one, all
    /// that is left of `input` is an incomplete line, which the next call must see again. `target` is the buffer for
    /// the reply if it is a string, the same in all calls for one reply, or gone from one call on.
    pub fn decode(
        &mut self,
        input: &[u8],
        mut target: Option<&mut [u8]>,
    ) -> Result<(usize, Option<Decoded>), BadReply> {
        let mut at = 0;
        loop {
            if self.bulk.is_some() {
                let (used, complete) = self.bytes(&input[at..], target.as_deref_mut())?;
                at += used;
                match complete {
                    None => return Ok((at, None)),
                    Some(decoded) => {
                        if let Some(decoded) = self.place(decoded)? {
                            return Ok((at, Some(decoded)));
                        }
                    }
                }
                continue;
            }
            let Some(Line { kind, rest, len }) = line(&input[at..])? else { return Ok((at, None)) };
            at += len;
            if self.stack.len() > DEPTH_MAX {
                return Err(BadReply);
            }
            self.charge(ELEMENT_BYTES);
            if kind == b'$' && (target.is_none() || !self.stack.is_empty()) {
                // Most strings are short, and there as a whole.
                let string = length(rest)?.and_then(|len| input[at..].get(..len + 2));
                if let Some([data @ .., b'\r', b'\n']) = string {
                    self.charge(data.len());
                    at += data.len() + 2;
                    let kept = if self.is_too_large { Vec::new() } else { data.to_vec() };
                    if let Some(decoded) = self.place(Decoded::Reply(Reply::Bulk(kept)))? {
                        return Ok((at, Some(decoded)));
                    }
                    continue;
                }
            }
            if let Some(reply) = self.header(kind, rest, target.as_deref())?
                && let Some(decoded) = self.place(Decoded::Reply(reply))?
            {
                return Ok((at, Some(decoded)));
            }
        }
    }

    /// Where the next bytes go, if those are a string's of which many are still to come.
    pub fn gap(&mut self) -> Option<Gap<'_>> {
        let bulk = self.bulk.as_mut()?;
        let left = bulk.len.checked_sub(bulk.got).filter(|&left| left > 0)?;
        match &mut bulk.body {
            Body::Collect(data) => Some(Gap::Collect(data, left)),
            Body::Target => Some(Gap::Target(bulk.got, bulk.len)),
            Body::Discard => None,
        }
    }

    /// Tells that so many bytes were put where [`Decoder::gap`] said.
    pub fn filled(&mut self, bytes: usize) {
        let bulk = self.bulk.as_mut().expect("a string with a gap");
        bulk.got += bytes;
        debug_assert!(bulk.got <= bulk.len);
    }

    fn charge(&mut self, bytes: usize) {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None if self.is_too_large => {}
            None => {
                // Nothing of it is kept, neither what has arrived nor what will.
                self.is_too_large = true;
                self.stack.iter_mut().for_each(|frame| frame.items = Vec::new());
            }
        }
    }

    /// What a line says; `None` if it is the head of what follows.
    fn header(&mut self, kind: u8, line: &[u8], target: Option<&[u8]>) -> Result<Option<Reply>, BadReply> {
        Ok(Some(match kind {
            b'+' | b'-' | b'(' => {
                self.charge(line.len());
                match kind {
                    b'+' => Reply::Simple(line.to_vec()),
                    b'-' => Reply::Error(line.to_vec()),
                    _ => Reply::BigNumber(line.to_vec()),
                }
            }
            b':' => Reply::Int(parse_int(line).ok_or(BadReply)?),
            b'_' => Reply::Null,
            b'#' => match line {
                b"t" => Reply::Bool(true),
                b"f" => Reply::Bool(false),
                _ => return Err(BadReply),
            },
            b',' => {
                let text = std::str::from_utf8(line).map_err(|_| BadReply)?;
                Reply::Double(text.parse().map_err(|_| BadReply)?)
            }
            b'$' | b'=' | b'!' => {
                let Some(len) = length(line)? else { return Ok(Some(Reply::Null)) };
                let body = match target {
                    _ if self.is_too_large => Body::Discard,
                    Some(target) if kind == b'$' && self.stack.is_empty() => {
                        if len <= target.len() {
                            Body::Target
                        } else {
                            Body::Discard
                        }
                    }
                    _ => {
                        self.charge(len);
                        if self.is_too_large { Body::Discard } else { Body::Collect(Vec::new()) }
                    }
                };
                self.bulk = Some(Bulk { kind, len, got: 0, body });
                return Ok(None);
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let pairs = matches!(kind, b'%' | b'|');
                let len = match length(line)? {
                    Some(len) => len,
                    None if pairs => return Err(BadReply),
                    None => return Ok(Some(Reply::Null)),
                };
                let count = if pairs { len.checked_mul(2).ok_or(BadReply)? } else { len };
                self.stack.push(Frame { kind, count, arrived: 0, items: Vec::new() });
                return Ok(if count == 0 { self.close()? } else { None });
            }
            _ => return Err(BadReply),
        }))
    }

    /// Takes the next bytes of the string that has begun; how many, and the string if that was all.
    fn bytes(
        &mut self,
        input: &[u8],
        target: Option<&mut [u8]>,
    ) -> Result<(usize, Option<Decoded>), BadReply> {
        let bulk = self.bulk.as_mut().expect("a string has begun");
        let mut used = 0;
        if bulk.got < bulk.len {
            used = input.len().min(bulk.len - bulk.got);
            match &mut bulk.body {
                Body::Collect(data) => {
                    // In one piece. Of memory that is not written to, the system gives none.
                    data.try_reserve_exact(bulk.len - bulk.got).map_err(|_| BadReply)?;
                    data.extend_from_slice(&input[..used]);
                }
                Body::Target => match target {
                    Some(target) => target[bulk.got..bulk.got + used].copy_from_slice(&input[..used]),
                    None => bulk.body = Body::Discard,
                },
                Body::Discard => {}
            }
            bulk.got += used;
        }
        while bulk.got >= bulk.len && bulk.got < bulk.len + 2 {
            let Some(&byte) = input.get(used) else { break };
            if byte != b"\r\n"[bulk.got - bulk.len] {
                return Err(BadReply);
            }
            bulk.got += 1;
            used += 1;
        }
        if bulk.got < bulk.len + 2 {
            return Ok((used, None));
        }
        let Bulk { kind, len, body, .. } = self.bulk.take().expect("a string has begun");
        let data = match body {
            Body::Collect(data) => data,
            Body::Target => return Ok((used, Some(Decoded::Filled(len)))),
            Body::Discard if self.is_too_large => return Ok((used, Some(Decoded::Reply(Reply::Null)))),
            Body::Discard => return Ok((used, Some(Decoded::TooSmall(len)))),
        };
        let reply = match (kind, &data[..]) {
            (b'$', _) => Reply::Bulk(data),
            (b'!', _) => Reply::Error(data),
            (_, [a, b, c, b':', text @ ..]) => Reply::Verbatim([*a, *b, *c], text.to_vec()),
            _ => return Err(BadReply),
        };
        Ok((used, Some(Decoded::Reply(reply))))
    }

    /// Puts what is complete where it belongs; hands it back if that is the top level.
    fn place(&mut self, decoded: Decoded) -> Result<Option<Decoded>, BadReply> {
        let mut reply = match decoded {
            Decoded::Reply(reply) => reply,
            // The caller's buffer is for the top level.
            other => {
                self.left = self.bytes_max;
                return Ok(Some(other));
            }
        };
        loop {
            let Some(top) = self.stack.last_mut() else {
                self.left = self.bytes_max;
                let is_too_large = mem::take(&mut self.is_too_large);
                return Ok(Some(match reply {
                    Reply::Push(_) => Decoded::Push(reply),
                    _ if is_too_large => Decoded::TooLarge,
                    reply => Decoded::Reply(reply),
                }));
            };
            top.arrived += 1;
            if !self.is_too_large {
                top.items.push(reply);
            }
            if top.arrived < top.count {
                return Ok(None);
            }
            match self.close()? {
                Some(complete) => reply = complete,
                None => return Ok(None),
            }
        }
    }

    /// The innermost aggregate, which is complete; `None` if it is an attribute, which may be ignored.
    fn close(&mut self) -> Result<Option<Reply>, BadReply> {
        let Frame { kind, items, .. } = self.stack.pop().expect("an aggregate");
        Ok(Some(match kind {
            b'*' => Reply::Array(items),
            b'~' => Reply::Set(items),
            b'>' => Reply::Push(items),
            b'%' => {
                let mut items = items.into_iter();
                let mut pairs = Vec::with_capacity(items.len() / 2);
                while let (Some(key), Some(value)) = (items.next(), items.next()) {
                    pairs.push((key, value));
                }
                Reply::Map(pairs)
            }
            _ => return Ok(None),
        }))
    }
}

/// The first line of what has arrived.
struct Line<'a> {
    kind: u8,
    rest: &'a [u8],
    /// With the type byte and the line break.
    len: usize,
}

/// The first line; `None` if it is not complete.
fn line(input: &[u8]) -> Result<Option<Line<'_>>, BadReply> {
    let Some(end) = input.iter().take(LINE_MAX).position(|&b| b == b'\n') else {
        return if input.len() < LINE_MAX { Ok(None) } else { Err(BadReply) };
    };
    match &input[..=end] {
        [kind, rest @ .., b'\r', b'\n'] => Ok(Some(Line { kind: *kind, rest, len: end + 1 })),
        _ => Err(BadReply),
    }
}

/// An announced length; `None` for RESP2's null, -1.
fn length(line: &[u8]) -> Result<Option<usize>, BadReply> {
    match parse_int(line) {
        Some(-1) => Ok(None),
        Some(len) => u32::try_from(len).map(|len| Some(len as usize)).map_err(|_| BadReply),
        None => Err(BadReply),
    }
}
