//! Words become requests, and answers become what nodetool prints.

use std::cell::RefCell;
use std::collections::BTreeMap;

use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::ask::AskError;
use crate::command::AdminCommand;
use crate::members::samples::{cluster, member, token};
use crate::reports::{
    CompactionsReport, NodeReport, RingReport, RunningCompactionReport, RuntimeSettings, SnapshotReport,
};

/// A node with answers, which notes what it is asked.
#[derive(Default)]
struct Fake {
    answers: BTreeMap<&'static str, Value>,
    asked: RefCell<Vec<String>>,
}

impl Ask for Fake {
    fn ask(&self, command: &AdminCommand) -> Result<Value, AskError> {
        let call = command.call()?.to_string();
        let answer = self.answers.get(call.as_str()).cloned();
        self.asked.borrow_mut().push(call);
        Ok(answer.unwrap_or_else(|| json!({ "status": "done" })))
    }
}

fn value_of(report: &impl serde::Serialize) -> Value {
    serde_json::to_value(report).unwrap()
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn line(arguments: &[&str]) -> Line {
    match read(&words(arguments)) {
        Ok(line) => line,
        Err(NoLine::Words(error)) => panic!("{arguments:?}: {error}"),
        Err(NoLine::Refused(error)) => panic!("{arguments:?}: {error}"),
    }
}

/// The requests of a verb, and what is printed.
fn executed(fake: &Fake, arguments: &[&str]) -> (Vec<String>, String) {
    fake.asked.take();
    let text = line(arguments).execute(fake).unwrap();
    (fake.asked.take(), text)
}

/// The requests of a verb that prints nothing.
fn calls(arguments: &[&str]) -> Vec<String> {
    let (asked, text) = executed(&Fake::default(), arguments);
    assert_eq!(text, "", "{arguments:?}");
    asked
}

/// Why words are refused, with the exit status.
fn refusal(fake: &Fake, arguments: &[&str]) -> (u8, String) {
    let error = match read(&words(arguments)) {
        Ok(line) => line.execute(fake).unwrap_err(),
        Err(NoLine::Refused(error)) => error,
        Err(NoLine::Words(error)) => return (1, error.to_string()),
    };
    (error.status(), error.to_string())
}

#[test]
fn verbs_that_change_something_become_requests() {
    for (arguments, expected) in [
        (&["flush"] as &[&str], &["POST /admin/flush"] as &[&str]),
        (
            &["flush", "ks", "t", "u"],
            &["POST /admin/flush?keyspace=ks&table=t", "POST /admin/flush?keyspace=ks&table=u"],
        ),
        (&["compact", "ks"], &["POST /admin/compact?keyspace=ks"]),
        (&["compact", "--", "ks", "t"], &["POST /admin/compact?keyspace=ks&table=t"]),
        (&["stop"], &["POST /admin/stop"]),
        (
            &["setcompactionthroughput", "16"],
            &["POST /admin/setcompactionthroughput?mebibytes_per_second=16"],
        ),
        (&["enableautocompaction"], &["POST /admin/enableautocompaction"]),
        (&["disableautocompaction", "ks", "t"], &["POST /admin/disableautocompaction?keyspace=ks&table=t"]),
        (&["upgradesstables", "-a", "ks"], &["POST /admin/upgradesstables?keyspace=ks&all=true"]),
        (
            &["rebuild_index", "--", "ks", "t", "i", "ks.t.j"],
            &["POST /admin/rebuild_index?keyspace=ks&table=t&indexes=i%2Cks%2Et%2Ej"],
        ),
        (
            &["garbagecollect", "-g", "cell", "ks", "t", "u"],
            &["POST /admin/garbagecollect?keyspace=ks&tables=t%2Cu&granularity=CELL"],
        ),
        (&["drain"], &["POST /admin/drain"]),
        (&["reloadssl"], &["POST /admin/reloadssl"]),
        (
            &["updatecidrgroup", "office", "10.1.0.0/16", "fd00::/8"],
            &["POST /admin/updatecidrgroup?group=office&networks=10%2E1%2E0%2E0%2F16%2Cfd00%3A%3A%2F8"],
        ),
        (&["dropcidrgroup", "office"], &["POST /admin/dropcidrgroup?group=office"]),
        (&["cleanup", "ks"], &["POST /admin/cleanup?keyspace=ks"]),
        (&["rebuild", "-ks", "ks", "dc2"], &["POST /admin/rebuild?data_center=dc2&keyspace=ks"]),
        (&["decommission"], &["POST /admin/decommission"]),
        (&["decommission", "-f"], &["POST /admin/decommission?force=true"]),
        (
            &["removenode", "7f3c1c5e-0000-4000-8000-000000000001"],
            &["POST /admin/removenode?host_id=7f3c1c5e%2D0000%2D4000%2D8000%2D000000000001"],
        ),
        (&["assassinate", "10.0.0.2"], &["POST /admin/assassinate?member=10%2E0%2E0%2E2"]),
        (
            &["import", "-p", "ks", "t", "/a", "/b"],
            &[
                "POST /admin/import?keyspace=ks&table=t&directory=%2Fa",
                "POST /admin/import?keyspace=ks&table=t&directory=%2Fb",
            ],
        ),
        (
            &["setstreamthroughput", "200"],
            &["POST /admin/settings?stream_throughput_bytes_per_second=25000000"],
        ),
        (
            &["setstreamthroughput", "-m", "24"],
            &["POST /admin/settings?stream_throughput_bytes_per_second=25165824"],
        ),
        (
            &["sethintedhandoffthrottlekb", "1024"],
            &["POST /admin/settings?hinted_handoff_throttle_bytes_per_second=1048576"],
        ),
        (&["enablebinary"], &["POST /admin/settings?native_transport=true"]),
        (&["disablebinary"], &["POST /admin/settings?native_transport=false"]),
        (&["enablehandoff"], &["POST /admin/settings?hinted_handoff=true"]),
        (&["disablehandoff"], &["POST /admin/settings?hinted_handoff=false"]),
        (&["pausehandoff"], &["POST /admin/settings?hint_delivery=false"]),
        (&["resumehandoff"], &["POST /admin/settings?hint_delivery=true"]),
        (&["settraceprobability", "0.5"], &["POST /admin/settings?trace_probability=0%2E5"]),
        (&["setlogginglevel"], &["POST /admin/settings?log_level=reset"]),
        (
            &["setlogginglevel", "helenus", "ALL"],
            &["POST /admin/settings?log_level=trace&log_target=helenus"],
        ),
        (&["setlogginglevel", "ROOT", "warn"], &["POST /admin/settings?log_level=warn"]),
        (&["truncatehints"], &["POST /admin/truncatehints"]),
        (&["truncatehints", "10.0.0.2"], &["POST /admin/truncatehints?member=10%2E0%2E0%2E2"]),
    ] {
        assert_eq!(calls(arguments), expected, "{arguments:?}");
    }
}

#[test]
fn a_repair_is_of_the_ranges_of_the_node() {
    let report = json!({
        "id": 3, "keyspace": null, "tables": [], "ranges": "", "data_centers": [], "is_automatic": false,
        "state": "done", "began_at": "b", "ended_at": "e", "percent": 100.0, "seconds_left": null,
        "current": "", "differing_parts": 0, "compared_bytes": 0, "received_bytes": 0, "sent_bytes": 0,
        "written_mutations": 0, "failures": [], "failure_count": 0
    });
    for (arguments, call) in [
        (&["repair"] as &[&str], "POST /admin/repair?ranges=node"),
        (
            &["repair", "-full", "-j", "1", "-iuk", "-skip-paxos", "ks"],
            "POST /admin/repair?keyspace=ks&ranges=node",
        ),
        (&["repair", "-pr", "ks", "t", "u"], "POST /admin/repair?keyspace=ks&tables=t%2Cu&ranges=primary"),
        (&["repair", "-st", "-5", "-et", "7"], "POST /admin/repair?start_token=%2D5&end_token=7"),
        (&["repair", "-dc", "a", "-dc", "b"], "POST /admin/repair?ranges=node&data_centers=a%2Cb"),
        (&["repair", "-local", "-force"], "POST /admin/repair?ranges=node&local=true&force=true"),
    ] {
        let fake = Fake { answers: BTreeMap::from([(call, report.clone())]), ..Fake::default() };
        let (asked, text) = executed(&fake, arguments);
        assert_eq!(asked, [call]);
        assert_eq!(text, "[e] Repair completed successfully\n[e] Repair command #3 finished\n");
    }
}

#[test]
fn snapshots_are_taken_and_removed() {
    let named = json!({ "status": "done", "name": "n" });
    for (arguments, call, scope) in [
        (&["snapshot"] as &[&str], "POST /admin/snapshot", "all keyspaces"),
        (&["snapshot", "-t", "n", "a", "b"], "POST /admin/snapshot?keyspace=a%2Cb&name=n", "a, b"),
        (&["snapshot", "-cf", "t", "-t", "n", "a"], "POST /admin/snapshot?keyspace=a&table=t&name=n", "a"),
        (&["snapshot", "-kt", "a.t,b.u"], "POST /admin/snapshot?tables=a%2Et%2Cb%2Eu", "a.t,b.u"),
    ] {
        let fake = Fake { answers: BTreeMap::from([(call, named.clone())]), ..Fake::default() };
        let (asked, text) = executed(&fake, arguments);
        assert_eq!(asked, [call]);
        let expected = format!(
            "Requested creating snapshot(s) for [{scope}] with snapshot name [n] and options {{skipFlush=false}}\nSnapshot directory: n\n"
        );
        assert_eq!(text, expected);
    }
    let snapshot = |name: &str| SnapshotReport { name: name.to_owned(), ..SnapshotReport::default() };
    let snapshots = json!({ "snapshots": [snapshot("n"), snapshot("m"), snapshot("n")] });
    let fake = Fake { answers: BTreeMap::from([("GET /admin/listsnapshots", snapshots)]), ..Fake::default() };
    let (asked, text) = executed(&fake, &["clearsnapshot", "-t", "n"]);
    assert_eq!(asked, ["POST /admin/clear_snapshot?name=n"]);
    assert_eq!(text, "Requested clearing snapshot(s) for [all keyspaces] with snapshot name [n]\n");
    let (asked, text) = executed(&fake, &["clearsnapshot", "--all"]);
    let expected = [
        "GET /admin/listsnapshots",
        "POST /admin/clear_snapshot?name=m",
        "POST /admin/clear_snapshot?name=n",
    ];
    assert_eq!(asked, expected);
    assert_eq!(text, "Requested clearing snapshot(s) for [all keyspaces] with [all snapshots]\n");
    for refused in [
        &["clearsnapshot"] as &[&str],
        &["clearsnapshot", "-t", "n", "--all"],
        &["clearsnapshot", "-t", "n", "ks"],
    ] {
        assert_eq!(refusal(&fake, refused).0, 1);
    }
}

#[test]
fn a_damaged_file_is_a_failure_and_a_mended_one_is_none() {
    let answer = |state: &str| {
        json!({ "files": [{ "shard": 0, "table": "ks.t", "path": "/f", "state": state, "reason": "checksum",
            "kept_rows": 0, "lost_blocks": 0 }] })
    };
    let fake = |call, state| Fake { answers: BTreeMap::from([(call, answer(state))]), ..Fake::default() };
    let verify = fake("POST /admin/verify?keyspace=ks&table=t", "damaged");
    let (status, text) = refusal(&verify, &["verify", "-f", "-e", "ks", "t"]);
    assert_eq!((status, text.as_str()), (2, "ks.t, shard 0: /f: damaged: checksum"));
    let scrub = fake("POST /admin/scrub?skip_corrupted=true", "given_up");
    assert_eq!(executed(&scrub, &["scrub", "-s", "-ns"]).1, "");
}

#[test]
fn only_compactions_are_stopped_by_their_kind() {
    let running = |kind: &str| {
        let running = RunningCompactionReport {
            kind: kind.to_owned(),
            table: "ks.t".to_owned(),
            ..RunningCompactionReport::default()
        };
        let report = CompactionsReport { compactions: vec![running], ..CompactionsReport::default() };
        let answer = serde_json::to_value(report).unwrap();
        Fake { answers: BTreeMap::from([("GET /admin/compactionstats", answer)]), ..Fake::default() }
    };
    let (asked, _) = executed(&running("Compaction"), &["stop", "COMPACTION"]);
    assert_eq!(asked, ["GET /admin/compactionstats", "POST /admin/stop"]);
    let (status, text) = refusal(&running("Cleanup"), &["stop", "COMPACTION"]);
    assert_eq!(status, 1);
    assert!(text.contains("(Cleanup of ks.t)"), "{text}");
    assert_eq!(refusal(&running("Compaction"), &["stop", "VALIDATION"]).0, 1);
}

#[test]
fn what_cannot_be_obeyed_is_refused() {
    let fake = Fake::default();
    for refused in [
        &["-u", "admin", "status"] as &[&str],
        &["-pw", "secret", "status"],
        &["-pwf", "/file", "status"],
        &["status", "-h", "10.0.0.1"],
        &["repair", "-seq"],
        &["repair", "-paxos-only"],
        &["repair", "-j", "2"],
        &["repair", "-pr", "-dc", "a"],
        &["repair", "-st", "1"],
        &["cleanup", "ks", "t"],
        &["cleanup", "-j", "2"],
        &["removenode", "force"],
        &["removenode", "10.0.0.1"],
        &["setlogginglevel", "org.apache.cassandra.db", "DEBUG"],
        &["setlogginglevel", "helenus"],
        &["setlogginglevel", "helenus", "LOUD"],
        &["settraceprobability", "2"],
        &["setstreamthroughput", "-1"],
        &["setstreamthroughput", "-e", "1"],
        &["getstreamthroughput", "-m", "-d"],
        &["tablehistograms", "ks"],
        &["snapshot", "-sf"],
        &["compactionhistory"],
        &["viewbuildstatus", "ks"],
        &["viewbuildstatus"],
        &["rebuild_index", "ks", "t"],
        &["refresh", "--", "ks", "t"],
        &["move", "-5"],
        &["gcstats"],
        &["nonsense"],
    ] {
        assert_eq!(refusal(&fake, refused).0, 1, "{refused:?}");
    }
    assert!(fake.asked.take().is_empty());
    let (_, text) = refusal(&fake, &["-u", "admin", "status"]);
    assert_eq!(
        text,
        "-u, -pw and -pwf cannot be obeyed: over the Unix socket of a node nobody logs in, and at its port `helenus admin --user` does"
    );
}

#[test]
fn verbs_that_report_print_what_nodetool_prints() {
    let node = NodeReport { schema_version: "v1".to_owned(), ..crate::tables::samples::node() };
    let settings = RuntimeSettings {
        stream_throughput_bytes_per_second: 25_000_000,
        native_transport: true,
        log_filter: "info".to_owned(),
        ..RuntimeSettings::default()
    };
    let status = cluster(None, vec![member(1, "dc1", true, "normal")]);
    let ring = RingReport { keyspace: None, tokens: vec![token(5, 1, true, &[1]), token(7, 2, true, &[1])] };
    let fake = Fake {
        answers: BTreeMap::from([
            ("GET /admin/info", value_of(&node)),
            ("GET /admin/status", value_of(&status)),
            ("GET /admin/ring", value_of(&ring)),
            ("GET /admin/ring?keyspace=ks", value_of(&ring)),
            ("GET /admin/settings", value_of(&settings)),
            ("GET /admin/compactionstats", value_of(&CompactionsReport::default())),
            ("GET /admin/tablestats", json!({ "tables": [] })),
            ("GET /admin/tablehistograms?keyspace=ks&table=t", json!({ "tables": [] })),
            ("GET /version", json!({ "name": "helenus", "version": "0.1.0" })),
            (
                "GET /admin/cidrgroups",
                json!({ "groups": { "home": ["fd00::/8"], "office": ["10.1.0.0/16", "10.2.0.0/16"] } }),
            ),
            (
                "GET /admin/getendpoints?keyspace=ks&table=t&key=k",
                json!({ "token": "5", "endpoints": [
                    { "host_id": "host-1", "address": "10.0.0.1:7000", "is_up": true },
                    { "host_id": "host-2", "address": "10.0.0.2:7000", "is_up": false },
                ] }),
            ),
        ]),
        ..Fake::default()
    };
    let text = |arguments: &[&str]| executed(&fake, arguments).1;
    assert_eq!(text(&["version"]), "ReleaseVersion: 0.1.0\n");
    assert_eq!(text(&["listcidrgroups"]), "CIDR Groups\nhome\noffice\n");
    assert_eq!(text(&["listcidrgroups", "office"]), "CIDRs\n10.1.0.0/16\n10.2.0.0/16\n");
    assert_eq!(line(&["listcidrgroups", "none"]).execute(&fake).unwrap_err().status(), 1);
    assert_eq!(text(&["statusbinary"]), "running\n");
    assert_eq!(text(&["statushandoff"]), "Hinted handoff is not running\n");
    assert_eq!(text(&["gettraceprobability"]), "Current trace probability: 0.0\n");
    assert_eq!(text(&["getstreamthroughput"]), "Current stream throughput: 200 Mb/s\n");
    assert_eq!(text(&["getcompactionthroughput"]), "Current compaction throughput: 0 MB/s\n");
    assert_eq!(text(&["getendpoints", "ks", "t", "k"]), "10.0.0.1\n10.0.0.2\n");
    assert_eq!(text(&["-pp", "getendpoints", "ks", "t", "k"]), "10.0.0.1:7000\n10.0.0.2:7000\n");
    assert_eq!(text(&["removenode", "status"]), "RemovalStatus: No token removals in process.\n");
    assert!(text(&["info", "-T"]).contains("Token                  : 5\n"));
    assert!(text(&["gossipinfo"]).starts_with("/10.0.0.1\n  STATUS:NORMAL\n"));
    assert!(text(&["status"]).contains("\nUN  10.0.0.1  2 KiB  16      33.3%  host-1   r1\n"));
    let described = "\
Schema Version:v1
TokenRange: \n\
\tTokenRange(start_token:7, end_token:5, endpoints:[10.0.0.1], rpc_endpoints:[10.0.0.1], endpoint_details:[\
EndpointDetails(host:10.0.0.1, datacenter:dc1, rack:r1)])
\tTokenRange(start_token:5, end_token:7, endpoints:[10.0.0.1], rpc_endpoints:[10.0.0.1], endpoint_details:[\
EndpointDetails(host:10.0.0.1, datacenter:dc1, rack:r1)])
";
    assert_eq!(text(&["describering", "ks"]), described);
    let (asked, _) = executed(&fake, &["tablehistograms", "ks.t"]);
    assert_eq!(asked, ["GET /admin/tablehistograms?keyspace=ks&table=t"]);
    let (asked, _) = executed(&fake, &["cfstats"]);
    assert_eq!(asked, ["GET /admin/tablestats"]);
}

#[test]
fn the_node_is_named_by_host_and_port_before_the_variable() {
    let mut line = line(&["-h", "10.0.0.1", "-p", "9181", "status"]);
    let variable = |name: &str| (name == crate::URL_VARIABLE).then(|| "http://10.0.0.9:9189".into());
    let url = |text: &str| Place::Url(text.to_owned());
    assert_eq!(line.place(variable), url("http://10.0.0.1:9181"));
    line.port = None;
    assert_eq!(line.place(variable), url("http://10.0.0.1:9180"));
    line.host = Some("::1".to_owned());
    assert_eq!(line.place(variable), url("http://[::1]:9180"));
    line.host = None;
    assert_eq!(line.place(variable), url("http://10.0.0.9:9189"));
    let either = Place::Either("helenus-data/helenus.sock".into(), "http://127.0.0.1:9180".to_owned());
    assert_eq!(line.place(|_| None), either);
    line.port = Some(9181);
    assert_eq!(line.place(|_| None), url("http://127.0.0.1:9181"));
}

#[test]
fn a_socket_is_named_by_its_path_or_its_data_directory() {
    for (words, path) in [
        (["--socket", "/run/h.sock", "status"], "/run/h.sock"),
        (["--data-dir", "/data", "status"], "/data/helenus.sock"),
    ] {
        assert_eq!(line(&words).place(|_| None), Place::Socket(path.into()));
    }
}

#[test]
fn nodetools_options_reach_it_through_the_program() {
    #[derive(Debug, Parser)]
    enum Program {
        Nodetool(NodetoolArguments),
    }
    let given = ["helenus", "nodetool", "-h", "a", "--help", "-pp", "status", "--", "-V"];
    let Program::Nodetool(arguments) = Program::try_parse_from(given).unwrap();
    assert_eq!(arguments.words, words(&given[2..]));
}

#[test]
fn help_is_no_failure() {
    for arguments in
        [&["help"] as &[&str], &["help", "repair"], &[], &["--help"], &["-h", "a", "repair", "--help"]]
    {
        match read(&words(arguments)) {
            Err(NoLine::Words(error)) => assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{arguments:?}"),
            _ => panic!("{arguments:?}"),
        }
    }
    Line::command().debug_assert();
}

#[test]
fn a_view_that_is_not_built_is_shown_with_its_members_and_status_1() {
    let answer = |state: &str| {
        let members = json!({ "10.0.0.1": "SUCCESS", "10.0.0.2": state });
        let call = "GET /admin/viewbuildstatus?keyspace=ks&view=v";
        Fake { answers: BTreeMap::from([(call, json!({ "members": members }))]), ..Fake::default() }
    };
    for names in [&["viewbuildstatus", "ks", "v"][..], &["viewbuildstatus", "ks.v"]] {
        let (asked, text) = executed(&answer("SUCCESS"), names);
        assert_eq!(asked, ["GET /admin/viewbuildstatus?keyspace=ks&view=v"]);
        assert_eq!(text, "ks.v has finished building\n");
        let shown = "ks.v has not finished building; node status is below.\n\n\
             Host     Info\n10.0.0.1 SUCCESS\n10.0.0.2 STARTED\n";
        assert_eq!(refusal(&answer("STARTED"), names), (1, shown.to_owned()));
    }
}
