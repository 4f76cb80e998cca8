//! `kill -9` under load, again and again on the same data.
//!
//! Each writer has keys of its own and changes them in numbered steps, pipelined on one connection. So after a crash
//! its keys must hold what they held after some first part of its steps, and this part must have every step that was
//! acknowledged, and every step that a reader saw the effect of. A MULTI is one step: half of it is no such state.
//!
//! `HOLDFAST_KILL_ROUNDS=200` runs the long form, `HOLDFAST_SEED=n` with the choices of another run (but not its
//! moments: how far the server gets until it is killed is the machine's choice).

mod model;

use crate::harness::{Client, Folder, Rng, Server, assert_sound, is_error, long_form, number, seed};
use holdfast_resp::{Reply, write_command};
use model::{Model, Step};
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

const WRITERS: usize = 4;
const READERS: usize = 2;
/// Steps that a writer sends before it reads a reply.
const PIPELINE: u64 = 32;
const OPTIONS: [&str; 2] = ["--appendfsync", "always"];

struct Writer {
    id: usize,
    rng: Rng,
    /// Its keys after the last step that was acknowledged.
    acknowledged: Model,
    /// The number of this step.
    number: u64,
    /// The steps that were sent after it.
    sent: VecDeque<Step>,
    /// The newest step that a reader saw something of.
    seen: AtomicU64,
}

impl Writer {
    /// Writes until the server is gone.
    fn run(&mut self, mut client: Client) {
        loop {
            let mut request = Vec::new();
            for _ in 0..1 + self.rng.below(PIPELINE) {
                let number = self.number + self.sent.len() as u64 + 1;
                let step = Step::random(self.id, number, &mut self.rng);
                step.write(&mut request);
                self.sent.push_back(step);
            }
            if client.try_send(&request).is_err() {
                return;
            }
            while let Some(step) = self.sent.front() {
                let replies: Vec<Reply> = (0..step.replies()).map_while(|_| client.try_reply()).collect();
                if replies.len() < step.replies() {
                    return;
                }
                assert_eq!(replies, step.apply(&mut self.acknowledged), "writer {}: {step:?}", self.id);
                self.number += 1;
                self.sent.pop_front();
            }
        }
    }

    /// After a crash: finds the steps that survived.
    fn recover(&mut self, client: &mut Client) {
        let found = Model::read(client, self.id);
        let must_have = self.number.max(*self.seen.get_mut());
        let mut state = self.acknowledged.clone();
        let mut survived = None;
        let mut nearest = (0, found.differences(&state));
        for nth in 0..=self.sent.len() {
            if nth > 0 {
                self.sent[nth - 1].apply(&mut state);
            }
            let differences = found.differences(&state);
            if differences.is_empty() && self.number + nth as u64 >= must_have {
                survived = Some(nth);
            }
            if differences.len() <= nearest.1.len() {
                nearest = (nth, differences);
            }
        }
        let Some(survived) = survived else {
            panic!(
                "writer {}: of {} steps {} were acknowledged and a reader saw step {must_have}; what is there is most \
                 like the state after {}, with the differences {:#?}\nsteps not acknowledged: {:#?}",
                self.id,
                self.number + self.sent.len() as u64,
                self.number,
                self.number + nearest.0 as u64,
                nearest.1,
                self.sent,
            );
        };
        self.sent.drain(..survived).for_each(|step| drop(step.apply(&mut self.acknowledged)));
        self.number += survived as u64;
        self.sent.clear();
    }
}

/// What readers know of a writer.
struct Seen {
    /// The newest step that one of them saw something of.
    step: AtomicU64,
    /// Whether its group is there.
    has_group: AtomicBool,
}

