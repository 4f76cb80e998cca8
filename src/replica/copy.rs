//! A copy of the primary's data, which it sends as an RDB file. The file is received and read through before anything here gives way to it.

use super::{Broken, inside::Inside, link::Link};
use crate::{
    admin::log::log,
    import::{Connection, Feed, Sink, Stopped},
    server::{
        Server,
        replication::{Copying, Order},
    },
    transport::blocking::BlockingSocket,
};
use holdfast_rdb::file::{FileError, Reader, Record};
use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

/// Bytes of the mark at the end of a copy whose length is not told.
const MARK: usize = 40;
/// Connections by which keys go to the workers at most.
const CONNECTIONS_MAX: usize = 8;
/// What the primary is told until the copy is loaded.
const NOTHING_YET: &[&[u8]] = &[b"REPLCONF", b"ACK", b"0"];
/// How often the primary is told that this end is alive while it waits.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

/// Copies the data, in whose place the primary's come; how many keys there are.
///
/// # Errors
/// The link breaks, the copy is damaged, or a key cannot be taken. Once what was there has given way, the server does not serve until a
/// copy is complete.
pub fn copy(server: &Arc<Server>, order: &Order, link: &mut Link) -> Result<u64, Broken> {
    let incoming = Incoming::new(&server.replication.dir());
    receive(server, link, &incoming.0)?;
    server.replication.copying(None);
    // A primary that has sent its copy as it went waits for a word before it goes on. Nothing of it is durable here.
    link.send(NOTHING_YET)?;
    link.keep_backlog()?;
    let mut waiting = Waiting { server, order, link, told: Instant::now() };
    each_record(&incoming.0, |_| waiting.go_on())?;
    server.replication.set_loading(order, true)?;
    let keys = load(server, order, &incoming.0, &mut waiting)?;
    server.replication.set_loading(order, false)?;
    Ok(keys)
}

/// The file that a copy is received in. It is removed in the end.
struct Incoming(PathBuf);

impl Incoming {
    fn new(dir: &Path) -> Incoming {
        Incoming(dir.join("replica-incoming.rdb"))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0)
            && error.kind() != io::ErrorKind::NotFound
        {
            log!(Warning, "cannot remove {}: {error}", self.0.display());
        }
    }
}

/// How a copy ends.
enum End {
    /// After so many bytes.
    Length(u64),
    /// With this mark.
    Mark(Vec<u8>),
}

/// Writes what the primary sends to a file.
fn receive(server: &Server, link: &mut Link, path: &Path) -> Result<(), Broken> {
    let line = link.line()?;
    let unknown = || Broken::Link(format!("the primary says what is not understood: {line}"));
    let mut end = match line.strip_prefix('$').ok_or_else(unknown)? {
        rest if rest.starts_with("EOF:") && rest.len() == 4 + MARK => {
            End::Mark(rest.as_bytes()[4..].to_vec())
        }
        digits => End::Length(digits.parse().map_err(|_| unknown())?),
    };
    let total = if let End::Length(total) = end { Some(total) } else { None };
    let failed = |error: io::Error| Broken::Refused(format!("cannot write {}: {error}", path.display()));
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
    let mut read = 0;
    loop {
        let (take, is_whole) = match &mut end {
            End::Length(left) => {
                let take = (link.input.len() as u64).min(*left);
                *left -= take;
                (take as usize, *left == 0)
            }
            // It may be the beginning of the mark that has come last.
            End::Mark(mark) if link.input.ends_with(mark) => (link.input.len() - MARK, true),
            End::Mark(_) => (link.input.len().saturating_sub(MARK), false),
        };
        file.write_all(&link.input[..take]).map_err(failed)?;
        link.input.drain(..take);
        read += take as u64;
        server.replication.copying(Some(Copying { total, read }));
        if is_whole {
            if matches!(end, End::Mark(_)) {
                link.input.clear();
            }
            return file.flush().map_err(failed);
        }
        while link.read()? == 0 {}
    }
}

/// Reads a file; an error says what is wrong with it.
fn each_record(path: &Path, mut see: impl FnMut(Record) -> Result<(), Broken>) -> Result<(), Broken> {
    let damaged = |error: FileError| Broken::Refused(format!("the copy: {error}"));
    let file = BufReader::with_capacity(256 << 10, File::open(path)?);
    let mut reader = Reader::new(file).map_err(damaged)?;
    while let Some(record) = reader.next_record().map_err(damaged)? {
        see(record)?;
    }
    reader.end().map_err(damaged)
}

/// What a primary is to be told while this end is at work with its copy.
struct Waiting<'w> {
    server: &'w Server,
    order: &'w Order,
    link: &'w mut Link,
    told: Instant,
}

impl Waiting<'_> {
    /// Tells the primary that this end is alive, now and then.
    fn go_on(&mut self) -> Result<(), Broken> {
        if self.told.elapsed() >= ALIVE_EVERY {
            self.told = Instant::now();
            if !self.server.replication.holds(self.order) {
                return Err(Broken::Link("it is to follow another one".into()));
            }
            // If the primary is gone, its copy is worth all the more.
            let _ = self.link.send(NOTHING_YET);
        }
        Ok(())
    }
}

/// Puts what is in a file in the place of all that there is.
fn load(server: &Arc<Server>, order: &Order, path: &Path, waiting: &mut Waiting) -> Result<u64, Broken> {
    let (inside, socket) = Inside::open(server, order)?;
    let mut connection = Connection::over(BlockingSocket::Unix(socket));
    connection.call(&[b"FLUSHALL"])?;
    connection.call(&[b"FUNCTION", b"FLUSH"])?;
    drop((connection, inside));

    let failed = Arc::new(AtomicBool::new(false));
    let (mut insides, mut pipelines) = (Vec::new(), Vec::new());
    for _ in 0..server.workers.len().min(CONNECTIONS_MAX) {
        let (inside, socket) = Inside::open(server, order)?;
        insides.push(inside);
        pipelines.push(Connection::over(BlockingSocket::Unix(socket)).pipeline(failed.clone())?);
    }
    let mut feed = Feed::new(pipelines, true, false, Arc::default());
    let mut keys = 0;
    let read = each_record(path, |record| {
        waiting.go_on()?;
        keys += u64::from(matches!(record, Record::Value { is_last: true, .. }));
        feed.record(record).map_err(|Stopped| Broken::Refused("a key was not taken".into()))
    });
    let (_, sent) = feed.finish();
    if let Some(failure) = sent.failure {
        return Err(Broken::Refused(failure));
    }
    read.map(|()| keys)
}
