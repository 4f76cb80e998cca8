//! INFO's section about replication, named as in Redis.

use super::{STRING, View, lines};
use crate::{
    config::{Opt, address::Address},
    server::{
        replica_set::CONNECTED,
        replication::{Copying, Link, Status},
    },
};
use std::{fmt::Write, time::Duration};

/// The section.
pub(super) fn replication(view: &View, text: &mut String) {
    let config = &view.server.config;
    let status = view.server.replication.status();
    if let Some(status) = &status {
        replica(status, text);
    } else {
        lines!(text, "role": "master");
    }
    let set = view.server.replica_set.as_ref().map(|set| (set, set.view()));
    let hands_over = set.as_ref().is_some_and(|(_, view)| view.hands_over);
    let replicas: Vec<_> = set.iter().flat_map(|(_, view)| view.heard_within(CONNECTED)).collect();
    lines!(text, "connected_slaves": replicas.len());
    let max_lag = config.number(Opt::MinReplicasMaxLag);
    if config.number(Opt::MinReplicasToWrite) > 0 && max_lag > 0 {
        let max_lag = Duration::from_secs(max_lag as u64);
        lines!(text, "min_slaves_good_slaves": replicas.iter().filter(|other| other.silent <= max_lag).count());
    }
    for (number, other) in replicas.iter().enumerate() {
        let Some(Address { host, port, .. }) = set.as_ref().and_then(|(_, view)| view.address(other.id))
        else {
            continue;
        };
        let (end, lag) = (other.end, other.silent.as_secs());
        write!(text, "slave{number}:ip={host},port={port},state=online,offset={end},lag={lag}\r\n")
            .expect(STRING);
    }
    lines!(text,
        "master_failover_state": if hands_over { "failover-in-progress" } else { "no-failover" },
        "master_replid": status.as_ref().map(|it| &it.id).filter(|id| !id.is_empty()).unwrap_or(&view.server.replication_id),
        "master_replid2": "0".repeat(40),
        "master_repl_offset": status.as_ref().map_or_else(|| view.server.store.log().tail(), |it| it.offset),
        "second_repl_offset": -1,
        "repl_backlog_active": 0,
        "repl_backlog_size": config.number(Opt::ReplBacklogSize),
        "repl_backlog_first_byte_offset": 0,
        "repl_backlog_histlen": 0,
    );
}

/// What a replica tells of its primary.
fn replica(status: &Status, text: &mut String) {
    let is_up = status.link == Link::Connected;
    lines!(text,
        "role": "slave",
        "master_host": status.primary.host,
        "master_port": status.primary.port,
        "master_link_status": if is_up { "up" } else { "down" },
        "master_last_io_seconds_ago": if is_up { status.silent.as_secs() as i64 } else { -1 },
        "master_sync_in_progress": u8::from(status.link == Link::Sync),
        "slave_read_repl_offset": status.read_offset,
        "slave_repl_offset": status.offset,
    );
    if status.link == Link::Sync {
        let Copying { total, read } = status.copying.unwrap_or_default();
        let share = total.filter(|total| *total > 0).map_or(0., |total| read as f64 / total as f64 * 100.);
        lines!(text,
            "master_sync_total_bytes": total.map_or(-1, |total| total as i64),
            "master_sync_read_bytes": read,
            "master_sync_left_bytes": total.map_or(-1, |total| total.saturating_sub(read) as i64),
            "master_sync_perc": format!("{share:.2}"),
            "master_sync_last_io_seconds_ago": status.silent.as_secs(),
        );
    }
    if !is_up {
        lines!(text, "master_link_down_since_seconds": status.down.as_secs());
    }
    lines!(text, "slave_priority": 100, "slave_read_only": 1, "replica_announced": 1);
}
