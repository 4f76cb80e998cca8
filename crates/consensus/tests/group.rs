//! Whole groups in one thread: real members over simulated media, on a network that loses, delays, doubles and parts, with power cuts,
//! damage and changes of members, as a seed decides. `HOLDFAST_SEEDS=5000` runs the long form, `HOLDFAST_SEED=n` one seed.

#[path = "../../store/tests/store/seeds.rs"]
mod seeds;

use holdfast_consensus::{Machine, Member, MemberId, Message, Options, Role, code::Encoder};
use holdfast_io::{BLOCK, Error, Io, SimIo};
use seeds::{Rng, with_seeds};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const FOLDER: &str = "group";
const OPTIONS: Options = Options { voters_max: 5 };
/// Ticks of trouble in a life, and of quiet until all must have been decided.
const TROUBLE: u64 = 600;
const QUIET: u64 = 400;
/// Bytes of a long entry: some of them, and the journal begins a new file.
const LONG: usize = 100_000;

/// All values in their order, and who is to be a member.
#[derive(Default)]
struct List {
    values: Vec<u64>,
    members: Vec<MemberId>,
}

impl List {
    /// An entry that adds a value, and is so long.
    fn add(value: u64, len: usize) -> Vec<u8> {
        let mut entry = [&[0], &value.to_le_bytes()[..]].concat();
        entry.resize(entry.len().max(len), 0);
        entry
    }

    /// An entry after which these are to be members.
    fn set_members(members: &[MemberId]) -> Vec<u8> {
        members.iter().fold(vec![1], |entry, id| [&entry[..], &id.to_le_bytes()].concat())
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|number| u64::from_le_bytes(number.try_into().unwrap()))
}

impl Machine for List {
    type Outcome = usize;

    fn apply(&mut self, entry: &[u8]) -> usize {
        match entry[0] {
            0 => self.values.extend(numbers(&entry[1..9])),
            _ => self.members = numbers(&entry[1..]).collect(),
        }
        self.values.len()
    }

    fn save(&self) -> Vec<u8> {
        let counts = [self.members.len() as u64];
        counts
            .iter()
            .chain(&self.members)
            .chain(&self.values)
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        let mut state = numbers(state);
        let members = state.next().ok_or("no count")? as usize;
        self.members = state.by_ref().take(members).collect();
        self.values = state.collect();
        Ok(())
    }

    fn members(&self) -> Vec<MemberId> {
        self.members.clone()
    }
}

/// A server: its medium, and the member if it is up.
struct Server {
    io: SimIo,
    member: Option<Member<List>>,
    down_for: u64,
    /// Its journal is damaged: it is no member any more, and never will be.
    is_lost: bool,
}

