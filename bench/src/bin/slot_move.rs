//! Fills a node of a cluster, has it send all of its slots to another one (CLUSTER MIGRATESLOTS) while keys are written, and looks
//! for each key where it is then. Prints one line of JSON: what writes took before and meanwhile, and what was refused or lost.
//!
//! ```text
//! slot_move --source 7001 --target 7002 --keys 5000000 --value 1000 --rate 50000 --clients 50 --seconds 10
//! ```
//! Each key has one writer, whose values count up: a value that is older than what was acknowledged is a lost write. `bench/slot_move.py`
//! starts the nodes.

use holdfast_io::{Counts, Histogram};
use holdfast_resp::{skip_reply, write_command};
use lexopt::{Arg, Parser, ValueExt};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::{
    cell::{Cell, RefCell},
    error::Error,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Builder,
    task::LocalSet,
    time::sleep,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Commands that are sent at once where time does not matter.
const PIPELINE: usize = 64;
/// How often it is asked how far the transfer is.
const ASK: Duration = Duration::from_millis(50);

struct Load {
    source: u16,
    target: u16,
    keys: usize,
    value: usize,
    rate: f64,
    clients: usize,
    seconds: f64,
}

impl Load {
    fn from_arguments() -> Result<Load> {
        let mut load = Load {
            source: 0,
            target: 0,
            keys: 100_000,
            value: 1000,
            rate: 50_000.0,
            clients: 50,
            seconds: 10.0,
        };
        let mut arguments = Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Arg::Long("source") => load.source = arguments.value()?.parse()?,
                Arg::Long("target") => load.target = arguments.value()?.parse()?,
                Arg::Long("keys") => load.keys = arguments.value()?.parse()?,
                Arg::Long("value") => load.value = arguments.value()?.parse()?,
                Arg::Long("rate") => load.rate = arguments.value()?.parse()?,
                Arg::Long("clients") => load.clients = arguments.value()?.parse()?,
                Arg::Long("seconds") => load.seconds = arguments.value()?.parse()?,
                _ => return Err(argument.unexpected().into()),
            }
        }
        if load.clients == 0 || load.keys < load.clients || load.source == 0 || load.target == 0 {
            return Err("--source and --target are wanted, and a key for each client".into());
        }
        Ok(load)
    }

    /// A value that begins with a number.
    fn value(&self, number: u64) -> Vec<u8> {
        let mut value = format!("{number:020}").into_bytes();
        value.resize(self.value.max(value.len()), b'.');
        value
    }
}

/// A connection to a node.
struct Node {
    stream: TcpStream,
    input: Vec<u8>,
    at: usize,
}

impl Node {
    async fn connect(port: u16) -> Result<Node> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Node { stream, input: Vec::with_capacity(64 << 10), at: 0 })
    }

    /// The next reply, as it was sent.
    async fn reply(&mut self) -> Result<&[u8]> {
        loop {
            if let Some(len) = skip_reply(&self.input[self.at..]).map_err(|_| "a reply that is none")? {
                let at = self.at;
                self.at += len;
                return Ok(&self.input[at..][..len]);
            }
            self.input.drain(..self.at);
            self.at = 0;
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err("the server has closed the connection".into());
            }
        }
    }

    async fn call(&mut self, words: &[&str]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        write_command(&mut out, words);
        self.stream.write_all(&out).await?;
        Ok(self.reply().await?.to_vec())
    }
}

/// What all writers have in common.
struct Progress {
    /// What was acknowledged last of each key.
    acknowledged: RefCell<Vec<u64>>,
    /// Microseconds that writes took, before the transfer and from then on.
    took: [Histogram; 2],
    phase: Cell<usize>,
    is_over: Cell<bool>,
    sent: Cell<u64>,
    moved: Cell<u64>,
    failed: RefCell<Vec<String>>,
    began: Instant,
}

fn key(number: usize) -> String {
    format!("key:{number:012}")
}

/// Sets each of its keys once.
async fn fill(load: Rc<Load>, client: usize) -> Result<()> {
    let mut node = Node::connect(load.source).await?;
    let own: Vec<usize> = (client..load.keys).step_by(load.clients).collect();
    for some in own.chunks(PIPELINE) {
        let mut out = Vec::new();
        some.iter()
            .for_each(|number| write_command(&mut out, &[b"SET", key(*number).as_bytes(), &load.value(0)]));
        node.stream.write_all(&out).await?;
        for _ in some {
            let reply = node.reply().await?;
            if reply != b"+OK\r\n" {
                return Err(String::from_utf8_lossy(reply).into());
            }
        }
    }
    Ok(())
}

