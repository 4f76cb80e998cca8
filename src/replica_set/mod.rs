//! The server's part in a replica set: a thread with a replica (`holdfast_consensus::Replica`), its clock, and its connections to the
//! other servers (`crate::net::bus`). First it has the set [founded](founding), if it is not, and a [front] answers clients. Then it
//! [follows](following), and clients may read what is agreed on; once it is elected, the same store leads. One that leads
//! no more begins again, as a new process would: nothing else takes back what its store has done in memory.

mod copying;
mod following;
mod founding;
mod frame;
pub mod front;
mod giving;
mod lending;
mod node;
mod standing;

use crate::{
    admin::log::log,
    config::{
        Config, Opt,
        address::{Address, bus_port},
    },
    net::bus::{self, Bus, Protocol},
    server::replica_set::{CONNECTED, Other, ReplicaSet, View},
    util::{ending, program, runtime},
};
use bytes::Bytes;
use following::Following;
use founding::Founding;
use frame::Frame;
use holdfast_consensus::{Change, ENTRY_BYTES_MAX, EachBatch, MemberId, Replica, Role};
use holdfast_io::Error;
use holdfast_store::{Io, Options, Replication, Store, replay_log};
use lending::Lending;
use standing::{JOURNAL, Standing, State};
use std::{
    env, fmt,
    future::poll_fn,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{Arc, OnceLock},
    task::Poll,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    sync::{
        mpsc::{self, Receiver, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    time::{self, MissedTickBehavior},
};

/// What a connection to another server begins with.
const PREFACE: &[u8; 8] = b"HFset04\n";
/// Bytes of a frame at most, which may hold a whole commit and what is told of it.
const FRAME_MAX: usize = ENTRY_BYTES_MAX + (1 << 20);
/// Bytes of messages of PUBLISH in a frame, and one more message.
const PUBLISH_BYTES: usize = 1 << 20;
/// How many ticks the engine waits for a leader before it elects another one.
const ELECTION_TICKS: u64 = 10;
/// How long a server waits before it begins again after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// How long one that leads no more sends what it has said.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// The thread.
pub struct Running {
    thread: JoinHandle<()>,
    end: UnboundedSender<()>,
}

impl Running {
    /// Ends it.
    pub fn end(self) {
        // A thread that has ended needs no telling.
        let _ = self.end.send(());
        self.thread.join().expect("a panic ends the process");
    }
}

/// What the thread tells.
pub struct Events {
    /// The server follows, and what its store has can be read.
    pub followed: oneshot::Receiver<Arc<Store>>,
    /// It is elected, in this term.
    pub elected: oneshot::Receiver<u64>,
    /// Its store leads.
    pub leads: oneshot::Receiver<()>,
}

/// Starts the thread, which tells what the server becomes. `io` is the data folder, which must be this process's, and the store there is
/// opened with `options`, which are to have [`on_unreadable`].
///
/// # Errors
/// There is no port for the other servers, or the folder is of another set.
pub fn start(
    config: &Config,
    set: Arc<ReplicaSet>,
    io: Arc<dyn Io>,
    options: Options,
) -> Result<(Running, Events), String> {
    let no_port =
        "replica-set: the other servers connect at port + 10000, which is none; set replica-set-port";
    let port = bus_port(config, Opt::ReplicaSetPort).ok_or(no_port)?;
    let listeners = bus::listen(config, port)?;
    let dir = PathBuf::from(config.text(Opt::Dir));
    DIR.get_or_init(|| dir.clone());
    let founding = Founding::new(set.clone(), dir, io.clone(), options.clone())?;
    let tick = Duration::from_millis(config.number(Opt::ReplicaSetTimeout) as u64) / ELECTION_TICKS as u32;
    let (end, ended) = mpsc::unbounded_channel();
    let ((showing, followed), (electing, elected)) = (oneshot::channel(), oneshot::channel());
    let (leading, leads) = oneshot::channel();
    let (woken, wakes) = mpsc::channel(1);
    let (telling, successors) = mpsc::unbounded_channel();
    set.tell_of_successors(telling);
    set.messages.wake_by(waker(&woken));
    let part = Part {
        set,
        io,
        options,
        tick,
        founding,
        replica: None,
        lending: Lending::default(),
        outbox: Vec::new(),
        electing: Some(electing),
        showing: Some((showing, leading)),
        following: None,
        woken,
        parts: 0,
        is_leaving: false,
        successor: None,
    };
    let thread = thread::Builder::new().name("replica-set".into()).spawn(move || {
        let runtime = runtime::local().expect("a runtime, as the workers have");
        runtime.block_on(part.run(listeners, wakes, successors, ended));
    });
    let thread = thread.map_err(|e| format!("cannot start a thread: {e}"))?;
    Ok((Running { thread, end }, Events { followed, elected, leads }))
}

/// Refuses to serve the data folder of one of a replica set on its own: the others may have what it has not, and the other way round.
///
/// # Errors
/// It is one.
pub fn refuse_alone(dir: &Path) -> Result<(), String> {
    match whose(dir)? {
        None => Ok(()),
        Some(whose) => Err(format!(
            "the data folder {} is that of {whose}, and is served as that only: set the option replica-set. If the others are lost for \
             ever, remove the file replica-set there: then it is a server's on its own",
            dir.display()
        )),
    }
}

/// Of which server of which replica set a data folder is. `None`: of none.
///
/// # Errors
/// The folder cannot be read, or does not say it as it must.
pub fn whose(dir: &Path) -> Result<Option<String>, String> {
    let name = |Standing { set, own, .. }| format!("server {own} of the replica set {set:016x}");
    Ok(Standing::read(dir)?.map(name))
}

/// The data folder of the server that was started.
static DIR: OnceLock<PathBuf> = OnceLock::new();

/// What the thread says of an error of the data folder before it begins again.
fn failed(error: Error) -> String {
    mark_damage(&error);
    error.to_string()
}

/// Begins again after an error of the data folder. If that is damaged, it waits for a copy of another server's from then on.
pub fn recover(error: &Error) -> ! {
    mark_damage(error);
    begin_again(error)
}

/// Recovers in the same way when a page of the heap cannot be read that is needed, whatever the reason.
pub fn on_unreadable(error: &Error) -> ! {
    recover(&Error::corrupt("heap", 0, error.to_string()))
}

/// Has the data folder say that it is damaged, if that is what the error says.
fn mark_damage(error: &Error) {
    if !matches!(error, Error::Corrupt { .. }) {
        return;
    }
    let dir = DIR.get().expect("the set was started");
    let mark = || {
        let Some(mut standing) = Standing::read(dir)?.filter(|it| it.state == State::Member) else {
            return Ok(());
        };
        standing.state = State::Damaged;
        standing.write(dir).map_err(|e| e.to_string())
    };
    match mark() {
        Ok(()) => {
            log!(Warning, "{error}: the data are left as they are until there is a copy of another server's")
        }
        Err(cannot) => log!(Warning, "cannot say in {} that it is damaged: {cannot}", dir.display()),
    }
}

/// Begins again, as the process did at its start: connections, threads and memory are gone then. One that was asked to end ends.
pub fn begin_again(why: &dyn fmt::Display) -> ! {
    if ending::hold_signals() {
        log!(Warning, "{why}: the server ends");
        process::exit(0);
    }
    log!(Warning, "{why}: the server begins again");
    let mut args = env::args_os();
    let name = args.next().unwrap_or_default();
    let error = Command::new(program::own()).arg0(name).args(args).exec();
    log!(Warning, "cannot begin again: {error}");
    process::exit(1)
}

/// Wakes the thread.
fn waker(woken: &mpsc::Sender<()>) -> impl Fn() + Send + Sync + use<> {
    let woken = woken.clone();
    move || {
        // One that waits is enough.
        let _ = woken.try_send(());
    }
}

/// What the thread is woken by.
enum Event {
    End,
    Tick,
    Frame(Vec<u8>),
    /// Another server is to lead.
    HandOver(MemberId),
    /// The replica has something to send.
    Messages,
}

struct Part {
    set: Arc<ReplicaSet>,
    io: Arc<dyn Io>,
    options: Options,
    tick: Duration,
    founding: Founding,
    /// Once the set is founded.
    replica: Option<Arc<Replica>>,
    lending: Lending,
    /// What is to be sent, beside what the replica sends.
    outbox: Vec<(Address, Frame)>,
    /// Until it is elected.
    electing: Option<oneshot::Sender<u64>>,
    /// Until it follows: who is told that there is a store, and that it leads.
    showing: Option<(oneshot::Sender<Arc<Store>>, oneshot::Sender<()>)>,
    /// From then on.
    following: Option<Following>,
    woken: mpsc::Sender<()>,
    /// Parts of long messages that had come at the last tick.
    parts: u64,
    /// The server ends as soon as another one leads.
    is_leaving: bool,
    /// Who is to lead from the next tick but one on: the reply to who has asked for it leaves before, since none leaves after that.
    successor: Option<(MemberId, bool)>,
}

impl Part {
    async fn run(
        mut self,
        listeners: Vec<TcpListener>,
        mut wakes: Receiver<()>,
        mut successors: UnboundedReceiver<MemberId>,
        mut ended: UnboundedReceiver<()>,
    ) {
        let trust = self.set.trust.clone();
        let protocol = Protocol { trust, preface: PREFACE, frame_max: FRAME_MAX };
        let (mut bus, mut frames) = Bus::start(protocol, listeners);
        let mut ticks = time::interval(self.tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let event = poll_fn(|cx| {
                if ended.poll_recv(cx).is_ready() {
                    return Poll::Ready(Event::End);
                }
                if ticks.poll_tick(cx).is_ready() {
                    return Poll::Ready(Event::Tick);
                }
                if let Poll::Ready(Some((_, bytes))) = frames.poll_recv(cx) {
                    return Poll::Ready(Event::Frame(bytes));
                }
                if let Poll::Ready(Some(to)) = successors.poll_recv(cx) {
                    return Poll::Ready(Event::HandOver(to));
                }
                // This end is a part of us, so it is never closed.
                wakes.poll_recv(cx).map(|_| Event::Messages)
            });
            let done = match event.await {
                Event::End if self.leaves() => Ok(()),
                Event::End => return self.end_following(),
                Event::Tick => {
                    self.hear_parts(bus.parts());
                    self.tick()
                }
                Event::Frame(bytes) => self.receive(bytes.into()),
                Event::HandOver(to) => {
                    self.hand_over(to);
                    Ok(())
                }
                Event::Messages => Ok(()),
            };
            let done = done.and_then(|()| self.work(&mut bus));
            let is_deposed = self.replica.as_ref().is_some_and(|replica| replica.is_deposed());
            let has_left = self.is_leaving && self.has_left();
            if has_left || ending::has_begun() && (done.is_err() || is_deposed) {
                return self.end_following();
            }
            if let Err(error) = done {
                time::sleep(AGAIN).await;
                begin_again(&error);
            }
            if is_deposed {
                // What it has said last is on its way: its vote, without which the other one may not be elected.
                time::sleep(LAST_WORDS).await;
                begin_again(&"another server leads, or may");
            }
        }
    }

    fn end_following(&mut self) {
        self.following.take().into_iter().for_each(Following::end);
    }

    /// Parts of a long message have come, or not, since the last tick.
    fn hear_parts(&mut self, parts: u64) {
        if parts > self.parts
            && let Some(replica) = &self.replica
        {
            replica.is_being_sent();
        }
        self.parts = parts;
    }

    fn tick(&mut self) -> Result<(), String> {
        self.founding.tick(self.replica.as_ref().map_or(0, |replica| replica.last()))?;
        if let Some(replica) = &self.replica {
            replica.tick().map_err(failed)?;
            match &mut self.successor {
                Some((to, true)) => {
                    replica.hand_over(*to);
                    if !replica.hands_over() {
                        // It has been removed meanwhile, or counts for no majority any more.
                        self.successor = None;
                    }
                }
                Some((_, is_due)) => *is_due = true,
                None => {}
            }
            self.lend();
            self.promote();
            self.track();
        }
        self.show();
        Ok(())
    }

    fn receive(&mut self, bytes: Bytes) -> Result<(), String> {
        match Frame::decode(&bytes) {
            Some(Frame::Envelope { set, envelope }) => match &self.replica {
                Some(replica)
                    if self.founding.member_of() == Some(set) && envelope.message.to() == replica.id() =>
                {
                    replica.step(envelope).map_err(failed)
                }
                _ => Ok(()),
            },
            Some(Frame::HandOver { set, to }) if self.founding.member_of() == Some(set) => {
                if self.replica.as_ref().is_some_and(|replica| replica.role() == Role::Leader) {
                    self.hand_over(to);
                }
                Ok(())
            }
            Some(Frame::Publish { set, messages }) if self.founding.member_of() == Some(set) => {
                if self.set.messages.leads() {
                    messages.into_iter().for_each(|message| self.set.messages.pass_on(message));
                } else if self.electing.is_some()
                    && let Some(own) = self.replica.as_ref().map(|replica| replica.id())
                {
                    // One that is elected tells only what its own clients publish.
                    let of_others = messages.into_iter().filter(|message| message.from != own);
                    self.set.messages.hear(of_others, || self.set.applied());
                }
                Ok(())
            }
            Some(Frame::Track { set }) if self.founding.member_of() == Some(set) => {
                self.set.track();
                Ok(())
            }
            Some(Frame::Changed { set, part }) if self.founding.member_of() == Some(set) => {
                if self.electing.is_some() {
                    self.set.messages.invalidation.hear(part, || self.set.applied());
                }
                Ok(())
            }
            Some(Frame::Fetch { set, from, copy, name, offset })
                if self.founding.member_of() == Some(set) =>
            {
                let part = self.lending.give(from, copy, &name, offset);
                self.send(from, part);
                Ok(())
            }
            Some(frame) => {
                if let Frame::Hello(hello) = &frame
                    && self.founding.is_known(hello)
                {
                    self.lending.hear(hello, self.replica.as_deref(), self.io.monotonic_us());
                }
                self.founding.receive(frame, self.replica.as_deref())
            }
            // A newer server may send what this one does not know.
            None => Ok(()),
        }
    }

    /// Has another server lead, or has the leader do that.
    fn hand_over(&mut self, to: MemberId) {
        let (Some(replica), Some(set)) = (&self.replica, self.founding.member_of()) else { return };
        match replica.role() {
            Role::Leader if replica.members().peers.get(&to).is_some_and(|peer| peer.votes) => {
                // Who asks while one is about to lead does not change which.
                self.successor.get_or_insert((to, false));
                self.show();
            }
            Role::Follower { leader } => self.send(leader, Some(Frame::HandOver { set, to })),
            _ => {}
        }
    }

    /// As the leader, has another server lead before this one ends. Whether there is one.
    fn leaves(&mut self) -> bool {
        let Some(replica) = self.replica.as_ref().filter(|replica| replica.lease_us() > 0) else {
            return false;
        };
        let can_lead = |other: &holdfast_consensus::Other| {
            other.votes && Duration::from_micros(other.silent_us) < CONNECTED
        };
        let successor = replica.others().into_iter().filter(can_lead).max_by_key(|other| other.end);
        successor.iter().for_each(|other| replica.hand_over(other.id));
        self.is_leaving = successor.is_some();
        self.is_leaving
    }

    /// Whether another server leads, or will not lead in time.
    fn has_left(&self) -> bool {
        self.replica.as_ref().is_none_or(|replica| !replica.hands_over())
    }

    /// Does what follows from what has happened.
    fn work(&mut self, bus: &mut Bus) -> Result<(), String> {
        self.outbox.extend(self.founding.take_frames());
        if self.founding.member_of().is_some() && self.replica.is_none() {
            self.open()?;
        }
        for (to, frame) in self.outbox.drain(..) {
            // It is said again.
            let _ = bus.send(to.on_bus(), frame.encode());
        }
        if let (Some(number), Some(replica)) = (self.founding.member_of(), self.replica.clone()) {
            for envelope in replica.take_messages() {
                let to = envelope.message.to();
                let frame = Frame::Envelope { set: number, envelope };
                let to_place = self.founding.address(to).map(Address::on_bus);
                if !to_place.is_some_and(|at| bus.send(at, frame.encode())) {
                    replica.unreachable(to);
                }
            }
            self.set.lease.renew(replica.lease_us());
            self.elect(&replica);
            self.publish(number, &replica, bus);
        }
        Ok(())
    }

    /// Sends messages to the leader or, as that, to those who follow, unless they have enough to take without.
    fn publish(&self, set: u64, replica: &Replica, bus: &mut Bus) {
        let (own, messages) = (replica.id(), &self.set.messages);
        let agreed = || replica.extent().1;
        loop {
            let mut messages = messages.take_said(agreed, PUBLISH_BYTES);
            if messages.is_empty() {
                break;
            }
            messages.iter_mut().filter(|message| message.from == 0).for_each(|message| message.from = own);
            self.tell_others(Frame::Publish { set, messages }, replica, bus);
        }
        while let Some(part) = messages.invalidation.take_part(agreed, PUBLISH_BYTES) {
            self.tell_others(Frame::Changed { set, part }, replica, bus);
        }
    }

    fn tell_others(&self, frame: Frame, replica: &Replica, bus: &mut Bus) {
        let (own, frame) = (replica.id(), frame.encode());
        let others: Vec<MemberId> = match replica.role() {
            Role::Follower { leader } => vec![leader],
            Role::Leader => replica.members().peers.into_keys().filter(|id| *id != own).collect(),
            Role::Leaderless => Vec::new(),
        };
        for address in others.into_iter().filter_map(|id| self.founding.address(id)) {
            let place = address.on_bus();
            if bus.is_idle(&place) {
                // What is lost is lost, as with Redis; who is told which keys change sees that something is.
                let _ = bus.send(place, frame.clone());
            }
        }
    }

    /// Opens the replica of a set that is founded.
    fn open(&mut self) -> Result<(), String> {
        let (io, options) = (self.io.clone(), self.options.clone());
        let read_log = move |term, agreed, each: EachBatch| {
            let replication = Some(Replication { term, agreed });
            replay_log(io.clone(), &Options { replication, ..options.clone() }, each)
        };
        let tick_us = self.tick.as_micros() as u64;
        let replica = Replica::open(
            self.io.clone(),
            JOURNAL,
            tick_us,
            Box::new(read_log),
            Box::new(waker(&self.woken)),
        );
        let replica = replica.map_err(failed)?;
        log!(Notice, "Follows from entry {} on, LSN {}", replica.last(), replica.extent().0);
        self.founding.learn(replica.addresses(), None);
        // Before the replica says anything: a leader that has just given a copy goes on behind it.
        self.founding.greet_all(replica.last());
        self.outbox.extend(self.founding.take_frames());
        self.set.join(self.founding.member_of().expect("the set is founded"), replica.clone());
        let of = (self.set.clone(), replica.clone(), replica.id());
        let showing = self.showing.take().expect("a replica is opened once");
        self.following = Some(Following::start((self.io.clone(), self.options.clone()), of, showing)?);
        self.replica = Some(replica);
        Ok(())
    }

    fn elect(&mut self, replica: &Arc<Replica>) {
        if self.electing.is_none() {
            return;
        }
        if let Some(term) = replica.lead() {
            log!(Notice, "Elected in term {term}");
            let electing = self.electing.take().expect("it was not elected before");
            // If nobody waits for it, the server ends.
            let _ = electing.send(term);
            self.following.iter().for_each(Following::elected);
        }
    }

    /// As the one that is elected, gives copies to those who need them: without them, there may be too few to agree on what its store is to have
    /// before it leads.
    fn lend(&mut self) {
        let (Some(replica), Some(set), Some(own)) =
            (&self.replica, self.founding.member_of(), self.founding.own())
        else {
            return;
        };
        let store = self.following.as_ref().and_then(Following::store);
        if let Some(store) = store.filter(|_| replica.lease_us() > 0) {
            let offer = self.lending.tick((set, own), replica, store, &self.io);
            if let Some((to, offer)) = offer {
                self.send(to, Some(offer));
            }
        }
    }

    /// Has the leader tell which keys change, if clients here track any; or ends that, as the leader, if nobody wants it.
    fn track(&mut self) {
        let invalidation = &self.set.messages.invalidation;
        if self.electing.is_none() {
            self.set.tick_tracking();
            return;
        }
        invalidation.tick_as_follower();
        let role = self.replica.as_ref().map(|replica| replica.role());
        if let (true, Some(Role::Follower { leader }), Some(set)) =
            (invalidation.wants(), role, self.founding.member_of())
        {
            self.send(leader, Some(Frame::Track { set }));
        }
    }

    fn send(&mut self, to: MemberId, frame: Option<Frame>) {
        let to = self.founding.address(to).cloned();
        self.outbox.extend(to.zip(frame));
    }

    /// As the leader, has one vote that was added and has all by now.
    fn promote(&mut self) {
        let Some(id) = self.replica.as_ref().and_then(|replica| replica.has_caught_up()) else { return };
        if self.set.change(&Change::Promote(id)).is_ok() {
            log!(Notice, "Server {id} has all data, and counts for a majority from now on");
        }
    }

    fn show(&mut self) {
        let mut view = View { own: self.founding.own(), ..View::default() };
        let mut counted = None;
        if let Some(replica) = &self.replica {
            view.leader = match replica.role() {
                Role::Leader => view.own,
                Role::Follower { leader } => Some(leader),
                Role::Leaderless => None,
            };
            view.extent = replica.extent();
            if view.leader == view.own {
                let other = |other: holdfast_consensus::Other| Other {
                    id: other.id,
                    end: other.end,
                    silent: Duration::from_micros(other.silent_us),
                };
                view.others = replica.others().into_iter().map(other).collect();
            }
            let members = (view.leader == view.own).then(|| replica.members());
            self.founding.learn(replica.addresses(), members);
            view.hands_over = self.successor.is_some() || replica.hands_over();
            counted = Some(replica.counted());
        }
        view.servers = Arc::new(self.founding.servers(counted.as_ref()));
        self.set.show(view);
    }
}
