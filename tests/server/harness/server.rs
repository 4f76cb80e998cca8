//! The real binary.

use super::{Client, Folder, wait_until};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::{
    fs,
    io::Read,
    mem,
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::Duration,
};

/// The program, with nothing to read.
pub fn holdfast() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.stdin(Stdio::null());
    command
}

/// Runs the program to its end, which it must reach soon.
pub fn run(args: &[&str]) -> Output {
    let mut command = holdfast();
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().expect("the program runs"));
    // It prints less than a pipe holds.
    let status = process.wait(|| format!("holdfast {args:?} ends"));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    process.0.stdout.as_mut().expect("a pipe").read_to_end(&mut stdout).expect("what it prints");
    process.0.stderr.as_mut().expect("a pipe").read_to_end(&mut stderr).expect("what it prints");
    Output { status, stdout, stderr }
}

/// What a program printed, but for the lines that say how far it was, which it prints if it takes long.
pub fn told(output: &Output) -> String {
    let text = String::from_utf8([&output.stdout[..], &output.stderr].concat()).expect("UTF-8");
    let is_progress = |line: &str| line.starts_with(['[']) && line.contains("] ") && line.contains(" % of ");
    text.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

/// Runs the program to its end: whether it succeeded, and what it [told].
pub fn program(args: &[&str]) -> (bool, String) {
    let output = run(args);
    (output.status.success(), told(&output))
}

/// The same with `holdfast cluster`.
pub fn holdfast_cluster(args: &[&str]) -> (bool, String) {
    program(&[&["cluster"], args].concat())
}

/// `holdfast check` of a server's folder: whether its data is sound, and everything that was printed.
pub fn check(folder: &Folder) -> (bool, String) {
    let output = run(&["check", &folder.join("data")]);
    let text = told(&output);
    match output.status.code() {
        Some(0) => (true, text),
        Some(1) => (false, text),
        _ => panic!("holdfast check ended with {}:\n{text}", output.status),
    }
}

/// Fails if `holdfast check` finds fault with a server's folder; else everything that was printed.
pub fn assert_sound(folder: &Folder) -> String {
    let (is_sound, text) = check(folder);
    assert!(is_sound, "{text}");
    text
}

/// A TCP port of this machine that nobody listens on, nor is it given to another one of this process. It is not one that the system gives
/// to a connection while a server that is to listen there does not run, nor is the one 10,000 above, where nodes of a cluster listen.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    // Other test processes begin elsewhere.
    let begin = std::process::id().wrapping_mul(211);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut next =
        (0..FIRST).map(|_| (FIRST + begin.wrapping_add(GIVEN.fetch_add(1, Relaxed)) % FIRST) as u16);
    next.find(is_free).expect("a port")
}

/// A process that does not outlive the test.
struct Process(Child);

