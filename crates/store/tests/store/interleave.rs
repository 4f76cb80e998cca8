//! What a store does by itself, step by step between and within transactions, on machines that fail.
//!
//! Checkpoints, cleaning, expiry, sweeping and freezing run in a thread of their own, but one thread runs at a time, and a seed
//! says when the other one goes on: before each lock of a partition the background stops, and the writer does something else,
//! with some transactions open meanwhile on other partitions. Where the heap is changed in place in storage-class memory, the background
//! also goes on while a commit is between its stores and their fence. Then a device fails, or lies, or the power goes; and while no
//! process runs, a bit may flip on the medium.
//!
//! Whatever happens, what a start finds is what some first part of the committed batches has left, with all that was
//! acknowledged; only a medium that lies may cost that, and then the store says which file is damaged, and where, or has an
//! older state, never a wrong one. A flipped bit costs the last commit at most: that alone may look like a torn tail.

use crate::{
    history::{Op, State, apply, random_ops, run, try_dump},
    lives::{any_compression, any_folders, any_heap_below, any_home, any_machine},
    oracle,
    seeds::{Rng, with_seeds},
};
use holdfast_io::Fault;
use holdfast_store::{Admission, Error, HomeMethod, Io, OpenError, Options, SimIo, Store, Txn};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    cell::Cell,
    collections::BTreeSet,
    mem,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// What the background does as one piece of work.
#[derive(Clone, Copy, Debug)]
enum Task {
    Checkpoint,
    Clean,
    Expire,
    Sweep,
    Condense,
    Freeze(u64),
}

impl Task {
    fn random(rng: &mut Rng) -> Task {
        match rng.below(12) {
            10.. => Task::Condense,
            0..3 => Task::Checkpoint,
            3..6 => Task::Clean,
            6 | 7 => Task::Expire,
            8 => Task::Sweep,
            _ => Task::Freeze(1 + rng.below(50_000)),
        }
    }

    fn run(self, store: &Store) -> Result<(), OpenError> {
        match self {
            Task::Checkpoint => store.checkpoint(),
            Task::Clean => store.clean().map(drop),
            Task::Expire => store.expire(),
            Task::Sweep => {
                store.sweep();
                Ok(())
            }
            Task::Condense => {
                store.condense();
                Ok(())
            }
            Task::Freeze(bytes) => store.freeze(bytes).map(drop),
        }
    }
}

/// Whose turn it is. Writer and background never run at the same time.
#[derive(Default)]
struct Baton {
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Default)]
struct Turn {
    is_backgrounds: bool,
    /// What the background is at, or is to begin.
    task: Option<Task>,
    /// The partitions that it locks next.
    wants: Vec<u16>,
    /// What the commit that is under way lets happen before its fences.
    at_fences: AtFences,
    /// Nobody waits for his turn any more.
    is_over: bool,
}

/// What happens before the fences of a commit.
#[derive(Default)]
struct AtFences {
    /// Steps that the background may take.
    steps: u64,
    /// Whether the power goes once the background has come to an end of its work there.
    cuts: bool,
    /// The partitions that are locked meanwhile.
    locked: Vec<u16>,
}

