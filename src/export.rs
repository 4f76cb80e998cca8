//! `holdfast export`: what a data folder holds that no server uses, or a backup, or a server that runs, as an RDB file. All of them stay as
//! they are. A server that runs keeps its moment until all is written, which a process of its own reads where it lies, as for SYNC.
//!
//! The file is written beside its place, as `FILE.exporting`, and gets its name when all of it is durable. However large the data are, memory holds
//! [`MEMORY_BYTES`] of the index and the collections, one value, and places of values in the log.

use crate::util::console::outln;
use crate::{
    backup::{self, LOOK_EVERY, Pace, ServerLink},
    check,
    command::error::Stop,
    commands::dump::{EncodeStream, serialize},
    import::{Address, Login},
    script::library,
    server::exporter::{Exporter, Part, Teller},
    util::{
        progress::Progress,
        version::{REDIS_VERSION, VERSION},
    },
};
use holdfast_rdb::{
    encode,
    writer::{Newer, REDIS_7_0, REDIS_7_2, Writer, version_of},
};
use holdfast_store::{DATABASES, OpenError, Options, Plan, Store, Txn, Type};
use std::{
    fmt,
    fs::{self, File},
    io::{self, ErrorKind, Read, Seek, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};
use tokio::{runtime::Builder, time::timeout};

/// Bytes of RAM for pages of the heap, and copies of values, of which each is used once.
const MEMORY_BYTES: usize = 256 << 20;

/// What is to be exported, and to where.
pub struct Request {
    /// What is exported.
    pub from: Origin,
    /// A file that is not there yet.
    pub file: PathBuf,
    /// The version of the format; if there is none, 11, or 12 if a hash has fields that expire.
    pub version: Option<u16>,
}

/// What is exported.
pub enum Origin {
    /// A data folder that no server uses, or the last backup in a folder of backups.
    Folder(PathBuf),
    /// A server that runs on this machine.
    Server {
        /// Where it listens.
        address: Address,
        /// Who asks.
        login: Login,
        /// Bytes of the file that are written in a second at most.
        rate: Option<u64>,
    },
}

/// What a process of its own writes, for a client of SYNC or an export: the data of a server as they are at one moment, as an RDB file to the standard
/// output. The server keeps the moment meanwhile; a [`Plan`] on the standard input says what that is.
pub struct Moment {
    /// The server's data folder.
    pub dir: PathBuf,
    /// The version of the format; if there is none, 11, or 12 if a hash has fields that expire.
    pub version: Option<u16>,
    /// What is written.
    pub parts: Parts,
}

/// What is exported of all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Keys with their values.
    pub keys: bool,
    /// Libraries of functions.
    pub functions: bool,
}

const ALL: Parts = Parts { keys: true, functions: true };

/// What was exported.
struct Summary {
    version: u16,
    keys: u64,
    libraries: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version of the format: {}", self.version)?;
        writeln!(f, "keys: {}", self.keys)?;
        if self.libraries > 0 {
            writeln!(f, "libraries of functions: {}", self.libraries)?;
        }
        Ok(())
    }
}

/// Why nothing was exported.
enum Failure {
    /// A value needs a newer version of the format.
    Newer { key: Vec<u8>, version: u16 },
    /// The data cannot be read.
    Data(OpenError),
    /// A value is damaged.
    Value(String),
    /// The file cannot be written.
    File(io::Error),
}

