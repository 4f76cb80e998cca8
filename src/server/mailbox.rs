//! What workers are told by each other and by the rest of the server.

use crate::{clients::client::Client, server::handover::Connected, transport::stream::Socket};
use std::sync::Arc;
use tokio::sync::mpsc::{Sender, UnboundedSender};

/// What a worker is told.
pub enum Message {
    /// Serve this client.
    Accept(Socket, Arc<Client>),
    /// Serve this client, which another process has served so far.
    Adopt(Socket, Arc<Client>, Box<Connected>),
    /// Execute nothing more, and say so when no command is under way any more.
    Freeze(UnboundedSender<()>),
    /// Go on after `Freeze`.
    Thaw,
    /// Give away all connections, which are frozen, and whose replies are durable.
    GiveAway(UnboundedSender<Vec<(Socket, Connected)>>),
    /// Close this client's connection.
    Kill(u64),
    /// Let this client go on if it waits.
    Unblock(u64, Wake),
    /// Let this client know to which channels it is not subscribed any more, since their slots are another node's.
    LeaveShards(u64),
    /// A pause is over: let all clients go on.
    Unpause,
    /// Drop this: what was begun before is done.
    Pass(Sender<()>),
    /// Close all connections and end.
    Stop,
}

/// Why a waiting handler runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It has not waited: this is the first time.
    First,
    /// A key that it waited for was written.
    Signal,
    /// The time is over, or CLIENT UNBLOCK said so.
    Timeout,
    /// CLIENT UNBLOCK … ERROR.
    Unblocked,
}
