//! A connection to one server: making it, sending what its outbox has, giving replies to those who wait.

use crate::{
    address::Address,
    command::Wire,
    decoder::{Decoded, Decoder, Gap},
    error::{Error, Executed},
    outbox::{Outbox, SLICES},
    request::{RequestId, Requests},
    slots::{ASK_FOR_MAP, Owned, Redirect, is_node, parse_map, parse_replicas},
    transport::{Network, Transport},
};
use holdfast_resp::Reply;
use std::{
    io::{self, ErrorKind, IoSlice, Read},
    mem,
    time::{Duration, Instant},
};

const INPUT_BYTES: usize = 64 << 10;
/// Strings with this much to come are read right to where they belong.
const GAP_MIN: usize = 16 << 10;
/// Reads after which others have their turn.
const READS_MAX: usize = 64;
/// After so long without a word it is looked whether the server has closed the connection, before a request is sent.
const SILENCE: Duration = Duration::from_millis(5);
const BACKOFF_LOST: Duration = Duration::from_millis(1);
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

enum Link {
    /// There is none, and none is tried before this time.
    Down {
        until: Option<Instant>,
    },
    /// It is being made.
    Connecting {
        transport: Box<dyn Transport>,
        since: Instant,
    },
    /// So much of the greeting is sent, and so many replies to it have come.
    Greeting {
        transport: Box<dyn Transport>,
        since: Instant,
        sent: usize,
        replies: usize,
    },
    Up(Box<dyn Transport>),
}

/// A request that is to be sent to another server.
pub struct Redirected {
    pub id: RequestId,
    /// `None` if what was lent was given back.
    pub wire: Option<Wire>,
    pub redirect: Redirect,
    pub text: Vec<u8>,
}

/// What all connections of a client share.
pub struct Shared {
    pub requests: Requests,
    pub redirected: Vec<Redirected>,
    /// Whether the first server that is reached is to be asked who has which slots, if it is a node of a cluster.
    pub asks_first: bool,
    /// Whether a connection may hold requests back until it has been told.
    pub holds: bool,
    /// Whether some server is to say who has which slots.
    pub map_is_asked: bool,
    /// What one has said of that, and which other servers there are.
    pub map: Vec<Owned>,
    pub replicas: Vec<Address>,
    /// Whether the servers are nodes of a cluster, once one of them has told.
    pub is_cluster: Option<bool>,
    pub network: Box<dyn Network>,
    /// What is said first, and the number of replies.
    pub greeting: (Vec<u8>, usize),
    pub reply_bytes_max: usize,
    pub connect_timeout: Duration,
    pub resends_max: u32,
    /// Whether lent bytes are given back once they are sent: there is one server, which has all keys.
    pub gives_back: bool,
    /// Bytes of all requests in outboxes.
    pub pending_bytes: usize,
}

pub struct Connection {
    pub address: Address,
    link: Link,
    /// Attempts to connect since the last that succeeded.
    attempts: u32,
    /// Links that were lost since the last that has brought a reply.
    losses: u32,
    /// Why there is no link.
    cause: String,
    pub outbox: Outbox,
    input: Box<[u8]>,
    input_start: usize,
    input_end: usize,
    decoder: Decoder,
    /// When something was read last, or was sent while nothing was awaited.
    pub heard: Instant,
    /// Whether writing would block.
    full: bool,
    /// Counts links: each is registered anew.
    pub links: u64,
    /// Which link is registered, and whether for writing.
    pub registered: Option<(u64, bool)>,
    /// Whether there may be more to read, though the descriptor may not say so.
    pub more: bool,
    /// Whether it is for requests that may take any time, one after the other, and not for others.
    pub apart: bool,
    /// Requests that came since somebody made progress last.
    pub arrived: u32,
    /// Whether the first of them is sent at once: others did not follow it the last time.
    pub eager: bool,
    /// Whether the link has brought no reply yet.
    is_new: bool,
    /// Whether the server that is being greeted is a node of a cluster.
    is_node: bool,
    /// Until when requests are held back.
    holds_until: Option<Instant>,
    /// Whether it is to be asked who has which slots, though it has nothing else to do.
    pub is_sought: bool,
}

