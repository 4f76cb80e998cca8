//! A folder of backups. Later ones write only what the earlier ones have not; each can be restored by itself.

use super::{
    manifest::{self, BackupFile, Manifest},
    plan::Plan,
    view::{View, superblock_of},
};
use crate::format::{
    HEAP, dictionary,
    superblock::{self, Superblock},
};
use holdfast_heap::copy_checkpoint;
use holdfast_io::{AlignedBuf, BLOCK, Durability, Error, File, Io, Result, crc32c, crc32c_append};
use holdfast_log::{Lsn, SegmentCopier, SegmentPlace};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    sync::Arc,
};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes of log that a restored folder may have to replay, at least, before the heap is copied anew.
const REPLAY_BYTES: u64 = 256 << 20;
/// The same for each byte of the heap's copy.
const REPLAY_FACTOR: u64 = 4;

/// Called with the bytes of each step, those that are only read again, too; an error ends what is being done.
pub type OnStep<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// A folder of backups of one store.
pub struct BackupFolder {
    io: Arc<dyn Io>,
    backups: BTreeMap<u32, Manifest>,
    /// Those that were not written to their end.
    unfinished: Vec<u32>,
    /// Those whose manifests are damaged.
    damaged: Vec<(u32, Error)>,
}

/// A backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// Counts the backups of the folder, from 1 on.
    pub number: u32,
    /// When it was taken: Unix time in milliseconds.
    pub taken_ms: u64,
    /// The end of the log: everything below is in it, and nothing else.
    pub moment: Lsn,
    /// Bytes of its files, those that it shares with others included.
    pub bytes: u64,
}

/// What a backup has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupWritten {
    /// The backup.
    pub info: BackupInfo,
    /// Bytes that were written for it.
    pub bytes_written: u64,
}

