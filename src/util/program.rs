//! The file of the program that this process executes.

use std::{
    env, fs, io,
    os::unix::fs::MetadataExt,
    path::{self, Path, PathBuf},
};

/// Whatever name the program has by now.
const SELF: &str = "/proc/self/exe";

/// The path of the program that this process executes, if that is still there and not a newer one.
pub fn own() -> PathBuf {
    env::current_exe().ok().filter(|path| is_own(path)).unwrap_or_else(|| SELF.into())
}

/// The path by which the program was started, to be asked for at the start: if symbolic links are on the way, they lead to a newer program after an
/// upgrade.
///
/// # Errors
/// The system's.
pub fn as_started() -> io::Result<PathBuf> {
    let name = env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let candidates = match name.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => vec![path::absolute(&name)?],
        _ => {
            let folders = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&folders).map(|folder| folder.join(&name)).collect()
        }
    };
    candidates.into_iter().find(|path| is_own(path)).map_or_else(env::current_exe, Ok)
}

fn is_own(path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    identity(path).is_some_and(|it| Some(it) == identity(Path::new(SELF)))
}
