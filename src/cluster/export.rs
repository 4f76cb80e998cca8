//! Slots are sent to another node, with all that is in them, and then given to it by one change of the map.
//!
//! The keys are copied while they are used. What is written meanwhile is noted (`crate::push::moving`) and sent again, in rounds, until
//! little is left. Then commands on these slots wait: the rest is sent, and the group decides that the slots are the other node's. Until that is
//! decided, or that it is not, nobody uses them here; so there is no moment at which both nodes do, whichever of them crashes. All that
//! was sent is durable at the other node by then.
//!
//! This runs in a thread of its own, which may wait.

use crate::{
    admin::log::log,
    command::error::Stop,
    commands::dump::serialize,
    config::Opt,
    import::{Connection, Login},
    server::{
        Server,
        cluster::{Export, MapOfData, Order, View},
    },
};
use holdfast_cluster::{Change, Member, Slots};
use holdfast_rdb::encode;
use holdfast_resp::{Reply, write_command};
use holdfast_store::{Fetched, ScanStep, Store, hash_slot};
use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::sync_channel,
    },
    thread,
    time::{Duration, Instant},
};

/// How long the other node may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Keys, and bytes, that are sent before their replies are awaited.
const BATCH_KEYS: usize = 512;
const BATCH_BYTES: usize = 1 << 20;
/// Keys that one step of the scan finds.
const STEP: usize = 1000;
/// With so few keys left to be sent again, commands on them wait.
const LAST_KEYS: usize = 500;
/// Rounds after which they wait however many there are: the keys are written faster than they can be sent.
const ROUNDS_MAX: u32 = 20;
/// How long commands wait at most until the transfer is given up, unless the group is being asked.
const FROZEN_MAX: Duration = Duration::from_secs(5);
/// How long the other node may take to hear what was decided.
const HEARD_MAX: Duration = Duration::from_secs(2);
/// How long a log that takes nothing is left alone.
const FULL_RETRY: Duration = Duration::from_millis(100);
/// How often it is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(2);

/// Why a transfer ends without having arrived.
struct Failure(String);

impl<E: ToString> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Carries out a transfer that the group has decided to begin.
pub fn carry(server: &Arc<Server>, export: &Export) {
    // One before may still wait until the other node has heard of its end.
    let _alone = server.cluster.sends.lock().expect("no holder panics");
    let mut transfer = Transfer { server, export, target: None, frozen: None };
    let result = transfer.copy();
    let arrived = transfer.settle(result.is_ok());
    transfer.wait_until_heard(arrived);
    server.cluster.freeze(Slots::default());
    server.push.moving.end();
    server.push.want_changes(&server.store);
    let (word, message) = match result {
        _ if arrived => ("success", String::new()),
        Err(Failure(why)) if export.is_cancelled.load(Relaxed) => ("cancelled", why),
        Err(Failure(why)) => ("failed", why),
        Ok(()) => ("failed", "the cluster did not decide so".into()),
    };
    let slots = &export.slots;
    log!(Notice, "transfer {} of slots {slots} to {}: {word} {message}", export.number, export.to);
    transfer.tell(word, message);
}

struct Transfer<'t> {
    server: &'t Arc<Server>,
    export: &'t Export,
    target: Option<Connection>,
    /// Since when commands wait.
    frozen: Option<Instant>,
}