/// Reads what the writers write, of every type, until the server is gone, and remembers what it saw of each.
fn read(mut client: Client, mut rng: Rng, seen: &[Seen]) {
    loop {
        let id = rng.below(seen.len() as u64) as usize;
        let mut commands = vec![model::read_one(id, &mut rng)];
        let is_group = rng.one_in(2);
        if is_group {
            commands = model::read_group(id);
            commands.insert(0, "MULTI".into());
            commands.push("EXEC".into());
        }
        let mut request = Vec::new();
        for command in &commands {
            write_command(&mut request, &command.split(' ').collect::<Vec<_>>());
        }
        let has_group = seen[id].has_group.load(Relaxed);
        if client.try_send(&request).is_err() {
            return;
        }
        let mut last = Reply::Null;
        for _ in &commands {
            let Some(reply) = client.try_reply() else { return };
            last = reply;
        }
        assert!(!is_error(&last, ""), "{last:?}");
        let newest = match &last {
            Reply::Array(values) if is_group => {
                let steps: Vec<_> = values.iter().map(model::step_of).collect();
                assert!(steps.iter().all(|step| *step == steps[0]), "half a MULTI of {id}: {steps:?}");
                assert!(steps[0].is_some() || !has_group, "the group of {id} has vanished");
                seen[id].has_group.fetch_or(steps[0].is_some(), Relaxed);
                steps[0]
            }
            reply => model::step_of(reply),
        };
        seen[id].step.fetch_max(newest.unwrap_or(0), Relaxed);
    }
}

/// Asks for checkpoints until the server is gone.
fn checkpoint(mut client: Client, mut rng: Rng) {
    while client.try_call("BGSAVE").is_some() {
        thread::sleep(Duration::from_micros(rng.below(100_000)));
    }
}

/// Lets all writers and readers loose on a server until it is killed.
fn load(server: Server, writers: &mut [Writer], rng: &mut Rng) -> Folder {
    let moment = Duration::from_micros(rng.below(300_000));
    let known = |writer: &Writer| Seen {
        step: AtomicU64::new(0),
        has_group: AtomicBool::new(writer.acknowledged.has_group(writer.id)),
    };
    let seen: Vec<Seen> = writers.iter().map(known).collect();
    let folder = thread::scope(|scope| {
        for _ in 0..READERS {
            let (client, rng) = (server.client(), Rng(rng.draw()));
            let seen = &seen;
            scope.spawn(move || read(client, rng, seen));
        }
        let (client, rng) = (server.client(), Rng(rng.draw()));
        scope.spawn(move || checkpoint(client, rng));
        for writer in writers.iter_mut() {
            let client = server.client();
            scope.spawn(move || writer.run(client));
        }
        thread::sleep(moment);
        server.kill()
    });
    for (writer, seen) in writers.iter_mut().zip(seen) {
        writer.seen = seen.step;
    }
    folder
}

#[test]
fn nothing_acknowledged_or_seen_is_lost() {
    let mut rng = Rng(seed());
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|id| Writer {
            id,
            rng: Rng(rng.draw()),
            acknowledged: Model::default(),
            number: 0,
            sent: VecDeque::new(),
            seen: AtomicU64::new(0),
        })
        .collect();
    let mut folder = Folder::new();
    for round in 0..long_form("HOLDFAST_KILL_ROUNDS", 10) {
        if rng.one_in(3) {
            // It dies while it recovers.
            let server = Server::spawn(folder, &OPTIONS);
            thread::sleep(Duration::from_micros(rng.below(30_000)));
            folder = server.kill();
        }
        let mut server = Server::start_in(folder, &OPTIONS);
        let mut client = server.client();
        writers.iter_mut().for_each(|writer| writer.recover(&mut client));
        let keys = writers.iter().map(|writer| writer.acknowledged.len()).sum();
        assert_eq!(number(&client.call("DBSIZE")), Some(keys), "round {round}");
        if rng.one_in(5) {
            server = server.restart(Server::stop);
        }
        folder = load(server, &mut writers, &mut rng);
        let steps: u64 = writers.iter().map(|writer| writer.number).sum();
        eprintln!("round {round}: {steps} steps acknowledged");
    }
    let server = Server::start_in(folder, &OPTIONS);
    let mut client = server.client();
    writers.iter_mut().for_each(|writer| writer.recover(&mut client));
    assert_sound(&server.stop());
}
