//! What clients of a cluster are told: where keys are, who the nodes are, what is published, in Redis's words.

use super::{Nodes, TIMEOUT, address, key_in, migrate_slots};
use crate::harness::{
    Client, Rng, Server, array, bulk, bulks, error, free_port, is_error, items, ok, seed, show, text,
    wait_until,
};
use holdfast_resp::{Reply, write_command};
use holdfast_store::hash_slot;

/// The client library is told of one node, which it asks who has which slots, so that it is never redirected. Over RESP2 a node does
/// not say that it is one; then the first redirection has it ask.
#[test]
fn the_client_library_is_redirected_once_at_most() {
    let nodes = Nodes::create(3);
    let redirections = || -> u64 {
        let count = |port| {
            let stats = text(&nodes.client(port).call("INFO errorstats"));
            let moved = stats.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
            moved.map_or(0, |count| count.trim().parse().expect("a number"))
        };
        nodes.ports().into_iter().map(count).sum()
    };
    let mut config = holdfast_client::Config::new([address(nodes.ports()[0])]).expect("an address");
    let client = holdfast_client::Client::new(config).expect("a client");
    let set =
        |n: usize| client.submit(holdfast_client::Command::new("SET").arg(&format!("key:{n}")).arg("v"));
    let ids: Vec<_> = (0..1000).map(|n| set(n).expect("there is room")).collect();
    assert!(client.wait_all(&ids, None).expect("requests") && redirections() == 0);
    assert!(ids.into_iter().all(|id| client.take(id) == Ok(ok())));

    config = holdfast_client::Config::new([address(nodes.ports()[0])]).expect("an address");
    config.protocol = holdfast_client::Protocol::Resp2;
    let client = holdfast_client::Client::new(config).expect("a client");
    let set = |n: usize| client.call(holdfast_client::Command::new("SET").arg(&format!("key:{n}")).arg("v"));
    let mut n = 0;
    while redirections() == 0 {
        assert_eq!(set(n), Ok(ok()));
        n += 1;
    }
    // This one's reply comes after that about the slots, if it is from the same server.
    (n..n + 20).for_each(|n| assert_eq!(set(n), Ok(ok())));
    let before = redirections();
    (1000..1500).for_each(|n| assert_eq!(set(n), Ok(ok())));
    assert_eq!(redirections(), before, "{before} before");
    assert!(before <= 3, "{before} redirections");
}

