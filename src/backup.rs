//! `holdfast backup`, `holdfast restore`, and the check of a folder of backups.
//!
//! The server keeps one moment of its data folder for as long as a connection lasts; this process copies it, with its own rights, and
//! at the rate that it is told. See `docs/operations.md`.

use crate::util::console::outln;
use crate::{
    check,
    import::{Address, Connection, Login},
    util::progress::Progress,
};
use holdfast_resp::Reply;
use holdfast_store::{
    BackupFolder, BackupInfo, BackupWritten, Io, OpenError, Options, Plan, RealIo, Store, Until,
    folders_in_use,
};
use jiff::Timestamp;
use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// How long a server may be silent: BACKUP BEGIN waits for a checkpoint.
const PATIENCE: Duration = Duration::from_secs(300);
/// How much of the time for which nothing was copied is made up for.
const LATE_MAX: Duration = Duration::from_millis(20);
/// Of a process: `nice -n 19`.
const LOWEST_PRIORITY: i32 = 19;
/// How often the server is asked whether it is there.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is to be backed up, and to where.
pub struct BackupRequest {
    /// Where the server listens.
    pub from: Address,
    /// Who asks.
    pub login: Login,
    /// A folder of backups, or a new one.
    pub dir: PathBuf,
    /// Bytes a second that are copied at most.
    pub rate: Option<u64>,
}

/// What is to be restored, and to where.
pub struct RestoreRequest {
    /// A folder of backups.
    pub from: PathBuf,
    /// The new data folder.
    pub dir: PathBuf,
    /// What of it.
    pub what: Restored,
}

/// What is restored.
pub enum Restored {
    /// The last backup.
    Last,
    /// The backup with this number.
    Number(u32),
    /// The last state up to a point in time.
    Until(Until),
}

/// Takes a backup, and prints what it is.
pub fn backup(request: &BackupRequest) -> Result<(), String> {
    let written = take(request)?;
    let BackupInfo { number, moment, bytes, .. } = written.info;
    outln!("backup: {number}");
    outln!("moment: LSN {moment}");
    outln!("bytes: {bytes}, of which {} were written", written.bytes_written);
    outln!("ok");
    Ok(())
}

/// Takes a backup; what was written.
fn take(request: &BackupRequest) -> Result<BackupWritten, String> {
    let shown = request.dir.display();
    let unusable = |error: OpenError| format!("{shown}: {error}");
    // Before the server is asked to keep anything.
    check_folder(&request.dir)?;
    let target = RealIo::new(&request.dir).and_then(|io| io.lock().map(|()| io)).map_err(unusable)?;
    let mut folder = BackupFolder::open(Arc::new(target)).map_err(unusable)?;
    let mut server = ServerLink::begin(&request.from, &request.login)?;
    let source = server.open_source()?;
    let plan = server.plan.clone();
    let mut pace = Pace::new(request.rate);
    let written = {
        let server = std::cell::RefCell::new(&mut server);
        folder.write(
            source,
            &plan,
            &mut |bytes| pace.wait(bytes, &mut || server.borrow_mut().look()),
            &mut || server.borrow_mut().end(),
        )
    };
    written.map_err(|error| match server.end() {
        // What was copied is no moment, and so may fail any check.
        Err(lost) if !server.has_ended && matches!(error, OpenError::Corrupt { .. }) => lost.to_string(),
        _ => unusable(error),
    })
}

/// Refuses a folder that has something else in it than backups.
fn check_folder(dir: &Path) -> Result<(), String> {
    let ours = ["backup-", "heap-", "segment-", "dictionary-"];
    let is_ours = |name: &str| name == "lock" || ours.iter().any(|start| name.starts_with(start));
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| format!("{}: {e}", dir.display()))?,
    };
    for entry in entries {
        let name = entry.map_err(|e| format!("{}: {e}", dir.display()))?.file_name();
        if !name.to_str().is_some_and(is_ours) || dir.join("superblock").exists() {
            let (shown, name) = (dir.display(), name.to_string_lossy());
            return Err(format!("{shown} is not a folder of backups, and not empty: it has {name}"));
        }
    }
    Ok(())
}

/// The server that keeps a moment.
pub struct ServerLink {
    connection: Connection,
    address: String,
    /// Its data folder.
    pub dir: String,
    /// What makes the moment.
    pub plan: Plan,
    looked: Instant,
    has_ended: bool,
}

