//! The event loop of a worker: one thread, one runtime, and the connections that were given to it, which stay there.

use crate::{
    admin::log::log,
    clients::client::Client,
    config::Opt,
    exec::{
        handler::Rows,
        worker::{Clock, Worker, kick},
    },
    net::{
        connection::Connection,
        handle::Handle,
        shared::{Phase, Shared},
    },
    server::{Server, eviction, handover::Connected, mailbox::Message},
    transport::stream::{Socket, Stream},
};
use std::{
    io,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    runtime::{Builder, LocalOptions},
    sync::mpsc::UnboundedReceiver,
    task::spawn_local,
    time,
};

/// Items that are read by threads at the same time, where the kernel has no `io_uring`.
const FETCHES_MAX: usize = 64;
/// How often connections are looked at for time-outs.
const TICK: Duration = Duration::from_secs(1);

/// Runs a worker in this thread until it is told to stop.
pub fn run(
    server: Arc<Server>,
    rows: &'static Rows,
    index: usize,
    clock: Clock,
    mailbox: UnboundedReceiver<Message>,
) -> io::Result<()> {
    // At the end of a loop turn the log's thread gets to work on what the turn has appended, all at once.
    let worker = Rc::new(Worker::new(server, rows, index, clock));
    // Whoever wakes the loop from elsewhere holds a part of it for a moment, and is not to hold the store when the server ends.
    let (store, appended) = (Arc::downgrade(&worker.server.store), worker.appended.clone());
    let kick = move || {
        if appended.load(Relaxed)
            && let Some(store) = store.upgrade()
        {
            kick(&store, &appended);
        }
    };
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(FETCHES_MAX)
        .on_thread_park(kick)
        .build_local(LocalOptions::default())?;
    runtime.block_on(EventLoop::new(worker).serve(mailbox));
    Ok(())
}

/// What accepts the connections of a worker and has them served.
pub struct EventLoop {
    shared: Rc<Shared>,
}

impl EventLoop {
    /// Without connections.
    pub fn new(worker: Rc<Worker>) -> EventLoop {
        EventLoop { shared: Rc::new(Shared::new(worker)) }
    }

    /// Serves the connections that it is given until it is told to stop.
    pub async fn serve(self, mut mailbox: UnboundedReceiver<Message>) {
        self.start_reading();
        let shared = self.shared.clone();
        spawn_local(async move { shared.durability.run().await });
        let shared = self.shared.clone();
        spawn_local(async move { shared.deliver_all().await });
        spawn_local(tick(self.shared.clone()));
        let shared = self.shared.clone();
        spawn_local(async move { shared.give_turns().await });
        while let Some(message) = mailbox.recv().await {
            match message {
                Message::Accept(socket, client) => self.accept(socket, client, None),
                Message::Adopt(socket, client, connected) => self.accept(socket, client, Some(connected)),
                Message::Freeze(done) => {
                    self.shared.enter(Phase::Freezes);
                    let shared = self.shared.clone();
                    spawn_local(async move {
                        if shared.all_are_frozen().await {
                            // Who has asked may have lost patience.
                            let _ = done.send(());
                        }
                    });
                }
                Message::Thaw => self.shared.enter(Phase::Serves),
                Message::GiveAway(to) => {
                    // What was published before is among the output then.
                    self.shared.deliver();
                    self.shared.enter(Phase::GivesAway);
                    let shared = self.shared.clone();
                    spawn_local(async move {
                        shared.all_have_left().await;
                        let _ = to.send(shared.take_given());
                    });
                }
                Message::Kill(id) => self.shared.with(id, Handle::kill),
                Message::Unblock(id, why) => self.shared.with(id, |handle| handle.unblock(why)),
                Message::LeaveShards(id) => self.shared.with(id, Handle::leave_shards),
                Message::Unpause => self.shared.unpaused.notify_waiters(),
                Message::Pass(passed) => drop(passed),
                Message::Stop => return,
            }
        }
    }

    fn start_reading(&self) {
        let worker = &self.shared.worker;
        if !worker.server.config.is_on(Opt::IoUring) {
            return;
        }
        match worker.fetcher.start() {
            Ok(()) => {}
            Err(e) if worker.index == 0 => {
                log!(
                    Warning,
                    "cannot use io_uring ({e}): threads read what is not in memory, at a lower rate"
                )
            }
            Err(_) => {}
        }
    }

    fn accept(&self, socket: Socket, client: Arc<Client>, adopted: Option<Box<Connected>>) {
        let handle = Rc::new(Handle::new(client.clone()));
        handle.is_open.set(!matches!(socket, Socket::Tls(_)));
        self.shared.add(handle.clone());
        let shared = self.shared.clone();
        spawn_local(async move {
            let id = client.id;
            match Stream::open(socket, &shared.worker.server.tls).await {
                Ok(stream) => {
                    handle.is_open.set(true);
                    let mut connection = Connection::new(shared.clone(), handle, stream);
                    match adopted.map_or(Ok(()), |adopted| connection.resume(*adopted)) {
                        Ok(()) => connection.run().await,
                        Err(why) => log!(Notice, "closing client {}: {why}", client.addr),
                    }
                }
                // What is not TLS, and certificates that are not good. A probe that just connects is none of it.
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    log!(
                        Notice,
                        "Error accepting a client connection: {e} (addr={} laddr={})",
                        client.addr,
                        client.laddr
                    )
                }
                Err(e) => log!(Verbose, "Error accepting a client connection: {e} (addr={})", client.addr),
            }
            // Whoever sees its socket closed finds it nowhere any more.
            shared.remove(id);
        });
    }
}

/// Looks after what no event tells of.
async fn tick(shared: Rc<Shared>) {
    let server = &shared.worker.server;
    let mut ticks = time::interval(TICK);
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        server.busy.do_deferred(&server.store);
        shared.tick(Duration::from_secs(server.config.number(Opt::Timeout) as u64));
        if shared.worker.index == 0 {
            server.measure_rates();
            server.refusals.report(&server.store);
            server.report_slow_medium();
            if let Some(why) = server.store.take_dictionary_failure() {
                log!(Warning, "A dictionary for small values is not used, as it cannot be kept: {why}");
            }
            server.evict_clients();
            eviction::count_other_memory(server);
        }
    }
}
