//! What the server tells its operator, and where.

use crate::harness::{Folder, Server, ok, wait_until};
use serde_json::Value;
use std::{os::unix::net::UnixDatagram, process::Command, time::Duration};

#[test]
fn lines_are_redis_s_or_json() {
    let server = Server::start(&["--log-format", "json", "--loglevel", "verbose"]);
    let mut client = server.client();
    client.send(b"*1\r\n$x\r\n");
    client.reply();
    let lines =
        || server.log().lines().map(|line| serde_json::from_str(line).expect(line)).collect::<Vec<Value>>();
    wait_until(
        || format!("a protocol error is told\n{}", server.log()),
        || lines().iter().any(|line| line["message"].as_str().expect("a text").starts_with("Protocol error")),
    );
    for line in lines() {
        assert_eq!(line["pid"], server.pid());
        assert!(
            ["verbose", "notice", "warning"].contains(&line["level"].as_str().expect("a text")),
            "{line}"
        );
        let time = line["time"].as_str().expect("a text");
        assert!(time.len() == 24 && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    }
    let told =
        lines().into_iter().find(|line| line["message"].as_str().unwrap().contains("started, 2 workers"));
    assert_eq!(told.expect("the start")["level"], "notice");
    // At run time.
    assert_eq!(server.client().call("CONFIG SET log-format plain"), ok());
    assert_eq!(server.client().call("DEBUG LOG {\"}"), ok());
    let log = server.log();
    let last = log.lines().last().expect("a line");
    assert!(last.starts_with(&format!("{}:M ", server.pid())), "{last}");
}

#[test]
fn the_journal_gets_priorities_and_no_time() {
    let script = "JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"$@\"";
    let server = Server::start_by_sh(script, Folder::new(), &["--hz", "20"]).expect("it serves");
    wait_until(|| "it is ready".into(), || server.log().contains("Ready to accept"));
    let log = server.log();
    assert!(log.lines().any(|line| line.starts_with("<5>Ready to accept connections")), "{log}");
    assert!(log.lines().any(|line| line.starts_with("<4>option 'hz' has no effect")), "{log}");
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
    // Another stream than the journal's is none.
    let script = "JOURNAL_STREAM=1:2 exec \"$@\"";
    let server = Server::start_by_sh(script, Folder::new(), &[]).expect("it serves");
    assert!(server.log().starts_with(&format!("{}:M ", server.pid())), "{}", server.log());
    // Nor is a file to which a server of systemd logs.
    let folder = Folder::new();
    let file = folder.join("file.log");
    let script = "JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"$@\"";
    let server = Server::start_by_sh(script, folder, &["--logfile", &file]).expect("it serves");
    let log = server.folder().read("file.log");
    assert!(log.starts_with(format!("{}:M ", server.pid()).as_bytes()), "{}", String::from_utf8_lossy(&log));
}

#[test]
fn why_a_server_does_not_start_is_an_error_in_the_journal() {
    let script = "JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"$0\" serve --hz never";
    let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_holdfast")]).output();
    let output = output.expect("it runs");
    let told = String::from_utf8(output.stderr).expect("a text");
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("<3>holdfast: "), "{told}");
    assert!(told.lines().all(|line| line.starts_with("<3>")), "{told}");
}

#[test]
fn syslog_gets_messages_with_their_severity() {
    let folder = Folder::new();
    let path = folder.join("syslog");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let mount = format!("mount -t tmpfs none /dev && ln -s {path} /dev/log && exec \"$@\"");
    let script = format!("exec unshare -Urm sh -c '{mount}' sh \"$@\"");
    let options =
        ["--syslog-enabled", "yes", "--syslog-ident", "store", "--syslog-facility", "LOCAL3", "--hz", "20"];
    let Some(server) = Server::start_by_sh(&script, folder, &options) else {
        eprintln!("passed over: no folder can be mounted here");
        return;
    };
    let mut buffer = [0; 4096];
    let mut messages = Vec::new();
    while !messages.iter().any(|message: &String| message.contains("Ready to accept")) {
        let len = socket.recv(&mut buffer).expect("a message");
        messages.push(String::from_utf8(buffer[..len].to_vec()).expect("UTF-8"));
    }
    let of = |what: &str| messages.iter().find(|message| message.contains(what)).expect(what);
    // Facility 19; notice is 5, warning 4.
    assert!(of("Ready to accept").starts_with("<157>"), "{messages:?}");
    assert!(of("option 'hz'").starts_with("<156>"), "{messages:?}");
    assert!(of("Ready to accept").contains(&format!(" store[{}]: Ready", server.pid())), "{messages:?}");
    // All of it is in the other log, too, and a daemon that goes away holds up nobody.
    wait_until(|| server.log(), || server.log().contains("Ready to accept"));
    drop(socket);
    for n in 0..1000 {
        assert_eq!(server.client().call(&format!("DEBUG LOG message-{n}")), ok());
    }
}

#[test]
fn a_medium_that_is_slow_is_told_with_figures() {
    // From the tenth commit on, three take long.
    let options = ["--slow-commit-threshold", "500"];
    let Some(server) = Server::start_failing("pwritev2:delay_enter=1200000:when=10..12", &options) else {
        eprintln!("passed over: no process can be traced here");
        return;
    };
    let mut client = server.client();
    for n in 0..20 {
        assert_eq!(client.call(&format!("SET key:{n} value")), ok());
    }
    wait_until(|| format!("it is told\n{}", server.log()), || server.log().contains("The medium is slow: "));
    wait_until(
        || format!("the end is told\n{}", server.log()),
        || server.log().contains("The medium is no longer slow: "),
    );
    let log = server.log();
    let end = log.lines().find(|line| line.contains("no longer slow")).expect("the end");
    let longest =
        end.split("the longest took ").nth(1).and_then(|rest| rest.split('.').next()).expect("a figure");
    assert!((1200..30_000).contains(&longest.parse::<u32>().expect("a number")), "{end}");
    assert_eq!(log.matches("The medium is slow: ").count(), 1, "{log}");
    // The threshold is a matter of taste.
    assert_eq!(client.call("CONFIG SET slow-commit-threshold 0"), ok());
}
