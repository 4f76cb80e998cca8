//! The commands of graphs: replies, errors that change nothing, that vertices are sorted sets, who may change them, and a vertex with
//! many edges.

use crate::harness::{self, Client, EndOnDrop, Rng, Server, is_error, seed, show, text};
use holdfast_resp::Reply;
use std::collections::BTreeSet;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

/// A node of a cluster that has all slots.
fn node() -> Server {
    let port = harness::free_port().to_string();
    let server = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &port]);
    let mut client = server.client();
    client.call("cluster addslotsrange 0 16383");
    let serves = || show(&server.client().call("set x 1")) == "+OK";
    harness::wait_until(|| show(&client.call("cluster info")), serves);
    client.call("del x");
    server
}

#[test]
fn edges_come_and_go() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "graph.addedge a b a c c a d a => :4
         graph.addedge a b a e a e => :1
         graph.neighbors a => [b e c]
         graph.predecessors a => [c d]
         graph.neighbors d => [a]
         graph.predecessors b => [a]
         graph.neighbors b => []
         graph.neighbors none => []
         graph.degree a => [out :3 in :2]
         graph.degree none => [out :0 in :0]
         graph.isconnected a b => :1
         graph.isconnected b a => :0
         graph.isconnected a c => :1
         graph.isconnected c a => :1
         graph.isconnected none a => :0
         graph.removeedge a c a c b a none a => :1
         graph.isconnected c a => :1
         graph.neighbors a => [b e]
         graph.predecessors a => [c d]
         graph.scan a out 0 => [0 [b e]]
         graph.scan a IN 0 match c* count 5 => [0 [c]]
         graph.scan none in 0 => [0 []]
         graph.removeedge a b => :1
         exists b none => :0",
    );
    client.call("hello 3");
    client.run_script("graph.degree a => {out :1, in :2}");
}

#[test]
fn an_edge_may_lead_back_to_its_vertex() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "graph.addedge a a a b => :2
         graph.neighbors a => [b a]
         graph.predecessors a => [a]
         graph.isconnected a a => :1
         graph.removevertex a => :2
         dbsize => :0
         graph.addedge a a => :1
         graph.removeedge a a => :1
         dbsize => :0",
    );
}

#[test]
fn a_vertex_goes_with_the_edges_that_lead_to_it() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "graph.addedge a b b a c a a d d e => :5
         graph.removevertex a => :4
         graph.removevertex a => :0
         dbsize => :2
         graph.neighbors d => [e]
         graph.predecessors d => []
         graph.addedge hub a hub b hub c d hub e hub a hub => :6
         graph.removevertex hub count 2 => :2
         graph.degree hub => [out :1 in :3]
         graph.removevertex hub count 1 => :2
         graph.removevertex hub count 9 => :2
         graph.removevertex hub count 9 => :0
         dbsize => :2
         graph.addedge f g => :1
         set g text => +OK
         graph.removevertex f => :1
         get g => text
         exists f => :0
         graph.addedge ann bob => :1
         del bob => :1
         zadd bob 2 ann 100 cid => :2
         graph.removevertex ann => :1
         zrange bob 0 -1 => [ann cid]",
    );
}

#[test]
fn an_error_changes_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(&format!(
        "set s 1 => +OK
         zadd z 7 a 2.5 b => :2
         graph.addedge a => -ERR wrong number of arguments for 'graph.addedge' command
         graph.addedge a b c => -ERR wrong number of arguments for 'graph.addedge' command
         graph.removeedge a b c => -ERR wrong number of arguments for 'graph.removeedge' command
         graph.addedge a b c s => {WRONG_TYPE}
         graph.addedge a b s c => {WRONG_TYPE}
         graph.addedge a b z a => {WRONG_TYPE}
         graph.addhalf a both b => -ERR syntax error
         graph.addhalf s out b => {WRONG_TYPE}
         graph.removehalf s out b => {WRONG_TYPE}
         graph.removehalf a x b => -ERR syntax error
         graph.neighbors s => {WRONG_TYPE}
         graph.degree s => {WRONG_TYPE}
         graph.isconnected s a => {WRONG_TYPE}
         graph.isconnected z b => {WRONG_TYPE}
         graph.removevertex s => {WRONG_TYPE}
         graph.removevertex z => {WRONG_TYPE}
         graph.removevertex a count => -ERR syntax error
         graph.removevertex a count 0 => -ERR value is out of range, must be positive
         graph.removevertex a count x => -ERR value is out of range, must be positive
         graph.removevertex a first 1 => -ERR syntax error
         graph.scan a both 0 => -ERR syntax error
         graph.scan a out x => -ERR invalid cursor
         graph.scan a out 0 count 0 => -ERR syntax error
         dbsize => :2"
    ));
}

