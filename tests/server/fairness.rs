//! Who shares a worker with others waits for its turn, and turns are short: neither a deep pipeline nor a slow script holds
//! up another client. The bounds hold on a busy machine; `HOLDFAST_FAIRNESS_US=5000` asserts the 99th percentile that a
//! quiet one reaches (a release build on a core of its own).

use crate::harness::{self, Client, EndOnDrop, Rng, Server, bulk, bulks, long_form, number, seed};
use holdfast_resp::{Reply, write_command};
use holdfast_store::hash_slot;
use std::{
    env,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// What half of the replies take at most, however busy the machine is otherwise: the other clients of this test want its cores, too.
const HALF: Duration = Duration::from_millis(50);
/// And nine in ten.
const MOST: Duration = Duration::from_millis(100);
/// Commands of a pipeline.
const DEEP: usize = 10_000;
/// What the slow script writes.
const SCRIPTS_KEY: &str = "one";

/// The partition of a key.
fn partition(key: &str) -> u16 {
    hash_slot(key.as_bytes()) / 256
}

/// Sends deep pipelines of SET until it is told to stop; how many.
fn pipelines(mut client: Client, stop: &AtomicBool) -> usize {
    let mut pipeline = Vec::new();
    // What the script holds would have to wait for it, and the GET for the log if one of these looked like its key.
    let is_free =
        |key: &String| ["third", SCRIPTS_KEY].iter().all(|other| partition(key) != partition(other));
    for key in (0..).map(|at| format!("key:{at}")).filter(is_free).take(DEEP) {
        write_command(&mut pipeline, &["set", &key, "a value of some length"]);
    }
    let mut sent = 0;
    while !stop.load(Relaxed) {
        client.send(&pipeline);
        (0..DEEP).for_each(|_| assert_eq!(client.reply(), harness::ok()));
        sent += 1;
    }
    sent
}

/// Runs a script over its own key for about a second, until it is told to stop; how many times.
fn scripts(mut client: Client, stop: &AtomicBool) -> usize {
    // It looks at the clock so that its length does not depend on the machine.
    const SCRIPT: &str = "
        local function now() return os.clock() * 1000 end
        local from = now()
        while now() < from + tonumber(ARGV[1]) do redis.call('incr', KEYS[1]) end
        return 1";
    let mut done = 0;
    while !stop.load(Relaxed) {
        assert_eq!(client.call_args(&["eval", SCRIPT, "1", SCRIPTS_KEY, "1000"]), Reply::Int(1));
        done += 1;
    }
    done
}

/// What GETs take while others are at work, for some seconds.
fn gets(mut client: Client, stop: &AtomicBool) -> Vec<Duration> {
    let _end = EndOnDrop(stop);
    assert_apart(&["third", SCRIPTS_KEY]);
    assert_eq!(client.call("set third 3"), harness::ok());
    let time = Duration::from_secs(long_form("HOLDFAST_FAIRNESS_SECONDS", 2));
    let (start, mut took) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let asked = Instant::now();
        assert_eq!(number(&client.call("get third")), Some(3));
        took.push(asked.elapsed());
        thread::sleep(Duration::from_micros(500));
    }
    took.sort();
    took
}

fn assert_fair(what: &str, took: &[Duration]) {
    let at = |percent: usize| took[took.len() * percent / 100];
    let [p50, p90, p99] = [50, 90, 99].map(at);
    println!(
        "{what}: {} GETs, p50 {p50:?}, p90 {p90:?}, p99 {p99:?}, max {:?}",
        took.len(),
        took[took.len() - 1]
    );
    assert!(p50 < HALF && p90 < MOST, "{what}: p50 {p50:?}, p90 {p90:?}");
    if let Some(us) = env::var("HOLDFAST_FAIRNESS_US").ok().map(|us| us.parse().expect("a number")) {
        assert!(p99 < Duration::from_micros(us), "{what}: p99 {p99:?}");
    }
}

#[test]
fn a_deep_pipeline_does_not_hold_up_others() {
    let server = Server::start(&["--workers", "1"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Two, so that the worker is never idle.
        let sent: Vec<_> = (0..2).map(|_| scope.spawn(|| pipelines(server.client(), &stop))).collect();
        let took = gets(server.client(), &stop);
        let sent: usize = sent.into_iter().map(|sent| sent.join().expect("no panic")).sum();
        assert_fair(&format!("beside {sent} pipelines of two clients"), &took);
    });
}

#[test]
fn a_slow_script_does_not_hold_up_others() {
    let server = Server::start(&["--workers", "1"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ran = scope.spawn(|| scripts(server.client(), &stop));
        let took = gets(server.client(), &stop);
        assert_fair(&format!("beside {} scripts", ran.join().expect("no panic")), &took);
    });
}

#[test]
fn pipelines_and_a_slow_script_together_do_not_hold_up_others() {
    let server = Server::start(&["--workers", "1"]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sent = scope.spawn(|| pipelines(server.client(), &stop));
        let ran = scope.spawn(|| scripts(server.client(), &stop));
        let took = gets(server.client(), &stop);
        let (sent, ran) = (sent.join().expect("no panic"), ran.join().expect("no panic"));
        assert_fair(&format!("beside {sent} pipelines and {ran} scripts"), &took);
    });
}

