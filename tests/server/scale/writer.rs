//! A writer: reads and changes cells of its own, many at a time, and knows what each holds, also when its server is killed meanwhile.

use super::{
    cells::{Cell, GROUP, Kind, Words, now_ms, words},
    model::{Model, Step},
};
use crate::harness::{Client, Rng, array, number, ok};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

/// Cells that are read or changed at once, at most.
const AT_ONCE: u32 = 200;
/// How soon what expires does so at the latest, in ms.
const EXPIRES_WITHIN: u64 = 20_000;

/// A writer.
pub struct Writer {
    pub model: Model,
    rng: Rng,
    version: u32,
    doubt: Doubt,
    /// Cells read or changed.
    pub done: u64,
    /// The longest that its server took for what was sent at once.
    pub longest: Duration,
}

/// Steps that were sent to a server which has not answered them: some first ones were executed, or if it is a transaction all or none.
#[derive(Default)]
struct Doubt {
    steps: Vec<Step>,
    is_transaction: bool,
}

impl Writer {
    pub fn new(model: Model, rng: Rng) -> Writer {
        Writer { model, rng, version: 0, doubt: Doubt::default(), done: 0, longest: Duration::ZERO }
    }

    /// Puts something at each place, and adds so much where cells are added at the end.
    pub fn fill(&mut self, client: &mut Client, places: impl Fn(Kind) -> u32) {
        for kind in Kind::ALL {
            for first in (0..places(kind)).step_by(AT_ONCE as usize) {
                let last = (first + AT_ONCE).min(places(kind));
                let steps = (first..last).map(|place| self.put(kind, place, 0)).collect();
                self.change(client, steps, false).expect("the server runs");
            }
        }
    }

    /// Reads or changes some cells. `None`: the server is gone.
    pub fn turn(&mut self, client: &mut Client) -> Option<()> {
        self.settle(client)?;
        let kind = Kind::ALL[self.rng.below(Kind::ALL.len() as u64) as usize];
        match self.rng.below(20) {
            0 if kind == Kind::Grouped => self.move_groups(client),
            0..=8 => {
                let (steps, is_transaction) = (self.changes(kind), self.rng.one_in(4));
                self.change(client, steps, is_transaction)
            }
            _ => {
                let places = self.some_places(kind);
                self.look(client, kind, &places)
            }
        }
    }

    /// Sends commands at once; the replies that have come until the last, or until the server was gone.
    fn exchange(&mut self, client: &mut Client, calls: &[Words]) -> Vec<Reply> {
        let (mut request, started) = (Vec::new(), Instant::now());
        calls.iter().for_each(|call| write_command(&mut request, call));
        if client.try_send(&request).is_err() {
            return Vec::new();
        }
        let replies = calls.iter().map_while(|_| client.try_reply()).collect();
        self.longest = self.longest.max(started.elapsed());
        replies
    }

    /// The same if the server was there until the last.
    pub fn ask(&mut self, client: &mut Client, calls: &[Words]) -> Option<Vec<Reply>> {
        let replies = self.exchange(client, calls);
        (replies.len() == calls.len()).then_some(replies)
    }

