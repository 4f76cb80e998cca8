//! A process of its own, `holdfast export-moment`, that writes what a server has pinned as an RDB file: so its memory is not the server's, and no
//! value that it reads displaces one that is in use.

use crate::util::console::errln;
use holdfast_store::Plan;
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Bytes that come from the process at once.
const PIECE: usize = 64 << 10;
/// How many of them may wait.
const PIECES: usize = 4;
/// What a line of the process's standard error begins with that tells how many keys of how many are done.
const PROGRESS: &str = "progress ";
/// How often there is such a line at most.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked whether the process has ended that has told all.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What comes from the process.
pub enum Part {
    /// A piece of the file.
    Bytes(Vec<u8>),
    /// Of so many keys so many are done.
    Progress { done: u64, all: u64 },
    /// The process has ended: what it has told of the file, or why that is not whole.
    End(Result<String, String>),
}

/// The process, and a thread that takes the file from it. Both end when this is dropped.
pub struct Exporter {
    child: Arc<Mutex<Child>>,
    /// What has come. The last part is an end.
    pub parts: mpsc::Receiver<Part>,
}

impl Exporter {
    /// Starts it. `dir`: the server's data folder. `version`: of the format, or `auto`. `what`: `keys`, `functions` or both.
    pub fn start(dir: &str, version: &str, what: &str, plan: &Plan) -> io::Result<Exporter> {
        // The program as it was started, also if there is another one at its path by now.
        let mut command = Command::new("/proc/self/exe");
        command.args(["export-moment", dir, version, what]);
        Exporter::spawn(command, plan.encode())
    }

    fn spawn(mut command: Command, plan: String) -> io::Result<Exporter> {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Arc::new(Mutex::new(pipes.spawn()?));
        let (sender, receiver) = mpsc::channel(PIECES);
        let process = Exporter { child: child.clone(), parts: receiver };
        thread::Builder::new().name("snapshot".into()).spawn(move || {
            let ended = pass_on(&child, &plan, &sender);
            // Nobody may be there any more to be told.
            let _ = sender.blocking_send(Part::End(ended));
        })?;
        Ok(process)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.lock().expect("no holder panics").kill();
    }
}

/// Takes the file from the process until that ends.
fn pass_on(child: &Mutex<Child>, plan: &str, sender: &mpsc::Sender<Part>) -> Result<String, String> {
    let (stdin, stdout, stderr) = {
        let mut child = child.lock().expect("no holder panics");
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    };
    let failed = |e: io::Error| format!("the process that writes it: {e}");
    let stderr = stderr.expect("a pipe");
    let listener = sender.clone();
    let listen = move || listen(stderr, &listener);
    let stderr = thread::Builder::new().name("snapshot".into()).spawn(listen).map_err(failed)?;
    // A process that takes no plan ends, and says why.
    let _ = stdin.expect("a pipe").write_all(plan.as_bytes());
    let mut stdout = stdout.expect("a pipe");
    loop {
        let mut bytes = Vec::with_capacity(PIECE);
        let n = stdout.by_ref().take(PIECE as u64).read_to_end(&mut bytes).map_err(failed)?;
        if n == 0 || sender.blocking_send(Part::Bytes(bytes)).is_err() {
            break;
        }
    }
    drop(stdout);
    let told = stderr.join().expect("a panic ends the process").map_err(failed)?;
    let status = wait(child).map_err(failed)?;
    if status.success() { Ok(told) } else { Err(format!("{status}: {}", told.trim().replace('\n', " "))) }
}

/// Passes on how far the process is, and returns what else it tells.
fn listen(stderr: ChildStderr, sender: &mpsc::Sender<Part>) -> io::Result<String> {
    let mut told = String::new();
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        let numbers = line.strip_prefix(PROGRESS).and_then(|numbers| numbers.split_once('/'));
        match numbers.map(|(done, all)| (done.parse(), all.parse())) {
            // Nobody may be there any more to be told.
            Some((Ok(done), Ok(all))) => drop(sender.blocking_send(Part::Progress { done, all })),
            _ => told += &(line + "\n"),
        }
    }
    Ok(told)
}

/// Waits for the end of the process. Who wants to kill it meanwhile does not wait.
fn wait(child: &Mutex<Child>) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.lock().expect("no holder panics").try_wait()? {
            return Ok(status);
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// In the process: tells how far it is, now and then.
pub struct Teller(Instant);

impl Teller {
    /// Nothing is told so far.
    pub fn new() -> Teller {
        Teller(Instant::now())
    }

    /// So many keys of so many are done.
    pub fn tell(&mut self, done: u64, all: u64) {
        if self.0.elapsed() >= TELL_EVERY {
            self.0 = Instant::now();
            errln!("{PROGRESS}{done}/{all}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of a shell.
    fn start(script: &str) -> Exporter {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Exporter::spawn(command, String::new()).expect("it starts")
    }

    #[test]
    fn a_process_that_does_not_end_holds_nobody_up() {
        // It has told all: its pipes are closed.
        let process = start("exec >&- 2>&-; exec sleep 30");
        // The thread waits for its end by now, or nearly so.
        thread::sleep(Duration::from_millis(100));
        let (child, start) = (process.child.clone(), Instant::now());
        drop(process);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        while Arc::strong_count(&child) > 1 {
            assert!(start.elapsed() < Duration::from_secs(10), "its thread has not ended");
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn what_a_process_tells_is_passed_on() {
        let mut process = start("echo progress 1/2 >&2; echo progress x >&2; echo file; echo keys: 3 >&2");
        let (mut file, mut keys) = (Vec::new(), Vec::new());
        loop {
            match process.parts.blocking_recv().expect("an end") {
                Part::Bytes(bytes) => file.extend(bytes),
                Part::Progress { done, all } => keys.push((done, all)),
                Part::End(told) => break assert_eq!(told, Ok("progress x\nkeys: 3\n".into())),
            }
        }
        assert_eq!((&file[..], &keys[..]), (&b"file\n"[..], &[(1, 2)][..]));
    }
}
