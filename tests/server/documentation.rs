//! Each command that docs/operations.md and docs/migration.md tell an operator to type is typed here, in the order of the page, or is one of
//! the few that need another machine.

use crate::harness::{self, Folder, PATIENCE, Redis, Server, assert_sound, free_port, ok, told, wait_until};
use std::{
    collections::BTreeSet,
    fs,
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// What cannot be typed in a test: it installs or builds something, needs a service manager or a terminal, or another medium.
const PASSED_OVER: [&str; 10] = [
    "cargo install --locked --path .",
    "cargo deb",
    "apt install ./target/debian/*.deb",
    "systemctl enable --now holdfast",
    "docker build -f deploy/Dockerfile -t holdfast .",
    "docker run -p 6379:6379 -v holdfast:/data -e HOLDFAST_PASSWORD=secret holdfast serve --dir /data --requirepass secret",
    "journalctl -u holdfast -p warning",
    "holdfast serve --dir /mnt/pmem/data --medium dax",
    "holdfast top localhost:6379",
    "redis-cli SHUTDOWN",
];

/// The lines of a page that are to be typed: indented, and beginning with the name of a program.
fn commands(page: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("{ROOT}/docs/{page}")).expect("the page");
    let programs =
        ["holdfast", "redis-cli", "cargo", "apt", "systemctl", "docker", "journalctl", "mv", "kill"];
    let typed = |line: &str| {
        let line = line.strip_prefix("    ")?.trim();
        programs.contains(&line.split(' ').next()?).then(|| line.to_owned())
    };
    text.lines().filter_map(typed).collect()
}

/// A process that does not outlive the test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A shell in a folder, in which the names and ports of the pages mean those of the test.
struct Shell {
    folder: Folder,
    names: Vec<(&'static str, String)>,
}

impl Shell {
    fn start(&self, line: &str) -> Child {
        let line = self.names.iter().fold(line.to_owned(), |line, (there, here)| line.replace(there, here));
        let path = format!("{}:{}", self.folder.join("bin"), std::env::var("PATH").expect("a path"));
        Command::new("sh")
            .args(["-c", &line])
            .env("PATH", path)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh runs")
    }

    /// Runs a line to its end, and returns what it printed.
    fn run(&self, line: &str) -> String {
        let output = self.start(line).wait_with_output().expect("it ends");
        let told = told(&output);
        assert!(output.status.success(), "{line}: {told}");
        told
    }

    /// Starts a server by a line, and waits until it listens.
    fn serve(&self, line: &str, port: u16) -> Background {
        let mut server = Background(self.start(&format!("exec {line}")));
        wait_until(
            || format!("{line} serves"),
            || {
                assert_eq!(server.0.try_wait().expect("its state"), None, "{line}");
                TcpStream::connect(("localhost", port)).is_ok()
            },
        );
        server
    }

