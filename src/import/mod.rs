//! `holdfast import`: what Redis or Valkey has saved, put into a new data folder or into a server that runs.
//!
//! Either way a server takes it as commands over a connection ([`target`]): for a new folder, one that this process runs
//! for the time being in a folder beside it, which gets its name only when all is there. Files are read by [`source`],
//! and what is in them becomes commands in [`feed`].

mod feed;
mod source;
mod target;

use crate::{
    config::{Config, Opt, kind::Value},
    util::progress::Progress,
};
use feed::{Feed, Summary};
use source::Source;
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
pub use target::Address;
use target::{Connection, Login};

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

/// How a server for the time being is run: with these options, and with a clock that stands still, if it is to. It returns
/// when the server has ended.
pub type Serve = fn(Config, Option<u64>) -> Result<(), String>;

/// While the commands of an append-only file are executed again, nothing may expire: a command that has made a key stay may
/// come later. So this is the time then, in milliseconds: a day after the beginning, since a worker subtracts from it how long
/// it has been at work.
const STOPPED_AT_MS: u64 = 24 * 60 * 60 * 1000;
/// How often it is looked whether the server serves.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Imports, and prints what was imported.
pub fn import(request: Request, serve: Serve) -> Result<(), String> {
    let source = Source::find(&request.from)?;
    let summary = match request.to {
        Destination::Folder(config) => into_folder(&source, *config, serve)?,
        Destination::Server { address, user, password, replace } => {
            into_server(&source, &address, &Login { user, password }, replace)?
        }
    };
    print!("{summary}");
    Ok(())
}

fn into_folder(source: &Source, config: Config, serve: Serve) -> Result<Summary, String> {
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
    let socket = SocketFolder::new()?;
    prepare(&config, &unfinished.0, &socket.path());
    let clock = source.has_commands().then_some(STOPPED_AT_MS);
    let server = thread::Builder::new().name("server".into()).spawn(move || serve(config, clock));
    let server = server.map_err(|e| format!("cannot start a thread: {e}"))?;
    let address = Address::Unix(socket.path());
    let fed = loop {
        if server.is_finished() {
            break Err("the server that was to take the data has ended".to_owned());
        }
        if address.connect().is_ok() {
            break feed(source, &address, &Login::default(), false, clock.is_none());
        }
        thread::sleep(LOOK_EVERY);
    };
    // It ends in order, so that all is durable, or has ended already.
    let asked = address.connect().and_then(Connection::shut_down);
    let served = server.join().expect("a panic ends the process");
    let summary = match (fed, served) {
        (_, Err(error)) => return Err(error),
        (fed, Ok(())) => fed?,
    };
    asked.map_err(|e| format!("the server that was to take the data cannot be ended: {e}"))?;
    unfinished.finish(&dir).map_err(|e| format!("cannot give the new data folder its name, {shown}: {e}"))?;
    Ok(summary)
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
    let mut connection = address.connect().and_then(|connection| connection.log_in(login));
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
    source.read(&mut feed::Verify)?;
    feed(source, address, login, replace, true)
}

/// Sends everything to a server.
fn feed(
    source: &Source,
    address: &Address,
    login: &Login,
    replace: bool,
    skip_expired: bool,
) -> Result<Summary, String> {
    let failed = |e: io::Error| format!("{address}: {e}");
    let connection = address.connect().and_then(|connection| connection.log_in(login)).map_err(failed)?;
    let mut feed = Feed::new(connection.pipeline().map_err(failed)?, replace, skip_expired);
    source.read(&mut feed)?;
    feed.finish()
}

/// The folder in which the new one is made; removed if it gets no other name.
struct Unfinished(PathBuf);

impl Unfinished {
    fn new(dir: &Path) -> Result<Unfinished, String> {
        // Of `a/..` or `/` there is no name beside.
        let name =
            dir.file_name().ok_or_else(|| format!("{}: not the name of a new folder", dir.display()))?;
        let mut beside = name.to_os_string();
        beside.push(format!(".importing-{}", process::id()));
        let path = dir.with_file_name(beside);
        let failed = |e: io::Error| format!("cannot make the folder {}: {e}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::create_dir(&path).map_err(failed)?;
        Ok(Unfinished(path))
    }

    /// Takes the place of `dir`, which is missing or empty.
    fn finish(self, dir: &Path) -> io::Result<()> {
        fs::rename(&self.0, dir)?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(parent)?.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // It is not there any more if it was renamed; else, what cannot be removed can still be seen.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A folder of our own for a socket: its path must be short, and nobody else may connect.
struct SocketFolder(PathBuf);

impl SocketFolder {
    fn new() -> Result<SocketFolder, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = std::env::temp_dir().join(format!("holdfast-{}-{now}", process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| format!("cannot make the folder {}: {e}", path.display()))?;
        Ok(SocketFolder(path))
    }

    fn path(&self) -> PathBuf {
        self.0.join("socket")
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // What is left of it does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
