//! The server's part in a cluster: a thread with a node (`holdfast_cluster::Node`), its clock, and its connections to the other nodes
//! (`crate::net::bus`). It carries out the orders of commands, and shows them what is known of the cluster (`crate::server::cluster`).

mod export;

use crate::{
    admin::log::log,
    config::{Opt, address::bus_port},
    net::bus::{self, Bus, Protocol, Received},
    server::{
        Server,
        cluster::{Export, ExportState, Order, TICK, View, node_options},
        mailbox::{Message, Wake},
    },
    util::runtime,
};
use holdfast_cluster::{Change, Frame, Map, Name, Node, NodeOptions, Slots};
use holdfast_store::{Io, RealIo, hash_slot};
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
/// Messages that wait for that at most.
const HELD_MAX: usize = 1 << 16;

/// What a connection to another node begins with.
const PREFACE: &[u8; 8] = b"HFbus03\n";
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
}

impl Running {
    /// Ends it.
    pub fn end(self) {
        // A thread that has ended needs no telling.
        let _ = self.end.send(());
        self.thread.join().expect("a panic ends the process");
    }
}

/// Starts the thread, if the options say that there is a cluster. The data folder must be this process's.
///
/// # Errors
/// The node cannot be opened, or has no port.
pub fn start(server: &Arc<Server>) -> Result<Option<Running>, String> {
    if !server.cluster.is_on() {
        return Ok(None);
    }
    let no_port = "cluster-enabled: the other nodes connect at port + 10000, which is none; set cluster-port";
    let options = node_options(&server.config).ok_or(no_port)?;
    let cannot = |e: &dyn std::fmt::Display| format!("cannot take part in a cluster: {e}");
    let io: Arc<dyn Io> =
        Arc::new(RealIo::new(Path::new(&server.config.text(Opt::Dir))).map_err(|e| cannot(&e))?);
    let node = Node::open(io.clone(), options.clone()).map_err(|e| cannot(&e))?;
    log!(Notice, "Node configuration loaded, I'm {}", node.name());
    let listeners = bus::listen(&server.config, bus_port(&server.config, Opt::ClusterPort).ok_or(no_port)?)?;
    let (orders, mut inbox) = mpsc::unbounded_channel();
    server.cluster.take_orders(orders);
    let (end, mut ended) = mpsc::unbounded_channel();
    let server = server.clone();
    let (shown, is_shown) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().name("cluster".into()).spawn(move || {
        let runtime = runtime::local().expect("a runtime, as the workers have");
        runtime.block_on(async move {
            let (sender, events) = channel(EVENTS_MAX);
            let trust = server.cluster.trust.clone();
            let protocol = Protocol { trust, preface: PREFACE, frame_max: FRAME_MAX };
            let (bus, mut frames) = Bus::start(protocol, listeners);
            spawn_local(tick(sender.clone()));
            spawn_local(forward(async move || inbox.recv().await, sender.clone(), Event::Order));
            spawn_local(forward(async move || frames.recv().await, sender.clone(), Event::Frame));
            spawn_local(forward(async move || ended.recv().await, sender.clone(), |()| Event::End));
            let part = Part::new(server, io, options, node, bus, sender);
            shown.send(()).expect("somebody waits");
            part.run(events).await;
        });
    });
    let thread = thread.map_err(|e| cannot(&e))?;
    // Before clients ask for what is known.
    is_shown.recv().expect("a panic ends the process");
    Ok(Some(Running { thread, end }))
}

/// What the thread is woken by.
enum Event {
    Tick,
    Order(Order),
    Frame(Received),
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
    server: Arc<Server>,
    io: Arc<dyn Io>,
    options: NodeOptions,
    /// `None`: its medium has failed, and it is opened again at the time that is beside.
    node: Option<Node>,
    reopen: Instant,
    bus: Bus,
    waiters: BTreeMap<u64, Waiter>,
    /// Messages that must not be seen before something is durable.
    held: VecDeque<(u64, Vec<u8>, Vec<u8>)>,
    shown: Option<(u64, bool, bool, u64)>,
    received: u64,
    /// Who is told that a change is done once nobody decides who was forgotten, and until when that is waited for.
    unsettled: Vec<(SyncSender<Result<(), String>>, Instant)>,
    /// Transfers of this node that no thread carries out, since the process is another one: the group is asked to end them.
    abandoned: BTreeSet<u64>,
    /// Whether a thread removes keys of slots that are not this node's.
    is_clearing: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    events: Sender<Event>,
    /// Whether it will look soon again.
    looks: bool,
}

