//! What operators ask a server: where time and memory go, what is durable, which role it has.

use crate::harness::{self, Client, Server, array, is_error, ok, run, show, text, wait_until};
use holdfast_resp::Reply;
use std::time::{Duration, Instant};

#[test]
fn a_server_without_replicas_and_cluster_says_so() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "replicaof no one => +OK
         slaveof no one => +OK
         replicaof localhost 70000 => -ERR Invalid master port
         cluster info => -ERR This instance has cluster support disabled
         readonly => -ERR This instance has cluster support disabled
         failover => -ERR FAILOVER requires connected replicas.
         failover abort => -ERR No failover in progress.
         failover to a => -ERR syntax error
         cluster reset x y => -ERR This instance has cluster support disabled
         cluster nosuch => -ERR unknown subcommand 'nosuch'. Try CLUSTER HELP.
         module list => []
         module load x => -ERR Modules are not supported
         command list filterby pattern cl*|help => [client|help cluster|help]
         command getkeys eval x 0 => []",
    );
    assert!(show(&client.call("role")).starts_with("[master :"));
    let art = text(&client.call("lolwut version 5 40 6"));
    assert!(art.lines().count() == 8 && art.contains("Redis ver. "), "{art}");
}

#[test]
fn writes_that_need_replicas_are_refused_without() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "multi => +OK
         set a 1 => +QUEUED",
    );
    let mut other = server.client();
    other.run_script(
        "config set min-slaves-to-write 1 => +OK
         config get min-replicas-to-write => [min-replicas-to-write 1]
         set a 2 => -NOREPLICAS Not enough good replicas to write.
         get a => nil
         multi => +OK
         set a 2 => -NOREPLICAS Not enough good replicas to write.
         exec => -EXECABORT Transaction discarded because of previous errors.
         eval return(redis.pcall('set','a',2)) 0 => -NOREPLICAS Not enough good replicas to write.
         eval return(redis.pcall('get','a')) 0 => nil",
    );
    assert_eq!(other.info("min_slaves_good_slaves"), "0");
    client.run_script(
        "exec => -EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas to write.
         config set min-replicas-max-lag 0 => +OK
         set a 1 => +OK",
    );
}

#[test]
fn figures_are_counted_and_reset() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(client.info("rdb_changes_since_last_save"), "0");
    client.run_script(
        "set a 1 => +OK
         setbit b 5 1 => :0
         setbit b 5 1 => :1
         get a => 1
         get none => nil",
    );
    assert_eq!([client.info("rdb_changes_since_last_save"), client.info("keyspace_misses")], ["2", "1"]);
    // Each command of a transaction is counted, and the second change of a field or bit is as much one as the first.
    client.run_script(
        "multi => +OK
         hset h f 1 => +QUEUED
         hset h f 2 => +QUEUED
         setbit b 5 0 => +QUEUED
         setbit b 5 1 => +QUEUED
         setbit b 5 1 => +QUEUED
         exec => [:1 :0 :1 :0 :1]",
    );
    assert_eq!(client.info("rdb_changes_since_last_save"), "6");
    client.run_script("multi => +OK\n get a => +QUEUED\n config resetstat => +QUEUED\n exec => [1 +OK]");
    assert_eq!([client.info("keyspace_hits"), client.info("keyspace_misses")], ["0", "0"]);
    client.run_script("save => +OK\n flushall async => +OK");
    assert_eq!(client.info("rdb_changes_since_last_save"), "0");
    for _ in 0..1000 {
        client.call("rpush long element");
    }
    client.run_script("config resetstat => +OK\n unlink long => :1");
    wait_until(
        || "it is freed".into(),
        || client.info("lazyfree_pending_objects") == "0" && client.info("lazyfreed_objects") == "1",
    );

    let (mut list, mut group) = (server.client(), server.client());
    list.send(b"blpop list other 0\r\n");
    wait_until(|| "it waits".into(), || client.info("blocked_clients") == "1");
    client.run_script("xgroup create list g $ mkstream => +OK");
    group.send(b"xreadgroup group g me block 0 streams list >\r\n");
    wait_until(|| "both wait".into(), || client.info("blocked_clients") == "2");
    let figures =
        |client: &mut Client| ["", "_on_nokey"].map(|of| client.info(&format!("total_blocking_keys{of}")));
    assert_eq!(figures(&mut client), ["2", "1"]);
    client.run_script("del list => :1");
    assert!(is_error(&group.reply(), "NOGROUP"));
    wait_until(|| "it waits no more".into(), || figures(&mut client) == ["2", "0"]);
}

