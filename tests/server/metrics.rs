//! The metrics port of the real binary, over a real socket.

use crate::harness::{
    self, Client, Folder, PATIENCE, Server, free_port,
    http::{connect, exchange, get, request},
    is_error, ok, run, wait_until,
};
use holdfast_resp::Reply;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// A server with a metrics port, and the port.
fn start(options: &[&str]) -> (Server, u16) {
    let port = free_port();
    let server = Server::start(&with_port(port, options));
    // It can be connected to a moment before its figures are there.
    server.client().call("PING");
    (server, port)
}

fn with_port<'a>(port: u16, options: &[&'a str]) -> Vec<&'a str> {
    // Leaked: a few bytes of a test.
    [&["--metrics-port", port.to_string().leak()], options].concat()
}

/// The samples of a scrape by their names with labels.
fn scrape(port: u16) -> BTreeMap<String, f64> {
    let (status, text) = get(port, "/metrics");
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("\n# EOF\n"), "it is cut off");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    let samples: Vec<(String, f64)> = samples.map(read).collect();
    let count = samples.len();
    let by_name: BTreeMap<_, _> = samples.into_iter().collect();
    assert_eq!(by_name.len(), count, "a sample is there twice");
    by_name
}

/// What has changed from one scrape to another.
fn risen(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let change = |(name, value): (&String, &f64)| {
        let change = value - before.get(name).copied().unwrap_or(0.0);
        (change != 0.0).then(|| (name.clone(), change))
    };
    after.iter().filter_map(change).collect()
}

/// Has done a little of everything that has a label of its own.
fn exercise(client: &mut Client) {
    client.run_script(
        "set a 1 => +OK
         set b 2 ex 1000 => +OK
         rpush list x y => :2
         select 3 => +OK
         set c 3 => +OK
         select 0 => +OK
         save => +OK",
    );
    for code in [r#"QUOTE" and more"#, r"BACK\\\\SLASH and more", r"\255 and more", r"\254 and more"] {
        let script = format!("return redis.error_reply('{code}')");
        assert!(matches!(client.call_args(&["EVAL", &script, "0"]), Reply::Error(_)));
    }
    assert!(is_error(&client.call("incr list"), "WRONGTYPE"));
    assert!(is_error(&client.call("get"), "ERR wrong number"));
}

#[test]
fn counters_rise_by_what_was_done_and_tell_the_same_as_info() {
    let (server, port) = start(&[]);
    let mut client = server.client();
    exercise(&mut client);
    let before = scrape(port);
    client.run_script(
        "set a 2 => +OK
         set a 3 => +OK
         set a 4 => +OK
         get a => 4
         get a => 4
         get none => nil
         incr list => -WRONGTYPE Operation against a key holding the wrong kind of value
         get => -ERR wrong number of arguments for 'get' command",
    );
    let after = scrape(port);
    let risen = risen(&before, &after);
    for (name, by) in [
        ("commands_total{command=\"set\"}", 3.0),
        ("commands_total{command=\"get\"}", 3.0),
        ("commands_total{command=\"incr\"}", 1.0),
        ("command_duration_seconds_count{command=\"set\"}", 3.0),
        ("command_duration_seconds_count{command=\"get\"}", 3.0),
        ("command_duration_seconds_bucket{le=\"+Inf\",command=\"get\"}", 3.0),
        ("commands_failed_total{command=\"incr\"}", 1.0),
        ("commands_rejected_total{command=\"get\"}", 1.0),
        ("error_replies_total{code=\"WRONGTYPE\"}", 1.0),
        ("error_replies_total{code=\"ERR\"}", 1.0),
        ("keyspace_hits_total", 2.0),
        ("keyspace_misses_total", 1.0),
        ("cache_hits_total", 2.0),
        ("log_batches_total", 3.0),
        ("commit_duration_seconds_count", 3.0),
        ("changes_since_checkpoint", 3.0),
    ] {
        assert_eq!(risen.get(&format!("holdfast_{name}")), Some(&by), "{name} in {risen:#?}");
    }
    for name in ["cache_misses_total", "keys_expired_total", "checkpoints_total", "keys{db=\"0\"}"] {
        assert_eq!(risen.get(&format!("holdfast_{name}")), None, "{name}");
    }

    for (name, field) in [
        ("keyspace_hits_total", "keyspace_hits"),
        ("keyspace_misses_total", "keyspace_misses"),
        ("cache_hits_total", "cache_hits"),
        ("log_size_bytes", "log_bytes"),
        ("log_live_bytes", "log_live_bytes"),
        ("log_segments", "log_segments"),
        ("log_batches_total", "log_batches"),
        ("commit_duration_seconds_count", "log_commits"),
        ("checkpoints_total", "checkpoints"),
        ("clients_connected", "connected_clients"),
        ("connections_accepted_total", "total_connections_received"),
        ("media_written_bytes_total{cause=\"items\"}", "endurance_bytes_items"),
        ("media_written_ever_bytes", "endurance_bytes_written"),
        ("media_input_bytes_total", "endurance_bytes_of_commands"),
        ("memory_bytes{part=\"heap\"}", "mem_heap"),
        ("memory_bytes{part=\"cache\"}", "mem_cache"),
        ("heap_pages_evicted_total", "heap_pages_evicted"),
    ] {
        // Something may be written meanwhile that no command has asked for.
        let is_same = || {
            let info: f64 = client.info(field).parse().expect("a number");
            scrape(port)[&format!("holdfast_{name}")] == info
        };
        wait_until(|| format!("{name} is {field}"), is_same);
    }
    let now = scrape(port);
    assert_eq!([now["holdfast_keys{db=\"0\"}"], now["holdfast_keys{db=\"3\"}"]], [3.0, 1.0]);
    assert_eq!(
        [now["holdfast_keys_expiring{db=\"0\"}"], now["holdfast_keys_expiring{db=\"3\"}"]],
        [1.0, 0.0]
    );
    for count in now.keys().filter(|name| name.starts_with("holdfast_command_duration_seconds_count")) {
        let calls = count.replace("_command_duration_seconds_count", "_commands_total");
        assert_eq!(now[count], now[&calls], "{count}");
    }

    client.run_script("config set latency-tracking no => +OK\n config resetstat => +OK\n get a => 4");
    let reset = scrape(port);
    assert_eq!(reset["holdfast_commands_total{command=\"get\"}"], 1.0);
    assert!(reset.keys().all(|name| !name.contains("command_duration")), "it would count none of them");
}

