//! The server as one of a replica set: what commands tell of that, and whoever answers clients while the server does not lead. A thread of
//! its own (`crate::replica_set`) takes part in the set, and shows here what it knows.

use crate::{
    commit::lease::Lease,
    config::{Config, Opt, address::Address},
    transport::trust::Trust,
};
use holdfast_resp::Writer;
use holdfast_store::{Io, Lsn, Store};
use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};
use tokio::sync::mpsc::UnboundedSender;

/// How long after its last sign of life another server counts as connected.
pub const CONNECTED: Duration = Duration::from_secs(10);

/// What is known of the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Which of the servers this one is; `None`: it is not known yet.
    pub own: Option<usize>,
    /// Who leads.
    pub leader: Option<usize>,
    /// Where the log ends here, and up to where it is known to be agreed on.
    pub extent: (Lsn, Lsn),
    /// The others, as the leader knows them.
    pub others: Vec<Other>,
}

/// Another server, as the leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Which of the servers it is.
    pub at: usize,
    /// Everything below is durable there.
    pub end: Lsn,
    /// For how long it was not heard of.
    pub silent: Duration,
}

impl View {
    /// How many others have everything below `lsn`.
    pub fn count_with(&self, lsn: Lsn) -> usize {
        self.others.iter().filter(|other| other.end >= lsn).count()
    }

    /// The others that were heard of of late.
    pub fn heard_within(&self, limit: Duration) -> impl Iterator<Item = &Other> {
        self.others.iter().filter(move |other| other.silent <= limit)
    }
}

/// The set.
pub struct ReplicaSet {
    /// By what name clients that look for a leader, as Redis Sentinel names one, ask for it.
    pub name: String,
    /// Its servers.
    pub servers: Vec<Address>,
    /// How they know each other.
    pub trust: Arc<Trust>,
    /// Until when what was read may be told.
    pub lease: Arc<Lease>,
    view: Mutex<View>,
    successors: OnceLock<UnboundedSender<usize>>,
    store: OnceLock<Arc<Store>>,
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
        let servers = text.split_whitespace().map(str::parse).collect::<Result<Vec<Address>, ()>>();
        let servers = servers.expect("the option was checked");
        let refused = |why: &str| Err(format!("replica-set: {why}"));
        if config.is_on(Opt::ClusterEnabled) {
            return refused("a node of a cluster (cluster-enabled) cannot be one of a replica set yet");
        }
        if !config.text(Opt::ReplicaOf).is_empty() {
            return refused("one of its servers cannot be a replica of another server (replicaof), too");
        }
        if config.choice(Opt::Medium) != "block" || !config.more_dirs().is_empty() {
            return refused(
                "the data of its servers lie in one folder, on a drive: medium block, and one dir",
            );
        }
        let trust = Arc::new(Trust::new(Opt::TlsReplication));
        trust.configure(config).map_err(|e| format!("tls-replication: {e}"))?;
        let lease = Arc::new(Lease::new(io.clone()));
        let name = config.text(Opt::ReplicaSetName);
        Ok(Some(Arc::new(ReplicaSet {
            name,
            servers,
            trust,
            lease,
            view: Mutex::default(),
            successors: OnceLock::new(),
            store: OnceLock::new(),
        })))
    }

    /// Its servers, as the option names them.
    pub fn list(&self) -> String {
        self.servers.iter().map(Address::to_string).collect::<Vec<_>>().join(" ")
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
        *self.lock() = view;
    }

    /// The server leads, with this store.
    pub fn lead(&self, store: Arc<Store>) {
        assert!(self.store.set(store).is_ok(), "a server leads once, and begins again then");
    }

    /// The store of a server that leads.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.store.get()
    }

    /// Who is told which server is to lead.
    pub fn tell_of_successors(&self, successors: UnboundedSender<usize>) {
        assert!(self.successors.set(successors).is_ok(), "one thread takes part in the set");
    }

    /// As the one that leads, has another server lead.
    pub fn hand_over(&self, to: usize) {
        if let Some(successors) = self.successors.get() {
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
                out.array(view.leader.iter().count());
                view.leader.into_iter().for_each(|leader| self.describe(leader, &view, out));
            }
            1 if is(0, "myid") => out.bulk(self.id(view.own.unwrap_or_default())),
            2 if is(0, "get-master-addr-by-name") => match view.leader.filter(|_| is_known) {
                Some(leader) => {
                    out.array(2);
                    out.bulk(&self.servers[leader].host);
                    out.bulk(self.servers[leader].port.to_string());
                }
                None => out.null_array(),
            },
            2 if ["master", "replicas", "slaves", "sentinels", "ckquorum"].iter().any(|word| is(0, word)) => {
                if !is_known {
                    return Err("ERR No such master with that name".into());
                }
                let Some(leader) = view.leader else { return Err("NOQUORUM No server leads now".into()) };
                if is(0, "ckquorum") {
                    out.simple(format!("OK {} servers, of which one leads", self.servers.len()));
                } else if is(0, "master") {
                    self.describe(leader, &view, out);
                } else {
                    // Each server answers what a Sentinel would.
                    let except = if is(0, "sentinels") { view.own } else { Some(leader) };
                    let those: Vec<usize> =
                        (0..self.servers.len()).filter(|at| Some(*at) != except).collect();
                    out.array(those.len());
                    those.into_iter().for_each(|at| self.describe(at, &view, out));
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

    /// Forty hexadecimal digits that name a server.
    fn id(&self, at: usize) -> String {
        format!("{:040x}", at + 1)
    }

    /// A server in the fields that clients of Sentinel read.
    fn describe(&self, at: usize, view: &View, out: &mut Writer) {
        let Address { host, port, .. } = &self.servers[at];
        let is_leader = view.leader == Some(at);
        let name = if is_leader { self.name.clone() } else { format!("{host}:{port}") };
        let others = self.servers.len() - 1;
        let fields = [
            ("name", name),
            ("ip", host.clone()),
            ("port", port.to_string()),
            ("runid", self.id(at)),
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
            ("quorum", (self.servers.len() / 2 + 1).to_string()),
        ];
        out.map(fields.len());
        for (field, value) in fields {
            out.key(field).bulk(value);
        }
    }
}