#[test]
fn clients_are_told_where_keys_are() {
    let nodes = Nodes::create(3);
    let (slot, key) = (1000, key_in(1000));
    let here = nodes.owner(slot);
    let there = *nodes.ports().iter().find(|port| **port != here).expect("another one");
    let (mut owner, mut other) = (nodes.client(here), nodes.client(there));
    let moved = error(&format!("MOVED {slot} {}", address(here)));
    assert_eq!(owner.call(&format!("SET {key} 1")), ok());
    for call in
        ["GET %", "SET % 2", "TYPE %", "BLPOP % 0", "EVAL return(1) 1 %", "SPUBLISH % m", "OBJECT ENCODING %"]
    {
        assert_eq!(other.call(&call.replace('%', &key)), moved, "{call}");
    }
    // What has no key is executed anywhere.
    assert_eq!(other.call("PING"), Reply::Simple(b"PONG".to_vec()));
    assert_eq!(other.call("EVAL return(1) 0"), Reply::Int(1));
    let crossed = error("CROSSSLOT Keys in request don't hash to the same slot");
    for call in ["MGET % b", "MSET % 1 b 2", "EVAL return(1) 2 % b", "SUNIONSTORE % b"] {
        assert_eq!(owner.call(&call.replace('%', &key)), crossed, "{call}");
    }
    assert_eq!(owner.call(&format!("MSET {key} 1 {key}a 2")), ok(), "one tag, one slot");
    // A script may not reach for keys elsewhere, nor a transaction.
    let far = key_in((0..).find(|slot| nodes.owner(*slot) == there).expect("it has some"));
    let near = key_in((0..).find(|slot| nodes.owner(*slot) == here && *slot != 1000).expect("it has some"));
    let mut get = |first_line: &str, name: &str| {
        let source = format!("{first_line}return redis.call('get', '{name}') or 'nothing'");
        owner.call_args(&["EVAL", &source, "1", &key])
    };
    let foreign = get("", &far);
    assert!(
        is_error(&foreign, "ERR Script attempted to access a non local key in a cluster node"),
        "{foreign:?}"
    );
    assert_eq!(get("", &near), bulk("nothing"), "a script of old may use all slots of the node");
    let other_slot = get("#!lua\n", &near);
    let one_slot = "ERR Script attempted to access keys that do not hash to the same slot";
    assert!(is_error(&other_slot, one_slot), "{other_slot:?}");
    assert_eq!(get("#!lua flags=allow-cross-slot-keys\n", &near), bulk("nothing"));
    assert_eq!(get("#!lua\n", &format!("{key}x")), bulk("nothing"));
    let flag = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
    assert_eq!(get("#!lua flags=no-cluster\n", &key), error(flag));
    assert_eq!(other.call("MULTI"), ok());
    assert_eq!(other.call(&format!("GET {key}")), moved);
    assert!(is_error(&other.call("EXEC"), "EXECABORT"));
    let sorted = owner.call(&format!("SORT {key} BY w_*"));
    assert_eq!(sorted, error("ERR BY option of SORT denied in cluster mode."));
    let got = owner.call(&format!("SORT {key} GET #"));
    assert_eq!(got, error("ERR GET option of SORT denied in cluster mode."));
    assert_eq!(owner.call("SELECT 1"), error("ERR SELECT is not allowed in cluster mode"));
    assert_eq!(owner.call(&format!("MOVE {key} 1")), error("ERR MOVE is not allowed in cluster mode"));
    assert_eq!(owner.call("SWAPDB 0 1"), error("ERR SWAPDB is not allowed in cluster mode"));
    let copied = owner.call(&format!("COPY {key} {key} DB 1"));
    assert_eq!(copied, error("ERR Copying to another database is not allowed in cluster mode"));

    // A slot that is on its way.
    let (from, to) = (nodes.id(here), nodes.id(there));
    assert_eq!(other.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
    assert_eq!(owner.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
    let ask = error(&format!("ASK {slot} {}", address(there)));
    let again = error("TRYAGAIN Multiple keys request during rehashing of slot");
    assert_eq!(owner.call(&format!("GET {key}")), bulk("1"));
    assert_eq!(owner.call(&format!("GET {key}x")), ask, "it is not here any more, or never was");
    assert_eq!(owner.call(&format!("MGET {key} {key}x")), again);
    assert_eq!(other.call(&format!("GET {key}")), moved, "without ASKING");
    assert_eq!(other.call("ASKING"), ok());
    assert_eq!(other.call(&format!("GET {key}")), Reply::Null);
    assert_eq!(other.call(&format!("GET {key}")), moved, "ASKING is for one command");
    let migrate = format!("MIGRATE 127.0.0.1 {there} {key} 0 5000");
    assert_eq!(owner.call(&migrate), ok());
    assert_eq!(owner.call(&format!("GET {key}")), ask);
    assert_eq!(owner.call(&format!("MGET {key} {key}a")), again);
    assert_eq!(other.call("ASKING"), ok());
    assert_eq!(other.call(&format!("GET {key}")), bulk("1"));
    assert_eq!(owner.call(&format!("CLUSTER COUNTKEYSINSLOT {slot}")), Reply::Int(1));
    assert_eq!(owner.call(&format!("CLUSTER GETKEYSINSLOT {slot} 10")), array([bulk(format!("{key}a"))]));
    let held = format!(
        "ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
    );
    assert_eq!(owner.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), error(&held));
    assert_eq!(owner.call(&format!("MIGRATE 127.0.0.1 {there} {key}a 0 5000")), ok());
    for client in [&mut other, &mut owner] {
        assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), ok());
    }
    assert_eq!(nodes.owner(slot), there);
    assert_eq!(owner.call(&format!("GET {key}")), error(&format!("MOVED {slot} {}", address(there))));
    assert_eq!(other.call(&format!("MGET {key} {key}a")), array([bulk("1"), bulk("2")]));

    // A slot of nobody.
    assert_eq!(other.call(&format!("CLUSTER DELSLOTS {slot}")), ok());
    let down = error("CLUSTERDOWN The cluster is down");
    wait_until(|| "the cluster is down".into(), || owner.call(&format!("GET {far}")) == down);
    assert_eq!(owner.call(&format!("GET {key}")), error("CLUSTERDOWN Hash slot not served"));
    assert_eq!(owner.call("CONFIG SET cluster-require-full-coverage no"), ok());
    let own = key_in((0..).find(|slot| nodes.owner(*slot) == here).expect("it has some"));
    wait_until(
        || "keys of other slots are served".into(),
        || owner.call(&format!("GET {own}")) == Reply::Null,
    );
}

