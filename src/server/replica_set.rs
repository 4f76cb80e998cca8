//! The server as one of a replica set: what commands tell of that, and whoever answers clients while the server does not lead. A thread of
//! its own (`crate::replica_set`) takes part in the set, and shows here what it knows.

use crate::{
    commit::lease::Lease,
    config::{
        Config, Opt,
        address::{Address, bus_port, parse_servers, show_servers},
    },
    push::{Push, exchange::Exchange},
    transport::trust::Trust,
};
use holdfast_cluster::Seat;
use holdfast_consensus::{Change, MemberId, Members, Refused, Replica};
use holdfast_resp::Writer;
use holdfast_store::{Io, Lsn, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    thread,
    time::Duration,
};
use tokio::sync::mpsc::UnboundedSender;

/// How long after its last sign of life another server counts as connected.
pub const CONNECTED: Duration = Duration::from_secs(10);

/// What is known of the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The servers of the set, by their numbers.
    pub servers: Arc<BTreeMap<MemberId, Listed>>,
    /// Which of them this one is; `None`: it is not known yet.
    pub own: Option<MemberId>,
    /// Who leads.
    pub leader: Option<MemberId>,
    /// Where the log ends here, and up to where it is known to be agreed on.
    pub extent: (Lsn, Lsn),
    /// The others, as the leader knows them.
    pub others: Vec<Other>,
    /// Whether this one leads and another one is about to.
    pub hands_over: bool,
}

/// A server of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it is.
    pub address: Address,
    /// Whether it counts for a majority.
    pub votes: bool,
}

/// Another server, as the leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Which of the servers it is.
    pub id: MemberId,
    /// Everything below is durable there.
    pub end: Lsn,
    /// For how long it was not heard of.
    pub silent: Duration,
}

impl View {
    /// Where a server is.
    pub fn address(&self, id: MemberId) -> Option<&Address> {
        self.servers.get(&id).map(|listed| &listed.address)
    }

    /// The leader, and where it is.
    pub fn leader(&self) -> Option<(MemberId, &Address)> {
        self.leader.and_then(|id| self.address(id).map(|address| (id, address)))
    }

    /// How many servers are a majority.
    pub fn majority(&self) -> usize {
        self.servers.values().filter(|listed| listed.votes).count() / 2 + 1
    }

    /// How many others have everything below `lsn`.
    pub fn count_with(&self, lsn: Lsn) -> usize {
        self.others.iter().filter(|other| other.end >= lsn).count()
    }

    /// The others that were heard of of late.
    pub fn heard_within(&self, limit: Duration) -> impl Iterator<Item = &Other> {
        self.others.iter().filter(move |other| other.silent <= limit)
    }
}

/// The cluster in which all servers of a set are to be, as one that is in it tells another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterOfSet {
    pub cluster: u64,
    /// Where the node of the one that tells it listens.
    pub bus_port: u16,
    /// Whether the one that is told is in it by the map of this version.
    pub version: u64,
    pub is_member: bool,
}

/// The set.
pub struct ReplicaSet {
    /// By what name clients that look for a leader, as Redis Sentinel names one, ask for it.
    pub name: String,
    /// Its servers as the option names them, by their numbers.
    pub listed: BTreeMap<MemberId, Address>,
    /// How they know each other.
    pub trust: Arc<Trust>,
    /// Until when what was read may be told.
    pub lease: Arc<Lease>,
    view: Mutex<View>,
    /// Whether somebody leads.
    is_led: AtomicBool,
    /// As one that follows, up to where what is agreed on is applied.
    applied: AtomicU64,
    successors: OnceLock<UnboundedSender<MemberId>>,
    /// Is called when something has changed that the server keeps in the data for itself, before more is applied.
    on_system_changes: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Messages to those who have subscribed at others, and from there.
    pub messages: Arc<Exchange>,
    /// Once the set is founded: which it is, and the replica of this server.
    joined: OnceLock<(u64, Arc<Replica>)>,
    /// The cluster in which all of the set are to be, if this server is in one, and which of them are in it.
    cluster: Mutex<Option<(ClusterOfSet, BTreeSet<MemberId>)>>,
    /// Where those of other servers are.
    ways_to_cluster: Mutex<BTreeMap<MemberId, (String, ClusterOfSet)>>,
    /// As the one that leads: what it writes to, and who is told of that.
    leads: OnceLock<(Arc<Store>, Arc<Push>)>,
}

