//! The life of a server: start, serve until asked to end, end in order.

mod folder;
mod follow;
mod service;

use crate::{
    acl::{self, Acl},
    admin::{
        log::{self, log},
        syslog::Syslog,
    },
    cluster,
    commands::ROWS,
    config::{Config, Opt, kind::Value},
    metrics::Bound,
    net::{event_loop, listener::Listeners},
    replica,
    replica_set::{self, Events, front::Front},
    script::engine::load_libraries,
    server::{self, Server, apply, cluster::Cluster, limits, mailbox::Message, replica_set::ReplicaSet},
    takeover::{
        give::{self, Handover, Successor},
        take::Predecessor,
    },
    transport::tls::Tls,
    util::{ending, program, runtime, version::VERSION},
};
use folder::{cannot_open, choose_data_folder, open_folder, open_store, store_options, tell_data_folder};
use follow::{Election, answer, take_part, told};
use holdfast_io::Moment;
use holdfast_store::Store;
use service::State;
use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::pin,
    process,
    sync::Arc,
    task::Poll,
    thread,
};
use tokio::{
    runtime::LocalRuntime,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
};

/// Serves until a signal or SHUTDOWN; the error says why it could not start. If a time is given, in milliseconds, the clock by
/// which keys expire stands still there.
pub fn serve(config: Config, clock_stopped_at_ms: Option<u64>) -> Result<(), String> {
    open_log(&config)?;
    // An upgrade may give its name to another program later.
    let program = program::as_started().map_err(|e| format!("cannot start: {e}"))?;
    let mut predecessor = Predecessor::meet()?;
    let runtime = build_runtime()?;
    // From the start on, so that who renames log files need not know whether the server serves already.
    let (mut hang_ups, mut upgrades) = {
        let _context = runtime.enter();
        let failed = |e: io::Error| format!("cannot start: {e}");
        (signal(SignalKind::hangup()).map_err(failed)?, signal(SignalKind::user_defined2()).map_err(failed)?)
    };
    ending::watch_signals().map_err(|e| format!("cannot start: {e}"))?;
    limits::fit_max_clients(&config, 0)?;
    // Before the data folder is touched: a second server by mistake ends here.
    let (adopted, metrics) = match &mut predecessor {
        Some(predecessor) => {
            choose_data_folder(&config, Path::new("."));
            predecessor.check_folder(&config)?;
            check_options(&config)?;
            (Some(predecessor.listeners(&config)?), predecessor.metrics(&config)?)
        }
        None => (None, Bound::open(&config)?),
    };
    let going = predecessor.map(Predecessor::let_go).transpose()?;
    let lent = metrics.as_ref().map(Bound::duplicate).transpose();
    let metrics = lent.and_then(|lent| Ok((lent, metrics.map(Bound::serve).transpose()?)));
    let (lent, metrics) = metrics.map_err(|e| format!("cannot start the metrics port: {e}"))?;
    if going.is_none() {
        service::tell(State::Starts);
    }
    let (io, mut options) = (open_folder(&config, clock_stopped_at_ms)?, store_options(&config)?);
    options.ended_at = going.as_ref().and_then(|going| going.ended_at);
    let set = ReplicaSet::new(&config, &io)?;
    if set.is_none() {
        replica_set::refuse_alone(Path::new(&config.text(Opt::Dir)))?;
    }
    let (node, config) = (Arc::new(Cluster::new(&config)), Arc::new(config));
    let cluster = cluster::start(config.clone(), node.clone(), set.clone())?;
    let (store, member, election) = match set.clone() {
        None => {
            let dir = config.text(Opt::Dir);
            let store = open_store(&dir, io, options).map_err(|error| cannot_open(&dir, &error))?;
            (Arc::new(store), None, None)
        }
        Some(set) => {
            options.on_unreadable = replica_set::on_unreadable;
            let (member, events) = replica_set::start(&config, set.clone(), io, options)?;
            metrics.iter().for_each(|metrics| metrics.show_set(set.clone()));
            service::tell(State::Serves);
            let Events { followed, elected, leads } = events;
            let front = Front::new(&config, set, node.clone(), &ROWS.table)?;
            match answer(&config, front, &mut hang_ups, told(followed))? {
                Some(store) => (store, Some(member), Some(Election { elected, leads })),
                None => {
                    service::tell(State::Ends);
                    cluster.into_iter().for_each(cluster::Running::end);
                    member.end();
                    log!(Notice, "Holdfast is now ready to exit, bye bye...");
                    return Ok(());
                }
            }
        }
    };
    tell_data_folder(&config);
    let (mailboxes, inboxes) = mailboxes(&config);
    let server = Server::new(&ROWS.table, config, node, store, set, mailboxes);
    prepare(&server)?;
    begin_replication(&server)?;
    warn_of_options_without_effect(&server.config);

    let mut listeners = listen(&runtime, &server.config, adopted)?;
    let workers = Workers::start(&server, inboxes)?;

    if election.is_none() {
        cluster.iter().for_each(|cluster| cluster.serve(server.clone(), None));
    }
    let replica = replica::start(server.clone()).map_err(|e| format!("cannot start a thread: {e}"))?;

    let has_taken_over = going.is_some();
    if let Some(going) = going {
        going.adopt(&server, &runtime)?;
        listeners.leave(false);
    }
    let mut pid_file = match PidFile::write(&server.config.text(Opt::PidFile)) {
        // It is too late to leave it to the other process.
        Err(what) if has_taken_over => {
            log!(Warning, "{what}");
            PidFile(None)
        }
        written => written?,
    };
    log!(Notice, "Holdfast {VERSION} started, {} workers, process {}", workers.0.len(), process::id());
    log!(Notice, "Ready to accept connections on {}", listeners.describe());
    if !has_taken_over {
        service::tell(State::Serves);
    }
    if let Some(metrics) = &metrics {
        metrics.show(server.clone());
    }
    let reopening = reopen_files(server.clone(), hang_ups);
    let served = runtime.block_on(async {
        let signalled = server.clone();
        when_asked_to_end(move || signalled.shutdown.notify_one());
        tokio::task::spawn_local(reopening);
        tokio::task::spawn_local(service::tell_alive());
        if let Some(election) = election {
            let functions = take_part(&server);
            log!(Notice, "Follows, and serves reads");
            match accept_until(&server, &mut listeners, election.won(&server, &functions)).await {
                Event::Ended(served) => return served.map(|()| None),
                Event::Asked(term) => {
                    let serve = |cluster: &cluster::Running| cluster.serve(server.clone(), Some(term));
                    server.lead(|| cluster.iter().for_each(serve));
                    load_functions(&server);
                    log!(Notice, "Leads the replica set in term {term}");
                }
            }
        }
        let mut upgrade = Upgrade { program: &program, metrics: lent.as_ref(), signals: &mut upgrades };
        serve_until_asked_to_end(&server, &mut listeners, &mut upgrade).await
    });
    let (served, handover) = match served {
        Ok(handover) => (Ok(()), handover),
        Err(error) => (Err(error), None),
    };

    ending::begin();
    // Nobody connects to a server that ends.
    let lent = lent.filter(|_| handover.is_some());
    if handover.is_none() {
        listeners.close();
        service::tell(State::Ends);
    }
    if let Some(cluster) = cluster {
        cluster.end();
    }
    // While there are workers, so that what the primary has sent ends in order.
    server.replication.end();
    server.follow_role();
    replica.join().expect("a panic ends the process");
    workers.stop(&server);
    // Its tasks share the server, and so does who shows its figures.
    drop(runtime);
    drop(metrics);
    if let Some(member) = member {
        member.end();
        // All that was acknowledged is durable on a majority. To close the store, others would have to agree on more, who may not be there.
        drop(pid_file);
        log!(Notice, "Holdfast is now ready to exit, bye bye...");
        process::exit(served.inspect_err(|e| log!(Warning, "cannot serve: {e}")).is_err().into());
    }
    if let Some(handover) = handover {
        return hand_over(server, handover, &mut listeners, lent.as_ref(), &mut pid_file);
    }
    log!(Notice, "Making everything durable before exiting.");
    let closed = close_store(server);
    log!(Notice, "Holdfast is now ready to exit, bye bye...");
    served.map_err(|e| format!("cannot serve: {e}")).and(closed)
}

