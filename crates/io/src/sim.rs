//! A machine in memory, on which everything that may go wrong does, as a seed decides.

mod cut;
mod disk;
mod rng;

use std::{
    io::{self, ErrorKind},
    mem,
    sync::Arc,
    thread,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    BLOCK, Durability, Error, File, Io, ReadQueue, SECTOR, Scm, ScmMedium, ScmOptions, WORD, WriteBack,
    WriteDelay,
};
pub use cut::{Outcome, PowerCut};
use disk::{Inode, Names, Node};
use rng::Rng;

/// The simulated wall clock's start: 2024-01-01 UTC, in milliseconds since 1970.
const START_MS: u64 = 1_704_067_200_000;

/// A simulated machine; clones are the same machine.
///
/// A process that dies is one that drops its files and opens them again here. A power cut is [`SimIo::crash`]:
/// of every volatile write that was not synced each sector survives or not, of every `set_len`, creation and
/// removal that was not synced the whole, independently of each other. One seed and one sequence of calls give
/// one result.
#[derive(Clone)]
pub struct SimIo(Arc<Mutex<Machine>>, Option<Arc<Scm>>);

/// An operation of the machine that fails, once, with `EIO` unless told otherwise. Made by [`Fault::read`], [`Fault::write`] and
/// [`Fault::sync`] for files whose name starts with a prefix.
#[derive(Clone, Debug)]
pub struct Fault {
    operation: Operation,
    prefix: String,
    skip: u64,
    sticky: bool,
    effect: Effect,
}

/// What a fault does to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It fails with this number of an error.
    Fails(i32),
    /// A write that says it was done, and was not.
    Lost,
    /// A write that says it was done, and was done a block further.
    Misdirected,
    /// A write that says it was done, and of which only the first part was.
    Short,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Sync,
}

impl Effect {
    fn error(self) -> io::Error {
        match self {
            Effect::Fails(errno) => io::Error::from_raw_os_error(errno),
            Effect::Lost | Effect::Misdirected | Effect::Short => unreachable!("who suffers it is not told"),
        }
    }
}

impl Fault {
    fn new(operation: Operation, prefix: &str) -> Self {
        Self {
            operation,
            prefix: prefix.to_owned(),
            skip: 0,
            sticky: false,
            effect: Effect::Fails(rustix::io::Errno::IO.raw_os_error()),
        }
    }

    /// Fails a read.
    pub fn read(prefix: &str) -> Self {
        Self::new(Operation::Read, prefix)
    }

    /// Fails a `set_len`, which then does nothing, or a write, of which some sectors then arrive, volatile.
    pub fn write(prefix: &str) -> Self {
        Self::new(Operation::Write, prefix)
    }

    /// Fails a sync of a file, after which some of what was pending is lost for good: a second sync succeeds and
    /// reads show it, but it is not on the medium. Or a sync of a folder (its name ends in `/`, the root's is
    /// empty), which then does nothing.
    pub fn sync(prefix: &str) -> Self {
        Self::new(Operation::Sync, prefix)
    }

    /// Loses a write, which says that it was done.
    pub fn lost_write(prefix: &str) -> Self {
        Self { effect: Effect::Lost, ..Self::new(Operation::Write, prefix) }
    }

    /// Has a write, which says that it was done, arrive a block further.
    pub fn misdirected_write(prefix: &str) -> Self {
        Self { effect: Effect::Misdirected, ..Self::new(Operation::Write, prefix) }
    }

    /// Has only the first sectors of a write arrive, not all and perhaps none. The write says that it was done.
    pub fn short_write(prefix: &str) -> Self {
        Self { effect: Effect::Short, ..Self::new(Operation::Write, prefix) }
    }

    /// Fails with another error than `EIO`, by its number.
    pub fn with_error(self, errno: i32) -> Self {
        Self { effect: Effect::Fails(errno), ..self }
    }

    /// Lets `count` matching operations pass before.
    pub fn after(self, count: u64) -> Self {
        Self { skip: count, ..self }
    }

    /// Fails every matching operation from then on.
    pub fn sticky(self) -> Self {
        Self { sticky: true, ..self }
    }
}

/// What code for storage-class memory may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScmBug {
    /// A fence is forgotten: the next one of the thread makes durable what it was for.
    FenceMissing,
    /// What is stored is not written back: no fence makes it durable.
    WriteBackMissing,
    /// What is stored comes behind the next fence, and so behind what is published by that.
    StoreAfterFence,
}

