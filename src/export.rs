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
    writer::{Newer, REDIS_7_0, REDIS_7_2, Writer},
};
use holdfast_store::{DATABASES, OpenError, Options, Store, Txn};
use std::{
    fs,
    io::{self, ErrorKind, Seek},
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
    let mut written = write(&store, &mut new.file, version);
    if let (Err(Failure::Newer { version: needed, .. }), None) = (&written, request.version) {
        version = *needed;
        new.begin_anew().map_err(|e| format!("{shown}: {e}"))?;
        written = write(&store, &mut new.file, version);
    }
    let finished = written.and_then(|summary| {
        new.finish(&request.file)?;
        Ok(summary)
    });
    let Summary { keys, libraries } = finished.map_err(|failure| match failure {
        Failure::Newer { key, version } => format!(
            "the value of the key \"{}\" needs version {version} of the format: a hash whose fields expire, which Redis has since 7.4",
            key.escape_ascii()
        ),
        Failure::Data(error) => check::describe(&dir, error),
        Failure::Value(what) => format!("{}: {what}", dir.display()),
        Failure::File(error) => format!("cannot write {shown}: {error}"),
    })?;
    println!("version of the format: {version}");
    println!("keys: {keys}");
    if libraries > 0 {
        println!("libraries of functions: {libraries}");
    }
    println!("ok");
    Ok(())
}

/// Writes everything as a file of a version.
fn write(store: &Store, file: &mut fs::File, version: u16) -> Result<Summary, Failure> {
    let mut writer = Writer::new(file, version);
    writer.aux("redis-ver", REDIS_VERSION)?;
    writer.aux("holdfast-ver", VERSION)?;
    writer.aux("ctime", &(store.now_ms() / 1000).to_string())?;
    let mut wrong = Vec::new();
    let libraries = library::sources(store, &mut wrong);
    if let Some(what) = wrong.pop() {
        return Err(Failure::Value(what));
    }
    for source in &libraries {
        writer.library(source)?;
    }
    let stream = if version > REDIS_7_0 { encode::stream_with_activity } else { encode::stream };
    let databases = || (0..DATABASES as u8).map(|logical| (logical, store.database(logical)));
    let all = databases().map(|(_, db)| store.len(db)).sum();
    let (mut keys, mut progress) = (0, Progress::counting("keys"));
    for (logical, db) in databases() {
        store.visit_keys(db, |txn, key| {
            progress.show(keys, all);
            let expires_ms = txn.expiry(db, key).flatten();
            // All its fields may have expired.
            let Some(payload) = payload(store, txn, db, key, stream)? else { return Ok(()) };
            keys += 1;
            let newer = |Newer(version)| Failure::Newer { key: key.to_vec(), version };
            writer.key(logical.into(), key, expires_ms, &payload)?.map_err(newer)
        })?;
    }
    progress.end();
    writer.finish()?;
    Ok(Summary { keys, libraries: libraries.len() })
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
    file: fs::File,
}

impl NewFile {
    fn create(place: &Path) -> Result<NewFile, String> {
        if place.exists() {
            return Err(format!("{} is there already", place.display()));
        }
        let mut path = place.as_os_str().to_os_string();
        path.push(".exporting");
        let path = PathBuf::from(path);
        let file = fs::File::create_new(&path).map_err(|e| match e.kind() {
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
        fs::File::open(parent)?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // It has another name if all went well.
        let _ = fs::remove_file(&self.path);
    }
}
