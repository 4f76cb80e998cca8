//! Keys that are each written by one client, which appends numbers to it, each greater than those before. What a key has is then known, but for
//! numbers whose replies were lost; and a read tells once and for all which of those are there.

use super::{Client, EndOnDrop, PATIENCE, Rng, bulk, items, number, redirected_to, text};
use holdfast_resp::{Reply, write_command};
use holdfast_store::hash_slot;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// How keys are written. A pair is a list and a set that a script writes together.
pub const KINDS: [&str; 6] = ["list", "large", "set", "stream", "text", "pair"];
const WRITE_PAIR: &str = "redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('SADD', KEYS[2], ARGV[1])";
const READ_PAIR: &str = "return {redis.call('LRANGE', KEYS[1], 0, -1), redis.call('SMEMBERS', KEYS[2])}";
/// How long a client waits until it asks again.
pub const PAUSE: Duration = Duration::from_millis(20);
/// How often a key is read until a reply is not lost, in the end.
const TRIES: u32 = 10;

/// The sockets of servers, by their ports.
pub type Sockets = Mutex<BTreeMap<u16, String>>;

/// A key, and what was written to it.
#[derive(Clone)]
pub struct Written {
    kind: &'static str,
    /// Its name.
    pub key: String,
    /// What it has.
    pub numbers: BTreeSet<u64>,
    /// What was sent and not answered: it may be there.
    unknown: BTreeSet<u64>,
}

impl Written {
    /// The other key of a pair.
    fn second(&self) -> String {
        format!("{}:set", self.key)
    }

    /// The command that appends a number.
    fn append(&self, number: u64) -> Vec<String> {
        let (key, n) = (&self.key, number.to_string());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self.kind {
            "list" => words(&["RPUSH", key, &n]),
            "large" => words(&["RPUSH", key, &format!("{n}:{}", "x".repeat(number as usize % 7000))]),
            "set" => words(&["SADD", key, &n]),
            "stream" => words(&["XADD", key, &format!("{n}-1"), "n", &n]),
            "text" => words(&["APPEND", key, &format!("{n},")]),
            _ => words(&["EVAL", WRITE_PAIR, "2", key, &self.second(), &n]),
        }
    }

    /// The command that reads it.
    pub fn read(&self) -> Vec<String> {
        let key = &self.key;
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self.kind {
            "list" | "large" => words(&["LRANGE", key, "0", "-1"]),
            "set" => words(&["SMEMBERS", key]),
            "stream" => words(&["XRANGE", key, "-", "+"]),
            "text" => words(&["GET", key]),
            _ => words(&["EVAL", READ_PAIR, "2", key, &self.second()]),
        }
    }

    /// The numbers that a reply to [`Written::read`] tells of, in their order.
    pub fn numbers_in(&self, reply: &Reply) -> Vec<u64> {
        let sorted = |reply: &Reply| {
            let mut numbers: Vec<u64> =
                items(reply).iter().map(|item| number(item).expect("a number")).collect();
            numbers.sort_unstable();
            numbers
        };
        match (self.kind, reply) {
            ("text", Reply::Null) => Vec::new(),
            ("text", reply) => {
                text(reply).split_terminator(',').map(|n| n.parse().expect("a number")).collect()
            }
            ("stream", reply) => {
                items(reply).iter().map(|entry| number(&items(entry)[0]).expect("an ID")).collect()
            }
            ("set", reply) => sorted(reply),
            ("pair", reply) => {
                let [list, set] = items(reply) else { panic!("{reply:?}") };
                let list: Vec<u64> = items(list).iter().map(|item| number(item).expect("a number")).collect();
                assert_eq!(list, sorted(set), "{}: half of a script", self.key);
                list
            }
            (_, reply) => items(reply).iter().map(|item| number(item).expect("a number")).collect(),
        }
    }

    /// Compares it with a reply to [`Written::read`], which tells what is there of what was not answered.
    fn check(&mut self, reply: &Reply) {
        let found = self.numbers_in(reply);
        assert!(found.is_sorted(), "{}: {found:?}", self.key);
        let found: BTreeSet<u64> = found.into_iter().collect();
        let lost: Vec<u64> = self.numbers.difference(&found).copied().collect();
        let more = found.difference(&self.numbers).filter(|number| !self.unknown.contains(number));
        let more: Vec<u64> = more.copied().collect();
        assert!(
            lost.is_empty() && more.is_empty(),
            "{}: of {} numbers {lost:?} are lost, and {more:?} should not be there",
            self.key,
            self.numbers.len()
        );
        self.numbers = found;
        self.unknown.clear();
    }
}

/// A client that goes where it is sent, or on until it finds who leads.
struct Traveller<'s> {
    sockets: &'s Sockets,
    clients: BTreeMap<u16, Client>,
    /// Where the keys of a slot were last.
    known: BTreeMap<u16, u16>,
    rng: Rng,
}

