//! One of a replica set, until it leads.

use super::{
    Signals, build_runtime,
    folder::{cannot_open, open_store},
    reopen_log,
    service::{self, State},
};
use crate::{
    admin::log::log,
    commands::ROWS,
    config::{Config, Opt},
    net::listener::Listeners,
    replica_set::{self, Elected, front::Front},
    server::{cluster::Cluster, replica_set::ReplicaSet},
};
use holdfast_store::{Io, OpenError, Options, Store};
use std::{pin::pin, rc::Rc, sync::Arc, task::Poll, thread};
use tokio::{
    signal::unix::Signal,
    sync::{Notify, oneshot},
};

/// Follows until the server is elected, and opens its store then, which it returns with the term; `None`: it was asked to end before.
pub(super) fn follow(
    config: &Config,
    (set, cluster): (Arc<ReplicaSet>, Arc<Cluster>),
    elected: oneshot::Receiver<Elected>,
    hang_ups: &mut Signal,
    (io, options): (Arc<dyn Io>, Options),
) -> Result<Option<(Store, u64)>, String> {
    let front = Front::new(config, set, cluster, &ROWS.table)?;
    // Of its own, so that all connections end with it.
    let runtime = build_runtime()?;
    let (signals, listeners) = {
        let _context = runtime.enter();
        (Signals::new().map_err(|e| format!("cannot start: {e}"))?, Listeners::open(config)?)
    };
    log!(Notice, "One of a replica set, ready to accept connections on {}", listeners.describe());
    service::tell(State::Serves);
    let dir = config.text(Opt::Dir);
    let lead = async move {
        // The thread that elects ends with the process only.
        let Ok(elected) = elected.await else { return std::future::pending().await };
        let (term, (opened, store)) = (elected.replication.term.into(), oneshot::channel());
        thread::Builder::new()
            .name("open-store".into())
            .spawn(move || drop(opened.send(open_to_lead(&dir, io, options, &elected))))
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        store.await.expect("a panic ends the process").map(|store| Some((store, term)))
    };
    let shutdown = Rc::new(Notify::new());
    runtime.block_on(async {
        let signalled = shutdown.clone();
        signals.notify(move || signalled.notify_one());
        tokio::task::spawn_local(front.clone().accept(listeners));
        let (mut lead, mut ended) = (pin!(lead), pin!(shutdown.notified()));
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(())) = hang_ups.poll_recv(cx) {
                reopen_log(config, "the log file and the certificates are opened again");
                if let Err(error) = front.configure(config) {
                    log!(Warning, "TLS: the certificates that were loaded before stay in use: {error}");
                }
            }
            match ended.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(None)),
                Poll::Pending => lead.as_mut().poll(cx),
            }
        })
        .await
    })
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
