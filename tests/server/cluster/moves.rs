//! Slots move, key by key and as a whole, while their keys are used.

use super::{Follower, Nodes, TIMEOUT, address, keys_in_first_slots, last_migration, migrate_slots};
use crate::harness::{
    Client, EndOnDrop, Rng, Way, bulk, error, free_port, is_error, items, number, ok, redis_cli, seed, show,
    text, wait_until,
};
use holdfast_resp::Reply;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

/// A move that was cut off has left keys on both nodes, and one of them does not know of it any more: `fix` brings all to the owner.
#[test]
fn redis_cli_ends_a_move_that_was_cut_off() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(1, 20);
    let owner = nodes.owner(0);
    let other = *ports.iter().find(|port| **port != owner).expect("another one");
    let [mut from, mut to] = [owner, other].map(|port| nodes.client(port));
    keys.iter().for_each(|key| assert_eq!(from.call(&format!("SET {key} {key}")), ok()));
    let begin = format!("CLUSTER SETSLOT 0 IMPORTING {}", nodes.id(owner));
    assert_eq!(to.call(&begin), ok());
    assert_eq!(from.call(&format!("CLUSTER SETSLOT 0 MIGRATING {}", nodes.id(other))), ok());
    let mut migrate = vec!["MIGRATE", "127.0.0.1"];
    let port = other.to_string();
    migrate.extend([&port[..], "", "0", "5000", "KEYS"]);
    migrate.extend(keys[..5].iter().map(String::as_str));
    assert_eq!(from.call_args(&migrate), ok());
    assert_eq!(from.call("CLUSTER SETSLOT 0 STABLE"), ok());
    assert_eq!(to.call(&begin), ok());
    redis_cli(&["fix", &address(owner)]);
    for key in &keys {
        assert_eq!(from.call(&format!("GET {key}")), bulk(key), "{}", show(&from.call("CLUSTER NODES")));
    }
    assert_eq!(to.call("DBSIZE"), Reply::Int(0));
}

/// Calls `f` while three clients write keys; how much was written to each key, and how often clients were sent elsewhere. `write` writes a key, the
/// n-th, and returns how much the client has written to it with that, when it is told how much that was before.
fn while_writing(
    nodes: &Nodes,
    keys: &[String],
    write: impl Fn(&mut Follower, usize, &str, i64) -> i64 + Sync,
    f: impl FnOnce(),
) -> (BTreeMap<String, i64>, u64) {
    let (is_over, write) = (AtomicBool::new(false), &write);
    thread::scope(|scope| {
        let end = EndOnDrop(&is_over);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut client = Follower::new(nodes);
                    let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
                    for step in writer.. {
                        if is_over.load(Relaxed) {
                            break;
                        }
                        let nth = (step * 7) % keys.len();
                        let count = counts.entry(&keys[nth]).or_default();
                        *count = write(&mut client, nth, &keys[nth], *count);
                    }
                    (counts, client.redirections)
                })
            })
            .collect();
        f();
        drop(end);
        let (mut sums, mut redirections) = (BTreeMap::new(), 0);
        for writer in writers {
            let (counts, redirected) = writer.join().expect("no writer fails");
            counts.into_iter().for_each(|(key, count)| *sums.entry(key.to_owned()).or_default() += count);
            redirections += redirected;
        }
        (sums, redirections)
    })
}

/// Counts at a key, which has at least as much as was counted from here.
fn count(client: &mut Follower, key: &str, before: i64) -> i64 {
    let reply = client.call(&["INCR", key]);
    let Reply::Int(now) = reply else { panic!("INCR {key}: {reply:?}") };
    assert!(now > before, "{key} is {now}, and {} of them are from here", before + 1);
    before + 1
}

