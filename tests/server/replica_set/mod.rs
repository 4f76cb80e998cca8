//! Servers with one log: founded by themselves, and nothing lost when one of them is killed, stopped or cut off.

pub mod faults;

use crate::harness::{
    self, Client, EndOnDrop, Folder, Rng, Server, Set, bulk, error, free_port, http::get, is_error, number,
    ok, part, program, run, seed, show, wait_until,
};
use holdfast_resp::{Reply, write_command};
use std::{
    fs,
    os::unix::process::ExitStatusExt,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

#[test]
fn servers_found_a_set_and_one_of_them_leads() {
    let set = Set::start(3);
    let (leader, mut client) = set.leader();
    assert_eq!(client.call("SET a 1"), ok());
    assert_eq!(client.call("GET a"), bulk("1"));
    for at in (0..3).filter(|at| *at != leader) {
        let mut client = follower(&set, at, "GET a", &bulk("1"));
        assert!(is_error(&client.call("SET a 2"), "READONLY "));
        assert_eq!(client.call("PING"), Reply::Simple("PONG".into()));
        let port = &set.options[leader][1];
        let found = harness::bulks(["127.0.0.1", port]);
        let mut client = follower(&set, at, "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster", &found);
        assert_eq!(client.info("role"), "slave");
        let server = set.servers[at].as_ref().expect("it runs");
        server.signal("HUP");
        wait_until(
            || server.log(),
            || server.log().contains("Received SIGHUP: the log file and the certificates are opened again"),
        );
        assert_eq!(&client.info("master_port"), port);
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_leaders_are_killed() {
    let mut set = Set::start(3);
    let mut written = 0;
    for round in 0..4 {
        let (leader, mut client) = set.leader();
        for _ in 0..200 {
            assert_eq!(client.call(&format!("SET key:{written} {written}")), ok());
            written += 1;
        }
        let folder = set.kill(leader);
        let killed = Instant::now();
        let (next, mut client) = set.leader();
        assert_ne!(next, leader);
        println!("round {round}: {:?} until another one leads", killed.elapsed());
        for key in 0..written {
            assert_eq!(client.call(&format!("GET key:{key}")), bulk(key.to_string()));
        }
        set.start_in(leader, folder);
    }
}

/// One that was stopped does not know that another one leads: it tells nothing that is out of date, and follows when it knows.
#[test]
fn a_leader_that_was_stopped_answers_nothing_that_is_out_of_date() {
    let set = Set::start(3);
    let (old, mut first) = set.leader();
    assert_eq!(first.call("SET a before"), ok());
    // Many, since each of them is in a race with what the others say.
    let mut stale: Vec<Client> = (0..50).map(|_| set.client(old).expect("it runs")).collect();
    stale.iter_mut().for_each(|client| assert_eq!(client.call("PING"), Reply::Simple("PONG".into())));
    let stopped = set.servers[old].as_ref().expect("it runs");
    stopped.suspend();
    // It arrives when it goes on, before it hears anything of the others.
    first.send(b"SET a lost\r\n");
    stale.iter_mut().for_each(|client| client.send(b"GET a\r\n"));
    let (new, mut client) = set.leader_but(old);
    assert_ne!(new, old);
    assert_eq!(client.call("GET a"), bulk("before"));
    assert_eq!(client.call("SET a after"), ok());
    stopped.resume();
    // The connection ends without a reply, or one says that it does not lead.
    for client in &mut stale {
        assert_ne!(client.try_reply(), Some(bulk("before")));
    }
    assert_ne!(first.try_reply(), Some(ok()));
    wait_until(
        || stopped.log(),
        || {
            let said = set.client(old).and_then(|mut client| client.try_call("SET a 1"));
            said.is_some_and(|reply| is_error(&reply, "READONLY "))
        },
    );
    assert_eq!(client.call("GET a"), bulk("after"));
}

#[test]
fn commands_tell_of_the_set_and_another_server_can_be_told_to_lead() {
    let set = Set::start(3);
    let (leader, mut client) = set.leader();
    assert_eq!(client.call("SET a 1"), ok());
    assert_eq!(number(&client.call("WAIT 2 10000")), Some(2));
    assert_eq!(client.call("WAITAOF 1 2 10000"), harness::array([Reply::Int(1), Reply::Int(2)]));
    let Reply::Array(role) = client.call("ROLE") else { panic!("no role") };
    assert!(matches!(&role[2], Reply::Array(others) if others.len() == 2), "{role:?}");
    assert_eq!(client.info("connected_slaves"), "2");
    assert!(client.info("slave0").ends_with("lag=0"));
    assert_eq!(client.call("CONFIG SET min-replicas-to-write 2"), ok());
    assert_eq!(client.call("SET a 2"), ok());
    assert_eq!(client.call("CONFIG SET min-replicas-to-write 3"), ok());
    assert_eq!(client.call("SET a 3"), error("NOREPLICAS Not enough good replicas to write."));
    assert_eq!(client.call("CONFIG SET min-replicas-to-write 0"), ok());
    assert!(is_error(&client.call("REPLICAOF 127.0.0.1 1"), "ERR "));
    assert!(is_error(&client.call("SENTINEL MONITOR a 127.0.0.1 1 2"), "ERR this is no Sentinel"));
    let Reply::Array(masters) = client.call("SENTINEL MASTERS") else { panic!("no masters") };
    let Reply::Array(fields) = &masters[0] else { panic!("no fields") };
    assert!(fields.contains(&bulk(&set.options[leader][1])));

    let to = (leader + 1) % 3;
    let port = |at: usize| &set.options[at % 3][1];
    let calls = [
        (format!("FAILOVER TO 127.0.0.1 {}", port(to)), ok()),
        (format!("FAILOVER TO 127.0.0.1 {}", port(to + 1)), error("ERR FAILOVER already in progress.")),
        ("FAILOVER ABORT".into(), error("ERR FAILOVER can't be aborted once it has begun.")),
    ];
    let before = Instant::now();
    client.send(calls.iter().map(|(call, _)| format!("{call}\r\n")).collect::<String>().as_bytes());
    // A busy machine may be late with the replies.
    for (call, expected) in &calls {
        let Some(reply) = client.try_reply() else { break };
        assert_eq!(&reply, expected, "{call}");
    }
    let (next, mut client) = set.leader_but(leader);
    println!("another one leads after {:?}", before.elapsed());
    assert_eq!(next, to);
    assert_eq!(client.call("GET a"), bulk("2"));
}

/// A connection to a server that follows, once it replies so to a command.
fn follower(set: &Set, at: usize, command: &str, reply: &Reply) -> Client {
    let mut found = None;
    let log = || set.servers[at].as_ref().map_or_else(String::new, Server::log);
    wait_until(log, || {
        let Some(mut client) = set.client(at) else { return false };
        // It may be about to become another one.
        let is_there = client.try_call(command).as_ref() == Some(reply);
        found = is_there.then_some(client);
        is_there
    });
    found.expect("it was waited for")
}

/// What the leader has written is read at the others, of whatever type it is, and nothing is written there.
#[test]
fn servers_that_follow_serve_reads() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    let at = (leader + 1) % 3;
    let many: Vec<String> = (0..3000).map(|n| format!("field:{n} value:{n}")).collect();
    let lua = "#!lua name=lib\nredis.register_function{function_name='of', callback=function(keys) return \
               redis.call('GET', keys[1]) end, flags={'no-writes'}}";
    for command in
        ["SET a 1", "RPUSH list a b c", "SADD set 1 2 3", "ZADD zset 1 one 2 two", "XADD stream 1-1 f v"]
    {
        assert!(!matches!(client.call(command), Reply::Error(_)), "{command}");
    }
    assert_eq!(client.call(&format!("HSET hash {}", many.join(" "))), Reply::Int(3000));
    assert_eq!(client.call("SET goes 1 PX 300"), ok());
    assert_eq!(client.call_args(&["FUNCTION", "LOAD", lua]), bulk("lib"));
    assert_eq!(client.call("SET last 1"), ok());
    let mut read = follower(&set, at, "GET last", &bulk("1"));
    let same = [
        "GET a",
        "MGET a goes-not",
        "LRANGE list 0 -1",
        "SMEMBERS set",
        "ZRANGE zset 0 -1 WITHSCORES",
        "XRANGE stream - +",
        "HGET hash field:2999",
        "HLEN hash",
        "DBSIZE",
        "TYPE hash",
        "STRLEN a",
        "EXISTS a list",
        "EVAL_RO return(redis.call('GET',KEYS[1])) 1 a",
        "PFCOUNT none",
        "OBJECT ENCODING hash",
        "SCAN 0 COUNT 1000",
    ];
    wait_until(|| "what expires is gone".into(), || client.call("EXISTS goes") == Reply::Int(0));
    wait_until(|| "there, too".into(), || read.call("EXISTS goes") == Reply::Int(0));
    wait_until(|| "it is removed".into(), || read.call("DBSIZE") == client.call("DBSIZE"));
    for command in same {
        assert_eq!(read.call(command), client.call(command), "{command}");
    }
    // A function that was loaded later, and again.
    wait_until(|| "the library".into(), || read.call("FCALL_RO of 1 a") == bulk("1"));
    let other = lua.replace("keys[1]", "'last'");
    assert_eq!(client.call_args(&["FUNCTION", "LOAD", "REPLACE", &other]), bulk("lib"));
    assert_eq!(client.call("SET last 2"), ok());
    wait_until(|| "the new library".into(), || read.call("FCALL_RO of 1 a") == bulk("2"));

    for command in [
        "SET a 2",
        "DEL a",
        "LPOP list",
        "FLUSHALL",
        "EXPIRE a 1",
        "EVAL return(redis.call('SET',KEYS[1],1)) 1 a",
    ] {
        let said = read.call(command);
        let is_refused =
            matches!(&said, Reply::Error(what) if String::from_utf8_lossy(what).contains("READONLY "));
        assert!(is_refused, "{command}: {said:?}");
    }
    assert!(is_error(&read.call("BACKUP BEGIN"), "ERR The server follows"));
    assert!(is_error(&read.call("WAIT 1 0"), "ERR WAIT cannot be used with replica instances."));
    assert!(is_error(&read.call("REPLICAOF NO ONE"), "ERR "));
    assert_eq!(read.call("SAVE"), ok());
    let Reply::Array(role) = read.call("ROLE") else { panic!("no role") };
    assert_eq!((&role[0], &role[3]), (&bulk("slave"), &bulk("connected")));
    assert_eq!(read.info("master_link_status"), "up");
    assert_eq!(read.info("slave_read_only"), "1");

    // Who waits for entries is woken by those that come from elsewhere; who watches a key learns that it was written.
    read.send(b"XREAD BLOCK 20000 STREAMS stream 1-1\r\n");
    let mut watches = set.client(at).expect("it runs");
    assert_eq!(watches.call("WATCH a"), ok());
    assert_eq!(client.call("XADD stream 1-2 f v"), bulk("1-2"));
    assert_eq!(client.call("SET a 2"), ok());
    assert!(matches!(read.reply(), Reply::Array(streams) if streams.len() == 1));
    wait_until(|| "it is there".into(), || read.call("GET a") == bulk("2"));
    assert_eq!(watches.call("MULTI"), ok());
    assert_eq!(watches.call("GET a"), Reply::Simple("QUEUED".into()));
    assert_eq!(watches.call("EXEC"), Reply::Null);

    // Messages come there, too, and what was written before them is there by then.
    let mut listens = set.client(at).expect("it runs");
    for (command, kind) in
        [("SUBSCRIBE a", "subscribe"), ("PSUBSCRIBE b*", "psubscribe"), ("SSUBSCRIBE c", "ssubscribe")]
    {
        assert!(matches!(listens.call(command), Reply::Array(parts) if parts[0] == bulk(kind)), "{command}");
    }
    for n in 0..100 {
        client.send(format!("SET last {n}\r\nPUBLISH a {n}\r\n").as_bytes());
        assert_eq!((client.reply(), client.reply()), (ok(), Reply::Int(0)));
        assert_eq!(listens.reply(), harness::bulks(["message", "a", &n.to_string()]));
        assert_eq!(read.call("GET last"), bulk(n.to_string()));
    }
    assert_eq!(client.call("EVAL return(redis.call('PUBLISH','bb','m')) 0"), Reply::Int(0));
    assert_eq!(listens.reply(), harness::bulks(["pmessage", "b*", "bb", "m"]));
    assert_eq!(client.call("SPUBLISH c m"), Reply::Int(0));
    assert_eq!(listens.reply(), harness::bulks(["smessage", "c", "m"]));
    // And from there to all others, to each once.
    let mut others: Vec<Client> = (0..set.servers.len())
        .filter(|other| *other != at)
        .map(|other| set.client(other).expect("it runs"))
        .collect();
    for other in &mut others {
        assert!(matches!(other.call("SUBSCRIBE a"), Reply::Array(_)));
        assert!(matches!(other.call("SSUBSCRIBE c"), Reply::Array(_)));
    }
    // One may come to what was published before only now.
    assert_eq!(client.call("SPUBLISH c begins"), Reply::Int(1));
    for client in others.iter_mut().chain([&mut listens]) {
        while client.reply() != harness::bulks(["smessage", "c", "begins"]) {}
    }
    for (publish, said) in [("PUBLISH", ["message", "a", "1"]), ("SPUBLISH", ["smessage", "c", "2"])] {
        assert_eq!(
            read.call(&format!("{publish} {} {}", said[1], said[2])),
            Reply::Int(1),
            "of its own subscribers"
        );
        assert_eq!(client.call(&format!("{publish} {} last", said[1])), Reply::Int(1));
        // The two come by different ways.
        for client in others.iter_mut().chain([&mut listens]) {
            let mut heard = [client.reply(), client.reply()];
            heard.sort_by_key(|message| harness::items(message)[2] == bulk("last"));
            assert_eq!(heard, [harness::bulks(said), harness::bulks([said[0], said[1], "last"])]);
        }
    }

    // So do events of what is written; those of who only reads are for its own clients.
    for at in 0..set.servers.len() {
        assert_eq!(set.client(at).expect("it runs").call("CONFIG SET notify-keyspace-events KEAm"), ok());
    }
    assert!(matches!(listens.call("PSUBSCRIBE __key*"), Reply::Array(_)));
    assert_eq!(client.call("SET last x"), ok());
    let mut hears = |channel: &str, said: &str| {
        assert_eq!(listens.reply(), harness::bulks(["pmessage", "__key*", channel, said]));
    };
    hears("__keyspace@0__:last", "set");
    hears("__keyevent@0__:set", "last");
    assert_eq!(read.call("GET last"), bulk("x"));
    // What was written before a message has been told of when that comes.
    assert!(matches!(others[0].call("SUBSCRIBE d"), Reply::Array(_)));
    assert!(matches!(client.call("PUBLISH d now"), Reply::Int(_)));
    assert_eq!(others[0].reply(), harness::bulks(["message", "d", "now"]));
    assert!(matches!(others[0].call("PSUBSCRIBE __key*"), Reply::Array(_)));
    assert_eq!(read.call("GET nothing"), Reply::Null);
    hears("__keyspace@0__:nothing", "keymiss");
    hears("__keyevent@0__:keymiss", "nothing");
    // By the way that the events would have taken.
    assert_eq!(read.call("PUBLISH a end"), Reply::Int(1));
    assert_eq!(others[0].reply(), harness::bulks(["message", "a", "end"]));

    // All is there after a restart, and when it leads.
    assert_eq!(client.call("SET last 2"), ok());
    let folder = set.kill(at);
    assert_eq!(client.call("SET last 3"), ok());
    set.start_in(at, folder);
    let mut read = follower(&set, at, "GET last", &bulk("3"));
    for command in same {
        assert_eq!(read.call(command), client.call(command), "{command}");
    }
    let port = set.options[at][1].clone();
    client.send(format!("FAILOVER TO 127.0.0.1 {port}\r\n").as_bytes());
    drop(client.try_reply());
    let (next, mut client) = set.leader_but(leader);
    assert_eq!((next, client.call("HLEN hash"), client.call("GET last")), (at, Reply::Int(3000), bulk("3")));
    assert_eq!(client.call("SET last 4"), ok());
    follower(&set, leader, "GET last", &bulk("4"));
}

/// A client that keeps what it reads, and what it was told before its last reply.
struct Keeping {
    client: Client,
    told: Vec<String>,
}

impl Keeping {
    fn new(set: &Set, at: usize, options: &str) -> Keeping {
        let mut client = set.client(at).expect("it runs");
        client.call("HELLO 3");
        assert_eq!(client.call(&format!("CLIENT TRACKING ON {options}")), ok());
        Keeping { client, told: Vec::new() }
    }

    fn get(&mut self, key: &str) -> String {
        self.client.send(format!("GET {key}\r\n").as_bytes());
        loop {
            match self.client.reply() {
                Reply::Push(told) => self.told.push(show(&Reply::Push(told))),
                reply => return show(&reply),
            }
        }
    }

    /// Reads a key until it is not told, for some time, that all it has is void: its server is told which keys change.
    fn settle(&mut self, key: &str) {
        wait_until(
            || "a stream".into(),
            || {
                self.get(key);
                self.told.clear();
                thread::sleep(Duration::from_secs(1));
                self.get(key);
                self.told.is_empty()
            },
        );
    }

    fn hears(&mut self, told: &str) {
        if self.told.is_empty() {
            self.told.push(show(&self.client.reply()));
        }
        assert_eq!(self.told.remove(0), told);
    }
}

/// Clients that keep what they read at servers that follow are told when it changes, once it can be read there, whoever leads.
#[test]
fn clients_of_servers_that_follow_keep_what_they_read() {
    let set = Set::start(3);
    let (leader, mut client) = set.leader();
    let (at, other) = ((leader + 1) % 3, (leader + 2) % 3);
    assert_eq!(client.call("SET a 0"), ok());
    for at in [at, other] {
        follower(&set, at, "GET a", &bulk("0"));
    }
    let mut keeps = Keeping::new(&set, at, "");
    let mut elsewhere = Keeping::new(&set, other, "");
    let mut prefix = Keeping::new(&set, at, "BCAST PREFIX b");
    for keeping in [&mut keeps, &mut elsewhere, &mut prefix] {
        keeping.settle("a");
    }
    assert_eq!(prefix.client.info("tracking_clients"), "2");
    for n in 1..100 {
        assert_eq!(client.call(&format!("SET a {n}")), ok());
        for keeping in [&mut keeps, &mut elsewhere] {
            keeping.hears(">[invalidate [a]]");
            assert_eq!(keeping.get("a"), n.to_string(), "what it is told of is there");
        }
    }
    // Of a transaction, of what is there no more, and of all.
    client.send(b"MULTI\r\nSET b1 1\r\nSET c 1\r\nDEL b2\r\nRPUSH b2 1\r\nEXEC\r\n");
    (0..6).for_each(|_| drop(client.reply()));
    prefix.hears(">[invalidate [b1 b2]]");
    assert_eq!(client.call("SET goes 1 PX 1000"), ok());
    drop(follower(&set, at, "GET goes", &bulk("1")));
    assert_eq!(keeps.get("goes"), "1");
    let mut read = "1".to_owned();
    // It may still be told of the SET, after it has read what that wrote.
    while read == "1" {
        keeps.hears(">[invalidate [goes]]");
        read = keeps.get("goes");
    }
    assert_eq!(read, "nil");
    assert_eq!(client.call("FLUSHALL"), ok());
    for keeping in [&mut keeps, &mut elsewhere, &mut prefix] {
        keeping.hears(">[invalidate nil]");
        assert_eq!(keeping.get("a"), "nil");
    }

    // Another one leads, in place: nobody knows what the one before it has not told.
    client.send(format!("FAILOVER TO 127.0.0.1 {}\r\n", set.options[at][1]).as_bytes());
    drop(client.try_reply());
    let (next, mut client) = set.leader_but(leader);
    assert_eq!(next, at);
    for keeping in [&mut keeps, &mut elsewhere] {
        keeping.hears(">[invalidate nil]");
        keeping.settle("a");
    }
    for n in 0..100 {
        assert_eq!(client.call(&format!("SET a {n}")), ok());
        for keeping in [&mut keeps, &mut elsewhere] {
            keeping.hears(">[invalidate [a]]");
            assert_eq!(keeping.get("a"), n.to_string());
        }
    }
}

/// A server that follows knows the users of its options, lets them do what they may, and tells load balancers what it is.
#[test]
fn one_that_follows_knows_users_and_tells_what_it_is() {
    let mut set = Set::new(3);
    let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
    let users = Folder::new();
    fs::write(
        users.join("users"),
        "user default on >secret ~* &* +@all\nuser watcher on >seen +ping +info +role\n",
    )
    .expect("a file");
    for (options, port) in set.options.iter_mut().zip(&ports) {
        let more = ["--metrics-port", &port.to_string(), "--aclfile", &users.join("users")];
        options.extend(more.map(str::to_owned));
    }
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    let leads = |at: usize| get(ports[at], "/leader").0 == 200;
    wait_until(|| "one of them leads".into(), || (0..3).any(leads));
    let leader = (0..3).find(|at| leads(*at)).expect("it was waited for");
    let at = (leader + 1) % 3;
    wait_until(|| "it follows".into(), || get(ports[at], "/ready").0 == 200);
    let log = || set.servers[at].as_ref().expect("it runs").log();
    wait_until(log, || log().contains("Follows, and serves reads"));
    let name = format!("follows 127.0.0.1:{}", set.options[leader][1]);
    assert!(get(ports[at], "/ready").1.starts_with(&name));
    assert_eq!(get(ports[at], "/leader").0, 503);
    for at in [at, leader] {
        let (code, figures) = get(ports[at], "/metrics");
        assert!(code == 200 && figures.contains("holdfast_keys"), "{figures}");
    }
    let mut client = set.client(at).expect("it runs");
    assert!(is_error(&client.call("PING"), "NOAUTH Authentication required."));
    assert!(is_error(&client.call("HELLO 3"), "NOAUTH HELLO must be called"));
    assert!(is_error(&client.call("AUTH watcher wrong"), "WRONGPASS "));
    assert_eq!(client.call("AUTH watcher seen"), ok());
    assert_eq!(client.info("role"), "slave");
    let denied = "NOPERM User watcher has no permissions to run the 'shutdown' command";
    assert_eq!(client.call("SHUTDOWN"), error(denied));
    assert_eq!(client.call("AUTH secret"), ok());
    assert!(is_error(&client.call("SET a 1"), "READONLY "));
    assert_eq!(client.call("RESET"), Reply::Simple("RESET".into()));
    assert!(is_error(&client.call("INFO"), "NOAUTH "));
}

/// Who reads at a server that is elected goes on by the same connection, and may write then.
#[test]
fn connections_stay_when_a_server_comes_to_lead() {
    let set = Set::start(3);
    let (leader, mut client) = set.leader();
    let at = (leader + 1) % 3;
    for command in ["XADD stream 1-1 f v", "ZADD zset 1 one", "SET a 1", "SET goes 1 PX 1500"] {
        assert!(!matches!(client.call(command), Reply::Error(_)), "{command}");
    }
    let mut stays = follower(&set, at, "GET a", &bulk("1"));
    let id = stays.call("CLIENT ID");
    let [mut waits, mut watches, mut queues] = [(); 3].map(|()| set.client(at).expect("it runs"));
    waits.send(b"XREAD BLOCK 60000 STREAMS stream 1-1\r\n");
    assert_eq!(watches.call("WATCH a"), ok());
    let mut hears = set.client(at).expect("it runs");
    assert!(matches!(hears.call("SUBSCRIBE a"), Reply::Array(_)));
    // What was queued by one that followed is done by one that leads.
    assert_eq!(queues.call("MULTI"), ok());
    assert_eq!(queues.call("GET a"), Reply::Simple("QUEUED".into()));
    assert!(is_error(&stays.call("SET a 2"), "READONLY "));
    wait_until(|| "both are heard of".into(), || client.info("connected_slaves") == "2");
    client.send(format!("FAILOVER TO 127.0.0.1 {}\r\n", set.options[at][1]).as_bytes());
    let reply = client.try_reply();
    assert!(reply.as_ref().is_none_or(|reply| *reply == ok()), "{reply:?}");
    let log = || set.servers[at].as_ref().expect("it runs").log();
    wait_until(log, || stays.call("SET a 2") == ok());
    assert_eq!(stays.call("CLIENT ID"), id);
    assert_eq!((stays.info("role"), stays.call("GET a")), ("master".into(), bulk("2")));
    assert_eq!(stays.call("XADD stream 1-2 f v"), bulk("1-2"));
    assert!(matches!(waits.reply(), Reply::Array(streams) if streams.len() == 1));
    assert_eq!(watches.call("MULTI"), ok());
    assert_eq!(watches.call("SET a 3"), Reply::Simple("QUEUED".into()));
    assert_eq!(watches.call("EXEC"), Reply::Null);
    assert_eq!(queues.call("EXEC"), harness::array([bulk("2")]));
    // What only a leader does.
    waits.send(b"BZPOPMIN other 60000\r\n");
    wait_until(|| "it waits".into(), || stays.info("blocked_clients") == "1");
    assert_eq!(stays.call("ZADD other 1 one"), Reply::Int(1));
    assert_eq!(waits.reply(), harness::bulks(["other", "one", "1"]));
    wait_until(|| "what expires is removed".into(), || stays.call("DBSIZE") == Reply::Int(3));
    assert_eq!(number(&stays.call("WAIT 1 10000")), Some(1));
    assert_eq!(watches.call("CLIENT TRACKING ON"), ok());
    assert_eq!(stays.call("PUBLISH a m"), Reply::Int(1));
    assert_eq!(hears.reply(), harness::bulks(["message", "a", "m"]));
}

/// With a server away the vote of the one that hands over counts: it is not lost when that one begins again.
#[test]
fn who_hands_over_elects_another_one_with_a_server_away() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    overwrite(&mut client, 100, 1);
    drop(set.kill((leader + 1) % 3));
    let next = (leader + 2) % 3;
    let log = |at: usize| set.servers[at].as_ref().expect("it runs").log();
    let term = |at: usize| {
        let log = log(at);
        let term =
            log.rsplit("Elected in term ").next().and_then(|rest| rest.lines().next()).expect("a line");
        term.parse::<u64>().unwrap_or_else(|_| panic!("no term in {log}"))
    };
    let before = term(leader);
    let fail_over = fail_over_to(&set, next);
    wait_until(|| log(leader), || client.call(&fail_over) == ok());
    wait_until(|| log(next), || log(next).contains("Elected in term "));
    assert_eq!(term(next), before + 1, "{}\n{}", log(leader), log(next));
    check_overwritten(&mut set.leader().1, 100, 1);
}

/// As one does who waits for another one to lead.
#[test]
fn who_is_asked_to_hand_over_again_and_again_does_so() {
    let set = Set::start(3);
    let (leader, mut client) = set.leader();
    let log = || set.servers[leader].as_ref().expect("it runs").log();
    wait_until(|| "the others are there".into(), || client.call("FAILOVER") == ok());
    // More often than a server looks whom it has been asked for.
    wait_until(log, || client.try_call("FAILOVER").is_none());
    wait_until(log, || set.leader().0 != leader);
}

/// A server that is told to end when another one comes to lead, and it is about to begin again, or has just begun, ends.
#[test]
fn who_begins_again_does_not_forget_that_it_is_to_end() {
    let (mut set, mut rng) = (Set::start(3), Rng(seed()));
    for _ in 0..6 {
        let (leader, mut client) = set.leader();
        let elections = |set: &Set| -> usize {
            let others =
                (0..3).filter(|at| *at != leader).map(|at| set.servers[at].as_ref().expect("it runs"));
            others.map(|other| other.log().matches("Elected in term ").count()).sum()
        };
        let log = |set: &Set| set.servers[leader].as_ref().expect("it runs").log();
        let begins = |set: &Set| log(set).matches("the server begins again").count();
        let (before, begun) = (elections(&set), begins(&set));
        wait_until(|| "the others are there".into(), || client.call("FAILOVER") == ok());
        if rng.below(2) == 0 {
            wait_until(|| "another one is elected".into(), || elections(&set) > before);
            thread::sleep(Duration::from_millis(rng.below(20)));
        } else {
            while begins(&set) == begun {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(rng.below(2000)));
        }
        let mut server = set.servers[leader].take().expect("it runs");
        server.signal("TERM");
        let status = server.wait();
        // Before it takes signals one ends it at once.
        assert!(status.success() || status.signal() == Some(15), "{status}\n{}", server.log());
        set.start_in(leader, server.kill());
    }
}

/// A script that a server that follows has begun, and which lets others of its worker run meanwhile, neither waits for ever for what is applied, nor
/// that for it.
#[test]
fn slow_scripts_are_executed_where_transactions_are_applied() {
    const KEYS: usize = 20;
    const SLOW: &str = "for n = 1, 3000000 do end return redis.call('GET', KEYS[1])";
    let mut set = Set::new(3);
    for at in 0..3 {
        set.options[at].extend(["--workers", "1"].map(str::to_owned));
        set.start_in(at, Folder::new());
    }
    let (leader, mut client) = set.leader();
    let follower = (leader + 1) % 3;
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&has_ended);
        scope.spawn(|| {
            while !has_ended.load(Relaxed) {
                client.send(b"MULTI\r\n");
                (0..KEYS).for_each(|key| client.send(format!("SET {key} value\r\n").as_bytes()));
                client.send(b"EXEC\r\n");
                (0..KEYS + 2).for_each(|_| drop(client.reply()));
            }
        });
        let mut reader = set.client(follower).expect("it runs");
        wait_until(|| "it follows".into(), || reader.call("GET 0") == bulk("value"));
        let mut scripts = set.client(follower).expect("it runs");
        for key in 0..KEYS {
            let key = key.to_string();
            let mut request = Vec::new();
            write_command(&mut request, &["EVAL", SLOW, "1", &key]);
            scripts.send(&request);
            for key in (0..KEYS).rev() {
                assert_eq!(reader.call(&format!("GET {key}")), bulk("value"));
            }
            assert_eq!(scripts.reply(), bulk("value"));
        }
    });
}

