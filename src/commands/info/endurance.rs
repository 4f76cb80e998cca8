//! The section of INFO that tells what is written to the medium: the figures of ENDURANCE STATS.

use super::{STRING, View};
use crate::figures::endurance::{Endurance, Figure};
use std::fmt::Write;

pub fn endurance(view: &View, text: &mut String) {
    for (name, figure) in Endurance::new(view.server, view.stats()).figures() {
        match figure {
            Figure::Int(value) => write!(text, "endurance_{name}:{value}\r\n"),
            Figure::Real(value) => write!(text, "endurance_{name}:{value:.2}\r\n"),
            Figure::Text(value) => write!(text, "endurance_{name}:{value}\r\n"),
        }
        .expect(STRING);
    }
}
