//! Sends commands with keys drawn from a distribution, and prints as one line of JSON how fast they were answered and how long
//! they took. A pattern is what `redis-benchmark` cannot draw; a number without zeroes before it is what LINDEX wants.
//!
//! ```text
//! load --port 6379 --clients 50 --pipeline 1 --keys 1000000 --pattern zipf:0.99 --seconds 10 \
//!      '70 GET {key}' '30 SET {key} {value}'
//! ```
//! Each argument is a command, and before it how often it comes (1, if no number is given). `{key}` is `key:` and twelve
//! digits, `{n}` the number alone, `{value}` so many bytes as `--value` says. In order (`--pattern sequential`), numbers count
//! up over all connections, from 0; so a load of `--requests` as many as `--keys` sets each key once. `--rate` sends no more a
//! second. With `--memcached` the commands are `get KEY` and `set KEY VALUE` of memcached's text protocol; a get that finds nothing counts as
//! an error.

use holdfast_bench::patterns::{Numbers, Pattern};
use holdfast_io::{Counts, Histogram};
use holdfast_resp::{skip_reply, write_command};
use lexopt::{Arg, Parser, ValueExt};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::{
    cell::Cell,
    error::Error,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::Builder,
    task::LocalSet,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What is sent, and for how long.
struct Load {
    host: String,
    port: u16,
    clients: usize,
    pipeline: usize,
    requests: u64,
    seconds: f64,
    rate: f64,
    keys: u64,
    pattern: Pattern,
    value: Vec<u8>,
    seed: u64,
    commands: Vec<(u32, String)>,
    memcached: bool,
}

impl Load {
    fn from_arguments() -> Result<Load> {
        let mut load = Load {
            host: "127.0.0.1".into(),
            port: 6379,
            clients: 50,
            pipeline: 1,
            requests: u64::MAX,
            seconds: f64::INFINITY,
            rate: f64::INFINITY,
            keys: 1_000_000,
            pattern: Pattern::Uniform,
            value: Vec::new(),
            seed: 1,
            commands: Vec::new(),
            memcached: false,
        };
        let mut value_len = 512;
        let mut arguments = Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Arg::Long("host") => load.host = arguments.value()?.string()?,
                Arg::Long("port") => load.port = arguments.value()?.parse()?,
                Arg::Long("clients") => load.clients = arguments.value()?.parse()?,
                Arg::Long("pipeline") => load.pipeline = arguments.value()?.parse()?,
                Arg::Long("requests") => load.requests = arguments.value()?.parse()?,
                Arg::Long("seconds") => load.seconds = arguments.value()?.parse()?,
                Arg::Long("rate") => load.rate = arguments.value()?.parse()?,
                Arg::Long("keys") => load.keys = arguments.value()?.parse()?,
                Arg::Long("pattern") => load.pattern = arguments.value()?.parse()?,
                Arg::Long("value") => value_len = arguments.value()?.parse()?,
                Arg::Long("seed") => load.seed = arguments.value()?.parse()?,
                Arg::Long("memcached") => load.memcached = true,
                Arg::Value(command) => load.commands.push(weighted(&command.string()?)),
                _ => return Err(argument.unexpected().into()),
            }
        }
        let bounded = load.requests < u64::MAX || load.seconds.is_finite();
        if !bounded || load.commands.is_empty() || load.clients * load.pipeline * load.keys as usize == 0 {
            return Err("commands, and --requests or --seconds, are wanted; no number may be 0".into());
        }
        let mut random = SmallRng::seed_from_u64(load.seed);
        load.value = (0..value_len).map(|_| random.random_range(b'a'..=b'z')).collect();
        Ok(load)
    }

    /// Appends a command.
    fn write(&self, numbers: &mut Numbers, out: &mut Vec<u8>) {
        let sum: u32 = self.commands.iter().map(|(weight, _)| weight).sum();
        let mut drawn = numbers.random.random_range(0..sum);
        let mut commands = self.commands.iter();
        let template = loop {
            let (weight, template) = commands.next().expect("less than the sum was drawn");
            match drawn.checked_sub(*weight) {
                Some(rest) => drawn = rest,
                None => break template,
            }
        };
        let number = numbers.draw();
        let arguments: Vec<Vec<u8>> = template
            .split_whitespace()
            .map(|word| match word {
                "{value}" => self.value.clone(),
                _ => word
                    .replace("{key}", &format!("key:{number:012}"))
                    .replace("{n}", &number.to_string())
                    .into(),
            })
            .collect();
        match (&arguments[..], self.memcached) {
            (_, false) => write_command(out, &arguments),
            ([_, key], _) => out.extend([b"get ", &key[..], b"\r\n"].concat()),
            ([_, key, value], _) => {
                out.extend_from_slice(b"set ");
                out.extend_from_slice(key);
                out.extend(format!(" 0 0 {}\r\n", value.len()).into_bytes());
                out.extend_from_slice(value);
                out.extend_from_slice(b"\r\n");
            }
            _ => panic!("with --memcached, commands are get and set"),
        }
    }

    /// The length of the first reply, once it is whole, and whether it is an error.
    fn reply(&self, input: &[u8]) -> Result<Option<(usize, bool)>> {
        if self.memcached {
            return memcached_reply(input);
        }
        let len = skip_reply(input).map_err(|_| "a reply that is none")?;
        Ok(len.map(|len| (len, input[0] == b'-')))
    }
}