impl BackupFolder {
    /// Looks what is in a folder, which may be empty.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(io: Arc<dyn Io>) -> Result<BackupFolder> {
        let mut folder =
            BackupFolder { io, backups: BTreeMap::new(), unfinished: Vec::new(), damaged: Vec::new() };
        for number in manifest::numbers(&*folder.io)? {
            match Manifest::read(&*folder.io, number) {
                Ok(Some(manifest)) => drop(folder.backups.insert(number, manifest)),
                Ok(None) => folder.unfinished.push(number),
                Err(error) => folder.damaged.push((number, error)),
            }
        }
        Ok(folder)
    }

    /// The backups, oldest first, without those that are damaged.
    pub fn backups(&self) -> Vec<BackupInfo> {
        self.backups.iter().map(|(&number, manifest)| info(number, manifest)).collect()
    }

    /// The numbers of those that were not written to their end, and count for nothing.
    pub fn unfinished(&self) -> &[u32] {
        &self.unfinished
    }

    /// Whether there is any, sound or not.
    pub fn has_any(&self) -> bool {
        !self.backups.is_empty() || !self.damaged.is_empty() || !self.unfinished.is_empty()
    }

    /// Copies what a plan says from a data folder, and makes a backup of it. Before the backup counts, `confirm` is asked whether the
    /// server has kept everything until then. What backups that were interrupted, or that were removed, have left is removed first.
    ///
    /// # Errors
    /// Something is damaged, there or here; the folder has backups of another store; what `on_step` and `confirm` return. There is no
    /// new backup then.
    pub fn write(
        &mut self,
        source: Arc<dyn Io>,
        plan: &Plan,
        on_step: OnStep,
        confirm: &mut dyn FnMut() -> Result<()>,
    ) -> Result<BackupWritten> {
        if let Some((_, error)) = self.damaged.pop() {
            return Err(error);
        }
        let Superblock { store_id, history, .. } = plan.superblock;
        let is_ours = |manifest: &Manifest| {
            (manifest.superblock.store_id, manifest.superblock.history) == (store_id, history)
        };
        if !self.backups.values().all(is_ours) {
            return Err(Error::Unusable(
                "the folder has backups of another store, or of one that was restored since: use a new folder"
                    .to_owned(),
            ));
        }
        if let Some(last) = self.backups.values().next_back().filter(|last| plan.moment < last.moment) {
            return Err(Error::Unusable(format!(
                "the server is at LSN {}, and the last backup of the folder at {}: its data folder has been put back to what it was \
                 before, so use a new folder",
                plan.moment, last.moment
            )));
        }
        self.remove_unused()?;
        let mut bytes_written = 0;
        let mut files = Vec::new();
        let (heap, superblock) = match self.earlier_heap(plan) {
            Some(earlier) => earlier,
            None => {
                let (heap, bytes) = self.copy_heap(&*source, &plan.superblock, on_step)?;
                bytes_written += bytes;
                (heap, plan.superblock.clone())
            }
        };
        files.push(heap);
        for name in dictionary::files(&*source)? {
            let file = match self.earlier(&name) {
                Some(file) => file,
                None => self.copy_file(&*source, &name, on_step).inspect(|file| bytes_written += file.len)?,
            };
            files.push(file);
        }
        let mut copier = SegmentCopier::new(source, plan.identity(), plan.moment);
        for (slot, segment) in (0..).zip(&plan.segments) {
            let name = segment_name(plan, segment);
            let copied = match self.earlier(&name) {
                Some(file) => file,
                None => {
                    let copied = self.copy_segment(&mut copier, segment, name, on_step);
                    copied.inspect(|file| bytes_written += file.len)?
                }
            };
            // The files of a data folder are numbered without gaps.
            files.push(BackupFile { place: format!("log/{slot:08x}"), ..copied });
        }
        self.io.sync_dir("").map_err(|e| Error::io("sync the folder of backups", e))?;
        confirm()?;
        let number = 1 + self.backups.keys().next_back().copied().unwrap_or(0);
        let manifest = Manifest { taken_ms: self.io.now_ms(), moment: plan.moment, superblock, files };
        bytes_written += manifest.write(&*self.io, number)?;
        let info = info(number, &manifest);
        self.backups.insert(number, manifest);
        self.unfinished.retain(|&unfinished| unfinished != number);
        Ok(BackupWritten { info, bytes_written })
    }

    /// Removes the files that no backup names.
    fn remove_unused(&mut self) -> Result<()> {
        let named: BTreeSet<&str> = self
            .backups
            .values()
            .flat_map(|manifest| &manifest.files)
            .map(|file| file.name.as_str())
            .collect();
        let is_file =
            |name: &str| ["heap-", "segment-", "dictionary-"].iter().any(|start| name.starts_with(start));
        let unfinished: Vec<String> = self.unfinished.drain(..).map(manifest::file_name).collect();
        let list = self.io.list("").map_err(|e| Error::io("list the folder of backups", e))?;
        let unused = list.into_iter().filter(|name| is_file(name) && !named.contains(name.as_str()));
        for name in unfinished.into_iter().chain(unused) {
            self.io.remove(&name).map_err(|e| Error::io(format!("remove {name}"), e))?;
        }
        Ok(())
    }

    /// A file that an earlier backup has under this name, and that is there.
    fn earlier(&self, name: &str) -> Option<BackupFile> {
        let files = self.backups.values().rev().flat_map(|manifest| &manifest.files);
        files.clone().find(|file| file.name == name).filter(|file| self.is_there(file)).cloned()
    }

    fn is_there(&self, file: &BackupFile) -> bool {
        self.io.open(&file.name, false).and_then(|open| open.len()).is_ok_and(|len| len == file.len)
    }

    /// The heap of the last backup, and the superblock that names it, if the log that has come since is to be copied anyway, and
    /// is not too long to be replayed. Changes of few keys change many pages of the index, and take little of the log.
    fn earlier_heap(&self, plan: &Plan) -> Option<(BackupFile, Superblock)> {
        let last = self.backups.values().next_back()?;
        let heap = last.files.iter().find(|file| file.place == HEAP).filter(|file| self.is_there(file))?;
        let from = last.superblock.checkpoint_lsn;
        let replay_max = REPLAY_BYTES.max(REPLAY_FACTOR * heap.len);
        let fits = plan.moment - from <= replay_max && plan.has_log_from(from);
        let durable_lsn = last.superblock.durable_lsn.max(plan.superblock.durable_lsn);
        fits.then(|| (heap.clone(), Superblock { durable_lsn, ..last.superblock.clone() }))
    }

    /// The copy of the heap, and the bytes that were written for it: what lies between its pages takes no room.
    fn copy_heap(
        &self,
        source: &dyn Io,
        superblock: &Superblock,
        on_step: OnStep,
    ) -> Result<(BackupFile, u64)> {
        let name = self.unused_heap_name(superblock.generation);
        let from = source.open(HEAP, false).map_err(|e| Error::io("open heap", e))?;
        let to = self.create(&name)?;
        let mut written = 0;
        let len = copy_checkpoint(from, to.clone(), &superblock.heap, &mut |bytes| {
            written += bytes;
            on_step(bytes)
        })?;
        // As it lies on the medium.
        let crc = checksum(&*to, len, &mut |_, bytes| on_step(bytes.len() as u64))?;
        Ok((BackupFile { place: HEAP.to_owned(), name, len, crc }, written))
    }

    /// Of servers that share a log, each counts its own checkpoints: an earlier backup may have another one of this number.
    fn unused_heap_name(&self, generation: u64) -> String {
        let files = || self.backups.values().flat_map(|manifest| &manifest.files);
        let names = (0u32..).map(|other| match other {
            0 => format!("heap-{generation}"),
            other => format!("heap-{generation}-{other}"),
        });
        let mut unused = names.filter(|name| files().all(|file| file.name != *name));
        unused.next().expect("there are fewer backups")
    }

    fn copy_segment(
        &self,
        copier: &mut SegmentCopier,
        segment: &SegmentPlace,
        name: String,
        on_step: OnStep,
    ) -> Result<BackupFile> {
        let to = self.create(&name)?;
        let failed = |e| Error::io(format!("write {name}"), e);
        let (mut len, mut crc) = (0, crc32c(&[]));
        copier.copy(segment, &mut |bytes| {
            to.write_at(&[bytes], len, Durability::Volatile).map_err(failed)?;
            len += bytes.len() as u64;
            crc = crc32c_append(crc, bytes);
            on_step(bytes.len() as u64)
        })?;
        to.sync().map_err(failed)?;
        Ok(BackupFile { place: String::new(), name, len, crc })
    }

    /// Copies a small file that never changes, as it is.
    fn copy_file(&self, source: &dyn Io, name: &str, on_step: OnStep) -> Result<BackupFile> {
        let from = source.open(name, false).map_err(|e| Error::io(format!("open {name}"), e))?;
        let len = from.len().map_err(|e| Error::io(format!("read {name}"), e))?;
        let to = self.create(name)?;
        let crc = copy_all(&*from, &*to, len, on_step)?;
        Ok(BackupFile { place: name.to_owned(), name: name.to_owned(), len, crc })
    }

    /// A new file, in place of one that an interrupted backup has left.
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let failed = |e| Error::io(format!("create {name}"), e);
        let file = self.io.open(name, true).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        Ok(file)
    }

    fn manifest(&self, number: u32) -> Result<&Manifest> {
        self.backups.get(&number).ok_or_else(|| {
            match self.damaged.iter().find(|damaged| damaged.0 == number) {
                Some((_, error)) => Error::Unusable(format!("backup {number} is damaged: {error}")),
                None => Error::Unusable(format!("there is no backup {number} in the folder")),
            }
        })
    }

    /// Compares all files of all backups with their checksums. `on_step` is told of the bytes of each step, `all` of those of all
    /// steps before.
    ///
    /// # Errors
    /// The first that is damaged, or missing.
    pub fn verify(&mut self, on_step: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
        if let Some((_, error)) = self.damaged.pop() {
            return Err(error);
        }
        let files: BTreeMap<&str, &BackupFile> = self
            .backups
            .values()
            .flat_map(|manifest| &manifest.files)
            .map(|file| (file.name.as_str(), file))
            .collect();
        let all = files.values().map(|file| file.len).sum();
        files.values().try_for_each(|file| {
            self.open_checked(file).and_then(|open| {
                let crc = checksum(&*open, file.len, &mut |_, bytes| on_step(bytes.len() as u64, all))?;
                check_crc(file, crc)
            })
        })
    }

    pub(super) fn open_checked(&self, file: &BackupFile) -> Result<Arc<dyn File>> {
        let open = self.io.open(&file.name, false).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::corrupt(&file.name, 0, "the file is missing"),
            _ => Error::io(format!("open {}", file.name), e),
        })?;
        let len = open.len().map_err(|e| Error::io(format!("read {}", file.name), e))?;
        if len != file.len {
            let what = format!("the file has {len} bytes, not {}", file.len);
            return Err(Error::corrupt(&file.name, len.min(file.len), what));
        }
        Ok(open)
    }

    /// A backup as the data folder that a restore of it makes, for [`crate::Store::open_on`]; it can only be read.
    ///
    /// # Errors
    /// There is no such backup.
    pub fn view(&self, number: u32) -> Result<Arc<dyn Io>> {
        Ok(Arc::new(View::new(self.io.clone(), self.manifest(number)?.clone())))
    }

    /// Makes sure that all files of a backup are there, as long as they should be.
    ///
    /// # Errors
    /// There is no such backup; a file is missing, or has another length.
    pub fn find_files(&self, number: u32) -> Result<()> {
        self.manifest(number)?.files.iter().try_for_each(|file| self.open_checked(file).map(drop))
    }

    /// Makes a data folder of a backup in an empty folder, and checks all of it on the way. The superblock is written last, so that
    /// nothing takes it for a data folder before.
    ///
    /// # Errors
    /// Something is damaged or missing; what `on_step` returns.
    pub fn restore(&self, number: u32, target: &dyn Io, on_step: OnStep) -> Result<()> {
        let manifest = self.manifest(number)?;
        for file in &manifest.files {
            let from = self.open_checked(file)?;
            let failed = |e| Error::io(format!("create {}", file.place), e);
            let to = target.open(&file.place, true).map_err(failed)?;
            check_crc(file, copy_all(&*from, &*to, file.len, on_step)?)?;
        }
        finish_restore(target, superblock_of(manifest))
    }

    pub(super) fn io(&self) -> &Arc<dyn Io> {
        &self.io
    }

    pub(super) fn manifests(&self) -> impl Iterator<Item = (u32, &Manifest)> {
        self.backups.iter().map(|(&number, manifest)| (number, manifest))
    }
}

