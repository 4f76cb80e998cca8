//! Data many times larger than memory, of all types, under writers that know what each cell holds, while the server is killed, its
//! limit of memory changes, checkpoints and backups are taken, and the log goes around. Everything that is read is right at all times, and in the
//! end all of it is there and nothing else.
//!
//! `HOLDFAST_SCALE_SECONDS=3600` runs the long form, whose data are forty times as many.

mod cells;
mod model;
mod whole;
mod writer;

use crate::harness::{Client, EndOnDrop, Folder, Rng, Server, long_form, ok, seed, told};
use cells::{GROUP, Kind, PARTS};
use model::Model;
use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use writer::Writer;

const WRITERS: usize = 3;
const SECONDS: u64 = 4;
/// What the program may hold beside data.
const BESIDE: u64 = 32 << 20;
/// How often resident memory is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How much there is.
#[derive(Clone, Copy)]
struct Scale {
    factor: u32,
    /// Limits of memory: the lower one, and the one that the server has at first.
    memory: [u64; 2],
}

impl Scale {
    /// The places of a kind that each writer has.
    fn places(self, kind: Kind) -> u32 {
        let normal = match kind {
            Kind::Grouped => 100 * GROUP,
            Kind::Part => 2 * PARTS,
            _ => 6000,
        };
        normal * self.factor
    }

    fn options(self) -> Vec<String> {
        let [_, memory] = self.memory;
        let log = memory * 12;
        ["--maxmemory", &memory.to_string(), "--log-max-size", &log.to_string()].map(str::to_owned).to_vec()
    }
}

/// Has a writer go on at whatever server is there, until it is over; the writer as it is then.
fn write(mut writer: Writer, socket: &str, over: &AtomicBool, seed: u64) -> Writer {
    let _end = EndOnDrop(over);
    let mut rng = Rng(seed);
    while !over.load(Relaxed) {
        let Ok(mut client) = Client::connect(socket) else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        while !over.load(Relaxed) {
            let went_on = match rng.below(500) {
                nth @ 0..8 => writer.check_whole(&mut client, Kind::ALL[nth as usize]),
                _ => writer.turn(&mut client),
            };
            if went_on.is_none() {
                break;
            }
        }
    }
    writer
}

/// Runs the program, however long that takes: whether it succeeded, and what it told.
fn run_to_its_end(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(args).output().expect("the program runs");
    (output.status.success(), told(&output))
}

/// Who does things to the server.
struct Operator {
    server: Server,
    rng: Rng,
    scale: Scale,
    /// Bytes that were resident at most.
    peak: u64,
    kills: u64,
    backups: u64,
}

impl Operator {
    /// Does something.
    fn act(mut self) -> Operator {
        match self.rng.below(8) {
            0..=2 => {
                self.server = self.server.restart(Server::kill);
                self.kills += 1;
            }
            3 => {
                let memory = self.scale.memory[self.rng.below(2) as usize];
                let reply = self.server.client().call(&format!("CONFIG SET maxmemory {memory}"));
                assert_eq!(reply, ok());
            }
            4 | 5 => {
                // Unless one is under way.
                self.server.client().call("BGSAVE");
            }
            _ => self.back_up(),
        }
        self
    }

    /// Takes a backup, unless its server needs the room that is kept for it. What it has is sound.
    fn back_up(&mut self) {
        let folder = self.server.folder();
        let (to, from, restored) = (folder.join("backups"), folder.join("socket"), Folder::new());
        let (is_done, told) = run_to_its_end(&["backup", "--from", &from, &to]);
        if is_done {
            for args in [&["restore", &to, &restored.join("data")][..], &["check", &restored.join("data")]] {
                let (is_done, told) = run_to_its_end(args);
                assert!(is_done, "{args:?}: {told}");
            }
            self.backups += 1;
        } else {
            assert!(told.contains("the backup had to yield"), "{told}");
        }
        fs::remove_dir_all(to).expect("it was made");
    }

    /// Waits, and looks at memory meanwhile.
    fn watch(&mut self, end: Instant, over: &AtomicBool) {
        while Instant::now() < end && !over.load(Relaxed) {
            self.peak = self.peak.max(self.server.resident_bytes());
            thread::sleep(LOOK);
        }
    }
}

#[test]
fn all_that_outgrows_memory_is_as_it_was_written() {
    let seconds = long_form("HOLDFAST_SCALE_SECONDS", SECONDS);
    let is_long = seconds != SECONDS;
    let scale = if is_long {
        Scale { factor: 40, memory: [100 << 20, 200 << 20] }
    } else {
        Scale { factor: 1, memory: [20 << 20, 24 << 20] }
    };
    let options = scale.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (seed, over) = (seed(), AtomicBool::new(false));
    let server = Server::start(&options);
    let socket = server.folder().join("socket");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| {
            let model = Model::new(number, |kind| scale.places(kind));
            Writer::new(model, Rng(seed + number as u64))
        })
        .collect();
    thread::scope(|scope| {
        let fill = |writer: &mut Writer| writer.fill(&mut server.client(), |kind| scale.places(kind));
        let filling: Vec<_> = writers.iter_mut().map(|writer| scope.spawn(move || fill(writer))).collect();
        filling.into_iter().for_each(|filling| filling.join().expect("all is there"));
    });
    let mut operator = Operator { server, rng: Rng(seed), scale, peak: 0, kills: 0, backups: 0 };
    let (operator, writers): (Operator, Vec<Writer>) = thread::scope(|scope| {
        let _end = EndOnDrop(&over);
        let write = |(nth, writer)| {
            let (socket, over) = (&socket[..], &over);
            scope.spawn(move || write(writer, socket, over, seed + nth))
        };
        let running: Vec<_> = (WRITERS as u64..).zip(writers).map(write).collect();
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !over.load(Relaxed) {
            let pause = Duration::from_millis(operator.rng.below(seconds * 1000 / 8).min(30_000));
            operator.watch(end.min(Instant::now() + pause), &over);
            operator = operator.act();
        }
        over.store(true, Relaxed);
        let ended = running.into_iter().map(|writer| writer.join().expect("a writer"));
        (operator, ended.collect())
    });
    eprintln!(
        "{} cells read or written, {} kills, {} backups; at most {} of {} MiB were resident; the longest answer took {:?}",
        writers.iter().map(|writer| writer.done).sum::<u64>(),
        operator.kills,
        operator.backups,
        operator.peak >> 20,
        scale.memory[1] >> 20,
        writers.iter().map(|writer| writer.longest).max().expect("there are some"),
    );
    let may_be_resident = scale.memory[1] + scale.memory[1] / 10 + BESIDE;
    assert!(!is_long || operator.peak < may_be_resident, "more than {may_be_resident} were resident");
    // Also what was in doubt when it was over.
    let server = operator.server.restart(Server::kill);
    thread::scope(|scope| {
        for mut writer in writers {
            let mut client = server.client();
            scope.spawn(move || {
                writer.settle(&mut client).expect("the server runs");
                for kind in Kind::ALL {
                    writer.check_whole(&mut client, kind).expect("the server runs");
                    // Names are all that a walk finds of keys.
                    if kind == Kind::Text || is_long {
                        writer.check_each(&mut client, kind).expect("the server runs");
                    }
                }
            });
        }
    });
    let left: u64 = server.client().info("heap_pages_evicted").parse().expect("a number");
    assert!(left > 0, "all fits into memory");
    let folder = server.stop();
    let (is_sound, told) = run_to_its_end(&["check", &folder.join("data")]);
    assert!(is_sound, "{told}");
}