#[test]
fn slots_move_while_keys_are_written() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(8, 4);
    let write = |client: &mut Follower, _: usize, key: &str, before: i64| count(client, key, before);
    let (counts, redirections) = while_writing(&nodes, &keys, write, || {
        let ids: Vec<String> = ports.iter().map(|port| nodes.id(*port)).collect();
        // Whoever has the first slots gives them to the next node, and so on around.
        let mut from = ports.iter().position(|port| *port == nodes.owner(0)).expect("it has an owner");
        for _ in 0..4 {
            let to = (from + 1) % 3;
            let flags = ["--cluster-from", &ids[from], "--cluster-to", &ids[to], "--cluster-slots", "8"];
            redis_cli(&[&["reshard", &address(ports[0])][..], &flags].concat());
            assert_eq!(nodes.owner(7), ports[to]);
            from = to;
        }
    });
    assert!(redirections > 0, "nobody was sent elsewhere");
    let mut client = Follower::new(&nodes);
    for (key, count) in &counts {
        assert_eq!(client.call(&["GET", key]), bulk(count.to_string()), "{key}");
    }
    let held: u64 =
        ports.iter().map(|port| number(&nodes.client(*port).call("DBSIZE")).expect("a number")).sum();
    assert_eq!(held, counts.len() as u64, "a key is on one node");
}

/// All keys of a node in their order.
fn all_keys(nodes: &Nodes, port: u16) -> Vec<String> {
    let keys = nodes.client(port).call("KEYS *");
    let mut keys: Vec<String> = items(&keys).iter().map(text).collect();
    keys.sort();
    keys
}

#[test]
fn slots_change_hands_as_a_whole() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(8, 4);
    let write = |client: &mut Follower, nth: usize, key: &str, before: i64| {
        client.is_never_asked = true;
        // A third of the keys is removed again and again, a third has a time.
        match nth % 3 {
            0 => count(client, key, before),
            1 => {
                let script = "for _ = 1, 50 do redis.call('incr', KEYS[1]) end redis.call('pexpire', KEYS[1], 600000) return 1";
                assert_eq!(client.call(&["EVAL", script, key]), Reply::Int(1));
                before + 50
            }
            _ => {
                client.call(&["DEL", key]);
                client.call(&["RPUSH", key, "a", "b"]);
                before
            }
        }
    };
    let (counts, _) = while_writing(&nodes, &keys, write, || {
        let mut from = ports.iter().position(|port| *port == nodes.owner(0)).expect("it has an owner");
        for _ in 0..12 {
            let to = (from + 1) % 3;
            let (state, why) = migrate_slots(&nodes, ports[from], ports[to], "0 3 4 7");
            assert_eq!((&state[..], &why[..]), ("success", ""));
            assert_eq!((nodes.owner(0), nodes.owner(7)), (ports[to], ports[to]));
            from = to;
        }
    });
    let mut client = Follower::new(&nodes);
    for (number, key) in keys.iter().enumerate() {
        match number % 3 {
            2 => assert_eq!(client.call(&["TYPE", key]), Reply::Simple(b"list".to_vec())),
            kind => {
                assert_eq!(client.call(&["GET", key]), bulk(counts[key].to_string()), "{key}");
                let Reply::Int(left) = client.call(&["PTTL", key]) else { panic!("PTTL {key}") };
                assert_eq!(left > 0, kind == 1, "{key} has {left} ms");
            }
        }
    }
    // What was given away is removed.
    wait_until(
        || "each key is on one node".into(),
        || ports.iter().map(|port| all_keys(&nodes, *port).len()).sum::<usize>() == keys.len(),
    );
}

