//! Makes a running server follow its options.

use crate::{
    admin::log::{self, log},
    config::{Config, Opt, kind::read_output_limits},
    push::notify::Class,
    server::{Server, eviction, limits},
    util::memory::memory_allowed,
};
use holdfast_store::{Appendfsync, Codec, CompressionSetting, Limits};

/// Follows all options, after start. One whose value cannot be followed is named.
pub fn apply_all(server: &Server) -> Result<(), String> {
    Opt::ALL.iter().try_for_each(|&opt| {
        apply(server, opt).map_err(|what| format!("option '{}': {what}", opt.spec().name))
    })
}

/// Has connections from now on be as the options and the files of certificates say.
pub fn secure(server: &Server) -> Result<(), String> {
    server.tls.configure(&server.config)?;
    trust(server)
}

/// The same of those to other servers.
fn trust(server: &Server) -> Result<(), String> {
    let set = server.replica_set.iter().map(|set| &set.trust);
    let cluster = server.cluster.is_on().then_some(&server.cluster.trust);
    set.chain(cluster).try_for_each(|trust| trust.configure(&server.config))
}

/// Follows a new value of an option; the error says why it cannot. Most options are looked at where they matter, and need
/// nothing here.
pub fn apply(server: &Server, opt: Opt) -> Result<(), String> {
    let config = &server.config;
    match opt {
        Opt::Bind => listen(server, "Failed to bind to specified addresses.")?,
        Opt::Port => listen(server, "Unable to listen on this port. Check server logs.")?,
        Opt::TlsPort => {
            secure(server)?;
            listen(server, "Unable to listen on this port. Check server logs.")?;
        }
        Opt::TlsCertFile
        | Opt::TlsKeyFile
        | Opt::TlsKeyFilePass
        | Opt::TlsCaCertFile
        | Opt::TlsCaCertDir
        | Opt::TlsAuthClients
        | Opt::TlsProtocols
        | Opt::TlsCiphers
        | Opt::TlsCiphersuites
        | Opt::TlsPreferServerCiphers
        | Opt::TlsSessionCaching
        | Opt::TlsSessionCacheSize => secure(server)?,
        Opt::BindSourceAddr
        | Opt::MasterAuth
        | Opt::TlsClientCertFile
        | Opt::TlsClientKeyFile
        | Opt::TlsClientKeyFilePass
        | Opt::TlsCluster
        | Opt::TlsReplication => trust(server)?,
        Opt::MaxClients => limits::allow_clients(config, server.store.log())?,
        Opt::RequirePass => server.acl.set_password(&config.text(Opt::RequirePass)),
        Opt::ClientOutputBufferLimit => {
            let limits = read_output_limits(&config.text(Opt::ClientOutputBufferLimit));
            server.output_limits.iter().zip(limits).for_each(|(limit, values)| limit.set(values));
        }
        Opt::MaxMemoryClients => limit_client_memory(server)?,
        Opt::LogLevel => log::set_level(config.number(Opt::LogLevel) as u8),
        Opt::LogFormat => log::set_json(config.choice(Opt::LogFormat) == "json"),
        Opt::Appendfsync => {
            let appendfsync = appendfsync(config);
            server.store.log().set_appendfsync(appendfsync);
            server.push.wait_for_log(appendfsync == Appendfsync::Always);
        }
        Opt::Compression
        | Opt::CompressionDictionaries
        | Opt::CompressionLevel
        | Opt::CompressionMinBytes => server.store.set_compression(CompressionSetting {
            codec: codec(config),
            len_min: config.number(Opt::CompressionMinBytes) as usize,
            dictionaries: config.is_on(Opt::CompressionDictionaries),
        }),
        Opt::MaxDisk => server.store.set_disk_bytes_max(max_disk(config)),
        Opt::MaxMemory => {
            server.store.set_memory_bytes_max(max_memory(config));
            eviction::apply_policy(server);
            limit_client_memory(server)?;
        }
        Opt::MaxMemoryPolicy | Opt::MaxMemorySamples | Opt::LfuDecayTime | Opt::LfuLogFactor => {
            eviction::apply_policy(server);
        }
        Opt::NotifyKeyspaceEvents => {
            let letters = config.text(Opt::NotifyKeyspaceEvents);
            server.push.notices.set_classes(Class::parse(&letters).ok_or("unknown classes of events")?);
            server.push.want_changes(&server.store);
        }
        Opt::TrackingTableMaxKeys => {
            server.push.tracking.set_limit(config.number(Opt::TrackingTableMaxKeys) as usize);
            server.push.tracking.keep_limit(&server.push);
        }
        Opt::HashMaxListpackEntries
        | Opt::HashMaxListpackValue
        | Opt::HllSparseMaxBytes
        | Opt::ListMaxListpackSize
        | Opt::SetMaxIntsetEntries
        | Opt::SetMaxListpackEntries
        | Opt::SetMaxListpackValue
        | Opt::StreamNodeMaxBytes
        | Opt::StreamNodeMaxEntries
        | Opt::ZsetMaxListpackEntries
        | Opt::ZsetMaxListpackValue => server.store.set_limits(encodings(config)),
        Opt::SlowlogMaxLen => server.slowlog.truncate(config.number(Opt::SlowlogMaxLen) as usize),
        _ => {}
    }
    Ok(())
}