impl Transfer<'_> {
    fn tell(&self, word: &'static str, message: String) {
        let mut state = self.export.state.lock().expect("no holder panics");
        (state.word, state.message, state.since_ms) = (word, message, self.server.store.now_ms());
    }

    /// Whether it is to go on.
    fn look(&self) -> Result<(), Failure> {
        if self.export.is_cancelled.load(Relaxed) {
            return Err("CLUSTER CANCELSLOTMIGRATIONS".into());
        }
        if !self.server.cluster.view().map.transfers().contains_key(&self.export.number) {
            return Err("the cluster has ended it".into());
        }
        if self.frozen.is_some_and(|since| since.elapsed() > FROZEN_MAX) {
            return Err("the last keys took too long".into());
        }
        Ok(())
    }

    /// Sends all keys, as they are when it returns: then commands on them wait.
    fn copy(&mut self) -> Result<(), Failure> {
        self.look()?;
        self.connect()?;
        let moving = &self.server.push.moving;
        moving.begin(self.export.slots.clone());
        self.server.push.want_changes(&self.server.store);
        self.server.workers_have_passed().blocking_recv();
        self.tell("snapshotting", String::new());
        self.copy_all()?;
        self.tell("replicating", String::new());
        let mut round = 0;
        loop {
            let written = self.take_written()?;
            let is_last = written.len() <= LAST_KEYS || round == ROUNDS_MAX;
            self.send(written)?;
            if is_last {
                break;
            }
            round += 1;
        }
        // Little is left to be made so while commands wait.
        self.make_durable()?;
        self.tell("pausing", String::new());
        self.frozen = Some(Instant::now());
        self.server.cluster.freeze(self.export.slots.clone());
        // What was begun before is done when the workers have passed; a script that was cut, and a transaction that waits for the medium, when
        // their partitions are free.
        self.server.workers_have_passed().blocking_recv();
        let store = &self.server.store;
        drop(store.begin(&partitions_of(store, &self.export.slots)));
        let written = self.take_written()?;
        self.send(written)?;
        self.make_durable()
    }

    /// Waits until all that was sent is durable there: replies wait for that only with `appendfsync always`.
    fn make_durable(&mut self) -> Result<(), Failure> {
        let (target, timeout) = (self.target.as_mut().expect("it is connected"), FROZEN_MAX.as_millis());
        let reply = target.call(&[b"WAITAOF", b"1", b"0", timeout.to_string().as_bytes()])?;
        match &reply {
            Reply::Array(counts) if counts.first() == Some(&Reply::Int(1)) => Ok(()),
            _ => Err("what was sent does not become durable there".into()),
        }
    }

    /// The keys that were written since they were sent last.
    fn take_written(&self) -> Result<HashSet<Vec<u8>>, Failure> {
        let written = self.server.push.moving.take();
        match written.is_overrun {
            true => Err("all keys were flushed, or too many were written".into()),
            false => Ok(written.keys),
        }
    }

    fn connect(&mut self) -> Result<(), Failure> {
        let (server, view) = (self.server, self.server.cluster.view());
        let member = receiver(&view, self.export).ok_or("the other node is not known any more")?;
        let trust = &server.cluster.trust;
        let (port, missing) = match trust.is_tls() {
            true => (member.address.tls_port, "the other node has no tls-port"),
            false => (member.address.port, "the other node has no port without TLS"),
        };
        if port == 0 {
            return Err(missing.into());
        }
        let socket = trust.open(&member.address.host, port, PATIENCE)?;
        socket.set_patience(PATIENCE, PATIENCE)?;
        let (user, password) = (server.config.text(Opt::MasterUser), server.config.text(Opt::MasterAuth));
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let login = Login { user: given(user), password: given(password) };
        let mut target = Connection::over(socket).log_in(&login)?;
        // It takes nothing before it has heard of the transfer.
        let version = view.map.version();
        while map_version(&mut target)? < version {
            self.look()?;
            thread::sleep(LOOK);
        }
        self.target = Some(target);
        Ok(())
    }

    /// Sends all keys that are there.
    fn copy_all(&mut self) -> Result<(), Failure> {
        let store = &self.server.store;
        let db = store.database(0);
        for (first, end) in cursors_of(store, &self.export.slots) {
            let mut cursor = first;
            while cursor < end {
                let step = store.scan(db, cursor, STEP);
                cursor = if step.next == 0 { end } else { step.next };
                let keys: Vec<Vec<u8>> =
                    keys_of(store, step, &self.export.slots).collect::<Result<_, _>>()?;
                self.send(keys)?;
            }
        }
        Ok(())
    }

    /// Sends keys as they are, or that they are not there, and waits for the replies.
    fn send(&mut self, keys: impl IntoIterator<Item = Vec<u8>>) -> Result<(), Failure> {
        let (store, mut request, mut commands, mut count) = (&self.server.store, Vec::new(), 0, 0);
        let mut keys = keys.into_iter().peekable();
        while let Some(key) = keys.next() {
            match value(store, &key)? {
                Some(Value { payload, expires }) => {
                    let expires = expires.unwrap_or(0).to_string();
                    let expires = expires.as_bytes();
                    write_command(
                        &mut request,
                        &[&b"RESTORE-ASKING"[..], &key, expires, &payload, b"REPLACE", b"ABSTTL"],
                    );
                    commands += 1;
                }
                None => {
                    write_command(&mut request, &[b"ASKING"]);
                    write_command(&mut request, &[&b"DEL"[..], &key]);
                    commands += 2;
                }
            }
            count += 1;
            if count >= BATCH_KEYS || request.len() >= BATCH_BYTES || keys.peek().is_none() {
                self.look()?;
                self.target.as_mut().expect("it is connected").send(&request, commands)?;
                (commands, count) = (0, 0);
                request.clear();
            }
        }
        Ok(())
    }

    /// Has the group decide how the transfer ends, whatever that takes; whether it has arrived.
    fn settle(&self, mut has_arrived: bool) -> bool {
        let (cluster, number) = (&self.server.cluster, self.export.number);
        loop {
            let view = cluster.view();
            if !view.map.transfers().contains_key(&number) {
                // No one else changes the owner of a slot that is on its way.
                let first = self.export.slots.iter().next().expect("it is of some slots");
                return view.map.owner(first).is_some_and(|owner| owner != view.id)
                    && receiver(&view, self.export).is_some();
            }
            let (answer, answered) = sync_channel(1);
            let change = Box::new(move |_| Change::EndTransfer { number, has_arrived });
            if !cluster.order(Order::Change(change, answer)) || answered.recv().is_err() {
                // The server ends: the next start finds the transfer, and what has become of it.
                return false;
            }
            // What was not decided in time may be decided yet, or never: so it is not to be.
            has_arrived = false;
            thread::sleep(LOOK);
        }
    }

    /// Clients that are sent to the other node should find that it knows of its slots.
    fn wait_until_heard(&mut self, arrived: bool) {
        let (version, deadline) = (self.server.cluster.view().map.version(), Instant::now() + HEARD_MAX);
        let Some(target) = self.target.as_mut().filter(|_| arrived) else { return };
        if target.set_patience(HEARD_MAX).is_err() {
            return;
        }
        while Instant::now() < deadline && map_version(target).is_ok_and(|heard| heard < version) {
            thread::sleep(LOOK);
        }
    }
}

