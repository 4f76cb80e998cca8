//! The option table: every option of the configuration file, the command line and CONFIG, in one place.

use super::{
    events,
    kind::{self, Kind},
};

/// What an option is, and what may be done with it.
pub struct Spec {
    /// As written in the file, in lower case.
    pub name: &'static str,
    /// An older name that works as well.
    pub alias: Option<&'static str>,
    /// Which values it takes.
    pub kind: Kind,
    /// Its value when nothing is said, as it would be written.
    pub default: &'static str,
    /// When it can be set.
    pub change: Change,
    /// One line of documentation.
    pub doc: &'static str,
}

/// When an option can be set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// At any time.
    Live,
    /// At start only.
    AtStart,
    /// At any time, but it has no effect: it is accepted so that files and clients made for Redis work unchanged.
    NoEffect,
    /// The same, but at start only.
    NoEffectAtStart,
}

impl Change {
    /// Whether it can be set at start only.
    pub fn is_at_start(self) -> bool {
        matches!(self, Change::AtStart | Change::NoEffectAtStart)
    }

    /// Whether it makes a difference.
    pub fn has_effect(self) -> bool {
        !matches!(self, Change::NoEffect | Change::NoEffectAtStart)
    }
}

/// Builds [`Opt`] and [`SPECS`] from one list, so that an option's number is its place in the table.
macro_rules! options {
    ($($id:ident $name:literal $(or $alias:literal)?, $kind:expr, $default:literal, $change:ident, $doc:literal;)*) => {
        /// An option, by its place in [`SPECS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Opt { $(#[doc = $doc] $id),* }

        /// All options.
        pub static SPECS: &[Spec] = &[$(Spec {
            name: $name,
            alias: options!(@optional $($alias)?),
            kind: $kind,
            default: $default,
            change: Change::$change,
            doc: $doc,
        }),*];

        impl Opt {
            /// All options in the order of the table.
            pub const ALL: &[Opt] = &[$(Opt::$id),*];
        }
    };
    (@optional) => { None };
    (@optional $value:expr) => { Some($value) };
}

