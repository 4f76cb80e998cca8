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
    power_cut::{State, calls::Template, options, seeds, state, templates},
    seen::{Reached, Seen, keys_of, unexpired, waits, words},
    served::{Arrived, Line, Served, Words},
};
use holdfast_fuzz::Rng;
use holdfast_io::{Error, Fault};
use holdfast_resp::Reply;
use holdfast_store::{Io, SimIo, Store};
use std::{collections::BTreeSet, rc::Rc, time::Duration};

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
    seen: Seen,
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
        let now = state(&mut self.served.world)?;
        if self.store().log().durable() != durable {
            // What lately moved had to be written to be read.
            self.served.run();
        }
        self.seen.note(now, self.served.world.store(), keys, loose);
        let is_all = self.is_all_durable();
        for arrived in self.receive() {
            match arrived.answers.is_empty() {
                true => self.tally.pushes += 1,
                false => self.tally.replies += 1,
            }
            if !is_all {
                self.tally.early += 1;
                self.seen.check(&arrived);
            }
        }
        Some(())
    }

    fn is_all_durable(&self) -> bool {
        let log = self.store().log();
        log.durable() >= log.tail()
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
        let result = match self.rng.below(12) {
            10.. => {
                store.condense();
                Ok(())
            }
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
        let before = self.seen.now().clone();
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
        self.audit_reads()?;
        self.turn(&[], &[])?;
        let now_ms = self.sim.now_ms();
        assert_eq!(
            unexpired(&before, now_ms),
            unexpired(self.seen.now(), now_ms),
            "what was refused was done"
        );
        Some(())
    }

    /// Of a server whose log has failed.
    fn audit_reads(&mut self) -> Option<()> {
        let (durable, now) = (self.seen.durable().cloned(), self.seen.now().clone());
        let keys: BTreeSet<&String> = durable.iter().chain([&now]).flat_map(|state| state.keys()).collect();
        for key in keys.into_iter().filter(|key| key.starts_with("0 s:")) {
            let value = |state: &Rc<State>| state.get(key).map_or(Reply::Null, |entry| entry.0.clone());
            let read = vec![b"dump".to_vec(), key.as_bytes()[2..].to_vec()];
            match (self.ask(read)?, &durable) {
                (Some(Reply::Error(error)), _) => panic!("{key}: {}", error.escape_ascii()),
                (Some(reply), Some(durable)) => {
                    assert_eq!(reply, value(durable), "{key} is not durable as it is told");
                    self.tally.reads_after_failure += 1;
                }
                // The key, or one that shares its place among those written last, is not durable.
                (None, _) => assert!(!self.is_all_durable(), "{key} is durable, and cannot be read"),
                (Some(_), None) => {}
            }
        }
        Some(())
    }
}

/// One life of a machine after another.
fn history(seed: u64, templates: &[Template], tally: &mut Tally) {
    let mut rng = Rng::new(seed);
    let mut sim = SimIo::new(seed);
    let options = options(&mut rng);
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
        let mut life = Life {
            sim: sim.clone(),
            served: Served::new(world),
            rng: &mut rng,
            templates,
            tally,
            callers: Vec::new(),
            poppers: Vec::new(),
            listeners: Vec::new(),
            seen: Seen::found(found, past),
        };
        life.connect();
        let is_blind = life.live(mischief).is_none();
        let (may_be, been) = life.seen.into_reached();
        (reached, past) = (Some(may_be), been);
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
        sim.crash_after(u64::MAX >> 1);
        sim.set_capacity(CAPACITY);
        sim.set_quota(u64::MAX);
    }
}

#[test]
fn whatever_fails_nothing_is_told_that_is_not_kept_and_nobody_waits_for_ever() {
    const SEEDS: u64 = 40;
    let (seeds, templates) = (seeds(SEEDS), templates());
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
