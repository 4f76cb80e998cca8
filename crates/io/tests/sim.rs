//! [`SimIo`] against the media assumptions of the crate.

use std::io::{self, ErrorKind};

use holdfast_io::{
    BLOCK,
    Durability::{self, *},
    Fault, File, Io, SECTOR, ScmBug, SimIo,
};

const SECTORS: usize = 16;

/// A file of [`SECTORS`] sectors, each filled with one number, and which numbers each may hold after a crash.
struct Model {
    sim: SimIo,
    allowed: Vec<Vec<u8>>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let sim = SimIo::new(seed);
        let file = sim.open("f", true).unwrap();
        file.write_at(&[&[0; SECTORS * SECTOR]], 0, Durable).unwrap();
        sim.sync_dir("").unwrap();
        Self { sim, allowed: vec![vec![0]; SECTORS] }
    }

    fn draw(&self, below: usize) -> usize {
        let mut bytes = [0; 4];
        self.sim.random(&mut bytes);
        u32::from_le_bytes(bytes) as usize % below
    }

    fn write(&mut self, version: u8) -> io::Result<()> {
        let first = self.draw(SECTORS);
        let count = 1 + self.draw(SECTORS - first);
        let durability = if self.draw(3) == 0 { Durable } else { Volatile };
        let bytes = vec![version; count * SECTOR];
        let (head, tail) = bytes.split_at(self.draw(bytes.len()));
        let result = self.sim.open("f", false)?.write_at(&[head, tail], (first * SECTOR) as u64, durability);
        for allowed in &mut self.allowed[first..first + count] {
            if durability == Durable && result.is_ok() {
                allowed.clear();
            }
            allowed.push(version);
        }
        result
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sim.open("f", false)?.sync()?;
        for allowed in &mut self.allowed {
            allowed.drain(..allowed.len() - 1);
        }
        Ok(())
    }

    /// Crashes, checks, and goes on from what is left; returns how many sectors lost something.
    fn crash(&mut self) -> usize {
        self.sim = self.sim.crash();
        let bytes = self.sim.snapshot("f");
        assert_eq!(bytes.len(), SECTORS * SECTOR);
        let mut lost = 0;
        for (sector, allowed) in bytes.chunks(SECTOR).zip(&mut self.allowed) {
            let version = sector[0];
            assert!(sector.iter().all(|&byte| byte == version), "a torn sector");
            assert!(allowed.contains(&version), "{version} is not one of {allowed:?}");
            lost += usize::from(allowed.last() != Some(&version));
            *allowed = vec![version];
        }
        lost
    }
}

#[test]
fn what_was_promised_survives_every_crash() {
    let (mut lossless, mut lossy) = (0, 0);
    for seed in 0..300 {
        let mut model = Model::new(seed);
        let mut version = 0;
        for _ in 0..5 {
            let cut = 1 + model.draw(12) as u64;
            let before = model.sim.operations();
            model.sim.crash_after(cut);
            loop {
                version += 1;
                let result = if model.draw(5) == 0 { model.sync() } else { model.write(version) };
                if result.is_err() {
                    break;
                }
            }
            assert_eq!(model.sim.operations() - before, cut, "nothing counts after the cut");
            match model.crash() {
                0 => lossless += 1,
                _ => lossy += 1,
            }
        }
    }
    assert!(lossless > 100 && lossy > 100, "{lossless} crashes without a loss, {lossy} with one");
}

/// Crashes often after `prepare` on a file `f` and counts the outcomes that satisfy each of `cases`.
fn outcomes<const N: usize>(
    prepare: impl Fn(&SimIo, &dyn File),
    cases: [&dyn Fn(&SimIo) -> bool; N],
) -> [usize; N] {
    let mut counts = [0; N];
    for seed in 0..200 {
        let sim = SimIo::new(seed);
        let file = sim.open("f", true).unwrap();
        sim.sync_dir("").unwrap();
        prepare(&sim, &*file);
        let after = sim.crash();
        for (count, case) in counts.iter_mut().zip(cases) {
            *count += usize::from(case(&after));
        }
    }
    counts
}

