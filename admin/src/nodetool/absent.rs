//! What Cassandra's nodetool has and Helenus has not: verbs and options, with the reason or what to do instead.
//!
//! Invariant: an option is obeyed, asks for what happens anyway, or is refused. None is taken and ignored.

use std::ffi::OsString;

use super::error::NodetoolError;
use crate::ask::AskError;
use crate::request::Absence;

/// Verbs with what to say of them.
const VERBS: [(&[&str], &str); 10] = [
    (&["abortbootstrap"], "`helenus admin abortjoin HOST_ID` takes the join of a member back"),
    (&["compactionhistory"], "nothing is kept of past compactions; `/metrics` counts them"),
    (
        &["disablebackup", "enablebackup", "statusbackup"],
        "the setting incremental_backups is read at the start of a node",
    ),
    (
        &["disablegossip", "enablegossip", "statusgossip"],
        "members always watch each other; `drain` takes a node out",
    ),
    (&["getseeds", "reloadseeds"], "the setting seeds is used at the start of a node only"),
    (
        &["join", "bootstrap"],
        "a node joins by itself when it is started with seeds, and goes on when it is started again",
    ),
    (&["move"], "tokens never move"),
    (
        &["reloadlocalschema", "resetlocalschema"],
        "the members agree on one schema, which a node cannot lose alone",
    ),
    (
        &["repair_admin"],
        "there are no incremental repairs; `helenus admin repair --status` shows repairs and `--cancel` ends them",
    ),
    (&["stopdaemon"], "SIGTERM stops a node; `drain` flushes it before"),
];

/// The other verbs of Cassandra's nodetool.
const OTHERS: &str = "abortdecommission abortmove abortremovenode accord altertopology autorepairstatus cidrfilteringstats clientstats cms \
     compressiondictionary consensus_admin datapaths disablehintsfordc disableoldprotocolversions \
     enablehintsfordc enableoldprotocolversions failuredetector forcecompact gcstats \
     getauthcacheconfig getautorepairconfig getbatchlogreplaythrottle getcidrgroupsofip getcolumnindexsize \
     getcompactionthreshold getconcurrency getconcurrentcompactors getconcurrentviewbuilders getdefaultrf \
     getinterdcstreamthroughput getmaxhintwindow getsnapshotthrottle getsstables gettimeout history invalidatecidrpermissionscache \
     invalidatecountercache invalidatecredentialscache invalidatejmxpermissionscache invalidatekeycache \
     invalidatenetworkpermissionscache invalidatepermissionscache invalidaterolescache invalidaterowcache \
     listpendinghints rangekeysample recompress_sstables refreshsizeestimates reloadcidrgroupscache \
     reloadtriggers relocatesstables replaybatchlog setauthcacheconfig setautorepairconfig \
     setbatchlogreplaythrottle setcachecapacity setcachekeystosave setcolumnindexsize setcompactionthreshold setconcurrency \
     setconcurrentcompactors setconcurrentviewbuilders setdefaultrf setinterdcstreamthroughput setmaxhintwindow setsnapshotthrottle \
     settimeout sjk sstablerepairedset";

