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
        bytes.truncate(len_without_zeros(&bytes));
        Ok(Some(part(bytes)))
    }
}

/// How many bytes there are up to the last one that is not zero. Files have large holes.
fn len_without_zeros(bytes: &[u8]) -> usize {
    static ZEROS: [u8; 4096] = [0; 4096];
    let holes = bytes.rchunks(ZEROS.len()).take_while(|block| **block == ZEROS[..block.len()]);
    let len = bytes.len() - holes.map(<[u8]>::len).sum::<usize>();
    bytes[..len].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::len_without_zeros;

    #[test]
    fn zeros_at_the_end_are_left_out() {
        for len in [0, 1, 4095, 4096, 4097, 10_000] {
            let mut bytes = vec![0; len];
            assert_eq!(len_without_zeros(&bytes), 0, "{len}");
            for last in [0, 1, len / 2, len.saturating_sub(4096), len.saturating_sub(1)] {
                if let Some(byte) = bytes.get_mut(last) {
                    *byte = 1;
                    assert_eq!(len_without_zeros(&bytes), last + 1, "{len}");
                    bytes[last] = 0;
                }
            }
        }
    }
}
