//! SYNC of a client that wants a snapshot: what the server holds at one moment goes to it as an RDB file, behind `$EOF:` and a mark that
//! comes again at its end. The moment is kept by a lease, as for a backup, and read where it lies by a process of its own, `holdfast
//! export-moment`, so that its memory is not the server's, and no value of it displaces one that is in use.

use super::{Closed, Connection};
use crate::{
    admin::log::log,
    config::{Config, Opt},
    server::random_id,
    session::snapshot::SnapshotRequest,
};
use holdfast_resp::Writer;
use holdfast_store::{Begin, Lease, Plan};
use std::{
    future::poll_fn,
    io::{self, Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    task::Poll,
    thread,
    time::Duration,
};
use tokio::{sync::mpsc, time};

/// How often it is looked whether the moment can be kept.
const TICK: Duration = Duration::from_millis(2);
/// How often the client hears something while the file is prepared.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Bytes that go from the process to the connection at once.
const PIECE: usize = 64 << 10;
/// How many of them may wait for the connection.
const PIECES: usize = 4;
/// Bytes that may wait for the client before more are taken from the process.
const PENDING_MAX: usize = 256 << 10;

/// Why there is no snapshot, in words for the client.
type Failure = String;

impl Connection {
    /// Answers SYNC or PSYNC; after it the connection is of no more use.
    pub(super) async fn send_snapshot(&mut self, request: SnapshotRequest) -> Result<(), Closed> {
        let addr = self.handle.client.addr.clone();
        log!(Notice, "client {addr} asks for a snapshot");
        // A client that waits is not idle.
        self.handle.blocked.set(true);
        let sent = match self.keep_moment().await? {
            Ok((lease, plan)) => self.send_moment(request, lease, plan).await?,
            Err(failure) => Err((failure, false)),
        };
        match sent {
            Ok(bytes) => log!(Notice, "Snapshot for client {addr}: {bytes} bytes are sent"),
            Err((failure, has_begun)) => {
                log!(Warning, "Snapshot for client {addr}: {failure}");
                if has_begun {
                    // Without the mark at its end the file does not count.
                    return Err(Closed::ByServer);
                }
                Writer::new(&mut self.output.open, self.session.proto).error(format!("ERR {failure}"));
            }
        }
        Ok(())
    }

    /// Waits until the server keeps a moment.
    async fn keep_moment(&mut self) -> Result<Result<(Lease, Plan), Failure>, Closed> {
        let server = self.events.worker.server.clone();
        let (mut kept, mut told) = (None, time::Instant::now());
        loop {
            if kept.is_none() {
                kept = match server.store.begin_backup() {
                    Begin::Leased(lease) => Some(lease),
                    Begin::NotNow => None,
                    Begin::InUse => {
                        return Ok(Err("A backup is under way, or another client gets a snapshot".into()));
                    }
                };
            }
            if let Some(lease) = kept.take() {
                match lease.plan() {
                    Ok(Some(plan)) => return Ok(Ok((lease, plan))),
                    Ok(None) => kept = Some(lease),
                    Err(error) => return Ok(Err(error.to_string())),
                }
            }
            if let Some(why) = server.store.log().failed() {
                return Ok(Err(format!("Writing to the log has failed: {why}")));
            }
            self.drive(time::sleep(TICK)).await?;
            if told.elapsed() >= KEEPALIVE {
                told = time::Instant::now();
                self.output.open.push(b'\n');
            }
        }
    }

    /// Sends a moment; how many bytes that were, or why it failed, and whether the client had got a part of it.
    async fn send_moment(
        &mut self,
        request: SnapshotRequest,
        lease: Lease,
        plan: Plan,
    ) -> Result<Result<u64, (Failure, bool)>, Closed> {
        let server = self.events.worker.server.clone();
        let mark = random_id();
        let head = match request.is_psync {
            true => format!("+FULLRESYNC {} {}\r\n$EOF:{mark}\r\n", server.replication_id, plan.moment()),
            false => format!("$EOF:{mark}\r\n"),
        };
        let mut process = match Exporter::start(&server.config, request, plan) {
            Ok(process) => process,
            Err(e) => return Ok(Err((format!("Cannot start a process for the snapshot: {e}"), false))),
        };
        let mut sent = 0;
        loop {
            match self.drive(time::timeout(KEEPALIVE, process.parts.recv())).await? {
                Err(_) if sent == 0 => self.output.open.push(b'\n'),
                Err(_) => {}
                Ok(Some(Part::Bytes(bytes))) => {
                    if sent == 0 {
                        self.output.open.extend_from_slice(head.as_bytes());
                    }
                    sent += bytes.len() as u64;
                    self.output.open.extend_from_slice(&bytes);
                    self.drain().await?;
                }
                Ok(Some(Part::End(ended))) => {
                    // Whether all was kept is asked in any case: if it was not, what was read may be anything.
                    let kept = lease.end().map_err(|error| error.to_string());
                    if let Err(failure) = kept.and(ended) {
                        return Ok(Err((failure, sent > 0)));
                    }
                    self.output.open.extend_from_slice(mark.as_bytes());
                    return Ok(Ok(sent));
                }
                Ok(None) => unreachable!("the thread tells of the end"),
            }
        }
    }

    /// Waits until there is not much left that the client has yet to take.
    async fn drain(&mut self) -> Result<(), Closed> {
        let patience = self.events.worker.server.config.number(Opt::ReplTimeout) as u64;
        self.in_command = true;
        loop {
            let before = self.output.pending();
            if before <= PENDING_MAX {
                break;
            }
            let taken = poll_fn(|cx| {
                loop {
                    match self.poll_turn(cx) {
                        // Input was read ahead; there may be more.
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(why)) => return Poll::Ready(Err(why)),
                        Poll::Pending if self.output.pending() < before => return Poll::Ready(Ok(())),
                        Poll::Pending => return Poll::Pending,
                    }
                }
            });
            match time::timeout(Duration::from_secs(patience), taken).await {
                Ok(taken) => taken?,
                Err(_) => {
                    let addr = &self.handle.client.addr;
                    log!(
                        Warning,
                        "Snapshot for client {addr}: it has taken nothing for {patience} seconds (repl-timeout)"
                    );
                    return Err(Closed::Killed);
                }
            }
        }
        self.in_command = false;
        Ok(())
    }
}

