//! SYNC of a client that wants a snapshot: what the server holds at one moment goes to it as an RDB file, behind `$EOF:` and a mark that
//! comes again at its end. The moment is kept by a lease, as for a backup, and read where it lies by a process of its own, `holdfast
//! export-moment`, so that its memory is not the server's, and no value of it displaces one that is in use.

use super::{Closed, Connection};
use crate::{
    admin::log::log,
    config::Opt,
    server::{
        exporter::{Exporter, Part},
        random_id,
    },
    session::snapshot::SnapshotRequest,
};
use holdfast_resp::Writer;
use holdfast_store::{Begin, Lease, Plan};
use std::{future::poll_fn, sync::atomic::Ordering::Relaxed, task::Poll, time::Duration};
use tokio::time;

/// How often it is looked whether the moment can be kept.
const TICK: Duration = Duration::from_millis(2);
/// How often the client hears something while the file is prepared.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Bytes that may wait for the client before more are taken from the process.
const PENDING_MAX: usize = 256 << 10;

/// Why there is no snapshot, in words for the client.
type Failure = String;

impl Connection {
    /// Answers SYNC or PSYNC; after it the connection is of no more use.
    pub(super) async fn send_snapshot(&mut self, request: SnapshotRequest) -> Result<(), Closed> {
        let addr = self.handle.client.addr.clone();
        log!(Notice, "client {addr} asks for a snapshot");
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
        let server = self.shared.worker.server.clone();
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
        let server = self.shared.worker.server.clone();
        let mark = random_id();
        let head = match request.is_psync {
            true => format!("+FULLRESYNC {} {}\r\n$EOF:{mark}\r\n", server.replication_id, plan.moment()),
            false => format!("$EOF:{mark}\r\n"),
        };
        let what = match (request.keys, request.functions) {
            (true, true) => "keys,functions",
            (true, false) => "keys",
            (false, true) => "functions",
            (false, false) => "",
        };
        let (dir, version) = (server.config.text(Opt::Dir), server.config.choice(Opt::RdbVersion));
        let mut process = match Exporter::start(&dir, &version, what, &plan) {
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
                        server.full_syncs.fetch_add(1, Relaxed);
                        self.output.open.extend_from_slice(head.as_bytes());
                    }
                    sent += bytes.len() as u64;
                    self.output.open.extend_from_slice(&bytes);
                    self.drain().await?;
                }
                Ok(Some(Part::Progress { .. })) => {}
                Ok(Some(Part::End(ended))) => {
                    // Whether all was kept is asked in any case: if it was not, what was read may be anything.
                    let kept = lease.end().map_err(|error| error.to_string());
                    if let Err(failure) = kept.and(ended.map(drop)) {
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
        let patience = self.shared.worker.server.config.number(Opt::ReplTimeout) as u64;
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
