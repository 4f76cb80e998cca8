//! What is to be copied.

use crate::format::superblock::Superblock;
use data_encoding::HEXLOWER;
use holdfast_io::{BLOCK, Error, Result};
use holdfast_log::{LogIdentity, Lsn, SegmentPlace};
use std::fmt::Write;

/// What of a data folder makes one moment of it, for the process that copies.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// That of the checkpoint.
    pub(crate) superblock: Superblock,
    /// The end of the log.
    pub(crate) moment: Lsn,
    /// Oldest first.
    pub(crate) segments: Vec<SegmentPlace>,
}

impl Plan {
    /// The end of the log: everything below is in it, and nothing else.
    pub fn moment(&self) -> Lsn {
        self.moment
    }

    /// From where on a start reads the log of what is copied.
    pub fn replays_from(&self) -> Lsn {
        self.superblock.checkpoint_lsn
    }

    /// A text, for the way between two processes.
    pub fn encode(&self) -> String {
        let mut text =
            format!("superblock {}\nmoment {}\n", encode_superblock(&self.superblock), self.moment);
        for SegmentPlace { slot, seq, crossing, first } in &self.segments {
            writeln!(text, "segment {slot} {seq} {crossing} {first}")
                .expect("writing to a string cannot fail");
        }
        text
    }

    /// Reads what [`Plan::encode`] wrote.
    ///
    /// # Errors
    /// It is no plan, or not one that can be.
    pub fn decode(text: &str) -> Result<Plan> {
        let wrong = || Error::Unusable("the server has sent no plan of a backup".to_owned());
        let (mut superblock, mut moment, mut segments) = (None, None, Vec::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["superblock", hex] => superblock = Some(decode_superblock(hex).ok_or_else(wrong)?),
                ["moment", lsn] => moment = Some(lsn.parse().map_err(|_| wrong())?),
                ["segment", slot, seq, crossing, first] => {
                    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
                    segments.push(SegmentPlace {
                        slot: slot.parse().map_err(|_| wrong())?,
                        seq: number(seq)?,
                        crossing: number(crossing)?,
                        first: number(first)?,
                    });
                }
                _ => return Err(wrong()),
            }
        }
        let (Some(superblock), Some(moment)) = (superblock, moment) else { return Err(wrong()) };
        let plan = Plan { superblock, moment, segments };
        if plan.is_possible() { Ok(plan) } else { Err(wrong()) }
    }

    /// Whether the segments are in order, and all that are needed behind the checkpoint are among them.
    fn is_possible(&self) -> bool {
        let size = self.superblock.segment_size;
        if !size.is_power_of_two() || size < 4 * BLOCK as u32 || self.moment < self.superblock.durable_lsn {
            return false;
        }
        let numbers: Vec<u64> = self.segments.iter().map(|segment| segment.seq).collect();
        numbers.windows(2).all(|pair| pair[0] < pair[1])
            && numbers.last() == Some(&((self.moment - 1) / self.identity().payload()))
            && self.has_log_from(self.superblock.checkpoint_lsn)
    }

    /// Whether the log from an LSN on is there without a gap.
    pub(crate) fn has_log_from(&self, lsn: Lsn) -> bool {
        let payload = self.identity().payload();
        let (first, last) = (lsn / payload, (self.moment - 1) / payload);
        let wanted = (last + 1).saturating_sub(first);
        self.segments.iter().filter(|segment| segment.seq >= first).count() as u64 == wanted
    }

    pub(crate) fn identity(&self) -> LogIdentity {
        identity(&self.superblock)
    }
}

pub(crate) fn identity(superblock: &Superblock) -> LogIdentity {
    let Superblock { segment_size, store_id, epoch, .. } = *superblock;
    LogIdentity { segment_size, store_id, epoch, crc_seed: superblock.crc_seed() }
}

pub(crate) fn encode_superblock(superblock: &Superblock) -> String {
    HEXLOWER.encode(&superblock.encode())
}

pub(crate) fn decode_superblock(hex: &str) -> Option<Superblock> {
    let block = HEXLOWER.decode(hex.as_bytes()).ok().filter(|block| block.len() == BLOCK)?;
    Superblock::decode(&block).ok()
}
