//! Further folders: what is created is spread, and found again; a folder is never lost unseen, nor taken for another one.

use std::{path::Path, sync::Arc};

use holdfast_io::{
    AlignedBuf, BLOCK, Durability, Error, Further, Io, RealIo, Result, SimIo, Spread, SpreadFiles,
    open_folders,
};

/// Those whose names begin with b lie below.
const LOG: SpreadFiles =
    SpreadFiles { folder: "log", is_below: |name| name.starts_with("log/b"), other: Some("heap") };

/// A further folder; one whose path has a minus in front lies below.
fn further<P>(path: &str, make: impl Fn(&str) -> P) -> Further<P> {
    Further { path: make(path.trim_start_matches('-')), is_below: path.starts_with('-') }
}

fn open_at(sim: &SimIo, home: &str, more: &[&str]) -> Result<Arc<dyn Io>> {
    let more: Vec<_> = more.iter().map(|path| further(path, str::to_owned)).collect();
    Spread::open(sim.folder(home), home, LOG, &more, &|further, _| Ok(sim.folder(further.path)))
}

fn open(sim: &SimIo, more: &[&str]) -> Result<Arc<dyn Io>> {
    open_at(sim, "a", more)
}

/// The data folder on one medium, and a further folder on another one, with room for so many bytes each.
fn on_two_media(more: &str, room: u64) -> ([SimIo; 2], Arc<dyn Io>) {
    let machines = [SimIo::new(1), SimIo::new(2)];
    machines.iter().for_each(|machine| machine.set_capacity(room));
    let (home, other) = (machines[0].clone(), machines[1].clone());
    let more = [further(more, str::to_owned)];
    let io = Spread::open(Arc::new(home), "a", LOG, &more, &|_, _| Ok(Arc::new(other.clone())));
    (machines, io.expect("new folders"))
}

fn refusal(opened: Result<Arc<dyn Io>>) -> String {
    match opened.map(drop) {
        Err(Error::Unusable(what)) => what,
        other => panic!("{other:?}"),
    }
}

fn create(io: &dyn Io, name: &str) {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block[..name.len()].copy_from_slice(name.as_bytes());
    let file = io.open(name, true).expect("room");
    file.write_at(&[&block], 0, Durability::Durable).and_then(|()| file.sync()).expect("a sound medium");
    io.sync_dir("log").expect("a sound medium");
}

fn read(io: &dyn Io, name: &str) -> String {
    let mut block = AlignedBuf::zeroed(BLOCK);
    io.open(name, false).and_then(|file| file.read_at(&mut block, 0)).expect("it is there");
    String::from_utf8(block[..name.len()].to_vec()).expect("text")
}

fn log(sim: &SimIo, folder: &str) -> Vec<String> {
    sim.list(&format!("{folder}/log")).expect("a folder")
}

#[test]
fn files_of_the_log_are_spread_and_found_again() {
    let sim = SimIo::new(1);
    let io = open(&sim, &["b", "c"]).expect("new folders");
    let names: Vec<String> = (0..9).map(|number| format!("log/{number:08x}")).collect();
    names.iter().for_each(|name| create(&*io, name));
    create(&*io, "heap");
    assert_eq!(["a", "b", "c"].map(|folder| log(&sim, folder).len()), [3; 3]);
    assert_eq!(sim.list("a").expect("a folder"), ["folder-1", "folder-2", "heap"]);
    assert_eq!(sim.list("b").expect("a folder"), ["folder"]);
    let uses: Vec<_> = io.further_folders().into_iter().map(|folder| (folder.path, folder.files)).collect();
    assert_eq!(uses, [("b".to_owned(), 3), ("c".to_owned(), 3)]);
    drop(io);

    // They need not be named again, nor in this order; what a power cut leaves is all of it.
    for more in [&[][..], &["c"], &["c", "b"]] {
        let sim = sim.fork().crash();
        let io = open(&sim, more).expect("the same folders");
        let listed = io.list("log").expect("folders");
        assert!(listed.iter().map(|name| format!("log/{name}")).eq(names.iter().cloned()));
        names.iter().for_each(|name| assert_eq!(read(&*io, name), *name));
        assert_eq!(read(&*io, "heap"), "heap");
        // New ones go where the fewest are.
        let gone: Vec<String> = log(&sim, "b").iter().map(|name| format!("log/{name}")).collect();
        gone.iter().for_each(|name| io.remove(name).expect("it is there"));
        assert!(io.open(&gone[0], false).is_err() && log(&sim, "b").is_empty());
        (9..12).for_each(|number| create(&*io, &format!("log/{number:08x}")));
        assert_eq!(log(&sim, "b").len(), 3);
        assert_eq!(io.list("log").expect("folders").len(), 9);
    }
}

