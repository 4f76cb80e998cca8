//! All cells of one writer, and the steps that change them.

use super::cells::{Cell, Kind, Place, Words};
use holdfast_resp::Reply;

/// What a writer's keys hold.
pub struct Model {
    writer: usize,
    /// By kind and place. Of items and entries there are as many as were ever added.
    cells: [Vec<Cell>; Kind::ALL.len()],
    /// The place of the list's first item.
    pub front: u32,
}

/// A command that changes cells.
pub struct Step {
    pub words: Words,
    /// What it may answer; empty: whatever is no error.
    pub replies: Vec<Reply>,
    pub changes: Vec<(Kind, u32, Cell)>,
}

impl Model {
    /// One with so many places of each kind, at which nothing is.
    pub fn new(writer: usize, places: impl Fn(Kind) -> u32) -> Model {
        let len = |kind: Kind| if kind.grows_at_its_end() { 0 } else { places(kind) as usize };
        Model { writer, cells: Kind::ALL.map(|kind| vec![Cell::default(); len(kind)]), front: 0 }
    }

    pub fn at(&self, kind: Kind, place: u32) -> Place {
        Place { writer: self.writer, kind, place }
    }

    /// By place.
    pub fn cells(&self, kind: Kind) -> &[Cell] {
        &self.cells[kind as usize]
    }

    /// What is at a place; behind the last there is nothing.
    pub fn cell(&self, kind: Kind, place: u32) -> Cell {
        self.cells(kind).get(place as usize).copied().unwrap_or_default()
    }

    /// The place behind the last one.
    pub fn end(&self, kind: Kind) -> u32 {
        self.cells(kind).len() as u32
    }

    /// The first place that is not taken away for good.
    pub fn begin(&self, kind: Kind) -> u32 {
        if kind == Kind::Item { self.front } else { 0 }
    }

    /// The command that shows a cell.
    pub fn look(&self, kind: Kind, place: u32) -> Words {
        self.at(kind, place).look(self.front)
    }

    /// Does what a step does.
    pub fn apply(&mut self, step: &Step) {
        for &(kind, place, cell) in &step.changes {
            let cells = &mut self.cells[kind as usize];
            if place as usize >= cells.len() {
                cells.resize(place as usize + 1, Cell::default());
            }
            cells[place as usize] = cell;
            if kind == Kind::Item && cell.version == 0 {
                self.front = place + 1;
            }
        }
    }
}
