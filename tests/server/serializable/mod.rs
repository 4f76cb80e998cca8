//! Clients execute transactions at random on keys that they share, by each of the ways that there are: single commands, pipelines, MGET, MULTI, WATCH
//! and scripts, on keys in and out of memory. What they have found must have an order ([`history`]), whatever happens to their servers meanwhile: to
//! one, which is killed, or which another process takes over from; to a replica of a real Redis, which is read, too; to a replica set, whose
//! servers fail, and of which those that follow are read, too; to a cluster, whose slots move ([`cluster`]). Disks are full at times, an operator
//! does this and that, and some clients keep what they have read until they are told that it has changed.
//!
//! `HOLDFAST_SERIALIZABLE_SECONDS=600` runs the long form, `HOLDFAST_SEED=n` with the choices of another run (but not its moments).

mod actor;
mod cluster;
mod history;
mod keys;
mod operator;
mod part;
mod plan;

use crate::{
    harness::{
        Client, EndOnDrop, Folder, Redis, Rng, Server, Set, Way, assert_sound, long_form, part,
        sample::{assert_same, state, wait_until_expired},
        seed, text, wait_until,
        written::Sockets,
    },
    replica_set::faults::Ailing,
    upgrade::Dynasty,
};
use actor::{Actor, CACHE, Common, READER, READING_CACHE, Role, WRITER, drive_out};
use history::Transaction;
use holdfast_resp::Reply;
use keys::{Shape, rule};
use operator::{copy, operate};
use plan::Delivered;
use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const SECONDS: u64 = 6;
const CLIENTS: u64 = 6;
/// Elements that a key has in the end; then another one takes its place.
const ELEMENTS: u64 = 60;
/// Keys of each kind that are written at a time: few, of which many want each, or many, of which most are not in memory.
const KEYS: [usize; 2] = [3, 40];
/// Bytes that an element has more than it needs.
const PADS: [usize; 3] = [0, 300, 3000];
/// How much a server may write: all, or less than comes to be.
const MAXDISK: [[&str; 2]; 2] = [["--maxdisk", "0"], ["--maxdisk", "20mb"]];
/// How long a server runs until it is killed, at most.
const LIFE_MS: u64 = 2500;
/// Clients of a set that only read, of any server.
const READERS: u64 = 2;
/// Clients that keep what they read, of each role.
const CACHES: u64 = 1;

/// Of servers of which some follow others.
const ROLES: [(Role, u64); 4] =
    [(WRITER, CLIENTS), (CACHE, CACHES), (READER, READERS), (READING_CACHE, CACHES)];

/// How a server keeps what it has: each start may do so by another one of these.
type Keeping = &'static [&'static [&'static str]];

const KEEPINGS: [Keeping; 2] = [
    &[&[], &["--compression", "lz4"], &["--compression", "zstd"], &["--medium", "emulated"]],
    // Data that are changed in place stay in such memory.
    &[
        &["--medium", "emulated"],
        &["--medium", "emulated", "--scm-method", "cow"],
        &["--medium", "emulated", "--scm-method", "lat"],
        &["--medium", "emulated", "--scm-method", "latb"],
    ],
];

/// How one is started that keeps it by any of these.
fn any_options(rng: &mut Rng, keeping: Keeping) -> Vec<&'static str> {
    [&options(rng, ["64mb", "0"])[..], keeping[rng.below(keeping.len() as u64) as usize]].concat()
}

fn any_maxdisk(rng: &mut Rng) -> [&'static str; 2] {
    MAXDISK[rng.below(2) as usize]
}

/// Whether a server may have less room than it needs.
fn gets_full(maxdisk: [&str; 2]) -> bool {
    maxdisk != MAXDISK[0]
}

/// How a server is started, with one of these limits of its memory.
fn options(rng: &mut Rng, maxmemory: [&'static str; 2]) -> [&'static str; 8] {
    let workers = ["1", "2", "4"][rng.below(3) as usize];
    let io_uring = ["yes", "no"][rng.below(2) as usize];
    let kept_max = ["5", "1000000"][rng.below(2) as usize];
    let maxmemory = maxmemory[rng.below(2) as usize];
    [
        "--workers",
        workers,
        "--io-uring",
        io_uring,
        "--maxmemory",
        maxmemory,
        "--tracking-table-max-keys",
        kept_max,
    ]
}

/// What a history is of.
struct Scene<'s> {
    /// Of the servers, by the ports that redirections name.
    sockets: &'s Sockets,
    /// How many clients of each role.
    roles: &'s [(Role, u64)],
    /// See [`Shape`].
    has_tags: bool,
    /// Whether the servers have less room than they may need.
    gets_full: bool,
    /// Whether a Redis leads.
    has_redis: bool,
    /// Whether an operator does this and that with them.
    has_operator: bool,
}