/// What a test wants to do before a fence.
type BeforeFence = Arc<dyn Fn(&SimIo) + Send + Sync>;

/// What it wants to do before a read.
type BeforeRead = Arc<dyn Fn() + Send + Sync>;

struct Machine {
    rng: Rng,
    names: Names,
    powered: bool,
    operations: u64,
    crash_at: Option<u64>,
    faults: Vec<Fault>,
    capacity: u64,
    quota: u64,
    tells_free_bytes: bool,
    bytes_written: u64,
    reads: u64,
    clock_us: u64,
    held: Held,
    /// Files with stores that may not be fenced.
    stored: Vec<Node>,
    /// What is called before each fence.
    before_fence: Option<BeforeFence>,
    /// What is called before each read of a file.
    before_read: Option<BeforeRead>,
    /// The moments that are noted at which the power may go; `None`: none are.
    cuts: Option<Vec<PowerCut>>,
    /// A bug to be played, and after how many operations.
    bug: Option<(ScmBug, u64)>,
    /// Stores that wait for a fence to pass.
    late: Vec<(Node, usize, Vec<u8>)>,
}

/// Writes that wait until the test lets them pass.
#[derive(Default)]
struct Held {
    /// To files with names that start so; `None`: no writes are held.
    prefix: Option<String>,
    /// How many wait.
    waiting: u64,
    /// How many of them may pass.
    passes: u64,
    changed: Arc<Condvar>,
}

impl SimIo {
    /// A machine with an empty data folder and room for 1 TiB. All chance in it comes from `seed`.
    pub fn new(seed: u64) -> Self {
        Self::with(Machine::new(seed), None)
    }

    fn with(machine: Machine, scm: Option<Arc<Scm>>) -> Self {
        Self(Arc::new(Mutex::new(machine)), scm)
    }

    /// The same with storage-class memory as its medium: what is written is durable when the write returns, and of a write in which
    /// the power goes any of the words survive, as of streamed stores.
    pub fn on_scm(seed: u64) -> Self {
        let medium = ScmMedium::Emulated(WriteDelay::Lines { line_ns: 0 });
        let scm = Scm::new(ScmOptions { medium, write_back: WriteBack::None });
        Self::with(Machine::new(seed), Some(Arc::new(scm.expect("every processor can do nothing"))))
    }

    /// Cuts the power, if it is not cut yet, and returns a machine with what is on the medium, the clock and the
    /// capacity of this one, its counters at zero and no faults. Everything but reading fails on this machine from then
    /// on, and another `crash`, which returns another outcome of the same power cut.
    pub fn crash(&self) -> SimIo {
        let mut machine = self.0.lock();
        machine.powered = false;
        machine.held.changed.notify_all();
        let mut rng = Rng::new(machine.rng.draw());
        let names = machine.names.after_power_cut(&mut rng);
        Self::with(machine.like(names, rng.draw()), self.1.clone())
    }

    /// Another machine with what this one sees now, all of it durable, the clock and the capacity of this one, its counters
    /// at zero and no faults. Nothing happens to this one.
    pub fn fork(&self) -> SimIo {
        let machine = self.0.lock();
        let names = machine.names.fork();
        Self::with(machine.like(names, machine.operations), self.1.clone())
    }

    /// Another data folder on this machine.
    pub fn folder(&self, path: &str) -> Arc<dyn Io> {
        Arc::new(SimFolder { machine: self.clone(), prefix: format!("{path}/") })
    }

    /// Another data folder of this machine, on a drive, whatever its other medium.
    pub fn folder_on_drive(&self, path: &str) -> Arc<dyn Io> {
        SimIo(self.0.clone(), None).folder(path)
    }

    /// Cuts the power in the middle of the `count`-th of the coming [`operations`](Self::operations), from 1: it
    /// fails, as does everything after it, and [`crash`](Self::crash) decides how much of it is done.
    ///
    /// # Panics
    /// If `count` is 0.
    pub fn crash_after(&self, count: u64) {
        assert!(count > 0, "operations are counted from 1");
        let mut machine = self.0.lock();
        machine.crash_at = Some(machine.operations + count);
    }

    /// How many operations pass before the one that [`crash_after`](Self::crash_after) has named.
    pub fn operations_left(&self) -> Option<u64> {
        let machine = self.0.lock();
        machine.crash_at.map(|at| (at - 1).saturating_sub(machine.operations))
    }

