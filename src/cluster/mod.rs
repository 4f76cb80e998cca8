//! The server's part in a cluster: a thread with a node (`holdfast_cluster::Node`), its clock, and its connections to the other nodes
//! (`crate::net::bus`). It carries out the orders of commands, and shows them what is known of the cluster (`crate::server::cluster`).

mod export;

use crate::{
    admin::log::log,
    config::{Config, Opt, address::bus_port},
    net::bus::{self, Bus, Protocol, Received},
    server::{
        Server,
        cluster::{
            Cluster, Endpoint, Export, ExportState, MapOfData, Order, TICK, View, node_options, node_timeout,
        },
        replica_set::{ClusterOfSet, ReplicaSet},
    },
    util::runtime,
};
use holdfast_cluster::{Change, Frame, Member, Name, Node, NodeOptions, SLOTS, Slots};
use holdfast_store::{Io, RealIo};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    sync::mpsc::{self, Receiver, Sender, channel},
    task::spawn_local,
    time::{self, Instant, MissedTickBehavior},
};

/// How long after a failure of the medium the node is opened again.
const REOPEN: Duration = Duration::from_secs(1);
/// How often it is looked whether what a message depends on is durable.
const LOOK: Duration = Duration::from_millis(1);
/// Events that wait.
const EVENTS_MAX: usize = 1024;

/// What a connection to another node begins with.
const PREFACE: &[u8; 8] = b"HFbus04\n";
/// Bytes of a frame at most: an entry of the group is a change of the map, and that has its limits.
const FRAME_MAX: usize = 64 << 20;

const UNABLE: &str = "CLUSTERDOWN the node cannot write what it promises to others";

/// Who waits for a proposal, and until when.
struct Waiter {
    answer: SyncSender<Result<(), String>>,
    until: Instant,
    /// What begins then.
    export: Option<(Slots, Name)>,
}

/// The thread of a node.
pub struct Running {
    thread: JoinHandle<()>,
    end: mpsc::UnboundedSender<()>,
    serving: mpsc::UnboundedSender<Serving>,
}

impl Running {
    /// The server serves from now on: in which term, if it leads a replica set. Nothing that it does is decided by an older map then.
    pub fn serve(&self, server: Arc<Server>, term: Option<u64>) {
        let (known, is_known) = sync_channel(1);
        let serving = Serving { server, term, known };
        if self.serving.send(serving).is_ok() {
            is_known.recv().expect("a panic ends the process");
        }
    }

    /// Ends it.
    pub fn end(self) {
        // A thread that has ended needs no telling.
        let _ = self.end.send(());
        self.thread.join().expect("a panic ends the process");
    }
}