fn write(file: &dyn File, byte: u8, offset: u64, durability: Durability) {
    file.write_at(&[&[byte; 4 * SECTOR]], offset, durability).unwrap();
}

#[test]
fn an_unsynced_write_survives_or_vanishes_or_tears() {
    let full = |sim: &SimIo| sim.snapshot("f") == [7; 4 * SECTOR];
    let gone = |sim: &SimIo| sim.snapshot("f").is_empty();
    let torn = |sim: &SimIo| !full(sim) && !gone(sim);
    let volatile = outcomes(|_, file| write(file, 7, 0, Volatile), [&full, &gone, &torn]);
    assert!(volatile.iter().all(|&count| count > 20), "{volatile:?}");
    assert_eq!(outcomes(|_, file| write(file, 7, 0, Durable), [&full]), [200]);
    let synced = |_: &SimIo, file: &dyn File| {
        write(file, 7, 0, Volatile);
        file.sync().unwrap();
    };
    assert_eq!(outcomes(synced, [&full]), [200]);
    // An interrupted durable write is as open as a volatile one.
    let interrupted = |sim: &SimIo, file: &dyn File| {
        sim.crash_after(1);
        file.write_at(&[&[7; 4 * SECTOR]], 0, Durable).unwrap_err();
        assert!(file.sync().is_err() && file.len().is_err() && sim.open("f", false).is_err());
    };
    let interrupted = outcomes(interrupted, [&full, &gone, &torn]);
    assert!(interrupted.iter().all(|&count| count > 20), "{interrupted:?}");
}

#[test]
fn a_durable_write_covers_an_earlier_pending_one() {
    let both = |_: &SimIo, file: &dyn File| {
        write(file, 1, 0, Volatile);
        write(file, 2, 0, Durable);
    };
    assert_eq!(outcomes(both, [&|sim| sim.snapshot("f") == [2; 4 * SECTOR]]), [200]);
}

#[test]
fn unsynced_lengths_and_names_may_vanish() {
    let len = |len: usize| move |sim: &SimIo| sim.snapshot("f").len() == len;
    let counts = outcomes(|_, file| file.set_len(9).unwrap(), [&len(0), &len(9)]);
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");

    let names = |expected: &'static [&str]| move |sim: &SimIo| sim.list("").unwrap() == expected;
    let swap = |sim: &SimIo, _: &dyn File| {
        sim.open("g", true).unwrap();
        sim.remove("f").unwrap();
    };
    let counts = outcomes(swap, [&names(&[]), &names(&["f"]), &names(&["f", "g"]), &names(&["g"])]);
    assert!(counts.iter().all(|&count| count > 25), "{counts:?}");
    let synced = |sim: &SimIo, file: &dyn File| {
        swap(sim, file);
        sim.sync_dir("other").unwrap();
        sim.sync_dir("").unwrap();
    };
    assert_eq!(outcomes(synced, [&names(&["g"])]), [200]);
}

#[test]
fn one_seed_gives_one_result_and_a_crash_many() {
    let run = || {
        let sim = SimIo::new(42);
        let file = sim.open("f", true).unwrap();
        sim.sync_dir("").unwrap();
        (0..20).for_each(|at| write(&*file, at, u64::from(at) * 700, Volatile));
        [sim.crash().snapshot("f"), sim.crash().snapshot("f")]
    };
    let [first, second] = run();
    assert!(first != second);
    assert!([first, second] == run());
}

