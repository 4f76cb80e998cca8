//! The Holdfast server.
//!
//! Its folders use each other in one direction only, from the last of these to the first:
//! [`util`], [`config`], [`command`], [`admin`], [`clients`], [`commit`], [`acl`], [`push`], [`transport`], [`script`],
//! [`server`], [`session`], [`exec`], [`figures`], [`commands`], [`net`], [`metrics`], [`import`], [`replica`], [`cluster`], [`replica_set`], [`takeover`], [`top`]; on top of them the program ([`serve`]).

mod acl;
mod admin;
mod backup;
mod check;
mod cli;
mod clients;
mod cluster;
mod cluster_admin;
mod command;
mod commands;
mod commit;
mod compare;
mod config;
mod document;
mod exec;
mod export;
mod figures;
mod import;
mod manual;
mod metrics;
mod net;
mod ping;
mod push;
mod replica;
mod replica_set;
mod salvage;
mod script;
mod serve;
mod server;
mod session;
#[cfg(test)]
mod simulated;
mod takeover;
mod top;
mod transport;
mod usage;
mod util;

use crate::util::console::{errln, out};
use std::{
    env,
    ffi::OsString,
    panic,
    process::{self, ExitCode},
};

fn main() -> ExitCode {
    abort_on_panic();
    util::allocator::set_up();
    // Each segment of a log is one, whatever is done with it.
    util::open_files::raise_limit(0);
    let args: Result<Vec<String>, _> = env::args_os().skip(1).map(OsString::into_string).collect();
    let args = match args {
        Ok(args) => args,
        Err(arg) => {
            errln!("holdfast: the argument '{}' is not UTF-8", arg.display());
            return ExitCode::FAILURE;
        }
    };
    let result = match cli::parse(&args) {
        Ok(cli::Request::Salvage(request)) => match salvage::run(&request) {
            Ok(salvage::Salvaged::Part) => return ExitCode::from(2),
            result => result.map(drop),
        },
        Ok(cli::Request::Print(text)) => {
            out!("{text}");
            Ok(())
        }
        Ok(cli::Request::Serve(config)) => serve::serve(*config, None),
        Ok(cli::Request::Import(request)) => {
            import::import(*request, import::Means { open: serve::open_to_fill, serve: serve::serve })
        }
        Ok(cli::Request::Check(dir)) if backup::is_folder_of_backups(&dir) => backup::check(&dir),
        Ok(cli::Request::Check(dir)) => check::check(&dir),
        Ok(cli::Request::Backup(request)) => backup::backup(&request),
        Ok(cli::Request::Restore(request)) => backup::restore(&request),
        Ok(cli::Request::Top(request)) => top::top(&request),
        Ok(cli::Request::Ping(request)) => ping::ping(&request),
        Ok(cli::Request::Export(request)) => export::export(&request),
        Ok(cli::Request::ExportMoment(request)) => export::export_moment(&request),
        Ok(cli::Request::Compare(request)) => compare::compare(&request),
        Ok(cli::Request::Cluster(request)) => cluster_admin::run(&request),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            errln!("holdfast: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Has every panic end the process: as in a release, so that tests of a build that could unwind see it, too.
fn abort_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        process::abort();
    }));
}