/// Starts the thread, if the options say that there is a cluster. The data folder must be this process's. One of a replica set takes part
/// from when that is founded on.
///
/// # Errors
/// The node cannot be opened, or has no port.
pub fn start(
    config: Arc<Config>,
    cluster: Arc<Cluster>,
    set: Option<Arc<ReplicaSet>>,
) -> Result<Option<Running>, String> {
    if !cluster.is_on() {
        return Ok(None);
    }
    let no_port = "cluster-enabled: the other nodes connect at port + 10000, which is none; set cluster-port";
    let bus_port = bus_port(&config, Opt::ClusterPort).ok_or(no_port)?;
    let options = node_options(&config, bus_port);
    let cannot = |e: &dyn std::fmt::Display| format!("cannot take part in a cluster: {e}");
    let io: Arc<dyn Io> = Arc::new(RealIo::new(Path::new(&config.text(Opt::Dir))).map_err(|e| cannot(&e))?);
    let node = match set {
        None => Some(open(&io, &options, None).map_err(|e| cannot(&e))?),
        Some(_) => None,
    };
    cluster.trust.configure(&config).map_err(|e| format!("tls-cluster: {e}"))?;
    let listeners = bus::listen(&config, bus_port)?;
    let (orders, mut inbox) = mpsc::unbounded_channel();
    cluster.take_orders(orders);
    let (end, mut ended) = mpsc::unbounded_channel();
    let (serving, mut serves) = mpsc::unbounded_channel();
    let thread = thread::Builder::new().name("cluster".into()).spawn(move || {
        let runtime = runtime::local().expect("a runtime, as the workers have");
        runtime.block_on(async move {
            let (sender, events) = channel(EVENTS_MAX);
            let protocol = Protocol { trust: cluster.trust.clone(), preface: PREFACE, frame_max: FRAME_MAX };
            let (bus, mut frames) = Bus::start(protocol, listeners);
            spawn_local(tick(sender.clone()));
            spawn_local(forward(async move || inbox.recv().await, sender.clone(), Event::Order));
            spawn_local(forward(async move || frames.recv().await, sender.clone(), Event::Frame));
            spawn_local(forward(async move || serves.recv().await, sender.clone(), Event::Serve));
            spawn_local(forward(async move || ended.recv().await, sender.clone(), |()| Event::End));
            let part = Part {
                cluster,
                config,
                set,
                server: None,
                leads: None,
                io,
                bus_port,
                options,
                node,
                reopen: Instant::now(),
                bus,
                early: Vec::new(),
                waiters: BTreeMap::new(),
                held: VecDeque::new(),
                shown: None,
                received: 0,
                unsettled: Vec::new(),
                abandoned: BTreeSet::new(),
                removed: BTreeMap::new(),
                left: None,
                is_tended: Arc::default(),
                is_over: Arc::default(),
                events: sender,
                looks: false,
            };
            part.run(events).await;
        });
    });
    let thread = thread.map_err(|e| cannot(&e))?;
    Ok(Some(Running { thread, end, serving }))
}

/// Opens the node, which leads its replica set in the term that is said, if it does.
fn open(io: &Arc<dyn Io>, options: &NodeOptions, leads: Option<u64>) -> holdfast_io::Result<Node> {
    let mut node = Node::open(io.clone(), options.clone())?;
    leads.into_iter().for_each(|term| node.lead(term));
    log!(Notice, "Node configuration loaded, I'm {}", node.name());
    Ok(node)
}

/// The server that serves from now on.
struct Serving {
    server: Arc<Server>,
    /// In which term it leads its replica set, if it is one of one.
    term: Option<u64>,
    /// Who waits until that is known here.
    known: SyncSender<()>,
}

/// What the thread is woken by.
enum Event {
    Tick,
    Order(Order),
    Frame(Received),
    Serve(Serving),
    /// What messages depend on may be durable now.
    Look,
    End,
}

async fn tick(events: Sender<Event>) {
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while events.send(Event::Tick).await.is_ok() {
        ticks.tick().await;
    }
}

/// Passes on all that comes, until nobody takes it.
async fn forward<T>(mut next: impl AsyncFnMut() -> Option<T>, events: Sender<Event>, event: fn(T) -> Event) {
    while let Some(one) = next().await {
        if events.send(event(one)).await.is_err() {
            return;
        }
    }
}

struct Part {
    cluster: Arc<Cluster>,
    config: Arc<Config>,
    /// The replica set, if the server is one of one.
    set: Option<Arc<ReplicaSet>>,
    /// Once it serves.
    server: Option<Arc<Server>>,
    /// In which term it leads its replica set, if it does.
    leads: Option<u64>,
    io: Arc<dyn Io>,
    /// Where it takes connections of other nodes.
    bus_port: u16,
    options: NodeOptions,
    /// `None`: its medium has failed, or its replica set is not founded yet, and it is opened at the time that is beside.
    node: Option<Node>,
    reopen: Instant,
    bus: Bus,
    /// Orders that wait for another moment: see [`Part::is_early`]. And until when that is waited for.
    early: Vec<(Order, Instant)>,
    waiters: BTreeMap<u64, Waiter>,
    /// Messages that must not be seen before something is durable.
    held: VecDeque<(u64, Vec<u8>, Vec<u8>)>,
    shown: Option<(u64, bool, bool, bool, u64, Endpoint)>,
    received: u64,
    /// Who is told that a change is done once nobody decides who was forgotten, and until when that is waited for.
    unsettled: Vec<(SyncSender<Result<(), String>>, Instant)>,
    /// Transfers of this node that no thread carries out, since the process is another one: the group is asked to end them.
    abandoned: BTreeSet<u64>,
    /// Nodes of servers that are not of the replica set any more: the group is asked to forget them.
    removed: BTreeMap<Name, Instant>,
    /// Which cluster it was told last to leave.
    left: Option<u64>,
    /// Whether a thread has the data be by the map.
    is_tended: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    events: Sender<Event>,
    /// Whether it will look soon again.
    looks: bool,
}

