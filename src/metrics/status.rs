//! What the page shows beside metrics: what is wrong, and slow commands.

use crate::{admin::slowlog::Entry, figures::health::problems, server::Server, util::version::VERSION};
use serde_json::{Value, json};

/// Slow commands that are shown.
const SLOW_MAX: usize = 20;

/// The status as JSON. The port asks for no password, so commands are shown without their arguments and clients.
pub fn status(server: &Server) -> String {
    let slow = |entry: Entry| {
        let id = entry.args.first().and_then(|name| server.table.find(name));
        let name = id.map_or("?", |id| server.table.command(id).name);
        json!({"command": name, "microseconds": entry.duration.as_micros() as u64, "time": entry.time_s})
    };
    let problems = problems(server).into_iter().map(|problem| {
        json!({
            "severity": problem.severity.name(),
            "effect": problem.effect,
            "cause": problem.cause,
            "advice": problem.advice,
        })
    });
    json!({
        "version": VERSION,
        "problems": problems.collect::<Value>(),
        "slow": server.slowlog.newest(SLOW_MAX).into_iter().map(slow).collect::<Value>(),
    })
    .to_string()
}
