//! `holdfast check --salvage`: copies what is intact in a damaged data folder into a new one, and tells what is not. The damaged folder stays
//! as it is.
//!
//! Keys of which it cannot be proved that they are as they were go into a data folder of their own, [`UNCERTAIN`] in the new one: to be looked
//! at, and never to be taken for what was there.

use crate::util::console::outln;
use crate::util::progress::Progress;
use holdfast_store::{
    Appendfsync, DATABASES, Doubt, End, Finding, LostKey, OpenError, Options, SYSTEM_DATABASE, SalvagedKey,
    Store, damaged_folders, salvage,
};
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// The folder of keys that are not proved to be as they were.
const UNCERTAIN: &str = "may-be-older";
/// Where in it both are made.
const UNFINISHED: &str = "unfinished";
/// Bytes of RAM for what is written to a new folder.
const MEMORY_BYTES: usize = 256 << 20;

/// A damaged data folder, and where to what is intact goes.
pub struct SalvageRequest {
    /// The damaged data folder.
    pub dir: PathBuf,
    /// The new data folder.
    pub to: PathBuf,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Salvaged {
    /// Everything.
    All,
    /// Something is lost, or may be older.
    Part,
}

/// A data folder that is being made.
struct Target {
    dir: PathBuf,
    store: Store,
    keys: u64,
}

/// Counts of what was told.
#[derive(Default)]
struct Counts {
    damage: u64,
    is_older: bool,
    lost: u64,
}

/// Copies what is intact, and prints what is not.
pub fn run(request: &SalvageRequest) -> Result<Salvaged, String> {
    let (dir, to) = (&request.dir, &request.to);
    if !dir.is_dir() {
        return Err(format!("{} is no folder", dir.display()));
    }
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{} is not empty: what is intact goes into a new data folder", to.display()));
    }
    // What is not all there is not to be taken for a data folder.
    let unfinished = to.join(UNFINISHED);
    fs::create_dir_all(&unfinished).map_err(|e| format!("{}: {e}", unfinished.display()))?;
    let copied = copy(dir, &unfinished, to);
    if copied.is_err() {
        let _ = fs::remove_dir_all(&unfinished);
    }
    copied
}

/// Copies into a folder, and puts it in its place.
fn copy(dir: &Path, unfinished: &Path, to: &Path) -> Result<Salvaged, String> {
    let failed = |error: OpenError| format!("{}: {error}", dir.display());
    let (io, faults) = damaged_folders(dir).map_err(failed)?;
    let (mut intact, mut uncertain) = (None, None);
    let (mut counts, mut progress) = (Counts::default(), Progress::counting("keys"));
    for fault in faults {
        counts.damage += 1;
        outln!("damaged: {fault}");
    }
    // Why a new folder cannot be written, which is no fault of the damaged one.
    let mut unwritten = None;
    let told = salvage(io, Options::default().heap_bytes_max, &mut |finding| {
        let put = match finding {
            Finding::Intact(key) => {
                let keys = put(&mut intact, unfinished, &key, &mut counts);
                keys.map(|keys| progress.show(keys, keys))
            }
            Finding::Uncertain { key, doubt, at } => {
                outln!("may be older: {}: {} ({} at offset {})", name(&key), reason(doubt), at.0, at.1);
                put(&mut uncertain, &unfinished.join(UNCERTAIN), &key, &mut counts).map(drop)
            }
            Finding::Damage(error) => {
                counts.damage += 1;
                outln!("damaged: {error}");
                Ok(())
            }
            Finding::End(end) => {
                counts.is_older |= end.hole.is_some();
                tell_end(&end);
                Ok(())
            }
            Finding::Lost(lost) => {
                counts.lost += 1;
                outln!("lost: {}", describe(&lost));
                Ok(())
            }
            Finding::LostEntries { db, keys } => {
                counts.lost += keys;
                outln!(
                    "lost: {}: {keys} keys, whose entries were in damaged pages of the index",
                    database(Some(db))
                );
                Ok(())
            }
        };
        put.map_err(|error| {
            unwritten = Some(error);
            OpenError::Unusable(String::new())
        })
    });
    progress.end();
    if let Some(error) = unwritten {
        return Err(error);
    }
    told.map_err(failed)?;
    let intact = intact.map_or_else(|| Target::create(unfinished), Ok)?;
    let keys = intact.keys;
    intact.finish()?;
    let may_be_older = uncertain.as_ref().map_or(0, |uncertain: &Target| uncertain.keys);
    uncertain.map_or(Ok(()), Target::finish)?;
    put_in_place(unfinished, to).map_err(|e| format!("cannot write {}: {e}", to.display()))?;
    outln!("keys that are intact: {keys}, now in {}", to.display());
    if may_be_older > 0 {
        let shown = to.join(UNCERTAIN).display().to_string();
        outln!("keys that may be older, or were deleted: {may_be_older}, now in {shown}");
    }
    if counts.lost > 0 {
        outln!("keys that are lost: at least {}", counts.lost);
    }
    if counts.lost == 0 && may_be_older == 0 && counts.damage == 0 && !counts.is_older {
        outln!("ok");
        return Ok(Salvaged::All);
    }
    Ok(Salvaged::Part)
}