    fn new(names: Vec<(&'static str, String)>) -> Shell {
        let folder = Folder::new();
        fs::create_dir(folder.join("bin")).expect("a folder");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_holdfast"), folder.join("bin/holdfast"))
            .expect("a link");
        Shell { folder, names }
    }
}

fn unix_seconds() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs().to_string()
}

#[test]
fn what_is_passed_over_is_still_there() {
    let all: BTreeSet<String> = ["operations.md", "migration.md"].into_iter().flat_map(commands).collect();
    assert!(all.len() > 25, "{all:?}");
    for line in PASSED_OVER {
        assert!(all.contains(line), "{line}");
    }
}

#[test]
fn the_commands_of_the_page_on_operations_work() {
    let (port, metrics) = (free_port(), free_port());
    let backups = Folder::new();
    let shell = Shell::new(vec![
        ("localhost:6379", format!("localhost:{port}")),
        ("--port 6379", format!("--port {port} --pidfile holdfast.pid --logfile holdfast.log")),
        ("redis-cli ", format!("redis-cli -e -p {port} ")),
        ("--metrics-port 9121", format!("--port 0 --unixsocket socket --metrics-port {metrics}")),
        ("/backups/one", backups.join("one")),
        ("/var/lib/holdfast-", backups.join("")),
        ("--salvage DIR NEW", format!("--salvage {} {}", backups.join("new"), backups.join("salvaged"))),
    ]);
    // What is done with a server that runs comes before what ends it.
    let lines = commands("operations.md");
    let (mut server, mut done) = (None, 0);
    for line in lines.iter().filter(|line| !PASSED_OVER.contains(&&line[..])) {
        done += 1;
        match &line[..] {
            "holdfast config > holdfast.conf" => {
                shell.run(line);
                // As the page says: the mark before an option is removed.
                shell.run("sed -i 's/^#timeout 0/timeout 0/' holdfast.conf");
            }
            "holdfast serve holdfast.conf --port 6379" => {
                let shell_line = line.replace("serve holdfast.conf ", "serve ./holdfast.conf ");
                server = Some(shell.serve(&shell_line, port));
                assert_eq!(shell.run("redis-cli SET key value"), "OK\n");
            }
            "kill -USR2 $(cat holdfast.pid)" => {
                let before = shell.run("cat holdfast.pid");
                shell.run(line);
                let changed =
                    || shell.run("cat holdfast.pid") != before && shell.run("redis-cli PING") == "PONG\n";
                wait_until(|| "another process serves".into(), changed);
            }
            // The one that runs serves the rest of the page, too.
            "holdfast serve holdfast.conf" => {}
            line if line.starts_with("holdfast serve ") => drop(shell.serve(line, metrics)),
            "holdfast check holdfast-data" => {
                // It is in use.
                let told = shell.run(&format!("! {line} 2>&1"));
                assert!(told.contains("in use"), "{told}");
            }
            line if line.contains(" --lsn ") || line.contains(" --time ") => {
                // Writes, so that the log has clock marks, and a moment between two of them that a backup has.
                let mut words: Vec<&str> = line.split(' ').collect();
                let mut point = String::new();
                for number in 0..5 {
                    shell.run(&format!("redis-cli SET point {number}"));
                    if number == 2 {
                        point = unix_seconds();
                    }
                    thread::sleep(Duration::from_millis(1100));
                }
                let told = shell.run("holdfast backup --from localhost:6379 /backups/one");
                if line.contains(" --lsn ") {
                    let lsn = told.split("moment: LSN ").nth(1).and_then(|rest| rest.split('\n').next());
                    point = lsn.expect("it is told").to_owned();
                }
                *words.last_mut().expect("a value") = &point;
                let told = shell.run(&words.join(" "));
                assert!(told.ends_with("ok\n"), "{line}: {told}");
            }
            line if line.contains(" --salvage ") => drop(shell.run(line)),
            line if line.starts_with("holdfast restore ") || line.starts_with("holdfast check ") => {
                let told = shell.run(line);
                assert!(told.ends_with("ok\n"), "{line}: {told}");
            }
            line => {
                let told = shell.run(line);
                assert!(!told.contains("ERR"), "{line}: {told}");
            }
        }
    }
    assert!(done > 15, "{lines:?}");
    assert!(
        fs::read_to_string(shell.folder.join("holdfast.conf")).expect("the file").contains("\nmaxmemory 2")
    );
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(shell.folder.join("holdfast.log"))
        .is_ok_and(|log| log.contains("Received SIGHUP"))
    {
        assert!(Instant::now() < deadline, "the log is opened anew");
        thread::sleep(Duration::from_millis(10));
    }
    // What upgrades it: it ends in order, and the next one has all.
    drop(shell.start(&format!("redis-cli -p {port} SHUTDOWN")).wait_with_output());
    drop(server.take());
    // The process that has taken over removes its file when it ends.
    let pid_file = shell.folder.join("holdfast.pid");
    wait_until(|| "it ends".into(), || fs::metadata(&pid_file).is_err());
    let _server = shell.serve("holdfast serve ./holdfast.conf --port 6379", port);
    assert_eq!(shell.run("redis-cli GET key"), "value\n");
}

#[test]
fn the_commands_of_the_page_on_migration_work() {
    let redis = Redis::start(Folder::new(), &[]);
    assert_eq!(redis.client().call("SET key value"), ok());
    let port = free_port();
    let shell = Shell::new(vec![
        ("10.0.0.1 6379", format!("127.0.0.1 {}", redis.port())),
        ("10.0.0.1:6379", format!("127.0.0.1:{}", redis.port())),
        ("--port 6380", format!("--port {port}")),
        ("localhost:6380", format!("localhost:{port}")),
        ("localhost -p 6380 --rdb dump.rdb", format!("localhost -p {port} --rdb snapshot.rdb")),
        ("/var/lib/redis/", "redis/".into()),
    ]);
    // What a Redis has saved.
    fs::create_dir(shell.folder.join("redis")).expect("a folder");
    let saved = Redis::start(Folder::new(), &["--appendonly", "yes"]);
    saved.client().run_script("SET saved value => +OK\nSAVE => +OK");
    let from = folder_of(&saved);
    shell.run(&format!("cp -r {from}/dump.rdb {from}/appendonlydir redis/"));
    let (mut replica, mut done) = (None, 0);
    for line in commands("migration.md").iter().filter(|line| !PASSED_OVER.contains(&&line[..])) {
        done += 1;
        match &line[..] {
            line if line.starts_with("holdfast serve ") => {
                replica = Some(shell.serve(line, port));
                let status = || shell.run(&format!("redis-cli -p {port} INFO replication"));
                wait_until(|| "it has all".into(), || status().contains("master_link_status:up"));
                // The step before the import into it.
                shell.run("holdfast compare 10.0.0.1:6379 localhost:6380");
                shell.run(&format!("redis-cli -p {port} REPLICAOF NO ONE"));
            }
            line if line.ends_with(" --dir data") => {
                // Each into a folder of its own: this one is in use.
                shell.run(&line.replace("--dir data", &format!("--dir data{done}")));
            }
            line if line.contains(" --to ") => {
                // The page speaks of a server that is empty.
                shell.run(&format!("redis-cli -p {port} FLUSHALL"));
                shell.run(line);
                shell.run(&format!("redis-cli -p {port} SET key value"));
            }
            "holdfast export data dump.rdb" => {
                drop(replica.take());
                shell.run("rm dump.rdb");
                shell.run(line);
            }
            "holdfast export backups dump.rdb" => {
                replica = Some(shell.serve(&format!("holdfast serve --dir data --port {port}"), port));
                shell.run("holdfast backup --from localhost:6380 backups");
                shell.run("rm dump.rdb");
                shell.run(line);
            }
            line => drop(shell.run(line)),
        }
    }
    assert!(done >= 8, "{done}");
    // The last file has what was copied and what was imported.
    let folder = Folder::new();
    fs::copy(shell.folder.join("dump.rdb"), folder.join("dump.rdb")).expect("the file");
    shell.run(&format!("holdfast import dump.rdb --dir {}", folder.join("data")));
    assert_sound(&folder);
    let server = Server::start_in(folder, &[]);
    server.client().run_script("GET key => value\nGET saved => value\nDBSIZE => :2");
}

/// The folder of a Redis.
fn folder_of(redis: &Redis) -> String {
    let reply = redis.client().call("CONFIG GET dir");
    let holdfast_resp::Reply::Array(parts) = reply else { panic!("{reply:?}") };
    harness::text(&parts[1])
}
