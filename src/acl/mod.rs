//! Access control: the users, what they may do, and the log of what they were refused.
//!
//! A session holds its [`User`], whose rules may change at any time: the next command sees the new ones. A user that may
//! do everything is told by one flag, so that others pay for the rules and it does not.

mod error;
mod file;
mod log;
mod rule;
mod selector;

pub use file::{all_channels, has_file, lines, load, load_at_start, save};
pub use log::{AclLog, Context, now_ms};
pub use rule::Rules;
pub use selector::{Denied, Selector, has_space};

use crate::{
    clients::client::Client,
    command::{
        KeyAccess,
        keys::CallKeys,
        table::{CommandId, Table},
    },
    config::{Config, Opt},
};
use holdfast_resp::Args;
use rule::join_selectors;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering::*},
    },
};

/// The name of the user that connections have before they say who they are.
pub const DEFAULT: &[u8] = b"default";

/// A user.
pub struct User {
    /// Its name.
    pub name: Vec<u8>,
    unrestricted: AtomicBool,
    rules: RwLock<Arc<Rules>>,
}

impl User {
    fn new(name: &[u8], rules: Rules) -> Arc<User> {
        let unrestricted = AtomicBool::new(rules.is_unrestricted());
        Arc::new(User { name: name.to_vec(), unrestricted, rules: RwLock::new(Arc::new(rules)) })
    }

    /// What it may do.
    pub fn rules(&self) -> Arc<Rules> {
        self.rules.read().expect("no holder panics").clone()
    }

    fn set_rules(&self, rules: Rules) {
        let unrestricted = rules.is_unrestricted();
        let mut current = self.rules.write().expect("no holder panics");
        // Rights are taken away before the rules tell which, and given after.
        self.unrestricted.fetch_and(unrestricted, Release);
        *current = Arc::new(rules);
        self.unrestricted.store(unrestricted, Release);
    }

    /// Whether it may do anything.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.unrestricted.load(Acquire)
    }

    /// Whether it may run a command with these arguments.
    pub fn may_run(&self, id: CommandId, args: Args, keys: &CallKeys) -> Result<(), Denied> {
        if self.is_unrestricted() { Ok(()) } else { self.rules().check(id, args, keys) }
    }

    /// Whether it may run a command that reads keys beyond those in its arguments.
    pub fn may_read_all_keys(&self, id: CommandId, args: Args) -> bool {
        self.is_unrestricted() || self.rules().may_read_all_keys(id, args)
    }

    /// Whether a call may use keys that it does not name in this way.
    pub fn may_use_keys<'k>(
        &self,
        id: CommandId,
        args: Args,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        access: KeyAccess,
    ) -> bool {
        self.is_unrestricted() || self.rules().may_use_keys(id, args, keys, access)
    }
}

/// All users.
pub struct Acl {
    /// The commands that there are.
    table: &'static Table,
    users: RwLock<BTreeMap<Vec<u8>, Arc<User>>>,
    default: Arc<User>,
    /// What was refused.
    pub log: AclLog,
}

impl Acl {
    /// Only the default user, who may do everything.
    pub fn new(table: &'static Table) -> Acl {
        let default = User::new(DEFAULT, Rules::all(table));
        let users = RwLock::new(BTreeMap::from([(DEFAULT.to_vec(), default.clone())]));
        Acl { table, users, default, log: AclLog::default() }
    }

    /// The user that connections have before they say who they are.
    pub fn default_user(&self) -> Arc<User> {
        self.default.clone()
    }

    /// One who may do everything, whatever the default user may.
    pub fn anyone(&self) -> Arc<User> {
        User::new(DEFAULT, Rules::all(self.table))
    }

    /// Sets the password of the default user; an empty one: it needs none.
    pub fn set_password(&self, password: &str) {
        let _users = self.users.write().expect("no holder panics");
        let mut rules = (*self.default.rules()).clone();
        rules.set_password(password);
        self.default.set_rules(rules);
    }

    /// Whether a new connection must authenticate.
    pub fn requires_auth(&self) -> bool {
        let rules = self.default.rules();
        !rules.needs_no_password() || !rules.is_enabled()
    }