    /// Different places, in order, where something may be: all over, near each other, or in a row.
    fn some_places(&mut self, kind: Kind) -> Vec<u32> {
        let (begin, end) = (self.model.begin(kind), self.model.end(kind));
        let count = if self.rng.one_in(4) { 1 } else { 1 + self.rng.below(u64::from(AT_ONCE)) as u32 };
        if begin == end {
            return Vec::new();
        }
        let all = u64::from(end - begin);
        let (first, span) = match self.rng.below(3) {
            0 => (0, all),
            1 => (0, all.div_ceil(50)),
            _ => (self.rng.below(all), u64::from(count)),
        };
        let place = |n: u64| begin + (n % all) as u32;
        let drawn = (0..count).map(|_| place(first + self.rng.below(span)));
        drawn.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Cells hold what they are to hold.
    pub fn look(&mut self, client: &mut Client, kind: Kind, places: &[u32]) -> Option<()> {
        let calls: Vec<Words> = places.iter().map(|&place| self.model.look(kind, place)).collect();
        let from = now_ms();
        let replies = self.ask(client, &calls)?;
        let times = [from, now_ms()];
        for (&place, reply) in places.iter().zip(&replies) {
            self.assert_shown(kind, place, reply, times);
        }
        self.done += places.len() as u64;
        Some(())
    }

    pub fn assert_shown(&self, kind: Kind, place: u32, reply: &Reply, times: [u64; 2]) {
        let cell = self.model.cell(kind, place);
        assert!(
            self.model.at(kind, place).is_shown_by(cell, reply, times),
            "{} {}: {cell:?}, but between {times:?} there was {reply:?}",
            self.model.at(kind, place).key(),
            self.model.at(kind, place).name()
        );
    }

    /// A step that puts a new version somewhere.
    fn put(&mut self, kind: Kind, place: u32, expires_ms: u64) -> Step {
        self.version += 1;
        let before = self.model.cell(kind, place);
        let cell = Cell { version: self.version, expires_ms };
        let is_next = place >= self.model.end(kind);
        let is_new = i64::from(before.version == 0);
        let replies = match kind {
            Kind::Text => vec![ok()],
            Kind::Item if is_next => Vec::new(),
            Kind::Item => vec![ok()],
            Kind::Entry | Kind::Part => Vec::new(),
            // It has expired by the time, or not.
            _ if expires_ms > 0 => vec![array([Reply::Int(1)]), array([Reply::Int(2)])],
            _ if before.expires_ms > 0 => vec![Reply::Int(0), Reply::Int(1)],
            _ => vec![Reply::Int(is_new)],
        };
        let words = self.model.at(kind, place).put(cell, self.model.front, is_next);
        Step { words, replies, changes: vec![(kind, place, cell)] }
    }

    /// A step that takes away what is somewhere.
    fn take(&self, kind: Kind, place: u32) -> Step {
        let before = self.model.cell(kind, place);
        let replies = match kind {
            Kind::Item => vec![self.model.at(kind, place).present(before.version)],
            Kind::Part => Vec::new(),
            _ if before.expires_ms > 0 => vec![Reply::Int(0), Reply::Int(1)],
            _ => vec![Reply::Int(i64::from(before.version > 0))],
        };
        let words = self.model.at(kind, place).take();
        Step { words, replies, changes: vec![(kind, place, Cell::default())] }
    }

    /// Steps that change different cells.
    fn changes(&mut self, kind: Kind) -> Vec<Step> {
        let places = self.some_places(kind);
        let (end, takes) = (self.model.end(kind), self.rng.one_in(3));
        match kind {
            Kind::Item if takes => {
                let front = self.model.front;
                let count = places.len() as u32;
                (front..(front + count).min(end)).map(|place| self.take(kind, place)).collect()
            }
            Kind::Item | Kind::Entry if self.rng.one_in(2) || places.is_empty() => {
                (end..end + places.len().max(1) as u32).map(|place| self.put(kind, place, 0)).collect()
            }
            Kind::Entry => places.iter().map(|&place| self.take(kind, place)).collect(),
            _ => {
                let can_expire = matches!(kind, Kind::Text | Kind::Grouped | Kind::Field);
                let expires = can_expire && self.rng.one_in(4);
                let steps = places.into_iter().map(|place| {
                    if kind != Kind::Item && self.rng.one_in(if takes { 2 } else { 20 }) {
                        return self.take(kind, place);
                    }
                    let at = now_ms() + self.rng.below(EXPIRES_WITHIN);
                    self.put(kind, place, if expires { at } else { 0 })
                });
                steps.collect()
            }
        }
    }

    /// Has steps executed one after the other, or as a transaction.
    fn change(&mut self, client: &mut Client, steps: Vec<Step>, is_transaction: bool) -> Option<()> {
        let mut calls: Vec<Words> = steps.iter().map(|step| step.words.clone()).collect();
        if is_transaction {
            calls.insert(0, words([&"MULTI"]));
            calls.push(words([&"EXEC"]));
        }
        let mut replies = self.exchange(client, &calls);
        if is_transaction {
            replies = match replies.pop() {
                Some(Reply::Array(replies)) if replies.len() == steps.len() => replies,
                Some(other) if calls.len() == replies.len() + 1 => panic!("EXEC: {other:?}"),
                _ => Vec::new(),
            };
        }
        let mut steps = steps.into_iter();
        for reply in replies {
            let step = steps.next().expect("a reply to each");
            let is_right = match &step.replies[..] {
                [] => !matches!(reply, Reply::Error(_)),
                some => some.contains(&reply),
            };
            assert!(is_right, "{}: {reply:?} and not {:?}", show_words(&step.words), step.replies);
            self.model.apply(&step);
            self.done += step.changes.len() as u64;
        }
        self.doubt = Doubt { steps: steps.collect(), is_transaction };
        self.doubt.steps.is_empty().then_some(())
    }

    /// Finds out what a server has done that was gone before it has answered.
    pub fn settle(&mut self, client: &mut Client) -> Option<()> {
        if self.doubt.steps.is_empty() {
            return Some(());
        }
        let changes = || self.doubt.steps.iter().flat_map(|step| step.changes.clone());
        let mut calls: Vec<Words> = changes().map(|(kind, place, _)| self.model.look(kind, place)).collect();
        calls.push(words([&"LLEN", &self.model.at(Kind::Item, 0).key()]));
        let from = now_ms();
        let mut replies = self.ask(client, &calls)?;
        let times = [from, now_ms()];
        let items = number(&replies.pop().expect("LLEN's")).expect("a number") as u32;
        let Doubt { steps, is_transaction } = std::mem::take(&mut self.doubt);
        let takes_items =
            steps[0].changes.iter().any(|&(kind, _, cell)| kind == Kind::Item && cell.version == 0);
        let (mut replies, mut shown) = (replies.iter(), Vec::new());
        for step in &steps {
            let replies: Vec<&Reply> = replies.by_ref().take(step.changes.len()).collect();
            let says = |is_done: bool| {
                step.changes.iter().zip(&replies).all(|(&(kind, place, after), reply)| {
                    let cell = if is_done { after } else { self.model.cell(kind, place) };
                    self.model.at(kind, place).is_shown_by(cell, reply, times)
                })
            };
            shown.push([says(false), says(true)]);
        }
        let is_so = |done: usize| {
            if is_transaction && done != 0 && done != steps.len() {
                return false;
            }
            if takes_items {
                return self.model.end(Kind::Item) - self.model.front - items == done as u32;
            }
            shown.iter().enumerate().all(|(nth, says)| says[usize::from(nth < done)])
        };
        let Some(done) = (0..=steps.len()).find(|&done| is_so(done)) else {
            panic!(
                "no first part of {} steps was done ({is_transaction}, {items} items): {shown:?}\n{}",
                steps.len(),
                show_words(&steps[0].words)
            );
        };
        steps[..done].iter().for_each(|step| self.model.apply(step));
        Some(())
    }

    /// Small hashes take the places of others: renamed, copied, or dumped and restored.
    fn move_groups(&mut self, client: &mut Client) -> Option<()> {
        let groups = u64::from(self.model.end(Kind::Grouped) / GROUP);
        let [from, to] = [(); 2].map(|()| self.rng.below(groups) as u32);
        let places = |group: u32| group * GROUP..(group + 1) * GROUP;
        let cells: Vec<Cell> = places(from).map(|place| self.model.cell(Kind::Grouped, place)).collect();
        if from == to || !cells.iter().any(|cell| cell.version > 0 && cell.expires_ms == 0) {
            return Some(());
        }
        let [source, target] = [from, to].map(|group| self.model.at(Kind::Grouped, group * GROUP).key());
        let put = places(to).zip(&cells).map(|(place, &cell)| (Kind::Grouped, place, cell));
        let mut changes: Vec<_> = put.collect();
        let (words, reply) = match self.rng.below(3) {
            0 => {
                changes.extend(places(from).map(|place| (Kind::Grouped, place, Cell::default())));
                (words([&"RENAME", &source, &target]), ok())
            }
            1 => (words([&"COPY", &source, &target, &"REPLACE"]), Reply::Int(1)),
            _ => {
                let dump = self.ask(client, &[words([&"DUMP", &source])])?;
                let [Reply::Bulk(payload)] = &dump[..] else { panic!("{source} has no payload: {dump:?}") };
                (words([&"RESTORE", &target, &"0", payload, &"REPLACE"]), ok())
            }
        };
        self.change(client, vec![Step { words, replies: vec![reply], changes }], false)
    }
}

/// The first words of a command.
fn show_words(words: &Words) -> String {
    let some = words.iter().take(4).map(|word| word[..word.len().min(80)].escape_ascii().to_string());
    some.collect::<Vec<_>>().join(" ")
}
