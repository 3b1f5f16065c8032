//! The priority of threads, where the system knows one for a single thread (Linux).
//!
//! Threads that answer requests have the priority of the process. The others are nicer: threads of one priority share a core evenly, and a
//! request would wait behind a compaction for whole slices of time.

/// The niceness of threads that flush. Writers may have to wait for them, so they never get less than about a quarter of a core that a shard
/// keeps busy; and while writers wait, a shard has little to do.
pub(crate) const FLUSH_NICENESS: i32 = 5;

/// The niceness of threads that compact, or copy and read what no request waits for: about a tenth of a core that a shard keeps busy. A core that is
/// idle is theirs as a whole.
pub(crate) const LOW_NICENESS: i32 = 10;

/// Makes the present thread nicer to others. Without it the work is done as well, so a failure is no error.
pub(crate) fn lower_priority(niceness: i32) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(niceness) {
        tracing::debug!(%error, "the priority of a background thread stays as it is");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}