impl ServerLink {
    /// Has a server keep a moment. Lowers the priority of this process.
    pub fn begin(from: &Address, login: &Login) -> Result<ServerLink, String> {
        let address = from.to_string();
        let failed = |e: io::Error| format!("cannot back up {address}: {e}");
        let connection = from.connect(PATIENCE).and_then(|it| it.log_in(login));
        let mut connection = connection.map_err(failed)?;
        let reply = connection.call(&[b"BACKUP", b"BEGIN"]).map_err(failed)?;
        let text = |reply: &Reply| String::from_utf8(reply.as_bytes()?.to_vec()).ok();
        let parts = match &reply {
            Reply::Array(parts) => parts.iter().map(text).collect::<Option<Vec<_>>>(),
            _ => None,
        };
        let Some([dir, plan]) = parts.and_then(|parts| <[String; 2]>::try_from(parts).ok()) else {
            return Err(format!("{address} is no Holdfast that can be backed up"));
        };
        let plan = Plan::decode(&plan).map_err(|e| format!("{address}: {e}"))?;
        // What is done from here on takes processors that the server's clients may wait for. The lowest priority is had by anyone.
        let _ = rustix::process::nice(LOWEST_PRIORITY);
        Ok(ServerLink { connection, address, dir, plan, looked: Instant::now(), has_ended: false })
    }

    /// The server's data folder, which this process only reads.
    pub fn open_source(&self) -> Result<Arc<dyn Io>, String> {
        let dir = Path::new(&self.dir);
        if !dir.join("superblock").is_file() {
            return Err(format!(
                "there is no data folder {}, which {} has: run this on the same machine, with its rights",
                self.dir, self.address
            ));
        }
        open_data_folder(dir)
    }

    /// Whether the server is there, and keeps the moment still. That it hears of us keeps it from closing the connection, too.
    pub fn look(&mut self) -> Result<(), OpenError> {
        if self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        self.call(&[b"PING"])
    }

    /// Asks whether everything was kept.
    pub fn end(&mut self) -> Result<(), OpenError> {
        self.call(&[b"BACKUP", b"END"])?;
        self.has_ended = true;
        Ok(())
    }

    fn call(&mut self, args: &[&[u8]]) -> Result<(), OpenError> {
        match self.connection.call(args) {
            Ok(_) => Ok(()),
            Err(e) => Err(OpenError::Unusable(format!("the server {}: {e}", self.address))),
        }
    }
}

/// Opens the folder of a server that runs, with all further ones that it has, only to read them.
pub fn open_data_folder(dir: &Path) -> Result<Arc<dyn Io>, String> {
    folders_in_use(dir).map_err(|e| format!("{}: {e}", dir.display()))
}

/// How fast is copied.
pub struct Pace {
    rate: Option<u64>,
    /// When what was copied so far may be done.
    due: Instant,
}

impl Pace {
    /// So many bytes a second at most.
    pub fn new(rate: Option<u64>) -> Pace {
        Pace { rate, due: Instant::now() }
    }

    /// Waits until so many bytes more may be done; calls `look` meanwhile. Time that passed without any is not made up for: a burst
    /// would hold up the server's clients.
    pub fn wait(
        &mut self,
        bytes: u64,
        look: &mut dyn FnMut() -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        look()?;
        let Some(rate) = self.rate else { return Ok(()) };
        let now = Instant::now();
        self.due = self.due.max(now.checked_sub(LATE_MAX).unwrap_or(now));
        self.due += Duration::from_secs_f64(bytes as f64 / rate as f64);
        loop {
            let left = self.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK_EVERY));
            look()?;
        }
    }
}

/// Whether a folder has backups, sound or not.
pub fn is_folder_of_backups(dir: &Path) -> bool {
    dir.is_dir()
        && !dir.join("superblock").exists()
        && BackupFolder::open(Arc::new(RealIo::read_only(dir))).is_ok_and(|folder| folder.has_any())
}

/// Opens a backup to read it.
fn open(folder: &BackupFolder, number: u32, dir: &Path, options: Options) -> Result<Store, String> {
    let options = Options { background: false, on_unreadable: check::on_unreadable, ..options };
    let opened = folder.view(number).and_then(|view| Store::open_on(view, options));
    opened.map_err(|error| check::describe(dir, error))
}

