//! Many clients at once on a machine that fails: calls of all commands that write, alone, in pipelines, transactions and
//! scripts, clients that wait for keys, that listen and that track keys, and between them what the store does by itself,
//! step by step. Meanwhile a device fails, is full or lies, or the power goes.
//!
//! While something is not durable, nothing may arrive that tells of it. A server whose log has failed refuses all writes,
//! goes on to read what is durable, and lets nobody wait. One that was full goes on when there is room. What a start finds
//! is what some first part of the commands has left, with all that was acknowledged; only a device that lies may cost that,
//! and then the server refuses to start or has an older state.
//!
//! `HOLDFAST_SEEDS=1000` runs the long form, `HOLDFAST_SEED=n` one seed.

use super::{
    World,
    power_cut::{DATABASES, State, calls::Template, name, state},
    served::{Arrived, Line, Served, Words},
};
use crate::{
    command::{Command, Flags},
    keys::each_key,
    table::{Lookup, TABLE},
};
use holdfast_fuzz::Rng;
use holdfast_io::{Error, Fault};
use holdfast_resp::{OwnedArgs, Reply};
use holdfast_store::{Io, Options, SimIo, Store};
use std::{collections::BTreeSet, env, mem, rc::Rc, time::Duration};

/// Bytes that the machine's medium has.
const CAPACITY: u64 = 1 << 40;
const CALLERS: usize = 4;
const POPPERS: usize = 2;
/// What pushes add to and clients wait for; no other command uses these keys.
const AWAITED: [&str; 5] = ["q:0", "q:1", "q:2", "y:0", "w:0"];
const PUSHES: [&str; 4] = ["rpush q:0 a b", "lpush q:1 a", "zadd y:0 1 a 2 b", "xadd w:0 * f v"];
const POPS: [&str; 6] = [
    "blpop q:0 q:1 0",
    "brpop q:1 0.05",
    "blmove q:0 q:2 left right 0",
    "blmpop 0 2 q:0 q:1 left count 2",
    "bzpopmin y:0 0.02",
    "xread block 0 streams w:0 $",
];
const READS: [&str; 7] =
    ["dump $k", "type $k", "exists $k $k", "strlen $s", "hgetall $h", "mget $s $s", "llen q:0"];
const SCRIPT: &str = "for _, key in ipairs(KEYS) do redis.pcall('rpush', key, ARGV[1]) end return redis.call('publish', 'news', ARGV[2])";
/// Writes of all kinds, none of which a server may carry out whose log has failed.
const WRITES: [&str; 8] = [
    "set s:0 x",
    "del s:0 l:0 h:0",
    "flushall",
    "rpush q:0 x",
    "swapdb 0 1",
    "function flush",
    "expire s:0 100",
    "eval return(redis.call('set',KEYS[1],'x')) 1 s:0",
];

/// What goes wrong in a life.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mischief {
    None,
    Cut,
    /// A device says that it could not.
    Fails,
    /// The medium is full for a while.
    Full,
    /// A device says that it did, and did not.
    Lies,
}

fn arrange(sim: &SimIo, rng: &mut Rng) -> Mischief {
    let file = ["log/", "log/", "heap", "superblock"][rng.index(4)];
    let fault = match rng.below(16) {
        0..2 => return Mischief::None,
        2..5 => {
            sim.crash_after(1 + rng.below(120));
            return Mischief::Cut;
        }
        5 | 6 => return Mischief::Full,
        7 => Fault::sync(file),
        8..12 => Fault::write(file),
        12 => Fault::write(file).with_error([libc::ENOSPC, libc::EDQUOT][rng.index(2)]),
        13 => Fault::read("log/"),
        _ => {
            let file = ["log/", "superblock"][rng.index(2)];
            let lies = [Fault::lost_write, Fault::misdirected_write, Fault::short_write];
            sim.fault(lies[rng.index(3)](file).after(rng.below(15)));
            return Mischief::Lies;
        }
    };
    // The log is written to more often than the others.
    let fault = fault.after(if file == "log/" { rng.below(20) } else { rng.below(6) });
    sim.fault(if rng.one_in(3) { fault.sticky() } else { fault });
    Mischief::Fails
}

