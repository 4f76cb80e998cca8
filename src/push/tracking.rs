//! Client-side caching: which clients may have a copy of which keys, and telling them when these change.
//!
//! A key is remembered for a client while its partition is locked for the reading command, and the clients are told by
//! the transaction that changes it, which has the same lock: so none is forgotten between. Who has gone away stays in the
//! table until its keys change.

use crate::{
    clients::client::{Client, flag},
    commit::durability::Lsn,
    push::{
        Push,
        queue::{Payload, PushMessage},
    },
    util::random::random,
};
use holdfast_store::{Change, ChangeKind};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Parts of the table with locks of their own.
const PARTS: usize = 64;

/// How a client tracks the keys that it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// The client that is told in its place; 0: itself.
    pub redirect: u64,
    /// It is told of all keys with some prefixes, whether it has read them or not.
    pub bcast: bool,
    /// Only what is read after CLIENT CACHING YES is remembered.
    pub optin: bool,
    /// What is read after CLIENT CACHING NO is not remembered.
    pub optout: bool,
    /// It is not told of its own changes.
    pub noloop: bool,
    /// CLIENT CACHING, for the next command.
    pub caching: bool,
    /// The prefixes, if `bcast`.
    pub prefixes: BTreeSet<Vec<u8>>,
}

impl Mode {
    /// Whether what the client reads now is remembered.
    pub fn remembers(&self) -> bool {
        !self.bcast && if self.optin { self.caching } else { !(self.optout && self.caching) }
    }
}

/// A key that was changed.
pub struct Changed {
    /// The key.
    pub key: Vec<u8>,
    /// The client that changed it, if one did.
    pub by: Option<u64>,
}

impl Changed {
    /// The key of a change, if that was one of its value or its being there; `by` a client, unless it came of itself.
    pub fn of_change(change: Change, by: Option<u64>) -> Option<Changed> {
        match change.kind {
            ChangeKind::Written => Some(Changed { key: change.key, by }),
            ChangeKind::Expired | ChangeKind::Evicted | ChangeKind::FieldsExpired => {
                Some(Changed { key: change.key, by: None })
            }
            ChangeKind::Added | ChangeKind::LastFieldExpired | ChangeKind::Missed | ChangeKind::Regrouped => {
                None
            }
        }
    }
}

struct Tracker {
    client: Arc<Client>,
    redirect: u64,
    bcast: bool,
    noloop: bool,
}

/// Keys in no order, so that one is easily drawn by lot, with the clients that read them.
#[derive(Default)]
struct Keys {
    places: HashMap<Arc<[u8]>, usize>,
    list: Vec<(Arc<[u8]>, Vec<u64>)>,
}

impl Keys {
    fn remove(&mut self, place: usize) -> (Arc<[u8]>, Vec<u64>) {
        let removed = self.list.swap_remove(place);
        self.places.remove(&removed.0);
        if let Some((moved, _)) = self.list.get(place) {
            *self.places.get_mut(moved).expect("each key has a place") = place;
        }
        removed
    }
}

/// All clients that track keys, and what they have read.
pub struct Tracking {
    trackers: RwLock<HashMap<u64, Tracker>>,
    tracker_count: AtomicUsize,
    parts: Vec<Mutex<Keys>>,
    hasher: RandomState,
    keys: AtomicUsize,
    /// Clients of all keys.
    items: AtomicUsize,
    /// Keys that are remembered at most; 0: no limit.
    keys_max: AtomicUsize,
    prefixes: RwLock<BTreeMap<Vec<u8>, Vec<u64>>>,
}

impl Tracking {
    /// Without any.
    pub fn new() -> Tracking {
        Tracking {
            trackers: RwLock::default(),
            tracker_count: AtomicUsize::new(0),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(0),
            prefixes: RwLock::default(),
        }
    }

    /// Whether there are clients to be told of changes.
    pub fn is_used(&self) -> bool {
        self.tracker_count.load(Relaxed) > 0
    }

    /// How many clients track keys.
    pub fn clients(&self) -> usize {
        self.tracker_count.load(Relaxed)
    }

    /// How many keys are remembered.
    pub fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// For how many clients in all.
    pub fn items(&self) -> usize {
        self.items.load(Relaxed)
    }

    /// How many different prefixes there are.
    pub fn prefixes(&self) -> usize {
        self.prefixes.read().expect("no holder panics").len()
    }