/// The node that is to have the slots.
fn receiver<'v>(view: &'v View, export: &Export) -> Option<&'v Member> {
    view.map.id_of(export.to).and_then(|id| view.map.members().get(&id))
}

fn map_version(node: &mut Connection) -> io::Result<u64> {
    let info = node.call(&[b"CLUSTER", b"INFO"])?;
    let text = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("cluster_map_version:"));
    version
        .and_then(|version| version.trim().parse().ok())
        .ok_or_else(|| io::Error::other("no node's answer"))
}

/// The partitions in which keys of slots may lie.
fn partitions_of(store: &Store, slots: &Slots) -> Vec<u16> {
    let mut partitions: Vec<u16> = slots.iter().map(|slot| store.partition_of_slot(slot)).collect();
    partitions.dedup();
    partitions
}

/// The cursors of a scan that may find keys of slots: from, and to before.
fn cursors_of(store: &Store, slots: &Slots) -> BTreeMap<u64, u64> {
    slots.iter().map(|slot| store.cursors_of(slot)).collect()
}

/// The keys of some slots that a step of a scan has found, or why one cannot be read.
fn keys_of<'s>(
    store: &'s Store,
    step: ScanStep,
    slots: &'s Slots,
) -> impl Iterator<Item = Result<Vec<u8>, String>> + use<'s> {
    let names = step.keys.into_iter().map(|(key, _)| Ok(key));
    let read = |cold| store.fetch(cold).key().map(<[u8]>::to_vec).map_err(str::to_owned);
    let all = names.chain(step.cold.into_iter().map(read));
    all.filter(|key| key.as_ref().map_or(true, |key| slots.contains(hash_slot(key))))
}

