//! What all workers share, as one value: options, data, users, clients, what is pushed and counted. It is given to everything
//! that executes commands, which it does not know.

pub mod apply;
pub mod cluster;
pub mod eviction;
pub mod exporter;
pub mod handover;
pub mod limits;
pub mod mailbox;
pub mod replica_set;
pub mod replication;

use crate::{
    acl::{Acl, User},
    admin::{
        endurance::WriteRates,
        latency::Monitor,
        log::log,
        refusals::Refusals,
        slow_medium::SlowMedium,
        slowlog::Slowlog,
        stats::{ErrorStats, Rates, WorkerStats},
    },
    clients::{
        client::{Client, Kind},
        list::Clients,
    },
    command::table::Table,
    commit::{
        admission::AdmissionQueue,
        durability::{Lsn, Progress},
    },
    config::{Config, Opt, kind::Value},
    push::{Push, exchange::Published},
    script::{busy::Busy, cache::Scripts, library::Libraries},
    server::{
        cluster::{Cluster, MapOfData},
        limits::OutputLimit,
        mailbox::{Message, Wake},
        replica_set::ReplicaSet,
        replication::{Primary, Replication},
    },
    transport::{acceptor::Acceptor, tls::Tls},
    util::counter::Counter,
};
use data_encoding::HEXLOWER;
use holdfast_cluster::SLOTS;
use holdfast_store::{Appendfsync, Error, Stats, Store, hash_slot, string::LEN_MAX};
use rustix::rand::{GetRandomFlags, getrandom};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::{
    Notify,
    mpsc::{self, Receiver, UnboundedSender},
};

/// The server.
pub struct Server {
    /// What its commands are.
    pub table: &'static Table,
    /// Its options.
    pub config: Arc<Config>,
    /// Its data.
    pub store: Arc<Store>,
    /// Who may do what.
    pub acl: Acl,
    /// The way to who accepts its clients.
    pub acceptor: Acceptor,
    /// How connections to the `tls-port` are made safe.
    pub tls: Tls,
    /// Its clients.
    pub clients: Arc<Clients>,
    /// Slow commands.
    pub slowlog: Slowlog,
    /// What took long of late.
    pub latency: Monitor,
    /// Error replies by code.
    pub errors: ErrorStats,
    /// Scripts that run for long.
    pub busy: Busy,
    /// Libraries of functions.
    pub libraries: Libraries,
    /// Scripts of EVAL.
    pub scripts: Scripts,
    /// One per worker.
    pub workers: Vec<WorkerStats>,
    /// By class: normal, replica, publish/subscribe.
    pub output_limits: [OutputLimit; 3],
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Whether it is a replica.
    pub replication: Replication,
    /// The server as a node of a cluster.
    pub cluster: Arc<Cluster>,
    /// The replica set that it leads, or follows in.
    pub replica_set: Option<Arc<ReplicaSet>>,
    /// What is sent to clients without their asking.
    pub push: Arc<Push>,
    /// How far the log is durable.
    pub progress: Arc<Progress>,
    /// The writers that wait for room.
    pub writers: Arc<AdmissionQueue>,
    /// Writes that are refused.
    pub refusals: Refusals,
    /// Commits that take long.
    pub slow_medium: SlowMedium,
    /// What they do in a second.
    pub rates: Rates,
    /// How fast they have it write.
    pub write_rates: WriteRates,
    /// The store's figures at the last CONFIG RESETSTAT.
    pub stats_base: Mutex<Stats>,
    /// Clients accepted so far.
    pub accepted: AtomicU64,
    /// Clients refused so far: too many.
    pub refused: AtomicU64,
    /// Clients of SYNC and PSYNC to which a whole copy was begun to be sent.
    pub full_syncs: AtomicU64,
    /// Clients of PSYNC that asked for less than a whole copy, in vain.
    pub partial_syncs_refused: AtomicU64,
    /// When it started.
    pub started: Instant,
    /// 40 random hexadecimal digits.
    pub run_id: String,
    /// The same for replication: this history of the data, which no other server has.
    pub replication_id: String,
    /// A client that has waited for a key has looked at it.
    pub turns: Notify,
    /// A script that has held partitions for long holds them no more.
    pub released: Notify,
    /// Somebody wants it to end.
    pub shutdown: Notify,
    mailboxes: Vec<UnboundedSender<Message>>,
}