/// A state that a cut may leave.
struct Reached {
    state: Rc<State>,
    /// The ends of the log with which it was seen first and last; `NEVER`: it was between two looks.
    first: u64,
    last: u64,
    /// Something came to these keys, and a waiting client may have taken it: they may hold anything.
    loose: &'static [&'static str],
}

const NEVER: u64 = u64::MAX;

impl Reached {
    fn seen(state: &Rc<State>, end: u64) -> Reached {
        Reached { state: state.clone(), first: end, last: end, loose: &[] }
    }

    fn between(state: Rc<State>, loose: &'static [&'static str]) -> Reached {
        Reached { state, first: NEVER, last: NEVER, loose }
    }

    fn is(&self, found: &State, now_ms: u64) -> bool {
        let loose = |state: &State| {
            let mut state = unexpired(state, now_ms);
            self.loose.iter().for_each(|key| drop(state.remove(&name(0, key.as_bytes()))));
            state
        };
        loose(&self.state) == loose(found)
    }
}

fn is_expired(entry: &(Reply, Reply), now_ms: u64) -> bool {
    matches!(entry.1, Reply::Int(at) if at >= 0 && at as u64 <= now_ms)
}

fn unexpired(state: &State, now_ms: u64) -> State {
    let entries = state.iter().filter(|(_, entry)| !is_expired(entry, now_ms));
    entries.map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

fn words(text: &str) -> Words {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A command and its keys.
fn keys_of(words: &Words) -> Option<(&'static Command, Vec<&[u8]>)> {
    let args = OwnedArgs::from_iter(words);
    let Lookup::Found(id) = TABLE.lookup(args.args()) else { return None };
    let command = TABLE.command(id);
    let mut keys = Vec::new();
    each_key(command, args.args(), |index, _| keys.push(words[index].as_slice())).ok()?;
    Some((command, keys))
}

/// Whether a command may wait for a key.
fn waits(words: &Words) -> bool {
    keys_of(words).is_some_and(|(command, _)| command.flags.has(Flags::BLOCKING))
}

/// What the histories came across.
#[derive(Default, Debug)]
struct Tally {
    replies: u64,
    /// Of them those that came while something was not durable.
    early: u64,
    pushes: u64,
    pops: u64,
    full: u64,
    failures: u64,
    reads_after_failure: u64,
    restarts: u64,
    refused: u64,
    /// Lives that ended when not all could be read that was done last.
    blind: u64,
}

/// One life of a server.
struct Life<'h> {
    sim: SimIo,
    served: Served,
    rng: &'h mut Rng,
    templates: &'h [Template],
    tally: &'h mut Tally,
    callers: Vec<Line>,
    poppers: Vec<Line>,
    listeners: Vec<Line>,
    /// What could be read before the server ran last, and after.
    before: Rc<State>,
    now: Rc<State>,
    /// From the durable one on.
    reached: Vec<Reached>,
    /// The first of them is what is durable now, not just a part of it.
    is_durable_known: bool,
    /// Everything below was durable when the server ran last.
    durable_end: u64,
    /// All before these.
    past: Vec<Reached>,
}

impl<'h> Life<'h> {
    fn store(&self) -> &Store {
        self.served.world.store()
    }

    fn is_cut(&self) -> bool {
        self.sim.free_bytes().is_err()
    }

    fn has_failed(&self) -> bool {
        self.store().log().failed().is_some()
    }

    fn lines(&mut self) -> impl Iterator<Item = &mut Line> {
        self.callers.iter_mut().chain(&mut self.poppers).chain(&mut self.listeners)
    }

    fn connect(&mut self) {
        self.callers = (0..CALLERS).map(|_| self.served.connect()).collect();
        self.poppers = (0..POPPERS).map(|_| self.served.connect()).collect();
        for setup in [
            &["subscribe news", "psubscribe __keyspace@*__:*"][..],
            &["client tracking on"],
            &["client tracking on bcast prefix s prefix l"],
        ] {
            let mut line = self.served.connect();
            line.send(["hello 3"].iter().chain(setup).map(|text| words(text)));
            self.served.run();
            line.receive();
            // What answers SUBSCRIBE looks as if nobody had asked.
            line.waiting.clear();
            self.listeners.push(line);
        }
    }

    /// Lets the server run, looks at what it has done and at what has arrived. Each of `keys` was changed by one command of a
    /// pipeline, in this order. `None`: not all can be read.
    fn turn(&mut self, keys: &[Vec<u8>], loose: &'static [&'static str]) -> Option<()> {
        self.served.run();
        let durable = self.store().log().durable();
        let now = Rc::new(state(&mut self.served.world)?);
        if self.store().log().durable() != durable {
            // What lately moved had to be written to be read.
            self.served.run();
        }
        self.before = mem::replace(&mut self.now, now);
        self.note_states(keys, loose);
        let has_moved = self.note_durable();
        for arrived in self.receive() {
            match arrived.answers.is_empty() {
                true => self.tally.pushes += 1,
                false => self.tally.replies += 1,
            }
            if !self.is_all_durable() && self.is_durable_known {
                self.check(&arrived, has_moved);
            }
        }
        Some(())
    }

    fn is_all_durable(&self) -> bool {
        let log = self.store().log();
        log.durable() >= log.tail()
    }

    fn note_states(&mut self, keys: &[Vec<u8>], loose: &'static [&'static str]) {
        let end = self.store().log().tail();
        if self.before == self.now && loose.is_empty() {
            self.reached.last_mut().expect("the durable one").last = end;
            return;
        }
        let mut between = (*self.before).clone();
        for key in keys {
            for name in (0..DATABASES).map(|db| name(db, key)) {
                match self.now.get(&name) {
                    Some(entry) => between.insert(name, entry.clone()),
                    None => between.remove(&name),
                };
            }
            self.reached.push(Reached::between(Rc::new(between.clone()), &[]));
        }
        if !loose.is_empty() {
            self.reached.push(Reached::between(self.now.clone(), loose));
        }
        self.reached.push(Reached::seen(&self.now, end));
    }

    /// Takes leave of what was before the durable state; whether that is another one now.
    fn note_durable(&mut self) -> bool {
        let durable = self.store().log().durable();
        let at = self.reached.iter().rposition(|reached| reached.first <= durable).expect("the durable one");
        self.past.extend(self.reached.drain(..at));
        self.is_durable_known = durable <= self.reached[0].last || self.reached.len() == 1;
        mem::replace(&mut self.durable_end, durable) != durable
    }

    fn durable(&self) -> &Rc<State> {
        &self.reached[0].state
    }

    fn receive(&mut self) -> Vec<Arrived> {
        let is_over = self.has_failed() || self.is_cut();
        let mut arrived = Vec::new();
        for line in self.lines() {
            arrived.extend(line.receive());
            assert!(!line.is_closed || is_over, "the server has closed a connection without a reason");
            if line.is_closed {
                line.waiting.clear();
            }
        }
        arrived
    }

    /// Something has arrived while not all is durable. Unless the durable mark has moved, everything that is durable had
    /// arrived before; so it must tell of nothing that was done since.
    fn check(&mut self, arrived: &Arrived, has_moved: bool) {
        self.tally.early += 1;
        let Arrived { answers, reply } = arrived;
        let is_told = match reply {
            Reply::Error(_) => false,
            Reply::Simple(text) if text == b"QUEUED" => false,
            Reply::Push(items) => self.push_tells(items),
            // Who has waited got what nobody could have had before, or nothing, which may be from before anything was done.
            Reply::Null if answers.len() == 1 && waits(&answers[0]) => false,
            _ if answers.len() == 1 && waits(&answers[0]) => !has_moved,
            Reply::Array(replies) if replies.len() == answers.len() => {
                let mut done =
                    answers.iter().zip(replies).filter(|(_, reply)| !matches!(reply, Reply::Error(_)));
                done.any(|(words, _)| self.reply_tells(words))
            }
            _ => answers.iter().any(|words| self.reply_tells(words)),
        };
        let shown: Vec<_> =
            answers.iter().map(|words| words.join(&b' ').escape_ascii().to_string()).collect();
        let ends: Vec<_> = self.reached.iter().map(|reached| (reached.first, reached.last)).collect();
        assert!(
            !is_told,
            "{reply:?} to {shown:?} arrived before what it tells of was durable: up to {}, with states at {ends:?}",
            self.durable_end
        );
    }

    fn reply_tells(&self, words: &Words) -> bool {
        let Some((command, keys)) = keys_of(words) else { return false };
        if command.name.starts_with("function|") {
            return self.differs_at("functions");
        }
        if keys.is_empty() {
            return command.flags.has(Flags::WRITE) && self.before != self.now;
        }
        // A command that changes nothing may not have come further than its first key.
        let has_changed = |key: &[u8]| {
            (0..DATABASES).any(|db| self.now.get(&name(db, key)) != self.before.get(&name(db, key)))
        };
        let is_seen = keys.len() == 1 || keys.iter().any(|key| has_changed(key));
        keys.iter().take(if is_seen { keys.len() } else { 1 }).any(|key| self.differs(key))
    }

    fn push_tells(&self, items: &[Reply]) -> bool {
        let text = |at: usize| items.get(at).and_then(Reply::as_bytes).unwrap_or_default();
        match (text(0), items.get(1)) {
            (b"message", _) => self.before != self.now,
            (b"pmessage", _) => {
                let channel = text(2);
                let key = channel.splitn(2, |&byte| byte == b':').nth(1).unwrap_or_default();
                self.differs(key)
            }
            (b"invalidate", Some(Reply::Array(keys))) => {
                keys.iter().any(|key| self.differs(key.as_bytes().unwrap_or_default()))
            }
            (b"invalidate", _) => self.differs_at_all(),
            _ => false,
        }
    }

    /// Whether a key in some database is not now as it was before the server ran last, or is not durable as it is.
    fn differs(&self, key: &[u8]) -> bool {
        (0..DATABASES).any(|db| self.differs_at(&name(db, key)))
    }

    fn differs_at(&self, name: &str) -> bool {
        let now_ms = self.sim.now_ms();
        let [durable, before, now] = [self.durable(), &self.before, &self.now]
            .map(|state| state.get(name).filter(|entry| !is_expired(entry, now_ms)));
        durable != now || before != now
    }

    fn differs_at_all(&self) -> bool {
        let states = [self.durable(), &self.before, &self.now];
        let [durable, before, now] = states.map(|state| unexpired(state, self.sim.now_ms()));
        durable != now || before != now
    }

    fn template(&mut self, fits: impl Fn(&Words) -> bool) -> Words {
        loop {
            let template = &self.templates[self.rng.index(self.templates.len())];
            let words = template.fill(0, &mut |end| self.rng.below(end));
            if fits(&words) {
                return words;
            }
        }
    }

    fn filled(&mut self, texts: &'static [&'static str]) -> Words {
        let template = Template::new(texts[self.rng.index(texts.len())]);
        template.fill(0, &mut |end| self.rng.below(end))
    }

    /// Sends something by one of the callers.
    fn call(&mut self) -> Option<()> {
        let (mut sent, mut keys) = (Vec::new(), Vec::new());
        match self.rng.below(12) {
            0..4 => sent.push(self.template(|words| !waits(words))),
            4 | 5 => {
                for _ in 0..2 + self.rng.below(4) {
                    let words = self.template(|words| {
                        let one = keys_of(words)
                            .filter(|(_, found)| found.len() == 1 && found[0] == words[1] && !waits(words));
                        one.is_some_and(|(_, found)| !keys.iter().any(|key| key == found[0]))
                    });
                    keys.push(words[1].clone());
                    sent.push(words);
                }
            }
            6 | 7 => {
                sent.push(words("multi"));
                for _ in 0..1 + self.rng.below(4) {
                    let word = self.template(|_| true);
                    sent.push(word);
                }
                sent.push(words("publish news told"));
                sent.push(words("exec"));
            }
            8 => {
                let mut script = words("eval . 2 $l $l value told");
                script[1] = SCRIPT.into();
                for at in [3, 4] {
                    script[at] = format!("l:{}", self.rng.below(4)).into();
                }
                sent.push(script);
            }
            9 => sent.push(words(&format!("set e:{0} v px {0}00", 1 + self.rng.below(5)))),
            10 => sent.push(words("publish news plain")),
            _ => sent.push(self.filled(&READS)),
        }
        let at = self.rng.index(CALLERS);
        self.callers[at].send(sent);
        self.turn(&keys, &[])
    }

    /// Has a client wait for keys, or something come to them.
    fn wait_or_push(&mut self) -> Option<()> {
        let at = self.rng.index(POPPERS);
        if self.poppers[at].waiting.is_empty() && self.rng.one_in(2) {
            let pop = self.filled(&POPS);
            self.poppers[at].send([pop]);
        } else {
            let push = self.filled(&PUSHES);
            let caller = self.rng.index(CALLERS);
            self.callers[caller].send([push]);
            self.tally.pops += u64::from(!self.poppers[at].waiting.is_empty());
        }
        self.turn(&[], &AWAITED)
    }

    /// A piece of what the store does by itself, which nobody can see.
    fn work(&mut self) -> Option<()> {
        let store = self.served.world.worker.server.store.clone();
        let result = match self.rng.below(10) {
            0..3 => store.checkpoint(),
            3..6 => store.clean().map(drop),
            6 | 7 => store.expire(),
            8 => {
                store.sweep();
                Ok(())
            }
            _ => store.freeze(1 + self.rng.below(50_000)).map(drop),
        };
        match result {
            // As the maintenance thread does.
            Err(why) if !why.is_full() => store.log().fail(&why),
            _ => {}
        }
        self.turn(&[], &[])
    }

    fn step(&mut self) -> Option<()> {
        match self.rng.below(20) {
            0..9 => self.call(),
            9 | 10 => self.wait_or_push(),
            11 => {
                // Keys that are read are tracked.
                let read = self.filled(&READS);
                self.listeners[1].send([read]);
                self.turn(&[], &[])
            }
            12..15 => {
                // If the log fails, the server knows.
                let _ = self.store().log().commit_once();
                self.turn(&[], &[])
            }
            15..18 => self.work(),
            18 => {
                self.sim.advance_ms(self.rng.below(300));
                self.turn(&[], &[])
            }
            _ => {
                self.served.pass(Duration::from_millis(self.rng.below(100)));
                self.turn(&[], &AWAITED)
            }
        }
    }

    fn live(&mut self, mischief: Mischief) -> Option<()> {
        let full_at = if mischief == Mischief::Full { self.rng.below(30) } else { u64::MAX };
        let room_at = full_at.saturating_add(1 + self.rng.below(40));
        for step in 0..self.rng.below(110) {
            if self.is_cut() {
                return Some(());
            }
            if self.has_failed() {
                break;
            }
            if step == full_at {
                self.fill_medium();
            }
            if step == room_at {
                self.regain_room()?;
            }
            self.step()?;
        }
        if self.is_cut() {
            return Some(());
        }
        if mischief == Mischief::Full && !self.has_failed() {
            self.regain_room()?;
        }
        match self.has_failed() {
            true => self.audit_failure(),
            false if self.rng.one_in(2) => self.settle(),
            false => Some(()),
        }
    }

    fn fill_medium(&mut self) {
        self.tally.full += 1;
        let used = CAPACITY - self.sim.free_bytes().expect("the power is on").expect("it tells");
        let bytes = used + self.rng.below(600_000);
        match self.rng.one_in(2) {
            true => self.sim.set_capacity(bytes),
            false => self.sim.set_quota(bytes),
        }
    }

    /// The medium has room again: that is no failure, and all goes on.
    fn regain_room(&mut self) -> Option<()> {
        assert_eq!(self.store().log().failed(), None, "a full medium is no failure");
        self.sim.set_capacity(CAPACITY);
        self.sim.set_quota(u64::MAX);
        self.settle()?;
        let reply = self.ask(words("set s:room value"))?;
        assert_eq!(reply, Some(Reply::Simple(b"OK".to_vec())), "there is room again");
        Some(())
    }

    /// Does what is to be done until nobody waits, but for what others are to do.
    fn settle(&mut self) -> Option<()> {
        for _ in 0..50 {
            let store = self.served.world.worker.server.store.clone();
            store.log().look_for_room();
            let done =
                store.log().commit_once().and_then(|_| store.checkpoint()).and_then(|()| store.clean());
            while store.sweep() {}
            match done {
                Err(why) if !why.is_full() => store.log().fail(&why),
                _ => {}
            }
            self.turn(&[], &AWAITED)?;
            if self.is_cut() || self.callers.iter().all(|line| line.waiting.is_empty()) {
                break;
            }
        }
        self.nobody_waits_in_vain()
    }

    /// Who waits, waits for a key, until he is told not to.
    fn nobody_waits_in_vain(&mut self) -> Option<()> {
        if self.is_cut() {
            return Some(());
        }
        for line in &self.callers {
            assert!(line.waiting.is_empty(), "a client waits for ever for a reply to {:?}", line.waiting);
        }
        for at in 0..POPPERS {
            let id = self.poppers[at].id;
            self.ask(words(&format!("client unblock {id}")))?;
            let _ = self.store().log().commit_once();
            self.turn(&[], &AWAITED)?;
            let waiting = &self.poppers[at].waiting;
            assert!(waiting.is_empty() || self.is_cut(), "a client waits for ever after {waiting:?}");
        }
        Some(())
    }

    /// What a new client is answered; `None` within: its connection is closed.
    fn ask(&mut self, words: Words) -> Option<Option<Reply>> {
        let mut line = self.served.connect();
        line.send([words.clone()]);
        for _ in 0..3 {
            self.turn(&[], &[])?;
            match line.receive().pop() {
                Some(Arrived { reply, .. }) => return Some(Some(reply)),
                None if line.is_closed => return Some(None),
                None => drop(self.store().log().commit_once()),
            }
        }
        panic!("there is no answer to {}", words.join(&b' ').escape_ascii());
    }

    /// The log has failed. Writes are refused, what is durable is there, and nothing else is told.
    fn audit_failure(&mut self) -> Option<()> {
        self.tally.failures += 1;
        self.turn(&[], &AWAITED)?;
        self.nobody_waits_in_vain()?;
        let before = self.now.clone();
        for text in WRITES {
            let reply = self.ask(words(text))?;
            // A script may have looked at what is not durable before.
            if reply.is_none() && text.starts_with("eval") && !self.is_all_durable() {
                continue;
            }
            let Some(Reply::Error(error)) = &reply else { panic!("{text}: {reply:?} from a failed log") };
            assert!(error.starts_with(b"MISCONF"), "{text}: {}", error.escape_ascii());
        }
        let mut line = self.served.connect();
        line.send([words("multi"), words("set s:0 x"), words("exec")]);
        self.turn(&[], &[])?;
        let last = line.receive().pop().map(|arrived| arrived.reply);
        let is_refused =
            matches!(&last, Some(Reply::Error(text)) if text.windows(7).any(|at| at == b"MISCONF"));
        assert!(is_refused, "EXEC: {last:?} from a failed log");
        assert_eq!(self.ask(words("ping"))?, Some(Reply::Simple(b"PONG".to_vec())));
        let keys: BTreeSet<&String> = self.durable().keys().chain(self.now.keys()).collect();
        let keys: Vec<String> = keys.into_iter().filter(|key| key.starts_with("0 s:")).cloned().collect();
        for key in keys {
            let now = self.now.get(&key).map(|entry| entry.0.clone());
            let durable = self.durable().get(&key).map(|entry| entry.0.clone());
            let words = vec![b"dump".to_vec(), key.as_bytes()[2..].to_vec()];
            match self.ask(words)? {
                Some(Reply::Error(error)) => panic!("{key}: {}", error.escape_ascii()),
                Some(reply) if self.is_durable_known => {
                    let durable = durable.unwrap_or(Reply::Null);
                    assert_eq!(reply, durable, "{key} is not durable as it is told");
                    self.tally.reads_after_failure += 1;
                }
                Some(_) => {}
                None => assert!(
                    !self.is_durable_known || durable != now || !self.is_all_durable(),
                    "{key} is durable, and cannot be read"
                ),
            }
        }
        self.turn(&[], &[])?;
        let now_ms = self.sim.now_ms();
        assert_eq!(unexpired(&before, now_ms), unexpired(&self.now, now_ms), "what was refused was done");
        Some(())
    }
}