struct World {
    rng: Rng,
    servers: BTreeMap<MemberId, Server>,
    /// Messages under way, with the tick at which they arrive.
    network: Vec<(u64, Vec<u8>)>,
    /// Who cannot send to whom.
    parted: BTreeSet<(MemberId, MemberId)>,
    now: u64,
    has_trouble: bool,
    /// All values that some member has applied, in their order.
    truth: Vec<u64>,
    leaders: BTreeMap<u64, MemberId>,
    next_value: u64,
    /// What was proposed and is not known to be decided: by member and number.
    open: BTreeMap<(MemberId, u64), u64>,
    decided: BTreeSet<u64>,
    wanted: Vec<MemberId>,
    next_id: MemberId,
    members_open: Option<(MemberId, u64)>,
    power_cuts: u64,
    /// Who votes as far as anybody has applied, and how far that is.
    latest: (u64, Vec<MemberId>),
    /// A journal was damaged.
    is_damaged: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            rng: Rng(seed),
            servers: BTreeMap::new(),
            network: Vec::new(),
            parted: BTreeSet::new(),
            now: 0,
            has_trouble: true,
            truth: Vec::new(),
            leaders: BTreeMap::new(),
            next_value: 1,
            open: BTreeMap::new(),
            decided: BTreeSet::new(),
            wanted: vec![1],
            next_id: 2,
            members_open: None,
            power_cuts: 0,
            latest: (0, Vec::new()),
            is_damaged: false,
        };
        let io = SimIo::new(seed);
        let machine = List { values: Vec::new(), members: vec![1] };
        let member = Member::found(Arc::new(io.clone()), FOLDER, 1, machine, OPTIONS).unwrap();
        world.servers.insert(1, Server { io, member: Some(member), down_for: 0, is_lost: false });
        world
    }

    /// A server that waits to hear from the group.
    fn begin(&mut self, id: MemberId) {
        let io = SimIo::new(self.rng.next());
        let member = Member::join(Arc::new(io.clone()), FOLDER, id, List::default(), OPTIONS).unwrap();
        self.servers.insert(id, Server { io, member: Some(member), down_for: 0, is_lost: false });
    }

    fn up(&self) -> Vec<MemberId> {
        self.servers.iter().filter(|(_, server)| server.member.is_some()).map(|(&id, _)| id).collect()
    }

    fn step(&mut self) {
        self.now += 1;
        if self.has_trouble {
            self.make_trouble();
        }
        self.restart();
        self.deliver();
        for id in self.up() {
            self.server(id).member.as_mut().unwrap().tick();
            self.work(id);
        }
    }

    fn server(&mut self, id: MemberId) -> &mut Server {
        self.servers.get_mut(&id).unwrap()
    }

    fn make_trouble(&mut self) {
        let up = self.up();
        if self.rng.chance(3) && !up.is_empty() {
            let id = up[self.rng.below(up.len() as u64) as usize];
            let len = if self.rng.chance(4) { LONG } else { 0 };
            self.propose(id, len);
        }
        if self.rng.chance(40) && !up.is_empty() {
            let id = up[self.rng.below(up.len() as u64) as usize];
            let after = 1 + self.rng.below(8);
            self.server(id).io.crash_after(after);
        }
        if self.rng.chance(60) && !up.is_empty() {
            // The process is killed; what it has written stays, and may be damaged.
            let id = up[self.rng.below(up.len() as u64) as usize];
            let (down_for, is_damaged) = (self.rng.below(40), self.rng.chance(6) && self.spares(id));
            let server = self.server(id);
            (server.member, server.down_for) = (None, down_for);
            if is_damaged {
                self.damage(id);
            }
        }
        if self.rng.chance(30) {
            self.parted.clear();
            if self.rng.chance(2) {
                let ids: Vec<_> = self.servers.keys().copied().collect();
                for &from in &ids {
                    for &to in &ids {
                        if self.rng.chance(3) {
                            self.parted.insert((from, to));
                        }
                    }
                }
            }
        }
        if self.rng.chance(50) {
            self.change_members();
        }
    }

    fn propose(&mut self, id: MemberId, len: usize) {
        let value = self.next_value;
        self.next_value += 1;
        let member = self.servers.get_mut(&id).unwrap().member.as_mut().unwrap();
        let number = member.propose(List::add(value, len));
        self.open.insert((id, number), value);
    }

    /// Has another server take part, or one of them no more.
    fn change_members(&mut self) {
        let Some(&by) = self.up().iter().find(|id| self.wanted.contains(id)) else { return };
        if self.members_open.is_some() {
            return;
        }
        let lost = self.wanted.iter().position(|id| self.servers[id].is_lost);
        if let Some(lost) = lost {
            self.wanted.remove(lost);
        } else if self.wanted.len() < 3 || (self.wanted.len() < 7 && self.rng.chance(2)) {
            let id = self.next_id;
            self.next_id += 1;
            self.begin(id);
            self.wanted.push(id);
        } else if self.wanted.len() > 3 && !self.may_be_lost() {
            let at = self.rng.below(self.wanted.len() as u64) as usize;
            self.wanted.remove(at);
        } else {
            return;
        }
        let entry = List::set_members(&self.wanted);
        let number = self.server(by).member.as_mut().unwrap().propose(entry);
        self.members_open = Some((by, number));
    }

    /// Whether the group can go on without one of its members for ever.
    fn spares(&self, id: MemberId) -> bool {
        // No change is under way that may take another one away.
        let (_, voters) = &self.latest;
        let is_settled = self.members_open.is_none() && voters.iter().all(|id| self.wanted.contains(id));
        let is_whole = self.wanted.iter().take(OPTIONS.voters_max).all(|id| voters.contains(id));
        !self.is_damaged && is_settled && is_whole && voters.len() >= 3 && voters.contains(&id)
    }

    /// Whether a member is down that may be lost, so that no other one is to be taken away.
    fn may_be_lost(&self) -> bool {
        self.is_damaged && self.wanted.iter().any(|id| self.servers[id].member.is_none())
    }

    /// Inverts a bit of a journal. Who opens it must notice, or the bit is of no use.
    fn damage(&mut self, id: MemberId) {
        let io = self.servers[&id].io.clone();
        // After a power cut the mark behind the last unit may be missing, and nobody could tell.
        let Some(name) = io.list(FOLDER).ok().and_then(|mut names| names.pop()) else { return };
        let name = if name.contains('/') { name } else { format!("{FOLDER}/{name}") };
        let bytes = io.snapshot(&name);
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if used > 0 {
            let at = self.rng.below(used as u64);
            io.flip_bit(&name, at, self.rng.below(8) as u32);
            self.is_damaged = true;
        }
    }

    /// Opens members whose time has come.
    fn restart(&mut self) {
        for (&id, server) in &mut self.servers {
            if server.member.is_some() || server.is_lost {
                continue;
            }
            if server.down_for > 0 && self.has_trouble {
                server.down_for -= 1;
                continue;
            }
            match Member::open(Arc::new(server.io.clone()), FOLDER, List::default(), OPTIONS) {
                Ok(Some(member)) => server.member = Some(member),
                Ok(None) => panic!("the journal of {id} is gone"),
                Err(Error::Corrupt { .. }) => {
                    server.is_lost = true;
                }
                Err(error) => {
                    assert!(server.io.is_power_cut(&error), "{id} cannot be opened: {error}");
                    server.io = server.io.crash();
                }
            }
            // What it had not heard to be decided, it does not know any more.
            self.open.retain(|(by, _), _| *by != id);
            self.members_open = self.members_open.filter(|(by, _)| *by != id);
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later) = std::mem::take(&mut self.network).into_iter().partition(|(at, _)| *at <= now);
        self.network = later;
        for (_, bytes) in due {
            let message = Message::decode(&bytes).expect("it was encoded");
            if self.parted.contains(&(message.from(), message.to())) {
                continue;
            }
            let to = message.to();
            if let Some(member) = self.servers.get_mut(&to).and_then(|server| server.member.as_mut()) {
                member.step(message);
                self.work(to);
            }
        }
    }

    fn work(&mut self, id: MemberId) {
        let Some(member) = self.server(id).member.as_mut() else { return };
        if let Err(error) = member.work() {
            let server = self.server(id);
            assert!(server.io.is_power_cut(&error), "{id}: {error}");
            server.io = server.io.crash();
            server.member = None;
            let down_for = self.rng.below(40);
            self.server(id).down_for = down_for;
            self.power_cuts += 1;
            return;
        }
        let (messages, finished) = (member.take_messages(), member.take_finished());
        messages.iter().for_each(|message| member.sent(message));
        self.check(id);
        for done in finished {
            if let Some(value) = self.open.remove(&(id, done.number)) {
                assert!(self.decided.contains(&value), "{value} is acknowledged, and was not decided");
            }
            self.members_open = self.members_open.filter(|open| *open != (id, done.number));
        }
        for message in messages {
            let copies =
                if !self.has_trouble { 1 } else { [1, 1, 1, 1, 1, 1, 0, 2][self.rng.below(8) as usize] };
            for _ in 0..copies {
                let delay = if self.has_trouble && self.rng.chance(4) { self.rng.below(12) } else { 1 };
                self.network.push((self.now + delay, message.encode()));
            }
        }
    }

    /// No two leaders in a term; the values that a member has applied are the first ones of all, none of them twice.
    fn check(&mut self, id: MemberId) {
        let member = self.servers[&id].member.as_ref().unwrap();
        if member.role() == Role::Leader {
            let leader = *self.leaders.entry(member.term()).or_insert(id);
            assert_eq!(leader, id, "two leaders in term {}", member.term());
        }
        if member.applied() > self.latest.0 {
            self.latest = (member.applied(), member.members().0.to_vec());
        }
        let values = &member.machine().values;
        let common = values.len().min(self.truth.len());
        assert_eq!(values[..common], self.truth[..common], "{id} has applied other entries");
        for &value in &values[common..] {
            assert!(self.decided.insert(value), "{value} twice");
            self.truth.push(value);
        }
    }

    /// Everything heals; then all that is proposed is decided, and all members know of it.
    fn heal(&mut self) {
        self.has_trouble = false;
        self.parted.clear();
        self.servers.values().for_each(|server| server.io.crash_after(1 << 40));
        for _ in 0..QUIET {
            self.step();
        }
        let members: Vec<_> = self.up().into_iter().filter(|&id| self.takes_part(id)).collect();
        assert!(!members.is_empty(), "nobody takes part");
        members.iter().for_each(|&id| self.propose(id, 0));
        for _ in 0..QUIET {
            self.step();
        }
        let open: Vec<_> = self.open.keys().filter(|(by, _)| members.contains(by)).collect();
        assert!(open.is_empty(), "never decided: {open:?}\n{}", self.describe());
        for id in members {
            let member = self.servers[&id].member.as_ref().unwrap();
            assert_eq!(member.machine().values, self.truth, "{id} is behind");
            assert!(!matches!(member.role(), Role::Leaderless), "{id} knows no leader");
        }
    }

    /// How all servers are.
    fn describe(&self) -> String {
        let about = |(id, server): (&MemberId, &Server)| match &server.member {
            Some(member) => {
                let (term, applied, members) = (member.term(), member.applied(), member.members());
                let undecided = member.undecided();
                format!(
                    "{id}: {:?}, term {term}, {applied} entries, {undecided} undecided, members {members:?}",
                    member.role()
                )
            }
            None => format!("{id}: {}", if server.is_lost { "lost" } else { "down" }),
        };
        let all: Vec<_> = self.servers.iter().map(about).collect();
        format!("wanted {:?}\n{}", self.wanted, all.join("\n"))
    }

    /// Whether a server is a member still, as the one knows that has applied most.
    fn takes_part(&self, id: MemberId) -> bool {
        let members = self.servers.values().filter_map(|server| server.member.as_ref());
        let wisest = members.max_by_key(|member| member.applied()).expect("one that is up");
        let (voters, learners) = wisest.members();
        voters.contains(&id) || learners.contains(&id)
    }
}

