//! Bitmaps: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP, BITFIELD.

use crate::{command::error::NOT_INTEGER, commands::prelude::*};
use holdfast_resp::parse_int;
use holdfast_store::bitmap::{BitOp, Draft, Field, Overflow};
use std::ops::Range;

const ROW: Command = Command {
    group: "bitmap",
    categories: Categories::BITMAP,
    since: "2.2.0",
    flags: Flags::READONLY,
    keys: &[KeySpec::one(KeyAccess::RO.and(KeyAccess::ACCESS), 1)],
    ..Command::NEW
};
const WRITE: Command = Command {
    flags: Flags::WRITE.and(Flags::DENYOOM),
    keys: &[KeySpec::one(KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE), 1)],
    ..ROW
};

/// The rows.
pub static COMMANDS: &[Row] = &[
    Command {
        name: "bitcount",
        syntax: "key [range(start:i [end-unit-block(end:i [unit@7.0.0<BYTE|BIT>])])]",
        since: "2.6.0",
        summary: "Counts the number of set bits (population counting) in a string.",
        complexity: "O(N)",
        ..ROW
    }
    .by(Keyed(bitcount))
    .using(uses::bytes),
    Command {
        name: "bitfield",
        syntax: "key [operation<GET=get-block(encoding offset:i)|write([OVERFLOW=overflow-block<WRAP|SAT|FAIL>] write-operation<SET=set-block(encoding offset:i value:i)|INCRBY=incrby-block(encoding offset:i increment:i)>)>...]",
        keys: &[KeySpec::one(
            KeyAccess::RW.and(KeyAccess::UPDATE).and(KeyAccess::ACCESS).and(KeyAccess::VARIABLE_FLAGS),
            1,
        )],
        key_access: Some(|args| {
            // Each GET has two arguments.
            let only_reads = args.from(2).iter().step_by(3).all(|arg| arg.eq_ignore_ascii_case(b"get"));
            if only_reads {
                KeyAccess::RO.and(KeyAccess::ACCESS)
            } else {
                KeyAccess::RW.and(KeyAccess::ACCESS).and(KeyAccess::UPDATE)
            }
        }),
        since: "3.2.0",
        summary: "Performs arbitrary bitfield integer operations on strings.",
        complexity: "O(1) for each subcommand specified",
        ..WRITE
    }
    .by(Keyed(bitfield)),
    Command {
        name: "bitfield_ro",
        syntax: "key [GET=get-block(encoding offset:i)+...]",
        flags: Flags::READONLY.and(Flags::FAST),
        since: "6.0.0",
        summary: "Performs arbitrary read-only bitfield integer operations on strings.",
        complexity: "O(1) for each subcommand specified",
        ..ROW
    }
    .by(Keyed(bitfield)),
    Command {
        name: "bitop",
        syntax: "operation<AND|OR|XOR|NOT> destkey:k key:k1...",
        keys: &[
            KeySpec::one(KeyAccess::OW.and(KeyAccess::UPDATE), 2),
            KeySpec::range(KeyAccess::RO.and(KeyAccess::ACCESS), 3, -1, 1),
        ],
        since: "2.6.0",
        summary: "Performs bitwise operations on multiple strings, and stores the result.",
        complexity: "O(N)",
        ..WRITE
    }
    .by(Keyed(bitop))
    .using(uses::bytes),
    Command {
        name: "bitpos",
        syntax: "key bit:i [range(start:i [end-unit-block(end:i [unit@7.0.0<BYTE|BIT>])])]",
        since: "2.8.7",
        summary: "Finds the first set (1) or clear (0) bit in a string.",
        complexity: "O(N)",
        ..ROW
    }
    .by(Keyed(bitpos))
    .using(uses::bytes),
    Command {
        name: "getbit",
        syntax: "key offset:i",
        flags: Flags::READONLY.and(Flags::FAST),
        summary: "Returns a bit value by offset.",
        ..ROW
    }
    .by(Keyed(getbit))
    .using(bit),
    Command {
        name: "setbit",
        syntax: "key offset:i value:i",
        summary: "Sets or clears the bit at offset of the string value. Creates the key if it doesn't exist.",
        ..WRITE
    }
    .by(Keyed(setbit))
    .using(bit),
];

/// The byte with the bit that is named.
fn bit(args: Args) -> Vec<Use> {
    let byte = parse_int(args.at(2)).and_then(|bit| usize::try_from(bit / 8).ok());
    byte.map(|byte| Use::Bytes(byte, byte + 1)).into_iter().collect()
}

