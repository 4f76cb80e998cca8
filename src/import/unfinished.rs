//! Where a new data folder is made: in a folder beside it, `NAME.importing`, which only its owner can enter. It holds the new
//! one and the socket of the server that makes it, and a file that says what it is. That file is locked: what is left of an import
//! that was killed is known by it, and removed by the next one.

use crate::util::console::errln;
use rustix::fs::{FlockOperation, flock};
use std::{
    fs,
    io::{self, ErrorKind, Write},
    os::{fd::AsRawFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

const NOTICE: &str = "notice";
const NOTICE_TEXT: &str = "\
An import of Holdfast makes a data folder here. If it is not under way any more, it was ended before all was there: then
nothing here is of use, and the next import into the same place removes it.
";

/// The folder; removed at the end.
pub struct Unfinished {
    path: PathBuf,
    folder: fs::File,
    /// Locked.
    _notice: fs::File,
}

impl Unfinished {
    /// Makes the one for a data folder. The error says what is in the way.
    pub fn new(dir: &Path) -> Result<Unfinished, String> {
        // Of `a/..` or `/` there is no name beside.
        let name =
            dir.file_name().ok_or_else(|| format!("{}: not the name of a new folder", dir.display()))?;
        let mut beside = name.to_os_string();
        beside.push(".importing");
        let path = dir.with_file_name(beside);
        let failed = |e: io::Error| format!("cannot make the folder {}: {e}", path.display());
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let mut made = fs::DirBuilder::new().mode(0o700).create(&path);
        if made.as_ref().is_err_and(|e| e.kind() == ErrorKind::AlreadyExists) {
            remove_leftover(&path)?;
            made = fs::DirBuilder::new().mode(0o700).create(&path);
        }
        made.map_err(failed)?;
        let mut notice = fs::File::create_new(path.join(NOTICE)).map_err(failed)?;
        flock(&notice, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        notice.write_all(NOTICE_TEXT.as_bytes()).map_err(failed)?;
        let folder = fs::File::open(&path).map_err(failed)?;
        Ok(Unfinished { path, folder, _notice: notice })
    }

    /// The new data folder.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// A socket of this process. Its path is short, however long that of the folder is.
    pub fn socket(&self) -> PathBuf {
        format!("/proc/self/fd/{}/socket", self.folder.as_raw_fd()).into()
    }

    /// Has the new data folder take the place of `dir`, which is missing or empty.
    pub fn finish(self, dir: &Path) -> io::Result<()> {
        fs::rename(self.data(), dir)?;
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(parent)?.sync_all()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What cannot be removed is told of by the next import.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what an import has left that was killed, and nothing else.
fn remove_leftover(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let failed =
        |e: io::Error| format!("cannot remove {shown}, which an import that was killed has left: {e}");
    match fs::OpenOptions::new().write(true).open(path.join(NOTICE)) {
        Ok(notice) => {
            let is_notice =
                fs::read(path.join(NOTICE)).is_ok_and(|text| NOTICE_TEXT.as_bytes().starts_with(&text));
            if !is_notice {
                return Err(format!("{shown} is in the way, and no import has made it"));
            }
            match flock(&notice, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    return Err(format!("another import is under way: it uses {shown}"));
                }
                locked => locked.map_err(failed)?,
            }
            fs::remove_dir_all(path).map_err(failed)?;
        }
        // It was killed before it had written anything, if that is so.
        Err(e) if e.kind() == ErrorKind::NotFound => {
            fs::remove_dir(path).map_err(|_| format!("{shown} is in the way, and no import has made it"))?;
        }
        Err(e) => return Err(failed(e)),
    }
    errln!("removed {shown}, which an import that was killed had left");
    Ok(())
}
