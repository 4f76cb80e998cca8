//! Writers whose transactions keep an invariant over keys of all types: a copy of the data shows by it that it is of one moment.

use super::{Client, EndOnDrop, Rng, Server, number, text, wait_until};
use holdfast_resp::{Reply, write_command};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

const ACCOUNTS: u64 = 100;
const BALANCE: u64 = 1000;
/// How many writers there are.
pub const WRITERS: u64 = 3;

/// Calls `f` while writers write to a server that is empty, as in [`while_writing`].
pub fn under_load(server: &Server, rng: &mut Rng, f: impl FnOnce(&dyn Fn() -> Vec<u64>)) -> Vec<u64> {
    let mut client = server.client();
    for account in 0..ACCOUNTS {
        call(&mut client, &["SET", &format!("account:{account}"), &BALANCE.to_string()]);
    }
    while_writing(server, rng, transact, f)
}

/// What a writer does in its n-th transaction: who it is, and n, come last.
pub type Transact = fn(&mut Client, &mut Rng, u64, u64);

/// Calls `f` while writers write to a server; `f` can ask for the number of each writer's last transaction that was acknowledged, and the numbers
/// in the end are returned.
pub fn while_writing(
    server: &Server,
    rng: &mut Rng,
    transact: Transact,
    f: impl FnOnce(&dyn Fn() -> Vec<u64>),
) -> Vec<u64> {
    let numbers: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let now = || numbers.iter().map(|number| number.load(SeqCst)).collect::<Vec<_>>();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        for (writer, number) in (0..).zip(&numbers) {
            let (mut rng, mut client, is_over) = (Rng(rng.draw()), server.client(), &is_over);
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    let n = number.load(SeqCst) + 1;
                    transact(&mut client, &mut rng, writer, n);
                    number.store(n, SeqCst);
                }
            });
        }
        wait_until(|| "the writers write".into(), || now().iter().all(|&n| n > 500));
        f(&now);
    });
    now()
}

/// Whether what was found lies between the numbers from before and those from after, when one more may have been on its way.
pub fn is_between(found: &[u64], before: &[u64], after: &[u64]) -> bool {
    found.iter().zip(before.iter().zip(after)).all(|(n, (from, to))| (*from..=to + 1).contains(n))
}

/// A command that is not refused.
pub fn call(client: &mut Client, words: &[&str]) -> Reply {
    let reply = client.call_args(words);
    assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    reply
}

/// The number that a command returns.
pub fn int(client: &mut Client, command: &str) -> u64 {
    number(&client.call(command)).unwrap_or_else(|| panic!("{command} returns a number"))
}

/// What each writer does in its n-th transaction, by MULTI or by a script: a transfer, and its number in a value of each type.
const SCRIPT: &str = "
    local n, writer, filler = ARGV[1], ARGV[2], ARGV[3]
    redis.call('DECRBY', KEYS[1], 1)
    redis.call('INCRBY', KEYS[2], 1)
    redis.call('SET', 'count:' .. writer, n)
    redis.call('RPUSH', 'list:' .. writer, n)
    redis.call('SADD', 'set:' .. writer, n)
    redis.call('ZADD', 'zset:' .. writer, n, n)
    redis.call('HSET', 'hash:' .. writer, n % 50, n)
    redis.call('XADD', 'stream:' .. writer, n .. '-1', 'n', n)
    redis.call('SET', 'filler:' .. writer .. ':' .. n % 300, filler)";

fn transact(client: &mut Client, rng: &mut Rng, writer: u64, n: u64) {
    let accounts = [rng.below(ACCOUNTS), rng.below(ACCOUNTS)].map(|account| format!("account:{account}"));
    let [from, to] = &accounts;
    let (n, w, filler) =
        (n.to_string(), writer.to_string(), n.to_string().repeat(1 + rng.below(1500) as usize));
    let named = |kind: &str| format!("{kind}:{w}");
    if rng.one_in(2) {
        call(client, &["EVAL", SCRIPT, "2", from, to, &n, &w, &filler]);
        return;
    }
    let (field, place) =
        ((n.parse::<u64>().expect("a number") % 50).to_string(), n.parse::<u64>().expect("a number") % 300);
    let mut requests = Vec::new();
    write_command(&mut requests, &["MULTI"]);
    write_command(&mut requests, &["DECRBY", from, "1"]);
    write_command(&mut requests, &["INCRBY", to, "1"]);
    write_command(&mut requests, &["SET", &named("count"), &n]);
    write_command(&mut requests, &["RPUSH", &named("list"), &n]);
    write_command(&mut requests, &["SADD", &named("set"), &n]);
    write_command(&mut requests, &["ZADD", &named("zset"), &n, &n]);
    write_command(&mut requests, &["HSET", &named("hash"), &field, &n]);
    write_command(&mut requests, &["XADD", &named("stream"), &format!("{n}-1"), "n", &n]);
    write_command(&mut requests, &["SET", &format!("filler:{w}:{place}"), &filler]);
    write_command(&mut requests, &["EXEC"]);
    client.send(&requests);
    (0..10).for_each(|_| drop(client.reply()));
    assert!(matches!(client.reply(), Reply::Array(replies) if replies.len() == 9), "the transaction is done");
}

/// Whether the data is that of one moment; the number of each writer's last transaction in it.
pub fn check_moment(client: &mut Client) -> Vec<u64> {
    let balances = (0..ACCOUNTS).map(|account| text(&client.call(&format!("GET account:{account}"))));
    let sum: i64 = balances.map(|balance| balance.parse::<i64>().expect("a number")).sum();
    assert_eq!(sum, (ACCOUNTS * BALANCE) as i64, "no transfer is there in part");
    let counts = |writer| {
        let n = int(client, &format!("GET count:{writer}"));
        for kind in ["LLEN list", "SCARD set", "ZCARD zset", "XLEN stream"] {
            assert_eq!(int(client, &format!("{kind}:{writer}")), n, "{kind}");
        }
        assert_eq!(int(client, &format!("LINDEX list:{writer} -1")), n);
        assert_eq!(int(client, &format!("HGET hash:{writer} {}", n % 50)), n);
        let filler = text(&client.call(&format!("GET filler:{writer}:{}", n % 300)));
        assert!(filler.starts_with(&n.to_string()), "{filler} of {n}");
        n
    };
    (0..WRITERS).map(counts).collect()
}