/// Runs for so many milliseconds of the process's time, and adds one to its keys.
const SLOW: &str = "
    local from = os.clock()
    for _, key in ipairs(KEYS) do redis.call('incr', key) end
    while (os.clock() - from) * 1000 < tonumber(ARGV[1]) do end
    return 'done'";

fn eval(keys: &[&str], ms: &str) -> Vec<u8> {
    let count = keys.len().to_string();
    let mut request = Vec::new();
    write_command(&mut request, &[&["eval", SLOW, &count], keys, &[ms]].concat());
    request
}

fn assert_apart(keys: &[&str]) {
    for (at, key) in keys.iter().enumerate() {
        assert!(keys[..at].iter().all(|other| partition(other) != partition(key)), "{keys:?}");
    }
}

#[test]
fn scripts_that_name_their_keys_run_side_by_side() {
    assert_apart(&["one", "two"]);
    let server = Server::start(&["--workers", "2"]);
    // A worker serves every second client.
    let (mut first, mut second) = (server.client(), server.client());
    // Once it has come to its end it is known to name its keys.
    first.send(&eval(&["one"], "0"));
    assert_eq!(first.reply(), harness::bulk("done"));
    first.send(&eval(&["one"], "3000"));
    thread::sleep(Duration::from_millis(100));
    let asked = Instant::now();
    second.send(&eval(&["two"], "0"));
    assert_eq!(second.reply(), harness::bulk("done"));
    assert!(asked.elapsed() < Duration::from_millis(500), "{:?}", asked.elapsed());
    assert!(first.is_silent(), "the other one still runs");
    // So do commands, on either worker, and those that want what it has wait for it.
    let mut others = [server.client(), server.client()];
    for client in &mut others {
        assert_eq!(number(&client.call("get two")), Some(1));
    }
    assert_eq!(first.reply(), harness::bulk("done"));
}

#[test]
fn who_wants_what_a_slow_script_has_waits_for_it() {
    assert_apart(&["one", "two"]);
    let server = Server::start(&["--workers", "1"]);
    let mut runner = server.client();
    runner.send(&eval(&["one"], "1500"));
    thread::sleep(Duration::from_millis(100));
    // All in the script's own thread: it must not wait there.
    let wanted = [
        "get one",
        "mget two one",
        "dbsize",
        "keys *",
        "scan 0",
        "randomkey",
        "info keyspace",
        "memory stats",
        "watch one",
        "rename one three",
        "function dump",
        "eval return(1) 0",
        "flushall",
    ];
    let mut clients: Vec<Client> = wanted.iter().map(|_| server.client()).collect();
    for (client, command) in clients.iter_mut().zip(wanted) {
        client.send(format!("{command}\r\n").as_bytes());
    }
    let mut others = server.client();
    let asked = Instant::now();
    assert_eq!(others.call("set two 2"), harness::ok());
    assert!(asked.elapsed() < Duration::from_millis(1000), "{:?}", asked.elapsed());
    assert!(clients[0].is_silent());
    assert_eq!(runner.reply(), harness::bulk("done"));
    for (client, command) in clients.iter_mut().zip(wanted) {
        let reply = client.reply();
        assert!(!matches!(reply, Reply::Error(_)) || command.starts_with("rename"), "{command}: {reply:?}");
    }
}

