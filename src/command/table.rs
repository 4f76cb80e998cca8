//! The command table: what all commands are, and a fast way to find one by its name in any case.

use crate::command::{BeginSearch, Command, Find, KeySpec};
use holdfast_resp::Args;

/// Slots of the hash table; several times the number of commands, so that a look-up rarely sees a second one.
const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 11;

/// A command's number, in the order of the table; subcommands have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandId(pub u16);

/// What a call's name stands for.
pub enum Lookup {
    /// This command or subcommand.
    Found(CommandId),
    /// No command.
    UnknownCommand,
    /// This container has no such subcommand.
    UnknownSubcommand(CommandId),
}

/// All commands and subcommands.
pub struct Table {
    commands: Vec<&'static Command>,
    /// Whether the first argument is the only key, so that there is nothing to search.
    first_is_key: Vec<bool>,
    /// Of each command that is no subcommand, and one beyond: the number of its first subcommand, or of the next one's.
    first_subcommand: Vec<u16>,
    slots: Box<[Option<Slot>; SLOTS]>,
    top_level: usize,
}

/// Where a command is found by its name.
#[derive(Clone, Copy)]
struct Slot {
    head: u64,
    len: u16,
    id: u16,
}

impl Table {
    /// A table of commands by name, each with what it contains.
    pub fn new(all: Vec<(&'static Command, Vec<&'static Command>)>) -> Table {
        let top_level = all.len();
        assert!(
            all.is_sorted_by_key(|(command, _)| command.name),
            "commands are in the order of their names"
        );
        assert!(top_level < SLOTS / 2, "the hash table is too small");

        let mut commands: Vec<&'static Command> = all.iter().map(|(command, _)| *command).collect();
        let mut first_subcommand = vec![top_level as u16];
        for (_, subcommands) in all {
            commands.extend(subcommands);
            first_subcommand.push(commands.len() as u16);
        }
        let mut slots = Box::new([None; SLOTS]);
        for (id, command) in commands[..top_level].iter().enumerate() {
            let head = head(command.name.as_bytes());
            let mut at = hash(head);
            while slots[at].is_some() {
                at = (at + 1) % SLOTS;
            }
            slots[at] = Some(Slot { head, len: command.name.len() as u16, id: id as u16 });
        }
        let first_is_key = commands.iter().map(|command| is_first_argument(command.keys)).collect();
        Table { commands, first_is_key, first_subcommand, slots, top_level }
    }

