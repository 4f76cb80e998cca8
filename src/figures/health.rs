//! What is wrong, in plain words: for probes, and for a person who is looked for at night.

use crate::{
    admin::refusals::Cause,
    server::{Server, replication::Link},
};

/// What a problem stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Some commands are refused or wait.
    Degraded,
    /// No command is executed for now.
    NotReady,
    /// The server must be restarted.
    Failed,
}

impl Severity {
    /// Its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Degraded => "degraded",
            Severity::NotReady => "not-ready",
            Severity::Failed => "failed",
        }
    }
}

/// Something that is wrong.
pub struct Problem {
    /// What it stops.
    pub severity: Severity,
    /// What clients notice.
    pub effect: &'static str,
    /// Why, in figures.
    pub cause: String,
    /// What to do about it.
    pub advice: &'static str,
}

/// All that is wrong now, the worst first. Locks no partition.
pub fn problems(server: &Server) -> Vec<Problem> {
    let refusals = server.refusals.current(&server.store);
    let mut problems: Vec<Problem> =
        refusals.into_iter().map(|(cause, described)| refused(cause, described)).collect();
    if let Some(script) = server.busy.first() {
        let (kind, seconds) =
            (if script.is_eval { "script" } else { "function" }, script.started.elapsed().as_secs());
        problems.push(Problem {
            severity: Severity::NotReady,
            effect: "Clients get BUSY errors.",
            cause: format!("the {kind} {} has been running for {seconds} seconds", script.name),
            advice: "SCRIPT KILL or FUNCTION KILL ends it, unless it has written; else wait for its end.",
        });
    }
    if server.pause.is_on() {
        problems.push(Problem {
            severity: Severity::Degraded,
            effect: "Commands wait.",
            cause: "CLIENT PAUSE was called".into(),
            advice: "CLIENT UNPAUSE lets them go on.",
        });
    }
    problems.extend(of_replica(server));
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    problems
}

/// What is wrong with a replica.
fn of_replica(server: &Server) -> Option<Problem> {
    let status = server.replication.status()?;
    let advice = "The server's log says what the primary does, or answers. REPLICAOF NO ONE ends it.";
    if server.replication.is_loading() {
        return Some(Problem {
            severity: Severity::NotReady,
            effect: "Clients get LOADING errors.",
            cause: format!("the data of the primary {} are being copied", status.primary),
            advice: "Wait until they are here. INFO replication tells how far that is.",
        });
    }
    let cause = format!(
        "the link to the primary {} has been down for {} seconds",
        status.primary,
        status.down.as_secs()
    );
    let effect = "What clients read may be old.";
    (status.link != Link::Connected).then_some(Problem {
        severity: Severity::Degraded,
        effect,
        cause,
        advice,
    })
}

fn refused(cause: Cause, described: String) -> Problem {
    let (severity, effect, advice) = match cause {
        Cause::Failure => (
            Severity::Failed,
            "All writes are refused; reads are served.",
            "See to the medium: the system's log tells what it has reported. Then restart the server. What was acknowledged is \
             on the medium.",
        ),
        Cause::Space => (
            Severity::Degraded,
            "Writes that make data grow are refused; reads and removals are served.",
            "Remove keys, or make room: a larger medium, maxdisk or log-max-size.",
        ),
        Cause::Memory => (
            Severity::Degraded,
            "Writes that make data grow are refused; reads and removals are served.",
            "Remove keys, raise maxmemory, or choose a maxmemory-policy that evicts keys.",
        ),
    };
    Problem { severity, effect, cause: described, advice }
}

/// Whether a problem is as bad as that, told in a line.
pub fn worst(problems: &[Problem], at_least: Severity) -> Option<String> {
    let problem = problems.first().filter(|problem| problem.severity >= at_least)?;
    Some(format!("{} Cause: {}. {}", problem.effect, problem.cause, problem.advice))
}
