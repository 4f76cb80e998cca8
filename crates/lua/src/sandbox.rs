//! What scripts can reach: the libraries that Redis gives them, under globals that they cannot change.
//!
//! Lua 5.1 knows no read-only tables. A table that scripts must not change is therefore kept from them: what they see is
//! an empty table in its place, whose metatable reads from it and refuses to write. The functions of the base library
//! that go around metatables are replaced by such that know of these stand-ins. (`table.insert` and its like do not; what
//! they leave in a stand-in has a number for its name, which nothing in the libraries has.)

use crate::{
    api,
    arguments::wrong_kind,
    bit, cjson, cmsgpack,
    guards::{self, READ_ONLY, read_only_error},
    interpreter::{Function, Kind, Lua, PushError, Raise, Ref},
    pack,
};
use std::{
    cell::Cell,
    hash::{BuildHasher, RandomState},
};

/// Of Lua's base library, what scripts have as it is.
const BASE: &[&str] = &[
    "_VERSION",
    "assert",
    "coroutine",
    "error",
    "gcinfo",
    "getfenv",
    "ipairs",
    "rawequal",
    "select",
    "setfenv",
    "tonumber",
    "tostring",
    "type",
];
/// What they have in place of Lua's own, which knows of stand-ins, lets no bytecode in, or keeps to the stack's room.
const REPLACED: &[(&str, Function)] = &[
    ("collectgarbage", guards::collectgarbage),
    ("getmetatable", getmetatable),
    ("load", load),
    ("loadstring", loadstring),
    ("next", next),
    ("pairs", pairs),
    ("pcall", pcall),
    ("rawget", rawget),
    ("rawset", rawset),
    ("setmetatable", setmetatable),
    ("unpack", guards::unpack),
    ("xpcall", xpcall),
];
const LIBRARIES: &[&str] =
    &["bit", "cjson", "cmsgpack", "coroutine", "math", "os", "string", "struct", "table"];

/// The tables of globals.
pub struct Sandbox {
    /// Of EVAL.
    pub eval: Ref,
    /// The table behind it, where KEYS and ARGV are.
    pub eval_behind: Ref,
    /// The names of the globals `KEYS` and `ARGV`, which every script is given.
    pub keys: Ref,
    /// As above.
    pub argv: Ref,
    /// Of functions.
    pub function: Ref,
    /// The metatable of that, and what it reads from while a library is loaded and after.
    function_meta: Ref,
    function_load: Ref,
    function_behind: Ref,
    /// Makes of an error a table that says where it was raised.
    pub handler: Ref,
}

