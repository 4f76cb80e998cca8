//! Nothing leaves the server before it is durable (I-1): a worker with real connections, on a machine that holds writes to
//! the log back. Each connection whose output would tell of such a write must stay silent until the write has passed, and
//! all others must not.

use super::connected::{Client, PATIENCE, World};
use holdfast_resp::Reply;
use std::{
    thread,
    time::{Duration, Instant},
};

/// The log writes its mark, and the server has done what it does at start, within this.
const SETTLED: Duration = Duration::from_millis(150);
/// How long a connection must stay silent. What could leave does so within the loop turn.
const SILENCE: Duration = Duration::from_millis(20);

impl World {
    /// Holds back what is written to the log from now on.
    fn hold(&self) {
        let mut operations = 0;
        while self.sim.operations() != operations {
            operations = self.sim.operations();
            thread::sleep(SETTLED);
        }
        self.sim.hold_writes("log/");
    }

    /// Waits until the log's thread is held.
    fn wait_until_held(&self) {
        let start = Instant::now();
        while self.sim.held_writes() == 0 {
            assert!(start.elapsed() < PATIENCE, "nothing is written");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Connections that each wait for one reply, by what they have sent.
struct Waiting(Vec<(String, Client)>);

impl Waiting {
    fn send(world: &World, commands: &[&str]) -> Waiting {
        let send = |command: &&str| {
            let mut client = world.client();
            client.send(command);
            (command.to_string(), client)
        };
        Waiting(commands.iter().map(send).collect())
    }

    fn are_silent(&mut self) {
        for (what, client) in &mut self.0 {
            let early = client.reply_within(SILENCE);
            assert_eq!(early, None, "a reply to {what} before what it tells is durable");
        }
    }

    fn are_answered(&mut self) {
        for (what, client) in &mut self.0 {
            let reply = client.reply();
            assert!(!matches!(reply, Reply::Error(_)), "{what}: {reply:?}");
        }
    }
}

/// The worker has executed what was sent to it before, and sent what it could: it has had several loop turns since.
fn turns(control: &mut Client) {
    for _ in 0..5 {
        assert_eq!(control.call("ping"), Reply::Simple(b"PONG".to_vec()));
    }
}

#[test]
fn replies_wait_for_the_durable_mark_and_not_for_the_end_of_the_log() {
    let world = World::start(&[]);
    let mut control = world.client();
    assert_eq!(control.call("set old value"), Reply::Simple(b"OK".to_vec()));
    world.hold();
    let mut first = Waiting::send(&world, &["set first 1"]);
    world.wait_until_held();
    // It is appended, but not in the write that is held.
    let mut second = Waiting::send(&world, &["set second 2", "incr third"]);
    turns(&mut control);
    first.are_silent();
    second.are_silent();
    assert_eq!(control.call("get old"), Reply::Bulk(b"value".to_vec()));
    world.sim.pass_write();
    first.are_answered();
    world.wait_until_held();
    turns(&mut control);
    second.are_silent();
    world.sim.release_writes();
    second.are_answered();
}

#[test]
fn reads_of_what_is_not_durable_wait() {
    let world = World::start(&[]);
    let mut control = world.client();
    assert_eq!(control.call("set old value"), Reply::Simple(b"OK".to_vec()));
    world.hold();
    let mut write = Waiting::send(&world, &["set new value", "rpush list a", "hset hash f v"]);
    turns(&mut control);
    let mut reads = Waiting::send(
        &world,
        &[
            "get new",
            "mget old new",
            "strlen new",
            "exists new",
            "type new",
            "ttl new",
            "dump new",
            "object encoding new",
            "lrange list 0 -1",
            "hget hash f",
            "keys *",
            "scan 0",
            "randomkey",
            "dbsize",
            "eval return(redis.call('get',KEYS[1])) 1 new",
        ],
    );
    // What tells of the server alone is answered.
    assert!(matches!(control.call("info"), Reply::Bulk(_)));
    let mut transaction = world.client();
    for (command, reply) in [("multi", "OK"), ("get new", "QUEUED"), ("keys *", "QUEUED")] {
        assert_eq!(transaction.call(command), Reply::Simple(reply.into()));
    }
    transaction.send("exec");
    turns(&mut control);
    write.are_silent();
    reads.are_silent();
    assert_eq!(transaction.reply_within(SILENCE), None);
    // Who reads what is durable waits for nobody.
    assert_eq!(control.call("get old"), Reply::Bulk(b"value".to_vec()));
    world.sim.release_writes();
    write.are_answered();
    reads.are_answered();
    assert!(matches!(transaction.reply(), Reply::Array(replies) if replies.len() == 2));
}

#[test]
fn a_flush_that_finds_nothing_waits_for_what_has_left_nothing() {
    let world = World::start(&[]);
    let mut control = world.client();
    assert_eq!(control.call("set key value"), Reply::Simple(b"OK".to_vec()));
    let mut told = world.client();
    ["hello 3", "client tracking on", "get none"].into_iter().for_each(|command| drop(told.call(command)));
    let mut told = Waiting(vec![("an invalidation of all keys".into(), told)]);
    world.hold();
    let mut write = Waiting::send(&world, &["swapdb 0 1"]);
    turns(&mut control);
    let mut flushes = Waiting::send(&world, &["flushdb", "function flush"]);
    turns(&mut control);
    write.are_silent();
    flushes.are_silent();
    told.are_silent();
    world.sim.release_writes();
    write.are_answered();
    flushes.are_answered();
    told.are_answered();
}

#[test]
fn what_clients_are_told_unasked_waits_for_the_write_that_it_tells_of() {
    let world = World::start(&[("notify-keyspace-events", "KEA")]);
    let mut control = world.client();
    assert_eq!(control.call("set key old"), Reply::Simple(b"OK".to_vec()));
    assert_eq!(control.call("set dying old px 500"), Reply::Simple(b"OK".to_vec()));
    let mut told = Waiting(Vec::new());
    for (what, commands) in [
        ("a message from EXEC", &["subscribe news"][..]),
        ("an event", &["subscribe __keyspace@0__:key"]),
        ("an event of a key that expires by itself", &["subscribe __keyevent@0__:expired"]),
        ("an invalidation", &["hello 3", "client tracking on", "get key"]),
        ("an invalidation that is broadcast", &["hello 3", "client tracking on bcast prefix ke"]),
        ("an invalidation of a key that expires by itself", &["hello 3", "client tracking on", "get dying"]),
    ] {
        let mut client = world.client();
        commands.iter().for_each(|command| drop(client.call(command)));
        told.0.push((what.into(), client));
    }
    world.hold();
    let mut writer = world.client();
    for (command, reply) in [("multi", "OK"), ("set key new", "QUEUED"), ("publish news hello", "QUEUED")] {
        assert_eq!(writer.call(command), Reply::Simple(reply.into()));
    }
    writer.send("exec");
    world.wait_until_held();
    world.sim.advance_ms(1000);
    let start = Instant::now();
    while world.server.store.stats().expired_keys == 0 {
        assert!(start.elapsed() < PATIENCE, "no key expires");
        thread::sleep(Duration::from_millis(1));
    }
    turns(&mut control);
    told.are_silent();
    assert_eq!(writer.reply_within(SILENCE), None);
    world.sim.release_writes();
    told.are_answered();
    assert!(matches!(writer.reply(), Reply::Array(replies) if replies.len() == 2));
}
