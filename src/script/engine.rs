//! A worker's interpreter, with the scripts and libraries that it has compiled.

use super::{
    cache::{Script, Scripts, Sha},
    flags::{self, ScriptFlags},
    library::{Function, Libraries, Library, Set, sources},
    names_keys::NamesKeys,
};
use crate::{admin::log::log, command::error::Stop, util::version::REDIS_VERSION};
use holdfast_lua::{Host, Interpreter, LogLevel, NewFunction, Ref, Scratch};
use holdfast_resp::{Args, Proto, Writer};
use holdfast_store::Store;
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// The interpreter.
pub struct Engine {
    lua: Interpreter,
    scripts: HashMap<Sha, (Arc<Script>, Ref)>,
    /// Libraries by their names, as they were when they were loaded here, and their functions.
    libraries: HashMap<String, (Arc<Library>, HashMap<String, Ref>)>,
    /// How many scripts had been removed from the cache when `scripts` was looked through.
    removed_seen: u64,
    /// How often the server's libraries had been replaced when all that are here were among them.
    libraries_seen: Option<u64>,
    /// Memory for arguments and replies.
    pub scratch: Scratch,
}

/// A script or function that can be run.
pub struct Program<'p> {
    /// What the interpreter runs.
    pub lua: holdfast_lua::Program<'p>,
    /// Whether it names its keys, as far as that is known.
    pub names_keys: &'p NamesKeys,
}

impl Engine {
    /// A new one.
    pub fn new() -> Engine {
        Engine {
            lua: Interpreter::new(REDIS_VERSION),
            scripts: HashMap::new(),
            libraries: HashMap::new(),
            removed_seen: 0,
            libraries_seen: None,
            scratch: Scratch::default(),
        }
    }

    /// Limits its memory to so many bytes: a script that needs more fails.
    pub fn set_memory_max(&mut self, bytes: usize) {
        self.lua.set_memory_max(bytes);
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.lua.bytes()
    }

    /// A script by its digest, compiled.
    pub fn script(&mut self, shared: &Scripts, sha: &Sha) -> Result<Option<(Arc<Script>, Ref)>, Stop> {
        self.forget_removed(shared);
        if let Some((script, function)) = self.scripts.get(sha) {
            shared.touch(script);
            return Ok(Some((script.clone(), *function)));
        }
        let Some(script) = shared.get(sha) else { return Ok(None) };
        shared.touch(&script);
        // It was compiled before it came into the cache, but there may be too little memory now.
        let function = self.compile(&script).map_err(cannot_compile)?;
        self.scripts.insert(*sha, (script.clone(), function));
        Ok(Some((script, function)))
    }

    /// Compiles a new script and adds it to the cache. `keep`: until SCRIPT FLUSH.
    pub fn add(&mut self, shared: &Scripts, source: &[u8], keep: bool) -> Result<(Arc<Script>, Ref), Stop> {
        let script = Script::new(source).map_err(|what| Stop::from(format!("ERR {what}")))?;
        let function = self.compile(&script).map_err(cannot_compile)?;
        let script = shared.add(script, keep);
        if let Some((_, old)) = self.scripts.insert(script.sha, (script.clone(), function)) {
            self.lua.forget(old);
        }
        Ok((script, function))
    }

    fn compile(&mut self, script: &Script) -> Result<Ref, Vec<u8>> {
        self.lua.compile(&script.source[script.code..])
    }

    fn forget_removed(&mut self, shared: &Scripts) {
        let removed = shared.removed();
        if removed == self.removed_seen {
            return;
        }
        self.removed_seen = removed;
        let lua = &mut self.lua;
        self.scripts.retain(|_, (script, function)| {
            if script.is_removed() {
                lua.forget(*function);
            }
            !script.is_removed()
        });
    }

    /// Loads a library: runs its source, which registers functions.
    pub fn load_library(&mut self, source: &[u8]) -> Result<Arc<Library>, String> {
        let (name, code) = flags::of_library(source)?;
        let mut loader = Loader::new();
        let result = self.lua.load_library(&source[code..], &mut loader);
        let result = result.and_then(|()| match loader.functions.is_empty() {
            true => Err("No functions registered".into()),
            false => Ok(()),
        });
        if let Err(what) = result {
            loader.refs.into_values().for_each(|function| self.lua.forget(function));
            return Err(what);
        }
        let library = Arc::new(Library::new(name.clone(), source, loader.functions));
        self.forget_library(&name);
        // It may not come to be one of the server's.
        self.libraries_seen = None;
        self.libraries.insert(name, (library.clone(), loader.refs));
        Ok(library)
    }

