//! Measures appends and commits: `cargo run --release -p holdfast-log --example append -- [FOLDER]`.

use std::{
    hint::black_box,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use holdfast_io::RealIo;
use holdfast_log::{Admission, Appendfsync, Log, LogOptions};

const PAYLOAD: [u8; 150] = [0x42; 150];

fn main() {
    let folder = std::env::args_os()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("holdfast-append"), PathBuf::from);
    let options = LogOptions {
        segment_size: 32 << 20,
        max_segments: 64,
        segments_above_max: 64,
        store_id: [1; 16],
        epoch: 1,
        crc_seed: 1,
        appendfsync: Appendfsync::Always,
        max_pending_bytes: 64 << 20,
        ended_at: None,
        agreed: None,
    };
    let io = Arc::new(RealIo::new(&folder).expect("a folder to write to"));
    let log = Log::create(io, options).expect("a folder without a log");

    let mut best = Duration::MAX;
    for _ in 0..200 {
        let started = Instant::now();
        for _ in 0..2000 {
            black_box(log.append(black_box(&PAYLOAD)));
        }
        best = best.min(started.elapsed());
        log.wait_durable(log.tail()).expect("durable");
        let newest = log.segments().pop().expect("a segment").seq;
        log.segments().iter().filter(|s| s.seq < newest).for_each(|s| log.free_segment(s.seq));
    }
    println!("append, one thread: {:.1} ns", best.as_nanos() as f64 / 2000.0);

    for threads in [1, 2] {
        let thread = log.start_thread().expect("threads");
        let count = 1_000_000;
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for i in 0..count {
                        while log.admit(PAYLOAD.len()) != Admission::Ok {
                            std::thread::yield_now();
                        }
                        log.append(&PAYLOAD);
                        if i % 16 == 15 {
                            log.kick();
                        }
                    }
                });
            }
        });
        log.wait_durable(log.tail()).expect("durable");
        let rate = f64::from(threads * count) / started.elapsed().as_secs_f64();
        println!("append with commits, {threads} threads: {rate:.0} a second");
        drop(thread);
    }
    let thread = log.start_thread().expect("threads");
    let started = Instant::now();
    for _ in 0..1000 {
        let lsn = log.append(&PAYLOAD);
        log.wait_durable(lsn + 1).expect("durable");
    }
    println!("one batch at a time: {:.1} us", started.elapsed().as_micros() as f64 / 1000.0);
    drop(thread);
    println!("{:#?}", log.stats());
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}
