//! A selector: one set of commands, keys and channels. A user may do what one of its selectors allows as a whole.

use super::error::RuleError;
use crate::{
    command::{
        Categories, Channels, Command, KeyAccess,
        keys::CallKeys,
        table::{CommandId, Table},
    },
    util::glob,
};
use holdfast_resp::Args;
use std::collections::BTreeMap;

/// What may be done with the keys that a pattern matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Permission {
    read: bool,
    write: bool,
}

impl Permission {
    const ALL: Permission = Permission { read: true, write: true };

    /// What an access needs. What only asks about a key (`EXISTS`) or creates it unseen needs a pattern that matches.
    fn needed(access: KeyAccess) -> Permission {
        let writes = [KeyAccess::INSERT, KeyAccess::UPDATE, KeyAccess::DELETE];
        Permission {
            read: access.has(KeyAccess::ACCESS),
            write: writes.into_iter().any(|write| access.has(write)),
        }
    }

    fn covers(self, needed: Permission) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }
}

/// Keys by a pattern.
#[derive(Clone, Debug)]
struct KeyPattern {
    permission: Permission,
    pattern: Vec<u8>,
}

impl KeyPattern {
    /// As it is written in a rule.
    fn describe(&self, out: &mut Vec<u8>) {
        let mark: &[u8] = match (self.permission.read, self.permission.write) {
            (true, true) => b"~",
            (true, false) => b"%R~",
            _ => b"%W~",
        };
        out.extend_from_slice(mark);
        out.extend_from_slice(&self.pattern);
    }
}

/// Why a call is refused; those that are found later in a check are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The user may not run the command.
    Command,
    /// It may not do this with the key that is this argument.
    Key(usize),
    /// It may not use the channel that is this argument.
    Channel(usize),
}

/// One set of permissions.
#[derive(Clone)]
pub struct Selector {
    /// The commands that there are.
    table: &'static Table,
    /// By a command's number, 64 to a word.
    allowed: Vec<u64>,
    /// Whether it began with all commands, so that those of later versions are allowed as well.
    future: bool,
    /// First arguments with which commands are allowed that otherwise are not.
    first_args: BTreeMap<u16, Vec<Vec<u8>>>,
    /// The rules about commands in their order, those without effect left out: whether they allow, and what.
    rules: Vec<(bool, Vec<u8>)>,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

impl Selector {
    /// Nothing is allowed, but maybe all channels.
    pub fn new(table: &'static Table, all_channels: bool) -> Self {
        Selector {
            table,
            allowed: vec![0; table.ids().div_ceil(64)],
            future: false,
            first_args: BTreeMap::new(),
            rules: Vec::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// The commands that there are.
    pub fn table(&self) -> &'static Table {
        self.table
    }

    /// Whether everything is allowed.
    pub fn is_unrestricted(&self) -> bool {
        self.all_keys && self.all_channels && self.table.all().all(|(id, _)| self.has(id))
    }

    fn has(&self, id: CommandId) -> bool {
        self.allowed[id.0 as usize / 64] >> (id.0 % 64) & 1 == 1
    }

    fn set(&mut self, id: CommandId, allow: bool) {
        let bit = 1 << (id.0 % 64);
        let word = &mut self.allowed[id.0 as usize / 64];
        *word = if allow { *word | bit } else { *word & !bit };
    }

    /// Changes what is allowed as a rule says.
    pub fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("allkeys") || rule == b"~*" => {
                self.all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || rule == b"&*" => {
                self.all_channels = true;
                self.channels.clear();
            }
            _ if is("resetchannels") => {
                self.all_channels = false;
                self.channels.clear();
            }
            _ if is("allcommands") || is("+@all") => self.set_all(true),
            _ if is("nocommands") || is("-@all") => self.set_all(false),
            [b'~', pattern @ ..] => self.add_keys(Permission::ALL, pattern)?,
            [b'%', rest @ ..] => self.add_keys_with_permission(rest)?,
            [b'&', pattern @ ..] => self.add_channels(pattern)?,
            [sign @ (b'+' | b'-'), b'@', category @ ..] => self.set_category(*sign == b'+', category)?,
            [b'+', name @ ..] => self.allow(name)?,
            [b'-', name @ ..] => {
                let id = self.table.find_full(name).ok_or(RuleError::Unknown)?;
                self.set_command(false, id);
            }
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn set_all(&mut self, allow: bool) {
        self.allowed.fill(if allow { u64::MAX } else { 0 });
        self.future = allow;
        self.rules.clear();
        self.first_args.clear();
    }

    fn add_keys(&mut self, permission: Permission, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.permission.read |= permission.read;
                known.permission.write |= permission.write;
            }
            None => self.keys.push(KeyPattern { permission, pattern: pattern.to_vec() }),
        }
        Ok(())
    }

