//! A data folder that goes on in further folders: files of one of its folders, those of the log, are spread over all, so that media
//! which each hold one give the sum of their rates and of their room (`docs/format.md`, "Further folders").
//!
//! A file may be in any of them, and is looked for when the data folder is opened. Each further folder has a file that says whose it
//! is, and the data folder has one that says where it is: so it is found again, and never taken for another one.
//!
//! One of them may lie *below* the others, on a slower medium: of new files those are made there whose names say so. One more file, which
//! is not spread, may be moved there.

use crate::{BLOCK, Durability, Error, File, FillFile, Io, ReadQueue, RealIo, Result, Scm, is_full, sealed};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::{self, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
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

/// What the data folder keeps for its small files in any case, of what is to be kept.
const HOME_RESERVE: u64 = 4 << 20;

/// The number of the folder below.
const BELOW: u32 = 0;

/// Which files of a data folder are spread.
#[derive(Clone, Copy, Debug)]
pub struct SpreadFiles {
    /// Their folder.
    pub folder: &'static str,
    /// Whether a new one with this name, that of its folder included, is made below.
    pub is_below: fn(&str) -> bool,
    /// One more file, of the data folder itself: it may lie below as well.
    pub other: Option<&'static str>,
}

/// A further folder, of which this is all that is known so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Further<P> {
    /// Where it is.
    pub path: P,
    /// Whether it lies below the others. At most one does.
    pub is_below: bool,
}

/// Opens a further folder, for this process only. It may make it, if that is said.
pub type OpenFolder<'a> = &'a dyn Fn(&Further<&str>, bool) -> Result<Arc<dyn Io>>;

/// Opens a data folder of the file system, with the further folders that it has, and those of `more` that are new; see
/// [`Spread::open`]. `new`: how a folder is opened that lies below, or does not.
pub fn open_folders(
    dir: &Path,
    more: &[Further<PathBuf>],
    files: SpreadFiles,
    new: &dyn Fn(&Path, bool) -> Result<RealIo>,
) -> Result<Arc<dyn Io>> {
    let locked = |dir: &Path, is_below| {
        let io = new(dir, is_below)?;
        io.lock()?;
        Ok(io)
    };
    let name = |dir: &Path| {
        let path = path::absolute(dir).map_err(|e| Error::io("find the folder", e))?;
        let text = path.to_str().filter(|text| text.len() <= PATH_MAX);
        text.map(str::to_owned).ok_or_else(|| Error::Unusable("its path is no text, or too long".to_owned()))
    };
    let home = Arc::new(locked(dir, false)?);
    let named = |more: &Further<PathBuf>| Ok(Further { path: name(&more.path)?, is_below: more.is_below });
    let more = more.iter().map(named).collect::<Result<Vec<_>>>()?;
    let open = |further: &Further<&str>, is_new: bool| -> Result<Arc<dyn Io>> {
        let path = Path::new(further.path);
        if !is_new && !path.is_dir() {
            let option = option(further.is_below);
            return Err(Error::Unusable(format!(
                "there is no such folder; if it was moved, name it by {option}"
            )));
        }
        Ok(Arc::new(locked(path, further.is_below)?))
    };
    Spread::open(home, &name(dir)?, files, &more, &open)
}

/// Opens a data folder of the file system that may be damaged, and those of its further folders that are there, only to read them. Says of
/// the others what is wrong.
pub fn open_damaged_folders(dir: &Path, files: SpreadFiles) -> Result<(Arc<dyn Io>, Vec<Error>)> {
    let open = |further: &Further<&str>, _| -> Result<Arc<dyn Io>> {
        if !Path::new(further.path).is_dir() {
            return Err(Error::Unusable("there is no such folder".to_owned()));
        }
        let io = RealIo::read_only(further.path);
        io.lock()?;
        Ok(Arc::new(io))
    };
    let home = RealIo::read_only(dir);
    home.lock()?;
    Spread::open_damaged(Arc::new(home), files, &open)
}

/// How a server's user names such a folder.
fn option(is_below: bool) -> &'static str {
    if is_below { "flash-dir" } else { "dir" }
}

/// What ties a further folder to its data folder; both have it.
#[derive(Clone, PartialEq, Eq)]
struct Tie {
    /// Random, the same for all folders of one data folder.
    id: [u8; 16],
    /// [`BELOW`], or from 1 on.
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
    /// Whether it lies below the others.
    pub is_below: bool,
    /// Files that are spread and lie there.
    pub files: usize,
    /// Bytes that its medium has left; `None`: it does not tell.
    pub free_bytes: Option<u64>,
}