    /// Whether an error is the power cut's own, and the power is off. Any other error has another cause, however near the
    /// cut was.
    pub fn is_power_cut(&self, error: &Error) -> bool {
        let is_its = |source: &io::Error| source.to_string() == power_cut().to_string();
        !self.0.lock().powered && matches!(error, Error::Io { source, .. } if is_its(source))
    }

    /// How many operations that change the medium were begun: writes, `set_len`, syncs, creations and removals.
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Arranges for a fault, beside those that are arranged already.
    pub fn fault(&self, fault: Fault) {
        self.0.lock().faults.push(fault);
    }

    /// Takes back all faults.
    pub fn clear_faults(&self) {
        self.0.lock().faults.clear();
    }

    /// Sets how many bytes all files together may have; what would grow beyond fails with `StorageFull`.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.lock().capacity = bytes;
    }

    /// The same as a quota, which the medium's free bytes say nothing of; what would grow beyond fails with `QuotaExceeded`.
    pub fn set_quota(&self, bytes: u64) {
        self.0.lock().quota = bytes;
    }

    /// Has the medium not tell any more how many of its bytes are free.
    pub fn hide_free_bytes(&self) {
        self.0.lock().tells_free_bytes = false;
    }

    /// Holds writes to files whose names start with `prefix` before they begin: they wait, in the thread that wants them,
    /// until they may pass.
    pub fn hold_writes(&self, prefix: &str) {
        let held = &mut self.0.lock().held;
        (held.prefix, held.passes) = (Some(prefix.to_owned()), 0);
    }

    /// How many writes are held now.
    pub fn held_writes(&self) -> u64 {
        let machine = self.0.lock();
        machine.held.waiting - machine.held.passes.min(machine.held.waiting)
    }

    /// Lets one write pass, be it held already or not.
    pub fn pass_write(&self) {
        let held = &mut self.0.lock().held;
        held.passes += 1;
        held.changed.notify_all();
    }

    /// Lets all writes pass, those that are held first.
    pub fn release_writes(&self) {
        let held = &mut self.0.lock().held;
        held.prefix = None;
        held.changed.notify_all();
    }

    /// Notes from now on each moment at which the power may go, in storage-class memory: before each fence, of a write's own, too, and
    /// before each sync.
    pub fn note_cuts(&self) {
        self.0.lock().cuts = Some(Vec::new());
    }

    /// The moments that were noted since the last call; none are from then on.
    pub fn take_cuts(&self) -> Vec<PowerCut> {
        self.0.lock().cuts.take().unwrap_or_default()
    }

    /// Plays a bug of the code that runs on this machine, once, when so many fences, or stores, have passed.
    pub fn play(&self, bug: ScmBug, after: u64) {
        self.0.lock().bug = Some((bug, after));
    }

    /// Calls `call` before each fence of a thread that has stored ([`Io::fence`]), in that thread: what others do meanwhile comes between
    /// the stores and their fence.
    pub fn before_fence(&self, call: impl Fn(&SimIo) + Send + Sync + 'static) {
        self.0.lock().before_fence = Some(Arc::new(call));
    }

    /// Calls this before each read of a file, which is on its way then: others may free the file meanwhile.
    pub fn before_read(&self, call: impl Fn() + Send + Sync + 'static) {
        self.0.lock().before_read = Some(Arc::new(call));
    }

    /// Inverts bit `bit` (0 to 7) of the byte at `offset` of a file, durably.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, file: &str, offset: u64, bit: u32) {
        let machine = self.0.lock();
        let mut inode = machine.names.get(file).expect("a file to damage").lock();
        let byte = inode.data()[offset as usize] ^ (1 << bit);
        inode.write(offset as usize, vec![byte], true);
    }

    /// The bytes of a file as the machine sees them.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn snapshot(&self, file: &str) -> Vec<u8> {
        self.0.lock().names.get(file).expect("a file to look at").lock().data().to_vec()
    }

    /// How many bytes were given to writes that succeeded.
    pub fn bytes_written(&self) -> u64 {
        self.0.lock().bytes_written
    }

    /// How many reads of files were begun.
    pub fn reads(&self) -> u64 {
        self.0.lock().reads
    }

    /// Moves both clocks forward; nothing else does.
    pub fn advance_ms(&self, ms: u64) {
        self.0.lock().clock_us += ms * 1000;
    }
}