/// Opens the last backup of a folder to read it.
pub fn open_last(dir: &Path, options: Options) -> Result<Store, String> {
    let folder = open_folder(dir)?;
    let last = folder.backups().last().map(|backup| backup.number);
    open(&folder, last.ok_or_else(|| format!("{} has no sound backup", dir.display()))?, dir, options)
}

/// Opens a folder of backups to read it, which others may do at the same time, but nobody may write to it.
fn open_folder(dir: &Path) -> Result<BackupFolder, String> {
    let unusable = |error: OpenError| format!("{}: {error}", dir.display());
    if !is_folder_of_backups(dir) {
        return Err(format!("{} has no backups", dir.display()));
    }
    let io = RealIo::read_only(dir);
    io.lock().map_err(unusable)?;
    BackupFolder::open(Arc::new(io)).map_err(unusable)
}

/// Verifies all backups of a folder, and prints what they are.
pub fn check(dir: &Path) -> Result<(), String> {
    let damaged = |error: OpenError| {
        format!("{error}\nA backup in {} is damaged, or a file of it is missing.", dir.display())
    };
    let mut folder = open_folder(dir)?;
    let (mut progress, mut done) = (Progress::new(), 0);
    let verified = folder.verify(&mut |bytes, all| {
        done += bytes;
        progress.show(done, all);
        Ok(())
    });
    progress.end();
    verified.map_err(damaged)?;
    for number in folder.unfinished() {
        outln!("note: backup-{number} was not written to its end, and counts for nothing");
    }
    if folder.backups().is_empty() {
        return Err(format!("{} has no sound backup", dir.display()));
    }
    for BackupInfo { number, taken_ms, moment, bytes } in folder.backups() {
        let taken = Timestamp::from_millisecond(taken_ms as i64).unwrap_or_default();
        outln!("backup {number}: taken {taken:.0}, LSN {moment}, {bytes} bytes");
        let view = folder.view(number).map_err(damaged)?;
        let options =
            Options { background: false, on_unreadable: check::on_unreadable, ..Options::default() };
        let report = Store::open_on(view, options).and_then(|store| store.check()).map_err(damaged)?;
        outln!("backup {number}: {} keys, {} items", report.keys, report.items);
    }
    for (number, from, to) in folder.ranges() {
        outln!("backup {number}: a state from LSN {from} to {to} can be restored");
    }
    outln!("ok");
    Ok(())
}

/// Makes a data folder of a backup, and prints which.
pub fn restore(request: &RestoreRequest) -> Result<(), String> {
    let (from, dir) = (request.from.display(), request.dir.display());
    let folder = open_folder(&request.from)?;
    let last = folder.backups().last().map(|backup| backup.number);
    let none = || format!("{from} has no sound backup");
    let point = match request.what {
        Restored::Until(until) => Some(folder.find(until).map_err(|e| format!("{from}: {e}"))?),
        _ => None,
    };
    let number = match (&request.what, &point) {
        (_, Some(point)) => point.number,
        (Restored::Number(number), _) => *number,
        _ => last.ok_or_else(none)?,
    };
    if point.is_none() {
        // Before a folder is made, on which a server would start without data.
        folder.find_files(number).map_err(|e| format!("{from}: {e}"))?;
    }
    if fs::read_dir(&request.dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{dir} is not empty: a restore makes a new data folder"));
    }
    let failed = |error: OpenError| match error {
        OpenError::Corrupt { .. } => {
            format!("{error}\nBackup {number} in {from} is damaged; {dir} is no data folder: remove it.")
        }
        error => format!("{error}\n{dir} is no data folder: remove it."),
    };
    let target = RealIo::new(&request.dir).and_then(|io| io.lock().map(|()| io)).map_err(failed)?;
    let (mut progress, mut done) = (Progress::new(), 0);
    let of_backup =
        || folder.backups().iter().find(|backup| backup.number == number).map_or(0, |it| it.bytes);
    let all = point.as_ref().map_or_else(of_backup, |point| point.bytes);
    let on_step = &mut |bytes| {
        done += bytes;
        progress.show(done, all);
        Ok(())
    };
    let restored = match &point {
        Some(point) => folder.restore_point(point, &target, on_step),
        None => folder.restore(number, &target, on_step),
    };
    progress.end();
    restored.map_err(failed)?;
    outln!("backup: {number}");
    if let Some(point) = point {
        outln!("moment: LSN {}", point.lsn);
    }
    outln!("bytes: {done}");
    outln!("ok");
    Ok(())
}
