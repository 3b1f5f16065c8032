//! Where the text of the master keys comes from: a file, or a command.
//!
//! A command is bounded: in time, and in what it prints. One that exceeds a bound is ended with all processes of its group, and is waited for, so
//! that no zombie is left. What it wrote to its standard error is shown with the error.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use zeroize::Zeroizing;

use crate::error::KeyError;

/// The longest text of master keys.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// What is kept of the standard error of a command: its beginning.
const SAID_BYTES_MAX: usize = 1 << 10;
/// How often it is looked whether a command has ended that has closed its outputs.
const END_PERIOD: Duration = Duration::from_millis(5);
/// How long the standard error of a killed command is waited for. A process that has left its group may keep it open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Where the text of the master keys comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    /// The standard output of a command of the shell.
    Command {
        command: String,
        /// The time that it may take.
        limit: Duration,
    },
}

impl KeySource {
    /// The text of the keys.
    #[allow(clippy::disallowed_methods, reason = "keys are read before there is a disk that they are for")]
    pub(crate) fn text(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        match self {
            Self::File(path) => std::fs::read(path)
                .map(Zeroizing::new)
                .map_err(|source| KeyError::File { path: path.clone(), source }),
            Self::Command { command, limit } => run(command, *limit),
        }
    }

    /// What is unsafe about it, if anything is: a file of keys that others may read.
    #[allow(clippy::disallowed_methods, reason = "keys are read before there is a disk that they are for")]
    pub fn warning(&self) -> Option<String> {
        use std::os::unix::fs::PermissionsExt;
        let Self::File(path) = self else { return None };
        let mode = std::fs::metadata(path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then(|| {
            format!(
                "others may read the file of master keys {} (mode {:o}): chmod 600",
                path.display(),
                mode & 0o777
            )
        })
    }
}

/// What the threads that read the outputs of a command tell.
enum Told {
    Output(io::Result<Zeroizing<Vec<u8>>>),
    Said(Vec<u8>),
}

/// A command that runs. It and all processes of its group are ended when it is dropped.
struct Running {
    child: Child,
    is_over: bool,
}

impl Running {
    fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        self.is_over |= status.is_some();
        Ok(status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The group has the number of its first process, which nobody else can have before it is waited for.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // Also if it has left the group. A killed process ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is left of a time limit.
fn left(started: Instant, limit: Duration) -> Duration {
    limit.saturating_sub(started.elapsed())
}

/// Runs a command of the shell and returns what it prints.
fn run(command: &str, limit: Duration) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let failed = |source| KeyError::Command { command: command.to_owned(), source };
    let started = Instant::now();
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = shell.process_group(0).spawn().map_err(failed)?;
    let mut running = Running { child, is_over: false };
    let (tell, told) = channel();
    start_readers(&mut running.child, &tell).map_err(failed)?;
    drop(tell);
    let mut output = None;
    let mut said = String::new();
    let mut is_late = false;
    while !is_late {
        match told.recv_timeout(left(started, limit)) {
            Ok(Told::Output(text)) => {
                let text = text.map_err(failed)?;
                if text.len() > OUTPUT_BYTES_MAX {
                    let bytes_max = OUTPUT_BYTES_MAX;
                    return Err(KeyError::CommandOutput { command: command.to_owned(), bytes_max });
                }
                output = Some(text);
            }
            Ok(Told::Said(text)) => said = words(&text),
            // Both have ended.
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => is_late = true,
        }
    }
    // While it is not waited for, its number and that of its group are nobody else's.
    let status = loop {
        if is_late {
            break None;
        }
        match running.status().map_err(failed)? {
            Some(status) => break Some(status),
            None if left(started, limit).is_zero() => break None,
            // Nothing tells of the end of a process that has closed its outputs.
            None => std::thread::sleep(END_PERIOD),
        }
    };
    let command = command.to_owned();
    let Some(status) = status else {
        drop(running);
        let said = if said.is_empty() { last_said(&told) } else { said };
        return Err(KeyError::CommandTime { command, limit, said });
    };
    match output {
        Some(output) if status.success() => {
            if !said.is_empty() {
                // What it said may have a secret in it.
                tracing::warn!(bytes = said.len(), "the command for master keys wrote to its standard error");
            }
            Ok(output)
        }
        _ => Err(KeyError::CommandFailed { command, status: status.to_string(), said }),
    }
}

/// Starts the threads that read the outputs. They end when the outputs are closed, at the latest.
fn start_readers(child: &mut Child, tell: &Sender<Told>) -> io::Result<()> {
    let thread = || std::thread::Builder::new().name("key-command".to_owned());
    if let Some(output) = child.stdout.take() {
        let tell = tell.clone();
        thread().spawn(move || {
            // Room for all of it, so that no part of a key stays where it was before it grew.
            let mut text = Zeroizing::new(Vec::with_capacity(OUTPUT_BYTES_MAX + 64));
            let read = output.take(OUTPUT_BYTES_MAX as u64 + 1).read_to_end(&mut text);
            // The receiver is gone when the time was up.
            let _ = tell.send(Told::Output(read.map(|_| text)));
        })?;
    }
    if let Some(mut error) = child.stderr.take() {
        let tell = tell.clone();
        thread().spawn(move || {
            let mut text = Vec::new();
            // What cannot be read is not shown; the rest is read so that the command does not wait.
            let _ = error.by_ref().take(SAID_BYTES_MAX as u64).read_to_end(&mut text);
            let _ = io::copy(&mut error, &mut io::sink());
            let _ = tell.send(Told::Said(text));
        })?;
    }
    Ok(())
}

/// What a command has written, as a text for a message.
fn words(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim().to_owned()
}

/// What a command that was ended has written to its standard error.
fn last_said(told: &Receiver<Told>) -> String {
    while let Ok(told) = told.recv_timeout(LAST_WORDS) {
        if let Told::Said(text) = told {
            return words(&text);
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn text(command: &str, limit: Duration) -> Result<String, KeyError> {
        let text = KeySource::Command { command: command.to_owned(), limit }.text()?;
        Ok(String::from_utf8(text.to_vec()).unwrap())
    }

    fn refusal(command: &str, limit: Duration) -> String {
        text(command, limit).unwrap_err().to_string()
    }

    /// Whether a process is there, be it as a zombie.
    fn is_there(pid: &str) -> bool {
        std::path::Path::new("/proc").join(pid.trim()).exists()
    }

    #[test]
    fn a_file_is_read_and_named_in_errors_and_warnings() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        let source = KeySource::File(path.clone());
        assert!(source.text().unwrap_err().to_string().contains(path.to_str().unwrap()));
        std::fs::write(&path, "text").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(source.warning().unwrap().contains("644"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(source.warning(), None);
        assert_eq!(**source.text().unwrap(), *b"text");
    }

    #[test]
    fn a_command_gives_what_it_prints_and_its_errors_are_shown() {
        assert_eq!(text("echo keys; echo note >&2", LONG).unwrap(), "keys\n");
        assert_eq!(
            refusal("echo no such secret >&2; exit 3", LONG),
            "the command for master keys \"echo no such secret >&2; exit 3\" has failed: exit status: 3; it said: \"no such secret\""
        );
        let said = refusal("yes complaint | head -c 1000000 >&2; exit 1", LONG);
        assert!(said.contains("complaint") && said.len() < 2 * SAID_BYTES_MAX, "{said}");
        assert!(refusal("kill -9 $$", LONG).contains("signal: 9"));
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_all_its_processes() {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        let limit = Duration::from_millis(300);
        for hanging in
            ["sleep 600", "sleep 600 & wait", "exec >&- 2>&-; sleep 600", "sleep 600 &", "trap '' TERM; yes"]
        {
            let command = format!("echo waiting >&2; echo $$ >> {0}; {hanging}", pids.display());
            let started = Instant::now();
            let said = refusal(&command, limit);
            assert!(started.elapsed() < LONG / 2, "{hanging}");
            // Where it prints without end, that ends it.
            let reason = if hanging.ends_with("yes") {
                "more than"
            } else {
                "longer than 300 ms; it said: \"waiting\""
            };
            assert!(said.contains(reason), "{hanging}: {said}");
        }
        let pids = std::fs::read_to_string(pids).unwrap();
        assert_eq!(pids.lines().count(), 5);
        assert!(pids.lines().all(|pid| !is_there(pid)), "no process is left, and no zombie");
    }

    #[test]
    fn an_output_without_end_is_refused() {
        let said = refusal("yes", LONG);
        assert!(said.contains("was ended: it printed more than 262144 bytes"), "{said}");
    }
}