thread_local! {
    static IS_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

impl Baton {
    /// Lets the other one run until it gives the turn back.
    fn pass(&self, turn: &mut MutexGuard<'_, Turn>, to_background: bool) {
        turn.is_backgrounds = to_background;
        self.changed.notify_all();
        self.wait(turn, !to_background);
    }

    /// Lets the background run while the writer commits; whether it has given the turn back. It may wait for that very commit, and goes on
    /// beside it then.
    fn try_pass(&self, turn: &mut MutexGuard<'_, Turn>) -> bool {
        const STEP_MAX: Duration = Duration::from_millis(20);
        turn.is_backgrounds = true;
        self.changed.notify_all();
        self.changed.wait_while_for(turn, |turn| turn.is_backgrounds && !turn.is_over, STEP_MAX);
        !turn.is_backgrounds
    }

    /// Runs a commit, at whose fences the background may do something.
    fn commit<R>(&self, at_fences: AtFences, commit: impl FnOnce() -> R) -> R {
        self.turn.lock().at_fences = at_fences;
        let committed = commit();
        let mut turn = self.turn.lock();
        turn.at_fences = AtFences::default();
        self.wait(&mut turn, false);
        committed
    }

    /// Waits for one's turn.
    fn wait(&self, turn: &mut MutexGuard<'_, Turn>, of_background: bool) {
        while turn.is_backgrounds != of_background && !turn.is_over {
            let waited = self.changed.wait_for(turn, Duration::from_secs(60));
            assert!(!waited.timed_out(), "the other thread waits for a lock, or for ever");
        }
    }

    /// The background is about to lock partitions.
    fn before(&self, partitions: &[u16]) {
        if IS_BACKGROUND.get() {
            let mut turn = self.turn.lock();
            turn.wants = partitions.to_vec();
            self.pass(&mut turn, false);
        }
    }

    /// The writer is about to fence what it has stored.
    fn before_fence(&self, sim: &SimIo) {
        if IS_BACKGROUND.get() {
            return;
        }
        let mut turn = self.turn.lock();
        while turn.at_fences.steps > 0 && !turn.wants.iter().any(|p| turn.at_fences.locked.contains(p)) {
            turn.at_fences.steps -= 1;
            turn.task.get_or_insert(Task::Checkpoint);
            STEPS_AT_FENCES.fetch_add(1, Relaxed);
            if !self.try_pass(&mut turn) {
                turn.at_fences.steps = 0;
                return;
            }
            if turn.task.is_none() {
                ENDED_AT_FENCES.fetch_add(1, Relaxed);
                if turn.at_fences.cuts {
                    turn.at_fences.steps = 0;
                    sim.crash_after(1);
                }
            }
        }
    }

    /// The background's thread.
    fn work(&self, store: &Store) {
        IS_BACKGROUND.set(true);
        let mut turn = self.turn.lock();
        self.wait(&mut turn, true);
        while !turn.is_over {
            let task = turn.task.expect("a task");
            drop(turn);
            match task.run(store) {
                // As the maintenance thread does.
                Err(why) if !why.is_full() => store.log().fail(&why),
                _ => {}
            }
            TASKS.fetch_add(1, Relaxed);
            turn = self.turn.lock();
            (turn.task, turn.wants) = (None, Vec::new());
            self.pass(&mut turn, false);
        }
    }
}

/// Ends the background's thread, also when the test fails.
struct Ending<'b>(&'b Baton);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.turn.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

/// A transaction that is not committed yet.
struct Open<'s> {
    txn: Txn<'s>,
    partitions: Vec<u16>,
    ops: Vec<Op>,
}

struct Writer<'s> {
    store: &'s Store,
    sim: &'s SimIo,
    baton: &'s Baton,
    rng: &'s mut Rng,
    /// Whether the power may go while segments are freed and used again.
    cuts_cleaning: bool,
    /// Whether the power may go before a fence.
    cuts_fences: bool,
    open: Vec<Open<'s>>,
    /// The states after the batches that are not acknowledged, the last acknowledged one first.
    states: Vec<State>,
    /// What the log must be durable beyond for each of the others to be acknowledged.
    gates: Vec<u64>,
    /// The states before them.
    past: Vec<State>,
    /// Those of them that were acknowledged by the last commit but one, and after that.
    last: Vec<State>,
    /// What that commit has made durable.
    durable: u64,
}

fn purge(state: &mut State, now_ms: u64) {
    state.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now_ms));
}

impl<'s> Writer<'s> {
    fn note(&mut self, ops: &[Op], now_ms: u64, wait_lsn: u64) {
        let mut state = self.states.last().expect("one at least").clone();
        purge(&mut state, now_ms);
        ops.iter().for_each(|op| apply(&mut state, op));
        self.states.push(state);
        self.gates.push(wait_lsn);
    }

    /// What may happen in a commit, while what is open is locked.
    fn at_fences(&mut self) -> AtFences {
        AtFences {
            steps: self.rng.below(3) * self.rng.below(5),
            cuts: self.cuts_fences && self.rng.chance(3),
            locked: self.open.iter().flat_map(|open| open.partitions.iter().copied()).collect(),
        }
    }

    /// Commits what was appended.
    fn commit_log(&mut self) -> bool {
        let at_fences = self.at_fences();
        self.baton.commit(at_fences, || self.store.log().commit_once().is_ok())
    }

