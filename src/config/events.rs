//! The classes of keyspace events: the option `notify-keyspace-events`.

use std::ops::BitOr;

/// A set of classes of events, and of the kinds of channels that they are published to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class(pub u32);

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
    pub fn has(self, classes: Class) -> bool {
        self.0 & classes.0 != 0
    }

    /// The classes with these letters.
    pub fn parse(letters: &str) -> Option<Class> {
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
