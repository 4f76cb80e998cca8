//! The side of the process that has served so far.

use super::{
    VARIABLE, VERSION, unchanged,
    wire::{receive, send, words},
};
use crate::{
    admin::log::log,
    config::Opt,
    metrics::Bound,
    net::listener::Listeners,
    server::{
        Server,
        handover::{Connected, descriptor},
        mailbox::Message,
    },
    transport::stream::Socket,
};
use holdfast_store::Lsn;
use std::{
    env,
    io::{self, ErrorKind},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{self, Child, Command},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

/// The program of this process, also if another one has its name by now.
const SELF: &str = "/proc/self/exe";
/// How long commands that are in progress may hold up all others. If they take longer, everything goes on, and it is tried again.
const PATIENCE: Duration = Duration::from_millis(50);
const RETRY: Duration = Duration::from_millis(500);
const RETRIES: usize = 20;
/// How long the other process may take until it is ready: it reads its options, and no data.
const READY_MAX: Duration = Duration::from_secs(60);

/// What a process that takes over needs at its start.
struct Offer<'o> {
    words: Vec<String>,
    sockets: Vec<BorrowedFd<'o>>,
}

impl<'o> Offer<'o> {
    fn new(
        server_options: &[(&'static str, String)],
        listeners: &'o Listeners,
        metrics: Option<&'o Bound>,
    ) -> Offer<'o> {
        let (listening, mut sockets) = listeners.lend();
        let metrics = metrics.map(Bound::lend).unwrap_or_default();
        let mut words = vec!["offer".to_owned(), "version".into(), VERSION.into()];
        for (name, value) in listening.into_iter().chain(server_options.iter().cloned()) {
            words.extend([name.to_owned(), value]);
        }
        sockets.extend(metrics);
        Offer { words, sockets }
    }
}

/// Starts a process of a program that is to take over, as this one was started.
fn start(program: &Path, offer: &Offer) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut args = env::args_os();
    let name = args.next().unwrap_or_default();
    let mut command = Command::new(program);
    command.arg0(name).args(args).env(VARIABLE, "1").stdin(OwnedFd::from(theirs));
    let child = command.spawn()?;
    // From now on the child alone has the other end, so that its end is seen here.
    drop(command);
    send(&ours, &words(&offer.words), &offer.sockets)?;
    Ok((child, ours))
}

/// Waits until the other process says this; the error says what it has done instead.
fn expect(stream: &UnixStream, word: &str) -> Result<(), String> {
    match receive(stream) {
        Ok((message, _)) if message == words(&[word]) => Ok(()),
        Ok((message, _)) => Err(format!("the new process says {}", message.escape_ascii())),
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            Err(format!("the new process is not ready after {} s", READY_MAX.as_secs()))
        }
        Err(_) => Err("the new process has ended; the log has its reasons".into()),
    }
}

/// Why no other process can take over now, if so.
pub fn refusal(server: &Server) -> Option<&'static str> {
    if process::id() == 1 {
        return Some("the first process of a container cannot be replaced: start another container");
    }
    if env::args_os().any(|arg| arg == "-") {
        return Some("the options have come by the standard input, where a new process does not find them");
    }
    if server.replica_set.is_some() {
        return Some("it is one of a replica set: restart its servers one by one");
    }
    if server.cluster.is_on() {
        return Some("it is a node of a cluster");
    }
    if server.replication.is_replica() {
        return Some("it is a replica: REPLICAOF NO ONE first, or restart it");
    }
    if server.pause.is_on() {
        return Some("CLIENT PAUSE is in force");
    }
    if server.store.backup_state().moment.is_some() {
        return Some("a backup is in progress");
    }
    None
}

/// A process that is to take over. It is killed if it does not come to that.
pub struct Successor {
    child: Child,
    stream: UnixStream,
    /// The options that it was told, to see whether they have changed.
    told: Vec<String>,
    options: Vec<(&'static str, String)>,
    /// Waits until it is ready.
    waiting: Option<JoinHandle<()>>,
    is_kept: bool,
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.is_kept {
            // It may have ended by itself.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // It uses the store.
        self.end_waiting();
    }
}

impl Successor {
    /// Starts a process of the program, and lends it the sockets.
    pub fn start(
        program: &Path,
        server: &Server,
        listeners: &Listeners,
        metrics: Option<&Bound>,
    ) -> Result<Successor, String> {
        let option = |opt: Opt| server.config.text(opt);
        let mut options = vec![
            ("dir", option(Opt::Dir)),
            ("metrics-bind", option(Opt::MetricsBind)),
            ("metrics-port", server.config.number(Opt::MetricsPort).to_string()),
        ];
        options.extend(unchanged(&server.config));
        let offer = Offer::new(&options, listeners, metrics);
        let started = start(program, &offer);
        let (child, stream) = started.map_err(|e| format!("cannot start {}: {e}", program.display()))?;
        log!(Notice, "Process {} of {} is to take over", child.id(), program.display());
        Ok(Successor { child, stream, told: offer.words, options, waiting: None, is_kept: false })
    }

