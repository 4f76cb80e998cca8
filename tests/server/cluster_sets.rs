//! A cluster whose parts are replica sets: slots are the leader's, whoever that is, and nothing acknowledged is lost when one is killed.

use crate::harness::{
    self, Client, Folder, Rng, Set, Way, bulk, error, free_port, holdfast_cluster, is_error, items, number,
    ok, redirected_to, redis_cli, seed, show, text, wait_until,
};
use holdfast_resp::Reply;
use holdfast_store::hash_slot;
use std::{
    ops::Range,
    thread,
    time::{Duration, Instant},
};

/// Milliseconds of silence after which a node has failed. A busy machine is not to fail.
const TIMEOUT: &str = "15000";
const SERVERS: usize = 3;

/// Replica sets that are one cluster.
pub struct Cluster {
    /// The sets.
    pub sets: Vec<Set>,
    cluster_ports: Vec<String>,
}

impl Cluster {
    /// Starts sets, each of which is a cluster of its own without slots.
    fn start_alone(count: usize) -> Cluster {
        Cluster::start_alone_by(count, |_| Vec::new())
    }

    /// The same with more options, by the port of a node for others.
    fn start_alone_by(count: usize, more: impl FnMut(u16) -> Vec<String>) -> Cluster {
        Cluster::start_alone_of((0..count).map(|_| Set::new(SERVERS)), more)
    }

    /// The same of sets that are not started yet.
    fn start_alone_of(
        sets: impl IntoIterator<Item = Set>,
        mut more: impl FnMut(u16) -> Vec<String>,
    ) -> Cluster {
        let mut cluster = Cluster { sets: Vec::new(), cluster_ports: Vec::new() };
        for mut set in sets {
            for options in &mut set.options {
                let port = free_port();
                let text = port.to_string();
                let words =
                    ["--cluster-enabled", "yes", "--cluster-port", &text, "--cluster-node-timeout", TIMEOUT];
                options.extend(words.map(str::to_owned));
                options.extend(more(port));
                cluster.cluster_ports.push(text);
            }
            (0..SERVERS).for_each(|at| set.start_in(at, Folder::new()));
            cluster.sets.push(set);
        }
        cluster
    }

    /// Starts sets, and has each lead an equal part of the slots.
    fn start(count: usize) -> Cluster {
        Cluster::start_of((0..count).map(|_| Set::new(SERVERS)), |_| Vec::new())
    }

    /// The same of sets that are not started yet, with more options, by the port of a node for others.
    pub fn start_of(sets: impl IntoIterator<Item = Set>, more: impl FnMut(u16) -> Vec<String>) -> Cluster {
        let cluster = Cluster::start_alone_of(sets, more);
        cluster.share_slots();
        cluster
    }

