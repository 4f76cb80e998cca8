//! Dirty shutdowns: memory modules that could not keep all that was written to them, since their battery or the flush of their buffers has
//! failed, count that. Linux tells the count (`nfit` for NVDIMMs by ACPI, `papr` on POWER, `cxl` since 6.15).

use std::{collections::BTreeMap, fs, path::Path};

use super::ScmMedium;
use crate::{Durability, Error, Io, Result, sealed};

/// Where Linux lists memory modules.
const MODULES: &str = "/sys/bus/nd/devices";
/// In the data folder: the counts when it was opened last.
const FILE: &str = "scm-shutdowns";
const MAGIC: &[u8; 8] = b"HFSHUTDN";
/// Magic and number of bytes.
const HEAD: usize = 12;

/// By the name of the module.
type Counts = BTreeMap<String, u64>;

/// Tells which memory modules have counted a dirty shutdown since the last call for this data folder, and remembers their counts there; if
/// the folder lies on memory that persists.
pub fn dirty_shutdowns(io: &dyn Io) -> Result<Vec<String>> {
    match io.scm().map(|scm| scm.options().medium) {
        Some(ScmMedium::Dax) => risen(io, Path::new(MODULES)),
        _ => Ok(Vec::new()),
    }
}

fn risen(io: &dyn Io, modules: &Path) -> Result<Vec<String>> {
    let now = counts(modules);
    let known = read(io)?;
    if known.as_ref() != Some(&now) && !io.is_read_only() && (known.is_some() || !now.is_empty()) {
        write(io, &now)?;
    }
    let known = known.unwrap_or_default();
    let risen = now.iter().filter(|(name, count)| known.get(*name).is_some_and(|before| before < *count));
    let told = |(name, _): (&String, _)| {
        format!(
            "the memory module {name} has counted a dirty shutdown since this folder was opened last: it may have lost what was \
             durable; 'holdfast check' finds out"
        )
    };
    Ok(risen.map(told).collect())
}

/// What the system says now. A module that tells no count has none.
fn counts(modules: &Path) -> Counts {
    let Ok(entries) = fs::read_dir(modules) else { return Counts::new() };
    let count = |module: &Path| {
        let files = ["nfit", "papr", "cxl"].map(|kind| module.join(kind).join("dirty_shutdown"));
        files.iter().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())
    };
    let modules = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok().filter(|name| name.starts_with("nmem"))?;
        Some((name, count(&entry.path())?))
    });
    modules.collect()
}

/// What was written last; `None`: nothing, or not to its end.
fn read(io: &dyn Io) -> Result<Option<Counts>> {
    let Some(block) = sealed::read(io, FILE, 0, MAGIC)? else { return Ok(None) };
    let len = u32::from_le_bytes([block[8], block[9], block[10], block[11]]) as usize;
    let Some(text) = block[HEAD..sealed::END].get(..len) else { return Ok(None) };
    let text = String::from_utf8_lossy(text);
    let parse = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    Ok(Some(text.lines().filter_map(parse).collect()))
}

/// As many as there is room for, which is some hundreds.
fn write(io: &dyn Io, counts: &Counts) -> Result<()> {
    let mut text = String::new();
    for (name, count) in counts {
        let line = format!("{name} {count}\n");
        if HEAD + text.len() + line.len() <= sealed::END {
            text.push_str(&line);
        }
    }
    let mut block = sealed::begin(MAGIC);
    block[8..HEAD].copy_from_slice(&(text.len() as u32).to_le_bytes());
    block[HEAD..HEAD + text.len()].copy_from_slice(text.as_bytes());
    sealed::seal(&mut block);
    let failed = |e| Error::io(format!("write {FILE}"), e);
    let file = io.open(FILE, true).map_err(failed)?;
    file.write_at(&[&block], 0, Durability::Durable).map_err(failed)?;
    file.sync().and_then(|()| io.sync_dir("")).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimIo;

    #[test]
    fn a_count_that_has_risen_is_told_once() {
        let system = tempfile::tempdir().expect("a folder");
        let set = |module: &str, kind: &str, count: &str| {
            let folder = system.path().join(module).join(kind);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("dirty_shutdown"), count).expect("a file");
        };
        let sim = SimIo::on_scm(1);
        let look = |sim: &SimIo| risen(sim, system.path()).expect("a sound medium");
        assert_eq!(look(&sim), [""; 0]);
        assert!(sim.list("").expect("names").is_empty(), "there are no modules");
        set("nmem0", "nfit", "3\n");
        set("nmem1", "cxl", "0\n");
        set("region0", "cxl", "7\n");
        assert_eq!(look(&sim), [""; 0], "what was before is not known");
        assert_eq!(look(&sim), [""; 0]);
        set("nmem1", "cxl", "1\n");
        set("nmem2", "papr", "5\n");
        let sim = sim.crash();
        let told = look(&sim);
        assert!(told.len() == 1 && told[0].starts_with("the memory module nmem1 has counted"), "{told:?}");
        assert_eq!(look(&sim), [""; 0]);
        // A count that is lower is that of another module in its place.
        set("nmem2", "papr", "2\n");
        assert_eq!(look(&sim), [""; 0]);
        set("nmem2", "papr", "3\n");
        assert_eq!(look(&sim).len(), 1);
        // What was not written to its end says nothing.
        sim.flip_bit(FILE, 20, 1);
        set("nmem2", "papr", "9\n");
        assert_eq!(look(&sim), [""; 0]);
        assert_eq!(look(&sim), [""; 0]);
        set("nmem2", "papr", "10\n");
        assert_eq!(look(&sim).len(), 1);
    }
}