/// Writes the superblock of a restored folder, where all else is.
pub(super) fn finish_restore(target: &dyn Io, superblock: Superblock) -> Result<()> {
    for folder in [holdfast_log::FOLDER, ""] {
        target.sync_dir(folder).map_err(|e| Error::io("sync the new data folder", e))?;
    }
    let mut history = [0; 16];
    target.random(&mut history);
    // What is written from now on is another history than that of the store that was backed up.
    let superblock = Superblock { history, ..superblock };
    let failed = |e| Error::io(format!("create {}", superblock::FILE), e);
    let file = target.open(superblock::FILE, true).map_err(failed)?;
    superblock.write(&*file)?;
    file.sync().and_then(|()| target.sync_dir("")).map_err(failed)
}

fn info(number: u32, manifest: &Manifest) -> BackupInfo {
    let bytes = manifest.files.iter().map(|file| file.len).sum();
    BackupInfo { number, taken_ms: manifest.taken_ms, moment: manifest.moment, bytes }
}

/// What names a segment's contents: its number, and where it was cut, if it was.
fn segment_name(plan: &Plan, segment: &SegmentPlace) -> String {
    let is_whole = (segment.seq + 1) * plan.identity().payload() <= plan.moment;
    match is_whole {
        true => format!("segment-{}", segment.seq),
        false => format!("segment-{}-{}", segment.seq, plan.moment),
    }
}