impl Sandbox {
    /// Opens the libraries.
    pub fn new(lua: &mut Lua, version: &str) -> Result<Sandbox, PushError> {
        // The stand-ins, with the tables that they stand for.
        lua.push_table(0, 32)?;
        let stand_ins = lua.keep();
        lua.open_libraries()?;
        lua.push_globals()?;
        let native = lua.top();
        add(lua, native, "os", &[], |lua, from| {
            lua.get_field(from, "os")?;
            lua.get_field(-1, "clock")?;
            lua.remove(-2);
            lua.set_field(-2, "clock")
        })?;
        add(lua, native, "bit", bit::FUNCTIONS, |_, _| Ok(()))?;
        add(lua, native, "cjson", cjson::FUNCTIONS, |lua, _| cjson::add_constants(lua))?;
        add(lua, native, "cmsgpack", cmsgpack::FUNCTIONS, |lua, _| cmsgpack::add_constants(lua))?;
        add(lua, native, "struct", pack::FUNCTIONS, |_, _| Ok(()))?;
        lua.get_field(native, "math")?;
        set_functions(lua, &[("random", math_random), ("randomseed", math_randomseed)])?;
        lua.pop(1);
        guards::add(lua, native, stand_ins)?;

        // What is behind the stand-in for getmetatable("").
        lua.push_table(0, 1)?;
        lua.get_field(native, "string")?;
        let string = stand_in(lua, stand_ins, false)?;
        lua.push_ref(string)?;
        lua.forget(string);
        lua.set_field(-2, "__index")?;
        let string_meta = stand_in(lua, stand_ins, false)?;

        let library = |lua: &mut Lua| {
            lua.push_table(0, 40)?;
            let behind = lua.top();
            for name in BASE {
                lua.get_field(native, name)?;
                lua.set_field(behind, name)?;
            }
            for (name, function) in REPLACED {
                lua.push_ref(stand_ins)?;
                lua.push_ref(string_meta)?;
                lua.get_field(native, "next")?;
                lua.push_closure(*function, 3)?;
                lua.set_field(behind, name)?;
            }
            for name in LIBRARIES {
                lua.get_field(native, name)?;
                let kept = stand_in(lua, stand_ins, false)?;
                lua.push_ref(kept)?;
                lua.forget(kept);
                lua.set_field(behind, name)?;
            }
            Ok::<_, PushError>(())
        };

        library(lua)?;
        let behind = lua.top();
        add_api(lua, version, behind, stand_ins, &[api::COMMANDS, api::COMMON, api::EVAL_ONLY], true, false)?;
        lua.push_copy(behind)?;
        let eval_behind = lua.keep();
        let eval = stand_in(lua, stand_ins, true)?;
        name_globals(lua, eval_behind, eval)?;

        library(lua)?;
        let behind = lua.top();
        add_api(lua, version, behind, stand_ins, &[api::COMMANDS, api::COMMON], true, false)?;
        lua.push_copy(behind)?;
        let function_behind = lua.keep();
        let function = stand_in(lua, stand_ins, true)?;
        name_globals(lua, function_behind, function)?;
        lua.push_ref(function)?;
        lua.get_metatable(-1)?;
        let function_meta = lua.keep();
        lua.pop(1);

        lua.push_table(0, 2)?;
        let behind = lua.top();
        add_api(lua, version, behind, stand_ins, &[api::LOADING], false, true)?;
        refuse_unknown(lua)?;
        let function_load = lua.keep();

        lua.push_function(handle_error)?;
        let handler = lua.keep();
        lua.pop(1);
        let name = |lua: &mut Lua, name: &str| {
            lua.push_bytes(name)?;
            Ok::<_, PushError>(lua.keep())
        };
        let (keys, argv) = (name(lua, "KEYS")?, name(lua, "ARGV")?);
        Ok(Sandbox {
            eval,
            eval_behind,
            keys,
            argv,
            function,
            function_meta,
            function_load,
            function_behind,
            handler,
        })
    }

    /// Lets the globals of functions be those of a library that is loaded, or all.
    pub fn set_loading(&self, lua: &mut Lua, loading: bool) -> Result<(), PushError> {
        lua.push_ref(self.function_meta)?;
        lua.push_ref(if loading { self.function_load } else { self.function_behind })?;
        lua.replace_field(-2, "__index")?;
        lua.pop(1);
        Ok(())
    }
}

/// Adds a library to the table at `to`: functions, and what `more` adds to the table on top.
fn add(
    lua: &mut Lua,
    to: i32,
    name: &str,
    functions: &[(&str, Function)],
    more: impl Fn(&mut Lua, i32) -> Result<(), PushError>,
) -> Result<(), PushError> {
    lua.push_table(0, functions.len() + 4)?;
    set_functions(lua, functions)?;
    more(lua, to)?;
    lua.set_field(to, name)
}

/// Adds functions to the table on top.
fn set_functions(lua: &mut Lua, functions: &[(&str, Function)]) -> Result<(), PushError> {
    for (name, function) in functions {
        lua.push_function(*function)?;
        lua.set_field(-2, name)?;
    }
    Ok(())
}

/// Adds the tables `redis` and `server`, whose functions differ in the name that their errors call them by.
fn add_api(
    lua: &mut Lua,
    version: &str,
    to: i32,
    stand_ins: Ref,
    functions: &[&[(&str, Function)]],
    constants: bool,
    strict: bool,
) -> Result<(), PushError> {
    for table in ["redis", "server"] {
        lua.push_table(0, 40)?;
        for (name, function) in functions.iter().copied().flatten() {
            lua.push_bytes(table)?;
            lua.push_closure(*function, 1)?;
            lua.set_field(-2, name)?;
        }
        api::add_versions(lua, version)?;
        api::add_log_levels(lua)?;
        if constants {
            api::add_repl_flags(lua)?;
        }
        if strict {
            refuse_unknown(lua)?;
        }
        let kept = stand_in(lua, stand_ins, false)?;
        lua.push_ref(kept)?;
        lua.forget(kept);
        lua.set_field(to, table)?;
    }
    Ok(())
}