#[test]
fn vertices_are_sorted_sets() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "graph.addedge a b c a a d d a => :4
         type a => +zset
         zrange a 0 -1 withscores => [b 1 d 2 c 3]
         zadd a 1 e => :1
         graph.neighbors a => [b e d]
         copy a copy => :1
         graph.predecessors copy => [d c]",
    );
}

/// What a client of several servers does: one half at each end, first where the edge ends.
#[test]
fn halves_make_an_edge() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "graph.addedge a b => :1
         graph.addhalf d in c => :1
         graph.isconnected c d => :0
         graph.predecessors d => [c]
         graph.addhalf c out d e d => :2
         graph.addhalf c out d => :0
         graph.addhalf e in c => :1
         graph.isconnected c d => :1
         graph.removehalf c out d d none => :1
         graph.predecessors d => [c]
         graph.removehalf d in c => :1
         graph.removehalf c out e => :1
         exists c d => :0
         graph.removehalf b in a => :1
         graph.addedge a b => :0
         graph.predecessors b => [a]",
    );
}

#[test]
fn who_may_not_change_a_neighbour_cannot() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert!(show(&client.call("acl cat sortedset")).contains("graph.addedge"));
    client.run_script(
        "graph.addedge g:1 g:2 g:3 g:1 g:4 other => :3
         acl setuser user on nopass ~g:* %R~other +@all => +OK
         acl setuser split on nopass ~g:4 +@all (+graph.removevertex ~g:4 ~g:1) (+get ~*) => +OK
         acl setuser reader on nopass ~* +@read => +OK
         auth reader x => +OK
         graph.neighbors g:1 => [g:2]",
    );
    for refused in ["graph.addedge g:1 g:2", "graph.removevertex g:1", "graph.removehalf g:1 out g:2"] {
        assert!(is_error(&client.call(refused), "NOPERM"), "{refused}");
    }
    client.call("auth user x");
    for refused in ["graph.addedge g:1 other", "graph.removeedge g:4 other", "graph.removevertex g:4"] {
        assert!(is_error(&client.call(refused), "NOPERM"), "{refused}");
    }
    let removed = client.call_args(&["eval", "return redis.pcall('graph.removevertex', 'g:4')", "0"]);
    assert!(is_error(&removed, "NOPERM"), "{removed:?}");
    client.run_script("graph.removevertex g:4 count 1 => -NOPERM No permissions to access a key");
    client.run_script("graph.predecessors other => [g:4]\n graph.removevertex g:1 => :2");
    // Rights of several selectors do not add up.
    client.call("auth split x");
    assert!(is_error(&client.call("graph.removevertex g:4"), "NOPERM"));
}

#[test]
fn on_a_node_of_a_cluster_edges_stay_within_a_slot() {
    let server = node();
    let mut client = server.client();
    client.run_script(
        "graph.addedge a b => -CROSSSLOT Keys in request don't hash to the same slot
         graph.addedge {g}a {g}b {g}c {g}a => :2
         graph.addhalf b in a => :1
         graph.addhalf a out b => :1
         graph.removevertex a => -CROSSSLOT Keys in request don't hash to the same slot
         graph.neighbors a => [b]
         graph.removevertex {g}a => :2
         graph.neighbors {g}c => []",
    );
}

/// All that a cursor leads to.
fn scan(client: &mut Client, vertex: &str, direction: &str) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let reply = client.call(&format!("graph.scan {vertex} {direction} {cursor} count 1000"));
        let Reply::Array(mut parts) = reply else { panic!("{reply:?}") };
        let Some(Reply::Array(names)) = parts.pop() else { panic!("a cursor and names") };
        found.extend(names.iter().map(text));
        cursor = text(&parts[0]);
        if cursor == "0" {
            return found;
        }
    }
}

/// Edges from a vertex to others, and from every third of those to it.
fn add_hub(client: &mut Client, edges: usize) {
    let mut call = vec!["graph.addedge".to_owned()];
    for number in 0..edges {
        let other = format!("v:{number}");
        call.extend(if number % 3 == 0 { [other, "hub".into()] } else { ["hub".into(), other] });
    }
    assert_eq!(client.call_args(&call), Reply::Int(edges as i64));
}

