//! One of a replica set, until it leads.

use super::{
    Event, Signals, Workers, accept_until, build_runtime,
    folder::{cannot_open, open_store},
    load_functions, mailboxes, prepare, reopen,
    service::{self, State},
};
use crate::{
    admin::log::log,
    commands::ROWS,
    config::{Config, Opt},
    metrics::Port,
    net::listener::Listeners,
    replica_set::{self, Elected, Events, Followed, front::Front},
    server::{Server, apply, cluster::Cluster, replica_set::ReplicaSet},
};
use holdfast_store::{Io, OpenError, Options, Store};
use std::{
    pin::pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
    thread,
    time::{Duration, Instant},
};
use tokio::{
    signal::unix::Signal,
    sync::{
        Notify,
        oneshot::{self, error::RecvError},
    },
    task::spawn_local,
    time,
};

/// How often it is looked whether functions have changed.
const FUNCTIONS_TICK: Duration = Duration::from_millis(100);

/// How long an elected server waits until nobody reads what it has followed; then another one is to lead.
const LET_GO_MAX: Duration = Duration::from_secs(5);

/// What a server becomes that only tells who leads.
enum Next {
    Leads(Elected),
    Shows(Followed),
}

/// Follows until the server is elected, and opens its store then, which it returns with the term; `None`: it was asked to end before. What it has of
/// the data is read meanwhile.
pub(super) fn follow(
    config: &Arc<Config>,
    (set, cluster): (Arc<ReplicaSet>, Arc<Cluster>),
    events: Events,
    (hang_ups, metrics): (&mut Signal, Option<&Port>),
    (io, options): (Arc<dyn Io>, Options),
) -> Result<Option<(Store, u64)>, String> {
    let Events { mut elected, followed } = events;
    let front = || Front::new(config, set.clone(), cluster.clone(), &ROWS.table);
    let next = async {
        let leads = async { Next::Leads(told(&mut elected).await) };
        let shows = async { Next::Shows(told(followed).await) };
        let (mut leads, mut shows) = (pin!(leads), pin!(shows));
        std::future::poll_fn(|cx| match leads.as_mut().poll(cx) {
            Poll::Pending => shows.as_mut().poll(cx).map(Ok),
            ready => ready.map(Ok),
        })
        .await
    };
    service::tell(State::Serves);
    let elected = match answer(config, front()?, hang_ups, next)? {
        None => None,
        Some(Next::Leads(elected)) => Some(elected),
        Some(Next::Shows(followed)) => {
            show(config, (set.clone(), cluster.clone()), (followed, elected), hang_ups, metrics)?
        }
    };
    let Some(elected) = elected else { return Ok(None) };
    let (term, dir) = (elected.replication.term.into(), config.text(Opt::Dir));
    let (opened, store) = oneshot::channel();
    thread::Builder::new()
        .name("open-store".into())
        .spawn(move || drop(opened.send(open_to_lead(&dir, io, options, &elected))))
        .map_err(|e| format!("cannot start a thread: {e}"))?;
    let store = async { store.await.expect("a panic ends the process").map(|store| (store, term)) };
    answer(config, front()?, hang_ups, store)
}

/// What is told, if it ever is: who could tell it may have ended.
async fn told<T>(receiver: impl Future<Output = Result<T, RecvError>>) -> T {
    match receiver.await {
        Ok(told) => told,
        Err(_) => std::future::pending().await,
    }
}