/// A data folder and its further folders, while they are being opened.
struct Found {
    folders: Vec<Arc<dyn Io>>,
    paths: Vec<String>,
    below: Option<usize>,
}

impl Found {
    fn new(home: Arc<dyn Io>) -> Found {
        Found { folders: vec![home], paths: Vec::new(), below: None }
    }

    /// Adds the further folder with a number.
    fn push(&mut self, number: u32, io: Arc<dyn Io>, path: String) {
        if number == BELOW {
            self.below = Some(self.folders.len());
        }
        self.folders.push(io);
        self.paths.push(path);
    }

    fn spread(self, files: SpreadFiles) -> Result<Spread> {
        let Found { folders, paths, below } = self;
        let (places, refused, reserve, has_other_below) = Default::default();
        let file_bytes = AtomicU64::new(1);
        let spread =
            Spread { folders, paths, below, files, places, refused, reserve, file_bytes, has_other_below };
        spread.look().and_then(|_| spread.find_other()).map_err(|e| Error::io("list the data folder", e))?;
        Ok(spread)
    }
}

/// A data folder and its further folders.
pub struct Spread {
    /// The data folder first.
    folders: Vec<Arc<dyn Io>>,
    /// Paths of the others.
    paths: Vec<String>,
    /// Which of the folders lies below.
    below: Option<usize>,
    files: SpreadFiles,
    /// Where each file is.
    places: Mutex<BTreeMap<String, usize>>,
    /// The folders above that have refused a file, in the order in which they did so last, and how many files were removed there since: it is
    /// known that so many more have room there.
    refused: Mutex<Vec<(usize, i64)>>,
    /// Bytes that are not for such files, of the medium where the other file lies.
    reserve: AtomicU64,
    /// Bytes of a new file.
    file_bytes: AtomicU64,
    /// Whether that is below.
    has_other_below: AtomicBool,
}