impl Process {
    fn wait(&mut self, what: impl FnOnce() -> String) -> ExitStatus {
        let mut status = None;
        wait_until(what, || {
            status = self.0.try_wait().expect("its state");
            status.is_some()
        });
        status.expect("it has ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that listens on a Unix socket in its folder.
pub struct Server {
    process: Process,
    options: Vec<String>,
    // After the process, which uses it.
    folder: Folder,
}

impl Server {
    /// Starts one with more options and waits until it serves.
    pub fn start(options: &[&str]) -> Server {
        Server::start_in(Folder::new(), options)
    }

    /// One that listens on a TCP port as well, and the port.
    pub fn start_with_port(options: &[&str]) -> (Server, u16) {
        let port = free_port();
        let text = port.to_string();
        let options = [&["--port", &text, "--bind", "127.0.0.1"], options].concat();
        (Server::start(&options), port)
    }

    /// The same with data that are there.
    pub fn start_in(folder: Folder, options: &[&str]) -> Server {
        Server::spawn(folder, options).wait_until_it_serves()
    }

    fn wait_until_it_serves(mut self) -> Server {
        let (process, socket, log) =
            (&mut self.process.0, self.folder.join("socket"), self.folder.join("log"));
        wait_until(
            || "the server serves".into(),
            || {
                if let Some(status) = process.try_wait().expect("its state") {
                    panic!("the server ended with {status}:\n{}", read(&log));
                }
                Client::connect(&socket).is_ok()
            },
        );
        self
    }

    /// The same on a medium of so many bytes (0: no limit, and the medium tells none), which is gone with the server; `None` where none can be had.
    pub fn start_on_small_medium(bytes: u64, options: &[&str]) -> Option<Server> {
        let (folder, size) = (Folder::new(), format!("size={bytes}"));
        let data = folder.join("data");
        fs::create_dir(&data).expect("a folder");
        let mounted = |command: &str| {
            let mut unshare = Command::new("unshare");
            let mount = format!("mount -t tmpfs -o \"$1\" none \"$2\" && shift 2 && {command}");
            unshare.args(["-Urm", "sh", "-c", &mount, "sh", &size, &data]);
            unshare
        };
        if !mounted("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return None;
        }
        let mut command = mounted("exec \"$@\"");
        command.arg(env!("CARGO_BIN_EXE_holdfast")).stdin(Stdio::null());
        Some(Server::spawn_by(command, folder, options).wait_until_it_serves())
    }

    /// The same with its calls of the system written to the file `calls` in its folder; `None` where no process may trace
    /// another one.
    pub fn start_traced(calls: &[&str], options: &[&str]) -> Option<Server> {
        Server::start_by_strace(&format!("trace={}", calls.join(",")), options)
    }

    /// The same with a call of the system that fails, from one of each thread's on, e.g. `pwritev2:error=EIO:when=20+`; `None`
    /// where no process may trace another one.
    pub fn start_failing(call: &str, options: &[&str]) -> Option<Server> {
        Server::start_by_strace(&format!("inject={call}"), options)
    }

    fn start_by_strace(what: &str, options: &[&str]) -> Option<Server> {
        let traced = |out: &str| {
            let mut strace = Command::new("strace");
            // The tracer is the child: what we start, and stop, is the server.
            strace.args(["-D", "-f", "-y", "-s", "40", "-o", out, "-e", what]);
            strace
        };
        let can_trace =
            traced("/dev/null").arg("true").stderr(Stdio::null()).status().expect("strace is installed");
        if !can_trace.success() {
            return None;
        }
        let folder = Folder::new();
        let mut command = traced(&folder.join("calls"));
        command.arg(env!("CARGO_BIN_EXE_holdfast")).stdin(Stdio::null());
        Some(Server::spawn_by(command, folder, options).wait_until_it_serves())
    }

    /// The same by a script of sh, in which `"$@"` is the command that serves; `None` if it ends before it serves.
    pub fn start_by_sh(script: &str, folder: Folder, options: &[&str]) -> Option<Server> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_holdfast")]).stdin(Stdio::null());
        let mut server = Server::spawn_by(command, folder, options);
        let (mut has_ended, socket) = (false, server.folder.join("socket"));
        wait_until(
            || "the server serves".into(),
            || {
                has_ended = server.process.0.try_wait().expect("its state").is_some();
                has_ended || Client::connect(&socket).is_ok()
            },
        );
        (!has_ended).then_some(server)
    }

    /// The same without waiting. The first option may be a configuration file.
    pub fn spawn(folder: Folder, options: &[&str]) -> Server {
        Server::spawn_by(holdfast(), folder, options)
    }

    fn spawn_by(mut command: Command, folder: Folder, options: &[&str]) -> Server {
        let log = fs::File::create(folder.join("log")).expect("the log");
        let file = options.iter().take(1).filter(|option| !option.starts_with("--")).count();
        let process = command
            .arg("serve")
            .args(&options[..file])
            .args(["--port", "0", "--unixsocket", &folder.join("socket"), "--dir", &folder.join("data")])
            .args(["--workers", "2", "--enable-debug-command", "yes"])
            .args(&options[file..])
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let options = options.iter().map(|option| option.to_string()).collect();
        Server { process: Process(process), options, folder }
    }

    /// What it logged since its start.
    pub fn log(&self) -> String {
        read(&self.folder.join("log"))
    }

    /// Its folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(&self.folder.join("socket")).expect("a connection")
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Sends a signal by its name.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.pid())]).status();
        assert!(sent.expect("sh runs").success());
    }

    /// Stops it for a while: once this returns, none of its threads runs until it resumes.
    pub fn suspend(&self) {
        self.signal("STOP");
        let process = WaitId::Pid(Pid::from_child(&self.process.0));
        // Whoever waits for its end must still find it.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(process, options).expect("a child").expect("it was waited for");
        assert!(status.stopped(), "it has ended\n{}", self.log());
    }

    /// Has it go on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> ExitStatus {
        let log = self.folder.join("log");
        self.process.wait(|| format!("the server ends\n{}", read(&log)))
    }

    /// Stops it at once, as a crash does, and hands back its folder.
    pub fn kill(self) -> Folder {
        drop(self.process);
        self.folder
    }

    /// Stops it in order, and hands back its folder.
    pub fn stop(mut self) -> Folder {
        self.signal("TERM");
        assert_eq!(self.wait().code(), Some(0), "{}", self.log());
        self.folder
    }

    /// Stops it in one way, e.g. by [`Server::kill`], and starts another one with the same data and options.
    pub fn restart(self, stop: impl FnOnce(Server) -> Folder) -> Server {
        let options = self.options.clone();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Server::start_in(stop(self), &options)
    }

    /// Files that it has open.
    pub fn open_files(&self) -> u64 {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("it runs").count() as u64
    }

    /// Bytes of its memory that are in RAM.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let field = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        field.expect("VmRSS").trim().parse::<u64>().expect("a number") * 1024
    }

    /// The same, once that is as it was for a while: when a server has loaded all it has, its heap is given huge pages.
    pub fn settled_bytes(&self) -> u64 {
        let mut bytes = 0;
        wait_until(
            || "memory is as large as it was".into(),
            || {
                thread::sleep(Duration::from_millis(200));
                let last = mem::replace(&mut bytes, self.resident_bytes());
                last == bytes
            },
        );
        bytes
    }

    /// Seconds of CPU that it has used, to a hundredth.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("it runs");
        // The second field, a name in parentheses, may hold blanks; user and system time are the 14th and 15th.
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_ascii_whitespace().collect();
        let ticks = |at: usize| fields[at - 3].parse::<u64>().expect("a number");
        (ticks(14) + ticks(15)) as f64 / 100.0
    }
}

fn read(log: &str) -> String {
    fs::read_to_string(log).unwrap_or_default()
}