    /// Forgets the libraries that are not the server's, or not any more.
    pub fn forget_deleted(&mut self, current: &Libraries) {
        let changes = Some(current.changes());
        if self.libraries_seen == changes {
            return;
        }
        self.libraries_seen = changes;
        let (set, lua) = (current.get(), &mut self.lua);
        self.libraries.retain(|name, (library, functions)| {
            let stays = set.libraries.get(name).is_some_and(|current| current.source == library.source);
            if !stays {
                functions.drain().for_each(|(_, function)| lua.forget(function));
            }
            stays
        });
    }

    fn forget_library(&mut self, name: &str) {
        if let Some((_, functions)) = self.libraries.remove(name) {
            functions.into_values().for_each(|function| self.lua.forget(function));
        }
    }

    /// A function of a library.
    pub fn function(&mut self, library: &Arc<Library>, name: &str) -> Result<Ref, String> {
        let is_known =
            |known: &(Arc<Library>, _)| Arc::ptr_eq(&known.0, library) || known.0.source == library.source;
        if !self.libraries.get(&library.name).is_some_and(is_known) {
            self.load_library(&library.source)?;
        }
        let functions = self.libraries.get(&library.name).map(|(_, functions)| functions);
        functions
            .and_then(|functions| functions.get(name))
            .copied()
            .ok_or_else(|| "Function not found".into())
    }

    /// Runs a program, and writes what it returns.
    pub fn run(&mut self, program: &Program, keys: Args, args: Args, host: &mut dyn Host, out: &mut Writer) {
        self.lua.run(&program.lua, keys, args, host, out);
    }
}

/// Loads the libraries that the store keeps. Says what could not be loaded, which stays in the store.
pub fn load_libraries(libraries: &Libraries, store: &Store) -> Vec<String> {
    let (mut set, mut wrong) = (Set::default(), Vec::new());
    let mut engine = None;
    for source in sources(store, &mut wrong) {
        let engine = engine.get_or_insert_with(Engine::new);
        let mut larger = Set::clone(&set);
        match engine.load_library(&source).and_then(|library| larger.add(library)) {
            Ok(()) => set = larger,
            Err(what) => wrong.push(format!("a library of functions: {what}")),
        }
    }
    libraries.set(set);
    wrong
}

fn cannot_compile(what: Vec<u8>) -> Stop {
    Stop::from([b"ERR Error compiling script (new function): ", &what[..]].concat())
}

/// Takes the functions of a library while it is loaded.
struct Loader {
    functions: BTreeMap<String, Function>,
    refs: HashMap<String, Ref>,
    started: Instant,
    scratch: Scratch,
}

/// How long a library may take to load.
const LOAD_TIME_MAX: Duration = Duration::from_millis(500);

impl Loader {
    fn new() -> Loader {
        Loader {
            functions: BTreeMap::new(),
            refs: HashMap::new(),
            started: Instant::now(),
            scratch: Scratch::default(),
        }
    }
}

impl Host for Loader {
    fn call(&mut self, _: Args, _: &mut Vec<u8>) -> Result<(), Cow<'static, [u8]>> {
        Err(b"ERR Commands can only be called by functions".into())
    }

    fn may_run(&mut self, _: Args) -> Option<bool> {
        None
    }

    fn set_proto(&mut self, _: Proto) {}

    fn proto(&self) -> Proto {
        Proto::Resp2
    }

    fn count_error(&mut self, _: &[u8]) {}

    fn register(&mut self, function: NewFunction, callback: Ref) -> Result<(), String> {
        let mut flags = ScriptFlags::default();
        if !function.flags.iter().all(|name| flags.set(&name.to_ascii_lowercase())) {
            return Err("unknown flag given".into());
        }
        if !flags::is_name(&function.name) {
            return Err(flags::BAD_NAME.into());
        }
        let name = String::from_utf8_lossy(&function.name).into_owned();
        if self.functions.contains_key(&name) {
            return Err("Function already exists in the library".into());
        }
        self.refs.insert(name.clone(), callback);
        let names_keys = NamesKeys::default();
        self.functions.insert(name, Function { description: function.description, flags, names_keys });
        Ok(())
    }

    fn log(&mut self, level: LogLevel, message: &str) {
        write_log(level, message);
    }

    fn tick(&mut self) -> Result<(), String> {
        match self.started.elapsed() > LOAD_TIME_MAX {
            true => Err("ERR FUNCTION LOAD timeout".into()),
            false => Ok(()),
        }
    }

    fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }
}

/// Logs what a script says.
pub fn write_log(level: LogLevel, message: &str) {
    match level {
        LogLevel::Debug => log!(Debug, "{message}"),
        LogLevel::Verbose => log!(Verbose, "{message}"),
        LogLevel::Notice => log!(Notice, "{message}"),
        LogLevel::Warning => log!(Warning, "{message}"),
    }
}
