//! A small log and little memory under everything at once: values from a byte to a third of the log, all types, copies,
//! keys that expire in masses, deletes. Nothing waits for long, deletes are never refused, and the data are sound at the end.
//!
//! `HOLDFAST_SOAK_SECONDS=3600` runs the long form.

use crate::harness::{self, Client, Rng, Server, assert_sound, long_form, seed};
use holdfast_resp::Reply;
use std::{
    thread,
    time::{Duration, Instant},
};

const LOG_BYTES: u64 = 64 << 20;
const CLIENTS: u64 = 3;
const KEYS: u64 = 150;
const SECONDS: u64 = 4;
/// How long a command may take on a machine that does nothing else, which the long form wants, and on one that does.
const LONGEST: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

struct Soak {
    client: Client,
    rng: Rng,
    longest: Duration,
    longest_allowed: Duration,
    refused: u64,
}

impl Soak {
    fn key(&mut self) -> String {
        format!("key:{}", self.rng.below(KEYS))
    }

    /// A length of which each order of magnitude is as likely, up to a third of the log, which is rare.
    fn len(&mut self) -> usize {
        let bits = if self.rng.below(60) == 0 { 25 } else { 16 };
        let bits = self.rng.below(bits);
        (self.rng.below(1 << bits) as usize + 1).min(LOG_BYTES as usize / 3)
    }

    fn text(&mut self) -> String {
        let (len, letter) = (self.len(), b'a' + self.rng.below(26) as u8);
        String::from_utf8(vec![letter; len]).expect("letters")
    }

    fn words(&mut self, count: u64, with_numbers: bool) -> Vec<String> {
        let mut words = Vec::new();
        for _ in 0..count {
            if with_numbers {
                words.push(self.rng.below(1000).to_string());
            }
            words.push(format!("{}{}", "m".repeat(self.rng.below(100) as usize), self.rng.below(100_000)));
        }
        words
    }

    fn call(&mut self, words: &[String]) -> Reply {
        let started = Instant::now();
        let reply = self.client.call_args(words);
        let took = started.elapsed();
        assert!(took < self.longest_allowed, "{took:?} for {:?}", words.iter().take(3).collect::<Vec<_>>());
        self.longest = self.longest.max(took);
        reply
    }

    fn delete(&mut self) {
        let mut words = vec!["DEL".to_owned()];
        words.extend((0..1 + self.rng.below(8)).map(|_| format!("key:{}", self.rng.below(KEYS))));
        let reply = self.call(&words);
        assert!(matches!(reply, Reply::Int(_)), "deletes are never refused: {reply:?}");
    }

    fn step(&mut self) {
        let (key, other) = (self.key(), self.key());
        let of = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let many = 1 << self.rng.below(11);
        let mut words = match self.rng.below(24) {
            0..=4 => of(&["SET", &key, &self.text()]),
            5 => of(&["SET", &key, &self.text(), "PX", &self.rng.below(2000).max(1).to_string()]),
            6 => of(&["APPEND", &key, &self.text()]),
            7 => of(&["SETRANGE", &key, &self.len().to_string(), "x"]),
            8 => of(&["COPY", &key, &other, "REPLACE"]),
            9 => of(&["RENAME", &key, &other]),
            10 => of(&["SUNIONSTORE", &key, &other, &self.key()]),
            11 => of(&["ZUNIONSTORE", &key, "2", &other, &self.key()]),
            12 => of(&["SORT", &other, "ALPHA", "STORE", &key]),
            13 => of(&["BITOP", "XOR", &key, &other, &self.key()]),
            14 => of(&["LTRIM", &key, "0", &self.rng.below(500).to_string()]),
            15 => of(&["SPOP", &key, &self.rng.below(500).to_string()]),
            16 => of(&["PEXPIRE", &key, &self.rng.below(1000).to_string()]),
            17 => of(&["RPUSH", &key]),
            18 => of(&["HSET", &key]),
            19 => of(&["SADD", &key]),
            20 => of(&["ZADD", &key]),
            21 => of(&["XADD", &key, "MAXLEN", "1000", "*"]),
            22 => return self.restore(&key, &other),
            _ => return self.delete(),
        };
        match &words[0][..] {
            "RPUSH" | "SADD" => words.extend(self.words(many, false)),
            "HSET" | "ZADD" | "XADD" => words.extend(self.words(many, true)),
            _ => {}
        }
        match self.call(&words) {
            Reply::Error(why) if why.starts_with(b"OOM") => {
                self.refused += 1;
                self.delete();
            }
            Reply::Error(why) => {
                let known: [&[u8]; 4] =
                    [b"WRONGTYPE", b"ERR no such key", b"ERR One or more", b"ERR source and"];
                assert!(
                    known.iter().any(|known| why.starts_with(known)),
                    "{words:?}: {}",
                    why.escape_ascii()
                );
            }
            _ => {}
        }
    }

