//! All of a client but who waits: which server a request goes to, what happens to it on the way, and when.

use crate::{
    address::Address,
    command::{Command, Wire},
    config::Config,
    connection::{Connection, Redirected, Shared},
    error::{Error, Executed},
    outbox::Returned,
    poller::{Poller, Ready},
    request::{Outcome, Request, RequestId, Requests, State},
    slots::{ASK_FOR_MAP, SlotMap, address_from, hash_slot},
    transport::Sockets,
};
use std::{
    mem,
    time::{Duration, Instant},
};

/// Copied bytes from which on they are sent without waiting for more.
const FLUSH_BYTES: usize = 32 << 10;
/// Servers that a client may come to know.
const SERVERS_MAX: usize = 1024;
/// Connections for requests that may take any time, one for each.
const APART_MAX: usize = 256;
/// While requests wait for a server that is away, another one is asked after so long who has which slots; the time is doubled each time.
const SEEK_MIN: Duration = Duration::from_millis(50);
const SEEK_MAX: Duration = Duration::from_secs(1);
const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

pub struct Core {
    /// One for each server, and those apart.
    servers: Vec<Connection>,
    /// How many servers there are, each with a connection that is not apart.
    known: usize,
    slots: SlotMap,
    /// When another server is asked again who has which slots, how often one was asked, and which one was the last.
    seek_at: Option<Instant>,
    seeks: u32,
    sought: usize,
    shared: Shared,
    pub poller: Poller,
    bytes_max: usize,
    request_timeout: Option<Duration>,
    /// Whether somebody waits with the poller.
    pub polling: bool,
    /// How many wait for another one's progress.
    pub waiting: usize,
    /// Whether the caller may wait for the descriptor alone, and not make progress before.
    pub watched: bool,
    /// Whether the thread is to end.
    pub closed: bool,
}

impl Core {
    pub fn new(config: Config) -> Result<Core, Error> {
        if config.servers.is_empty() || config.servers.len() > SERVERS_MAX {
            return Err(Error::Invalid("a client has 1 to 1024 servers"));
        }
        if config.requests_max == 0 || config.requests_max > u32::MAX as usize {
            return Err(Error::Invalid("the number of requests is 1 to 4294967295"));
        }
        let greeting = config.greeting();
        let network = match config.network {
            Some(network) => network,
            None => Box::new(Sockets::new(config.tls.as_ref())?),
        };
        let reply_bytes_max = config.reply_bytes_max;
        let servers: Vec<Connection> =
            config.servers.into_iter().map(|address| Connection::new(address, reply_bytes_max)).collect();
        Ok(Core {
            slots: SlotMap::even(servers.len()),
            seek_at: None,
            seeks: 0,
            sought: 0,
            shared: Shared {
                requests: Requests::new(config.requests_max),
                redirected: Vec::new(),
                asks_first: true,
                holds: false,
                map_is_asked: false,
                map: Vec::new(),
                replicas: Vec::new(),
                is_cluster: None,
                network,
                greeting,
                reply_bytes_max,
                connect_timeout: config.connect_timeout,
                resends_max: config.resends_max,
                gives_back: servers.len() == 1,
                pending_bytes: 0,
            },
            known: servers.len(),
            servers,
            poller: Poller::new()?,
            bytes_max: config.bytes_max,
            request_timeout: config.request_timeout,
            polling: false,
            waiting: 0,
            watched: false,
            closed: false,
        })
    }

