//! INFO.

mod endurance;
mod health;
mod replication;
mod store;

use crate::{
    admin::refusals::CAUSES,
    clients::client::Kind,
    commands::prelude::*,
    config::Opt,
    exec::keyspace::Keyspace,
    figures::{
        self,
        clients::ClientFigures,
        commands::{CommandFigures, commands, latency},
        process::{CpuTime, Whose, cpu_time},
        traffic::Traffic,
    },
    server::Server,
    util::version::{REDIS_VERSION, VERSION},
};
use holdfast_store::Stats;
use std::sync::atomic::Ordering::Relaxed;
use std::{
    cell::Cell,
    env,
    fmt::Write,
    fs, process,
    time::{SystemTime, UNIX_EPOCH},
};

pub use store::human;

/// The rows.
pub static COMMANDS: &[Row] = &[Command {
    name: "info",
    syntax: "[section...]",
    group: "server",
    flags: Flags::LOADING.and(Flags::STALE),
    categories: Categories::DANGEROUS,
    summary: "Returns information and statistics about the server.",
    ..Command::NEW
}
.by(Browsing(info))];

/// What sections tell of.
struct View<'a, 'k, 't> {
    server: &'a Server,
    keyspace: &'a Keyspace<'k, 't>,
    stats: Stats,
    /// Something could not be looked at.
    held_up: Cell<bool>,
}

impl View<'_, '_, '_> {
    /// The store's figures, which several sections share.
    fn stats(&self) -> &Stats {
        &self.stats
    }
}

/// Writes the lines of a section.
type Section = fn(&View, &mut String);

/// Sections by name and title; those that are not shown unless asked for are marked.
const SECTIONS: &[(&str, &str, bool, Section)] = &[
    ("server", "Server", true, server),
    ("clients", "Clients", true, clients),
    ("memory", "Memory", true, store::memory),
    ("persistence", "Persistence", true, store::persistence),
    ("endurance", "Endurance", true, endurance::endurance),
    ("stats", "Stats", true, stats),
    ("replication", "Replication", true, replication::replication),
    ("cpu", "CPU", true, cpu),
    ("modules", "Modules", true, |_, _| {}),
    ("commandstats", "Commandstats", false, commandstats),
    ("latencystats", "Latencystats", false, latencystats),
    ("errorstats", "Errorstats", true, errorstats),
    ("health", "Health", false, health::health),
    ("cluster", "Cluster", true, cluster),
    ("keyspace", "Keyspace", true, store::keyspace),
];

