//! A data folder that goes on in further folders: files of one of its folders, those of the log, are spread over all, so that media
//! which each hold one give the sum of their rates and of their room (`docs/format.md`, "Further folders").
//!
//! A file may be in any of them, and is looked for when the data folder is opened. Each further folder has a file that says whose it
//! is, and the data folder has one that says where it is: so it is found again, and never taken for another one.

use crate::{BLOCK, Durability, Error, File, Io, ReadQueue, RealIo, Result, Scm, sealed};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::{self, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// In a further folder: whose it is.
const MARK: &str = "folder";
/// In the data folder: where the further folder with a number, from 1 on, is.
const PREFIX: &str = "folder-";
const MAGIC: &[u8; 8] = b"HFFOLDER";
/// Magic, id, number, length of the path.
const HEAD: usize = 32;
/// Bytes of a path, at most.
const PATH_MAX: usize = 4032;
/// New files are not put where there is less room than this, unless it is so everywhere.
const ROOM_MIN: u64 = 64 << 20;

/// Opens the folder with a path, for this process only. It may make it, if that is said.
pub type OpenFolder<'a> = &'a dyn Fn(&str, bool) -> Result<Arc<dyn Io>>;

/// Opens a data folder of the file system, with the further folders that it has, and those of `more` that are new; see
/// [`Spread::open`]. `new`: how a folder is opened.
pub fn open_folders(
    dir: &Path,
    more: &[PathBuf],
    spread: &str,
    new: &dyn Fn(&Path) -> Result<RealIo>,
) -> Result<Arc<dyn Io>> {
    let locked = |dir: &Path| {
        let io = new(dir)?;
        io.lock()?;
        Ok(io)
    };
    let name = |dir: &Path| {
        let path = path::absolute(dir).map_err(|e| Error::io("find the folder", e))?;
        let text = path.to_str().filter(|text| text.len() <= PATH_MAX);
        text.map(str::to_owned).ok_or_else(|| Error::Unusable("its path is no text, or too long".to_owned()))
    };
    let home = Arc::new(locked(dir)?);
    let more = more.iter().map(|dir| name(dir)).collect::<Result<Vec<_>>>()?;
    let open = |path: &str, is_new: bool| -> Result<Arc<dyn Io>> {
        let path = Path::new(path);
        if !is_new && !path.is_dir() {
            return Err(Error::Unusable(
                "there is no such folder; if it was moved, name it by dir".to_owned(),
            ));
        }
        Ok(Arc::new(locked(path)?))
    };
    Spread::open(home, &name(dir)?, spread, &more, &open)
}

/// Opens a data folder of the file system that may be damaged, and those of its further folders that are there, only to read them. Says of
/// the others what is wrong.
pub fn open_damaged_folders(dir: &Path, spread: &str) -> Result<(Arc<dyn Io>, Vec<Error>)> {
    let open = |path: &str, _| -> Result<Arc<dyn Io>> {
        if !Path::new(path).is_dir() {
            return Err(Error::Unusable("there is no such folder".to_owned()));
        }
        let io = RealIo::read_only(path);
        io.lock()?;
        Ok(Arc::new(io))
    };
    let home = RealIo::read_only(dir);
    home.lock()?;
    Spread::open_damaged(Arc::new(home), spread, &open)
}

/// What ties a further folder to its data folder; both have it.
#[derive(Clone, PartialEq, Eq)]
struct Tie {
    /// Random, the same for all folders of one data folder.
    id: [u8; 16],
    number: u32,
    /// Where the other one is.
    path: String,
}

impl Tie {
    /// Writes it durably, twice: as long as the second one is not begun, it is not there.
    fn write(&self, io: &dyn Io, name: &str) -> Result<()> {
        let mut block = sealed::begin(MAGIC);
        block[8..24].copy_from_slice(&self.id);
        block[24..28].copy_from_slice(&self.number.to_le_bytes());
        block[28..HEAD].copy_from_slice(&(self.path.len() as u32).to_le_bytes());
        block[HEAD..HEAD + self.path.len()].copy_from_slice(self.path.as_bytes());
        sealed::seal(&mut block);
        let failed = |e| Error::io(format!("write {name}"), e);
        let file = io.open(name, true).map_err(failed)?;
        file.write_at(&[&block], 0, Durability::Durable).map_err(failed)?;
        file.sync().and_then(|()| io.sync_dir("")).map_err(failed)?;
        file.write_at(&[&block], BLOCK as u64, Durability::Durable).map_err(failed)?;
        file.sync().map_err(failed)
    }

    /// Reads what a file says; `None`: it is not there, or says nothing.
    fn read(io: &dyn Io, name: &str) -> Result<Option<Tie>> {
        match Tie::read_at(io, name, 0)? {
            None => Tie::read_at(io, name, BLOCK as u64),
            tie => Ok(tie),
        }
    }

    /// Whether a file was not written to its end. If it says nothing either, the power went when it was written first.
    fn is_unfinished(io: &dyn Io, name: &str) -> Result<bool> {
        let len = io.open(name, false).and_then(|file| file.len());
        Ok(len.map_err(|e| Error::io(format!("read {name}"), e))? <= BLOCK as u64)
    }

    fn read_at(io: &dyn Io, name: &str, offset: u64) -> Result<Option<Tie>> {
        let Some(block) = sealed::read(io, name, offset, MAGIC)? else { return Ok(None) };
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let len = u32_at(28) as usize;
        if len > PATH_MAX {
            return Ok(None);
        }
        let path = String::from_utf8(block[HEAD..HEAD + len].to_vec());
        let id = block[8..24].try_into().expect("sixteen bytes");
        Ok(path.ok().map(|path| Tie { id, number: u32_at(24), path }))
    }
}

/// What a further folder holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderUse {
    /// Its absolute path.
    pub path: String,
    /// Files that are spread and lie there.
    pub files: usize,
    /// Bytes that its medium has left; `None`: it does not tell.
    pub free_bytes: Option<u64>,
}