impl Target {
    fn create(dir: &Path) -> Result<Target, String> {
        let options = Options {
            memory_bytes_max: MEMORY_BYTES,
            // At the end all is made durable.
            appendfsync: Appendfsync::No,
            ..Options::default()
        };
        let store = Store::open(dir, options).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Target { dir: dir.to_owned(), store, keys: 0 })
    }

    /// Puts a key in, unless its value contradicts itself.
    fn put(&mut self, key: &SalvagedKey, counts: &mut Counts) -> Result<(), String> {
        let put = self.store.put_salvaged(key);
        if put.map_err(|e| format!("cannot write {}: {e}", self.dir.display()))? {
            self.keys += 1;
        } else {
            counts.lost += 1;
            outln!("lost: {}: its value contradicts itself", name(key));
        }
        Ok(())
    }

    fn finish(self) -> Result<(), String> {
        self.store.close().map_err(|e| format!("cannot write {}: {e}", self.dir.display()))
    }
}

/// Moves what a folder has into the one that it is in. A data folder is one by its superblock, which is the last.
fn put_in_place(from: &Path, to: &Path) -> io::Result<()> {
    const LAST: &str = "superblock";
    let names: Vec<OsString> =
        fs::read_dir(from)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    let mut others = names.iter().filter(|name| *name != LAST);
    others.try_for_each(|name| fs::rename(from.join(name), to.join(name)))?;
    let folder = fs::File::open(to)?;
    folder.sync_all()?;
    fs::rename(from.join(LAST), to.join(LAST))?;
    fs::remove_dir(from)?;
    folder.sync_all()
}

/// Puts a key into a target, which is made when its first key comes; how many keys it has then.
fn put(
    target: &mut Option<Target>,
    dir: &Path,
    key: &SalvagedKey,
    counts: &mut Counts,
) -> Result<u64, String> {
    let target = match target {
        Some(target) => target,
        None => target.insert(Target::create(dir)?),
    };
    target.put(key, counts)?;
    Ok(target.keys)
}

fn tell_end(End { lsn, at: (file, offset), bytes_behind, hole }: &End) {
    match hole {
        Some(error) => outln!(
            "lost: what was written from LSN {lsn} on: {error}\nAll keys that are intact are as they were then, and may be older than what \
             was answered to clients."
        ),
        None if *bytes_behind > 0 => outln!(
            "note: {file} at offset {offset}: the log ends with {bytes_behind} bytes of commits that did not complete, which a start cuts"
        ),
        None => {}
    }
}

fn database(db: Option<u8>) -> String {
    match db {
        Some(SYSTEM_DATABASE) => "libraries of functions".into(),
        Some(db) if usize::from(db) < DATABASES => format!("database {db}"),
        _ => "an unknown database".into(),
    }
}

fn name(key: &SalvagedKey) -> String {
    format!("{}, key \"{}\" ({})", database(Some(key.db)), key.key.escape_ascii(), key.value.ty().name())
}

fn describe(LostKey { db, key, ty, error }: &LostKey) -> String {
    let key = match key {
        Some(key) => format!("key \"{}\"", key.escape_ascii()),
        None => "a key whose name is damaged, too".into(),
    };
    format!("{}, {key} ({}): {error}", database(*db), ty.name())
}

fn reason(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::NoEntry => {
            "its entry in the index cannot be read, so it may have been changed, deleted or given an expiry since"
        }
        Doubt::BehindHole => {
            "it was written after what the log has lost, and may have been changed, deleted or given an expiry since"
        }
        Doubt::Expiry => "the value is as it was, but when it expires is lost",
        Doubt::Database => {
            "the value is as it was, but databases may have been exchanged by SWAPDB or FLUSHDB"
        }
    }
}