#[test]
fn a_folder_is_taken_in_later() {
    let sim = SimIo::new(1);
    create(&*open(&sim, &[]).expect("one folder"), "log/00000000");
    create(&*open(&sim, &["b"]).expect("two"), "log/00000001");
    create(&*open(&sim, &["c"]).expect("three"), "log/00000002");
    assert_eq!(["a", "b", "c"].map(|folder| log(&sim, folder).len()), [1; 3]);
    assert_eq!(open(&sim, &[]).expect("three").list("log").expect("folders").len(), 3);
}

#[test]
fn a_folder_that_is_missing_moved_or_another_s_is_told() {
    let sim = SimIo::new(1);
    let io = open(&sim, &["b", "c"]).expect("new folders");
    (0..6).for_each(|number| create(&*io, &format!("log/{number:08x}")));
    let renamed = |from: &str, to: &str| {
        let sim = sim.fork();
        for name in
            ["folder".to_owned()].into_iter().chain(log(&sim, from).iter().map(|name| format!("log/{name}")))
        {
            let (mut block, old) = (AlignedBuf::zeroed(BLOCK), sim.folder(from));
            old.open(&name, false).and_then(|file| file.read_at(&mut block, 0)).expect("it is there");
            let file = sim.folder(to).open(&name, true).expect("room");
            file.write_at(&[&block], 0, Durability::Durable).expect("room");
            old.remove(&name).expect("it was there");
        }
        sim
    };
    let moved = renamed("b", "d");
    assert!(refusal(open(&moved, &[])).contains("further folder is not at b any more"));
    let io = open(&moved, &["d"]).expect("it was moved");
    assert_eq!(io.list("log").expect("folders").len(), 6);
    // That is known from now on.
    assert_eq!(open(&moved, &[]).expect("as before").list("log").expect("folders").len(), 6);

    assert!(refusal(open_at(&sim, "x", &["b"])).contains("belongs to another data folder"));
    assert!(refusal(open_at(&sim, "b", &[])).contains("a part of the data folder a"));
    create(&*sim.folder("y"), "log/00000000");
    assert!(refusal(open(&sim, &["y"])).contains("y is not empty"));
    create(&*sim.folder("z"), "mine");
    assert!(refusal(open(&sim, &["z"])).contains("z is not empty"));
    // None of these attempts has changed anything.
    assert_eq!(open(&sim, &[]).expect("as before").list("log").expect("folders").len(), 6);

    // The same file in two folders is nobody's.
    create(&*sim.folder("b"), "log/00000000");
    assert!(
        matches!(open(&sim, &[]), Err(Error::Io { source, .. }) if source.to_string().contains("two folders"))
    );
}

#[test]
fn what_is_damaged_is_written_anew_once_the_folder_is_named() {
    let sim = SimIo::new(1);
    create(&*open(&sim, &["b", "c"]).expect("new folders"), "log/00000000");
    // It is there twice.
    sim.flip_bit("a/folder-1", 40, 0);
    open(&sim, &[]).expect("the other one is sound");
    sim.flip_bit("a/folder-1", 4096 + 40, 0);
    assert!(matches!(open(&sim, &[]), Err(Error::Corrupt { file, .. }) if file == "folder-1"));
    assert!(matches!(open(&sim, &["c"]), Err(Error::Corrupt { .. })));
    open(&sim, &["b"]).expect("it says which one it is");
    open(&sim, &[]).expect("it was written");
    // The mark of a further folder cannot be.
    sim.flip_bit("b/folder", 40, 0);
    sim.flip_bit("b/folder", 4096 + 40, 0);
    assert!(refusal(open(&sim, &[])).contains("not at b any more"));
}

/// The power goes at each operation while folders are taken in: the next start goes on, whether it names them or not.
#[test]
fn a_power_cut_while_folders_are_taken_in_costs_nothing() {
    [SimIo::new, SimIo::on_scm].iter().for_each(cut_while_folders_are_taken_in);
}