/// The mailboxes of as many workers as the options say, and what comes out of them.
fn mailboxes(config: &Config) -> (Vec<UnboundedSender<Message>>, Vec<UnboundedReceiver<Message>>) {
    let workers = server::worker_count(config.number(Opt::Workers));
    (0..workers).map(|_| mpsc::unbounded_channel()).unzip()
}

/// Has a server be as its options, its data and its files of users say.
fn prepare(server: &Arc<Server>) -> Result<(), String> {
    // The log may have more than its share of the files already.
    limits::fit_max_clients(&server.config, server.store.log().stats().segments.into())?;
    apply::apply_all(server)?;
    server.follow_role();
    load_functions(server);
    acl::load_at_start(&server.acl, &server.config)
}

/// Refuses what would be refused when the process that serves cannot go on any more.
fn check_options(config: &Config) -> Result<(), String> {
    store_options(config)?;
    Tls::default().configure(config).map_err(|what| format!("TLS: {what}"))?;
    acl::load_at_start(&Acl::new(&ROWS.table), config)
}

fn load_functions(server: &Server) {
    for what in load_libraries(&server.libraries, &server.store) {
        log!(Warning, "cannot load {what}");
    }
}

/// The threads that execute commands.
struct Workers(Vec<thread::JoinHandle<io::Result<()>>>);