/// Names the table of globals within itself.
fn name_globals(lua: &mut Lua, behind: Ref, stand_in: Ref) -> Result<(), PushError> {
    lua.push_ref(behind)?;
    lua.push_ref(stand_in)?;
    lua.set_field(-2, "_G")?;
    refuse_unknown(lua)?;
    lua.pop(1);
    Ok(())
}

/// Lets the table on top raise an error for what is not in it.
fn refuse_unknown(lua: &mut Lua) -> Result<(), PushError> {
    lua.push_table(0, 1)?;
    lua.push_function(unknown_global)?;
    lua.set_field(-2, "__index")?;
    lua.set_metatable(-2);
    Ok(())
}

/// Makes a stand-in for the table on top, and takes that off. One for globals has a metatable that scripts may look at.
fn stand_in(lua: &mut Lua, stand_ins: Ref, has_metatable: bool) -> Result<Ref, PushError> {
    lua.push_table(0, 0)?;
    lua.push_table(0, 2)?;
    lua.push_copy(-3)?;
    lua.set_field(-2, "__index")?;
    lua.push_function(read_only)?;
    lua.set_field(-2, "__newindex")?;
    if has_metatable {
        lua.push_table(0, 0)?;
        let empty = stand_in(lua, stand_ins, false)?;
        lua.push_ref(empty)?;
        lua.forget(empty);
        lua.set_field(-2, "__metatable")?;
    }
    lua.set_metatable(-2);
    // stand_ins[stand-in] = table
    lua.push_ref(stand_ins)?;
    lua.push_copy(-2)?;
    lua.push_copy(-4)?;
    lua.raw_set(-3)?;
    lua.pop(1);
    let kept = lua.keep();
    lua.pop(1);
    Ok(kept)
}

/// Puts the table that a stand-in stands for in place of the argument; whether it is a stand-in.
fn see_behind(lua: &mut Lua, index: i32) -> Result<bool, PushError> {
    lua.push_kept(1)?;
    lua.push_copy(index)?;
    lua.raw_get(-2);
    lua.remove(-2);
    if lua.kind(-1) != Kind::Table {
        lua.pop(1);
        return Ok(false);
    }
    lua.insert(index);
    lua.remove(index + 1);
    Ok(true)
}

fn is_stand_in(lua: &mut Lua, index: i32) -> Result<bool, PushError> {
    lua.push_copy(index)?;
    let copy = lua.top();
    let is = see_behind(lua, copy)?;
    lua.pop(1);
    Ok(is)
}

fn expect_table(lua: &Lua, number: i32) -> Result<(), Raise> {
    if lua.kind(number) == Kind::Table { Ok(()) } else { Err(wrong_kind(lua, number, "table")) }
}

fn expect_any(lua: &Lua, number: i32) -> Result<(), Raise> {
    match lua.kind(number) {
        Kind::None => Err(Raise::Argument(number, "value expected".into())),
        _ => Ok(()),
    }
}

fn read_only(_: &mut Lua) -> Result<i32, Raise> {
    Err(READ_ONLY.into())
}

/// Refuses the argument if it is a stand-in.
fn refuse_stand_in(lua: &mut Lua) -> Result<(), Raise> {
    if is_stand_in(lua, 1)? { Err(read_only_error(lua)) } else { Ok(()) }
}

fn unknown_global(lua: &mut Lua) -> Result<i32, Raise> {
    let name = lua.text(2).ok_or("Second argument to luaProtectedTableError must be a string or number")?;
    Err(Raise::Text([b"Script attempted to access nonexistent global variable '", &name[..], b"'"].concat()))
}

fn rawget(lua: &mut Lua) -> Result<i32, Raise> {
    expect_table(lua, 1)?;
    expect_any(lua, 2)?;
    lua.pop(lua.top() - 2);
    see_behind(lua, 1)?;
    lua.raw_get(1);
    Ok(1)
}

fn rawset(lua: &mut Lua) -> Result<i32, Raise> {
    expect_table(lua, 1)?;
    expect_any(lua, 2)?;
    expect_any(lua, 3)?;
    lua.pop(lua.top() - 3);
    refuse_stand_in(lua)?;
    match lua.kind(2) {
        Kind::Nil => return Err("table index is nil".into()),
        Kind::Number if lua.number(2).is_some_and(f64::is_nan) => return Err("table index is NaN".into()),
        _ => {}
    }
    lua.raw_set(1)?;
    Ok(1)
}