impl<'s> Scene<'s> {
    fn new(sockets: &'s Sockets, roles: &'s [(Role, u64)]) -> Scene<'s> {
        Scene { sockets, roles, has_tags: false, gets_full: false, has_redis: false, has_operator: true }
    }
}

/// What happens to servers.
trait Ail {
    /// Something.
    fn ail(&mut self, rng: &mut Rng);

    /// Nothing any more.
    fn mend(&mut self) {}
}

impl<F: FnMut(&mut Rng)> Ail for F {
    fn ail(&mut self, rng: &mut Rng) {
        self(rng);
    }
}

/// A history, to whose servers something happens meanwhile.
fn run(
    Scene { sockets, roles, has_tags, gets_full, has_redis, has_operator }: Scene,
    length: Duration,
    rng: &mut Rng,
    ail: &mut impl Ail,
) -> Vec<Transaction> {
    let (keys, pad) = (KEYS[rng.below(2) as usize], PADS[rng.below(3) as usize]);
    let shape = Shape { keys, pad, has_tags };
    let common = Common {
        shape,
        added: (0..shape.places()).map(|_| AtomicU64::new(0)).collect(),
        connections: AtomicUsize::new(0),
        transactions: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
        delivered: Delivered::default(),
        sockets,
        gets_full,
        has_redis,
        begun: Instant::now(),
        is_over: AtomicBool::new(false),
    };
    let roles = roles.iter().flat_map(|(role, count)| (0..*count).map(|_| *role));
    let mut actors: Vec<Actor> = roles.map(|role| Actor::new(&common, Rng(rng.draw()), role)).collect();
    thread::scope(|scope| {
        let _end = EndOnDrop(&common.is_over);
        let other = Rng(rng.draw());
        scope.spawn(|| drive_out(&common, other));
        if has_operator {
            let [operations, copies] = [(); 2].map(|()| Rng(rng.draw()));
            scope.spawn(|| operate(&common, operations));
            scope.spawn(|| copy(&common, copies));
        }
        for actor in &mut actors {
            scope.spawn(|| actor.run());
        }
        while common.begun.elapsed() < length && !common.is_over.load(Relaxed) {
            ail.ail(rng);
        }
        common.is_over.store(true, Relaxed);
        // Some wait for a reply of a server that is stopped.
        ail.mend();
    });
    println!("{} transactions refused for want of room", common.refused.load(Relaxed));
    let mut last = Actor::new(&common, Rng(rng.draw()), WRITER);
    last.read_all();
    actors.push(last);
    actors.into_iter().flat_map(|actor| actor.done).collect()
}

/// Histories one after another, for as long as the test takes.
fn check(mut history: impl FnMut(Duration, &mut Rng) -> Vec<Transaction>) {
    let mut rng = Rng(seed());
    let length = Duration::from_secs(long_form("HOLDFAST_SERIALIZABLE_SECONDS", SECONDS));
    let begun = Instant::now();
    while begun.elapsed() < length {
        let history = history(length - begun.elapsed(), &mut rng);
        let ops: usize = history.iter().map(|transaction| transaction.ops.len()).sum();
        let lost = history.iter().filter(|transaction| transaction.ended.is_none()).count();
        println!("{} transactions of {ops} parts, {lost} of which were not answered", history.len());
        if let Err(why) = history::check(&history, rule) {
            panic!("{why}");
        }
    }
}