impl Workers {
    fn start(server: &Arc<Server>, inboxes: Vec<UnboundedReceiver<Message>>) -> Result<Workers, String> {
        let start = |(index, inbox)| {
            let server = server.clone();
            let name = format!("worker-{index}");
            thread::Builder::new()
                .name(name)
                .spawn(move || event_loop::run(server, &ROWS, index, Moment::now, inbox))
        };
        let threads: io::Result<Vec<_>> = inboxes.into_iter().enumerate().map(start).collect();
        threads.map(Workers).map_err(|e| format!("cannot start the workers: {e}"))
    }

    /// Ends them, and the connections that they have.
    fn stop(self, server: &Server) {
        for index in 0..self.0.len() {
            server.send(index, Message::Stop);
        }
        for thread in self.0 {
            if let Err(e) = thread.join().expect("a panic ends the process") {
                log!(Warning, "a worker could not start: {e}");
            }
        }
    }
}

/// Opens the ports for clients, unless it has adopted them, and has signals end the process in order: whoever can connect can also end it so.
fn listen(runtime: &LocalRuntime, config: &Config, adopted: Option<Listeners>) -> Result<Listeners, String> {
    ending::end_in_order();
    let _context = runtime.enter();
    adopted.map_or_else(|| Listeners::open(config), Ok)
}

fn build_runtime() -> Result<LocalRuntime, String> {
    runtime::local().map_err(|e| format!("cannot start: {e}"))
}

/// Makes the server the replica that it was when it ended, or that its options say.
fn begin_replication(server: &Server) -> Result<(), String> {
    let dir = PathBuf::from(server.config.text(Opt::Dir));
    let wanted = server.config.text(Opt::ReplicaOf).parse().ok();
    let begun = server.replication.begin(&dir, wanted);
    let primary = begun.map_err(|e| format!("the file replica-of in {}: {e}", dir.display()))?;
    if let Some(primary) = primary {
        log!(Notice, "a replica of {primary}, until REPLICAOF NO ONE");
        server.config.store(Opt::ReplicaOf, Value::Text(primary.to_string()));
        server.follow_role();
    }
    Ok(())
}

/// Logs as the options say; the first messages come before these are applied.
fn open_log(config: &Config) -> Result<(), String> {
    open_log_file(config)?;
    log::set_level(config.number(Opt::LogLevel) as u8);
    log::set_json(config.choice(Opt::LogFormat) == "json");
    if config.is_on(Opt::SyslogEnabled) {
        let facility = config.number(Opt::SyslogFacility) as usize;
        let syslog = Syslog::new(config.text(Opt::SyslogIdent), facility);
        log::set_syslog(syslog.map_err(|e| format!("cannot log to syslog: {e}"))?);
    }
    Ok(())
}

fn open_log_file(config: &Config) -> Result<(), String> {
    match config.text(Opt::LogFile).as_str() {
        "" => Ok(()),
        path => log::open_file(Path::new(path)).map_err(|e| format!("cannot open the log file {path}: {e}")),
    }
}

/// With each SIGHUP, opens the log file again, which may have been renamed, and loads the certificates, which may be new. What
/// cannot be opened leaves the old one in use.
async fn reopen_files(server: Arc<Server>, mut hang_ups: Signal) {
    while hang_ups.recv().await.is_some() {
        reopen(&server.config, || apply::secure(&server));
    }
}

/// Does so once; `secure` loads the certificates.
fn reopen(config: &Config, secure: impl FnOnce() -> Result<(), String>) {
    reopen_log(config, "the log file and the certificates are opened again");
    if let Err(error) = secure() {
        log!(Warning, "TLS: the certificates that were loaded before stay in use: {error}");
    }
}

/// Opens the store of the data folder as a server with these options does, to write only.
pub fn open_to_fill(config: &Config) -> Result<Store, String> {
    open_log(config)?;
    folder::open_filled(config)
}

fn reopen_log(config: &Config, done: &str) {
    match open_log_file(config) {
        Ok(()) => log!(Notice, "Received SIGHUP: {done}"),
        Err(e) => log!(Warning, "Received SIGHUP: {e}; the old one stays in use"),
    }
}