#[test]
fn a_migration_that_is_cut_off_leaves_the_slots_where_they_were() {
    let mut nodes = Nodes::create(3);
    let ports = nodes.ports();
    let keys = keys_in_first_slots(4, 50);
    let owner = nodes.owner(0);
    let target = *ports.iter().find(|port| **port != owner).expect("another one");
    let value = "v".repeat(100_000);
    {
        let mut client = Follower::new(&nodes);
        keys.iter().for_each(|key| assert_eq!(client.call(&["SET", key, &value]), ok()));
    }
    for victim in [owner, target] {
        let to = nodes.id(target);
        let begun = nodes.client(owner).call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {to}"));
        assert_eq!(begun, ok());
        let (mut source, mut other) = (nodes.client(owner), nodes.client(target));
        wait_until(
            || "some keys have arrived".into(),
            || other.call("DBSIZE") != Reply::Int(0) || last_migration(&mut source).0 == "success",
        );
        nodes.kill_and_restart(victim);
        nodes.wait_until_agreed(3);
        // Once: on the side that has the slots, whichever that is.
        let has = nodes.owner(0);
        let there = |port: u16| all_keys(&nodes, port).len();
        wait_until(
            || format!("{} and {} keys, the slots are with {has}", there(owner), there(target)),
            || there(has) == keys.len() && ports.iter().all(|port| *port == has || there(*port) == 0),
        );
        let mut client = Follower::new(&nodes);
        keys.iter().for_each(|key| assert_eq!(client.call(&["STRLEN", key]), Reply::Int(100_000)));
        if has == target {
            assert_eq!(migrate_slots(&nodes, target, owner, "0 3").0, "success");
        }
    }
    // One that is told to end, and one that cannot begin.
    let mut client = nodes.client(owner);
    let to = nodes.id(target);
    assert_eq!(client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {to}")), ok());
    assert_eq!(client.call("CLUSTER CANCELSLOTMIGRATIONS"), ok());
    wait_until(
        || "it has ended".into(),
        || ["cancelled", "success"].contains(&&last_migration(&mut client).0[..]),
    );
    let own = nodes.id(owner);
    let refused = client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {own}"));
    assert_eq!(refused, error("ERR the target of a migration is another node"));
    let unknown = client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 3 NODE {}", "0".repeat(40)));
    assert_eq!(unknown, error(&format!("ERR Unknown node {}", "0".repeat(40))));
    let malformed = client.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 3 0 NODE {to}"));
    assert_eq!(malformed, error("ERR start slot number 3 is greater than end slot number 0"));
}

/// A node waits until another one has heard that it has slots now, and sends others to a third one: what is written meanwhile arrives, too.
#[test]
fn slots_are_sent_while_another_node_has_not_heard_of_what_it_got() {
    let mut nodes = Nodes::start(0, TIMEOUT);
    let mut ways = BTreeMap::new();
    for _ in 0..3 {
        let (port, bus_port) = (free_port(), free_port());
        let [way, bus_way] = [port, bus_port].map(Way::new);
        let [announced, bus_announced] = [&way, &bus_way].map(|way| way.port.to_string());
        let announced =
            ["--cluster-announce-port", &announced, "--cluster-announce-bus-port", &bus_announced];
        nodes.add_at(port, bus_port, &announced);
        ways.insert(port, (way, bus_way));
    }
    let ports = nodes.ports();
    let addresses: Vec<String> = ports.iter().map(|port| address(*port)).collect();
    redis_cli(&[&["create"], &addresses.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    nodes.wait_until_agreed(3);

    let from = *ports.iter().find(|port| ways[port].0.port == nodes.owner(0)).expect("it has an owner");
    let [first, second] = ports.into_iter().filter(|port| *port != from).collect::<Vec<_>>()[..] else {
        panic!("there are two others");
    };
    let keys = keys_in_first_slots(8, 5);
    let mut source = nodes.client(from);
    // What cannot be compressed.
    let mut rng = Rng(seed());
    let mut value = || (0..6000).map(|_| format!("{:016x}", rng.draw())).collect::<String>();
    keys.iter().for_each(|key| assert_eq!(source.call_args(&["SET", key, &value()]), ok()));
    // In the midst of its keys it stops.
    let send = |source: &mut Client, slots: &str, to: u16| {
        ways[&to].0.pass(500_000);
        let begin = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slots} NODE {}", nodes.id(to));
        assert_eq!(source.call(&begin), ok());
    };
    let log = || nodes.0[&from].log();
    send(&mut source, "0 3", first);
    wait_until(log, || ways[&first].0.is_held());
    ways[&first].1.pass(0);
    ways[&first].0.pass(u64::MAX);
    wait_until(log, || nodes.owner_by(from, 0) == ways[&first].0.port);

    send(&mut source, "4 7", second);
    let is_over = |number: u64| log().contains(&format!("transfer {number} of slots"));
    wait_until(log, || is_over(1) && ways[&second].0.is_held());
    assert!(!is_over(2), "{}", log());
    let mut new = value();
    new.insert_str(0, "new");
    for key in &keys[20..] {
        assert_eq!(source.call_args(&["SET", key, &new]), ok());
    }
    ways[&second].0.pass(u64::MAX);
    wait_until(log, || is_over(2));
    ways[&first].1.pass(u64::MAX);
    let mut target = nodes.client(second);
    for key in &keys[20..] {
        wait_until(log, || !is_error(&target.call(&format!("STRLEN {key}")), "MOVED "));
        assert!(target.call(&format!("GET {key}")) == bulk(&new), "{key} is old\n{}", log());
    }
}
