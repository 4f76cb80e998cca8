//! AI.MODEL…, AI.SCRIPT…, AI.INFO and AI.CONFIG of RedisAI: models and scripts are stored and returned. No backend is there
//! that would run them.
//!
//! Each is a string: eight bytes that name its kind, the length of its fields in four bytes, the fields, each behind its length in
//! four bytes, all little-endian, and then the model or source itself.

use crate::{
    command::error::WRONG_TYPE,
    commands::{prelude::*, strings::TOO_LONG},
    config::Opt,
};
use holdfast_resp::parse_int;
use holdfast_store::string::StringValue;

const AI: Command = Command { categories: Categories::STRING, since: "7.2.0", ..Command::NEW };
const MODEL: Command = Command { group: "model", ..AI };
const SCRIPT: Command = Command { group: "script", ..AI };

const READ: (Flags, &[KeySpec]) = (Flags::READONLY, &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)]);
const STORE: (Flags, &[KeySpec]) =
    (Flags::WRITE.and(Flags::DENYOOM), &[KeySpec::one(KeyAccess::RW.and(KeyAccess::UPDATE), 1)]);
const REMOVE: (Flags, &[KeySpec]) = (Flags::WRITE, &[KeySpec::one(KeyAccess::RM.and(KeyAccess::DELETE), 1)]);
/// Of what would run a model. It would write tensors, but it does not.
const RUN: (Flags, &[KeySpec]) = READ;

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "ai.config",
        syntax: "operation<GET|MODEL_CHUNK_SIZE|LOADBACKEND> [argument...]",
        group: "model",
        summary: "Returns or sets the size of the parts in which models are returned.",
        ..AI
    }
    .by(Plain(config)),
    Command {
        name: "ai.info",
        syntax: "key [RESETSTAT]",
        flags: READ.0,
        keys: READ.1,
        group: "model",
        summary: "Returns how often a model or script has run, which is never.",
        ..AI
    }
    .by(Keyed(info))
    .using(uses::bytes),
    Command {
        name: "ai.modeldel",
        syntax: "key",
        flags: REMOVE.0,
        keys: REMOVE.1,
        summary: "Deletes a model.",
        ..MODEL
    }
    .by(Keyed(|call, txn| remove(call, txn, Kind::Model)))
    .using(kind_uses),
    Command {
        name: "ai.modelexecute",
        syntax: "key INPUTS=inputs(input-count:i input...) OUTPUTS=outputs(output-count:i output...) [TIMEOUT=timeout:i]",
        flags: RUN.0,
        keys: RUN.1,
        summary: "Says that no backend is there to run the model.",
        ..MODEL
    }
    .by(Keyed(|call, txn| run(call, txn, Kind::Model)))
    .using(uses::bytes),
    Command {
        name: "ai.modelget",
        syntax: "key [META] [BLOB]",
        flags: READ.0,
        keys: READ.1,
        summary: "Returns a model and what was stored with it.",
        complexity: "O(N) where N is the length of the model.",
        ..MODEL
    }
    .by(Keyed(model_get))
    .using(uses::bytes),
    Command {
        name: "ai.modelrun",
        syntax: "key [TIMEOUT=timeout:i] INPUTS=input... OUTPUTS=output...",
        flags: RUN.0,
        keys: RUN.1,
        summary: "Says that no backend is there to run the model.",
        ..MODEL
    }
    .by(Keyed(|call, txn| run(call, txn, Kind::Model)))
    .using(uses::bytes),
    Command {
        name: "ai.modelstore",
        syntax: "key backend<TF|TFLITE|TORCH|ONNX> device [TAG=tag] [BATCHSIZE=batch-size:i] [MINBATCHSIZE=min-batch-size:i] [MINBATCHTIMEOUT=min-batch-timeout:i] [INPUTS=inputs(input-count:i input...)] [OUTPUTS=outputs(output-count:i output...)] BLOB=part...",
        flags: STORE.0,
        keys: STORE.1,
        summary: "Makes a model the value of a key.",
        complexity: "O(N) where N is the length of the model.",
        ..MODEL
    }
    .by(Keyed(model_store))
    .using(kind_uses),
    Command {
        name: "ai.scriptdel",
        syntax: "key",
        flags: REMOVE.0,
        keys: REMOVE.1,
        summary: "Deletes a TorchScript.",
        ..SCRIPT
    }
    .by(Keyed(|call, txn| remove(call, txn, Kind::Script)))
    .using(kind_uses),
    Command {
        name: "ai.scriptexecute",
        syntax: "key function [KEYS=keys(key-count:i name...)] [INPUTS=inputs(input-count:i input...)] [ARGS=args(arg-count:i arg...)] [OUTPUTS=outputs(output-count:i output...)] [TIMEOUT=timeout:i]",
        flags: RUN.0,
        keys: RUN.1,
        summary: "Says that no backend is there to run the script.",
        ..SCRIPT
    }
    .by(Keyed(|call, txn| run(call, txn, Kind::Script)))
    .using(uses::bytes),
    Command {
        name: "ai.scriptget",
        syntax: "key [META] [SOURCE]",
        flags: READ.0,
        keys: READ.1,
        summary: "Returns a TorchScript and what was stored with it.",
        complexity: "O(N) where N is the length of the script.",
        ..SCRIPT
    }
    .by(Keyed(script_get))
    .using(uses::bytes),
    Command {
        name: "ai.scriptrun",
        syntax: "key function [INPUTS=input...] [OUTPUTS=output...]",
        flags: RUN.0,
        keys: RUN.1,
        summary: "Says that no backend is there to run the script.",
        ..SCRIPT
    }
    .by(Keyed(|call, txn| run(call, txn, Kind::Script)))
    .using(uses::bytes),
    Command {
        name: "ai.scriptset",
        syntax: "key device [TAG=tag] SOURCE=source",
        flags: STORE.0,
        keys: STORE.1,
        summary: "Makes a TorchScript the value of a key.",
        complexity: "O(N) where N is the length of the script.",
        ..SCRIPT
    }
    .by(Keyed(script_store))
    .using(kind_uses),
    Command {
        name: "ai.scriptstore",
        syntax: "key device [TAG=tag] ENTRY_POINTS=entry-points(entry-point-count:i entry-point...) SOURCE=source",
        flags: STORE.0,
        keys: STORE.1,
        summary: "Makes a TorchScript with the functions that may be called the value of a key.",
        complexity: "O(N) where N is the length of the script.",
        ..SCRIPT
    }
    .by(Keyed(script_store))
    .using(kind_uses),
];