    /// A user by its name.
    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.users.read().expect("no holder panics").get(name).cloned()
    }

    /// All users by name.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.users.read().expect("no holder panics").values().cloned().collect()
    }

    /// The user with this name and password, unless it is disabled.
    pub fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        self.get(name).filter(|user| user.rules().accepts(password))
    }

    /// Changes a user, or makes a new one, if all the rules are valid; else the error of ACL SETUSER.
    pub fn set_user<'a>(
        &self,
        name: &[u8],
        words: impl Iterator<Item = &'a [u8]>,
        all_channels: bool,
    ) -> Result<(), Vec<u8>> {
        let changes = join_selectors(words).map_err(|start| {
            [&b"ERR Unmatched parenthesis in acl selector starting at '"[..], &start, b"'."].concat()
        })?;
        let mut users = self.users.write().expect("no holder panics");
        let mut rules = match users.get(name) {
            Some(user) => (*user.rules()).clone(),
            None => Rules::new(self.table, all_channels),
        };
        for change in changes {
            rules.apply(&change, all_channels).map_err(|error| {
                [b"ERR Error in ACL SETUSER modifier '", &change[..], b"': ", error.text().as_bytes()]
                    .concat()
            })?;
        }
        match users.get(name) {
            Some(user) => user.set_rules(rules),
            None => {
                users.insert(name.to_vec(), User::new(name, rules));
            }
        }
        Ok(())
    }

    /// Writes a refusal of a call to the log; returns the reason for the client, as [`Denied::message`].
    #[cold]
    pub fn refuse(
        &self,
        config: &Config,
        denied: Denied,
        call: (CommandId, Args),
        user: &User,
        client: &Client,
        context: Context,
    ) -> Vec<u8> {
        let (reason, object) = denied.object(self.table, call.0, call.1);
        let log_max = config.number(Opt::AclLogMaxLen) as usize;
        self.log.add(reason, context, object, &client.user(), || client.describe(self.table), log_max);
        denied.message(self.table, user, call.0, call.1)
    }

    /// Removes a user, if there is one with this name. Connections that have it may do nothing more.
    pub fn remove(&self, name: &[u8]) -> bool {
        let removed = self.users.write().expect("no holder panics").remove(name);
        if let Some(user) = &removed {
            user.set_rules(Rules::new(self.table, false));
        }
        removed.is_some()
    }

    /// Replaces all users; those that remain keep their connections. Returns the names of those that do not.
    fn replace(&self, mut new: BTreeMap<Vec<u8>, Rules>) -> Vec<Vec<u8>> {
        let mut users = self.users.write().expect("no holder panics");
        new.entry(DEFAULT.to_vec()).or_insert_with(|| Rules::all(self.table));
        let gone: Vec<Vec<u8>> = users.keys().filter(|name| !new.contains_key(*name)).cloned().collect();
        for name in &gone {
            if let Some(user) = users.remove(name) {
                user.set_rules(Rules::new(self.table, false));
            }
        }
        for (name, rules) in new {
            match users.get(&name) {
                Some(user) => user.set_rules(rules),
                None => {
                    users.insert(name.clone(), User::new(&name, rules));
                }
            }
        }
        gone
    }
}

impl Denied {
    /// What is refused: the kind, and the name of the command, key or channel.
    fn object<'c>(self, table: &'static Table, id: CommandId, args: Args<'c>) -> (&'static str, &'c [u8]) {
        match self {
            Denied::Command => ("command", table.command(id).name.as_bytes()),
            Denied::Key(index) => ("key", args.at(index)),
            Denied::Channel(index) => ("channel", args.at(index)),
        }
    }

    /// The reason in words, with the command, key or channel that it is about.
    pub fn describe(self, table: &'static Table, user: &User, id: CommandId, args: Args) -> Vec<u8> {
        let (kind, name) = self.object(table, id, args);
        let what = if self == Denied::Command { "run" } else { "access" };
        let what = format!(" has no permissions to {what} the '");
        [b"User ", &user.name[..], what.as_bytes(), name, b"' ", kind.as_bytes()].concat()
    }

    /// The reason in words that do not repeat what the client has sent.
    pub fn message(self, table: &'static Table, user: &User, id: CommandId, args: Args) -> Vec<u8> {
        match self {
            Denied::Command => self.describe(table, user, id, args),
            Denied::Key(_) => b"No permissions to access a key".to_vec(),
            Denied::Channel(_) => b"No permissions to access a channel".to_vec(),
        }
    }
}
