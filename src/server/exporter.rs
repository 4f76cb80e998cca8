//! A process of its own, `holdfast export-moment`, that writes what a server has pinned as an RDB file: so its memory is not the server's, and no
//! value that it reads displaces one that is in use.

use holdfast_store::Plan;
use std::{
    io::{self, Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};
use tokio::sync::mpsc;

/// Bytes that come from the process at once.
const PIECE: usize = 64 << 10;
/// How many of them may wait.
const PIECES: usize = 4;

/// What comes from the process.
pub enum Part {
    /// A piece of the file.
    Bytes(Vec<u8>),
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
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Arc::new(Mutex::new(pipes.spawn()?));
        let (sender, receiver) = mpsc::channel(PIECES);
        let process = Exporter { child: child.clone(), parts: receiver };
        let plan = plan.encode();
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
    let mut told = String::new();
    stderr.expect("a pipe").read_to_string(&mut told).map_err(failed)?;
    let status = child.lock().expect("no holder panics").wait().map_err(failed)?;
    if status.success() { Ok(told) } else { Err(format!("{status}: {}", told.trim().replace('\n', " "))) }
}