/// However fast it is published.
#[test]
fn messages_that_wait_to_be_sent_take_little_memory() {
    let nodes = Nodes::create(3);
    let port = nodes.ports()[0];
    let server = &nodes.0[&port];
    let mut client = nodes.client(port);
    let before = server.resident_bytes();
    let mut sent = Vec::new();
    (0..1000).for_each(|_| write_command(&mut sent, &["PUBLISH", "news", &"x".repeat(2000)]));
    for _ in 0..100 {
        client.send(&sent);
        (0..1000).for_each(|_| assert_eq!(client.reply(), Reply::Int(0)));
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
    assert!(text(&client.call("CLUSTER INFO")).contains("cluster_state:ok"));
}

#[test]
fn messages_reach_subscribers_on_all_nodes() {
    let nodes = Nodes::create(3);
    let ports = nodes.ports();
    let mut subscribers: Vec<Client> = ports.iter().map(|port| nodes.client(*port)).collect();
    for subscriber in &mut subscribers {
        subscriber.call("SUBSCRIBE news");
    }
    for (number, port) in ports.iter().enumerate() {
        let mut publisher = nodes.client(*port);
        assert_eq!(
            publisher.call(&format!("PUBLISH news {number}")),
            Reply::Int(1),
            "those of the node are counted"
        );
        for subscriber in &mut subscribers {
            assert_eq!(subscriber.reply(), array([bulk("message"), bulk("news"), bulk(number.to_string())]));
        }
    }
    // A message to a shard stays with the owner of its slot.
    let owner = nodes.owner(hash_slot(b"shard"));
    for port in ports {
        let mut client = nodes.client(port);
        let subscribed = client.call("SSUBSCRIBE shard");
        if port == owner {
            assert_eq!(subscribed, array([bulk("ssubscribe"), bulk("shard"), Reply::Int(1)]));
            assert_eq!(nodes.client(port).call("SPUBLISH shard m"), Reply::Int(1));
            assert_eq!(client.reply(), array([bulk("smessage"), bulk("shard"), bulk("m")]));
        } else {
            assert!(is_error(&subscribed, "MOVED"), "{subscribed:?}");
        }
    }
}

#[test]
fn who_waits_for_a_key_is_sent_where_it_goes() {
    let nodes = Nodes::create(3);
    let (slot, key) = (5, key_in(5));
    let owner = nodes.owner(slot);
    let target = *nodes.ports().iter().find(|port| **port != owner).expect("another one");
    let mut waiter = nodes.client(owner);
    waiter.send(format!("BLPOP {key} 0\r\n").as_bytes());
    let mut client = nodes.client(owner);
    wait_until(|| "it waits".into(), || client.info("blocked_clients") == "1");
    assert_eq!(migrate_slots(&nodes, owner, target, "5 5").0, "success");
    assert_eq!(waiter.reply(), error(&format!("MOVED {slot} {}", address(target))));

    // And back key by key: who waits does so until the slot is the other node's.
    let mut waiter = nodes.client(target);
    waiter.send(format!("BLPOP {key} 0\r\n").as_bytes());
    let mut other = nodes.client(target);
    wait_until(|| "it waits".into(), || other.info("blocked_clients") == "1");
    let (from, to) = (nodes.id(target), nodes.id(owner));
    assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
    assert_eq!(other.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
    assert!(is_error(&other.call(&format!("TYPE {key}")), &format!("ASK {slot} ")));
    assert_eq!(other.info("blocked_clients"), "1");
    assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), ok());
    assert_eq!(waiter.reply(), error(&format!("MOVED {slot} {}", address(owner))));
}