pub(super) fn check_crc(file: &BackupFile, crc: u32) -> Result<()> {
    if crc == file.crc {
        return Ok(());
    }
    Err(Error::corrupt(&file.name, 0, "the checksum of the file does not match"))
}

/// The checksum of a file's bytes, which `f` sees piece by piece, each with its offset.
fn checksum(file: &dyn File, len: u64, f: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<u32> {
    let mut memory = AlignedBuf::zeroed(PIECE.min((len as usize).next_multiple_of(BLOCK)));
    let (mut at, mut crc) = (0, crc32c(&[]));
    while at < len {
        let piece = &mut memory[..(len - at).min(PIECE as u64) as usize];
        file.read_at(piece, at).map_err(|e| Error::io(format!("read {}", file.name()), e))?;
        crc = crc32c_append(crc, piece);
        f(at, piece)?;
        at += piece.len() as u64;
    }
    Ok(crc)
}

/// Copies a file, durably, to one that is empty; returns the checksum of what was copied.
pub(super) fn copy_all(from: &dyn File, to: &dyn File, len: u64, on_step: OnStep) -> Result<u32> {
    let failed = |e| Error::io(format!("write {}", to.name()), e);
    to.set_len(len).map_err(failed)?;
    let crc = checksum(from, len, &mut |at, bytes| {
        // What is zero already takes no room of the medium.
        if bytes.iter().any(|&byte| byte != 0) {
            to.write_at(&[bytes], at, Durability::Volatile).map_err(failed)?;
        }
        on_step(bytes.len() as u64)
    })?;
    to.sync().map_err(failed)?;
    Ok(crc)
}
