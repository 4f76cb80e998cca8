//! Folders.

use std::{
    fs, io,
    os::unix::fs::{FileExt, MetadataExt},
    panic,
    path::Path,
    sync::{Mutex, Once, PoisonError},
    thread,
};

use tempfile::TempDir;

/// A new empty folder, removed at the end unless its test has failed. A server keeps its data in `data`, listens at
/// `socket` and logs to `log`.
pub struct Folder(TempDir);

impl Folder {
    /// Makes one.
    pub fn new() -> Folder {
        note_panics();
        // Not in the build folder: the path of a socket must be short.
        Folder(TempDir::with_prefix("holdfast-").expect("a new folder"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path within it, as text.
    pub fn join(&self, name: &str) -> String {
        self.path().join(name).display().to_string()
    }

    /// The bytes of a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.join(name)).unwrap_or_else(|e| panic!("read {name}: {e}"))
    }

    /// The files below a folder in it, in order.
    pub fn files(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.join(name)).unwrap_or_else(|e| panic!("read {name}: {e}"));
        let mut files = Vec::new();
        for entry in entries.map(|entry| entry.expect("an entry")) {
            let name = format!("{name}/{}", entry.file_name().display());
            match entry.file_type().expect("it is known").is_dir() {
                true => files.extend(self.files(&name)),
                false => files.push(name),
            }
        }
        files.sort_unstable();
        files
    }

    /// Overwrites a part of a file.
    pub fn write_at(&self, name: &str, offset: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(self.join(name));
        file.and_then(|file| file.write_all_at(bytes, offset))
            .unwrap_or_else(|e| panic!("write {name}: {e}"));
    }

    /// Inverts one bit of a file.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u64) {
        let byte = self.read(name)[offset as usize];
        self.write_at(name, offset, &[byte ^ (1 << bit)]);
    }

    /// Bytes that everything in it takes on the disk.
    pub fn disk_bytes(&self) -> u64 {
        disk_bytes(self.path()).expect("the sizes of the files")
    }
}

fn disk_bytes(path: &Path) -> io::Result<u64> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        // It was removed meanwhile.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(e) => return Err(e),
    };
    let mut bytes = meta.blocks() * 512;
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += disk_bytes(&entry?.path())?;
        }
    }
    Ok(bytes)
}

impl Drop for Folder {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.disable_cleanup(true);
            let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
            eprintln!("the data is left in {}; until now have failed:\n{panics}", self.path().display());
        }
    }
}

/// What has failed in this process: of a long output only the end may be kept, which is behind the traces of calls.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let show = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
            show(info);
        }));
    });
}