const NO_MODEL: Stop = Stop::new("ERR model key is empty");
const NO_SCRIPT: Stop = Stop::new("ERR script key is empty");
const NO_INFO: Stop = Stop::new("ERR cannot find run info for key");
const BAD_BACKEND: Stop = Stop::new("ERR unsupported backend");
const BAD_DEVICE: Stop = Stop::new("ERR Invalid DEVICE");
const NO_BLOB: Stop = Stop::new("ERR Insufficient arguments, missing model BLOB");
const NOT_BLOB: Stop = Stop::new("ERR Invalid argument, expected BLOB");
const NO_SOURCE: Stop = Stop::new("ERR Insufficient arguments, missing script SOURCE");
const NO_ENTRY_POINTS: Stop = Stop::new("ERR Insufficient arguments, missing script entry points");
const BAD_ENTRY_POINTS: Stop =
    Stop::new("ERR Non numeric entry points number provided to AI.SCRIPTSTORE command");
const BAD_CHUNK_SIZE: Stop = Stop::new("ERR MODEL_CHUNK_SIZE: invalid chunk size");
const NO_CHUNK_SIZE: Stop = Stop::new("ERR MODEL_CHUNK_SIZE: missing chunk size");
const NOT_LOADED: Stop = Stop::new("ERR error loading backend");
const BAD_SUBCOMMAND: Stop = Stop::new("ERR unsupported subcommand");

const BACKENDS: [&str; 4] = ["TF", "TFLITE", "TORCH", "ONNX"];

/// Bytes of the name of a kind.
const MAGIC: usize = 8;
/// Bytes of a length.
const LEN: usize = 4;
/// Fields of a model before the names of its inputs and outputs.
const MODEL_FIELDS: usize = 7;
/// Fields of a script before its entry points.
const SCRIPT_FIELDS: usize = 2;

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its fields: backend, device, tag, sizes of batches and the time for the least, number of inputs; inputs, outputs.
    Model,
    /// Its fields: device, tag; entry points.
    Script,
}

