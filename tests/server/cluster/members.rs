//! Clusters are made and changed: nodes come, go, come back, and are lost.

use super::{Follower, Nodes, SHORT_TIMEOUT, TIMEOUT, address, info, key_in};
use crate::harness::{
    Client, Server, array, bulk, bulks, error, holdfast_cluster, is_error, items, number, ok, redis_cli,
    show, text, wait_until,
};
use holdfast_resp::Reply;

/// How many nodes have failed, as one tells.
fn failed_nodes(client: &mut Client) -> usize {
    text(&client.call("CLUSTER NODES")).lines().filter(|line| line.contains("master,fail")).count()
}

#[test]
fn redis_cli_makes_a_cluster_and_changes_it() {
    let mut nodes = Nodes::create(3);
    let ports = nodes.ports();
    {
        let mut client = Follower::new(&nodes);
        for number in 0..300 {
            assert_eq!(client.call(&["SET", &format!("key:{number}"), &number.to_string()]), ok());
        }
        assert!(client.redirections > 100, "keys are on all nodes");
    }
    let keys_of = |nodes: &Nodes, port: u16| number(&nodes.client(port).call("DBSIZE")).expect("a number");
    assert_eq!(ports.iter().map(|port| keys_of(&nodes, *port)).sum::<u64>(), 300);

    // A further node gets slots with what is in them, and gives them back.
    let added = nodes.add();
    redis_cli(&["add-node", &address(added), &address(ports[0])]);
    nodes.wait_until_agreed(4);
    let (from, to) = (nodes.id(ports[0]), nodes.id(added));
    let reshard = |from: &str, to: &str| {
        let flags = ["--cluster-from", from, "--cluster-to", to, "--cluster-slots", "40"];
        redis_cli(&[&["reshard", &address(ports[0])][..], &flags].concat());
    };
    reshard(&from, &to);
    assert_eq!((nodes.owner(0), nodes.owner(39), nodes.owner(40)), (added, added, ports[0]));
    let checked = redis_cli(&["check", &address(added)]);
    assert!(checked.contains("All 16384 slots covered"), "{checked}");
    {
        let mut client = Follower::new(&nodes);
        for number in 0..300 {
            assert_eq!(client.call(&["GET", &format!("key:{number}")]), bulk(number.to_string()));
        }
        // Nothing stays where it was, or is counted twice.
        let all: u64 = nodes.ports().iter().map(|port| keys_of(&nodes, *port)).sum();
        assert_eq!(all, 300);
    }
    reshard(&to, &from);
    assert_eq!(keys_of(&nodes, added), 0);
    redis_cli(&["del-node", &address(ports[0]), &to]);
    let alone = nodes.client(added).call("CLUSTER NODES");
    assert_eq!(text(&alone).lines().count(), 1, "it was told to forget the others");
    drop(nodes.0.remove(&added).expect("it is there").kill());
    nodes.wait_until_agreed(3);
    let mut client = nodes.client(ports[0]);
    let unknown = client.call(&format!("CLUSTER FORGET {}", "0".repeat(40)));
    assert_eq!(unknown, error(&format!("ERR Unknown node {}", "0".repeat(40))));
}

#[test]
fn nodes_come_back_as_who_they_were() {
    let mut nodes = Nodes::create(3);
    let ports = nodes.ports();
    let ids: Vec<String> = ports.iter().map(|port| nodes.id(*port)).collect();
    {
        let mut client = Follower::new(&nodes);
        (0..100).for_each(|number| assert_eq!(client.call(&["SET", &format!("key:{number}"), "1"]), ok()));
    }
    // One after the other, then all at once.
    for &port in &ports {
        nodes.kill_and_restart(port);
    }
    nodes.wait_until_agreed(3);
    let folders: Vec<_> =
        ports.iter().map(|port| (*port, nodes.0.remove(port).expect("it is there"))).collect();
    let folders: Vec<_> =
        folders.into_iter().map(|(port, server)| (port, server.restart(Server::kill))).collect();
    nodes.0.extend(folders);
    nodes.wait_until_agreed(3);
    assert_eq!(ports.iter().map(|port| nodes.id(*port)).collect::<Vec<_>>(), ids);
    let mut client = Follower::new(&nodes);
    (0..100).for_each(|number| assert_eq!(client.call(&["GET", &format!("key:{number}")]), bulk("1")));
}

