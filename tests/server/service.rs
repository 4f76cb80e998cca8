//! What runs the server beside a person: a service manager, health checks, a package, man and the shell.

use crate::harness::{Folder, Server, free_port, ok, program};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Whether a program is installed.
fn has(name: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).stdout(Stdio::null()).status();
    let found = found.expect("sh runs").success();
    if !found {
        eprintln!("passed over: there is no {name} here");
    }
    found
}

#[test]
fn a_service_manager_is_told_when_it_serves_and_when_it_ends() {
    for is_abstract in [false, true] {
        let folder = Folder::new();
        let path = folder.join("notify");
        let (socket, name) = if is_abstract {
            use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
            let address = SocketAddr::from_abstract_name(path.as_bytes()).expect("an address");
            (UnixDatagram::bind_addr(&address), format!("@{path}"))
        } else {
            (UnixDatagram::bind(&path), path.clone())
        };
        let socket = socket.expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let next = || {
            let mut buffer = [0; 1000];
            let len = socket.recv(&mut buffer).expect("a message");
            String::from_utf8(buffer[..len].to_vec()).expect("UTF-8")
        };
        let script = format!("NOTIFY_SOCKET={name} exec \"$@\"");
        let server = Server::start_by_sh(&script, folder, &[]).expect("it serves");
        assert!(!next().contains("READY"), "the data are not open yet");
        assert!(next().lines().any(|line| line == "READY=1"));
        assert_eq!(server.client().info("process_supervised"), "systemd");
        assert_eq!(server.client().call("SET key value"), ok());
        let folder = server.stop();
        assert!(next().lines().any(|line| line == "STOPPING=1"));
        drop(folder);
    }
    // A manager that is gone holds up nobody.
    let server =
        Server::start_by_sh("NOTIFY_SOCKET=/nowhere exec \"$@\"", Folder::new(), &[]).expect("it serves");
    assert!(server.log().contains("cannot tell the service manager"), "{}", server.log());
    server.stop();
}

#[test]
fn the_unit_is_sound_and_hardened() {
    if !has("systemd-analyze") {
        return;
    }
    let text = fs::read_to_string(format!("{ROOT}/deploy/holdfast.service")).expect("the unit");
    let folder = Folder::new();
    let path = folder.join("holdfast.service");
    let text = text.replace("/usr/bin/holdfast", env!("CARGO_BIN_EXE_holdfast"));
    fs::write(&path, text.replace("Documentation=man:holdfast(1)\n", "")).expect("a copy");
    for args in [&["verify", "--man=no"][..], &["security", "--offline=true", "--threshold=20", "--no-pager"]]
    {
        let output = Command::new("systemd-analyze").args(args).arg(&path).output().expect("it runs");
        let told = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(output.status.success() && !told.contains("Unknown"), "{args:?}: {told}");
    }
}

#[test]
fn the_configuration_file_that_is_installed_starts_a_server() {
    let conf = format!("{ROOT}/deploy/holdfast.conf");
    let server = Server::start_in(Folder::new(), &[&conf]);
    assert!(!server.log().contains(" # "), "no warnings: {}", server.log());
    assert_eq!(program(&["config"]), (true, fs::read_to_string(conf).expect("the file")));
}

#[test]
fn ping_tells_whether_a_server_answers() {
    let server = Server::start(&["--requirepass", "secret"]);
    let socket = server.folder().join("socket");
    assert_eq!(program(&["ping", &socket, "--password", "secret"]), (true, "PONG\n".into()));
    let (is_there, told) = program(&["ping", &socket]);
    assert!(!is_there && told.contains("NOAUTH"), "{told}");
    let nobody = format!("localhost:{}", free_port());
    let (is_there, told) = program(&["ping", &nobody]);
    assert!(!is_there && told.contains(&nobody), "{told}");
    let (is_there, told) = program(&["ping", "--once"]);
    assert!(!is_there && told.contains("see holdfast ping --help"), "{told}");
}

/// The commands of the program with their flags, as its help tells.
fn commands() -> Vec<(String, BTreeSet<String>)> {
    let (_, help) = program(&["--help"]);
    let names = help.lines().filter_map(|line| line.trim().strip_prefix("holdfast "));
    let names: BTreeSet<&str> = names.filter_map(|rest| rest.split(' ').next()).collect();
    let names =
        names.into_iter().map(|name| name.trim_matches(['[', ']'])).filter(|name| !name.starts_with('-'));
    let flags = |name: &str| {
        let (is_there, usage) = program(&[name, "--help"]);
        assert!(is_there && usage.starts_with("Usage:\n"), "{usage}");
        let calls: Vec<String> =
            usage.lines().skip(1).take_while(|line| !line.is_empty()).map(str::to_owned).collect();
        let words = calls.iter().flat_map(|call| call.split([' ', '[', ']']));
        words.filter(|word| word.starts_with("--") && !word.contains("OPTION")).map(str::to_owned).collect()
    };
    names.map(|name| (name.to_owned(), flags(name))).collect()
}

