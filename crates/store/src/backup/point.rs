//! Restoring a state between backups: the heap of one, and the log that it and the others have, up to where it is cut.

use super::{
    folder::{BackupFolder, OnStep, check_crc, copy_all, finish_restore},
    manifest::{BackupFile, Manifest},
    plan::identity,
    view::View,
};
use crate::format::{HEAP, payload, superblock::Superblock};
use holdfast_io::{BLOCK, Durability, Error, Io, Result};
use holdfast_log::{DamagedLog, FOLDER, LogOptions, Lsn, SegmentCopier, SegmentPlace, batch_len};
use std::{collections::BTreeMap, sync::Arc};

/// Up to what is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The last batch that ends at this LSN or below.
    Lsn(Lsn),
    /// The last second of which it is known that it was not later: Unix time in milliseconds.
    TimeMs(u64),
}

/// A state that can be restored.
#[derive(Clone, Debug)]
pub struct RestorePoint {
    /// The backup whose heap it begins with.
    pub number: u32,
    /// Where the log ends: a batch does, too.
    pub lsn: Lsn,
    /// Bytes of the files that are read for it.
    pub bytes: u64,
    manifest: Manifest,
}

/// A backup, with all of the log behind its checkpoint that there is.
struct Base {
    number: u32,
    manifest: Manifest,
    /// Every state from here on is whole.
    from: Lsn,
}

impl BackupFolder {
    /// The states that can be restored: from one LSN to another, for each backup.
    pub fn ranges(&self) -> Vec<(u32, Lsn, Lsn)> {
        self.bases().map(|base| (base.number, base.from, base.manifest.moment)).collect()
    }

    /// Finds the last state up to a point.
    ///
    /// # Errors
    /// [`Error::Unusable`] if no backup's log has it; the log of one is damaged.
    pub fn find(&self, until: Until) -> Result<RestorePoint> {
        let bases: Vec<Base> = self.bases().collect();
        for base in bases.iter().rev() {
            let may_have = match until {
                Until::Lsn(lsn) => (base.from..=base.manifest.moment).contains(&lsn),
                Until::TimeMs(_) => true,
            };
            let cut = if may_have { self.cut(base, until)? } else { None };
            if let Some(lsn) = cut.filter(|&lsn| lsn >= base.from) {
                let bytes = base.manifest.files.iter().map(|file| file.len).sum();
                return Ok(RestorePoint { number: base.number, lsn, bytes, manifest: base.manifest.clone() });
            }
        }
        let mut ranges: Vec<_> =
            bases.iter().map(|base| format!("{} to {}", base.from, base.manifest.moment)).collect();
        ranges.dedup();
        let ranges = ranges.join(", ");
        Err(Error::Unusable(match until {
            Until::Lsn(lsn) => {
                format!("the backups have no state of LSN {lsn}: they have those of LSN {ranges}")
            }
            Until::TimeMs(_) => format!(
                "the backups have no state of that time: it is before or after what they have of the log, LSN {ranges}, or that has no clock \
                 marks around it"
            ),
        }))
    }

    fn bases(&self) -> impl Iterator<Item = Base> {
        self.manifests().map(|(number, manifest)| {
            let mut manifest = manifest.clone();
            let payload = payload_of(&manifest.superblock);
            let first = manifest.superblock.checkpoint_lsn / payload;
            // The files of the log that have the most of each segment.
            let mut most: BTreeMap<u64, (Lsn, &BackupFile)> = BTreeMap::new();
            for file in self.manifests().flat_map(|(_, manifest)| &manifest.files) {
                let Some((seq, end)) = segment_of(&file.name, payload) else { continue };
                if most.get(&seq).is_none_or(|(other, _)| *other < end) {
                    most.insert(seq, (end, file));
                }
            }
            manifest.files.retain(|file| segment_of(&file.name, payload).is_none_or(|(seq, _)| seq < first));
            let mut slot = manifest.files.iter().filter(|file| file.place.starts_with(FOLDER)).count();
            for seq in first.. {
                let Some(&(end, file)) = most.get(&seq) else { break };
                manifest.files.push(BackupFile { place: format!("{FOLDER}/{slot:08x}"), ..file.clone() });
                (slot, manifest.moment) = (slot + 1, end);
                if end < (seq + 1) * payload {
                    break;
                }
            }
            // Values that a later backup has may need a dictionary that only that has.
            for file in self.manifests().flat_map(|(_, manifest)| &manifest.files) {
                let is_log = segment_of(&file.name, payload).is_some();
                if !is_log
                    && file.place != HEAP
                    && !manifest.files.iter().any(|known| known.place == file.place)
                {
                    manifest.files.push(file.clone());
                }
            }
            // What the checkpoint has was durable when it was complete (I-3), and so was what has emptied the segments freed since.
            let from = manifest.superblock.durable_lsn.max(manifest.superblock.checkpoint_lsn);
            Base { number, manifest, from }
        })
    }

