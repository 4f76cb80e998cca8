//! The figures in the text of OpenMetrics 1.0, under names of that field: base units, `_total` for what only grows.

use super::snapshot::Snapshot;
use crate::{
    admin::refusals::CAUSES,
    clients::client::Kind,
    config::Opt,
    figures::{
        clients::ClientFigures,
        commands::{CommandFigures, commands, latency},
        endurance::Endurance,
        health::{Problem, Severity, problems},
        memory::MemoryParts,
        process::{CpuTime, Whose, cpu_time},
        storage::StorageFigures,
        traffic::Traffic,
    },
    server::Server,
    util::version::{REDIS_VERSION, VERSION},
};
use holdfast_io::Counts;
use holdfast_store::WriteCause;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use std::{fmt, sync::Arc};

/// The text of a scrape.
pub fn encode(server: Arc<Server>, snapshot: Arc<Snapshot>) -> String {
    let mut registry = Registry::with_prefix("holdfast");
    registry.register_collector(Box::new(Scrape { server, snapshot }));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("writing to a string cannot fail");
    text
}

struct Scrape {
    server: Arc<Server>,
    snapshot: Arc<Snapshot>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page { encoder };
        self.process(&mut page)?;
        self.health(&mut page)?;
        self.commands(&mut page)?;
        self.clients(&mut page)?;
        self.keys(&mut page)?;
        self.memory(&mut page)?;
        self.log(&mut page)?;
        self.checkpoints(&mut page)?;
        self.medium(&mut page)
    }
}

impl Scrape {
    fn process(&self, page: &mut Page) -> fmt::Result {
        let server = &self.server;
        let build = [("version", VERSION), ("redis_version", REDIS_VERSION)];
        // Not of the type "info", which parsers of the older text format do not know.
        let help = "The version of the server, in labels";
        let mut encoder = page.encoder.encode_descriptor("build_info", help, NONE, MetricType::Gauge)?;
        encoder.encode_family(&build)?.encode_gauge(&1u64)?;
        page.gauge("uptime", "Time since the start", SECONDS, server.started.elapsed().as_secs_f64())?;
        page.gauge("workers", "Threads that serve clients", NONE, server.workers.len())?;
        let CpuTime { system, user } = cpu_time(Whose::Own);
        let cpu = [("system", seconds(system)), ("user", seconds(user))];
        page.counters("cpu", "CPU time used by the process", SECONDS, "mode", cpu)?;
        let age = self.snapshot.taken.elapsed().as_secs_f64();
        page.gauge(
            "figures_age",
            "Age of the figures that need all partitions; it grows while a script holds some",
            SECONDS,
            age,
        )
    }

    fn health(&self, page: &mut Page) -> fmt::Result {
        let problems = problems(&self.server);
        let is_below = |severity| problems.iter().all(|problem: &Problem| problem.severity < severity);
        page.gauge(
            "healthy",
            "1 while the log works, as /health tells",
            NONE,
            u32::from(is_below(Severity::Failed)),
        )?;
        page.gauge(
            "ready",
            "1 while commands are executed, as /ready tells",
            NONE,
            u32::from(is_below(Severity::NotReady)),
        )?;
        let current = self.server.refusals.current(&self.server.store);
        let refusing =
            CAUSES.map(|cause| (cause.name(), u32::from(current.iter().any(|(other, _)| *other == cause))));
        page.gauges("writes_refused", "1 while writes are refused for that cause", NONE, "cause", refusing)?;
        let counts = CAUSES.map(|cause| (cause.name(), self.server.refusals.counted(cause)));
        page.counters("refused_writes", "Commands refused for that cause", NONE, "cause", counts)
    }