    fn commit(&mut self, at: usize) {
        let at_fences = self.at_fences();
        let Open { txn, ops, .. } = self.open.swap_remove(at);
        let now_ms = txn.now_ms();
        let wait_lsn = self.baton.commit(at_fences, || txn.commit());
        if !ops.is_empty() {
            self.note(&ops, now_ms, wait_lsn);
        }
    }

    /// Commits what is open on any of some partitions.
    fn commit_on(&mut self, partitions: &[u16]) {
        while let Some(at) =
            self.open.iter().position(|open| open.partitions.iter().any(|p| partitions.contains(p)))
        {
            self.commit(at);
        }
    }

    fn commit_all(&mut self) {
        while !self.open.is_empty() {
            self.commit(0);
        }
    }

    /// Lets the background go on for a step, or begin.
    fn step(&mut self) {
        let mut turn = self.baton.turn.lock();
        if turn.task.is_none() {
            let task = Task::random(self.rng);
            if self.cuts_cleaning && matches!(task, Task::Clean) && self.rng.chance(5) {
                self.sim.crash_after(1 + self.rng.below(8));
            }
            (turn.task, turn.wants) = (Some(task), Vec::new());
        }
        let wants = turn.wants.clone();
        drop(turn);
        self.commit_on(&wants);
        STEPS_WITHIN.fetch_add(u64::from(!self.open.is_empty()), Relaxed);
        self.baton.pass(&mut self.baton.turn.lock(), true);
    }

    /// Lets the background end what it has begun.
    fn finish(&mut self) {
        self.commit_all();
        while self.baton.turn.lock().task.is_some() {
            self.step();
        }
    }

    /// Runs a batch, or a part of one. False: what it needs cannot be read.
    fn write(&mut self) -> bool {
        let mut ops = random_ops(self.rng, 40);
        let now = self.store.now_ms();
        for op in &mut ops {
            if let Op::Expire(_, _, Some(at)) = op {
                *at = now + 1 + self.rng.below(3000);
            }
        }
        let key = |op: &Op| match op {
            Op::Flush(_) => None,
            op => op.key().map(|key| self.store.partition_of(key)),
        };
        let mut partitions: Vec<u16> = match ops.iter().map(key).collect::<Option<Vec<u16>>>() {
            Some(partitions) => partitions,
            None => (0..self.store.partitions()).collect(),
        };
        partitions.sort_unstable();
        partitions.dedup();
        let includes = |open: &Open| partitions.iter().all(|p| open.partitions.contains(p));
        let at = self.open.iter().position(includes).unwrap_or_else(|| {
            self.commit_on(&partitions);
            let txn = self.store.begin(&partitions);
            self.open.push(Open { txn, partitions: partitions.clone(), ops: Vec::new() });
            self.open.len() - 1
        });
        let open = &mut self.open[at];
        for op in ops {
            loop {
                match run(&mut open.txn, &op) {
                    Ok(()) => open.ops.push(op),
                    Err(Error::WrongType) => {}
                    Err(Error::Cold(cold)) => {
                        open.txn.supply(vec![self.store.fetch(cold)]);
                        continue;
                    }
                    Err(Error::Corrupt(_)) => return false,
                    // A commit to the heap's home has failed.
                    Err(Error::NotAdmitted(Admission::Failed)) => return false,
                    Err(other) => panic!("{op:?}: {other}"),
                }
                break;
            }
        }
        if self.rng.chance(2) {
            self.commit(at);
        }
        true
    }

    fn acknowledge(&mut self) {
        let durable = self.store.log().durable();
        let count = self.gates.iter().take_while(|&&wait_lsn| wait_lsn <= durable).count();
        if count > 0 {
            // What changes nothing is acknowledged without another commit.
            if mem::replace(&mut self.durable, durable) < durable {
                self.last.clear();
            }
            self.past.extend(self.states[..count].iter().cloned());
            self.last.extend(self.states.drain(..count));
            self.gates.drain(..count);
        }
    }

    /// Makes room; false if the machine does not let it.
    fn make_room(&mut self) -> bool {
        self.finish();
        let store = self.store;
        while store.sweep() {}
        store.log().commit_once().is_ok() && store.checkpoint().is_ok() && store.clean().is_ok()
    }

