//! The texts of HELP.

/// The topics with their texts.
const TOPICS: [(&str, &str); 20] = [
    ("CAPTURE", "CAPTURE '<file>' appends results to a file instead of showing them; CAPTURE OFF ends that."),
    ("CLEAR", "CLEAR (or CLS) clears the screen."),
    (
        "CONSISTENCY",
        "CONSISTENCY [<level>] shows or sets the consistency level of statements: ANY, ONE, TWO, THREE,\n\
            QUORUM, ALL, LOCAL_QUORUM, EACH_QUORUM, LOCAL_ONE, SERIAL or LOCAL_SERIAL (reads).",
    ),
    (
        "COPY",
        "COPY [<keyspace>.]<table> [(<column>, ...)] TO '<file>'|STDOUT [WITH <options>];\n\
            COPY [<keyspace>.]<table> [(<column>, ...)] FROM '<file>'|STDIN [WITH <options>];\n\
            exports and imports CSV. Options, joined by AND: HEADER = true|false (false), DELIMITER = '<character>' (','),\n\
            ESCAPE = '<character>' ('\\'), NULL = '<text>' (''). Data from STDIN ends with a line of \\. alone.\n\
            The defaults are those of cqlsh: a backslash escapes quotes and backslashes. With ESCAPE = '\"' quotes are doubled\n\
            and a backslash is itself (RFC 4180): so files of spreadsheets and of other databases are exchanged.\n\
            A text with backslashes or control characters is changed by cqlsh when it exports it (\\ to \\\\, a line break to\n\
            \\n); it is imported as it was written, here as in cqlsh.",
    ),
    (
        "DESCRIBE",
        "DESCRIBE (or DESC) KEYSPACES | KEYSPACE [<name>] | TABLES | TABLE <name> | INDEX <name> |\n\
            MATERIALIZED VIEW <name> | PROJECTION <name> | TYPES | TYPE <name> | FUNCTIONS | FUNCTION <name> |\n\
            AGGREGATES | AGGREGATE <name> | [FULL] SCHEMA | CLUSTER | <name> shows objects of the schema as the statements that make them.",
    ),
    ("EXIT", "EXIT (or QUIT, or Ctrl-D) leaves the shell; Ctrl-C ends what it is at."),
    ("EXPAND", "EXPAND [ON | OFF] shows or sets whether each column is printed on a line of its own."),
    (
        "FRESHNESS",
        "SELECT ... FROM <view> ... WITH FRESHNESS <duration> | <microseconds>; reads a materialized view or projection when it\n\
            has all writes that are older than that (500ms, 0s for all of before), or that were written up to a time.",
    ),
    ("HELP", "HELP [<topic> ...] explains the commands of the shell."),
    (
        "LOGIN",
        "LOGIN <username> ['<password>'] connects anew as another user. Without a password it is asked for.",
    ),
    (
        "PAGING",
        "PAGING [ON | OFF | <rows>] shows or sets whether results stop after each page, and the rows a page.",
    ),
    (
        "PROJECTION",
        "CREATE PROJECTION [IF NOT EXISTS] <name> AS SELECT <items> FROM <table> [[AS] <alias>]\n\
            [JOIN <table> [[AS] <alias>] ON <column> = <column> [AND ...]] [WHERE <relations>] [GROUP BY <columns>]\n\
            PRIMARY KEY (...) [WITH <options>]; ALTER PROJECTION [IF EXISTS] <name> WITH <options>;\n\
            DROP PROJECTION [IF EXISTS] <name>; a table whose rows are computed of those of another one and kept true by the\n\
            nodes. CHECK PROJECTION <name> [REPAIR]; compares it with what it is computed of.",
    ),
    ("RECEIPT", "RECEIPT [ON | OFF] shows or sets whether what each statement cost is printed after it."),
    (
        "SERIAL",
        "SERIAL CONSISTENCY [SERIAL | LOCAL_SERIAL] shows or sets the level of lightweight transactions.",
    ),
    ("SHOW", "SHOW VERSION | HOST | SESSION <id> shows versions, the connection, or the trace of a request."),
    ("SOURCE", "SOURCE '<file>' runs the statements of a file."),
    (
        "TAIL",
        "TAIL [<keyspace>.]<table> [FROM 'beginning' | '<timestamp>' | <duration>] [LIMIT <changes>] [WINDOW <duration>]\n\
            prints the changes of a table with a change feed as they come, until Ctrl-C or LIMIT: from now on, from the oldest\n\
            that is kept, from a time, or from so long ago (10m). A change is printed when it is as old as WINDOW (5s), so that\n\
            none that still is being written is missed. Columns: a = 1 is the new value, a deleted, a + {1} and a - {1} elements\n\
            that were added and removed; before and after are the images of the row, where the feed has them.\n\
            It reads at LOCAL_QUORUM, or at a higher level that CONSISTENCY sets.",
    ),
    ("TRACING", "TRACING [ON | OFF] shows or sets whether the trace of each statement is printed after it."),
    ("USE", "USE <keyspace>; makes a keyspace the current one."),
    ("CQL", "CQL statements end with a semicolon and may take several lines."),
];

/// The lines of help on topics, or the list of topics.
pub fn lines(topics: &[String]) -> Vec<String> {
    if topics.is_empty() {
        let names: Vec<&str> = TOPICS.iter().map(|(name, _)| *name).collect();
        return vec![
            String::new(),
            "Statements of CQL end with a semicolon. HELP <topic> explains:".to_owned(),
            format!("  {}", names.join("  ")),
            String::new(),
        ];
    }
    topics
        .iter()
        .flat_map(|topic| {
            let text = TOPICS.iter().find(|(name, _)| name == topic).map(|(_, text)| *text);
            text.map_or_else(
                || vec![format!("There is no help on {topic}; HELP lists the topics.")],
                |text| text.lines().map(str::to_owned).collect(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_topic_has_a_text() {
        for (name, text) in TOPICS {
            assert_eq!(lines(&[name.to_owned()]).join("\n"), text);
        }
        assert!(lines(&[])[2].contains("COPY"));
        assert!(lines(&["NOTHING".to_owned()])[0].starts_with("There is no help"));
    }
}
