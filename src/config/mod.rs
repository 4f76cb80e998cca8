//! The configuration: values of the options in [`options::SPECS`], from the command line, the file and CONFIG SET.

pub mod address;
pub mod events;
pub mod file;
pub mod kind;
pub mod options;

use kind::{Kind, Value};
pub use options::Opt;
use std::{
    path::PathBuf,
    sync::{
        Mutex, RwLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

/// The values of all options. Numbers are read without a lock.
pub struct Config {
    numbers: [AtomicI64; Opt::ALL.len()],
    texts: RwLock<Vec<String>>,
    /// The words of the `user` lines, without the first.
    users: Mutex<Vec<Vec<Vec<u8>>>>,
    dirs: Mutex<Dirs>,
    /// The file that CONFIG REWRITE writes.
    pub path: Option<PathBuf>,
}

/// The `dir` lines after the first.
#[derive(Default)]
struct Dirs {
    more: Vec<PathBuf>,
    /// Whether the file or command line that is being read has named one.
    is_named: bool,
}

impl Default for Config {
    /// All defaults.
    fn default() -> Self {
        let config = Config {
            numbers: [const { AtomicI64::new(0) }; Opt::ALL.len()],
            texts: RwLock::new(vec![String::new(); Opt::ALL.len()]),
            users: Mutex::default(),
            dirs: Mutex::default(),
            path: None,
        };
        for &opt in Opt::ALL {
            let words = split_words(opt.spec().default);
            config.set(opt, &words).expect("defaults are valid");
        }
        config
    }
}

/// The words of a value that came as one text; an empty text is one empty word.
pub fn split_words(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() { vec![""] } else { words }
}

impl Config {
    /// Adds a `user` line.
    pub fn add_user(&self, words: Vec<Vec<u8>>) {
        self.users.lock().expect("no holder panics").push(words);
    }

    /// What comes next are the lines of another file, or the command line: a `dir` there replaces those of before.
    pub fn begin_source(&self) {
        self.dirs.lock().expect("no holder panics").is_named = false;
    }

    /// Sets `dir`, or adds a further folder, if the same file or command line has named one.
    pub fn add_dir(&self, words: &[&str]) -> Result<(), String> {
        let Value::Text(dir) = Opt::Dir.spec().kind.parse(words, "")? else {
            unreachable!("a path is a text")
        };
        let mut dirs = self.dirs.lock().expect("no holder panics");
        if std::mem::replace(&mut dirs.is_named, true) {
            dirs.more.push(dir.into());
        } else {
            dirs.more.clear();
            self.store(Opt::Dir, Value::Text(dir));
        }
        Ok(())
    }

    /// The further folders that were named beside [`Opt::Dir`].
    pub fn more_dirs(&self) -> Vec<PathBuf> {
        self.dirs.lock().expect("no holder panics").more.clone()
    }

    /// The folder on a slower medium, if one was named.
    pub fn flash_dir(&self) -> Option<PathBuf> {
        Some(self.text(Opt::FlashDir)).filter(|dir| !dir.is_empty()).map(PathBuf::from)
    }

    /// The `user` lines at start: a name and rules each.
    pub fn users(&self) -> Vec<Vec<Vec<u8>>> {
        self.users.lock().expect("no holder panics").clone()
    }

    /// A number: of a `yes`/`no` option 1 or 0, of a choice its index.
    #[inline]
    pub fn number(&self, opt: Opt) -> i64 {
        self.numbers[opt as usize].load(Relaxed)
    }

    /// Whether a `yes`/`no` option is `yes`.
    #[inline]
    pub fn is_on(&self, opt: Opt) -> bool {
        self.number(opt) != 0
    }

    /// A text.
    pub fn text(&self, opt: Opt) -> String {
        self.texts.read().expect("no holder panics")[opt as usize].clone()
    }

    /// The word that a choice has.
    pub fn choice(&self, opt: Opt) -> String {
        opt.spec().kind.show(self.number(opt))
    }

    /// Any value as CONFIG GET shows it.
    pub fn show(&self, opt: Opt) -> String {
        match opt.spec().kind {
            Kind::Text | Kind::Secret | Kind::Words | Kind::Custom(_) => self.text(opt),
            kind => kind.show(self.number(opt)),
        }
    }

    /// Sets an option from the words of its value; the error is worded as in Redis.
    pub fn set(&self, opt: Opt, words: &[&str]) -> Result<(), String> {
        let current = self.text(opt);
        self.store(opt, opt.spec().kind.parse(words, &current)?);
        Ok(())
    }

    /// The value, to be put back with [`Config::store`].
    pub fn load(&self, opt: Opt) -> Value {
        match opt.spec().kind {
            Kind::Text | Kind::Secret | Kind::Words | Kind::Custom(_) => Value::Text(self.text(opt)),
            _ => Value::Number(self.number(opt)),
        }
    }

    /// Sets a value that is known to be valid.
    pub fn store(&self, opt: Opt, value: Value) {
        match value {
            Value::Number(number) => self.numbers[opt as usize].store(number, Relaxed),
            Value::Text(text) => self.texts.write().expect("no holder panics")[opt as usize] = text,
        }
    }

    /// Whether the option still has its default.
    pub fn is_default(&self, opt: Opt) -> bool {
        let spec = opt.spec();
        spec.kind.parse(&split_words(spec.default), "").is_ok_and(|default| default == self.load(opt))
    }
}