/// The command that has a server lead.
fn fail_over_to(set: &Set, at: usize) -> String {
    let (address, _) = set.addresses[at].split_once('@').expect("it has both");
    format!("FAILOVER TO {}", address.replace(':', " "))
}

/// Writes as many keys again and again, each time with another value.
fn overwrite(client: &mut Client, keys: usize, times: usize) {
    for time in 0..times {
        let sets: Vec<String> =
            (0..keys).map(|key| format!("SET key:{key} {time}-{key}-{}\r\n", "x".repeat(1000))).collect();
        client.send(sets.concat().as_bytes());
        (0..keys).for_each(|_| assert_eq!(client.reply(), ok()));
    }
}

/// Checks what [`overwrite`] has written last.
fn check_overwritten(client: &mut Client, keys: usize, times: usize) {
    for key in 0..keys {
        let value = format!("{}-{key}-{}", times - 1, "x".repeat(1000));
        assert_eq!(client.call(&format!("GET key:{key}")), bulk(value));
    }
}

#[test]
fn a_server_that_has_lost_its_data_gets_a_copy() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    overwrite(&mut client, 1000, 2);
    let lost = (leader + 1) % 3;
    drop(set.kill(lost));
    overwrite(&mut client, 1000, 3);
    set.start_in(lost, Folder::new());
    // What is written while it is copied is not missing either.
    overwrite(&mut client, 1000, 4);
    set.wait_for_all(&mut client, lost);
    // Now it is one of the majority that must have all.
    drop(set.kill(leader));
    let (_, mut client) = set.leader();
    check_overwritten(&mut client, 1000, 4);
    assert_eq!(client.call("SET a 1"), ok());
}