fn life(seed: u64) {
    let mut world = World::new(seed);
    for _ in 0..TROUBLE {
        world.step();
    }
    world.heal();
    assert!(world.truth.len() > 10, "little was decided: {:?}", world.truth);
}

#[test]
fn what_was_decided_stays_decided() {
    with_seeds(700, life);
}

/// A message without entries that no member sends: its kind, by its number, and what it says of the sender's log.
fn forged(kind: u8, [to, from, term]: [u64; 3], [log_term, index, commit]: [u64; 3]) -> Message {
    let mut bytes = Encoder::default();
    bytes.u8(kind).u64(to).u64(from).u64(term).u64(log_term).u64(index).u64(commit).u64(0);
    bytes.u8(0).u64(0).u64(0).u64(0).bytes(&[]).u8(0).u32(0);
    Message::decode(&bytes.into_bytes()).expect("the form of one")
}

/// Of its log, of entries that there are not, or nothing.
#[test]
fn what_no_member_sends_ends_none() {
    with_seeds(50, |seed| {
        let mut world = World::new(seed);
        (0..300).for_each(|_| world.step());
        world.has_trouble = false;
        for to in world.up() {
            for from in world.up() {
                for term in [1, 1 << 20] {
                    for kind in 0..13 {
                        for about in [[0; 3], [0, 1 << 40, 0], [0, 0, 1 << 40], [1, 1 << 40, 1 << 40]] {
                            // One with a state must have it.
                            if kind != 5
                                && let Some(member) = &mut world.server(to).member
                            {
                                member.step(forged(kind, [to, from, term], about));
                                world.work(to);
                            }
                        }
                    }
                }
            }
        }
        (0..50).for_each(|_| world.step());
    });
}

