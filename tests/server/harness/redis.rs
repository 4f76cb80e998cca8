//! A real Redis beside the server, and its client program.

use super::{Client, Folder, free_port, wait_until};
use std::{
    env, fs,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

/// Runs `redis-cli --cluster`, which must succeed; what it printed.
pub fn redis_cli(args: &[&str]) -> String {
    let output = Command::new("redis-cli").arg("--cluster").args(args).arg("--cluster-yes").output();
    let output = output.expect("redis-cli is installed");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "redis-cli --cluster {args:?}:\n{text}");
    text
}

/// A real Redis, which the program that checks RDB files is when it is called so, or the server that `HOLDFAST_REDIS` names: a newer one,
/// or a Valkey. It does not outlive the test.
pub struct Redis {
    process: Child,
    folder: Folder,
    port: u16,
}

impl Redis {
    fn command() -> Command {
        if let Some(other) = env::var_os("HOLDFAST_REDIS") {
            return Command::new(other);
        }
        let mut command = Command::new("redis-check-rdb");
        command.arg0("redis-server");
        command
    }

    /// The version of RDB files that it loads.
    pub fn rdb_version() -> &'static str {
        let output = Redis::command().arg("--version").output().expect("redis-check-rdb is installed");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let version = text.split("v=").nth(1).unwrap_or_else(|| panic!("no version: {text}"));
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().expect("a number"));
        let version = (numbers.next().expect("a number"), numbers.next().expect("a number"));
        if version >= (7, 2) { "11" } else { "10" }
    }

    /// Starts it with the file `dump.rdb` of the folder, if there is one, and more options.
    pub fn start(folder: Folder, options: &[&str]) -> Redis {
        let port = free_port();
        let log = fs::File::create(folder.join("redis.log")).expect("the log");
        let mut command = Redis::command();
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--unixsocket",
            &folder.join("redis"),
            "--dir",
            &folder.join(""),
        ]);
        command.args(["--enable-debug-command", "yes", "--save", ""]).args(options).stdin(Stdio::null());
        let process = command.stdout(log).spawn().expect("it runs");
        let mut redis = Redis { process, folder, port };
        wait_until(
            || "Redis serves".into(),
            || {
                let log = || fs::read_to_string(redis.folder.join("redis.log")).unwrap_or_default();
                assert_eq!(redis.process.try_wait().expect("its state"), None, "{}", log());
                log().contains("eady to accept connections")
            },
        );
        redis
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(&self.socket()).expect("a connection")
    }

    /// The Unix socket that it listens on.
    pub fn socket(&self) -> String {
        self.folder.join("redis")
    }

    /// The TCP port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