#[test]
fn a_node_without_a_majority_serves_nothing() {
    let nodes = Nodes::create_with(3, SHORT_TIMEOUT);
    let ports = nodes.ports();
    let key = key_in((0..).find(|slot| nodes.owner(*slot) == ports[0]).expect("it has some"));
    let mut client = nodes.client(ports[0]);
    assert_eq!(client.call(&format!("SET {key} 1")), ok());
    // One of three: the cluster lacks its slots, and says so.
    nodes.0[&ports[2]].suspend();
    let down = error("CLUSTERDOWN The cluster is down");
    wait_until(|| "the node has failed".into(), || failed_nodes(&mut client) == 1);
    assert_eq!(client.call(&format!("GET {key}")), down);
    let own = nodes.id(ports[0]);
    let lines = text(&client.call("CLUSTER NODES"));
    assert!(lines.lines().any(|line| line.starts_with(&own) && line.contains("myself,master")), "{lines}");
    // Two of three: nobody decides.
    nodes.0[&ports[1]].suspend();
    wait_until(
        || "there is no majority".into(),
        || info(&mut client).contains("cluster_majority:unreachable"),
    );
    let refused = client.call("CLUSTER ADDSLOTS 1");
    assert!(is_error(&refused, "CLUSTERDOWN"), "{refused:?}");
    assert_eq!(client.call(&format!("SET {key} 2")), down);
    assert_eq!(client.call("CONFIG SET cluster-allow-reads-when-down yes"), ok());
    assert_eq!(client.call(&format!("GET {key}")), bulk("1"));
    let reads = error("CLUSTERDOWN The cluster is down and only accepts read commands");
    assert_eq!(client.call(&format!("SET {key} 2")), reads);
    for port in &ports[1..] {
        nodes.0[port].resume();
    }
    nodes.wait_until_agreed(3);
    assert_eq!(client.call(&format!("SET {key} 2")), ok());
}

#[test]
fn holdfast_cluster_makes_one_and_changes_it() {
    let mut nodes = Nodes::start(3, SHORT_TIMEOUT);
    let addresses: Vec<String> = nodes.ports().into_iter().map(address).collect();
    let node = |index: usize| &addresses[index][..];
    let (made, text) = holdfast_cluster(&["create", node(0), node(1), node(2)]);
    assert!(made && text.contains("ok: a cluster of 3 nodes"), "{text}");
    let (again, text) = holdfast_cluster(&["create", node(0), node(1), node(2)]);
    assert!(!again && text.contains("is a node of a cluster already"), "{text}");
    nodes.wait_until_agreed(3);
    {
        let mut client = Follower::new(&nodes);
        (0..300).for_each(|number| assert_eq!(client.call(&["SET", &format!("key:{number}"), "1"]), ok()));
    }
    let (is_well, text) = holdfast_cluster(&["status", node(1)]);
    assert!(is_well && text.contains("ok: all slots are served"), "{text}");
    assert!(addresses.iter().all(|address| text.contains(address)), "{text}");

    let added = nodes.add();
    let (is_added, text) = holdfast_cluster(&["add", node(0), &address(added)]);
    assert!(is_added, "{text}");
    let (is_balanced, text) = holdfast_cluster(&["balance", node(0)]);
    assert!(is_balanced && text.contains("ok: 4096 slots were moved"), "{text}");
    let sizes = |nodes: &Nodes| -> u64 {
        let keys = |port: &u16| number(&nodes.client(*port).call("DBSIZE")).expect("a number");
        nodes.0.keys().map(keys).sum()
    };
    wait_until(|| "each key is on one node".into(), || sizes(&nodes) == 300);
    let name = nodes.id(added);
    let (is_moved, text) =
        holdfast_cluster(&["move", node(0), "--from", node(0), "--to", &name[..12], "--slots", "96"]);
    assert!(is_moved, "{text}");
    let (is_removed, text) = holdfast_cluster(&["remove", node(1), &address(added)]);
    assert!(is_removed && text.contains("is no node of the cluster any more"), "{text}");
    assert_eq!(text.matches("slots ").count(), 3, "each of the others gets a share\n{text}");
    wait_until(
        || "all keys are with the others".into(),
        || nodes.client(added).call("DBSIZE") == Reply::Int(0),
    );
    nodes.0.remove(&added).expect("it is there").kill();
    {
        let mut client = Follower::new(&nodes);
        (0..300).for_each(|number| assert_eq!(client.call(&["GET", &format!("key:{number}")]), bulk("1")));
    }
    // What is wrong is told.
    let (is_known, text) = holdfast_cluster(&["move", node(0), "--from", "nobody", "--to", node(1)]);
    assert!(!is_known && text.contains("there is no node nobody"), "{text}");
    let ports = nodes.ports();
    let stopped = *ports.iter().find(|port| address(**port) != node(0)).expect("another one");
    nodes.0[&stopped].suspend();
    let mut watcher = nodes.client(addresses[0].rsplit(':').next().expect("a port").parse().expect("a port"));
    // If it has led, the others choose another leader first.
    wait_until(|| "the node has failed".into(), || failed_nodes(&mut watcher) == 1);
    // It would wait long for the answer of the one that is stopped.
    nodes.0.remove(&stopped).expect("it is there").kill();
    let (is_well, text) = holdfast_cluster(&["status", node(0)]);
    assert!(
        !is_well && text.contains("is not heard of") && text.contains("which nobody serves until it is back"),
        "{text}"
    );
}

