//! Another process takes over from a server (SIGUSR2): clients notice nothing but a pause, whatever they are about, and whatever ends in the
//! midst of it leaves one that serves, or all that was acknowledged.

use crate::harness::{
    Client, EndOnDrop, Folder, Rng, Server, array, assert_sound, bulk, bulks, free_port, number, ok, seed,
    text, wait_until,
};
use holdfast_resp::{Reply, write_command};
use std::{
    collections::BTreeSet,
    fs,
    net::TcpStream,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// A server that others take over from, one after another. The last of them ends with it.
pub struct Dynasty {
    last: Last,
    // After the last, which is told by a file in its folder.
    first: Server,
}

/// The process that serves, by its file. It does not outlive the test.
struct Last {
    pid_file: String,
    first: u32,
}

impl Last {
    fn pid(&self) -> u32 {
        fs::read_to_string(&self.pid_file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let last = self.pid();
        // The first one is ended by the harness.
        if last != 0 && last != self.first && is_there(last) {
            signal(last, "KILL");
        }
    }
}

impl Dynasty {
    fn of(first: Server, pid_file: String) -> Dynasty {
        let last = Last { pid_file, first: first.pid() };
        // The file may be that of an earlier one, which was killed.
        wait_until(|| "the file names it".into(), || last.pid() == last.first);
        Dynasty { first, last }
    }

    fn start(options: &[&str]) -> Dynasty {
        Dynasty::start_in(Folder::new(), options)
    }

    /// The same with data that are there.
    pub fn start_in(folder: Folder, options: &[&str]) -> Dynasty {
        let pid_file = folder.join("pid");
        let first = Server::start_in(folder, &[&["--pidfile", &pid_file], options].concat());
        Dynasty::of(first, pid_file)
    }

    /// One whose program can be replaced by another one: it has a name in the folder.
    fn start_replaceable() -> (Dynasty, String) {
        let folder = Folder::new();
        let (pid_file, program) = (folder.join("pid"), folder.join("program"));
        let own = env!("CARGO_BIN_EXE_holdfast");
        if fs::hard_link(own, &program).is_err() {
            fs::copy(own, &program).expect("a copy of the program");
        }
        let script = format!("shift; exec {program} \"$@\"");
        let first = Server::start_by_sh(&script, folder, &["--pidfile", &pid_file]).expect("it serves");
        (Dynasty::of(first, pid_file), program)
    }

    /// The process that serves.
    fn pid(&self) -> u32 {
        self.last.pid()
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        self.first.client()
    }

    fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Its folder.
    pub fn folder(&self) -> &Folder {
        self.first.folder()
    }

    /// Kills the one that serves.
    pub fn kill(self) -> Folder {
        let last = self.pid();
        self.signal("KILL");
        wait_until(|| "it is gone".into(), || !is_there(last));
        self.first.kill()
    }

    /// Has another process take over.
    pub fn upgrade(&self) {
        assert!(self.try_upgrade(), "{}", self.first.log());
    }

    /// The same, unless the one that serves says that it goes on; whether another one does.
    pub fn try_upgrade(&self) -> bool {
        let (before, refused) = (self.pid(), "No other process takes over");
        let refusals = || self.first.log().matches(refused).count();
        let refusals_before = refusals();
        let has_taken_over = || self.pid() != 0 && self.pid() != before && !is_there(before);
        self.signal("USR2");
        wait_until(
            || format!("another process serves\n{}", self.first.log()),
            || has_taken_over() || refusals() > refusals_before,
        );
        has_taken_over()
    }

    /// Ends it in order, and checks the data.
    fn end(mut self) {
        let last = self.pid();
        if last == self.first.pid() {
            let folder = self.first.stop();
            assert_sound(&folder);
            return;
        }
        assert_eq!(self.first.wait().code(), Some(0), "{}", self.first.log());
        signal(last, "TERM");
        wait_until(|| "the last one ends".into(), || !is_there(last));
        assert!(self.first.log().trim_end().ends_with("bye bye..."), "{}", self.first.log());
        assert_sound(self.first.folder());
    }
}

fn signal(pid: u32, name: &str) {
    assert_ne!(pid, 0, "that is each process of the test's group");
    let _ = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
}

/// Whether a process runs. One that has ended and was not waited for does not; one whose first thread alone has ended still has its files.
fn is_there(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let words: Vec<&str> = rest.split_whitespace().collect();
    // proc_pid_stat(5): the third is the state, the twentieth the number of threads.
    let (state, threads) = (words[0], words[17]);
    !matches!(state, "Z" | "X") || threads.parse::<u32>().is_ok_and(|threads| threads > 1)
}

/// The processes that were started with this argument.
fn processes_with(arg: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("the processes").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_arg = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == arg.as_bytes())
    };
    pids.filter(has_arg).collect()
}