    fn commands(&self, page: &mut Page) -> fmt::Result {
        let server = &self.server;
        let all: Vec<CommandFigures> = commands(server).collect();
        let of =
            |count: fn(&CommandFigures) -> u64| all.iter().map(move |command| (command.name, count(command)));
        page.counters("commands", "Commands executed", NONE, "command", of(|command| command.calls))?;
        page.counters(
            "commands_failed",
            "Commands that ended with an error",
            NONE,
            "command",
            of(|command| command.failed),
        )?;
        page.counters(
            "commands_rejected",
            "Commands refused before execution",
            NONE,
            "command",
            of(|command| command.rejected),
        )?;
        if server.config.is_on(Opt::LatencyTracking) {
            let mut encoder = page.encoder.encode_descriptor(
                "command_duration",
                "Time of executions, without waiting for the medium, while latency-tracking is on",
                Some(&Unit::Seconds),
                MetricType::Histogram,
            )?;
            for command in &all {
                let labels = [("command", command.name)];
                let histogram = Buckets::new(&latency(server, command.id), 1e9, COMMAND_POWERS);
                histogram.encode(&mut encoder.encode_family(&labels)?, command.nanos as f64 / 1e9)?;
            }
        }
        let traffic = Traffic::new(server);
        let errors = traffic.errors.iter().map(|(code, count)| (code.as_str(), *count));
        page.counters("error_replies", "Error replies by code", NONE, "code", errors)?;
        page.counters("acl_denied", "What access control has denied", NONE, "reason", traffic.denied)?;
        page.counter(
            "scripts_evicted",
            "Scripts of EVAL that were forgotten",
            NONE,
            traffic.evicted_scripts,
        )?;
        page.gauge("slowlog_entries", "Commands in the slow log", NONE, server.slowlog.len())
    }

    fn clients(&self, page: &mut Page) -> fmt::Result {
        let (server, clients, traffic) =
            (&self.server, ClientFigures::new(&self.server), Traffic::new(&self.server));
        page.gauge("clients_connected", "Connected clients", NONE, clients.connected)?;
        page.gauge(
            "clients_max",
            "Clients that may connect (maxclients)",
            NONE,
            server.config.number(Opt::MaxClients),
        )?;
        page.gauge("clients_blocked", "Clients in a blocking command", NONE, clients.blocked)?;
        page.gauge("clients_tracking", "Clients that track keys", NONE, clients.tracking)?;
        page.gauge(
            "clients_subscribed",
            "Clients that are subscribed to something",
            NONE,
            clients.subscribed,
        )?;
        page.gauge("clients_watching", "Clients that watch keys", NONE, clients.watching)?;
        page.gauge(
            "clients_input_max",
            "Largest input that is not executed",
            BYTES,
            clients.input_bytes_max,
        )?;
        page.gauge("clients_output_max", "Largest output that is not sent", BYTES, clients.output_bytes_max)?;
        page.counter("connections_accepted", "Clients accepted", NONE, traffic.accepted)?;
        page.counter(
            "connections_refused",
            "Clients refused: too many, or in protected mode",
            NONE,
            traffic.refused,
        )?;
        page.counter(
            "clients_evicted",
            "Clients disconnected: all took too much memory",
            NONE,
            traffic.evicted_clients,
        )?;
        page.counter("network_input", "Bytes read from clients", BYTES, traffic.input_bytes)?;
        page.counter("network_output", "Bytes sent to clients", BYTES, traffic.output_bytes)?;
        page.counter("network_reads", "Reads from sockets", NONE, traffic.reads)?;
        page.counter("network_writes", "Writes to sockets", NONE, traffic.writes)?;
        let pubsub = &server.push.pubsub;
        let channels = [
            ("channel", pubsub.channel_count(Kind::Channel)),
            ("pattern", pubsub.pattern_count()),
            ("shard", pubsub.channel_count(Kind::Shard)),
        ];
        page.gauges("pubsub_channels", "Channels and patterns with subscribers", NONE, "kind", channels)
    }