/// A data folder and its further folders.
pub struct Spread {
    /// The data folder first.
    folders: Vec<Arc<dyn Io>>,
    /// Paths of the others.
    paths: Vec<String>,
    /// The folder whose files are spread, and a slash.
    prefix: String,
    /// Where each file is.
    places: Mutex<BTreeMap<String, usize>>,
    /// Bytes of the data folder's medium that are not for such files.
    reserve: AtomicU64,
}

impl Spread {
    /// Opens the further folders of the data folder `home`, which is at `path`, and takes those of `more` in that are new. The files of
    /// its folder `spread` are spread from then on. Returns `home` itself, if there are no further folders. All paths are absolute.
    ///
    /// # Errors
    /// A further folder is missing, or another's, or has something in it already; or a system error.
    pub fn open(
        home: Arc<dyn Io>,
        path: &str,
        spread: &str,
        more: &[String],
        open: OpenFolder<'_>,
    ) -> Result<Arc<dyn Io>> {
        if let Some(tie) = Tie::read(&*home, MARK)? {
            return Err(Error::Unusable(format!("it is a part of the data folder {}: open that", tie.path)));
        }
        let files = home.list("").map_err(|e| Error::io("list the data folder", e))?;
        let mut numbers: Vec<u32> =
            files.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).collect();
        if numbers.is_empty() && more.is_empty() {
            return Ok(home);
        }
        numbers.sort_unstable();
        let mut given = Vec::new();
        for path in more {
            let io = open(path, true).map_err(|e| within(path, e))?;
            let tie = Tie::read(&*io, MARK).map_err(|e| within(path, e))?;
            given.push((path, io, tie));
        }
        let mut id = None;
        let (mut folders, mut paths) = (vec![home.clone()], Vec::new());
        for &number in &numbers {
            let name = format!("{PREFIX}{number}");
            let known = Tie::read(&*home, &name)?;
            let is_unfinished = Tie::is_unfinished(&*home, &name)?;
            id = id.or(known.as_ref().map(|tie| tie.id));
            let is_it = |tie: &Tie| tie.number == number && id.is_none_or(|id| tie.id == id);
            if let Some(at) = given.iter().position(|(_, _, tie)| tie.as_ref().is_some_and(is_it)) {
                // It may have moved, or the power went when it was taken in.
                let (path, io, tie) = given.swap_remove(at);
                let tie = Tie { path: path.clone(), ..tie.expect("it has one") };
                id = Some(tie.id);
                if (is_unfinished || known.is_none_or(|known| known != tie)) && !home.is_read_only() {
                    tie.write(&*home, &name)?;
                }
                folders.push(io);
                paths.push(path.clone());
                continue;
            }
            let Some(known) = known else {
                if is_unfinished {
                    // It holds no file yet. Its number is not used again in this life.
                    if !home.is_read_only() {
                        home.remove(&name).map_err(|e| Error::io(format!("remove {name}"), e))?;
                    }
                    continue;
                }
                return Err(Error::corrupt(
                    &name,
                    0,
                    "it does not say where a further folder is: name that by dir",
                ));
            };
            let io = open(&known.path, false).map_err(|e| within(&known.path, e))?;
            if !Tie::read(&*io, MARK)?.is_some_and(|tie| is_it(&tie)) {
                return Err(Error::Unusable(format!(
                    "its further folder is not at {} any more: name the folder where its files are by dir",
                    known.path
                )));
            }
            if is_unfinished && !home.is_read_only() {
                known.write(&*home, &name)?;
            }
            folders.push(io);
            paths.push(known.path);
        }
        for (more, io, tie) in given {
            let unusable = |what: &str| Err(Error::Unusable(format!("the further folder {more} {what}")));
            // It has a mark, and is not known here: then the power went when it was taken in.
            let is_ours = tie.is_none_or(|tie| Some(tie.id) == id || tie.path == path);
            let is_empty = ["", spread].iter().try_fold(true, |is_empty, folder| {
                let files = io.list(folder)?;
                Ok(is_empty && files.iter().all(|file| [MARK, "lock"].contains(&file.as_str())))
            });
            match is_empty.map_err(|e| within(more, Error::io("list it", e)))? {
                _ if home.is_read_only() => return unusable("is not one yet, and nothing may be written"),
                _ if !is_ours => return unusable("belongs to another data folder"),
                false => return unusable("is not empty"),
                true => {}
            }
            let id = *id.get_or_insert_with(|| {
                let mut id = [0; 16];
                home.random(&mut id);
                id
            });
            let number = numbers.last().map_or(1, |last| last + 1);
            numbers.push(number);
            // First there: what the data folder names is always whole.
            let tie = Tie { id, number, path: path.to_owned() };
            tie.write(&*io, MARK).map_err(|e| within(more, e))?;
            Tie { path: more.clone(), ..tie }.write(&*home, &format!("{PREFIX}{number}"))?;
            folders.push(io);
            paths.push(more.clone());
        }
        let prefix = format!("{spread}/");
        let (places, reserve) = (Mutex::default(), AtomicU64::new(0));
        let spread = Spread { folders, paths, prefix, places, reserve };
        spread.look().map_err(|e| Error::io("list the data folder", e))?;
        Ok(Arc::new(spread))
    }

    /// Opens the further folders of a data folder that may be damaged, as far as they are there, and says of the others what is wrong.
    ///
    /// # Errors
    /// A system error, or a file is in two folders.
    pub fn open_damaged(
        home: Arc<dyn Io>,
        spread: &str,
        open: OpenFolder<'_>,
    ) -> Result<(Arc<dyn Io>, Vec<Error>)> {
        let files = home.list("").map_err(|e| Error::io("list the data folder", e))?;
        let (mut folders, mut paths, mut faults) = (vec![home.clone()], Vec::new(), Vec::new());
        for name in files.iter().filter(|name| name.starts_with(PREFIX)) {
            let tie = match Tie::read(&*home, name)? {
                Some(tie) => tie,
                None => {
                    faults.push(Error::corrupt(name, 0, "it does not say where a further folder is"));
                    continue;
                }
            };
            let io = open(&tie.path, false).and_then(|io| {
                let is_it = Tie::read(&*io, MARK)?.is_some_and(|other| other.id == tie.id);
                let gone = || Error::Unusable("the further folder is not there any more".to_owned());
                if is_it { Ok(io) } else { Err(gone()) }
            });
            match io {
                Ok(io) => {
                    folders.push(io);
                    paths.push(tie.path);
                }
                Err(fault) => faults.push(within(&tie.path, fault)),
            }
        }
        if paths.is_empty() {
            return Ok((home, faults));
        }
        let (prefix, places, reserve) = (format!("{spread}/"), Mutex::default(), AtomicU64::new(0));
        let spread = Spread { folders, paths, prefix, places, reserve };
        spread.look().map_err(|e| Error::io("list the data folder", e))?;
        Ok((Arc::new(spread), faults))
    }

    /// Looks where each file is; their names.
    fn look(&self) -> io::Result<Vec<String>> {
        let mut places = BTreeMap::new();
        for (folder, io) in self.folders.iter().enumerate() {
            for name in io.list(self.prefix.trim_end_matches('/'))? {
                if places.insert(format!("{}{name}", self.prefix), folder).is_some() {
                    let what = format!("{}{name} is in two folders", self.prefix);
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                }
            }
        }
        let names = places.keys().map(|name| name[self.prefix.len()..].to_owned()).collect();
        *self.places.lock() = places;
        Ok(names)
    }

    /// Bytes that files may take in a folder; as many as can be, if its medium does not tell.
    fn room(&self, folder: usize) -> u64 {
        let reserve = if folder == 0 { self.reserve.load(Relaxed) } else { 0 };
        let free = self.folders[folder].free_bytes().ok().flatten();
        free.map_or(u64::MAX, |free| free.saturating_sub(reserve))
    }

    /// The folder for a new file: the one with the fewest that has room.
    fn choose(&self, places: &BTreeMap<String, usize>) -> usize {
        let folders = 0..self.folders.len();
        let count = |folder: usize| places.values().filter(|place| **place == folder).count();
        let roomy = folders.clone().filter(|&folder| self.room(folder) >= ROOM_MIN);
        let chosen = roomy.min_by_key(|&folder| count(folder));
        chosen.or(folders.max_by_key(|&folder| self.room(folder))).expect("there is the data folder")
    }
}