fn degree(client: &mut Client, vertex: &str) -> u64 {
    let Reply::Array(parts) = client.call(&format!("graph.degree {vertex}")) else { panic!("degrees") };
    let counts =
        parts.iter().filter_map(|part| if let Reply::Int(count) = part { Some(*count) } else { None });
    counts.sum::<i64>() as u64
}

#[test]
fn a_vertex_of_many_edges_is_read_in_steps_and_removed_by_one_call_over_kill_9() {
    const EDGES: usize = 70_000;
    let server = Server::start(&["--appendfsync", "always"]);
    let mut client = server.client();
    add_hub(&mut client, EDGES);
    client.run_script("graph.addedge v:7 v:8 hub v:0 => :2");
    let server = server.restart(Server::kill);
    let mut client = server.client();
    let direction = |into: bool| (0..EDGES).filter(move |number| (number % 3 == 0) == into);
    for (into, word, command) in [(false, "out", "neighbors"), (true, "in", "predecessors")] {
        let mut expected: BTreeSet<String> = direction(into).map(|number| format!("v:{number}")).collect();
        if !into {
            expected.insert("v:0".into());
        }
        let found = scan(&mut client, "hub", word);
        assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), expected, "{word}");
        let Reply::Array(all) = client.call(&format!("graph.{command} hub")) else { panic!("neighbours") };
        assert!(all.iter().map(text).collect::<BTreeSet<_>>() == expected, "{word}");
    }
    // Nothing may come between the commands of a transaction, so that it does not go on in steps.
    client.run_script(
        "multi => +OK
         graph.removevertex hub => +QUEUED
         graph.removevertex hub count 100 => +QUEUED
         exec => [-ERR the vertex has more than 65536 neighbours; use COUNT to remove the edges in steps :100]",
    );
    assert_eq!(client.call("graph.removevertex hub count 1000"), Reply::Int(1000));
    assert_eq!(client.call("graph.removevertex hub"), Reply::Int(EDGES as i64 + 1 - 1100));
    let server = server.restart(Server::kill);
    server.client().run_script("dbsize => :2\n graph.neighbors v:7 => [v:8]");
}

/// How often a test begins again whose moment has passed before it has come: the machine may be busy.
const ATTEMPTS: usize = 20;

#[test]
fn many_edges_are_removed_in_steps_between_which_others_are_served() {
    const EDGES: usize = 60_000;
    let server = Server::start(&["--workers", "1"]);
    let (mut client, mut other) = (server.client(), server.client());
    let mut steps = 0;
    for _ in 0..ATTEMPTS {
        add_hub(&mut client, EDGES);
        client.send(b"graph.removevertex hub\r\n");
        let mut last = EDGES as u64;
        while last > 0 {
            let now = degree(&mut other, "hub");
            assert!(now <= last);
            steps += u64::from(now < last && now > 0);
            last = now;
        }
        assert_eq!(client.reply(), Reply::Int(EDGES as i64));
        assert_eq!(client.call("dbsize"), Reply::Int(0));
        if steps > 20 {
            return;
        }
    }
    panic!("others have seen {steps} steps only");
}

#[test]
fn a_kill_amid_the_removal_of_many_edges_leaves_a_whole_graph() {
    const EDGES: usize = 60_000;
    let mut server = Server::start(&[]);
    for _ in 0..ATTEMPTS {
        let (mut client, mut other) = (server.client(), server.client());
        client.call("flushall");
        add_hub(&mut client, EDGES);
        client.send(b"graph.removevertex hub\r\n");
        while degree(&mut other, "hub") == EDGES as u64 {}
        server = server.restart(Server::kill);
        let mut client = server.client();
        let mut names = scan(&mut client, "hub", "out");
        names.append(&mut scan(&mut client, "hub", "in"));
        if names.is_empty() {
            assert_eq!(client.call("dbsize"), Reply::Int(0));
            continue;
        }
        let calls = ["exists".to_owned()].into_iter().chain(names.iter().cloned());
        assert_eq!(client.call_args(&calls.collect::<Vec<_>>()), Reply::Int(names.len() as i64));
        assert_eq!(client.call("dbsize"), Reply::Int(names.len() as i64 + 1));
        if names.len() < EDGES {
            assert_eq!(client.call("graph.removevertex hub"), Reply::Int(names.len() as i64));
            assert_eq!(client.call("dbsize"), Reply::Int(0));
            return;
        }
    }
    panic!("no kill came amid the removal");
}

