//! Clients that execute transactions at random, of which each notes what it has done.

use super::{
    ELEMENTS,
    history::{Element, Key, Op, Transaction},
    keys::{Kind, Shape, element, kind, place_alike},
    part::{Part, read, told},
    plan::{Answer, CLEAR, Delivered, Form, Plan, Refusal, SAME, may_be_executed, refused},
};
use crate::harness::{
    Client, EndOnDrop, Rng, bulk, is_error, items, text, wait_until,
    written::{PAUSE, Sockets},
};
use holdfast_resp::{Reply, write_command};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    mem,
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// Transactions on one history: the graph of more takes much memory.
const TRANSACTIONS: usize = 60_000;
/// Transactions that are sent together, at most.
const PIPELINE: u64 = 12;
/// One of so many scripts is slow, with loops of so many turns, at most.
const SLOW: u64 = 50;
const TURNS: u64 = 2_000_000;
/// One of so many clients that watch keys has such a pause before it writes, at most.
const PAUSES: u64 = 20;
const PAUSE_MS: u64 = 300;
/// Parts that a transaction has, at most.
const OPS: u64 = 4;
/// One of so many that clear a key has it expire: what it had is not known then.
const EXPIRIES: u64 = 20;
/// After how long fields of hashes expire, if they do not do so at once.
const FIELD_MS: u64 = 30;
/// Of so many entries of streams that were delivered last, any is acknowledged.
const ACKNOWLEDGED: usize = 20;
/// Values beside the keys, which drive these from memory.
const OTHERS: u64 = 500;
const OTHER_BYTES: usize = 200_000;
/// What a client looks at besides, each time, of what it keeps.
const KEPT: u64 = 3;
/// How it is told what changes, if it keeps what it reads.
const TRACKING: [&str; 4] = ["", "NOLOOP", "OPTOUT", "BCAST"];

/// What clients share.
pub struct Common<'s> {
    pub shape: Shape,
    /// Elements that were added to the keys of each place.
    pub added: Vec<AtomicU64>,
    pub connections: AtomicUsize,
    pub transactions: AtomicUsize,
    /// Those that were refused since there was no room.
    pub refused: AtomicUsize,
    pub delivered: Delivered,
    /// Of the servers.
    pub sockets: &'s Sockets,
    /// Whether they have less room than they may need.
    pub gets_full: bool,
    /// Whether a Redis leads.
    pub has_redis: bool,
    pub begun: Instant,
    pub is_over: AtomicBool,
}

impl Common<'_> {
    /// A server's port and socket.
    pub fn any_server(&self, rng: &mut Rng) -> (u16, String) {
        let sockets = self.sockets.lock().expect("no test has failed");
        let nth = rng.below(sockets.len() as u64) as usize;
        let (port, socket) = sockets.iter().nth(nth).expect("there are servers");
        (*port, socket.clone())
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// It writes, too.
    writes: bool,
    /// It asks any server. Else those that lead.
    asks_any: bool,
    /// It keeps what it has read until it is told that this has changed.
    keeps: bool,
}

pub const WRITER: Role = Role { writes: true, asks_any: false, keeps: false };
pub const CACHE: Role = Role { writes: false, asks_any: false, keeps: true };
pub const READER: Role = Role { writes: false, asks_any: true, keeps: false };
pub const READING_CACHE: Role = Role { keeps: true, ..READER };

/// A connection to a server.
struct Link {
    client: Client,
    number: usize,
    /// What was read by it, by the names of keys, if that is kept.
    kept: BTreeMap<String, Op>,
}

impl Link {
    /// The next reply, before which it forgets what the server tells to have changed.
    fn reply(&mut self) -> Option<Reply> {
        loop {
            let parts = match self.client.try_reply()? {
                Reply::Push(parts) => parts,
                reply => return Some(reply),
            };
            match &parts[..] {
                [_, Reply::Null] => self.kept.clear(),
                [_, names] => items(names).iter().for_each(|name| drop(self.kept.remove(&text(name)))),
                parts => panic!("{parts:?}"),
            }
        }
    }