#[test]
fn files_behave_as_files() {
    let sim = SimIo::new(1);
    assert_eq!(sim.open("log/b", false).err().unwrap().kind(), ErrorKind::NotFound);
    let file = sim.open("log/b", true).unwrap();
    sim.open("log/a", true).unwrap();
    sim.open("heap", true).unwrap();
    assert_eq!(sim.list("log").unwrap(), ["a", "b"]);
    assert_eq!(sim.list("").unwrap(), ["heap"]);
    assert_eq!(sim.operations(), 3);

    file.write_at(&[b"abc", b"", b"def"], 2, Volatile).unwrap();
    sim.open("log/b", true).unwrap().write_at(&[b"X"], 3, Volatile).unwrap();
    assert_eq!(sim.snapshot("log/b"), b"\0\0aXcdef");
    assert_eq!(sim.bytes_written(), 7);
    let mut got = [0; 3];
    file.read_at(&mut got, 5).unwrap();
    assert_eq!(&got, b"def");
    assert_eq!(file.read_at(&mut got, 6).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(file.read_at(&mut got, 60).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    file.set_len(3).unwrap();
    file.set_len(4).unwrap();
    assert_eq!(sim.snapshot("log/b"), b"\0\0a\0");

    sim.remove("log/b").unwrap();
    assert_eq!(sim.remove("log/b").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(file.len().unwrap(), 4, "an open file outlives its name");
}

#[test]
fn faults_strike_when_they_should() {
    let sim = SimIo::new(1);
    let file = sim.open("log/a", true).unwrap();
    let other = sim.open("heap", true).unwrap();
    write(&*file, 1, 0, Durable);
    let byte = &mut [0];

    sim.fault(Fault::read("log/").after(1));
    file.read_at(byte, 0).unwrap();
    assert_eq!(file.read_at(byte, 0).unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    file.read_at(byte, 0).unwrap();

    sim.fault(Fault::write("log/").sticky());
    other.set_len(1).unwrap();
    file.set_len(1).unwrap_err();
    file.write_at(&[b"x"], 0, Durable).unwrap_err();
    sim.clear_faults();
    file.write_at(&[b"x"], 0, Durable).unwrap();

    sim.fault(Fault::sync("log/"));
    other.sync().unwrap();
    sim.sync_dir("").unwrap();
    sim.sync_dir("log").unwrap_err();
    sim.sync_dir("log").unwrap();
    assert_eq!(sim.crash().list("log").unwrap(), ["a"]);
}

#[test]
fn writes_that_lie_do_a_part_of_what_they_say() {
    let old = vec![0; SECTORS * SECTOR];
    for seed in 0..20 {
        for (fault, is_right) in [
            (
                Fault::lost_write("f"),
                (|after: &[u8]| after.iter().all(|&byte| byte == 0)) as fn(&[u8]) -> bool,
            ),
            (Fault::misdirected_write("f"), |after| {
                after[..BLOCK].iter().all(|&byte| byte == 0) && after[BLOCK] == 7
            }),
            (Fault::short_write("f"), |after| {
                let written = after.iter().take_while(|&&byte| byte == 7).count();
                written < 4 * SECTOR
                    && written % SECTOR == 0
                    && after[written..].iter().all(|&byte| byte == 0)
            }),
        ] {
            let sim = SimIo::new(seed);
            let file = sim.open("f", true).unwrap();
            file.write_at(&[&old], 0, Durable).unwrap();
            sim.fault(fault.clone());
            file.write_at(&[&[7; 3 * SECTOR], &[7; SECTOR]], 0, Durable).unwrap();
            assert!(is_right(&sim.snapshot("f")), "{fault:?}");
        }
    }
}

#[test]
fn a_second_sync_does_not_repair_a_failed_one() {
    let fails = |sim: &SimIo, file: &dyn File| {
        write(file, 7, 0, Volatile);
        sim.fault(Fault::sync("f"));
        file.sync().unwrap_err();
        file.sync().unwrap();
        assert_eq!(sim.snapshot("f"), [7; 4 * SECTOR]);
    };
    let [whole] = outcomes(fails, [&|sim| sim.snapshot("f").len() == 4 * SECTOR]);
    assert!((20..180).contains(&whole), "{whole}");
}

#[test]
fn a_full_medium_refuses_growth_only() {
    let sim = SimIo::new(1);
    sim.set_capacity(5000);
    let file = sim.open("f", true).unwrap();
    write(&*file, 1, 0, Durable);
    assert_eq!(sim.free_bytes().unwrap(), Some(5000 - 4 * SECTOR as u64));
    let full = file.write_at(&[&[1; 4 * SECTOR]], 3000, Durable).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    assert_eq!(file.set_len(5001).unwrap_err().kind(), ErrorKind::StorageFull);
    write(&*file, 2, 0, Durable);
    file.set_len(5000).unwrap();
    sim.remove("f").unwrap();
    assert_eq!(sim.free_bytes().unwrap(), Some(5000));
    sim.hide_free_bytes();
    assert_eq!(sim.free_bytes().unwrap(), None);
    assert_eq!(sim.crash().free_bytes().unwrap(), None);
}

#[test]
fn damage_stays_and_time_is_ours() {
    let sim = SimIo::new(1);
    let file = sim.open("f", true).unwrap();
    sim.sync_dir("").unwrap();
    file.write_at(&[&[0, 0, 0]], 0, Durable).unwrap();
    sim.flip_bit("f", 1, 7);
    assert_eq!(sim.snapshot("f"), [0, 0x80, 0]);
    let (wall, monotonic) = (sim.now_ms(), sim.monotonic_us());
    sim.advance_ms(5);
    let after = sim.crash();
    assert_eq!(after.snapshot("f"), [0, 0x80, 0]);
    assert_eq!((after.now_ms(), after.monotonic_us()), (wall + 5, monotonic + 5000));
}

#[test]
fn writes_are_held_until_they_may_pass() {
    let sim = SimIo::new(1);
    let (held, other) = (sim.open("log/a", true).unwrap(), sim.open("b", true).unwrap());
    sim.hold_writes("log/");
    other.write_at(&[&[1; 4]], 0, Durable).unwrap();
    assert_eq!(sim.held_writes(), 0);
    let wait_for = |count| {
        while sim.held_writes() != count {
            std::thread::yield_now()
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (1..4).for_each(|byte| held.write_at(&[&[byte; 4]], 0, Durable).unwrap()));
        wait_for(1);
        assert_eq!(sim.snapshot("log/a"), []);
        sim.pass_write();
        wait_for(1);
        assert_eq!(sim.snapshot("log/a"), [1; 4]);
        sim.release_writes();
    });
    assert_eq!(sim.snapshot("log/a"), [3; 4]);
    // The power ends all waiting.
    sim.hold_writes("");
    std::thread::scope(|scope| {
        let write = scope.spawn(|| held.write_at(&[&[4; 4]], 0, Durable));
        wait_for(1);
        sim.crash();
        assert!(write.join().unwrap().is_err());
    });
}

#[test]
fn holes_give_space_back_until_they_are_written() {
    let sim = SimIo::new(1);
    sim.set_capacity(8 * BLOCK as u64);
    let (file, other) = (sim.open("f", true).unwrap(), sim.open("g", true).unwrap());
    sim.sync_dir("").unwrap();
    file.write_at(&[&[7; 8 * BLOCK]], 0, Durable).unwrap();
    assert!(file.punch_hole(2 * BLOCK as u64, 4 * BLOCK as u64).unwrap());
    assert_eq!(sim.free_bytes().unwrap(), Some(4 * BLOCK as u64));
    let snapshot = sim.snapshot("f");
    assert!((0..8 * BLOCK).all(|at| snapshot[at] == if (2..6).contains(&(at / BLOCK)) { 0 } else { 7 }));
    other.write_at(&[&[1; 3 * BLOCK]], 0, Durable).unwrap();
    file.write_at(&[&[8; BLOCK]], 3 * BLOCK as u64, Durable).unwrap();
    assert_eq!(sim.free_bytes().unwrap(), Some(0));
    let full = file.write_at(&[&[8; BLOCK]], 2 * BLOCK as u64, Durable).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    file.sync().unwrap();
    let after = sim.crash();
    assert_eq!(after.free_bytes().unwrap(), Some(0));
    assert_eq!(after.snapshot("f")[2 * BLOCK..][..2 * BLOCK], [[0; BLOCK], [8; BLOCK]].concat());
}

#[test]
fn stores_survive_by_words_until_their_own_thread_has_fenced() {
    let sim = SimIo::on_scm(5);
    let file = sim.open("f", true).unwrap();
    file.allocate(0, 64).unwrap();
    file.sync().unwrap();
    sim.sync_dir("").unwrap();
    file.store(&[1; 16], 4).unwrap();
    std::thread::scope(|scope| {
        // Another thread's fence is for its own stores only.
        scope.spawn(|| {
            file.store(&[2; 8], 32).unwrap();
            sim.fence().unwrap();
        });
    });
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let found = sim.crash().snapshot("f");
        assert_eq!(found[32..40], [2; 8]);
        // The three words that the store touches, each by itself.
        let words = [&found[4..8], &found[8..16], &found[16..20]];
        assert!(words.iter().all(|word| word.iter().all(|byte| *byte == word[0])), "{words:?}");
        seen.insert(words.map(|word| word[0]));
    }
    assert_eq!(seen.len(), 8, "any of the words survive: {seen:?}");
}

#[test]
fn a_fence_and_a_durable_write_cover_all_stores_of_their_thread() {
    for by_write in [false, true] {
        let sim = SimIo::on_scm(6);
        let (file, other) = (sim.open("f", true).unwrap(), sim.open("g", true).unwrap());
        file.allocate(0, 64).unwrap();
        file.sync().unwrap();
        sim.sync_dir("").unwrap();
        file.store(&[1; 8], 0).unwrap();
        file.store(&[3; 8], 0).unwrap();
        match by_write {
            true => other.write_at(&[&[0; 8]], 0, Durability::Durable).unwrap(),
            false => sim.fence().unwrap(),
        }
        file.store(&[4; 8], 8).unwrap();
        for _ in 0..50 {
            assert_eq!(sim.crash().snapshot("f")[..8], [3; 8]);
        }
    }
    let drive = SimIo::new(6).open("f", true).unwrap();
    assert!(drive.store(&[1], 0).is_err() && drive.allocate(0, 8).is_err(), "a drive is written by blocks");
}

/// What each outcome of the last moment at which the power may go leaves in a file, and how many outcomes there are.
fn left(sim: &SimIo, file: &str, max: u64) -> (std::collections::BTreeSet<Vec<u8>>, usize) {
    let cut = sim.take_cuts().pop().expect("a moment");
    let outcomes = cut.outcomes(max, 1);
    let mut by_fingerprint = std::collections::BTreeMap::new();
    for outcome in &outcomes {
        let left = cut.image(outcome).snapshot(file);
        let known = by_fingerprint.entry(outcome.fingerprint).or_insert_with(|| left.clone());
        assert_eq!(*known, left, "the same fingerprint is the same bytes");
    }
    let left: std::collections::BTreeSet<_> = by_fingerprint.values().cloned().collect();
    assert_eq!(left.len(), by_fingerprint.len(), "and the same bytes are the same fingerprint");
    (left, outcomes.len())
}

#[test]
fn outcomes_of_a_power_cut_are_listed() {
    let sim = SimIo::on_scm(9);
    let file = sim.open("f", true).unwrap();
    file.allocate(0, 4096).unwrap();
    file.sync().unwrap();
    sim.sync_dir("").unwrap();
    // Each subset of few words; what is stored twice may be as it was first.
    sim.note_cuts();
    file.store(&[1; 16], 60).unwrap();
    file.store(&[2; 8], 64).unwrap();
    sim.fence().unwrap();
    let (all, count) = left(&sim, "f", u64::MAX);
    assert_eq!((all.len(), count), (2 * 3 * 2, 16));
    let found = sim.fork().snapshot("f");
    assert!(all.contains(&vec![0; 4096]) == (found != [0; 4096]) && all.contains(&found));
    // What is fenced is in each of them, also where it is beside what is not.
    sim.note_cuts();
    std::thread::scope(|scope| drop(scope.spawn(|| file.store(&[3; 8], 128).unwrap())));
    file.store(&[4; 8], 136).unwrap();
    sim.fence().unwrap();
    file.store(&[5; 8], 144).unwrap();
    sim.fence().unwrap();
    let (all, count) = left(&sim, "f", u64::MAX);
    assert_eq!((all.len(), count), (4, 4));
    assert!(all.iter().all(|left| left[136..144] == [4; 8]));
    // Prefixes of some lines: nine words and the one that is nobody's, of which each has one more way than words.
    sim.note_cuts();
    file.store(&[6; 2 * 64], 256).unwrap();
    sim.fence().unwrap();
    let (all, _) = left(&sim, "f", 2 * 81 * 2);
    assert!(all.len() > 2 * 81, "{}", all.len());
    // So many lines that some are drawn, as many as are asked for.
    sim.note_cuts();
    file.store(&[7; 2048], 2048).unwrap();
    sim.fence().unwrap();
    assert_eq!(left(&sim, "f", 50).1, 50);
    // A write is a moment, too, and so is a sync: what is new may be there or not.
    sim.note_cuts();
    file.write_at(&[&[8; 8]], 0, Durability::Durable).unwrap();
    assert_eq!(left(&sim, "f", u64::MAX).1, 4);
    sim.note_cuts();
    file.allocate(4096, 4096).unwrap();
    file.sync().unwrap();
    let (all, _) = left(&sim, "f", u64::MAX);
    assert_eq!(all.iter().map(Vec::len).collect::<std::collections::BTreeSet<_>>(), [4096, 8192].into());
    sim.fence().unwrap();
    assert!(sim.take_cuts().is_empty(), "none are noted any more");
}

#[test]
fn bugs_are_played() {
    let left_of = |bug, after, work: &dyn Fn(&SimIo, &dyn File)| {
        let sim = SimIo::on_scm(3);
        let file = sim.open("f", true).unwrap();
        file.allocate(0, 64).unwrap();
        file.sync().unwrap();
        sim.sync_dir("").unwrap();
        sim.play(bug, after);
        work(&sim, &*file);
        assert_eq!(sim.fork().snapshot("f")[..16], [1; 16], "who runs there does not see it");
        (0..60).map(|_| sim.crash().snapshot("f")[..16].to_vec()).collect::<std::collections::BTreeSet<_>>()
    };
    let two = |sim: &SimIo, file: &dyn File| {
        for at in [0, 8] {
            file.store(&[1; 8], at).unwrap();
            sim.fence().unwrap();
        }
    };
    let all = [[1; 16].to_vec()].into();
    assert_eq!(left_of(ScmBug::FenceMissing, 2, &two), all, "its time has not come");
    assert_eq!(left_of(ScmBug::FenceMissing, 0, &two), all, "the next fence is for both");
    for (bug, after, lost) in [
        (ScmBug::FenceMissing, 1, 8..16),
        (ScmBug::WriteBackMissing, 0, 0..8),
        (ScmBug::WriteBackMissing, 1, 8..16),
        (ScmBug::StoreAfterFence, 1, 8..16),
    ] {
        let mut without = vec![1; 16];
        without[lost].fill(0);
        assert_eq!(left_of(bug, after, &two), [[1; 16].to_vec(), without].into(), "{bug:?}");
    }
    assert_eq!(left_of(ScmBug::StoreAfterFence, 0, &two), all, "the next fence is for both");
}
