//! What a script says of itself in its first line: `#!lua flags=no-writes,allow-oom`, or of a library `#!lua name=mylib`.

use holdfast_resp::{Span, split_line};

/// What a script or function promises or asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    /// It does not write.
    pub const NO_WRITES: ScriptFlags = ScriptFlags(1);
    /// It may run without memory.
    pub const ALLOW_OOM: ScriptFlags = ScriptFlags(2);
    /// It does not run on a node of a cluster.
    pub const NO_CLUSTER: ScriptFlags = ScriptFlags(8);
    /// It uses keys of several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: ScriptFlags = ScriptFlags(16);

    /// The names of the flags, each at its bit.
    const NAMES: [&'static str; 5] =
        ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

    /// Whether all of `flags` are set.
    pub fn has(self, flags: ScriptFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Sets a flag by its name; false: there is no such flag.
    pub fn set(&mut self, name: &[u8]) -> bool {
        let bit = Self::NAMES.iter().position(|known| known.as_bytes() == name);
        bit.inspect(|bit| self.0 |= 1 << bit).is_some()
    }

    /// The names of what is set.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        Self::NAMES.iter().enumerate().filter(move |(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| *name)
    }
}

/// The words of a first line that begins with `#!`, and where it ends; `None`: there is no end.
fn words(source: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let end = source.iter().position(|&b| b == b'\n')?;
    let mut line = source[..end].to_vec();
    let mut spans: Vec<Span> = Vec::new();
    let words = match split_line(&mut line, &mut spans) {
        Ok(()) => spans.iter().map(|span| line[span.start..span.end].to_vec()).collect(),
        Err(_) => Vec::new(),
    };
    Some((words, end))
}

fn shown(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The flags that a script for EVAL declares, if it declares any, and where its source begins.
pub fn of_script(source: &[u8]) -> Result<(Option<ScriptFlags>, usize), String> {
    if !source.starts_with(b"#!") {
        return Ok((None, 0));
    }
    let (words, end) = words(source).ok_or("Invalid script shebang")?;
    let (engine, options) = words.split_first().ok_or("Invalid engine in script shebang")?;
    if engine != b"#!lua" {
        return Err(format!("Unexpected engine in script shebang: {}", shown(engine)));
    }
    let mut flags = ScriptFlags::default();
    for option in options {
        let Some(names) = option.strip_prefix(b"flags=") else {
            return Err(format!("Unknown lua shebang option: {}", shown(option)));
        };
        for name in names.split(|&b| b == b',').filter(|name| !name.is_empty()) {
            if !flags.set(name) {
                return Err(format!("Unexpected flag in script shebang: {}", shown(name)));
            }
        }
    }
    Ok((Some(flags), end))
}

/// Whether a library or function may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// What is wrong with a name.
pub const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

/// The name that a library gives itself, and where its source begins.
pub fn of_library(source: &[u8]) -> Result<(String, usize), String> {
    if !source.starts_with(b"#!") {
        return Err("Missing library metadata".into());
    }
    let (words, end) = words(source).ok_or("Invalid library metadata")?;
    let (engine, options) = words.split_first().ok_or("Invalid library metadata")?;
    let mut name = None;
    for option in options {
        let (key, value) = option.split_at(option.len().min(5));
        if !key.eq_ignore_ascii_case(b"name=") {
            return Err(format!("Invalid metadata value given: {}", shown(option)));
        }
        if name.replace(value).is_some() {
            return Err("Invalid metadata value, name argument was given multiple times".into());
        }
    }
    let name = name.ok_or("Library name was not given")?;
    if !is_name(name) {
        return Err(BAD_NAME.into());
    }
    if !engine.eq_ignore_ascii_case(b"#!lua") {
        return Err(format!("Engine '{}' not found", shown(&engine[2..])));
    }
    Ok((shown(name).into_owned(), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_of_scripts() {
        assert_eq!(of_script(b"return 1"), Ok((None, 0)));
        assert_eq!(of_script(b"#!lua\nreturn 1"), Ok((Some(ScriptFlags(0)), 5)));
        let flags = of_script(b"#!lua flags=no-writes,allow-oom\n").unwrap();
        assert_eq!(flags, (Some(ScriptFlags(3)), 31));
        let names: Vec<_> = ScriptFlags(0b10101).names().collect();
        assert_eq!(names, ["no-writes", "allow-stale", "allow-cross-slot-keys"]);
        for (source, error) in [
            ("#!lua", "Invalid script shebang"),
            ("#!not-lua\n", "Unexpected engine in script shebang: #!not-lua"),
            ("#!lua badger=data\n", "Unknown lua shebang option: badger=data"),
            ("#!lua flags=bad\n", "Unexpected flag in script shebang: bad"),
        ] {
            assert_eq!(of_script(source.as_bytes()), Err(error.into()));
        }
    }

    #[test]
    fn first_lines_of_libraries() {
        assert_eq!(of_library(b"#!lua name=a_1\nx"), Ok(("a_1".into(), 14)));
        for (source, error) in [
            ("x", "Missing library metadata"),
            ("#!lua name=x", "Invalid library metadata"),
            ("#!lua\n", "Library name was not given"),
            ("#!lua name=a name=b\n", "Invalid metadata value, name argument was given multiple times"),
            ("#!lua foo=a\n", "Invalid metadata value given: foo=a"),
            ("#!lua name=a-b\n", BAD_NAME),
            ("#!bad name=a\n", "Engine 'bad' not found"),
        ] {
            assert_eq!(of_library(source.as_bytes()), Err(error.into()));
        }
    }
}