    /// Where the log of a base is to be cut; `None`: it has no state up to there.
    fn cut(&self, base: &Base, until: Until) -> Result<Option<Lsn>> {
        let Superblock { checkpoint_lsn, segment_size, store_id, epoch, .. } = base.manifest.superblock;
        let seed = base.manifest.superblock.crc_seed();
        let options = LogOptions::to_read(segment_size, store_id, epoch, seed);
        let log = DamagedLog::open(self.view_of(base.manifest.clone()), &options, Some(checkpoint_lsn))?;
        let (mut next, mut cut, mut is_later) = (checkpoint_lsn, None, false);
        let to = match until {
            Until::Lsn(lsn) => lsn,
            Until::TimeMs(_) => base.manifest.moment,
        };
        log.scan(checkpoint_lsn, to, &mut |lsn, bytes| {
            if lsn != next {
                return;
            }
            next = lsn + batch_len(bytes.len());
            match until {
                Until::Lsn(lsn) => cut = Some(next).filter(|&next| next <= lsn).or(cut),
                Until::TimeMs(until_ms) => {
                    let Some(ms) = payload::clock_mark(bytes) else { return };
                    is_later |= ms > until_ms;
                    cut = Some(next).filter(|_| !is_later).or(cut);
                }
            }
        })?;
        // What comes behind a whole segment may have been freed, and the end of its last batch with it.
        let is_whole = next >= to || base.manifest.moment == log.end() && log.goes_on_behind_the_end(next)?;
        if !is_whole {
            let (file, offset) = log.locate(next);
            return Err(Error::corrupt(&file, offset, "a batch of the backup's log is damaged"));
        }
        Ok(match until {
            Until::Lsn(_) => cut.or(Some(checkpoint_lsn)),
            // Without a later mark, the time may be later than all that the backups have.
            Until::TimeMs(_) => cut.filter(|_| is_later),
        })
    }

    fn view_of(&self, manifest: Manifest) -> Arc<dyn Io> {
        Arc::new(View::new(self.io().clone(), manifest))
    }

    /// Makes a data folder of a state in an empty folder, as [`BackupFolder::restore`] does.
    ///
    /// # Errors
    /// Something is damaged or missing; what `on_step` returns.
    pub fn restore_point(&self, point: &RestorePoint, target: &dyn Io, on_step: OnStep) -> Result<()> {
        let payload = payload_of(&point.manifest.superblock);
        let last = (point.lsn - 1) / payload;
        for file in &point.manifest.files {
            let failed = |e| Error::io(format!("create {}", file.place), e);
            let seq = segment_of(&file.name, payload).map(|(seq, _)| seq);
            if seq.is_some_and(|seq| seq > last) {
                continue;
            }
            let to = target.open(&file.place, true).map_err(failed)?;
            if seq != Some(last) {
                check_crc(file, copy_all(&*self.open_checked(file)?, &*to, file.len, on_step)?)?;
                continue;
            }
            // The log ends in it.
            let view = self.view_of(point.manifest.clone());
            let place = SegmentPlace::read(&*view, &file.place)?;
            let identity = identity(&point.manifest.superblock);
            let mut at = 0;
            SegmentCopier::new(view, identity, point.lsn).copy(&place, &mut |bytes| {
                let written = to.write_at(&[bytes], at, Durability::Volatile);
                written.map_err(|e| Error::io(format!("write {}", file.place), e))?;
                at += bytes.len() as u64;
                on_step(bytes.len() as u64)
            })?;
            to.sync().map_err(|e| Error::io(format!("write {}", file.place), e))?;
        }
        finish_restore(target, Superblock { durable_lsn: point.lsn, ..point.manifest.superblock.clone() })
    }
}

/// Bytes of log in a segment.
fn payload_of(superblock: &Superblock) -> u64 {
    u64::from(superblock.segment_size) - BLOCK as u64
}

/// The sequence number of the segment that a file of this name has, and the LSN up to which it has it.
fn segment_of(name: &str, payload: u64) -> Option<(u64, Lsn)> {
    let name = name.strip_prefix("segment-")?;
    match name.split_once('-') {
        Some((seq, end)) => Some((seq.parse().ok()?, end.parse().ok()?)),
        None => name.parse().ok().map(|seq: u64| (seq, (seq + 1) * payload)),
    }
}