/// The same of memcached.
fn memcached_reply(input: &[u8]) -> Result<Option<(usize, bool)>> {
    let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = std::str::from_utf8(&input[..end])?;
    match line.strip_prefix("VALUE ") {
        // `VALUE key flags bytes`, the value, and `END`, each with an end of line.
        Some(head) => {
            let value: usize = head.rsplit(' ').next().unwrap_or_default().parse()?;
            let len = end + 2 + value + 2 + "END\r\n".len();
            Ok((input.len() >= len).then_some((len, false)))
        }
        None => Ok(Some((end + 2, line != "STORED"))),
    }
}

/// A command with its weight before it.
fn weighted(text: &str) -> (u32, String) {
    match text.split_once(' ').map(|(first, rest)| (first.parse(), rest)) {
        Some((Ok(weight), rest)) => (weight, rest.into()),
        _ => (1, text.into()),
    }
}

/// What all connections have in common.
struct Progress {
    left: Cell<u64>,
    answered: Cell<u64>,
    errors: Cell<u64>,
    /// Microseconds from sending a pipeline to having all of its replies.
    took: Histogram,
    began: Instant,
    until: Option<Instant>,
}

impl Progress {
    /// How many of so many requests may still be sent.
    fn take(&self, wanted: usize) -> usize {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return 0;
        }
        let taken = self.left.get().min(wanted as u64);
        self.left.set(self.left.get() - taken);
        taken as usize
    }
}

async fn connection(load: Rc<Load>, mut numbers: Numbers, progress: Rc<Progress>) -> Result<()> {
    let mut stream = TcpStream::connect((load.host.as_str(), load.port)).await?;
    stream.set_nodelay(true)?;
    let (mut out, mut input) = (Vec::new(), Vec::with_capacity(64 << 10));
    loop {
        let mut missing = progress.take(load.pipeline);
        if missing == 0 {
            return Ok(());
        }
        out.clear();
        (0..missing).for_each(|_| load.write(&mut numbers, &mut out));
        if load.rate.is_finite() {
            let due = (load.requests - progress.left.get()) as f64 / load.rate;
            tokio::time::sleep_until((progress.began + Duration::from_secs_f64(due)).into()).await;
        }
        let (began, sent) = (Instant::now(), missing);
        stream.write_all(&out).await?;
        let mut at = 0;
        while missing > 0 {
            match load.reply(&input[at..])? {
                Some((len, is_error)) => {
                    progress.errors.set(progress.errors.get() + u64::from(is_error));
                    (at, missing) = (at + len, missing - 1);
                }
                None => {
                    input.drain(..at);
                    at = 0;
                    if stream.read_buf(&mut input).await? == 0 {
                        return Err("the server has closed the connection".into());
                    }
                }
            }
        }
        input.drain(..at);
        progress.took.add(began.elapsed().as_micros() as u64);
        progress.answered.set(progress.answered.get() + sent as u64);
    }
}

fn main() -> Result<()> {
    let load = Rc::new(Load::from_arguments()?);
    let began = Instant::now();
    let progress = Rc::new(Progress {
        left: Cell::new(load.requests),
        answered: Cell::default(),
        errors: Cell::default(),
        took: Histogram::default(),
        began,
        until: load.seconds.is_finite().then(|| began + Duration::from_secs_f64(load.seconds)),
    });
    let next = Rc::new(Cell::new(0));
    let tasks = LocalSet::new();
    let connections: Vec<_> = (0..load.clients)
        .map(|number| {
            // Else connections would draw the same keys.
            let seed = load.seed ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let numbers = Numbers::new(load.pattern, load.keys, seed, next.clone())?;
            Ok(tasks.spawn_local(connection(load.clone(), numbers, progress.clone())))
        })
        .collect::<Result<_>>()?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tasks.run_until(async {
        for connection in connections {
            connection.await??;
        }
        Ok::<(), Box<dyn Error>>(())
    }))?;
    let seconds = began.elapsed().as_secs_f64();
    let took = Counts::of([&progress.took]);
    println!(
        "{{\"rate\": {:.1}, \"requests\": {}, \"errors\": {}, \"seconds\": {seconds:.3}, \"us_p50\": {}, \"us_p99\": {}, \"us_p999\": {}, \"us_max\": {}}}",
        progress.answered.get() as f64 / seconds,
        progress.answered.get(),
        progress.errors.get(),
        took.percentile(50.0),
        took.percentile(99.0),
        took.percentile(99.9),
        took.percentile(100.0),
    );
    Ok(())
}