/// A folder of a machine that is a data folder of its own.
struct SimFolder {
    machine: SimIo,
    prefix: String,
}

impl SimFolder {
    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn folder(&self, name: &str) -> String {
        self.path(name).trim_end_matches('/').to_owned()
    }
}

impl Io for SimFolder {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        self.machine.open(&self.path(name), create)
    }

    fn scm(&self) -> Option<&Scm> {
        self.machine.scm()
    }

    fn fence(&self) -> io::Result<()> {
        self.machine.fence()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.machine.remove(&self.path(name))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.machine.list(&self.folder(folder))
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        self.machine.sync_dir(&self.folder(folder))
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.machine.free_bytes()
    }

    fn read_queue(&self, depth: u32) -> io::Result<ReadQueue> {
        self.machine.read_queue(depth)
    }

    fn now_ms(&self) -> u64 {
        self.machine.now_ms()
    }

    fn monotonic_us(&self) -> u64 {
        self.machine.monotonic_us()
    }

    fn random(&self, buf: &mut [u8]) {
        self.machine.random(buf);
    }
}

impl Io for SimIo {
    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let mut machine = self.0.lock();
        machine.powered()?;
        let node = match machine.names.get(name) {
            Some(node) => node.clone(),
            None if create => {
                let step = machine.step()?;
                let node = Inode::new(if self.1.is_some() { WORD } else { SECTOR });
                machine.names.set(name, Some(node.clone()));
                step.finish()?;
                node
            }
            None => return Err(ErrorKind::NotFound.into()),
        };
        let (machine, scm) = (self.0.clone(), self.1.clone());
        Ok(Arc::new(SimFile { machine, scm, name: name.to_owned(), node }))
    }

    fn scm(&self) -> Option<&Scm> {
        self.1.as_deref()
    }

    fn fence(&self) -> io::Result<()> {
        let before_fence = self.0.lock().before_fence.clone();
        if let Some(call) = before_fence {
            call(self);
        }
        let mut machine = self.0.lock();
        machine.step()?.finish()?;
        machine.note_cut(self.1.as_ref());
        machine.fence();
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut machine = self.0.lock();
        let step = machine.step()?;
        machine.names.get(name).ok_or(ErrorKind::NotFound)?;
        machine.names.set(name, None);
        step.finish()
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let machine = self.0.lock();
        machine.powered()?;
        Ok(machine.names.list(folder))
    }

    fn sync_dir(&self, folder: &str) -> io::Result<()> {
        let mut machine = self.0.lock();
        machine.step()?.finish()?;
        machine.note_cut(self.1.as_ref());
        let path = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        if let Some(effect) = machine.strikes(Operation::Sync, &path) {
            return Err(effect.error());
        }
        machine.names.sync(folder);
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let machine = self.0.lock();
        machine.powered()?;
        Ok(machine.tells_free_bytes.then(|| machine.capacity.saturating_sub(machine.used())))
    }

    fn read_queue(&self, _depth: u32) -> io::Result<ReadQueue> {
        Ok(ReadQueue::immediate())
    }

    fn now_ms(&self) -> u64 {
        START_MS + self.0.lock().clock_us / 1000
    }

    fn monotonic_us(&self) -> u64 {
        self.0.lock().clock_us
    }

    fn random(&self, buf: &mut [u8]) {
        self.0.lock().rng.fill(buf);
    }
}

impl Machine {
    fn new(seed: u64) -> Machine {
        Machine {
            rng: Rng::new(seed),
            names: Names::default(),
            powered: true,
            operations: 0,
            crash_at: None,
            faults: Vec::new(),
            capacity: 1 << 40,
            quota: u64::MAX,
            tells_free_bytes: true,
            bytes_written: 0,
            reads: 0,
            clock_us: 0,
            held: Held::default(),
            stored: Vec::new(),
            before_fence: None,
            before_read: None,
            cuts: None,
            bug: None,
            late: Vec::new(),
        }
    }

    /// Another one with these files, the clock and the capacity of this one.
    fn like(&self, names: Names, seed: u64) -> Machine {
        Machine {
            names,
            capacity: self.capacity,
            quota: self.quota,
            tells_free_bytes: self.tells_free_bytes,
            clock_us: self.clock_us,
            ..Machine::new(seed)
        }
    }

