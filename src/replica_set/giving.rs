//! A data folder that another server copies: one that rests, or one moment of the leader's.

use super::{
    frame::Frame,
    standing::{files, is_file},
};
use holdfast_consensus::{Extract, MemberId};
use holdfast_store::Io;
use std::{io, sync::Arc};

/// Bytes of a file that are asked for at once.
pub const PART: u64 = 1 << 20;

/// The folder.
pub struct Giving {
    set: u64,
    from: MemberId,
    copy: u64,
    folder: Arc<dyn Io>,
    files: Vec<(String, u64)>,
    extract: Extract,
}

impl Giving {
    /// Of the server `from`, with what its log begins and ends; `copy`: another number for each moment.
    ///
    /// # Errors
    /// The medium's.
    pub fn new(
        set: u64,
        from: MemberId,
        copy: u64,
        folder: Arc<dyn Io>,
        extract: Extract,
    ) -> io::Result<Giving> {
        let files = files(&*folder)?;
        Ok(Giving { set, from, copy, folder, files, extract })
    }

    /// Tells another server of it, which has asked for it by its `nonce`, or, 0, has not.
    pub fn offer(&self, to: MemberId, nonce: u64) -> Frame {
        Frame::Offer {
            set: self.set,
            from: self.from,
            to,
            nonce,
            copy: self.copy,
            extract: self.extract.clone(),
            files: self.files.clone(),
        }
    }

    /// A part of a file of a copy; without a name, that all was kept until now, which the caller knows. `None`: it is another copy, or there is no such
    /// file.
    ///
    /// # Errors
    /// The medium's.
    pub fn part(&self, copy: u64, name: &str, offset: u64) -> io::Result<Option<Frame>> {
        if copy != self.copy {
            return Ok(None);
        }
        let part = |bytes| Frame::Part { set: self.set, copy, name: name.to_owned(), offset, bytes };
        if name.is_empty() {
            return Ok(Some(part(Vec::new())));
        }
        let file = self.files.iter().find(|(known, _)| known == name);
        let Some((_, len)) = file.filter(|(name, len)| is_file(name) && offset < *len) else {
            return Ok(None);
        };
        let mut bytes = vec![0; (len - offset).min(PART) as usize];
        self.folder.open(name, false)?.read_at(&mut bytes, offset)?;
        bytes.truncate(bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1));
        Ok(Some(part(bytes)))
    }
}