    fn call(&mut self, command: &str) -> Option<Reply> {
        let mut request = Vec::new();
        write_command(&mut request, &command.split_whitespace().collect::<Vec<_>>());
        self.client.try_send(&request).ok()?;
        self.reply()
    }
}

/// A client, and what it has done.
pub struct Actor<'c> {
    common: &'c Common<'c>,
    rng: Rng,
    role: Role,
    /// Connections to servers, by their ports.
    links: BTreeMap<u16, Link>,
    /// At which server it looks for the keys of each part.
    at: Vec<u16>,
    /// The part of which its next transactions are.
    part: usize,
    /// What it is to have executed next, and where: its keys have gone there, though that one does not own them yet.
    asks: Option<(u16, Plan<'c>)>,
    pub done: Vec<Transaction>,
}

impl<'c> Actor<'c> {
    pub fn new(common: &'c Common<'c>, rng: Rng, role: Role) -> Actor<'c> {
        let (links, at) = (BTreeMap::new(), vec![0; common.shape.parts()]);
        Actor { common, rng, role, links, at, part: 0, asks: None, done: Vec::new() }
    }

    fn place(&mut self) -> usize {
        let places = self.common.shape.places_of(self.part);
        places.start + self.rng.below(places.len() as u64) as usize
    }

    fn add(&mut self) -> Op {
        let place = self.place();
        let nth = self.common.added[place].fetch_add(1, Relaxed);
        let key = self.common.shape.key(place, nth / ELEMENTS);
        let element = element(key, nth % ELEMENTS);
        if kind(key) == Kind::Value { Op::Set(key, element) } else { Op::Add(key, element) }
    }

    /// What takes an element of a key, if elements of it are taken; else what adds one.
    fn take(&mut self) -> Op {
        let place = self.place();
        let key = self.key(place);
        match kind(key) {
            kind if !kind.can_take() => self.add(),
            Kind::Bin => Op::Take(key, Some(self.recent(key))),
            _ => Op::Take(key, None),
        }
    }

    /// What takes an element of one of two keys, if they are such that the first one tells, or has it expire.
    fn take_any(&mut self) -> Part {
        let place = self.place();
        let other = place_alike(place, self.common.shape.places_of(self.part), &mut self.rng);
        let keys = [place, other].map(|place| self.key(place));
        match kind(keys[0]) {
            Kind::Queue | Kind::Ranking if keys[0] != keys[1] => Part::TakeAny(keys),
            // A Redis before 7.4 has no fields that expire.
            Kind::Bin if !self.common.has_redis => {
                let after_ms = if self.rng.one_in(2) { FIELD_MS } else { 0 };
                Part::Expire(keys[0], self.recent(keys[0]), after_ms)
            }
            _ => Part::Op(self.take()),
        }
    }

    /// What gives an entry of a stream to its group, or has it acknowledge or claim what it was given.
    fn deliver(&mut self) -> Part {
        let shape = self.common.shape;
        if self.rng.one_in(3) {
            let all = self.common.delivered.lock().expect("no test has failed");
            let of_part = all.iter().rev().filter(|(stream, ..)| shape.part(*stream) == self.part);
            let some: Vec<_> = of_part.take(ACKNOWLEDGED).collect();
            if !some.is_empty() {
                let (stream, element, id) = some[self.rng.below(some.len() as u64) as usize].clone();
                return Part::Acknowledge(stream, element, id);
            }
        }
        let places = shape.places_of(self.part);
        let streams: Vec<usize> = places.filter(|place| kind(*place) == Kind::Stream).collect();
        let place = streams[self.rng.below(streams.len() as u64) as usize];
        let stream = self.key(place);
        if self.rng.one_in(3) { Part::Claim(stream) } else { Part::Deliver(stream) }
    }

    /// What moves an element from a key to a later one, if elements of it are moved; else what takes one.
    fn move_(&mut self) -> Part {
        let place = self.place();
        let (from, shape) = (self.key(place), self.common.shape);
        let alike = place_alike(place, shape.places_of(self.part), &mut self.rng);
        let to = self.key(alike);
        if !kind(from).can_move() || from >= to {
            return Part::Op(self.take());
        }
        let origin = self.origin(from);
        Part::Move(from, to, self.recent(origin))
    }

    /// The key, or one from which elements may have been moved to it.
    fn origin(&mut self, key: Key) -> Key {
        let shape = self.common.shape;
        let alike = place_alike(shape.place(key), shape.places_of(self.part), &mut self.rng);
        let other = self.key(alike);
        if kind(key).can_move() && other < key && self.rng.one_in(3) { other } else { key }
    }

    /// An element that was added lately where a key has its place, or is next.
    fn recent(&mut self, key: Key) -> Element {
        let last = self.common.added[self.common.shape.place(key)].load(Relaxed) % ELEMENTS;
        element(key, last.saturating_sub(self.rng.below(6)))
    }

    /// A key that is written now, or was before.
    fn key(&mut self, place: usize) -> Key {
        let nth = self.common.added[place].load(Relaxed) / ELEMENTS;
        self.common.shape.key(place, if self.rng.one_in(4) { self.rng.below(nth + 1) } else { nth })
    }

    fn read(&mut self) -> Op {
        let place = self.place();
        let key = self.key(place);
        if kind(key).can_look() && self.rng.one_in(2) {
            let origin = self.origin(key);
            return Op::Look(key, self.recent(origin), false);
        }
        read(key)
    }

    fn any_part(&mut self) -> Part {
        match self.rng.below(16) {
            0..4 if self.role.writes => Part::Op(self.add()),
            4 | 5 if self.role.writes => Part::Op(self.take()),
            6 if self.role.writes => self.take_any(),
            7 if self.role.writes => self.move_(),
            8 if self.role.writes => self.deliver(),
            _ => Part::Op(self.read()),
        }
    }

    fn plan_of(&self, form: Form, parts: Vec<Part>) -> Plan<'c> {
        let Common { shape, delivered, .. } = self.common;
        Plan { form, parts, same: Vec::new(), clears: None, shape: *shape, asks: false, delivered }
    }

    fn plan(&mut self) -> Plan<'c> {
        let count = 1 + self.rng.below(OPS);
        let (form, parts) = match self.rng.below(5) {
            0 | 1 => (Form::Single, vec![self.any_part()]),
            2 => {
                let places = self.common.shape.places_of(self.part);
                let places: Vec<usize> = places.filter(|place| kind(*place).is_string()).collect();
                let parts = (0..count).map(|_| {
                    let place = places[self.rng.below(places.len() as u64) as usize];
                    Part::Op(read(self.key(place)))
                });
                (Form::Mget, parts.collect())
            }
            3 => (Form::Multi, (0..count).map(|_| self.any_part()).collect()),
            _ => {
                let turns = if self.rng.one_in(SLOW) { self.rng.below(TURNS) } else { 0 };
                (Form::Script(turns), (0..count).map(|_| self.any_part()).collect())
            }
        };
        let is_whole = matches!(form, Form::Multi | Form::Script(_));
        let same = if is_whole { self.same(parts.len()) } else { Vec::new() };
        let mut plan = Plan { same, ..self.plan_of(form, parts) };
        let may_clear = |part: &Part| matches!(part, Part::Op(Op::Read(key, _)) if kind(*key).can_take());
        if self.role.writes
            && is_whole
            && self.rng.one_in(2)
            && let Some(after) = plan.parts.iter().position(may_clear)
        {
            let at_once = 1 + self.rng.below(CLEAR.len() as u64 - 1) as usize;
            plan.clears = Some((after, if self.rng.one_in(EXPIRIES) { 0 } else { at_once }));
        }
        plan
    }

    /// What leaves keys as they are, besides so many parts of a transaction.
    fn same(&mut self, parts: usize) -> Vec<(usize, Key, usize)> {
        // They write much more than their arguments, and may be stopped half-way by a disk that is full.
        if !self.role.writes || self.common.gets_full || !self.rng.one_in(4) {
            return Vec::new();
        }
        let one = |_| {
            let place = self.place();
            let how = self.rng.below(SAME.len() as u64) as usize;
            (self.rng.below(parts as u64) as usize, self.key(place), how)
        };
        (0..2).map(one).collect()
    }

    /// Notes what has become of a transaction that has ended now.
    fn note(&mut self, connection: usize, began: Duration, plan: &Plan, answer: &Answer) {
        let common = self.common;
        let (ended, ops) = match answer {
            Answer::Done(ops) => (Some(common.begun.elapsed()), ops.clone()),
            Answer::Refused(why) => {
                common.refused.fetch_add(usize::from(matches!(why, Refusal::Full)), Relaxed);
                return;
            }
            Answer::Lost => (None, plan.lost()),
        };
        if ops.is_empty() {
            return;
        }
        let is_current = !self.role.asks_any;
        if ended.is_some() {
            let later = plan.taken_later().into_iter();
            let as_one = |ops| Transaction { began, ended: None, connection, is_current, ops };
            self.done.extend(later.map(as_one));
        }
        self.done.push(Transaction { began, ended, connection, is_current, ops });
        if common.transactions.fetch_add(1, Relaxed) >= TRANSACTIONS {
            common.is_over.store(true, SeqCst);
        }
    }

    fn any_server(&mut self) -> u16 {
        self.common.any_server(&mut self.rng).0
    }

    /// A connection to a server that leads, or to any if it may be any.
    fn connect(&mut self, server: u16) -> Option<Link> {
        let socket = self.common.sockets.lock().expect("no test has failed").get(&server)?.clone();
        let client = Client::connect(&socket).ok()?;
        let number = self.common.connections.fetch_add(1, Relaxed);
        let mut link = Link { client, number, kept: BTreeMap::new() };
        let Reply::Array(role) = link.call("ROLE")? else { return None };
        let mut sets_up = Vec::new();
        if self.role.asks_any && self.common.shape.has_tags {
            sets_up.push("READONLY".to_owned());
        }
        if self.role.keeps {
            let how = TRACKING[self.rng.below(TRACKING.len() as u64) as usize];
            sets_up.extend(["HELLO 3".to_owned(), format!("CLIENT TRACKING ON {how}")]);
        }
        for command in sets_up {
            if is_error(&link.call(&command)?, "") {
                return None;
            }
        }
        let leads = role[0] == bulk("master");
        // A Redis forgets who has waited for what it reads, and does not tell it of changes.
        let is_told = !(leads && self.common.has_redis);
        let may_ask = (self.role.asks_any || leads) && (is_told || !self.role.keeps);
        may_ask.then_some(link)
    }

    /// Sees that all that is kept is still there, soon after nobody writes any more.
    fn look_at_kept(&mut self) {
        for (server, mut link) in mem::take(&mut self.links) {
            // What it has not been told of; a server that has gone tells nothing.
            let mut outdated = || {
                link.call("PING")?;
                let mut other = self.connect(server)?;
                for (name, kept) in &link.kept {
                    let reply = other.call(&self.common.shape.command(&read(kept.key())))?;
                    if is_error(&reply, "") {
                        continue;
                    }
                    let (now, kept) = (sorted(told(kept, &reply)), sorted(kept.clone()));
                    if now != kept {
                        return Some(format!("{name} at {server}: {kept:?}, and now {now:?}"));
                    }
                }
                None
            };
            let found = RefCell::new(None);
            wait_until(
                || format!("it is told that what it has kept has changed: {:?}", found.borrow()),
                || {
                    *found.borrow_mut() = outdated();
                    found.borrow().is_none()
                },
            );
        }
    }

    /// Executes transactions until that is over.
    pub fn run(&mut self) {
        let common = self.common;
        let _end = EndOnDrop(&common.is_over);
        while !common.is_over.load(Relaxed) {
            if self.asks.is_none() {
                self.part = self.rng.below(common.shape.parts() as u64) as usize;
            }
            if self.asks.is_none() && self.role.writes && self.rng.one_in(5) {
                self.execute(Actor::watch);
            } else {
                let count = 1 + self.rng.below(PIPELINE);
                let plans = (0..count).map(|_| self.plan()).collect();
                self.execute(|actor, link| actor.send(link, plans));
            }
        }
        if self.role.keeps {
            self.look_at_kept();
        }
    }

    /// Has something executed at the server where the keys of a part are looked for, and goes by the answer; or first what it asks for elsewhere.
    fn execute(&mut self, f: impl FnOnce(&mut Self, &mut Link) -> Answer) {
        let (server, asked) = match self.asks.take() {
            Some((server, plan)) => (server, Some(plan)),
            None => (self.at[self.part], None),
        };
        let Some(mut link) = self.links.remove(&server).or_else(|| self.connect(server)) else {
            self.at[self.part] = self.any_server();
            return thread::sleep(PAUSE);
        };
        let answer = match asked {
            Some(plan) => self.send(&mut link, vec![plan]),
            None => f(self, &mut link),
        };
        if !matches!(answer, Answer::Lost) {
            self.links.insert(server, link);
        }
        match answer {
            Answer::Done(_) | Answer::Refused(Refusal::Changed | Refusal::Ask(_)) => {}
            Answer::Refused(Refusal::Moved(port)) if !self.role.asks_any => {
                self.at[self.part] = port;
            }
            _ => {
                self.at[self.part] = self.any_server();
                thread::sleep(PAUSE);
            }
        }
    }

    /// Sends some transactions together; the answer to one that was not executed, if there is one.
    fn send(&mut self, link: &mut Link, plans: Vec<Plan<'c>>) -> Answer {
        let mut request = Vec::new();
        plans.iter().for_each(|plan| plan.write(&mut request));
        let began = self.common.begun.elapsed();
        let mut last = match link.client.try_send(&request) {
            Ok(()) => Answer::Done(Vec::new()),
            Err(_) => Answer::Lost,
        };
        for plan in plans {
            let mut answer = if let Answer::Lost = last { Answer::Lost } else { plan.read(|| link.reply()) };
            if let Answer::Done(found) = &mut answer
                && self.role.keeps
            {
                self.keep(link, found);
            }
            self.note(link.number, began, &plan, &answer);
            if let Answer::Refused(Refusal::Ask(port)) = answer {
                self.asks = Some((port, Plan { asks: true, ..plan }));
            }
            if !matches!(answer, Answer::Done(_)) {
                last = answer;
            }
        }
        last
    }

    /// Keeps what a transaction has found. Of what is still kept some is added to it, unless that may be of another moment: at servers that follow,
    /// clients are told of a change when it can be seen already.
    fn keep(&mut self, link: &mut Link, found: &mut Vec<Op>) {
        let shape = self.common.shape;
        for op in &*found {
            if let Op::Read(key, _) | Op::Get(key, _) = op {
                link.kept.insert(shape.name(*key), op.clone());
            }
        }
        let kept: Vec<&Op> = link.kept.values().filter(|op| shape.part(op.key()) == self.part).collect();
        if !self.role.asks_any && !kept.is_empty() {
            let any = |_| kept[self.rng.below(kept.len() as u64) as usize].clone();
            found.extend((0..KEPT).map(any));
        }
    }

    /// Reads keys, and then adds elements to some if those that were read have not changed.
    fn watch(&mut self, link: &mut Link) -> Answer {
        let (began, shape) = (self.common.begun.elapsed(), self.common.shape);
        let reads: Vec<Op> = (0..1 + self.rng.below(OPS)).map(|_| self.read()).collect();
        let mut found = Vec::new();
        let commands: Vec<String> = reads.iter().map(|read| shape.command(read)).collect();
        let name = |command: &String| command.split_whitespace().nth(1).expect("a name").to_owned();
        let watch = format!("WATCH {}", commands.iter().map(name).collect::<Vec<_>>().join(" "));
        let Some(reply) = link.call(&watch) else { return Answer::Lost };
        if let Some(refusal) = refused(&reply) {
            return Answer::Refused(refusal);
        }
        for (read, command) in reads.iter().zip(&commands) {
            let reply = link.call(command).filter(|reply| !may_be_executed(reply));
            let Some(reply) = reply else { return Answer::Lost };
            if let Some(refusal) = refused(&reply) {
                return link.call("UNWATCH").map_or(Answer::Lost, |_| Answer::Refused(refusal));
            }
            found.push(told(read, &reply));
        }
        if self.rng.one_in(PAUSES) {
            thread::sleep(Duration::from_millis(self.rng.below(PAUSE_MS)));
        }
        let parts: Vec<Part> = (0..1 + self.rng.below(OPS)).map(|_| self.any_part()).collect();
        let same = self.same(parts.len());
        let plan = Plan { same, ..self.plan_of(Form::Multi, parts) };
        let mut request = Vec::new();
        plan.write(&mut request);
        let sent = link.client.try_send(&request);
        let answer = sent.map_or(Answer::Lost, |()| plan.read(|| link.reply()));
        let answer = match answer {
            Answer::Done(ops) => Answer::Done([found, ops].concat()),
            answer => answer,
        };
        self.note(link.number, began, &plan, &answer);
        answer
    }

    /// Reads all that keys have in the end.
    pub fn read_all(&mut self) {
        let common = self.common;
        let keys = common.added.iter().enumerate().flat_map(|(place, added)| {
            (0..=added.load(Relaxed) / ELEMENTS).map(move |nth| common.shape.key(place, nth))
        });
        for key in keys {
            self.part = common.shape.part(key);
            let claim = Some(Part::Claim(key)).filter(|_| kind(key) == Kind::Stream);
            for part in [Part::Op(read(key))].into_iter().chain(claim) {
                let before = self.done.len();
                let is_read = || {
                    let plan = self.plan_of(Form::Single, vec![part.clone()]);
                    self.execute(|actor, link| actor.send(link, vec![plan]));
                    self.done.len() > before
                };
                wait_until(|| format!("key {key} is read"), is_read);
            }
        }
    }
}