impl Part {
    fn new(
        server: Arc<Server>,
        io: Arc<dyn Io>,
        options: NodeOptions,
        node: Node,
        bus: Bus,
        events: Sender<Event>,
    ) -> Part {
        let mut part = Part {
            server,
            io,
            options,
            node: Some(node),
            reopen: Instant::now(),
            bus,
            waiters: BTreeMap::new(),
            held: VecDeque::new(),
            shown: None,
            received: 0,
            unsettled: Vec::new(),
            abandoned: BTreeSet::new(),
            is_clearing: Arc::default(),
            is_over: Arc::default(),
            events,
            looks: false,
        };
        part.show();
        part
    }

    async fn run(mut self, mut events: Receiver<Event>) {
        while let Some(event) = events.recv().await {
            match event {
                Event::Tick => self.tick(),
                Event::Order(order) => self.carry_out(order),
                Event::Frame((host, bytes)) => {
                    // A newer node may send what this one does not know.
                    Frame::decode(&bytes).into_iter().for_each(|frame| self.receive(&host, frame));
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
        if let Some(node) = &mut self.node {
            node.tick();
        } else if Instant::now() >= self.reopen {
            match Node::open(self.io.clone(), self.options.clone()) {
                Ok(node) => (self.node, self.shown) = (Some(node), None),
                Err(error) => self.fail(&error),
            }
        }
        let now = Instant::now();
        let late: Vec<_> =
            self.waiters.iter().filter(|(_, it)| it.until <= now).map(|(number, _)| *number).collect();
        for number in late {
            self.node.iter_mut().for_each(|node| node.give_up(number));
            let why = "CLUSTERDOWN the change was not decided in time: no majority of nodes is reachable";
            self.answer(number, Err(why.into()));
        }
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
            Order::Meet(host, port) => self.node.iter_mut().for_each(|node| node.meet(&host, port)),
            Order::Reset(is_hard, answer) => {
                let reset = match &mut self.node {
                    Some(node) => node.reset(is_hard).map_err(|e| format!("ERR {e}")),
                    None => Err(UNABLE.into()),
                };
                self.show();
                drop(answer.send(reset));
            }
            Order::Publish(channel, message, lsn) => {
                if self.held.len() < HELD_MAX {
                    self.held.push_back((lsn, channel, message));
                }
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
                let patience = self.server.config.number(Opt::ClusterNodeTimeout) as u64;
                let until = Instant::now() + Duration::from_millis(patience);
                self.waiters.insert(number, Waiter { answer, until, export });
            }
        }
    }

    fn receive(&mut self, host: &str, frame: Frame) {
        self.received += 1;
        let Some(node) = &mut self.node else { return };
        if let Frame::Publish { cluster, channel, message } = &frame {
            if *cluster == node.cluster() {
                self.server.push.publish(channel, message, false, 0);
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
            let _ = self.bus.send(place, frame.encode());
        }
        for done in done {
            self.answer(done.number, done.outcome);
        }
        self.answer_settled();
        self.publish();
        self.follow_transfers();
    }

    /// Ends transfers that an earlier process of this node has begun, and removes what transfers have left here.
    fn follow_transfers(&mut self) {
        let Some(node) = &mut self.node else { return };
        let (id, map) = (node.id(), node.map());
        let own = map.transfers().iter().filter(|(_, transfer)| transfer.from == id);
        let own: BTreeSet<u64> = own.map(|(number, _)| *number).collect();
        let left = map.leftovers(id);
        self.abandoned.retain(|number| own.contains(number));
        for number in own {
            let is_carried = self.server.cluster.exports().iter().any(|export| export.number == number);
            if !is_carried && self.abandoned.insert(number) {
                node.propose(&Change::EndTransfer { number, has_arrived: false });
            }
        }
        if !left.is_empty() && !self.is_clearing.swap(true, Relaxed) {
            let (server, is_clearing, is_over) =
                (self.server.clone(), self.is_clearing.clone(), self.is_over.clone());
            let clear = move || {
                if export::clear(&server, &left, &is_over) {
                    let (answer, answered) = sync_channel(1);
                    let change = Box::new(move |id| Change::Cleared { id, slots: left });
                    // What was not decided in time is done again.
                    let _ = server.cluster.order(Order::Change(change, answer)).then(|| answered.recv());
                }
                is_clearing.store(false, Relaxed);
            };
            if let Err(error) = thread::Builder::new().name("clear-slots".into()).spawn(clear) {
                log!(Warning, "no thread removes keys of slots that have moved: {error}");
                self.is_clearing.store(false, Relaxed);
            }
        }
    }

    /// Sends messages that may be seen now to all other nodes.
    fn publish(&mut self) {
        let Some(node) = &self.node else { return };
        let durable = self.server.progress.durable();
        while self.held.front().is_some_and(|(lsn, ..)| *lsn <= durable) {
            let (_, channel, message) = self.held.pop_front().expect("there is one");
            let frame = Frame::Publish { cluster: node.cluster(), channel, message }.encode();
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
        let mut passed = workers_have_passed(&self.server);
        spawn_local(async move {
            // Nothing is ever sent: the last worker drops its end.
            passed.recv().await;
            // Who waited may be gone.
            drop(answer.send(outcome));
        });
    }

    /// Begins to send slots that the group has put on their way.
    fn begin_export(&self, number: u64, slots: Slots, to: Name) -> Result<(), String> {
        let now_ms = self.server.store.now_ms();
        let state = ExportState { word: "connecting", message: String::new(), since_ms: now_ms };
        let (state, is_cancelled) = (Mutex::new(state), AtomicBool::new(false));
        let export = Arc::new(Export { number, slots, to, began_ms: now_ms, state, is_cancelled });
        let carry = {
            let (server, export) = (self.server.clone(), export.clone());
            move || export::carry(&server, &export)
        };
        // One that nobody carries out is ended as an abandoned one.
        thread::Builder::new().name("send-slots".into()).spawn(carry).map_err(|e| format!("ERR {e}"))?;
        self.server.cluster.add_export(export);
        Ok(())
    }

    /// Has clients that wait for keys of slots which are not here any more look again, so that they are sent elsewhere.
    fn send_waiters_away(&self) {
        let (server, mut passed) = (self.server.clone(), workers_have_passed(&self.server));
        spawn_local(async move {
            // Who has begun to wait meanwhile is known then.
            passed.recv().await;
            for client in server.clients.all() {
                let is_away = |(_, key): &(u8, Vec<u8>)| !server.cluster.serves(hash_slot(key));
                if client.waits_for().iter().any(is_away) {
                    server.send(client.worker, Message::Unblock(client.id, Wake::Signal));
                }
            }
        });
    }

    /// Shows commands what is known, if it is another than before.
    fn show(&mut self) {
        let Some(node) = &self.node else { return };
        let config = &self.server.config;
        let is_connected = node.is_connected();
        // Until it has heard what became of its slots before, it serves none.
        let is_ok = is_connected
            && node.is_current()
            && (!config.is_on(Opt::ClusterRequireFullCoverage) || is_covered(node.map()));
        let shown = (node.maps(), is_connected, is_ok, node.term());
        let leader = node.leader().unwrap_or_default();
        if self.shown != Some(shown) {
            let before = self.server.cluster.view().is_ok;
            if before != is_ok {
                log!(Notice, "Cluster state changed: {}", if is_ok { "ok" } else { "fail" });
            }
            let frames = (self.bus.sent(), self.received);
            let (name, id, term) = (node.name(), node.id(), node.term());
            self.server.cluster.show(View {
                name,
                id,
                map: node.map().clone(),
                is_connected,
                is_ok,
                leader,
                term,
                frames,
            });
            self.shown = Some(shown);
            self.send_waiters_away();
        }
    }
}

/// Ends when each worker has done what it had begun before.
fn workers_have_passed(server: &Server) -> Receiver<()> {
    let (sender, passed) = mpsc::channel(1);
    for worker in 0..server.workers.len() {
        server.send(worker, Message::Pass(sender.clone()));
    }
    passed
}

/// Whether each slot has a node that has not failed.
fn is_covered(map: &Map) -> bool {
    let mut owners = (0..holdfast_cluster::SLOTS as u16).map(|slot| map.owner(slot));
    owners.all(|owner| {
        owner.and_then(|owner| map.members().get(&owner)).is_some_and(|member| !member.has_failed)
    })
}