/// What a client did not find may be there once the slot is another node's, which does not know of that client.
#[test]
fn who_keeps_what_it_has_read_is_told_that_a_slot_is_elsewhere() {
    let nodes = Nodes::create(3);
    let (slot, key) = (5, key_in(5));
    let owner = nodes.owner(slot);
    let target = *nodes.ports().iter().find(|port| **port != owner).expect("another one");
    let (from, to) = (nodes.id(owner), nodes.id(target));
    let (mut client, mut away) = (nodes.client(owner), nodes.client(target));
    for by_keys in [true, false] {
        let mut caches = ["", "BCAST"].map(|mode| {
            let mut cache = nodes.client(owner);
            cache.call("HELLO 3");
            assert_eq!(cache.call(&format!("CLIENT TRACKING ON {mode}")), ok());
            assert_eq!(cache.call(&format!("GET {key}")), Reply::Null);
            assert_eq!(cache.call(&format!("GET {}", key_in(6))), Reply::Null);
            cache
        });
        if by_keys {
            assert_eq!(away.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
            assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
            assert_eq!(away.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), ok());
        } else {
            assert_eq!(migrate_slots(&nodes, owner, target, "5 5").0, "success");
        }
        let told = |what| Reply::Push(vec![bulk("invalidate"), what]);
        assert_eq!(caches[0].reply(), told(array([bulk(&key[..])])));
        assert_eq!(caches[1].reply(), told(Reply::Null));
        if by_keys {
            assert_eq!(migrate_slots(&nodes, target, owner, "5 5").0, "success");
        }
    }
}

