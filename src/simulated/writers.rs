//! Who writes and finds no room waits in order: a worker with real connections and a small log, none of which is written for now,
//! so that no room can be made.

use super::connected::{Client, PATIENCE, World};
use holdfast_resp::Reply;
use std::{
    thread,
    time::{Duration, Instant},
};

const SEGMENT: u64 = 1 << 20;
/// How long a client must stay silent.
const SILENCE: Duration = Duration::from_millis(20);

fn ok() -> Reply {
    Reply::Simple(b"OK".into())
}

/// Waits until so many writers wait.
fn wait_for(world: &World, count: usize) {
    let start = Instant::now();
    while world.server.writers.len() != count {
        assert!(start.elapsed() < PATIENCE, "{} writers wait, not {count}", world.server.writers.len());
        thread::sleep(Duration::from_millis(1));
    }
}

/// A world with a log that garbage has filled in part, and a writer that will have room when that is gone.
fn with_one_that_waits() -> (World, Client, Client) {
    let mut world = World::with_log(16 * SEGMENT, &[("appendfsync", "no")]);
    world.run(holdfast_io::Moment::now);
    let mut control = world.client();
    assert_eq!(control.call("set old value"), ok());
    world.sim.hold_writes("log/");
    let value = "x".repeat(SEGMENT as usize);
    for _ in 0..5 {
        assert_eq!(control.call(&format!("set garbage {value}")), ok());
    }
    let mut large = world.client();
    large.send(&format!("set large {}", value.repeat(8)));
    wait_for(&world, 1);
    (world, control, large)
}

#[test]
fn small_writers_wait_behind_a_large_one_and_nobody_else_does() {
    let (world, mut control, mut large) = with_one_that_waits();
    let mut small: Vec<Client> = (0..3).map(|_| world.client()).collect();
    for (number, client) in small.iter_mut().enumerate() {
        client.send("incr n");
        wait_for(&world, 2 + number);
    }
    let mut transaction = world.client();
    for (command, reply) in [("multi", "OK"), ("incr n", "QUEUED")] {
        assert_eq!(transaction.call(command), Reply::Simple(reply.into()));
    }
    transaction.send("exec");
    wait_for(&world, 2 + small.len());
    // For what they want there would be room.
    for client in small.iter_mut().chain([&mut transaction]) {
        assert_eq!(client.reply_within(SILENCE), None);
    }
    assert_eq!(control.call("get old"), Reply::Bulk(b"value".into()));
    assert_eq!(control.call("del old"), Reply::Int(1));
    assert_eq!(large.reply_within(SILENCE), None);
    world.sim.release_writes();
    assert_eq!(large.reply(), ok());
    for (number, client) in small.iter_mut().enumerate() {
        assert_eq!(client.reply(), Reply::Int(1 + number as i64));
    }
    assert_eq!(transaction.reply(), Reply::Array(vec![Reply::Int(1 + small.len() as i64)]));
    wait_for(&world, 0);
}

#[test]
fn a_writer_that_is_gone_holds_nobody_up() {
    let (world, mut control, large) = with_one_that_waits();
    let (mut small, mut gone) = (world.client(), world.client());
    for (client, count) in [(&mut gone, 2), (&mut small, 3)] {
        client.send("set small value");
        wait_for(&world, count);
    }
    drop(gone);
    wait_for(&world, 2);
    assert_eq!(small.reply_within(SILENCE), None);
    drop(large);
    assert_eq!(small.reply(), ok());
    wait_for(&world, 0);
    assert_eq!(control.call("exists large small"), Reply::Int(1));
}
