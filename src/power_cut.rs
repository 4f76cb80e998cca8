//! Power cuts amid all commands that write, on a simulated machine: after each cut, what is recovered must be exactly the
//! state after some command, and nothing that was acknowledged may be missing.
//!
//! `HOLDFAST_SEEDS=1000` runs the long form, `HOLDFAST_SEED=n` one seed. The store's own test of power cuts knows its types
//! and looks deeper; this one knows the command table, so that no command is left out.

#[path = "../tests/every_write/calls.rs"]
mod calls;

use crate::{
    answer::{Outcome, Wake},
    client::Client,
    command::Flags,
    config::{Config, Opt},
    dispatch::Turn,
    script::stack::OnStack,
    server::Server,
    session::Session,
    table::TABLE,
    worker::Worker,
};
use calls::Template;
use holdfast_resp::{OwnedArgs, Reply};
use holdfast_store::{Options, SimIo, Store};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    rc::Rc,
    sync::Arc,
    time::Instant,
};
use tokio::sync::mpsc;

const DATABASES: usize = 4;

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// A server without threads, and a client of it.
struct World {
    worker: Rc<Worker>,
    session: Session,
    /// Commands that did not fail.
    done: BTreeSet<&'static str>,
}

impl World {
    fn start(sim: &SimIo, options: &Options) -> Option<World> {
        let store = Store::open_on(Arc::new(sim.clone()), options.clone()).ok()?;
        store.attach();
        let (sender, _) = mpsc::unbounded_channel();
        let config = Config::default();
        config.set(Opt::EnableDebugCommand, &["yes"]).expect("an option");
        let server = Server::new(config, Arc::new(store), vec![sender]);
        server.apply_all().expect("the default options");
        let wrong = server.libraries.load(&server.store);
        assert!(wrong.is_empty(), "{wrong:?}");
        let client = Client::new(1, String::new(), String::new(), 0, 0, true);
        let session = Session::new(Arc::new(client), &server.acl);
        Some(World { worker: Rc::new(Worker::new(server, 0)), session, done: BTreeSet::new() })
    }

    fn store(&self) -> &Store {
        &self.worker.server.store
    }

    /// Runs a command to its end: the reply, and what of the log it depends on; `None` after the cut.
    fn call(&mut self, args: &[impl AsRef<[u8]>]) -> Option<(Reply, u64)> {
        let args = OwnedArgs::from_iter(args);
        let worker = self.worker.clone();
        let turn = Turn::new(&worker, Instant::now());
        let (mut out, mut wake, mut fetched, mut on_stack) = (Vec::new(), Wake::First, Vec::new(), false);
        for _ in 0..1000 {
            let session = &mut self.session;
            let mut run = || turn.execute(session, args.args(), &mut out, wake, std::mem::take(&mut fetched));
            match if on_stack { run_on_stack(&worker, run) } else { run() } {
                Outcome::Done | Outcome::Close => {
                    let (reply, _) = Reply::parse(&out).expect("a valid reply")?;
                    return Some((reply, turn.take_gate()));
                }
                Outcome::OnStack => on_stack = true,
                Outcome::Wait(_) => wake = Wake::Timeout,
                Outcome::Fetch(cold) => {
                    fetched = cold.into_iter().map(|cold| self.store().fetch(cold)).collect();
                    if self.store().log().failed().is_some() {
                        return None;
                    }
                }
                Outcome::Postpone(_) => self.maintain()?,
                Outcome::Behind | Outcome::WaitFor(_) => panic!("there is no other client or server"),
            }
        }
        panic!("{:?} does not end", String::from_utf8_lossy(args.args().at(0)));
    }

    /// Makes room.
    fn maintain(&mut self) -> Option<()> {
        let store = self.store();
        while store.sweep() {}
        store.log().commit_once().ok()?;
        store.checkpoint().ok()?;
        store.clean().ok().map(drop)
    }

    /// All that can be read; `None` after the cut.
    fn state(&mut self) -> Option<State> {
        let mut state = State::new();
        for db in 0..DATABASES {
            self.call(&["select", &db.to_string()])?;
            let Reply::Array(keys) = self.call(&["keys", "*"])?.0 else { panic!("KEYS lists keys") };
            for key in keys {
                let key = key.as_bytes().expect("a key");
                let value = self.call(&[b"dump".as_slice(), key])?.0;
                let expiry = self.call(&[b"pexpiretime".as_slice(), key])?.0;
                state.insert(format!("{db} {}", key.escape_ascii()), format!("{value:?} {expiry:?}"));
            }
        }
        self.call(&["select", "0"])?;
        state.insert("functions".into(), format!("{:?}", self.call(&["function", "dump"])?.0));
        Some(state)
    }
}

