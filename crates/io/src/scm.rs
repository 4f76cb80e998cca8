//! Storage-class memory (SCM): memory that is addressed by bytes and keeps them without power. Files on it are mapped, and written
//! by stores of the processor: no block is written and no page flushed, and nothing of it is a system call.
//!
//! A write is durable once its lines have left the processor and a fence has seen them off; one of [`WORD`] bytes is atomic,
//! and more is not. Reads go through the operating system, which answers an error where a load from a damaged line would end the
//! process; only what is about to be overwritten is loaded.

mod file;
mod memory;
mod shutdowns;

use std::{
    cell::Cell,
    ops::AddAssign,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use rustix::time::{ClockId, clock_gettime};

use crate::{Error, Result};
pub(crate) use file::ScmFile;
pub use shutdowns::dirty_shutdowns;

/// Bytes that the processor writes back at once.
pub const LINE: usize = 64;
/// Bytes that persist whole or not at all.
pub const WORD: usize = 8;

/// What kind of memory it is, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScmOptions {
    /// Memory that persists, or an emulation.
    pub medium: ScmMedium,
    /// How written lines leave the processor.
    pub write_back: WriteBack,
}

/// Memory that persists, or an emulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScmMedium {
    /// Files on a DAX file system, mapped such that what a fence has seen off is durable (`MAP_SYNC`).
    Dax,
    /// Files anywhere. Nothing but the process's own death is survived; each write takes as long as on such memory.
    Emulated(WriteDelay),
}

/// How long emulated memory takes for what a thread writes: from when it is stored, one after the other, until the thread's fence may end, which
/// waits for the rest. Reads are not delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteDelay {
    /// Each line in its turn takes so many nanoseconds (Giles, Doshi, Varman: Persisting In-Memory Databases Using SCM, 2016).
    Lines {
        /// Nanoseconds.
        line_ns: u32,
    },
    /// So many bytes a microsecond, and so many nanoseconds for the last of them: modules work on several lines at once.
    Bandwidth {
        /// Nanoseconds.
        latency_ns: u32,
        /// Bytes a microsecond, which is megabytes a second; not 0.
        bytes_per_us: u32,
    },
}

impl WriteDelay {
    /// Nanoseconds that so many lines keep the memory busy.
    fn busy_ns(self, lines: u64) -> u64 {
        match self {
            WriteDelay::Lines { line_ns } => lines * u64::from(line_ns),
            WriteDelay::Bandwidth { bytes_per_us, .. } => {
                lines * LINE as u64 * 1000 / u64::from(bytes_per_us.max(1))
            }
        }
    }

    /// Nanoseconds that the last line takes beyond that.
    fn latency_ns(self) -> u64 {
        match self {
            WriteDelay::Lines { .. } => 0,
            WriteDelay::Bandwidth { latency_ns, .. } => u64::from(latency_ns),
        }
    }
}

/// How written lines leave the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// Stores that pass the caches by.
    Stream,
    /// `clwb`: lines are written back, and may stay in the caches.
    Clwb,
    /// `clflushopt`: lines leave the caches.
    ClflushOpt,
    /// `clflush`: the same, one after the other.
    Clflush,
    /// They need not, since the caches keep what they hold without power (eADR).
    None,
}

impl WriteBack {
    /// All, with their names.
    pub const NAMES: [(&'static str, WriteBack); 5] = [
        ("stream", WriteBack::Stream),
        ("clwb", WriteBack::Clwb),
        ("clflushopt", WriteBack::ClflushOpt),
        ("clflush", WriteBack::Clflush),
        ("none", WriteBack::None),
    ];

    /// The one with a name.
    pub fn named(name: &str) -> Option<WriteBack> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, write_back)| *write_back)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// What was written to storage-class memory while it was counted, since the process began or [`Scm::reset`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScmStats {
    /// Times that something was loaded.
    pub loads: u64,
    /// Times that something was stored for a later fence: in place, or ahead of a commit.
    pub stores: u64,
    /// Writes to files, each of some bytes one after another: batches of the log, pages of the heap.
    pub streams: u64,
    /// Bytes stored.
    pub bytes: u64,
    /// Lines that were written back, or streamed.
    pub lines: u64,
    /// Fences, each of which made what its thread had stored durable.
    pub fences: u64,
    /// Nanoseconds that fences waited since the memory is emulated.
    pub delay_ns: u64,
    /// Nanoseconds that they waited longer than they were to, together and at most.
    pub overshoot_ns: u64,
    /// The most of a fence.
    pub overshoot_ns_max: u64,
}

