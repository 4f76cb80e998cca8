//! How long a transaction takes in the embedded store on storage-class memory, without clients: inserts into a B-tree at rising
//! rates of arrival (Giles, Doshi, Varman: Persisting In-Memory Databases Using SCM, 2016, Fig. 4), SETs of one key after another, and SETs of
//! new keys.
//!
//! ```text
//! scm_inserts --dir /dev/shm --method latb --line-ns 480 --elements 200000 --rates 50000,100000,200000
//! ```
//! `--method` is one of `scm-method`; `volatile` has nothing made durable, and `tmpfs` writes the log to the folder by system calls. Prints
//! a line of JSON for each rate, and for the SETs: nanoseconds, on average and in the middle.

use holdfast_io::{Io, RealIo, Scm, ScmMedium, ScmOptions, WriteBack, WriteDelay};
use holdfast_store::{Appendfsync, HomeMethod, Options, Store};
use lexopt::{Arg, Parser, ValueExt};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::{error::Error, path::PathBuf, sync::Arc, time::Duration, time::Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Transactions that are timed at each rate.
const INSERTS: u64 = 20_000;

struct Settings {
    dir: PathBuf,
    method: String,
    line_ns: u32,
    elements: u64,
    rates: Vec<u64>,
}

fn settings() -> Result<Settings> {
    let (dir, method, line_ns, elements) = ("/dev/shm".into(), "own".to_owned(), 0, 200_000);
    let mut settings = Settings { dir, method, line_ns, elements, rates: vec![50_000, 100_000, 200_000] };
    let mut arguments = Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Arg::Long("dir") => settings.dir = arguments.value()?.into(),
            Arg::Long("method") => settings.method = arguments.value()?.string()?,
            Arg::Long("line-ns") => settings.line_ns = arguments.value()?.parse()?,
            Arg::Long("elements") => settings.elements = arguments.value()?.parse()?,
            Arg::Long("rates") => {
                let rates = arguments.value()?.string()?;
                settings.rates = rates.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(settings)
}

fn open(settings: &Settings, folder: &std::path::Path) -> Result<Store> {
    let Settings { method, line_ns, .. } = settings;
    let mut options = Options { background: false, ..Options::default() };
    let io = RealIo::new(folder)?;
    let io = match method.as_str() {
        "volatile" => {
            options.appendfsync = Appendfsync::No;
            io
        }
        "tmpfs" => io,
        name => {
            let home = HomeMethod::named(name);
            if home.is_none() && name != "own" {
                return Err(format!("there is no method {name}").into());
            }
            options.home = home;
            let medium = ScmMedium::Emulated(WriteDelay::Lines { line_ns: *line_ns });
            io.on_scm(Arc::new(Scm::new(ScmOptions { medium, write_back: WriteBack::Stream })?))?
        }
    };
    let io: Arc<dyn Io> = Arc::new(io);
    Ok(Store::open_on(io, options)?)
}

/// Runs transactions, at so many a second at most, and returns how long each took, sorted.
fn run(count: u64, rate: Option<u64>, mut transaction: impl FnMut(u64)) -> Vec<Duration> {
    let started = Instant::now();
    let mut took = Vec::new();
    for n in 0..count {
        if let Some(rate) = rate {
            let due = Duration::from_nanos(n * 1_000_000_000 / rate);
            while started.elapsed() < due {
                std::hint::spin_loop();
            }
        }
        let began = Instant::now();
        transaction(n);
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took
}

fn report(settings: &Settings, what: &str, rate: Option<u64>, took: &[Duration]) {
    let mean = took.iter().sum::<Duration>().as_nanos() / took.len() as u128;
    println!(
        "{{\"what\": \"{what}\", \"method\": \"{}\", \"line_ns\": {}, \"rate\": {}, \"mean_ns\": {mean}, \"p50_ns\": {}, \"p99_ns\": {}}}",
        settings.method,
        settings.line_ns,
        rate.unwrap_or(0),
        took[took.len() / 2].as_nanos(),
        took[took.len() * 99 / 100].as_nanos()
    );
}

fn main() -> Result<()> {
    let settings = settings()?;
    let folder = tempfile::tempdir_in(&settings.dir)?;
    let store = open(&settings, folder.path())?;
    let is_durable = settings.method != "volatile";
    let finish = |lsn| {
        if is_durable {
            store.log().wait_durable(lsn).expect("a sound medium");
        } else {
            store.log().kick();
            store.log().commit_once().expect("a sound medium");
        }
    };
    let mut random = SmallRng::seed_from_u64(1);
    let mut insert = |_| {
        let member = random.random::<u64>().to_be_bytes();
        let mut txn = store.begin_keys([&b"tree"[..]]);
        let score = f64::from(random.random::<u32>());
        txn.zset_add(0, b"tree", Default::default(), [(&member[..], score)]).expect("room");
        finish(txn.commit());
    };
    (0..settings.elements).for_each(&mut insert);
    for &rate in &settings.rates {
        report(&settings, "insert", Some(rate), &run(INSERTS, Some(rate), &mut insert));
    }
    report(&settings, "insert", None, &run(INSERTS, None, &mut insert));
    let value = [b'x'; 100];
    let mut set = |n: u64| finish(store.set(0, format!("key:{n:012}").as_bytes(), &value).expect("room"));
    report(&settings, "set of a new key", None, &run(200_000, None, &mut set));
    report(&settings, "set", None, &run(200_000, None, |n| set(n * 7919 % 200_000)));
    Ok(())
}
