//! Who has much to do leaves the worker to others after a short turn, and all have their turns in order: a worker with real
//! connections, whose input has all arrived before it begins, and with a clock that goes by how often it is looked at.
//!
//! The clients increment one counter. Their replies tell in what order their commands were executed.

use super::connected::World;
use crate::exec::worker::Clock;
use holdfast_io::{Io, Moment};
use holdfast_resp::Reply;
use holdfast_store::SimIo;
use std::{cell::Cell, collections::BTreeMap, sync::Mutex};

/// Increments the counter.
const COUNT: &str = "incr n";
/// Commands of a pipeline. A socket's buffer holds them.
const DEEP: usize = 4_000;
/// A look at the usual clock takes this. A command looks once.
const LOOK_NS: u64 = 1_000;
/// Commands that a turn of a connection has, by that clock.
const TURN: usize = 500;

thread_local! {
    static START: Moment = Moment::now();
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that goes forth so much when it is looked at.
fn clock<const LOOK_NS: u64>() -> Moment {
    LOOKS.set(LOOKS.get() + 1);
    START.with(|start| start.plus_ns(LOOKS.get() * LOOK_NS))
}

/// Runs pipelines, one of each client, beside each other. For each command that has incremented the counter, in their order: the
/// client's number.
fn order(clock: Clock, pipelines: &[Vec<&str>]) -> Vec<usize> {
    // The replies that wait for the log come at any time.
    let mut world = World::new(&[("appendfsync", "no")]);
    let mut clients: Vec<_> = pipelines.iter().map(|_| world.client()).collect();
    for (client, pipeline) in clients.iter_mut().zip(pipelines) {
        client.send_all(pipeline);
    }
    world.run(clock);
    let mut order = BTreeMap::new();
    for (number, (client, pipeline)) in clients.iter_mut().zip(pipelines).enumerate() {
        for command in pipeline {
            let reply = loop {
                match client.reply() {
                    Reply::Push(_) if !command.starts_with("subscribe") => {}
                    reply => break reply,
                }
            };
            match reply {
                Reply::Error(error) => panic!("{command}: {}", error.escape_ascii()),
                Reply::Int(at) if *command == COUNT => assert_eq!(order.insert(at, number), None),
                _ => {}
            }
        }
    }
    order.into_values().collect()
}

/// Who had a turn, and how often it has counted in it.
fn turns(order: &[usize]) -> Vec<(usize, usize)> {
    order.chunk_by(|a, b| a == b).map(|turn| (turn[0], turn.len())).collect()
}

/// All clients that have the same to do have had their turns in the same order again and again.
fn assert_in_order(clients: usize, counts: usize, turns: &[(usize, usize)]) {
    // Until one has nothing left to do.
    let full = &turns[..turns.len().min(clients * (DEEP / TURN - 1))];
    assert_eq!(full.len(), clients * (DEEP / TURN - 1), "{turns:?}");
    for (at, (client, length)) in full.iter().enumerate() {
        assert!(*length <= counts, "turn {at} of {turns:?}");
        assert_eq!(*client, full[at % clients].0, "turn {at} of {turns:?}");
    }
}

/// How often the second client has counted between the first two times that the first one has.
fn between(order: &[usize]) -> usize {
    let mut firsts = (0..order.len()).filter(|&at| order[at] == 0);
    let (one, two) = (firsts.next().expect("it counts"), firsts.next().expect("it counts twice"));
    two - one - 1
}

#[test]
fn pipelines_take_turns_in_order() {
    let order = order(clock::<LOOK_NS>, &[(); 5].map(|()| vec![COUNT; DEEP]));
    assert_in_order(5, TURN, &turns(&order));
}

/// A message to itself wakes a connection, which does not make it its turn.
#[test]
fn who_is_woken_meanwhile_waits_for_its_turn() {
    let busy = || ["hello 3", "subscribe news"].into_iter().chain([COUNT, "publish news x"].repeat(DEEP / 2));
    let order = order(clock::<LOOK_NS>, &[(); 3].map(|()| busy().collect()));
    assert_in_order(3, TURN / 2, &turns(&order));
}

/// The system stops a worker's thread after any look at the clock. Its time is not ahead of the machine's then: keys would expire too early.
#[test]
fn who_is_stopped_is_not_ahead_of_time() {
    const STOPPED_MS: u64 = 60_000;
    const EXPIRES_MS: u64 = 10_000_000;
    const KEYS: usize = 10;
    /// The machine, and after how many looks the thread is stopped.
    static MACHINE: Mutex<Option<(SimIo, usize)>> = Mutex::new(None);
    fn clock() -> Moment {
        let mut machine = MACHINE.lock().expect("no panic");
        let (sim, looks) = machine.as_mut().expect("a machine");
        let now = START.with(|start| start.plus_ns(sim.monotonic_us() * 1000));
        *looks = looks.wrapping_sub(1);
        if *looks == 0 {
            sim.advance_ms(STOPPED_MS);
        }
        now
    }
    for looks in 1..30 {
        let mut world = World::new(&[("appendfsync", "no")]);
        let mut client = world.client();
        // Before and after a wait.
        let set = |key: usize| format!("set key:{key} value px {EXPIRES_MS}");
        let mut calls: Vec<String> = (0..KEYS).map(set).collect();
        calls.push("blpop none 0.001".into());
        calls.extend((KEYS..2 * KEYS).map(set));
        calls.extend((0..2 * KEYS).map(|key| format!("pexpiretime key:{key}")));
        client.send_all(&calls);
        *MACHINE.lock().expect("no panic") = Some((world.sim.clone(), looks));
        world.run(clock);
        let replies: Vec<Reply> = calls.iter().map(|_| client.reply()).collect();
        let now_ms = world.sim.now_ms();
        for reply in &replies[calls.len() - 2 * KEYS..] {
            let Reply::Int(expires_ms) = *reply else { panic!("{reply:?}") };
            let set_ms = expires_ms as u64 - EXPIRES_MS;
            assert!(set_ms <= now_ms, "{looks} looks: at {set_ms}, and it is {now_ms}");
        }
    }
}

/// Others run between the steps of a command, whose time is that of all of them.
#[test]
fn the_slow_log_has_all_steps_of_a_command() {
    let mut world = World::new(&[("appendfsync", "no"), ("slowlog-log-slower-than", "3000")]);
    let mut client = world.client();
    let edges: String = (0..900).map(|number| format!(" hub v:{number}")).collect();
    let calls = [&format!("graph.addedge{edges}"), "graph.removevertex hub", "slowlog get"];
    client.send_all(&calls);
    // Every look takes a millisecond.
    world.run(clock::<1_000_000>);
    assert_eq!([client.reply(), client.reply()], [Reply::Int(900), Reply::Int(900)]);
    let Reply::Array(entries) = client.reply() else { panic!("an array") };
    let [Reply::Array(entry)] = &entries[..] else { panic!("{} entries", entries.len()) };
    let Reply::Int(took_us) = entry[2] else { panic!("a number") };
    assert!((4000..20_000).contains(&took_us), "{took_us} us");
}

/// Commands that do not look at the clock.
#[test]
fn what_is_only_queued_has_turns_too() {
    let first = [COUNT, "multi"].into_iter().chain(["ping"; 9_000]).chain(["discard", COUNT]);
    let order = order(clock::<LOOK_NS>, &[first.collect(), vec![COUNT; DEEP]]);
    assert!(between(&order) >= 2 * TURN, "{:?}", turns(&order));
}

#[test]
fn a_script_has_turns_too() {
    // It takes five milliseconds, and has one at a time.
    let calls = "eval for\ni=1,5000\ndo\nredis.call('incr',KEYS[1])\nend 1 key";
    let order = order(clock::<LOOK_NS>, &[vec![COUNT, calls, COUNT], vec![COUNT; DEEP]]);
    assert!(between(&order) >= 4 * TURN, "{:?}", turns(&order));
}

#[test]
fn a_script_that_calls_nothing_has_turns_too() {
    // Every command takes longer than a turn may, and so do some instructions of a script.
    let loops = "eval for\ni=1,1e6\ndo\nend 0";
    let order = order(clock::<1_000_000>, &[vec![COUNT, loops, COUNT], vec![COUNT; 100]]);
    assert!(between(&order) >= 5, "{:?}", turns(&order));
}