/// What comes from the process that writes the file.
enum Part {
    Bytes(Vec<u8>),
    End(Result<(), Failure>),
}

/// The process that writes the file, and a thread that takes it from there. Both end when this is dropped.
struct Exporter {
    child: Arc<Mutex<Child>>,
    parts: mpsc::Receiver<Part>,
}

impl Exporter {
    fn start(config: &Config, request: SnapshotRequest, plan: Plan) -> io::Result<Exporter> {
        let parts = match (request.keys, request.functions) {
            (true, true) => "keys,functions",
            (true, false) => "keys",
            (false, true) => "functions",
            (false, false) => "",
        };
        // The program as it was started, also if there is another one at its path by now.
        let mut command = Command::new("/proc/self/exe");
        command.args(["export-moment", &config.text(Opt::Dir), &config.choice(Opt::RdbVersion), parts]);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Arc::new(Mutex::new(pipes.spawn()?));
        let (sender, receiver) = mpsc::channel(PIECES);
        let process = Exporter { child: child.clone(), parts: receiver };
        thread::Builder::new().name("snapshot".into()).spawn(move || {
            let ended = pass_on(&child, &plan.encode(), &sender);
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
fn pass_on(child: &Mutex<Child>, plan: &str, sender: &mpsc::Sender<Part>) -> Result<(), Failure> {
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
    if status.success() { Ok(()) } else { Err(format!("{status}: {}", told.trim().replace('\n', " "))) }
}
