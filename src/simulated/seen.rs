//! What a client can see of a server, after each time that it has run: what may be told while something is not durable, and
//! what a cut may leave.

use super::{
    power_cut::{DATABASES, State, name},
    served::{Arrived, Words},
};
use crate::{
    command::{Command, Flags, keys::each_key, table::Lookup},
    commands::ROWS,
};
use holdfast_resp::{OwnedArgs, Reply};
use holdfast_store::Store;
use std::{mem, rc::Rc};

/// A state that a cut may leave.
pub struct Reached {
    pub state: Rc<State>,
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

    /// Whether it is what was found, of which all that has expired is gone.
    pub fn is(&self, found: &State, now_ms: u64) -> bool {
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

/// What of a state has not expired.
pub fn unexpired(state: &State, now_ms: u64) -> State {
    let entries = state.iter().filter(|(_, entry)| !is_expired(entry, now_ms));
    entries.map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

/// A command that is written with single spaces.
pub fn words(text: &str) -> Words {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A command and its keys.
pub fn keys_of(words: &Words) -> Option<(&'static Command, Vec<&[u8]>)> {
    let args = OwnedArgs::from_iter(words);
    let Lookup::Found(id) = ROWS.table.lookup(args.args()) else { return None };
    let command = ROWS.table.command(id);
    let mut keys = Vec::new();
    each_key(command, args.args(), |index, _| keys.push(words[index].as_slice())).ok()?;
    Some((command, keys))
}

/// Whether a command may wait for a key.
pub fn waits(words: &Words) -> bool {
    keys_of(words).is_some_and(|(command, _)| command.flags.has(Flags::BLOCKING))
}

/// The states of a server, in their order.
pub struct Seen {
    /// What could be read before the server ran last, and after.
    before: Rc<State>,
    now: Rc<State>,
    /// From the durable one on.
    reached: Vec<Reached>,
    /// All before these.
    past: Vec<Reached>,
    /// The first of those that were reached is what is durable now, not just a part of it.
    is_durable_known: bool,
    /// Everything below was durable when the server ran last.
    durable_end: u64,
    /// That is another end than when it ran before.
    has_moved: bool,
    /// The time: Unix time in milliseconds.
    now_ms: u64,
}

impl Seen {
    /// What is found at a start, after these states.
    pub fn found(state: State, past: Vec<Reached>) -> Seen {
        let state = Rc::new(state);
        let reached = vec![Reached::seen(&state, 0)];
        let now = state.clone();
        Seen {
            before: state,
            now,
            reached,
            past,
            is_durable_known: true,
            durable_end: 0,
            has_moved: false,
            now_ms: 0,
        }
    }

    /// What a cut may leave now, and what was before that.
    pub fn into_reached(self) -> (Vec<Reached>, Vec<Reached>) {
        (self.reached, self.past)
    }

    pub fn now(&self) -> &Rc<State> {
        &self.now
    }

    /// What is durable; `None`: there is more of it than was seen.
    pub fn durable(&self) -> Option<&Rc<State>> {
        self.is_durable_known.then_some(&self.reached[0].state)
    }

    /// The server has run. Each of `keys` was changed by one command of a pipeline, in this order, and something may have come
    /// to the keys in `loose` that a waiting client has taken.
    pub fn note(&mut self, now: State, store: &Store, keys: &[Vec<u8>], loose: &'static [&'static str]) {
        self.before = mem::replace(&mut self.now, Rc::new(now));
        self.now_ms = store.now_ms();
        self.note_states(store.log().tail(), keys, loose);
        self.note_durable(store.log().durable());
    }

    fn note_states(&mut self, end: u64, keys: &[Vec<u8>], loose: &'static [&'static str]) {
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

    /// Takes leave of what was before the durable state.
    fn note_durable(&mut self, durable: u64) {
        let at = self.reached.iter().rposition(|reached| reached.first <= durable).expect("the durable one");
        self.past.extend(self.reached.drain(..at));
        self.is_durable_known = durable <= self.reached[0].last || self.reached.len() == 1;
        self.has_moved = mem::replace(&mut self.durable_end, durable) != durable;
    }

    /// Something has arrived while not all is durable. Unless the durable mark has moved, everything that is durable had
    /// arrived before; so it must tell of nothing that was done since.
    pub fn check(&self, arrived: &Arrived) {
        if !self.is_durable_known {
            return;
        }
        let Arrived { answers, reply } = arrived;
        let is_told = match reply {
            Reply::Error(_) => false,
            Reply::Simple(text) if text == b"QUEUED" => false,
            Reply::Push(items) => self.push_tells(items),
            // Who has waited got what nobody could have had before, or nothing, which may be from before anything was done.
            Reply::Null if answers.len() == 1 && waits(&answers[0]) => false,
            _ if answers.len() == 1 && waits(&answers[0]) => !self.has_moved,
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
            let has_flushed = command.name.starts_with("flush") && self.differs_at_all();
            return command.flags.has(Flags::WRITE) && self.before != self.now || has_flushed;
        }
        // A command that changes nothing may not have come further than its first key.
        let has_changed = |key: &[u8]| {
            (0..DATABASES).any(|db| self.now.get(&name(db, key)) != self.before.get(&name(db, key)))
        };
        let has_changed_any = keys.iter().any(|key| has_changed(key));
        // What a script catches it does not tell: it may have been refused before its key was looked at.
        let catches = words.get(1).is_some_and(|script| script.windows(5).any(|word| word == b"pcall"));
        if catches && !has_changed_any {
            return false;
        }
        let is_seen = keys.len() == 1 || has_changed_any;
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
        let states = [&self.reached[0].state, &self.before, &self.now];
        let [durable, before, now] =
            states.map(|state| state.get(name).filter(|entry| !is_expired(entry, self.now_ms)));
        durable != now || before != now
    }

    fn differs_at_all(&self) -> bool {
        let states = [&self.reached[0].state, &self.before, &self.now];
        let [durable, before, now] = states.map(|state| unexpired(state, self.now_ms));
        durable != now || before != now
    }
}