    /// Stores bytes, for this thread's next fence to make durable.
    fn store(&mut self, node: &Node, start: usize, bytes: Vec<u8>) {
        let thread = thread::current().id();
        match self.breaks(|bug| matches!(bug, ScmBug::WriteBackMissing | ScmBug::StoreAfterFence)) {
            Some(ScmBug::StoreAfterFence) => {
                node.lock().show(start, &bytes);
                self.late.push((node.clone(), start, bytes));
                return;
            }
            Some(_) => node.lock().store(start, bytes, None),
            None => node.lock().store(start, bytes, Some(thread)),
        }
        if !self.stored.iter().any(|stored| Arc::ptr_eq(stored, node)) {
            self.stored.push(node.clone());
        }
    }

    /// Makes durable what this thread has stored.
    fn fence(&mut self) {
        let thread = thread::current().id();
        let has_stored = self.stored.iter().any(|node| node.lock().has_stores());
        if !has_stored || self.breaks(|bug| bug == ScmBug::FenceMissing).is_none() {
            self.stored.iter().for_each(|node| node.lock().fence(thread));
            self.stored.retain(|node| node.lock().has_stores());
        }
        for (node, start, bytes) in mem::take(&mut self.late) {
            self.store(&node, start, bytes);
        }
    }

    /// The bug that is played, if it is one of these and this is its time.
    fn breaks(&mut self, is_such: impl Fn(ScmBug) -> bool) -> Option<ScmBug> {
        let (bug, after) = self.bug.filter(|(bug, _)| is_such(*bug))?;
        self.bug = after.checked_sub(1).map(|after| (bug, after));
        self.bug.is_none().then_some(bug)
    }

    /// Notes what the power could leave if it went now.
    fn note_cut(&mut self, scm: Option<&Arc<Scm>>) {
        if self.cuts.is_some() {
            let cut = PowerCut::of(self, scm.cloned());
            self.cuts.get_or_insert_default().push(cut);
        }
    }

    fn powered(&self) -> io::Result<()> {
        if self.powered { Ok(()) } else { Err(power_cut()) }
    }

    /// Begins an operation that changes the medium.
    fn step(&mut self) -> io::Result<Step> {
        self.powered()?;
        self.operations += 1;
        self.powered = self.crash_at != Some(self.operations);
        Ok(if self.powered { Step::Whole } else { Step::CutShort })
    }

    /// What an operation is to suffer, if anything.
    fn strikes(&mut self, operation: Operation, file: &str) -> Option<Effect> {
        let mut struck = None;
        self.faults.retain_mut(|fault| {
            if fault.operation != operation || !file.starts_with(&fault.prefix) {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            struck = Some(fault.effect);
            fault.sticky
        });
        struck
    }

    fn used(&self) -> u64 {
        self.names.nodes().map(|node| node.lock().space() as u64).sum()
    }

    /// Refuses to let bytes from `start` to `end` be written to a file if they take more than the medium has left.
    fn make_room(&self, node: &Node, start: usize, end: usize) -> io::Result<()> {
        let growth = node.lock().growth(start, end) as u64;
        let used = if growth > 0 { self.used() + growth } else { 0 };
        match () {
            () if used > self.capacity => Err(ErrorKind::StorageFull.into()),
            () if used > self.quota => Err(ErrorKind::QuotaExceeded.into()),
            () => Ok(()),
        }
    }
}

/// Waits while writes to this file are held.
fn wait_while_held(machine: &mut MutexGuard<Machine>, name: &str) {
    let is_held = |machine: &Machine| {
        machine.powered && machine.held.prefix.as_ref().is_some_and(|p| name.starts_with(p))
    };
    if !is_held(machine) {
        return;
    }
    let changed = machine.held.changed.clone();
    machine.held.waiting += 1;
    while is_held(machine) && machine.held.passes == 0 {
        changed.wait(machine);
    }
    machine.held.waiting -= 1;
    machine.held.passes = machine.held.passes.saturating_sub(1);
}

/// How far an operation gets. One that is cut short leaves all it does pending, for the crash to decide about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Whole,
    CutShort,
}

impl Step {
    fn finish(self) -> io::Result<()> {
        match self {
            Step::Whole => Ok(()),
            Step::CutShort => Err(power_cut()),
        }
    }
}

fn power_cut() -> io::Error {
    io::Error::other("simulated power cut")
}