    fn live(&mut self) {
        let mut is_full = 0;
        for _ in 0..self.rng.below(400) {
            if self.store.log().failed().is_some() || self.sim.free_bytes().is_err() {
                break;
            }
            if self.store.admit(200_000) != Admission::Ok {
                is_full += 1;
                if !self.make_room() || is_full == 200 {
                    break;
                }
                continue;
            }
            let is_sound = match self.rng.below(8) {
                0..3 => self.write(),
                3..6 => {
                    self.step();
                    true
                }
                6 if !self.open.is_empty() => {
                    let at = self.rng.below(self.open.len() as u64) as usize;
                    self.commit(at);
                    true
                }
                _ if self.open.is_empty() && self.rng.chance(3) => {
                    self.sim.advance_ms(self.rng.below(1000));
                    true
                }
                _ => self.commit_log(),
            };
            self.acknowledge();
            if !is_sound {
                break;
            }
        }
        self.finish();
        self.acknowledge();
    }
}

/// What goes wrong in a life.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mischief {
    None,
    /// A device says that it could not.
    Fails,
    /// A device says that it did, and did not.
    Lies,
}

/// `heap`: where the heap is. In a home nothing lies: what is changed in place has no checksum.
fn arrange(sim: &SimIo, rng: &mut Rng, heap: &str) -> Mischief {
    let file = ["log/", "log/", heap, "superblock"][rng.below(4) as usize];
    let fault = match rng.below(if heap == "home/" { 10 } else { 12 }) {
        0..4 => return Mischief::None,
        4 => Fault::sync(file),
        5 | 6 => Fault::write(file),
        7 => Fault::write(file).with_error(libc::ENOSPC),
        8 => Fault::write(file).with_error(libc::EDQUOT),
        9 => Fault::read("log/"),
        _ => {
            let lies = [Fault::lost_write, Fault::misdirected_write, Fault::short_write];
            // The log is written to more often than the others.
            let after = if file == "log/" { rng.below(60) } else { rng.below(12) };
            sim.fault(lies[rng.below(3) as usize](file).after(after));
            return Mischief::Lies;
        }
    };
    let fault = fault.after(rng.below(60));
    sim.fault(if rng.chance(3) { fault.sticky() } else { fault });
    Mischief::Fails
}

/// Where the heap's file is.
fn heap_of(sim: &SimIo) -> &'static str {
    let is_above = sim.list("").expect("the power is on").iter().any(|name| name == "heap");
    if is_above { "heap" } else { "flash/heap" }
}

/// Flips a bit somewhere on the medium, mostly where something is. In the heap, most of which nobody needs, it is several.
/// False: in the file that it picks there is nothing yet.
fn flip(sim: &SimIo, rng: &mut Rng) -> bool {
    let files = |folder: &str| {
        let names = sim.list(folder).expect("the power is on");
        names.into_iter().map(|name| format!("{folder}/{name}")).collect::<Vec<_>>()
    };
    let segments = [files("log"), files("flash/log")].concat();
    let file = match rng.below(4) {
        0 => "superblock".to_owned(),
        1 => heap_of(sim).to_owned(),
        _ => segments[rng.below(segments.len() as u64) as usize].clone(),
    };
    let bytes = sim.snapshot(&file);
    if bytes.is_empty() {
        return false;
    }
    for _ in 0..if file.ends_with("heap") { 8 } else { 1 } {
        let mut at = rng.below(bytes.len() as u64);
        while bytes[at as usize] == 0 && !rng.chance(20) {
            at = rng.below(bytes.len() as u64);
        }
        sim.flip_bit(&file, at, rng.below(8) as u32);
    }
    true
}

/// The page of the heap that was wanted and cannot be read.
static UNREADABLE: Mutex<Option<OpenError>> = Mutex::new(None);

/// Stands for the end of the process.
fn end_of_process(why: &OpenError) -> ! {
    let why = match why {
        OpenError::Corrupt { file, offset, what } => OpenError::corrupt(file, *offset, what),
        other => panic!("{other}"),
    };
    *UNREADABLE.lock() = Some(why);
    panic::resume_unwind(Box::new("the end of the process"))
}