    /// The command with this number.
    #[inline]
    pub fn command(&self, id: CommandId) -> &'static Command {
        self.commands[id.0 as usize]
    }

    /// Whether the first argument of a command is its only key.
    #[inline]
    pub fn first_is_key(&self, id: CommandId) -> bool {
        self.first_is_key[id.0 as usize]
    }

    /// How many numbers there are.
    pub fn ids(&self) -> usize {
        self.commands.len()
    }

    /// The numbers of all commands, without subcommands, by name.
    pub fn top_level(&self) -> impl ExactSizeIterator<Item = CommandId> + use<> {
        (0..self.top_level as u16).map(CommandId)
    }

    /// All commands and subcommands with their numbers.
    pub fn all(&self) -> impl Iterator<Item = (CommandId, &'static Command)> {
        self.commands.iter().enumerate().map(|(id, command)| (CommandId(id as u16), *command))
    }

    /// The command called `name`, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<CommandId> {
        let head = head(name);
        let mut at = hash(head);
        while let Some(slot) = self.slots[at] {
            if slot.head == head && usize::from(slot.len) == name.len() {
                let id = CommandId(slot.id);
                if name.len() <= HEAD || self.command(id).name.as_bytes().eq_ignore_ascii_case(name) {
                    return Some(id);
                }
            }
            at = (at + 1) % SLOTS;
        }
        None
    }

    /// The subcommand of `container` called `name`, in any case.
    pub fn find_subcommand(&self, container: CommandId, name: &[u8]) -> Option<CommandId> {
        self.subcommands(container)
            .find(|&id| self.command(id).short_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// The numbers of what a container contains.
    pub fn subcommands(&self, container: CommandId) -> impl ExactSizeIterator<Item = CommandId> + use<> {
        let at = container.0 as usize;
        let range = match self.first_subcommand.get(at..at + 2) {
            Some(&[first, end]) => first..end,
            // A subcommand.
            _ => 0..0,
        };
        range.map(CommandId)
    }

    /// Whether a command has subcommands.
    #[inline]
    pub fn is_container(&self, id: CommandId) -> bool {
        let at = id.0 as usize;
        at < self.top_level && self.first_subcommand[at] < self.first_subcommand[at + 1]
    }

    /// What a call stands for: of a container, the subcommand that its first argument names.
    #[inline]
    pub fn lookup(&self, args: Args) -> Lookup {
        let Some(id) = self.find(args.at(0)) else { return Lookup::UnknownCommand };
        if args.len() > 1 && self.is_container(id) {
            return match self.find_subcommand(id, args.at(1)) {
                Some(sub) => Lookup::Found(sub),
                None => Lookup::UnknownSubcommand(id),
            };
        }
        Lookup::Found(id)
    }

    /// A command by its full name, `get` or `client|list`.
    pub fn find_full(&self, name: &[u8]) -> Option<CommandId> {
        match name.iter().position(|&b| b == b'|') {
            None => self.find(name),
            Some(bar) => self.find_subcommand(self.find(&name[..bar])?, &name[bar + 1..]),
        }
    }
}

fn is_first_argument(keys: &[KeySpec]) -> bool {
    matches!(keys, [KeySpec { begin: BeginSearch::Index(1), find: Find::Range { last: 0, .. }, .. }])
}

/// Bytes of a name that are compared at once: most are not longer.
const HEAD: usize = 8;

/// The first bytes of a name in lower case.
#[inline(always)]
fn head(name: &[u8]) -> u64 {
    let head = match (name.first_chunk::<HEAD>(), name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(&first), ..) => u64::from_le_bytes(first),
        // Where these overlap they are the same.
        (None, Some(&first), Some(&last)) => {
            let last = u64::from(u32::from_le_bytes(last)) << (8 * (name.len() - 4));
            u64::from(u32::from_le_bytes(first)) | last
        }
        _ => {
            let byte = |at: usize| name.get(at).map_or(0, |&byte| u64::from(byte) << (8 * at));
            byte(0) | byte(1) | byte(2)
        }
    };
    lower_case(head)
}

/// Eight bytes in lower case, all at once.
#[inline]
fn lower_case(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let is_ascii = !bytes & (0x80 * EACH);
    let low = bytes & (0x7F * EACH);
    // The top bit of each byte says whether it is at least the letter, or beyond it.
    let (from_a, beyond_z) = (low + (0x80 - u64::from(b'A')) * EACH, low + (0x7F - u64::from(b'Z')) * EACH);
    let is_upper = is_ascii & from_a & !beyond_z;
    bytes | is_upper >> 2
}

