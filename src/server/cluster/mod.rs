//! The server as a node of a cluster: what commands need to know of that, and the way to the thread that takes part in it
//! (`crate::cluster`).

mod view;

use crate::{
    commit::durability::Lsn,
    config::{Config, Opt},
    transport::trust::Trust,
};
use holdfast_cluster::{Address, Change, Map, MemberId, Name, NodeOptions, SLOTS, Slots};
use holdfast_store::{Error, Reader, SYSTEM_DATABASE, Store, Writes};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{
            AtomicBool, AtomicU8, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
        mpsc::SyncSender,
    },
    time::Duration,
};
use tokio::sync::mpsc::UnboundedSender;
pub use view::{Endpoint, View};

/// How long a tick of the group takes.
pub const TICK: Duration = Duration::from_millis(100);
/// The least time of silence after which a node has failed: in less, nodes elect nobody.
const NODE_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Transfers that are told of once they have ended.
const EXPORTS_MAX: usize = 32;
/// Bytes of messages for other nodes that wait at most.
const UNSENT_MAX: usize = 16 << 20;

/// What a node is told to do, and whom it tells what came of it.
pub enum Order {
    /// Have the cluster decide on a change.
    Change(Box<dyn FnOnce(u64) -> Change + Send>, SyncSender<Result<(), String>>),
    /// Send slots to another node, with all that is in them, and have the cluster give them to it. The answer comes when that begins.
    Export(Slots, Name, SyncSender<Result<(), String>>),
    /// Come together with another node.
    Meet(String, u16),
    /// Leave the cluster; with another name.
    Reset(bool, SyncSender<Result<(), String>>),
    /// Publish a message on all other nodes, once all below an LSN is durable.
    Publish(Vec<u8>, Vec<u8>, Lsn),
}

/// By which map of its cluster the data of a replica set are, as its leader says in them: they have all that is in the slots which the set had got by then; and
/// from there on they may lack what is in slots that were another's by then, or on their way there key by key. Those who follow may know an earlier
/// map or a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapOfData {
    /// Of which cluster.
    pub cluster: u64,
    /// The version of the map.
    pub version: u64,
    /// By that, the epoch of the set: greater where slots were given to it later ([`Map::epoch_of`]).
    pub epoch: u64,
}

impl MapOfData {
    /// Where the data say so: a key of the system's database.
    const KEY: &[u8] = b"\0map";

    /// As a map says it of the set of a node.
    pub fn new(cluster: u64, map: &Map, node: MemberId) -> MapOfData {
        MapOfData { cluster, version: map.version(), epoch: map.epoch_of(node) }
    }

    fn decode(value: &[u8]) -> Option<MapOfData> {
        let (numbers, []) = value.as_chunks() else { return None };
        let [cluster, version, epoch] = <[[u8; 8]; 3]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        Some(MapOfData { cluster, version, epoch })
    }

    /// As the data say it.
    pub fn read(store: &Store) -> Option<MapOfData> {
        // What cannot be read now is no reason to fail: the leader is asked.
        store.get(SYSTEM_DATABASE, Self::KEY, |value| Self::decode(value?)).ok().and_then(|(found, _)| found)
    }

    /// Has the data say so, unless they are by a later map of the same cluster; returns what they say.
    ///
    /// # Errors
    /// Nothing is written: see [`Store::run`].
    pub fn write(self, store: &Store) -> Result<MapOfData, Error> {
        let write = |reader: &mut Reader, writes: &mut Writes| {
            let found = reader.get(SYSTEM_DATABASE, Self::KEY)?.and_then(Self::decode);
            let before = found.filter(|found| found.cluster == self.cluster && found.version >= self.version);
            if before.is_none() {
                let value = [self.cluster, self.version, self.epoch].map(u64::to_le_bytes).concat();
                writes.set_before_removals(SYSTEM_DATABASE, Self::KEY, value);
            }
            Ok(before.unwrap_or(self))
        };
        store.run(&[Self::KEY], write).map(|(said, _)| said)
    }
}

/// A transfer of slots to another node, as this one tells of it.
pub struct Export {
    /// Its number in the map.
    pub number: u64,
    /// The slots.
    pub slots: Slots,
    /// Who is to have them.
    pub to: Name,
    /// When it began, in Unix milliseconds.
    pub began_ms: u64,
    /// How far it is.
    pub state: Mutex<ExportState>,
    /// It is to end without having arrived.
    pub is_cancelled: AtomicBool,
}