impl Kind {
    fn magic(self) -> [u8; MAGIC] {
        match self {
            Kind::Model => *b"\0MODEL\0\x01",
            Kind::Script => *b"\0SCRIPT\x01",
        }
    }

    /// The error if a key is not there.
    fn missing(self) -> Stop {
        match self {
            Kind::Model => NO_MODEL,
            Kind::Script => NO_SCRIPT,
        }
    }
}

fn kind_uses(_: Args) -> Vec<Use> {
    vec![Use::Bytes(0, MAGIC)]
}

/// A model or script, to read.
struct Stored<'t> {
    kind: Kind,
    fields: Vec<Vec<u8>>,
    value: StringValue<'t>,
    /// Where the model or source begins.
    start: usize,
}

impl<'t> Stored<'t> {
    /// What the string at a call's key is.
    fn at(call: &Call, txn: &'t mut Txn, kind: Kind) -> Result<Stored<'t>, Stop> {
        let value = txn.string_at(call.db(), call.args.at(1))?.ok_or(kind.missing())?;
        Self::parse(value, kind).ok_or(WRONG_TYPE)
    }

    /// The same of any string. Other commands may have written it.
    fn parse(value: StringValue<'t>, kind: Kind) -> Option<Stored<'t>> {
        if !is_of(value, kind) {
            return None;
        }
        let len_at = |at: usize| {
            let mut len = [0; LEN];
            value.copy_to(at, &mut len);
            u32::from_le_bytes(len) as usize
        };
        let mut at = MAGIC + LEN;
        let start = at + len_at(MAGIC);
        if start > value.len() {
            return None;
        }
        let mut fields = Vec::new();
        while at < start {
            let end = at + LEN + len_at(at);
            if end > start {
                return None;
            }
            fields.push(value.slices(at + LEN..end).collect::<Vec<_>>().concat());
            at = end;
        }
        let stored = Stored { kind, fields, value, start };
        let is_whole = match kind {
            Kind::Model => stored.fields.len() >= MODEL_FIELDS && stored.inputs() <= stored.names().len(),
            Kind::Script => stored.fields.len() >= SCRIPT_FIELDS,
        };
        is_whole.then_some(stored)
    }

    /// A field that is a number.
    fn number(&self, field: usize) -> i64 {
        parse_int(&self.fields[field]).unwrap_or_default()
    }

    /// How many of a model's names are inputs.
    fn inputs(&self) -> usize {
        usize::try_from(self.number(MODEL_FIELDS - 1)).unwrap_or(usize::MAX)
    }

    /// The names of inputs and outputs, or of entry points.
    fn names(&self) -> &[Vec<u8>] {
        match self.kind {
            Kind::Model => &self.fields[MODEL_FIELDS..],
            Kind::Script => &self.fields[SCRIPT_FIELDS..],
        }
    }

    /// Backend, device and tag.
    fn place(&self) -> [&[u8]; 3] {
        match self.kind {
            Kind::Model => [&self.fields[0], &self.fields[1], &self.fields[2]],
            Kind::Script => [b"TORCH", &self.fields[0], &self.fields[1]],
        }
    }

    /// Replies with the model or source.
    fn write(&self, out: &mut Writer) {
        let bytes = self.start..self.value.len();
        out.bulk_of(bytes.len(), self.value.slices(bytes));
    }

    /// Replies with the same in parts, if it is longer than one.
    fn write_parts(&self, call: &mut Call) {
        let end = self.value.len();
        let size = call.server().config.number(Opt::AiModelChunkSize) as usize;
        if end - self.start <= size {
            return self.write(&mut call.out);
        }
        call.out.array((end - self.start).div_ceil(size));
        for part in (self.start..end).step_by(size) {
            let bytes = part..end.min(part.saturating_add(size));
            call.out.bulk_of(bytes.len(), self.value.slices(bytes));
        }
    }
}

/// Whether a string is of a kind, by its beginning.
fn is_of(value: StringValue, kind: Kind) -> bool {
    let mut magic = [0; MAGIC];
    value.copy_to(0, &mut magic);
    magic == kind.magic()
}

/// Makes fields and a model or source, in parts, the value of a call's key, which may have held one of the same kind.
fn store<'a>(
    call: &mut Call,
    txn: &mut Txn,
    kind: Kind,
    fields: &[&[u8]],
    parts: impl Iterator<Item = &'a [u8]> + Clone,
) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    let of_fields: usize = fields.iter().map(|field| LEN + field.len()).sum();
    let len = MAGIC + LEN + of_fields + parts.clone().map(<[u8]>::len).sum::<usize>();
    if len as i64 > call.server().string_max() {
        return Err(TOO_LONG);
    }
    if txn.string_at(db, key)?.is_some_and(|old| !is_of(old, kind)) {
        return Err(WRONG_TYPE);
    }
    let mut value = Vec::with_capacity(len);
    value.extend(kind.magic());
    value.extend((of_fields as u32).to_le_bytes());
    for field in fields {
        value.extend((field.len() as u32).to_le_bytes());
        value.extend_from_slice(field);
    }
    parts.for_each(|part| value.extend_from_slice(part));
    txn.set(db, key, &value, false)?;
    call.notify(Class::STRING, "set", key);
    call.reply_ok()
}

