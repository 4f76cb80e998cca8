//! The heap's file.

use std::sync::Arc;

use holdfast_io::{File, Result};

/// The file that holds the pages of the last complete checkpoint.
pub(crate) struct PageFile {
    file: Arc<dyn File>,
}

impl PageFile {
    pub(crate) fn new(file: Arc<dyn File>) -> PageFile {
        PageFile { file }
    }

    pub(crate) fn name(&self) -> &str {
        self.file.name()
    }

    /// Reads a page of the last complete checkpoint.
    pub(crate) fn read_page(&self, extent: u32, page: usize, _bytes: &mut [u8]) -> Result<()> {
        unreachable!("page {page} of extent {extent} is not in the file")
    }
}