/// Writes its keys in any order, at the node that it was sent to last.
async fn write(load: Rc<Load>, client: usize, progress: Rc<Progress>) -> Result<()> {
    let mut nodes = [Node::connect(load.source).await?, Node::connect(load.target).await?];
    let mut random = SmallRng::seed_from_u64(client as u64);
    let mut at = 0;
    for version in 1.. {
        let due = Duration::from_secs_f64(progress.sent.get() as f64 / load.rate);
        progress.sent.set(progress.sent.get() + 1);
        tokio::time::sleep_until((progress.began + due).into()).await;
        if progress.is_over.get() {
            break;
        }
        let number =
            random.random_range(0..(load.keys - client).div_ceil(load.clients)) * load.clients + client;
        let mut out = Vec::new();
        write_command(&mut out, &[b"SET", key(number).as_bytes(), &load.value(version)]);
        let (phase, began) = (progress.phase.get(), Instant::now());
        loop {
            nodes[at].stream.write_all(&out).await?;
            match nodes[at].reply().await? {
                b"+OK\r\n" => progress.acknowledged.borrow_mut()[number] = version,
                reply if reply.starts_with(b"-MOVED ") => {
                    let port = format!(":{}\r\n", load.target).into_bytes();
                    at = usize::from(reply.ends_with(&port));
                    progress.moved.set(progress.moved.get() + 1);
                    continue;
                }
                reply => progress.failed.borrow_mut().push(String::from_utf8_lossy(reply).into()),
            }
            break;
        }
        progress.took[phase].add(began.elapsed().as_micros() as u64);
    }
    Ok(())
}

/// How many of its keys are not as they were acknowledged.
async fn look(load: Rc<Load>, client: usize, progress: Rc<Progress>) -> Result<u64> {
    let mut node = Node::connect(load.target).await?;
    let own: Vec<usize> = (client..load.keys).step_by(load.clients).collect();
    let mut lost = 0;
    for some in own.chunks(PIPELINE) {
        let mut out = Vec::new();
        some.iter().for_each(|number| write_command(&mut out, &["GET", &key(*number)]));
        node.stream.write_all(&out).await?;
        for number in some {
            let reply = node.reply().await?;
            let value = load.value(progress.acknowledged.borrow()[*number]);
            let is_there = reply.strip_suffix(b"\r\n").is_some_and(|reply| reply.ends_with(&value));
            lost += u64::from(!is_there);
        }
    }
    Ok(lost)
}

/// Has the slots sent; how many seconds that took.
async fn send(load: &Load) -> Result<f64> {
    let (mut source, mut target) = (Node::connect(load.source).await?, Node::connect(load.target).await?);
    let id = target.call(&["CLUSTER", "MYID"]).await?;
    let id = String::from_utf8(id)?.lines().nth(1).ok_or("a name")?.to_owned();
    let began = Instant::now();
    let reply = source.call(&["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", "0", "16383", "NODE", &id]).await?;
    if reply != b"+OK\r\n" {
        return Err(String::from_utf8_lossy(&reply).into());
    }
    loop {
        sleep(ASK).await;
        let told =
            String::from_utf8_lossy(&source.call(&["CLUSTER", "GETSLOTMIGRATIONS"]).await?).into_owned();
        if told.contains("success") {
            return Ok(began.elapsed().as_secs_f64());
        }
        if told.contains("failed") {
            return Err(told.into());
        }
    }
}

async fn run(load: Rc<Load>) -> Result<()> {
    let each = |future| tokio::task::spawn_local(future);
    let filling: Vec<_> = (0..load.clients).map(|client| each(fill(load.clone(), client))).collect();
    for filled in filling {
        filled.await??;
    }
    let progress = Rc::new(Progress {
        acknowledged: RefCell::new(vec![0; load.keys]),
        took: Default::default(),
        phase: Cell::new(0),
        is_over: Cell::new(false),
        sent: Cell::new(0),
        moved: Cell::new(0),
        failed: RefCell::default(),
        began: Instant::now(),
    });
    let writing: Vec<_> = (0..load.clients)
        .map(|client| tokio::task::spawn_local(write(load.clone(), client, progress.clone())))
        .collect();
    sleep(Duration::from_secs_f64(load.seconds)).await;
    let before = progress.sent.get() as f64 / progress.began.elapsed().as_secs_f64();
    progress.phase.set(1);
    let (began, sent) = (Instant::now(), progress.sent.get());
    let took = send(&load).await?;
    let meanwhile = (progress.sent.get() - sent) as f64 / began.elapsed().as_secs_f64();
    progress.is_over.set(true);
    for written in writing {
        written.await??;
    }
    let mut lost = 0;
    for client in 0..load.clients {
        lost += look(load.clone(), client, progress.clone()).await?;
    }
    let mut target = Node::connect(load.target).await?;
    let keys = String::from_utf8(target.call(&["DBSIZE"]).await?)?;
    let [first, second] = progress.took.each_ref().map(|took| Counts::of([took]));
    let failed = progress.failed.borrow();
    println!(
        "{{\"seconds\": {took:.2}, \"rate_before\": {before:.0}, \"rate\": {meanwhile:.0}, \"us_p50_before\": {}, \"us_p99_before\": {}, \"us_p50\": {}, \"us_p99\": {}, \"us_p999\": {}, \"us_max\": {}, \"moved\": {}, \"failed\": {}, \"lost\": {lost}, \"keys_beyond\": {}}}",
        first.percentile(50.0),
        first.percentile(99.0),
        second.percentile(50.0),
        second.percentile(99.0),
        second.percentile(99.9),
        second.percentile(100.0),
        progress.moved.get(),
        failed.len(),
        keys.trim()[1..].parse::<i64>()? - load.keys as i64,
    );
    failed.iter().take(3).for_each(|reply| eprint!("{reply}"));
    Ok(())
}

fn main() -> Result<()> {
    let load = Rc::new(Load::from_arguments()?);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(run(load)))
}