/// The arguments of a call from one on, taken in the order in which they must be.
struct Cursor<'a> {
    rest: Args<'a>,
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let next = self.rest.get(0)?;
        self.rest = self.rest.from(1);
        Some(next)
    }

    /// Takes a word, if it is the next.
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.rest.get(0).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        if is_next {
            self.rest = self.rest.from(1);
        }
        is_next
    }

    /// Takes a number behind a word; 0 without the word.
    fn number(&mut self, word: &str) -> Result<i64, Stop> {
        if !self.takes(word) {
            return Ok(0);
        }
        let number = self.next().and_then(parse_int).filter(|&number| number >= 0);
        number.ok_or_else(|| format!("ERR Invalid argument for {word}").into())
    }

    /// Takes as many arguments as the first one says, with it, which is at least one; `what` they are.
    fn counted(&mut self, what: &str) -> Result<Args<'a>, Stop> {
        let count = self.next().and_then(parse_int).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|&count| count > 0);
        let count = count.ok_or_else(|| Stop::from(format!("ERR Invalid argument for {what}_count")))?;
        if self.rest.len() < count {
            return Err(
                format!("ERR number of model {what}s does not match the number of given arguments").into()
            );
        }
        let taken = self.rest.first(count);
        self.rest = self.rest.from(count);
        Ok(taken)
    }
}