/// Increments a key of its own, many at a time, until it is told to stop: each reply is the next number, so each command is executed
/// once. Returns the last one.
fn count(mut client: Client, name: &str, stop: &AtomicBool) -> i64 {
    let (mut last, mut rng) = (0, Rng(name.len() as u64));
    while !stop.load(Relaxed) {
        let many = 1 + rng.below(50) as i64;
        let mut request = Vec::new();
        for _ in 0..many {
            write_command(&mut request, &["INCR", name]);
        }
        client.send(&request);
        for _ in 0..many {
            last += 1;
            assert_eq!(client.reply(), Reply::Int(last), "{name}");
        }
    }
    last
}

#[test]
fn clients_under_load_lose_nothing_and_no_command_is_executed_twice() {
    const CLIENTS: usize = 8;
    let dynasty = Dynasty::start(&[]);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = EndOnDrop(&stop);
        let counting: Vec<_> = (0..CLIENTS)
            .map(|at| {
                let (client, stop) = (dynasty.client(), &stop);
                scope.spawn(move || count(client, &format!("counter-{at}"), stop))
            })
            .collect();
        // Others connect all the time.
        let connecting = scope.spawn(|| {
            let mut connected = 0;
            while !stop.load(Relaxed) {
                assert_eq!(dynasty.client().call("PING"), Reply::Simple(b"PONG".to_vec()));
                connected += 1;
            }
            connected
        });
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(100));
            dynasty.upgrade();
        }
        thread::sleep(Duration::from_millis(100));
        drop(end);
        assert!(connecting.join().unwrap() > 10);
        let mut client = dynasty.client();
        for (at, counted) in counting.into_iter().enumerate() {
            let last = counted.join().unwrap();
            assert!(last > 100, "{last}");
            assert_eq!(client.call(&format!("GET counter-{at}")), bulk(last.to_string()));
        }
    });
    dynasty.end();
}

#[test]
fn what_a_connection_has_said_of_itself_stays() {
    let dynasty = Dynasty::start(&[]);
    let (mut client, mut silent) = (dynasty.client(), dynasty.client());
    client.call("HELLO 3 SETNAME somebody");
    client.call("SELECT 5");
    client.call("CLIENT SETINFO LIB-NAME library");
    let id = number(&client.call("CLIENT ID"));
    client.call("SET key five");
    let Reply::Bulk(sha) = client.call_args(&["SCRIPT", "LOAD", "return 7"]) else { panic!("a digest") };
    silent.send(b"CLIENT REPLY OFF\r\n");
    dynasty.upgrade();
    assert_eq!(number(&client.call("CLIENT ID")), id);
    assert_eq!(client.call("GET key"), bulk("five"));
    let Reply::Verbatim(_, line) = client.call("CLIENT INFO") else { panic!("RESP3") };
    let line = String::from_utf8(line).unwrap();
    assert!(line.contains("name=somebody") && line.contains("lib-name=library"), "{line}");
    assert_eq!(client.call(&format!("EVALSHA {} 0", String::from_utf8(sha).unwrap())), Reply::Int(7));
    assert!(number(&dynasty.client().call("CLIENT ID")) > id);
    silent.send(b"PING\r\nCLIENT REPLY ON\r\n");
    assert_eq!(silent.reply(), ok());
    dynasty.end();
}

#[test]
fn transactions_go_on() {
    let dynasty = Dynasty::start(&[]);
    let [mut multi, mut aborted, mut watching, mut watched] = [(); 4].map(|()| dynasty.client());
    multi.call("MULTI");
    assert_eq!(multi.call("INCR in-multi"), Reply::Simple(b"QUEUED".to_vec()));
    aborted.call("MULTI");
    aborted.call("NO-SUCH-COMMAND");
    watching.call("WATCH key");
    watched.call("WATCH key");
    watched.call("UNWATCH");
    dynasty.upgrade();
    assert_eq!(multi.call("EXEC"), array([Reply::Int(1)]));
    assert!(matches!(aborted.call("EXEC"), Reply::Error(error) if error.starts_with(b"EXECABORT")));
    // Nobody knows what has happened to the key meanwhile.
    for expected in [Reply::Null, array([])] {
        watching.call("MULTI");
        assert_eq!(watching.call("EXEC"), expected);
    }
    watched.call("MULTI");
    assert_eq!(watched.call("EXEC"), array([]));
    dynasty.end();
}

