//! A replica's side of Redis's replication: copies the data of a primary, a Redis or a Valkey, and executes what it writes from then
//! on. So one moves in without stopping: REPLICAOF, wait until the copy is complete, REPLICAOF NO ONE.
//!
//! One thread ([`start`]) carries out the orders that `server::replication` holds. It speaks with the primary ([`link`]), keeps a copy
//! in a file until it is whole and sound ([`copy`]), and what is written meanwhile in another ([`backlog`]), and hands commands to the workers over connections within the process ([`inside`]), as
//! clients do theirs. So the primary's commands take the same way as all others, and are durable when their replies have come: only that much is
//! acknowledged to the primary ([`stream`]).

mod backlog;
mod copy;
mod inside;
mod link;
mod stream;

use crate::{
    admin::log::log,
    server::{
        Server,
        replication::{Link as State, Order, Primary},
    },
};
use link::{Link, Resumed};
use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use stream::Stream;

/// How long to wait before the primary is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Starts the thread of the link. It ends by `Replication::end`.
///
/// # Errors
/// There can be no thread.
pub fn start(server: Arc<Server>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("replica".into()).spawn(move || {
        while let Some(order) = server.replication.next_order() {
            if let Some(primary) = &order.primary {
                follow(&server, &order, primary);
            }
        }
    })
}

/// Why a primary is not followed any further for now.
enum Broken {
    /// The link is: it may be resumed where it was.
    Link(String),
    /// The data, or a command, were not taken: they must be copied anew.
    Refused(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Link(error.to_string())
    }
}

/// Follows a primary while the order holds.
fn follow(server: &Arc<Server>, order: &Order, primary: &Primary) {
    let replication = &server.replication;
    let mut stream: Option<Stream> = None;
    while replication.holds(order) {
        let broken = follow_once(server, order, primary, &mut stream);
        replication.set_link(order, State::Connect);
        replication.copying(None);
        if !replication.holds(order) {
            break;
        }
        match broken {
            Broken::Link(why) => log!(Warning, "the link to the primary {primary} is broken: {why}"),
            Broken::Refused(why) => {
                log!(
                    Warning,
                    "what the primary {primary} has sent cannot be taken, and must be copied anew: {why}"
                );
                end(&mut stream);
            }
        }
        replication.wait(order, RETRY);
    }
    end(&mut stream);
}

fn end(stream: &mut Option<Stream>) {
    if let Some(stream) = stream.take() {
        stream.end();
    }
}

/// Follows a primary until something breaks.
fn follow_once(
    server: &Arc<Server>,
    order: &Order,
    primary: &Primary,
    stream: &mut Option<Stream>,
) -> Broken {
    let replication = &server.replication;
    let mut go = || -> Result<(), Broken> {
        replication.set_link(order, State::Connecting);
        let mut link = Link::open(server, order, primary)?;
        // A stream that has failed cannot be gone on with.
        if stream.as_ref().is_some_and(Stream::has_failed) {
            end(stream);
        }
        let position = stream.as_ref().map(Stream::position);
        match link.resume(position)? {
            Resumed::Continued(id) => {
                log!(Notice, "the primary {primary} goes on where the link was broken");
                if let (Some(stream), Some(id)) = (stream.as_mut(), id) {
                    stream.rename(id);
                }
            }
            Resumed::Anew { id, offset } => {
                end(stream);
                replication.set_link(order, State::Sync);
                log!(Notice, "copying the data of the primary {primary}, as of its offset {offset}");
                let keys = copy::copy(server, order, &mut link)?;
                log!(Notice, "copied the data of the primary {primary}: {keys} keys");
                *stream = Some(Stream::begin(server, order, id, offset)?);
            }
        }
        replication.set_link(order, State::Connected);
        stream.as_mut().expect("it was begun or goes on").follow(&mut link)
    };
    match go() {
        Err(broken) => broken,
        Ok(()) => Broken::Link("it is to follow another one".into()),
    }
}