    /// Takes a request in. Whether its connection should be flushed now is for the caller to see to.
    pub fn submit(&mut self, mut command: Command<'_>) -> Result<RequestId, Error> {
        command.check()?;
        let held = self.shared.pending_bytes + self.shared.requests.held_bytes;
        if held > 0 && held.saturating_add(command.bytes()) > self.bytes_max {
            return Err(Error::Full);
        }
        let key = command.key.filter(|_| self.known > 1 || self.shared.asks_first);
        let slot = key.and_then(|at| command.arg_bytes(at)).map(hash_slot);
        let mut server = self.server_for(slot);
        if command.untimed && !command.waits_for_others() {
            server = self.apart(server).ok_or(Error::Full)?;
        }
        let id = self.shared.requests.insert(Request {
            server,
            number: 0,
            slot,
            holds_lent: false,
            read_only: command.read_only,
            listed: command.listed,
            resends: 0,
            deadline: None,
            target: command.target.take(),
            outcome: None,
        })?;
        if !command.untimed {
            self.shared.requests.limit_time(id);
        }
        let connection = &mut self.servers[server];
        let (lent, bytes) = connection.outbox.push(id, &mut command.args);
        self.shared.pending_bytes += bytes;
        if let Some(request) = self.shared.requests.in_flight_mut(id) {
            request.holds_lent = lent > 0;
            request.number = connection.outbox.number();
        }
        connection.arrived = connection.arrived.saturating_add(1);
        let at_once = connection.eager || self.watched;
        // Who watches the descriptor needs a connection, or a timer, that it tells of.
        let begins = self.watched && connection.is_down();
        if begins || at_once && connection.is_idle() || lent > 0 || connection.outbox.unsent() >= FLUSH_BYTES
        {
            let now = Instant::now();
            connection.flush(&mut self.shared, now);
            self.settle(now);
        }
        Ok(id)
    }

    /// Sends what waits, does what is due, and watches what is to be watched.
    pub fn flush(&mut self) {
        let now = Instant::now();
        for connection in &mut self.servers {
            connection.end_batch();
            connection.flush(&mut self.shared, now);
        }
        self.settle(now);
    }

    /// A connection to the same server for a request that may take any time, since those behind it would wait as long, and
    /// since it can be called off only by closing the connection. `None` if there are as many as may be.
    fn apart(&mut self, server: usize) -> Option<usize> {
        let is_free = |connection: &Connection| connection.apart && connection.outbox.is_empty();
        let mut connection =
            Connection::new(self.servers[server].address.clone(), self.shared.reply_bytes_max);
        connection.apart = true;
        let same = |other: &Connection| is_free(other) && other.address == connection.address;
        if let Some(free) = self.servers.iter().position(same) {
            return Some(free);
        }
        if self.servers.len() - self.known < APART_MAX {
            self.servers.push(connection);
            return Some(self.servers.len() - 1);
        }
        // One to another server, which has nothing to do, makes way.
        let free = self.servers.iter().position(is_free)?;
        self.servers[free] = connection;
        Some(free)
    }

    /// Something has come of connections.
    pub fn ready(&mut self, ready: &[Ready]) {
        let now = Instant::now();
        self.poller.woken();
        for news in ready {
            // Of a server that is there: servers are only added.
            let connection = &mut self.servers[news.server];
            if news.readable {
                connection.readable(&mut self.shared, now);
            }
            let buffers = connection.transport().is_some_and(|transport| transport.buffers());
            if news.writable || buffers {
                connection.writable(&mut self.shared, now);
            }
        }
        for connection in &mut self.servers {
            if connection.more {
                connection.readable(&mut self.shared, now);
            }
        }
        self.settle(now);
    }

    /// Whether there is something to do without waiting.
    pub fn has_more(&self) -> bool {
        self.servers.iter().any(|connection| connection.more)
    }

