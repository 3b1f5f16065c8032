//! The node as a process: start, kill, terminate.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::error::SoakError;

const START_TIMEOUT: Duration = Duration::from_mins(2);
const STOP_TIMEOUT: Duration = Duration::from_mins(1);

/// Small memtables, so that flushes and compactions fall into every few rounds.
const SETTINGS: &str = "\
http_port = 0
memtable_bytes = 8388608
commit_log_segment_bytes = 4194304
commit_log_total_bytes = 33554432
";

/// One run of the program. Dropping it kills the process.
#[derive(Debug)]
pub struct Node {
    process: Child,
    address: String,
    log_path: PathBuf,
}

impl Node {
    /// Starts the node on a free port and returns when it serves CQL.
    pub async fn start(
        binary: &Path,
        data_dir: &Path,
        commit_log: &str,
        shards: u32,
    ) -> Result<Self, SoakError> {
        std::fs::create_dir_all(data_dir).map_err(SoakError::io(data_dir.display().to_string()))?;
        let home = data_dir.parent().unwrap_or(data_dir);
        let (settings, log_path) = (home.join("soak.toml"), home.join("soak-node.log"));
        let written = File::create(&settings).and_then(|mut file| file.write_all(SETTINGS.as_bytes()));
        written.map_err(SoakError::io(settings.display().to_string()))?;
        let log = File::create(&log_path).map_err(SoakError::io(log_path.display().to_string()))?;
        let mut process = Command::new(binary)
            .args(["node", "--listen", "127.0.0.1:0", "--commit-log", commit_log])
            .arg("--shards")
            .arg(shards.to_string())
            .arg("--config")
            .arg(&settings)
            .arg("--data-dir")
            .arg(data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(SoakError::io(binary.display().to_string()))?;
        let address = match process.stdout.take() {
            Some(output) => {
                let mut line = String::new();
                let mut reader = BufReader::new(output);
                let read = tokio::time::timeout(START_TIMEOUT, reader.read_line(&mut line)).await;
                matches!(read, Ok(Ok(_)))
                    .then(|| line.trim().strip_prefix("listening on ").map(str::to_owned))
                    .flatten()
            }
            None => None,
        };
        match address {
            Some(address) => Ok(Self { process, address, log_path }),
            None => Err(SoakError::Refused("the node did not start".to_owned()).with_log(&log_path)),
        }
    }

    /// Where it serves CQL: `ADDRESS:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it writes to standard error.
    pub fn log_path(&self) -> &Path {
        &self.log_path
    }

    /// `kill -9`; an error if it had ended by itself before.
    pub async fn kill(&mut self) -> Result<(), SoakError> {
        if let Ok(Some(status)) = self.process.try_wait() {
            let error = SoakError::Refused(format!("the node ended by itself under load: {status}"));
            return Err(error.with_log(&self.log_path));
        }
        self.process.kill().await.map_err(SoakError::io("kill"))
    }

    /// SIGTERM, which has to drain the node and end it with status 0.
    pub async fn terminate(&mut self) -> Result<(), SoakError> {
        let pid =
            self.process.id().ok_or_else(|| SoakError::Refused("the node ended by itself".to_owned()))?;
        let sent = Command::new("kill").arg(pid.to_string()).status().await;
        sent.map_err(SoakError::io("kill"))?;
        match tokio::time::timeout(STOP_TIMEOUT, self.process.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => {
                Err(SoakError::Refused(format!("SIGTERM ended the node with {status}"))
                    .with_log(&self.log_path))
            }
            Ok(Err(error)) => Err(SoakError::io("wait")(error)),
            Err(_) => Err(SoakError::Refused("SIGTERM did not end the node in time".to_owned())
                .with_log(&self.log_path)),
        }
    }
}