fn cut_while_folders_are_taken_in(machine: &fn(u64) -> SimIo) {
    for operation in 1.. {
        let sim = machine(operation);
        create(&*open(&sim, &[]).expect("one folder"), "log/00000000");
        sim.crash_after(operation);
        let is_done = open(&sim, &["b", "-c"]).is_ok();
        let sim = sim.crash();
        // Without the names it is as before, or whole.
        let unnamed = sim.fork();
        for _ in 0..2 {
            let io = open(&unnamed, &[]).expect("nothing is missing");
            assert_eq!(read(&*io, "log/00000000"), "log/00000000");
        }
        for file in
            unnamed.folder("a").list("").expect("a folder").iter().filter(|file| file.starts_with("folder-"))
        {
            assert!(unnamed.snapshot(&format!("a/{file}")).len() > BLOCK, "{file} was completed");
        }
        open(&unnamed, &["b", "-c"]).expect("they are empty, or taken in already");
        let io = open(&sim, &["b", "-c"]).expect("they are taken in now");
        (1..4).for_each(|number| create(&*io, &format!("log/{number:08x}")));
        (4..6).for_each(|number| create(&*io, &format!("log/b{number:07x}")));
        assert_eq!(["a", "b", "c"].map(|folder| log(&sim, folder).len()), [2; 3], "operation {operation}");
        if is_done {
            break;
        }
    }
}

#[test]
fn files_lie_below_if_their_names_say_so_and_no_others() {
    let sim = SimIo::new(1);
    create(&*open(&sim, &[]).expect("one folder"), "log/b0000000");
    let io = open(&sim, &["b", "-flash"]).expect("new folders");
    (0..8).for_each(|number| create(&*io, &format!("log/{number:08x}")));
    (1..4).for_each(|number| create(&*io, &format!("log/b000000{number}")));
    let below = ["b0000001", "b0000002", "b0000003"];
    assert_eq!(log(&sim, "flash"), below);
    assert_eq!(["a", "b"].map(|folder| log(&sim, folder).len()), [5, 4]);
    let is_below = |name: &str| io.is_below(&format!("log/{name}"));
    assert!(below.into_iter().all(is_below));
    // One that was there before has stayed where it was, whatever its name, until it is made again.
    assert!(!is_below("b0000000") && !is_below("00000000") && !is_below("b0000004"));
    io.remove("log/b0000000").expect("it is there");
    create(&*io, "log/b0000000");
    assert!(is_below("b0000000"));
    assert_eq!(sim.list("a").expect("a folder"), ["folder-0", "folder-1"]);
    let uses: Vec<_> = io.further_folders().into_iter().map(|it| (it.path, it.is_below, it.files)).collect();
    assert_eq!(uses, [("b".to_owned(), false, 4), ("flash".to_owned(), true, 4)]);
    drop(io);

    for more in [&[][..], &["-flash"], &["b", "-flash"]] {
        let sim = sim.fork().crash();
        let io = open(&sim, more).expect("the same folders");
        assert!(io.below().is_some() && io.is_below("log/b0000001") && !io.is_below("log/00000001"));
        assert_eq!(io.list("log").expect("folders").len(), 12);
    }
    for (more, what) in [
        ("-other", "further folder other cannot lie below: another one does"),
        ("flash", "further folder flash lies below the others"),
        ("-b", "further folder b is none that lies below"),
    ] {
        let refused = refusal(open(&sim, &[more]));
        assert!(refused.contains(what), "{refused}");
    }
    assert_eq!(open(&sim, &["c"]).expect("one more").further_folders().len(), 3);
    assert!(open(&SimIo::new(2), &[]).expect("one folder").below().is_none());
}

#[test]
fn one_more_file_may_lie_below_and_what_it_may_gain_is_left_there() {
    const ROOM: u64 = 1 << 30;
    let (machines, io) = on_two_media("-b", ROOM);
    let left = || {
        let room =
            |left: std::io::Result<Option<i64>>| left.expect("it tells").expect("it tells") as u64 >> 20;
        [room(io.room_for_files(ROOM / 2, 1)), room(io.room_below(ROOM / 2, 1))]
    };
    create(&*io, "heap");
    assert!(!io.is_below("heap"));
    assert_eq!(left(), [511, 1023]);
    // One that is in both has not moved yet.
    create(&machines[1], "heap");
    assert!(!io.is_below("heap"));
    io.remove("heap").expect("it is there");
    assert!(io.is_below("heap"));
    // A little is kept for the data folder's small files.
    assert_eq!(left(), [1019, 511]);
    assert_eq!(read(&*io, "heap"), "heap");
    assert_eq!(io.list("").expect("folders"), ["folder-0", "heap"]);
    io.sync_dir("").expect("sound media");
    io.remove("heap").expect("it is there");
    assert_eq!(machines[1].list("").expect("a folder"), ["folder"]);
    create(&*io, "heap");
    assert!(!io.is_below("heap"), "a new one lies above");
}

