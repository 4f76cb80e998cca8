//! LOLWUT: a small picture, and the version.

use crate::{
    commands::prelude::*,
    util::{
        random::random,
        version::{REDIS_VERSION, VERSION},
    },
};

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "lolwut",
    syntax: "[VERSION=version:i]",
    group: "server",
    since: "5.0.0",
    flags: Flags::READONLY.and(Flags::FAST),
    summary: "Displays computer art and the Redis version.",
    ..Command::NEW
}
.by(Plain(lolwut))];

/// Strata of a cliff, from the surface down; each is drawn with its own texture.
const STRATA: [&str; 6] = [",.'`  ,. ", "~-~--~~-", "=_==__=_", "oO.o.O..", "/\\//\\/\\\\", "########"];
const COLUMNS_MAX: i64 = 160;
const ROWS_MAX: i64 = 48;

/// `LOLWUT [VERSION n] [columns] [rows]`; there is one picture, whatever the version.
fn lolwut(call: &mut Call) -> Answer {
    let mut first = 1;
    if call.args.len() >= 3 && call.is(1, "version") {
        call.int(2)?;
        first = 3;
    }
    let mut size = [60, 12];
    for (nth, size) in size.iter_mut().enumerate().filter(|(nth, _)| call.args.len() > first + nth) {
        *size = call.int(first + nth)?;
    }
    let columns = size[0].clamp(1, COLUMNS_MAX) as usize;
    let rows = size[1].clamp(1, ROWS_MAX) as usize;
    let mut text = cliff(columns, rows);
    text.push_str(&format!("\nRedis ver. {REDIS_VERSION}, Holdfast ver. {VERSION}\n"));
    call.out.verbatim("txt", &text);
    Ok(Done)
}

/// A cliff whose edge and strata are different each time, and which the sea does not move.
fn cliff(columns: usize, rows: usize) -> String {
    let mut text = String::new();
    let mut edge = columns / 2;
    let slant = random() as usize % STRATA.len();
    for row in 0..rows {
        edge = (edge + random() as usize % 3).clamp(1, columns + 1) - 1;
        for column in 0..columns {
            let letter = if column <= edge {
                let texture =
                    STRATA[(row * STRATA.len() / rows + (column + slant) / columns.max(8)) % STRATA.len()];
                texture.as_bytes()[(column * 5 + row * 3 + random() as usize % 2) % texture.len()]
            } else if row + 2 >= rows {
                b"~^~-"[(column + random() as usize) % 4]
            } else {
                b' '
            };
            text.push(char::from(letter));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_size_is_drawn() {
        for (columns, rows) in [(1, 1), (3, 2), (60, 12), (160, 48)] {
            let text = super::cliff(columns, rows);
            assert_eq!(text.lines().count(), rows);
            assert!(text.lines().all(|line| line.len() == columns));
        }
    }
}