impl Server {
    /// A server with one mailbox per worker. Others may know its options before, and what is known of its cluster. One of a replica set only
    /// shows what the leader has written, until it [leads](Server::lead).
    pub fn new(
        table: &'static Table,
        config: Arc<Config>,
        cluster: Arc<Cluster>,
        store: Arc<Store>,
        replica_set: Option<Arc<ReplicaSet>>,
        mailboxes: Vec<UnboundedSender<Message>>,
    ) -> Arc<Server> {
        let progress = Progress::new(mailboxes.len());
        let writers = Arc::new(AdmissionQueue::new());
        follow_log(&store, progress.clone(), writers.clone());
        let clients = Arc::<Clients>::default();
        let push = Arc::new(Push::new(
            mailboxes.len(),
            clients.clone(),
            replica_set.as_ref().map(|set| set.messages.clone()),
        ));
        push.clone().follow(&store);
        Arc::new(Server {
            table,
            config,
            acl: Acl::new(table),
            acceptor: Acceptor::default(),
            tls: Tls::default(),
            clients,
            slowlog: Slowlog::default(),
            latency: Monitor::default(),
            errors: ErrorStats::default(),
            busy: Busy::default(),
            libraries: Libraries::default(),
            scripts: Scripts::default(),
            workers: mailboxes.iter().map(|_| WorkerStats::new(table.ids())).collect(),
            output_limits: Default::default(),
            pause: Pause::new(),
            replication: Replication::new(replica_set.clone()),
            cluster,
            replica_set,
            push,
            progress,
            writers,
            store,
            refusals: Refusals::default(),
            slow_medium: SlowMedium::default(),
            rates: Rates::default(),
            write_rates: WriteRates::new(),
            stats_base: Mutex::default(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            full_syncs: AtomicU64::new(0),
            partial_syncs_refused: AtomicU64::new(0),
            started: Instant::now(),
            run_id: random_id(),
            replication_id: random_id(),
            turns: Notify::new(),
            released: Notify::new(),
            shutdown: Notify::new(),
            mailboxes,
        })
    }

    /// Leads its replica set from now on; its store does so already. `begin` is called when what is read may be told only as long as no other one
    /// leads, and before anything is written.
    pub fn lead(&self, begin: impl FnOnce()) {
        let set = self.replica_set.as_ref().expect("one of a replica set");
        self.progress.lead(set.lease.clone());
        set.lead(self.store.clone(), self.push.clone());
        begin();
        self.replication.lead();
        self.follow_role();
    }

    /// Bytes of the longest string, and so of the longest argument: an option, up to what the store can hold.
    pub fn string_max(&self) -> i64 {
        self.config.number(Opt::ProtoMaxBulkLen).min(LEN_MAX as i64)
    }

    /// Tells the operator of a medium that is slow. To be called once a second.
    pub fn report_slow_medium(&self) {
        let limit = Duration::from_millis(self.config.number(Opt::SlowCommitThreshold) as u64);
        let is_waited_for = apply::appendfsync(&self.config) == Appendfsync::Always;
        self.slow_medium.report(&self.store, limit, is_waited_for);
    }

    /// Sends a message to a worker. A worker that has ended needs none.
    pub fn send(&self, worker: usize, message: Message) {
        let _ = self.mailboxes[worker].send(message);
    }

    /// A counter of all workers.
    pub fn sum(&self, counter: fn(&WorkerStats) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).get()).sum()
    }

    /// Bytes that the interpreters of scripts take.
    pub fn interpreter_bytes(&self) -> usize {
        self.workers.iter().map(|worker| worker.interpreter_bytes.load(Relaxed)).sum()
    }

    /// Commands executed.
    pub fn calls(&self) -> u64 {
        self.workers.iter().map(WorkerStats::calls).sum()
    }

    /// Measures what is done in a second.
    pub fn measure_rates(&self) {
        let bytes = (self.sum(|worker| &worker.input_bytes), self.sum(|worker| &worker.output_bytes));
        self.rates.sample(Instant::now(), [self.calls(), bytes.0, bytes.1]);
        self.write_rates.sample(self.store.bytes_written());
    }

    /// Disconnects the largest clients while all take more memory than they may.
    pub fn evict_clients(&self) {
        for client in self.clients.evict() {
            log!(Notice, "evicting client {}, which takes {} bytes", client.addr, client.memory());
            self.send(client.worker, Message::Kill(client.id));
        }
    }

    /// CLIENT PAUSE; keys that expire meanwhile are not there, but not removed.
    pub fn pause(&self, duration: Duration, writes_only: bool) {
        self.pause.begin(duration, writes_only);
        self.store.hold_active_expiry(self.pause.remaining());
    }

    /// Lets clients that were paused go on.
    pub fn unpause(&self) {
        self.pause.end();
        self.store.hold_active_expiry(Duration::ZERO);
        for worker in 0..self.mailboxes.len() {
            self.send(worker, Message::Unpause);
        }
    }

    /// Sends a message to the subscribers of a channel, once all below an LSN is durable; how many of them are here.
    pub fn publish(&self, channel: &[u8], message: &[u8], to_shard: bool, wait_lsn: Lsn) -> usize {
        self.publish_in_cluster(channel, message, to_shard, wait_lsn);
        self.push.publish(channel, message, to_shard, wait_lsn)
    }

    /// Sends a message of another server of the replica set to the subscribers here and, as the leader, to those at other nodes of a cluster.
    pub fn tell(&self, Published { to_shard, channel, message, .. }: &Published) {
        self.publish_in_cluster(channel, message, *to_shard, 0);
        self.push.publish_here(channel, message, *to_shard, 0);
    }

    /// As the leader of a replica set, or one on its own, sends a message to the subscribers at other nodes of a cluster.
    fn publish_in_cluster(&self, channel: &[u8], message: &[u8], to_shard: bool, wait_lsn: Lsn) {
        if self.cluster.is_on() && !to_shard && self.replication.set().is_none() {
            self.cluster.publish(channel, message, wait_lsn);
        }
    }

    /// REPLICAOF: follows a primary from now on, and after a restart too.
    ///
    /// # Errors
    /// That cannot be made durable.
    pub fn follow(&self, primary: Primary) -> io::Result<()> {
        log!(Notice, "the server becomes a replica of {primary}");
        self.config.store(Opt::ReplicaOf, Value::Text(primary.to_string()));
        self.replication.follow(primary)?;
        self.follow_role();
        Ok(())
    }

    /// REPLICAOF NO ONE: follows no primary any more; whether it does not now. To be called again until it does not.
    ///
    /// # Errors
    /// That cannot be made durable, or only a part of the primary's data is here.
    pub fn leave_primary(&self) -> io::Result<bool> {
        let was_replica = self.replication.is_replica();
        let is_over = self.replication.leave()?;
        self.follow_role();
        if was_replica && is_over {
            log!(Notice, "the server is no replica any more");
            self.config.store(Opt::ReplicaOf, Value::Text(String::new()));
        }
        Ok(is_over)
    }

    /// Does what a replica, or a primary, does by itself, and closes the connections of a primary that is not followed any more.
    pub fn follow_role(&self) {
        self.store.keep_expired(self.replication.is_replica());
        eviction::apply_policy(self);
        self.replication.stale().iter().for_each(|client| self.kill(client));
    }

    /// CONFIG RESETSTAT, with the store's figures as they are.
    pub fn reset_stats(&self, store: Stats) {
        self.workers.iter().for_each(WorkerStats::reset);
        self.errors.reset();
        *self.stats_base.lock().expect("no holder panics") = store;
        self.clients.reset_evicted();
        self.acl.log.reset_counts();
        self.accepted.store(0, Relaxed);
        self.refused.store(0, Relaxed);
        self.refusals.reset_counts();
        self.full_syncs.store(0, Relaxed);
        self.partial_syncs_refused.store(0, Relaxed);
    }

    /// Closes the connections of a user. Returns whether the one with number `own` is among them, which is left to it.
    pub fn kill_clients_of(&self, user: &[u8], own: u64) -> bool {
        let mut is_own = false;
        for client in self.clients.all().into_iter().filter(|client| client.user() == user) {
            if client.id == own {
                is_own = true;
            } else {
                self.kill(&client);
            }
        }
        is_own
    }

    /// Closes the connections of a user that are subscribed to channels it may not use any more.
    pub fn kill_forbidden_subscribers(&self, user: &User) {
        let rules = user.rules();
        let is_forbidden = |kind, name: &[u8]| !rules.may_use_channel(name, kind == Kind::Pattern);
        for id in self.push.pubsub.subscribers_where(is_forbidden) {
            if let Some(client) = self.clients.get(id).filter(|client| client.user() == user.name) {
                self.kill(&client);
            }
        }
    }

    /// As one that follows in a replica set, learns by which map of its cluster the data are, if it is a node of one. Whether that is news.
    pub fn learn_map_of_data(&self) -> bool {
        self.cluster.is_on()
            && MapOfData::read(&self.store).is_some_and(|data| self.cluster.learn_map_of_data(data))
    }

    /// As the one that leads a replica set in a cluster, says in the data that keys go to other nodes, before any does.
    ///
    /// # Errors
    /// Nothing is written: see [`Store::run`].
    pub fn say_that_keys_go(&self) -> Result<(), Error> {
        let view = self.cluster.view();
        let is_said = self.replica_set.is_none() || view.map.moves().is_empty();
        if is_said || self.cluster.may_lack(view.data) { Ok(()) } else { self.write_map_of_data(view.data) }
    }

    /// As the one that leads a replica set, says in the data that they are by this map of its cluster, or a later one.
    ///
    /// # Errors
    /// Nothing is written: see [`Store::run`].
    pub fn write_map_of_data(&self, data: MapOfData) -> Result<(), Error> {
        self.cluster.learn_map_of_data(data.write(&self.store)?);
        Ok(())
    }

    /// As one that follows in a replica set, has its leader tell which keys change, if clients here track any. As long as it does not, their copies are
    /// invalid each time.
    pub fn tend_copies(&self) {
        let tracking = &self.push.tracking;
        let invalidation = &self.replica_set.as_ref().expect("one of a replica set").messages.invalidation;
        invalidation.want(tracking.is_used());
        if !invalidation.is_told() && tracking.keys() + tracking.prefixes() > 0 {
            self.push.invalidate_here(None);
        }
    }

    /// Ends when each worker has done what it had begun before.
    pub fn workers_have_passed(&self) -> Receiver<()> {
        let (sender, passed) = mpsc::channel(1);
        for worker in 0..self.workers.len() {
            self.send(worker, Message::Pass(sender.clone()));
        }
        passed
    }

    /// Tells clients that keep what they have read of slots which are another node's, or another replica set's, from now on: that one does not know of
    /// them. What is removed here because of that they are told anyway, but not that what they did not find may be there by now.
    pub fn tell_of_gone_slots(&self, before: &cluster::View, now: &cluster::View) {
        let has_gone = |slot| before.holds(slot) && !now.holds(slot);
        if self.push.is_tracked() && (0..SLOTS as u16).any(has_gone) {
            self.push.invalidate_where(|key| has_gone(hash_slot(key)), self.store.log().tail());
        }
    }

    /// Has clients that wait for keys of slots which are another node's by now, or another replica set's, look again, so that they are sent there; and
    /// ends subscriptions to channels of such shards.
    pub async fn leave_slots(self: Arc<Self>) {
        // Who has begun to wait meanwhile is known then.
        self.workers_have_passed().recv().await;
        let view = self.cluster.view();
        if !view.map.members().contains_key(&view.id) {
            // It has joined others, and will hear as which one of them: its slots are its own all the same.
            return;
        }
        let is_left = |kind, channel: &[u8]| kind == Kind::Shard && !view.holds(hash_slot(channel));
        for id in self.push.pubsub.subscribers_where(is_left) {
            if let Some(client) = self.clients.get(id) {
                self.send(client.worker, Message::LeaveShards(id));
            }
        }
        for client in self.clients.all() {
            // Where keys are on their way one by one, what is waited for may still come here.
            let is_away = |(_, key): &(u8, Vec<u8>)| !view.is_ok || !view.holds(hash_slot(key));
            if client.waits_for().iter().any(is_away) {
                self.send(client.worker, Message::Unblock(client.id, Wake::Signal));
            }
        }
    }

    /// Closes a connection as soon as its worker can. It is found nowhere from now on.
    pub fn kill(&self, client: &Client) {
        self.clients.remove(client.id);
        self.send(client.worker, Message::Kill(client.id));
    }
}

