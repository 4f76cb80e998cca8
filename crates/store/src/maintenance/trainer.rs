//! Makes dictionaries of samples of small values ([`dictionary`](crate::format::dictionary)), once there are enough. That takes some
//! tenths of a second, so it has a thread of its own.

use super::Maintenance;
use crate::util::background::Background;
use holdfast_io::Result;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// How often it looks whether there are enough samples.
const TICK: Duration = Duration::from_secs(1);

impl Maintenance {
    /// Makes a dictionary, if there are enough samples and it pays; whether it did. Values are compressed with it once it is durable. Not for a
    /// log that other servers have, too: they would not have the dictionary.
    pub fn train(&self) -> Result<bool> {
        let shared = &self.engine.shared;
        if shared.log.is_shared() {
            return Ok(false);
        }
        let samples = shared.compression.take_samples();
        let Some(dictionary) = samples.and_then(|samples| shared.compression.train(&samples)) else {
            return Ok(false);
        };
        let written = dictionary.write(&*shared.io, self.checkpoints.store_id())?;
        self.checkpoints.count_written_beside(written);
        shared.compression.adopt(dictionary);
        Ok(true)
    }
}

/// Starts the thread that makes dictionaries.
pub(crate) fn start(maintenance: Arc<Maintenance>) -> Background {
    Background::start("holdfast-train", move |stop| run(&maintenance, stop))
}

fn run(maintenance: &Maintenance, stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        if let Err(e) = maintenance.train() {
            // It is not used, and nothing is lost: a later one may have room.
            maintenance.engine.shared.compression.note_failure(e.to_string());
        }
        thread::park_timeout(TICK);
    }
}
