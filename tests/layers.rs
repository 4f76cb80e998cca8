//! The folders of the server, and those of the store, use each other in one direction only.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// From the one that uses no other to the one that none uses.
const SERVER: [&str; 24] = [
    "util",
    "config",
    "command",
    "admin",
    "clients",
    "commit",
    "acl",
    "push",
    "transport",
    "script",
    "server",
    "session",
    "exec",
    "figures",
    "commands",
    "net",
    "metrics",
    "import",
    "replica",
    "cluster",
    "replica_set",
    "takeover",
    "top",
    "serve",
];

/// The same of the store.
const STORE: [&str; 12] = [
    "util",
    "format",
    "backup",
    "collections",
    "cache",
    "partition",
    "salvage",
    "engine",
    "txn",
    "typed",
    "maintenance",
    "store",
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file without comments and tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source");
    let code = text.split("#[cfg(test)]\nmod tests").next().expect("a first part");
    code.lines().map(|line| line.split("//").next().expect("a first part").to_owned() + "\n").collect()
}

/// The modules of its crate that code names: what follows `crate::`, or each `{`, `,` of the list that follows it.
fn used(code: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let mut used = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let Some(list) = rest.strip_prefix('{') else {
            used.push(name(rest));
            continue;
        };
        used.push(name(list));
        let mut depth = 1;
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => used.push(name(&list[at + 1..])),
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    used.retain(|name| !name.is_empty());
    used
}

/// Checks the folders of a crate, and returns how many uses were found.
fn check(root: &str, folders: &[&str]) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
    let mut count = 0;
    for (rank, folder) in folders.iter().enumerate() {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        for file in files {
            for module in used(&code(&file)) {
                let below = folders[..=rank].contains(&&module[..]);
                assert!(below, "{} uses {module}, which is not below {folder}", file.display());
                count += 1;
            }
        }
    }
    let others = fs::read_dir(&root).expect("a folder of the sources").map(|entry| entry.expect("an entry"));
    // `simulated` has tests only.
    let is_known = |name: &str| folders.contains(&name) || name == "simulated";
    for entry in others.filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name();
        assert!(
            name.to_str().is_some_and(is_known),
            "{} has no place among the folders",
            entry.path().display()
        );
    }
    count
}

#[test]
fn folders_use_each_other_in_one_direction() {
    let found = (check("src", &SERVER), check("crates/store/src", &STORE));
    assert!(found.0 > 300 && found.1 > 150, "{found:?} uses were found");
}

#[test]
fn every_use_is_found() {
    let code = "use crate::{acl::{Acl, User}, net,\n    util::glob};\nfn f() { crate::exec::f() }\nuse crate::push::Push;";
    assert_eq!(used(code), ["acl", "net", "util", "exec", "push"]);
}
