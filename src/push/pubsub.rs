//! Publish/subscribe: who listens to which channels.
//!
//! A channel has a list of subscribers for each worker that has any. The lists are shared with the messages on their way,
//! and copied if they change meanwhile.

use crate::{
    clients::client::{Client, Kind},
    commit::durability::Lsn,
    push::queue::{Payload, PushMessage, PushQueues},
    util::glob,
};
use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, RwLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Parts of a namespace with locks of their own, so that those who publish do not get in each other's way.
const PARTS: usize = 64;

/// Clients by their workers.
#[derive(Default)]
pub struct Audience(Vec<(usize, Arc<Vec<u64>>)>);

impl Audience {
    /// Adds a client, which is not there yet.
    pub fn add(&mut self, worker: usize, client: u64) {
        match self.0.iter_mut().find(|(number, _)| *number == worker) {
            Some((_, clients)) => Arc::make_mut(clients).push(client),
            None => self.0.push((worker, Arc::new(vec![client]))),
        }
    }

    /// Removes a client.
    pub fn remove(&mut self, worker: usize, client: u64) {
        if let Some(at) = self.0.iter().position(|(number, _)| *number == worker) {
            let clients = Arc::make_mut(&mut self.0[at].1);
            clients.retain(|other| *other != client);
            if clients.is_empty() {
                self.0.swap_remove(at);
            }
        }
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(_, clients)| clients.len()).sum()
    }

    /// Sends the same to all.
    pub fn send(&self, queues: &PushQueues, text: &Payload, wait_lsn: Lsn) {
        for (worker, clients) in &self.0 {
            queues.send(*worker, PushMessage { payload: text.clone(), to: clients.clone(), wait_lsn });
        }
    }
}

type Names = HashMap<Arc<[u8]>, Audience>;

/// Channels by name.
struct Namespace {
    parts: Vec<RwLock<Names>>,
    hasher: RandomState,
    /// Channels that have subscribers.
    len: AtomicUsize,
}

impl Namespace {
    fn new() -> Namespace {
        let parts = (0..PARTS).map(|_| RwLock::default()).collect();
        Namespace { parts, hasher: RandomState::new(), len: AtomicUsize::new(0) }
    }

    fn part(&self, name: &[u8]) -> &RwLock<Names> {
        &self.parts[self.hasher.hash_one(name) as usize % PARTS]
    }

    fn add(&self, name: &Arc<[u8]>, worker: usize, client: u64) {
        let mut part = self.part(name).write().expect("no holder panics");
        let audience = part.entry(name.clone()).or_default();
        if audience.is_empty() {
            self.len.fetch_add(1, Relaxed);
        }
        audience.add(worker, client);
    }

    fn remove(&self, name: &[u8], worker: usize, client: u64) {
        let mut part = self.part(name).write().expect("no holder panics");
        if let Some(audience) = part.get_mut(name) {
            audience.remove(worker, client);
            if audience.is_empty() {
                part.remove(name);
                self.len.fetch_sub(1, Relaxed);
            }
        }
    }

    fn with<R: Default>(&self, name: &[u8], f: impl FnOnce(&Audience) -> R) -> R {
        if self.len.load(Relaxed) == 0 {
            return R::default();
        }
        self.part(name).read().expect("no holder panics").get(name).map(f).unwrap_or_default()
    }

    fn names(&self, matches: impl Fn(&[u8]) -> bool) -> Vec<Arc<[u8]>> {
        let mut names = Vec::new();
        for part in &self.parts {
            let part = part.read().expect("no holder panics");
            names.extend(part.keys().filter(|name| matches(name)).cloned());
        }
        names
    }
}

/// What a client is subscribed to.
#[derive(Default)]
pub struct Subscriptions([BTreeSet<Arc<[u8]>>; 3]);

impl Subscriptions {
    /// How many names of a kind.
    pub fn len(&self, kind: Kind) -> usize {
        self.0[kind as usize].len()
    }

    /// The names of a kind.
    pub fn names(&self, kind: Kind) -> Vec<Arc<[u8]>> {
        self.0[kind as usize].iter().cloned().collect()
    }

    /// Subscribes the client, unless it is already.
    pub fn begin(&mut self, pubsub: &PubSub, client: &Client, kind: Kind, name: &[u8]) {
        let names = &mut self.0[kind as usize];
        if !names.contains(name) {
            let name: Arc<[u8]> = name.into();
            pubsub.subscribe(kind, &name, client.worker, client.id);
            names.insert(name);
            client.set_subscriptions(kind, names.len());
        }
    }

