//! Servers of a set are killed, stopped, emptied, damaged, added, removed and told to lead, at random, while clients write: nothing acknowledged is lost,
//! what is read of a leader is not out of date, what is read of another one never goes back, and in the end all have the same.
//!
//! `HOLDFAST_REPLICA_SET_SECONDS=600` runs the long form, `HOLDFAST_SEED=n` with the choices of another run (but not its moments).

use super::roles;
use crate::harness::{
    Client, EndOnDrop, Folder, Rng, Set, assert_sound, long_form, number,
    sample::{assert_same, state, wait_until_expired},
    seed, wait_until,
    written::{KINDS, PAUSE, Sockets, Writer, Written},
};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const SECONDS: u64 = 10;
/// Servers that a set has, at least and at most.
const SERVERS: [usize; 2] = [3, 5];
const WRITERS: u64 = 3;
/// Keys of each kind that a writer has.
const KEYS: usize = 2;
/// Milliseconds until another leader is elected.
const TIMEOUT: &str = "500";
/// How long a server is stopped, or does not run, at most.
const AWAY_MS: u64 = 1500;
/// Bytes at the beginning of a file some of which are damaged.
const DAMAGED_WITHIN: u64 = 1 << 18;
/// Reads of a server by one connection.
const READS: usize = 300;

/// A change of which servers are of the set.
#[derive(Clone, Copy)]
enum Change {
    Add(usize),
    Remove(usize),
}

/// The set, and what ails it. The n-th server has the number n + 1.
pub struct Ailing<'s> {
    set: Set,
    sockets: &'s Sockets,
    /// With which more options each is started.
    more: Vec<String>,
    rng: Rng,
    /// Those that are of the set, for all that the others have told.
    members: BTreeSet<usize>,
    /// Until when they are stopped.
    stopped: BTreeMap<usize, Instant>,
    /// Until when they do not run, and their folders.
    ended: BTreeMap<usize, (Instant, Folder)>,
    change: Option<Change>,
    /// One whose data were damaged, of which it may not know yet.
    damaged: Option<usize>,
    /// What was done.
    counts: BTreeMap<&'static str, u32>,
}