/// Each key with its value and expiry, and the functions.
type State = BTreeMap<String, String>;

fn run_on_stack(worker: &Worker, run: impl FnOnce() -> Outcome) -> Outcome {
    let mut running = OnStack::new(worker.take_stack().expect("memory"), run);
    let outcome = std::iter::repeat_with(|| running.resume()).flatten().next();
    worker.give_stack(running.into_stack());
    outcome.expect("an endless iterator")
}

/// One life of a machine after another, each ended by a power cut.
fn history(seed: u64, templates: &[Template]) -> BTreeSet<&'static str> {
    let mut rng = Rng(seed);
    let mut sim = SimIo::new(seed);
    let options = Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        log_bytes_max: (64 << 10) * 64,
        heap_bytes_max: 32 << 20,
        memory_bytes_max: if rng.one_in(2) { 256 << 10 } else { usize::MAX },
        background: false,
        ..Options::default()
    };
    let mut done = BTreeSet::new();
    // The states that the machine may be in after the cut, the last acknowledged one first.
    let mut states: Option<Vec<State>> = None;
    for _ in 0..1 + rng.below(4) {
        let Some(mut world) = World::start(&sim, &options) else {
            sim = sim.crash();
            continue;
        };
        let recovered = world.state().expect("the power is on");
        if let Some(states) = &states {
            let last: &State = &states[0];
            let differs = |key: &&String| last.get(*key) != recovered.get(*key);
            let keys: BTreeSet<&String> = last.keys().chain(recovered.keys()).filter(differs).collect();
            assert!(states.contains(&recovered), "no command has left what was recovered; see {keys:?}");
        }
        world.store().check().expect("a sound store after recovery");
        let mut after = vec![(0, recovered)];
        if rng.one_in(2) {
            sim.crash_after(1 + rng.below(300));
        }
        for _ in 0..rng.below(150) {
            // A command, or some in a transaction.
            let calls = if rng.one_in(6) { 2 + rng.below(4) } else { 1 };
            let transaction = calls > 1;
            if transaction && world.call(&["multi"]).is_none() {
                break;
            }
            let mut result = None;
            for _ in 0..calls {
                let template = &templates[rng.below(templates.len() as u64) as usize];
                result = world.call(&template.fill(0, &mut |end| rng.below(end)));
                if matches!(&result, Some((reply, _)) if !transaction && !matches!(reply, Reply::Error(_))) {
                    let names = TABLE.all().map(|(_, command)| command.name);
                    world.done.extend(names.filter(|name| template.is_of(name)));
                }
            }
            if transaction {
                result = world.call(&["exec"]);
            }
            let Some((_, gate)) = result else { break };
            // What the command has expired or made by reading counts to the next one.
            let Some(state) = world.state() else { break };
            after.push((gate, state));
            if rng.one_in(3) && world.store().log().commit_once().is_err()
                || rng.one_in(40) && world.maintain().is_none()
            {
                break;
            }
        }
        let durable = world.store().log().durable();
        let acknowledged = after.iter().take_while(|(gate, _)| *gate <= durable).count();
        states = Some(after[acknowledged - 1..].iter().map(|(_, state)| state.clone()).collect());
        done.append(&mut world.done);
        sim = sim.crash();
    }
    done
}

#[test]
fn a_power_cut_amid_any_command_loses_nothing_acknowledged() {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HOLDFAST_SEEDS").unwrap_or(60),
    };
    // One needs another server, whose fate is not in the hands of this test.
    let alone = |name: &str| name != "migrate";
    let mut templates = Template::all();
    templates.retain(|template| !template.is_of("migrate"));
    let all = seeds.end - seeds.start >= 60;
    let mut done = BTreeSet::new();
    for seed in seeds {
        eprintln!("HOLDFAST_SEED={seed}");
        done.append(&mut history(seed, &templates));
    }
    let writes = TABLE.all().filter(|(_, c)| c.flags.has(Flags::WRITE) && c.subcommands.is_empty());
    let never: Vec<&str> =
        writes.map(|(_, c)| c.name).filter(|name| alone(name) && !done.contains(name)).collect();
    assert!(!all || never.is_empty(), "tests/every_write/calls.txt makes no call that succeeds of {never:?}");
}