/// Options of verbs with what to say of them.
const OPTIONS: [(&[&str], &[&str], &str); 29] = [
    (
        &["cleanup", "garbagecollect", "scrub", "upgradesstables", "compact"],
        &["-j", "--jobs"],
        "how much a node works on at a time cannot be chosen",
    ),
    (&["compact"], &["-s", "--split-output"], "all files of a table on a shard become one"),
    (
        &["compact"],
        &["-st", "--start-token", "-et", "--end-token", "--partition"],
        "whole tables are compacted",
    ),
    (&["compact", "garbagecollect"], &["--user-defined"], "whole tables are compacted, not files"),
    (&["stop"], &["-id", "--compaction-id"], "compactions have no ids"),
    (&["compactionstats"], &["-V", "--vtable"], "there is no virtual table of compactions"),
    (&["upgradesstables"], &["-t", "--max-timestamp"], "all files of former formats are rewritten"),
    (
        &["tablestats", "cfstats", "tpstats"],
        &["-F", "--format"],
        "the same verb of `helenus admin` has --json",
    ),
    (
        &["tablestats", "cfstats"],
        &["-s", "--sort", "-t", "--top", "-l", "--sstable-location-check"],
        "tables are shown in the order of their names, with what is known of them",
    ),
    (&["tpstats", "version"], &["-v", "--verbose"], "no more is known"),
    (&["toppartitions", "profileload"], &["-s"], "what is kept of each table has one size"),
    (
        &["toppartitions", "profileload"],
        &["-i", "--interval", "-t", "--stop", "-l", "--list"],
        "requests are counted all the time: nothing is begun or ended",
    ),
    (&["listsnapshots"], &["-e", "--ephemeral"], "there are no ephemeral snapshots"),
    (&["snapshot"], &["-sf", "--skip-flush"], "a snapshot always has what is in memory"),
    (&["snapshot"], &["--ttl"], "such a snapshot stays until it is removed"),
    (&["clearsnapshot"], &["--older-than", "--older-than-timestamp"], "snapshots are removed by their name"),
    (
        &["getstreamthroughput", "setstreamthroughput"],
        &["-e", "--entire-sstable-throughput"],
        "rows are streamed, not files",
    ),
    (
        &["repair"],
        &["-seq", "--sequential", "-dcpar", "--dc-parallel"],
        "all replicas of a range are read at the same time",
    ),
    (&["repair"], &["-hosts", "--in-hosts"], "replicas are chosen by data center only (-dc)"),
    (&["repair"], &["-prv", "--preview", "-vd", "--validate"], "a repair writes what it finds"),
    (
        &["repair"],
        &["-tr", "--trace"],
        "repairs are not traced; `helenus admin repair --status` shows their progress",
    ),
    (&["repair"], &["-pl", "--pull"], "a repair makes all replicas equal"),
    (
        &["repair"],
        &["-os", "--optimise-streams", "--include-gcgs-expired-tombstones"],
        "there is one way to repair",
    ),
    (&["repair"], &["-paxos-only", "--paxos-only"], "a repair is of rows, not of transactions"),
    (
        &["rebuild"],
        &["-ts", "--tokens", "-s", "--sources", "--exclude-local-dc"],
        "all ranges of the node are rebuilt from the replicas in the data center that is named",
    ),
    (
        &["enableauditlog", "enablefullquerylog"],
        &["--archive-command", "--max-archive-retries"],
        "files are not archived: the oldest are removed when there are too many",
    ),
    (
        &["verify"],
        &["-c", "--check-version", "-d", "--dfp", "-q", "--quick", "-r", "--rsc", "-t", "--check-tokens"],
        "files are read as a whole and those that are damaged are named",
    ),
    (
        &["scrub"],
        &["-n", "--no-validate", "-r", "--reinsert-overflowed-ttl"],
        "files are read as a whole, and those that can be read are taken into use",
    ),
    (
        &["import"],
        &[
            "-l",
            "--keep-level",
            "-r",
            "--keep-repaired",
            "-v",
            "--no-verify",
            "-q",
            "--quick",
            "-e",
            "--extended-verify",
            "-niv",
            "--no-index-validation",
            "-ri",
            "--require-index-components",
        ],
        "the rows of the files are read and written to their replicas",
    ),
];

/// A verb that there is not.
pub(super) fn verb(verb: &str) -> NodetoolError {
    if verb == "refresh" {
        return AskError::from(Absence::Refresh).into();
    }
    if let Some((_, instead)) = VERBS.iter().find(|(verbs, _)| verbs.contains(&verb)) {
        return NodetoolError::Usage(format!("Helenus has no {verb}: {instead}"));
    }
    if OTHERS.split_ascii_whitespace().any(|other| other == verb) {
        return NodetoolError::Usage(format!("Helenus has nothing that corresponds to {verb}"));
    }
    NodetoolError::Usage(format!("there is no verb {verb}; `helenus nodetool help` lists them"))
}

/// Refuses the options of a verb that cannot be obeyed, among the words behind it.
pub(super) fn options(verb: &str, words: &[OsString]) -> Result<(), NodetoolError> {
    let of_verb = || OPTIONS.iter().filter(|(verbs, ..)| verbs.contains(&verb));
    for word in words.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--") {
        let option = word.split('=').next().unwrap_or(&word);
        if let Some((.., reason)) = of_verb().find(|(_, options, _)| options.contains(&option)) {
            return Err(NodetoolError::Usage(format!("{verb} {option} cannot be obeyed: {reason}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_that_are_not_there_end_with_a_sentence() {
        assert_eq!(verb("move").to_string(), "Helenus has no move: tokens never move");
        assert_eq!(verb("refresh").status(), 1);
        assert_eq!(verb("gcstats").to_string(), "Helenus has nothing that corresponds to gcstats");
        assert_eq!(verb("stauts").to_string(), "there is no verb stauts; `helenus nodetool help` lists them");
    }

    #[test]
    fn options_are_refused_by_verb() {
        let check =
            |verb, words: &[&str]| options(verb, &words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(
            check("repair", &["-pr", "-seq", "ks"]).unwrap_err().to_string(),
            "repair -seq cannot be obeyed: all replicas of a range are read at the same time"
        );
        assert!(check("tablestats", &["--format=json"]).is_err());
        assert!(check("cleanup", &["-j", "2"]).is_err());
        assert!(check("repair", &["-pr", "--", "-seq"]).is_ok());
        assert!(check("flush", &["repair", "compact"]).is_ok());
    }
}