#[test]
fn who_waits_and_who_listens_goes_on() {
    let dynasty = Dynasty::start(&[]);
    let [mut waiting, mut timed, mut reading, mut subscribed, mut monitor, mut other] =
        [(); 6].map(|()| dynasty.client());
    other.call("XADD stream 1000-0 field before");
    subscribed.call("SUBSCRIBE channel");
    subscribed.call("PSUBSCRIBE pat*");
    waiting.send(b"BLPOP \"list\" 0\r\n");
    // How far a command had come is nothing to the one that waits after it.
    assert_eq!(timed.call("XREAD STREAMS a b c d e $ $ $ $ $"), Reply::Null);
    timed.send(b"BLPOP nothing 2\r\nPING\r\n");
    reading.send(b"XREAD BLOCK 0 STREAMS stream $\r\n");
    wait_until(|| "they wait".into(), || other.info("blocked_clients") == "3");
    // It waits for what comes after the entry that was the last one when it began, though that is gone.
    other.call("DEL stream");
    monitor.call("MONITOR");
    dynasty.upgrade();
    // Their commands begin anew, each in its turn.
    wait_until(|| "they wait again".into(), || other.info("blocked_clients") == "3");
    assert_eq!(other.call("PUBLISH channel one"), Reply::Int(1));
    assert_eq!(other.call("PUBLISH pattern two"), Reply::Int(1));
    assert_eq!(subscribed.reply(), bulks(["message", "channel", "one"]));
    assert_eq!(subscribed.reply(), bulks(["pmessage", "pat*", "pattern", "two"]));
    other.call("RPUSH list element");
    assert_eq!(waiting.reply(), bulks(["list", "element"]));
    other.call("XADD stream 5-0 field other");
    other.call("XADD stream 2000-0 field after");
    let entry = array([bulk("2000-0"), bulks(["field", "after"])]);
    assert_eq!(reading.reply(), array([array([bulk("stream"), array([entry])])]));
    assert_eq!(timed.reply(), Reply::Null);
    assert_eq!(timed.reply(), Reply::Simple(b"PONG".to_vec()));
    assert!(matches!(monitor.reply(), Reply::Simple(_)));
    dynasty.end();
}

