//! What is known of a command before it is executed: its part of the command table, from which access control, COMMAND and the
//! documentation derive. What executes it is its handler ([`crate::exec::handler`]).
//!
//! It uses options (to know which of their values are secret) and nothing else of the server.

pub mod error;
pub mod keys;
pub mod redact;
pub mod syntax;
pub mod table;
pub mod tips;

use holdfast_resp::Args;
use std::ops::{BitOr, Range};

/// One command or subcommand.
pub struct Command {
    /// In lower case; of a subcommand with its container: `client|list`.
    pub name: &'static str,
    /// Its arguments behind the name, as [`crate::command::syntax`] says.
    pub syntax: &'static str,
    /// Number of arguments, the name included (and the container's); negative: at least so many. A row has it only if its
    /// syntax does not say it.
    pub arity: i32,
    /// Properties that dispatch looks at.
    pub flags: Flags,
    /// ACL categories beyond those that follow from the flags.
    pub categories: Categories,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// What it does with them, if that depends on the arguments ([`KeyAccess::VARIABLE_FLAGS`]).
    pub key_access: Option<fn(Args) -> KeyAccess>,
    /// Which of its arguments are channels.
    pub channels: Channels,
    /// Finds them, if the specifications alone do not.
    pub find_keys: Option<FindKeys>,
    /// Whether a call looks at more keys than it names, so that it locks all partitions.
    pub looks_beyond: fn(Args) -> bool,
    /// The version of Redis that it appeared in.
    pub since: &'static str,
    /// The chapter of the documentation.
    pub group: &'static str,
    /// One sentence, in the words of the documentation.
    pub summary: &'static str,
    /// Time it takes.
    pub complexity: &'static str,
}

/// Shows the index of each key of a call, and what is done with it.
pub type FindKeys = fn(Args, &mut dyn FnMut(usize, KeyAccess));

impl Command {
    /// A row to start from (`..Command::NEW`).
    pub const NEW: Command = Command {
        name: "",
        syntax: "",
        arity: 0,
        flags: Flags::NONE,
        categories: Categories::NONE,
        keys: &[],
        key_access: None,
        channels: Channels::None,
        find_keys: None,
        looks_beyond: |_| false,
        since: "1.0.0",
        group: "",
        summary: "",
        complexity: "O(1)",
    };

    /// The same with the arity that its syntax asks for, unless the row has another.
    pub const fn with_arity(self) -> Command {
        let is_given = self.arity != 0;
        let arity = if is_given { self.arity } else { syntax::arity(self.name, self.syntax) };
        Command { arity, ..self }
    }

    /// The name without the container's.
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, name)| name)
    }

    /// Whether a call with `count` arguments, the name included, is well-formed.
    #[inline]
    pub fn accepts(&self, count: usize) -> bool {
        let (count, arity) = (count as i64, i64::from(self.arity));
        count == arity || (arity < 0 && count >= -arity)
    }

    /// All ACL categories: those given, and those that follow from the flags as in Redis.
    pub fn all_categories(&self) -> Categories {
        let mut all = self.categories;
        let mut follows = |condition: bool, categories: Categories| {
            if condition {
                all = all | categories;
            }
        };
        follows(self.flags.has(Flags::WRITE), Categories::WRITE);
        follows(
            self.flags.has(Flags::READONLY) && !self.categories.has(Categories::SCRIPTING),
            Categories::READ,
        );
        follows(self.flags.has(Flags::ADMIN), Categories::ADMIN | Categories::DANGEROUS);
        follows(self.flags.has(Flags::PUBSUB), Categories::PUBSUB);
        follows(self.flags.has(Flags::BLOCKING), Categories::BLOCKING);
        let fast = self.flags.has(Flags::FAST);
        follows(fast, Categories::FAST);
        follows(!fast, Categories::SLOW);
        all
    }
}

