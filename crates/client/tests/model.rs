//! The client against scripted servers behind the transport's seam: they take and give bytes in pieces of any size,
//! drop connections at any byte, lose what they had taken, and send requests elsewhere. Whatever they do, each request
//! has one outcome, and what it says of the server is true; it says "unknown" only if nothing better can be known.

use holdfast_client::{
    Address, Client, Command, Config, Error, Executed, Filled, Network, Reply, Target, Transport, hash_slot,
};
use holdfast_resp::{Limits, Parser};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    collections::{BTreeMap, VecDeque},
    env,
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What happened to a request, by the number in its key.
#[derive(Default, Debug, Clone)]
struct Fate {
    /// Times that all its bytes were taken from the client.
    arrived: u32,
    /// Times that all its bytes were taken from the client by a server that did not then send it elsewhere.
    taken: u32,
    executed: u32,
}

struct World {
    rng: Rng,
    fates: BTreeMap<usize, Fate>,
    /// Slots that the first servers' even spread does not tell.
    moved: BTreeMap<u16, u16>,
    asked: BTreeMap<u16, u16>,
    /// Whether links break, refuse, and so on.
    faults: bool,
    /// Whether servers say that they are nodes of a cluster.
    is_cluster: bool,
    /// How often they were asked for the slots, and whether they take their time to answer.
    maps: u32,
    late_map: bool,
    links: u32,
}

impl World {
    fn owner(&self, slot: u16, servers: u16) -> u16 {
        *self.moved.get(&slot).unwrap_or(&((u32::from(slot) * u32::from(servers) / 16384) as u16))
    }
}