    /// Ends a subscription, if there is one.
    pub fn end(&mut self, pubsub: &PubSub, client: &Client, kind: Kind, name: &[u8]) {
        let names = &mut self.0[kind as usize];
        if names.remove(name) {
            pubsub.unsubscribe(kind, name, client.worker, client.id);
            client.set_subscriptions(kind, names.len());
        }
    }

    /// Ends all.
    pub fn end_all(&mut self, pubsub: &PubSub, client: &Client) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in self.names(kind) {
                self.end(pubsub, client, kind, &name);
            }
        }
    }
}

/// All channels and patterns that somebody is subscribed to.
pub struct PubSub {
    channels: Namespace,
    shards: Namespace,
    patterns: RwLock<Vec<(Arc<[u8]>, Audience)>>,
    /// Different patterns.
    pattern_count: AtomicUsize,
}

impl PubSub {
    /// Without any.
    pub fn new() -> PubSub {
        PubSub {
            channels: Namespace::new(),
            shards: Namespace::new(),
            patterns: RwLock::default(),
            pattern_count: AtomicUsize::new(0),
        }
    }

    /// Whether nobody is subscribed to any channel or pattern, but for those of shards.
    pub fn is_unused(&self) -> bool {
        self.channels.len.load(Relaxed) == 0 && self.pattern_count.load(Relaxed) == 0
    }

    /// Subscribes a client that is not subscribed yet.
    pub fn subscribe(&self, kind: Kind, name: &Arc<[u8]>, worker: usize, client: u64) {
        match kind {
            Kind::Channel => self.channels.add(name, worker, client),
            Kind::Shard => self.shards.add(name, worker, client),
            Kind::Pattern => {
                let mut patterns = self.patterns.write().expect("no holder panics");
                match patterns.iter_mut().find(|(pattern, _)| pattern == name) {
                    Some((_, audience)) => audience.add(worker, client),
                    None => {
                        let mut audience = Audience::default();
                        audience.add(worker, client);
                        patterns.push((name.clone(), audience));
                        self.pattern_count.fetch_add(1, Relaxed);
                    }
                }
            }
        }
    }

    /// Ends a subscription. Messages that are on their way may still come: the client's worker looks at its messages next.
    pub fn unsubscribe(&self, kind: Kind, name: &[u8], worker: usize, client: u64) {
        match kind {
            Kind::Channel => self.channels.remove(name, worker, client),
            Kind::Shard => self.shards.remove(name, worker, client),
            Kind::Pattern => {
                let mut patterns = self.patterns.write().expect("no holder panics");
                if let Some(at) = patterns.iter().position(|(pattern, _)| **pattern == *name) {
                    patterns[at].1.remove(worker, client);
                    if patterns[at].1.is_empty() {
                        patterns.remove(at);
                        self.pattern_count.fetch_sub(1, Relaxed);
                    }
                }
            }
        }
    }

