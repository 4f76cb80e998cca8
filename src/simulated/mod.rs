//! A server in this process, on a simulated machine, mostly without threads or sockets: for tests that need many lives or many
//! commands.

mod connected;
mod durable_replies;
mod faults;
mod key_specs;
mod large_values;
mod power_cut;
mod random_commands;
mod refusals;
mod scripts;
mod seen;
mod served;
mod steps;
mod turns;
mod whole;
mod writers;

use crate::{
    clients::client::Client,
    commands::ROWS,
    config::{Config, file},
    exec::{
        answer::Outcome,
        turn::{Inbox, Turn},
        worker::Worker,
    },
    script::{
        engine::load_libraries,
        stack::{OnStack, Pause},
    },
    server::{
        Server,
        apply::apply_all,
        cluster::Cluster,
        mailbox::{Message, Wake},
    },
    session::Session,
};
use holdfast_io::{Error, Io, Moment, ReadQueue};
use holdfast_resp::{OwnedArgs, Reply, Upcoming};
use holdfast_store::{Cold, Fetched, Options, SimIo, Store};
use std::{rc::Rc, sync::Arc};
use tokio::sync::mpsc::{self, UnboundedReceiver};

/// A server, and a client of it.
struct World {
    sim: SimIo,
    worker: Rc<Worker>,
    session: Session,
    /// What the worker is told, until it serves connections.
    inbox: Option<UnboundedReceiver<Message>>,
}

impl World {
    /// Starts it with the default options but for these.
    fn start(sim: &SimIo, options: &Options, settings: &[(&str, &str)]) -> holdfast_io::Result<World> {
        let store = Store::open_on(Arc::new(sim.clone()), options.clone())?;
        store.attach();
        let (sender, inbox) = mpsc::unbounded_channel();
        let config = Config::default();
        for (option, value) in settings.iter().chain(&[("enable-debug-command", "yes")]) {
            file::set(&config, option, &[value]).expect("an option");
        }
        let cluster = Arc::new(Cluster::new(&config));
        let server = Server::new(&ROWS.table, Arc::new(config), cluster, Arc::new(store), None, vec![sender]);
        apply_all(&server).expect("the default options");
        let wrong = load_libraries(&server.libraries, &server.store);
        if !wrong.is_empty() {
            return Err(Error::Unusable(format!("libraries cannot be read: {wrong:?}")));
        }
        let session = World::session(&server);
        let worker = Rc::new(Worker::new(server, &ROWS, 0, Moment::now));
        Ok(World { sim: sim.clone(), worker, session, inbox: Some(inbox) })
    }

    fn session(server: &Server) -> Session {
        let client = Client::new(1, String::new(), String::new(), 0, 0, true);
        let mut session = Session::new(Arc::new(client), &server.acl);
        // A seed of a test tells what is chosen at random, too.
        session.draws = fastrand::Rng::with_seed(0);
        session
    }

    fn store(&self) -> &Store {
        &self.worker.server.store
    }

    /// Runs a command to its end: the reply, and what of the log it depends on; `None` after the cut.
    fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Option<(Reply, u64)> {
        let (out, wait_lsn) = self.run(args)?;
        let (reply, len) = Reply::parse(&out).expect("a valid reply").expect("a whole reply");
        assert_eq!(len, out.len(), "one reply");
        Some((reply, wait_lsn))
    }

    /// The same; the reply as it is sent.
    fn run(&mut self, args: &[impl AsRef<[u8]>]) -> Option<(Vec<u8>, u64)> {
        let args = OwnedArgs::from_iter(args);
        let worker = self.worker.clone();
        let turn = Turn::new(&worker, &Nothing);
        let (mut out, mut wake, mut on_stack) = (Vec::new(), Wake::First, false);
        for _ in 0..1000 {
            let session = &mut self.session;
            let mut run =
                || turn.execute(session, args.args(), &mut out, wake, None, &mut Upcoming::default());
            match if on_stack { run_on_stack(&worker, run) } else { run() } {
                Outcome::Done | Outcome::Close => {
                    self.session.progress = None;
                    return Some((out, turn.take_wait_lsn()));
                }
                Outcome::OnStack => on_stack = true,
                // Others run meanwhile, among them the log.
                Outcome::Partial => self.store().log().commit_once().ok().map(drop)?,
                Outcome::Wait(_) => wake = Wake::Timeout,
                Outcome::Fetch(cold) => {
                    let fetched: Vec<_> = cold.into_iter().map(|cold| fetch(self.store(), cold)).collect();
                    self.session.fetched.extend(fetched);
                    if self.sim.free_bytes().is_err() {
                        return None;
                    }
                }
                Outcome::Postpone(_) | Outcome::Busy => self.maintain()?,
                Outcome::Queue
                | Outcome::WaiterFirst
                | Outcome::LockBusy
                | Outcome::WaitFor(_)
                | Outcome::SendSnapshot(_) => {
                    panic!("there is no other client, server or process")
                }
            }
        }
        panic!("{:?} does not end", String::from_utf8_lossy(args.args().at(0)));
    }

    /// Makes room.
    fn maintain(&mut self) -> Option<()> {
        let store = self.store();
        while store.sweep() {}
        store.tend_backup();
        store.log().commit_once().ok()?;
        store.condense();
        store.checkpoint().ok()?;
        store.clean().ok().map(drop)
    }
}

/// Nothing is pushed to clients.
struct Nothing;

impl Inbox for Nothing {
    fn take_pushed(&self, _client: u64, _out: &mut Vec<u8>) {}
}

/// Reads an item as the server does.
fn fetch(store: &Store, cold: Cold) -> Fetched {
    let (mut queue, mut fetched) = (ReadQueue::immediate(), None);
    if store.begin_fetch(cold, &mut queue, 0) {
        queue.reap(|_, read| fetched = store.end_fetch(cold, read)).expect("nothing waits in it");
    }
    fetched.unwrap_or_else(|| store.fetch(cold))
}

fn run_on_stack(worker: &Worker, run: impl FnOnce() -> Outcome) -> Outcome {
    let mut running = OnStack::new(worker.take_stack().expect("memory"), run);
    let mut fetched = Vec::new();
    let outcome = loop {
        match running.resume(std::mem::take(&mut fetched)) {
            Ok(outcome) => break outcome,
            Err(Pause::Fetch(cold)) => {
                let store = &worker.server.store;
                fetched = cold.into_iter().map(|cold| fetch(store, cold)).collect();
            }
            Err(Pause::Turn) => {}
            Err(Pause::LockBusy) => panic!("there is no other script"),
        }
    };
    worker.give_stack(running.into_stack());
    outcome
}

#[test]
fn what_does_not_fit_into_a_batch_is_refused() {
    let world = World::start(&SimIo::new(1), &Options { background: false, ..Options::default() }, &[]);
    let world = world.expect("the power is on");
    let turn = Turn::new(&world.worker, &Nothing);
    assert!(matches!(turn.admit_log(1 << 30, true), Ok(None)));
    assert!(turn.admit_log(5 << 30, true).is_err());
}