impl Part {
    async fn run(mut self, mut events: Receiver<Event>) {
        while let Some(event) = events.recv().await {
            match event {
                Event::Tick => self.tick(),
                Event::Order(order @ (Order::Change(..) | Order::Export(..) | Order::Meet(..)))
                    if self.is_early() =>
                {
                    let until = Instant::now() + self.patience();
                    self.early.push((order, until));
                }
                Event::Order(order) => self.carry_out(order),
                Event::Frame((host, bytes)) => {
                    // A newer node may send what this one does not know.
                    Frame::decode(&bytes).into_iter().for_each(|frame| self.receive(&host, frame));
                }
                Event::Serve(Serving { server, term, known }) => {
                    (self.server, self.leads) = (Some(server), term);
                    if let (Some(node), Some(term)) = (&mut self.node, term) {
                        node.lead(term);
                    }
                    self.show();
                    // Who waits has not ended.
                    let _ = known.send(());
                }
                Event::Look => self.looks = false,
                Event::End => break,
            }
            self.work();
            if !self.held.is_empty() && !self.looks {
                self.looks = true;
                let looking = self.events.clone();
                spawn_local(async move {
                    time::sleep(LOOK).await;
                    // Who looked may have ended.
                    let _ = looking.send(Event::Look).await;
                });
            }
        }
        self.is_over.store(true, Relaxed);
    }

    fn tick(&mut self) {
        self.options = NodeOptions { seat: self.options.seat, ..node_options(&self.config, self.bus_port) };
        if let Some(node) = &mut self.node {
            node.set_options(&self.options);
            node.tick();
        } else if Instant::now() >= self.reopen {
            self.open();
        }
        self.follow_set();
        let now = Instant::now();
        let late: Vec<_> =
            self.waiters.iter().filter(|(_, it)| it.until <= now).map(|(number, _)| *number).collect();
        for number in late {
            self.node.iter_mut().for_each(|node| node.give_up(number));
            let why = "CLUSTERDOWN the change was not decided in time: no majority of nodes is reachable";
            self.answer(number, Err(why.into()));
        }
    }

    fn open(&mut self) {
        if let Some(set) = &self.set {
            self.options.seat = set.seat();
            if self.options.seat.is_none() {
                return;
            }
        }
        match open(&self.io, &self.options, self.leads) {
            Ok(node) => (self.node, self.shown) = (Some(node), None),
            Err(error) => self.fail(&error),
        }
    }