/// What a key has.
struct Value {
    /// The value, serialized.
    payload: Vec<u8>,
    /// When it expires, in Unix milliseconds.
    expires: Option<u64>,
}

/// What a key has; `None`: it is not there.
fn value(store: &Store, key: &[u8]) -> Result<Option<Value>, Failure> {
    let (db, mut fetched) = (store.database(0), Vec::<Fetched>::new());
    loop {
        let mut txn = store.begin_keys([key]);
        txn.keep_expired();
        txn.note_uses(false);
        txn.supply(std::mem::take(&mut fetched));
        match serialize(&mut txn, db, key, encode::stream) {
            Ok(payload) => {
                let expires = txn.expiry(db, key).flatten();
                return Ok(payload.map(|payload| Value { payload, expires }));
            }
            Err(Stop::Cold(cold)) => {
                fetched = txn.take_fetched();
                drop(txn);
                fetched.push(store.fetch(cold));
            }
            Err(Stop::Error(text)) => return Err(String::from_utf8_lossy(&text).into()),
            Err(Stop::LockBusy | Stop::Busy) => {
                drop(txn);
                thread::sleep(LOOK);
            }
        }
    }
}

/// Says in the data of a replica set that they are by this map, or a later one; false: the server ends.
pub fn write_map_of_data(server: &Server, data: MapOfData, is_over: &AtomicBool) -> bool {
    while let Err(error) = server.write_map_of_data(data) {
        log!(Debug, "the data do not say by which map of the cluster they are: {error}");
        if is_over.load(Relaxed) {
            return false;
        }
        thread::sleep(FULL_RETRY);
    }
    true
}

/// Removes what is left of slots that are not this node's until there is nothing, durably; false: the server ends.
pub fn clear(server: &Arc<Server>, slots: &Slots, is_over: &AtomicBool) -> bool {
    // What was begun when they were still on their way here.
    server.workers_have_passed().blocking_recv();
    let store = &server.store;
    let db = store.database(0);
    let mut last = 0;
    for (first, end) in cursors_of(store, slots) {
        let mut cursor = first;
        while cursor < end {
            let step = store.scan(db, cursor, STEP);
            cursor = if step.next == 0 { end } else { step.next };
            for key in keys_of(store, step, slots) {
                let key = match key {
                    Ok(key) => key,
                    Err(why) => {
                        log!(Warning, "a key that cannot be read stays where it is: {why}");
                        continue;
                    }
                };
                // That they are gone may be decided late, when they are looked for once more, and then the slots may come again.
                let removed = |key: &[u8]| {
                    store.run(&[key], |_, writes| {
                        let view = server.cluster.view();
                        if view.map.has_leftovers(view.id, hash_slot(key)) {
                            writes.remove(db, key);
                        }
                        Ok(())
                    })
                };
                loop {
                    match removed(&key) {
                        Ok(((), lsn)) => {
                            last = last.max(lsn);
                            break;
                        }
                        // Once the log takes removals again.
                        Err(_) if is_over.load(Relaxed) => return false,
                        Err(_) => thread::sleep(FULL_RETRY),
                    }
                }
            }
        }
    }
    store.log().wait_durable(last).is_ok()
}