/// Says of an error which folder it is about.
fn within(path: &str, error: Error) -> Error {
    match error {
        Error::Io { what, source } => Error::io(format!("{what} ({path})"), source),
        Error::Unusable(what) => Error::Unusable(format!("{path}: {what}")),
        other => other,
    }
}

impl Io for Spread {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        if !name.starts_with(&self.prefix) {
            return self.folders[0].open(name, create);
        }
        let mut places = self.places.lock();
        let known = places.get(name).copied();
        let folder = known.unwrap_or_else(|| if create { self.choose(&places) } else { 0 });
        let file = self.folders[folder].open(name, create)?;
        places.insert(name.to_owned(), folder);
        Ok(file)
    }

    fn scm(&self) -> Option<&Scm> {
        self.folders[0].scm()
    }

    fn fence(&self) -> io::Result<()> {
        // That of a thread is for all that it has stored, wherever.
        self.folders[0].fence()
    }

    fn identity(&self, name: &str) -> io::Result<Option<[u8; 16]>> {
        self.folders[0].identity(name)
    }

    fn is_read_only(&self) -> bool {
        self.folders[0].is_read_only()
    }

    fn unlock(&self) {
        self.folders.iter().for_each(|folder| folder.unlock());
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut places = self.places.lock();
        self.folders[places.get(name).copied().unwrap_or(0)].remove(name)?;
        places.remove(name);
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        if format!("{folder}/") == self.prefix { self.look() } else { self.folders[0].list(folder) }
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        let all = if format!("{folder}/") == self.prefix { &self.folders[..] } else { &self.folders[..1] };
        all.iter().try_for_each(|io| io.sync_dir(folder))
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.folders.iter().try_fold(Some(0u64), |sum, io| {
            Ok(sum.zip(io.free_bytes()?).map(|(sum, free)| sum.saturating_add(free)))
        })
    }

    fn room_for_files(&self, reserve: u64) -> io::Result<Option<u64>> {
        self.reserve.store(reserve, Relaxed);
        if self.free_bytes()?.is_none() {
            return Ok(None);
        }
        Ok(Some((0..self.folders.len()).fold(0, |sum: u64, folder| sum.saturating_add(self.room(folder)))))
    }

    fn further_folders(&self) -> Vec<FolderUse> {
        let places = self.places.lock();
        let uses = (1..).zip(&self.paths).map(|(folder, path)| FolderUse {
            path: path.clone(),
            files: places.values().filter(|place| **place == folder).count(),
            free_bytes: self.folders[folder].free_bytes().ok().flatten(),
        });
        uses.collect()
    }

    fn read_queue(&self, depth: u32) -> io::Result<ReadQueue> {
        self.folders[0].read_queue(depth)
    }

    fn now_ms(&self) -> u64 {
        self.folders[0].now_ms()
    }

    fn about_now_ms(&self) -> u64 {
        self.folders[0].about_now_ms()
    }

    fn monotonic_us(&self) -> u64 {
        self.folders[0].monotonic_us()
    }

    fn random(&self, buf: &mut [u8]) {
        self.folders[0].random(buf);
    }
}