#[test]
fn waiting_for_replicas_ends_in_time() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.run_script(
        "set a 1 => +OK
         wait 0 0 => :0
         wait a 0 => -ERR value is not an integer or out of range
         wait 1 -1 => -ERR timeout is negative
         waitaof 2 0 0 => -ERR value is out of range, value must between 0 and 1
         waitaof 0 -1 0 => -ERR value is out of range, must be positive
         waitaof 1 0 0 => [:1 :0]
         multi => +OK
         wait 1 0 => +QUEUED
         exec => [:0]",
    );
    let start = Instant::now();
    client.run_script("wait 1 60 => :0\nwaitaof 1 1 60 => [:1 :0]");
    assert!(start.elapsed() >= Duration::from_millis(120));
    client.send(b"WAIT 3 0\r\n");
    let mut other = server.client();
    wait_until(|| "it waits".into(), || other.info("blocked_clients") == "1");
    let id = text(&other.call("client list")).lines().find(|line| line.contains("cmd=wait")).unwrap()[3..]
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(other.call(&format!("client unblock {id} error")), Reply::Int(1));
    assert!(is_error(&client.reply(), "UNBLOCKED"));
    assert_eq!(client.call("ping"), Reply::Simple(b"PONG".to_vec()));
}

#[test]
fn waitaof_waits_for_the_medium_where_replies_do_not() {
    let server = Server::start(&["--appendfsync", "no"]);
    let mut client = server.client();
    client.run_script("set a 1 => +OK\nwaitaof 1 0 0 => [:1 :0]");
    assert_eq!(server.restart(Server::kill).client().call("get a"), harness::bulk("1"));
}

#[test]
fn slow_commands_are_remembered_by_kind() {
    let server = Server::start(&["--latency-monitor-threshold", "20"]);
    let mut client = server.client();
    client.run_script(
        "latency latest => []
         latency history command => []
         latency graph command => -ERR No samples available for event 'command'
         latency reset => :0
         latency nope => -ERR unknown subcommand 'nope'. Try LATENCY HELP.
         debug sleep 0.03 => +OK",
    );
    let latest = show(&client.call("latency latest"));
    assert!(latest.starts_with("[[command :"), "{latest}");
    let graph = text(&client.call("latency graph command"));
    assert!(graph.starts_with("command - high ") && graph.contains(" ms (all time high "), "{graph}");
    assert!(matches!(client.call("latency history command"), Reply::Array(samples) if samples.len() == 1));
    assert!(text(&client.call("latency doctor")).contains("1. command: 1 latency spikes"));
    client.run_script("latency reset other => :0\nlatency reset command => :1\nlatency latest => []");
    assert_eq!(client.call("config set latency-monitor-threshold 0"), ok());
    assert!(text(&client.call("latency doctor")).contains("latency-monitor-threshold"));
}