impl ScmStats {
    /// Nothing.
    pub const NONE: ScmStats = ScmStats {
        loads: 0,
        stores: 0,
        streams: 0,
        bytes: 0,
        lines: 0,
        fences: 0,
        delay_ns: 0,
        overshoot_ns: 0,
        overshoot_ns_max: 0,
    };
}

impl AddAssign for ScmStats {
    fn add_assign(&mut self, more: ScmStats) {
        self.loads += more.loads;
        self.stores += more.stores;
        self.streams += more.streams;
        self.bytes += more.bytes;
        self.lines += more.lines;
        self.fences += more.fences;
        self.delay_ns += more.delay_ns;
        self.overshoot_ns += more.overshoot_ns;
        self.overshoot_ns_max = self.overshoot_ns_max.max(more.overshoot_ns_max);
    }
}

/// Storage-class memory, as a process uses it.
pub struct Scm {
    options: ScmOptions,
    is_counting: AtomicBool,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    loads: AtomicU64,
    stores: AtomicU64,
    streams: AtomicU64,
    bytes: AtomicU64,
    lines: AtomicU64,
    fences: AtomicU64,
    delay_ns: AtomicU64,
    overshoot_ns: AtomicU64,
    overshoot_ns_max: AtomicU64,
}

/// What a thread has stored since its last fence.
#[derive(Clone, Copy, Default)]
struct Unfenced {
    /// When emulated memory will have taken all of it in.
    taken_ns: u64,
    bytes: u64,
    lines: u64,
}

thread_local! {
    static UNFENCED: Cell<Unfenced> = const { Cell::new(Unfenced { taken_ns: 0, bytes: 0, lines: 0 }) };
    /// What the thread has counted and nobody has taken, if anything.
    static OF_THREAD: Cell<Option<ScmStats>> = const { Cell::new(None) };
}

impl Scm {
    /// Memory of this kind.
    ///
    /// # Errors
    /// [`Error::Unusable`]: this processor cannot write it so.
    pub fn new(options: ScmOptions) -> Result<Scm> {
        if !memory::has(options.write_back) {
            let name = options.write_back.name();
            return Err(Error::Unusable(format!("this processor cannot write memory back by {name}")));
        }
        Ok(Scm { options, is_counting: AtomicBool::new(true), counters: Counters::default() })
    }

    /// What kind of memory it is, and how it is written.
    pub fn options(&self) -> ScmOptions {
        self.options
    }

    /// What was written.
    pub fn stats(&self) -> ScmStats {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        let counters = &self.counters;
        ScmStats {
            loads: of(&counters.loads),
            stores: of(&counters.stores),
            streams: of(&counters.streams),
            bytes: of(&counters.bytes),
            lines: of(&counters.lines),
            fences: of(&counters.fences),
            delay_ns: of(&counters.delay_ns),
            overshoot_ns: of(&counters.overshoot_ns),
            overshoot_ns_max: of(&counters.overshoot_ns_max),
        }
    }

    /// Whether what is written is counted, as it is from the start on.
    pub fn is_counting(&self) -> bool {
        self.is_counting.load(Relaxed)
    }

    /// Counts what is written from now on, or does not.
    pub fn count(&self, on: bool) {
        self.is_counting.store(on, Relaxed);
    }

    /// Counts from nothing again.
    pub fn reset(&self) {
        let Counters { loads, stores, streams, bytes, lines, fences, .. } = &self.counters;
        let Counters { delay_ns, overshoot_ns, overshoot_ns_max, .. } = &self.counters;
        for counter in
            [loads, stores, streams, bytes, lines, fences, delay_ns, overshoot_ns, overshoot_ns_max]
        {
            counter.store(0, Relaxed);
        }
    }

    /// Whether it is an emulation.
    fn is_emulated(&self) -> bool {
        matches!(self.options.medium, ScmMedium::Emulated(_))
    }

    /// Notes that this thread is about to store so many bytes, which touch so many lines.
    pub(crate) fn begin_store(&self, bytes: u64, lines: u64) {
        let mut unfenced = UNFENCED.get();
        if let ScmMedium::Emulated(delay) = self.options.medium {
            unfenced.taken_ns = unfenced.taken_ns.max(raw_ns()) + delay.busy_ns(lines);
        }
        unfenced.bytes += bytes;
        unfenced.lines += lines;
        UNFENCED.set(unfenced);
    }