/// Moves the durable mark, and lets writers try that wait, as the log tells. The log outlives neither, so it must not own the store.
fn follow_log(store: &Store, progress: Arc<Progress>, writers: Arc<AdmissionQueue>) {
    let log = Arc::downgrade(store.log());
    let follow = move || {
        if let Some(log) = log.upgrade() {
            progress.advance(log.durable());
            writers.wake_first();
            if log.failed().is_some() {
                progress.fail();
            }
        }
    };
    follow();
    store.log().on_progress(Box::new(follow));
}

/// How many workers an option value of `workers` means.
pub fn worker_count(option: i64) -> usize {
    match option {
        0 => thread::available_parallelism().map_or(1, |n| n.get()),
        n => n as usize,
    }
}

/// 40 random hexadecimal digits.
pub fn random_id() -> String {
    let mut id = [0; 20];
    getrandom(&mut id, GetRandomFlags::empty()).expect("Linux has getrandom since 3.17");
    HEXLOWER.encode(&id)
}

/// CLIENT PAUSE: until when which commands wait.
pub struct Pause {
    origin: Instant,
    /// In milliseconds since `origin`; 0: no pause.
    until_ms: AtomicU64,
    writes_only: AtomicBool,
}

impl Pause {
    fn new() -> Self {
        Pause { origin: Instant::now(), until_ms: AtomicU64::new(0), writes_only: AtomicBool::new(false) }
    }