    fn keys(&self, page: &mut Page) -> fmt::Result {
        let (stats, traffic) = (&self.snapshot.stats, Traffic::new(&self.server));
        let databases = &self.snapshot.databases;
        page.gauges("keys", "Keys", NONE, "db", databases.iter().map(|db| (db.number, db.keys)))?;
        page.gauges(
            "keys_expiring",
            "Keys with an expiry",
            NONE,
            "db",
            databases.iter().map(|db| (db.number, db.expires)),
        )?;
        page.counter("keyspace_hits", "Look-ups of keys that were there", NONE, stats.lookup_hits)?;
        page.counter("keyspace_misses", "Look-ups of keys that were not there", NONE, stats.lookup_misses)?;
        page.counter("keys_expired", "Keys removed because they had expired", NONE, stats.expired_keys)?;
        page.counter("keys_evicted", "Keys evicted", NONE, stats.evicted_keys)?;
        page.counter("cache_hits", "Values found in memory", NONE, stats.cache_hits)?;
        page.counter("cache_misses", "Values read from the medium", NONE, stats.cache_misses)?;
        page.counter("scan_fetched_keys", "Keys read from the medium for scans", NONE, stats.fetched_keys)?;
        page.counter(
            "cold_waits_under_lock",
            "Values read from the medium while keys were locked",
            NONE,
            traffic.cold_waits_under_lock,
        )?;
        page.gauge("frozen_keys", "Collections that lie in the log only", NONE, stats.frozen_keys)?;
        page.gauge("frozen", "What frozen collections take of the log", BYTES, stats.frozen_bytes)?;
        page.counter("collection_freezes", "Collections that left the heap", NONE, stats.freezes)?;
        page.counter("collection_thaws", "Frozen collections that came back", NONE, stats.thaws)?;
        page.counter(
            "heap_pages_evicted",
            "Pages of the heap that left memory",
            NONE,
            stats.heap_pages_evicted,
        )?;
        page.counter(
            "heap_pages_fetched",
            "Pages of the heap read before they were used",
            NONE,
            stats.heap_pages_fetched,
        )?;
        page.counter(
            "heap_page_faults",
            "Pages of the heap read while a command ran",
            NONE,
            stats.heap_page_faults,
        )?;
        page.gauge("unlinked_objects", "Keys and collections that are still to be freed", NONE, stats.garbage)
    }

    fn memory(&self, page: &mut Page) -> fmt::Result {
        let (server, stats) = (&self.server, &self.snapshot.stats);
        let parts = MemoryParts::new(server, stats);
        let by_part = [
            ("heap", parts.heap),
            ("cache", parts.cache),
            ("index", parts.index),
            ("log_buffers", parts.log_buffers),
            ("clients", parts.clients),
            ("scripts", parts.scripts),
        ];
        page.gauges("memory", "Memory in use by part", BYTES, "part", by_part)?;
        page.gauge(
            "memory_used",
            "Memory in use, or what counts as that for maxmemory",
            BYTES,
            parts.used(),
        )?;
        page.gauge(
            "memory_max",
            "Memory in use at most: maxmemory, or what stands for it",
            BYTES,
            server.store.memory_of_data().1,
        )?;
        page.gauge("memory_resident", "RAM of the process", BYTES, parts.resident)?;
        page.gauge("memory_resident_peak", "The most RAM that the process had", BYTES, parts.peak)?;
        page.gauge("heap_allocated", "Blocks of the heap in use", BYTES, stats.heap_allocated_bytes)?;
        page.gauge(
            "heap_absent",
            "Pages of the heap that are not in memory",
            BYTES,
            stats.heap_absent_bytes,
        )?;
        page.gauge("cache_items", "Copies of values in memory", NONE, stats.cache_copies)
    }