/// Tells clients who leads until something is done, and returns that; `None`: the server was asked to end before.
fn answer<T>(
    config: &Config,
    front: Rc<Front>,
    hang_ups: &mut Signal,
    until: impl Future<Output = Result<T, String>>,
) -> Result<Option<T>, String> {
    // Of its own, so that all connections end with it.
    let runtime = build_runtime()?;
    let (signals, listeners) = {
        let _context = runtime.enter();
        (Signals::new().map_err(|e| format!("cannot start: {e}"))?, Listeners::open(config)?)
    };
    log!(Notice, "One of a replica set, ready to accept connections on {}", listeners.describe());
    let shutdown = Rc::new(Notify::new());
    runtime.block_on(async {
        let signalled = shutdown.clone();
        signals.notify(move || signalled.notify_one());
        spawn_local(front.clone().accept(listeners));
        let (mut until, mut ended) = (pin!(until), pin!(shutdown.notified()));
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(())) = hang_ups.poll_recv(cx) {
                reopen(config, || front.configure(config));
            }
            match ended.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(None)),
                Poll::Pending => until.as_mut().poll(cx).map_ok(Some),
            }
        })
        .await
    })
}

/// Serves reads of what the leader has written until this server is elected; `None`: it was asked to end before.
fn show(
    config: &Arc<Config>,
    (set, cluster): (Arc<ReplicaSet>, Arc<Cluster>),
    (followed, elected): (Followed, oneshot::Receiver<Elected>),
    hang_ups: &mut Signal,
    metrics: Option<&Port>,
) -> Result<Option<Elected>, String> {
    let (mailboxes, inboxes) = mailboxes(config);
    let Followed { store, functions } = followed;
    let in_set = (Some(set.clone()), true);
    let server = Server::new(&ROWS.table, config.clone(), cluster, store, in_set, mailboxes);
    prepare(&server)?;
    let runtime = build_runtime()?;
    let (signals, mut listeners) = {
        let _context = runtime.enter();
        (Signals::new().map_err(|e| format!("cannot start: {e}"))?, Listeners::open(config)?)
    };
    let workers = Workers::start(&server, inboxes)?;
    log!(Notice, "Follows, and serves reads on {}", listeners.describe());
    metrics.inspect(|metrics| metrics.show(server.clone()));
    let next = runtime.block_on(async {
        let signalled = server.clone();
        signals.notify(move || signalled.shutdown.notify_one());
        let changed = server.clone();
        spawn_local(async move {
            loop {
                time::sleep(FUNCTIONS_TICK).await;
                if functions.swap(false, Relaxed) {
                    load_functions(&changed);
                }
            }
        });
        let mut elected = pin!(told(elected));
        let elected = std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(())) = hang_ups.poll_recv(cx) {
                reopen(config, || apply::secure(&server));
            }
            elected.as_mut().poll(cx)
        });
        accept_until(&server, &mut listeners, elected).await
    });
    let next = match next {
        Event::Ended(served) => served.map(|()| None).map_err(|e| format!("cannot serve: {e}")),
        Event::Asked(elected) => Ok(Some(elected)),
    };
    listeners.close();
    // What only reads can be given up at any moment.
    server.busy.kill_all();
    workers.stop(&server);
    metrics.inspect(|metrics| metrics.show_set(set));
    drop(runtime);
    // Who is being told its figures has a share of the store, which must be gone before the folder is opened again.
    let stopped = Instant::now();
    while Arc::strong_count(&server) > 1 {
        if stopped.elapsed() > LET_GO_MAX {
            replica_set::begin_again(&"somebody holds the data that were followed");
        }
        thread::sleep(Duration::from_millis(1));
    }
    next
}

/// Opens the store of a server that was elected, and waits until all that is in it is agreed on.
fn open_to_lead(dir: &str, io: Arc<dyn Io>, options: Options, elected: &Elected) -> Result<Store, String> {
    let replication = Some(elected.replication.clone());
    let store = match open_store(dir, io, Options { replication, ..options }) {
        Ok(store) => store,
        Err(error @ OpenError::Corrupt { .. }) => replica_set::recover(&error),
        Err(error) => return Err(cannot_open(dir, &error)),
    };
    let log = store.log();
    elected.replica.attach(log);
    while log.wait_durable(log.tail()).is_err() {
        // Another one leads, and the thread of the replica has the process begin again.
        thread::park();
    }
    Ok(store)
}
