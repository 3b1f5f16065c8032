//! What a node reads of its machine at the start: from /proc, /sys and the data directory. Nothing else reads them for checks.
#![allow(clippy::disallowed_methods, reason = "the machine is read here, once, for all checks")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The machine as the process sees it. `None`: unknown, or without a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub open_files_max: Option<u64>,
    /// The least of the machine's memory and the limits of the process's control groups, in bytes.
    pub memory_bytes_max: Option<u64>,
    pub swap_bytes: u64,
    /// Seconds since the epoch.
    pub now_seconds: i64,
    /// The time of the newest file of the data directory, in seconds since the epoch, and its path.
    pub newest_file: Option<(i64, PathBuf)>,
}

/// Limits from here on stand for "none" (control groups of version 1).
const NO_LIMIT_BYTES: u64 = 1 << 60;

impl Machine {
    /// Reads the machine. `data_dir` may be new.
    pub fn read(data_dir: &Path, now_seconds: i64) -> Self {
        Self::read_below(Path::new("/"), data_dir, now_seconds)
    }

    /// As [`Machine::read`], with /proc and /sys below another root.
    fn read_below(root: &Path, data_dir: &Path, now_seconds: i64) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let memory = text("proc/meminfo").unwrap_or_default();
        let limits = [group_limits(root), memory_kib(&memory, "MemTotal:").map(|kib| kib << 10)];
        Self {
            open_files_max: text("proc/self/limits").and_then(|limits| open_files(&limits)),
            memory_bytes_max: limits.into_iter().flatten().min(),
            swap_bytes: memory_kib(&memory, "SwapTotal:").unwrap_or(0) << 10,
            now_seconds,
            newest_file: newest_file(data_dir),
        }
    }
}

/// The soft limit of open files in /proc/self/limits; `None`: unlimited or unreadable.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A number of /proc/meminfo, in KiB.
fn memory_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The least limit of the process's control group and those above it, in bytes, for version 2 and version 1.
fn group_limits(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        // number:controllers:path; in version 2 there are no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (directory, file) = if controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|controller| controller == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let top = root.join(directory);
        // In a container the path may be that outside of it; then the top is the group itself.
        let inside = top.join(path.trim_start_matches('/'));
        for group in inside.ancestors().take_while(|group| group.starts_with(&top)) {
            let limit = fs::read_to_string(group.join(file)).ok().and_then(|text| text.trim().parse().ok());
            least = least.into_iter().chain(limit.filter(|limit| *limit < NO_LIMIT_BYTES)).min();
        }
    }
    least
}

/// The newest of the files that each run of a node writes.
fn newest_file(data_dir: &Path) -> Option<(i64, PathBuf)> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    // With their changes.
    let is_manifest = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"manifest");
    let shards = entries(data_dir).map(|entry| entry.path());
    let manifests = shards.flat_map(|path| entries(&path).filter(is_manifest).map(|entry| entry.path()));
    let own = ["catalog", "generation", "node.json"].map(|name| data_dir.join(name));
    let time_of = |path: PathBuf| {
        let modified = fs::metadata(&path).ok()?.modified().ok()?;
        Some((modified.duration_since(UNIX_EPOCH).ok()?.as_secs() as i64, path))
    };
    own.into_iter().chain(manifests).filter_map(time_of).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> Machine {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let data = root.path().join("data");
        fs::create_dir_all(data.join("shard-0")).unwrap();
        let set_time = |name: &str, seconds: u64| {
            let file = fs::File::create(data.join(name)).unwrap();
            file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        };
        set_time("catalog", 1);
        set_time("shard-0/manifest", 3);
        set_time("shard-0/manifest.changes-7", 4);
        set_time("shard-0/lock", 5);
        let mut machine = Machine::read_below(root.path(), &data, 7);
        let (seconds, newest) = machine.newest_file.take().unwrap();
        assert_eq!(seconds, 4);
        assert!(newest.ends_with("shard-0/manifest.changes-7"));
        machine
    }

    #[test]
    fn limits_are_read_from_the_system() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             100                  100                  processes\n\
                      Max open files            1024                 1048576              files\n";
        let files = [
            ("proc/self/limits", limits),
            ("proc/meminfo", "MemTotal:       2048 kB\nSwapTotal:      1024 kB\n"),
        ];
        let expected = Machine {
            open_files_max: Some(1024),
            memory_bytes_max: Some(2 << 20),
            swap_bytes: 1 << 20,
            now_seconds: 7,
            newest_file: None,
        };
        assert_eq!(machine(&files), expected);
        assert_eq!(machine(&[]), Machine { now_seconds: 7, ..Machine::default() });
    }

    #[test]
    fn the_least_limit_of_all_control_groups_counts() {
        let version_2 = [
            ("proc/meminfo", "MemTotal:       2048 kB\n"),
            ("proc/self/cgroup", "0::/system.slice/helenus.service\n"),
            ("sys/fs/cgroup/system.slice/helenus.service/memory.max", "max\n"),
            ("sys/fs/cgroup/system.slice/memory.max", "1048576\n"),
        ];
        assert_eq!(machine(&version_2).memory_bytes_max, Some(1 << 20));
        let version_1 = [
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1234\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "524288\n"),
        ];
        assert_eq!(machine(&version_1).memory_bytes_max, Some(512 << 10));
        let unlimited = [
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(machine(&unlimited).memory_bytes_max, None);
    }
}
