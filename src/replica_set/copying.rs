//! A copy of another server's data folder, which comes part by part into a folder of its own beside what there is. When it is whole, and the
//! other server says that it was of one moment up to then, it takes the place of what there was ([`install`]).

use super::{
    frame::Frame,
    giving::PART,
    standing::{JOURNAL, Standing, State, remove_folder, remove_store},
};
use holdfast_consensus::{Extract, MemberId, Replica};
use holdfast_io::{Durability, File, Io};
use std::{
    fs, io,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

/// Where the copy comes.
const COPY: &str = "copy";
/// After what time a part is asked for again.
const AGAIN: Duration = Duration::from_secs(1);
/// After how many times without an answer the copy is given up.
const TIMES: u32 = 10;

/// A copy on its way.
pub struct Copying {
    io: Arc<dyn Io>,
    /// Of which set.
    pub set: u64,
    /// From which server.
    pub from: MemberId,
    /// Which one of that server's.
    pub copy: u64,
    own: MemberId,
    /// With what its log begins and ends.
    pub extract: Extract,
    files: Vec<(String, u64)>,
    at: usize,
    offset: u64,
    file: Option<Arc<dyn File>>,
    asked: Instant,
    times: u32,
}

/// What was offered.
pub struct Offered {
    /// Of which set.
    pub set: u64,
    /// From which server.
    pub from: MemberId,
    /// Which one of that server's.
    pub copy: u64,
    /// With what its log begins and ends.
    pub extract: Extract,
    /// Its files, with their lengths.
    pub files: Vec<(String, u64)>,
}

impl Copying {
    /// Begins one for the server `own`.
    ///
    /// # Errors
    /// The medium's.
    pub fn begin(io: Arc<dyn Io>, dir: &Path, own: MemberId, offered: Offered) -> io::Result<Copying> {
        remove_folder(&dir.join(COPY))?;
        let Offered { set, from, copy, extract, files } = offered;
        let (asked, times) = (Instant::now(), 0);
        let mut copying =
            Copying { io, set, from, copy, own, extract, files, at: 0, offset: 0, file: None, asked, times };
        copying.open_next()?;
        Ok(copying)
    }

    /// What is wanted next.
    pub fn fetch(&self) -> Frame {
        // Without a name: whether all was kept.
        let name = self.files.get(self.at).map_or_else(String::new, |(name, _)| name.clone());
        Frame::Fetch { set: self.set, from: self.own, copy: self.copy, name, offset: self.offset }
    }

    /// Whether it is to be asked for again; `None`: there was no answer so often that the copy is given up.
    pub fn is_due(&mut self) -> Option<bool> {
        let is_due = self.asked.elapsed() >= AGAIN;
        if is_due {
            self.asked = Instant::now();
            self.times += 1;
        }
        (self.times < TIMES).then_some(is_due)
    }

    /// Takes what was asked for; whether it was that.
    ///
    /// # Errors
    /// The medium's.
    pub fn take(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<bool> {
        let Some((wanted, len)) = self.files.get(self.at) else { return Ok(false) };
        let part = PART.min(len - self.offset);
        if wanted != name || self.offset != offset || bytes.len() as u64 > part {
            return Ok(false);
        }
        let file = self.file.as_ref().expect("what was asked for is open");
        if !bytes.is_empty() {
            file.write_at(&[bytes], offset, Durability::Volatile)?;
        }
        self.offset += part;
        (self.asked, self.times) = (Instant::now(), 0);
        if self.offset == *len {
            file.sync()?;
            (self.file, self.offset) = (None, 0);
            self.at += 1;
            self.open_next()?;
        }
        Ok(true)
    }

    /// Whether all has come.
    pub fn is_whole(&self) -> bool {
        self.at == self.files.len()
    }

    /// Makes what has come a folder that [`install`] puts in place.
    ///
    /// # Errors
    /// The medium's, or there is no base.
    pub fn finish(self) -> holdfast_io::Result<()> {
        let journal = format!("{COPY}/{JOURNAL}");
        let Extract { base, voted, .. } = &self.extract;
        Replica::adopt(self.io.clone(), &journal, self.own, base, *voted)?;
        for folder in [&format!("{COPY}/log"), &journal, COPY, ""] {
            self.io.sync_dir(folder).map_err(|e| holdfast_io::Error::io("sync the copy", e))?;
        }
        Ok(())
    }

    /// Opens the next file that has anything, if there is one.
    fn open_next(&mut self) -> io::Result<()> {
        while let Some((name, len)) = self.files.get(self.at) {
            let file = self.io.open(&format!("{COPY}/{name}"), true)?;
            file.set_len(*len)?;
            if *len > 0 {
                self.file = Some(file);
                break;
            }
            file.sync()?;
            self.at += 1;
        }
        Ok(())
    }
}

/// Puts a copy that is whole in the place of what there is, in steps that may be done again. Nobody has a file open.
///
/// # Errors
/// The medium's.
pub fn install(dir: &Path, standing: &mut Standing) -> io::Result<()> {
    if standing.state == State::Whole {
        remove_store(dir)?;
        standing.state = State::Cleared;
        standing.write(dir)?;
    }
    if standing.state == State::Cleared {
        match fs::read_dir(dir.join(COPY)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            entries => {
                for entry in entries? {
                    let entry = entry?;
                    fs::rename(entry.path(), dir.join(entry.file_name()))?;
                }
            }
        }
        fs::File::open(dir)?.sync_all()?;
        remove_folder(&dir.join(COPY))?;
        standing.state = State::Member;
        standing.write(dir)?;
    }
    Ok(())
}