fn info(call: &mut Call, keyspace: &mut Keyspace) -> Answer {
    let asked = call.args.from(1);
    let named = |name: &str| asked.iter().any(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    let everything = named("all") || named("everything");
    let default = asked.is_empty() || named("default");
    let stats = figures::stats(call.server(), keyspace)?;
    let view = View { server: call.server(), keyspace, stats, held_up: Cell::new(false) };
    let mut text = String::new();
    for (name, title, by_default, section) in SECTIONS {
        if everything || (default && *by_default) || named(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            write!(text, "# {title}\r\n").expect(STRING);
            section(&view, &mut text);
        }
    }
    if view.held_up.get() {
        return Err(Stop::LockBusy);
    }
    call.out.verbatim("txt", &text);
    Ok(Done)
}

const STRING: &str = "writing to a string cannot fail";

macro_rules! lines {
    ($text:expr, $($name:literal: $value:expr),* $(,)?) => {
        $(write!($text, concat!($name, ":{}\r\n"), $value).expect(STRING);)*
    };
}
use lines;

fn server(view: &View, text: &mut String) {
    let server = view.server;
    let uptime = server.started.elapsed();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let executable = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let file = server.config.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let (tcp, tls) = (server.config.number(Opt::Port), server.config.number(Opt::TlsPort));
    let port = if tcp == 0 { tls } else { tcp };
    lines!(text,
        "redis_version": REDIS_VERSION,
        "holdfast_version": VERSION,
        // As in a build from a release's archive.
        "redis_git_sha1": "00000000",
        "redis_git_dirty": 0,
        "redis_build_id": format!("{REDIS_VERSION}-holdfast-{VERSION}"),
        "redis_mode": server.cluster.mode(),
        "os": operating_system(),
        "arch_bits": usize::BITS,
        "monotonic_clock": "POSIX clock_gettime",
        "multiplexing_api": "epoll",
        "process_id": process::id(),
        "process_supervised": if env::var_os("NOTIFY_SOCKET").is_some() { "systemd" } else { "no" },
        "run_id": server.run_id,
        "tcp_port": port,
        "server_time_usec": now.as_micros(),
        "uptime_in_seconds": uptime.as_secs(),
        "uptime_in_days": uptime.as_secs() / 86_400,
        "hz": server.config.number(Opt::Hz),
        "configured_hz": server.config.number(Opt::Hz),
        "lru_clock": now.as_secs() & 0xFF_FFFF,
        "workers": server.workers.len(),
        "executable": executable,
        "config_file": file,
    );
    let bind: String =
        server.config.text(Opt::Bind).split_whitespace().map(|address| format!("bind={address},")).collect();
    let socket = server.config.text(Opt::UnixSocket);
    let on_ports = [("tcp", tcp), ("tls", tls)].into_iter().filter(|(_, port)| *port > 0);
    let mut listeners: Vec<String> =
        on_ports.map(|(name, port)| format!("name={name},{bind}port={port}")).collect();
    if !socket.is_empty() {
        listeners.push(format!("name=unix,bind={socket}"));
    }
    for (nth, listener) in listeners.iter().enumerate() {
        write!(text, "listener{nth}:{listener}\r\n").expect(STRING);
    }
}

fn clients(view: &View, text: &mut String) {
    let clients = ClientFigures::new(view.server);
    lines!(text,
        "connected_clients": clients.connected,
        "cluster_connections": 0,
        "maxclients": view.server.config.number(Opt::MaxClients),
        "client_recent_max_input_buffer": clients.input_bytes_max,
        "client_recent_max_output_buffer": clients.output_bytes_max,
        "blocked_clients": clients.blocked,
        "tracking_clients": clients.tracking,
        "pubsub_clients": clients.subscribed,
        "watching_clients": clients.watching,
        "total_watched_keys": clients.watched_keys,
        "total_blocking_keys": clients.awaited_keys,
        "total_blocking_keys_on_nokey": clients.awaited_keys_until_gone,
    );
}

fn stats(view: &View, text: &mut String) {
    let server = view.server;
    let [commands, input, output] = server.rates.per_second();
    let traffic = Traffic::new(server);
    lines!(text,
        "total_connections_received": traffic.accepted,
        "total_commands_processed": traffic.commands,
        "instantaneous_ops_per_sec": commands,
        "total_net_input_bytes": traffic.input_bytes,
        "total_net_output_bytes": traffic.output_bytes,
        "total_net_repl_input_bytes": 0,
        "total_net_repl_output_bytes": 0,
        "instantaneous_input_kbps": format!("{:.2}", input as f64 / 1024.0),
        "instantaneous_output_kbps": format!("{:.2}", output as f64 / 1024.0),
        "instantaneous_input_repl_kbps": "0.00",
        "instantaneous_output_repl_kbps": "0.00",
        "sync_full": server.full_syncs.load(Relaxed),
        "sync_partial_ok": 0,
        "sync_partial_err": server.partial_syncs_refused.load(Relaxed),
        "latest_fork_usec": 0,
        "total_forks": 0,
        "rejected_connections": traffic.refused,
        "evicted_clients": traffic.evicted_clients,
        "total_error_replies": traffic.error_replies(),
        "total_reads_processed": traffic.reads,
        "total_writes_processed": traffic.writes,
    );
    for cause in CAUSES {
        let count = server.refusals.counted(cause);
        write!(text, "refused_writes_{}:{count}\r\n", cause.name()).expect(STRING);
    }
    for (what, count) in traffic.denied {
        write!(text, "acl_access_denied_{what}:{count}\r\n").expect(STRING);
    }
    store::lookups(view, &traffic, text);
    let (pubsub, tracking) = (&server.push.pubsub, &server.push.tracking);
    lines!(text,
        "pubsub_channels": pubsub.channel_count(Kind::Channel),
        "pubsub_patterns": pubsub.pattern_count(),
        "pubsubshard_channels": pubsub.channel_count(Kind::Shard),
        "tracking_total_keys": tracking.keys(),
        "tracking_total_items": tracking.items(),
        "tracking_total_prefixes": tracking.prefixes(),
    );
}

fn cpu(_: &View, text: &mut String) {
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    for (whose, suffix) in [(Whose::Own, ""), (Whose::Children, "_children")] {
        let CpuTime { system, user } = cpu_time(whose);
        for (kind, us) in [("sys", system), ("user", user)] {
            write!(text, "used_cpu_{kind}{suffix}:{}\r\n", seconds(us)).expect(STRING);
        }
    }
}

/// Name, version and machine, as `uname` tells them.
fn operating_system() -> String {
    let of = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    format!("{} {} {}", of("ostype"), of("osrelease"), std::env::consts::ARCH)
}

fn commandstats(view: &View, text: &mut String) {
    for CommandFigures { name, calls, nanos, rejected, failed, .. } in commands(view.server) {
        let per_call = if calls > 0 { nanos as f64 / 1000.0 / calls as f64 } else { 0.0 };
        write!(
            text,
            "cmdstat_{name}:calls={calls},usec={},usec_per_call={per_call:.2},rejected_calls={rejected},failed_calls={failed}\r\n",
            nanos / 1000
        )
        .expect(STRING);
    }
}

fn latencystats(view: &View, text: &mut String) {
    let server = view.server;
    if !server.config.is_on(Opt::LatencyTracking) {
        return;
    }
    let percentiles = server.config.text(Opt::LatencyTrackingInfoPercentiles);
    for CommandFigures { id, name, .. } in commands(server) {
        let calls = latency(server, id);
        if calls.total() > 0 {
            let shares = percentiles.split_whitespace().map(|percent| {
                let ns = calls.percentile(percent.parse().expect("checked when it was set"));
                format!("p{percent}={:.3}", ns as f64 / 1000.0)
            });
            let shares: Vec<String> = shares.collect();
            write!(text, "latency_percentiles_usec_{name}:{}\r\n", shares.join(",")).expect(STRING);
        }
    }
}

fn errorstats(view: &View, text: &mut String) {
    for (code, count) in Traffic::new(view.server).errors {
        write!(text, "errorstat_{code}:count={count}\r\n").expect(STRING);
    }
}

fn cluster(view: &View, text: &mut String) {
    lines!(text, "cluster_enabled": u8::from(view.server.cluster.is_on()));
}