impl Failure {
    fn describe(self, dir: &Path, cannot_write: &str) -> String {
        match self {
            Failure::Newer { key, version } => format!(
                "the value of the key \"{}\" needs version {version} of the format: a hash whose fields expire, which Redis has since 7.4",
                key.escape_ascii()
            ),
            Failure::Data(error) => check::describe(dir, error),
            Failure::Value(what) => format!("{}: {what}", dir.display()),
            Failure::File(error) => format!("{cannot_write}: {error}"),
        }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::Data(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::File(error)
    }
}

/// Exports, and prints what was exported.
pub fn export(request: &Request) -> Result<(), String> {
    match &request.from {
        Origin::Folder(dir) => export_folder(dir, request),
        Origin::Server { address, login, rate } => {
            let server = ServerLink::begin(address, login)?;
            export_server(server, Pace::new(*rate), request)
        }
    }
}

/// Exports a server that runs: a process reads what it keeps.
fn export_server(mut server: ServerLink, mut pace: Pace, request: &Request) -> Result<(), String> {
    let shown = request.file.display();
    let cannot_write = |e: io::Error| format!("cannot write {shown}: {e}");
    let mut new = NewFile::create(&request.file)?;
    server.open_source()?;
    let version = request.version.map_or("auto".to_owned(), |version| version.to_string());
    let process = Exporter::start(&server.dir, &version, "keys,functions", &server.plan);
    let mut process = process.map_err(|e| format!("cannot start a process: {e}"))?;
    let runtime = Builder::new_current_thread().enable_time().build().map_err(|e| e.to_string())?;
    let mut progress = Progress::counting("keys");
    let told = loop {
        let part = runtime.block_on(async { timeout(LOOK_EVERY, process.parts.recv()).await });
        match part {
            Err(_) => server.look().map_err(|e| e.to_string())?,
            Ok(Some(Part::Bytes(bytes))) => {
                new.file.write_all(&bytes).map_err(cannot_write)?;
                let waited = pace.wait(bytes.len() as u64, &mut || server.look());
                waited.map_err(|e| e.to_string())?;
            }
            Ok(Some(Part::Progress { done, all })) => progress.show(done, all),
            Ok(Some(Part::End(ended))) => {
                // Whether all was kept is asked in any case: if it was not, what was read may be anything.
                let kept = server.end().map_err(|e| e.to_string());
                break kept.and(ended)?;
            }
            Ok(None) => unreachable!("the thread tells of the end"),
        }
    };
    progress.end();
    new.finish(&request.file).map_err(cannot_write)?;
    outln!("{told}ok");
    Ok(())
}

/// Exports a folder that no server uses.
fn export_folder(dir: &Path, request: &Request) -> Result<(), String> {
    let shown = request.file.display();
    let options = Options { memory_bytes_max: MEMORY_BYTES, ..Options::default() };
    let open = if backup::is_folder_of_backups(dir) { backup::open_last } else { check::open };
    let store = open(dir, options)?;
    let mut new = NewFile::create(&request.file)?;
    store.verify_heap().map_err(|e| check::describe(dir, e))?;
    let mut version = request.version.unwrap_or(REDIS_7_2);
    let mut progress = Progress::counting("keys");
    let mut on_key = |done, all| progress.show(done, all);
    let mut written = write(&store, &mut new.file, version, ALL, &mut on_key);
    if let (Err(Failure::Newer { version: needed, .. }), None) = (&written, request.version) {
        version = *needed;
        new.begin_anew().map_err(|e| format!("{shown}: {e}"))?;
        written = write(&store, &mut new.file, version, ALL, &mut on_key);
    }
    progress.end();
    let finished = written.and_then(|summary| {
        new.finish(&request.file)?;
        Ok(summary)
    });
    let summary = finished.map_err(|failure| failure.describe(dir, &format!("cannot write {shown}")))?;
    outln!("{summary}ok");
    Ok(())
}

/// Writes a moment of a server, and tells on the standard error what was written.
pub fn export_moment(request: &Moment) -> Result<(), String> {
    let dir = &request.dir;
    // Who has started this process kills it if the file is wanted no more. If that one ends, nobody is left to write for.
    let parent_ends = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    parent_ends.map_err(|e| format!("prctl: {e}"))?;
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|e| format!("the plan: {e}"))?;
    let plan = Plan::decode(&text).map_err(|e| e.to_string())?;
    let view = plan.view(backup::open_data_folder(dir)?);
    let options = Options {
        background: false,
        memory_bytes_max: MEMORY_BYTES,
        on_unreadable: check::on_unreadable,
        ..Options::default()
    };
    let store = Store::open_on(view, options).map_err(|e| check::describe(dir, e))?;
    store.verify_heap().map_err(|e| check::describe(dir, e))?;
    let mut teller = Teller::new();
    let written = match request.version {
        Some(version) => Ok(version),
        None if request.parts.keys => version_needed(&store, &mut |done, all| teller.tell(done, all)),
        None => Ok(REDIS_7_2),
    };
    let written = written.and_then(|version| {
        // The standard output as Rust has it would look for the ends of lines.
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        write(&store, out, version, request.parts, &mut |done, all| teller.tell(done, all))
    });
    let summary = written.map_err(|failure| failure.describe(dir, "cannot send"))?;
    eprint!("{summary}");
    Ok(())
}

