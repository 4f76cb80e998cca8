//! What is known of the uses of keys.

mod harness;

use harness::{Client, Server, number, ok};
use holdfast_resp::Reply;
use std::{thread::sleep, time::Duration};

fn idle_s(client: &mut Client, key: &str) -> u64 {
    number(&client.call(&format!("object idletime {key}"))).expect("a time")
}

fn frequency(client: &mut Client, key: &str) -> u64 {
    number(&client.call(&format!("object freq {key}"))).expect("a count")
}

#[test]
fn idle_times_are_since_the_last_use_that_counts_as_one() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut client, mut untouching) = (server.client(), server.client());
    client.run_script(
        "mset looked v used v touched v shielded v listed v => +OK
         rpush list a => :1
         rpush usedlist a => :1
         rpush shieldedlist a => :1
         rpush source a => :1",
    );
    assert_eq!(untouching.call("client no-touch on"), ok());
    sleep(Duration::from_millis(2100));
    client.run_script(
        "type looked => +string
         exists looked list => :2
         ttl looked => :-1
         object encoding looked => embstr
         object encoding list => listpack
         get used => v
         expire listed 100 => :1
         llen usedlist => :1
         rename source renamed => +OK",
    );
    untouching.run_script(
        "get shielded => v
         lrange shieldedlist 0 -1 => [a]
         touch touched => :1",
    );
    assert!(number(&client.call("memory usage list")).is_some());
    assert!(matches!(client.call("debug object looked"), Reply::Simple(_)));
    for key in ["looked", "list", "shielded", "shieldedlist"] {
        assert!(idle_s(&mut client, key) >= 2, "{key}");
    }
    for key in ["used", "touched", "listed", "usedlist", "renamed"] {
        assert!(idle_s(&mut client, key) < 2, "{key}");
    }
    let Reply::Bulk(payload) = client.call("dump list") else { panic!("a payload") };
    let mut restore = |options: &[&str]| {
        let mut args = vec![
            b"restore".to_vec(),
            b"restored".to_vec(),
            b"0".to_vec(),
            payload.clone(),
            b"replace".to_vec(),
        ];
        args.extend(options.iter().map(|option| option.as_bytes().to_vec()));
        assert_eq!(client.call_args(&args), ok());
    };
    restore(&["idletime", "100000"]);
    restore(&["freq", "9"]);
    restore(&["idletime", "1000"]);
    let idle = idle_s(&mut client, "restored");
    assert!((1000..1010).contains(&idle), "{idle}");
}

#[test]
fn uses_are_counted_under_a_policy_that_wants_it() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lfu", "--lfu-log-factor", "0"]);
    let mut client = server.client();
    client.run_script(
        "set string v => +OK
         rpush list a => :1
         object idletime string => -ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.
         object freq none => nil
         object freq string => :5
         object freq list => :5
         get string => v
         get string => v
         llen list => :1
         object freq string => :7
         object freq list => :6
         set string other => +OK
         object freq string => :8
         config set lfu-log-factor 1000000 => +OK
         get string => other
         object freq string => :8",
    );
    let payload = match client.call("dump string") {
        Reply::Bulk(payload) => payload,
        other => panic!("{other:?}"),
    };
    for (count, key) in [("200", "restored"), ("0", "string")] {
        let args = [b"restore", key.as_bytes(), b"0", &payload, b"replace", b"freq", count.as_bytes()];
        assert_eq!(client.call_args(&args), ok());
        assert_eq!(frequency(&mut client, key).to_string(), count);
    }
    client.run_script(
        "config set maxmemory-policy noeviction => +OK
         object freq string => -ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.",
    );
    assert!(idle_s(&mut client, "string") < 2);
}