    /// Has all servers of the replica set be in one cluster, and no others of it.
    fn follow_set(&mut self) {
        let patience = self.patience();
        let (Some(set), Some(node), Some(seat)) = (&self.set, &mut self.node, self.options.seat) else {
            return;
        };
        let (map, view) = (node.map(), set.view());
        let (id, leads) = (node.id(), view.leader.is_some() && view.leader == view.own);
        let of_set = |member: &Member| member.seat.filter(|other| other.set == seat.set);
        // Before that, the node may yet become one of another cluster, which it can only do alone.
        let is_others = |(at, other): (&u64, &Member)| *at != id && of_set(other).is_none();
        let is_one = map.assigned() == SLOTS || map.members().iter().any(is_others);
        let has_slots = || {
            let mut own = map.members().iter().filter(|(at, it)| **at == id || of_set(it).is_some());
            own.any(|(at, _)| !map.slots_of(*at).is_empty())
        };
        let is_member = map.members().contains_key(&id) && node.is_connected();
        let is_to_be_joined = is_one && is_member && (leads || has_slots());
        let (cluster, version, bus_port) = (node.cluster(), map.version(), self.options.address.bus_port);
        let servers = map.members().values().filter_map(of_set).map(|other| other.server);
        let told = || (ClusterOfSet { cluster, bus_port, version, is_member: false }, servers.collect());
        set.tell_cluster(is_to_be_joined.then(told));
        let ways = set.ways_to_cluster();
        // Who follows goes where its leader is; who leads, where the set has slots, unless it was told to leave that.
        let way = match view.leader.filter(|_| !leads) {
            Some(leader) => ways.get(&leader),
            None => ways.values().find(|(_, way)| leads && self.left != Some(way.cluster)),
        };
        if let Some((host, way)) = way {
            let is_other = way.cluster != cluster;
            if is_other && map.members().len() == 1 && map.assigned() == 0 && !node.is_joining() {
                return node.meet(host, way.bus_port, way.cluster);
            }
            // It was away while the set left the cluster that it still takes itself for a member of.
            let is_left = is_other && !leads && !node.is_connected();
            if is_left || node.is_forgotten(way.cluster, way.version, way.is_member) {
                if let Err(error) = node.reset(false) {
                    self.fail(&error);
                }
                return;
            }
        }
        if !leads || !node.is_current() {
            return;
        }
        let is_gone =
            |member: &&Member| of_set(member).is_some_and(|it| !view.servers.contains_key(&it.server));
        let gone: Vec<Name> = map.members().values().filter(is_gone).map(|member| member.name).collect();
        let now = Instant::now();
        self.removed.retain(|name, until| gone.contains(name) && now < *until);
        for name in gone {
            self.removed.entry(name).or_insert_with(|| {
                node.propose(&Change::Forget { name });
                now + patience
            });
        }
    }

    /// Whether it is about to become a node of another cluster, or the others do not know yet that the server leads its replica set.
    fn is_early(&self) -> bool {
        let leads = self.leads.is_some();
        self.node.as_ref().is_some_and(|node| node.is_joining() || leads && !node.is_current())
    }

