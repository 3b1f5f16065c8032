//! The shell against a node that answers from a script: what it prints, writes and exits with.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod scripted_node;

use std::{fs, path::Path, process::ExitCode};

use clap::Parser;
use scripted_node::ScriptedNode;

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: helenus_shell::Args,
}

/// Runs the shell with these arguments after host and port.
fn run(node: &ScriptedNode, arguments: &[&str]) -> ExitCode {
    let port = node.port().to_string();
    let mut line = vec!["shell", "127.0.0.1", &port];
    line.extend_from_slice(arguments);
    helenus_shell::main_with_args(&CommandLine::parse_from(line).args)
}

/// What the shell prints for the statements, by way of CAPTURE.
fn printed(node: &ScriptedNode, statements: &str, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("printed");
    let script = format!("CAPTURE '{}'\n{statements}", path.display());
    let mut line = vec!["-e", &script];
    line.extend_from_slice(arguments);
    assert_eq!(run(node, &line), ExitCode::SUCCESS);
    fs::read_to_string(path).unwrap()
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

#[test]
fn rows_are_printed_over_all_pages() {
    let node = ScriptedNode::start();
    assert_eq!(
        printed(&node, "USE demo; SELECT * FROM people;", &[]),
        "\n id | name\n----+------\n  1 |  Ann\n  2 | null\n\n(2 rows)\n\n"
    );
    assert_eq!(
        printed(&node, "EXPAND ON\nSELECT * FROM people", &["-k", "demo"]),
        "Now Expanded output is enabled\n\n\
        @ Row 1\n------+-----\n id   | 1\n name | Ann\n\n@ Row 2\n------+------\n id   | 2\n name | null\n\n\n(2 rows)\n\n"
    );
    assert_eq!(
        printed(&node, "SELECT * FROM people;", &["--json"]),
        "{\"id\": 1, \"name\": \"Ann\"}\n{\"id\": 2, \"name\": null}\n"
    );
}

#[test]
fn exit_codes_tell_what_failed() {
    let node = ScriptedNode::start();
    assert_eq!(run(&node, &["-e", "SELECT * FROM people"]), ExitCode::SUCCESS);
    assert_eq!(run(&node, &["-e", "SELEKT; SELECT * FROM people"]), ExitCode::from(1));
    assert_eq!(run(&node, &["-e", "SELECT 'open"]), ExitCode::from(1));
    assert_eq!(run(&node, &["-e", "EXPAND MAYBE"]), ExitCode::from(1));
    assert_eq!(run(&node, &["-f", "/nowhere/script.cql"]), ExitCode::from(1));
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let line = ["shell", "127.0.0.1", &unused.to_string(), "--connect-timeout", "0", "-e", "SELECT 1"];
    assert_eq!(helenus_shell::main_with_args(&CommandLine::parse_from(line).args), ExitCode::from(2));
}

#[test]
fn settings_reach_the_node() {
    let node = ScriptedNode::start();
    let printed = printed(&node, "CONSISTENCY LOCAL_QUORUM\nPAGING 7\nTRUNCATE people;\nCONSISTENCY", &[]);
    assert_eq!(
        printed,
        "Consistency level set to LOCAL_QUORUM.\nNow Query paging is enabled\nPage size: 7\n\
        Current consistency level is LOCAL_QUORUM.\n"
    );
    assert!(
        node.requests().contains(&"TRUNCATE people [LOCAL_QUORUM, 7]".to_owned()),
        "{:?}",
        node.requests()
    );
}

/// The driver gives up all that it learns of the cluster where it cannot read one type, such as `frozen<"MyType">`.
#[test]
fn the_driver_is_kept_from_the_schema() {
    let node = ScriptedNode::start();
    assert_eq!(
        printed(&node, "SHOW HOST", &[]),
        format!("Connected to scripted at 127.0.0.1:{}\n", node.port())
    );
    let requests = node.requests();
    assert!(!requests.iter().any(|request| request.contains("system_schema")), "{requests:?}");
}

#[test]
fn a_table_is_exported_and_imported() {
    let node = ScriptedNode::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("people.csv");
    let export = format!("COPY demo.people TO {} WITH HEADER = true AND NULL = 'nil'", quoted(&path));
    assert_eq!(run(&node, &["-e", &export]), ExitCode::SUCCESS);
    assert_eq!(fs::read_to_string(&path).unwrap(), "id,name\n1,Ann\n2,nil\n");

    let import = format!("USE demo; COPY people FROM {} WITH HEADER = true AND NULL = 'nil'", quoted(&path));
    assert_eq!(run(&node, &["-e", &import]), ExitCode::SUCCESS);
    let mut inserted = node.inserted();
    inserted.sort();
    assert_eq!(inserted, ["0x00000001 0x416e6e", "0x00000002 null"]);

    fs::write(&path, "1,Ann\nx,Bob\n").unwrap();
    let import = format!("COPY demo.people FROM {}", quoted(&path));
    assert_eq!(run(&node, &["-e", &import]), ExitCode::from(1));
}

#[test]
fn files_are_sourced() {
    let node = ScriptedNode::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.cql");
    fs::write(&path, "-- a comment\nTRUNCATE people;\nEXIT\nTRUNCATE never;").unwrap();
    assert_eq!(run(&node, &["-e", &format!("SOURCE {}\nTRUNCATE never;", quoted(&path))]), ExitCode::SUCCESS);
    let requests = node.requests();
    assert!(requests.iter().any(|request| request.starts_with("TRUNCATE people")));
    assert!(!requests.iter().any(|request| request.starts_with("TRUNCATE never")));

    fs::write(&path, format!("SOURCE {}", quoted(&path))).unwrap();
    assert_eq!(run(&node, &["-f", path.to_str().unwrap()]), ExitCode::from(1));
}

#[test]
fn descriptions_are_printed_as_statements() {
    let node = ScriptedNode::start();
    assert_eq!(
        printed(&node, "DESC TABLE people", &[]),
        "\nCREATE TABLE demo.people (id int PRIMARY KEY);\n\n"
    );
}

#[test]
fn changes_of_a_table_are_shown_in_the_order_of_time() {
    let node = ScriptedNode::start();
    assert_eq!(
        printed(&node, "TAIL demo.people FROM 'beginning' LIMIT 2", &[]),
        concat!(
            " time                            | operation | key    | changes\n",
            "---------------------------------+-----------+--------+------------------------\n",
            " 1970-01-01 00:00:02.000000+0000 | INSERT    | id = 2 | name = 'Bob', (TTL 60)\n",
            " 1970-01-01 00:00:03.000000+0000 | UPDATE    | id = 1 | name deleted\n",
            "\n(2 changes)\n\n",
        )
    );
    let shown = printed(&node, "TAIL people FROM beginning LIMIT 1;", &["-k", "demo", "--json"]);
    assert!(shown.ends_with("\"key\": {\"id\": 2}, \"set\": {\"name\": \"Bob\"}, \"ttl\": 60}\n"), "{shown}");
    assert_eq!(shown.lines().count(), 1);
    let requests = node.requests();
    let of_log = requests.iter().find(|request| request.contains("people_scylla_cdc_log WHERE")).unwrap();
    assert!(of_log.contains("IN (0x01, 0x02) AND \"cdc$time\" < "), "{of_log}");
    assert!(of_log.ends_with("BYPASS CACHE [LOCAL_QUORUM, 5000]"), "{of_log}");
}

#[test]
fn a_table_without_a_feed_has_no_tail() {
    let node = ScriptedNode::start();
    for table in ["demo.plain", "demo.nothing", "people", "demo.people FROM yesterday"] {
        assert_eq!(run(&node, &["-e", &format!("TAIL {table}")]), ExitCode::from(1), "{table}");
    }
}
