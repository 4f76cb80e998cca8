//! [`RealIo`] on the file system of the build folder.

use std::{fs, io::ErrorKind, os::unix::fs::MetadataExt};

use holdfast_io::{AlignedBuf, BLOCK, Durability::*, Error, File, Io, ReadQueue, RealIo};
use tempfile::TempDir;

/// A folder of its own for a test, removed at its end, on the file system of the build folder.
fn folder() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a new folder")
}

fn pattern(len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 31 + at / 251) as u8);
    buf
}

#[test]
fn reads_back_what_it_wrote_at_any_alignment() {
    for direct in [true, false] {
        let folder = folder();
        let io = RealIo::new(folder.path()).unwrap().with_direct(direct);
        let file = io.open("log/00000001", true).unwrap();
        assert_eq!(file.name(), "log/00000001");
        let mut expected = pattern(8 * BLOCK);
        file.write_at(&[&expected], 0, Durable).unwrap();
        for (offset, len) in
            [(1, 3), (BLOCK - 1, 2), (BLOCK, BLOCK + 5), (100, 5 * BLOCK), (8 * BLOCK - 7, 7)]
        {
            let mut got = vec![0; len];
            file.read_at(&mut got, offset as u64).unwrap();
            assert!(got[..] == expected[offset..offset + len]);
            let bytes = vec![len as u8; len];
            for durability in [Volatile, Durable] {
                file.write_at(&[&bytes[..1], &[], &bytes[1..]], offset as u64, durability).unwrap();
            }
            expected[offset..offset + len].copy_from_slice(&bytes);
            let mut got = AlignedBuf::zeroed(8 * BLOCK);
            file.read_at(&mut got, 0).unwrap();
            assert!(got[..] == expected[..]);
        }
        file.sync().unwrap();
        assert_eq!(file.len().unwrap(), 8 * BLOCK as u64);
    }
}

#[test]
fn writes_more_buffers_than_the_kernel_takes_at_once() {
    let folder = folder();
    let io = RealIo::new(folder.path()).unwrap();
    let file = io.open("f", true).unwrap();
    let expected = pattern(3000 * 5);
    let bufs: Vec<&[u8]> = expected.chunks(5).collect();
    file.write_at(&bufs, 10, Durable).unwrap();
    file.write_at(&[], 0, Durable).unwrap();
    let mut got = vec![0; expected.len()];
    file.read_at(&mut got, 10).unwrap();
    assert!(got[..] == expected[..]);
}

#[test]
fn reading_past_an_odd_end_is_the_end() {
    for direct in [true, false] {
        let folder = folder();
        let io = RealIo::new(folder.path()).unwrap().with_direct(direct);
        let file = io.open("f", true).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_at(&[b"0123456789"], BLOCK as u64, Durable).unwrap();
        let mut last = [0; 4];
        file.read_at(&mut last, BLOCK as u64 + 6).unwrap();
        assert_eq!(&last, b"6789");
        for (offset, len) in
            [(0, 2 * BLOCK), (BLOCK, BLOCK), (BLOCK + 7, 4), (2 * BLOCK, 1), (9 * BLOCK, BLOCK)]
        {
            let got = file.read_at(&mut AlignedBuf::zeroed(len), offset as u64);
            assert_eq!(got.unwrap_err().kind(), ErrorKind::UnexpectedEof, "{offset} {len}");
        }
        file.set_len(3).unwrap();
        assert_eq!(file.len().unwrap(), 3);
    }
}