/// With what was found of an order.
fn sorted(mut op: Op) -> Op {
    if let Op::Read(_, found) = &mut op {
        found.sort_unstable();
    }
    op
}

/// Writes and reads values, which drive others from memory, and fill the disk until it removes them.
pub fn drive_out(common: &Common, rng: Rng) {
    let _end = EndOnDrop(&common.is_over);
    let (mut actor, mut removes) = (Actor::new(common, rng, WRITER), false);
    // It takes room also where values are compressed.
    let value: String = (0..OTHER_BYTES).map(|_| char::from(b'0' + actor.rng.below(64) as u8)).collect();
    while !common.is_over.load(Relaxed) {
        thread::sleep(PAUSE);
        let server = actor.any_server();
        let Some(mut link) = actor.connect(server) else { continue };
        while !common.is_over.load(Relaxed) {
            let nth = actor.rng.below(OTHERS);
            let command = match actor.rng.below(4) {
                0 => format!("GET other:{nth}"),
                _ if removes => format!("DEL other:{nth}"),
                _ => format!("SET other:{nth} {value}"),
            };
            let Some(reply) = link.call(&command) else { break };
            // Others are to find it full, too.
            let often = if is_error(&reply, "OOM") { 30 } else { 3 * OTHERS };
            removes ^= actor.rng.one_in(often);
            thread::sleep(Duration::from_millis(1));
        }
    }
}