impl World {
    /// The reply to CLUSTER SLOTS: right, out of date, or an error.
    fn map(&mut self, servers: u16) -> Vec<u8> {
        self.maps += 1;
        if self.faults && self.rng.one_in(4) {
            return b"-ERR This instance has cluster support disabled\r\n".to_vec();
        }
        let owners: Vec<u16> = match self.faults && self.rng.one_in(4) {
            true => (0..16384).map(|slot| (slot + 1) % servers).collect(),
            false => (0..16384).map(|slot| self.owner(slot, servers)).collect(),
        };
        let mut ranges = Vec::new();
        let mut first = 0;
        for range in owners.chunk_by(|a, b| a == b) {
            let last = first + range.len() - 1;
            ranges.extend(format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$-1\r\n:{}\r\n", range[0]).bytes());
            first = last + 1;
        }
        let count = owners.chunk_by(|a, b| a == b).count();
        [format!("*{count}\r\n").into_bytes(), ranges].concat()
    }
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().expect("no test has panicked with it")
}

struct Servers {
    world: Shared,
    count: u16,
}

impl Network for Servers {
    fn connect(&mut self, address: &Address, _: u32) -> io::Result<Box<dyn Transport>> {
        let Address::Tcp { port, .. } = address else { panic!("servers have ports") };
        let mut world = lock(&self.world);
        if world.faults && world.rng.one_in(8) {
            return Err(io::Error::new(ErrorKind::ConnectionRefused, "scripted"));
        }
        world.links += 1;
        let mut limit = |times, bytes| {
            if world.faults && !world.rng.one_in(times) {
                world.rng.below(bytes) as usize
            } else {
                usize::MAX
            }
        };
        Ok(Box::new(Link {
            takes: limit(4, 60_000),
            gives: limit(4, 60_000),
            event: eventfd(1, EventfdFlags::CLOEXEC)?,
            world: Arc::clone(&self.world),
            port: *port,
            count: self.count,
            input: Vec::new(),
            parser: Parser::new(),
            output: VecDeque::new(),
            broken: false,
            asking: false,
            is_late: false,
        }))
    }
}

struct Link {
    world: Shared,
    port: u16,
    count: u16,
    /// Always readable and writable.
    event: OwnedFd,
    /// Bytes until it breaks, each way.
    takes: usize,
    gives: usize,
    input: Vec<u8>,
    parser: Parser,
    output: VecDeque<u8>,
    broken: bool,
    asking: bool,
    /// Whether it gives no reply until another request comes.
    is_late: bool,
}

impl Link {
    /// Takes whole requests; if the link has broken, some of the last ones are lost.
    fn serve(&mut self) {
        let mut world = lock(&self.world);
        let mut lost = self.broken && world.rng.one_in(2);
        while let Ok(Some(used)) = self.parser.parse(&mut self.input, &Limits::default()) {
            let args: Vec<Vec<u8>> = {
                let args = self.parser.args(&self.input);
                (0..args.len()).map(|at| args.at(at).to_vec()).collect()
            };
            self.input.drain(..used);
            lost |= self.broken && world.rng.one_in(4);
            let mut reply = Vec::new();
            self.is_late = args[0] == b"CLUSTER" && world.late_map;
            match &args[0][..] {
                b"HELLO" if world.is_cluster => {
                    reply.extend_from_slice(b"%2\r\n$5\r\nproto\r\n:3\r\n$4\r\nmode\r\n$7\r\ncluster\r\n");
                }
                b"HELLO" => reply.extend_from_slice(b"%1\r\n$5\r\nproto\r\n:3\r\n"),
                b"ASKING" => {
                    self.asking = true;
                    reply.extend_from_slice(b"+OK\r\n");
                }
                b"CLUSTER" => reply.extend_from_slice(&world.map(self.count)),
                name => {
                    let asked = std::mem::take(&mut self.asking);
                    let slot = hash_slot(&args[1]);
                    let number: usize = std::str::from_utf8(&args[1][1..]).unwrap().parse().unwrap();
                    world.fates.entry(number).or_default().arrived += 1;
                    let owner = world.owner(slot, self.count);
                    let asks = world.asked.get(&slot).copied();
                    if owner != self.port && !(asked && asks == Some(self.port)) {
                        reply.extend_from_slice(format!("-MOVED {slot} :{owner}\r\n").as_bytes());
                    } else if let Some(to) = asks.filter(|&to| to != self.port) {
                        reply.extend_from_slice(format!("-ASK {slot} host:{to}\r\n").as_bytes());
                    } else {
                        let fate = world.fates.entry(number).or_default();
                        fate.taken += 1;
                        if !lost {
                            fate.executed += 1;
                        }
                        answer(name, number, &args, &mut reply);
                    }
                    if world.rng.one_in(10) {
                        self.output.extend(b">2\r\n+message\r\n$2\r\nhi\r\n");
                    }
                }
            }
            self.output.extend(reply);
        }
    }
}

/// SET has to bring the number's value, and GET gets it.
fn answer(name: &[u8], number: usize, args: &[Vec<u8>], reply: &mut Vec<u8>) {
    match name {
        b"SET" if args[2] == value(number) => reply.extend_from_slice(b"+OK\r\n"),
        b"SET" => reply.extend_from_slice(b"-ERR another value\r\n"),
        b"GET" => {
            let value = value(number);
            reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\n");
        }
        _ => reply.extend_from_slice(b"-ERR unknown\r\n"),
    }
}

fn value(number: usize) -> Vec<u8> {
    let len = if number.is_multiple_of(5) { 20_000 + number * 7 } else { number % 50 };
    (0..len).map(|at| (at + number) as u8).collect()
}

impl Read for Link {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.serve();
        let mut world = lock(&self.world);
        if self.broken && (self.output.is_empty() || world.rng.one_in(2)) {
            return Ok(0);
        }
        if self.output.is_empty() || self.is_late || world.rng.one_in(5) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = if world.rng.one_in(2) { 10 } else { 1 << 20 };
        let len = (1 + world.rng.below(most) as usize).min(buf.len()).min(self.output.len()).min(self.gives);
        if len == 0 {
            self.broken = true;
            return Err(ErrorKind::ConnectionReset.into());
        }
        self.gives -= len;
        buf[..len].iter_mut().zip(self.output.drain(..len)).for_each(|(to, from)| *to = from);
        Ok(len)
    }
}

