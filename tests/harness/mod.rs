//! A server of one's own, and clients of it.

// Each test program uses a part of this.
#![allow(dead_code)]

use holdfast_resp::{Reply, write_command};
use std::{
    env, fs,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The program under test.
pub fn holdfast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Output {
    holdfast().args(args).output().expect("the program runs")
}

/// A new empty folder, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one.
    pub fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("holdfast-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new folder");
        Folder(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path within it, as text.
    pub fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server that listens on a Unix socket in its folder.
pub struct Server {
    process: Child,
    folder: Folder,
}

impl Server {
    /// Starts one with more options and waits until it serves.
    pub fn start(options: &[&str]) -> Server {
        Server::start_in(Folder::new(), options)
    }

    /// The same with data that are there.
    pub fn start_in(folder: Folder, options: &[&str]) -> Server {
        let process = holdfast()
            .args([
                "serve",
                "--port",
                "0",
                "--unixsocket",
                &folder.join("socket"),
                "--dir",
                &folder.join("data"),
            ])
            .args(["--logfile", &folder.join("log"), "--workers", "2", "--enable-debug-command", "yes"])
            .args(options)
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the server starts");
        let mut server = Server { process, folder };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(server.folder.join("socket")).is_err() {
            let ended = server.process.try_wait().expect("its state");
            assert!(ended.is_none(), "the server ended: {ended:?}\n{}", server.log());
            assert!(Instant::now() < deadline, "the server does not start\n{}", server.log());
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// What it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Its folder: `socket`, `data`, `log`.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        let stream = UnixStream::connect(self.folder.join("socket")).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Client { stream, input: Vec::new() }
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().expect("its state") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not end\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it at once, as a crash does, and hands back its folder.
    pub fn kill(mut self) -> Folder {
        self.process.kill().expect("it is ours");
        self.wait();
        std::mem::replace(&mut self.folder, Folder(PathBuf::new()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection.
pub struct Client {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Client {
    /// Sends a command, words separated by spaces, and returns the reply.
    pub fn call(&mut self, command: &str) -> Reply {
        let args: Vec<&str> = command.split_whitespace().collect();
        self.call_args(&args)
    }

    /// Sends a command and returns the reply.
    pub fn call_args<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Reply {
        let mut request = Vec::new();
        write_command(&mut request, args);
        self.send(&request);
        self.reply()
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// The next reply.
    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("the connection is open")
    }

    /// The next reply, or `None` if the server closes the connection.
    pub fn try_reply(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, length)) = Reply::parse(&self.input).expect("a valid reply") {
                self.input.drain(..length);
                return Some(reply);
            }
            let mut chunk = [0; 65536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("no reply: {e}"),
            }
        }
    }

    /// Whether the server has nothing to say for a while.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
        let mut chunk = [0; 1];
        let silent = self.stream.read(&mut chunk).is_err();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        silent
    }

    /// Closes the sending half.
    pub fn finish(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    }
}

/// `+OK`.
pub fn ok() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

/// A bulk string.
pub fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}

/// An error.
pub fn error(text: &str) -> Reply {
    Reply::Error(text.as_bytes().to_vec())
}

/// The text of a bulk string or verbatim string.
pub fn text(reply: &Reply) -> String {
    String::from_utf8(reply.as_bytes().expect("a text").to_vec()).expect("UTF-8")
}