/// Opens the store; on a medium that may be damaged, after a look at all that is there. A page that is wanted and damaged ends
/// the process while the store is opened, and so is an error here.
fn open(sim: &SimIo, more: &[&str], options: &Options, is_sound: bool) -> Result<Store, OpenError> {
    let open = || {
        let store = Store::open_on(oracle::folders(sim, more)?, options.clone())?;
        if !is_sound {
            store.check()?;
        }
        Ok(store)
    };
    UNREADABLE.lock().take();
    panic::catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|panic| match UNREADABLE.lock().take() {
        Some(why) => Err(why),
        None => panic::resume_unwind(panic),
    })
}

/// Whether an error says where the medium is damaged. What is damaged in the heap is found before it is used (I-8), and not
/// because it makes no sense.
fn names_the_damage(why: &OpenError) -> bool {
    match why {
        OpenError::Corrupt { file, what, .. } if file.ends_with("heap") => {
            ["checksum", "the file ends too early", "no root table can be there", "cannot be in slot"]
                .iter()
                .any(|by| what.contains(by))
        }
        OpenError::Corrupt { file, .. } => file != "log",
        _ => false,
    }
}

fn history(seed: u64) {
    history_on(seed, any_machine(seed), |sim, life| any_home(sim, seed, life));
}

/// The same, with the heap in its home in all lives.
fn history_at_home(seed: u64) {
    const METHODS: [HomeMethod; 4] = [HomeMethod::Lat, HomeMethod::Lat, HomeMethod::Latb, HomeMethod::Cow];
    history_on(seed, SimIo::on_scm(seed), |_, life| {
        Some(METHODS[Rng(seed << 12 | life).below(METHODS.len() as u64) as usize])
    });
}

fn history_on(seed: u64, mut sim: SimIo, home_of: impl Fn(&SimIo, u64) -> Option<HomeMethod>) {
    let mut rng = Rng(seed);
    let options = Options {
        partitions: 4,
        segment_size: Some(64 << 10),
        log_bytes_above_max: 8 * (64 << 10),
        log_bytes_max: (64 << 10) * (14 + rng.below(20)),
        heap_bytes_max: 32 << 20,
        memory_bytes_max: if rng.chance(2) { 256 << 10 } else { usize::MAX },
        background: false,
        on_unreadable: end_of_process,
        ..Options::default()
    };
    let mut states = vec![State::new()];
    // What was acknowledged last.
    let mut last: Vec<State> = Vec::new();
    // All that were there since the beginning: what a device may bring back that has lied.
    let mut past: Vec<State> = Vec::new();
    let (mut has_lied, mut has_flipped) = (false, false);
    let is_at_home = home_of(&sim, 0).is_some();
    for life in 0..1 + rng.below(5) {
        let flips = life > 0 && !is_at_home && rng.chance(5) && flip(&sim, &mut rng);
        if flips {
            FLIPS.fetch_add(1, Relaxed);
            has_flipped = true;
        }
        let is_sound = !has_lied && !has_flipped;
        let home = home_of(&sim, life).filter(|_| is_at_home);
        LIVES_AT_HOME.fetch_add(home.is_some().into(), Relaxed);
        let heap_below = any_heap_below(seed, life);
        let compression = any_compression(seed, life);
        let options = Options { compression, home, heap_below, ..options.clone() };
        let store = match open(&sim, any_folders(seed, life), &options, is_sound) {
            Ok(store) => store,
            Err(why) if sim.is_power_cut(&why) => {
                sim = sim.crash();
                continue;
            }
            Err(why) => {
                assert!(!is_sound, "the store does not open: {why}");
                assert!(names_the_damage(&why), "it is not told what is damaged: {why}");
                REFUSED.fetch_add(1, Relaxed);
                return;
            }
        };
        let now = sim.now_ms();
        let found = try_dump(&store).expect("a store that was checked");
        past.extend(states.iter().cloned());
        let allowed: Vec<&State> = match () {
            () if has_lied => past.iter().collect(),
            () if flips => last.iter().chain(&states).collect(),
            () => states.iter().collect(),
        };
        let is_found = |state: &&State| {
            let mut state = (*state).clone();
            purge(&mut state, now);
            state == found
        };
        if !allowed.iter().any(is_found) {
            let mut last = (*allowed.last().expect("one at least")).clone();
            purge(&mut last, now);
            let keys: BTreeSet<_> = last.keys().chain(found.keys()).collect();
            let differing: Vec<_> =
                keys.into_iter().filter(|key| last.get(*key) != found.get(*key)).collect();
            panic!(
                "what was found is what no batch has left; from the last state these keys differ: {differing:?}"
            );
        }
        store.check().expect("a sound store");
        // Brings all pages into memory: one that cannot be read after a cut would end the process.
        drop(store.heap_image());
        store.attach();
        let mischief = arrange(&sim, &mut rng, if is_at_home { "home/" } else { heap_of(&sim) });
        has_lied |= mischief == Mischief::Lies;
        if mischief == Mischief::None && rng.chance(2) {
            sim.crash_after(1 + rng.below(300));
        }
        let baton = Arc::new(Baton::default());
        let observer = baton.clone();
        store.on_step(move |partitions| observer.before(partitions));
        let observer = baton.clone();
        sim.before_fence(move |sim| observer.before_fence(sim));
        states = thread::scope(|scope| {
            let _ending = Ending(&baton);
            scope.spawn(|| baton.work(&store));
            let mut writer = Writer {
                store: &store,
                sim: &sim,
                baton: &baton,
                cuts_cleaning: mischief == Mischief::None && rng.chance(2),
                cuts_fences: mischief == Mischief::None,
                rng: &mut rng,
                open: Vec::new(),
                states: vec![found],
                gates: Vec::new(),
                past: mem::take(&mut past),
                last: mem::take(&mut last),
                durable: store.log().durable(),
            };
            writer.live();
            (past, last) = (writer.past, writer.last);
            writer.states
        });
        let is_spared = mischief == Mischief::None && sim.free_bytes().is_ok();
        let failure = store.log().failed();
        assert!(!(is_spared && is_sound) || failure.is_none(), "nothing has failed: {failure:?}");
        if is_spared && failure.is_none() {
            store.check().expect("a sound store");
            // Which has written what was not written before.
            if oracle::compare(&store, &sim, &options) && states.len() > 1 {
                last = states.drain(..states.len() - 1).collect();
                past.extend(last.iter().cloned());
            }
        }
        drop(store);
        sim.clear_faults();
        // The machine fails, or only the process.
        if sim.free_bytes().is_err() || rng.chance(2) {
            sim = sim.crash();
        }
    }
}

