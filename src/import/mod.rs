//! `holdfast import`: what Redis or Valkey has saved, put into a new data folder or into a server that runs.
//!
//! Files are read by [`source`]. A new folder is made beside its place ([`unfinished`]) and gets its name only when all is there: keys are
//! written into its store directly ([`fill`]). What only a server can take, the commands of an append-only file and libraries of functions, goes over
//! a connection ([`target`]) to one that this process runs in that folder for the time being, and so does all that goes into a server
//! that runs: it becomes commands in [`feed`].

use crate::util::console::out;
mod feed;
mod fill;
mod secure;
mod source;
mod target;
mod unfinished;

use crate::{
    config::{Config, Opt, kind::Value},
    server::worker_count,
    util::progress::Progress,
};
pub use feed::Feed;
use feed::Summary;
use holdfast_store::Store;
pub use secure::Secure;
use source::{Failure, Source};
pub use source::{Sink, Stopped};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
pub use target::{Address, Connection, Login};
use target::{PATIENCE, Sent};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};
use unfinished::Unfinished;

/// What is to be imported, and into what.
pub struct Request {
    /// An RDB file, an append-only file, or the folder of one with its manifest.
    pub from: PathBuf,
    /// Where it goes.
    pub to: Destination,
}

/// What takes the data.
pub enum Destination {
    /// A new data folder, by the options of a server.
    Folder(Box<Config>),
    /// A server that runs.
    Server {
        /// Where it listens.
        address: Address,
        /// The user; the default user if there is none.
        user: Option<String>,
        /// The password, if one is needed.
        password: Option<String>,
        /// Whether keys that are there give way to those of the file.
        replace: bool,
    },
}

/// What the program lends an import that makes a folder.
#[derive(Clone, Copy)]
pub struct Means {
    /// Opens the store of a data folder, which these options name.
    pub open: fn(&Config) -> Result<Store, String>,
    /// Runs a server for the time being: with these options, and with a clock that stands still, if it is to. It returns when the
    /// server has ended.
    pub serve: fn(Config, Option<u64>) -> Result<(), String>,
}

/// While the commands of an append-only file are executed again, nothing may expire: a command that has made a key stay may
/// come later. So this is the time then, in milliseconds: a day after the beginning, since a worker subtracts from it how long
/// it has been at work.
const STOPPED_AT_MS: u64 = 24 * 60 * 60 * 1000;
/// Connections by which keys are sent at most, and to a server of which it is not known how many workers it has.
const CONNECTIONS_MAX: usize = 8;
const CONNECTIONS: usize = 4;
/// How often it is looked whether the server serves.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Imports, and prints what was imported.
pub fn import(request: Request, means: Means) -> Result<(), String> {
    let source = Source::find(&request.from)?;
    let summary = match request.to {
        Destination::Folder(config) => into_folder(&source, *config, means)?,
        Destination::Server { address, user, password, replace } => {
            into_server(&source, &address, &Login { user, password }, replace)?
        }
    };
    out!("{summary}");
    Ok(())
}

fn into_folder(source: &Source, config: Config, means: Means) -> Result<Summary, String> {
    let dir = PathBuf::from(config.text(Opt::Dir));
    let shown = dir.display();
    match fs::read_dir(&dir) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(format!(
                    "{shown} is not empty: an import makes a new data folder, by --dir; to import into a server that runs, name \
                 it by --to"
                ));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(format!("{shown}: {error}")),
    }
    let unfinished = Unfinished::new(&dir)?;
    prepare(&config, &unfinished.data(), &unfinished.socket());
    let imported = if source.has_commands() {
        by_server(config, &unfinished, means, Some(STOPPED_AT_MS), |server, connections| {
            let target = Target { address: server, login: &Login::default(), replace: false, connections };
            // The server is told of interruptions, and ends.
            feed(source, &target, false, Arc::default()).map_err(|unfed| unfed.what)
        })
    } else {
        directly(source, config, &unfinished, means)
    };
    let summary = imported.map_err(|failure| match failure {
        Unmade::Interrupted => format!("interrupted: {shown} was not made"),
        Unmade::Because(what) => what,
        // What a damaged file seems to hold may be refused before the damage is met.
        Unmade::Refused(what) => verify(source).err().unwrap_or(what),
    })?;
    unfinished.finish(&dir).map_err(|e| format!("cannot give the new data folder its name, {shown}: {e}"))?;
    Ok(summary)
}