    /// Sends a message to all who are subscribed to a channel, or to a pattern that its name matches; returns how many
    /// times. No pattern matches the channel of a shard. Nobody gets it before everything below `wait_lsn` is durable.
    pub fn publish(
        &self,
        queues: &PushQueues,
        channel: &[u8],
        message: &[u8],
        to_shard: bool,
        wait_lsn: Lsn,
    ) -> usize {
        if to_shard {
            return self.shards.with(channel, |audience| {
                audience.send(queues, &Payload::push(&[b"smessage", channel, message]), wait_lsn);
                audience.len()
            });
        }
        let mut receivers = self.channels.with(channel, |audience| {
            audience.send(queues, &Payload::push(&[b"message", channel, message]), wait_lsn);
            audience.len()
        });
        if self.pattern_count.load(Relaxed) > 0 {
            let patterns = self.patterns.read().expect("no holder panics");
            for (pattern, audience) in patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel))
            {
                audience.send(queues, &Payload::push(&[b"pmessage", pattern, channel, message]), wait_lsn);
                receivers += audience.len();
            }
        }
        receivers
    }

    /// How many would get a message.
    pub fn receivers(&self, channel: &[u8], to_shard: bool) -> usize {
        if to_shard {
            return self.subscribers(Kind::Shard, channel);
        }
        let patterns = self.patterns.read().expect("no holder panics");
        let matching = patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        let by_pattern: usize = matching.map(|(_, audience)| audience.len()).sum();
        self.subscribers(Kind::Channel, channel) + by_pattern
    }

    /// How many are subscribed to a channel itself.
    pub fn subscribers(&self, kind: Kind, channel: &[u8]) -> usize {
        self.namespace(kind).with(channel, Audience::len)
    }

    /// The channels that have subscribers, of those whose names match.
    pub fn channels(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        self.namespace(kind).names(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name)))
    }

    /// How many channels have subscribers.
    pub fn channel_count(&self, kind: Kind) -> usize {
        self.namespace(kind).len.load(Relaxed)
    }

    /// How many different patterns there are.
    pub fn pattern_count(&self) -> usize {
        self.pattern_count.load(Relaxed)
    }

    /// The clients that are subscribed to anything of which `is_wanted` holds.
    pub fn subscribers_where(&self, is_wanted: impl Fn(Kind, &[u8]) -> bool) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut look = |kind, name: &[u8], audience: &Audience| {
            if is_wanted(kind, name) {
                found.extend(audience.0.iter().flat_map(|(_, clients)| clients.iter().copied()));
            }
        };
        for (kind, namespace) in [(Kind::Channel, &self.channels), (Kind::Shard, &self.shards)] {
            for part in &namespace.parts {
                let part = part.read().expect("no holder panics");
                part.iter().for_each(|(name, audience)| look(kind, name, audience));
            }
        }
        let patterns = self.patterns.read().expect("no holder panics");
        patterns.iter().for_each(|(name, audience)| look(Kind::Pattern, name, audience));
        found
    }

    fn namespace(&self, kind: Kind) -> &Namespace {
        if kind == Kind::Shard { &self.shards } else { &self.channels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(queues: &PushQueues, worker: usize) -> Vec<(String, Vec<u64>, Lsn)> {
        let mut messages = Vec::new();
        queues.take(worker, &mut messages);
        messages
            .into_iter()
            .map(|PushMessage { payload: text, to, wait_lsn }| {
                let Payload::Push(text) = text else { panic!("not a message") };
                (String::from_utf8_lossy(&text).replace("\r\n", " "), to.to_vec(), wait_lsn)
            })
            .collect()
    }

    #[test]
    fn one_message_for_all_subscribers_of_a_worker() {
        let (pubsub, queues) = (PubSub::new(), PushQueues::new(2));
        let (channel, pattern): (Arc<[u8]>, Arc<[u8]>) = (Arc::from(&b"ab"[..]), Arc::from(&b"a*"[..]));
        for (worker, client) in [(0, 1), (1, 2), (0, 3)] {
            pubsub.subscribe(Kind::Channel, &channel, worker, client);
        }
        pubsub.subscribe(Kind::Pattern, &pattern, 1, 2);
        assert_eq!(pubsub.receivers(b"ab", false), 4);
        assert_eq!(pubsub.publish(&queues, b"ab", b"x", false, 7), 4);
        assert!(queues.has_messages(0) && queues.has_messages(1));
        let message = "3 $7 message $2 ab $1 x ".to_owned();
        let by_pattern = "4 $8 pmessage $2 a* $2 ab $1 x ".to_owned();
        assert_eq!(queued(&queues, 0), [(message.clone(), vec![1, 3], 7)]);
        assert_eq!(queued(&queues, 1), [(message.clone(), vec![2], 7), (by_pattern, vec![2], 7)]);
        assert!(!queues.has_messages(0));

        // A message on its way is not changed.
        pubsub.publish(&queues, b"ab", b"x", false, 0);
        pubsub.unsubscribe(Kind::Channel, b"ab", 0, 1);
        assert_eq!(queued(&queues, 0), [(message, vec![1, 3], 0)]);
        pubsub.unsubscribe(Kind::Channel, b"ab", 0, 3);
        pubsub.unsubscribe(Kind::Channel, b"ab", 1, 2);
        assert_eq!(pubsub.channel_count(Kind::Channel), 0);
        pubsub.unsubscribe(Kind::Pattern, b"a*", 1, 2);
        assert!(pubsub.is_unused());
        assert_eq!(pubsub.publish(&queues, b"ab", b"x", false, 0), 0);
    }

    #[test]
    fn who_posts_too_much_is_to_wait() {
        let (pubsub, queues) = (PubSub::new(), PushQueues::new(1));
        pubsub.subscribe(Kind::Shard, &Arc::from(&b"c"[..]), 0, 1);
        let message = vec![0; 1 << 20];
        for _ in 0..63 {
            pubsub.publish(&queues, b"c", &message, true, 0);
        }
        assert!(!queues.is_full());
        pubsub.publish(&queues, b"c", &message, true, 0);
        assert!(queues.is_full());
        assert_eq!(queued(&queues, 0).len(), 64);
        assert!(!queues.is_full());
    }
}
