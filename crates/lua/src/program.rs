//! Compiling and running scripts and libraries of functions.

use crate::{
    cjson,
    host::{Host, run_with},
    interpreter::{Kind, Lua, PushError, Raise, Ref, State},
    reply::{count_error, write_reply},
    sandbox::Sandbox,
};
use holdfast_resp::{Args, Writer};

/// Bytes of memory that an interpreter may be allowed at most. A table is smaller then than Lua's largest, beyond which it
/// would raise an error while Rust has its turn.
pub const MEMORY_MAX: usize = 2 << 30;

/// An interpreter with its sandbox.
pub struct Interpreter {
    state: State,
    sandbox: Sandbox,
}

/// A script or function that can be run.
pub struct Program<'p> {
    /// What it is called in errors.
    pub name: &'p str,
    /// Its function.
    pub function: Ref,
    /// Whether its keys and arguments are globals.
    pub is_eval: bool,
}

impl Interpreter {
    /// A new one, which tells scripts this version of Redis.
    pub fn new(version: &str) -> Interpreter {
        let mut state = State::new();
        let sandbox = Sandbox::new(state.lua(), version).expect("a new interpreter has room");
        state.set_limit(MEMORY_MAX);
        Interpreter { state, sandbox }
    }

    /// Limits its memory to so many bytes, at most [`MEMORY_MAX`]: a script that needs more fails.
    pub fn set_memory_max(&mut self, bytes: usize) {
        self.state.set_limit(bytes);
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.state.bytes()
    }

    /// Compiles a script, whose keys and arguments are globals; the error says what is wrong with it.
    pub fn compile(&mut self, source: &[u8]) -> Result<Ref, Vec<u8>> {
        let lua = self.state.lua();
        let result = match push_program(lua, self.sandbox.eval, source, "@user_script") {
            Ok(true) => Ok(lua.keep()),
            Ok(false) => Err(lua.text(-1).unwrap_or_default()),
            Err(error) => Err(error.text().into()),
        };
        lua.clear();
        result
    }

    /// Runs the source of a library, which registers functions with the host.
    pub fn load_library(&mut self, source: &[u8], host: &mut dyn Host) -> Result<(), String> {
        let (lua, sandbox) = (self.state.lua(), &self.sandbox);
        let result = register_functions(lua, sandbox, source, host);
        lua.clear();
        self.state.tidy();
        result.unwrap_or_else(|error| Err(error.text().into()))
    }

    /// Forgets what was compiled or registered.
    pub fn forget(&mut self, function: Ref) {
        self.state.lua().forget(function);
    }

    /// Runs a program, and writes what it returns.
    pub fn run(&mut self, program: &Program, keys: Args, args: Args, host: &mut dyn Host, out: &mut Writer) {
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
    host: &mut dyn Host,
) -> Result<Result<(), String>, PushError> {
    let text = |lua: &Lua| lua.text(-1).unwrap_or_default();
    if !push_program(lua, sandbox.function, code, "@user_function")? {
        return Ok(Err(format!("Error compiling function: {}", String::from_utf8_lossy(&text(lua)))));
    }
    sandbox.set_loading(lua, true)?;
    let done = run_with(lua, host, |lua| lua.call(0, Some(0), None));
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
