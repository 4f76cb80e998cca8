//! What the server tells of what it writes to its medium.

use crate::harness::{Client, Server, is_error, number, ok, text, wait_until};
use holdfast_resp::Reply;
use std::{collections::BTreeMap, fs};

const CAUSES: [&str; 13] = [
    "items",
    "redo",
    "frozen_items",
    "moved_items",
    "batch_headers",
    "padding",
    "rewritten_blocks",
    "segment_headers",
    "segment_zeroes",
    "heap_pages",
    "heap_tables",
    "superblock",
    "moved_segments",
];

/// The figures of the section, without their prefix.
fn figures(client: &mut Client) -> BTreeMap<String, String> {
    let info = text(&client.call("info endurance"));
    let mut lines = info.lines();
    assert_eq!(lines.next(), Some("# Endurance"));
    let pair = |line: &str| {
        let (name, value) = line.split_once(':').expect("a name and a value");
        (name.strip_prefix("endurance_").expect("the prefix").to_owned(), value.to_owned())
    };
    lines.map(pair).collect()
}

fn int(figures: &BTreeMap<String, String>, name: &str) -> u64 {
    figures[name].parse().unwrap_or_else(|_| panic!("{name}: {}", figures[name]))
}

fn real(figures: &BTreeMap<String, String>, name: &str) -> f64 {
    figures[name].parse().unwrap_or_else(|_| panic!("{name}: {}", figures[name]))
}

/// Sets keys by pipelines, each of `len` bytes.
fn set(client: &mut Client, keys: std::ops::Range<u32>, len: usize) {
    let value = "v".repeat(len);
    for first in keys.clone().step_by(100) {
        let numbers = first..keys.end.min(first + 100);
        let requests: String = numbers.clone().map(|n| format!("set key:{n:08} {value}\r\n")).collect();
        client.send(requests.as_bytes());
        numbers.for_each(|_| assert_eq!(client.reply(), ok()));
    }
}

/// `write_bytes` of a process: what it has had written to media, as the system counts it.
fn write_bytes(server: &Server) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", server.pid())).expect("our own process");
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.expect("Linux tells it").parse().expect("a number")
}

#[test]
fn the_figures_are_what_the_system_counts() {
    let server = Server::start(&["--log-max-size", "256mb"]);
    let mut client = server.client();
    if write_bytes(&server) == 0 {
        eprintln!("skipped: the folder for temporary files is in memory");
        return;
    }
    set(&mut client, 0..20_000, 1000);
    for n in 0..2000 {
        client.send(format!("hset hash:{} field:{n} value:{n}\r\n", n % 50).as_bytes());
    }
    (0..2000).for_each(|_| assert_eq!(client.reply(), Reply::Int(1)));
    assert_eq!(client.call("save"), ok());
    set(&mut client, 0..20_000, 1000);
    assert_eq!(client.call("save"), ok());
    // A segment may be prepared meanwhile.
    let mut seen = (0, 0);
    wait_until(
        || "the figures of the server and of the system stay apart".into(),
        || {
            seen = (int(&figures(&mut client), "bytes_written_since_start"), write_bytes(&server));
            // Beside the data folder's files the process writes its log of messages and the file that is its lock; and what is
            // written without direct I/O is counted by whole pages.
            seen.0.abs_diff(seen.1) <= seen.1 / 100 + (256 << 10)
        },
    );
    assert!(seen.0 > 2 * 20_000 * 1000, "{seen:?}");
}

#[test]
fn the_causes_add_up_and_amplification_is_by_what_commands_brought() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let before = figures(&mut client);
    assert_eq!((int(&before, "bytes_of_commands"), real(&before, "write_amplification")), (0, 0.0));
    // 12 bytes of key and 500 of value each, first by a transaction, then without one.
    set(&mut client, 0..1000, 500);
    set(&mut client, 0..1000, 500);
    client.run_script(
        "setnx key:00000000 other => :0
         hset h f v => :1
         incr n => :1
         incr n => :2
         get key:none => nil
         multi => +OK
         rpush list ab cd => +QUEUED
         exec => [:2]",
    );
    let script = "redis.call('set', KEYS[1], 'abc') return 1";
    assert_eq!(client.call_args(&["eval", script, "1", "script"]), Reply::Int(1));
    let after = figures(&mut client);
    let commands = 2 * 1000 * 512 + "hfv".len() + 2 * "n".len() + "scriptabc".len() + "listabcd".len();
    assert_eq!(int(&after, "bytes_of_commands"), commands as u64);
    let total = int(&after, "bytes_written");
    assert_eq!(CAUSES.iter().map(|cause| int(&after, &format!("bytes_{cause}"))).sum::<u64>(), total);
    assert_eq!(int(&after, "bytes_written_since_start"), total, "the folder is new");
    let ratio = total as f64 / commands as f64;
    assert!((real(&after, "write_amplification") - ratio).abs() < 0.01);
    let items = int(&after, "bytes_items");
    assert!((2000 * (512 + 16)..2000 * (512 + 16 + 16)).contains(&items), "{items}");

    // The counts of Redis are reset, these are not.
    assert_eq!(client.call("config resetstat"), ok());
    assert!(int(&figures(&mut client), "bytes_written") >= total);
    for section in ["info", "info all", "info everything"] {
        assert!(text(&client.call(section)).contains("# Endurance\r\n"), "{section}");
    }
}

