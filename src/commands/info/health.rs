//! The section of INFO that tells what is wrong, as the metrics port does.

use super::{STRING, View};
use crate::figures::health::{Severity, problems, worst};
use std::fmt::Write;

pub fn health(view: &View, text: &mut String) {
    let problems = problems(view.server);
    let is_below = |severity| u8::from(worst(&problems, severity).is_none());
    let (healthy, ready) = (is_below(Severity::Failed), is_below(Severity::NotReady));
    write!(text, "healthy:{healthy}\r\nready:{ready}\r\nproblems:{}\r\n", problems.len()).expect(STRING);
    for (nth, problem) in problems.iter().enumerate() {
        let (effect, advice) = (problem.effect, problem.advice);
        // An error of the system is in it, and must not end the line.
        let cause = problem.cause.replace(['\r', '\n'], " ");
        let severity = problem.severity.name();
        for (name, value) in
            [("severity", severity), ("effect", effect), ("cause", &cause), ("advice", advice)]
        {
            write!(text, "problem{nth}_{name}:{value}\r\n").expect(STRING);
        }
    }
}