    /// What follows from what connections did.
    fn settle(&mut self, now: Instant) {
        let map = mem::take(&mut self.shared.map);
        let mut is_told = !map.is_empty();
        for (slots, address) in map {
            if let Some(server) = self.server_at(address) {
                slots.for_each(|slot| self.slots.assign(slot, server));
            }
        }
        for replica in mem::take(&mut self.shared.replicas) {
            if self.known < SERVERS_MAX / 2 {
                self.server_at(replica);
            }
        }
        if self.shared.holds && !self.shared.map_is_asked {
            self.shared.holds = false;
            is_told = true;
        }
        if is_told {
            (0..self.servers.len()).for_each(|server| self.spread(server));
            self.servers.iter_mut().for_each(|connection| connection.flush(&mut self.shared, now));
        }
        self.seek(now);
        while !self.shared.redirected.is_empty() {
            for redirected in mem::take(&mut self.shared.redirected) {
                self.redirect(redirected, now);
            }
        }
        self.shared.requests.begin_timing(self.request_timeout.and_then(|timeout| now.checked_add(timeout)));
        self.time_out(now);
        let mut timer = self.shared.requests.deadline.into_iter().chain(self.seek_at).min();
        for server in 0..self.servers.len() {
            let connection = &mut self.servers[server];
            if let Err(cause) = self.poller.watch(server, connection) {
                connection.down(&cause, &mut self.shared, now);
            }
            let due = connection.timer(self.shared.connect_timeout);
            timer = timer.into_iter().chain(due).chain(self.silent_at(server)).min();
        }
        if self.watched && self.has_more() {
            self.poller.wake();
        }
        self.poller.timer_is_over(now);
        self.poller.set_timer(timer, now);
        self.poller.tell_completions(self.shared.requests.has_completions());
    }

    /// The server that has a slot. Without one, the first server, or in a cluster another one that has slots if that is away.
    fn server_for(&self, slot: Option<u16>) -> usize {
        match slot {
            Some(slot) => self.slots.server(slot),
            None if self.shared.is_cluster == Some(true) && self.servers[0].is_away() => {
                self.slots.servers().find(|&other| !self.servers[other].is_away()).unwrap_or(0)
            }
            None => 0,
        }
    }

    /// While requests wait for a server that is away, asks others, one after the other, who has which slots: it may be
    /// one of them by now.
    fn seek(&mut self, now: Instant) {
        let is_missed = |connection: &Connection| connection.is_away() && !connection.outbox.is_empty();
        if self.known == 1 || self.shared.is_cluster == Some(false) || !self.servers.iter().any(is_missed) {
            if self.seek_at.take().is_some() {
                self.seeks = 0;
                self.servers.iter_mut().for_each(|connection| connection.is_sought = false);
            }
            return;
        }
        if self.seek_at.is_some_and(|at| at > now) {
            return;
        }
        self.seek_at = now.checked_add((SEEK_MIN * (1 << self.seeks.min(8))).min(SEEK_MAX));
        self.seeks += 1;
        let may_tell = |connection: &Connection| {
            !connection.apart && !is_missed(connection) && matches!(connection.address, Address::Tcp { .. })
        };
        let count = self.servers.len();
        let mut others = (1..=count).map(|nth| (self.sought + nth) % count);
        let Some(other) = others.find(|&at| may_tell(&self.servers[at])) else { return };
        self.sought = other;
        if self.servers[other].is_up() {
            self.ask_for_map(other);
        } else {
            self.servers[other].is_sought = true;
        }
        self.servers[other].flush(&mut self.shared, now);
    }

    /// Hands what was held back for a server, or waits for one that is away, to those that have the keys, now that one
    /// has told who they are.
    fn spread(&mut self, from: usize) {
        let connection = &self.servers[from];
        let (is_held, is_apart) = (connection.outbox.is_held(), connection.apart);
        if !is_held && !connection.is_away() {
            return;
        }
        let is_at_home = |id: RequestId| {
            let server = self.shared.requests.get(id).map_or(from, |request| self.server_for(request.slot));
            self.servers[server].address == connection.address
        };
        if !is_held && connection.outbox.ids().all(is_at_home) {
            return;
        }
        let outbox = &mut self.servers[from].outbox;
        let taken = if is_held { outbox.take_held() } else { Some(outbox.clear()) };
        let Some((waiting, bytes)) = taken else { return };
        self.shared.pending_bytes -= bytes;
        for Returned { id, wire, .. } in waiting {
            let (Some(wire), Ok(request)) = (wire, self.shared.requests.get(id)) else { continue };
            let mut server = self.server_for(request.slot);
            if is_apart {
                server = self.apart(server).expect("the one that it has left is free");
            }
            if let Some(request) = self.shared.requests.in_flight_mut(id) {
                let outbox = &mut self.servers[server].outbox;
                self.shared.pending_bytes += outbox.push_wire(Some(id), wire);
                (request.server, request.number) = (server, outbox.number());
            }
        }
    }