/// The parser of the field, in Python, takes what it would refuse if it broke a rule.
#[test]
fn a_strict_parser_takes_every_sample() {
    let (server, port) = start(&["--flash-endurance-tbw", "600"]);
    exercise(&mut server.client());
    let (_, text) = get(port, "/metrics");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/metrics");
    let mut child = Command::new("python3")
        .args(["-B", &format!("{folder}/parse")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python runs");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    // Package managers need a network, which a machine that runs the tests may lack.
    if output.status.code() == Some(3) {
        return;
    }
    assert!(output.status.success(), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), samples.to_string());
    assert!(samples > 200, "{samples} samples");
    for code in [r#"QUOTE\""#, r"BACK\\\\SLASH", "\u{FFFD}"] {
        assert!(
            text.contains(&format!("holdfast_error_replies_total{{code=\"{code}\"}} ")),
            "{code}: {text}"
        );
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let (server, port) = start(&[]);
    assert_eq!(get(port, "/nothing").0, 404);
    assert_eq!(get(port, "/metrics/").0, 404);
    assert_eq!(get(port, "/metrics?x=1").0, 200);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let response = request(port, method, "/metrics");
        assert_eq!(response.status, 405, "{method}");
        assert!(response.head.contains("allow: get, head"), "{}", response.head);
    }
    let head = request(port, "HEAD", "/metrics");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", head.head);
    for path in ["/health", "/ready"] {
        assert_eq!(get(port, path), (200, "ok\n".into()));
    }
    let mut client = server.client();
    client.run_script("config get metrics-bind => [metrics-bind 127.0.0.1 -::1]");
    assert_eq!(client.call("config get metrics-port"), harness::bulks(["metrics-port", &port.to_string()]));
    assert!(is_error(&client.call("config set metrics-port 1"), "ERR CONFIG SET failed"));
}

#[test]
fn slow_clients_and_garbage_do_no_harm() {
    let (server, port) = start(&[]);
    let mut client = server.client();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let response = exchange(port, garbage);
        assert!(response.is_none_or(|response| response.status == 400), "{garbage:?}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let mut socket = connect(port);
    // It may be closed before all is sent.
    let _ = socket.write_all(long.as_bytes());
    let mut start = [0; 12];
    assert!(socket.read_exact(&mut start).is_err() || start == *b"HTTP/1.1 431", "{start:?}");
    let many = "X: y\r\n".repeat(1000);
    let response = exchange(port, format!("GET /metrics HTTP/1.1\r\n{many}\r\n").as_bytes());
    assert!(response.is_none_or(|response| response.status == 431));

    // More than are served at once, which never end their request.
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = (0..40).map(|_| connect(port)).collect();
    for socket in &mut slow {
        socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").expect("it is sent");
    }
    for n in 0..1000 {
        let asked = Instant::now();
        assert_eq!(client.call(&format!("set key {n}")), ok());
        assert!(asked.elapsed() < Duration::from_secs(2), "commands wait");
    }
    assert_eq!(get(port, "/health").0, 200, "places become free in time");
    for mut socket in slow {
        // A reset is an end, too.
        let ended = socket.read(&mut [0; 100]);
        assert!(!matches!(&ended, Err(e) if e.kind() == ErrorKind::WouldBlock), "it was not closed");
    }
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(scrape(port)["holdfast_commands_total{command=\"set\"}"], 1000.0);
    server.stop();
}

#[test]
fn a_failed_log_is_told() {
    let port = free_port();
    let options = with_port(port, &[]);
    let Some(server) = Server::start_failing("pwritev2:error=EIO:when=60+", &options) else {
        eprintln!("not tested: no process may trace another one here");
        return;
    };
    let mut client = server.client();
    // The reply to the one whose commit fails does not come.
    let is_latched = || {
        // It is disconnected by then.
        let _ = client.try_send(b"SET key value\r\n");
        get(port, "/health").0 == 503
    };
    wait_until(|| format!("the log fails\n{}", server.log()), is_latched);
    for path in ["/health", "/ready"] {
        let (status, why) = get(port, path);
        assert_eq!(status, 503);
        assert!(why.contains("All writes are refused") && why.contains("the log has failed"), "{why}");
        assert!(why.contains("restart the server") && why.ends_with(".\n"), "{why}");
    }
    let problems = get(port, "/status").1;
    assert!(
        problems.contains(r#""severity":"failed""#) && problems.contains("the log has failed"),
        "{problems}"
    );
    let samples = scrape(port);
    assert_eq!([samples["holdfast_healthy"], samples["holdfast_ready"]], [0.0, 0.0]);
    assert_eq!(samples["holdfast_writes_refused{cause=\"failure\"}"], 1.0);
    assert!(samples.contains_key("holdfast_refused_writes_total{cause=\"failure\"}"));
}

#[test]
fn a_script_that_runs_for_long_is_told_and_does_not_stop_scrapes() {
    let (server, port) = start(&["--busy-reply-threshold", "100"]);
    let (mut script, mut client) = (server.client(), server.client());
    client.run_script("set key 1 => +OK");
    let before = scrape(port);
    script.send(b"EVAL \"redis.call('get', KEYS[1]) while true do end\" 1 key\r\n");
    wait_until(|| "it is busy".into(), || get(port, "/ready").0 == 503);
    let (_, why) = get(port, "/ready");
    assert!(why.starts_with("Clients get BUSY errors. Cause: the script "), "{why}");
    assert_eq!(get(port, "/health"), (200, "ok\n".into()));
    let held = scrape(port);
    assert!(held["holdfast_figures_age_seconds"] > 0.0);
    assert_eq!(held["holdfast_keys{db=\"0\"}"], before["holdfast_keys{db=\"0\"}"]);
    assert!(held["holdfast_uptime_seconds"] > before["holdfast_uptime_seconds"]);
    client.run_script("script kill => +OK");
    assert!(matches!(script.reply(), Reply::Error(_)));
    wait_until(|| "it is ready".into(), || get(port, "/ready").0 == 200);
}

#[test]
fn a_port_in_use_ends_the_start_before_any_data_is_touched() {
    let (server, port) = start(&[]);
    let folder = Folder::new();
    let refused = |more: &[&str]| {
        let (dir, socket) = (folder.join("data"), folder.join("socket"));
        let args = [&["serve", "--port", "0", "--unixsocket", &socket, "--dir", &dir], more].concat();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(!folder.path().join("data").exists(), "the data folder was made");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let port = port.to_string();
    let text = refused(&["--metrics-port", &port]);
    let what = format!(
        "option 'metrics-port': cannot listen on 127.0.0.1:{port}: the port is in use by another process"
    );
    assert!(text.contains(&what), "{text}");
    let text = refused(&["--metrics-port", &port, "--metrics-bind", "nowhere"]);
    assert!(text.contains("option 'metrics-bind': 'nowhere' is not an IP address"), "{text}");
    let text = refused(&["--metrics-port", &port, "--metrics-bind", "-192.0.2.1"]);
    assert!(text.contains("option 'metrics-bind': no address could be bound"), "{text}");
    drop(server);
}

/// What a text has between a start and what is none of the characters of a name.
fn names<'t>(text: &'t str, start: &str) -> BTreeSet<&'t str> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let from = text.match_indices(start).map(|(at, _)| &text[at..]);
    from.map(|text| {
        let end = text[start.len()..].find(|c| !is_of_name(c)).map_or(text.len(), |end| start.len() + end);
        &text[..end]
    })
    .collect()
}

#[test]
fn the_page_needs_nothing_but_the_port_and_reads_what_is_there() {
    let (server, port) = start(&["--flash-endurance-tbw", "600", "--slowlog-log-slower-than", "0"]);
    let mut client = server.client();
    exercise(&mut client);
    client.call("config set requirepass secret");
    let page = request(port, "GET", "/");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-type: text/html; charset=utf-8"), "{}", page.head);
    assert!(page.head.contains("content-security-policy: default-src 'none';"), "{}", page.head);
    for outside in ["://", "src=", "@import", "url(", "<link rel=\"stylesheet"] {
        assert!(!page.body.contains(outside), "the page uses {outside}");
    }

    let text = get(port, "/metrics").1;
    let read = names(&page.body, "holdfast_");
    assert!(read.len() > 40, "{read:?}");
    for name in read {
        let is_there =
            text.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
        assert!(is_there, "the page reads {name}, which is not there");
    }

    let (status, json) = get(port, "/status");
    assert_eq!(status, 200);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    for name in names(&page.body, "status.") {
        assert!(!json[&name["status.".len()..]].is_null(), "the page reads {name}, which is not there");
    }
    assert_eq!(json["problems"], Value::Array(Vec::new()));
    let slow = json["slow"].as_array().expect("an array");
    assert_eq!(slow[0]["command"], "config");
    assert!(slow.iter().any(|entry| entry["command"] == "rpush"), "{slow:?}");
    for entry in slow {
        let fields: Vec<&str> = entry.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(fields, ["command", "microseconds", "time"], "arguments are no one's business here");
        assert!(entry["microseconds"].is_u64() && entry["time"].is_u64());
    }
}

/// Every expression of a dashboard, with the names of labels that its legend shows.
fn expressions<'v>(value: &'v Value, found: &mut Vec<(&'v str, &'v str)>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if name == "expr" || name == "definition" => {
                        found.push((text, fields.get("legendFormat").and_then(Value::as_str).unwrap_or("")));
                    }
                    _ => expressions(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_and_the_documentation_name_what_is_there() {
    let (server, port) = start(&["--flash-endurance-tbw", "600"]);
    exercise(&mut server.client());
    let samples = scrape(port);
    let is_there = |name: &str| {
        samples.keys().any(|sample| {
            sample.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        })
    };
    let dashboard: Value =
        serde_json::from_str(include_str!("../../deploy/grafana/holdfast.json")).expect("a dashboard");
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 50, "{} expressions", found.len());
    for (expression, legend) in found {
        let read = names(expression, "holdfast_");
        assert!(!read.is_empty(), "{expression}");
        read.iter().for_each(|name| assert!(is_there(name), "{expression}: there is no {name}"));
        let grouped = expression
            .split("by (")
            .skip(1)
            .flat_map(|rest| rest.split(')').next().expect("a first part").split(", "));
        let shown = legend.split("{{").skip(1).map(|rest| rest.split("}}").next().expect("a first part"));
        // Prometheus adds the instance.
        for label in grouped.chain(shown).filter(|label| *label != "instance") {
            let has_label = |name: &&&str| {
                samples.keys().any(|sample| {
                    sample.starts_with(&format!("{name}{{")) && sample.contains(&format!("{label}="))
                })
            };
            assert!(read.iter().find(has_label).is_some(), "{expression}: there is no label {label}");
        }
    }
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same number");

    let read = names(include_str!("../../docs/operations.md"), "holdfast_");
    assert!(read.len() > 6, "{read:?}");
    read.iter()
        .for_each(|name| assert!(is_there(name), "the documentation names {name}, which is not there"));
}