    fn log(&self, page: &mut Page) -> fmt::Result {
        let (server, stats) = (&self.server, &self.snapshot.stats);
        let storage = StorageFigures::new(server, stats);
        let log = &storage.log;
        page.gauge("log_size", "The log on the medium, garbage included", BYTES, stats.log_bytes)?;
        page.gauge("log_live", "What lives of the log", BYTES, stats.log_live_bytes)?;
        page.gauge("log_pending", "Appended to the log and not yet written", BYTES, log.pending_bytes)?;
        page.gauge("log_segments", "Segment files of the log", NONE, log.segments)?;
        page.gauge(
            "log_segments_free",
            "Segment files that hold nothing, or could still be made",
            NONE,
            log.segments_free,
        )?;
        page.counter("log_appended", "Appended to the log", BYTES, log.bytes_appended)?;
        page.counter("log_written", "Written to the log by commits", BYTES, log.bytes_written)?;
        page.counter("log_cleaned", "Live items that cleaning appended again", BYTES, stats.moved_bytes)?;
        page.counter("log_segments_freed", "Segments that cleaning freed", NONE, stats.freed_segments)?;
        page.counter("log_batches", "Batches committed", NONE, log.batches)?;
        let mut encoder = page.encoder.encode_descriptor(
            "commit_duration",
            "Time of commits, each of which makes a group of batches durable",
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        let commits = Buckets::new(&server.store.log().commit_times(), 1e6, COMMIT_POWERS);
        commits.encode(&mut encoder, log.commit_us_sum as f64 / 1e6)?;
        page.gauge("disk_used", "What the data folder takes", BYTES, storage.disk.bytes)?;
        page.gauge(
            "disk_max",
            "The option maxdisk; 0: what the medium holds",
            BYTES,
            server.config.number(Opt::MaxDisk),
        )?;
        let compression = &stats.compression;
        page.gauge(
            "compression_active",
            "1 while values are compressed",
            NONE,
            u32::from(compression.is_active),
        )?;
        page.counter("compression_input", "Values before compression", BYTES, compression.bytes_before)?;
        page.counter(
            "compression_output",
            "The same values after compression",
            BYTES,
            compression.bytes_after,
        )?;
        page.counter(
            "compression_kept_values",
            "Values stored as they are, since compression saved too little",
            NONE,
            compression.kept_values,
        )?;
        page.gauge(
            "compression_dictionaries",
            "Dictionaries for compression",
            NONE,
            compression.dictionaries,
        )?;
        page.counter(
            "compression_dictionary_failures",
            "Dictionaries that could not be written",
            NONE,
            compression.dictionary_failures,
        )?;
        page.gauge(
            "recovery",
            "Time that the start took to open the data folder",
            SECONDS,
            seconds(storage.recovery.us),
        )?;
        page.gauge("recovery_log", "Log that the start replayed", BYTES, storage.recovery.replayed_bytes)
    }

    fn checkpoints(&self, page: &mut Page) -> fmt::Result {
        let stats = &self.snapshot.stats;
        page.counter("checkpoints", "Checkpoints completed", NONE, stats.checkpoints)?;
        page.counter("checkpoint", "Time of all checkpoints", SECONDS, seconds(stats.checkpoint_us_sum))?;
        page.gauge(
            "checkpoint_last_duration",
            "Time of the last checkpoint",
            SECONDS,
            seconds(stats.checkpoint_us_last),
        )?;
        page.gauge(
            "checkpoint_last_timestamp",
            "When the last checkpoint was complete, or else the data folder was opened, in Unix time",
            SECONDS,
            stats.checkpoint_ms as f64 / 1e3,
        )?;
        page.gauge(
            "checkpoint_in_progress",
            "1 while a checkpoint is taken",
            NONE,
            u32::from(stats.is_checkpointing),
        )?;
        page.gauge(
            "checkpoint_failed",
            "1 if the last checkpoint failed",
            NONE,
            u32::from(stats.checkpoint_failed),
        )?;
        page.counter(
            "checkpoint_pages",
            "Pages that checkpoints wrote, tables included",
            NONE,
            stats.heap_pages_written,
        )?;
        page.gauge(
            "changes_since_checkpoint",
            "Batches that changed keys since the last checkpoint",
            NONE,
            stats.changes,
        )?;
        page.gauge("log_since_checkpoint", "Log that a start would replay", BYTES, stats.replay_bytes)
    }

    fn medium(&self, page: &mut Page) -> fmt::Result {
        let endurance = Endurance::new(&self.server, &self.snapshot.stats);
        let by_cause = WriteCause::ALL.map(|cause| (cause.name(), endurance.now.of(cause)));
        page.counters(
            "media_written",
            "Written to the medium since the start, by why",
            BYTES,
            "cause",
            by_cause,
        )?;
        page.counter(
            "media_input",
            "Keys and values that came with commands since the start",
            BYTES,
            endurance.now.input,
        )?;
        page.gauge(
            "media_written_ever",
            "Written to the medium since the data folder was made",
            BYTES,
            endurance.ever.total(),
        )?;
        let amplification =
            [("start", endurance.now.amplification()), ("ever", endurance.ever.amplification())];
        page.gauges(
            "write_amplification_ratio",
            "Bytes written to the medium for each byte of keys and values, since the start or ever",
            NONE,
            "since",
            amplification,
        )?;
        if let Some(forecast) = endurance.forecast {
            page.gauge(
                "endurance_used_ratio",
                "Share of the medium's rating that is used",
                NONE,
                forecast.used,
            )?;
            if let Some(days) = forecast.days_left {
                page.gauge(
                    "endurance_left",
                    "Until the medium's rating is used up, at the rate so far",
                    SECONDS,
                    days * 86_400.0,
                )?;
            }
        }
        Ok(())
    }
}

const NONE: Option<&Unit> = None;
const SECONDS: Option<&Unit> = Some(&Unit::Seconds);
const BYTES: Option<&Unit> = Some(&Unit::Bytes);

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Where metrics are written to.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Page<'_> {
    fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl EncodeCounterValue,
    ) -> fmt::Result {
        let mut encoder = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counters<L: ToString>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: impl IntoIterator<Item = (L, impl EncodeCounterValue)>,
    ) -> fmt::Result {
        let mut encoder = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (of, value) in values {
            encoder
                .encode_family(&[(label, of.to_string())])?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<L: ToString>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        label: &str,
        values: impl IntoIterator<Item = (L, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        let mut encoder = self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (of, value) in values {
            encoder.encode_family(&[(label, of.to_string())])?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

/// The limits of buckets are the powers of two from one of these to the other, less one, since whole numbers are counted; they
/// part the values exactly. What takes longer than 1,000,000,000 is counted as that, and so lies beyond the last.
struct Powers {
    first: u32,
    last: u32,
}

/// In nanoseconds: 256 ns to 0.54 s.
const COMMAND_POWERS: Powers = Powers { first: 8, last: 29 };
/// In microseconds: 16 us to 16.8 s.
const COMMIT_POWERS: Powers = Powers { first: 4, last: 24 };

/// A histogram as OpenMetrics has it: how many seconds each value of a bucket is at most, and how many there are.
struct Buckets(Vec<(f64, u64)>);

impl Buckets {
    /// Of counts, so many of which are a second.
    fn new(counts: &Counts, per_second: f64, Powers { first, last }: Powers) -> Buckets {
        let powers: Vec<u64> = (first..=last).map(|exponent| 1 << exponent).collect();
        let between = counts.between(&powers);
        let beyond = counts.total() - between.iter().sum::<u64>();
        let limits = powers.iter().map(|power| (power - 1) as f64 / per_second);
        Buckets(limits.zip(between).chain([(f64::INFINITY, beyond)]).collect())
    }

    fn encode(&self, encoder: &mut MetricEncoder, sum: f64) -> fmt::Result {
        let count = self.0.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &self.0, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_io::Histogram;

    #[test]
    fn a_bucket_counts_what_is_not_above_its_limit() {
        let (histogram, mut values) = (Histogram::default(), Vec::new());
        for power in (0..=30).map(|exponent| 1u64 << exponent) {
            values.extend([power - 1, power, power + 1]);
        }
        values.iter().for_each(|value| histogram.add(*value));
        let Buckets(buckets) = Buckets::new(&Counts::of([&histogram]), 1e9, COMMAND_POWERS);
        let mut counted = 0;
        for (limit, count) in &buckets {
            counted += count;
            let up_to = values.iter().filter(|value| **value as f64 / 1e9 <= *limit).count() as u64;
            assert_eq!(counted, up_to, "up to {limit}");
        }
        assert_eq!((counted, buckets.last().map(|last| last.0)), (values.len() as u64, Some(f64::INFINITY)));
    }
}
