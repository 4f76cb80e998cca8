//! Whether the server is a replica, of whom, and how its link to the primary does. Commands order it (REPLICAOF), a thread of its own
//! carries that out, and both speak through [`Replication`].
//!
//! A replica stays one over a restart: the file `replica-of` in the data folder names its primary, and says whether the data are
//! being replaced by the primary's, as they must not be served then.

use crate::{clients::client::Client, config::file::replace, server::replica_set::ReplicaSet};
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The file that says that the server is a replica.
const FILE: &str = "replica-of";

/// Where a primary listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.host, self.port)
    }
}

impl FromStr for Primary {
    type Err = ();

    /// `host port`, as in the option `replicaof`.
    fn from_str(text: &str) -> Result<Primary, ()> {
        let (host, port) = text.split_once(' ').ok_or(())?;
        let port = port.parse().map_err(drop)?;
        if host.is_empty() { Err(()) } else { Ok(Primary { host: host.to_owned(), port }) }
    }
}

/// How far the link to the primary has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// It is to be made.
    #[default]
    Connect,
    /// It is being made.
    Connecting,
    /// The primary's data are being copied.
    Sync,
    /// What the primary writes is executed here.
    Connected,
}

impl Link {
    /// Its name in ROLE.
    pub fn name(self) -> &'static str {
        match self {
            Link::Connect => "connect",
            Link::Connecting => "connecting",
            Link::Sync => "sync",
            Link::Connected => "connected",
        }
    }
}

/// A copy of the primary's data that is on its way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copying {
    /// Its bytes; `None`: the primary does not know.
    pub total: Option<u64>,
    /// Bytes that have arrived.
    pub read: u64,
}

/// What is told of a replica.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its primary.
    pub primary: Primary,
    /// How far the link has come.
    pub link: Link,
    /// How long it has not been connected.
    pub down: Duration,
    /// When something came from the primary last.
    pub silent: Duration,
    /// The copy, while it is on its way.
    pub copying: Option<Copying>,
    /// The history of the primary's data, 40 digits, once it is known.
    pub id: String,
    /// Bytes of it that have arrived in whole commands.
    pub read_offset: u64,
    /// Bytes of it that are executed, and durable.
    pub offset: u64,
}

impl Status {
    /// That of one that follows in a replica set.
    fn in_set(set: &ReplicaSet) -> Status {
        let view = set.view();
        let leader = view.leader().map(|(_, leader)| leader);
        Status {
            primary: Primary {
                host: leader.map_or_else(String::new, |leader| leader.host.clone()),
                port: leader.map_or(0, |leader| leader.port),
            },
            link: if leader.is_some() { Link::Connected } else { Link::Connect },
            down: Duration::ZERO,
            silent: Duration::ZERO,
            copying: None,
            id: String::new(),
            read_offset: view.extent.0,
            offset: set.applied(),
        }
    }
}

/// What the thread of the link is to do.
#[derive(Clone, Debug)]
pub struct Order {
    /// Whom to follow; `None`: nobody.
    pub primary: Option<Primary>,
    number: u64,
}

/// Whether the server is a replica, and how that goes.
pub struct Replication {
    is_replica: AtomicBool,
    is_loading: AtomicBool,
    is_connected: AtomicBool,
    /// Bytes of the primary's history that are executed here, and durable.
    pub offset: AtomicU64,
    state: Mutex<State>,
    ordered: Condvar,
    /// The replica set that it began in as a follower.
    set: Option<Arc<ReplicaSet>>,
}

#[derive(Default)]
struct State {
    /// The data folder, once it is known.
    dir: PathBuf,
    primary: Option<Primary>,
    /// Orders so far, and how many of them the thread has taken.
    orders: u64,
    taken: u64,
    is_ending: bool,
    link: Link,
    down_since: Option<Instant>,
    heard: Option<Instant>,
    copying: Option<Copying>,
    id: String,
    read_offset: u64,
    /// The connections by which the primary's commands reach the workers, each with the number of its order.
    attached: Vec<(u64, Arc<Client>)>,
}

impl Replication {
    /// Of nobody, or of whoever leads a replica set.
    pub fn new(set: Option<Arc<ReplicaSet>>) -> Replication {
        Replication {
            is_replica: AtomicBool::new(set.is_some()),
            is_loading: AtomicBool::new(false),
            is_connected: AtomicBool::new(false),
            offset: AtomicU64::new(0),
            state: Mutex::default(),
            ordered: Condvar::new(),
            set,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Whether the server is a replica: only its primary writes.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Relaxed)
    }

    /// Whether its data are being replaced by the primary's.
    pub fn is_loading(&self) -> bool {
        self.is_loading.load(Relaxed)
    }

    /// Whether it follows the primary now.
    pub fn is_connected(&self) -> bool {
        self.set().map_or_else(|| self.is_connected.load(Relaxed), ReplicaSet::is_led)
    }

    /// The replica set in which it follows: what it has is what the leader of that has written.
    pub fn set(&self) -> Option<&ReplicaSet> {
        self.set.as_deref().filter(|_| self.is_replica())
    }