/// The data folder's own medium keeps room for what cannot be elsewhere.
#[test]
fn room_is_the_sum_of_all_without_the_reserve() {
    const ROOM: u64 = 1 << 30;
    let (machines, io) = on_two_media("b", ROOM);
    let free = io.free_bytes().expect("it tells").expect("it tells");
    assert!(free > 2 * ROOM - (1 << 20) && free <= 2 * ROOM, "{free}");
    assert_eq!(io.room_for_files(ROOM / 2, 1).expect("it tells"), Some((free - ROOM / 2) as i64));
    // What is reserved is not taken by such files, though the other folder has more of them.
    let room = io.room_for_files(2 * ROOM, 1).expect("it tells").expect("it tells");
    assert!(room > ROOM as i64 - (1 << 20) && room <= ROOM as i64, "{room}");
    assert_eq!(
        io.room_for_files(4 * ROOM, 1).expect("it tells"),
        Some(room),
        "what is missing, nobody else has"
    );
    (0..4).for_each(|number| create(&*io, &format!("log/{number:08x}")));
    let logs = machines.map(|machine| machine.list("log").expect("a folder").len());
    assert_eq!(logs, [0, 4]);
}

/// No file lies in two folders, so the rest of less than one file that each has is no room.
#[test]
fn room_is_of_whole_files() {
    const FILE: u64 = 1 << 20;
    let (machines, io) = on_two_media("b", 3 * FILE + FILE / 2);
    let room = |reserve| io.room_for_files(reserve, FILE).expect("it tells").expect("it tells");
    let fill = |name: &str| {
        let file = io.open(name, true).expect("room");
        file.write_at(&[&AlignedBuf::zeroed(FILE as usize)], 0, Durability::Durable).map_err(|e| e.kind())
    };
    let files = || machines.each_ref().map(|machine| machine.list("log").expect("a folder").len());
    assert_eq!((room(0), room(FILE)), (6, 5));
    (0..5).for_each(|number| fill(&format!("log/{number}")).expect("there is room"));
    assert_eq!((room(FILE), files()), (0, [2, 3]));
    // What comes out of the reserve lies where that is.
    fill("log/5").expect("the reserve");
    assert_eq!((room(0), files()), (0, [3, 3]));
}

#[test]
fn a_folder_below_has_no_room_for_what_lies_above() {
    const ROOM: u64 = 1 << 30;
    let (_, io) = on_two_media("-b", ROOM);
    let room = |io: &dyn Io, reserve| io.room_for_files(reserve, 1).expect("it tells").expect("it tells");
    assert!((ROOM as i64 - (1 << 20)..=ROOM as i64).contains(&room(&*io, 0)));
    assert!(
        (-(1 << 20) - ROOM as i64..=-(ROOM as i64)).contains(&room(&*io, 2 * ROOM)),
        "so much is missing"
    );
    assert!(room(io.below().expect("it has one"), 0) > ROOM as i64 - (1 << 20));
    assert!(io.free_bytes().expect("it tells").is_some_and(|free| free > 2 * ROOM - (1 << 21)));
}

#[test]
fn folders_of_the_file_system_are_locked_and_never_made_where_one_is_missing() {
    let root = tempfile::tempdir().expect("a folder");
    let path = |name: &str| root.path().join(name);
    let new = |further: &[&str], is_read_only: bool| {
        let more: Vec<_> =
            further[1..].iter().map(|name| Further { path: path(name), is_below: false }).collect();
        let new = |dir: &Path, _| if is_read_only { Ok(RealIo::read_only(dir)) } else { RealIo::new(dir) };
        open_folders(&path(further[0]), &more, LOG, &new)
    };
    let open = |more: &[&str]| new(&[&["a"], more].concat(), false);
    let io = open(&["b"]).expect("new folders");
    (0..4).for_each(|number| create(&*io, &format!("log/{number:08x}")));
    assert!(refusal(open(&[])).contains("in use"));
    assert!(refusal(new(&["x", "b"], false)).contains("in use"));
    drop(io);
    std::fs::rename(path("b"), path("c")).expect("it is there");
    assert!(refusal(open(&[])).contains("no such folder") && !path("b").exists());
    assert_eq!(new(&["a", "c"], true).expect("named").list("log").expect("folders").len(), 4);
    assert!(refusal(open(&[])).contains("no such folder"), "who only reads changes nothing");
    assert_eq!(open(&["c"]).expect("named").list("log").expect("folders").len(), 4);
    assert_eq!(open(&[]).expect("known").list("log").expect("folders").len(), 4);
}
