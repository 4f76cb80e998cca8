//! Keyspace notifications: which events are published (`notify-keyspace-events`), and how.
//!
//! A handler says what it did. The events wait in their loop turn until the transaction commits, and
//! are published while its partitions are still locked: so the events of a key are seen in the order of their happening.
//! Under `appendfsync always` nobody sees one before what it tells of is durable (I-1).

pub use crate::config::events::Class;
use crate::push::Push;
use holdfast_store::{Change, ChangeFilter, ChangeKind, Lsn, Store};
use std::sync::{
    Mutex,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// What the server tells of changes.
#[derive(Default)]
pub struct Notices {
    /// What is published: nothing unless it can go to some channel.
    classes: AtomicU32,
    /// Held while it is worked out what the store has to note.
    wanted: Mutex<()>,
}

impl Notices {
    /// Whether events of a class are published.
    #[inline]
    pub fn has(&self, class: Class) -> bool {
        Class(self.classes.load(Relaxed)).has(class)
    }

    /// Whether any events are published.
    #[inline]
    pub fn are_used(&self) -> bool {
        self.classes.load(Relaxed) != 0
    }

    /// Publishes events of these classes from now on; the caller then has the store note them ([`Notices::want`]).
    pub fn set_classes(&self, classes: Class) {
        let seen = classes.has(Class::KEYSPACE | Class::KEYEVENT);
        self.classes.store(if seen { classes.0 } else { 0 }, Relaxed);
    }

    /// Has the store note what is told of, and no more: events, and, if somebody follows what is written, that.
    pub fn want(&self, store: &Store, is_followed: impl FnOnce() -> bool) {
        let _one = self.wanted.lock().expect("no holder panics");
        let kinds = [
            (self.has(Class::EXPIRED | Class::HASH | Class::GENERIC), ChangeFilter::EXPIRED),
            (self.has(Class::EVICTED), ChangeFilter::EVICTED),
            (is_followed(), ChangeFilter::WRITTEN),
            (self.has(Class::NEW), ChangeFilter::ADDED),
            (self.has(Class::KEYMISS), ChangeFilter::MISSED),
        ];
        let wanted =
            kinds.iter().filter(|(on, _)| *on).fold(ChangeFilter::default(), |all, (_, kind)| all | *kind);
        store.want_changes(wanted);
    }
}

/// Something that happened to a key.
pub struct Event {
    /// The number of the database.
    pub db: u8,
    /// Its class.
    pub class: Class,
    /// Its name.
    pub name: &'static str,
    /// The key.
    pub key: Vec<u8>,
}

impl Event {
    /// The event that something is which the store did by itself, if it is one.
    pub fn of_change(push: &Push, change: &Change) -> Option<Event> {
        let (class, name) = match change.kind {
            ChangeKind::Written | ChangeKind::Regrouped => return None,
            ChangeKind::Added => (Class::NEW, "new"),
            ChangeKind::Expired => (Class::EXPIRED, "expired"),
            ChangeKind::Evicted => (Class::EVICTED, "evicted"),
            ChangeKind::FieldsExpired => (Class::HASH, "hexpired"),
            ChangeKind::LastFieldExpired => (Class::GENERIC, "del"),
            ChangeKind::Missed => (Class::KEYMISS, "keymiss"),
        };
        push.notices.has(class).then_some(Event { db: change.db, class, name, key: change.key.clone() })
    }

    /// Publishes it; it may be seen when everything below `wait_lsn` is durable.
    pub fn publish(&self, push: &Push, wait_lsn: Lsn) {
        let Event { db, class, name, key } = self;
        if !push.notices.has(*class) || !push.has_listeners() {
            return;
        }
        let publish = |kind: Class, word: &str, channel: &[u8], message: &[u8]| {
            if push.notices.has(kind) {
                let channel = [format!("__{word}@{db}__:").as_bytes(), channel].concat();
                push.publish_event(&channel, message, wait_lsn);
            }
        };
        publish(Class::KEYSPACE, "keyspace", key, name.as_bytes());
        publish(Class::KEYEVENT, "keyevent", name.as_bytes(), key);
    }
}
