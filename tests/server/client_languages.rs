//! The client library from other languages: programs are compiled against what is installed, and run with the real
//! server.

use crate::harness::{Folder, Server};
use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output},
};

// Built for the tests: the C library lies beside them.
use holdfast as _;

fn source(name: &str) -> String {
    format!("{}/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(status.success(), "{command:?}: {status}\n{text}");
    text
}

/// Where cargo has put the library.
fn built() -> PathBuf {
    let program = env::current_exe().expect("this program");
    program.parent().expect("a folder").to_owned()
}

/// The C library, installed into a new folder.
fn installed() -> Folder {
    let folder = Folder::new();
    run(Command::new(source("c/install")).arg(folder.path()).arg(built()));
    folder
}

/// A C program with the static library, under AddressSanitizer.
fn sanitized(folder: &Folder, name: &str, flags: &[&str]) -> String {
    let program = folder.join(Path::new(name).file_stem().expect("a name").to_str().expect("UTF-8"));
    run(Command::new("cc")
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-g",
            "-fsanitize=address,undefined",
        ])
        .args(flags)
        .args([&source(name), "-o", &program, &format!("-I{}", folder.join("include"))])
        .args([&folder.join("lib/libholdfast.a"), "-lpthread", "-ldl", "-lm"]));
    program
}

fn says_ok(program: &str, args: &[&str]) {
    assert_eq!(run(Command::new(program).args(args)), "ok\n", "{program} {args:?}");
}

#[test]
fn c_calls_right_and_wrong() {
    let (folder, server) = (installed(), Server::start(&[]));
    says_ok(&sanitized(&folder, "c/tests/calls.c", &[]), &[&server.folder().join("socket")]);
}

#[test]
fn a_closed_connection_does_not_end_a_c_program() {
    let folder = installed();
    says_ok(&sanitized(&folder, "c/tests/closed.c", &[]), &[&folder.join("socket")]);
}

#[test]
fn programs_for_osu_s_calls_compile_unchanged() {
    let folder = installed();
    let osu = format!("-I{}", folder.join("include/holdfast/osu"));
    let program = sanitized(&folder, "c/tests/window.c", &[&osu]);
    let (server, port) = Server::start_with_port(&[]);
    let other = Server::start(&[]);
    let two = format!("127.0.0.1:{port},{}", other.folder().join("socket"));
    says_ok(&program, &[&server.folder().join("socket"), "iset", "wait"]);
    says_ok(&program, &[&two, "bset", "test"]);
}

const FIRST: &str = "1048576 bytes, sum 8589869056, last 131071\n";

#[test]
fn the_first_c_program_finds_the_library_by_pkg_config_and_cmake() {
    let (folder, server) = (installed(), Server::start(&[]));
    let address = server.folder().join("socket");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "holdfast"])
        .env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig")));
    let program = folder.join("first");
    run(Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", &source("c/examples/first.c"), "-o", &program])
        .args(flags.split_whitespace()));
    let libraries = folder.join("lib");
    assert_eq!(run(Command::new(&program).arg(&address).env("LD_LIBRARY_PATH", &libraries)), FIRST);

    for program in made_by_cmake(&folder, "C", &["c/examples/first.c"]) {
        let printed = run(Command::new(&program).arg(&address).env("LD_LIBRARY_PATH", &libraries));
        assert_eq!(printed, FIRST, "{program}");
    }
}

/// Programs with the shared and with the static library, of a project in one language.
fn made_by_cmake(folder: &Folder, language: &str, sources: &[&str]) -> [String; 2] {
    let sources: Vec<String> = sources.iter().map(|name| source(name)).collect();
    let project = format!(
        "cmake_minimum_required(VERSION 3.10)\nproject(first {language})\nfind_package(holdfast REQUIRED)\n\
         foreach(kind holdfast static)\nadd_executable(with_${{kind}} {})\n\
         target_link_libraries(with_${{kind}} holdfast::${{kind}})\nendforeach()\n",
        sources.join(" ")
    );
    let (from, to) = (folder.join("project"), folder.join("made"));
    std::fs::create_dir(&from).expect("a folder");
    std::fs::write(format!("{from}/CMakeLists.txt"), project).expect("a file");
    run(Command::new("cmake").args([
        "-S",
        &from,
        "-B",
        &to,
        &format!("-DCMAKE_PREFIX_PATH={}", folder.join("")),
    ]));
    run(Command::new("cmake").args(["--build", &to]));
    ["holdfast", "static"].map(|kind| format!("{to}/with_{kind}"))
}

#[test]
fn cpp_values_in_two_standards() {
    let (folder, server) = (installed(), Server::start(&[]));
    let include = format!("-I{}", folder.join("include"));
    for (standard, name) in [
        ("-std=c++17", "tests/values.cpp"),
        ("-std=c++20", "tests/values.cpp"),
        ("-std=c++17", "tests/domain.cpp"),
        ("-std=c++20", "tests/domain.cpp"),
        ("-std=c++17", "examples/first.cpp"),
    ] {
        let program = folder.join("program");
        run(Command::new("c++")
            .args([
                standard,
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-g",
                "-fsanitize=address,undefined",
            ])
            .args([&source(&format!("cpp/{name}")), "-o", &program, &include])
            .args([&folder.join("lib/libholdfast.a"), "-lpthread", "-ldl", "-lm"]));
        let printed = run(Command::new(&program).arg(server.folder().join("socket")));
        assert_eq!(printed, if name.starts_with("tests") { "ok\n" } else { FIRST }, "{name}, {standard}");
        run(Command::new("rm").arg(&program));
        server.client().call("flushall");
    }
}

/// A Fortran program with the static library and the compiler's checks.
fn checked(folder: &Folder, name: &str) -> String {
    let program = folder.join("program");
    run(Command::new("gfortran")
        .current_dir(folder.path())
        .args(["-std=f2008", "-Wall", "-Wextra", "-Werror", "-fcheck=all", "-g"])
        .args([&source("fortran/holdfast.f90"), &source(name), "-o", &program])
        .args([&folder.join("lib/libholdfast.a"), "-lpthread", "-ldl", "-lm"]));
    program
}

#[test]
fn fortran_calls_right_and_wrong() {
    let (folder, server) = (installed(), Server::start(&[]));
    says_ok(&checked(&folder, "fortran/tests/calls.f90"), &[&server.folder().join("socket")]);
}

#[test]
fn the_first_fortran_program_runs() {
    let (folder, server) = (installed(), Server::start(&[]));
    let program = checked(&folder, "fortran/examples/first.f90");
    let printed = run(Command::new(&program).arg(server.folder().join("socket")));
    assert_eq!(printed, "1048576 bytes, sum 16876371968. last 256512.\n");
    let sources = ["fortran/holdfast.f90", "fortran/examples/first.f90"];
    for program in made_by_cmake(&folder, "Fortran", &sources) {
        let library = folder.join("lib");
        let again =
            run(Command::new(&program).arg(server.folder().join("socket")).env("LD_LIBRARY_PATH", library));
        assert_eq!(again, printed, "{program}");
    }
    // The first index is the fastest.
    let grid = server.client().call("getrange grid 8 15");
    assert_eq!(grid.as_bytes(), Some(&1002f64.to_le_bytes()[..]));
}
