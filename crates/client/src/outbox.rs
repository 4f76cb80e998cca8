//! The requests of one connection that were not replied to, with their bytes.
//!
//! The bytes of a request stay here until it is replied to, so that a lost connection, or another server that has the
//! key, costs no copy of every request beforehand. `copied` holds what was copied; between its bytes go the lent ones.
//! Positions count the bytes that were ever in `copied`.

use crate::{
    command::{Arg, Lent, Wire, encode},
    request::{RequestId, Requests},
};
use std::{collections::VecDeque, io::IoSlice};

/// Slices that are written at once.
pub const SLICES: usize = 32;
/// Bytes of requests that were replied to, after which the others are moved down.
const TRIM_BYTES: usize = 256 << 10;

struct Pending {
    /// `None`: the client's own, whose reply is nobody's.
    id: Option<RequestId>,
    /// Rises along the queue.
    number: u64,
    /// Whether its caller wants it no more, and none of it was sent.
    is_gone: bool,
    start: u64,
    end: u64,
    /// How many of the lent pieces are its own.
    lent: usize,
    /// Bytes on the wire.
    bytes: usize,
}

/// Bytes that are not in `copied`.
struct Piece {
    /// Before the byte at this position.
    at: u64,
    len: usize,
    /// `None` once they were given back.
    bytes: Option<Lent>,
}

/// A request that comes back from the outbox when the connection is lost.
pub struct Returned {
    pub id: RequestId,
    /// Whether any of it was sent, and whether all was.
    pub begun: bool,
    pub sent: bool,
    /// `None` if what was lent was given back.
    pub wire: Option<Wire>,
}

#[derive(Default)]
pub struct Outbox {
    copied: Vec<u8>,
    /// The position of its first byte.
    base: u64,
    /// The position up to which all is sent.
    sent: u64,
    lent: VecDeque<Piece>,
    /// How many of `lent` are sent, and how many bytes of the next one.
    lent_sent: usize,
    piece_sent: usize,
    pending: VecDeque<Pending>,
    /// The last one's number.
    number: u64,
    /// How many are gone: less than half of those that are not sent.
    gone: usize,
    /// How many of `pending` are sent in full, and how many of `lent` belong to those.
    pending_sent: usize,
    lent_of_sent: usize,
    /// The position beyond which nothing is sent yet.
    held_from: Option<u64>,
}

impl Outbox {
    fn end(&self) -> u64 {
        self.base + self.copied.len() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The callers' requests, in their order.
    pub fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.pending.iter().filter(|pending| !pending.is_gone).filter_map(|pending| pending.id)
    }

    /// Requests that were not replied to.
    pub fn len(&self) -> usize {
        self.pending.len() - self.gone
    }

