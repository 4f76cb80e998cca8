//! The command line: help, mistakes, exit codes, start-up errors.

mod harness;

use harness::{Folder, Server, run};
use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt};

fn fails(args: &[&str], message: &str) {
    let output = run(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
    assert!(text.contains(message), "{args:?}: {text}");
}

#[test]
fn help_and_version() {
    for args in [&["--help"][..], &["serve", "--help"], &["--version"], &["help"]] {
        let output = run(args);
        assert!(output.status.success() && !output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
    let help = String::from_utf8(run(&["serve", "--help"]).stdout).unwrap();
    assert!(help.contains("--appendfsync <everysec|always|no>"), "{help}");
}

#[test]
fn mistakes_in_options_are_named() {
    fails(&["serve", "--prot", "1"], "unknown option 'prot'; did you mean 'port'?");
    fails(&["--port", "70000"], "option 'port': argument must be between 0 and 65535 inclusive");
    fails(&["serve", "extra", "words"], "cannot read the configuration file extra");
    let folder = Folder::new();
    let file = folder.join("conf");
    fs::write(&file, "# comment\nport 0\n\nappendfsync sometimes\n").unwrap();
    fails(
        &[&file],
        "conf:4: option 'appendfsync': argument(s) must be one of the following: everysec, always, no",
    );
    fs::write(&file, "requirepass \"abc\n").unwrap();
    fails(&[&file], "conf:1: unbalanced quotes");
    fs::write(&file, format!("include {file}\n")).unwrap();
    fails(&[&file], "include each other");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = Folder::new();
    let args = ["--bind", "127.0.0.1", "--port", &port, "--dir", &folder.join("data")];
    fails(&args, &format!("cannot listen on 127.0.0.1:{port}: the port is in use"));
    fails(&["--port", "0", "--dir", &folder.join("data")], "nothing to listen on");
}

#[test]
fn a_folder_is_used_by_one_server() {
    let server = Server::start(&[]);
    let args = [
        "--port",
        "0",
        "--unixsocket",
        &server.folder().join("other"),
        "--dir",
        &server.folder().join("data"),
    ];
    fails(&args, "in use");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    fails(&["--port", "0", "--unixsocket", &folder.join("s"), "--dir", &file], &file);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn signals_and_shutdown_end_it_in_order() {
    for end in ["TERM", "INT", "SHUTDOWN"] {
        let mut server = Server::start(&["--pidfile", "pid"]);
        let mut client = server.client();
        client.call("set key value");
        if end == "SHUTDOWN" {
            client.send(b"SHUTDOWN\r\n");
        } else {
            server.signal(end);
        }
        assert_eq!(client.try_reply(), None);
        assert_eq!(server.wait().code(), Some(0), "{end}: {}", server.log());
        assert!(server.log().contains("bye bye"), "{}", server.log());
        assert!(!fs::exists("pid").unwrap() && !fs::exists(server.folder().join("socket")).unwrap());
        let check = run(&["check", &server.folder().join("data")]);
        assert!(check.status.success(), "{check:?}");
        assert!(String::from_utf8(check.stdout).unwrap().contains("keys: 1\n"));
    }
}

#[test]
fn check_refuses_what_is_no_data_folder() {
    let folder = Folder::new();
    fails(&["check", &folder.join("nothing")], "is not a data folder");
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let mut folder = Folder::new();
    for round in 0..3 {
        let server = Server::start_in(folder, &[]);
        let mut client = server.client();
        for n in 0..round * 100 {
            assert_eq!(client.call(&format!("get key{n}")), harness::bulk(n.to_string()));
        }
        for n in round * 100..(round + 1) * 100 {
            assert_eq!(client.call(&format!("set key{n} {n}")), harness::ok());
        }
        folder = server.kill();
    }
}
