//! What the system tells of memory.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

/// A field that a file of the system gives in KiB, in bytes; 0 if the system does not tell.
pub fn kib_field(file: &str, name: &str) -> u64 {
    let field = |text: String| {
        let value = |line: &str| {
            line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix("kB")?.trim().parse().ok()
        };
        text.lines().find_map(value)
    };
    fs::read_to_string(file).ok().and_then(field).map_or(0, |kib: u64| kib * 1024)
}

/// Bytes of memory that this process may have: the machine's, or fewer if a control group allows fewer (cgroups(7)); `None`: the
/// system does not tell.
pub fn memory_allowed() -> Option<u64> {
    memory_allowed_below(Path::new("/"))
}

fn memory_allowed_below(root: &Path) -> Option<u64> {
    let machine = kib_field(&root.join("proc/meminfo").to_string_lossy(), "MemTotal");
    let limits = control_groups(root).into_iter().flat_map(|group| {
        // Of version 2, and of version 1.
        ["memory.max", "memory.high", "memory.limit_in_bytes"].map(|file| group.join(file))
    });
    let limits = limits.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.chain(Some(machine).filter(|&bytes| bytes > 0)).min()
}

/// The folders of the control groups that the process is in, inner and outer ones.
fn control_groups(root: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut groups = Vec::new();
    for line in text.lines() {
        // Number, controllers, path. Version 2 names no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let mut group = match controllers {
            "" => root.join("sys/fs/cgroup"),
            _ if controllers.split(',').any(|name| name == "memory") => root.join("sys/fs/cgroup/memory"),
            _ => continue,
        };
        // A container may see its own group at the top, whatever the path of it is outside.
        groups.push(group.clone());
        let names = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
        for name in names {
            group.push(name);
            groups.push(group.clone());
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        let allowed = || memory_allowed_below(root.path());
        assert_eq!(allowed(), None);
        write("proc/meminfo", "MemTotal:       16000 kB\nMemFree: 1 kB\n");
        assert_eq!(allowed(), Some(16_384_000));
        // Version 2.
        write("proc/self/cgroup", "0::/a/b\n");
        write("sys/fs/cgroup/a/memory.max", "9000000\n");
        write("sys/fs/cgroup/a/b/memory.max", "max\n");
        write("sys/fs/cgroup/c/memory.max", "1000\n");
        assert_eq!(allowed(), Some(9_000_000));
        write("sys/fs/cgroup/a/b/memory.high", "8000000\n");
        assert_eq!(allowed(), Some(8_000_000));
        // Version 1, in a container which sees its group at the top.
        write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/x\n1:name=systemd:/x\n0::/../y\n");
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(allowed(), Some(16_384_000));
        write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000\n");
        assert_eq!(allowed(), Some(7_000_000));
        write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "6000000\n");
        assert_eq!(allowed(), Some(6_000_000));
    }
}
