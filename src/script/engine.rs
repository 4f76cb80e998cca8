//! A worker's interpreter, with the scripts and libraries that it has compiled.

use super::{
    api::{NewFunction, Scratch},
    cache::{Script, Scripts, Sha},
    cjson,
    flags::{self, ScriptFlags},
    host::{Host, run_with},
    library::{Function, Library},
    lua::{Kind, Lua, PushError, Raise, Ref, State},
    reply::{count_error, write_reply},
    sandbox::Sandbox,
};
use crate::{answer::Stop, config::options::SCRIPT_MEMORY_MAX};
use holdfast_resp::{Args, Proto, Writer};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The interpreter.
pub struct Engine {
    state: State,
    sandbox: Sandbox,
    scripts: HashMap<Sha, (Arc<Script>, Ref)>,
    /// Libraries by their names, as they were when they were loaded here, and their functions.
    libraries: HashMap<String, (Arc<Library>, HashMap<String, Ref>)>,
    /// How many scripts had been removed from the cache when `scripts` was looked through.
    removed_seen: u64,
    /// Memory for arguments and replies.
    pub scratch: Scratch,
}

/// Whether a script has always locked all that it needs when it began, as far as that is known. What does not may want,
/// when it has written, what another such has locked, and that one the other way round: they write one after the other.
#[derive(Clone, Debug, Default)]
pub struct NamesKeys(Arc<AtomicU8>);

impl NamesKeys {
    const YES: u8 = 1;
    const NO: u8 = 2;

    /// Whether it is known that it does.
    pub fn is_known(&self) -> bool {
        self.0.load(Relaxed) == NamesKeys::YES
    }

    /// It has come to its end and has written, with what it had locked from the beginning.
    pub fn confirm(&self) {
        // Never again after it has met another key.
        let _ = self.0.compare_exchange(0, NamesKeys::YES, Relaxed, Relaxed);
    }

    /// It has met a key that it has not named.
    pub fn deny(&self) {
        self.0.store(NamesKeys::NO, Relaxed);
    }
}

/// A script or function that can be run.
pub struct Program<'p> {
    /// What it is called in errors.
    pub name: &'p str,
    /// Its function.
    pub function: Ref,
    /// Whether its keys and arguments are globals.
    pub is_eval: bool,
    /// Whether it names its keys, as far as that is known.
    pub names_keys: &'p NamesKeys,
}

impl Engine {
    /// A new one.
    pub fn new() -> Engine {
        let mut state = State::new();
        let sandbox = Sandbox::new(state.lua()).expect("a new interpreter has room");
        state.set_limit(SCRIPT_MEMORY_MAX);
        Engine {
            state,
            sandbox,
            scripts: HashMap::new(),
            libraries: HashMap::new(),
            removed_seen: 0,
            scratch: Scratch::default(),
        }
    }