/// From user on as Redis has them.
pub const SYSLOG_FACILITIES: [&str; 9] =
    ["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];

const YES_NO: Kind = Kind::Bool;
const COUNT: Kind = Kind::Int { min: 0, max: i64::MAX };
const LFU: Kind = Kind::Int { min: 0, max: i32::MAX as i64 };
const BYTES: Kind = Kind::Memory { min: 0, max: i64::MAX };

options! {
    // Network.
    Bind "bind", Kind::Words, "* -::*", Live, "Addresses to listen on; one that starts with '-' may be missing";
    Port "port", Kind::Int { min: 0, max: 65535 }, "6379", Live, "TCP port to listen on; 0: none";
    UnixSocket "unixsocket", Kind::Text, "", AtStart, "Path of a Unix socket to listen on";
    UnixSocketPerm "unixsocketperm", Kind::Octal { max: 0o777 }, "0", AtStart, "Permissions of the Unix socket; 0: by the umask";
    TcpBacklog "tcp-backlog", Kind::Int { min: 0, max: i32::MAX as i64 }, "511", AtStart, "Connections that may wait to be accepted";
    TcpKeepalive "tcp-keepalive", Kind::Int { min: 0, max: i32::MAX as i64 }, "300", Live, "Seconds until TCP probes a silent client; 0: never";
    MetricsPort "metrics-port", Kind::Int { min: 0, max: 65535 }, "0", AtStart, "TCP port for HTTP: a live page (/), metrics in OpenMetrics (/metrics), /health, /ready and /leader; it asks for no password; 0: none";
    MetricsBind "metrics-bind", Kind::Words, "127.0.0.1 -::1", AtStart, "Addresses that the metrics-port listens on; one that starts with '-' may be missing";
    Timeout "timeout", Kind::Int { min: 0, max: i32::MAX as i64 }, "0", Live, "Seconds until an idle client is disconnected; 0: never";
    MaxClients "maxclients", Kind::Int { min: 1, max: u32::MAX as i64 }, "10000", Live, "Connections at the same time";
    ProtectedMode "protected-mode", YES_NO, "yes", Live, "Refuse clients of other machines while there is no password";
    RequirePass "requirepass", Kind::Secret, "", Live, "Password of the default user; empty: none";
    AclFile "aclfile", Kind::Text, "", AtStart, "File of the users; empty: they are in the configuration file";
    AclLogMaxLen "acllog-max-len", COUNT, "128", Live, "Refusals that ACL LOG remembers";
    AclPubsubDefault "acl-pubsub-default", Kind::Choice(&["allchannels", "resetchannels"]), "resetchannels", Live, "Channels that new users may use";
    ProtoMaxBulkLen "proto-max-bulk-len", Kind::Memory { min: 1 << 20, max: i64::MAX }, "512mb", Live, "Longest argument of a command";
    AiModelChunkSize "ai-model-chunk-size", Kind::Memory { min: 1024, max: i64::MAX }, "511mb", Live, "Bytes of a model from which on AI.MODELGET returns it in parts, and of each part";
    ClientQueryBufferLimit "client-query-buffer-limit", Kind::Memory { min: 1 << 20, max: i64::MAX }, "1gb", Live, "Bytes of input that a client may have waiting";
    ClientOutputBufferLimit "client-output-buffer-limit", Kind::Custom(kind::output_buffer_limits), "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Live, "Per class: bytes of output at which a client is disconnected, and at which it is after so many seconds";
    MaxMemoryClients "maxmemory-clients", Kind::Custom(kind::bytes_or_percent), "0", Live, "Bytes of memory that all clients' buffers may take, or a percentage of maxmemory; beyond, the largest are disconnected; 0: no limit";

    // TLS.
    TlsPort "tls-port", Kind::Int { min: 0, max: 65535 }, "0", Live, "TCP port for TLS; 0: none";
    TlsCertFile "tls-cert-file", Kind::Text, "", Live, "File of the server's certificates, in PEM";
    TlsKeyFile "tls-key-file", Kind::Text, "", Live, "File of the server's key, in PEM";
    TlsKeyFilePass "tls-key-file-pass", Kind::Secret, "", Live, "The passphrase of that key, if it is encrypted";
    TlsCaCertFile "tls-ca-cert-file", Kind::Text, "", Live, "File of those who sign certificates of clients, in PEM";
    TlsCaCertDir "tls-ca-cert-dir", Kind::Text, "", Live, "Folder of such files";
    TlsAuthClients "tls-auth-clients", Kind::Choice(&["no", "yes", "optional"]), "yes", Live, "Whether clients must have certificates";
    TlsReplication "tls-replication", YES_NO, "no", Live, "Whether the servers of a replica set speak TLS to each other, and a replica to its primary, with certificates that an authority of tls-ca-cert-file has signed";
    TlsCluster "tls-cluster", YES_NO, "no", Live, "Whether the nodes of a cluster speak TLS to each other, in the same way";
    TlsClientCertFile "tls-client-cert-file", Kind::Text, "", Live, "File of the certificates that the server shows to others when it connects to them; empty: tls-cert-file";
    TlsClientKeyFile "tls-client-key-file", Kind::Text, "", Live, "File of the key that goes with those";
    TlsClientKeyFilePass "tls-client-key-file-pass", Kind::Secret, "", Live, "The passphrase of that key, if it is encrypted";
    TlsProtocols "tls-protocols", Kind::Words, "", Live, "TLSv1.2, TLSv1.3; empty: both";
    TlsCiphers "tls-ciphers", Kind::Text, "", Live, "Cipher suites of TLS 1.2 by OpenSSL's names; empty: all that are safe";
    TlsCiphersuites "tls-ciphersuites", Kind::Text, "", Live, "Cipher suites of TLS 1.3; empty: all";
    TlsPreferServerCiphers "tls-prefer-server-ciphers", YES_NO, "no", Live, "Whether the server's order of cipher suites counts";
    TlsSessionCaching "tls-session-caching", YES_NO, "yes", Live, "Whether clients may resume sessions";
    TlsSessionCacheSize "tls-session-cache-size", Kind::Int { min: 0, max: 1 << 24 }, "20480", Live, "Sessions that can be resumed";

    // General.
    Dir "dir", Kind::Text, "holdfast-data", AtStart, "The data folder; unless it is named, the current folder if that is one already. Named again: a further folder over which its log is spread";
    LogLevel "loglevel", Kind::Choice(&["debug", "verbose", "notice", "warning", "nothing"]), "notice", Live, "What is logged";
    LogFile "logfile", Kind::Text, "", AtStart, "File to log to, which SIGHUP opens anew; empty: standard error";
    LogFormat "log-format", Kind::Choice(&["plain", "json"]), "plain", Live, "Lines as Redis writes them, or a JSON object a line";
    SyslogEnabled "syslog-enabled", YES_NO, "no", AtStart, "Whether messages go to the system's log (/dev/log) as well";
    SyslogIdent "syslog-ident", Kind::Text, "holdfast", AtStart, "The program's name there";
    SyslogFacility "syslog-facility", Kind::Choice(&SYSLOG_FACILITIES), "local0", AtStart, "The facility there";
    SlowCommitThreshold "slow-commit-threshold", COUNT, "1000", Live, "Milliseconds from which a commit to the medium is told in the log as slow; 0: none";
    PidFile "pidfile", Kind::Text, "", AtStart, "File to write the process number to";
    Medium "medium", Kind::Choice(&["block", "dax", "emulated"]), "block", AtStart, "What the data folder lies on: a drive (block), memory that persists under a file system with DAX (dax), or such memory emulated by files, of which nothing survives a power cut (emulated)";
    FlashDir "flash-dir", Kind::Text, "", AtStart, "A folder on flash: what the log has beyond scm-max-size lies there, the oldest first";
    ScmMaxSize "scm-max-size", BYTES, "0", AtStart, "Bytes of the log that lie in memory that persists, if there is a flash-dir; 0: what the medium holds";
    FlashHeap "flash-heap", YES_NO, "no", AtStart, "Whether the heap (the index, and collections) lies in flash-dir as well: a start moves it there, and it stays. Not with a scm-method that changes it in place";
    ScmMethod "scm-method", Kind::Choice(&["own", "cow", "lat", "latb", "none"]), "own", AtStart, "How the heap is changed in memory that persists: by checkpoints of what the log has (own), or in place, with an undo log (cow), a redo log (lat), an undo log by batches (latb), or none";
    ScmAllowUnsafe "scm-allow-unsafe", YES_NO, "no", AtStart, "Whether the server starts with scm-method none, by which a power cut leaves commands done in part";
    ScmWriteBack "scm-write-back", Kind::Choice(&["stream", "clwb", "clflushopt", "clflush", "none"]), "stream", AtStart, "How lines leave the processor for memory that persists; none only where its caches persist, too (eADR)";
    ScmDelay "scm-delay", Kind::Choice(&["lines", "bandwidth"]), "lines", AtStart, "How long emulated memory takes to write: scm-line-ns for each line of 64 bytes in turn, or scm-latency-ns and then scm-bandwidth";
    ScmLineNs "scm-line-ns", Kind::Int { min: 0, max: 1_000_000 }, "0", AtStart, "Nanoseconds that emulated memory takes to write a line";
    ScmLatencyNs "scm-latency-ns", Kind::Int { min: 0, max: 1_000_000 }, "100", AtStart, "Nanoseconds until emulated memory begins to write";
    ScmBandwidth "scm-bandwidth", Kind::Int { min: 1, max: 1_000_000 }, "2300", AtStart, "Megabytes that emulated memory writes in a second";
    IoUring "io-uring", YES_NO, "yes", AtStart, "Whether values that are not in memory are read by io_uring, if the kernel has it; else threads read them";
    Databases "databases", Kind::Int { min: 1, max: holdfast_store::DATABASES as i64 }, "16", AtStart, "Number of databases";
    Workers "workers", Kind::Int { min: 0, max: 1024 }, "0", AtStart, "Threads that serve clients; 0: one per core";
    EnableDebugCommand "enable-debug-command", Kind::Choice(&["no", "yes", "local"]), "no", AtStart, "Who may use DEBUG";

    // Durability and memory.
    Appendfsync "appendfsync", Kind::Choice(&["everysec", "always", "no"]), "always", Live, "When a write is durable: before its reply, within a second, or some time";
    Compression "compression", Kind::Choice(&["no", "lz4", "zstd"]), "no", Live, "How values are compressed on disk that are written from now on; a version before this option cannot read a folder where they ever were";
    CompressionDictionaries "compression-dictionaries", YES_NO, "yes", Live, "Whether what small values have in common is kept in dictionaries, with zstd: they are made of samples";
    CompressionLevel "compression-level", Kind::Int { min: 1, max: 19 }, "3", Live, "Level of zstd: the greater, the smaller and slower; lz4 has none";
    CompressionMinBytes "compression-min-bytes", BYTES, "64", Live, "Bytes from which values are compressed";
    LogMaxSize "log-max-size", BYTES, "0", AtStart, "Bytes of log on disk at most, 256 MiB at least; 0: what the disk holds";
    FlashEnduranceTbw "flash-endurance-tbw", Kind::Int { min: 0, max: 1 << 20 }, "0", Live, "Terabytes that the medium is rated for, from which its service life is forecast; 0: not known";
    LfuDecayTime "lfu-decay-time", LFU, "1", Live, "Minutes after which a key's count of uses falls by one; 0: it does not";
    LfuLogFactor "lfu-log-factor", LFU, "10", Live, "The greater, the more uses it takes to raise a key's count";
    MaxDisk "maxdisk", BYTES, "0", Live, "Bytes that the data folder may take; 0: what the disk holds";
    MaxMemory "maxmemory", BYTES, "0", Live, "Bytes of memory in use at most, and with a policy that evicts keys also of data; 0: three quarters of what the machine or the control group has, and no key is evicted";
    MaxMemoryEvictionTenacity "maxmemory-eviction-tenacity", Kind::Int { min: 0, max: 100 }, "10", Live, "How long a command evicts keys before it writes: 50 us each up to 10, then more and more; 100: a minute";
    MaxMemoryPolicy "maxmemory-policy", Kind::Choice(&["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "noeviction"]), "noeviction", Live, "Which keys are evicted when there is more data than maxmemory";
    MaxMemorySamples "maxmemory-samples", Kind::Int { min: 1, max: i32::MAX as i64 }, "5", Live, "Keys that are looked at for each that is evicted, at most 64";

    // Replication.
    MasterAuth "masterauth" or "primaryauth", Kind::Secret, "", Live, "The password that a replica gives its primary, and by which the servers of a replica set, and the nodes of a cluster, know each other";
    MasterUser "masteruser" or "primaryuser", Kind::Secret, "", Live, "The user that a replica is to its primary; empty: the default user";
    ReplTimeout "repl-timeout", Kind::Int { min: 1, max: i32::MAX as i64 }, "60", Live, "Seconds that a primary may be silent until the link to it is made anew";
    BindSourceAddr "bind-source-addr", Kind::Custom(kind::ip_address), "", Live, "The address of this machine from which the server connects to its primary, to the other servers of its replica set, and to the other nodes of its cluster; empty: the system chooses it";
    ReplicaAnnounceIp "replica-announce-ip" or "slave-announce-ip", Kind::Text, "", Live, "The address that a replica tells its primary; empty: the one it connects from";
    ReplicaAnnouncePort "replica-announce-port" or "slave-announce-port", Kind::Int { min: 0, max: 65535 }, "0", Live, "The port that a replica tells its primary; 0: its own";
    ReplicaServeStaleData "replica-serve-stale-data" or "slave-serve-stale-data", YES_NO, "yes", Live, "Whether a replica answers while it does not follow its primary";
    RdbVersion "rdb-version", Kind::Choice(&["auto", "10", "11", "12"]), "auto", Live, "Version of the RDB files that clients of SYNC get, such as redis-cli --rdb: 10 for Redis 7.0, 11 for 7.2, 12 for 7.4; auto: 11, or 12 if a hash has fields that expire";
    ReplicaOf "replicaof" or "slaveof", Kind::Custom(kind::primary), "", AtStart, "Host and port of the primary, a Redis or Valkey, whose replica the server is; empty: what it was when it ended";
    ReplicaSet "replica-set", Kind::Custom(kind::replica_set), "", AtStart, "The servers of a replica set, this one among them, as host:port or host:port@bus-port, in the same order on each of them; with a number in front (4=host:port) where some are left out; empty: the server is on its own";
    ReplicaSetName "replica-set-name", Kind::Text, "mymaster", AtStart, "The name by which clients that know Redis Sentinel ask for the leader of the replica set";
    ReplicaSetPort "replica-set-port", Kind::Int { min: 0, max: 65535 }, "0", AtStart, "Where the other servers of the replica set connect; 0: at the port for clients + 10000";
    ReplicaSetTimeout "replica-set-timeout", Kind::Int { min: 100, max: 600_000 }, "1000", AtStart, "Milliseconds, up to twice as many, without a sign of the leader after which the others elect another one";
    ClusterEnabled "cluster-enabled", YES_NO, "no", AtStart, "Whether the server is a node of a cluster, and has only the hash slots that it is given";
    ClusterPort "cluster-port", Kind::Int { min: 0, max: 65535 }, "0", AtStart, "Where the other nodes of the cluster connect; 0: at the port for clients + 10000";
    ClusterNodeTimeout "cluster-node-timeout", Kind::Int { min: 0, max: i32::MAX as i64 }, "15000", Live, "Milliseconds of silence after which a node of the cluster is said to have failed, and one that hears of no majority says that the cluster is down; 1000 at least";
    ClusterAnnounceIp "cluster-announce-ip", Kind::Text, "", Live, "The address or name by which other nodes and clients reach this one; empty: that by which another node has found it";
    ClusterAnnounceHostname "cluster-announce-hostname", Kind::Custom(kind::hostname), "", Live, "A name of this node that clients are told; empty: none";
    ClusterPreferredEndpointType "cluster-preferred-endpoint-type", Kind::Choice(&["ip", "hostname", "unknown-endpoint"]), "ip", Live, "By what this node tells clients where nodes are: by their cluster-announce-ip or cluster-announce-hostname, or not at all, so that they take the host that they have connected to";
    ClusterAnnouncePort "cluster-announce-port", Kind::Int { min: 0, max: 65535 }, "0", Live, "The port by which clients reach this node; 0: port";
    ClusterAnnounceTlsPort "cluster-announce-tls-port", Kind::Int { min: 0, max: 65535 }, "0", Live, "The port by which clients reach this node by TLS; 0: tls-port";
    ClusterAnnounceBusPort "cluster-announce-bus-port", Kind::Int { min: 0, max: 65535 }, "0", Live, "The port by which other nodes reach this one; 0: cluster-port";
    ClusterRequireFullCoverage "cluster-require-full-coverage", YES_NO, "yes", Live, "Whether a node answers only while each hash slot has a node that has not failed";
    ClusterAllowReadsWhenDown "cluster-allow-reads-when-down", YES_NO, "no", Live, "Whether a node answers reads of its own slots while the cluster is down";
    MinReplicasToWrite "min-replicas-to-write" or "min-slaves-to-write", Kind::Int { min: 0, max: i32::MAX as i64 }, "0", Live, "Replicas without which writes are refused";
    MinReplicasMaxLag "min-replicas-max-lag" or "min-slaves-max-lag", Kind::Int { min: 0, max: i32::MAX as i64 }, "10", Live, "Seconds since a replica was heard of until it does not count; 0: min-replicas-to-write is of no effect";

    // Publish/subscribe.
    NotifyKeyspaceEvents "notify-keyspace-events", Kind::Custom(events::normalize), "", Live, "Classes of events on keys that are published, a letter each";
    TrackingTableMaxKeys "tracking-table-max-keys", COUNT, "1000000", Live, "Keys remembered for clients that track them; 0: no limit";

    // Small encodings.
    HashMaxListpackEntries "hash-max-listpack-entries" or "hash-max-ziplist-entries", COUNT, "128", Live, "Fields up to which a hash is packed";
    HashMaxListpackValue "hash-max-listpack-value" or "hash-max-ziplist-value", BYTES, "64", Live, "Bytes of a value up to which a hash is packed";
    HllSparseMaxBytes "hll-sparse-max-bytes", BYTES, "3000", Live, "Bytes up to which a HyperLogLog is sparse";
    ListMaxListpackSize "list-max-listpack-size" or "list-max-ziplist-size", Kind::Int { min: i32::MIN as i64, max: i32::MAX as i64 }, "-2", Live, "Entries in a node of a list, or -1 to -5: 4 to 64 KiB";
    SetMaxIntsetEntries "set-max-intset-entries", COUNT, "512", Live, "Members up to which a set of integers is packed";
    SetMaxListpackEntries "set-max-listpack-entries", COUNT, "128", Live, "Members up to which a set is packed";
    SetMaxListpackValue "set-max-listpack-value", BYTES, "64", Live, "Bytes of a member up to which a set is packed";
    StreamNodeMaxBytes "stream-node-max-bytes", BYTES, "4096", Live, "Bytes in a node of a stream; 0: any number";
    StreamNodeMaxEntries "stream-node-max-entries", COUNT, "100", Live, "Entries in a node of a stream; 0: any number";
    ZsetMaxListpackEntries "zset-max-listpack-entries" or "zset-max-ziplist-entries", COUNT, "128", Live, "Members up to which a sorted set is packed";
    ZsetMaxListpackValue "zset-max-listpack-value" or "zset-max-ziplist-value", BYTES, "64", Live, "Bytes of a member up to which a sorted set is packed";

    // Watching.
    ScriptMaxMemory "script-max-memory", Kind::Memory { min: 1 << 20, max: holdfast_lua::MEMORY_MAX as i64 }, "1gb", Live, "Bytes of memory that each worker's interpreter of scripts may take; a script that needs more fails";
    BusyReplyThreshold "busy-reply-threshold" or "lua-time-limit", Kind::Int { min: 0, max: i64::MAX }, "5000", Live, "Milliseconds after which a script may be killed, and other commands are refused until it ends; 0: never";
    SlowlogLogSlowerThan "slowlog-log-slower-than", Kind::Int { min: -1, max: i64::MAX }, "10000", Live, "Microseconds from which a command is slow; -1: none is";
    SlowlogMaxLen "slowlog-max-len", COUNT, "128", Live, "Slow commands remembered";

    LatencyMonitorThreshold "latency-monitor-threshold", COUNT, "0", Live, "Milliseconds from which LATENCY remembers a command; 0: none";
    LatencyTracking "latency-tracking", YES_NO, "yes", Live, "Whether the time of each command is counted by classes";
    LatencyTrackingInfoPercentiles "latency-tracking-info-percentiles", Kind::Custom(kind::percentiles), "50 99 99.9", Live, "Percentiles of each command's time that INFO shows";

    // Known to Redis, without meaning here.
    ActiveDefragCycleMax "active-defrag-cycle-max", Kind::Int { min: 1, max: 99 }, "25", NoEffect, "Pages of the heap are used again as they are";
    ActiveDefragCycleMin "active-defrag-cycle-min", Kind::Int { min: 1, max: 99 }, "1", NoEffect, "Pages of the heap are used again as they are";
    ActiveDefragIgnoreBytes "active-defrag-ignore-bytes", Kind::Memory { min: 1, max: i64::MAX }, "100mb", NoEffect, "Pages of the heap are used again as they are";
    ActiveDefragMaxScanFields "active-defrag-max-scan-fields", Kind::Int { min: 1, max: i64::MAX }, "1000", NoEffect, "Pages of the heap are used again as they are";
    ActiveDefragThresholdLower "active-defrag-threshold-lower", Kind::Int { min: 0, max: 1000 }, "10", NoEffect, "Pages of the heap are used again as they are";
    ActiveDefragThresholdUpper "active-defrag-threshold-upper", Kind::Int { min: 0, max: 1000 }, "100", NoEffect, "Pages of the heap are used again as they are";
    ActiveExpireEffort "active-expire-effort", Kind::Int { min: 1, max: 10 }, "1", NoEffect, "Expired keys are removed as fast as they are found";
    ActiveDefrag "activedefrag", YES_NO, "no", NoEffect, "Pages of the heap are used again as they are";
    ActiveRehashing "activerehashing", YES_NO, "yes", NoEffect, "The index has no rehashing";
    AlwaysShowLogo "always-show-logo", YES_NO, "no", NoEffectAtStart, "There is no logo";
    AofLoadTruncated "aof-load-truncated", YES_NO, "yes", NoEffect, "A torn tail of the log is always cut";
    AofRewriteCpulist "aof-rewrite-cpulist" or "aof_rewrite_cpulist", Kind::Text, "", NoEffectAtStart, "Nothing forks";
    AofRewriteIncrementalFsync "aof-rewrite-incremental-fsync", YES_NO, "yes", NoEffect, "The log is not rewritten";
    AofTimestampEnabled "aof-timestamp-enabled", YES_NO, "no", NoEffect, "The log has positions";
    AofUseRdbPreamble "aof-use-rdb-preamble", YES_NO, "yes", NoEffect, "The log is not rewritten";
    AppendDirname "appenddirname", Kind::Text, "appendonlydir", NoEffectAtStart, "The log lies in the data folder";
    AppendFilename "appendfilename", Kind::Text, "appendonly.aof", NoEffectAtStart, "The log lies in the data folder";
    AppendOnly "appendonly", YES_NO, "yes", NoEffect, "There is always a log";
    AutoAofRewriteMinSize "auto-aof-rewrite-min-size", BYTES, "64mb", NoEffect, "The log is not rewritten";
    AutoAofRewritePercentage "auto-aof-rewrite-percentage", COUNT, "100", NoEffect, "The log is not rewritten";
    AvailabilityZone "availability-zone", Kind::Text, "", NoEffect, "Clients are not told where the server is";
    BgsaveCpulist "bgsave-cpulist" or "bgsave_cpulist", Kind::Text, "", NoEffectAtStart, "Nothing forks";
    BioCpulist "bio-cpulist" or "bio_cpulist", Kind::Text, "", NoEffectAtStart, "Leave this to a service manager";
    ClusterAllowPubsubshardWhenDown "cluster-allow-pubsubshard-when-down", YES_NO, "yes", NoEffect, "Messages of shards go their way whether the cluster is down or not";
    ClusterAllowReplicaMigration "cluster-allow-replica-migration", YES_NO, "yes", NoEffect, "Replicas are the servers of a replica set";
    ClusterAnnounceHumanNodename "cluster-announce-human-nodename", Kind::Text, "", NoEffect, "Nodes go by their names in the log";
    ClusterBlacklistTtl "cluster-blacklist-ttl", COUNT, "60", NoEffect, "All nodes decide who is one";
    ClusterConfigFile "cluster-config-file", Kind::Text, "nodes.conf", NoEffectAtStart, "The map lies in the data folder";
    ClusterLinkSendbufLimit "cluster-link-sendbuf-limit", BYTES, "0", NoEffect, "What waits for another node is always bounded";
    ClusterMigrationBarrier "cluster-migration-barrier", LFU, "1", NoEffect, "Replicas are the servers of a replica set";
    ClusterReplicaNoFailover "cluster-replica-no-failover" or "cluster-slave-no-failover", YES_NO, "no", NoEffect, "The servers of a replica set elect who leads";
    ClusterReplicaValidityFactor "cluster-replica-validity-factor" or "cluster-slave-validity-factor", LFU, "10", NoEffect, "The servers of a replica set elect who leads";
    ClusterSlotStatsEnabled "cluster-slot-stats-enabled", YES_NO, "no", NoEffect, "Commands are not counted by slot";
    CrashLogEnabled "crash-log-enabled", YES_NO, "yes", NoEffect, "A crash leaves what the system keeps of it";
    CrashMemcheckEnabled "crash-memcheck-enabled", YES_NO, "yes", NoEffect, "A crash leaves what the system keeps of it";
    Daemonize "daemonize", YES_NO, "no", NoEffectAtStart, "Leave this to a service manager";
    DbFilename "dbfilename", Kind::Text, "dump.rdb", NoEffect, "There are no snapshot files";
    DisableThp "disable-thp", YES_NO, "yes", NoEffectAtStart, "Nothing forks";
    DualChannelReplicationEnabled "dual-channel-replication-enabled", YES_NO, "no", NoEffect, "The server has no replicas of its own";
    DynamicHz "dynamic-hz", YES_NO, "yes", NoEffect, "Background work is not polled for";
    EnableModuleCommand "enable-module-command", Kind::Choice(&["no", "yes", "local"]), "no", NoEffectAtStart, "There are no modules";
    EnableProtectedConfigs "enable-protected-configs", Kind::Choice(&["no", "yes", "local"]), "no", NoEffect, "No option is protected";
    EventsPerIoThread "events-per-io-thread", LFU, "2", NoEffect, "See workers";
    ExtendedRedisCompatibility "extended-redis-compatibility", YES_NO, "no", NoEffect, "The server goes by one name";
    HideUserDataFromLog "hide-user-data-from-log", YES_NO, "yes", NoEffect, "No keys or values are logged";
    Hz "hz", Kind::Int { min: 0, max: i32::MAX as i64 }, "10", NoEffect, "Background work is not polled for";
    IgnoreWarnings "ignore-warnings", Kind::Text, "", NoEffect, "There are no such warnings";
    IoThreads "io-threads", Kind::Int { min: 1, max: 128 }, "1", NoEffectAtStart, "See workers";
    IoThreadsDoReads "io-threads-do-reads", YES_NO, "no", NoEffectAtStart, "See workers";
    JemallocBgThread "jemalloc-bg-thread", YES_NO, "yes", NoEffect, "Jemalloc is not used";
    LazyfreeLazyEviction "lazyfree-lazy-eviction", YES_NO, "no", NoEffect, "Freeing is always lazy";
    LazyfreeLazyExpire "lazyfree-lazy-expire", YES_NO, "no", NoEffect, "Freeing is always lazy";
    LazyfreeLazyServerDel "lazyfree-lazy-server-del", YES_NO, "no", NoEffect, "Freeing is always lazy";
    LazyfreeLazyUserDel "lazyfree-lazy-user-del", YES_NO, "no", NoEffect, "Freeing is always lazy";
    LazyfreeLazyUserFlush "lazyfree-lazy-user-flush", YES_NO, "no", NoEffect, "Freeing is always lazy";
    ListCompressDepth "list-compress-depth", COUNT, "0", NoEffect, "Lists in memory are not compressed";
    LocaleCollate "locale-collate", Kind::Text, "", NoEffect, "Strings are compared by their bytes";
    MaxNewConnectionsPerCycle "max-new-connections-per-cycle", Kind::Int { min: 1, max: 1000 }, "10", NoEffect, "Those who connect are served beside those who have";
    MaxNewTlsConnectionsPerCycle "max-new-tls-connections-per-cycle", Kind::Int { min: 1, max: 1000 }, "1", NoEffect, "Those who connect are served beside those who have";
    NoAppendfsyncOnRewrite "no-appendfsync-on-rewrite", YES_NO, "no", NoEffect, "The log is not rewritten";
    OomScoreAdj "oom-score-adj", Kind::Choice(&["no", "yes", "relative", "absolute"]), "no", NoEffect, "Leave this to a service manager";
    OomScoreAdjValues "oom-score-adj-values", Kind::Words, "0 200 800", NoEffect, "Leave this to a service manager";
    PrefetchBatchMaxSize "prefetch-batch-max-size", Kind::Int { min: 0, max: 128 }, "16", NoEffect, "What a pipeline needs is always looked up ahead";
    ProcTitleTemplate "proc-title-template", Kind::Words, "{title} {listen-addr} {server-mode}", NoEffect, "The process keeps its name";
    PropagationErrorBehavior "propagation-error-behavior", Kind::Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore", NoEffect, "Replicas have the log itself, and execute no commands";
    RdbDelSyncFiles "rdb-del-sync-files", YES_NO, "no", NoEffect, "There are no snapshot files";
    RdbSaveIncrementalFsync "rdb-save-incremental-fsync", YES_NO, "yes", NoEffect, "There are no snapshot files";
    RdbChecksum "rdbchecksum", YES_NO, "yes", NoEffectAtStart, "There are no snapshot files";
    RdbCompression "rdbcompression", YES_NO, "yes", NoEffect, "There are no snapshot files";
    ReplBacklogSize "repl-backlog-size", Kind::Memory { min: 1, max: i64::MAX }, "1mb", NoEffect, "The server has no replicas of its own";
    ReplBacklogTtl "repl-backlog-ttl", COUNT, "3600", NoEffect, "The server has no replicas of its own";
    ReplDisableTcpNodelay "repl-disable-tcp-nodelay", YES_NO, "no", NoEffect, "The server has no replicas of its own";
    ReplDisklessLoad "repl-diskless-load", Kind::Choice(&["disabled", "on-empty-db", "swapdb", "flush-before-load"]), "disabled", NoEffect, "The server has no replicas of its own";
    ReplDisklessSync "repl-diskless-sync", YES_NO, "yes", NoEffect, "The server has no replicas of its own";
    ReplDisklessSyncDelay "repl-diskless-sync-delay", COUNT, "5", NoEffect, "The server has no replicas of its own";
    ReplDisklessSyncMaxReplicas "repl-diskless-sync-max-replicas", COUNT, "0", NoEffect, "The server has no replicas of its own";
    ReplPingReplicaPeriod "repl-ping-replica-period" or "repl-ping-slave-period", Kind::Int { min: 1, max: i32::MAX as i64 }, "10", NoEffect, "The server has no replicas of its own";
    ReplicaAnnounced "replica-announced", YES_NO, "yes", NoEffect, "The server has no replicas of its own";
    ReplicaIgnoreDiskWriteErrors "replica-ignore-disk-write-errors", YES_NO, "no", NoEffect, "The server has no replicas of its own";
    ReplicaIgnoreMaxmemory "replica-ignore-maxmemory" or "slave-ignore-maxmemory", YES_NO, "yes", NoEffect, "A replica takes what its primary has room for";
    ReplicaLazyFlush "replica-lazy-flush" or "slave-lazy-flush", YES_NO, "no", NoEffect, "The server has no replicas of its own";
    ReplicaPriority "replica-priority" or "slave-priority", COUNT, "100", NoEffect, "The server has no replicas of its own";
    ReplicaReadOnly "replica-read-only" or "slave-read-only", YES_NO, "yes", NoEffect, "A replica is written by its primary only";
    SanitizeDumpPayload "sanitize-dump-payload", Kind::Choice(&["no", "yes", "clients"]), "no", NoEffect, "Payloads are always checked";
    Save "save", Kind::Custom(kind::save_points), "", NoEffect, "The log is the database; see appendfsync";
    ServerCpulist "server-cpulist" or "server_cpulist", Kind::Text, "", NoEffectAtStart, "Leave this to a service manager";
    SetProcTitle "set-proc-title", YES_NO, "yes", NoEffectAtStart, "The process keeps its name";
    ShutdownOnSigint "shutdown-on-sigint", Kind::Words, "default", NoEffect, "All that was acknowledged is durable, and there is nothing else to save";
    ShutdownOnSigterm "shutdown-on-sigterm", Kind::Words, "default", NoEffect, "All that was acknowledged is durable, and there is nothing else to save";
    ShutdownTimeout "shutdown-timeout", COUNT, "10", NoEffect, "There are no replicas to wait for";
    SocketMarkId "socket-mark-id", COUNT, "0", NoEffectAtStart, "Sockets are not marked";
    StopWritesOnBgsaveError "stop-writes-on-bgsave-error", YES_NO, "yes", NoEffect, "Writes always stop after a write error";
    Supervised "supervised", Kind::Choice(&["no", "upstart", "systemd", "auto"]), "no", NoEffectAtStart, "The process stays in the foreground, and tells systemd how it is doing wherever that asks";
    TlsDhParamsFile "tls-dh-params-file", Kind::Text, "", NoEffect, "Keys are agreed on elliptic curves only";
    TlsSessionCacheTimeout "tls-session-cache-timeout", COUNT, "300", NoEffect, "Sessions go when there are too many";
}

impl Opt {
    /// The option's row.
    pub fn spec(self) -> &'static Spec {
        &SPECS[self as usize]
    }

    /// The option called `name`, in any case.
    pub fn find(name: &str) -> Option<Opt> {
        Opt::ALL.iter().copied().find(|opt| {
            let spec = opt.spec();
            spec.name.eq_ignore_ascii_case(name)
                || spec.alias.is_some_and(|alias| alias.eq_ignore_ascii_case(name))
        })
    }

    /// The option whose name is most like `name`, if one is like it at all.
    pub fn nearest(name: &str) -> Option<&'static str> {
        let name = name.to_ascii_lowercase();
        let (distance, nearest) =
            SPECS.iter().map(|spec| (edit_distance(&name, spec.name), spec.name)).min()?;
        (distance <= 1 + name.len() / 4).then_some(nearest)
    }
}

/// Insertions, deletions and replacements that make `b` of `a`.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_defaults_are_valid() {
        let mut names = HashSet::new();
        for spec in SPECS {
            for name in [Some(spec.name), spec.alias].into_iter().flatten() {
                assert!(names.insert(name), "{name} twice");
                assert_eq!(name, name.to_ascii_lowercase());
            }
            let words: Vec<&str> = spec.default.split_whitespace().collect();
            let words = if words.is_empty() { vec![""] } else { words };
            assert!(spec.kind.parse(&words, spec.default).is_ok(), "{}", spec.name);
            assert!(!spec.doc.is_empty() && !spec.doc.ends_with('.'), "{}", spec.name);
        }
    }

    #[test]
    fn a_typing_error_finds_its_option() {
        assert_eq!(Opt::nearest("prot"), Some("port"));
        assert_eq!(Opt::nearest("appendfsnyc"), Some("appendfsync"));
        assert_eq!(Opt::nearest("requirepas"), Some("requirepass"));
        assert_eq!(Opt::nearest("something-else"), None);
    }
}