impl Traveller<'_> {
    fn any_port(&mut self) -> u16 {
        let sockets = self.sockets.lock().expect("no test has failed");
        *sockets.keys().nth(self.rng.below(sockets.len() as u64) as usize).expect("there are servers")
    }

    fn client(&mut self, port: u16) -> Option<&mut Client> {
        if !self.clients.contains_key(&port) {
            let socket = self.sockets.lock().expect("no test has failed").get(&port)?.clone();
            self.clients.insert(port, Client::connect(&socket).ok()?);
        }
        self.clients.get_mut(&port)
    }

    /// Has a command about a key executed where that is, by who leads there; `None`: the reply is lost.
    fn call(&mut self, key: &str, words: &[String]) -> Option<Reply> {
        let (slot, deadline) = (hash_slot(key.as_bytes()), Instant::now() + 2 * PATIENCE);
        let mut port = self.known.get(&slot).copied().unwrap_or_else(|| self.any_port());
        // One that comes to follow ends its connections, so who says that it leads does so when it reads.
        let mut request = Vec::new();
        write_command(&mut request, &["ROLE"]);
        write_command(&mut request, words);
        loop {
            assert!(Instant::now() < deadline, "{words:?} is executed nowhere");
            let Some(client) = self.client(port) else {
                thread::sleep(PAUSE);
                port = self.any_port();
                continue;
            };
            let replies = client.try_send(&request).ok().and_then(|()| client.try_reply());
            let replies = replies.and_then(|role| Some((role, client.try_reply()?)));
            let Some((role, reply)) = replies else {
                self.clients.remove(&port);
                self.known.remove(&slot);
                return None;
            };
            let leads = matches!(&role, Reply::Array(role) if role[0] == bulk("master"));
            let why = match &reply {
                Reply::Error(why) => String::from_utf8_lossy(why).into_owned(),
                _ if leads => {
                    self.known.insert(slot, port);
                    return Some(reply);
                }
                _ => String::new(),
            };
            let words: Vec<&str> = why.split(' ').collect();
            match words[0] {
                "MOVED" => port = redirected_to(&why).expect("a port"),
                // A script may have been stopped with its server.
                "" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "LOADING" | "BUSY" => {
                    thread::sleep(PAUSE);
                    port = self.any_port();
                }
                _ => panic!("{why}"),
            }
        }
    }
}

/// A client, and the keys that are its own.
pub struct Writer<'s> {
    traveller: Traveller<'s>,
    /// Its keys.
    pub keys: Vec<Written>,
}

impl<'s> Writer<'s> {
    /// One that has a key of each kind, in turn, for each of some tags.
    pub fn new(sockets: &'s Sockets, rng: Rng, tags: impl Iterator<Item = String>) -> Writer<'s> {
        let key = |(at, tag): (usize, String)| {
            let (numbers, unknown) = (BTreeSet::new(), BTreeSet::new());
            Written { kind: KINDS[at % KINDS.len()], key: format!("{tag}:{at}"), numbers, unknown }
        };
        let traveller = Traveller { sockets, clients: BTreeMap::new(), known: BTreeMap::new(), rng };
        Writer { traveller, keys: tags.enumerate().map(key).collect() }
    }

    /// Writes its keys, and reads them, until that is over; or fails, and it is for all.
    pub fn write(&mut self, is_over: &AtomicBool) {
        let _end = EndOnDrop(is_over);
        let mut last = 0;
        while !is_over.load(Relaxed) {
            let at = self.traveller.rng.below(self.keys.len() as u64) as usize;
            let written = &mut self.keys[at];
            if self.traveller.rng.one_in(3) {
                if let Some(reply) = self.traveller.call(&written.key, &written.read()) {
                    written.check(&reply);
                }
                continue;
            }
            last += 1;
            match self.traveller.call(&written.key, &written.append(last)) {
                Some(_) => written.numbers.insert(last),
                None => written.unknown.insert(last),
            };
        }
    }

    /// Reads all of its keys, when all servers serve.
    ///
    /// Returns how many keys there are with those of the pairs, and how many numbers.
    pub fn check(&mut self) -> (u64, usize) {
        let (mut keys, mut numbers) = (0, 0);
        for written in &mut self.keys {
            // A connection may have ended long ago.
            let reply = (0..TRIES).find_map(|_| self.traveller.call(&written.key, &written.read()));
            written.check(&reply.expect("all servers serve"));
            let per_key = if written.kind == "pair" { 2 } else { 1 };
            keys += if written.numbers.is_empty() { 0 } else { per_key };
            numbers += written.numbers.len();
        }
        (keys, numbers)
    }
}