/// One seed leads to one history.
#[test]
fn a_seed_repeats_a_history() {
    let history = || {
        let mut world = World::new(7);
        (0..TROUBLE).for_each(|_| world.step());
        (world.truth, world.leaders, world.power_cuts)
    };
    assert_eq!(history(), history());
}

/// A journal in which a bit has flipped is refused, or the bit says nothing: never is less known than before.
#[test]
fn damage_is_told_from_an_end() {
    let io = SimIo::new(1);
    let list = || List { values: Vec::new(), members: vec![1] };
    let mut member = Member::found(Arc::new(io.clone()), FOLDER, 1, list(), OPTIONS).unwrap();
    for value in 0..5 {
        member.propose(List::add(value, if value == 3 { 2 * BLOCK } else { 0 }));
        member.work().unwrap();
    }
    let values = member.machine().values.clone();
    assert_eq!(values, [0, 1, 2, 3, 4]);
    drop(member);
    let name = format!("{FOLDER}/{}", io.list(FOLDER).unwrap()[0].rsplit('/').next().unwrap());
    let used = io.snapshot(&name).iter().rposition(|byte| *byte != 0).unwrap();
    let (mut refused, mut harmless) = (0, 0);
    for at in (0..=used as u64).filter(|at| at % BLOCK as u64 <= 128 || at % 97 == 0) {
        let copy = io.fork();
        copy.flip_bit(&name, at, (at % 8) as u32);
        match Member::open(Arc::new(copy), FOLDER, list(), OPTIONS) {
            Err(Error::Corrupt { .. }) => refused += 1,
            Ok(Some(mut member)) => {
                member.work().unwrap();
                assert_eq!(member.machine().values, values, "a bit of byte {at}");
                harmless += 1;
            }
            _ => panic!("a bit of byte {at}"),
        }
    }
    assert!(refused > 100 && harmless > 0, "{refused} refused, {harmless} harmless");
}