/// A client that was not told would wait for messages that go elsewhere.
#[test]
fn who_listens_to_a_channel_of_a_shard_is_told_that_its_slot_is_elsewhere() {
    let nodes = Nodes::create(3);
    let (slot, channel, other) = (5, key_in(5), key_in(6));
    let owner = nodes.owner(slot);
    let target = *nodes.ports().iter().find(|port| **port != owner).expect("another one");
    let (from, to) = (nodes.id(owner), nodes.id(target));
    let (mut client, mut away) = (nodes.client(owner), nodes.client(target));
    let push = |words: &[&str], count: i64| {
        let words = words.iter().map(|word| bulk(*word));
        Reply::Array(words.chain([Reply::Int(count)]).collect())
    };
    for by_keys in [true, false] {
        let mut listener = nodes.client(owner);
        for (count, channel) in [(1, &channel), (2, &other)] {
            let told = listener.call(&format!("SSUBSCRIBE {channel}"));
            assert_eq!(told, push(&["ssubscribe", channel], count));
        }
        if by_keys {
            assert_eq!(away.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
            assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
            // Its channels are here until the slot is not.
            assert_eq!(client.call(&format!("SPUBLISH {channel} before")), Reply::Int(1));
            assert_eq!(listener.reply(), bulks(["smessage", &channel, "before"]));
            assert_eq!(client.call(&format!("CLUSTER SETSLOT {slot} NODE {to}")), ok());
        } else {
            assert_eq!(migrate_slots(&nodes, owner, target, "5 5").0, "success");
        }
        assert_eq!(listener.reply(), push(&["sunsubscribe", &channel], 1));
        assert_eq!(client.call(&format!("SPUBLISH {other} after")), Reply::Int(1));
        assert_eq!(listener.reply(), bulks(["smessage", &other, "after"]));
        let elsewhere = format!("MOVED {slot} {}", address(target));
        assert_eq!(listener.call(&format!("SSUBSCRIBE {channel}")), error(&elsewhere));
        assert_eq!(migrate_slots(&nodes, target, owner, "5 5").0, "success");
    }
}

#[test]
fn clients_are_told_of_nodes_by_address_by_name_or_not_at_all() {
    let nodes = Nodes::create_with(3, TIMEOUT);
    let ports = nodes.ports();
    let (first, named, nameless) = (ports[0], ports[1], ports[2]);
    let mut client = nodes.client(first);
    let set = |port: u16, option: &str| nodes.client(port).call(&format!("CONFIG SET {option}"));
    assert_eq!(set(named, "cluster-announce-hostname node.example"), ok());
    for (name, why) in [("a_b", "may only contain"), (&"a".repeat(256), "must be less than 256")] {
        let refused = set(named, &format!("cluster-announce-hostname {name}"));
        assert!(show(&refused).contains(&format!("Hostnames {why}")), "{}", show(&refused));
    }
    let line = format!("127.0.0.1:{named}@");
    let nodes_text = |client: &mut Client| text(&client.call("CLUSTER NODES"));
    wait_until(
        || format!("a name: {}", nodes_text(&mut nodes.client(first))),
        || {
            let nodes = nodes_text(&mut client);
            let line = nodes.lines().find(|it| it.contains(&line)).expect("it is known");
            line.split(' ').nth(1).is_some_and(|place| place.ends_with(",node.example"))
        },
    );
    let (ip, name) = (bulks(["ip", "127.0.0.1"]), bulks(["hostname", "node.example"]));
    let both = bulks(["ip", "127.0.0.1", "hostname", "node.example"]);
    let none = || Reply::Array(Vec::new());
    let host = || bulk("127.0.0.1");
    for (preferred, of_named, of_nameless) in [
        ("hostname", (bulk("node.example"), "node.example", ip.clone()), (bulk("?"), "?", ip.clone())),
        ("unknown-endpoint", (Reply::Null, "", both), (Reply::Null, "", ip)),
        ("ip", (host(), "127.0.0.1", name), (host(), "127.0.0.1", none())),
    ] {
        assert_eq!(set(first, &format!("cluster-preferred-endpoint-type {preferred}")), ok());
        for (port, (shown, word, besides)) in [(named, of_named), (nameless, of_nameless)] {
            let slots = |client: &mut Client| {
                let slots = client.call("CLUSTER SLOTS");
                let row = items(&slots).iter().map(|row| items(row).to_vec());
                let mut row = row.filter(|row| items(&row[2])[1] == Reply::Int(port.into()));
                row.next().expect("it has slots")
            };
            wait_until(
                || format!("{preferred} of {port}"),
                || {
                    let node = items(&slots(&mut client)[2]).to_vec();
                    node[0] == shown && node[3] == besides
                },
            );
            let [Reply::Int(from), Reply::Int(to), ..] = slots(&mut client)[..] else { panic!("a range") };
            let is_there = |key: &String| (from..=to).contains(&hash_slot(key.as_bytes()).into());
            let key = (0..).map(|n| format!("key:{n}")).find(is_there).expect("there are many");
            let moved = client.call(&format!("GET {key}"));
            let expected = format!("MOVED {} {word}:{port}", hash_slot(key.as_bytes()));
            assert!(is_error(&moved, &expected), "{preferred}: {}", show(&moved));
            let shards = show(&client.call("CLUSTER SHARDS"));
            assert!(preferred != "hostname" || shards.contains("node.example"), "{shards}");
        }
    }
}

/// FLUSHALL puts another database in the place of the one that it empties later.
#[test]
fn keys_of_slots_are_those_that_came_after_a_flush() {
    let bus_port = free_port().to_string();
    let server = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &bus_port]);
    let mut client = server.client();
    assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
    wait_until(|| "it serves".into(), || client.call("SET before 1") == ok());
    let slot = |key: &str| hash_slot(key.as_bytes());
    for round in 0..4 {
        let key = format!("key:{round}");
        assert_eq!(client.call("FLUSHALL"), ok());
        assert_eq!(client.call("CLUSTER FLUSHSLOTS"), ok());
        assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
        wait_until(|| "it serves".into(), || client.call(&format!("SET {key} 1")) == ok());
        assert_eq!(client.call(&format!("CLUSTER COUNTKEYSINSLOT {}", slot(&key))), Reply::Int(1));
        assert_eq!(client.call(&format!("CLUSTER GETKEYSINSLOT {} 10", slot(&key))), bulks([&key]));
        assert_eq!(client.call(&format!("CLUSTER COUNTKEYSINSLOT {}", slot("before"))), Reply::Int(0));
        assert!(is_error(&client.call("CLUSTER FLUSHSLOTS"), "ERR DB must be empty"));
        assert!(is_error(&client.call("CLUSTER RESET"), "ERR CLUSTER RESET can't be called"));
    }
}