/// Why a folder was not made.
enum Unmade {
    Interrupted,
    Because(String),
    /// What was read was not taken.
    Refused(String),
}

impl From<String> for Unmade {
    fn from(what: String) -> Unmade {
        Unmade::Because(what)
    }
}

/// Writes keys into the store of the new folder, and has a server load the libraries, if there are any.
fn directly(
    source: &Source,
    config: Config,
    unfinished: &Unfinished,
    means: Means,
) -> Result<Summary, Unmade> {
    let interrupted = on_interruption().map_err(|e| format!("cannot start: {e}"))?;
    let store = (means.open)(&config)?;
    let threads = worker_count(config.number(Opt::Workers)).min(CONNECTIONS_MAX);
    let (read, filled) =
        fill::fill(&store, threads, source.bytes(), &interrupted, |filler| source.read(filler));
    match (read, filled.failure) {
        (Err(Failure::File(what)), _) => return Err(Unmade::Because(what)),
        (_, Some(what)) => return Err(Unmade::Refused(what)),
        (Err(Failure::Sink(_)), None) => return Err(Unmade::Interrupted),
        (Ok(()), None) => {}
    }
    store.close().map_err(|e| format!("cannot make everything durable: {e}"))?;
    drop(store);
    if !filled.libraries.is_empty() {
        by_server(config, unfinished, means, None, |server, _| {
            let failed = |e: io::Error| format!("a library of functions: {e}");
            let mut server = server.connect(PATIENCE).map_err(failed)?;
            filled
                .libraries
                .iter()
                .try_for_each(|source| server.call(&[b"FUNCTION", b"LOAD", source]).map(drop).map_err(failed))
        })?;
    }
    Ok(filled.summary)
}

/// Runs a server in the new folder, has it take what `send` sends to its address, by so many connections at most, and ends it in order, so
/// that all is durable.
fn by_server<T>(
    config: Config,
    unfinished: &Unfinished,
    means: Means,
    clock: Option<u64>,
    send: impl FnOnce(&Address, usize) -> Result<T, String>,
) -> Result<T, Unmade> {
    let connections = worker_count(config.number(Opt::Workers)).min(CONNECTIONS_MAX);
    let server = thread::Builder::new().name("server".into()).spawn(move || (means.serve)(config, clock));
    let server = server.map_err(|e| format!("cannot start a thread: {e}"))?;
    let address = Address::Unix(unfinished.socket());
    let sent = loop {
        if server.is_finished() {
            break Err("the server that was to take the data has ended".into());
        }
        if address.connect(PATIENCE).is_ok() {
            break send(&address, connections);
        }
        thread::sleep(LOOK_EVERY);
    };
    // It has ended already if somebody has asked it to, by a signal, since nobody else can.
    let asked = address.connect(PATIENCE).and_then(Connection::shut_down);
    server.join().expect("a panic ends the process")?;
    match (sent, asked) {
        (_, Err(_)) => Err(Unmade::Interrupted),
        (Err(what), Ok(())) => Err(Unmade::Refused(what)),
        (Ok(done), Ok(())) => Ok(done),
    }
}

/// Reads everything; the error says what is wrong with the files.
fn verify(source: &Source) -> Result<(), String> {
    match source.read(&mut feed::Verify) {
        Err(Failure::File(what)) => Err(what),
        Ok(()) | Err(Failure::Sink(_)) => Ok(()),
    }
}

