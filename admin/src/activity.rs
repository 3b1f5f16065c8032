//! What a node does, and how long requests take, as tables for people.

use std::fmt::Write as _;

use crate::reports::{ActivityReport, CoordinatorLatencies, LatencyReport, TableLatencies};
use crate::tables::{columns, row};

/// Work by kind, and what was given up.
pub(crate) fn stages(report: &ActivityReport) -> String {
    let mut rows = vec![row(&["Work", "Active", "Pending", "Completed"])];
    rows.extend(report.stages.iter().map(|stage| {
        row(&[
            &stage.name,
            &stage.active.to_string(),
            &stage.pending.to_string(),
            &stage.completed.to_string(),
        ])
    }));
    let mut text = columns(&rows);
    if !report.dropped.is_empty() {
        let mut rows = vec![row(&["Given up", "Count"])];
        rows.extend(report.dropped.iter().map(|(kind, count)| row(&[kind, &count.to_string()])));
        text.push('\n');
        text.push_str(&columns(&rows));
    }
    text
}

/// The durations of the requests that a node has coordinated.
pub(crate) fn coordinator(latencies: &CoordinatorLatencies) -> String {
    type Value = fn(&LatencyReport) -> u64;
    let lines: [(&str, Value); 8] = [
        ("Count", |report| report.count),
        ("Mean", |report| report.sum_us.checked_div(report.count).unwrap_or(0)),
        ("50 %", |report| report.p50_us),
        ("75 %", |report| report.p75_us),
        ("95 %", |report| report.p95_us),
        ("98 %", |report| report.p98_us),
        ("99 %", |report| report.p99_us),
        ("Longest", |report| report.max_us),
    ];
    let kinds = [&latencies.read, &latencies.scan, &latencies.write, &latencies.conditional];
    let mut rows = vec![row(&["Microseconds", "Reads", "Scans", "Writes", "Conditional writes"])];
    rows.extend(lines.map(|(name, value)| {
        std::iter::once(name.to_owned()).chain(kinds.map(|report| value(report).to_string())).collect()
    }));
    columns(&rows)
}

/// The durations of the requests to tables.
pub(crate) fn tables(reports: &[TableLatencies]) -> String {
    let mut text = String::new();
    for report in reports {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}.{}\n{}", report.keyspace, report.table, coordinator(&report.latencies));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::reports::StageReport;

    #[test]
    fn work_is_shown_with_what_was_given_up() {
        let mut report = ActivityReport {
            stages: vec![StageReport {
                name: "ReadStage".to_owned(),
                active: 1,
                pending: 20,
                completed: 300,
            }],
            dropped: BTreeMap::new(),
        };
        let table = "\
Work       Active  Pending  Completed
ReadStage  1       20       300
";
        assert_eq!(stages(&report), table);
        report.dropped.insert("HINT".to_owned(), 7);
        assert_eq!(stages(&report), format!("{table}\nGiven up  Count\nHINT      7\n"));
    }

    #[test]
    fn durations_are_shown_by_kind_of_request() {
        let read = LatencyReport {
            count: 2,
            sum_us: 30,
            p50_us: 10,
            p75_us: 20,
            p95_us: 21,
            p98_us: 22,
            p99_us: 23,
            max_us: 24,
        };
        let latencies = CoordinatorLatencies { read, ..CoordinatorLatencies::default() };
        let table = "\
Microseconds  Reads  Scans  Writes  Conditional writes
Count         2      0      0       0
Mean          15     0      0       0
50 %          10     0      0       0
75 %          20     0      0       0
95 %          21     0      0       0
98 %          22     0      0       0
99 %          23     0      0       0
Longest       24     0      0       0
";
        assert_eq!(coordinator(&latencies), table);
        let of_table = TableLatencies { keyspace: "ks".to_owned(), table: "t".to_owned(), latencies };
        assert_eq!(tables(&[of_table]), format!("ks.t\n{table}\n"));
    }
}