/// Pieces of work that the background has done.
static TASKS: AtomicU64 = AtomicU64::new(0);
/// Steps that it made while a transaction was open.
static STEPS_WITHIN: AtomicU64 = AtomicU64::new(0);
/// Steps that it made between the stores of a commit and their fence.
static STEPS_AT_FENCES: AtomicU64 = AtomicU64::new(0);
/// Pieces of work that it ended there.
static ENDED_AT_FENCES: AtomicU64 = AtomicU64::new(0);
/// Lives with the heap in its home.
static LIVES_AT_HOME: AtomicU64 = AtomicU64::new(0);
/// Bits that were flipped.
static FLIPS: AtomicU64 = AtomicU64::new(0);
/// Stores that did not open after a device had lied, or a bit was flipped.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// One test, since what cannot be read is told by a `static`.
#[test]
fn whatever_runs_meanwhile_and_fails_no_data_is_wrong() {
    const SEEDS: u64 = 80;
    if with_seeds(SEEDS, history) < SEEDS {
        with_seeds(SEEDS, history_at_home);
        return;
    }
    let (tasks, within) = (TASKS.load(Relaxed), STEPS_WITHIN.load(Relaxed));
    assert!(tasks > 500 && within > 500, "{tasks} pieces of work, {within} steps within transactions");
    let (flips, refused) = (FLIPS.load(Relaxed), REFUSED.load(Relaxed));
    let at_home = LIVES_AT_HOME.load(Relaxed);
    assert!(at_home > 5, "{at_home} lives only had the heap in its home");
    assert!(flips > 10 && refused > 5, "{flips} bits flipped, {refused} stores refused");
    println!("{tasks} pieces of work, {within} steps within transactions, {flips} flips, {refused} refused");
    with_seeds(SEEDS, history_at_home);
    let (steps, ended) = (STEPS_AT_FENCES.load(Relaxed), ENDED_AT_FENCES.load(Relaxed));
    assert!(steps > 500 && ended > 50, "{steps} steps only between stores and their fence, {ended} ends");
    println!("{steps} steps between stores and their fence, {ended} pieces of work ended there");
}