impl Write for Link {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut world = lock(&self.world);
        if world.rng.one_in(5) {
            return Err(ErrorKind::WouldBlock.into());
        }
        let most = if world.rng.one_in(2) { 30 } else { 1 << 20 };
        let len = (1 + world.rng.below(most) as usize).min(buf.len()).min(self.takes);
        drop(world);
        if len == 0 || self.broken {
            self.broken = true;
            self.serve();
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.takes -= len;
        self.input.extend_from_slice(&buf[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Link {
    /// What was taken may be executed after the client has gone.
    fn drop(&mut self) {
        self.broken = true;
        self.serve();
    }
}

impl Transport for Link {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn connected(&self) -> io::Result<()> {
        Ok(())
    }
}

struct Run {
    world: Shared,
    client: Client,
    rng: Rng,
}

impl Run {
    fn new(seed: u64, servers: u16, faults: bool) -> Run {
        let world = World {
            rng: Rng(seed),
            fates: BTreeMap::new(),
            moved: BTreeMap::new(),
            asked: BTreeMap::new(),
            faults,
            is_cluster: false,
            maps: 0,
            late_map: false,
            links: 0,
        };
        let world = Arc::new(Mutex::new(world));
        let mut config = Config::new((0..servers).map(|port| format!("host:{port}"))).unwrap();
        config.network = Some(Box::new(Servers { world: Arc::clone(&world), count: servers }));
        config.resends_max = 10;
        Run { world, client: Client::new(config).unwrap(), rng: Rng(!seed) }
    }
}

/// What was asked for.
enum Asked {
    Set,
    Get,
    GetInto,
}

fn run(seed: u64) -> [u64; 4] {
    let mut counts = [0; 4];
    let mut rng = Rng(seed ^ 77);
    let servers = 1 + rng.below(3) as u16;
    let faults = !rng.one_in(5);
    let Run { world, client, mut rng } = Run::new(seed, servers, faults);
    lock(&world).is_cluster = rng.one_in(2);
    let mut requests = VecDeque::new();
    let count = 1 + rng.below(150) as usize;
    for number in 0..count {
        let key = format!("k{number}");
        {
            let mut world = lock(&world);
            let to = world.rng.below(u64::from(servers)) as u16;
            if world.rng.one_in(5) {
                world.moved.insert(hash_slot(key.as_bytes()), to);
            } else if world.rng.one_in(10) {
                world.asked.insert(hash_slot(key.as_bytes()), to);
            }
        }
        let capacity = value(number).len() + rng.below(3) as usize;
        let (asked, id) = match rng.below(4) {
            0 => (Asked::Set, client.bset(key.as_bytes(), &value(number))),
            1 => (Asked::Set, client.iset(key.as_bytes(), Box::new(value(number)))),
            2 => (Asked::Get, client.bget(key.as_bytes())),
            _ => {
                let target = Target::Vec(vec![0; capacity.saturating_sub(rng.below(2) as usize)]);
                (Asked::GetInto, client.iget(key.as_bytes(), target))
            }
        };
        let id = id.expect("there is room");
        requests.push_back((number, asked, id));
        match rng.below(10) {
            0 => drop(client.test(id).expect("it is there")),
            1 => client.flush(),
            2 => client.cancel(id).expect("it is there"),
            3 => {
                client.progress(Duration::ZERO);
            }
            _ => {}
        }
    }
    let started = Instant::now();
    while let Some((number, asked, id)) = requests.pop_front() {
        assert!(client.wait(id, Some(Duration::from_secs(20))).unwrap(), "seed {seed}: {number} is not done");
        let Filled { result, buffer, len: filled } = client.take_into(id).unwrap();
        assert_eq!(client.take(id), Err(Error::NoSuchRequest));
        let fate = lock(&world).fates.get(&number).cloned().unwrap_or_default();
        let is_write = matches!(asked, Asked::Set);
        let context = format!("seed {seed}, request {number}: {result:?}, {fate:?}");
        assert!(!is_write || fate.taken <= 1, "sent twice: {context}");
        let executed = match &result {
            Ok(reply) => {
                match asked {
                    Asked::Set => assert_eq!(*reply, Reply::Simple(b"OK".to_vec()), "{context}"),
                    Asked::Get => assert_eq!(*reply, Reply::Bulk(value(number)), "{context}"),
                    Asked::GetInto => {
                        assert_eq!(
                            buffer[..filled.expect("it is in the buffer")],
                            value(number),
                            "{context}"
                        );
                    }
                }
                counts[0] += 1;
                Executed::Yes
            }
            Err(error) => {
                if let Error::TooSmall { needed } = error {
                    assert_eq!(*needed, value(number).len());
                    assert!(buffer.len() < *needed);
                }
                error.executed()
            }
        };
        match executed {
            Executed::Yes => assert!(fate.executed >= 1, "{context}"),
            Executed::No => {
                assert!(!is_write || fate.taken == 0, "{context}");
                counts[1] += 1;
            }
            Executed::Unknown if matches!(result, Err(Error::Cancelled { .. })) => counts[2] += 1,
            Executed::Unknown => {
                assert!(fate.arrived >= 1 && faults, "it cannot have been executed: {context}");
                counts[3] += 1;
            }
        }
    }
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(client.in_flight(), 0);
    drop(client);
    counts
}

#[test]
fn outcomes_are_true_whatever_servers_do() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let mut counts = [0; 4];
    let seeds = match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HOLDFAST_SEEDS").unwrap_or(150),
    };
    let all = seeds.end - seeds.start > 1;
    for seed in seeds {
        let more = run(seed);
        counts.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
    eprintln!("replies, not executed, cancelled, unknown: {counts:?}");
    assert!(!all || counts.iter().all(|&count| count > 0), "{counts:?}");
}

#[test]
fn without_faults_everything_is_answered_wherever_keys_are() {
    for seed in 0..20 {
        let Run { world, client, mut rng } = Run::new(seed, 3, false);
        for number in 0..200 {
            let slot = hash_slot(format!("k{number}").as_bytes());
            lock(&world).moved.insert(slot, rng.below(3) as u16);
        }
        let set = |number: usize| {
            let key = format!("k{number}");
            // What is lent is kept until the server that has the key has replied.
            client.iset(key.as_bytes(), Box::new(value(number))).expect("there is room")
        };
        let ids: Vec<_> = (0..200).map(set).collect();
        assert!(client.wait_all(&ids, Some(Duration::from_secs(20))).unwrap());
        assert!(ids.iter().all(|&id| client.take(id) == Ok(Reply::Simple(b"OK".to_vec()))));
        let world = lock(&world);
        assert!(world.links <= 3 && world.fates.values().all(|fate| fate.executed == 1));
        assert_eq!(world.fates.len(), 200);
    }
}

/// A client that is told of one node of a cluster, whose keys are anywhere.
fn of_a_cluster(seed: u64, connect_timeout: Duration) -> Run {
    let Run { world, mut rng, .. } = Run::new(seed, 3, false);
    {
        let mut world = lock(&world);
        world.is_cluster = true;
        for number in 0..300 {
            let slot = hash_slot(format!("k{number}").as_bytes());
            world.moved.insert(slot, rng.below(3) as u16);
        }
    }
    let mut config = Config::new(["host:1"]).unwrap();
    config.network = Some(Box::new(Servers { world: Arc::clone(&world), count: 3 }));
    config.connect_timeout = connect_timeout;
    Run { world, client: Client::new(config).unwrap(), rng }
}

#[test]
fn a_node_of_a_cluster_is_asked_for_the_slots_before_anything_is_sent() {
    for seed in 0..20 {
        let Run { world, client, .. } = of_a_cluster(seed, Duration::from_secs(20));
        let set = |number: usize| {
            let key = format!("k{number}");
            client.iset(key.as_bytes(), Box::new(value(number))).expect("there is room")
        };
        // Some are there before the connection is, some come while the node is asked, and some later.
        let mut ids: Vec<_> = (0..100).map(set).collect();
        client.progress(Duration::ZERO);
        ids.extend((100..200).map(set));
        assert!(client.wait_all(&ids, Some(Duration::from_secs(20))).unwrap());
        ids.extend((200..300).map(set));
        assert!(client.wait_all(&ids, Some(Duration::from_secs(20))).unwrap());
        assert!(ids.iter().all(|&id| client.take(id) == Ok(Reply::Simple(b"OK".to_vec()))));
        let world = lock(&world);
        assert_eq!(world.maps, 1);
        assert!(world.links <= 3 && world.fates.len() == 300);
        assert!(world.fates.values().all(|fate| fate.arrived == 1), "redirected: {:?}", world.fates);
    }
}

#[test]
fn a_node_that_does_not_tell_the_slots_is_not_waited_for_for_long() {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let Run { world, client, .. } = of_a_cluster(1, TIMEOUT);
    lock(&world).late_map = true;
    let started = Instant::now();
    let ids: Vec<_> = (0..100)
        .map(|number| client.bset(format!("k{number}").as_bytes(), &value(number)).unwrap())
        .collect();
    assert!(client.wait_all(&ids, Some(Duration::from_secs(20))).unwrap());
    assert!(ids.iter().all(|&id| client.take(id) == Ok(Reply::Simple(b"OK".to_vec()))));
    assert!(started.elapsed() >= TIMEOUT && lock(&world).fates.values().all(|fate| fate.executed == 1));
}

#[test]
fn what_is_held_is_bounded() {
    let Run { world, .. } = Run::new(1, 1, false);
    let mut config = Config::new(["host:0"]).unwrap();
    config.network = Some(Box::new(Servers { world: Arc::clone(&world), count: 1 }));
    (config.requests_max, config.bytes_max) = (3, 100_000);
    let client = Client::new(config).unwrap();
    let ids: Vec<_> =
        (1..4).map(|number| client.bset(format!("k{number}").as_bytes(), &value(number)).unwrap()).collect();
    assert_eq!(client.bget(b"k1"), Err(Error::Full));
    assert!(client.wait_all(&ids, None).unwrap());
    // A result that was not taken counts.
    assert_eq!(client.bget(b"k1"), Err(Error::Full));
    client.take(ids[0]).unwrap();
    let one = client.bget(b"k5").unwrap();
    assert!(client.wait(one, None).unwrap());
    client.take(ids[1]).unwrap();
    assert_eq!(client.bset(b"k9", &[0; 90_000]), Err(Error::Full));
    assert_eq!(client.take(one), Ok(Reply::Bulk(value(5))));
    let big = client.bset(b"k9", &[0; 90_000]).unwrap();
    client.release(big).unwrap();
    assert_eq!(client.release(big), Err(Error::NoSuchRequest));
    assert!(matches!(client.submit(Command::new("MULTI")), Err(Error::Invalid(_))));
}
