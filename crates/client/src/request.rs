//! The requests that were not released, by number.

use crate::{command::Target, error::Error};
use holdfast_resp::Reply;
use std::{any::Any, collections::VecDeque, mem, num::NonZeroU64, time::Instant};

/// Names a request. A released one's number is not used again: its place may be, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(NonZeroU64);

impl RequestId {
    /// As a number, which is not 0.
    pub fn to_u64(self) -> u64 {
        self.0.get()
    }

    /// From a number; `None` from 0. Whether there is such a request is found out when it is used.
    pub fn from_u64(number: u64) -> Option<RequestId> {
        NonZeroU64::new(number).map(RequestId)
    }

    fn new(generation: u32, at: u32) -> RequestId {
        RequestId(
            NonZeroU64::new(u64::from(generation) << 32 | u64::from(at)).expect("generations begin at 1"),
        )
    }

    fn parts(self) -> (u32, usize) {
        ((self.0.get() >> 32) as u32, self.0.get() as u32 as usize)
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// What was lent is still needed. The server has not executed it, as far as is known.
    Queued,
    /// What was lent for sending was dropped; what was lent for the reply was not.
    BufferFree,
    /// Its result can be taken; nothing that was lent is held.
    Done,
}

/// The result of a request: the server's reply, or what went wrong; and for a reply that went to the caller's buffer
/// (then [`Reply::Int`] has its length), the buffer.
pub(crate) struct Outcome {
    pub result: Result<Reply, Error>,
    /// The bytes in the target, if it has the reply.
    pub filled: Option<usize>,
    pub target: Option<Vec<u8>>,
    /// What somebody keeps beside it.
    pub beside: Option<Box<dyn Any + Send>>,
    bytes: usize,
}

pub(crate) struct Request {
    /// Its number of connection, for progress and cancelling.
    pub server: usize,
    /// Its number in the outbox of that connection.
    pub number: u64,
    /// The hash slot of its key, if it was of interest.
    pub slot: Option<u16>,
    /// Whether something that was lent for sending is still held.
    pub holds_lent: bool,
    pub read_only: bool,
    pub listed: bool,
    pub resends: u32,
    /// `None` for any time, and until [`Requests::begin_timing`].
    pub deadline: Option<Instant>,
    pub target: Option<Target>,
    pub outcome: Option<Outcome>,
}

impl Request {
    pub fn state(&self) -> State {
        match self.outcome {
            Some(_) => State::Done,
            None if self.holds_lent => State::Queued,
            None => State::BufferFree,
        }
    }
}

struct Place {
    generation: u32,
    request: Option<Request>,
}

/// All requests of a client.
pub(crate) struct Requests {
    places: Vec<Place>,
    free: Vec<u32>,
    /// Those that are not released.
    live: usize,
    live_max: usize,
    /// Those without an outcome.
    pub in_flight: usize,
    /// Bytes of replies that were not taken.
    pub held_bytes: usize,
    /// Requests with an outcome that are to be listed and were not, among others that were taken meanwhile.
    completed: VecDeque<RequestId>,
    /// How many of these are still to be listed.
    to_list: usize,
    /// Counts outcomes.
    pub outcomes: u64,
    /// A time that is not after the first deadline of those in flight.
    pub deadline: Option<Instant>,
    /// Those that are to get a deadline: to look at the clock for each would cost more than to take it in.
    untimed: Vec<RequestId>,
}

impl Requests {
    pub fn new(live_max: usize) -> Requests {
        Requests {
            places: Vec::new(),
            free: Vec::new(),
            live: 0,
            live_max,
            in_flight: 0,
            held_bytes: 0,
            completed: VecDeque::new(),
            to_list: 0,
            outcomes: 0,
            deadline: None,
            untimed: Vec::new(),
        }
    }

    pub fn insert(&mut self, request: Request) -> Result<RequestId, Error> {
        if self.live == self.live_max {
            return Err(Error::Full);
        }
        self.live += 1;
        self.in_flight += 1;
        if let Some(at) = self.free.pop() {
            let place = &mut self.places[at as usize];
            place.request = Some(request);
            return Ok(RequestId::new(place.generation, at));
        }
        self.places.push(Place { generation: 1, request: Some(request) });
        Ok(RequestId::new(1, self.places.len() as u32 - 1))
    }

    pub fn get_mut(&mut self, id: RequestId) -> Result<&mut Request, Error> {
        let (generation, at) = id.parts();
        match self.places.get_mut(at) {
            Some(place) if place.generation == generation => {
                place.request.as_mut().ok_or(Error::NoSuchRequest)
            }
            _ => Err(Error::NoSuchRequest),
        }
    }

    pub fn get(&self, id: RequestId) -> Result<&Request, Error> {
        let (generation, at) = id.parts();
        match self.places.get(at) {
            Some(place) if place.generation == generation => {
                place.request.as_ref().ok_or(Error::NoSuchRequest)
            }
            _ => Err(Error::NoSuchRequest),
        }
    }