/// Writes everything as a file of a version. `on_key` is told before each key how many of how many are written.
fn write(
    store: &Store,
    file: impl Write,
    version: u16,
    parts: Parts,
    on_key: &mut dyn FnMut(u64, u64),
) -> Result<Summary, Failure> {
    let mut writer = Writer::new(file, version);
    writer.aux("redis-ver", REDIS_VERSION)?;
    writer.aux("holdfast-ver", VERSION)?;
    writer.aux("ctime", &(store.now_ms() / 1000).to_string())?;
    let mut wrong = Vec::new();
    let libraries = if parts.functions { library::sources(store, &mut wrong) } else { Vec::new() };
    if let Some(what) = wrong.pop() {
        return Err(Failure::Value(what));
    }
    for source in &libraries {
        writer.library(source)?;
    }
    let stream = if version > REDIS_7_0 { encode::stream_with_activity } else { encode::stream };
    let databases = parts.keys.then(|| databases(store));
    let databases = || databases.clone().into_iter().flatten();
    let all = databases().map(|(_, db)| store.len(db)).sum();
    let mut keys = 0;
    for (logical, db) in databases() {
        store.visit_keys(db, |txn, key| {
            on_key(keys, all);
            let expires_ms = txn.expiry(db, key).flatten();
            // All its fields may have expired.
            let Some(payload) = payload(store, txn, db, key, stream)? else { return Ok(()) };
            keys += 1;
            let newer = |Newer(version)| Failure::Newer { key: key.to_vec(), version };
            writer.key(logical.into(), key, expires_ms, &payload)?.map_err(newer)
        })?;
    }
    writer.finish()?;
    Ok(Summary { version, keys, libraries: libraries.len() })
}

fn databases(store: &Store) -> impl Iterator<Item = (u8, u8)> + Clone {
    (0..DATABASES as u8).map(|logical| (logical, store.database(logical)))
}

/// The oldest version of the format that has room for all values, from 11 on. `on_key` as for [`write`].
fn version_needed(store: &Store, on_key: &mut dyn FnMut(u64, u64)) -> Result<u16, Failure> {
    let mut version = REDIS_7_2;
    let all = databases(store).map(|(_, db)| store.len(db)).sum();
    let mut keys = 0;
    for (_, db) in databases(store) {
        store.visit_keys(db, |txn, key| {
            on_key(keys, all);
            keys += 1;
            // Of a hash a newer one may be needed.
            if version == REDIS_7_2
                && txn.type_of(db, key) == Some(Type::Hash)
                && let Some(payload) = payload(store, txn, db, key, encode::stream)?
            {
                version = version.max(version_of(&payload));
            }
            Ok::<(), Failure>(())
        })?;
    }
    Ok(version)
}

/// The value of a key. If it is not at hand, it is waited for: nobody else wants the partition.
fn payload(
    store: &Store,
    txn: &mut Txn,
    db: u8,
    key: &[u8],
    stream: EncodeStream,
) -> Result<Option<Vec<u8>>, Failure> {
    loop {
        match serialize(txn, db, key, stream) {
            Ok(payload) => return Ok(payload),
            Err(Stop::Cold(cold)) => txn.supply(vec![store.fetch(cold)]),
            Err(Stop::Error(text)) => {
                let (key, text) = (key.escape_ascii(), String::from_utf8_lossy(&text));
                return Err(Failure::Value(format!("the key \"{key}\": {text}")));
            }
            Err(Stop::LockBusy | Stop::Busy) => {
                unreachable!("nobody else uses the store, and nothing is written")
            }
        }
    }
}

/// A file that gets its name in the end; else it is removed.
struct NewFile {
    path: PathBuf,
    file: File,
}

impl NewFile {
    fn create(place: &Path) -> Result<NewFile, String> {
        if place.exists() {
            return Err(format!("{} is there already", place.display()));
        }
        let mut path = place.as_os_str().to_os_string();
        path.push(".exporting");
        let path = PathBuf::from(path);
        let file = File::create_new(&path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => format!(
                "{} is in the way: another export writes it, or one that was killed has left it; then remove it",
                path.display()
            ),
            _ => format!("cannot make the file {}: {e}", path.display()),
        })?;
        Ok(NewFile { path, file })
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()
    }

    fn finish(&self, place: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, place)?;
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It has another name if all went well.
        let _ = fs::remove_file(&self.path);
    }
}