    /// The server leads the replica set in which it has followed.
    pub fn lead(&self) {
        self.is_replica.store(false, Relaxed);
    }

    /// Begins with what the data folder says, or else with `primary`, if there is one; whom the server follows.
    ///
    /// # Errors
    /// The file in the data folder cannot be read, or written, or does not name a primary.
    pub fn begin(&self, dir: &Path, primary: Option<Primary>) -> io::Result<Option<Primary>> {
        let role = Role::read(dir)?;
        self.state().dir = dir.to_owned();
        let is_loading = role.as_ref().is_some_and(|role| role.is_loading);
        self.is_loading.store(is_loading, Relaxed);
        let primary = primary.or(role.map(|role| role.primary));
        if let Some(primary) = &primary {
            self.follow(primary.clone())?;
        }
        Ok(primary)
    }

    /// Orders the server to follow a primary, and remembers it over restarts.
    ///
    /// # Errors
    /// The file in the data folder cannot be written.
    pub fn follow(&self, primary: Primary) -> io::Result<()> {
        let mut state = self.state();
        Role { primary: primary.clone(), is_loading: self.is_loading() }.write(&state.dir)?;
        state.primary = Some(primary);
        state.set_link(Link::Connect);
        state.id.clear();
        self.order(state);
        self.is_connected.store(false, Relaxed);
        self.is_replica.store(true, Relaxed);
        Ok(())
    }

    /// Orders it to follow nobody, and makes it a primary once nothing of the old one is at work any more; whether it is one now. To be
    /// called again until it is.
    ///
    /// # Errors
    /// The file in the data folder cannot be removed, or only a part of the primary's data is here.
    pub fn leave(&self) -> io::Result<bool> {
        if !self.is_replica() {
            return Ok(true);
        }
        let mut state = self.state();
        if self.is_loading() {
            return Err(io::Error::other("only a part of the primary's data is here"));
        }
        if state.primary.take().is_some() {
            self.order(state);
            state = self.state();
        }
        if !state.attached.is_empty() {
            return Ok(false);
        }
        Role::remove(&state.dir)?;
        self.is_connected.store(false, Relaxed);
        self.is_replica.store(false, Relaxed);
        Ok(true)
    }

    /// Has the thread of the link end.
    pub fn end(&self) {
        let mut state = self.state();
        state.is_ending = true;
        self.order(state);
    }

    fn order(&self, mut state: MutexGuard<State>) {
        state.orders += 1;
        drop(state);
        self.ordered.notify_all();
    }

    /// The next order, once there is one; `None`: end.
    pub fn next_order(&self) -> Option<Order> {
        let state = self.state();
        let is_idle = |state: &mut State| state.orders == state.taken && !state.is_ending;
        let mut state = self.ordered.wait_while(state, is_idle).expect("no holder panics");
        state.taken = state.orders;
        let order = Order { primary: state.primary.clone(), number: state.orders };
        (!state.is_ending).then_some(order)
    }

    /// Whether an order holds still.
    pub fn holds(&self, order: &Order) -> bool {
        self.state().holds(order)
    }

    /// Waits for a while, or until an order holds no more.
    pub fn wait(&self, order: &Order, while_: Duration) {
        let state = self.state();
        let waited = self.ordered.wait_timeout_while(state, while_, |state| state.holds(order));
        drop(waited.expect("no holder panics"));
    }

    /// Lets a connection of the primary write, while the order holds; whether it does.
    pub fn attach(&self, order: &Order, client: Arc<Client>) -> bool {
        let mut state = self.state();
        let holds = state.holds(order);
        if holds {
            state.attached.push((order.number, client));
        }
        holds
    }

    /// A connection of the primary is at its end: it writes no more.
    pub fn detach(&self, client: &Client) {
        self.state().attached.retain(|(_, attached)| attached.id != client.id);
    }

    /// The link has come so far.
    pub fn set_link(&self, order: &Order, link: Link) {
        let mut state = self.state();
        if state.holds(order) {
            state.set_link(link);
            self.is_connected.store(link == Link::Connected, Relaxed);
        }
    }

    /// So much of a copy has arrived; `None`: there is none on its way.
    pub fn copying(&self, copying: Option<Copying>) {
        self.state().copying = copying;
    }

    /// From now on, or no longer, the data are being replaced. That is durable when this returns.
    ///
    /// # Errors
    /// The order holds no more, or the file in the data folder cannot be written.
    pub fn set_loading(&self, order: &Order, is_loading: bool) -> io::Result<()> {
        let state = self.state();
        let (true, Some(primary)) = (state.holds(order), &state.primary) else {
            return Err(io::Error::other("it is to follow another one"));
        };
        Role { primary: primary.clone(), is_loading }.write(&state.dir)?;
        self.is_loading.store(is_loading, Relaxed);
        Ok(())
    }

    /// What was heard of the primary: its history, and how much of that has arrived.
    pub fn heard(&self, id: &str, read_offset: u64) {
        let mut state = self.state();
        if state.id != id {
            state.id = id.to_owned();
        }
        state.read_offset = read_offset;
        state.heard = Some(Instant::now());
    }

