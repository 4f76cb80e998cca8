//! `holdfast check --salvage`: copies what is intact in a damaged data folder into a new one, and tells what is not. The damaged folder stays
//! as it is.
//!
//! Keys of which it cannot be proved that they are as they were go into a data folder of their own, [`UNCERTAIN`] in the new one: to be looked
//! at, and never to be taken for what was there.

use crate::util::progress::Progress;
use holdfast_store::{
    Appendfsync, DATABASES, Doubt, End, Finding, LostKey, OpenError, Options, SYSTEM_DATABASE, SalvagedKey,
    Store, damaged_folders, salvage,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder of keys that are not proved to be as they were.
const UNCERTAIN: &str = "may-be-older";
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
    let failed = |error: OpenError| format!("{}: {error}", dir.display());
    if !dir.is_dir() {
        return Err(format!("{} is no folder", dir.display()));
    }
    if fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(format!("{} is not empty: what is intact goes into a new data folder", to.display()));
    }
    let (io, faults) = damaged_folders(dir).map_err(failed)?;
    let (mut intact, mut uncertain) = (None, None);
    let (mut counts, mut progress) = (Counts::default(), Progress::counting("keys"));
    for fault in faults {
        counts.damage += 1;
        println!("damaged: {fault}");
    }
    // Why a new folder cannot be written, which is no fault of the damaged one.
    let mut unwritten = None;
    let told = salvage(io, Options::default().heap_bytes_max, &mut |finding| {
        let put = match finding {
            Finding::Intact(key) => {
                let keys = put(&mut intact, to, &key, &mut counts);
                keys.map(|keys| progress.show(keys, keys))
            }
            Finding::Uncertain { key, doubt, at } => {
                println!("may be older: {}: {} ({} at offset {})", name(&key), reason(doubt), at.0, at.1);
                put(&mut uncertain, &to.join(UNCERTAIN), &key, &mut counts).map(drop)
            }
            Finding::Damage(error) => {
                counts.damage += 1;
                println!("damaged: {error}");
                Ok(())
            }
            Finding::End(end) => {
                counts.is_older |= end.hole.is_some();
                tell_end(&end);
                Ok(())
            }
            Finding::Lost(lost) => {
                counts.lost += 1;
                println!("lost: {}", describe(&lost));
                Ok(())
            }
            Finding::LostEntries { db, keys } => {
                counts.lost += keys;
                println!(
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
    let intact = intact.map_or_else(|| Target::create(to), Ok)?;
    let keys = intact.keys;
    intact.finish()?;
    println!("keys that are intact: {keys}, now in {}", to.display());
    let may_be_older = uncertain.as_ref().map_or(0, |uncertain: &Target| uncertain.keys);
    if let Some(uncertain) = uncertain {
        let shown = uncertain.dir.display().to_string();
        uncertain.finish()?;
        println!("keys that may be older, or were deleted: {may_be_older}, now in {shown}");
    }
    if counts.lost > 0 {
        println!("keys that are lost: at least {}", counts.lost);
    }
    if counts.lost == 0 && may_be_older == 0 && counts.damage == 0 && !counts.is_older {
        println!("ok");
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
            println!("lost: {}: its value contradicts itself", name(key));
        }
        Ok(())
    }

    fn finish(self) -> Result<(), String> {
        self.store.close().map_err(|e| format!("cannot write {}: {e}", self.dir.display()))
    }
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
        Some(error) => println!(
            "lost: what was written from LSN {lsn} on: {error}\nAll keys that are intact are as they were then, and may be older than what \
             was answered to clients."
        ),
        None if *bytes_behind > 0 => println!(
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