    /// A client tracks keys from now on, or in another mode.
    pub fn begin(&self, client: &Arc<Client>, mode: &Mode) {
        let tracker = Tracker {
            client: client.clone(),
            redirect: mode.redirect,
            bcast: mode.bcast,
            noloop: mode.noloop,
        };
        client.set_flag(flag::BROKEN_REDIRECT, false);
        client.set_flag(flag::TRACKING, true);
        client.set_flag(flag::BCAST, mode.bcast);
        client.set_redirect(Some(mode.redirect));
        let old = self.trackers.write().expect("no holder panics").insert(client.id, tracker);
        self.tracker_count.fetch_add(usize::from(old.is_none()), Relaxed);
        let mut prefixes = self.prefixes.write().expect("no holder panics");
        for prefix in &mode.prefixes {
            let clients = prefixes.entry(prefix.clone()).or_default();
            if !clients.contains(&client.id) {
                clients.push(client.id);
            }
        }
    }

    /// A client tracks no keys any more.
    pub fn end(&self, client: &Client, mode: &Mode) {
        let old = self.trackers.write().expect("no holder panics").remove(&client.id);
        self.tracker_count.fetch_sub(usize::from(old.is_some()), Relaxed);
        client.set_flag(flag::TRACKING | flag::BCAST | flag::BROKEN_REDIRECT, false);
        client.set_redirect(None);
        let mut prefixes = self.prefixes.write().expect("no holder panics");
        for prefix in &mode.prefixes {
            if let Some(clients) = prefixes.get_mut(prefix) {
                clients.retain(|other| *other != client.id);
                if clients.is_empty() {
                    prefixes.remove(prefix);
                }
            }
        }
    }

    fn part(&self, key: &[u8]) -> &Mutex<Keys> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }

    /// Remembers that a client has read a key, whose partition is locked. The caller then sees to
    /// [`Tracking::keep_limit`].
    pub fn remember(&self, client: u64, key: &[u8]) {
        let mut part = self.part(key).lock().expect("no holder panics");
        let Keys { places, list } = &mut *part;
        let clients = match places.get(key) {
            Some(place) => &mut list[*place].1,
            None => {
                let key: Arc<[u8]> = key.into();
                places.insert(key.clone(), list.len());
                list.push((key, Vec::new()));
                self.keys.fetch_add(1, Relaxed);
                &mut list.last_mut().expect("pushed above").1
            }
        };
        if !clients.contains(&client) {
            clients.push(client);
            self.items.fetch_add(1, Relaxed);
        }
    }

    /// Sets how many keys are remembered at most; 0: no limit. The caller then sees to [`Tracking::keep_limit`].
    pub fn set_limit(&self, keys: usize) {
        self.keys_max.store(keys, Relaxed);
    }

    /// Forgets keys, drawn by lot, while there are too many, and tells their clients as if they had changed.
    pub fn keep_limit(&self, push: &Push) {
        let max = self.keys_max.load(Relaxed);
        while max > 0 && self.keys() > max {
            // Among the keys of the first part from some place on that has any.
            let start = random() as usize;
            let mut parts = (0..PARTS).map(|at| self.parts[(start + at) % PARTS].lock().expect("no panics"));
            let Some(mut part) = parts.find(|part| !part.list.is_empty()) else { return };
            let place = random() as usize % part.list.len();
            let (key, clients) = part.remove(place);
            drop(part);
            self.count_removed(&clients);
            self.send(push, &key, &clients, None, 0);
        }
    }

    fn count_removed(&self, clients: &[u64]) {
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(clients.len(), Relaxed);
    }

    /// Tells all who have read a key that it has changed; they may know it when everything below `wait_lsn` is durable.
    pub fn invalidate(&self, push: &Push, changed: &Changed, wait_lsn: Lsn) {
        let mut part = self.part(&changed.key).lock().expect("no holder panics");
        let Some(&place) = part.places.get(&changed.key[..]) else { return };
        let (key, clients) = part.remove(place);
        drop(part);
        self.count_removed(&clients);
        self.send(push, &key, &clients, changed.by, wait_lsn);
    }

    fn send(&self, push: &Push, key: &[u8], clients: &[u64], by: Option<u64>, wait_lsn: Lsn) {
        let keys = names(&[key]);
        let trackers = self.trackers.read().expect("no holder panics");
        for id in clients {
            let Some(tracker) = trackers.get(id) else { continue };
            let is_own = tracker.noloop && by == Some(*id);
            if !tracker.bcast && !is_own {
                tracker.send(push, Some(keys.clone()), wait_lsn);
            }
        }
    }

    /// Tells those who want to know of all keys with a prefix which of them a transaction has changed.
    pub fn broadcast(&self, push: &Push, changed: &[Changed], wait_lsn: Lsn) {
        let prefixes = self.prefixes.read().expect("no holder panics");
        if prefixes.is_empty() {
            return;
        }
        let trackers = self.trackers.read().expect("no holder panics");
        // Each once, with who has changed it last.
        let keys: BTreeMap<&[u8], Option<u64>> =
            changed.iter().map(|changed| (&changed.key[..], changed.by)).collect();
        for (prefix, clients) in &*prefixes {
            let matching: Vec<(&[u8], Option<u64>)> =
                keys.iter().map(|(key, by)| (*key, *by)).filter(|(key, _)| key.starts_with(prefix)).collect();
            if matching.is_empty() {
                continue;
            }
            let all = names(&Vec::from_iter(matching.iter().map(|(key, _)| *key)));
            for tracker in clients.iter().filter_map(|id| trackers.get(id)) {
                let id = Some(tracker.client.id);
                if !tracker.noloop || matching.iter().all(|(_, by)| *by != id) {
                    tracker.send(push, Some(all.clone()), wait_lsn);
                    continue;
                }
                let others: Vec<&[u8]> =
                    matching.iter().filter(|(_, by)| *by != id).map(|(key, _)| *key).collect();
                if !others.is_empty() {
                    tracker.send(push, Some(names(&others)), wait_lsn);
                }
            }
        }
    }

    /// Keys are another server's from now on, which does not know who has read them here: tells those who have. What else of them may have been
    /// kept, as that there is no such key, those do not know who are told by prefixes: their copies are all invalid.
    pub fn invalidate_where(&self, push: &Push, have_gone: impl Fn(&[u8]) -> bool) {
        for tracker in self.trackers.read().expect("no holder panics").values().filter(|it| it.bcast) {
            tracker.send(push, None, 0);
        }
        for part in &self.parts {
            let mut part = part.lock().expect("no holder panics");
            // From the end: what takes the place of one that is removed was looked at.
            let places: Vec<usize> =
                (0..part.list.len()).rev().filter(|place| have_gone(&part.list[*place].0)).collect();
            let gone: Vec<_> = places.into_iter().map(|place| part.remove(place)).collect();
            drop(part);
            for (key, clients) in gone {
                self.count_removed(&clients);
                self.send(push, &key, &clients, None, 0);
            }
        }
    }

    /// A database was emptied: nobody's copies are valid. What is read meanwhile is either forgotten before they are told, or remembered.
    pub fn invalidate_all(&self, push: &Push, wait_lsn: Lsn) {
        for part in &self.parts {
            let keys = std::mem::take(&mut *part.lock().expect("no holder panics"));
            keys.list.iter().for_each(|(_, clients)| self.count_removed(clients));
        }
        for tracker in self.trackers.read().expect("no holder panics").values() {
            tracker.send(push, None, wait_lsn);
        }
    }
}