/// While a server is copied another one comes to lead, and then the first one again, which offers another copy, of another moment: nothing of the
/// first is taken for a part of the second.
#[test]
fn a_copy_is_of_one_moment_whoever_leads_meanwhile() {
    let mut set = Set::new(3);
    let ways = set.put_ways(0);
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    let (leader, mut client) = set.leader();
    let (lost, third) = ((leader + 1) % 3, (leader + 2) % 3);
    overwrite(&mut client, 1000, 20);
    drop(set.kill(lost));
    ways[lost].pass(3 << 20);
    set.start_in(lost, Folder::new());
    let log = || set.servers[lost].as_ref().expect("it runs").log();
    wait_until(log, || ways[lost].is_held());
    for next in [third, leader] {
        let fail_over = fail_over_to(&set, next);
        wait_until(log, || set.leader().1.try_call(&fail_over) == Some(ok()));
        wait_until(log, || set.leader().0 == next);
        client = set.leader().1;
        overwrite(&mut client, 1000, 5);
    }
    // Another copy is offered within a second.
    thread::sleep(Duration::from_secs(1));
    ways[lost].pass(u64::MAX);
    wait_until(log, || number(&client.call("WAIT 2 1000")) == Some(2));
    // It has all before it has opened that, and serves reads.
    let reads = || set.client(lost).and_then(|mut client| client.try_call("GET key:0"));
    wait_until(log, || matches!(reads(), Some(Reply::Bulk(_))));
    let digest = client.call("DEBUG DIGEST");
    assert_eq!(set.client(lost).expect("it runs").call("DEBUG DIGEST"), digest, "{}", log());
}

