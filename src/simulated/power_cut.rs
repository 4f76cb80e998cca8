//! Power cuts amid all commands that write, on a simulated machine: after each cut, what is recovered must be exactly the
//! state after some command, and nothing that was acknowledged may be missing.
//!
//! `HOLDFAST_SEEDS=1000` runs the long form, `HOLDFAST_SEED=n` one seed. The store's own test of power cuts knows its types
//! and looks deeper; this one knows the command table, so that no command is left out.

#[path = "../../tests/server/every_write/calls.rs"]
pub mod calls;

use super::World;
use crate::{command::Flags, commands::ROWS};
use calls::Template;
use holdfast_fuzz::Rng;
use holdfast_resp::Reply;
use holdfast_store::{Options, SimIo};
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ops::Range,
};

/// How many databases the calls use.
pub const DATABASES: usize = 4;

/// Each key, after the number of its database, with its value and expiry; and the functions.
pub type State = BTreeMap<String, (Reply, Reply)>;

/// All that can be read; `None` after the cut, or if something cannot be.
pub fn state(world: &mut World) -> Option<State> {
    let mut state = State::new();
    for db in 0..DATABASES {
        world.call(&["select", &db.to_string()])?;
        let keys = match world.call(&["keys", "*"])?.0 {
            Reply::Array(keys) => keys,
            Reply::Error(_) => return None,
            other => panic!("KEYS lists keys: {other:?}"),
        };
        for key in keys {
            let key = key.as_bytes().expect("a key");
            let value = world.call(&[b"dump".as_slice(), key])?.0;
            let expiry = world.call(&[b"pexpiretime".as_slice(), key])?.0;
            if matches!(value, Reply::Error(_)) {
                return None;
            }
            state.insert(name(db, key), (value, expiry));
        }
    }
    world.call(&["select", "0"])?;
    let functions = world.call(&["function", "dump"])?.0;
    state.insert("functions".into(), (functions, Reply::Null));
    Some(state)
}

/// What a key is called in a state.
pub fn name(db: usize, key: &[u8]) -> String {
    format!("{db} {}", key.escape_ascii())
}

/// Of a small store, whose memory is short in every other history.
pub fn options(rng: &mut Rng) -> Options {
    Options {
        partitions: 1 << rng.below(3),
        segment_size: Some(64 << 10),
        log_bytes_max: (64 << 10) * 64,
        heap_bytes_max: 32 << 20,
        memory_bytes_max: if rng.one_in(2) { 256 << 10 } else { usize::MAX },
        background: false,
        ..Options::default()
    }
}

/// All calls but those that need another server, whose fate is not in the hands of these tests.
pub fn templates() -> Vec<Template> {
    let mut templates = Template::all();
    templates.retain(|template| !template.is_of("migrate"));
    templates
}

/// The seeds that the environment names, or so many.
pub fn seeds(count: u64) -> Range<u64> {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HOLDFAST_SEEDS").unwrap_or(count),
    }
}

/// One life of a machine after another, each ended by a power cut.
fn history(seed: u64, templates: &[Template]) -> BTreeSet<&'static str> {
    let mut rng = Rng::new(seed);
    let mut sim = SimIo::new(seed);
    let options = options(&mut rng);
    let mut done = BTreeSet::new();
    // The states that the machine may be in after the cut, the last acknowledged one first.
    let mut states: Option<Vec<State>> = None;
    for _ in 0..1 + rng.below(4) {
        let is_armed = rng.one_in(3);
        if is_armed {
            // Some of these cuts come while the data folder is being made or recovered.
            sim.crash_after(1 + rng.below(20));
        }
        let mut world = match World::start(&sim, &options, &[]) {
            Ok(world) => world,
            Err(why) => {
                assert!(sim.is_power_cut(&why), "the server does not start: {why}");
                sim = sim.crash();
                continue;
            }
        };
        let recovered = state(&mut world).expect("the power is on");
        if let Some(states) = &states {
            let last: &State = &states[0];
            let differs = |key: &&String| last.get(*key) != recovered.get(*key);
            let keys: BTreeSet<&String> = last.keys().chain(recovered.keys()).filter(differs).collect();
            assert!(states.contains(&recovered), "no command has left what was recovered; see {keys:?}");
        }
        world.store().check().expect("a sound store after recovery");
        let mut after = vec![(0, recovered)];
        if !is_armed && rng.one_in(2) {
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
                let template = &templates[rng.index(templates.len())];
                result = world.call(&template.fill(0, &mut |end| rng.below(end)));
                if matches!(&result, Some((reply, _)) if !transaction && !matches!(reply, Reply::Error(_))) {
                    let names = ROWS.table.all().map(|(_, command)| command.name);
                    done.extend(names.filter(|name| template.is_of(name)));
                }
            }
            if transaction {
                result = world.call(&["exec"]);
            }
            let Some((_, wait_lsn)) = result else { break };
            // What the command has expired or made by reading counts to the next one.
            let Some(state) = state(&mut world) else { break };
            after.push((wait_lsn, state));
            if rng.one_in(3) && world.store().log().commit_once().is_err()
                || rng.one_in(40) && world.maintain().is_none()
            {
                break;
            }
        }
        let durable = world.store().log().durable();
        let acknowledged = after.iter().take_while(|(wait_lsn, _)| *wait_lsn <= durable).count();
        states = Some(after[acknowledged - 1..].iter().map(|(_, state)| state.clone()).collect());
        sim = sim.crash();
    }
    done
}

#[test]
fn a_power_cut_amid_any_command_loses_nothing_acknowledged() {
    let (seeds, templates) = (seeds(60), templates());
    let alone = |name: &str| name != "migrate";
    let all = seeds.end - seeds.start >= 60;
    let writes =
        ROWS.table.all().filter(|(id, c)| c.flags.has(Flags::WRITE) && !ROWS.table.is_container(*id));
    let mut never: BTreeSet<&str> = writes.map(|(_, c)| c.name).filter(|name| alone(name)).collect();
    // More than these only until each command has succeeded once.
    let more = if all { seeds.end..10 * seeds.end } else { 0..0 };
    for seed in seeds.clone().chain(more) {
        if never.is_empty() && !seeds.contains(&seed) {
            break;
        }
        eprintln!("HOLDFAST_SEED={seed}");
        let done = history(seed, &templates);
        never.retain(|name| !done.contains(name));
    }
    assert!(
        !all || never.is_empty(),
        "tests/server/every_write/calls.txt makes no call that succeeds of {never:?}"
    );
}
