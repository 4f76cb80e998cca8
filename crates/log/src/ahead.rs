//! Storage-class memory: a thread stores what was appended ahead of its commit, so that the memory takes it in while the thread does something
//! else, and its fence has little left to wait for.

use std::{
    sync::atomic::{Ordering, fence},
    thread,
};

use crate::{
    Log,
    commit::{Ahead, Committer},
    layout::floor,
};

/// What is appended is stored once there is so much of it: a fence waits for no more than that.
const STEP: u64 = 512;

impl Log {
    /// On storage-class memory: stores what was appended for the caller's next [`Log::kick`], which makes it durable, if there is enough
    /// of it. Without that it may become durable, or a part of it. The caller must hold no lock that a callback of
    /// [`Log::on_progress`] takes.
    #[inline]
    pub fn store_ahead(&self) {
        if self.tail() >= self.stored.load(Ordering::Relaxed) + STEP {
            self.store_ahead_here();
        }
    }

    fn store_ahead_here(&self) {
        // What goes to other servers goes there first.
        if !self.commits_here || self.is_shared {
            return;
        }
        let Some(mut committer) = self.committer.try_lock() else { return };
        if self.failed.get().is_none() {
            self.store_filled(&mut committer);
        }
        drop(committer);
        // Somebody has left a commit to us.
        fence(Ordering::SeqCst);
        if self.kicked.load(Ordering::Relaxed) {
            self.commit_here();
        }
    }

    fn store_filled(&self, committer: &mut Committer) {
        let here = thread::current().id();
        // Two threads would need two fences.
        if committer.is_pending() || committer.ahead.is_some_and(|ahead| ahead.by != here) {
            return;
        }
        let (base, line) = (self.written(), self.unit as u64);
        let seq = self.segments.seq_of(base);
        let segment = self.segments.get(seq).filter(|segment| !segment.is_empty());
        let (Some(batches), Some(segment)) = (self.appender.filled(base), segment) else { return };
        let begun = committer.ahead.map_or(floor(base, line), |ahead| ahead.end);
        // The last line is for the commit, which fences what it writes.
        let last = floor(base + batches.len() as u64 - 1, line);
        let end = last.min(self.segments.reach_of(&segment));
        if end <= begun {
            return;
        }
        let store = || {
            let mut from = begun;
            if from < base {
                // The line that the last commit has begun.
                from += line;
                let first = [&committer.tail, &batches[..(from - base) as usize]].concat();
                segment.file.store(&first, self.segments.file_offset(begun))?;
            }
            let lines = &batches[(from - base) as usize..(end - base) as usize];
            segment.file.store(lines, self.segments.file_offset(from))
        };
        // If it fails, the commit stores it again, and meets the same.
        if store().is_ok() {
            committer.ahead = Some(Ahead { by: here, end });
            self.stored.store(end, Ordering::Relaxed);
        }
    }
}