/// How far a transfer is.
#[derive(Clone)]
pub struct ExportState {
    /// A word, as Valkey has it for CLUSTER GETSLOTMIGRATIONS.
    pub word: &'static str,
    /// What went wrong.
    pub message: String,
    /// Since when, in Unix milliseconds.
    pub since_ms: u64,
}

/// Where the keys of a slot are.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Route {
    /// Look at the map: not here, or a part of them.
    Elsewhere = 0,
    /// All here.
    Here = 1,
    /// Wait: they are about to be another node's, or stay here.
    Frozen = 2,
}

/// The server as a node of a cluster.
pub struct Cluster {
    /// Who the other nodes are.
    pub trust: Arc<Trust>,
    is_on: bool,
    routes: Box<[AtomicU8]>,
    serves: AtomicBool,
    view: RwLock<Arc<View>>,
    /// Slots whose keys nobody may use for the moment. Held while routes are changed.
    frozen: Mutex<Slots>,
    /// Held by who sends slots, until nothing is frozen or noted for it any more.
    pub sends: Mutex<()>,
    /// The transfers of slots that this node has begun, the last ones last.
    exports: Mutex<VecDeque<Arc<Export>>>,
    orders: OnceLock<UnboundedSender<Order>>,
    /// Bytes of messages that were ordered to be sent and are not.
    unsent: AtomicUsize,
    /// Of a replica set: by which map the data are, as far as that is known.
    data: Mutex<Option<MapOfData>>,
}

impl Cluster {
    /// As the options say.
    pub fn new(config: &Config) -> Cluster {
        let is_on = config.is_on(Opt::ClusterEnabled);
        let routes =
            (0..if is_on { SLOTS } else { 0 }).map(|_| AtomicU8::new(Route::Elsewhere as u8)).collect();
        let view = RwLock::default();
        Cluster {
            trust: Arc::new(Trust::new(Opt::TlsCluster)),
            is_on,
            routes,
            serves: AtomicBool::new(false),
            view,
            frozen: Mutex::default(),
            sends: Mutex::default(),
            exports: Mutex::default(),
            orders: OnceLock::new(),
            unsent: AtomicUsize::new(0),
            data: Mutex::default(),
        }
    }

    /// The data are by this map, or are about to be. Whether that is news.
    pub fn learn_map_of_data(&self, data: MapOfData) -> bool {
        let mut known = self.data.lock().expect("no holder panics");
        known.replace(data) != Some(data)
    }

    /// By which map of a cluster the data are, if they say so.
    fn data_of(&self, cluster: u64) -> Option<MapOfData> {
        self.data.lock().expect("no holder panics").filter(|data| data.cluster == cluster)
    }

    /// Whether the data have all that is in the slots which the set has by this map, and say so.
    pub fn has_all(&self, by: MapOfData) -> bool {
        self.data_of(by.cluster).is_some_and(|data| data.epoch >= by.epoch)
    }

    /// Whether the data say that they may lack what is in slots that are another's by this map, or on their way there.
    pub fn may_lack(&self, by: MapOfData) -> bool {
        self.data_of(by.cluster).is_some_and(|data| data.version >= by.version)
    }

    /// As one that follows in a replica set: whether the data here are those of the slots that the set has by the map that is known here. If they are by an
    /// earlier map, keys may seem to be missing that have come with slots; if by a later one, those that have gone with them.
    pub fn has_data_of(&self, by: MapOfData) -> bool {
        self.data_of(by.cluster).is_some_and(|data| data.epoch >= by.epoch && data.version <= by.version)
    }

