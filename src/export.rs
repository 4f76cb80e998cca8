//! `holdfast export`: what a data folder holds that no server uses, or a backup, or a server that runs, as an RDB file. All of them stay as
//! they are. Of a server that runs a backup is taken first, beside the file, as `FILE.exporting-backup`: so the server has to keep its
//! moment only while that is copied, however long the rest takes.
//!
//! The file is written beside its place, as `FILE.exporting`, and gets its name when all of it is durable. Memory holds the index, the
//! collections that are in the heap, and one value at a time.

use crate::{
    backup::{self, BackupRequest},
    check,
    command::error::Stop,
    commands::dump::{EncodeStream, serialize},
    import::{Address, Login},
    script::library,
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
    fs::{self, File},
    io::{self, ErrorKind, Read, Seek, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

/// Bytes of RAM for copies of values, of which each is used once.
const MEMORY_BYTES: usize = 64 << 20;

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
        /// Bytes a second that are copied at most.
        rate: Option<u64>,
    },
}

/// What a server has a process of its own write, for a client of SYNC: its data as they are at one moment, as an RDB file to the standard
/// output. It keeps the moment meanwhile, and says by a [`Plan`] on the standard input what that is.
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
#[derive(Default)]
struct Summary {
    keys: u64,
    libraries: usize,
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
    let shown = request.file.display();
    let options = Options { memory_bytes_max: MEMORY_BYTES, ..Options::default() };
    let (dir, _copy, store, mut new);
    match &request.from {
        Origin::Folder(folder) => {
            dir = folder.clone();
            let open = if backup::is_folder_of_backups(&dir) { backup::open_last } else { check::open };
            store = open(&dir, options)?;
            new = NewFile::create(&request.file)?;
        }
        Origin::Server { address, login, rate } => {
            // Whoever writes the file owns the copy, too.
            new = NewFile::create(&request.file)?;
            let copy = Copy::new(&request.file);
            dir = copy.0.clone();
            let (from, login) = (address.clone(), login.clone());
            let request = BackupRequest { from, login, dir: dir.clone(), rate: *rate };
            let (folder, written) = backup::take(&request)?;
            store = backup::open(&folder, written.info.number, &dir, options)?;
            _copy = copy;
        }
    }
    store.load_everything().map_err(|e| check::describe(&dir, e))?;
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
    let Summary { keys, libraries } =
        finished.map_err(|failure| failure.describe(&dir, &format!("cannot write {shown}")))?;
    println!("version of the format: {version}");
    println!("keys: {keys}");
    if libraries > 0 {
        println!("libraries of functions: {libraries}");
    }
    println!("ok");
    Ok(())
}

/// Writes a moment of a server, which says what it is and waits for what comes.
pub fn export_moment(request: &Moment) -> Result<(), String> {
    let dir = &request.dir;
    // The server kills this process if its client goes. If it ends itself, nobody is left to write for.
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
    store.load_everything().map_err(|e| check::describe(dir, e))?;
    let written = match request.version {
        Some(version) => Ok(version),
        None if request.parts.keys => version_needed(&store),
        None => Ok(REDIS_7_2),
    };
    let written = written.and_then(|version| {
        // The standard output as Rust has it would look for the ends of lines.
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        write(&store, out, version, request.parts, &mut |_, _| ())
    });
    written.map(drop).map_err(|failure| failure.describe(dir, "cannot send"))
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
    Ok(Summary { keys, libraries: libraries.len() })
}

fn databases(store: &Store) -> impl Iterator<Item = (u8, u8)> + Clone {
    (0..DATABASES as u8).map(|logical| (logical, store.database(logical)))
}

/// The oldest version of the format that has room for all values, from 11 on.
fn version_needed(store: &Store) -> Result<u16, Failure> {
    let mut version = REDIS_7_2;
    for (_, db) in databases(store) {
        store.visit_keys(db, |txn, key| {
            // Of a hash a newer one may be needed.
            if version == REDIS_7_2 && txn.type_of(db, key) == Some(Type::Hash) {
                if let Some(payload) = payload(store, txn, db, key, encode::stream)? {
                    version = version.max(version_of(&payload));
                }
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

/// The copy of a server's data that is exported. It is removed in the end.
struct Copy(PathBuf);

impl Copy {
    fn new(file: &Path) -> Copy {
        let mut path = file.as_os_str().to_os_string();
        path.push(".exporting-backup");
        Copy(path.into())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            if error.kind() != ErrorKind::NotFound {
                eprintln!("cannot remove {}: {error}", self.0.display());
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