/// The slot to begin with.
#[inline]
fn hash(head: u64) -> usize {
    (head.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        command::{Flags, KeyAccess, keys::legacy_range},
        commands::ROWS,
        exec::handler::Handler,
    };
    use std::collections::HashSet;

    #[test]
    fn every_row_is_sane() {
        let mut names = HashSet::new();
        for (_, command) in ROWS.table.all() {
            let name = command.name;
            assert!(names.insert(name), "{name} twice");
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(command.arity != 0 && (-10..=10).contains(&command.arity), "{name}: arity");
            assert!(!command.group.is_empty() && !command.since.is_empty(), "{name}: group, since");
            let complexity = command.complexity;
            let is_told = ["O(", "N/A", "Depends on "].iter().any(|form| complexity.contains(form));
            assert!(is_told, "{name}: complexity");
            assert!(command.summary.ends_with('.') || command.name.contains('|'), "{name}: summary");
            assert!(!command.summary.is_empty(), "{name}: summary");
            assert!(!command.flags.has(Flags::WRITE | Flags::READONLY), "{name}: reads or writes");
            assert!(!command.flags.has(Flags::DENYOOM) || command.flags.has(Flags::WRITE), "{name}: denyoom");
        }
    }

    #[test]
    fn subcommands_are_named_after_their_container() {
        for (id, container) in ROWS.table.all() {
            for row in ROWS.row(id).subcommands {
                let (sub, prefix) = (&row.command, format!("{}|", container.name));
                assert!(sub.name.starts_with(&prefix), "{}", sub.name);
                assert!(row.subcommands.is_empty(), "{}", sub.name);
                assert!(sub.arity.abs() >= 2, "{}: arity", sub.name);
            }
        }
    }

    #[test]
    fn key_ranges_lie_within_the_arguments() {
        for (_, command) in ROWS.table.all() {
            let name = command.name;
            for spec in command.keys {
                let kinds = [KeyAccess::RW, KeyAccess::RO, KeyAccess::OW, KeyAccess::RM];
                let count = kinds.iter().filter(|&&kind| spec.access.has(kind)).count();
                assert_eq!(count, usize::from(!spec.access.has(KeyAccess::NOT_KEY)), "{name}: access");
                match spec.begin {
                    BeginSearch::Index(index) => {
                        // A range that may be empty can begin where the arguments end.
                        let may_be_empty = matches!(spec.find, Find::Range { last: ..0, .. });
                        let end = command.arity.unsigned_abs() as usize + usize::from(may_be_empty);
                        assert!(index >= 1 && index < end, "{name}: first key");
                    }
                    BeginSearch::Unknown => assert!(command.find_keys.is_some(), "{name}: unknown keys"),
                    BeginSearch::Keyword(word, from) => {
                        assert!(!word.is_empty() && from != 0, "{name}: keyword")
                    }
                }
                match spec.find {
                    Find::Unknown => assert!(command.find_keys.is_some(), "{name}: unknown keys"),
                    Find::Range { last, step, .. } => assert!(step >= 1 && last >= -3, "{name}: range"),
                    Find::KeyNum { first, step, .. } => assert!(step >= 1 && first >= 1, "{name}: count"),
                }
            }
            let (first, last, step) = legacy_range(command);
            assert!(
                (first == 0 && last == 0 && step == 0) || (first >= 1 && step >= 1),
                "{name}: legacy range"
            );
        }
    }

    #[test]
    fn who_has_keys_gets_a_transaction() {
        for (id, command) in ROWS.table.all() {
            let keyed = matches!(ROWS.row(id).handler, Handler::Keyed(_) | Handler::Script(_));
            let has_keys = command.keys.iter().any(|spec| !spec.access.has(KeyAccess::NOT_KEY));
            assert_eq!(keyed, has_keys, "{}", command.name);
        }
    }

    #[test]
    fn lower_case_of_every_byte() {
        for byte in 0..=255u8 {
            for at in 0..8 {
                let mut bytes = *b"aZ@[`{z\x80";
                bytes[at] = byte;
                assert_eq!(
                    lower_case(u64::from_le_bytes(bytes)).to_le_bytes(),
                    bytes.to_ascii_lowercase()[..]
                );
            }
        }
    }

    #[test]
    fn finds_every_command_in_any_case() {
        for (id, command) in ROWS.table.all() {
            assert_eq!(ROWS.table.find_full(command.name.as_bytes()), Some(id));
            assert_eq!(ROWS.table.find_full(command.name.to_uppercase().as_bytes()), Some(id));
        }
        for unknown in ["", "nope", "ge", "pingg", "client|nope", "nope|list"] {
            assert_eq!(ROWS.table.find_full(unknown.as_bytes()), None, "{unknown}");
        }
    }
}
