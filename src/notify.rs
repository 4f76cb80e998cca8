//! Keyspace notifications: which events are published (`notify-keyspace-events`), and how.
//!
//! A handler says what it did by [`Call::notify`]. The events wait in their loop turn until the transaction commits, and
//! are published while its partitions are still locked: so the events of a key are seen in the order of their happening.
//! Under `appendfsync always` nobody sees one before what it tells of is durable (I-1).

use crate::{call::Call, config::Opt, dispatch::News, push::Push, server::Server};
use holdfast_store::{Change, Lsn, Txn, Wanted, What};
use std::{
    ops::BitOr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// A set of classes of events, and of the kinds of channels that they are published to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class(u32);

// The vocabulary is Redis's, whether an event of each class happens here or not.
#[allow(dead_code)]
impl Class {
    /// Channels named after keys.
    pub const KEYSPACE: Class = Class(1);
    /// Channels named after events.
    pub const KEYEVENT: Class = Class(1 << 1);
    /// What can be done with keys of any type.
    pub const GENERIC: Class = Class(1 << 2);
    /// Strings.
    pub const STRING: Class = Class(1 << 3);
    /// Lists.
    pub const LIST: Class = Class(1 << 4);
    /// Sets.
    pub const SET: Class = Class(1 << 5);
    /// Hashes.
    pub const HASH: Class = Class(1 << 6);
    /// Sorted sets.
    pub const ZSET: Class = Class(1 << 7);
    /// Keys that have expired.
    pub const EXPIRED: Class = Class(1 << 8);
    /// Keys that gave way to others for lack of memory.
    pub const EVICTED: Class = Class(1 << 9);
    /// Streams.
    pub const STREAM: Class = Class(1 << 10);
    /// Keys that were read and are not there.
    pub const KEYMISS: Class = Class(1 << 11);
    /// Modules' types.
    pub const MODULE: Class = Class(1 << 12);
    /// Keys that were not there before.
    pub const NEW: Class = Class(1 << 13);

    /// The classes that one letter, `A`, stands for.
    const ALL: Class = Class(0b1_0111_1111_1100);
    /// A letter for each class, in the order in which they are shown.
    const LETTERS: [(char, Class); 14] = [
        ('g', Class::GENERIC),
        ('$', Class::STRING),
        ('l', Class::LIST),
        ('s', Class::SET),
        ('h', Class::HASH),
        ('z', Class::ZSET),
        ('x', Class::EXPIRED),
        ('e', Class::EVICTED),
        ('t', Class::STREAM),
        ('d', Class::MODULE),
        ('n', Class::NEW),
        ('K', Class::KEYSPACE),
        ('E', Class::KEYEVENT),
        ('m', Class::KEYMISS),
    ];

    /// Whether one of `classes` is among them.
    #[inline]
    fn has(self, classes: Class) -> bool {
        self.0 & classes.0 != 0
    }

    fn parse(letters: &str) -> Option<Class> {
        letters.chars().try_fold(Class(0), |all, letter| {
            let class = match letter {
                'A' => Class::ALL,
                _ => Class::LETTERS.iter().find(|(known, _)| *known == letter)?.1,
            };
            Some(all | class)
        })
    }

    fn show(self) -> String {
        let all = self.0 & Class::ALL.0 == Class::ALL.0;
        let shown = Class::LETTERS
            .iter()
            .filter(|(_, class)| self.has(*class) && !(all && Class::ALL.has(*class)))
            .map(|(letter, _)| *letter);
        all.then_some('A').into_iter().chain(shown).collect()
    }
}

impl BitOr for Class {
    type Output = Class;
    fn bitor(self, more: Class) -> Class {
        Class(self.0 | more.0)
    }
}

/// The value of `notify-keyspace-events` as Redis shows it.
pub fn normalize(words: &[&str], _current: &str) -> Result<String, String> {
    const INVALID: &str = "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.";
    match words {
        [letters] => Class::parse(letters).map(Class::show).ok_or_else(|| INVALID.to_owned()),
        _ => Err("wrong number of arguments".into()),
    }
}

/// Follows a new `notify-keyspace-events`.
pub fn apply(server: &Server) -> Result<(), String> {
    let text = server.config.text(Opt::NotifyKeyspaceEvents);
    let classes = Class::parse(&text).ok_or("unknown classes of events")?;
    server.push.notices.set_classes(server, classes);
    Ok(())
}

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

    fn set_classes(&self, server: &Server, classes: Class) {
        let seen = classes.has(Class::KEYSPACE | Class::KEYEVENT);
        self.classes.store(if seen { classes.0 } else { 0 }, Relaxed);
        self.want(server);
    }

    /// Has the store note what is told of, and no more.
    pub fn want(&self, server: &Server) {
        let _one = self.wanted.lock().expect("no holder panics");
        let kinds = [
            (self.has(Class::EXPIRED | Class::HASH | Class::GENERIC), Wanted::EXPIRED),
            (self.has(Class::EVICTED), Wanted::EVICTED),
            (server.push.tracking.is_used(), Wanted::WRITTEN),
            (self.has(Class::NEW), Wanted::ADDED),
            (self.has(Class::KEYMISS), Wanted::MISSED),
        ];
        let wanted = kinds.iter().filter(|(on, _)| *on).fold(Wanted::default(), |all, (_, kind)| all | *kind);
        server.store.want_changes(wanted);
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
        let (class, name) = match change.what {
            What::Written => return None,
            What::Added => (Class::NEW, "new"),
            What::Expired => (Class::EXPIRED, "expired"),
            What::Evicted => (Class::EVICTED, "evicted"),
            What::FieldsExpired => (Class::HASH, "hexpired"),
            What::LastFieldExpired => (Class::GENERIC, "del"),
            What::Missed => (Class::KEYMISS, "keymiss"),
        };
        push.notices.has(class).then_some(Event { db: change.db, class, name, key: change.key.clone() })
    }

    /// Publishes it; it may be seen when everything below `gate` is durable.
    pub fn publish(&self, push: &Push, gate: Lsn) {
        let Event { db, class, name, key } = self;
        if !push.notices.has(*class) || push.pubsub.is_unused() {
            return;
        }
        let publish = |kind: Class, word: &str, channel: &[u8], message: &[u8]| {
            if push.notices.has(kind) {
                let channel = [format!("__{word}@{db}__:").as_bytes(), channel].concat();
                push.publish(&channel, message, false, gate);
            }
        };
        publish(Class::KEYSPACE, "keyspace", key, name.as_bytes());
        publish(Class::KEYEVENT, "keyevent", name.as_bytes(), key);
    }
}