    /// `R~pattern`, `W~pattern`, `RW~pattern`.
    fn add_keys_with_permission(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        let end = rule.iter().position(|&byte| byte == b'~').ok_or(RuleError::Syntax)?;
        let mut permission = Permission::default();
        for letter in &rule[..end] {
            let right = match letter.to_ascii_uppercase() {
                b'R' => &mut permission.read,
                b'W' => &mut permission.write,
                _ => return Err(RuleError::Syntax),
            };
            if std::mem::replace(right, true) {
                return Err(RuleError::Syntax);
            }
        }
        if permission == Permission::default() {
            return Err(RuleError::Syntax);
        }
        self.add_keys(permission, &rule[end + 1..])
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AfterAllChannels);
        }
        if has_space(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    /// `+command`, `+container|subcommand` or, deprecated, `+command|first-argument`.
    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|&byte| byte == b'|') else {
            let id = self.table.find(name).ok_or(RuleError::Unknown)?;
            self.set_command(true, id);
            return Ok(());
        };
        let (command, argument) = (&name[..bar], &name[bar + 1..]);
        let id = self.table.find_full(command).ok_or(RuleError::Unknown)?;
        if command.contains(&b'|') {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        if argument.is_empty() {
            return Err(RuleError::Syntax);
        }
        if !self.table.is_container(id) {
            let known = self.first_args.entry(id.0).or_default();
            if !known.iter().any(|other| other.eq_ignore_ascii_case(argument)) {
                known.push(argument.to_vec());
            }
            self.remember(true, name);
        } else {
            match self.table.find_subcommand(id, argument) {
                Some(sub) => self.set_command(true, sub),
                // In Redis this is no container, so that rules may name anything.
                None if self.table.command(id).name == "debug" => self.remember(true, name),
                None => return Err(RuleError::Unknown),
            }
        }
        Ok(())
    }

    fn set_command(&mut self, allow: bool, id: CommandId) {
        self.set_with_subcommands(allow, id);
        self.remember(allow, self.table.command(id).name.as_bytes());
    }

    fn set_with_subcommands(&mut self, allow: bool, id: CommandId) {
        self.set(id, allow);
        self.first_args.remove(&id.0);
        for sub in self.table.subcommands(id) {
            self.set(sub, allow);
        }
    }

    fn set_category(&mut self, allow: bool, name: &[u8]) -> Result<(), RuleError> {
        let category = Categories::named(name).ok_or(RuleError::Unknown)?;
        for (id, command) in self.table.all() {
            if command.all_categories().has(category) {
                self.set_with_subcommands(allow, id);
            }
        }
        self.remember(allow, &[b"@", name].concat());
        Ok(())
    }

    /// Adds to the list of rules, from which those go that this one makes void: an earlier one about the same, or about
    /// a part of it.
    fn remember(&mut self, allow: bool, what: &[u8]) {
        let what = what.to_ascii_lowercase();
        self.rules.retain(|(_, known)| match known.strip_prefix(&what[..]) {
            Some(rest) => !rest.is_empty() && rest[0] != b'|',
            None => true,
        });
        self.rules.push((allow, what));
    }

    /// Checks a call of the command with this number.
    pub fn check(&self, id: CommandId, args: Args, keys: &CallKeys) -> Result<(), Denied> {
        let command = self.table.command(id);
        if !self.may_run(id, command, args) {
            return Err(Denied::Command);
        }
        if !self.all_keys && !command.keys.is_empty() {
            for &(index, access) in keys.known(command, args) {
                if !self.may_use_key(args.at(index), access) {
                    return Err(Denied::Key(index));
                }
            }
        }
        if !self.all_channels {
            for index in command.channels.positions(args.len()) {
                if !self.may_use_channel(args.at(index), command.channels == Channels::Patterns) {
                    return Err(Denied::Channel(index));
                }
            }
        }
        Ok(())
    }

    fn may_run(&self, id: CommandId, command: &Command, args: Args) -> bool {
        let by_first_argument = || {
            let (Some(known), Some(first)) = (self.first_args.get(&id.0), args.get(1)) else { return false };
            known.iter().any(|argument| argument.eq_ignore_ascii_case(first))
        };
        self.has(id) || command.flags.has(crate::command::Flags::NO_AUTH) || by_first_argument()
    }

    /// Whether a key may be used in this way.
    pub fn may_use_key(&self, key: &[u8], access: KeyAccess) -> bool {
        let needed = Permission::needed(access);
        self.all_keys
            || self
                .keys
                .iter()
                .any(|keys| keys.permission.covers(needed) && glob::matches(&keys.pattern, key))
    }

    /// Whether every key may be read.
    pub fn may_read_all_keys(&self) -> bool {
        self.all_keys || self.keys.iter().any(|keys| keys.permission.read && keys.pattern == b"*")
    }

    /// Whether a channel may be used; a pattern of channels must be one of those in the rules, literally.
    pub fn may_use_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let matches = |known: &Vec<u8>| {
            if is_pattern { known == channel } else { glob::matches(known, channel) }
        };
        self.all_channels || self.channels.iter().any(matches)
    }

    /// The rules about commands from which the same set of commands can be made again.
    pub fn describe_commands(&self) -> Vec<u8> {
        let mut out = if self.future { b"+@all".to_vec() } else { b"-@all".to_vec() };
        for (allow, what) in &self.rules {
            out.extend_from_slice(if *allow { b" +" } else { b" -" });
            out.extend_from_slice(what);
        }
        out
    }

    /// The rules about keys.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let mut out = Vec::new();
        for pattern in &self.keys {
            if !out.is_empty() {
                out.push(b' ');
            }
            pattern.describe(&mut out);
        }
        out
    }

    /// The rules about channels.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let marked: Vec<Vec<u8>> =
            self.channels.iter().map(|channel| [b"&", &channel[..]].concat()).collect();
        marked.join(&b' ')
    }

    /// All rules.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts = vec![self.describe_keys()];
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.extend([self.describe_channels(), self.describe_commands()]);
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}

/// Whether a text would break the format of a rule.
pub fn has_space(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, 0 | b'\t'..=b'\r' | b' '))
}