impl ReplicaSet {
    /// As the options say; `None`: the server is on its own. `io`: its data folder.
    ///
    /// # Errors
    /// They do not go together.
    pub fn new(config: &Config, io: &Arc<dyn Io>) -> Result<Option<Arc<ReplicaSet>>, String> {
        let text = config.text(Opt::ReplicaSet);
        if text.is_empty() {
            return Ok(None);
        }
        let listed = parse_servers(text.split_whitespace()).expect("the option was checked");
        let refused = |why: &str| Err(format!("replica-set: {why}"));
        let bus = |port| bus_port(config, port);
        if config.is_on(Opt::ClusterEnabled) && bus(Opt::ReplicaSetPort) == bus(Opt::ClusterPort) {
            return refused(
                "the servers of the set and the nodes of the cluster (cluster-enabled) connect at one and the same port, port + 10000: \
                 set replica-set-port, and name it behind an @ of the server's address in replica-set",
            );
        }
        if !config.text(Opt::ReplicaOf).is_empty() {
            return refused("one of its servers cannot be a replica of another server (replicaof), too");
        }
        let has_more = !config.more_dirs().is_empty() || config.flash_dir().is_some();
        if config.choice(Opt::Medium) != "block" || has_more {
            return refused(
                "the data of its servers lie in one folder, on a drive: medium block, and one dir",
            );
        }
        let trust = Arc::new(Trust::new(Opt::TlsReplication));
        trust.configure(config).map_err(|e| format!("tls-replication: {e}"))?;
        let lease = Arc::new(Lease::new(io.clone()));
        let name = config.text(Opt::ReplicaSetName);
        let set = ReplicaSet {
            name,
            listed,
            trust,
            lease,
            view: Mutex::default(),
            is_led: AtomicBool::new(false),
            applied: AtomicU64::new(0),
            successors: OnceLock::new(),
            on_system_changes: OnceLock::new(),
            messages: Arc::default(),
            joined: OnceLock::new(),
            cluster: Mutex::default(),
            ways_to_cluster: Mutex::default(),
            leads: OnceLock::new(),
        };
        set.lock().servers = Arc::new(set.as_listed());
        Ok(Some(Arc::new(set)))
    }

    /// Its servers, as the option names them.
    pub fn list(&self) -> String {
        show_servers(&self.listed)
    }

    /// Its servers, until there is a set that knows better.
    pub fn as_listed(&self) -> BTreeMap<MemberId, Listed> {
        let listed =
            |(id, address): (&MemberId, &Address)| (*id, Listed { address: address.clone(), votes: true });
        self.listed.iter().map(listed).collect()
    }