    fn share_slots(&self) {
        let count = self.sets.len();
        let mut leaders: Vec<(usize, Client)> = self.sets.iter().map(Set::leader).collect();
        for (at, (_, client)) in leaders.iter_mut().enumerate() {
            let (first, end) = (16384 * at / count, 16384 * (at + 1) / count);
            assert_eq!(client.call(&format!("CLUSTER ADDSLOTSRANGE {first} {}", end - 1)), ok());
        }
        let first = leaders[0].0;
        let (port, bus) = (self.port(0, first), &self.cluster_ports[first]);
        for (_, client) in &mut leaders[1..] {
            assert_eq!(client.call(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}")), ok());
        }
        self.wait_until_agreed();
    }

    /// Where the one that leads a set is.
    fn leader(&self, set: usize) -> String {
        format!("127.0.0.1:{}", self.port(set, self.sets[set].leader().0))
    }

    /// Where clients connect to a server of a set.
    pub fn port(&self, set: usize, server: usize) -> u16 {
        self.sets[set].options[server][1].parse().expect("a port")
    }

    /// All servers that run.
    pub fn clients(&self) -> Vec<(usize, usize, Client)> {
        let all = (0..self.sets.len()).flat_map(|set| (0..SERVERS).map(move |server| (set, server)));
        all.filter_map(|(set, server)| Some((set, server, self.sets[set].client(server)?))).collect()
    }

    fn logs(&self) -> String {
        let servers = self.sets.iter().flat_map(|set| set.servers.iter().flatten());
        servers.map(|server| server.log()).collect::<Vec<_>>().join("\n---\n")
    }

    /// Waits until each server that runs knows all, and says that all slots are served.
    fn wait_until_agreed(&self) {
        self.wait_until_agreed_of(0..self.sets.len(), SERVERS * self.sets.len());
    }

    /// The same of these sets, which have so many servers together, and know each other only.
    fn wait_until_agreed_of(&self, sets: Range<usize>, servers: usize) {
        let known = format!("cluster_known_nodes:{servers}\r\n");
        let agrees = |client: &mut Client| {
            client.try_call("CLUSTER INFO").is_some_and(|info| {
                let info = text(&info);
                info.contains("cluster_state:ok") && info.contains(&known)
            })
        };
        let of_them = || self.clients().into_iter().filter(|(set, ..)| sets.contains(set));
        let tell = || {
            let infos = of_them().map(|(set, server, mut client)| {
                format!("{set} {server}: {}", text(&client.call("CLUSTER NODES")))
            });
            format!("all agree\n{}\n{}", infos.collect::<Vec<_>>().join("\n"), self.logs())
        };
        wait_until(tell, || of_them().all(|(_, _, mut client)| agrees(&mut client)));
    }

    /// Calls a command at whoever has its key, wherever that is said to be, as clients do, until it is done.
    fn call(&self, command: &str) -> Reply {
        let deadline = Instant::now() + harness::PATIENCE;
        let mut at = None;
        loop {
            assert!(Instant::now() < deadline, "{command}\n{}", self.logs());
            let next = |port: u16| {
                self.clients().into_iter().find(|(set, server, _)| self.port(*set, *server) == port)
            };
            let client = at.take().map_or_else(|| self.clients().into_iter().next(), next);
            match client.and_then(|(_, _, mut client)| client.try_call(command)) {
                Some(Reply::Error(why)) => {
                    let why = String::from_utf8(why.to_vec()).expect("a text");
                    let words: Vec<&str> = why.split(' ').collect();
                    match words[0] {
                        "MOVED" => at = Some(redirected_to(&why).expect("a port")),
                        "CLUSTERDOWN" | "LOADING" | "TRYAGAIN" => thread::sleep(Duration::from_millis(20)),
                        _ => panic!("{command}: {why}"),
                    }
                }
                Some(reply) => return reply,
                None => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn kill(&mut self, set: usize, server: usize) -> Folder {
        self.sets[set].kill(server)
    }
}

#[test]
fn a_cluster_of_sets_outlives_its_leaders() {
    let mut cluster = Cluster::start(2);
    for key in 0..500 {
        assert_eq!(cluster.call(&format!("SET key:{key} {key}")), ok());
    }
    // Each server tells the same, whether it leads or not.
    for (set, server, mut client) in cluster.clients() {
        let slots = client.call("CLUSTER SLOTS");
        assert_eq!(items(&slots).len(), 2, "{slots:?}");
        assert!(items(&slots).iter().all(|range| items(range).len() == 2 + SERVERS), "{slots:?}");
        let shards = client.call("CLUSTER SHARDS");
        assert_eq!(items(&shards).len(), 2, "{shards:?}");
        let leader = cluster.sets[set].leader().0;
        let nodes = text(&client.call("CLUSTER NODES"));
        let me = nodes.lines().find(|line| line.contains("myself")).expect("it knows itself");
        assert_eq!(me.contains("myself,slave "), server != leader, "{nodes}");
        assert_eq!(client.call("CLUSTER KEYSLOT a"), Reply::Int(hash_slot(b"a").into()));
        assert!(text(&client.call("INFO cluster")).contains("cluster_enabled:1"));
        if server != leader {
            let port = cluster.port(set, leader);
            let key =
                (0..).map(|n| format!("k{n}")).find(|key| hash_slot(key.as_bytes()) / 8192 == set as u16);
            let key = key.expect("one of them");
            let moved = format!("MOVED {} 127.0.0.1:{port}", hash_slot(key.as_bytes()));
            assert_eq!(client.call(&format!("SET {key} 1")), error(&moved));
            assert_eq!(client.call("MULTI"), ok());
            assert_eq!(client.call(&format!("GET {key}")), error(&moved));
            assert!(is_error(&client.call("EXEC"), "EXECABORT "));
            let my_id = text(&client.call("CLUSTER MYID"));
            assert!(is_error(
                &client.call(&format!("CLUSTER REPLICATE {my_id}")),
                "ERR Can't replicate myself"
            ));
            assert!(is_error(
                &client.call("CLUSTER ADDSLOTS 1"),
                "ERR the node does not lead its replica set"
            ));
            let master = me.split(' ').nth(3).expect("who leads");
            assert_eq!(client.call(&format!("CLUSTER REPLICATE {master}")), ok());
            assert_eq!(items(&client.call(&format!("CLUSTER REPLICAS {master}"))).len(), SERVERS - 1);
            check_reads_of_follower(set, port, &mut client);
            check_messages_of_follower(&cluster, set, client);
        }
    }
    let channel = (0..).map(|n| format!("channel:{n}")).find(|name| hash_slot(name.as_bytes()) < 8192);
    let channel = channel.expect("one");
    let follows = (cluster.sets[0].leader().0 + 1) % SERVERS;
    let mut listens = cluster.sets[0].client(follows).expect("it runs");
    assert_eq!(items(&listens.call(&format!("SSUBSCRIBE {channel}")))[0], bulk("ssubscribe"));
    for round in 0..2 {
        let set = round % 2;
        let (leader, _) = cluster.sets[set].leader();
        let folder = cluster.kill(set, leader);
        let killed = Instant::now();
        let keys = |set: usize| {
            (0..500).filter(move |key| hash_slot(format!("key:{key}").as_bytes()) / 8192 == set as u16)
        };
        for key in keys(set).take(1) {
            assert_eq!(cluster.call(&format!("GET key:{key}")), bulk(key.to_string()));
        }
        println!("round {round}: {:?} until another one serves the slots", killed.elapsed());
        for key in 0..500 {
            assert_eq!(cluster.call(&format!("GET key:{key}")), bulk(key.to_string()));
            assert_eq!(cluster.call(&format!("SET key:{key} {key}")), ok());
        }
        cluster.sets[set].start_in(leader, folder);
        cluster.wait_until_agreed();
    }
    // The slot is still of the same set, whoever leads that.
    let says = || cluster.sets[0].leader().1.call(&format!("SPUBLISH {channel} m"));
    wait_until(|| cluster.logs(), || matches!(says(), Reply::Int(_)));
    assert_eq!(listens.reply(), harness::bulks(["smessage", &channel, "m"]));
}

/// One that follows serves reads of what its set has to those who ask for them, and sends all others to the leader, which has this port.
fn check_reads_of_follower(set: usize, port: u16, client: &mut Client) {
    let of = |set: usize| move |n: &u32| hash_slot(format!("key:{n}").as_bytes()) / 8192 == set as u16;
    let (own, others) = ((0..500).find(of(set)).expect("one"), (0..500).find(of(1 - set)).expect("one"));
    let slot = hash_slot(format!("key:{own}").as_bytes());
    let moved = error(&format!("MOVED {slot} 127.0.0.1:{port}"));
    let get = format!("GET key:{own}");
    assert_eq!(client.call(&get), moved);
    assert_eq!(client.call("READONLY"), ok());
    wait_until(|| "it has what the leader has".into(), || client.call(&get) == bulk(own.to_string()));
    assert_eq!(client.call(&format!("SET key:{own} 1")), moved);
    assert_eq!(client.call("MULTI"), ok());
    assert_eq!(client.call(&get), Reply::Simple("QUEUED".into()));
    assert_eq!(client.call("EXEC"), harness::array([bulk(own.to_string())]));
    let script = format!("EVAL_RO return(redis.call('GET',KEYS[1])) 1 key:{own}");
    assert_eq!(client.call(&script), bulk(own.to_string()));
    assert!(is_error(&client.call(&format!("GET key:{others}")), "MOVED "));
    assert!(number(&client.call(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))).expect("a count") > 0);
    assert_eq!(client.call("READWRITE"), ok());
    assert_eq!(client.call(&get), moved);
}

/// Messages of a shard reach those who have subscribed at one that follows, and the other way round, each once. Other shards' are elsewhere.
fn check_messages_of_follower(cluster: &Cluster, set: usize, mut client: Client) {
    let of = |set: usize| {
        let mut names = (0..).map(|n| format!("channel:{n}"));
        names.find(|name| hash_slot(name.as_bytes()) / 8192 == set as u16).expect("one")
    };
    let (own, other) = (of(set), of(1 - set));
    let (_, mut leader) = cluster.sets[set].leader();
    for command in ["SSUBSCRIBE", "SPUBLISH"] {
        let reply = client.call(&format!("{command} {other} m"));
        assert!(is_error(&reply, "MOVED ") || is_error(&reply, "CROSSSLOT "), "{reply:?}");
    }
    for listening in [&mut client, &mut leader] {
        assert_eq!(items(&listening.call(&format!("SSUBSCRIBE {own}")))[0], bulk("ssubscribe"));
    }
    let mut says = cluster.sets[set].leader().1;
    assert_eq!(says.call(&format!("SPUBLISH {own} from-leader")), Reply::Int(1));
    for listening in [&mut client, &mut leader] {
        assert_eq!(listening.reply(), harness::bulks(["smessage", &own, "from-leader"]));
    }
    assert_eq!(
        client.call(&format!("SUNSUBSCRIBE {own}")),
        Reply::Array(vec![bulk("sunsubscribe"), bulk(&own), Reply::Int(0)])
    );
    assert_eq!(client.call(&format!("SPUBLISH {own} from-follower")), Reply::Int(0));
    assert_eq!(leader.reply(), harness::bulks(["smessage", &own, "from-follower"]));
}

/// Whichever leader is killed while slots move, the slots are one node's, which has all that was acknowledged.
#[test]
fn leaders_are_killed_while_slots_move() {
    let mut cluster = Cluster::start(2);
    let mut rng = Rng(seed());
    let keys: Vec<String> =
        (0..).map(|n| format!("key:{n}")).filter(|key| hash_slot(key.as_bytes()) < 1000).take(300).collect();
    for key in &keys {
        assert_eq!(cluster.call(&format!("SET {key} 0")), ok());
    }
    let owner = |cluster: &Cluster| {
        // One that has just started ends its connections when it comes to follow, and knows no slots before.
        let ask = |(.., mut client): (usize, usize, Client)| {
            client.try_call("CLUSTER SLOTS").filter(|slots| !items(slots).is_empty())
        };
        let slots = cluster.clients().into_iter().find_map(ask).expect("an answer");
        let port = number(&items(&items(&items(&slots)[0])[2])[1]).expect("a port") as u16;
        (0..2).find(|set| (0..SERVERS).any(|server| cluster.port(*set, server) == port)).expect("one of them")
    };
    let (mut moved, mut written, mut values) = (0, 0, vec![0; keys.len()]);
    for round in 0..6 {
        let from = owner(&cluster);
        let (_, mut source) = cluster.sets[from].leader();
        let target = text(&cluster.sets[1 - from].leader().1.call("CLUSTER MYID"));
        // Who leads may not have said so yet.
        wait_until(
            || cluster.logs(),
            || source.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 999 NODE {target}")) == ok(),
        );
        let set = if rng.below(2) == 0 { from } else { 1 - from };
        let begun = Instant::now();
        let wait = Duration::from_millis(rng.below(60));
        while begun.elapsed() < wait {
            written += 1;
            let at = rng.below(keys.len() as u64) as usize;
            assert_eq!(cluster.call(&format!("SET {} {written}", keys[at])), ok());
            values[at] = written;
        }
        let (leader, _) = cluster.sets[set].leader();
        let folder = cluster.kill(set, leader);
        // Whatever has become of it.
        for (key, value) in keys.iter().zip(&values) {
            let reply = cluster.call(&format!("GET {key}"));
            assert_eq!(reply, bulk(value.to_string()), "round {round}, {key}\n{}", cluster.logs());
        }
        cluster.sets[set].start_in(leader, folder);
        cluster.wait_until_agreed();
        moved += usize::from(owner(&cluster) != from);
        // Nobody has what is not its own.
        let of_none = || {
            (0..2).all(|set| {
                let (_, mut client) = cluster.sets[set].leader();
                let count = number(&client.call("DBSIZE")).expect("a count") as usize;
                count == if owner(&cluster) == set { keys.len() } else { 0 }
            })
        };
        wait_until(|| format!("round {round}\n{}", cluster.logs()), of_none);
    }
    println!("{moved} of 6 moves arrived, {written} writes");
}

/// Operators make sets a cluster, and change which ones are of it, as they do with single nodes: replicas go where their leaders go.
#[test]
fn sets_come_and_go() {
    let mut cluster = Cluster::start_alone(3);
    let leaders: Vec<String> = (0..3).map(|set| cluster.leader(set)).collect();
    redis_cli(&["create", &leaders[0], &leaders[1], &leaders[2]]);
    cluster.wait_until_agreed();
    let checked = redis_cli(&["check", &leaders[1]]);
    assert!(checked.contains("All 16384 slots covered"), "{checked}");
    assert_eq!(checked.matches("   replicates ").count(), 3 * (SERVERS - 1), "{checked}");
    for key in 0..300 {
        assert_eq!(cluster.call(&format!("SET key:{key} {key}")), ok());
    }
    let cluster_command = |args: &[&str]| {
        let (is_done, text) = holdfast_cluster(args);
        assert!(is_done, "{args:?}: {text}");
        text
    };

    // One of those that go is away while they do.
    let away = (0..SERVERS).find(|at| *at != cluster.sets[2].leader().0).expect("one that follows");
    let folder = cluster.kill(2, away);
    let gone = text(&cluster.sets[2].leader().1.call("CLUSTER MYID"));
    cluster_command(&["remove", &leaders[0], &gone]);
    cluster.wait_until_agreed_of(0..2, 2 * SERVERS);
    // Each of those is alone, and stays so.
    let alone_since = Instant::now();
    while alone_since.elapsed() < Duration::from_secs(3) {
        for (_, _, mut client) in cluster.clients().into_iter().filter(|(set, ..)| *set == 2) {
            let info = text(&client.call("CLUSTER INFO"));
            assert!(info.contains("cluster_known_nodes:1\r\n"), "{info}\n{}", cluster.logs());
        }
        cluster.wait_until_agreed_of(0..2, 2 * SERVERS);
        thread::sleep(Duration::from_millis(100));
    }
    for key in 0..300 {
        assert_eq!(cluster.call(&format!("GET key:{key}")), bulk(key.to_string()));
    }

    // Who listens to shards at one that follows, or waits for entries there, is told of those that go.
    let follows = (cluster.sets[0].leader().0 + 1) % SERVERS;
    let mut listens = cluster.sets[0].client(follows).expect("it runs");
    let subscribed =
        (0..100).filter(|n| !is_error(&listens.call(&format!("SSUBSCRIBE channel:{n}")), "MOVED "));
    let subscribed = subscribed.count() as u64;
    let read = |n: u32| format!("XREAD BLOCK 0 STREAMS stream:{n} 0\r\n");
    let wait = |n: u32| {
        let mut waits = cluster.sets[0].client(follows).expect("it runs");
        assert_eq!(waits.call("READONLY"), ok());
        waits.send(read(n).as_bytes());
        // One that is another set's is refused.
        waits.is_silent().then_some((n, waits))
    };
    let mut waits: Vec<(u32, Client)> = (0..30).filter_map(wait).collect();
    let waited = waits.len();

    cluster.sets[2].start_in(away, folder);
    cluster_command(&["add", &leaders[0], &leaders[2]]);
    cluster_command(&["balance", &leaders[0]]);
    cluster.wait_until_agreed();
    listens.send(b"PING\r\n");
    let mut left = 0;
    let mut is_told = || {
        let told = listens.reply();
        let is_pong = items(&told)[0] == bulk("pong");
        if is_pong {
            listens.send(b"PING\r\n");
        } else {
            assert_eq!(items(&told)[0], bulk("sunsubscribe"));
            left += 1;
        }
        // A third of what the set had is now the third one's.
        left > subscribed / 4
    };
    wait_until(|| format!("{subscribed} channels"), &mut is_told);
    wait_until(
        || format!("{waited} clients wait"),
        || {
            waits.retain_mut(|(n, waits)| {
                if waits.is_silent() {
                    return true;
                }
                let told = waits.reply();
                assert!(is_error(&told, "MOVED "), "stream:{n}: {told:?}\n{}", cluster.logs());
                let Reply::Error(told) = told else { unreachable!("it is an error") };
                let is_gone = (0..SERVERS).any(|to| {
                    let address = format!(":{}", cluster.port(2, to));
                    told.ends_with(address.as_bytes())
                });
                if !is_gone {
                    // Until it is known there where slots are that are gone, the leader says what is where.
                    waits.send(read(*n).as_bytes());
                }
                !is_gone
            });
            waited - waits.len() > waited / 6
        },
    );
    let status = cluster_command(&["status", &leaders[2]]);
    assert_eq!(status.matches("replica of ").count(), 3 * (SERVERS - 1), "{status}");

    // Another one of a set takes over because it is told to, and with it the slots.
    let (leader, mut led) = cluster.sets[2].leader();
    let has_slots = led.call("DBSIZE");
    assert!(number(&has_slots).is_some_and(|keys| keys > 50), "{has_slots:?}");
    let chosen = (leader + 1) % SERVERS;
    assert_eq!(cluster.sets[2].client(chosen).expect("it runs").call("CLUSTER FAILOVER"), ok());
    wait_until(|| cluster.logs(), || cluster.sets[2].leader().0 == chosen);
    for key in 0..300 {
        assert_eq!(cluster.call(&format!("GET key:{key}")), bulk(key.to_string()));
        assert_eq!(cluster.call(&format!("SET key:{key} {key}")), ok());
    }
    // Who is not of the set any more is not of the cluster either.
    let removed = (chosen + 1) % SERVERS;
    let mut reply = Reply::Null;
    // Who led before begins again, and is not heard of meanwhile.
    let is_too_early =
        |reply: &Reply| is_error(reply, "ERR too few of the servers that would be left answer");
    wait_until(
        || cluster.logs(),
        || {
            reply = cluster.sets[2].leader().1.call(&format!("REPLICASET REMOVE {}", removed + 1));
            !is_too_early(&reply)
        },
    );
    assert_eq!(number(&reply), Some(removed as u64 + 1), "{reply:?}");
    drop(cluster.kill(2, removed));
    cluster.wait_until_agreed_of(0..3, 3 * SERVERS - 1);
}

/// Two sets of which other nodes reach each server by a way, the first set's first.
fn start_with_ways() -> (Cluster, Vec<Way>) {
    let mut ways = Vec::new();
    let cluster = Cluster::start_alone_by(2, |port| {
        ways.push(Way::new(port));
        let way = ways.last().expect("pushed above");
        ["--cluster-announce-bus-port", &way.port.to_string()].map(str::to_owned).into()
    });
    cluster.share_slots();
    (cluster, ways)
}

/// Where the keys of slots that have moved are removed before it is known that they have moved, nobody is told that they are gone.
#[test]
fn keys_that_have_moved_are_not_shown_as_gone() {
    let (cluster, ways) = start_with_ways();
    let (leader, mut source) = cluster.sets[0].leader();
    let keys: Vec<String> =
        (0..200).map(|n| format!("key:{n}")).filter(|key| hash_slot(key.as_bytes()) < 8192).collect();
    for key in &keys {
        assert_eq!(source.call(&format!("SET {key} here")), ok());
    }
    let follows = (leader + 1) % SERVERS;
    let mut reads = cluster.sets[0].client(follows).expect("it runs");
    assert_eq!(reads.call("READONLY"), ok());
    wait_until(|| "all is there".into(), || number(&reads.call("DBSIZE")) == Some(keys.len() as u64));
    assert_eq!(reads.call(&format!("GET {}", keys[0])), bulk("here"));

    ways[follows].pass(0);
    let target = text(&cluster.sets[1].leader().1.call("CLUSTER MYID"));
    assert_eq!(source.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 8191 NODE {target}")), ok());
    let mut moved = 0;
    let mut ask = |reads: &mut Client| {
        for key in &keys {
            let reply = reads.call(&format!("GET {key}"));
            moved += u32::from(is_error(&reply, "MOVED "));
            assert!(
                reply == bulk("here") || is_error(&reply, "MOVED "),
                "{key}: {reply:?}\n{}",
                cluster.logs()
            );
        }
        number(&reads.call("DBSIZE")) == Some(0)
    };
    wait_until(|| format!("all is removed\n{}", cluster.logs()), || ask(&mut reads));
    ask(&mut reads);
    assert!(moved > 0);
    let to_source = format!("127.0.0.1:{}", cluster.port(0, leader));
    assert!(
        show(&reads.call(&format!("GET {}", keys[0]))).ends_with(&to_source),
        "it does not know better yet"
    );
    ways[follows].pass(u64::MAX);
    let to_target = cluster.leader(1);
    let knows = |reads: &mut Client| show(&reads.call(&format!("GET {}", keys[0]))).ends_with(&to_target);
    wait_until(|| cluster.logs(), || knows(&mut reads));
}

/// The same of keys that move one by one.
#[test]
fn keys_that_move_one_by_one_are_not_shown_as_gone() {
    let (cluster, ways) = start_with_ways();
    let (leader, mut source) = cluster.sets[0].leader();
    let (at, mut target) = cluster.sets[1].leader();
    let key = (0..).map(|n| format!("key:{n}")).find(|key| hash_slot(key.as_bytes()) < 8192).expect("one");
    let other = format!("{{{key}}}");
    for key in [&key, &other] {
        assert_eq!(source.call(&format!("SET {key} here")), ok());
    }
    let follows = (leader + 1) % SERVERS;
    let mut reads = cluster.sets[0].client(follows).expect("it runs");
    assert_eq!(reads.call("READONLY"), ok());
    let get = format!("GET {key}");
    wait_until(|| cluster.logs(), || reads.call(&get) == bulk("here"));

    ways[follows].pass(0);
    let slot = hash_slot(key.as_bytes());
    let [from, to] = [&mut source, &mut target].map(|client| text(&client.call("CLUSTER MYID")));
    assert_eq!(target.call(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}")), ok());
    assert_eq!(source.call(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}")), ok());
    assert_eq!(reads.call(&get), bulk("here"), "it has not heard of that");
    let migrate = format!("MIGRATE 127.0.0.1 {} {key} 0 5000", cluster.port(1, at));
    assert_eq!(source.call(&migrate), ok());
    let moved = error(&format!("MOVED {slot} 127.0.0.1:{}", cluster.port(0, leader)));
    let mut ask = || {
        let reply = reads.call(&get);
        assert!(reply == bulk("here") || reply == moved, "{reply:?}\n{}", cluster.logs());
        number(&reads.call("DBSIZE"))
    };
    wait_until(|| cluster.logs(), || ask() == Some(1));
    assert_eq!(reads.call(&get), moved);
    // Neither is it when it knows that the slot is on its way.
    ways[follows].pass(u64::MAX);
    let known = version_of(&mut source);
    wait_until(|| cluster.logs(), || version_of(&mut reads) == known);
    for key in [&key, &other] {
        assert_eq!(reads.call(&format!("GET {key}")), moved);
    }
}

/// The version of the map that a node knows, as CLUSTER INFO tells it.
fn version_of(client: &mut Client) -> String {
    let info = text(&client.call("CLUSTER INFO"));
    info.lines().find(|line| line.starts_with("cluster_map_version:")).expect("it is told").to_owned()
}

/// Where a server knows that its set has got slots before it has what is in them, nobody is told that there is nothing.
#[test]
fn keys_that_have_arrived_are_not_shown_as_missing() {
    let mut sets = [0, 1].map(|_| Set::new(SERVERS));
    let ways = sets[1].put_ways(0);
    let cluster = Cluster::start_of(sets, |_| Vec::new());
    let keys: Vec<String> =
        (0..200).map(|n| format!("key:{n}")).filter(|key| hash_slot(key.as_bytes()) < 8192).collect();
    let mut source = cluster.sets[0].leader().1;
    for key in &keys {
        assert_eq!(source.call(&format!("SET {key} here")), ok());
    }
    let (leader, mut target) = cluster.sets[1].leader();
    let follows = (leader + 1) % SERVERS;
    let mut reads = cluster.sets[1].client(follows).expect("it runs");
    assert_eq!(reads.call("READONLY"), ok());
    ways[follows].pass(0);
    let id = text(&target.call("CLUSTER MYID"));
    assert_eq!(source.call(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 0 8191 NODE {id}")), ok());
    let to_target = format!("127.0.0.1:{}", cluster.port(1, leader));
    // How many keys it has, and for how many it sends clients to its leader.
    let mut ask = || {
        let (mut here, mut sent_on) = (0, 0);
        for key in &keys {
            let reply = reads.call(&format!("GET {key}"));
            assert!(reply == bulk("here") || is_error(&reply, "MOVED "), "{reply:?}\n{}", cluster.logs());
            here += usize::from(reply == bulk("here"));
            sent_on += usize::from(show(&reply).ends_with(&to_target));
        }
        (here, sent_on)
    };
    let logs = || cluster.logs();
    wait_until(logs, || ask().1 > 0);
    ways[follows].pass(u64::MAX);
    wait_until(logs, || ask().0 == keys.len());
}