/// A leader that is cut off, and leads no more before the others have agreed, does not say that a server is removed.
#[test]
fn no_change_is_confirmed_that_is_not_made() {
    let mut set = Set::new(3);
    let ways = set.put_ways(0);
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    let (leader, mut client) = set.leader();
    part(&ways, 0, leader, true);
    let reply = client.try_call(&format!("REPLICASET REMOVE {}", (leader + 1) % 3 + 1));
    // The connection ends, or it says why.
    let says_why = |reply: &Reply| is_error(reply, "ERR") && show(reply).contains("the next leader knows");
    assert!(reply.as_ref().is_none_or(says_why), "{reply:?}");
}

#[test]
fn a_server_that_is_too_far_behind_gets_a_copy() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    overwrite(&mut client, 100, 2);
    let behind = (leader + 1) % 3;
    let folder = set.kill(behind);
    // All of the log that it lacks is overwritten and freed.
    overwrite(&mut client, 1000, 100);
    assert_eq!(client.call("DEBUG RELOAD"), ok());
    set.start_in(behind, folder);
    set.wait_for_all(&mut client, behind);
    let log = set.servers[behind].as_ref().expect("it runs").log();
    assert!(log.contains("Copying the data of"), "{log}");
    drop(set.kill(leader));
    let (_, mut client) = set.leader();
    check_overwritten(&mut client, 1000, 100);
}