#[test]
fn the_totals_survive_a_restart_and_what_a_kill_takes_is_bounded() {
    let server = Server::start(&[]);
    let mut client = server.client();
    set(&mut client, 0..2000, 500);
    let first = figures(&mut client);
    let server = server.restart(Server::stop);
    let mut client = server.client();
    let second = figures(&mut client);
    assert_eq!(second["since"], first["since"]);
    assert_eq!(second["bytes_of_commands"], first["bytes_of_commands"]);
    assert_eq!(int(&second, "bytes_of_commands_since_start"), 0);
    assert!(int(&second, "bytes_written") >= int(&first, "bytes_written"));
    assert!(int(&second, "bytes_written") > int(&second, "bytes_written_since_start"));

    set(&mut client, 0..1000, 500);
    assert_eq!(client.call("save"), ok());
    set(&mut client, 0..1000, 500);
    let third = figures(&mut client);
    let server = server.restart(Server::kill);
    let fourth = figures(&mut server.client());
    let [third, fourth] = [third, fourth].map(|figures| int(&figures, "bytes_of_commands"));
    assert!((3000 * 512..=4000 * 512).contains(&fourth) && third == 4000 * 512, "{fourth}");
}

#[test]
fn a_forecast_is_made_for_the_rating_of_the_medium() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let unknown = figures(&mut client);
    assert_eq!(
        [&unknown["rated_tbw"], &unknown["rating_used_perc"], &unknown["days_left"]],
        ["0", "-1.00", "-1.00"]
    );
    assert_eq!(unknown["forecast_basis"], "none");
    assert!(text(&client.call("endurance report")).contains("see the option flash-endurance-tbw"));
    assert!(is_error(&client.call("config set flash-endurance-tbw -1"), "ERR"));

    assert_eq!(client.call("config set flash-endurance-tbw 600"), ok());
    wait_until(
        || "no rate is known".into(),
        || {
            set(&mut client, 0..1000, 500);
            real(&figures(&mut client), "days_left") > 0.0
        },
    );
    let known = figures(&mut client);
    assert_eq!((&known["rated_tbw"][..], &known["forecast_basis"][..]), ("600", "start"));
    let (days, rate) = (real(&known, "days_left"), int(&known, "bytes_per_sec_day"));
    let expected = (600e12 - int(&known, "bytes_written") as f64) / rate as f64 / 86_400.0;
    assert!((days - expected).abs() < expected / 100.0, "{days} of {expected}");
    assert!(int(&known, "bytes_per_sec_minute") > 0 && int(&known, "bytes_per_day") > 0);
    assert!(
        text(&client.call("endurance report"))
            .contains("of 600 TB are used; at the rate since the start the medium lasts")
    );
}

#[test]
fn the_command_tells_the_same_as_a_map_and_as_a_table() {
    let server = Server::start(&["--flash-endurance-tbw", "1"]);
    let mut client = server.client();
    set(&mut client, 0..100, 100);
    let Reply::Array(flat) = client.call("endurance stats") else { panic!("no flat array") };
    let names: Vec<String> = flat.chunks_exact(2).map(|pair| text(&pair[0])).collect();
    let mut shown: Vec<String> = figures(&mut client).into_keys().collect();
    let mut sorted = names.clone();
    shown.sort();
    sorted.sort();
    assert_eq!(sorted, shown);
    let input = names.iter().position(|name| name == "bytes_of_commands").expect("it is there");
    assert_eq!(number(&flat[2 * input + 1]), Some(100 * 112));

    let report = text(&client.call("endurance report"));
    let words = |start: &str| {
        let line = report
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("{start}: {report}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    CAUSES.iter().for_each(|cause| drop(words(&cause.replace('_', " "))));
    assert_eq!(words("all")[2], "100.0%");

    client.call("hello 3");
    assert!(matches!(client.call("endurance stats"), Reply::Map(pairs) if pairs.len() == names.len()));
    assert!(matches!(client.call("endurance report"), Reply::Verbatim(..)));
    assert!(matches!(client.call("endurance help"), Reply::Array(lines) if lines.len() > 4));
    assert!(is_error(&client.call("endurance nonsense"), "ERR unknown subcommand"));

    client.run_script("acl setuser reader on nopass ~* +@read => +OK");
    client.call("auth reader x");
    assert!(is_error(&client.call("endurance stats"), "NOPERM"));
}