    /// The number of the last request, by which [`Outbox::is_begun`] and [`Outbox::abandon`] find it.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn append(&mut self, id: Option<RequestId>, start: u64, lent: usize, bytes: usize) {
        self.number += 1;
        let (number, end) = (self.number, self.end());
        self.pending.push_back(Pending { id, number, is_gone: false, start, end, lent, bytes });
    }

    fn position(&self, id: RequestId, number: u64) -> Option<usize> {
        let at = self.pending.binary_search_by_key(&number, |pending| pending.number).ok()?;
        (self.pending[at].id == Some(id)).then_some(at)
    }

    /// Whether requests that are sent wait for their replies.
    pub fn awaits_reply(&self) -> bool {
        self.pending_sent > 0
    }

    /// Copied bytes that are not sent.
    pub fn unsent(&self) -> usize {
        (self.end() - self.sent) as usize
    }

    /// The request that the next reply is for; `Some(None)` if it is nobody's.
    pub fn front(&self) -> Option<Option<RequestId>> {
        self.pending.front().map(|pending| pending.id)
    }

    /// Whether any of that request is sent.
    pub fn front_is_begun(&self) -> bool {
        self.pending.front().is_some_and(|pending| pending.start < self.sent)
    }

    /// Whether that request is sent in full.
    pub fn front_is_sent(&self) -> bool {
        self.pending_sent > 0
    }

    /// Appends a command; returns how many pieces are lent, and its bytes on the wire.
    pub fn push(&mut self, id: RequestId, args: &mut [Arg<'_>]) -> (usize, usize) {
        let (base, start, before) = (self.base, self.end(), self.lent.len());
        let lent = &mut self.lent;
        let bytes = encode(args, &mut self.copied, |at, bytes| {
            lent.push_back(Piece { at: base + at as u64, len: (*bytes).as_ref().len(), bytes: Some(bytes) });
        });
        let lent = self.lent.len() - before;
        self.append(Some(id), start, lent, bytes);
        (lent, bytes)
    }

    /// Appends what has been in an outbox before, or a command of the client's own; returns its bytes on the wire.
    pub fn push_wire(&mut self, id: Option<RequestId>, wire: Wire) -> usize {
        let start = self.end();
        let (lent, mut bytes) = (wire.lent.len(), wire.bytes.len());
        self.copied.extend_from_slice(&wire.bytes);
        for (at, piece) in wire.lent {
            let len = (*piece).as_ref().len();
            bytes += len;
            self.lent.push_back(Piece { at: start + at as u64, len, bytes: Some(piece) });
        }
        self.append(id, start, lent, bytes);
        bytes
    }

    /// Puts a command of the client's own before the others, none of which is sent, and holds these back; returns its bytes.
    pub fn put_first(&mut self, command: &[u8]) -> usize {
        assert!(self.sent == self.base && self.lent_sent == 0, "nothing is sent");
        let len = command.len() as u64;
        self.copied.splice(..0, command.iter().copied());
        for other in &mut self.pending {
            other.start += len;
            other.end += len;
        }
        self.lent.iter_mut().for_each(|piece| piece.at += len);
        let end = self.base + len;
        let (start, bytes) = (self.base, command.len());
        let first = Pending { id: None, number: 0, is_gone: false, start, end, lent: 0, bytes };
        self.pending.push_front(first);
        self.held_from = Some(end);
        command.len()
    }

    /// Whether some are held back.
    pub fn is_held(&self) -> bool {
        self.held_from.is_some()
    }

    /// Holds nothing back any more.
    pub fn release(&mut self) {
        self.held_from = None;
    }

    /// The same, and empties it as [`Outbox::clear`] does, once there are only callers' requests.
    pub fn take_held(&mut self) -> Option<(Vec<Returned>, usize)> {
        self.release();
        self.pending.iter().all(|pending| pending.id.is_some()).then(|| self.clear())
    }

    /// What is to be sent next, in as many slices as there is room for; returns how many, and their bytes.
    pub fn unsent_slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> (usize, usize) {
        let (mut count, mut total) = (0, 0);
        let (mut at, mut next, mut skip) = (self.sent, self.lent_sent, self.piece_sent);
        let held_from = self.held_from.unwrap_or(u64::MAX);
        while count < SLICES && at < held_from {
            let end = self.lent.get(next).map_or(self.end(), |piece| piece.at).min(held_from);
            let slice = if at < end {
                let slice = &self.copied[(at - self.base) as usize..(end - self.base) as usize];
                at = end;
                slice
            } else if let Some(piece) = self.lent.get(next) {
                let bytes = piece.bytes.as_ref().expect("not given back before it is sent");
                next += 1;
                &(**bytes).as_ref()[std::mem::take(&mut skip)..piece.len]
            } else {
                break;
            };
            total += slice.len();
            slices[count] = IoSlice::new(slice);
            count += 1;
        }
        (count, total)
    }

    /// So many more bytes are sent. Requests whose last byte is among them may be executed from now on; what they have
    /// lent is given back if `gives_back`.
    pub fn advance(&mut self, mut bytes: usize, gives_back: bool, requests: &mut Requests) {
        while bytes > 0 {
            let end = self.lent.get(self.lent_sent).map_or(self.end(), |piece| piece.at);
            if self.sent < end {
                let part = bytes.min((end - self.sent) as usize);
                self.sent += part as u64;
                bytes -= part;
            } else {
                let left = self.lent[self.lent_sent].len - self.piece_sent;
                let part = bytes.min(left);
                self.piece_sent += part;
                bytes -= part;
                if part == left {
                    self.lent_sent += 1;
                    self.piece_sent = 0;
                }
            }
        }
        while let Some(pending) =
            self.pending.get(self.pending_sent).filter(|pending| pending.end <= self.sent)
        {
            let pieces = self.lent_of_sent..self.lent_of_sent + pending.lent;
            self.pending_sent += 1;
            self.lent_of_sent = pieces.end;
            if gives_back && !pieces.is_empty() {
                for piece in self.lent.range_mut(pieces) {
                    piece.bytes = None;
                }
                let request = pending.id.and_then(|id| requests.in_flight_mut(id));
                if let Some(request) = request {
                    request.holds_lent = false;
                }
            }
        }
    }

    /// Removes the first request, which was replied to; returns its bytes on the wire.
    pub fn pop(&mut self) -> usize {
        let pending = self.pop_pending();
        if pending.lent > 0 {
            self.lent.drain(..pending.lent);
        }
        self.trim();
        pending.bytes
    }

    /// The same for one that is to be sent elsewhere: also its bytes, unless what was lent was given back.
    pub fn pop_wire(&mut self) -> (usize, Option<Wire>) {
        let (pending, pieces) = self.pop_pieces();
        let wire = self.wire(&pending, pieces);
        self.trim();
        (pending.bytes, wire)
    }

    fn pop_pieces(&mut self) -> (Pending, Vec<Piece>) {
        let pending = self.pop_pending();
        let pieces = self.lent.drain(..pending.lent).collect();
        (pending, pieces)
    }

    /// Removes the first request, whose pieces are to be removed next.
    fn pop_pending(&mut self) -> Pending {
        let pending = self.pending.pop_front().expect("a request");
        self.lent_sent = self.lent_sent.saturating_sub(pending.lent);
        if self.pending_sent > 0 {
            self.pending_sent -= 1;
            self.lent_of_sent -= pending.lent;
        }
        pending
    }

    fn wire(&self, pending: &Pending, pieces: Vec<Piece>) -> Option<Wire> {
        let range = (pending.start - self.base) as usize..(pending.end - self.base) as usize;
        let lent = pieces.into_iter().map(|piece| Some(((piece.at - pending.start) as usize, piece.bytes?)));
        Some(Wire { bytes: self.copied[range].to_vec(), lent: lent.collect::<Option<_>>()? })
    }

    fn trim(&mut self) {
        let done = self.pending.front().map_or(self.end(), |pending| pending.start);
        let bytes = (done - self.base) as usize;
        if bytes == self.copied.len() {
            self.copied.clear();
            if self.copied.capacity() > 4 * TRIM_BYTES {
                self.copied = Vec::new();
            }
        } else if bytes >= TRIM_BYTES && bytes >= self.copied.len() / 2 {
            self.copied.drain(..bytes);
        } else {
            return;
        }
        self.base = done;
    }

    /// Whether any byte of a request is sent.
    pub fn is_begun(&self, id: RequestId, number: u64) -> bool {
        self.position(id, number).is_some_and(|at| self.pending[at].start < self.sent)
    }

    /// Lets go of a request whose caller wants it no more: nothing that was lent is held afterwards. If none of it was
    /// sent, it is gone, and its bytes on the wire are returned; else it stays for its reply, and the rest of a
    /// lent piece that was begun is copied.
    pub fn abandon(&mut self, id: RequestId, number: u64) -> usize {
        let Some(at) = self.position(id, number) else { return 0 };
        let Pending { start, lent, bytes, .. } = self.pending[at];
        let first = self.lent.partition_point(|piece| piece.at < start);
        if at < self.pending_sent || start < self.sent {
            let all_sent = at < self.pending_sent;
            for piece in self.lent.range_mut(first..first + lent) {
                piece.bytes = match piece.bytes.take() {
                    Some(bytes) if !all_sent => Some(Box::new((*bytes).as_ref().to_vec())),
                    _ => None,
                };
            }
            return 0;
        }
        self.lent.range_mut(first..first + lent).for_each(|piece| piece.bytes = None);
        self.pending[at].is_gone = true;
        self.gone += 1;
        if self.gone * 2 >= self.pending.len() - self.pending_sent {
            self.compact();
        }
        bytes
    }

    /// Removes those that are gone, for all others at once, since each of these may move.
    pub fn compact(&mut self) {
        if self.gone == 0 {
            return;
        }
        self.gone = 0;
        let first = self.pending.partition_point(|pending| pending.start < self.sent);
        let mut end = self.pending[first].start;
        let mut pieces = self.lent.split_off(self.lent.partition_point(|piece| piece.at < end));
        for mut pending in self.pending.split_off(first) {
            let own = pieces.drain(..pending.lent);
            if pending.is_gone {
                continue;
            }
            let shift = pending.start - end;
            self.lent.extend(own.map(|piece| Piece { at: piece.at - shift, ..piece }));
            let from = (pending.start - self.base) as usize..(pending.end - self.base) as usize;
            self.copied.copy_within(from, (end - self.base) as usize);
            (pending.start, pending.end) = (end, pending.end - shift);
            end = pending.end;
            self.pending.push_back(pending);
        }
        self.copied.truncate((end - self.base) as usize);
    }

    /// Empties it, since the connection was lost: the requests in their order, and the bytes of all on the wire.
    pub fn clear(&mut self) -> (Vec<Returned>, usize) {
        self.compact();
        let mut returned = Vec::with_capacity(self.pending.len());
        let mut bytes = 0;
        while !self.pending.is_empty() {
            let sent = self.pending_sent > 0;
            let (pending, pieces) = self.pop_pieces();
            bytes += pending.bytes;
            let Some(id) = pending.id else { continue };
            let begun = pending.start < self.sent;
            let wire = self.wire(&pending, pieces);
            returned.push(Returned { id, begun, sent, wire });
        }
        *self = Outbox::default();
        (returned, bytes)
    }
}