fn next(lua: &mut Lua) -> Result<i32, Raise> {
    expect_table(lua, 1)?;
    while lua.top() > 2 {
        lua.pop(1);
    }
    if lua.top() == 1 {
        lua.push_nil()?;
    }
    see_behind(lua, 1)?;
    let is_first = lua.kind(2) == Kind::Nil;
    if !is_first {
        lua.push_copy(2)?;
        lua.raw_get(1);
        let known = lua.kind(-1) != Kind::Nil;
        lua.pop(1);
        if !known {
            return native_next(lua);
        }
    }
    if lua.next(1)? {
        return Ok(2);
    }
    lua.push_nil()?;
    Ok(1)
}

/// A key whose value a loop has removed: Lua's own function knows where it was.
fn native_next(lua: &mut Lua) -> Result<i32, Raise> {
    lua.push_kept(3)?;
    lua.insert(1);
    if lua.call(2, None, None)? { Ok(lua.top()) } else { Err(Raise::Value) }
}

fn pairs(lua: &mut Lua) -> Result<i32, Raise> {
    expect_table(lua, 1)?;
    lua.pop(lua.top() - 1);
    if is_stand_in(lua, 1)? {
        for number in 1..=3 {
            lua.push_kept(number)?;
        }
        lua.push_closure(next, 3)?;
    } else {
        lua.push_kept(3)?;
    }
    lua.push_copy(1)?;
    lua.push_nil()?;
    Ok(3)
}

fn getmetatable(lua: &mut Lua) -> Result<i32, Raise> {
    expect_any(lua, 1)?;
    if lua.kind(1) == Kind::String {
        lua.push_kept(2)?;
        return Ok(1);
    }
    let is_stand_in = is_stand_in(lua, 1)?;
    if !lua.get_metatable(1)? {
        lua.push_nil()?;
        return Ok(1);
    }
    lua.get_field(-1, "__metatable")?;
    if lua.kind(-1) == Kind::Nil && !is_stand_in {
        lua.pop(1);
    }
    Ok(1)
}

fn setmetatable(lua: &mut Lua) -> Result<i32, Raise> {
    expect_table(lua, 1)?;
    if !matches!(lua.kind(2), Kind::Nil | Kind::Table) {
        return Err(Raise::Argument(2, "nil or table expected".into()));
    }
    lua.pop(lua.top() - 2);
    refuse_stand_in(lua)?;
    if lua.get_metatable(1)? {
        lua.get_field(-1, "__metatable")?;
        if lua.kind(-1) != Kind::Nil {
            return Err("cannot change a protected metatable".into());
        }
        lua.pop(2);
    }
    lua.set_metatable(1);
    Ok(1)
}

/// What compiled, or nil and what is wrong with it.
fn loaded(lua: &mut Lua, source: &[u8], name: Option<Vec<u8>>) -> Result<i32, Raise> {
    let name = name.map_or_else(
        || String::from_utf8_lossy(source).into_owned(),
        |name| String::from_utf8_lossy(&name).into_owned(),
    );
    if lua.load(source, &name)? {
        return Ok(1);
    }
    lua.push_nil()?;
    lua.insert(-2);
    Ok(2)
}

fn loadstring(lua: &mut Lua) -> Result<i32, Raise> {
    let source = lua.text(1).ok_or_else(|| wrong_kind(lua, 1, "string"))?;
    let name = lua.text(2);
    loaded(lua, &source, name)
}

/// As Lua's: a function returns the source piece by piece.
fn load(lua: &mut Lua) -> Result<i32, Raise> {
    if lua.kind(1) != Kind::Function {
        return Err(wrong_kind(lua, 1, "function"));
    }
    let name = lua.text(2).unwrap_or_else(|| b"=(load)".to_vec());
    let mut source = Vec::new();
    loop {
        // The function may be one of those that are not Lua's code, and never end.
        lua.long_step()?;
        lua.push_copy(1)?;
        if !lua.call(0, Some(1), None)? {
            // What ends the script is not an error of the function's.
            lua.long_step()?;
            lua.push_nil()?;
            lua.insert(-2);
            return Ok(2);
        }
        match lua.text(-1) {
            Some(piece) if !piece.is_empty() => {
                source.extend_from_slice(&piece);
                lua.check_memory(source.len())?;
            }
            None if lua.kind(-1) != Kind::Nil => {
                lua.push_nil()?;
                lua.push_bytes("reader function must return a string")?;
                return Ok(2);
            }
            _ => break,
        }
        lua.pop(1);
    }
    loaded(lua, &source, Some(name))
}

