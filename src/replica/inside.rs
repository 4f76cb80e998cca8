//! Connections within the process: what the primary sends reaches the workers by them as commands of a client that may write.

use crate::{
    clients::client::{Client, flag},
    server::{Server, mailbox::Message, replication::Order},
    transport::stream::Socket,
};
use std::{
    io,
    os::{fd::AsRawFd, unix::net::UnixStream},
    sync::Arc,
    thread,
    time::Duration,
};

const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A connection, as this end sees it. Dropping it closes it, and returns when no command of it is at work any more.
pub struct Inside {
    server: Arc<Server>,
    client: Arc<Client>,
}

impl Inside {
    /// Opens one, and the socket to write commands to and read replies from.
    ///
    /// # Errors
    /// There can be none, or the order does not hold any more.
    pub fn open(server: &Arc<Server>, order: &Order) -> io::Result<(Inside, UnixStream)> {
        let (own, other) = UnixStream::pair()?;
        other.set_nonblocking(true)?;
        let id = server.clients.new_id();
        let worker = id as usize % server.workers.len();
        let addr = order.primary.as_ref().map_or_else(String::new, |it| format!("{}:{}", it.host, it.port));
        let client = Client::new(id, addr.clone(), addr, worker, other.as_raw_fd(), true);
        client.set_flag(flag::PRIMARY | flag::NO_EVICT, true);
        let client = Arc::new(client);
        if !server.replication.attach(order, client.clone()) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "it is to follow another one"));
        }
        server.clients.add(client.clone());
        server.send(worker, Message::Accept(Socket::Unix(other), client.clone()));
        Ok((Inside { server: server.clone(), client }, own))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.server.kill(&self.client);
        // This end holds it, the list of those that are attached, and the worker's end while there is one.
        while Arc::strong_count(&self.client) > 2 {
            thread::sleep(LOOK_EVERY);
        }
        self.server.replication.detach(&self.client);
    }
}