#[test]
fn nodes_are_told_another_address_and_another_timeout_while_they_serve() {
    let nodes = Nodes::create_with(3, "600000");
    let [first, second, _] = nodes.ports()[..] else { unreachable!("there are three") };
    let mut client = nodes.client(first);
    let told = |port: u16, what: &str| text(&nodes.client(port).call("CLUSTER NODES")).contains(what);
    for (option, value, shown) in [
        ("cluster-announce-ip", "localhost", format!("localhost:{first}@")),
        ("cluster-announce-port", "7", "localhost:7@".to_owned()),
        ("cluster-announce-ip", "127.0.0.1", "127.0.0.1:7@".to_owned()),
        ("cluster-announce-port", "0", format!("127.0.0.1:{first}@")),
    ] {
        assert_eq!(client.call(&format!("CONFIG SET {option} {value}")), ok());
        wait_until(|| format!("{second} is told {shown}"), || told(second, &shown));
    }
    for port in nodes.ports() {
        assert_eq!(
            nodes.client(port).call(&format!("CONFIG SET cluster-node-timeout {SHORT_TIMEOUT}")),
            ok()
        );
    }
    nodes.0[&first].suspend();
    wait_until(|| format!("{second} says that {first} has failed"), || told(second, "fail"));
}

/// It has another number then than before, and sent clients to itself until it knew which.
#[test]
fn a_node_with_slots_that_joins_another_one_sends_nobody_to_itself() {
    let nodes = Nodes::start(2, TIMEOUT);
    let [first, second] = nodes.ports()[..] else { unreachable!("there are two") };
    let mut client = nodes.client(first);
    assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
    wait_until(|| "it is served".into(), || client.call("SET a 1") == ok());
    let mut listener = nodes.client(first);
    listener.send(b"SSUBSCRIBE a\r\n");
    assert_eq!(items(&listener.reply())[2], Reply::Int(1));
    let line = text(&nodes.client(second).call("CLUSTER NODES"));
    let bus_port = line.split(['@', ' ']).nth(2).expect("where it listens");
    assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {second} {bus_port}")), ok());
    let is_known = |client: &mut Client| text(&client.call("CLUSTER NODES")).contains("127.0.0.1");
    while !is_known(&mut client) {
        let reply = client.call("SET a 1");
        assert!(reply == ok() || is_error(&reply, "CLUSTERDOWN "), "{}", show(&reply));
    }
    wait_until(|| "it is served again".into(), || client.call("SET a 1") == ok());
    assert_eq!(client.call("SPUBLISH a message"), Reply::Int(1));
    assert_eq!(listener.reply(), bulks(["smessage", "a", "message"]));
}