impl Connection {
    pub fn new(address: Address, reply_bytes_max: usize) -> Connection {
        Connection {
            address,
            link: Link::Down { until: None },
            attempts: 0,
            losses: 0,
            cause: "no attempt was made to connect".into(),
            outbox: Outbox::default(),
            input: Box::default(),
            input_start: 0,
            input_end: 0,
            decoder: Decoder::new(reply_bytes_max),
            heard: Instant::now(),
            full: false,
            links: 0,
            registered: None,
            more: false,
            apart: false,
            arrived: 0,
            eager: true,
            is_new: true,
            is_node: false,
            holds_until: None,
            is_sought: false,
        }
    }

    /// Somebody makes progress, so that what arrives from now on is another batch.
    pub fn end_batch(&mut self) {
        if self.arrived > 0 {
            self.eager = self.arrived == 1;
            self.arrived = 0;
        }
    }

    pub fn transport(&self) -> Option<&dyn Transport> {
        match &self.link {
            Link::Down { .. } => None,
            Link::Connecting { transport, .. } | Link::Greeting { transport, .. } | Link::Up(transport) => {
                Some(&**transport)
            }
        }
    }

    /// Whether the descriptor is to be watched for writing.
    pub fn wants_write(&self) -> bool {
        match &self.link {
            Link::Down { .. } => false,
            Link::Connecting { .. } => true,
            Link::Greeting { transport, .. } | Link::Up(transport) => transport.wants_write(self.full),
        }
    }

    /// Whether a request would be alone on its way, so that nothing is gained by waiting for others.
    pub fn is_idle(&self) -> bool {
        matches!(self.link, Link::Up(_)) && !self.outbox.awaits_reply() && !self.full
    }

    pub fn is_down(&self) -> bool {
        matches!(self.link, Link::Down { .. })
    }

