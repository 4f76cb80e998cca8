//! A data folder whose log is spread over further folders, as `dir` names them.

use crate::harness::{
    Folder, Server, assert_sound,
    rounds::{Rounds, log_files},
    run,
};
use std::fs;

const ALL: Rounds = Rounds { keys: 4000, repeats: 1000 };

#[test]
fn the_log_is_spread_over_all_folders_and_survives_a_kill() {
    let folder = Folder::new();
    let more = ["second", "third"].map(|name| folder.join(name));
    // What is read comes from the media.
    let options = ["--dir", &more[0], "--dir", &more[1], "--maxmemory", "48mb", "--log-max-size", "256mb"];
    let server = Server::start_in(folder, &options);
    let mut client = server.client();
    ALL.fill(&mut client, 1);
    ALL.assert_filled(&mut client, 1);
    let counts = ["data", "second", "third"].map(|name| log_files(server.folder(), name));
    assert!(counts.iter().all(|&count| count > 0 && count.abs_diff(counts[0]) <= 1), "{counts:?}");
    assert_eq!(client.info("further_folders"), "2");
    let told = client.info("folder1");
    assert!(told.starts_with("log_files=") && told.ends_with(&format!(",path={}", more[0])), "{told}");
    ALL.fill(&mut client, 2);
    let folder = server.kill();
    let told = assert_sound(&folder);
    assert!(told.contains(&format!("keys: {}\n", ALL.keys)), "{told}");

    // The data folder knows where the others are.
    let server = Server::start_in(folder, &options[4..]);
    ALL.assert_filled(&mut server.client(), 2);
    let folder = server.stop();

    // One that is missing is never left out.
    fs::rename(&more[0], folder.join("moved")).expect("it is there");
    let refused = |args: &[&str]| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let (data, socket) = (folder.join("data"), folder.join("socket"));
    let serve = ["serve", "--port", "0", "--unixsocket", &socket, "--dir", &data];
    let told = refused(&serve);
    assert!(told.contains(&more[0]) && told.contains("if it was moved, name it by dir"), "{told}");
    assert!(refused(&["check", &data]).contains("if it was moved, name it by dir"));
    let told = refused(&["serve", "--port", "0", "--unixsocket", &socket, "--dir", &more[1]]);
    assert!(told.contains("a part of the data folder"), "{told}");
    let server = Server::start_in(folder, &["--dir", &format!("{}/moved", data.trim_end_matches("/data"))]);
    ALL.assert_filled(&mut server.client(), 2);
    assert_sound(&server.stop());
}

#[test]
fn an_import_makes_one_folder() {
    let folder = Folder::new();
    let imported =
        run(&["import", &folder.join("dump.rdb"), "--dir", &folder.join("a"), "--dir", &folder.join("b")]);
    assert_eq!(imported.status.code(), Some(1));
    let told = String::from_utf8(imported.stderr).expect("UTF-8");
    assert!(told.contains("name further ones when the server starts"), "{told}");
}