/// Listens where the options say. Why it cannot is logged, and the client is told this.
fn listen(server: &Server, refusal: &str) -> Result<(), String> {
    server.acceptor.follow().map_err(|what| {
        log!(Warning, "{what}");
        refusal.to_owned()
    })
}

fn limit_client_memory(server: &Server) -> Result<(), String> {
    let text = server.config.text(Opt::MaxMemoryClients);
    let max = match text.strip_suffix('%') {
        Some(percent) => {
            let percent: u128 = percent.parse().map_err(|_| "not a percentage")?;
            (server.config.number(Opt::MaxMemory) as u128 * percent / 100) as usize
        }
        None => text.parse().map_err(|_| "not a number")?,
    };
    // What one connection takes that does nothing unusual, many times over.
    const LEAST: usize = 128 << 10;
    server.clients.limit_memory(if max == 0 { 0 } else { max.max(LEAST) });
    server.evict_clients();
    Ok(())
}

/// When a write is durable, by the options.
pub fn appendfsync(config: &Config) -> Appendfsync {
    match config.choice(Opt::Appendfsync).as_str() {
        "always" => Appendfsync::Always,
        "everysec" => Appendfsync::Everysec,
        _ => Appendfsync::No,
    }
}

/// Bytes of memory in use at most, by the options. Where they say nothing, three quarters of what the process may have: data beyond that lie
/// on the medium, while a process that takes all is killed.
pub fn max_memory(config: &Config) -> usize {
    match config.number(Opt::MaxMemory) {
        0 => memory_allowed().map_or(usize::MAX, |bytes| (bytes / 4 * 3) as usize),
        bytes => bytes as usize,
    }
}

/// Bytes that the data folder may take, by the options.
pub fn max_disk(config: &Config) -> u64 {
    match config.number(Opt::MaxDisk) {
        0 => u64::MAX,
        bytes => bytes as u64,
    }
}

/// How values are compressed, by the options.
pub fn codec(config: &Config) -> Option<Codec> {
    match config.choice(Opt::Compression).as_str() {
        "lz4" => Some(Codec::Lz4),
        "zstd" => Some(Codec::Zstd(config.number(Opt::CompressionLevel) as i32)),
        _ => None,
    }
}

/// How far collections are packed, by the options.
fn encodings(config: &Config) -> Limits {
    let number = |opt| config.number(opt) as usize;
    Limits {
        hash_max_listpack_entries: number(Opt::HashMaxListpackEntries),
        hash_max_listpack_value: number(Opt::HashMaxListpackValue),
        set_max_intset_entries: number(Opt::SetMaxIntsetEntries),
        set_max_listpack_entries: number(Opt::SetMaxListpackEntries),
        set_max_listpack_value: number(Opt::SetMaxListpackValue),
        zset_max_listpack_entries: number(Opt::ZsetMaxListpackEntries),
        zset_max_listpack_value: number(Opt::ZsetMaxListpackValue),
        list_max_listpack_size: config.number(Opt::ListMaxListpackSize) as i32,
        stream_node_max_bytes: number(Opt::StreamNodeMaxBytes),
        stream_node_max_entries: number(Opt::StreamNodeMaxEntries),
        hll_sparse_max_bytes: number(Opt::HllSparseMaxBytes),
    }
}