impl Tracker {
    /// Sends an array of keys; `None`: all.
    fn send(&self, push: &Push, keys: Option<Arc<[u8]>>, wait_lsn: Lsn) {
        let mut target = self.client.clone();
        if self.redirect != 0 {
            match push.clients.get(self.redirect) {
                Some(client) => target = client,
                None => {
                    self.client.set_flag(flag::BROKEN_REDIRECT, true);
                    let text = format!("2\r\n$21\r\ntracking-redir-broken\r\n:{}\r\n", self.redirect);
                    let text = Payload::Resp3(text.into_bytes().into());
                    push.queues.send(
                        self.client.worker,
                        PushMessage { payload: text, to: Arc::new(vec![self.client.id]), wait_lsn },
                    );
                    return;
                }
            }
        }
        let text = Payload::Invalidate { keys, redirected: self.redirect != 0 };
        push.queues
            .send(target.worker, PushMessage { payload: text, to: Arc::new(vec![target.id]), wait_lsn });
    }
}

/// An array of bulk strings.
fn names(keys: &[&[u8]]) -> Arc<[u8]> {
    let mut text = Vec::new();
    holdfast_resp::write_command(&mut text, keys);
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn client(id: u64) -> Arc<Client> {
        Arc::new(Client::new(id, String::new(), String::new(), 0, 0, false))
    }

    fn told(push: &Push) -> Vec<(u64, String)> {
        let mut messages = Vec::new();
        push.queues.take(0, &mut messages);
        let keys = |message: &PushMessage| match &message.payload {
            Payload::Invalidate { keys: Some(keys), .. } => {
                String::from_utf8_lossy(keys).replace("\r\n", " ")
            }
            Payload::Invalidate { keys: None, .. } => "all".to_owned(),
            _ => "other".to_owned(),
        };
        messages.iter().map(|message| (message.to[0], keys(message))).collect()
    }

    fn changed(key: &[u8], by: Option<u64>) -> Changed {
        Changed { key: key.to_vec(), by }
    }

    #[test]
    fn what_is_read_when_all_are_told_is_not_forgotten_without_that() {
        let push = Push::new(1, Arc::default(), None);
        let tracking = &push.tracking;
        tracking.begin(&client(1), &Mode::default());
        let mut before = 0;
        for _ in 0..3000 {
            let were_told = std::thread::scope(|scope| {
                scope.spawn(|| tracking.invalidate_all(&push, 0));
                let until = Instant::now() + Duration::from_micros(fastrand::u64(..60));
                while Instant::now() < until {}
                let were_told = told(&push);
                tracking.remember(1, b"a");
                were_told
            });
            if !were_told.is_empty() {
                before += 1;
                assert_eq!(tracking.keys(), 1, "it was read behind what its client was told");
            }
            tracking.invalidate(&push, &changed(b"a", None), 0);
            told(&push);
        }
        println!("{before} times what was read was read behind it");
    }

    #[test]
    fn who_read_a_key_is_told_once() {
        let push = Push::new(1, Arc::default(), None);
        let tracking = &push.tracking;
        tracking.begin(&client(1), &Mode::default());
        tracking.begin(&client(2), &Mode { noloop: true, ..Mode::default() });
        for (id, key) in [(1, b"a"), (2, b"a"), (1, b"b"), (9, b"b"), (1, b"a")] {
            tracking.remember(id, key);
        }
        assert_eq!((tracking.keys(), tracking.items()), (2, 4));
        tracking.invalidate(&push, &changed(b"a", Some(2)), 0);
        tracking.invalidate(&push, &changed(b"c", None), 0);
        assert_eq!(told(&push), [(1, "*1 $1 a ".to_owned())]);
        tracking.invalidate(&push, &changed(b"a", None), 0);
        tracking.invalidate(&push, &changed(b"b", None), 0);
        assert_eq!(told(&push), [(1, "*1 $1 b ".to_owned())]);
        assert_eq!((tracking.keys(), tracking.items()), (0, 0));

        for (id, key) in [(1, b"a"), (2, b"b"), (1, b"b"), (1, b"c")] {
            tracking.remember(id, key);
        }
        tracking.invalidate_where(&push, |key| key != b"a");
        let mut gone = told(&push);
        gone.sort_unstable();
        assert_eq!(gone, [(1, "b"), (1, "c"), (2, "b")].map(|(id, key)| (id, format!("*1 $1 {key} "))));
        assert_eq!((tracking.keys(), tracking.items()), (1, 1));

        tracking.invalidate_all(&push, 0);
        assert_eq!(told(&push).iter().filter(|(_, keys)| keys == "all").count(), 2);
        tracking.end(&client(1), &Mode::default());
        tracking.end(&client(2), &Mode::default());
        assert_eq!((tracking.keys(), tracking.clients()), (0, 0));
    }

    #[test]
    fn prefixes() {
        let push = Push::new(1, Arc::default(), None);
        let tracking = &push.tracking;
        let mode = |noloop, prefixes: &[&str]| Mode {
            bcast: true,
            noloop,
            prefixes: prefixes.iter().map(|prefix| prefix.as_bytes().to_vec()).collect(),
            ..Mode::default()
        };
        tracking.begin(&client(1), &mode(false, &[""]));
        tracking.begin(&client(2), &mode(true, &["a", "b"]));
        let changes =
            [changed(b"a1", Some(2)), changed(b"b1", Some(2)), changed(b"b2", None), changed(b"b2", None)];
        tracking.broadcast(&push, &changes, 0);
        assert_eq!(told(&push), [(1, "*3 $2 a1 $2 b1 $2 b2 ".to_owned()), (2, "*1 $2 b2 ".to_owned())]);
        tracking.end(&client(2), &mode(true, &["a", "b"]));
        assert_eq!(tracking.prefixes(), 1);
    }

    #[test]
    fn the_table_has_a_limit() {
        let push = Push::new(1, Arc::default(), None);
        let tracking = &push.tracking;
        tracking.begin(&client(1), &Mode::default());
        tracking.keys_max.store(10, Relaxed);
        let keys: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        for key in &keys {
            tracking.remember(1, key.as_bytes());
            tracking.keep_limit(&push);
        }
        assert_eq!((tracking.keys(), told(&push).len()), (10, 90));
        keys.iter().for_each(|key| tracking.invalidate(&push, &changed(key.as_bytes(), None), 0));
        assert_eq!((tracking.keys(), told(&push).len()), (0, 10));
    }
}
