//! Checks of the machine when a node starts, as Cassandra makes them: limits of the system and the clock.
//!
//! Each check gives a warning that names the command which solves the problem. None stops the start: a test machine need not be a
//! server. [`machine`] reads the machine; the checks are a pure function of the result.

pub mod machine;

use helenus_config::Config;

use self::machine::Machine;

/// Open files that a node wants besides one for each connection of a client.
const FILES_WANTED: u64 = 10_000;
/// Bytes that a node takes besides memtables and caches: its program, threads, and what requests hold.
const OTHER_BYTES: u64 = 256 << 20;
/// Seconds since the epoch before which no version of this program was built: 2026-11-01.
const PROGRAM_SECONDS: i64 = 1_793_491_200;
/// Seconds by which the clock may be behind the newest file: file systems and clocks are not exact.
const CLOCK_SLACK_SECONDS: i64 = 60;

/// The problems of the machine for a node with these settings.
pub fn warnings(machine: &Machine, config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    let files_wanted = FILES_WANTED + config.max_connections as u64;
    if let Some(limit) = machine.open_files_max.filter(|limit| *limit < files_wanted) {
        warnings.push(format!(
            "the process may open {limit} files, and {files_wanted} are recommended: run `ulimit -n 1048576` before the \
             start, or set LimitNOFILE=1048576 in the service's unit"
        ));
    }
    let budget = config.memtable_bytes + config.block_cache_bytes + OTHER_BYTES;
    if let Some(limit) = machine.memory_bytes_max.filter(|limit| *limit < budget) {
        warnings.push(format!(
            "the process may use {} MiB of memory, and the settings memtable_bytes and block_cache_bytes with {} MiB for all else \
             come to {} MiB: lower them, or raise the limit with `systemctl set-property SERVICE MemoryMax={}M` or \
             `docker update --memory {}m CONTAINER`",
            limit >> 20,
            OTHER_BYTES >> 20,
            budget >> 20,
            budget >> 20,
            budget >> 20,
        ));
    }
    if machine.swap_bytes > 0 {
        warnings.push(format!(
            "{} MiB of swap are in use or may be used, which makes requests slow at times: run `swapoff -a`, and remove swap from \
             /etc/fstab",
            machine.swap_bytes >> 20
        ));
    }
    let set_clock = "set it, for example with `timedatectl set-ntp true` or `chronyc makestep`";
    if machine.now_seconds < PROGRAM_SECONDS {
        warnings.push(format!(
            "the clock shows a time before this program was written ({} s since 1970): {set_clock}; writes with such a time lose \
             against all others",
            machine.now_seconds
        ));
    } else if let Some((newest, path)) = &machine.newest_file
        && machine.now_seconds + CLOCK_SLACK_SECONDS < *newest
    {
        warnings.push(format!(
            "the clock is {} s behind the newest file of the data directory, {}: {set_clock}; new writes lose against those from \
             before, and data expires late",
            newest - machine.now_seconds,
            path.display()
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn good() -> Machine {
        Machine {
            open_files_max: Some(1 << 20),
            memory_bytes_max: Some(8 << 30),
            swap_bytes: 0,
            now_seconds: PROGRAM_SECONDS + 1_000,
            newest_file: Some((PROGRAM_SECONDS, PathBuf::from("/data/catalog"))),
        }
    }

    fn only(machine: &Machine) -> String {
        match warnings(machine, &Config::default()).as_slice() {
            [only] => only.clone(),
            several => panic!("{several:?}"),
        }
    }

    #[test]
    fn a_good_or_unknown_machine_is_not_remarked() {
        assert_eq!(warnings(&good(), &Config::default()), Vec::<String>::new());
        let unknown = Machine { now_seconds: PROGRAM_SECONDS, ..Machine::default() };
        assert_eq!(warnings(&unknown, &Config::default()), Vec::<String>::new());
    }

    #[test]
    fn each_warning_names_the_command_that_mends_it() {
        for (machine, parts) in [
            (
                Machine { open_files_max: Some(1024), ..good() },
                ["may open 1024 files", "`ulimit -n 1048576`"],
            ),
            (
                Machine { memory_bytes_max: Some(512 << 20), ..good() },
                ["may use 512 MiB", "`docker update --memory 768m CONTAINER`"],
            ),
            (Machine { swap_bytes: 2 << 30, ..good() }, ["2048 MiB of swap", "`swapoff -a`"]),
            (Machine { now_seconds: 1_000, ..good() }, ["before this program", "`timedatectl set-ntp true`"]),
            (
                Machine {
                    newest_file: Some((PROGRAM_SECONDS + 2_000, PathBuf::from("/data/catalog"))),
                    ..good()
                },
                ["1000 s behind the newest file of the data directory, /data/catalog", "`chronyc makestep`"],
            ),
        ] {
            let warning = only(&machine);
            assert!(parts.iter().all(|part| warning.contains(part)), "{warning}");
        }
    }

    #[test]
    fn many_connections_want_many_files() {
        let config = Config { max_connections: 2_000_000, ..Config::default() };
        assert_eq!(warnings(&good(), &config).len(), 1);
    }
}