impl Spread {
    /// Opens the further folders of the data folder `home`, which is at `path`, and takes those of `more` in that are new. Some of its
    /// files are spread from then on. Returns `home` itself, if there are no further folders. All paths are absolute.
    ///
    /// # Errors
    /// A further folder is missing, or another's, or has something in it already, or there is another one below; or a system error.
    pub fn open(
        home: Arc<dyn Io>,
        path: &str,
        files: SpreadFiles,
        more: &[Further<String>],
        open: OpenFolder<'_>,
    ) -> Result<Arc<dyn Io>> {
        if let Some(tie) = Tie::read(&*home, MARK)? {
            return Err(Error::Unusable(format!("it is a part of the data folder {}: open that", tie.path)));
        }
        let names = home.list("").map_err(|e| Error::io("list the data folder", e))?;
        let mut numbers: Vec<u32> =
            names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).collect();
        if numbers.is_empty() && more.is_empty() {
            return Ok(home);
        }
        numbers.sort_unstable();
        let mut given = Vec::new();
        for Further { path, is_below } in more {
            let further = Further { path: path.as_str(), is_below: *is_below };
            let io = open(&further, true).map_err(|e| within(path, e))?;
            let tie = Tie::read(&*io, MARK).map_err(|e| within(path, e))?;
            if tie.as_ref().is_some_and(|tie| (tie.number == BELOW) != *is_below) {
                let is = if *is_below { "is none that lies below" } else { "lies below the others" };
                return Err(Error::Unusable(format!("the further folder {path} {is}")));
            }
            given.push((further, io, tie));
        }
        let mut id = None;
        let mut found = Found::new(home.clone());
        for &number in &numbers {
            let name = format!("{PREFIX}{number}");
            let known = Tie::read(&*home, &name)?;
            let is_unfinished = Tie::is_unfinished(&*home, &name)?;
            id = id.or(known.as_ref().map(|tie| tie.id));
            let is_it = |tie: &Tie| tie.number == number && id.is_none_or(|id| tie.id == id);
            if let Some(at) = given.iter().position(|(_, _, tie)| tie.as_ref().is_some_and(is_it)) {
                // It may have moved, or the power went when it was taken in.
                let (Further { path, .. }, io, tie) = given.swap_remove(at);
                let tie = Tie { path: path.to_owned(), ..tie.expect("it has one") };
                id = Some(tie.id);
                if (is_unfinished || known.is_none_or(|known| known != tie)) && !home.is_read_only() {
                    tie.write(&*home, &name)?;
                }
                found.push(number, io, path.to_owned());
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
                let what = format!(
                    "it does not say where a further folder is: name that by {}",
                    option(number == BELOW)
                );
                return Err(Error::corrupt(&name, 0, what));
            };
            let further = Further { path: known.path.as_str(), is_below: number == BELOW };
            let io = open(&further, false).map_err(|e| within(&known.path, e))?;
            if !Tie::read(&*io, MARK)?.is_some_and(|tie| is_it(&tie)) {
                return Err(Error::Unusable(format!(
                    "its further folder is not at {} any more: name the folder where its files are by {}",
                    known.path,
                    option(further.is_below)
                )));
            }
            if is_unfinished && !home.is_read_only() {
                known.write(&*home, &name)?;
            }
            found.push(number, io, known.path);
        }
        for (Further { path: more, is_below }, io, tie) in given {
            let unusable = |what: &str| Err(Error::Unusable(format!("the further folder {more} {what}")));
            // It has a mark, and is not known here: then the power went when it was taken in.
            let is_ours = tie.is_none_or(|tie| Some(tie.id) == id || tie.path == path);
            let is_empty = ["", files.folder].iter().try_fold(true, |is_empty, folder| {
                let files = io.list(folder)?;
                Ok(is_empty && files.iter().all(|file| [MARK, "lock"].contains(&file.as_str())))
            });
            match is_empty.map_err(|e| within(more, Error::io("list it", e)))? {
                _ if home.is_read_only() => return unusable("is not one yet, and nothing may be written"),
                _ if !is_ours => return unusable("belongs to another data folder"),
                false => return unusable("is not empty"),
                true if is_below && found.below.is_some() => {
                    return unusable("cannot lie below: another one does");
                }
                true => {}
            }
            let id = *id.get_or_insert_with(|| {
                let mut id = [0; 16];
                home.random(&mut id);
                id
            });
            let number = if is_below { BELOW } else { numbers.last().map_or(1, |last| last + 1) };
            numbers.extend((!is_below).then_some(number));
            // First there: what the data folder names is always whole.
            let tie = Tie { id, number, path: path.to_owned() };
            tie.write(&*io, MARK).map_err(|e| within(more, e))?;
            Tie { path: more.to_owned(), ..tie }.write(&*home, &format!("{PREFIX}{number}"))?;
            found.push(number, io, more.to_owned());
        }
        Ok(Arc::new(found.spread(files)?))
    }

    /// Opens the further folders of a data folder that may be damaged, as far as they are there, and says of the others what is wrong.
    ///
    /// # Errors
    /// A system error, or a file is in two folders.
    pub fn open_damaged(
        home: Arc<dyn Io>,
        files: SpreadFiles,
        open: OpenFolder<'_>,
    ) -> Result<(Arc<dyn Io>, Vec<Error>)> {
        let names = home.list("").map_err(|e| Error::io("list the data folder", e))?;
        let (mut found, mut faults) = (Found::new(home.clone()), Vec::new());
        for name in names.iter().filter(|name| name.starts_with(PREFIX)) {
            let tie = match Tie::read(&*home, name)? {
                Some(tie) => tie,
                None => {
                    faults.push(Error::corrupt(name, 0, "it does not say where a further folder is"));
                    continue;
                }
            };
            let further = Further { path: tie.path.as_str(), is_below: tie.number == BELOW };
            let io = open(&further, false).and_then(|io| {
                let is_it = Tie::read(&*io, MARK)?.is_some_and(|other| other.id == tie.id);
                let gone = || Error::Unusable("the further folder is not there any more".to_owned());
                if is_it { Ok(io) } else { Err(gone()) }
            });
            match io {
                Ok(io) => found.push(tie.number, io, tie.path),
                Err(fault) => faults.push(within(&tie.path, fault)),
            }
        }
        if found.paths.is_empty() {
            return Ok((home, faults));
        }
        Ok((Arc::new(found.spread(files)?), faults))
    }

    /// Looks where each file is; their names.
    fn look(&self) -> io::Result<Vec<String>> {
        let mut places = BTreeMap::new();
        for (folder, io) in self.folders.iter().enumerate() {
            for name in io.list(self.files.folder)? {
                let name = format!("{}/{name}", self.files.folder);
                if places.insert(name.clone(), folder).is_some() {
                    let what = format!("{name} is in two folders");
                    return Err(io::Error::new(ErrorKind::InvalidData, what));
                }
            }
        }
        let names = places.keys().map(|name| name[self.files.folder.len() + 1..].to_owned()).collect();
        *self.places.lock() = places;
        Ok(names)
    }

    /// The folder in which the other file lies; the data folder, as long as there is none. If a move was interrupted, and it is in both, that
    /// is where it is.
    fn find_other(&self) -> io::Result<usize> {
        let (Some(below), Some(other)) = (self.below, self.files.other) else { return Ok(0) };
        let is_in = |folder: usize| match self.folders[folder].open(other, false) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            opened => opened.map(|_| true),
        };
        let is_below = !is_in(0)? && is_in(below)?;
        self.has_other_below.store(is_below, Relaxed);
        Ok(if is_below { below } else { 0 })
    }

    /// How many files of so many bytes a folder's medium says that it has room for; less than none, if some of the reserve is missing there.
    fn told_of(&self, folder: usize, reserve: u64, file_bytes: u64) -> io::Result<Option<i64>> {
        let of_other = if self.has_other_below.load(Relaxed) { self.below } else { Some(0) };
        let reserve = match folder {
            _ if of_other == Some(folder) => reserve,
            0 => reserve.min(HOME_RESERVE),
            _ => 0,
        };
        self.folders[folder].room_for_files(reserve, file_bytes)
    }

    /// The same as far as is known: of a folder that has refused a file, the medium's word is not taken.
    fn left_in(&self, folder: usize, reserve: u64, file_bytes: u64) -> io::Result<Option<i64>> {
        let told = self.told_of(folder, reserve, file_bytes)?;
        let refused = self.refused.lock();
        let known = refused.iter().find(|(refusing, _)| *refusing == folder).map(|(_, removed)| *removed);
        Ok(known.map(|known| told.map_or(known, |told| told.min(known))).or(told))
    }

    /// How many new files a folder has room for beside a reserve; as many as can be, if its medium does not tell.
    fn room(&self, folder: usize, reserve: u64) -> i64 {
        self.left_in(folder, reserve, self.file_bytes.load(Relaxed)).ok().flatten().unwrap_or(i64::MAX)
    }

    /// Notes that a folder has refused a file.
    fn refuse(&self, folder: usize) {
        let mut refused = self.refused.lock();
        refused.retain(|(refusing, _)| *refusing != folder);
        refused.push((folder, 0));
    }

    /// Counts files that were removed in a folder, or made there, since it has refused one.
    fn count_removed(&self, folder: usize, change: i64) {
        let mut refused = self.refused.lock();
        let known = refused.iter_mut().find(|(refusing, _)| *refusing == folder);
        known.into_iter().for_each(|(_, removed)| *removed = (*removed + change).max(0));
    }

    /// The folder that has refused a file longest ago, of those that say that they have room.
    fn refusing(&self) -> Option<usize> {
        let (reserve, file_bytes) = (self.reserve.load(Relaxed), self.file_bytes.load(Relaxed));
        let says_so = |folder: usize| {
            self.told_of(folder, reserve, file_bytes).is_ok_and(|told| told.is_none_or(|told| told > 0))
        };
        self.refused.lock().iter().map(|(folder, _)| *folder).find(|&folder| says_so(folder))
    }

    /// Opens or creates a file in a folder, and remembers that it is there.
    fn open_in(&self, folder: usize, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let file = self.folders[folder].open(name, create)?;
        if self.places.lock().insert(name.to_owned(), folder).is_none() {
            self.count_removed(folder, -1);
        }
        Ok(file)
    }

    /// The folders that do not lie below.
    fn above(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.folders.len()).filter(|folder| Some(*folder) != self.below)
    }

    /// The folder for a new file: the one with the fewest that has room, of those in which it may lie. Where none has room for a whole file
    /// but in its reserve, it comes out of that; `None`: not even there.
    fn choose(&self, name: &str) -> Option<usize> {
        if let Some(below) = self.below.filter(|_| (self.files.is_below)(name)) {
            return Some(below);
        }
        let places = self.places.lock();
        let folders = self.above();
        let count = |folder: usize| places.values().filter(|place| **place == folder).count();
        let roomy_min = ROOM_MIN.div_ceil(self.file_bytes.load(Relaxed)) as i64;
        let most = |reserve: u64| {
            let rooms = folders.clone().map(|folder| (self.room(folder, reserve), folder));
            rooms.filter(|(room, _)| *room > 0).max().map(|(_, folder)| folder)
        };
        let reserve = self.reserve.load(Relaxed);
        let roomy = folders.clone().filter(|&folder| self.room(folder, reserve) >= roomy_min);
        roomy.min_by_key(|&folder| count(folder)).or_else(|| most(reserve)).or_else(|| most(0))
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
        if self.files.other == Some(name) {
            return self.folders[self.find_other()?].open(name, create);
        }
        if !name.strip_prefix(self.files.folder).is_some_and(|name| name.starts_with('/')) {
            return self.folders[0].open(name, create);
        }
        let known = self.places.lock().get(name).copied();
        let chosen = || if create { self.choose(name) } else { None };
        self.open_in(known.or_else(chosen).unwrap_or(0), name, create)
    }

    fn create(&self, name: &str, again: bool, fill: FillFile<'_>) -> io::Result<Arc<dyn File>> {
        loop {
            let known = self.places.lock().get(name).copied();
            let chosen = || if again { self.refusing() } else { self.choose(name) };
            let folder = known.or_else(chosen).ok_or(ErrorKind::StorageFull)?;
            let file = self.open_in(folder, name, true).and_then(|file| fill(&*file).map(|()| file));
            match file {
                Err(e) if is_full(&e) && Some(folder) != self.below => {
                    match self.remove(name) {
                        Err(e) if e.kind() == ErrorKind::NotFound => {}
                        removed => removed?,
                    }
                    self.refuse(folder);
                    if again {
                        return Err(e);
                    }
                }
                Ok(_) if again => {
                    self.refused.lock().retain(|(refusing, _)| *refusing != folder);
                    return file;
                }
                _ => return file,
            }
        }
    }

    fn has_refused(&self) -> bool {
        self.refusing().is_some()
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
        if self.files.other == Some(name) {
            self.folders[self.find_other()?].remove(name)?;
            return self.find_other().map(drop);
        }
        let mut places = self.places.lock();
        let folder = places.get(name).copied().unwrap_or(0);
        self.folders[folder].remove(name)?;
        if places.remove(name).is_some() {
            self.count_removed(folder, 1);
        }
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        if folder == self.files.folder {
            return self.look();
        }
        let mut names = self.folders[0].list(folder)?;
        if folder.is_empty() && self.find_other()? != 0 {
            names.extend(self.files.other.map(str::to_owned));
            names.sort_unstable();
        }
        Ok(names)
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        let is_in =
            |at: usize| at == 0 || folder == self.files.folder || Some(at) == self.below && folder.is_empty();
        let mut folders = self.folders.iter().enumerate().filter(|(at, _)| is_in(*at));
        folders.try_for_each(|(_, io)| io.sync_dir(folder))
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.folders.iter().try_fold(Some(0u64), |sum, io| {
            Ok(sum.zip(io.free_bytes()?).map(|(sum, free)| sum.saturating_add(free)))
        })
    }

    fn room_for_files(&self, reserve: u64, file_bytes: u64) -> io::Result<Option<i64>> {
        self.reserve.store(reserve, Relaxed);
        self.file_bytes.store(file_bytes, Relaxed);
        let mut sum = 0i64;
        for folder in self.above() {
            // What the data folder lacks, no other one has for it; and no file lies in two of them.
            let Some(left) = self.left_in(folder, reserve, file_bytes)? else { return Ok(None) };
            sum = sum.saturating_add(left.max(0));
        }
        if sum == 0 { self.left_in(0, reserve, file_bytes) } else { Ok(Some(sum)) }
    }

    fn room_below(&self, reserve: u64, file_bytes: u64) -> io::Result<Option<i64>> {
        self.below.map_or(Ok(Some(0)), |below| self.left_in(below, reserve, file_bytes))
    }

    fn below(&self) -> Option<&dyn Io> {
        self.below.map(|below| &*self.folders[below])
    }

    fn is_below(&self, name: &str) -> bool {
        if self.files.other == Some(name) {
            return self.find_other().map_or(true, |folder| Some(folder) == self.below);
        }
        self.below.is_some() && self.places.lock().get(name).copied() == self.below
    }

    fn further_folders(&self) -> Vec<FolderUse> {
        let places = self.places.lock();
        let uses = (1..).zip(&self.paths).map(|(folder, path)| FolderUse {
            path: path.clone(),
            is_below: self.below == Some(folder),
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