#[test]
fn bytes_that_are_under_way_arrive() {
    let dynasty = Dynasty::start(&[]);
    let [mut half, mut slow, mut other] = [(); 3].map(|()| dynasty.client());
    half.send(b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$10\r\n01234");
    // More than the system takes, and nobody reads.
    let value = vec![b'v'; 30 << 20];
    slow.call_args(&[&b"SET"[..], b"large", &value]);
    slow.send(b"GET large\r\nPING\r\n");
    dynasty.upgrade();
    half.send(b"56789\r\n");
    assert_eq!(half.reply(), ok());
    assert_eq!(other.call("GET half"), bulk("0123456789"));
    assert!(slow.reply() == bulk(&value), "the value as it was");
    assert_eq!(slow.reply(), Reply::Simple(b"PONG".to_vec()));
    dynasty.end();
}

#[test]
fn who_cannot_be_handed_over_is_closed_between_two_commands() {
    let dynasty = Dynasty::start(&[]);
    let mut tracking = dynasty.client();
    tracking.call("HELLO 3");
    assert_eq!(tracking.call("CLIENT TRACKING ON"), ok());
    let mut mortal = dynasty.client();
    assert_eq!(dynasty.client().call("ACL SETUSER mortal on nopass +@all ~* &*"), ok());
    mortal.call("AUTH mortal any");
    dynasty.upgrade();
    assert_eq!(tracking.try_reply(), None);
    // Users that are in no file are gone as after a restart, and so are their connections.
    assert_eq!(mortal.try_reply(), None);
    assert!(dynasty.first.log().contains("there is no user mortal any more"), "{}", dynasty.first.log());
    dynasty.end();
}

#[test]
fn the_server_goes_on_if_another_one_cannot_take_over() {
    let dynasty = Dynasty::start(&[]);
    let mut client = dynasty.client();
    let told = |text: &str| {
        wait_until(|| format!("'{text}'\n{}", dynasty.first.log()), || dynasty.first.log().contains(text));
    };
    client.call("CLIENT PAUSE 100000 WRITE");
    dynasty.signal("USR2");
    told("goes on: CLIENT PAUSE is in force");
    client.call("CLIENT UNPAUSE");
    // A script that does not end holds up nobody else for long.
    let mut busy = dynasty.client();
    busy.send(b"EVAL \"while true do end\" 0\r\n");
    thread::sleep(Duration::from_millis(100));
    dynasty.signal("USR2");
    told("a command takes longer than 50 ms, again and again");
    let mut other = dynasty.client();
    wait_until(|| "the script ends".into(), || other.call("SCRIPT KILL") == ok());
    assert!(matches!(busy.reply(), Reply::Error(_)));
    assert_eq!(client.call("SET key value"), ok());
    assert_eq!(dynasty.pid(), dynasty.first.pid());
    dynasty.upgrade();
    assert_eq!(client.call("GET key"), bulk("value"));
    dynasty.end();
}

/// They were found out when the old one had let go of the data: both ended.
#[test]
fn options_that_cannot_be_followed_leave_the_server_as_it_is() {
    let folder = Folder::new();
    let [pid_file, conf, acl, below] = ["pid", "conf", "acl", "below"].map(|name| folder.join(name));
    fs::write(&acl, "user default on nopass ~* &* +@all\n").expect("a file");
    fs::write(&conf, "").expect("a file");
    let script = format!("program=$1; shift 2; exec \"$program\" serve {conf} \"$@\"");
    let first = Server::start_by_sh(&script, folder, &["--pidfile", &pid_file, "--aclfile", &acl]);
    let dynasty = Dynasty::of(first.expect("it serves"), pid_file);
    let mut client = dynasty.client();
    assert_eq!(client.call("SET key value"), ok());
    let is_refused = |why: &str| {
        assert!(!dynasty.try_upgrade(), "{}", dynasty.first.log());
        assert!(dynasty.first.log().contains(why), "{why}\n{}", dynasty.first.log());
        assert_eq!(dynasty.pid(), dynasty.first.pid());
    };
    for (line, why) in [
        ("flash-dir BELOW", "option 'flash-dir' is 'BELOW', and '' in the process that serves: restart"),
        ("medium emulated", "option 'medium' is 'emulated', and 'block' in the process that serves: restart"),
        (
            "cluster-enabled yes",
            "option 'cluster-enabled' is 'yes', and 'no' in the process that serves: restart",
        ),
        (
            "replicaof 127.0.0.1 1",
            "option 'replicaof' is '127.0.0.1 1', and '' in the process that serves: restart",
        ),
    ] {
        fs::write(&conf, line.replace("BELOW", &below)).expect("a file");
        is_refused(&why.replace("BELOW", &below));
    }
    fs::write(&conf, "").expect("a file");
    fs::write(&acl, "user default on nopass ~* &* +@all\nuser bob on +nosuchcommand\n").expect("a file");
    is_refused("nosuchcommand");
    fs::write(&acl, "user default on nopass ~* &* +@all\n").expect("a file");
    dynasty.upgrade();
    assert_eq!(client.call("GET key"), bulk("value"));
    dynasty.end();
}

/// The program is asked for by the name by which it was started, to which an upgrade may have given another program.
#[test]
fn a_link_leads_to_the_new_program() {
    let folder = Folder::new();
    let (pid_file, link) = (folder.join("pid"), folder.join("current"));
    let programs = ["old", "new"].map(|name| folder.join(name));
    for program in &programs {
        fs::copy(env!("CARGO_BIN_EXE_holdfast"), program).expect("a copy of the program");
    }
    symlink(&programs[0], &link).expect("a link");
    let script = format!("shift; exec {link} \"$@\"");
    let first = Server::start_by_sh(&script, folder, &["--pidfile", &pid_file]).expect("it serves");
    let dynasty = Dynasty::of(first, pid_file);
    fs::remove_file(&link).expect("it was there");
    symlink(&programs[1], &link).expect("a link");
    dynasty.upgrade();
    let serves = fs::read_link(format!("/proc/{}/exe", dynasty.pid())).expect("it runs");
    assert_eq!(serves.display().to_string(), programs[1]);
    dynasty.end();
}

/// Where clients are accepted may change at any moment, also while nobody accepts any.
#[test]
fn a_port_that_is_set_while_another_process_starts_is_listened_at() {
    let (dynasty, program) = Dynasty::start_replaceable();
    replace(&program, "start");
    let mut client = dynasty.client();
    for _ in 0..3 {
        let port = free_port();
        dynasty.signal("USR2");
        assert_eq!(client.call(&format!("config set port {port}")), ok());
        wait_until(|| dynasty.first.log(), || TcpStream::connect(("127.0.0.1", port)).is_ok());
    }
    dynasty.end();
}

/// What a program that is to take over does: it plays its part up to a step, and ends there.
const PLAYER: &str = r#"#!/usr/bin/env python3
import array, os, socket, struct, sys
step = STEP
if step == 'start': sys.exit(1)
peer = socket.socket(fileno=0)
def receive():
    data, control, _, _ = peer.recvmsg(4, socket.CMSG_LEN(4 * 250))
    while len(data) < 4:
        more = peer.recv(4 - len(data))
        if not more: sys.exit(1)
        data += more
    left, message = struct.unpack('<I', data)[0], b''
    while len(message) < left: message += peer.recv(left - len(message))
    return message
def say(word):
    message = b'*1\r\n$%d\r\n%s\r\n' % (len(word), word)
    peer.sendall(struct.pack('<I', len(message)) + message)
receive()
if step == 'offer': sys.exit(1)
if step == 'never': receive()
if step == 'nonsense': say(b'nonsense'); receive()
say(b'ready')
if step == 'ready': sys.exit(1)
assert b'go' in receive()
if step == 'go': sys.exit(1)
while True:
    message = receive()
    if step == 'client' and b'client' in message: sys.exit(1)
    if b'end' in message[:20]: sys.exit(1)
"#;

/// Gives the name of a program to one that plays its part up to a step.
fn replace(program: &str, step: &str) {
    fs::remove_file(program).expect("it is there");
    fs::write(program, PLAYER.replace("STEP", &format!("'{step}'"))).expect("another program");
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("it can be run");
}

#[test]
fn whatever_ends_the_new_process_clients_are_served() {
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    if !has_python {
        eprintln!("passed over: there is no python3 here");
        return;
    }
    for step in ["start", "offer", "nonsense", "ready", "go", "client", "end"] {
        let (dynasty, program) = Dynasty::start_replaceable();
        let stop = AtomicBool::new(false);
        replace(&program, step);
        let is_late = ["ready", "go", "client", "end"].contains(&step);
        thread::scope(|scope| {
            let end = EndOnDrop(&stop);
            let counting = scope.spawn(|| count(dynasty.client(), "counter", &stop));
            thread::sleep(Duration::from_millis(50));
            let first = dynasty.pid();
            dynasty.signal("USR2");
            let log = || dynasty.first.log();
            if step == "ready" {
                // It may be found out before the folder is closed, or after.
                wait_until(log, || log().contains("goes on:") || dynasty.pid() != first);
            } else if is_late {
                wait_until(log, || dynasty.pid() != first && !is_there(first));
                assert!(log().contains("another process of this version takes its place"), "{}", log());
            } else {
                wait_until(log, || log().contains("No other process takes over, and this one goes on:"));
                assert_eq!(dynasty.pid(), first);
            }
            thread::sleep(Duration::from_millis(50));
            drop(end);
            let last = counting.join().unwrap();
            assert_eq!(dynasty.client().call("GET counter"), bulk(last.to_string()), "{step}");
        });
        dynasty.end();
    }
}

#[test]
fn a_server_that_is_asked_to_end_waits_for_no_other_process() {
    let (dynasty, program) = Dynasty::start_replaceable();
    replace(&program, "never");
    assert_eq!(dynasty.client().call("SET key value"), ok());
    dynasty.signal("USR2");
    let started = || dynasty.first.log().contains("is to take over");
    wait_until(|| "the other one is started".into(), started);
    dynasty.end();
}

#[test]
fn whenever_either_process_is_killed_nothing_acknowledged_is_lost() {
    let mut rng = Rng(seed());
    let rounds = std::env::var("HOLDFAST_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let folder = Folder::new();
    let (pid_file, socket) = (folder.join("pid"), folder.join("socket"));
    let mut server = Some(Server::start_in(folder, &["--pidfile", &pid_file]));
    let mut acknowledged = [0; 4];
    for _ in 0..rounds {
        let dynasty = Dynasty::of(server.take().unwrap(), pid_file.clone());
        let told: Vec<AtomicU64> = acknowledged.iter().map(|last| AtomicU64::new(*last)).collect();
        let first = dynasty.first.pid();
        thread::scope(|scope| {
            for (at, told) in told.iter().enumerate() {
                let mut client = dynasty.client();
                scope.spawn(move || {
                    let name = format!("counter-{at}");
                    // Until the connection ends.
                    loop {
                        let mut request = Vec::new();
                        write_command(&mut request, &["INCR", &name]);
                        if client.try_send(&request).is_err() {
                            return;
                        }
                        match client.try_reply() {
                            Some(Reply::Int(n)) => {
                                assert_eq!(n as u64, told.load(Relaxed) + 1, "{name}");
                                told.store(n as u64, Relaxed);
                            }
                            Some(other) => panic!("{other:?}"),
                            None => return,
                        }
                    }
                });
            }
            thread::sleep(Duration::from_millis(20));
            dynasty.signal("USR2");
            thread::sleep(Duration::from_micros(rng.below(300_000)));
            let children = Command::new("pgrep").args(["-P", &first.to_string()]).output().expect("pgrep");
            let child = String::from_utf8(children.stdout).unwrap().trim().parse::<u32>().ok();
            match (rng.below(2), child) {
                (0, Some(child)) => signal(child, "KILL"),
                _ => signal(first, "KILL"),
            }
            thread::sleep(Duration::from_millis(300));
            // Whoever has survived serves; it goes, too. What is killed loses its arguments first, and then its files.
            let mut left = BTreeSet::from_iter(child);
            wait_until(
                || "all are gone".into(),
                || {
                    let running = processes_with(&socket);
                    running.iter().for_each(|pid| signal(*pid, "KILL"));
                    left.extend(running);
                    left.retain(|pid| is_there(*pid));
                    left.is_empty()
                },
            );
        });
        // The next one writes the same file.
        let Dynasty { first, last } = dynasty;
        drop(last);
        let folder = first.kill();
        assert_sound(&folder);
        let again = Server::start_in(folder, &["--pidfile", &pid_file]);
        let mut client = again.client();
        for (at, told) in told.iter().enumerate() {
            let told = told.load(Relaxed);
            let there: u64 = match client.call(&format!("GET counter-{at}")) {
                // On a busy machine nobody may have come to count.
                Reply::Null => 0,
                there => text(&there).parse().unwrap(),
            };
            // One may have been executed whose reply has not come.
            assert!(there == told || there == told + 1, "counter-{at} is {there}, acknowledged {told}");
            acknowledged[at] = there;
        }
        server = Some(again);
    }
    server.unwrap().stop();
}

#[test]
fn a_service_manager_is_told_which_process_serves() {
    let folder = Folder::new();
    let (path, pid_file) = (folder.join("notify"), folder.join("pid"));
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let script = format!("NOTIFY_SOCKET={path} exec \"$@\"");
    let first = Server::start_by_sh(&script, folder, &["--pidfile", &pid_file]).expect("it serves");
    let dynasty = Dynasty::of(first, pid_file);
    let next = || {
        let mut buffer = [0; 1000];
        let len = socket.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..len].to_vec()).expect("UTF-8")
    };
    assert!(!next().contains("READY") && next().contains("READY=1"));
    dynasty.upgrade();
    let told = next();
    assert_eq!(told.lines().next(), Some(&*format!("MAINPID={}", dynasty.pid())), "{told}");
    signal(dynasty.pid(), "TERM");
    assert!(next().contains("STOPPING=1"));
}

/// A unit with `WatchdogSec=` killed the server again and again.
#[test]
fn a_service_manager_that_wants_to_know_is_told_that_the_server_is_alive() {
    let folder = Folder::new();
    let (path, pid_file) = (folder.join("notify"), folder.join("pid"));
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let script = format!("NOTIFY_SOCKET={path} WATCHDOG_USEC=200000 WATCHDOG_PID=$$ exec \"$@\"");
    let first = Server::start_by_sh(&script, folder, &["--pidfile", &pid_file]).expect("it serves");
    let dynasty = Dynasty::of(first, pid_file);
    let wait_for = |what: &str| {
        let mut buffer = [0; 1000];
        loop {
            let len = socket.recv(&mut buffer).expect("a message");
            if buffer[..len].starts_with(what.as_bytes()) {
                return;
            }
        }
    };
    (0..3).for_each(|_| wait_for("WATCHDOG=1"));
    dynasty.upgrade();
    wait_for("MAINPID=");
    (0..3).for_each(|_| wait_for("WATCHDOG=1"));
    dynasty.end();
}