#[test]
fn transactions_have_an_order() {
    check(|length, rng| {
        let keeping = KEEPINGS[rng.below(2) as usize];
        let maxdisk = any_maxdisk(rng);
        let start = |folder, rng: &mut Rng| {
            Dynasty::start_in(folder, &[&any_options(rng, keeping)[..], &maxdisk].concat())
        };
        let mut server = Some(start(Folder::new(), rng));
        let sockets = server.iter().map(|server| (0, server.folder().join("socket"))).collect();
        let sockets = Mutex::new(sockets);
        let mut ail = |rng: &mut Rng| {
            thread::sleep(Duration::from_millis(rng.below(LIFE_MS)));
            if rng.one_in(2) {
                // While clients are paused, none takes over.
                server.as_ref().expect("it runs").try_upgrade();
                return;
            }
            let folder = server.take().expect("it runs").kill();
            server = Some(start(folder, rng));
        };
        let scene = Scene {
            gets_full: gets_full(maxdisk),
            ..Scene::new(&sockets, &[(WRITER, CLIENTS), (CACHE, CACHES)])
        };
        let history = run(scene, length, rng, &mut ail);
        // What nobody looks at in a history is there, too, however it is kept.
        let server = server.expect("it runs");
        wait_until_expired(&mut server.client());
        let before = state(&mut server.client());
        let server = start(server.kill(), rng);
        assert_same(&state(&mut server.client()), &before);
        assert_sound(&server.kill());
        history
    });
}

#[test]
fn transactions_of_a_replica_have_an_order() {
    check(|length, rng| {
        let primary = Redis::start(Folder::new(), &["--repl-diskless-sync-delay", "0"]);
        let port = primary.port().to_string();
        let keeping = KEEPINGS[rng.below(2) as usize];
        let start = |folder: Folder, rng: &mut Rng| {
            let primary = ["--replicaof", "127.0.0.1", &port];
            Server::start_in(folder, &[&primary[..], &any_options(rng, keeping)].concat())
        };
        let mut replica = Some(start(Folder::new(), rng));
        let sockets = replica.iter().map(|replica| replica.folder().join("socket")).chain([primary.socket()]);
        let sockets = Mutex::new((0..).zip(sockets).collect());
        let mut ail = |rng: &mut Rng| {
            thread::sleep(Duration::from_millis(rng.below(LIFE_MS)));
            let folder = replica.take().expect("it runs").kill();
            replica = Some(start(folder, rng));
        };
        let roles = [(WRITER, CLIENTS), (READER, READERS), (READING_CACHE, CACHES)];
        // What it has no room for, a Redis leaves half done.
        let scene = Scene { has_redis: true, has_operator: false, ..Scene::new(&sockets, &roles) };
        let history = run(scene, length, rng, &mut ail);
        let replica = replica.expect("it runs");
        // A replica is not told when consumers were seen, nor how many entries a group has read.
        let seen = |mut client: Client| {
            let mut seen = vec![client.call("DEBUG DIGEST")];
            let Reply::Array(streams) = client.call("KEYS *Stream:*") else { return None };
            let mut streams: Vec<String> = streams.iter().map(text).collect();
            streams.sort();
            seen.extend(streams.iter().map(|stream| client.call(&format!("XPENDING {stream} group"))));
            Some(seen)
        };
        wait_until_expired(&mut primary.client());
        let both = || [primary.client(), replica.client()].map(seen);
        let has_the_same =
            |[primary, replica]: [Option<Vec<Reply>>; 2]| primary.is_some() && primary == replica;
        wait_until(|| format!("it has the same: {:?}", both()), || has_the_same(both()));
        assert_sound(&replica.kill());
        history
    });
}

/// A set, of whose first servers some are parted from the others at times.
struct PartedSet<'s> {
    set: Ailing<'s>,
    ways: Vec<Way>,
}

impl Ail for PartedSet<'_> {
    fn ail(&mut self, rng: &mut Rng) {
        thread::sleep(Duration::from_millis(20 + rng.below(LIFE_MS / 5)));
        let at = rng.below(self.ways.len() as u64) as usize;
        part(&self.ways, 0, at, rng.one_in(6));
        self.set.go_on();
    }

    fn mend(&mut self) {
        (0..self.ways.len()).for_each(|at| part(&self.ways, 0, at, false));
        self.set.mend();
    }
}

#[test]
fn transactions_of_a_replica_set_have_an_order() {
    check(|length, rng| {
        let mut set = Set::new(3);
        let ways = set.put_ways(0);
        let maxdisk = any_maxdisk(rng);
        let more = [&options(rng, ["128mb", "0"])[..], &maxdisk].concat();
        let sockets = Sockets::default();
        let set = Ailing::start(set, &sockets, &more, Rng(rng.draw()));
        let scene = Scene { gets_full: gets_full(maxdisk), ..Scene::new(&sockets, &ROLES) };
        let mut set = PartedSet { set, ways };
        let history = run(scene, length, rng, &mut set);
        set.set.end();
        history
    });
}