    pub fn is_up(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    /// Whether the last link was lost, or could not be made, and there is no other one yet.
    pub fn is_away(&self) -> bool {
        !self.is_up() && (self.losses > 0 || self.attempts > 0)
    }

    /// What requests wait for.
    pub fn waits_for(&self) -> String {
        match &self.link {
            Link::Up(_) => format!("{} has not replied", self.address),
            Link::Down { .. } => format!("{}: {}", self.address, self.cause),
            Link::Connecting { .. } => format!("{} has not accepted the connection", self.address),
            Link::Greeting { .. } => format!("{} has not replied to the greeting", self.address),
        }
    }

    /// When something is to be done even if nothing arrives.
    pub fn timer(&self, connect_timeout: Duration) -> Option<Instant> {
        match &self.link {
            Link::Down { until } if self.has_to_do() => *until,
            Link::Connecting { since, .. } | Link::Greeting { since, .. } => {
                since.checked_add(connect_timeout)
            }
            Link::Up(_) if self.outbox.is_held() => self.holds_until,
            _ => None,
        }
    }

    fn has_to_do(&self) -> bool {
        !self.outbox.is_empty() || self.is_sought
    }

    /// Connects if there is a reason to, and writes as much as goes.
    pub fn flush(&mut self, shared: &mut Shared, now: Instant) {
        if self.outbox.is_held() && self.holds_until.is_some_and(|until| until <= now) {
            // MOVED will tell where they belong.
            self.outbox.release();
            shared.asks_first = false;
        }
        match &self.link {
            Link::Down { until } => {
                if !self.has_to_do() || until.is_some_and(|until| until > now) {
                    return;
                }
                match shared.network.connect(&self.address, self.attempts) {
                    Ok(transport) => self.begin(transport, shared, now),
                    Err(e) => self.down(&e.to_string(), shared, now),
                }
            }
            Link::Connecting { since, .. } | Link::Greeting { since, .. }
                if now.saturating_duration_since(*since) >= shared.connect_timeout =>
            {
                let cause = format!("no connection after {:?}", shared.connect_timeout);
                self.down(&cause, shared, now);
            }
            _ if self.full => {}
            Link::Up(_) if self.may_be_closed(now) => {
                self.heard = now;
                self.readable(shared, now);
                self.flush(shared, now);
            }
            _ => self.write(shared, now),
        }
    }

    /// Whether a request is to be sent that could be lost for nothing.
    fn may_be_closed(&self, now: Instant) -> bool {
        !self.outbox.is_empty() && !self.outbox.awaits_reply() && self.heard + SILENCE <= now
    }

    fn begin(&mut self, transport: Box<dyn Transport>, shared: &mut Shared, now: Instant) {
        self.links += 1;
        self.link = Link::Connecting { transport, since: now };
        self.decoder = Decoder::new(shared.reply_bytes_max);
        if self.input.is_empty() {
            self.input = vec![0; INPUT_BYTES].into();
        }
        (self.input_start, self.input_end) = (0, 0);
        (self.full, self.more, self.is_new) = (false, false, true);
    }

    /// The descriptor is writable.
    pub fn writable(&mut self, shared: &mut Shared, now: Instant) {
        if let Link::Connecting { transport, since } = &self.link {
            if let Err(e) = transport.connected() {
                return self.down(&e.to_string(), shared, now);
            }
            let since = *since;
            if let Link::Connecting { transport, .. } = self.unlink() {
                self.link = Link::Greeting { transport, since, sent: 0, replies: 0 };
            }
        }
        self.write(shared, now);
    }

    fn unlink(&mut self) -> Link {
        mem::replace(&mut self.link, Link::Down { until: None })
    }

    fn write(&mut self, shared: &mut Shared, now: Instant) {
        self.full = false;
        if let Err(e) = self.try_write(shared, now) {
            if e.kind() == ErrorKind::WouldBlock {
                self.full = true;
            } else {
                self.down(&e.to_string(), shared, now);
            }
        }
    }

    fn try_write(&mut self, shared: &mut Shared, now: Instant) -> io::Result<()> {
        if let Link::Greeting { transport, sent, replies, .. } = &mut self.link {
            let (greeting, expected) = &shared.greeting;
            while *sent < greeting.len() {
                *sent += not_interrupted(|| transport.send(&[IoSlice::new(&greeting[*sent..])]))?;
            }
            transport.flush()?;
            if *replies < *expected {
                return Ok(());
            }
            if let Link::Greeting { transport, .. } = self.unlink() {
                self.link = Link::Up(transport);
                self.attempts = 0;
                self.greeted(shared, now);
            }
        }
        let Link::Up(transport) = &mut self.link else { return Ok(()) };
        self.outbox.compact();
        loop {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (count, _) = self.outbox.unsent_slices(&mut slices);
            if count == 0 {
                return transport.flush();
            }
            let written = not_interrupted(|| transport.send(&slices[..count]))?;
            if !self.outbox.awaits_reply() {
                self.heard = now;
            }
            self.outbox.advance(written, shared.gives_back, &mut shared.requests);
        }
    }

    /// Before the first request is sent, a node of a cluster is asked who has which slots; but not over a Unix socket, for the reply
    /// names TCP ports, which the caller has chosen not to use.
    fn greeted(&mut self, shared: &mut Shared, now: Instant) {
        let is_sought = mem::take(&mut self.is_sought);
        if self.apart || !is_sought && (!shared.asks_first || shared.map_is_asked) {
            return;
        }
        let may_tell = matches!(self.address, Address::Tcp { .. });
        shared.asks_first &= self.is_node && may_tell;
        // Over RESP2 a node does not say that it is one.
        let asks = shared.asks_first || is_sought && may_tell && shared.is_cluster != Some(false);
        if asks {
            shared.pending_bytes += self.outbox.put_first(ASK_FOR_MAP);
            self.holds_until = now.checked_add(shared.connect_timeout);
            (shared.holds, shared.map_is_asked) = (true, true);
        }
    }

    /// Reads what has arrived.
    pub fn readable(&mut self, shared: &mut Shared, now: Instant) {
        self.more = false;
        for _ in 0..READS_MAX {
            match self.try_read(shared, now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => return self.down(&e.to_string(), shared, now),
            }
        }
        self.more = true;
    }

    /// Reads once; whether there may be more.
    fn try_read(&mut self, shared: &mut Shared, now: Instant) -> io::Result<bool> {
        let (Link::Greeting { transport, .. } | Link::Up(transport)) = &mut self.link else {
            return Ok(false);
        };
        let id = self.outbox.front().flatten();
        if self.input_start == self.input_end {
            if let Some(gap) = self.decoder.gap() {
                let read = match gap {
                    Gap::Collect(data, left) if left >= GAP_MIN => collect(&mut **transport, data, left),
                    Gap::Target(from, to) if to - from >= GAP_MIN => {
                        let target = id.and_then(|id| shared.requests.in_flight_mut(id)?.target.as_mut());
                        target.map(|target| not_interrupted(|| transport.read(&mut target.bytes()[from..to])))
                    }
                    _ => None,
                };
                if let Some(read) = read {
                    return self.filled(read, now);
                }
            }
            (self.input_start, self.input_end) = (0, 0);
        } else if self.input_end == self.input.len() {
            // What is left is a part of a line.
            self.input.copy_within(self.input_start.., 0);
            self.input_end -= self.input_start;
            self.input_start = 0;
        }
        let room = &mut self.input[self.input_end..];
        let room_bytes = room.len();
        let n = match not_interrupted(|| transport.read(room)) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(e) => return Err(closed(e)),
        };
        self.heard = now;
        self.input_end += n;
        self.decode(shared, now)?;
        // What is not all that there is room for is all that there is, but for transports with buffers of their own.
        Ok(n == room_bytes || self.transport().is_some_and(|transport| transport.buffers()))
    }