#[test]
fn lists_and_removes() {
    let folder = folder();
    let io = RealIo::new(folder.path()).unwrap();
    assert_eq!(io.open("log/b", false).err().unwrap().kind(), ErrorKind::NotFound);
    assert!(io.list("log").unwrap().is_empty());
    for name in ["log/b", "log/a", "heap"] {
        io.open(name, true).unwrap();
    }
    assert_eq!(io.list("log").unwrap(), ["a", "b"]);
    assert_eq!(io.list("").unwrap(), ["heap"]);
    io.remove("log/a").unwrap();
    io.sync_dir("log").unwrap();
    assert_eq!(io.list("log").unwrap(), ["b"]);
    assert_eq!(io.remove("log/a").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn one_user_at_a_time() {
    let folder = folder();
    let first = RealIo::new(folder.path()).unwrap();
    first.lock().unwrap();
    let second = RealIo::new(folder.path()).unwrap();
    assert!(
        matches!(second.lock(), Err(Error::Unusable(why)) if why.ends_with("is in use by another process"))
    );
    drop(first);
    second.lock().unwrap();
}

#[test]
fn who_only_reads_changes_nothing() {
    let folder = folder();
    let writer = RealIo::new(folder.path()).unwrap();
    writer.open("file", true).unwrap().write_at(&[&pattern(100)], 0, Durable).unwrap();
    let reader = RealIo::read_only(folder.path());
    reader.lock().unwrap();
    assert_eq!(reader.list("").unwrap(), ["file"], "there was no lock, and there is none");
    let file = reader.open("file", false).unwrap();
    let mut buf = [0; 99];
    file.read_at(&mut buf, 1).unwrap();
    assert_eq!(buf, pattern(100)[1..]);
    let refused = [
        file.write_at(&[&[1]], 0, Volatile),
        file.write_at(&[&pattern(BLOCK)], 0, Durable),
        file.set_len(0),
        reader.open("new", true).map(drop),
        reader.remove("file"),
    ];
    let kinds = refused.map(|result| result.expect_err("it is read only").kind());
    assert_eq!(kinds, [ErrorKind::ReadOnlyFilesystem; 5]);

    assert!(writer.lock().is_err(), "it is read");
    drop(reader);
    writer.lock().unwrap();
    assert!(matches!(RealIo::read_only(folder.path()).lock(), Err(Error::Unusable(_))));
    fs::remove_file(folder.path().join("lock")).unwrap();
    assert!(RealIo::read_only(folder.path()).lock().is_err(), "the folder is in use without the file, too");
    drop(writer);
    let readers = [(); 2].map(|()| RealIo::read_only(folder.path()));
    readers.iter().for_each(|reader| reader.lock().unwrap());
    assert!(RealIo::new(folder.path()).unwrap().lock().is_err());
}

#[test]
fn knows_the_machine() {
    let folder = folder();
    let io = RealIo::new(folder.path()).unwrap();
    assert!(io.free_bytes().unwrap().is_some_and(|bytes| bytes > 0));
    // No medium has what lies there, so nobody can say how much of it is free.
    assert_eq!(RealIo::read_only("/proc").free_bytes().unwrap(), None);
    assert!(io.now_ms() > 1_700_000_000_000);
    assert!(io.monotonic_us() <= io.monotonic_us());
    let mut bytes = [0; 1000];
    io.random(&mut bytes);
    assert!(bytes.iter().filter(|&&byte| byte == 0).count() < 100);
}

/// A queue of the operating system's; none where the kernel has none for us, as in some containers.
fn queue(io: &RealIo, depth: u32) -> Option<ReadQueue> {
    match io.read_queue(depth) {
        Ok(queue) => Some(queue),
        Err(e) if [ErrorKind::PermissionDenied, ErrorKind::Unsupported].contains(&e.kind()) => {
            eprintln!("not tested, there is no io_uring: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Reads all of `asked` (offset, length) through a queue; what came for each, by its place.
fn read_queued(
    mut queue: ReadQueue,
    file: &dyn File,
    asked: &[(u64, usize)],
) -> Vec<Result<Vec<u8>, ErrorKind>> {
    for (tag, &(offset, len)) in asked.iter().enumerate() {
        file.begin_read(&mut queue, offset, len, tag as u64);
    }
    let mut came = vec![None; asked.len()];
    let mut missing = asked.len();
    while missing > 0 {
        let seen = |tag: u64, bytes: std::io::Result<&[u8]>| {
            let bytes = bytes.map(<[u8]>::to_vec).map_err(|e| e.kind());
            assert!(came[tag as usize].replace(bytes).is_none(), "each comes once");
            missing -= 1;
        };
        queue.wait().unwrap();
        queue.reap(seen).unwrap();
    }
    came.into_iter().map(Option::unwrap).collect()
}

#[test]
fn a_queue_reads_what_reads_do() {
    for direct in [true, false] {
        let folder = folder();
        let io = RealIo::new(folder.path()).unwrap().with_direct(direct);
        let file = io.open("data", true).unwrap();
        let bytes = pattern(50 * BLOCK);
        file.write_at(&[&bytes], 0, Durable).unwrap();
        // More than are under way at once, of all alignments, some longer than the buffers that are kept.
        let asked: Vec<(u64, usize)> = (0..200)
            .map(|i| (i * 977, if i % 9 == 0 { 5 * BLOCK + 3 } else { 1 + i as usize * 31 % 5000 }))
            .collect();
        let Some(queue) = queue(&io, 4) else { return };
        let came = read_queued(queue, &*file, &asked);
        for (&(offset, len), came) in asked.iter().zip(&came) {
            let end = offset as usize + len;
            match came {
                Ok(came) => assert!(came[..] == bytes[offset as usize..end], "at {offset}"),
                Err(kind) => {
                    assert_eq!(*kind, ErrorKind::UnexpectedEof);
                    assert!(end > bytes.len(), "{end}");
                }
            }
        }
        assert!(came.iter().any(Result::is_err), "some end behind the file");
    }
}

#[test]
fn a_queue_that_is_dropped_waits_for_what_is_under_way() {
    let folder = folder();
    let io = RealIo::new(folder.path()).unwrap();
    let file = io.open("data", true).unwrap();
    file.write_at(&[&pattern(64 * BLOCK)], 0, Durable).unwrap();
    for submitted in [false, true] {
        let Some(mut queue) = queue(&io, 8) else { return };
        for tag in 0..64 {
            file.begin_read(&mut queue, tag * BLOCK as u64, BLOCK, tag);
        }
        if submitted {
            queue.submit().unwrap();
        }
    }
}

#[test]
fn holes_give_space_back_and_read_as_zeroes() {
    let folder = folder();
    let io = RealIo::new(folder.path()).unwrap();
    let file = io.open("f", true).unwrap();
    file.write_at(&[&[7; 64 * BLOCK]], 0, Durable).unwrap();
    let blocks = || fs::metadata(folder.path().join("f")).unwrap().blocks();
    let before = blocks();
    if !file.punch_hole(BLOCK as u64, 32 * BLOCK as u64).unwrap() {
        eprintln!("not tested: no holes here");
        return;
    }
    file.sync().unwrap();
    assert!(blocks() + 32 * BLOCK as u64 / 512 <= before, "{} of {before}", blocks());
    assert_eq!(file.len().unwrap(), 64 * BLOCK as u64);
    let mut bytes = vec![1; 64 * BLOCK];
    file.read_at(&mut bytes, 0).unwrap();
    let is_hole = |at: usize| (1..33).contains(&(at / BLOCK));
    assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == if is_hole(at) { 0 } else { 7 }));
    let reader = RealIo::read_only(folder.path()).open("f", false).unwrap();
    assert_eq!(reader.punch_hole(0, BLOCK as u64).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
}