    /// The request, if it is there and has no outcome.
    pub fn in_flight_mut(&mut self, id: RequestId) -> Option<&mut Request> {
        self.get_mut(id).ok().filter(|request| request.outcome.is_none())
    }

    /// Gives a request its outcome, unless it has one or is released. What was lent for the reply is dropped.
    pub fn complete(&mut self, id: RequestId, result: Result<Reply, Error>, filled: Option<usize>) {
        let Some(request) = self.in_flight_mut(id) else { return };
        let target = match request.target.take() {
            Some(Target::Vec(vec)) => Some(vec),
            Some(Target::Lent(_)) | None => None,
        };
        let bytes = result.as_ref().map_or(0, weight);
        request.outcome = Some(Outcome { result, filled, target, beside: None, bytes });
        request.holds_lent = false;
        let listed = request.listed;
        self.held_bytes += bytes;
        self.in_flight -= 1;
        self.outcomes += 1;
        if listed {
            self.completed.push_back(id);
            self.to_list += 1;
        }
    }

    /// Lists a request when it is completed, or at once if it is.
    pub fn list(&mut self, id: RequestId) -> Result<(), Error> {
        let request = self.get_mut(id)?;
        let is_new = !mem::replace(&mut request.listed, true);
        if is_new && request.outcome.is_some() {
            self.completed.push_back(id);
            self.to_list += 1;
        }
        Ok(())
    }

    /// The first of those that are listed and completed; it is not listed any more.
    pub fn next_completion(&mut self) -> Option<RequestId> {
        loop {
            let id = self.completed.pop_front()?;
            if let Ok(request) = self.get_mut(id) {
                request.listed = false;
                self.to_list -= 1;
                return Some(id);
            }
        }
    }

    /// Whether there are such.
    pub fn has_completions(&self) -> bool {
        self.to_list > 0
    }

    /// Takes the outcome of a request and releases it.
    pub fn take(&mut self, id: RequestId) -> Result<Outcome, Error> {
        let request = self.get_mut(id)?;
        let outcome = request.outcome.take().ok_or(Error::InProgress)?;
        let is_listed = request.listed;
        let (generation, at) = id.parts();
        let place = &mut self.places[at];
        place.request = None;
        self.held_bytes -= outcome.bytes;
        self.live -= 1;
        // A place whose generations are used up is left alone.
        if let Some(next) = generation.checked_add(1) {
            place.generation = next;
            self.free.push(at as u32);
        }
        if is_listed {
            self.to_list -= 1;
            if self.completed.len() > 2 * self.to_list {
                let mut completed = mem::take(&mut self.completed);
                completed.retain(|&listed| self.get(listed).is_ok());
                self.completed = completed;
            }
        }
        Ok(outcome)
    }

    /// A request is to get a deadline.
    pub fn limit_time(&mut self, id: RequestId) {
        self.untimed.push(id);
    }

    /// Gives those a deadline that have to get one.
    pub fn begin_timing(&mut self, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return self.untimed.clear() };
        if self.untimed.is_empty() {
            return;
        }
        self.deadline = Some(self.deadline.map_or(deadline, |first| first.min(deadline)));
        let mut untimed = mem::take(&mut self.untimed);
        for id in untimed.drain(..) {
            if let Some(request) = self.in_flight_mut(id) {
                request.deadline = Some(deadline);
            }
        }
        self.untimed = untimed;
    }

    /// Those in flight whose time is over; finds the next deadline.
    pub fn overdue(&mut self, now: Instant) -> Vec<RequestId> {
        if self.deadline.is_none_or(|first| first > now) {
            return Vec::new();
        }
        self.deadline = None;
        let mut overdue = Vec::new();
        for (at, place) in self.places.iter().enumerate() {
            let Some(request) = place.request.as_ref().filter(|request| request.outcome.is_none()) else {
                continue;
            };
            match request.deadline {
                Some(deadline) if deadline <= now => {
                    overdue.push(RequestId::new(place.generation, at as u32))
                }
                Some(deadline) => {
                    self.deadline = Some(self.deadline.map_or(deadline, |first| first.min(deadline)));
                }
                None => {}
            }
        }
        overdue
    }
}

/// Bytes of strings in a reply, and 64 for each element.
fn weight(reply: &Reply) -> usize {
    64 + match reply {
        Reply::Simple(text) | Reply::Error(text) | Reply::Bulk(text) | Reply::BigNumber(text) => text.len(),
        Reply::Verbatim(_, text) => text.len(),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items.iter().map(weight).sum(),
        Reply::Map(pairs) => pairs.iter().map(|(key, value)| weight(key) + weight(value)).sum(),
        Reply::Int(_) | Reply::Null | Reply::Bool(_) | Reply::Double(_) => 0,
    }
}