    fn redirect(&mut self, redirected: Redirected, now: Instant) {
        let Redirected { id, wire, redirect, text } = redirected;
        let target = self.redirect_target(id, &redirect);
        let Some(request) = self.shared.requests.in_flight_mut(id) else { return };
        request.resends += 1;
        match (wire, target) {
            (Some(wire), Some(server)) if request.resends <= self.shared.resends_max => {
                request.server = server;
                let connection = &mut self.servers[server];
                if redirect.ask {
                    let asking = Wire { bytes: ASKING.to_vec(), lent: Vec::new() };
                    self.shared.pending_bytes += connection.outbox.push_wire(None, asking);
                }
                self.shared.pending_bytes += connection.outbox.push_wire(Some(id), wire);
                request.number = connection.outbox.number();
                connection.flush(&mut self.shared, now);
            }
            _ => {
                let text = String::from_utf8_lossy(&text).into_owned();
                self.shared.requests.complete(id, Err(Error::Redirected(text)), None);
            }
        }
    }

    /// The server that a redirection names; that of MOVED has the slot from now on.
    fn redirect_target(&mut self, id: RequestId, redirect: &crate::slots::Redirect) -> Option<usize> {
        let from = self.shared.requests.get(id).ok()?.server;
        let address = address_from(&self.servers[from].address, &redirect.host, redirect.port)?;
        let server = self.server_at(address)?;
        // From now on what was lent may be needed once more.
        self.shared.gives_back = false;
        self.shared.is_cluster = Some(true);
        if !redirect.ask {
            self.slots.assign(redirect.slot, server);
            if !self.shared.map_is_asked {
                self.ask_for_map(server);
            }
        }
        if self.servers[from].apart { self.apart(server) } else { Some(server) }
    }

    /// Asks a server who has which slots: where one has moved, others may have, too.
    fn ask_for_map(&mut self, server: usize) {
        self.shared.map_is_asked = true;
        let ask = Wire { bytes: ASK_FOR_MAP.to_vec(), lent: Vec::new() };
        self.shared.pending_bytes += self.servers[server].outbox.push_wire(None, ask);
    }

    /// The server at an address, which may be a new one; `None` if it would be one too many.
    fn server_at(&mut self, address: Address) -> Option<usize> {
        let known = self.servers.iter().position(|known| !known.apart && known.address == address);
        if known.is_some() || self.known == SERVERS_MAX {
            return known;
        }
        self.known += 1;
        self.servers.push(Connection::new(address, self.shared.reply_bytes_max));
        Some(self.servers.len() - 1)
    }

    fn time_out(&mut self, now: Instant) {
        for id in self.shared.requests.overdue(now) {
            let Ok(request) = self.shared.requests.get(id) else { continue };
            let server = request.server;
            let cause = self.servers[server].waits_for();
            if self.abandon(id, |executed| Error::TimedOut { executed, cause }) == Some(Executed::Unknown)
                && let Some(timeout) = self.request_timeout
            {
                self.close_if_silent(server, timeout / 2, now);
            }
        }
        for server in 0..self.servers.len() {
            if let Some(timeout) = self.request_timeout
                && self.silent_at(server).is_some_and(|at| at <= now)
            {
                self.close_if_silent(server, timeout, now);
            }
        }
    }

    /// When a server has been silent for too long that owes a reply which nobody waits for any more, so that no request's time-out tells of it.
    fn silent_at(&self, server: usize) -> Option<Instant> {
        let connection = &self.servers[server];
        if !connection.is_up()
            || !connection.outbox.front_is_begun()
            || self.waits(connection.outbox.front()?)
        {
            return None;
        }
        connection.heard.checked_add(self.request_timeout?)
    }

    /// Whether somebody waits for a reply.
    fn waits(&self, id: Option<RequestId>) -> bool {
        id.is_some_and(|id| self.shared.requests.get(id).is_ok_and(|request| request.outcome.is_none()))
    }

