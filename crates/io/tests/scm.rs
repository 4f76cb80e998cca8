//! [`RealIo`] with its files in storage-class memory, emulated by the file system of the build folder.

use holdfast_io::{
    BLOCK, Durability::Durable, Error, File, Io, RealIo, Scm, ScmMedium, ScmOptions, WriteBack, WriteDelay,
};
use std::{io::ErrorKind, sync::Arc};
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a new folder")
}

fn scm(medium: ScmMedium, write_back: WriteBack) -> Arc<Scm> {
    Arc::new(Scm::new(ScmOptions { medium, write_back }).expect("a processor that can do so"))
}

fn emulated() -> Arc<Scm> {
    scm(ScmMedium::Emulated(WriteDelay::Lines { line_ns: 0 }), WriteBack::Stream)
}

#[test]
fn files_are_what_they_are_on_a_drive() {
    let folder = folder();
    let scm = emulated();
    let io = RealIo::new(folder.path()).unwrap().on_scm(scm.clone()).unwrap();
    assert_eq!(io.list("").unwrap(), [""; 0], "what was tried is gone");
    scm.reset();
    let file = io.open("log/00000001", true).unwrap();
    // Across two of the pieces that a file is mapped in, with a hole before.
    let offset = (64 << 20) - 1000;
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
    file.write_at(&[&bytes[..1], &[], &bytes[1..33], &bytes[33..]], offset, Durable).unwrap();
    file.write_at(&[], 0, Durable).unwrap();
    let stats = scm.stats();
    // It begins 40 bytes before the end of a line, and then takes 78 lines.
    assert_eq!((stats.bytes, stats.lines, stats.fences), (5000, 79, 1));
    assert_eq!(file.len().unwrap(), offset + 5000);
    let read = |file: &dyn File, offset: u64, len: usize| {
        let mut got = vec![1; len];
        file.read_at(&mut got, offset).map(|()| got)
    };
    assert_eq!(read(&*file, offset - 2, 5002).unwrap(), [&[0, 0], &bytes[..]].concat());
    assert_eq!(read(&*file, offset, 5001).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    // Another that has the file open.
    let other = RealIo::new(folder.path()).unwrap().open("log/00000001", false).unwrap();
    assert_eq!(read(&*other, offset, 5000).unwrap(), bytes);
    // What was cut off, or punched out, is written anew.
    file.set_len(offset + 10).unwrap();
    file.set_len(offset + 20).unwrap();
    assert_eq!(read(&*file, offset, 20).unwrap(), [&bytes[..10], &[0; 10]].concat());
    file.write_at(&[&[7; 30]], offset + 5, Durable).unwrap();
    assert_eq!(read(&*file, offset + 4, 31).unwrap(), [&bytes[4..5], &[7; 30]].concat());
    file.write_at(&[&[9; 3 * BLOCK]], 0, Durable).unwrap();
    if file.punch_hole(BLOCK as u64, BLOCK as u64).unwrap() {
        assert_eq!(
            read(&*file, BLOCK as u64 - 1, BLOCK + 2).unwrap(),
            [&[9][..], &[0; BLOCK], &[9]].concat()
        );
        file.write_at(&[b"again"], BLOCK as u64 + 3, Durable).unwrap();
        assert_eq!(read(&*file, BLOCK as u64 + 2, 7).unwrap(), b"\0again\0");
    }
    file.sync().unwrap();
    let mut queue = io.read_queue(4).unwrap();
    file.begin_read(&mut queue, offset + 5, 30, 17);
    let mut seen = Vec::new();
    queue.reap(|tag, read| seen.push((tag, read.map(<[u8]>::to_vec).ok()))).unwrap();
    assert_eq!(seen, [(17, Some(vec![7; 30]))]);
}

#[test]
fn stores_in_place_share_a_fence() {
    let folder = folder();
    let scm = emulated();
    let io = RealIo::new(folder.path()).unwrap().on_scm(scm.clone()).unwrap();
    let file = io.open("f", true).unwrap();
    file.allocate(0, 10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    scm.reset();
    file.store(b"here", 62).unwrap();
    file.store(b"and there", 5000).unwrap();
    let mut found = [0; 9];
    file.load(&mut found, 5000).unwrap();
    assert_eq!(&found, b"and there");
    assert_eq!(scm.stats().fences, 0);
    io.fence().unwrap();
    io.fence().unwrap();
    let stats = scm.stats();
    assert_eq!((stats.loads, stats.stores, stats.streams), (1, 2, 0));
    assert_eq!((stats.bytes, stats.lines, stats.fences), (13, 3, 1));
    // That of a write is for what was stored before, too.
    file.store(b"more", 100).unwrap();
    file.write_at(&[b"all"], 200, Durable).unwrap();
    let stats = scm.stats();
    assert_eq!((stats.streams, stats.bytes, stats.lines, stats.fences), (1, 20, 5, 2));
}

#[test]
fn files_that_others_make_longer_are_not_cut() {
    let folder = folder();
    let io = RealIo::new(folder.path()).unwrap().on_scm(emulated()).unwrap();
    let (one, two) = (io.open("f", true).unwrap(), io.open("f", true).unwrap());
    one.write_at(&[&[1; 100]], 0, Durable).unwrap();
    two.write_at(&[&[2; 100]], 5000, Durable).unwrap();
    one.write_at(&[&[3; 100]], 1000, Durable).unwrap();
    assert_eq!(one.len().unwrap(), 5100);
}

#[test]
fn what_is_no_memory_that_persists_is_refused() {
    let folder = folder();
    let dax = scm(ScmMedium::Dax, WriteBack::Stream);
    let refused = RealIo::new(folder.path()).unwrap().on_scm(dax);
    // The build folder of whoever has such memory may lie on it.
    if let Err(why) = refused {
        assert!(matches!(&why, Error::Unusable(text) if text.contains("DAX")), "{why}");
    }
    assert_eq!(
        RealIo::new(folder.path()).unwrap().list("").unwrap(),
        [""; 0],
        "nothing is left of the trial"
    );
}