    fn filled(&mut self, read: io::Result<usize>, now: Instant) -> io::Result<bool> {
        match read {
            Ok(n) => {
                self.heard = now;
                self.decoder.filled(n);
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(closed(e)),
        }
    }

    /// Takes the replies out of what was read.
    fn decode(&mut self, shared: &mut Shared, now: Instant) -> io::Result<()> {
        while self.input_start < self.input_end && self.transport().is_some() {
            let id = self.outbox.front().flatten();
            let up = matches!(self.link, Link::Up(_));
            let may_fill = up && self.outbox.front_is_begun();
            let target =
                id.filter(|_| may_fill).and_then(|id| shared.requests.in_flight_mut(id)?.target.as_mut());
            let input = &self.input[self.input_start..self.input_end];
            let decoded = self.decoder.decode(input, target.map(|target| target.bytes()));
            let (used, decoded) = decoded.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
            self.input_start += used;
            let is_first = self.is_new;
            self.is_new &= decoded.is_none();
            match decoded {
                None => return Ok(()),
                Some(Decoded::Push(_)) => {}
                Some(Decoded::Reply(Reply::Error(text))) if !up || is_first && is_refusal(&text) => {
                    self.refused(&String::from_utf8_lossy(&text), shared, now);
                    return Ok(());
                }
                Some(decoded) if up => self.replied(decoded, shared)?,
                Some(Decoded::TooLarge) => {
                    let text = "a reply to the greeting takes more than reply_bytes_max";
                    return Err(io::Error::new(ErrorKind::InvalidData, text));
                }
                Some(decoded) => {
                    if let (Link::Greeting { replies, .. }, Decoded::Reply(reply)) = (&mut self.link, decoded)
                    {
                        *replies += 1;
                        if *replies == 1 {
                            self.is_node = is_node(&reply);
                            if matches!(reply, Reply::Map(_)) && shared.is_cluster != Some(true) {
                                shared.is_cluster = Some(self.is_node);
                            }
                            // What is lent may have to be sent to another node.
                            shared.gives_back &= !self.is_node;
                        }
                    }
                    self.write(shared, now);
                }
            }
        }
        Ok(())
    }

    fn replied(&mut self, decoded: Decoded, shared: &mut Shared) -> io::Result<()> {
        let Some(id) = self.outbox.front().filter(|_| self.outbox.front_is_begun()) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "a reply that nobody has asked for"));
        };
        let whole = self.outbox.front_is_sent();
        if !whole && !matches!(decoded, Decoded::Reply(Reply::Error(_))) {
            return Err(io::Error::new(ErrorKind::InvalidData, "a reply to half a request"));
        }
        self.losses = 0;
        let (result, filled) = match decoded {
            Decoded::Reply(Reply::Error(text)) => {
                let redirect = Redirect::parse(&text);
                if let (Some(redirect), Some(id), true) = (redirect, id, whole) {
                    let (bytes, wire) = self.outbox.pop_wire();
                    shared.pending_bytes -= bytes;
                    shared.redirected.push(Redirected { id, wire, redirect, text });
                    return Ok(());
                }
                (Err(Error::Server(text)), None)
            }
            Decoded::Reply(reply) | Decoded::Push(reply) => (Ok(reply), None),
            Decoded::Filled(len) => (Ok(Reply::Int(len as i64)), Some(len)),
            Decoded::TooSmall(needed) => (Err(Error::TooSmall { needed }), None),
            Decoded::TooLarge => (Err(Error::TooLarge { max: shared.reply_bytes_max }), None),
        };
        match (id, result) {
            (Some(id), result) => shared.requests.complete(id, result, filled),
            (None, Ok(Reply::Array(ranges))) => {
                shared.map = parse_map(&ranges, &self.address);
                shared.replicas = parse_replicas(&ranges, &self.address);
                shared.is_cluster = Some(true);
                (shared.map_is_asked, shared.asks_first) = (false, false);
            }
            // To ASKING, or from a server that is no node of a cluster any more, or does not tell this user.
            (None, result) => {
                shared.map_is_asked &= result.is_ok();
                shared.asks_first &= result.is_ok();
                if result.is_err() && shared.is_cluster.is_none() {
                    shared.is_cluster = Some(false);
                }
            }
        }
        if !whole {
            // The server has not waited for the rest, so there is no telling what it will make of that.
            return Err(io::Error::new(ErrorKind::InvalidData, "an error in reply to half a request"));
        }
        shared.pending_bytes -= self.outbox.pop();
        Ok(())
    }

    /// The server lets nobody in: those who wait for it need not wait longer.
    fn refused(&mut self, text: &str, shared: &mut Shared, now: Instant) {
        let (requests, bytes) = self.outbox.clear();
        shared.map_is_asked = false;
        shared.pending_bytes -= bytes;
        for returned in requests {
            shared.requests.complete(returned.id, Err(Error::Refused(text.to_owned())), None);
        }
        self.down(text, shared, now);
    }

    /// The link is lost, or could not be made.
    pub fn down(&mut self, cause: &str, shared: &mut Shared, now: Instant) {
        let was_up = matches!(self.unlink(), Link::Up(_));
        self.registered = None;
        self.cause = cause.to_owned();
        let wait = if was_up {
            self.losses = self.losses.saturating_add(1);
            // Those that brought no reply may go on so.
            if self.losses == 1 { Duration::ZERO } else { BACKOFF_LOST * (1 << (self.losses - 1).min(10)) }
        } else {
            self.attempts = self.attempts.saturating_add(1);
            BACKOFF_MIN * (1 << (self.attempts - 1).min(8))
        };
        self.link = Link::Down { until: Some(now + wait.min(BACKOFF_MAX)) };
        if !was_up {
            return;
        }
        shared.map_is_asked = false;
        let (requests, bytes) = self.outbox.clear();
        shared.pending_bytes -= bytes;
        for returned in requests {
            let Some(request) = shared.requests.in_flight_mut(returned.id) else { continue };
            request.resends += u32::from(returned.begun);
            let again = (!returned.sent || request.read_only) && request.resends <= shared.resends_max;
            match returned.wire {
                Some(wire) if again => {
                    shared.pending_bytes += self.outbox.push_wire(Some(returned.id), wire);
                    request.number = self.outbox.number();
                }
                _ => {
                    let executed = if returned.sent { Executed::Unknown } else { Executed::No };
                    let error = Error::Lost { executed, cause: cause.to_owned() };
                    shared.requests.complete(returned.id, Err(error), None);
                }
            }
        }
    }
}

/// What a server says to a connection that it closes, whatever was sent.
fn is_refusal(error: &[u8]) -> bool {
    error.starts_with(b"ERR max number of clients reached") || error.starts_with(b"DENIED ")
}

fn not_interrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Reads up to `left` bytes behind `data`, as many as there are. Its memory is not cleared first.
fn collect(transport: &mut dyn Transport, data: &mut Vec<u8>, left: usize) -> Option<io::Result<usize>> {
    let before = data.len();
    let result = transport.take(left as u64).read_to_end(data);
    Some(match (data.len() - before, result) {
        (0, Ok(_)) => Err(ErrorKind::UnexpectedEof.into()),
        (0, Err(e)) => Err(e),
        (n, _) => Ok(n),
    })
}

fn closed(e: io::Error) -> io::Error {
    if e.kind() == ErrorKind::UnexpectedEof {
        return io::Error::new(e.kind(), "the server has closed the connection");
    }
    e
}
