//! What is sent to clients without their asking.
//!
//! It is apart from the server, which the store's maintenance must not keep alive: keys expire there too.

pub mod exchange;
pub mod invalidation;
pub mod monitor;
pub mod moving;
pub mod notify;
pub mod pubsub;
pub mod queue;
pub mod tracking;
mod waiting;

use crate::{
    clients::list::Clients,
    commit::durability::Lsn,
    push::{
        exchange::{Exchange, Published},
        monitor::Monitors,
        moving::Moving,
        notify::{Event, Notices},
        pubsub::PubSub,
        queue::PushQueues,
        tracking::{Changed, Tracking},
    },
};
use holdfast_store::{Change, Store};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// Who is to be told what, and the way to them.
pub struct Push {
    /// Who is subscribed to which channels.
    pub pubsub: PubSub,
    /// What is on its way.
    pub queues: PushQueues,
    /// Which events are published.
    pub notices: Notices,
    /// Who has copies of which keys.
    pub tracking: Tracking,
    /// What is written in slots that are on their way to another node.
    pub moving: Moving,
    /// Who is shown all commands.
    pub monitors: Monitors,
    /// All clients.
    pub clients: Arc<Clients>,
    /// The way to subscribers at other servers of a replica set.
    exchange: Option<Arc<Exchange>>,
    /// `appendfsync always`.
    waits_for_log: AtomicBool,
}

impl Push {
    /// For so many workers and these clients; `exchange`: of one of a replica set.
    pub fn new(workers: usize, clients: Arc<Clients>, exchange: Option<Arc<Exchange>>) -> Push {
        Push {
            pubsub: PubSub::new(),
            queues: PushQueues::new(workers),
            notices: Notices::default(),
            tracking: Tracking::new(),
            moving: Moving::default(),
            monitors: Monitors::default(),
            clients,
            exchange,
            waits_for_log: AtomicBool::new(true),
        }
    }

    /// Sets whether what clients are told must be durable first.
    pub fn wait_for_log(&self, wait: bool) {
        self.waits_for_log.store(wait, Relaxed);
    }

    /// What clients must wait for who are told of something that is in the log up to `lsn`.
    #[inline]
    pub fn wait_lsn(&self, lsn: Lsn) -> Lsn {
        if self.waits_for_log.load(Relaxed) { lsn } else { 0 }
    }

    /// Has the store note what somebody is told of, and no more. To be called when that has changed.
    pub fn want_changes(&self, store: &Store) {
        self.notices.want(store, || self.is_tracked() || self.moving.is_on());
    }

    /// Whether somebody tracks keys, here or at servers that follow.
    pub fn is_tracked(&self) -> bool {
        self.tracking.is_used()
            || self.exchange.as_ref().is_some_and(|exchange| exchange.invalidation.notes())
    }

    /// Tells those here who want to know of all keys with a prefix, and all at servers that follow, which keys a transaction has changed that ends at
    /// an LSN.
    pub fn broadcast(&self, changed: Vec<Changed>, lsn: Lsn) {
        self.tracking.broadcast(self, &changed, self.wait_lsn(lsn));
        if let Some(exchange) = self.exchange.as_ref().filter(|exchange| exchange.invalidation.notes()) {
            exchange.note(Some(changed.into_iter().map(|changed| changed.key).collect()), lsn);
        }
    }

    /// Tells all, here and at servers that follow, that a transaction has emptied a database.
    pub fn invalidate_all(&self, lsn: Lsn) {
        self.tracking.invalidate_all(self, self.wait_lsn(lsn));
        if let Some(exchange) = &self.exchange {
            exchange.note(None, lsn);
        }
    }

    /// Tells all, here and at servers that follow, that keys are another node's from now on. There it is not known who has read which.
    pub fn invalidate_where(&self, have_gone: impl Fn(&[u8]) -> bool, lsn: Lsn) {
        self.tracking.invalidate_where(self, have_gone);
        if let Some(exchange) = &self.exchange {
            exchange.note(None, lsn);
        }
    }

    /// As one that follows, tells clients here which keys have changed where the leader writes; `None`: any.
    pub fn invalidate_here(&self, keys: Option<Vec<Vec<u8>>>) {
        let Some(keys) = keys else { return self.tracking.invalidate_all(self, 0) };
        let changed = Vec::from_iter(keys.into_iter().map(|key| Changed { key, by: None }));
        changed.iter().for_each(|one| self.tracking.invalidate(self, one, 0));
        self.tracking.broadcast(self, &changed, 0);
    }

    /// Publishes a message, to those at other servers of a replica set, too; how many have subscribed here. See [`PubSub::publish`].
    pub fn publish(&self, channel: &[u8], message: &[u8], to_shard: bool, wait_lsn: Lsn) -> usize {
        if let Some(exchange) = &self.exchange {
            let (channel, message) = (channel.to_vec(), message.to_vec());
            exchange.say(Published { lsn: wait_lsn, from: 0, to_shard, channel, message });
        }
        self.publish_here(channel, message, to_shard, wait_lsn)
    }

    /// Publishes what a server tells of: one that follows tells its own clients only, who hear from the leader of the rest.
    pub fn publish_event(&self, channel: &[u8], message: &[u8], wait_lsn: Lsn) {
        if self.is_followed() {
            self.publish(channel, message, false, wait_lsn);
        } else {
            self.publish_here(channel, message, false, wait_lsn);
        }
    }

    /// Whether somebody may hear of an event.
    pub fn has_listeners(&self) -> bool {
        !self.pubsub.is_unused() || self.is_followed()
    }

    fn is_followed(&self) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.leads())
    }

    /// Publishes a message to subscribers at this server only.
    pub fn publish_here(&self, channel: &[u8], message: &[u8], to_shard: bool, wait_lsn: Lsn) -> usize {
        self.pubsub.publish(&self.queues, channel, message, to_shard, wait_lsn)
    }

    /// Tells of what happens to keys without a client's doing.
    pub fn follow(self: Arc<Self>, store: &Store) {
        store.follow_changes(Box::new(move |changes, lsn| self.publish_changes(changes, lsn)));
    }

    /// Publishes what the store did by itself.
    fn publish_changes(&self, changes: Vec<Change>, lsn: Lsn) {
        let wait_lsn = self.wait_lsn(lsn);
        for change in &changes {
            self.moving.note(change);
            if let Some(event) = Event::of_change(self, change) {
                event.publish(self, wait_lsn);
            }
        }
        if self.is_tracked() {
            let changed = changes.into_iter().filter_map(|change| Changed::of_change(change, None));
            let changed = Vec::from_iter(changed);
            changed.iter().for_each(|one| self.tracking.invalidate(self, one, wait_lsn));
            self.broadcast(changed, lsn);
        }
    }
}