    /// Begins a pause, or extends one; a pause of all commands is not weakened.
    pub fn begin(&self, duration: Duration, writes_only: bool) {
        let running = self.until_ms.load(Relaxed) > self.now_ms();
        let until = self.now_ms().saturating_add(duration.as_millis() as u64).max(1);
        self.until_ms.fetch_max(until, Relaxed);
        self.writes_only.store(writes_only && (!running || self.writes_only.load(Relaxed)), Relaxed);
    }

    /// How long the pause takes from now on.
    fn remaining(&self) -> Duration {
        Duration::from_millis(self.until_ms.load(Relaxed).saturating_sub(self.now_ms()))
    }

    /// Ends the pause.
    pub fn end(&self) {
        self.until_ms.store(0, Relaxed);
    }

    /// Until when a command has to wait; `may_write` says whether it is one that a pause of writes concerns.
    #[inline]
    pub fn delays(&self, may_write: impl FnOnce() -> bool) -> Option<Instant> {
        let until = self.until_ms.load(Relaxed);
        if until == 0 { None } else { self.delay_until(may_write, until) }
    }

    /// Whether there is a pause.
    #[inline]
    pub fn is_on(&self) -> bool {
        let until = self.until_ms.load(Relaxed);
        until != 0 && until > self.now_ms()
    }

    #[cold]
    fn delay_until(&self, may_write: impl FnOnce() -> bool, until_ms: u64) -> Option<Instant> {
        if until_ms <= self.now_ms() {
            // Others may have begun a new pause; only this one is over.
            let _ = self.until_ms.compare_exchange(until_ms, 0, Relaxed, Relaxed);
            return None;
        }
        let concerned = !self.writes_only.load(Relaxed) || may_write();
        concerned.then(|| self.origin + Duration::from_millis(until_ms))
    }

    fn now_ms(&self) -> u64 {
        self.origin.elapsed().as_millis() as u64
    }
}
