//! Client-side caching at servers that follow: while clients there track keys, the leader of the set tells which ones change.
//!
//! A server that follows asks for it, again and again. The leader notes from then on what changes, and tells it in a *stream* of numbered parts, one
//! with each tick at least. What is lost shows by the next number: then no client's copy is valid. None is when a stream begins, either, since nobody has
//! noted what was written before; and as long as there is no stream, again and again.
//!
//! A client is told once a change is applied where it reads, and not before: it would read the old value again, and keep that.

use crate::{
    commit::durability::Lsn,
    push::waiting::{Queue, Waits},
};
use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, Ordering::SeqCst},
};

/// Ticks without being asked after which a leader notes nothing any more.
const ASKED_TICKS: u32 = 50;
/// Ticks without a part after which there is no stream any more for one that follows.
const SILENT_TICKS: u32 = 5;

/// Keys that a transaction has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// It ends there.
    pub lsn: Lsn,
    /// Their names; `None`: any may have changed.
    pub keys: Option<Vec<Vec<u8>>>,
}

impl Waits for Changed {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn size(&self) -> usize {
        let names = self.keys.iter().flatten().map(|key| size_of::<Vec<u8>>() + key.len());
        size_of::<Changed>() + names.sum::<usize>()
    }
}

/// A part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which stream it is of: a number drawn by lot.
    pub stream: u64,
    /// Which of its parts it is, from 1 on.
    pub number: u64,
    /// What earlier parts tell of lies below, and so does what was written before the stream began.
    pub agreed: Lsn,
    /// What has changed.
    pub changed: Vec<Changed>,
}

/// What a leader has noted.
#[derive(Default)]
struct Noted {
    queue: Queue<Changed>,
    stream: u64,
    /// All that is written from there on is noted; `None`: it is not known yet.
    since: Option<Lsn>,
    /// What there was no room for lies below.
    lost: Lsn,
    /// Parts of the stream so far.
    parts: u64,
    asked_ticks: u32,
    /// A part is due, if only to tell that there is nothing.
    is_due: bool,
}

/// What one that follows has heard.
#[derive(Default)]
struct Heard {
    queue: Queue<Changed>,
    /// The stream, and the next of its parts.
    next: Option<(u64, u64)>,
    /// All copies are invalid once everything below is applied.
    all_at: Option<Lsn>,
    silent_ticks: u32,
}

impl Heard {
    fn invalidate_all_at(&mut self, lsn: Lsn) {
        self.all_at = self.all_at.max(Some(lsn));
    }
}

/// What tells clients here of keys; `None`: of all.
type Teller = Box<dyn Fn(Option<Vec<Vec<u8>>>) + Send + Sync>;

/// What of it there is at a server.
#[derive(Default)]
pub struct Invalidation {
    notes: AtomicBool,
    noted: Mutex<Noted>,
    /// Whether there may be something to send, or to show.
    has_any: AtomicBool,
    wants: AtomicBool,
    heard: Mutex<Heard>,
    teller: OnceLock<Teller>,
}

impl Invalidation {
    /// As the leader: whether it is noted which keys change.
    pub fn notes(&self) -> bool {
        self.notes.load(SeqCst)
    }

    /// As the leader, is asked by one that follows. `Some`: it is to be noted from now on which keys change, and then this stream
    /// [begins](Invalidation::begin).
    pub fn ask(&self) -> Option<u64> {
        let mut noted = self.noted.lock().expect("no holder panics");
        noted.asked_ticks = ASKED_TICKS;
        (!self.notes.swap(true, SeqCst)).then(|| {
            noted.stream = fastrand::u64(..);
            noted.stream
        })
    }

    /// What is written from an LSN on is noted for a stream.
    pub fn begin(&self, stream: u64, since: Lsn) {
        let mut noted = self.noted.lock().expect("no holder panics");
        if noted.stream == stream {
            noted.since = Some(since);
        }
    }