    /// Limits its memory to so many bytes: a script that needs more fails.
    pub fn set_memory_max(&mut self, bytes: usize) {
        self.state.set_limit(bytes);
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.state.bytes()
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
            self.state.lua().forget(old);
        }
        Ok((script, function))
    }

    fn compile(&mut self, script: &Script) -> Result<Ref, Vec<u8>> {
        let lua = self.state.lua();
        let compiled = push_program(lua, self.sandbox.eval, &script.source[script.code..], "@user_script");
        let result = match compiled {
            Ok(true) => Ok(lua.keep()),
            Ok(false) => Err(lua.text(-1).unwrap_or_default()),
            Err(error) => Err(error.text().into()),
        };
        lua.clear();
        result
    }

    fn forget_removed(&mut self, shared: &Scripts) {
        let removed = shared.removed();
        if removed == self.removed_seen {
            return;
        }
        self.removed_seen = removed;
        let lua = self.state.lua();
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
        let result = self.run_library(&source[code..], &mut loader);
        let result = result.and_then(|()| match loader.functions.is_empty() {
            true => Err("No functions registered".into()),
            false => Ok(()),
        });
        if let Err(what) = result {
            let lua = self.state.lua();
            loader.refs.into_values().for_each(|function| lua.forget(function));
            return Err(what);
        }
        let library = Arc::new(Library::new(name.clone(), source, loader.functions));
        self.forget_library(&name);
        self.libraries.insert(name, (library.clone(), loader.refs));
        Ok(library)
    }

    fn run_library(&mut self, code: &[u8], loader: &mut Loader) -> Result<(), String> {
        let (lua, sandbox) = (self.state.lua(), &self.sandbox);
        let result = register_functions(lua, sandbox, code, loader);
        lua.clear();
        self.state.tidy();
        result.unwrap_or_else(|error| Err(error.text().into()))
    }

    fn forget_library(&mut self, name: &str) {
        if let Some((_, functions)) = self.libraries.remove(name) {
            let lua = self.state.lua();
            functions.into_values().for_each(|function| lua.forget(function));
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
    pub fn run<H: Host>(
        &mut self,
        program: &Program,
        keys: Args,
        args: Args,
        host: &mut H,
        out: &mut Writer,
    ) {
        cjson::reset();
        let (lua, place) = (self.state.lua(), out.defer());
        if let Err(error) = run_program(lua, &self.sandbox, program, (keys, args), host, out) {
            out.rewind(place);
            match error {
                Raise::Push(error) => {
                    out.error(format!("ERR Error running script {}, {}", program.name, error.text()));
                }
                // It was killed while its reply was written.
                Raise::Text(text) => out.error(text),
                Raise::Value | Raise::Argument(..) => unreachable!("no function runs"),
            }
        }
        lua.clear();
        self.state.tidy();
    }
}

fn cannot_compile(what: Vec<u8>) -> Stop {
    Stop::from([b"ERR Error compiling script (new function): ", &what[..]].concat())
}

/// Compiles source whose globals are in the table `globals`; see [`Lua::load`].
fn push_program(lua: &mut Lua, globals: Ref, source: &[u8], name: &str) -> Result<bool, PushError> {
    lua.push_ref(globals)?;
    lua.set_globals();
    lua.load(source, name)
}

/// Runs the source of a library; the inner error says what is wrong with that.
fn register_functions(
    lua: &mut Lua,
    sandbox: &Sandbox,
    code: &[u8],
    loader: &mut Loader,
) -> Result<Result<(), String>, PushError> {
    let text = |lua: &Lua| lua.text(-1).unwrap_or_default();
    if !push_program(lua, sandbox.function, code, "@user_function")? {
        return Ok(Err(format!("Error compiling function: {}", String::from_utf8_lossy(&text(lua)))));
    }
    sandbox.set_loading(lua, true)?;
    let done = run_with(lua, loader, |lua| lua.call(0, Some(0), None));
    sandbox.set_loading(lua, false)?;
    if done? {
        return Ok(Ok(()));
    }
    let mut error = b"execution failure".to_vec();
    if lua.kind(-1) == Kind::Table {
        lua.get_field(-1, "err")?;
        error = text(lua);
    } else if lua.kind(-1) != Kind::Nil {
        error = [b"ERR ", &text(lua)[..]].concat();
    }
    Ok(Err(format!("Error registering functions: {}", String::from_utf8_lossy(&error))))
}

fn run_program(
    lua: &mut Lua,
    sandbox: &Sandbox,
    program: &Program,
    (keys, args): (Args, Args),
    host: &mut dyn Host,
    out: &mut Writer,
) -> Result<(), Raise> {
    // A script may have set other globals for what is compiled later.
    lua.push_ref(if program.is_eval { sandbox.eval } else { sandbox.function })?;
    lua.set_globals();
    lua.push_ref(sandbox.handler)?;
    let handler = lua.top();
    let done = if program.is_eval {
        lua.push_ref(sandbox.eval_behind)?;
        for (name, strings) in [(sandbox.keys, keys), (sandbox.argv, args)] {
            lua.push_ref(name)?;
            push_strings(lua, strings)?;
            lua.raw_set(-3)?;
        }
        lua.pop(1);
        lua.push_ref(program.function)?;
        run_with(lua, host, |lua| lua.call(0, Some(1), Some(handler)))
    } else {
        lua.push_ref(program.function)?;
        push_strings(lua, keys)?;
        push_strings(lua, args)?;
        run_with(lua, host, |lua| lua.call(2, Some(1), Some(handler)))
    };
    if done? {
        return write_reply(lua, host, out);
    }
    if lua.kind(-1) == Kind::Table {
        count_error(lua, -1, host)?;
    }
    out.error(error_text(lua, program.name)?);
    Ok(())
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

    fn register(&mut self, lua: &mut Lua, function: NewFunction) -> Result<(), String> {
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
        self.refs.insert(name.clone(), lua.keep());
        let names_keys = NamesKeys::default();
        self.functions.insert(name, Function { description: function.description, flags, names_keys });
        Ok(())
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

fn push_strings(lua: &mut Lua, strings: Args) -> Result<(), PushError> {
    lua.push_table(strings.len(), 0)?;
    for (index, string) in strings.iter().enumerate() {
        lua.push_bytes(string)?;
        lua.set_element(-2, index as i32 + 1)?;
    }
    Ok(())
}

/// The text of the error on top, with the place where it was raised.
fn error_text(lua: &mut Lua, name: &str) -> Result<Vec<u8>, PushError> {
    if lua.kind(-1) != Kind::Table {
        let mut text = lua.text(-1).unwrap_or_else(|| b"execution failure".to_vec());
        text.truncate(100);
        return Ok([b"ERR Error running script ", name.as_bytes(), b", ", &text].concat());
    }
    let mut field = |name: &str| {
        lua.get_field(-1, name)?;
        let text = lua.text(-1);
        lua.pop(1);
        Ok(text)
    };
    let mut text = field("err")?.unwrap_or_else(|| b"ERR unknown error".to_vec());
    if let (Some(source), Some(line)) = (field("source")?, field("line")?) {
        let place = [b" script: ", name.as_bytes(), b", on ", &source, b":", &line, b"."].concat();
        text.extend_from_slice(&place);
    }
    Ok(text)
}
