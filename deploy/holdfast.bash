# Completions of holdfast for bash, made by holdfast completions.
_holdfast() {
    local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words values=""
    local options="--bind --port --unixsocket --unixsocketperm --tcp-backlog --tcp-keepalive --metrics-port --metrics-bind --timeout --maxclients --protected-mode --requirepass --aclfile --acllog-max-len --acl-pubsub-default --proto-max-bulk-len --ai-model-chunk-size --client-query-buffer-limit --client-output-buffer-limit --maxmemory-clients --tls-port --tls-cert-file --tls-key-file --tls-key-file-pass --tls-ca-cert-file --tls-ca-cert-dir --tls-auth-clients --tls-replication --tls-cluster --tls-client-cert-file --tls-client-key-file --tls-client-key-file-pass --tls-protocols --tls-ciphers --tls-ciphersuites --tls-prefer-server-ciphers --tls-session-caching --tls-session-cache-size --dir --loglevel --logfile --log-format --syslog-enabled --syslog-ident --syslog-facility --slow-commit-threshold --pidfile --medium --flash-dir --scm-max-size --flash-heap --scm-method --scm-allow-unsafe --scm-write-back --scm-delay --scm-line-ns --scm-latency-ns --scm-bandwidth --io-uring --databases --workers --enable-debug-command --appendfsync --compression --compression-dictionaries --compression-level --compression-min-bytes --log-max-size --flash-endurance-tbw --lfu-decay-time --lfu-log-factor --maxdisk --maxmemory --maxmemory-eviction-tenacity --maxmemory-policy --maxmemory-samples --masterauth --masteruser --repl-timeout --bind-source-addr --replica-announce-ip --replica-announce-port --replica-serve-stale-data --rdb-version --replicaof --replica-set --replica-set-name --replica-set-port --replica-set-timeout --cluster-enabled --cluster-port --cluster-node-timeout --cluster-announce-ip --cluster-announce-hostname --cluster-preferred-endpoint-type --cluster-announce-port --cluster-announce-tls-port --cluster-announce-bus-port --cluster-require-full-coverage --cluster-allow-reads-when-down --min-replicas-to-write --min-replicas-max-lag --notify-keyspace-events --tracking-table-max-keys --hash-max-listpack-entries --hash-max-listpack-value --hll-sparse-max-bytes --list-max-listpack-size --set-max-intset-entries --set-max-listpack-entries --set-max-listpack-value --stream-node-max-bytes --stream-node-max-entries --zset-max-listpack-entries --zset-max-listpack-value --script-max-memory --busy-reply-threshold --slowlog-log-slower-than --slowlog-max-len --latency-monitor-threshold --latency-tracking --latency-tracking-info-percentiles"
    case "$command" in
        serve | -*) words="$options" ;;
        check) words="--salvage" ;;
        backup) words="--from --rate --user --password --tls --cacert --cert --key --sni" ;;
        restore) words="--backup --lsn --time" ;;
        import) words="--to --replace --user --password --tls --cacert --cert --key --sni $options" ;;
        export) words="--from --rate --rdb-version --user --password --tls --cacert --cert --key --sni" ;;
        compare) words="--sample --to-user --to-password --user --password --tls --cacert --cert --key --sni" ;;
        top) words="--once --user --password --tls --cacert --cert --key --sni" ;;
        cluster) words="--from --to --slots --user --password --tls --cacert --cert --key --sni" ;;
        ping) words="--user --password --tls --cacert --cert --key --sni" ;;
        *) words="" ;;
    esac
    case "${COMP_WORDS[COMP_CWORD - 1]}" in
        --protected-mode) values="yes no" ;;
        --acl-pubsub-default) values="allchannels resetchannels" ;;
        --tls-auth-clients) values="no yes optional" ;;
        --tls-replication) values="yes no" ;;
        --tls-cluster) values="yes no" ;;
        --tls-prefer-server-ciphers) values="yes no" ;;
        --tls-session-caching) values="yes no" ;;
        --loglevel) values="debug verbose notice warning nothing" ;;
        --log-format) values="plain json" ;;
        --syslog-enabled) values="yes no" ;;
        --syslog-facility) values="user local0 local1 local2 local3 local4 local5 local6 local7" ;;
        --medium) values="block dax emulated" ;;
        --flash-heap) values="yes no" ;;
        --scm-method) values="own cow lat latb none" ;;
        --scm-allow-unsafe) values="yes no" ;;
        --scm-write-back) values="stream clwb clflushopt clflush none" ;;
        --scm-delay) values="lines bandwidth" ;;
        --io-uring) values="yes no" ;;
        --enable-debug-command) values="no yes local" ;;
        --appendfsync) values="everysec always no" ;;
        --compression) values="no lz4 zstd" ;;
        --compression-dictionaries) values="yes no" ;;
        --maxmemory-policy) values="volatile-lru volatile-lfu volatile-random volatile-ttl allkeys-lru allkeys-lfu allkeys-random noeviction" ;;
        --replica-serve-stale-data) values="yes no" ;;
        --rdb-version) values="auto 10 11 12" ;;
        --cluster-enabled) values="yes no" ;;
        --cluster-preferred-endpoint-type) values="ip hostname unknown-endpoint" ;;
        --cluster-require-full-coverage) values="yes no" ;;
        --cluster-allow-reads-when-down) values="yes no" ;;
        --latency-tracking) values="yes no" ;;
    esac
    if [[ -n "$values" ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$current"))
    elif ((COMP_CWORD == 1)) && [[ "$current" != -* ]]; then
        COMPREPLY=($(compgen -W "serve check backup restore import export compare top cluster ping config commands man completions help" -- "$current") $(compgen -f -- "$current"))
    elif [[ "$current" == -* ]]; then
        COMPREPLY=($(compgen -W "$words --help" -- "$current"))
    else
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}
complete -o filenames -F _holdfast holdfast