impl<'s> Ailing<'s> {
    /// Starts the servers of a set, with more options.
    pub fn start(set: Set, sockets: &'s Sockets, more: &[&str], rng: Rng) -> Ailing<'s> {
        let members: BTreeSet<usize> = (0..set.servers.len()).collect();
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let (stopped, ended, counts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (change, damaged) = (None, None);
        let mut ailing = Ailing { set, sockets, more, rng, members, stopped, ended, change, damaged, counts };
        ailing.members.clone().into_iter().for_each(|at| ailing.start_new(at));
        ailing
    }

    /// Has what was begun go on, and something new begin.
    pub fn go_on(&mut self) {
        self.ail();
        self.go_on_where_due(false);
        self.go_on_with_change();
    }

    /// Has all go on, until the set is whole.
    pub fn mend(&mut self) {
        self.go_on_where_due(true);
        wait_until(
            || "the change is made".into(),
            || {
                self.go_on_with_change();
                self.change.is_none()
            },
        );
        wait_until(|| "all have what the leader has".into(), || self.is_whole());
    }

    /// Waits until all have the same, and ends them: their folders are sound.
    pub fn end(mut self) {
        wait_until_expired(&mut self.set.leader().1);
        let client = |at: &usize| self.set.client(*at);
        let digest = |at: &usize| client(at).and_then(|mut client| client.try_call("DEBUG DIGEST"));
        let digests = || self.members.iter().map(digest).collect::<Vec<_>>();
        wait_until(
            || format!("all have the same: {:?}", digests()),
            || digests().windows(2).all(|pair| pair[0] == pair[1]),
        );
        let states = self.members.iter().map(|at| state(&mut client(at).expect("it runs")));
        let states: Vec<_> = states.collect();
        for pair in states.windows(2) {
            assert_same(&pair[0], &pair[1]);
        }
        for at in &self.members {
            assert_sound(&self.set.kill(*at));
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn port(&self, at: usize) -> u16 {
        self.set.options[at][1].parse().expect("a port")
    }

    fn start_in(&mut self, at: usize, folder: Folder) {
        self.sockets.lock().expect("no test has failed").insert(self.port(at), folder.join("socket"));
        self.set.start_in(at, folder);
    }

    /// Starts one for the first time.
    fn start_new(&mut self, at: usize) {
        self.set.options[at].extend(["--replica-set-timeout".into(), TIMEOUT.into()]);
        self.set.options[at].extend(self.more.iter().cloned());
        self.start_in(at, Folder::new());
    }

    /// Another server, which is not of the set yet.
    fn new_server(&mut self) -> usize {
        let removed: Vec<usize> =
            (0..self.set.servers.len()).filter(|at| !self.members.contains(at)).collect();
        let at = self.set.add(self.set.servers.len() + 1, &removed);
        self.start_new(at);
        at
    }

    /// Who leads, if one says so that is not stopped.
    fn leader(&self) -> Option<(usize, Client)> {
        // One that is added can lead before that is known here.
        self.set.leading((0..self.set.servers.len()).filter(|at| !self.stopped.contains_key(at)))
    }

    /// Whether all that are of the set have what the leader has.
    fn is_whole(&self) -> bool {
        let others = self.members.len() - 1;
        let waits = |(_, mut leader): (usize, Client)| leader.try_call(&format!("WAIT {others} 200"));
        self.leader().and_then(waits).as_ref().and_then(number) == Some(others as u64)
    }

    /// Does something at random.
    fn ail(&mut self) {
        let all: Vec<usize> =
            self.members.iter().copied().filter(|at| !self.ended.contains_key(at)).collect();
        let at = all[self.rng.below(all.len() as u64) as usize];
        let away = Instant::now() + Duration::from_millis(self.rng.below(AWAY_MS));
        let away_count = self.ended.len() + self.stopped.len();
        // Without a majority nothing is written.
        let may_fail = 2 * (away_count + 1) < self.members.len() || self.rng.one_in(8);
        match self.rng.below(8) {
            0 | 1 if all.len() > 1 && may_fail => {
                self.stopped.remove(&at);
                self.ended.insert(at, (away, self.set.kill(at)));
                self.count("killed");
            }
            2 if !self.stopped.contains_key(&at) && may_fail => {
                self.set.servers[at].as_ref().expect("it runs").suspend();
                self.stopped.insert(at, away);
                self.count("stopped");
            }
            3 => {
                if let Some((_, mut leader)) = self.leader()
                    && leader.try_call("FAILOVER").is_some()
                {
                    self.count("told to hand over");
                }
            }
            // One that has lost its data gets them only while all others are there, as those do that are new.
            4 if away_count == 0
                && self.change.is_none()
                && self.damaged.is_none_or(|damaged| damaged == at)
                && self.is_whole() =>
            {
                let folder = self.set.kill(at);
                if self.rng.one_in(3) {
                    fs::remove_dir_all(folder.join("data")).expect("its data are removed");
                    self.damaged = None;
                    self.count("emptied");
                } else {
                    self.damage(&folder);
                    self.damaged = Some(at);
                    self.count("damaged");
                }
                self.start_in(at, folder);
            }
            5 if self.change.is_none() => {
                let count = self.members.len();
                let grows = count == SERVERS[0] || count < SERVERS[1] && self.rng.one_in(2);
                self.change = Some(if grows { Change::Add(self.new_server()) } else { Change::Remove(at) });
            }
            _ => {}
        }
    }

    /// Overwrites some bytes of what a server has.
    fn damage(&mut self, folder: &Folder) {
        let len = |file: &String| fs::metadata(folder.join(file)).expect("its length").len();
        // Without what says of which set it is, a server does not start.
        let may_be = |file: &String| len(file) > 0 && file != "data/replica-set";
        let files: Vec<String> = folder.files("data").into_iter().filter(may_be).collect();
        let file = &files[self.rng.below(files.len() as u64) as usize];
        let len = len(file);
        let count = [1, 1 << 12, 1 << 16][self.rng.below(3) as usize].min(len);
        // Most is written at the beginning of a file.
        let offset = self.rng.below((len - count + 1).min(DAMAGED_WITHIN));
        folder.write_at(file, offset, &vec![0xA5; count as usize]);
        println!("damaged: {file} from {offset} on, {count} bytes");
    }

    /// Has those go on whose time has come, or all.
    fn go_on_where_due(&mut self, all: bool) {
        let now = Instant::now();
        let is_due = |until: Instant| all || until <= now;
        for at in 0..self.set.servers.len() {
            if self.stopped.get(&at).is_some_and(|until| is_due(*until)) {
                self.stopped.remove(&at);
                self.set.servers[at].as_ref().expect("it runs").resume();
            }
            if self.ended.get(&at).is_some_and(|(until, _)| is_due(*until)) {
                let (_, folder) = self.ended.remove(&at).expect("it is there");
                self.start_in(at, folder);
            }
        }
    }

    /// Goes on with the change, if one is to be made: asks for it until it is made.
    fn go_on_with_change(&mut self) {
        let Some(change) = self.change else { return };
        let Some((leader, mut client)) = self.leader() else { return };
        let Some(roles) = client.try_call("REPLICASET STATUS").as_ref().and_then(roles) else { return };
        let role = |at: usize| roles.iter().find(|(number, _)| *number == at as u64 + 1);
        match change {
            Change::Add(at) => match role(at) {
                None => drop(client.try_call(&format!("REPLICASET ADD {}", self.set.addresses[at]))),
                Some((_, role)) if role == "joining" => {}
                Some(_) => {
                    self.members.insert(at);
                    self.change = None;
                    self.count("added");
                }
            },
            Change::Remove(at) if role(at).is_none() => {
                self.members.remove(&at);
                self.damaged.take_if(|damaged| *damaged == at);
                self.sockets.lock().expect("no test has failed").remove(&self.port(at));
                self.stopped.remove(&at);
                if self.ended.remove(&at).is_none() {
                    self.set.kill(at);
                }
                self.change = None;
                self.count("removed");
            }
            Change::Remove(at) if at == leader => drop(client.try_call("FAILOVER")),
            Change::Remove(at) => drop(client.try_call(&format!("REPLICASET REMOVE {}", at + 1))),
        }
    }
}

/// Reads keys of any server: on one connection, none of them goes back.
fn read(sockets: &Sockets, keys: &[Written], mut rng: Rng, is_over: &AtomicBool) {
    let _end = EndOnDrop(is_over);
    while !is_over.load(Relaxed) {
        thread::sleep(PAUSE);
        let socket = {
            let sockets = sockets.lock().expect("no test has failed");
            let nth = rng.below(sockets.len() as u64) as usize;
            sockets.values().nth(nth).expect("there are servers").clone()
        };
        let Ok(mut client) = Client::connect(&socket) else { continue };
        let mut seen: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for _ in 0..READS {
            let written = &keys[rng.below(keys.len() as u64) as usize];
            let mut request = Vec::new();
            write_command(&mut request, &written.read());
            let reply = match client.try_send(&request).ok().and_then(|()| client.try_reply()) {
                Some(Reply::Error(_)) => continue,
                Some(reply) => reply,
                None => break,
            };
            let found: BTreeSet<u64> = written.numbers_in(&reply).into_iter().collect();
            let before = seen.entry(&written.key).or_default();
            let gone: Vec<u64> = before.difference(&found).copied().collect();
            assert!(gone.is_empty(), "{}: {gone:?} are gone at {socket}", written.key);
            *before = found;
            if is_over.load(Relaxed) {
                return;
            }
        }
    }
}

#[test]
fn servers_fail_come_and_go() {
    let mut rng = Rng(seed());
    let length = Duration::from_secs(long_form("HOLDFAST_REPLICA_SET_SECONDS", SECONDS));
    let sockets = Sockets::default();
    let mut ailing = Ailing::start(Set::new(SERVERS[0]), &sockets, &[], Rng(rng.draw()));
    let mut tags = (0..).map(|n| format!("{{{n}}}"));
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|_| Writer::new(&sockets, Rng(rng.draw()), tags.by_ref().take(KEYS * KINDS.len())))
        .collect();
    let keys: Vec<Written> = writers.iter().flat_map(|writer| writer.keys.clone()).collect();
    let (is_over, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for writer in &mut writers {
            let is_over = &is_over;
            scope.spawn(move || writer.write(is_over));
        }
        scope.spawn(|| read(&sockets, &keys, Rng(rng.draw()), &is_over));
        while begun.elapsed() < length && !is_over.load(Relaxed) {
            thread::sleep(Duration::from_millis(20 + ailing.rng.below(400)));
            ailing.go_on();
        }
        ailing.mend();
    });
    let numbers: usize = writers.iter_mut().map(|writer| writer.check().1).sum();
    println!("{:?}; {numbers} numbers", ailing.counts);
    assert!(!ailing.counts.is_empty() && numbers > 0);
    ailing.end();
}