/// A worker runs one script at a time, also while that reads from the medium. Those that wait have their turns in the order in which they
/// have come, so that between two of a client's there is about one of each other client's.
#[test]
fn scripts_of_a_worker_have_their_turns_in_order() {
    const CLIENTS: usize = 10;
    const TURNS: usize = 60;
    // Once it has called something it keeps its turn.
    const SCRIPT: &str = "redis.call('ping') return #redis.call('get', ARGV[1])";
    const LEN: usize = 200_000;
    let server = Server::start(&["--workers", "1", "--maxmemory", "24mb"]);
    let (number, value) = (AtomicUsize::new(0), "x".repeat(LEN));
    for at in 0..200 {
        assert_eq!(server.client().call_args(&["set", &format!("key:{at}"), &value]), harness::ok());
    }
    let mut others: Vec<usize> = thread::scope(|scope| {
        let run = |nth: usize| {
            let (mut client, number) = (server.client(), &number);
            scope.spawn(move || {
                let turn = |turn: usize| {
                    let at = (turn * CLIENTS + nth) * 7 % 200;
                    if nth == 0 {
                        // Who has a script compiled wants the interpreter, too.
                        let digest = client.call_args(&["script", "load", &format!("return {at}")]);
                        assert!(matches!(digest, Reply::Bulk(_)), "{digest:?}");
                    } else {
                        let reply = client.call_args(&["eval", SCRIPT, "0", &format!("key:{at}")]);
                        assert_eq!(reply, Reply::Int(LEN as i64));
                    }
                    number.fetch_add(1, Relaxed)
                };
                let turns: Vec<usize> = (0..TURNS).map(turn).collect();
                turns.windows(2).map(|pair| pair[1] - pair[0] - 1).collect::<Vec<_>>()
            })
        };
        let running: Vec<_> = (0..CLIENTS).map(run).collect();
        running.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    others.sort_unstable();
    let [half, most, all] = [50, 95, 100].map(|percent| others[(others.len() - 1) * percent / 100]);
    println!("{half}, {most} and at most {all} turns of others");
    // A machine that does much else may keep a client from asking.
    let are_fair = half >= CLIENTS / 2 && most <= 2 * CLIENTS && all < CLIENTS * TURNS / 2;
    assert!(are_fair, "{half}, {most} and at most {all} turns of others");
}

/// Scripts that name no keys, and write to some in any order, beside commands and transactions that lock several: nobody
/// waits for ever, none fails, and what each writes stays together.
#[test]
fn scripts_that_name_no_keys_do_not_wait_for_each_other_for_ever() {
    const MOVE: &str = "
        redis.call('incrby', ARGV[1], 1)
        local sum = 0
        for i = 1, 300 do sum = sum + i end
        redis.call('incrby', ARGV[2], -1)
        return redis.call('mget', ARGV[3], ARGV[4])[1]";
    const KEYS: u64 = 12;
    let seed = seed();
    let server = Server::start(&["--workers", "2"]);
    thread::scope(|scope| {
        for number in 0..6 {
            let mut client = server.client();
            scope.spawn(move || {
                let mut rng = Rng(seed + number);
                for _ in 0..long_form("HOLDFAST_SCRIPTS", 400) {
                    let [a, b, c, d] = [(); 4].map(|()| format!("account:{}", rng.below(KEYS)));
                    let reply = match number % 3 {
                        0 => client.call_args(&["eval", MOVE, "0", &a, &b, &c, &d]),
                        1 => client.call_args(&["eval", MOVE, "1", &a, &a, &b, &c, &d]),
                        _ => {
                            client.call("multi");
                            client.call_args(&["incrby", &a, "1"]);
                            client.call_args(&["decrby", &b, "1"]);
                            client.call("exec")
                        }
                    };
                    assert!(!matches!(reply, Reply::Error(_)), "seed {seed}: {reply:?}");
                }
            });
        }
    });
    let mut client = server.client();
    let names: Vec<String> = (0..KEYS).map(|at| format!("account:{at}")).collect();
    let value =
        |reply: Reply| reply.as_bytes().map_or(0, |text| String::from_utf8_lossy(text).parse().unwrap());
    let sum: i64 = names.iter().map(|name| value(client.call(&format!("get {name}")))).sum();
    assert_eq!(sum, 0, "seed {seed}");
}

/// What EXEC and scripts need of the medium is read with nothing locked, as long as they have written nothing.
#[test]
fn nothing_waits_for_the_medium_under_a_lock() {
    let server = Server::start(&["--workers", "1", "--appendfsync", "no"]);
    let mut client = server.client();
    let drop_copies = |client: &mut Client| {
        assert_eq!(client.call("debug reload"), harness::ok());
    };
    for at in 0..20 {
        client.call(&format!("set key:{at} value:{at}"));
    }
    client.run_script(
        "select 1 => +OK\n set other there => +OK\n select 0 => +OK\n rpush list key:1 key:2 key:3 => :3",
    );
    let waits = |client: &mut Client| client.info("cold_waits_under_lock");

    drop_copies(&mut client);
    for command in
        ["multi", "get key:1", "select 1", "get other", "select 0", "randomkey", "sort list by nosort get *"]
    {
        client.call(command);
    }
    let Reply::Array(replies) = client.call("exec") else { panic!("EXEC failed") };
    assert_eq!(replies[..3], [bulk("value:1"), harness::ok(), bulk("there")]);
    assert!(replies[4].as_bytes().is_some_and(|name| name.starts_with(b"key:") || name == b"list"));
    assert_eq!(replies[5], bulks(["value:1", "value:2", "value:3"]));
    assert_eq!(waits(&mut client), "0");

    drop_copies(&mut client);
    let script = "
        local found = {redis.call('get', KEYS[1])}
        for at = 2, 9 do found[at] = redis.call('get', 'key:' .. at) end
        found[10] = #redis.call('randomkey') > 0
        redis.call('set', 'written', table.concat(found, ',', 1, 9))
        return found[9]";
    assert_eq!(client.call_args(&["eval", script, "1", "key:1"]), bulk("value:9"));
    assert_eq!(waits(&mut client), "0");
    let all = (1..10).map(|at| format!("value:{at}")).collect::<Vec<_>>().join(",");
    assert_eq!(client.call("get written"), bulk(all));

    // After a write nothing can be done again: it waits, and that is counted.
    drop_copies(&mut client);
    let script = "redis.call('set', KEYS[1], '') return redis.call('get', ARGV[1])";
    assert_eq!(client.call_args(&["eval", script, "1", "written", "key:5"]), bulk("value:5"));
    assert_eq!(waits(&mut client), "1");
}