    /// Carries out what has waited for that, or has waited for long.
    fn carry_out_early(&mut self) {
        let (is_early, now) = (self.is_early(), Instant::now());
        let (late, due): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.early).into_iter().partition(|(_, until)| is_early && now < *until);
        self.early = late;
        due.into_iter().for_each(|(order, _)| self.carry_out(order));
    }

    /// How long a change may take to be decided.
    fn patience(&self) -> Duration {
        node_timeout(&self.config)
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Change(change, answer) => self.propose(change, answer, None),
            Order::Export(slots, to, answer) => {
                let begin = {
                    let slots = slots.clone();
                    move |id| Change::BeginTransfer { id, slots, to }
                };
                self.propose(begin, answer, Some((slots, to)));
            }
            Order::Meet(host, port) => self.node.iter_mut().for_each(|node| node.meet(&host, port, 0)),
            Order::Reset(is_hard, answer) => {
                let reset = match &mut self.node {
                    Some(node) => {
                        self.left = Some(node.cluster());
                        node.reset(is_hard).map_err(|e| format!("ERR {e}"))
                    }
                    None => Err(UNABLE.into()),
                };
                self.show();
                drop(answer.send(reset));
            }
            Order::Publish(channel, message, lsn) => {
                self.held.push_back((lsn, channel, message));
            }
        }
    }

    /// Has the group decide on a change, which is made of this node's number.
    fn propose(
        &mut self,
        change: impl FnOnce(u64) -> Change,
        answer: SyncSender<Result<(), String>>,
        export: Option<(Slots, Name)>,
    ) {
        match &mut self.node {
            None => drop(answer.send(Err(UNABLE.into()))),
            Some(node) if node.is_joining() => {
                drop(answer.send(Err("ERR the node is joining a cluster, try again".into())));
            }
            Some(node) => {
                let number = node.propose(&change(node.id()));
                let until = Instant::now() + self.patience();
                self.waiters.insert(number, Waiter { answer, until, export });
            }
        }
    }

    fn receive(&mut self, host: &str, frame: Frame) {
        self.received += 1;
        let Some(node) = &mut self.node else { return };
        if let Frame::Publish { cluster, channel, message } = &frame {
            if *cluster == node.cluster() {
                // Those who have subscribed at one that follows are told by its leader.
                if let Some(server) = &self.server {
                    server.push.publish(channel, message, false, 0);
                }
            }
            return;
        }
        if let Err(error) = node.receive(host, frame) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) {
        log!(Warning, "the node cannot take part in its cluster: {error}");
        self.node = None;
        self.reopen = Instant::now() + REOPEN;
        // What was proposed may be decided all the same.
        for number in self.waiters.keys().copied().collect::<Vec<_>>() {
            self.answer(number, Err(format!("ERR {error}")));
        }
    }

    /// Does what follows from what has happened, and shows it.
    fn work(&mut self) {
        if let Some(Err(error)) = self.node.as_mut().map(Node::work) {
            self.fail(&error);
        }
        self.show();
        let (done, frames) = match &mut self.node {
            Some(node) => (node.take_done(), node.take_frames()),
            None => Default::default(),
        };
        for (place, frame) in frames {
            // What is not sent is said again.
            let _ = self.bus.send(place, vec![frame.encode().into()]);
        }
        for done in done {
            self.answer(done.number, done.outcome);
        }
        self.carry_out_early();
        self.answer_settled();
        self.publish();
        self.end_transfers();
        self.tend_data();
    }

    /// Ends transfers that an earlier process of this node has begun.
    fn end_transfers(&mut self) {
        let (Some(node), Some(_)) = (&mut self.node, &self.server) else { return };
        let (id, map) = (node.id(), node.map());
        let own = map.transfers().iter().filter(|(_, transfer)| transfer.from == id);
        let own: BTreeSet<u64> = own.map(|(number, _)| *number).collect();
        self.abandoned.retain(|number| own.contains(number));
        for number in own {
            let is_carried = self.cluster.exports().iter().any(|export| export.number == number);
            if !is_carried && self.abandoned.insert(number) {
                node.propose(&Change::EndTransfer { number, has_arrived: false });
            }
        }
    }

    /// Has the data be by the map: removes what transfers have left here, and as the one that leads a replica set says first by which map they are.
    fn tend_data(&self) {
        let (Some(_), Some(server)) = (&self.node, &self.server) else { return };
        let view = self.cluster.view();
        let left = view.map.leftovers(view.id);
        let is_said = self.leads.is_none() || left.is_empty() && self.cluster.has_all(view.data);
        let data = (!is_said).then_some(view.data);
        if left.is_empty() && data.is_none() || self.is_tended.swap(true, Relaxed) {
            return;
        }
        let (server, is_tended, is_over) = (server.clone(), self.is_tended.clone(), self.is_over.clone());
        let tend = move || {
            let says_so = data.is_none_or(|data| export::write_map_of_data(&server, data, &is_over));
            if says_so && !left.is_empty() && export::clear(&server, &left, &is_over) {
                let (answer, answered) = sync_channel(1);
                let change = Box::new(move |id| Change::Cleared { id, slots: left });
                // What was not decided in time is done again.
                let _ = server.cluster.order(Order::Change(change, answer)).then(|| answered.recv());
            }
            is_tended.store(false, Relaxed);
        };
        if let Err(error) = thread::Builder::new().name("tend-slots".into()).spawn(tend) {
            log!(Warning, "no thread removes keys of slots that have moved: {error}");
            self.is_tended.store(false, Relaxed);
        }
    }

    /// Sends messages that may be seen now to all other nodes.
    fn publish(&mut self) {
        let (Some(node), Some(server)) = (&self.node, &self.server) else { return };
        let durable = server.progress.durable();
        while self.held.front().is_some_and(|(lsn, ..)| *lsn <= durable) {
            let (_, channel, message) = self.held.pop_front().expect("there is one");
            self.cluster.end_publish(&channel, &message);
            let frame = Frame::Publish { cluster: node.cluster(), channel, message };
            let frame = vec![frame.encode().into()];
            for (id, member) in node.map().members() {
                if *id != node.id() && !member.address.host.is_empty() {
                    let way = (member.address.host.clone(), member.address.bus_port);
                    // What is lost is lost, as with Redis.
                    let _ = self.bus.send(way, frame.clone());
                }
            }
        }
    }

    /// Tells who waits for a proposal, once no worker goes by an older map.
    fn answer(&mut self, number: u64, outcome: Result<u64, String>) {
        let Some(waiter) = self.waiters.remove(&number) else { return };
        let outcome = match (outcome, waiter.export) {
            (Ok(number), Some((slots, to))) => self.begin_export(number, slots, to),
            (outcome, _) => outcome.map(drop),
        };
        match outcome {
            Ok(()) if !self.is_settled() => self.unsettled.push((waiter.answer, waiter.until)),
            outcome => self.send_answer(waiter.answer, outcome),
        }
    }

    fn is_settled(&self) -> bool {
        self.node.as_ref().is_none_or(Node::is_settled)
    }

    /// Tells those who wait for that, that nobody decides any more who was forgotten.
    fn answer_settled(&mut self) {
        let (is_settled, now) = (self.is_settled(), Instant::now());
        let (over, rest) = std::mem::take(&mut self.unsettled)
            .into_iter()
            .partition(|(_, until)| is_settled || *until <= now);
        self.unsettled = rest;
        let over: Vec<_> = over;
        over.into_iter().for_each(|(answer, _)| self.send_answer(answer, Ok(())));
    }

    fn send_answer(&self, answer: SyncSender<Result<(), String>>, outcome: Result<(), String>) {
        let mut passed = self.server.as_deref().map(Server::workers_have_passed);
        spawn_local(async move {
            if let Some(passed) = &mut passed {
                // Nothing is ever sent: the last worker drops its end.
                passed.recv().await;
            }
            // Who waited may be gone.
            drop(answer.send(outcome));
        });
    }

    /// Begins to send slots that the group has put on their way.
    fn begin_export(&self, number: u64, slots: Slots, to: Name) -> Result<(), String> {
        let server = self.server.as_ref().ok_or("ERR the server does not lead its replica set")?;
        let now_ms = server.store.now_ms();
        let state = ExportState { word: "connecting", message: String::new(), since_ms: now_ms };
        let (state, is_cancelled) = (Mutex::new(state), AtomicBool::new(false));
        let export = Arc::new(Export { number, slots, to, began_ms: now_ms, state, is_cancelled });
        let carry = {
            let (server, export) = (server.clone(), export.clone());
            move || export::carry(&server, &export)
        };
        // One that nobody carries out is ended as an abandoned one.
        thread::Builder::new().name("send-slots".into()).spawn(carry).map_err(|e| format!("ERR {e}"))?;
        self.cluster.add_export(export);
        Ok(())
    }

    /// Shows commands what is known, if it is another than before.
    fn show(&mut self) {
        let Some(node) = &self.node else { return };
        let is_connected = node.is_connected();
        let can_serve =
            is_connected && (!self.config.is_on(Opt::ClusterRequireFullCoverage) || node.map().is_covered());
        // Until it has heard what became of its slots before, it serves none.
        let serves = can_serve && self.server.is_some() && node.is_current();
        let is_ok = if self.set.is_some() && self.server.is_none() { can_serve } else { serves };
        let endpoint = Endpoint::preferred(&self.config);
        let shown = (node.maps(), is_connected, is_ok, serves, node.term(), endpoint);
        let leader = node.leader().unwrap_or_default();
        if self.shown != Some(shown) {
            let before = self.cluster.view().is_ok;
            if before != is_ok {
                log!(Notice, "Cluster state changed: {}", if is_ok { "ok" } else { "fail" });
            }
            let frames = (self.bus.sent(), self.received);
            let (name, id, term) = (node.name(), node.id(), node.term());
            let view = View {
                name,
                id,
                map: node.map().clone(),
                data: MapOfData::new(node.cluster(), node.map(), node.id()),
                is_connected,
                is_ok,
                leader,
                term,
                endpoint,
                frames,
            };
            if let Some(server) = &self.server {
                server.tell_of_gone_slots(&self.cluster.view(), &view);
            }
            self.cluster.show(view, serves);
            self.shown = Some(shown);
            if let Some(server) = self.server.clone() {
                spawn_local(server.leave_slots());
            }
        }
    }
}