/// Defines a set of named bits.
macro_rules! bits {
    ($(#[$doc:meta])* $set:ident { $($(#[$bit_doc:meta])* $bit:ident = $name:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            bits!(@each 0, $($(#[$bit_doc])* $bit,)*);

            /// None of them.
            #[allow(dead_code)]
            pub const NONE: $set = $set(0);

            /// Names, each at its bit.
            pub const NAMES: &[&str] = &[$($name),*];

            /// Whether all of `bits` are set.
            #[inline]
            pub const fn has(self, bits: $set) -> bool {
                self.0 & bits.0 == bits.0
            }

            /// Both, where a constant is needed.
            pub const fn and(self, more: $set) -> $set {
                $set(self.0 | more.0)
            }

            /// The bit with this name, in any case.
            #[allow(dead_code)]
            pub fn named(name: &[u8]) -> Option<$set> {
                let is_named = |known: &&str| !known.is_empty() && known.as_bytes().eq_ignore_ascii_case(name);
                Self::NAMES.iter().position(is_named).map(|bit| $set(1 << bit))
            }

            /// The names of what is set.
            pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
                let named = |name: &&str| !name.is_empty();
                let set = move |(bit, _): &(usize, _)| self.0 >> bit & 1 == 1;
                Self::NAMES.iter().enumerate().filter(set).map(|(_, name)| *name).filter(named)
            }
        }

        impl BitOr for $set {
            type Output = $set;
            fn bitor(self, more: $set) -> $set {
                self.and(more)
            }
        }
    };
    (@each $n:expr, $(#[$doc:meta])* $bit:ident, $($rest:tt)*) => {
        $(#[$doc])*
        // The vocabulary is Redis's, whether a command uses it all or not.
        #[allow(dead_code)]
        pub const $bit: Self = Self(1 << ($n));
        bits!(@each $n + 1, $($rest)*);
    };
    (@each $n:expr,) => {};
}

bits! {
    /// Properties of a command.
    Flags {
        /// May change data.
        WRITE = "write";
        /// Reads data.
        READONLY = "readonly";
        /// May make data grow: refused when there is no room.
        DENYOOM = "denyoom";
        /// For administrators.
        ADMIN = "admin";
        /// Belongs to publish/subscribe.
        PUBSUB = "pubsub";
        /// Not for scripts.
        NOSCRIPT = "noscript";
        /// May wait for others.
        BLOCKING = "blocking";
        /// Works while data are loaded.
        LOADING = "loading";
        /// Works on a replica that has lost its source.
        STALE = "stale";
        /// Not in the slow log.
        SKIP_SLOWLOG = "skip_slowlog";
        /// Takes constant or logarithmic time.
        FAST = "fast";
        /// Works before authentication.
        NO_AUTH = "no_auth";
        /// Works while a script runs too long.
        ALLOW_BUSY = "allow_busy";
        /// Not within MULTI.
        NO_MULTI = "no_multi";
        /// Its keys are not where the specifications say only.
        MOVABLE_KEYS = "movablekeys";
        /// May publish or write although it is not said to. Redis does not show it, so it has no name.
        MAY_REPLICATE = "";
        /// Shown to MONITOR by itself.
        SKIP_MONITOR = "skip_monitor";
        /// Its keys may be none.
        NO_MANDATORY_KEYS = "no_mandatory_keys";
        /// Not queued by MULTI. Redis has no such flag, so it has no name.
        IMMEDIATE = "";
    }
}

bits! {
    /// ACL categories.
    Categories {
        /// Keys of any type.
        KEYSPACE = "keyspace";
        /// Reads.
        READ = "read";
        /// Writes.
        WRITE = "write";
        /// Sets.
        SET = "set";
        /// Sorted sets.
        SORTEDSET = "sortedset";
        /// Lists.
        LIST = "list";
        /// Hashes.
        HASH = "hash";
        /// Strings.
        STRING = "string";
        /// Bitmaps.
        BITMAP = "bitmap";
        /// HyperLogLogs.
        HYPERLOGLOG = "hyperloglog";
        /// Geospatial indexes.
        GEO = "geo";
        /// Streams.
        STREAM = "stream";
        /// Publish/subscribe.
        PUBSUB = "pubsub";
        /// For administrators.
        ADMIN = "admin";
        /// Takes constant or logarithmic time.
        FAST = "fast";
        /// Takes longer.
        SLOW = "slow";
        /// May wait.
        BLOCKING = "blocking";
        /// Can do harm.
        DANGEROUS = "dangerous";
        /// About the connection.
        CONNECTION = "connection";
        /// Transactions.
        TRANSACTION = "transaction";
        /// Scripts.
        SCRIPTING = "scripting";
    }
}

/// Which arguments of a command are channels that it publishes or subscribes to, for access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// None.
    None,
    /// The first.
    First,
    /// All.
    All,
    /// All, and they are patterns.
    Patterns,
}