    /// A server that owes a reply and has sent nothing for so long is taken for gone; but not while the next reply is one that may take any time.
    fn close_if_silent(&mut self, server: usize, silence: Duration, now: Instant) {
        let connection = &mut self.servers[server];
        if !connection.is_up() || connection.heard + silence > now {
            return;
        }
        // It may have arrived and not been read.
        connection.readable(&mut self.shared, now);
        let connection = &self.servers[server];
        let Some(front) = connection.outbox.front().filter(|_| connection.outbox.front_is_begun()) else {
            return;
        };
        let is_untimed = |id| self.shared.requests.get(id).is_ok_and(|request| request.deadline.is_none());
        if connection.is_up()
            && connection.heard + silence <= now
            && !(self.waits(front) && front.is_some_and(is_untimed))
        {
            self.servers[server].down("the server was silent for too long", &mut self.shared, now);
        }
    }

    /// Ends a request without its reply; tells whether it was executed.
    fn abandon(&mut self, id: RequestId, error: impl FnOnce(Executed) -> Error) -> Option<Executed> {
        let request = self.shared.requests.in_flight_mut(id)?;
        let connection = &mut self.servers[request.server];
        let begun = connection.outbox.is_begun(id, request.number);
        self.shared.pending_bytes -= connection.outbox.abandon(id, request.number);
        // The rest of what was begun will be sent.
        let executed = if begun { Executed::Unknown } else { Executed::No };
        self.shared.requests.complete(id, Err(error(executed)), None);
        if begun && connection.apart && connection.outbox.len() == 1 {
            // The server may never reply to it, and would take an element for nobody.
            connection.down("the request was called off", &mut self.shared, Instant::now());
        }
        Some(executed)
    }

    pub fn cancel(&mut self, id: RequestId) -> Result<(), Error> {
        if self.shared.requests.get(id)?.outcome.is_some() {
            return Ok(());
        }
        self.abandon(id, |executed| Error::Cancelled { executed });
        self.poller.tell_completions(self.shared.requests.has_completions());
        Ok(())
    }

    pub fn state(&self, id: RequestId) -> Result<State, Error> {
        Ok(self.shared.requests.get(id)?.state())
    }

    pub fn outcome(&mut self, id: RequestId) -> Result<&mut Outcome, Error> {
        self.shared.requests.get_mut(id)?.outcome.as_mut().ok_or(Error::InProgress)
    }

    pub fn take(&mut self, id: RequestId) -> Result<Outcome, Error> {
        let outcome = self.shared.requests.take(id)?;
        self.poller.tell_completions(self.shared.requests.has_completions());
        Ok(outcome)
    }

    /// Lets go of a request, which is cancelled if it is not done.
    pub fn release(&mut self, id: RequestId) -> Result<(), Error> {
        let taken = match self.take(id) {
            Err(Error::InProgress) => self.cancel(id).and_then(|()| self.take(id)),
            taken => taken,
        };
        taken.map(drop)
    }

    pub fn list(&mut self, id: RequestId) -> Result<(), Error> {
        self.shared.requests.list(id)?;
        self.poller.tell_completions(self.shared.requests.has_completions());
        Ok(())
    }

    pub fn next_completion(&mut self) -> Option<RequestId> {
        let id = self.shared.requests.next_completion();
        self.poller.tell_completions(self.shared.requests.has_completions());
        id
    }

    pub fn in_flight(&self) -> usize {
        self.shared.requests.in_flight
    }

    /// Counts the requests that are done.
    pub fn outcomes(&self) -> u64 {
        self.shared.requests.outcomes
    }

    /// Has the thread end.
    pub fn close(&mut self) {
        self.closed = true;
        self.poller.wake();
    }
}

impl Command<'_> {
    /// The bytes of the arguments.
    fn bytes(&self) -> usize {
        (0..self.args.len()).filter_map(|at| self.arg_bytes(at)).map(<[u8]>::len).sum()
    }
}
