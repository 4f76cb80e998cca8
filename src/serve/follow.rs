//! One of a replica set, until it leads.

use super::{build_runtime, listen, load_functions, reopen, service, when_asked_to_end};
use crate::{admin::log::log, config::Config, replica_set::front::Front, server::Server};
use std::{
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Poll,
    time::Duration,
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

/// How often it is looked whether functions have changed, slots are another set's, clients track keys, or scripts hold up one that is elected.
const TICK: Duration = Duration::from_millis(100);

/// What a server that follows waits for.
pub(super) struct Election {
    /// It is elected, in this term.
    pub elected: oneshot::Receiver<u64>,
    /// Its store leads.
    pub leads: oneshot::Receiver<()>,
}

impl Election {
    /// Keeps the server as its store is until it is elected and that leads; returns the term. `functions`: whether some may have been loaded or
    /// removed since this was asked last.
    pub async fn won(self, server: &Arc<Server>, functions: &AtomicBool) -> u64 {
        let mut elected = pin!(told(self.elected));
        let mut slots = None;
        let term = loop {
            match time::timeout(TICK, &mut elected).await {
                Ok(term) => break term,
                Err(_) if functions.swap(false, Relaxed) => load_functions(server),
                Err(_) => {}
            }
            if server.cluster.is_on() {
                let view = server.cluster.view();
                let now = Some((view.map.version(), view.is_ok));
                if now != slots {
                    slots = now;
                    spawn_local(server.clone().leave_slots());
                }
            }
            server.tend_copies();
        };
        let mut leads = pin!(told(self.leads));
        // What only reads can be given up at any moment.
        server.busy.kill_all();
        while time::timeout(TICK, &mut leads).await.is_err() {
            server.busy.kill_all();
        }
        term
    }
}

/// Has a server hear what goes on in its set. Returns whether functions may have been loaded or removed since that was asked last.
pub(super) fn take_part(server: &Arc<Server>) -> Arc<AtomicBool> {
    let set = server.replica_set.as_ref().expect("one of a replica set");
    // The server has the set.
    let weak = Arc::downgrade(server);
    set.messages.tell_by(move |message| {
        if let Some(server) = weak.upgrade() {
            server.tell(message);
        }
    });
    let push = Arc::downgrade(&server.push);
    set.messages.invalidation.tell_by(move |keys| {
        if let Some(push) = push.upgrade() {
            push.invalidate_here(keys);
        }
    });
    // What has changed before somebody is told of it counts, too.
    let functions = Arc::new(AtomicBool::new(true));
    let (changed, weak) = (functions.clone(), Arc::downgrade(server));
    set.on_system_changes(move || {
        changed.store(true, Relaxed);
        if let Some(server) = weak.upgrade()
            && server.learn_map_of_data()
        {
            server.workers_have_passed().blocking_recv();
        }
    });
    server.learn_map_of_data();
    functions
}

/// What is told, if it ever is: who could tell it may have ended.
pub(super) async fn told<T>(receiver: impl Future<Output = Result<T, RecvError>>) -> T {
    match receiver.await {
        Ok(told) => told,
        Err(_) => std::future::pending().await,
    }
}

/// Tells clients who leads until something is told, and returns that; `None`: the server was asked to end before.
pub(super) fn answer<T>(
    config: &Config,
    front: Rc<Front>,
    hang_ups: &mut Signal,
    until: impl Future<Output = T>,
) -> Result<Option<T>, String> {
    // Of its own, so that all connections end with it.
    let runtime = build_runtime()?;
    let listeners = listen(&runtime, config, None)?;
    log!(Notice, "One of a replica set, ready to accept connections on {}", listeners.describe());
    let shutdown = Rc::new(Notify::new());
    let until = async {
        let signalled = shutdown.clone();
        when_asked_to_end(move || signalled.notify_one());
        spawn_local(front.clone().accept(listeners));
        spawn_local(service::tell_alive());
        let (mut until, mut ended) = (pin!(until), pin!(shutdown.notified()));
        std::future::poll_fn(|cx| {
            while let Poll::Ready(Some(())) = hang_ups.poll_recv(cx) {
                reopen(config, || front.configure(config));
            }
            match ended.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => until.as_mut().poll(cx).map(Some),
            }
        })
        .await
    };
    Ok(runtime.block_on(until))
}