impl Call<'_> {
    /// Says what was done to a key of the selected database, to those who listen for it.
    #[inline]
    pub fn notify(&self, class: Class, event: &'static str, key: &[u8]) {
        self.notify_in(self.session.db as u8, class, event, key);
    }

    /// The same where the key may have been removed with its last element: then that is told too.
    #[inline]
    pub fn notify_taken(&self, txn: &mut Txn, class: Class, event: &'static str, key: &[u8]) {
        self.notify(class, event, key);
        self.notify_if_gone(txn, key);
    }

    /// Says that a key is gone, if it is.
    #[inline]
    pub fn notify_if_gone(&self, txn: &mut Txn, key: &[u8]) {
        if self.notifies(Class::GENERIC) && !txn.exists(self.db(), key) {
            self.notify(Class::GENERIC, "del", key);
        }
    }

    /// Says that a result was stored at a key, or, if there was none, that the key is gone that was there before.
    pub fn notify_stored(
        &self,
        class: Class,
        event: &'static str,
        key: &[u8],
        is_stored: bool,
        was_there: bool,
    ) {
        if is_stored {
            self.notify(class, event, key);
        } else if was_there {
            self.notify(Class::GENERIC, "del", key);
        }
    }

    /// Whether events of a class are published, so that it is worth finding out what has happened.
    #[inline]
    pub fn notifies(&self, class: Class) -> bool {
        self.server().push.notices.has(class)
    }

    /// The same of the database with a number.
    #[inline]
    pub fn notify_in(&self, db: u8, class: Class, event: &'static str, key: &[u8]) {
        if self.notifies(class) {
            self.turn.announce(News::Event(Event { db, class, name: event, key: key.to_vec() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_shown_as_redis_shows_them() {
        for (given, shown) in [
            ("", ""),
            ("KEA", "AKE"),
            ("AKEmn", "AnKEm"),
            ("Ez$", "$zE"),
            ("mxeK", "xeKm"),
            ("g$lshzxetd", "A"),
            ("KA", "AK"),
        ] {
            assert_eq!(normalize(&[given], "").as_deref(), Ok(shown), "{given}");
            assert_eq!(normalize(&[shown], "").as_deref(), Ok(shown), "{shown}");
        }
        assert!(normalize(&["KEq"], "").is_err());
        assert!(normalize(&["K", "E"], "").is_err());
    }
}