const BAD_OFFSET: Stop = Stop::new("ERR bit offset is not an integer or out of range");
const BAD_BIT: Stop = Stop::new("ERR bit is not an integer or out of range");
const NOT_A_BIT: Stop = Stop::new("ERR The bit argument must be 1 or 0.");
const NOT_OF_MANY: Stop = Stop::new("ERR BITOP NOT must be called with a single source key.");
const BAD_TYPE: Stop = Stop::new(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
);
const BAD_OVERFLOW: Stop = Stop::new("ERR Invalid OVERFLOW type specified");
const ONLY_GET: Stop = Stop::new("ERR BITFIELD_RO only supports the GET subcommand");

/// The offset of a bit, of a string that is not too long. `times`: what a number behind `#` is multiplied by.
fn offset(call: &Call, index: usize, times: Option<i64>) -> Result<u64, Stop> {
    let (text, times) = match (call.args.at(index), times) {
        ([b'#', text @ ..], Some(times)) => (text, times),
        (text, _) => (text, 1),
    };
    let max = call.server().string_max();
    let offset = parse_int(text).and_then(|number| number.checked_mul(times));
    let offset = offset.filter(|offset| *offset >= 0 && offset >> 3 < max);
    offset.map(|offset| offset as u64).ok_or(BAD_OFFSET)
}

fn setbit(call: &mut Call, txn: &mut Txn) -> Answer {
    let offset = offset(call, 2, None)?;
    let value = match call.args.at(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err(BAD_BIT),
    };
    let key = call.args.at(1);
    let (old, changed) = txn.bit_set(call.db(), key, offset, value)?;
    if changed {
        call.notify(Class::STRING, "setbit", key);
    }
    call.reply_int(old.into())
}

fn getbit(call: &mut Call, txn: &mut Txn) -> Answer {
    let offset = offset(call, 2, None)?;
    let value = txn.string_at(call.db(), call.args.at(1))?;
    call.reply_int(value.is_some_and(|value| value.bit(offset)).into())
}

/// The arguments `[start [end [BYTE|BIT]]]`; indices below zero count from the end.
#[derive(Clone, Copy)]
struct Part {
    start: i64,
    end: Option<i64>,
    in_bits: bool,
}

impl Part {
    fn parse(call: &Call, at: usize) -> Result<Part, Stop> {
        if call.args.len() > at + 3 {
            return Err(SYNTAX);
        }
        let start = if call.args.len() > at { call.int(at)? } else { 0 };
        let in_bits = match call.args.get(at + 2) {
            Some(_) if call.is(at + 2, "bit") => true,
            Some(_) if !call.is(at + 2, "byte") => return Err(SYNTAX),
            _ => false,
        };
        let end = if call.args.len() > at + 1 { Some(call.int(at + 1)?) } else { None };
        Ok(Part { start, end, in_bits })
    }

    /// The bits that it means of a string of `len` bytes.
    fn bits(self, len: usize) -> Range<u64> {
        let unit = if self.in_bits { 1 } else { 8 };
        let len = len as i64 * 8 / unit;
        let from_start = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
        let start = from_start(self.start);
        let end = from_start(self.end.unwrap_or(-1)).min(len - 1);
        if start > end { 0..0 } else { (start * unit) as u64..((end + 1) * unit) as u64 }
    }
}

fn bitcount(call: &mut Call, txn: &mut Txn) -> Answer {
    let part = Part::parse(call, 2)?;
    let value = txn.string_at(call.db(), call.args.at(1))?;
    let is_backwards = part.start < 0 && part.end.is_some_and(|end| end < 0 && end < part.start);
    let count = value.filter(|_| !is_backwards).map_or(0, |value| value.count_bits(part.bits(value.len())));
    call.reply_int(count as i64)
}

fn bitpos(call: &mut Call, txn: &mut Txn) -> Answer {
    let wanted = match call.args.at(2) {
        b"0" => false,
        b"1" => true,
        text => return Err(if parse_int(text).is_some() { NOT_A_BIT } else { NOT_INTEGER }),
    };
    let part = Part::parse(call, 3)?;
    let Some(value) = txn.string_at(call.db(), call.args.at(1))? else {
        // A string of zeroes without an end.
        call.out.int(if wanted { -1 } else { 0 });
        return Ok(Done);
    };
    let bits = part.bits(value.len());
    let beyond = bits.end;
    let position = match value.find_bit(wanted, bits.clone()) {
        Some(position) => position as i64,
        // Unless it was told where to end, zeroes follow.
        None if !wanted && part.end.is_none() && !bits.is_empty() => beyond as i64,
        None => -1,
    };
    call.reply_int(position)
}