/// As with Redis, where a node that meets another one takes orders at once: also those to meet more.
#[test]
fn orders_to_a_node_that_joins_are_carried_out_once_it_has() {
    let bus_port = |nodes: &Nodes, port| {
        let line = text(&nodes.client(port).call("CLUSTER NODES"));
        line.split(['@', ' ']).nth(2).expect("where it listens").to_owned()
    };
    let slots = ["0 5460", "5461 10922", "10923 16383"];
    for meets_all in [true, false] {
        let nodes = Nodes::start(3, TIMEOUT);
        let ports = nodes.ports();
        for other in &ports[1..] {
            let (from, to) = if meets_all { (ports[0], *other) } else { (*other, ports[0]) };
            let meet = format!("CLUSTER MEET 127.0.0.1 {to} {}", bus_port(&nodes, to));
            assert_eq!(nodes.client(from).call(&meet), ok());
        }
        for (port, slots) in ports.iter().zip(slots) {
            assert_eq!(nodes.client(*port).call(&format!("CLUSTER ADDSLOTSRANGE {slots}")), ok());
        }
        nodes.wait_until_agreed(3);
    }
}

/// As redis-cli does it to mend slots. What waits for the others' decision was a crash within EXEC, and within a script.
#[test]
fn the_cluster_is_changed_within_multi_and_not_by_scripts() {
    let nodes = Nodes::create(3);
    let owner = nodes.owner(5);
    let mut client = nodes.client(owner);
    let bumped = |client: &mut Client| {
        let info = info(client);
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_my_epoch:")).expect("the line");
        Reply::Simple(format!("BUMPED {}", epoch.trim()).into_bytes())
    };
    let before = bumped(&mut client);
    let queue = [
        "CLUSTER DELSLOTS 5",
        "CLUSTER ADDSLOTS 5",
        "CLUSTER SETSLOT 5 STABLE",
        "CLUSTER DELSLOTS 5 5",
        "CLUSTER BUMPEPOCH",
    ];
    let run = |client: &mut Client, queue: &[&str]| {
        assert_eq!(client.call("MULTI"), ok());
        for command in queue {
            assert_eq!(client.call(command), Reply::Simple(b"QUEUED".to_vec()), "{command}");
        }
        client.call("EXEC")
    };
    let twice = error("ERR Slot 5 specified multiple times");
    let replies = run(&mut client, &queue);
    assert_eq!(replies, array([ok(), ok(), ok(), twice, bumped(&mut client)]));
    assert!(nodes.owner(5) == owner && bumped(&mut client) != before);
    // What was read before is read again; what was written, or told to the server, is not undone.
    let key = key_in(5);
    let (set, get) = (format!("SET {key} 1"), format!("GET {key}"));
    let replies = run(&mut client, &["CLUSTER BUMPEPOCH", &set]);
    assert_eq!(replies, array([bumped(&mut client), ok()]));
    let Reply::Array(replies) =
        run(&mut client, &[&get, "CLUSTER SETSLOT 5 STABLE", &set, "CLUSTER SETSLOT 5 STABLE"])
    else {
        panic!("an array")
    };
    assert_eq!(replies[..3], [bulk("1"), ok(), ok()]);
    assert!(is_error(&replies[3], "ERR within MULTI what changes the cluster comes before"), "{replies:?}");
    // A later one knows nothing of what came of an earlier one.
    assert_eq!(run(&mut client, &["CLUSTER ADDSLOTS 5"]), array([error("ERR Slot 5 is already busy")]));
    let script = client.call_args(&["EVAL", "return redis.call('cluster', 'bumpepoch')", "0"]);
    assert!(is_error(&script, "ERR scripts do not change the cluster"), "{script:?}");
    assert!(is_error(
        &items(&run(&mut client, &["EVAL return(redis.call('cluster','flushslots')) 0"]))[0],
        "ERR"
    ));
    for (command, name) in [("ADDSLOTSRANGE 1 2 3", "addslotsrange"), ("DELSLOTSRANGE 1", "delslotsrange")] {
        let arity = error(&format!("ERR wrong number of arguments for 'cluster|{name}' command"));
        assert_eq!(client.call(&format!("CLUSTER {command}")), arity);
    }
}