    /// Whether the server is one.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// What the server is, as HELLO and INFO say it.
    pub fn mode(&self) -> &'static str {
        if self.is_on { "cluster" } else { "standalone" }
    }

    /// Whether all keys of a slot are here, and may be used.
    #[inline]
    pub fn serves(&self, slot: u16) -> bool {
        self.routes[usize::from(slot)].load(Acquire) == Route::Here as u8 && self.serves.load(Relaxed)
    }

    /// What is known of the cluster.
    pub fn view(&self) -> Arc<View> {
        self.view.read().expect("no holder panics").clone()
    }

    /// What is known of the cluster is another from now on, and whether the slots that are this node's are served.
    pub fn show(&self, view: View, serves: bool) {
        let frozen = self.frozen.lock().expect("no holder panics");
        self.route(&view, &frozen);
        self.serves.store(serves, Relaxed);
        *self.view.write().expect("no holder panics") = Arc::new(view);
    }

    /// Has commands wait that use keys of these slots, and of no others, from now on. Those that have begun go on.
    pub fn freeze(&self, slots: Slots) {
        let mut frozen = self.frozen.lock().expect("no holder panics");
        *frozen = slots;
        self.route(&self.view(), &frozen);
    }

    fn route(&self, view: &View, frozen: &Slots) {
        for slot in 0..SLOTS as u16 {
            let is_here = view.owns(slot) && !view.map.moves().contains_key(&slot);
            let route = match is_here {
                _ if frozen.contains(slot) => Route::Frozen,
                true => Route::Here,
                false => Route::Elsewhere,
            };
            self.routes[usize::from(slot)].store(route as u8, Release);
        }
    }

    /// Whether keys of a slot may not be used for the moment.
    pub fn is_frozen(&self, slot: u16) -> bool {
        self.routes[usize::from(slot)].load(Acquire) == Route::Frozen as u8
    }

    /// The transfers of slots that this node has begun, the last ones last.
    pub fn exports(&self) -> Vec<Arc<Export>> {
        self.exports.lock().expect("no holder panics").iter().cloned().collect()
    }

    /// A transfer begins.
    pub fn add_export(&self, export: Arc<Export>) {
        let mut exports = self.exports.lock().expect("no holder panics");
        exports.push_back(export);
        if exports.len() > EXPORTS_MAX {
            exports.pop_front();
        }
    }

    /// Who carries out orders.
    pub fn take_orders(&self, orders: UnboundedSender<Order>) {
        self.orders.get_or_init(|| orders);
    }

    /// Has a message sent to the other nodes once an LSN is durable. It is lost, as with Redis, where too many wait.
    pub fn publish(&self, channel: &[u8], message: &[u8], lsn: Lsn) {
        let bytes = message_bytes(channel, message);
        let has_room = self.unsent.fetch_add(bytes, Relaxed) + bytes <= UNSENT_MAX;
        if !has_room || !self.order(Order::Publish(channel.to_vec(), message.to_vec(), lsn)) {
            self.unsent.fetch_sub(bytes, Relaxed);
        }
    }

    /// Notes that a message was sent, or is lost.
    pub fn end_publish(&self, channel: &[u8], message: &[u8]) {
        self.unsent.fetch_sub(message_bytes(channel, message), Relaxed);
    }

    /// Orders something; whether there is somebody to do it.
    pub fn order(&self, order: Order) -> bool {
        self.orders.get().is_some_and(|orders| orders.send(order).is_ok())
    }
}

/// Bytes of memory that a message takes which is to be sent.
fn message_bytes(channel: &[u8], message: &[u8]) -> usize {
    size_of::<Order>() + channel.len() + message.len()
}

/// How the options say that a node takes part, which other nodes reach at `bus_port` unless they say otherwise.
pub fn node_options(config: &Config, bus_port: u16) -> NodeOptions {
    let or = |announced, own: u16| match config.number(announced) as u16 {
        0 => own,
        port => port,
    };
    let address = Address {
        host: config.text(Opt::ClusterAnnounceIp),
        hostname: config.text(Opt::ClusterAnnounceHostname),
        port: or(Opt::ClusterAnnouncePort, config.number(Opt::Port) as u16),
        tls_port: or(Opt::ClusterAnnounceTlsPort, config.number(Opt::TlsPort) as u16),
        bus_port: or(Opt::ClusterAnnounceBusPort, bus_port),
    };
    let timeout = (node_timeout(config).as_millis() / TICK.as_millis()) as u64;
    NodeOptions { address, timeout, seat: None }
}

/// How long a node is silent before it has failed.
pub fn node_timeout(config: &Config) -> Duration {
    NODE_TIMEOUT_MIN.max(Duration::from_millis(config.number(Opt::ClusterNodeTimeout) as u64))
}
