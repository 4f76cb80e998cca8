//! `holdfast top`, printed and in a pseudo-terminal.

use crate::harness::{EndOnDrop, PATIENCE, Server, ok, run, wait_until};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};
use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

fn socket(server: &Server) -> String {
    server.folder().join("socket")
}

/// What `holdfast top` prints with these arguments; it must end well.
fn printed(args: &[&str]) -> String {
    let output = run(&[&["top"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The words of a line behind how it begins.
fn words<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
    let line = text.lines().find_map(|line| line.strip_prefix(start));
    line.unwrap_or_else(|| panic!("there is no {start}: {text}")).split_whitespace().collect()
}

#[test]
fn a_look_tells_what_a_second_brought() {
    let server = Server::start(&["--slowlog-log-slower-than", "0", "--flash-endurance-tbw", "600"]);
    let mut client = server.client();
    client.run_script("set key value => +OK\n config set slowlog-log-slower-than -1 => +OK");
    let (address, is_over) = (socket(&server), AtomicBool::new(false));
    let text = thread::scope(|scope| {
        let _end = EndOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                assert_eq!(client.call("set key value"), ok());
                thread::sleep(Duration::from_millis(5));
            }
        });
        printed(&[&address, "--once"])
    });
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(text.starts_with(&format!("Holdfast {} at {address}, up ", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(text.contains("\nAll is well: reads and writes are served.\n"), "{text}");
    // Two hundred at most, and few on a busy machine.
    let sets: u32 = words(&text, "set ")[0].parse().expect("a number");
    assert!((2..=210).contains(&sets), "{text}");
    assert!(words(&text, "set ")[1].starts_with('<'), "{text}");
    assert_eq!(words(&text, "Keys ")[0], "1");
    assert_eq!(words(&text, "Hits ")[..5], ["values", "in", "memory", "-", "keys"]);
    let throughput: u32 =
        words(&text, "Throughput ")[0].strip_suffix("/s").expect("a rate").parse().expect("a number");
    assert!(throughput >= sets, "{text}");
    assert!(text.contains("% of its rating used, lasts "), "{text}");
    let slow = text.split("Slow command").nth(1).expect("slow commands");
    assert!(slow.contains("\nset ") && !slow.contains("value"), "{text}");
}

#[test]
fn what_is_wrong_comes_first() {
    let server = Server::start(&[]);
    server.client().run_script("client pause 20000 write => +OK");
    let text = printed(&[&socket(&server), "--once"]);
    let lines: Vec<&str> = text.lines().collect();
    let told = [
        "Commands wait.",
        "  Cause: CLIENT PAUSE was called",
        "  What to do: CLIENT UNPAUSE lets them go on.",
    ];
    assert_eq!(lines[1..4], told);
    assert!(!text.contains("All is well"));
}

#[test]
fn a_pipe_gets_one_look_after_another() {
    let server = Server::start(&[]);
    let mut top = Process::start(&["top", &socket(&server)], Stdio::piped(), Stdio::null());
    let mut lines =
        BufReader::new(top.0.stdout.take().expect("a pipe")).lines().map(|line| line.expect("UTF-8"));
    for _ in 0..2 {
        assert!(lines.any(|line| line.starts_with("Holdfast ")), "it has ended");
    }
    drop(lines);
    assert_eq!(top.end(), Some(0));
}

#[test]
fn who_may_not_ask_is_told() {
    let server = Server::start(&["--requirepass", "secret"]);
    let address = socket(&server);
    let refusal = |args: &[&str]| {
        let output = run(&[&["top"], args].concat());
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    assert!(refusal(&[&address]).contains("NOAUTH Authentication required."));
    assert!(refusal(&[&address, "--password", "wrong"]).contains("WRONGPASS"));
    assert!(printed(&[&address, "--password", "secret", "--once"]).contains("All is well"));
    assert!(
        printed(&[&address, "--user", "default", "--password", "secret", "--once"]).contains("All is well")
    );
    assert!(refusal(&["/nowhere/socket"]).starts_with("holdfast: cannot ask /nowhere/socket: No such file"));
    assert!(refusal(&["nowhere"]).contains("'nowhere' is neither HOST:PORT nor the path of a Unix socket"));
    for wrong in [&["--user"][..], &["--fast"], &[&address, &address]] {
        assert!(refusal(wrong).contains("see holdfast top --help"), "{wrong:?}");
    }
}

/// A process that does not outlive the test.
struct Process(Child);

impl Process {
    fn start(args: &[&str], stdout: Stdio, stdin: Stdio) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        Process(command.args(args).stdin(stdin).stdout(stdout).spawn().expect("it starts"))
    }

    /// Waits until it ends.
    fn end(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until(
            || "it ends".into(),
            || {
                status = self.0.try_wait().expect("its state");
                status.is_some()
            },
        );
        status.and_then(|status| status.code())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pseudo-terminal: what is typed, the end of the program in it, and what it has shown so far.
fn terminal() -> (File, File, Arc<Mutex<Vec<u8>>>) {
    let typed: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&typed).and_then(|()| unlockpt(&typed)).expect("it may be used");
    let name = ptsname(&typed, Vec::new()).expect("it has a name");
    let inner =
        OpenOptions::new().read(true).write(true).open(name.to_str().expect("UTF-8")).expect("its end");
    tcsetwinsize(&typed, Winsize { ws_row: 30, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    let shown = Arc::<Mutex<Vec<u8>>>::default();
    let (mut source, sink) = (File::from(typed.try_clone().expect("a copy")), shown.clone());
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        // The terminal ends with an error.
        while let Ok(read) = source.read(&mut bytes) {
            sink.lock().expect("no holder panics").extend_from_slice(&bytes[..read]);
        }
    });
    (File::from(typed), inner, shown)
}

#[test]
fn a_terminal_is_drawn_anew_each_second_and_left_as_it_was() {
    let server = Server::start(&[]);
    let (mut typed, inner, shown) = terminal();
    let copy = || Stdio::from(inner.try_clone().expect("a copy"));
    let before = tcgetattr(&inner).expect("its state");
    let mut top = Process::start(&["top", &socket(&server)], copy(), copy());
    let has = |what: &str| String::from_utf8_lossy(&shown.lock().expect("no holder panics")).contains(what);
    let looks =
        || String::from_utf8_lossy(&shown.lock().expect("no holder panics")).matches("All is well").count();
    wait_until(|| "it is drawn three times".into(), || looks() >= 3);
    assert!(has("\x1b[?1049h") && has("\x1b[?25l"), "the other screen, without a cursor");
    assert!(!tcgetattr(&inner).expect("its state").local_modes.contains(rustix::termios::LocalModes::ECHO));
    // No line is longer than the terminal is wide: the last words of this one do not fit.
    assert!(has("Throughput") && !has("errors"), "{}", String::from_utf8_lossy(&shown.lock().unwrap()));
    tcsetwinsize(&typed, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
    wait_until(|| "it uses the room".into(), || has("errors"));

    let folder = server.stop();
    wait_until(|| "it tells that the server is gone".into(), || has("The server does not answer"));
    let server = Server::start_in(folder, &[]);
    let seen = looks();
    wait_until(|| "it sees the server again".into(), || looks() > seen);

    let began = Instant::now();
    typed.write_all(b"q").expect("it is typed");
    assert_eq!(top.end(), Some(0));
    assert!(began.elapsed() < PATIENCE / 10, "a key is heeded at once");
    wait_until(|| "the screen is back".into(), || has("\x1b[?1049l") && has("\x1b[?25h"));
    assert_eq!(tcgetattr(&inner).expect("its state").local_modes, before.local_modes);
    drop(server);
}