#[test]
fn what_is_refused_of_many_edges_has_changed_nothing() {
    let server = node();
    let mut client = server.client();
    let mut call = vec!["graph.addedge".to_owned()];
    (0..600).for_each(|number| call.extend(["{g}hub".into(), format!("{{g}}{number:03}")]));
    assert_eq!(client.call_args(&call), Reply::Int(600));
    client.run_script(
        "acl setuser user on nopass ~{g}hub ~{g}[0-4]* +@all => +OK
         acl setuser all on nopass ~{g}* +@all => +OK
         auth user x => +OK
         graph.removevertex {g}hub => -NOPERM No permissions to access a key
         graph.degree {g}hub => [out :600 in :0]
         graph.removevertex {g}hub count 300 => :300
         auth all x => +OK
         graph.degree {g}hub => [out :300 in :0]
         zadd {g}hub 1.5 odd => :1
         graph.removevertex {g}hub => -WRONGTYPE Operation against a key holding the wrong kind of value
         zrem {g}hub odd => :1
         graph.addhalf {g}hub in elsewhere => :1
         auth default x => +OK
         graph.removevertex {g}hub => -CROSSSLOT Keys in request don't hash to the same slot
         graph.degree {g}hub => [out :300 in :1]
         graph.removehalf {g}hub in elsewhere => :1
         auth all x => +OK
         graph.removevertex {g}hub => :300
         dbsize => :0",
    );
}

/// Who tracks keys or listens to events learns of all steps.
#[test]
fn all_steps_of_a_removal_are_told() {
    let server = Server::start(&["--notify-keyspace-events", "Ez"]);
    let (mut client, mut listener) = (server.client(), server.client());
    add_hub(&mut client, 600);
    listener.call("subscribe __keyevent@0__:zrem");
    assert_eq!(client.call("graph.removevertex hub"), Reply::Int(600));
    let mut told: Vec<String> = (0..600 + 3).map(|_| show(&listener.reply())).collect();
    assert!(listener.is_silent());
    told.sort();
    told.dedup();
    assert_eq!(told.len(), 601, "each neighbour once, and the vertex in each step");
}

/// While others look, each edge is at both of its ends or at none, whatever is added and removed, also by scripts and in
/// transactions.
#[test]
fn both_ends_of_an_edge_change_at_once() {
    let server = Server::start(&[]);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = EndOnDrop(&is_over);
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let server = &server;
                scope.spawn(move || {
                    let (mut rng, mut client) = (Rng(seed() + writer), server.client());
                    for _ in 0..400 {
                        let mut vertex = || format!("v:{}", rng.below(6));
                        let (a, b, c, d) = (vertex(), vertex(), vertex(), vertex());
                        client.call(&match rng.below(6) {
                            0..3 => format!("graph.addedge {a} {b} {c} {d}"),
                            3 => format!("graph.removeedge {a} {b} {c} {d}"),
                            4 => format!("graph.removevertex {a} count 2"),
                            _ => format!("graph.removevertex {a}"),
                        });
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut client = server.client();
            let look = "local edges, halves = 0, 0 \
                for from = 0, 5 do \
                    local degrees = redis.call('graph.degree', 'v:' .. from) \
                    halves = halves + degrees[2] - degrees[4] \
                    for to = 0, 5 do \
                        local names = redis.call('graph.predecessors', 'v:' .. to) \
                        local is_there = 0 \
                        for _, name in ipairs(names) do if name == 'v:' .. from then is_there = 1 end end \
                        if redis.call('graph.isconnected', 'v:' .. from, 'v:' .. to) ~= is_there then return -1 end \
                        edges = edges + is_there \
                    end \
                end \
                if halves ~= 0 then return -2 end \
                return edges";
            let mut most = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let edges = client.call_args(&["eval", look, "0"]);
                let Reply::Int(edges) = edges else { panic!("{edges:?}") };
                assert!(edges >= 0, "{edges}");
                most = most.max(edges);
            }
            assert!(most > 3, "no more than {most} edges at any time");
        });
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        drop(end);
        reader.join().expect("no panic");
    });
}
