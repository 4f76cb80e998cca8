//! A log that several servers have: each stores the same batches at the same LSNs, in groups on which they agree.
//!
//! The server that appends ends each group that it commits with a batch of its own, the *seal*, and hands the group over before it is
//! written, so that others can write it meanwhile. A batch counts as durable when it is so here and as many others have it:
//! that is all that whoever waits for [`Log::durable`] notices.

use std::sync::{Arc, Weak, atomic::Ordering};

use holdfast_io::{Error, Result};

use crate::{
    BATCH_HEADER, Log,
    layout::{BatchHeader, Lsn, batch_is_intact},
};

/// What the payload of a seal begins with. No payload of the log's user may begin so.
pub const SEAL: u8 = 0x5E;

/// Bytes of a group at most, as far as those who write can wait. What is small comes on top of that, and what a transaction adds in its midst.
pub const GROUP_BYTES_MAX: u64 = 768 << 20;

/// Who shares a log's groups with other servers. Called by threads that commit, one at a time, who wait for it.
pub trait Groups: Send + Sync {
    /// The payload of the seal of the next group: [`SEAL`], and anything.
    ///
    /// # Errors
    /// This server may append no more; the log fails then.
    fn seal(&self) -> Result<Vec<u8>>;

    /// A group is about to be written here: its batches without the seal, which ends at `end`.
    ///
    /// # Errors
    /// This server may append no more: nothing of the group is written, and the log fails.
    fn begin(&self, batches: Vec<u8>, end: Lsn) -> Result<()>;

    /// Everything below `end` is durable here. Returns what is agreed on now, as for [`Log::agree`].
    fn durable_here(&self, end: Lsn) -> Lsn;

    /// A start will read this server's log from `from` on only.
    ///
    /// # Errors
    /// The medium's; a start must be able to read from further back then.
    fn keep_from(&self, from: Lsn) -> Result<()>;
}

impl Log {
    /// Whether other servers have it, too.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Has this server append from now on, in a term that is not earlier than those before, and share what it appends by `groups`, which
    /// whoever calls this keeps. Until then a log that is shared only stores. Nobody may store meanwhile, or later.
    pub fn lead(&self, epoch: u32, groups: Weak<dyn Groups>) {
        assert!(self.is_shared, "a log that other servers have, too");
        self.appender.set_epoch(epoch);
        assert!(self.groups.set(groups).is_ok(), "a server comes to lead once");
        self.update_admission();
    }

    /// Everything below is durable on this server's medium.
    pub fn durable_here(&self) -> Lsn {
        self.durable_here.load(Ordering::Acquire)
    }

    /// Everything below `lsn` is durable on as many servers as must have it; nobody need have it here yet.
    pub fn agree(&self, lsn: Lsn) {
        self.agreed.fetch_max(lsn, Ordering::AcqRel);
        if self.advance() {
            self.update_admission();
            self.report_progress();
        }
    }

    /// As [`Groups::keep_from`].
    pub fn keep_from(&self, from: Lsn) -> Result<()> {
        self.groups()?.map_or(Ok(()), |groups| groups.keep_from(from))
    }

    /// Who shares the groups, if anybody does.
    pub(crate) fn groups(&self) -> Result<Option<Arc<dyn Groups>>> {
        let gone = || Error::Unusable("whoever shared the log with other servers is gone".into());
        self.groups.get().map(|groups| groups.upgrade().ok_or_else(gone)).transpose()
    }

    /// Everything below `end` has become durable here.
    pub(crate) fn advance_here(&self, end: Lsn) {
        self.durable_here.store(end, Ordering::Release);
        if let Ok(Some(groups)) = self.groups() {
            self.agreed.fetch_max(groups.durable_here(end), Ordering::AcqRel);
        }
        self.advance();
    }

    /// Moves the durable mark to where it can be; whether that is further than it was.
    fn advance(&self) -> bool {
        let durable = self.durable_here().min(self.agreed.load(Ordering::Acquire));
        self.durable.fetch_max(durable, Ordering::AcqRel) < durable
    }

    /// Appends batches as another server has appended them, at the end of this log, where they belong. Nobody else may append meanwhile.
    /// Returns where they end.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: they are not intact, or do not belong there. None is appended then.
    pub fn store(&self, batches: &[u8]) -> Result<Lsn> {
        let parsed = self.parse(batches, self.tail())?;
        for &(at, header) in &parsed {
            let payload = &batches[at + BATCH_HEADER..][..header.payload_len as usize];
            let lsn = self.appender.append_as(payload, header.epoch, self.durable());
            assert_eq!(lsn, header.lsn, "another one appends");
        }
        Ok(self.tail())
    }

    /// Appends a batch of an epoch that is not this log's: of one that another server begins or has begun.
    pub fn append_in(&self, epoch: u32, payload: &[u8]) -> Lsn {
        self.appender.append_as(payload, epoch, self.durable())
    }

    /// The payload of the batch that was written at `lsn`; `None`: there is none that is intact, or it is not kept.
    pub fn payload_at(&self, lsn: Lsn) -> Option<Vec<u8>> {
        let read = |len: usize| {
            let mut bytes = vec![0; len];
            self.read(lsn, &mut bytes).ok().filter(|&read| read == len).map(|_| bytes)
        };
        let header = BatchHeader::decode(&read(BATCH_HEADER)?);
        let end = lsn + header.batch_len();
        if header.lsn != lsn || end > self.written() {
            return None;
        }
        self.segments.may_be_intact(lsn, end, self.crc_seed).ok().filter(|&may_be| may_be)?;
        let mut batch = read(header.batch_len() as usize)?;
        if !batch_is_intact(&batch, self.crc_seed) {
            return None;
        }
        batch.truncate(BATCH_HEADER + header.payload_len as usize);
        Some(batch.split_off(BATCH_HEADER))
    }

    /// Whether `batches` are intact and follow one another, all of one epoch.
    pub fn check(&self, batches: &[u8], epoch: u32) -> bool {
        let first = batches.get(..BATCH_HEADER).map_or(0, |header| BatchHeader::decode(header).lsn);
        let parsed = self.parse(batches, first);
        parsed.is_ok_and(|parsed| parsed.iter().all(|(_, header)| header.epoch == epoch))
    }

    /// Where in `batches` each of them is, if they are intact and the first one belongs at `lsn`.
    fn parse(&self, batches: &[u8], mut lsn: Lsn) -> Result<Vec<(usize, BatchHeader)>> {
        let mut parsed = Vec::new();
        let (mut at, mut epoch) = (0, 0);
        while at < batches.len() {
            let refused = |what: &str| Error::corrupt("batches of another server", at as u64, what);
            let rest = &batches[at..];
            let header =
                rest.get(..BATCH_HEADER).map(BatchHeader::decode).ok_or_else(|| refused("cut short"))?;
            let len = usize::try_from(header.batch_len()).expect("a length of 32 bits");
            let batch = rest.get(..len).ok_or_else(|| refused("cut short"))?;
            if header.lsn != lsn || header.epoch < epoch {
                return Err(refused("not what follows here"));
            }
            if !batch_is_intact(batch, self.crc_seed) {
                return Err(refused("the batch fails its check"));
            }
            parsed.push((at, header));
            (at, lsn, epoch) = (at + len, lsn + len as u64, header.epoch);
        }
        Ok(parsed)
    }
}