    /// What this thread has counted since it was asked last, if anything.
    #[inline]
    pub fn take_of_thread() -> Option<ScmStats> {
        OF_THREAD.take()
    }

    pub(crate) fn add(&self, more: ScmStats) {
        if !self.is_counting() {
            return;
        }
        let add = |counter: &AtomicU64, count: u64| {
            if count > 0 {
                counter.fetch_add(count, Relaxed);
            }
        };
        let counters = &self.counters;
        add(&counters.loads, more.loads);
        add(&counters.stores, more.stores);
        add(&counters.streams, more.streams);
        add(&counters.bytes, more.bytes);
        add(&counters.lines, more.lines);
        add(&counters.fences, more.fences);
        add(&counters.delay_ns, more.delay_ns);
        add(&counters.overshoot_ns, more.overshoot_ns);
        counters.overshoot_ns_max.fetch_max(more.overshoot_ns_max, Relaxed);
        let mut of_thread = OF_THREAD.get().unwrap_or_default();
        of_thread += more;
        OF_THREAD.set(Some(of_thread));
    }

    /// Makes durable what this thread has stored since its last fence; without anything it is none.
    pub(crate) fn fence(&self) {
        let Unfenced { taken_ns, bytes, lines } = UNFENCED.take();
        if lines == 0 {
            return;
        }
        memory::fence();
        let (delay_ns, overshoot_ns) = match self.options.medium {
            ScmMedium::Dax => (0, 0),
            ScmMedium::Emulated(delay) => wait_until(taken_ns + delay.latency_ns()),
        };
        self.add(ScmStats {
            bytes,
            lines,
            fences: 1,
            delay_ns,
            overshoot_ns,
            overshoot_ns_max: overshoot_ns,
            ..ScmStats::NONE
        });
    }
}

/// Waits for a time; returns how many nanoseconds it was away, and how many too many it took.
fn wait_until(due_ns: u64) -> (u64, u64) {
    let began_ns = raw_ns();
    let mut now_ns = began_ns;
    while now_ns < due_ns {
        std::hint::spin_loop();
        now_ns = raw_ns();
    }
    match due_ns.saturating_sub(began_ns) {
        0 => (0, 0),
        delay_ns => (delay_ns, now_ns - due_ns),
    }
}

/// Nanoseconds since some start, by a clock that nobody sets or adjusts.
fn raw_ns() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_by_both_models() {
        let lines = WriteDelay::Lines { line_ns: 60 };
        assert_eq!((lines.busy_ns(5), lines.latency_ns()), (300, 0));
        let bandwidth = WriteDelay::Bandwidth { latency_ns: 100, bytes_per_us: 2000 };
        assert_eq!([0, 1, 1000].map(|lines| bandwidth.busy_ns(lines)), [0, 32, 32_000]);
        assert_eq!(bandwidth.latency_ns(), 100);
    }

    #[test]
    fn a_fence_waits_for_the_rest_only() {
        let delay = WriteDelay::Lines { line_ns: 100_000 };
        let options = ScmOptions { medium: ScmMedium::Emulated(delay), write_back: WriteBack::Stream };
        let scm = Scm::new(options).expect("streaming stores");
        let store = || scm.begin_store(10 * LINE as u64, 10);
        // Stores 1 ms of work, does something else until so many nanoseconds have passed, stores as much again, and fences.
        let took = |other_ns: u64| {
            store();
            let began = UNFENCED.get().taken_ns - 1_000_000;
            while raw_ns() < began + other_ns {}
            store();
            scm.fence();
            raw_ns() - began
        };
        let both = took(500_000);
        assert!(both >= 2_000_000, "the second waits for the first: {both}");
        let stats = scm.stats();
        assert_eq!((stats.bytes, stats.lines, stats.fences), (1280, 20, 1));
        assert!(stats.delay_ns <= 1_500_000, "{stats:?}");
        assert!(both >= 2_000_000 + stats.overshoot_ns && stats.overshoot_ns == stats.overshoot_ns_max);
        let late = took(1_500_000);
        assert!(late >= 2_500_000, "nothing is taken in before it is stored: {late}");
        let delayed = scm.stats().delay_ns - stats.delay_ns;
        assert!(delayed <= 1_000_000, "{delayed}");
        scm.reset();
        scm.fence();
        assert_eq!(scm.stats(), ScmStats::default(), "there is nothing left to be fenced");
    }
}