impl Channels {
    /// Where they are among so many arguments, the command's name included.
    pub fn positions(self, count: usize) -> Range<usize> {
        match self {
            Channels::None => 0..0,
            Channels::First => 1..count.min(2),
            Channels::All | Channels::Patterns => 1..count,
        }
    }
}

/// Where keys are among the arguments, and what is done with them.
pub struct KeySpec {
    /// What is done with the keys.
    pub access: KeyAccess,
    /// Where the search begins.
    pub begin: BeginSearch,
    /// How the keys follow.
    pub find: Find,
}

bits! {
    /// What a command does with keys.
    KeyAccess {
        /// Reads and writes the value.
        RW = "RW";
        /// Reads the value or about it.
        RO = "RO";
        /// Overwrites whatever is there.
        OW = "OW";
        /// Removes the key.
        RM = "RM";
        /// Returns or copies what the user stored.
        ACCESS = "access";
        /// Changes what the user stored.
        UPDATE = "update";
        /// Adds without changing what is there.
        INSERT = "insert";
        /// Deletes part of the value.
        DELETE = "delete";
        /// Not really a key.
        NOT_KEY = "not_key";
        /// There may be more keys than the specification finds.
        INCOMPLETE = "incomplete";
        /// Depends on the arguments.
        VARIABLE_FLAGS = "variable_flags";
    }
}

/// Where the search for keys begins.
// The vocabulary is Redis's, whether a command uses it all or not.
#[allow(dead_code)]
pub enum BeginSearch {
    /// At this argument.
    Index(usize),
    /// At the argument after this word, looked for from this argument on (negative: from the end backwards).
    Keyword(&'static str, i32),
    /// Where no specification can say: see [`Command::find_keys`].
    Unknown,
}

/// How keys follow each other.
pub enum Find {
    /// Each `step`-th up to `last`, counted from the beginning of the search (negative: from the end of the
    /// arguments); `limit` n > 1: only the first n-th part of what remains.
    Range {
        /// Last key.
        last: i32,
        /// Distance of keys.
        step: usize,
        /// Part of the arguments.
        limit: usize,
    },
    /// As many as a number says.
    KeyNum {
        /// Where the number is, counted from the beginning of the search.
        index: usize,
        /// Where the first key is, counted likewise.
        first: usize,
        /// Distance of keys.
        step: usize,
    },
    /// In no way that a specification can say.
    Unknown,
}

impl KeySpec {
    /// One key at argument `index`.
    pub const fn one(access: KeyAccess, index: usize) -> KeySpec {
        Self::range(access, index, 0, 1)
    }

    /// Keys from argument `first` on, each `step`-th, the last one at `last` (relative to `first`, or negative).
    pub const fn range(access: KeyAccess, first: usize, last: i32, step: usize) -> KeySpec {
        KeySpec { access, begin: BeginSearch::Index(first), find: Find::Range { last, step, limit: 0 } }
    }

    /// As many keys as argument `index` says, right behind it.
    pub const fn counted(access: KeyAccess, index: usize) -> KeySpec {
        KeySpec {
            access,
            begin: BeginSearch::Index(index),
            find: Find::KeyNum { index: 0, first: 1, step: 1 },
        }
    }

    /// Keys that no specification finds.
    pub const fn somewhere(access: KeyAccess) -> KeySpec {
        KeySpec { access, begin: BeginSearch::Unknown, find: Find::Unknown }
    }
}
