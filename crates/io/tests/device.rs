//! What [`RealIo`] asks of the kernel for each promise of the seam, seen by `strace`.

use holdfast_io::{AlignedBuf, BLOCK, Durability::*, Io, RealIo};
use std::{
    env, fs,
    process::{Command, Stdio, id},
};

/// Run as a process of its own by the test below.
#[test]
#[ignore = "it is traced"]
fn writes_and_syncs() {
    let folder = env::var("HOLDFAST_TRACED").expect("a folder");
    let io = RealIo::new(folder).expect("a folder");
    let file = io.open("log/f", true).expect("a file");
    let block = AlignedBuf::zeroed(BLOCK);
    file.write_at(&[&block], 0, Volatile).expect("it writes");
    file.sync().expect("it syncs");
    io.sync_dir("log").expect("it syncs");
    io.sync_dir("").expect("it syncs");
    file.write_at(&[&block], 0, Durable).expect("it writes");
    // Not aligned, so that it goes another way.
    file.write_at(&[&[7; 100]], 4100, Durable).expect("it writes");
}

#[test]
fn each_promise_is_asked_of_the_kernel() {
    let trace = |out: &str| {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-s", "8", "-e", "trace=pwritev2,fdatasync,fsync", "-o", out]);
        strace
    };
    let can_trace = trace("/dev/null").arg("true").stderr(Stdio::null()).status();
    if !can_trace.expect("strace is installed").success() {
        eprintln!("not tested: no process may trace another one here");
        return;
    }
    let folder = format!("{}/device-{}", env!("CARGO_TARGET_TMPDIR"), id());
    let (data, out) = (format!("{folder}/data"), format!("{folder}/calls"));
    fs::create_dir_all(&folder).expect("a folder");
    let mut traced = trace(&out);
    traced.arg(env::current_exe().expect("this program"));
    traced.args(["--exact", "writes_and_syncs", "--ignored"]).env("HOLDFAST_TRACED", &data);
    assert!(traced.stdout(Stdio::null()).status().expect("it runs").success());
    let calls = fs::read_to_string(&out).expect("a trace");
    fs::remove_dir_all(&folder).expect("a folder");

    let mut rest = calls.lines().filter(|line| line.contains("/device-"));
    let mut expect = |call: &str, path: &str, is_durable: bool| {
        let wanted = |line: &&str| {
            let is_call = line.contains(call) && line.contains(path) && !line.contains(" = -1 ");
            is_call && (call != "pwritev2" || line.contains("RWF_DSYNC") == is_durable)
        };
        assert!(
            rest.any(|line| wanted(&line)),
            "{call} of {path}, durable: {is_durable}, in its place:\n{calls}"
        );
    };
    // The names of new folders, as they are made.
    expect("fsync", &format!("{folder}>"), false);
    expect("fsync", "/data>", false);
    expect("pwritev2", "/data/log/f>", false);
    expect("fdatasync", "/data/log/f>", false);
    expect("fsync", "/data/log>", false);
    expect("fsync", "/data>", false);
    expect("pwritev2", "/data/log/f>", true);
    expect("pwritev2", "/data/log/f>", true);
}