#[test]
fn each_command_understands_the_flags_that_its_help_names_and_no_others() {
    let commands = commands();
    assert!(commands.len() > 10, "{commands:?}");
    for (name, flags) in &commands {
        for flag in flags {
            // A flag that is known lacks its value, or the rest of the command.
            let (_, told) = program(&[name, flag]);
            assert!(!told.contains("unexpected argument"), "{name} {flag}: {told}");
        }
        let (is_done, told) = program(&[name, "--colour"]);
        assert!(name == "help" || !is_done, "{name} --colour: {told}");
    }
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let complete = |words: &[&str]| {
        let script = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _holdfast; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let output = Command::new("bash")
            .args(["-c", script, "bash", &format!("{ROOT}/deploy/holdfast.bash")])
            .args(words)
            .current_dir(ROOT)
            .output()
            .expect("bash is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let set = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<BTreeSet<_>>();
    assert_eq!(complete(&["holdfast", "exp"]), set(&["export"]));
    assert_eq!(complete(&["holdfast", "top", "--o"]), set(&["--once"]));
    assert_eq!(complete(&["holdfast", "serve", "--appendf"]), set(&["--appendfsync"]));
    assert_eq!(complete(&["holdfast", "serve", "--appendfsync", ""]), set(&["always", "everysec", "no"]));
    assert_eq!(complete(&["holdfast", "--metrics-p"]), set(&["--metrics-port"]));
    assert_eq!(complete(&["holdfast", "check", "Carg"]), set(&["Cargo.lock", "Cargo.toml"]));
    for (name, mut flags) in commands() {
        if ["serve", "import"].contains(&&name[..]) {
            continue;
        }
        flags.insert("--help".into());
        assert_eq!(complete(&["holdfast", &name, "--"]), flags, "{name}");
    }
    // The file is what the program prints.
    assert_eq!(
        program(&["completions"]).1,
        fs::read_to_string(format!("{ROOT}/deploy/holdfast.bash")).expect("the file")
    );
}

#[test]
fn the_page_for_man_is_sound() {
    let page = format!("{ROOT}/deploy/holdfast.1");
    assert_eq!(program(&["man"]).1, fs::read_to_string(&page).expect("the page"));
    if !has("groff") {
        return;
    }
    let output = Command::new("groff").args(["-man", "-Tutf8", "-ww", &page]).output().expect("groff runs");
    let warnings = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && warnings.is_empty(), "{warnings}");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, _) in commands() {
        assert!(shown.contains(&format!("holdfast {name}")) || name == "serve", "{name}");
    }
}

/// What the package has in it lies where its description says, but for the program itself.
#[test]
fn the_package_is_complete() {
    let manifest = fs::read_to_string(format!("{ROOT}/Cargo.toml")).expect("the manifest");
    let section = manifest.split("[package.metadata.deb]").nth(1).and_then(|rest| rest.split("\n[").next());
    let section = section.expect("the section");
    assert!(section.contains("dbgsym = true"), "else the program has 63 MB of line tables");
    let assets = section.split("assets = [").nth(1).expect("a list");
    let assets: Vec<Vec<&str>> =
        assets.lines().map(|line| line.split('"').skip(1).step_by(2).collect()).collect();
    let assets: Vec<Vec<&str>> = assets.into_iter().filter(|asset| !asset.is_empty()).collect();
    assert!(assets.len() >= 6, "{assets:?}");
    for asset in assets {
        let [from, to, mode] = asset[..] else { panic!("{asset:?}") };
        let is_program = from == "target/release/holdfast";
        assert!(is_program || Path::new(ROOT).join(from).is_file(), "{from}");
        assert_eq!((is_program, to.starts_with('/')), (mode == "755", false), "{to}");
    }
    assert!(section.contains("maintainer-scripts = \"deploy/debian\""));
    for name in ["postinst", "prerm", "postrm"] {
        let script = format!("{ROOT}/deploy/debian/{name}");
        let is_sound = Command::new("sh").args(["-n", &script]).status().expect("sh runs").success();
        assert!(is_sound, "{name}");
    }
    let unit = fs::read_to_string(format!("{ROOT}/deploy/holdfast.service")).expect("the unit");
    assert!(unit.contains("/usr/bin/holdfast serve /etc/holdfast/holdfast.conf"), "{unit}");
}