/// The machine's lock is always taken before a file's.
struct SimFile {
    machine: Arc<Mutex<Machine>>,
    /// If there is one, every write is durable when it returns.
    scm: Option<Arc<Scm>>,
    name: String,
    node: Node,
}

impl SimFile {
    fn check_scm(&self) -> io::Result<()> {
        if self.scm.is_some() { Ok(()) } else { Err(ErrorKind::Unsupported.into()) }
    }
}

impl File for SimFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let before_read = self.machine.lock().before_read.clone();
        if let Some(call) = before_read {
            call();
        }
        let mut machine = self.machine.lock();
        // The power may be off: nothing that is read makes a difference any more, but a process that needs a page of its heap could
        // not go on to where it finds out.
        machine.reads += 1;
        if let Some(effect) = machine.strikes(Operation::Read, &self.name) {
            return Err(effect.error());
        }
        let start = address(offset)?;
        let inode = self.node.lock();
        let bytes = inode.data().get(start..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64, durability: Durability) -> io::Result<()> {
        let mut machine = self.machine.lock();
        wait_while_held(&mut machine, &self.name);
        let machine = &mut *machine;
        let step = machine.step()?;
        let start = address(offset)?;
        let mut bytes = bufs.concat();
        machine.make_room(&self.node, start, start + bytes.len())?;
        let mut inode = self.node.lock();
        let len = bytes.len() as u64;
        let start = match machine.strikes(Operation::Write, &self.name) {
            None => start,
            Some(Effect::Lost) => return step.finish(),
            Some(Effect::Misdirected) => start + BLOCK,
            Some(Effect::Short) => {
                inode.cut_short(&mut bytes, &mut machine.rng);
                start
            }
            Some(effect @ Effect::Fails(_)) => {
                inode.tear(start, &bytes, &mut machine.rng);
                return Err(effect.error());
            }
        };
        if self.scm.is_some() {
            drop(inode);
            machine.store(&self.node, start, bytes);
            step.finish()?;
            machine.note_cut(self.scm.as_ref());
            machine.fence();
        } else {
            inode.write(start, bytes, durability == Durability::Durable && step == Step::Whole);
            step.finish()?;
        }
        machine.bytes_written += len;
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_scm()?;
        let end = offset.checked_add(len).ok_or(ErrorKind::FileTooLarge)?;
        if end <= self.len()? { Ok(()) } else { self.set_len(end) }
    }

    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.check_scm()?;
        let machine = &mut *self.machine.lock();
        machine.powered()?;
        let start = address(offset)?;
        if let Some(effect) = machine.strikes(Operation::Write, &self.name) {
            return Err(effect.error());
        }
        let end = self.node.lock().data().len();
        assert!(start + bytes.len() <= end, "a store within what was allocated");
        machine.store(&self.node, start, bytes.to_vec());
        machine.bytes_written += bytes.len() as u64;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let machine = &mut *self.machine.lock();
        machine.step()?.finish()?;
        machine.note_cut(self.scm.as_ref());
        let mut inode = self.node.lock();
        if let Some(effect) = machine.strikes(Operation::Sync, &self.name) {
            inode.sync_fails(&mut machine.rng);
            return Err(effect.error());
        }
        inode.sync();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let machine = self.machine.lock();
        machine.powered()?;
        Ok(self.node.lock().data().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut machine = self.machine.lock();
        let step = machine.step()?;
        let len = address(len)?;
        machine.make_room(&self.node, len, len)?;
        match machine.strikes(Operation::Write, &self.name) {
            Some(effect @ Effect::Fails(_)) => return Err(effect.error()),
            Some(Effect::Lost | Effect::Misdirected | Effect::Short) => return step.finish(),
            None => {}
        }
        self.node.lock().set_len(len);
        step.finish()
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<bool> {
        let mut machine = self.machine.lock();
        let step = machine.step()?;
        let (offset, len) = (address(offset)?, address(len)?);
        match machine.strikes(Operation::Write, &self.name) {
            Some(effect @ Effect::Fails(_)) => return Err(effect.error()),
            Some(Effect::Lost | Effect::Misdirected | Effect::Short) => {}
            None => self.node.lock().punch_hole(offset, len),
        }
        step.finish()?;
        Ok(true)
    }
}

/// An offset as a position in memory; a file that memory cannot hold is too large.
fn address(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).ok().filter(|&at| at <= isize::MAX as usize).ok_or(ErrorKind::FileTooLarge.into())
}