/// Sets what the server for the time being needs.
fn prepare(config: &Config, dir: &Path, socket: &Path) {
    let text = |path: &Path| Value::Text(path.display().to_string());
    config.store(Opt::Dir, text(dir));
    config.store(Opt::UnixSocket, text(socket));
    for (opt, value) in [
        // Nobody else is to connect.
        (Opt::Port, "0"),
        (Opt::TlsPort, "0"),
        (Opt::RequirePass, ""),
        (Opt::AclFile, ""),
        (Opt::ReplicaOf, ""),
        (Opt::PidFile, ""),
        (Opt::Timeout, "0"),
        // At the end all is made durable.
        (Opt::Appendfsync, "no"),
        (Opt::MaxMemoryPolicy, "noeviction"),
    ] {
        config.set(opt, &[value]).expect("these values are valid");
    }
}

fn into_server(source: &Source, address: &Address, login: &Login, replace: bool) -> Result<Summary, String> {
    if source.has_commands() {
        return Err("an append-only file can be imported into a new data folder only: while its commands are executed \
                    again, no key may expire"
            .into());
    }
    let mut connection = address.connect(PATIENCE).and_then(|connection| connection.log_in(login));
    let is_empty = connection
        .as_mut()
        .map_err(|e| e.to_string())
        .and_then(|it| it.is_empty().map_err(|e| e.to_string()));
    if !is_empty.map_err(|e| format!("{address}: {e}"))? && !replace {
        return Err(format!(
            "{address} has keys already; with --replace, those of the file take their places"
        ));
    }
    // Nothing is sent before all is known to be sound.
    verify(source)?;
    let interrupted = on_interruption().map_err(|e| format!("cannot start: {e}"))?;
    let target = Target { address, login, replace, connections: CONNECTIONS };
    feed(source, &target, true, interrupted).map_err(|Unfed { what, sent }| {
        let (about, keys) = (if sent.is_unknown { "at least " } else { "" }, sent.keys);
        format!(
            "{what}\nThe import is not complete: {about}{keys} keys of the file have arrived at {address}, and stay there; of one \
             more, a large collection, a part may have. With --replace, the import can begin anew."
        )
    })
}

/// What SIGINT and SIGTERM set from now on. The second one ends the process at once.
fn on_interruption() -> io::Result<Arc<AtomicBool>> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let interrupted = Arc::new(AtomicBool::new(false));
    {
        let _context = runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let (mut signals, interrupted) = (signal(kind)?, interrupted.clone());
            runtime.spawn(async move {
                while signals.recv().await.is_some() {
                    if interrupted.swap(true, Relaxed) {
                        process::exit(1);
                    }
                }
            });
        }
    }
    let wait = move || runtime.block_on(std::future::pending::<()>());
    thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(interrupted)
}

/// Why not everything has arrived, and what has.
struct Unfed {
    what: String,
    sent: Sent,
}

/// A server, and how it is sent to.
struct Target<'t> {
    address: &'t Address,
    login: &'t Login,
    /// Whether keys that are there give way.
    replace: bool,
    /// Connections by which keys are sent.
    connections: usize,
}

/// Sends everything to a server, until `interrupted` is set.
fn feed(
    source: &Source,
    &Target { address, login, replace, connections }: &Target,
    skip_expired: bool,
    interrupted: Arc<AtomicBool>,
) -> Result<Summary, Unfed> {
    let failed = Arc::new(AtomicBool::new(false));
    let pipeline = |_| address.connect(PATIENCE)?.log_in(login)?.pipeline(failed.clone());
    // The order of keys is of no account, that of commands is.
    let count = if source.has_commands() { 1 } else { connections };
    let pipelines: io::Result<Vec<_>> = (0..count).map(pipeline).collect();
    let pipelines =
        pipelines.map_err(|e| Unfed { what: format!("{address}: {e}"), sent: Sent::default() })?;
    let mut feed = Feed::new(pipelines, replace, skip_expired, interrupted);
    let read = source.read(&mut feed);
    let (summary, sent) = feed.finish();
    let what = match (read, &sent.failure) {
        (Ok(()), None) => return Ok(summary),
        (Err(Failure::File(what)), _) => what,
        (_, Some(failure)) => format!("{address}: {failure}"),
        (Err(Failure::Sink(_)), None) => "interrupted".into(),
    };
    Err(Unfed { what, sent })
}