fn bitop(call: &mut Call, txn: &mut Txn) -> Answer {
    const OPS: [(&str, BitOp); 4] =
        [("and", BitOp::And), ("or", BitOp::Or), ("xor", BitOp::Xor), ("not", BitOp::Not)];
    let op = OPS.iter().find(|(name, _)| call.is(1, name)).ok_or(SYNTAX)?.1;
    if op == BitOp::Not && call.args.len() != 4 {
        return Err(NOT_OF_MANY);
    }
    let (db, to) = (call.db(), call.args.at(2));
    let was_there = call.notifies(Class::GENERIC) && txn.exists(db, to);
    let len = txn.bit_combine(db, to, op, call.args.from(3).iter())?;
    call.notify_stored(Class::STRING, "set", to, len > 0, was_there);
    call.reply_int(len as i64)
}

/// A subcommand of BITFIELD.
struct FieldCall {
    field: Field,
    offset: u64,
    action: Action,
}

enum Action {
    Get,
    Set(i64, Overflow),
    Increment(i64, Overflow),
}

impl FieldCall {
    fn parse_all(call: &Call) -> Result<Vec<FieldCall>, Stop> {
        let mut calls = Vec::new();
        let mut overflow = Overflow::Wrap;
        let mut at = 2;
        while at < call.args.len() {
            let left = call.args.len() - at - 1;
            let (is_get, is_set) = (call.is(at, "get") && left >= 2, call.is(at, "set") && left >= 3);
            if call.is(at, "overflow") && left >= 1 {
                const MODES: [(&str, Overflow); 3] =
                    [("wrap", Overflow::Wrap), ("sat", Overflow::Saturate), ("fail", Overflow::Fail)];
                overflow = MODES.iter().find(|(name, _)| call.is(at + 1, name)).ok_or(BAD_OVERFLOW)?.1;
                at += 2;
                continue;
            }
            if !(is_get || is_set || call.is(at, "incrby") && left >= 3) {
                return Err(SYNTAX);
            }
            let field = parse_field(call.args.at(at + 1)).ok_or(BAD_TYPE)?;
            let offset = offset(call, at + 2, Some(field.bits().into()))?;
            let action = if is_get {
                Action::Get
            } else if is_set {
                Action::Set(call.int(at + 3)?, overflow)
            } else {
                Action::Increment(call.int(at + 3)?, overflow)
            };
            calls.push(FieldCall { field, offset, action });
            at += if is_get { 3 } else { 4 };
        }
        Ok(calls)
    }

    fn writes(&self) -> bool {
        !matches!(self.action, Action::Get)
    }

    /// One past the last byte that it touches.
    fn end(&self) -> usize {
        (self.offset + u64::from(self.field.bits())).div_ceil(8) as usize
    }

    /// The new value and the reply; without them the field stays as it is.
    fn change(&self, old: i64) -> Option<(i64, i64)> {
        Some(match self.action {
            Action::Get => (old, old),
            Action::Set(value, overflow) => {
                // A field without a sign takes the number's bits as they are.
                let number = if self.field.is_signed() { value.into() } else { i128::from(value as u64) };
                (self.field.fit(number, overflow)?, old)
            }
            Action::Increment(by, overflow) => {
                let new = self.field.fit(i128::from(old) + i128::from(by), overflow)?;
                (new, new)
            }
        })
    }
}

/// `u8`, `i64`.
fn parse_field(text: &[u8]) -> Option<Field> {
    let (signed, bits) = match text {
        [b'i', bits @ ..] => (true, bits),
        [b'u', bits @ ..] => (false, bits),
        _ => return None,
    };
    Field::new(signed, u32::try_from(parse_int(bits)?).ok()?)
}

/// BITFIELD and BITFIELD_RO.
fn bitfield(call: &mut Call, txn: &mut Txn) -> Answer {
    let calls = FieldCall::parse_all(call)?;
    let written = calls.iter().filter(|call| call.writes()).map(FieldCall::end).max();
    if written.is_some() && call.command.flags.has(Flags::READONLY) {
        return Err(ONLY_GET);
    }
    let (db, key) = (call.db(), call.args.at(1));
    let value = txn.string_at(db, key)?;
    let len = written.unwrap_or(0);
    // As in Redis a write that overflow refuses makes the string longer, too, but is no event.
    let grows = value.map_or(0, |value| value.len()) < len;
    let mut is_changed = false;
    let mut draft = Draft::new(value);
    call.out.array(calls.len());
    for one in &calls {
        let old = draft.get(one.field, one.offset);
        match one.change(old) {
            Some((new, reply)) => {
                if one.writes() {
                    draft.set(one.field, one.offset, new);
                    is_changed |= grows || new != old;
                }
                call.out.int(reply);
            }
            None => call.out.null(),
        }
    }
    let changed = draft.into_changed();
    if grows || is_changed {
        txn.bit_fields_write(db, key, len, &changed)?;
    }
    if is_changed {
        call.notify(Class::STRING, "setbit", key);
    }
    Ok(Done)
}