/// Lets another process serve. This one has ended all its threads.
fn hand_over(
    server: Arc<Server>,
    handover: Handover,
    listeners: &mut Listeners,
    metrics: Option<&Bound>,
    pid_file: &mut PidFile,
) -> Result<(), String> {
    let store = sole_store(server);
    // Everything that was acknowledged is durable, and what a crash leaves is opened, too.
    let ended_at =
        store.let_go().inspect_err(|e| log!(Warning, "cannot close the data folder in order: {e}"));
    // The memory of the store is given back when that holds up nobody.
    let process = handover.complete(ended_at.ok(), listeners, metrics)?;
    listeners.leave(true);
    pid_file.leave();
    service::tell_main_process(process);
    log!(Notice, "Process {process} serves from now on, bye bye...");
    Ok(())
}

/// The store of a server that has ended all its threads.
fn sole_store(server: Arc<Server>) -> Store {
    let server = Arc::into_inner(server).expect("all threads have ended");
    Arc::into_inner(server.store).expect("all threads have ended")
}

fn close_store(server: Arc<Server>) -> Result<(), String> {
    sole_store(server).close().map_err(|e| format!("cannot make everything durable: {e}"))
}

/// Begins an orderly end when a signal asks for it, within a runtime.
fn when_asked_to_end(shutdown: impl FnOnce() + 'static) {
    tokio::task::spawn_local(async move {
        let name = ending::asked().await;
        log!(Notice, "Received {name} scheduling shutdown...");
        shutdown();
    });
}

/// How another process can take over.
struct Upgrade<'u> {
    /// What it executes.
    program: &'u Path,
    metrics: Option<&'u Bound>,
    /// SIGUSR2 asks for it.
    signals: &'u mut Signal,
}

/// What ends a wait of the server for what comes.
enum Event<T> {
    Ended(io::Result<()>),
    Asked(T),
}

/// Accepts clients until the server is asked to end, or `asked` is there.
async fn accept_until<T>(
    server: &Arc<Server>,
    listeners: &mut Listeners,
    asked: impl Future<Output = T>,
) -> Event<T> {
    let (mut asked, mut accepting) = (pin!(asked), pin!(listeners.accept(server)));
    let mut ended = pin!(server.shutdown.notified());
    std::future::poll_fn(|cx| {
        if ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Event::Ended(Ok(())));
        }
        if let Poll::Ready(accepted) = accepting.as_mut().poll(cx) {
            return Poll::Ready(Event::Ended(accepted));
        }
        asked.as_mut().poll(cx).map(Event::Asked)
    })
    .await
}

/// Serves until the server is asked to end, or another process takes over.
async fn serve_until_asked_to_end(
    server: &Arc<Server>,
    listeners: &mut Listeners,
    upgrade: &mut Upgrade<'_>,
) -> io::Result<Option<Handover>> {
    loop {
        match accept_until(server, listeners, upgrade.signals.recv()).await {
            Event::Ended(served) => {
                log!(Notice, "User requested shutdown...");
                return served.map(|()| None);
            }
            Event::Asked(_) => log!(Notice, "Received SIGUSR2: another process is to take over"),
        }
        let started = match give::refusal(server) {
            Some(why) => Err(why.to_owned()),
            None => Successor::start(upgrade.program, server, listeners, upgrade.metrics),
        };
        let taken = match started {
            Ok(mut successor) => match accept_until(server, listeners, successor.ready(server)).await {
                Event::Ended(served) => return served.map(|()| None),
                Event::Asked(Ok(())) => give::take_connections(successor, server, listeners).await,
                Event::Asked(Err(why)) => Err(why),
            },
            Err(why) => Err(why),
        };
        match taken {
            Ok(handover) => return Ok(Some(handover)),
            Err(why) => log!(Warning, "No other process takes over, and this one goes on: {why}"),
        }
    }
}

fn warn_of_options_without_effect(config: &Config) {
    for &opt in Opt::ALL {
        let spec = opt.spec();
        if !spec.change.has_effect() && !config.is_default(opt) {
            log!(Warning, "option '{}' has no effect: {}", spec.name, spec.doc);
        }
    }
}

/// The file with the process number, removed at the end.
struct PidFile(Option<PathBuf>);

impl PidFile {
    fn write(path: &str) -> Result<PidFile, String> {
        if path.is_empty() {
            return Ok(PidFile(None));
        }
        fs::write(path, format!("{}\n", process::id()))
            .map_err(|e| format!("cannot write the pid file {path}: {e}"))?;
        Ok(PidFile(Some(PathBuf::from(path))))
    }
}

impl PidFile {
    /// It is another process's now.
    fn leave(&mut self) {
        self.0 = None;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // A file that somebody else removed needs no removing.
            let _ = fs::remove_file(path);
        }
    }
}