    /// As the leader, with each tick. Whether nobody has asked for long, so that nothing is noted any more.
    pub fn tick_as_leader(&self) -> bool {
        if !self.notes() {
            return false;
        }
        let mut noted = self.noted.lock().expect("no holder panics");
        noted.asked_ticks -= 1;
        noted.is_due = true;
        self.has_any.store(true, SeqCst);
        let is_over = noted.asked_ticks == 0;
        if is_over {
            self.end_noting(&mut noted);
        }
        is_over
    }

    /// Notes nothing any more.
    pub fn end(&self) {
        self.end_noting(&mut self.noted.lock().expect("no holder panics"));
    }

    fn end_noting(&self, noted: &mut Noted) {
        *noted = Noted::default();
        self.notes.store(false, SeqCst);
    }

    /// Notes that a transaction has changed keys (`None`: any), if that is noted. Whether there was nothing to send before.
    pub fn note(&self, keys: Option<Vec<Vec<u8>>>, lsn: Lsn) -> bool {
        if !self.notes() {
            return false;
        }
        let mut noted = self.noted.lock().expect("no holder panics");
        if !noted.queue.push(Changed { lsn, keys }) {
            noted.lost = noted.lost.max(lsn);
            if noted.since.is_some() {
                // The stream ends, and another one begins where all is noted again.
                (noted.stream, noted.parts) = (fastrand::u64(..), 0);
            }
        }
        !self.has_any.swap(true, SeqCst)
    }

    /// The next part of the stream, if there is something to tell that is agreed on, or nothing was told for a tick; of so many bytes.
    pub fn take_part(&self, agreed: impl FnOnce() -> Lsn, bytes: usize) -> Option<Part> {
        if !self.notes() || !self.has_any.swap(false, SeqCst) {
            return None;
        }
        let mut noted = self.noted.lock().expect("no holder panics");
        let agreed = agreed();
        let changed = noted.queue.take(agreed, bytes);
        self.has_any.store(!noted.queue.is_empty(), SeqCst);
        // All that is written below counts as changed when a stream begins.
        noted.since.filter(|since| noted.lost.max(*since) <= agreed)?;
        if changed.is_empty() && !noted.is_due {
            return None;
        }
        (noted.is_due, noted.parts) = (false, noted.parts + 1);
        Some(Part { stream: noted.stream, number: noted.parts, agreed, changed })
    }

    /// What tells clients here.
    pub fn tell_by(&self, tell: impl Fn(Option<Vec<Vec<u8>>>) + Send + Sync + 'static) {
        assert!(self.teller.set(Box::new(tell)).is_ok(), "there is one server");
    }

    /// As one that follows, asks for a stream from now on, or does not.
    pub fn want(&self, wants: bool) {
        self.wants.store(wants, SeqCst);
    }

    /// Whether it does.
    pub fn wants(&self) -> bool {
        self.wants.load(SeqCst)
    }

    /// As one that follows: whether there is a stream.
    pub fn is_told(&self) -> bool {
        self.heard.lock().expect("no holder panics").next.is_some()
    }

    /// As one that follows, with each tick.
    pub fn tick_as_follower(&self) {
        let mut heard = self.heard.lock().expect("no holder panics");
        heard.silent_ticks += 1;
        if heard.silent_ticks > SILENT_TICKS {
            heard.next = None;
        }
    }

    /// As one that follows, takes in a part of a stream, which is told with what is `applied`.
    pub fn hear(&self, part: Part, applied: impl FnOnce() -> Lsn) {
        let mut heard = self.heard.lock().expect("no holder panics");
        if !self.wants() {
            return;
        }
        heard.silent_ticks = 0;
        if heard.next != Some((part.stream, part.number)) {
            heard.invalidate_all_at(part.agreed);
        }
        heard.next = Some((part.stream, part.number + 1));
        for changed in part.changed {
            let lsn = changed.lsn;
            if !heard.queue.push(changed) {
                heard.invalidate_all_at(lsn);
            }
        }
        self.has_any.store(true, SeqCst);
        drop(heard);
        self.show(applied);
    }