#[test]
fn the_times_of_each_command_are_counted() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call("config resetstat");
    client.run_script("set a b => +OK\nset c d => +OK\nget a => b\nclient id => :2");
    assert!(matches!(client.call("hello 3"), Reply::Map(_)));
    let histogram = |client: &mut harness::Client, names: &str| match client
        .call(&format!("latency histogram {names}"))
    {
        Reply::Map(pairs) => {
            pairs.iter().map(|(name, value)| format!("{} {}", show(name), show(value))).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    let found = histogram(&mut client, "set client nope get");
    assert_eq!(found.len(), 3);
    assert!(found[0].starts_with("set {calls :2, histogram_usec {:"), "{found:?}");
    assert!(found[1].starts_with("client|id {calls :1, "), "{found:?}");
    assert!(found[2].starts_with("get {calls :1, "), "{found:?}");
    assert!(histogram(&mut client, "").len() >= 5);
    let info = text(&client.call("info latencystats"));
    let line = info.lines().find(|line| line.starts_with("latency_percentiles_usec_set:p50=")).expect(&info);
    assert!(line.contains(",p99=") && line.contains(",p99.9="), "{line}");
    assert_eq!(client.call("config set latency-tracking no"), ok());
    client.call("config resetstat");
    assert!(histogram(&mut client, "").is_empty());
    assert!(is_error(
        &client.call("config set latency-tracking-info-percentiles 101"),
        "ERR CONFIG SET failed"
    ));
}

#[test]
fn memory_is_accounted_for() {
    let server = Server::start(&["--maxmemory", "1gb"]);
    let mut client = server.client();
    // A cache that has nothing to hold yet is small, and not for want of memory.
    assert!(text(&client.call("memory doctor")).contains("can't find any memory issue"));
    assert_eq!(client.call_args(&[&b"set"[..], b"s", &[b'v'; 1000]]), ok());
    client.run_script(
        "rpush l a b c => :3\nmemory usage nope => nil\nmemory usage s samples => -ERR syntax error",
    );
    let usage = |client: &mut harness::Client, key: &str| match client
        .call(&format!("memory usage {key} samples 0"))
    {
        Reply::Int(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert!((1000..1200).contains(&usage(&mut client, "s")));
    assert!((10..200).contains(&usage(&mut client, "l")));
    assert!(text(&client.call("memory doctor")).contains("can't find any memory issue"));
    client.run_script(
        "memory purge => +OK\nmemory malloc-stats => Stats not supported for the current allocator",
    );
    let stats = show(&client.call("memory stats"));
    assert!(stats.contains("keys.count :2 ") && stats.contains("dataset.percentage "), "{stats}");
    assert_eq!(client.call("multi"), ok());
    client.call("memory stats");
    assert!(matches!(client.call("exec"), Reply::Array(replies) if replies.len() == 1));
    assert_ne!(client.call("memory help"), array([]));
}

/// Of Redis 7.2 and Valkey 8.0, but for those that are refused: see docs/compatibility.md.
const KNOWN_OPTIONS: &str = "
    acl-pubsub-default aclfile acllog-max-len active-defrag-cycle-max active-defrag-cycle-min
    active-defrag-ignore-bytes active-defrag-max-scan-fields active-defrag-threshold-lower
    active-defrag-threshold-upper active-expire-effort activedefrag activerehashing always-show-logo
    aof-load-truncated aof-rewrite-incremental-fsync aof-timestamp-enabled aof-use-rdb-preamble appenddirname
    appendfilename appendfsync appendonly auto-aof-rewrite-min-size auto-aof-rewrite-percentage availability-zone
    bind bind-source-addr busy-reply-threshold client-output-buffer-limit client-query-buffer-limit
    cluster-allow-pubsubshard-when-down cluster-allow-reads-when-down cluster-allow-replica-migration
    cluster-announce-bus-port cluster-announce-hostname cluster-announce-human-nodename cluster-announce-ip
    cluster-announce-port cluster-announce-tls-port cluster-blacklist-ttl cluster-config-file cluster-enabled
    cluster-link-sendbuf-limit cluster-migration-barrier cluster-node-timeout cluster-port
    cluster-preferred-endpoint-type cluster-replica-no-failover cluster-replica-validity-factor
    cluster-require-full-coverage cluster-slot-stats-enabled crash-log-enabled crash-memcheck-enabled daemonize
    databases dbfilename dir disable-thp dual-channel-replication-enabled dynamic-hz enable-debug-command
    enable-module-command enable-protected-configs events-per-io-thread extended-redis-compatibility
    hash-max-listpack-entries hash-max-listpack-value hide-user-data-from-log hll-sparse-max-bytes hz ignore-warnings
    io-threads io-threads-do-reads jemalloc-bg-thread latency-monitor-threshold latency-tracking
    latency-tracking-info-percentiles lazyfree-lazy-eviction lazyfree-lazy-expire lazyfree-lazy-server-del
    lazyfree-lazy-user-del lazyfree-lazy-user-flush lfu-decay-time lfu-log-factor list-compress-depth
    list-max-listpack-size locale-collate logfile loglevel max-new-connections-per-cycle
    max-new-tls-connections-per-cycle maxclients maxmemory maxmemory-clients maxmemory-eviction-tenacity
    maxmemory-policy maxmemory-samples min-replicas-max-lag min-replicas-to-write no-appendfsync-on-rewrite
    notify-keyspace-events oom-score-adj oom-score-adj-values pidfile port prefetch-batch-max-size primaryauth
    primaryuser proc-title-template propagation-error-behavior protected-mode proto-max-bulk-len rdb-del-sync-files
    rdb-save-incremental-fsync rdbchecksum rdbcompression repl-backlog-size repl-backlog-ttl repl-disable-tcp-nodelay
    repl-diskless-load repl-diskless-sync repl-diskless-sync-delay repl-diskless-sync-max-replicas
    repl-ping-replica-period repl-timeout replica-announce-ip replica-announce-port replica-announced
    replica-ignore-disk-write-errors replica-ignore-maxmemory replica-lazy-flush replica-priority replica-read-only
    replica-serve-stale-data replicaof requirepass sanitize-dump-payload save set-max-intset-entries
    set-max-listpack-entries set-max-listpack-value set-proc-title shutdown-on-sigint shutdown-on-sigterm
    shutdown-timeout slowlog-log-slower-than slowlog-max-len socket-mark-id stop-writes-on-bgsave-error
    stream-node-max-bytes stream-node-max-entries supervised syslog-enabled syslog-facility syslog-ident tcp-backlog
    tcp-keepalive timeout tls-auth-clients tls-ca-cert-dir tls-ca-cert-file tls-cert-file tls-ciphers
    tls-ciphersuites tls-client-cert-file tls-client-key-file tls-client-key-file-pass tls-cluster tls-dh-params-file
    tls-key-file tls-key-file-pass tls-port tls-prefer-server-ciphers tls-protocols tls-replication
    tls-session-cache-size tls-session-cache-timeout tls-session-caching tracking-table-max-keys unixsocket
    unixsocketperm zset-max-listpack-entries zset-max-listpack-value
";

/// A file that was written for Redis or Valkey is read, whichever of their options it has.
#[test]
fn all_options_of_redis_and_valkey_are_known() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for name in KNOWN_OPTIONS.split_whitespace() {
        let found = client.call(&format!("CONFIG GET {name}"));
        assert!(matches!(&found, Reply::Array(items) if items.len() == 2), "{name}: {found:?}");
    }
    drop(server);
    for name in ["unixsocketgroup", "cluster-announce-client-ipv4", "cluster-announce-client-ipv6"] {
        let output = run(&["serve", &format!("--{name}"), "x"]);
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert!(!output.status.success() && text.contains(&format!("unknown option '{name}'")), "{text}");
    }
}