/// One life of a machine after another.
fn history(seed: u64, templates: &[Template], tally: &mut Tally) {
    let mut rng = Rng::new(seed);
    let mut sim = SimIo::new(seed);
    let options = Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        log_bytes_max: (64 << 10) * 64,
        heap_bytes_max: 32 << 20,
        memory_bytes_max: if rng.one_in(2) { 256 << 10 } else { usize::MAX },
        background: false,
        ..Options::default()
    };
    let settings = [("notify-keyspace-events", "KEA")];
    // What may be found, if anything is known, and what a device may bring back that has lied.
    let (mut reached, mut past): (Option<Vec<Reached>>, Vec<Reached>) = (None, Vec::new());
    let mut has_lied = false;
    for _ in 0..1 + rng.below(5) {
        let mut world = match World::start(&sim, &options, &settings) {
            Ok(world) => world,
            Err(why) => {
                assert!(has_lied, "the server does not start: {why}");
                assert!(matches!(why, Error::Corrupt { .. } | Error::Unusable(_)), "{why}");
                tally.refused += 1;
                return;
            }
        };
        let Some(found) = state(&mut world) else {
            assert!(has_lied, "not all can be read");
            tally.refused += 1;
            return;
        };
        let now_ms = sim.now_ms();
        if let Some(reached) = &reached {
            tally.restarts += 1;
            let mut allowed = reached.iter().chain(past.iter().filter(|_| has_lied));
            let last = &reached[0].state;
            let differs = |key: &&String| last.get(*key) != found.get(*key);
            let keys: BTreeSet<&String> = last.keys().chain(found.keys()).filter(differs).collect();
            assert!(
                allowed.any(|state| state.is(&found, now_ms)),
                "nothing has left what was found; see {keys:?}"
            );
        }
        match world.store().check() {
            Err(_) if has_lied => return,
            result => drop(result.expect("a sound store")),
        }
        let mischief = arrange(&sim, &mut rng);
        has_lied |= mischief == Mischief::Lies;
        past.extend(reached.take().into_iter().flatten());
        let found = Rc::new(found);
        let mut life = Life {
            sim: sim.clone(),
            served: Served::new(world),
            rng: &mut rng,
            templates,
            tally,
            callers: Vec::new(),
            poppers: Vec::new(),
            listeners: Vec::new(),
            before: found.clone(),
            now: found.clone(),
            reached: vec![Reached::seen(&found, 0)],
            is_durable_known: true,
            durable_end: 0,
            past: mem::take(&mut past),
        };
        life.connect();
        let is_blind = life.live(mischief).is_none();
        (reached, past) = (Some(life.reached), life.past);
        drop(life.served);
        if is_blind {
            tally.blind += 1;
            past.extend(reached.take().into_iter().flatten());
        }
        sim.clear_faults();
        // The machine fails, or only the process.
        if sim.free_bytes().is_err() || rng.one_in(2) {
            sim = sim.crash();
        }
        // A cut that has not come yet is for another life.
        sim.crash_after(NEVER >> 1);
        sim.set_capacity(CAPACITY);
        sim.set_quota(u64::MAX);
    }
}

#[test]
fn whatever_fails_nothing_is_told_that_is_not_kept_and_nobody_waits_for_ever() {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    const SEEDS: u64 = 40;
    let seeds = match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HOLDFAST_SEEDS").unwrap_or(SEEDS),
    };
    let mut templates = Template::all();
    templates.retain(|template| !template.is_of("migrate"));
    let (count, mut tally) = (seeds.end - seeds.start, Tally::default());
    for seed in seeds {
        eprintln!("HOLDFAST_SEED={seed}");
        history(seed, &templates, &mut tally);
    }
    eprintln!("{tally:?}");
    if count < SEEDS {
        return;
    }
    let Tally { replies, early, pushes, pops, full, failures, reads_after_failure, restarts, blind, .. } =
        tally;
    assert!(replies > 1000 && early > 100 && pushes > 100 && pops > 10, "{tally:?}");
    assert!(full > 4 && failures > 4 && reads_after_failure > 5, "{tally:?}");
    assert!(restarts > 20 && blind * 4 < restarts, "{tally:?}");
}
