//! The number of a node's run, by which others distinguish the run from earlier ones.
//!
//! Invariant: a run has a higher number than every earlier run of its data directory, even if the clock has gone back
//! in between: otherwise no other node would believe that it is alive. So the number is stored before any other node
//! learns it, as in Cassandra.

use bytes::Bytes;
use helenus_query::error::{RequestError, Result};
use serde::{Deserialize, Serialize};

use helenus_node_files::small_files::NodeFiles;

/// The file in the data directory.
pub const FILE: &str = "generation";
const FORMAT: u32 = 1;
/// Numbers left free for a run, which takes a higher number each time it was declared down although it ran.
const ROOM: u64 = 1_000_000;

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    format: u32,
    generation: u64,
}

/// Returns and stores the number of the run that begins at this time, in microseconds since the epoch.
pub async fn begin(files: &NodeFiles, now_micros: i64) -> Result<u64> {
    let failed = |error: &dyn std::fmt::Display| RequestError::Server(format!("{FILE}: {error}"));
    let last = match files.load(FILE).await.map_err(|error| failed(&error))? {
        None => 0,
        Some(bytes) => {
            let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
            if stored.format != FORMAT {
                return Err(failed(&format_args!("format {} is unknown", stored.format)));
            }
            stored.generation
        }
    };
    // A clock before 1970 counts as 1970: the stored number is higher.
    let now = u64::try_from(now_micros).unwrap_or(0);
    let generation = now.max(last.saturating_add(ROOM));
    if generation > now {
        tracing::warn!("the clock is behind the time of the last start of this node");
    }
    let stored = Stored { format: FORMAT, generation };
    let bytes = serde_json::to_vec(&stored).map_err(|error| failed(&error))?;
    files.replace(FILE, Bytes::from(bytes)).await.map_err(|error| failed(&error))?;
    Ok(generation)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use helenus_engine::io::SimulatedDisk;

    use super::*;

    #[test]
    fn generations_grow_whatever_the_clock_says() {
        let disk = SimulatedDisk::new(1);
        futures::executor::block_on(async {
            let files = NodeFiles::open(Arc::new(disk.clone()), PathBuf::from("/node")).await.unwrap();
            let mut last = 0;
            for now_micros in [5_000_000, 5_000_001, 3_000_000, -1, i64::MAX, 0] {
                let generation = begin(&files, now_micros).await.unwrap();
                assert!(generation > last && generation >= now_micros.max(0) as u64);
                last = generation;
            }
            files.replace(FILE, Bytes::from_static(b"{")).await.unwrap();
            assert!(begin(&files, 1).await.unwrap_err().to_string().contains("generation"));
        });
    }
}