/// A server that finds its data damaged, in the log at a start or in the heap when it is to lead, gets a copy from the others by itself. What it had stays
/// until then.
#[test]
fn a_server_whose_data_are_damaged_gets_a_copy() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    overwrite(&mut client, 1000, 2);
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
    let damaged = (leader + 1) % 3;
    let folder = set.kill(damaged);
    folder.write_at("data/log/00000000", 300_000, &[0xA5]);
    set.start_in(damaged, folder);
    overwrite(&mut client, 1000, 3);
    set.wait_for_all(&mut client, damaged);
    let log = set.servers[damaged].as_ref().expect("it runs").log();
    assert!(
        log.contains("log/00000000 at offset") && log.contains("the data are left as they are until"),
        "{log}"
    );
    // One that follows reads its heap, too.
    let folder = set.kill(damaged);
    folder.write_at("data/heap", 0, &[0xA5; 1 << 20]);
    set.start_in(damaged, folder);
    let log = || set.servers[damaged].as_ref().expect("it runs").log();
    wait_until(log, || log().contains("corrupt: heap at offset"));
    overwrite(&mut client, 1000, 4);
    set.wait_for_all(&mut client, damaged);
    // It has all now.
    drop(set.kill(leader));
    let (_, mut client) = set.leader();
    check_overwritten(&mut client, 1000, 4);
}

