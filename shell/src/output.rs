//! Where results go: standard output, or the file of CAPTURE, and how they are laid out.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, IsTerminal, Write},
    path::{Path, PathBuf},
};

use crate::error::ShellError;

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A table.
    Aligned,
    /// Each column on a line of its own.
    Expanded,
    /// An object a line.
    Json,
}

/// The sink of results.
#[derive(Debug)]
pub struct Output {
    capture: Option<(PathBuf, BufWriter<File>)>,
    is_terminal: bool,
    in_color: bool,
}

impl Output {
    /// Standard output; colours only if it is a terminal and they are wanted.
    pub fn new(wants_color: bool) -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self { capture: None, is_terminal, in_color: wants_color && is_terminal }
    }

    /// Whether a person reads along.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal && self.capture.is_none()
    }

    /// Whether to use colours.
    pub fn in_color(&self) -> bool {
        self.in_color && self.capture.is_none()
    }

    /// Appends lines.
    pub fn lines<S: AsRef<str>>(&mut self, lines: &[S]) -> Result<(), ShellError> {
        match &mut self.capture {
            Some((path, file)) => {
                write_lines(file, lines).map_err(|source| ShellError::File { path: path.clone(), source })
            }
            None => Ok(write_lines(&mut BufWriter::new(io::stdout().lock()), lines)?),
        }
    }

    /// Appends a line.
    pub fn line(&mut self, line: &str) -> Result<(), ShellError> {
        self.lines(&[line])
    }

    /// Appends results to a file from now on.
    pub fn start_capture(&mut self, path: &Path) -> Result<(), ShellError> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|source| ShellError::File { path: path.to_owned(), source })?;
        self.capture = Some((path.to_owned(), BufWriter::new(file)));
        Ok(())
    }

    /// Goes back to standard output. Returns whether there was a capture.
    pub fn stop_capture(&mut self) -> bool {
        self.capture.take().is_some()
    }

    /// The file of the current capture.
    pub fn captured_to(&self) -> Option<&Path> {
        self.capture.as_ref().map(|(path, _)| path.as_path())
    }
}

fn write_lines<S: AsRef<str>>(writer: &mut impl Write, lines: &[S]) -> io::Result<()> {
    for line in lines {
        writer.write_all(line.as_ref().as_bytes())?;
        writer.write_all(b"\n")?;
    }
    // Flushed each time, so that a capture is complete whenever it is read.
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_is_appended_to_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        let mut output = Output::new(false);
        for word in ["one", "two"] {
            output.start_capture(&path).unwrap();
            output.line(word).unwrap();
            assert_eq!(output.captured_to(), Some(path.as_path()));
            assert!(output.stop_capture());
        }
        assert!(!output.stop_capture());
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }
}