/// Whether an argument is CPU or GPU, which may have a number: `GPU:1`.
fn is_device(text: &[u8]) -> bool {
    let Some((name, number)) = text.split_at_checked(3) else { return false };
    let is_number = match number.strip_prefix(b":") {
        Some(digits) => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        None => number.is_empty(),
    };
    is_number && [&b"CPU"[..], b"GPU"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn model_store(call: &mut Call, txn: &mut Txn) -> Answer {
    let mut rest = Cursor { rest: call.args.from(4) };
    let backend = BACKENDS.into_iter().find(|backend| call.is(2, backend)).ok_or(BAD_BACKEND)?;
    let device = call.args.at(3);
    if !is_device(device) {
        return Err(BAD_DEVICE);
    }
    let tag = if rest.takes("TAG") { rest.next().ok_or(NO_BLOB)? } else { b"" };
    let size = rest.number("BATCHSIZE")?;
    let min_size = rest.number("MINBATCHSIZE")?;
    if size == 0 && min_size > 0 {
        return Err(Stop::new("ERR MINBATCHSIZE specified without BATCHSIZE"));
    }
    let min_time = rest.number("MINBATCHTIMEOUT")?;
    if min_size == 0 && min_time > 0 {
        return Err(Stop::new("ERR MINBATCHTIMEOUT specified without MINBATCHSIZE"));
    }
    if rest.rest.is_empty() {
        return Err(NO_BLOB);
    }
    let (inputs, outputs) = if backend == "TF" {
        let inputs = match rest.takes("INPUTS") {
            true => rest.counted("input")?,
            false => return Err(Stop::new("ERR INPUTS not specified for TF")),
        };
        let outputs = match rest.takes("OUTPUTS") {
            true => rest.counted("output")?,
            false => return Err(Stop::new("ERR OUTPUTS not specified for TF")),
        };
        (inputs, outputs)
    } else if rest.takes("INPUTS") {
        return Err(Stop::new("ERR INPUTS argument should not be specified for this backend"));
    } else {
        (call.args.first(0), call.args.first(0))
    };
    if !rest.takes("BLOB") {
        return Err(NOT_BLOB);
    }
    if rest.rest.is_empty() {
        return Err(NO_BLOB);
    }
    let numbers = [size, min_size, min_time, inputs.len() as i64].map(|number| number.to_string());
    let mut fields = vec![backend.as_bytes(), device, tag];
    fields.extend(numbers.iter().map(String::as_bytes));
    fields.extend(inputs.iter().chain(outputs.iter()));
    store(call, txn, Kind::Model, &fields, rest.rest.iter())
}

fn script_store(call: &mut Call, txn: &mut Txn) -> Answer {
    let mut rest = Cursor { rest: call.args.from(3) };
    let device = call.args.at(2);
    if !is_device(device) {
        return Err(BAD_DEVICE);
    }
    let tag = if rest.takes("TAG") { rest.next().ok_or(NO_SOURCE)? } else { b"" };
    let mut fields = vec![device, tag];
    if call.command.name == "ai.scriptstore" {
        if !rest.takes("ENTRY_POINTS") {
            return Err(NO_ENTRY_POINTS);
        }
        let count = rest.next().and_then(parse_int).ok_or(BAD_ENTRY_POINTS)?;
        let count = usize::try_from(count).ok().filter(|&count| count <= rest.rest.len());
        for _ in 0..count.ok_or(NO_ENTRY_POINTS)? {
            fields.extend(rest.next());
        }
    }
    if !rest.takes("SOURCE") {
        return Err(NO_SOURCE);
    }
    match rest.rest.len() {
        0 => Err(NO_SOURCE),
        1 => store(call, txn, Kind::Script, &fields, rest.rest.iter()),
        _ => Err(wrong_arity(call.command)),
    }
}

/// Which of two words a call has behind its key, of which there may be none: then it has both.
fn wanted(call: &Call, word: &str) -> Result<(bool, bool), Stop> {
    if call.args.len() > 4 {
        return Err(wrong_arity(call.command));
    }
    let has = |word| (2..call.args.len()).any(|at| call.is(at, word));
    let (meta, content) = (has("meta"), has(word));
    Ok(if meta || content { (meta, content) } else { (true, true) })
}

fn write_names(names: &[Vec<u8>], out: &mut Writer) {
    out.array(names.len());
    names.iter().for_each(|name| out.bulk(name));
}

fn model_get(call: &mut Call, txn: &mut Txn) -> Answer {
    let (meta, blob) = wanted(call, "blob")?;
    let model = Stored::at(call, txn, Kind::Model)?;
    if !meta {
        model.write_parts(call);
        return Ok(Done);
    }
    let out = &mut call.out;
    out.array(if blob { 18 } else { 16 });
    for (name, text) in ["backend", "device", "tag"].into_iter().zip(model.place()) {
        out.key(name).bulk(text);
    }
    out.key("batchsize").int(model.number(3));
    out.key("minbatchsize").int(model.number(4));
    let (inputs, outputs) = model.names().split_at(model.inputs());
    write_names(inputs, out.key("inputs"));
    write_names(outputs, out.key("outputs"));
    out.key("minbatchtimeout").int(model.number(5));
    if blob {
        out.bulk("blob");
        model.write_parts(call);
    }
    Ok(Done)
}

fn script_get(call: &mut Call, txn: &mut Txn) -> Answer {
    let (meta, source) = wanted(call, "source")?;
    let script = Stored::at(call, txn, Kind::Script)?;
    let out = &mut call.out;
    if !meta {
        script.write(out);
        return Ok(Done);
    }
    out.array(if source { 8 } else { 6 });
    let [_, device, tag] = script.place();
    out.key("device").bulk(device);
    out.key("tag").bulk(tag);
    write_names(script.names(), out.key("Entry Points"));
    if source {
        script.write(out.key("source"));
    }
    Ok(Done)
}

fn remove(call: &mut Call, txn: &mut Txn, kind: Kind) -> Answer {
    let (db, key) = (call.db(), call.args.at(1));
    if !is_of(txn.string_at(db, key)?.ok_or(kind.missing())?, kind) {
        return Err(WRONG_TYPE);
    }
    txn.remove(db, key);
    call.notify(Class::GENERIC, "del", key);
    call.reply_ok()
}

fn run(call: &mut Call, txn: &mut Txn, kind: Kind) -> Answer {
    let stored = Stored::at(call, txn, kind)?;
    let [backend, ..] = stored.place();
    let why = b": this server stores models and scripts, and runs none";
    Err([b"ERR Could not load backend ", backend, why].concat().into())
}

fn info(call: &mut Call, txn: &mut Txn) -> Answer {
    if call.args.len() > 3 {
        return Err(wrong_arity(call.command));
    }
    let value = txn.string_at(call.db(), call.args.at(1))?.ok_or(NO_INFO)?;
    let stored = [Kind::Model, Kind::Script].into_iter().find_map(|kind| Stored::parse(value, kind));
    let stored = stored.ok_or(NO_INFO)?;
    if call.is(2, "resetstat") {
        return call.reply_ok();
    }
    let is_model = stored.kind == Kind::Model;
    let key = call.args.at(1);
    let out = &mut call.out;
    out.array(18);
    out.key("key").bulk(key);
    out.key("type").bulk(if is_model { "MODEL" } else { "SCRIPT" });
    for (name, text) in ["backend", "device", "tag"].into_iter().zip(stored.place()) {
        out.key(name).bulk(text);
    }
    for (name, number) in
        [("duration", 0), ("samples", if is_model { 0 } else { -1 }), ("calls", 0), ("errors", 0)]
    {
        out.key(name).int(number);
    }
    Ok(Done)
}

fn config(call: &mut Call) -> Answer {
    if call.is(1, "model_chunk_size") {
        let size = call.args.get(2).ok_or(NO_CHUNK_SIZE)?;
        let size = std::str::from_utf8(size).map_err(|_| BAD_CHUNK_SIZE)?;
        call.server().config.set(Opt::AiModelChunkSize, &[size]).map_err(|_| BAD_CHUNK_SIZE)?;
        return call.reply_ok();
    }
    if call.is(1, "loadbackend") {
        return Err(if call.args.len() < 4 { wrong_arity(call.command) } else { NOT_LOADED });
    }
    if !call.is(1, "get") {
        return Err(BAD_SUBCOMMAND);
    }
    let name = call.args.get(2).ok_or_else(|| wrong_arity(call.command))?;
    if name.eq_ignore_ascii_case(b"model_chunk_size") {
        return call.reply_int(call.server().config.number(Opt::AiModelChunkSize));
    }
    call.out.null();
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_of_redisai() {
        for device in ["CPU", "gpu", "GPU:0", "cpu:12345", "GPU:"] {
            assert!(is_device(device.as_bytes()), "{device}");
        }
        for device in ["", "TPU", "CPU1", "GPU:x", "GPU:123456", "CP", "CPU 1"] {
            assert!(!is_device(device.as_bytes()), "{device}");
        }
    }

    #[test]
    fn what_is_no_model_is_not_taken_for_one() {
        let fields: [&[u8]; 8] = [b"TF", b"CPU", b"", b"0", b"0", b"0", b"1", b"in"];
        let text = |inputs: &[u8], fields: &[&[u8]]| {
            let mut of_fields = Vec::new();
            for (nth, field) in fields.iter().enumerate() {
                let field = if nth == MODEL_FIELDS - 1 { inputs } else { field };
                of_fields.extend((field.len() as u32).to_le_bytes());
                of_fields.extend_from_slice(field);
            }
            [&Kind::Model.magic()[..], &(of_fields.len() as u32).to_le_bytes(), &of_fields].concat()
        };
        let parse = |bytes: &[u8]| {
            Stored::parse(StringValue::Whole(bytes), Kind::Model).map(|model| model.names().len())
        };
        let model = text(b"1", &fields);
        assert_eq!(parse(&model), Some(1));
        for len in 0..model.len() {
            assert_eq!(parse(&model[..len]), None, "the first {len} bytes");
        }
        assert_eq!(parse(&text(b"2", &fields)), None, "more inputs than names");
        assert_eq!(parse(&text(b"-1", &fields)), None, "fewer inputs than none");
        assert_eq!(parse(&text(b"0", &fields[..6])), None, "a field is missing");
        let mut longer = model.clone();
        longer[MAGIC..MAGIC + LEN].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse(&longer), None);
        assert!(Stored::parse(StringValue::Whole(&model), Kind::Script).is_none());
    }
}