/// Such as after a restored snapshot of its machine, or of a medium that has lied.
#[test]
fn a_server_that_has_less_than_it_has_acknowledged_has_all_again() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    let other = (leader + 1) % 3;
    overwrite(&mut client, 100, 1);
    set.wait_for_all(&mut client, other);
    let folder = set.servers[other].take().expect("it runs").stop();
    let copied = Command::new("cp").args(["-a", &folder.join("data"), &folder.join("older")]).status();
    assert!(copied.expect("cp runs").success());
    set.start_in(other, folder);
    overwrite(&mut client, 100, 2);
    set.wait_for_all(&mut client, other);
    let folder = set.servers[other].take().expect("it runs").stop();
    fs::remove_dir_all(folder.join("data")).expect("its data");
    fs::rename(folder.join("older"), folder.join("data")).expect("its older data");
    set.start_in(other, folder);
    overwrite(&mut client, 100, 3);
    set.wait_for_all(&mut client, other);
    drop(set.kill(leader));
    let (_, mut client) = set.leader();
    check_overwritten(&mut client, 100, 3);
}

/// With one folder lost and two damaged, nobody has all: no new set begins, and what there is stays, to be salvaged.
#[test]
fn no_set_begins_anew_where_folders_are_damaged() {
    let mut set = Set::start(3);
    let (_, mut client) = set.leader();
    overwrite(&mut client, 1000, 1);
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
    let mut folders: Vec<Folder> = (0..3).map(|at| set.kill(at)).collect();
    folders[2] = Folder::new();
    let log = |folder: &Folder| folder.read("data/log/00000000");
    folders[..2].iter().for_each(|folder| folder.write_at("data/superblock", 0, &[0xA5; 8192]));
    let before: Vec<Vec<u8>> = folders[..2].iter().map(log).collect();
    folders.into_iter().enumerate().for_each(|(at, folder)| set.start_in(at, folder));
    let logs = |at: usize| set.servers[at].as_ref().expect("it runs").log();
    for at in 0..2 {
        wait_until(|| logs(at), || logs(at).contains("the data of this server are damaged"));
    }
    wait_until(|| logs(2), || logs(2).contains("the data of this server are not here"));
    for at in 0..3 {
        let mut client = set.client(at).expect("it runs");
        assert!(is_error(&client.call("GET key:1"), "MASTERDOWN "), "{}", logs(at));
    }
    for (at, before) in before.into_iter().enumerate() {
        let folder = set.kill(at);
        assert!(log(&folder) == before, "server {at}");
        let told = fs::read_to_string(folder.join("data/replica-set")).expect("what it is");
        assert!(told.ends_with("damaged\n"), "{told}");
    }
}