    /// As one that follows, tells clients here of what they may be told now.
    pub fn show(&self, applied: impl FnOnce() -> Lsn) {
        if !self.has_any.load(SeqCst) {
            return;
        }
        let Some(tell) = self.teller.get() else { return };
        let mut heard = self.heard.lock().expect("no holder panics");
        let applied = applied();
        if heard.all_at.is_some_and(|lsn| lsn <= applied) {
            heard.all_at = None;
            tell(None);
        }
        while let Some(changed) = heard.queue.pop(applied) {
            tell(changed.keys);
        }
        let has_more = heard.all_at.is_some() || !heard.queue.is_empty();
        self.has_any.store(has_more, SeqCst);
    }

    /// The server leads: what the leader before it has told is void.
    pub fn lead(&self) {
        *self.heard.lock().expect("no holder panics") = Heard::default();
        self.has_any.store(false, SeqCst);
        if let Some(tell) = self.teller.get() {
            tell(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        collections::{BTreeMap, VecDeque},
        sync::Arc,
    };

    const KEYS: u64 = 40;

    /// A leader, one that follows, and a client that reads there and keeps what it has read until it is told.
    struct World {
        rng: fastrand::Rng,
        leader: Invalidation,
        follower: Invalidation,
        /// Whether what is written is noted: not by transactions that have begun before it was asked for.
        begins: Option<u64>,
        /// What was to begin when nobody asked any more.
        late: Option<u64>,
        /// The keys that were changed, of each LSN.
        written: Vec<u64>,
        agreed: Lsn,
        applied: Lsn,
        sent: VecDeque<Part>,
        /// The LSN at which each key was changed that the client has a copy of.
        copies: Arc<Mutex<BTreeMap<u64, Lsn>>>,
        told: Arc<AtomicBool>,
    }

    impl World {
        fn new(seed: u64) -> World {
            let (copies, told) = (Arc::<Mutex<BTreeMap<u64, Lsn>>>::default(), Arc::<AtomicBool>::default());
            let follower = Invalidation::default();
            let (kept, is_told) = (copies.clone(), told.clone());
            follower.tell_by(move |keys| {
                let mut kept = kept.lock().expect("no holder panics");
                match keys {
                    None => kept.clear(),
                    Some(keys) => kept.retain(|key, _| !keys.contains(&name(*key))),
                }
                is_told.store(true, SeqCst);
            });
            World {
                rng: fastrand::Rng::with_seed(seed),
                leader: Invalidation::default(),
                follower,
                begins: None,
                late: None,
                written: Vec::new(),
                agreed: 0,
                applied: 0,
                sent: VecDeque::new(),
                copies,
                told,
            }
        }

        fn write(&mut self) {
            let key = self.rng.u64(..KEYS);
            self.written.push(key);
            if self.begins.is_none() || self.rng.bool() {
                let keys = (self.rng.u8(..100) > 0).then(|| vec![name(key)]);
                self.leader.note(keys, self.written.len() as Lsn);
            }
        }

        fn read(&mut self) {
            let key = self.rng.u64(..KEYS);
            self.copies.lock().expect("no holder panics").insert(key, self.last_change(key));
        }

        /// The LSN of the last change of a key that is applied.
        fn last_change(&self, key: u64) -> Lsn {
            let applied = &self.written[..self.applied as usize];
            applied.iter().rposition(|changed| *changed == key).map_or(0, |at| at as Lsn + 1)
        }

        fn tick(&mut self, is_cut_off: bool) {
            self.follower.tick_as_follower();
            if self.follower.wants() && !is_cut_off {
                self.begins = self.leader.ask().or(self.begins);
            }
            if self.leader.tick_as_leader() {
                self.late = self.begins.take();
            }
        }

        fn send(&mut self) {
            while let Some(part) = self.leader.take_part(|| self.agreed, 1) {
                self.sent.push_back(part);
            }
        }

        fn hear(&mut self) {
            if let Some(part) = self.sent.pop_front() {
                self.follower.hear(part, || self.applied);
            }
        }

        fn begin(&mut self) {
            if let Some(stream) = self.begins.take() {
                self.leader.begin(stream, self.written.len() as Lsn);
            }
        }

        /// What a server does now and then.
        fn tend(&mut self, has_clients: bool) {
            self.follower.want(has_clients);
            if !has_clients || !self.follower.is_told() {
                self.copies.lock().expect("no holder panics").clear();
            }
        }

        fn step(&mut self) {
            match self.rng.u8(..20) {
                0..5 => self.write(),
                5..9 => self.read(),
                9..11 => self.agreed = self.rng.u64(self.agreed..=self.written.len() as Lsn),
                11..13 => {
                    self.applied = self.rng.u64(self.applied..=self.agreed);
                    self.follower.show(|| self.applied);
                }
                13..15 => self.send(),
                15..17 => self.hear(),
                17 if self.rng.u8(..10) == 0 => drop(self.sent.pop_front()),
                17 if self.rng.bool() => self.begin(),
                17 => {
                    if let Some(stream) = self.late.take() {
                        self.leader.begin(stream, self.written.len() as Lsn);
                    }
                }
                18 => {
                    let is_cut_off = self.rng.u8(..10) == 0;
                    let ticks = if self.rng.u8(..50) == 0 { 60 } else { 1 };
                    (0..ticks).for_each(|_| self.tick(is_cut_off));
                    self.send();
                    self.hear();
                }
                _ => {
                    let has_clients = self.rng.u8(..40) > 0;
                    self.tend(has_clients);
                }
            }
            if self.told.swap(false, SeqCst) {
                // A client likes to have again what it has lost.
                self.read();
            }
        }

        /// Nothing is written any more, and nothing is lost.
        fn settle(&mut self) {
            for _ in 0..10 {
                self.tend(true);
                self.tick(false);
                self.begin();
                self.agreed = self.written.len() as Lsn;
                self.send();
                while !self.sent.is_empty() {
                    self.hear();
                }
                self.applied = self.agreed;
                self.follower.show(|| self.applied);
            }
        }
    }

    fn name(key: u64) -> Vec<u8> {
        key.to_le_bytes().to_vec()
    }

    #[test]
    fn no_client_keeps_what_has_changed() {
        let mut kept = 0;
        for seed in 0..3000 {
            let mut world = World::new(seed);
            for _ in 0..world.rng.usize(10..400) {
                world.step();
            }
            world.settle();
            let copies = world.copies.lock().expect("no holder panics").clone();
            for (key, version) in &copies {
                assert_eq!(*version, world.last_change(*key), "seed {seed}, key {key}");
            }
            assert!(world.follower.is_told(), "seed {seed}: there is a stream in the end");
            kept += copies.len();
        }
        assert!(kept > 2000, "there were few copies: {kept}");
    }

    #[test]
    fn who_hears_nothing_is_not_told() {
        let mut world = World::new(0);
        world.settle();
        (0..SILENT_TICKS).for_each(|_| world.follower.tick_as_follower());
        assert!(world.follower.is_told());
        world.follower.tick_as_follower();
        assert!(!world.follower.is_told());
    }

    #[test]
    fn a_stream_that_has_no_room_begins_anew() {
        let mut world = World::new(0);
        world.settle();
        let large = || Some(vec![vec![0; 9 << 20]]);
        for _ in 0..2 {
            world.written.push(0);
            world.leader.note(large(), world.written.len() as Lsn);
        }
        world.copies.lock().expect("no holder panics").insert(0, 0);
        world.agreed = 1;
        world.send();
        assert!(world.sent.is_empty(), "what was lost is not agreed on");
        world.settle();
        assert!(world.copies.lock().expect("no holder panics").is_empty());

        // Neither has one that follows.
        world.copies.lock().expect("no holder panics").insert(1, 0);
        let next = world.follower.heard.lock().expect("no holder panics").next;
        let (stream, first) = next.expect("there is a stream");
        for (number, keys) in [(first, large()), (first + 1, Some(vec![vec![0; 9 << 20], name(1)]))] {
            let lsn = world.applied + number - first + 1;
            let part = Part { stream, number, agreed: lsn, changed: vec![Changed { lsn, keys }] };
            world.follower.hear(part, || world.applied);
        }
        world.follower.show(|| world.applied + 1);
        assert_eq!(world.copies.lock().expect("no holder panics").len(), 1);
        world.follower.show(|| world.applied + 2);
        assert!(world.copies.lock().expect("no holder panics").is_empty());
    }
}
