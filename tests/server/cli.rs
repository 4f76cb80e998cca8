//! The command line: help, mistakes, exit codes, start-up errors.

use crate::harness::{self, Client, Folder, Server, holdfast, ok, run, wait_until};
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    process::{Command, Stdio},
};

fn fails(args: &[&str], message: &str) {
    let output = run(args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
    assert!(text.contains(message), "{args:?}: {text}");
}

#[test]
fn help_and_version() {
    for args in [&["--help"][..], &["serve", "--help"], &["check", "--help"], &["--version"], &["help"]] {
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
    fails(
        &["serv"],
        "'serv' is neither a command nor a configuration file that is there; did you mean 'holdfast serve'?",
    );
    fails(&["./serv"], "cannot read the configuration file ./serv");
    fails(&["check"], "check needs the data folder, and nothing else: holdfast check DIR");
    fails(&["check", "a", "b"], "check needs the data folder");
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
    // As redis.conf has it: in order, and maybe none.
    fs::write(folder.join("part-a.conf"), "port 1\n").unwrap();
    fs::write(folder.join("part-b.conf"), "hz none\n").unwrap();
    let parts = folder.join("par?-*.conf");
    fs::write(&file, format!("include {} {parts}\n", folder.join("none-*"))).unwrap();
    fails(&[&file], "part-b.conf:1: option 'hz': ");
    fs::write(&file, "rename-command FLUSHALL \"\"\n").unwrap();
    fails(
        &[&file],
        "conf:1: 'rename-command': commands keep their names; who may use one is told by ACL rules",
    );
    let output = holdfast().arg("check").arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (output.status.code(), &text[..]),
        (Some(1), "holdfast: the argument '\u{fffd}' is not UTF-8\n")
    );
}

#[test]
fn what_cannot_be_printed_ends_it_in_order() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let output = holdfast().arg("commands").stdout(full()).stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.starts_with("holdfast: cannot write to standard output: No space left"), "{text}");
    // Nobody reads it.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = holdfast().arg("commands").stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(1), 0));
    let status = holdfast().args(["check", "/none"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
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
    let folder = server.folder().join("data");
    for args in [&args[..], &["check", &folder]] {
        assert_eq!(String::from_utf8_lossy(&run(args).stderr).matches(&folder).count(), 1, "{args:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    let args = ["--port", "0", "--unixsocket", &folder.join("s"), "--dir", &file];
    fails(&args, &file);
    // Once is enough.
    assert_eq!(String::from_utf8_lossy(&run(&args).stderr).matches(&file).count(), 1);
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

/// As a log rotation does: it renames the file, and tells the server.
#[test]
fn a_hang_up_opens_the_log_file_again() {
    let folder = Folder::new();
    let (file, old) = (folder.join("holdfast.log"), folder.join("holdfast.log.1"));
    let server = Server::start_in(folder, &["--logfile", &file]);
    let logged = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let mut client = server.client();
    fs::rename(&file, &old).unwrap();
    server.signal("HUP");
    wait_until(|| logged(&file), || logged(&file).contains("Received SIGHUP"));
    let end_of_old = logged(&old);
    assert!(end_of_old.contains("Ready to accept connections"));
    assert_eq!(client.call("set key value"), ok());

    // What cannot be opened leaves the old one in use.
    fs::remove_file(&old).unwrap();
    fs::rename(&file, &old).unwrap();
    fs::create_dir(&file).unwrap();
    server.signal("HUP");
    wait_until(|| logged(&old), || logged(&old).contains(&format!("cannot open the log file {file}: ")));
    assert_eq!(client.call("get key"), harness::bulk("value"));
    let _folder = server.stop();
    assert!(logged(&old).contains("bye bye"));
}

#[test]
fn messages_tell_the_local_time() {
    const ZONE: (&str, &str) = ("TZ", "XYZ-5:30");
    let now = || {
        let mut date = Command::new("date");
        date.env(ZONE.0, ZONE.1).env("LC_ALL", "C").arg("+%d %b %Y %H:%M");
        String::from_utf8(date.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let folder = Folder::new();
    let before = now();
    let mut server = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["serve", "--port", "0", "--unixsocket", &folder.join("socket"), "--dir", &folder.join("data")])
        .env(ZONE.0, ZONE.1)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let time = line.split(":M ").nth(1).unwrap_or_default();
    assert!([before, now()].iter().any(|minute| time.starts_with(minute.as_str())), "{line}");
}

#[test]
fn a_rewritten_configuration_is_read_again_and_keeps_its_rights() {
    let folder = Folder::new();
    let file = folder.join("conf");
    fs::write(&file, "# mine\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    // What a crash amid a rewrite has left, and through a link.
    fs::write(folder.join("conf.new"), "garbage").unwrap();
    let link = folder.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let server = Server::start_in(folder, &[&link]);
    let password = b"a\nb \"c\" \\ \xc3\xa4";
    let mut client = server.client();
    assert_eq!(client.call_args(&[&b"config"[..], b"set", b"requirepass", password]), ok());
    assert_eq!(client.call_args(&["acl", "setuser", "it's\"", "on", "nopass"]), ok());
    assert_eq!(client.call("config rewrite"), ok());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(
        fs::symlink_metadata(&link).unwrap().is_symlink()
            && !fs::exists(server.folder().join("conf.new")).unwrap()
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nrequirepass \"a\\nb \\\"c\\\" \\\\ \\xc3\\xa4\"\n"), "{text}");

    // Of a file that was not there nobody else can read the passwords.
    fs::remove_file(&file).unwrap();
    assert_eq!(client.call("config rewrite"), ok());
    let mode = fs::symlink_metadata(&link).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");

    let server = Server::spawn(server.kill(), &[&link]);
    let mut client = None;
    wait_until(
        || server.log(),
        || {
            client = Client::connect(&server.folder().join("socket")).ok();
            client.is_some()
        },
    );
    assert_eq!(client.unwrap().call_args(&[&b"auth"[..], password]), ok());
    assert_eq!(server.client().call_args(&["auth", "it's\"", ""]), ok());
}

#[test]
fn data_lie_in_a_folder_of_their_own_unless_they_lie_here_already() {
    let folder = Folder::new();
    let serve = |folder: &Folder| {
        let command = "cd \"$1\" && exec \"$2\" --port 0 --unixsocket s --save ''";
        let mut process = std::process::Command::new("sh")
            .args(["-c", command, "sh", &folder.join(""), env!("CARGO_BIN_EXE_holdfast")])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut client = None;
        wait_until(
            || "it serves".into(),
            || {
                client = Client::connect(&folder.join("s")).ok();
                client.is_some()
            },
        );
        let reply = client.unwrap().call("config get dir");
        process.kill().unwrap();
        process.wait().unwrap();
        fs::remove_file(folder.join("s")).unwrap();
        reply
    };
    let absolute =
        |name: &str| fs::canonicalize(folder.join(name)).unwrap().into_os_string().into_string().unwrap();
    assert_eq!(serve(&folder), harness::bulks(["dir", absolute("holdfast-data").as_str()]));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(fs::exists(folder.join("holdfast-data/superblock")).unwrap());
    // Before there was such a folder, data lay here.
    for name in ["superblock", "heap", "in-use", "lock", "log"] {
        fs::rename(folder.join(&format!("holdfast-data/{name}")), folder.join(name)).unwrap();
    }
    fs::remove_dir(folder.join("holdfast-data")).unwrap();
    assert_eq!(serve(&folder), harness::bulks(["dir", absolute("").as_str()]));
    assert!(!fs::exists(folder.join("holdfast-data")).unwrap());
}

#[test]
fn damage_is_named_with_what_to_do_about_it() {
    let server = Server::start(&[]);
    server.client().call("set key value");
    let folder = server.stop();
    for offset in [0, 4096] {
        folder.flip_bit("data/superblock", offset + 70, 1);
    }
    let data = folder.join("data");
    let output = run(&["serve", "--port", "0", "--unixsocket", &folder.join("s"), "--dir", &data]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("corrupt: superblock at offset ") && text.contains(&format!("'holdfast check {data}'")),
        "{text}"
    );
    assert!(text.contains("restore the folder from a backup"), "{text}");
    let output = run(&["check", &data]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("restore the folder from a backup") && text.matches("corrupt").count() == 1,
        "{text}"
    );
}