    /// Waits until the process is ready, and until there is little that it has to replay.
    pub async fn ready(&mut self, server: &Server) -> Result<(), String> {
        let stream = self.stream.try_clone().map_err(|e| e.to_string())?;
        let (done, ready) = oneshot::channel();
        let store = server.store.clone();
        let wait = move || {
            let limited = stream.set_read_timeout(Some(READY_MAX)).map_err(|e| e.to_string());
            let ready = limited.and_then(|()| expect(&stream, "ready")).and_then(|()| {
                // It may have much to replay then.
                stream.set_read_timeout(None).map_err(|e| e.to_string())?;
                // What is written while the first one is taken is left to the second one.
                store.checkpoint().and_then(|()| store.checkpoint()).map_err(|e| e.to_string())
            });
            drop(store);
            // Who waits for it may have been asked to end.
            let _ = done.send(ready);
        };
        let thread = thread::Builder::new().name("take-over".into()).spawn(wait);
        self.waiting = Some(thread.map_err(|e| e.to_string())?);
        let ready = ready.await.unwrap_or_else(|_| Err("it could not be waited for".into()));
        self.end_waiting();
        ready
    }

    fn end_waiting(&mut self) {
        if let Some(thread) = self.waiting.take() {
            thread.join().expect("a panic ends the process");
        }
    }

    /// Has all connections rest, and takes them from the workers; the error says why not, and that everything goes on.
    pub async fn take_connections(
        mut self,
        server: &Arc<Server>,
        listeners: &Listeners,
    ) -> Result<Handover, Unready> {
        if let Some(why) = refusal(server) {
            return Err(Unready::GivenUp(why.into()));
        }
        let told = Offer::new(&self.options, listeners, None).words;
        if told != self.told {
            return Err(Unready::GivenUp("CONFIG SET has changed where the server listens".into()));
        }
        let workers = server.workers.len();
        let (done, mut frozen) = mpsc::unbounded_channel();
        (0..workers).for_each(|worker| server.send(worker, Message::Freeze(done.clone())));
        drop(done);
        let all = async {
            for _ in 0..workers {
                frozen.recv().await?;
            }
            Some(())
        };
        if timeout(PATIENCE, all).await.ok().flatten().is_none() {
            thaw(server);
            return Err(Unready::Busy(self));
        }
        let log = server.store.log();
        if let Err(e) = log.wait_durable(log.tail()) {
            thaw(server);
            return Err(Unready::GivenUp(format!("not everything can be made durable: {e}")));
        }
        let (give, mut given) = mpsc::unbounded_channel();
        (0..workers).for_each(|worker| server.send(worker, Message::GiveAway(give.clone())));
        drop(give);
        let mut connections = Vec::new();
        while let Some(more) = given.recv().await {
            connections.extend(more);
        }
        self.is_kept = true;
        let (scripts, last_id) = (server.scripts.all(), server.clients.last_id());
        Ok(Handover { successor: self, connections, scripts, last_id })
    }
}

fn thaw(server: &Server) {
    (0..server.workers.len()).for_each(|worker| server.send(worker, Message::Thaw));
}

/// Why the connections do not rest.
pub enum Unready {
    /// Commands take too long. It can be tried again.
    Busy(Successor),
    /// There is something that does not go away.
    GivenUp(String),
}

/// Waits for a moment in which all connections can rest, as long as that makes sense.
pub async fn take_connections(
    mut successor: Successor,
    server: &Arc<Server>,
    listeners: &mut Listeners,
) -> Result<Handover, String> {
    for _ in 0..RETRIES {
        successor = match successor.take_connections(server, listeners).await {
            Ok(handover) => return Ok(handover),
            Err(Unready::GivenUp(why)) => return Err(why),
            Err(Unready::Busy(successor)) => successor,
        };
        // Clients are accepted meanwhile.
        let _ = timeout(RETRY, async {
            if listeners.accept(server).await.is_err() {
                sleep(RETRY).await;
            }
        })
        .await;
    }
    Err(format!("a command takes longer than {} ms, again and again", PATIENCE.as_millis()))
}

/// All that goes to the other process, once the data folder is closed.
pub struct Handover {
    successor: Successor,
    connections: Vec<(Socket, Connected)>,
    scripts: Vec<(Vec<u8>, bool)>,
    last_id: u64,
}

impl Handover {
    /// Passes everything on, and returns the number of the process that serves now. The data folder must be another process's to have;
    /// its log ends at `ended_at`.
    pub fn complete(
        mut self,
        ended_at: Option<Lsn>,
        listeners: &Listeners,
        metrics: Option<&Bound>,
    ) -> Result<u32, String> {
        let what = match self.pass_on(ended_at) {
            Ok(()) => return Ok(self.successor.child.id()),
            Err(what) => what,
        };
        log!(Warning, "{what}: another process of this version takes its place");
        // It must have ended before another one opens the data folder.
        let _ = self.successor.child.kill();
        let _ = self.successor.child.wait();
        let offer = Offer::new(&self.successor.options, listeners, metrics);
        let started = start(&PathBuf::from(SELF), &offer).map_err(|e| e.to_string());
        (self.successor.child, self.successor.stream) = started?;
        expect(&self.successor.stream, "ready")?;
        // The first one may have written something.
        self.pass_on(None).map(|()| self.successor.child.id())
    }

    fn pass_on(&self, ended_at: Option<Lsn>) -> Result<(), String> {
        let stream = &self.successor.stream;
        let send = |message: &[u8], sockets: &[BorrowedFd]| {
            send(stream, message, sockets).map_err(|_| "the new process has ended".to_owned())
        };
        send(&words(&["go", &ended_at.map_or(String::new(), |lsn| lsn.to_string())]), &[])?;
        for (source, is_kept) in &self.scripts {
            let command: &[u8] = if *is_kept { b"script" } else { b"eval" };
            send(&words(&[command, source]), &[])?;
        }
        for (socket, connected) in &self.connections {
            if let Some(socket) = descriptor(socket) {
                send(&connected.encode(), &[socket])?;
            }
        }
        send(&words(&["end", &self.last_id.to_string()]), &[])?;
        expect(stream, "serves")
    }
}