    fn lock(&self) -> MutexGuard<'_, View> {
        self.view.lock().expect("no holder panics")
    }

    /// What is known.
    pub fn view(&self) -> View {
        self.lock().clone()
    }

    /// Shows what is known.
    pub fn show(&self, view: View) {
        self.is_led.store(view.leader.is_some(), Relaxed);
        *self.lock() = view;
    }

    /// Whether somebody leads.
    pub fn is_led(&self) -> bool {
        self.is_led.load(Relaxed)
    }

    /// As one that follows, shows up to where what is agreed on is applied, and messages that have waited for that.
    pub fn show_applied(&self, lsn: Lsn) {
        self.applied.store(lsn, SeqCst);
        self.messages.show(|| lsn);
        self.messages.invalidation.show(|| lsn);
    }

    /// What is called when [something changes](ReplicaSet::tell_system_changes) that the server keeps in the data for itself.
    pub fn on_system_changes(&self, call: impl Fn() + Send + Sync + 'static) {
        assert!(self.on_system_changes.set(Box::new(call)).is_ok(), "there is one server");
    }

    /// As one that follows, tells that something has changed that the server keeps in the data for itself. What is applied from then on is not seen by
    /// commands that had begun before.
    pub fn tell_system_changes(&self) {
        if let Some(call) = self.on_system_changes.get() {
            call();
        }
    }

    /// Up to where that is.
    pub fn applied(&self) -> Lsn {
        self.applied.load(SeqCst)
    }

    /// The server leads, with this store, of which these are told.
    pub fn lead(&self, store: Arc<Store>, push: Arc<Push>) {
        self.messages.lead();
        assert!(self.leads.set((store, push)).is_ok(), "a server leads once, and begins again then");
    }

    /// As the one that leads, tells another one from now on which keys change, as that has asked.
    pub fn track(&self) {
        let (Some((store, push)), messages) = (self.leads.get().cloned(), self.messages.clone()) else {
            return;
        };
        let Some(stream) = messages.invalidation.ask() else { return };
        let begin = move || {
            push.want_changes(&store);
            // Who has begun a transaction before does not note what it changes.
            (0..store.partitions()).for_each(|partition| drop(store.begin(&[partition])));
            messages.invalidation.begin(stream, store.log().tail());
        };
        // It may take as long as a script.
        if thread::Builder::new().name("track".into()).spawn(begin).is_err() {
            self.messages.invalidation.end();
        }
    }

    /// As the one that leads, with each tick: notes no more which keys change if nobody has asked for long.
    pub fn tick_tracking(&self) {
        if self.messages.invalidation.tick_as_leader()
            && let Some((store, push)) = self.leads.get()
        {
            push.want_changes(store);
        }
    }

    /// The server is one of the set of this number, with this replica.
    pub fn join(&self, set: u64, replica: Arc<Replica>) {
        assert!(self.joined.set((set, replica)).is_ok(), "a server becomes one of a set once");
    }

    /// Which server of which set it is, once the set is founded.
    pub fn seat(&self) -> Option<Seat> {
        self.joined.get().map(|(set, replica)| Seat { set: *set, server: replica.id() })
    }

    /// Tells the others in which cluster they are to be, too; and which of the set are in it.
    pub fn tell_cluster(&self, cluster: Option<(ClusterOfSet, BTreeSet<MemberId>)>) {
        *self.cluster.lock().expect("no holder panics") = cluster;
    }

    /// What one of them is told so.
    pub fn cluster_for(&self, server: MemberId) -> Option<ClusterOfSet> {
        let told = self.cluster.lock().expect("no holder panics");
        told.as_ref()
            .map(|(cluster, members)| ClusterOfSet { is_member: members.contains(&server), ..*cluster })
    }

    /// What another one tells so, and its host; `None`: it is in none.
    pub fn show_way_to_cluster(&self, of: MemberId, way: Option<(String, ClusterOfSet)>) {
        let mut ways = self.ways_to_cluster.lock().expect("no holder panics");
        match way {
            Some(way) => drop(ways.insert(of, way)),
            None => drop(ways.remove(&of)),
        }
    }

    /// What was shown so, by who tells it.
    pub fn ways_to_cluster(&self) -> BTreeMap<MemberId, (String, ClusterOfSet)> {
        self.ways_to_cluster.lock().expect("no holder panics").clone()
    }

    /// As the one that leads, has its servers changed. Returns what they are when all below the LSN is agreed on.
    ///
    /// # Errors
    /// They are not to be changed so, or not now.
    pub fn change(&self, change: &Change) -> Result<(Members, Lsn), Refused> {
        let (Some((store, _)), Some((_, replica))) = (self.leads.get(), self.joined.get()) else {
            return Err(Refused::NotLeader);
        };
        let members = replica.propose(change)?;
        Ok((members, store.append_clock_mark()))
    }

    /// Who is told which server is to lead.
    pub fn tell_of_successors(&self, successors: UnboundedSender<MemberId>) {
        assert!(self.successors.set(successors).is_ok(), "one thread takes part in the set");
    }

    /// As the one that leads, has another server lead.
    pub fn hand_over(&self, to: MemberId) {
        if let Some(successors) = self.successors.get() {
            let mut view = self.lock();
            // Who asks next is told so, though the thread does not know it yet.
            view.hands_over |= view.own.is_some() && view.leader == view.own;
            drop(view);
            // If the thread has ended, so does the server.
            let _ = successors.send(to);
        }
    }

    /// Answers SENTINEL, for clients that ask who leads; `args`: what follows the name of the command.
    ///
    /// # Errors
    /// The text of one.
    pub fn sentinel(&self, args: &[&[u8]], out: &mut Writer) -> Result<(), String> {
        let is = |at: usize, word: &str| {
            args.get(at).is_some_and(|arg: &&[u8]| arg.eq_ignore_ascii_case(word.as_bytes()))
        };
        let is_known = args.get(1).is_some_and(|name| *name == self.name.as_bytes());
        let view = self.view();
        match args.len() {
            1 if is(0, "masters") => {
                out.array(view.leader().iter().count());
                view.leader().into_iter().for_each(|(leader, _)| self.describe(leader, &view, out));
            }
            1 if is(0, "myid") => out.bulk(self.id(view.own.unwrap_or_default())),
            2 if is(0, "get-master-addr-by-name") => match view.leader().filter(|_| is_known) {
                Some((_, leader)) => {
                    out.array(2);
                    out.bulk(&leader.host);
                    out.bulk(leader.port.to_string());
                }
                None => out.null_array(),
            },
            2 if ["master", "replicas", "slaves", "sentinels", "ckquorum"].iter().any(|word| is(0, word)) => {
                if !is_known {
                    return Err("ERR No such master with that name".into());
                }
                let Some((leader, _)) = view.leader() else {
                    return Err("NOQUORUM No server leads now".into());
                };
                if is(0, "ckquorum") {
                    out.simple(format!("OK {} servers, of which one leads", view.servers.len()));
                } else if is(0, "master") {
                    self.describe(leader, &view, out);
                } else {
                    // Each server answers what a Sentinel would.
                    let except = if is(0, "sentinels") { view.own } else { Some(leader) };
                    let those: Vec<MemberId> =
                        view.servers.keys().copied().filter(|id| Some(*id) != except).collect();
                    out.array(those.len());
                    those.into_iter().for_each(|id| self.describe(id, &view, out));
                }
            }
            _ => {
                return Err(
                    "ERR this is no Sentinel: a replica set elects its leader by itself, and SENTINEL only tells which it is (MASTERS, MASTER, \
                     REPLICAS, SENTINELS, GET-MASTER-ADDR-BY-NAME, CKQUORUM, MYID)"
                        .into(),
                );
            }
        }
        Ok(())
    }

    /// Answers REPLICASET STATUS: a map a server, with what is known here.
    pub fn status(&self, out: &mut Writer) {
        let view = self.view();
        out.array(view.servers.len());
        for (id, Listed { address, votes }) in view.servers.iter() {
            let (is_own, is_leader) = (view.own == Some(*id), view.leader == Some(*id));
            let other = view.others.iter().find(|other| other.id == *id);
            let role = match (is_leader, votes) {
                (true, _) => "leader",
                (false, true) => "follower",
                (false, false) => "joining",
            };
            let state = match other {
                _ if is_own || is_leader => "online",
                Some(other) if other.silent <= CONNECTED => "online",
                Some(_) => "silent",
                // Only the leader hears of all.
                None => "unknown",
            };
            let end = if is_own { Some(view.extent.0) } else { other.map(|other| other.end) };
            out.map(5);
            out.key("number").int(*id as i64);
            out.key("address").bulk(address.to_string());
            out.key("role").bulk(role);
            out.key("state").bulk(state);
            out.key("offset").int(end.map_or(-1, |end| end as i64));
        }
    }

    /// Forty hexadecimal digits that name a server.
    fn id(&self, id: MemberId) -> String {
        format!("{id:040x}")
    }

    /// A server in the fields that clients of Sentinel read.
    fn describe(&self, id: MemberId, view: &View, out: &mut Writer) {
        let Address { host, port, .. } = &view.servers[&id].address;
        let is_leader = view.leader == Some(id);
        let name = if is_leader { self.name.clone() } else { format!("{host}:{port}") };
        let others = view.servers.len() - 1;
        let fields = [
            ("name", name),
            ("ip", host.clone()),
            ("port", port.to_string()),
            ("runid", self.id(id)),
            ("flags", if is_leader { "master" } else { "slave" }.into()),
            ("role-reported", if is_leader { "master" } else { "slave" }.into()),
            ("link-pending-commands", "0".into()),
            ("last-ping-sent", "0".into()),
            ("last-ok-ping-reply", "0".into()),
            ("last-ping-reply", "0".into()),
            ("down-after-milliseconds", "0".into()),
            ("master-link-status", "ok".into()),
            ("num-slaves", others.to_string()),
            ("num-other-sentinels", others.to_string()),
            ("quorum", view.majority().to_string()),
        ];
        out.map(fields.len());
        for (field, value) in fields {
            out.key(field).bulk(value);
        }
    }
}