/// The roles of the servers of a set by their numbers, as one of them knows them.
fn roles(status: &Reply) -> Option<Vec<(u64, String)>> {
    let Reply::Array(servers) = status else { return None };
    let of = |server: &Reply| {
        let Reply::Array(fields) = server else { panic!("no fields") };
        let field = |name: &str| {
            let at = fields.iter().position(|field| *field == bulk(name)).expect("a field");
            fields[at + 1].clone()
        };
        (number(&field("number")).expect("a number"), show(&field("role")))
    };
    Some(servers.iter().map(of).collect())
}

fn roles_at(client: &mut Client) -> Vec<(u64, String)> {
    roles(&client.call("REPLICASET STATUS")).expect("roles")
}

/// A server is lost for ever, and another one takes its place, without a pause.
#[test]
fn a_server_is_added_and_another_one_removed() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    overwrite(&mut client, 1000, 2);
    let (lost, third) = ((leader + 1) % 3, (leader + 2) % 3);
    drop(set.kill(lost));
    // It has another number than the set gives it: it is told, and so is the leader, and gets nothing.
    let wrong = set.add(lost + 1, &[lost]);
    let right = set.add(4, &[lost, wrong]);
    set.start_in(wrong, Folder::new());
    let log = |set: &Set, at: usize| set.servers[at].as_ref().expect("it runs").log();
    let told = format!("that has no data of the set says that it is number {}", lost + 1);
    wait_until(|| log(&set, leader), || log(&set, leader).contains(&told));
    drop(set.kill(wrong));
    // One that is not of the set says how it can be.
    set.start_in(right, Folder::new());
    let add = format!("REPLICASET ADD {}", set.addresses[right]);
    wait_until(|| log(&set, right), || log(&set, right).contains(&add));
    assert_eq!(number(&client.call(&add)), Some(4), "{}", log(&set, leader));
    assert_eq!(client.call(&add), error("ERR this server is in the set already"));
    // What is written meanwhile is not missing.
    overwrite(&mut client, 1000, 3);
    let votes = |client: &mut Client| roles_at(client).contains(&(4, "follower".into()));
    wait_until(|| log(&set, right), || votes(&mut client));
    // The one that is lost counts for the majority no more, and its number is not given again.
    assert_eq!(
        client.call(&format!("REPLICASET REMOVE {}", leader + 1)),
        error("ERR this server leads: have another one lead first")
    );
    // Where clients connect says enough.
    let (lost_address, _) = set.addresses[lost].split_once('@').expect("a port for the others");
    assert_eq!(number(&client.call(&format!("REPLICASET REMOVE {lost_address}"))), Some(lost as u64 + 1));
    assert_eq!(
        client.call(&format!("REPLICASET REMOVE {}", lost + 1)),
        error("ERR there is no such server in the set")
    );
    assert_eq!(roles_at(&mut client).len(), 3);
    overwrite(&mut client, 1000, 4);
    set.wait_for_all(&mut client, right);
    // The new one is one of the majority now, and can lead.
    drop(set.kill(leader));
    let (next, mut client) = set.leader();
    assert_ne!(next, leader);
    check_overwritten(&mut client, 1000, 4);
    overwrite(&mut client, 1000, 5);
    let mut ask = set.client(if next == right { third } else { right }).expect("it runs");
    wait_until(|| "it knows who leads".into(), || roles_at(&mut ask) == roles_at(&mut client));
    // A start with the same options knows where all are.
    let folders = [third, right].map(|at| (at, set.kill(at)));
    folders.into_iter().for_each(|(at, folder)| set.start_in(at, folder));
    let (_, mut client) = set.leader();
    check_overwritten(&mut client, 1000, 5);
    assert_eq!(client.call("SET a 1"), ok());
}

/// A server that runs is removed: it hears of that, and takes no part any more, also if it had the same data.
/// A script is paused, and the worker that it has to itself is told to change the set.
#[test]
fn a_change_does_not_wait_for_what_scripts_have_locked() {
    let mut set = Set::new(3);
    for at in 0..3 {
        set.options[at].extend(["--workers".into(), "1".into()]);
        set.start_in(at, Folder::new());
    }
    let (at, mut leader) = set.leader();
    set.wait_for_all(&mut leader, at);
    let mut other = set.client(at).expect("it runs");
    let script = "redis.call('SET', KEYS[1], 1) local till = os.clock() + 2 while os.clock() < till do end return 'over'";
    let mut sent = Vec::new();
    // That key is of the first slot.
    write_command(&mut sent, &["EVAL", script, "1", ""]);
    other.send(&sent);
    thread::sleep(Duration::from_millis(300));
    let number = 1 + (at + 1) % 3;
    let reply = leader.call(&format!("REPLICASET REMOVE {number}"));
    assert_eq!(reply, Reply::Int(number as i64));
    assert!(other.is_silent(), "the script is over");
    assert_eq!(other.reply(), bulk("over"));
}

#[test]
fn a_server_that_was_removed_takes_no_part() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    let fourth = set.add(4, &[]);
    assert_eq!(number(&client.call(&format!("REPLICASET ADD {}", set.addresses[fourth]))), Some(4));
    set.start_in(fourth, Folder::new());
    overwrite(&mut client, 100, 2);
    wait_until(|| "it votes".into(), || roles_at(&mut client).contains(&(4, "follower".into())));
    let removed = (leader + 1) % 3;
    assert_eq!(number(&client.call(&format!("REPLICASET REMOVE {}", removed + 1))), Some(removed as u64 + 1));
    let log = || set.servers[removed].as_ref().expect("it runs").log();
    wait_until(log, || log().contains("this server was removed from the replica set"));
    assert_eq!(client.info("connected_slaves"), "2");
    drop(set.kill(leader));
    let (next, mut client) = set.leader();
    assert!(next != removed && next != leader);
    check_overwritten(&mut client, 100, 2);
    assert_eq!(client.call("SET a 1"), ok());
}