/// As Lua's, but of an error of a command it returns the text, as before errors became tables.
fn pcall(lua: &mut Lua) -> Result<i32, Raise> {
    expect_any(lua, 1)?;
    // Before the call, since its results may fill the stack.
    lua.push_bool(true)?;
    lua.insert(1);
    if lua.call(lua.top() - 2, None, None)? {
        return Ok(lua.top());
    }
    if lua.kind(-1) == Kind::Table {
        lua.get_field(-1, "err")?;
        match lua.kind(-1) {
            Kind::String | Kind::Number => lua.remove(-2),
            _ => lua.pop(1),
        }
    }
    lua.push_bool(false)?;
    lua.insert(-2);
    Ok(2)
}

/// As Lua's, which pushes the first result when the others may have filled the stack.
fn xpcall(lua: &mut Lua) -> Result<i32, Raise> {
    expect_any(lua, 2)?;
    lua.pop(lua.top() - 2);
    lua.insert(1);
    lua.push_bool(true)?;
    lua.insert(1);
    let handler = 2;
    let is_done = lua.call(0, None, Some(handler))?;
    lua.remove(handler);
    if is_done {
        return Ok(lua.top());
    }
    lua.push_bool(false)?;
    lua.insert(-2);
    Ok(2)
}

fn handle_error(lua: &mut Lua) -> Result<i32, Raise> {
    let place = match lua.place(1) {
        // Of a function that is not a script's, its caller's place says more.
        Some(place) if place.is_native => lua.place(2),
        place => place,
    };
    if lua.kind(1) != Kind::Table {
        let mut text = b"ERR ".to_vec();
        match lua.text(1) {
            Some(error) => text.extend_from_slice(&error),
            None if lua.kind(1) == Kind::Bool => text.extend_from_slice(lua.truth(1).to_string().as_bytes()),
            None => text.extend_from_slice(lua.kind_name(1).as_bytes()),
        }
        lua.push_table(0, 3)?;
        lua.push_bytes(text)?;
        lua.set_field(-2, "err")?;
    } else {
        lua.push_copy(1)?;
    }
    if let Some(place) = place {
        lua.push_bytes(place.source)?;
        lua.set_field(-2, "source")?;
        lua.push_number(place.line.unwrap_or(-1).into())?;
        lua.set_field(-2, "line")?;
    }
    Ok(1)
}

thread_local! {
    /// The state of `math.random`: POSIX's `lrand48`, so that a seed gives the numbers that it gives in Redis.
    static RANDOM: Cell<u64> = Cell::new(RandomState::new().hash_one(0));
}

fn math_random(lua: &mut Lua) -> Result<i32, Raise> {
    const MAX: f64 = i32::MAX as f64;
    let state = RANDOM.get().wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & ((1 << 48) - 1);
    RANDOM.set(state);
    let fraction = (state >> 17) as f64 % MAX / MAX;
    let int = |lua: &Lua, number| {
        lua.number(number).map(f64::trunc).ok_or_else(|| wrong_kind(lua, number, "number"))
    };
    let (low, high, last) = match lua.top() {
        0 => {
            lua.push_number(fraction)?;
            return Ok(1);
        }
        1 => (1.0, int(lua, 1)?, 1),
        2 => (int(lua, 1)?, int(lua, 2)?, 2),
        _ => return Err("wrong number of arguments".into()),
    };
    if low > high {
        return Err(Raise::Argument(last, "interval is empty".into()));
    }
    lua.push_number((fraction * (high - low + 1.0)).floor() + low)?;
    Ok(1)
}

fn math_randomseed(lua: &mut Lua) -> Result<i32, Raise> {
    let seed = lua.number(1).ok_or_else(|| wrong_kind(lua, 1, "number"))?;
    RANDOM.set((seed as i64 as u64 & 0xFFFF_FFFF) << 16 | 0x330E);
    Ok(0)
}
