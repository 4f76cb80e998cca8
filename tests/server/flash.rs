//! Data larger than the storage-class memory that the server has: the oldest of the log go on to a folder on flash.

use crate::harness::{
    Folder, Server, assert_sound, bulk,
    rounds::{Rounds, log_files},
    run, wait_until,
};
use holdfast_resp::Reply;
use std::{
    fs,
    process::{Command, Stdio},
};

const ALL: Rounds = Rounds { keys: 6000, repeats: 1200 };
/// Segments of the log in memory, of 1 MiB each.
const ABOVE: usize = 24;

fn field(told: &str, name: &str) -> u64 {
    let field = told.split(',').find_map(|field| field.strip_prefix(&format!("{name}=")));
    field.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{name} in {told}"))
}

#[test]
fn what_memory_does_not_hold_lies_on_flash() {
    let folder = Folder::new();
    let flash = folder.join("flash");
    // What is read comes from the media.
    let options =
        ["--medium", "emulated", "--scm-max-size", "24mb", "--maxmemory", "48mb", "--flash-dir", &flash];
    let server = Server::start_in(folder, &options);
    let mut client = server.client();
    ALL.fill(&mut client, 1);
    for first in (0..5000).step_by(100) {
        let members = (first..first + 100).map(|n| format!(" {n} m:{n}")).collect::<String>();
        assert_eq!(client.call(&format!("ZADD scores{members}")), Reply::Int(100));
    }
    ALL.assert_filled(&mut client, 1);
    assert_eq!(log_files(server.folder(), "data"), ABOVE);
    let told = client.info("flash_folder");
    assert_eq!(field(&told, "log_files") as usize, log_files(server.folder(), "flash"));
    assert!(field(&told, "log_files") > 20 && told.ends_with(&format!(",path={flash}")), "{told}");
    assert_eq!(client.info("further_folders"), "1");
    let moved: u64 = client.info("endurance_bytes_moved_segments").parse().expect("a number");
    assert!(moved > 20 << 20, "{moved}");

    // A backup goes on while what it copies moves. It is of one moment.
    let mut backup = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["backup", "--from", &server.folder().join("socket"), &server.folder().join("backups")])
        .args(["--rate", "40mb"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program");
    wait_until(|| "the backup begins".into(), || client.info("backup_in_progress") == "1");
    let mut round = 1;
    while backup.try_wait().expect("it runs").is_none() {
        round += 1;
        ALL.fill(&mut client, round);
    }
    assert!(backup.wait().expect("it ran").success() && round > 1);
    ALL.fill(&mut client, round + 1);
    let mut folder = server.kill();
    let told = assert_sound(&folder);
    assert!(told.contains(&format!("keys: {}\n", ALL.keys + 1)), "{told}");

    // The data folder knows where the other one is, whatever the medium. The heap moves there once that is wanted.
    let heap = |folder: &Folder| ["data", "flash"].map(|name| folder.path().join(name).join("heap").exists());
    for (medium, more) in
        [("emulated", "no"), ("block", "no"), ("emulated", "yes"), ("block", "no"), ("emulated", "yes")]
    {
        let was_below = heap(&folder)[1];
        let server =
            Server::start_in(folder, &["--medium", medium, "--maxmemory", "48mb", "--flash-heap", more]);
        let mut client = server.client();
        ALL.assert_filled(&mut client, round + 1);
        assert_eq!(client.call("ZCOUNT scores 0 99999"), Reply::Int(5000));
        assert_eq!(client.call("ZSCORE scores m:4321"), bulk("4321"));
        assert_eq!(client.call("BGSAVE"), Reply::Simple("Background saving started".into()));
        folder = server.kill();
        let is_below = was_below || more == "yes";
        assert_eq!(heap(&folder), [!is_below, is_below]);
        assert_sound(&folder);
    }

    let restored = Folder::new();
    let output = run(&["restore", &folder.join("backups"), &restored.join("data")]);
    assert!(output.status.success(), "{output:?}");
    assert_sound(&restored);
    // It needs no flash, and may have some.
    let flash = restored.join("flash");
    let server = Server::start_in(restored, &[&options[..4], &["--flash-dir", &flash]].concat());
    let mut client = server.client();
    let mut last = round;
    for n in 0..ALL.keys {
        let found = client.call_args(&["GET", &format!("key:{n}")]);
        let rounds = if n == 0 { 1..=round } else { last.saturating_sub(1).max(1)..=last };
        last = rounds
            .rev()
            .find(|&round| found == bulk(ALL.value(n, round)))
            .unwrap_or_else(|| panic!("key {n}"));
    }
}

#[test]
fn what_does_not_apply_is_told() {
    let folder = Folder::new();
    let refused = |args: &[&str]| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let (data, dump, flash) = (folder.join("data"), folder.join("dump.rdb"), folder.join("flash"));
    let moved = folder.join("moved");
    let told = refused(&["import", &dump, "--dir", &data, "--flash-dir", &flash]);
    assert!(told.contains("name further ones when the server starts"), "{told}");
    let socket = folder.join("socket");
    let serve = ["serve", "--port", "0", "--unixsocket", &socket, "--dir", &data];
    let told = refused(&[&serve[..], &["--flash-heap", "yes"]].concat());
    assert!(told.contains("flash-heap needs a flash-dir"), "{told}");
    let home = ["--medium", "emulated", "--scm-method", "cow", "--flash-heap", "yes", "--flash-dir", &flash];
    assert!(refused(&[&serve[..], &home].concat()).contains("it cannot have flash-heap"));
    let server = Server::start_in(folder, &["--flash-dir", &flash]);
    let folder = server.stop();
    let other = folder.join("other");
    let told = refused(&[&serve[..], &["--flash-dir", &other]].concat());
    assert!(told.contains(&format!("{other} cannot lie below: another one does")), "{told}");
    let told = refused(&[&serve[..], &["--dir", &flash]].concat());
    assert!(told.contains("lies below the others"), "{told}");
    fs::rename(&flash, &moved).expect("it is there");
    let told = refused(&serve);
    assert!(told.contains(&flash) && told.contains("if it was moved, name it by flash-dir"), "{told}");
    Server::start_in(folder, &["--flash-dir", &moved]).stop();
}
