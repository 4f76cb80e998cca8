//! The Holdfast server.

mod acceptor;
mod acl;
mod admission;
mod allocator;
mod answer;
mod apply;
mod blocking;
mod call;
mod check;
mod cli;
mod client;
mod command;
mod commands;
mod config;
mod connection;
mod counter;
mod dispatch;
mod document;
mod event_loop;
mod eviction;
mod expiry;
mod extended;
mod gate;
mod glob;
mod handler;
mod keys;
mod keyspace;
mod latency;
mod lcs;
mod limits;
mod listener;
mod log;
mod lookahead;
mod mailbox;
mod migration;
mod monitor;
mod notify;
mod observe;
mod output;
mod post;
mod progress;
mod pubsub;
mod push;
mod random;
mod redact;
mod refusals;
mod scan;
mod script;
mod serve;
mod server;
mod session;
#[cfg(test)]
mod simulated;
mod slowlog;
mod stats;
mod stream;
mod syntax;
mod table;
mod tls;
mod tracking;
mod turn;
mod version;
mod worker;

use std::{
    panic,
    process::{self, ExitCode},
};

fn main() -> ExitCode {
    abort_on_panic();
    allocator::set_up();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match cli::parse(&args) {
        Ok(cli::Request::Print(text)) => {
            print!("{text}");
            Ok(())
        }
        Ok(cli::Request::Serve(config)) => serve::serve(*config),
        Ok(cli::Request::Check(dir)) => check::check(&dir),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast: {error}");
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