    /// The connections of a primary that is not followed any more.
    pub fn stale(&self) -> Vec<Arc<Client>> {
        let state = self.state();
        let stale = state.attached.iter().filter(|(order, _)| *order != state.orders || state.is_ending);
        stale.map(|(_, client)| client.clone()).collect()
    }

    /// The folder of the data.
    pub fn dir(&self) -> PathBuf {
        self.state().dir.clone()
    }

    /// What is told of it; `None`: it is no replica.
    pub fn status(&self) -> Option<Status> {
        if let Some(set) = self.set() {
            return Some(Status::in_set(set));
        }
        let state = self.state();
        let primary = state.primary.clone()?;
        let since = |moment: Option<Instant>| moment.map_or(Duration::ZERO, |moment| moment.elapsed());
        Some(Status {
            primary,
            link: state.link,
            down: since(state.down_since),
            silent: since(state.heard),
            copying: state.copying,
            id: state.id.clone(),
            read_offset: state.read_offset,
            offset: self.offset.load(Relaxed),
        })
    }
}

impl State {
    fn holds(&self, order: &Order) -> bool {
        self.orders == order.number && !self.is_ending
    }

    fn set_link(&mut self, link: Link) {
        if link == Link::Connected {
            self.down_since = None;
        } else {
            self.down_since.get_or_insert_with(Instant::now);
        }
        self.link = link;
    }
}

/// What the file in the data folder says.
#[derive(Debug, PartialEq, Eq)]
struct Role {
    primary: Primary,
    is_loading: bool,
}

impl Role {
    /// `None`: there is no such file.
    fn read(dir: &Path) -> io::Result<Option<Role>> {
        let text = match fs::read_to_string(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let mut lines = text.lines();
        let primary = lines.next().and_then(|line| line.parse().ok());
        let is_loading = match lines.next() {
            None => Some(false),
            Some("loading") => Some(true),
            Some(_) => None,
        };
        let role = primary.zip(is_loading).filter(|_| lines.next().is_none() && text.ends_with('\n'));
        let role = role.map(|(primary, is_loading)| Role { primary, is_loading });
        role.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it does not name a primary"))
    }

    fn write(&self, dir: &Path) -> io::Result<()> {
        let loading = if self.is_loading { "loading\n" } else { "" };
        replace(&dir.join(FILE), format!("{}\n{loading}", self.primary).as_bytes())
    }

    fn remove(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::File::open(dir)?.sync_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(port: u16) -> Primary {
        Primary { host: "host".into(), port }
    }

    #[test]
    fn a_role_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        assert_eq!(Role::read(dir).unwrap(), None);
        for is_loading in [false, true] {
            let role = Role { primary: primary(7000), is_loading };
            role.write(dir).unwrap();
            assert_eq!(Role::read(dir).unwrap(), Some(role));
        }
        for text in ["", "\n", "host\n", "host x\n", "host 1", " 1\n", "host 1\nx\n", "host 1\nloading\n\n"] {
            fs::write(dir.join(FILE), text).unwrap();
            assert!(Role::read(dir).is_err(), "{text:?}");
        }
        Role::remove(dir).unwrap();
        Role::remove(dir).unwrap();
        assert_eq!(Role::read(dir).unwrap(), None);
    }

    #[test]
    fn a_primary_is_left_only_when_it_writes_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let replication = Replication::new(None);
        assert_eq!(replication.begin(folder.path(), None).unwrap(), None);
        assert!(replication.leave().unwrap() && replication.status().is_none());
        replication.follow(primary(1)).unwrap();
        let order = replication.next_order().unwrap();
        let client = Arc::new(Client::new(7, "addr".into(), "laddr".into(), 0, 0, true));
        assert!(replication.is_replica() && replication.attach(&order, client.clone()));
        assert!(!replication.leave().unwrap() && replication.is_replica());
        assert!(!replication.holds(&order) && !replication.attach(&order, client.clone()));
        assert!(replication.set_loading(&order, true).is_err());
        replication.detach(&client);
        assert!(replication.leave().unwrap() && !replication.is_replica());
        assert_eq!(replication.next_order().unwrap().primary, None);
        replication.end();
        assert!(replication.next_order().is_none());
    }

    #[test]
    fn a_replica_stays_one_and_does_not_serve_half_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let replication = Replication::new(None);
        replication.begin(folder.path(), Some(primary(1))).unwrap();
        let order = replication.next_order().unwrap();
        replication.set_loading(&order, true).unwrap();
        let again = Replication::new(None);
        assert_eq!(again.begin(folder.path(), None).unwrap(), Some(primary(1)));
        assert!(again.is_replica() && again.is_loading());
        // An option is of later than the file.
        let again = Replication::new(None);
        assert_eq!(again.begin(folder.path(), Some(primary(2))).unwrap(), Some(primary(2)));
        assert!(again.is_loading() && again.leave().is_err() && again.is_replica());
    }
}