/// Each command with any arguments, where it must not wait: in EXEC, in a script, and in a script in EXEC.
#[test]
fn no_command_ends_a_node_in_exec_or_in_a_script() {
    /// They end the server, the connection or its replies, or make it another one.
    const LEFT_OUT: &str = " shutdown debug debug|sleep debug|restart debug|segfault debug|panic monitor subscribe psubscribe \
        ssubscribe quit reset client|kill client|pause client|reply replicaof slaveof sync psync hello multi exec discard watch ";
    const WORDS: [&str; 17] = [
        "0", "1", "a", "b", "-1", "{a}1", "100", "x", "*", "$", ">", "NODE", "STREAMS", "COUNT", "LIMIT",
        "on", "1000",
    ];
    const SCRIPT: &str = "return redis.pcall(unpack(ARGV))";
    let mut random = Rng(seed());
    let bus_port = free_port().to_string();
    let options = ["--cluster-enabled", "yes", "--cluster-port", &bus_port, "--cluster-node-timeout", "1000"];
    let (node, _) = Server::start_with_port(&options);
    let mut client = node.client();
    let connect = |after: &str| {
        Client::connect(&node.folder().join("socket")).unwrap_or_else(|e| panic!("{after}: {e}"))
    };
    let serve = |client: &mut Client| {
        assert_eq!(client.call("FLUSHALL"), ok());
        // It may have been told to forget some slots, and all are given out together only if none of them is; and it may have been told to
        // join others, which it gives up.
        wait_until(|| "slots are taken away".into(), || client.call("CLUSTER FLUSHSLOTS") == ok());
        assert_eq!(client.call("CLUSTER ADDSLOTSRANGE 0 16383"), ok());
        wait_until(|| "it serves".into(), || client.call("SET {a} 1") == ok());
    };
    serve(&mut client);
    let containers = client.call("COMMAND LIST");
    let mut names: Vec<String> = items(&containers).iter().map(text).collect();
    names.sort();
    for container in names.clone() {
        let info = client.call(&format!("COMMAND INFO {container}"));
        let subcommands = items(&items(&info)[0])[9].clone();
        names.extend(items(&subcommands).iter().map(|row| text(&items(row)[0])));
    }
    assert!(names.len() > 300, "{names:?}");
    for name in names.iter().filter(|name| !LEFT_OUT.contains(&format!(" {name} "))) {
        for _ in 0..8 {
            let mut command: Vec<&str> = name.split('|').collect();
            command.extend((0..random.below(8)).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]));
            let script = [&["EVAL", SCRIPT, "0"], &command[..]].concat();
            let calls: Vec<Vec<&str>> = match random.below(3) {
                0 => vec![vec!["MULTI"], command.clone(), vec!["EXEC"]],
                1 => vec![script],
                _ => vec![vec!["MULTI"], script, vec!["EXEC"]],
            };
            // It may close the connection, or leave replies there: the next one takes another.
            let mut caller = connect("");
            let _ = calls.iter().all(|call| {
                let mut out = Vec::new();
                write_command(&mut out, call);
                caller.try_send(&out).is_ok() && caller.try_reply().is_some()
            });
            let mut next = connect(&format!("{calls:?}"));
            assert_eq!(next.call("PING"), Reply::Simple("PONG".into()), "{calls:?}");
        }
    }
    serve(&mut client);
}
