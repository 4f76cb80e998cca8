//! The data folder: which it is, on what medium, and its store, opened as the options say.

use crate::{
    admin::log::log,
    config::{Config, Opt, kind::Value},
    replica_set,
    server::apply::{self, appendfsync, max_disk, max_memory},
    util::allocator,
};
use holdfast_io::{Scm, ScmMedium, ScmOptions, WriteBack, WriteDelay};
use holdfast_store::{Further, HomeMethod, Io, OpenError, Options, RealIo, Recovery, Store, folders};
use std::{fs, path::Path, process, sync::Arc};

/// Opens the store of a new data folder, to be filled and closed.
pub(super) fn open_filled(config: &Config) -> Result<Store, String> {
    let (io, options) = (open_folder(config, None)?, store_options(config)?);
    let dir = config.text(Opt::Dir);
    replica_set::refuse_alone(Path::new(&dir))?;
    let store = open_store(&dir, io, Options { keeps_copies: false, is_filled: true, ..options })
        .map_err(|error| cannot_open(&dir, &error))?;
    tell_data_folder(config);
    Ok(store)
}

/// The data folder, for this process only.
pub(super) fn open_folder(config: &Config, clock_stopped_at_ms: Option<u64>) -> Result<Arc<dyn Io>, String> {
    choose_data_folder(config, Path::new("."));
    let dir = config.text(Opt::Dir);
    let open = || {
        let scm = scm_options(config).map(Scm::new).transpose()?.map(Arc::new);
        let new = |dir: &Path, is_below: bool| {
            let io = RealIo::new(dir)?.with_clock_stopped(clock_stopped_at_ms);
            match &scm {
                Some(scm) if !is_below => io.on_scm(scm.clone()),
                _ => Ok(io),
            }
        };
        let below = config.flash_dir().map(|path| Further { path, is_below: true });
        let more = config.more_dirs().into_iter().map(|path| Further { path, is_below: false });
        folders(Path::new(&dir), &more.chain(below).collect::<Vec<_>>(), &new)
    };
    open().map_err(|error| cannot_open(&dir, &error))
}

/// How the store is opened, by the options.
pub(super) fn store_options(config: &Config) -> Result<Options, String> {
    let (appendfsync, memory_bytes_max) = (appendfsync(config), max_memory(config));
    let on_unreadable = |error: &OpenError| -> ! {
        // The medium is to blame, not the program, so there is no abort and no core. What was acknowledged is durable.
        log!(Warning, "a page that is needed cannot be read, so the server ends: {error}");
        process::exit(1)
    };
    let process = Some(allocator::PROCESS);
    let mut options = Options { appendfsync, memory_bytes_max, on_unreadable, process, ..Options::default() };
    options.compression = apply::codec(config);
    options.disk_bytes_max = max_disk(config);
    let log_bytes_max = config.number(Opt::LogMaxSize) as u64;
    if log_bytes_max > 0 {
        options.log_bytes_max = log_bytes_max;
    }
    let above_max = config.number(Opt::ScmMaxSize) as u64;
    if above_max > 0 {
        options.log_bytes_above_max = above_max;
    }
    options.heap_below = config.is_on(Opt::FlashHeap);
    options.home = scm_method(config)?;
    Ok(options)
}

/// The storage-class memory that the options speak of; `None`: the data folder lies on a drive.
fn scm_options(config: &Config) -> Option<ScmOptions> {
    let number = |opt| config.number(opt) as u32;
    let delay = match config.choice(Opt::ScmDelay).as_str() {
        "bandwidth" => WriteDelay::Bandwidth {
            latency_ns: number(Opt::ScmLatencyNs),
            bytes_per_us: number(Opt::ScmBandwidth),
        },
        _ => WriteDelay::Lines { line_ns: number(Opt::ScmLineNs) },
    };
    let medium = match config.choice(Opt::Medium).as_str() {
        "dax" => ScmMedium::Dax,
        "emulated" => ScmMedium::Emulated(delay),
        _ => return None,
    };
    let write_back = WriteBack::named(&config.choice(Opt::ScmWriteBack)).expect("one of its choices");
    Some(ScmOptions { medium, write_back })
}

/// How the heap is changed in place; `None`: it is not.
fn scm_method(config: &Config) -> Result<Option<HomeMethod>, String> {
    let name = config.choice(Opt::ScmMethod);
    let method = HomeMethod::named(&name);
    if method.is_some() && config.choice(Opt::Medium) == "block" {
        return Err(format!("scm-method {name} needs memory that persists: medium dax, or emulated"));
    }
    if method.is_some() && config.is_on(Opt::FlashHeap) {
        return Err(format!(
            "scm-method {name} changes the heap in memory that persists: it cannot have flash-heap"
        ));
    }
    if method == Some(HomeMethod::None) && !config.is_on(Opt::ScmAllowUnsafe) {
        return Err(
            "scm-method none leaves commands done in part by a power cut: it needs scm-allow-unsafe yes"
                .into(),
        );
    }
    Ok(method)
}

pub(super) fn cannot_open(dir: &str, error: &OpenError) -> String {
    let advice = match error {
        OpenError::Corrupt { .. } => format!(
            "\nThe server does not start with damaged data. 'holdfast check {dir}' changes nothing and names what it finds \
             first. If the medium has returned other bytes than were written, see to that; then restore the folder from a \
             backup, and keep the damaged one until all is there again."
        ),
        _ => String::new(),
    };
    format!("cannot open the data folder {dir}: {error}{advice}")
}

pub(super) fn open_store(dir: &str, io: Arc<dyn Io>, options: Options) -> Result<Store, OpenError> {
    if options.heap_below && io.below().is_none() {
        return Err(OpenError::Unusable("flash-heap needs a flash-dir".into()));
    }
    let store = Store::open_on(io, options)?;
    let recovery = store.recovery();
    for note in &recovery.notes {
        log!(Warning, "{note}");
    }
    let Recovery { created, replayed_batches, replayed_bytes, us, .. } = recovery;
    match created {
        true => log!(Notice, "Made a new data folder in {dir}"),
        false => log!(
            Notice,
            "Opened {dir}: {replayed_batches} batches ({replayed_bytes} bytes) replayed in {}.{:03} seconds",
            us / 1_000_000,
            us / 1000 % 1000
        ),
    }
    Ok(store)
}

/// A folder that was served before there was a folder of data in it is served as it was.
pub(super) fn choose_data_folder(config: &Config, current: &Path) {
    if config.is_default(Opt::Dir) && current.join("superblock").is_file() {
        config.store(Opt::Dir, Value::Text(".".into()));
    }
}

/// From now on its name is known from everywhere.
pub(super) fn tell_data_folder(config: &Config) {
    let dir = config.text(Opt::Dir);
    if let Some(dir) = fs::canonicalize(dir).ok().and_then(|path| path.into_os_string().into_string().ok()) {
        config.store(Opt::Dir, Value::Text(dir));
    }
}