/// One after the other is stopped in order and started again, as for an upgrade.
#[test]
fn servers_are_restarted_in_turn_without_an_election() {
    let mut set = Set::start(3);
    let (mut leader, mut client) = set.leader();
    assert_eq!(client.call("SET a 1"), ok());
    for round in 0..3 {
        assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
        let stopping = Instant::now();
        let folder = set.servers[leader].take().expect("it runs").stop();
        let (next, mut new) = set.leader();
        println!("another one leads after {:?}", stopping.elapsed());
        assert_eq!(new.call(&format!("SET a {round}")), ok());
        set.start_in(leader, folder);
        (leader, client) = (next, new);
    }
    assert_eq!(client.call("GET a"), bulk("2"));
}

/// Runs the program, which must end well.
fn succeeds(args: &[&str]) -> String {
    let (is_done, text) = program(args);
    assert!(is_done, "{args:?}: {text}");
    text
}

/// Whoever leads, a backup goes on where the last one of another leader has ended.
#[test]
fn backups_of_a_set_are_restored_and_served_alone_or_begin_another_set() {
    let mut set = Set::start(3);
    let backups = Folder::new();
    let to = backups.join("backups");
    for round in 1..4 {
        let (leader, mut client) = set.leader();
        overwrite(&mut client, 1000, round);
        // So that each of them counts as many checkpoints.
        assert_eq!(client.call("DEBUG RELOAD"), ok());
        succeeds(&[
            "backup",
            "--from",
            &set.servers[leader].as_ref().expect("it runs").folder().join("socket"),
            &to,
        ]);
        let folder = set.kill(leader);
        let told = succeeds(&["check", &folder.join("data")]);
        assert!(told.contains("of server "), "{told}");
        set.leader();
        set.start_in(leader, folder);
    }
    succeeds(&["check", &to]);
    for round in 1..4 {
        let folder = Folder::new();
        succeeds(&["restore", &to, &folder.join("data"), "--backup", &round.to_string()]);
        // What was restored goes on, and starts again with nothing to replay.
        let server = Server::start_in(folder, &[]);
        check_overwritten(&mut server.client(), 1000, round);
        assert_eq!(server.client().call("SET a 1"), ok());
        let folder = server.stop();
        let server = Server::start_in(folder, &[]);
        assert_eq!(server.client().call("SET b 1"), ok());
        let folder = server.kill();
        if round < 3 {
            succeeds(&["check", &folder.join("data")]);
            continue;
        }
        let mut folder = Some(folder);
        let mut set = Set::new(3);
        (0..3).for_each(|at| set.start_in(at, folder.take().unwrap_or_else(Folder::new)));
        let (leader, mut client) = set.leader();
        check_overwritten(&mut client, 1000, round);
        overwrite(&mut client, 100, 2);
        set.wait_for_all(&mut client, (leader + 1) % 3);
        drop(set.kill(leader));
        let (_, mut client) = set.leader();
        assert_eq!((client.call("GET a"), client.call("GET b")), (bulk("1"), bulk("1")));
        check_overwritten(&mut client, 100, 2);
    }
}

#[test]
fn a_folder_of_a_set_is_served_alone_only_if_the_set_is_given_up() {
    let mut set = Set::start(3);
    let (leader, mut client) = set.leader();
    overwrite(&mut client, 100, 1);
    let folder = set.kill(leader);
    let output =
        run(&["serve", "--port", "0", "--unixsocket", &folder.join("socket"), "--dir", &folder.join("data")]);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(!output.status.success() && text.contains(" of the replica set "), "{text}");
    fs::remove_file(folder.join("data/replica-set")).expect("the file that says so");
    let server = Server::start_in(folder, &[]);
    check_overwritten(&mut server.client(), 100, 1);
    assert_eq!(server.client().call("SET a 1"), ok());
}

/// Redis's trade, for those who want it: replies do not wait for the others, who get it all the same.
#[test]
fn without_appendfsync_always_replies_wait_for_nobody() {
    let mut set = Set::new(3);
    set.options
        .iter_mut()
        .for_each(|options| options.extend(["--appendfsync", "everysec"].map(str::to_owned)));
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    let (leader, mut client) = set.leader();
    assert_eq!(client.call("SET a 1"), ok());
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
    let others = || (0..3).filter(|at| *at != leader).map(|at| set.servers[at].as_ref().expect("it runs"));
    others().for_each(|server| server.suspend());
    assert_eq!(client.call("SET a 2"), ok());
    assert_eq!(number(&client.call("WAIT 1 1")), Some(0));
    others().for_each(|server| server.resume());
    assert_eq!(number(&client.call("WAIT 2 20000")), Some(2));
}

/// With the options in it; the addresses are of this machine.
#[test]
fn the_example_for_kubernetes_makes_a_set() {
    let example =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/kubernetes/replica-set.yaml"));
    let example = example.expect("the example");
    let (_, args) = example.split_once("args:\n").expect("its arguments");
    let items = args.lines().map_while(|line| line.trim_start().strip_prefix("- "));
    let args: Vec<&str> = items.map(|item| item.trim_matches('"')).collect();
    let [serve, _, dir, _, options @ ..] = &args[..] else { unreachable!("there are more") };
    assert_eq!([*serve, *dir], ["serve", "--dir"]);
    let mut set = Set::new(3);
    let list = set.addresses.join(" ");
    for own in &mut set.options {
        let metrics = free_port().to_string();
        let option = |pair: &[&str]| match pair {
            ["--replica-set", names] => {
                assert_eq!(*names, [0, 1, 2].map(|at| format!("holdfast-{at}.holdfast:6379")).join(" "));
                ["--replica-set".to_owned(), list.clone()]
            }
            ["--metrics-port", port] => {
                assert!(example.contains(&format!("containerPort: {port}")));
                ["--metrics-port".to_owned(), metrics.clone()]
            }
            [name, value] => [(*name).to_owned(), (*value).to_owned()],
            _ => unreachable!("options are pairs"),
        };
        let given = options.chunks(2).flat_map(option);
        // In the place of the file with secrets, and of a machine of its own.
        let secret = ["--masterauth".to_owned(), "secret".to_owned()];
        *own = own[..6].iter().cloned().chain(secret).chain(given).collect();
    }
    (0..3).for_each(|at| set.start_in(at, Folder::new()));
    let (_, mut leader) = set.leader();
    assert_eq!(leader.call("SET a 1"), ok());
    let ports =
        set.options.iter().map(|options| options.iter().skip_while(|it| *it != "--metrics-port").nth(1));
    for port in ports.flatten() {
        wait_until(|| "each is ready".into(), || get(port.parse().expect("a port"), "/ready").0 == 200);
    }
}