    fn restore(&mut self, key: &str, other: &str) {
        let Reply::Bulk(payload) = self.client.call(&format!("DUMP {key}")) else { return };
        let words: [&[u8]; 5] = [b"RESTORE", other.as_bytes(), b"0", &payload, b"REPLACE"];
        let reply = self.client.call_args(&words);
        assert!(!matches!(&reply, Reply::Error(why) if !why.starts_with(b"OOM")), "{reply:?}");
    }
}

/// Many keys that expire at about the same time.
fn expire_masses(client: &mut Client, rng: &mut Rng) {
    let mut requests = Vec::new();
    let count = 20_000;
    for n in 0..count {
        let ttl = (200 + rng.below(200)).to_string();
        holdfast_resp::write_command(&mut requests, &["SET", &format!("mass:{n}"), "value", "PX", &ttl]);
    }
    client.send(&requests);
    for _ in 0..count {
        match client.reply() {
            Reply::Error(why) => assert!(why.starts_with(b"OOM"), "{}", why.escape_ascii()),
            reply => assert_eq!(reply, harness::ok()),
        }
    }
}

#[test]
fn nothing_waits_for_long_and_deletes_are_never_refused() {
    let seconds = long_form("HOLDFAST_SOAK_SECONDS", SECONDS);
    let longest_allowed = LONGEST[usize::from(seconds <= SECONDS)];
    let server = Server::start(&["--log-max-size", &LOG_BYTES.to_string(), "--maxmemory", "48mb"]);
    let (seed, end) = (seed(), Instant::now() + Duration::from_secs(seconds));
    let (longest, refused) = thread::scope(|scope| {
        let mut soaks = Vec::new();
        for number in 0..CLIENTS {
            let client = server.client();
            soaks.push(scope.spawn(move || {
                let rng = Rng(seed + number);
                let mut soak = Soak { client, rng, longest: Duration::ZERO, longest_allowed, refused: 0 };
                while Instant::now() < end {
                    soak.step();
                }
                (soak.longest, soak.refused)
            }));
        }
        let (mut client, mut rng) = (server.client(), Rng(seed + CLIENTS));
        while Instant::now() < end {
            expire_masses(&mut client, &mut rng);
            thread::sleep(Duration::from_millis(500));
        }
        let ended = soaks.into_iter().map(|soak| soak.join().expect("a client"));
        ended.fold((Duration::ZERO, 0), |(a, b), (c, d)| (a.max(c), b + d))
    });
    eprintln!("the longest command took {longest:?}; {refused} were refused");
    // All can go, and then there is room for what is large.
    let mut client = server.client();
    assert_eq!(client.call("FLUSHALL"), harness::ok());
    let large = "x".repeat(LOG_BYTES as usize / 3);
    let room = || client.call_args(&["SET", "large", large.as_str()]) == harness::ok();
    harness::wait_until(|| "there is room again".into(), room);
    assert_sound(&server.stop());
}
