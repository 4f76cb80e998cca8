//! What the primary writes while its data are copied. It would be kept by the primary, which gives up when that takes too much memory; so it
//! is taken at once, and kept here in a file until it is its turn.

use crate::{admin::log::log, transport::blocking::BlockingSocket};
use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read},
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
};

/// Bytes that are kept at most. Beyond, the primary has to wait.
const BYTES_MAX: u64 = 64 << 30;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Bytes that have arrived and were not read. They keep arriving until they are all read.
pub struct Backlog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    read: u64,
}

struct Shared {
    file: File,
    written: AtomicU64,
    is_over: AtomicBool,
}

impl Backlog {
    /// Takes what arrives at a socket, whose reads time out now and then, to a file in a folder. The file has no name.
    ///
    /// # Errors
    /// There can be no file, or no thread.
    pub fn begin(socket: BlockingSocket, dir: &Path) -> io::Result<Backlog> {
        let path = dir.join("replica-backlog");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        fs::remove_file(&path)?;
        let shared = Arc::new(Shared { file, written: AtomicU64::new(0), is_over: AtomicBool::new(false) });
        let keeper = shared.clone();
        let thread =
            thread::Builder::new().name("replica-backlog".into()).spawn(move || keeper.keep(socket))?;
        Ok(Backlog { shared, thread: Some(thread), read: 0 })
    }

    /// Reads some bytes; 0 once all were read, and none are taken any more: more comes from the socket.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left() == 0 {
            self.end();
        }
        let len = self.left().min(out.len() as u64) as usize;
        self.shared.file.read_exact_at(&mut out[..len], self.read)?;
        self.read += len as u64;
        Ok(len)
    }

    fn left(&self) -> u64 {
        self.shared.written.load(Acquire) - self.read
    }

    /// Takes no more.
    fn end(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic ends the process");
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    /// Takes what arrives until it is over, or the connection is: who reads from it then finds that out, too.
    fn keep(&self, mut socket: BlockingSocket) {
        let (mut chunk, mut written) = (vec![0; CHUNK], 0);
        while !self.is_over.load(Relaxed) && written < BYTES_MAX {
            match socket.read(&mut chunk) {
                Ok(0) => return,
                Ok(len) => {
                    if let Err(error) = self.file.write_all_at(&chunk[..len], written) {
                        log!(
                            Warning,
                            "cannot keep what the primary writes while its data are copied: {error}"
                        );
                        // Bytes are missing now.
                        socket.shut_down();
                        return;
                    }
                    written += len as u64;
                    self.written.store(written, Release);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(_) => return,
            }
        }
    }
}
