//! How the engine is set up, whatever its entries mean: its clock, and the chance in its elections.

use holdfast_io::Io;
use raft::{
    Config, Raft, ReadOnlyOption, StateRole, Storage,
    eraftpb::{self, MessageType},
};

/// Ticks between a leader's signs of life.
const HEARTBEAT_TICKS: usize = 2;
/// Ticks without a sign of life after which a member wants another leader; up to twice as many, so that not all want one at once.
pub const ELECTION_TICKS: usize = 10;

/// The engine's options for a member whose machine has applied the entry `applied`.
pub fn config(id: u64, applied: u64) -> Config {
    Config {
        id,
        applied,
        election_tick: ELECTION_TICKS,
        heartbeat_tick: HEARTBEAT_TICKS,
        // A leader that hears of no majority gives up, and a member that comes back does not disturb the others.
        check_quorum: true,
        pre_vote: true,
        read_only_option: ReadOnlyOption::Safe,
        ..Config::default()
    }
}

/// How long a member waits for a leader. The engine draws it at random whenever its term or role is another one. Here it is drawn again,
/// so that a seed decides.
pub struct Patience {
    rng: fastrand::Rng,
    ticks: usize,
    /// The term and the role for which it was drawn.
    drawn_for: Option<(u64, StateRole)>,
}

impl Patience {
    /// With a seed of the machine's.
    pub fn new(io: &dyn Io) -> Patience {
        let mut seed = [0; 8];
        io.random(&mut seed);
        Patience { rng: fastrand::Rng::with_seed(u64::from_le_bytes(seed)), ticks: 0, drawn_for: None }
    }

    /// Has the engine wait so long. Returns whether its term or role is another one than the last time.
    pub fn impose<T: Storage>(&mut self, raft: &mut Raft<T>) -> bool {
        let now = Some((raft.term, raft.state));
        let is_new = self.drawn_for != now;
        if is_new {
            self.ticks = self.rng.usize(ELECTION_TICKS..2 * ELECTION_TICKS);
            self.drawn_for = now;
        }
        raft.set_randomized_election_timeout(self.ticks);
        is_new
    }
}

/// What a message says to a member, before the engine takes it: where it takes something for granted that is not so, it ends the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sense {
    Sound,
    /// No member sends that.
    None,
    /// The member has told its leader of entries that it has not.
    Lost,
}

impl Sense {
    pub fn of<S: Storage>(message: &eraftpb::Message, raft: &Raft<S>) -> Sense {
        let last = raft.raft_log.last_index();
        let makes_none = match message.msg_type {
            // A member tells them itself only.
            MessageType::MsgReadIndex | MessageType::MsgTransferLeader => true,
            MessageType::MsgPropose => message.entries.is_empty() || message.term != 0,
            MessageType::MsgAppend => message.index > last && message.log_term == 0,
            MessageType::MsgAppendResponse => !message.reject && message.index > last,
            _ => false,
        };
        let is_heartbeat = message.msg_type == MessageType::MsgHeartbeat && message.term >= raft.term;
        match makes_none {
            true => Sense::None,
            false if is_heartbeat && message.commit > last => Sense::Lost,
            false => Sense::Sound,
        }
    }
}
