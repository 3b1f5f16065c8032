//! What a node does, how long requests take, and settings, as nodetool prints them.
//!
//! What nodetool shows and a node does not know is `NaN` among numbers and `N/A` among counts, as in nodetool itself.

use std::fmt::Write as _;

use super::error::NodetoolError;
use super::format::{right, table};
use crate::reports::{ActivityReport, CoordinatorLatencies, LatencyReport, RuntimeSettings, TableLatencies};
use crate::settings::directives;
use crate::tables::row;

const BYTES_PER_MEBIBYTE: f64 = 1_048_576.0;
/// A megabit is decimal.
pub(super) const BYTES_PER_MEGABIT: u64 = 125_000;

/// `tpstats`.
pub(super) fn stages(report: &ActivityReport) -> String {
    let mut rows = vec![row(&["Pool Name", "Active", "Pending", "Completed", "Blocked", "All time blocked"])];
    rows.extend(report.stages.iter().map(|stage| {
        let counts = [stage.active, stage.pending, stage.completed].map(|count| count.to_string());
        row(&[&stage.name, &counts[0], &counts[1], &counts[2], "N/A", "N/A"])
    }));
    let mut text = table(&rows, " ");
    let mut line = |name: &str, dropped: &str, latencies: [&str; 4]| {
        let latencies = right(&latencies, 18);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", format!("{name:<20}{dropped:>10}{latencies}").trim_end());
    };
    line("", "", [""; 4]);
    line("Message type", "Dropped", ["", "Latency waiting in queue (micros)", "", ""]);
    line("", "", ["50%", "95%", "99%", "Max"]);
    for (kind, count) in &report.dropped {
        line(kind, &count.to_string(), ["N/A"; 4]);
    }
    text
}

/// A quantile of durations, or another of them, with its name in nodetool.
type Quantile = (&'static str, fn(&LatencyReport) -> f64);

/// The lines of histograms. The shortest duration is not known.
const QUANTILES: [Quantile; 7] = [
    ("50%", |report| report.p50_us as f64),
    ("75%", |report| report.p75_us as f64),
    ("95%", |report| report.p95_us as f64),
    ("98%", |report| report.p98_us as f64),
    ("99%", |report| report.p99_us as f64),
    ("Min", |_| f64::NAN),
    ("Max", |report| report.max_us as f64),
];

/// `proxyhistograms`. Reads at SERIAL are among the reads, and there are no views that are written.
pub(super) fn coordinator(latencies: &CoordinatorLatencies) -> String {
    let mut text = "proxy histograms\n".to_owned();
    let mut line = |name: &str, cells: [&str; 6]| {
        let cells = right(&cells, 19);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<10}{cells}");
    };
    let names = [
        "Read Latency",
        "Write Latency",
        "Range Latency",
        "CAS Read Latency",
        "CAS Write Latency",
        "View Write Latency",
    ];
    line("Percentile", names);
    line("", ["(micros)"; 6]);
    for (name, value) in QUANTILES {
        let [read, write, range, conditional] =
            [&latencies.read, &latencies.write, &latencies.scan, &latencies.conditional]
                .map(|report| format!("{:.2}", value(report)));
        line(name, [&read, &write, &range, "NaN", &conditional, "0.00"]);
    }
    text.push('\n');
    text
}

/// `tablehistograms`.
pub(super) fn tables(reports: &[TableLatencies]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    for report in reports {
        let mut line = |name: &str, files: &str, cells: [&str; 4]| {
            let cells = right(&cells, 18);
            let _ = writeln!(text, "{}", format!("{name:<10}{files:>10}{cells}").trim_end());
        };
        line(&format!("{}/{} histograms", report.keyspace, report.table), "", [""; 4]);
        line("Percentile", "SSTables", ["Write Latency", "Read Latency", "Partition Size", "Cell Count"]);
        line("", "", ["(micros)", "(micros)", "(bytes)", ""]);
        for (name, value) in QUANTILES {
            let [write, read] = [&report.latencies.write, &report.latencies.read]
                .map(|report| format!("{:.2}", value(report)));
            line(name, "NaN", [&write, &read, "NaN", "NaN"]);
        }
        text.push('\n');
    }
    text
}

/// A rate in a unit, as nodetool rounds it: a whole number, unless it is asked for precisely.
fn rate(what: &str, amount: f64, unit: &str, is_precise: bool) -> Result<String, NodetoolError> {
    if is_precise {
        Ok(format!("Current {what} throughput: {amount:?} {unit}\n"))
    } else if amount.fract() == 0.0 {
        Ok(format!("Current {what} throughput: {amount:.0} {unit}\n"))
    } else {
        Err(NodetoolError::Failed(format!("the throughput is {amount:?} {unit}, which -d shows")))
    }
}

/// `getstreamthroughput`.
pub(super) fn stream_throughput(
    settings: &RuntimeSettings,
    is_mebibytes: bool,
    is_precise: bool,
) -> Result<String, NodetoolError> {
    match settings.stream_throughput_bytes_per_second {
        0 => Ok("Current stream throughput: unlimited\n".to_owned()),
        bytes if is_mebibytes => rate("stream", bytes as f64 / BYTES_PER_MEBIBYTE, "MiB/s", true),
        bytes => rate("stream", bytes as f64 / BYTES_PER_MEGABIT as f64, "Mb/s", is_precise),
    }
}

/// `getcompactionthroughput`.
pub(super) fn compaction_throughput(
    bytes_per_second: u64,
    is_precise: bool,
) -> Result<String, NodetoolError> {
    let unit = if is_precise { "MiB/s" } else { "MB/s" };
    rate("compaction", bytes_per_second as f64 / BYTES_PER_MEBIBYTE, unit, is_precise)
}

/// `getlogginglevels`.
pub(super) fn log_levels(settings: &RuntimeSettings) -> String {
    let mut text = format!("\n{:<50}{:>10}\n", "Logger Name", "Log Level");
    for (target, level) in directives(&settings.log_filter) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{target:<50}{level:>10}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::reports::StageReport;

    #[test]
    fn stages_are_shown_with_dropped_messages() {
        let stage =
            |name: &str, completed| StageReport { name: name.to_owned(), active: 1, pending: 20, completed };
        let report = ActivityReport {
            stages: vec![stage("ReadStage", 300), stage("MutationStage", 7)],
            dropped: BTreeMap::from([("HINT".to_owned(), 7)]),
        };
        let expected = "\
Pool Name     Active Pending Completed Blocked All time blocked
ReadStage     1      20      300       N/A     N/A
MutationStage 1      20      7         N/A     N/A

Message type           Dropped                  Latency waiting in queue (micros)
                                             50%               95%               99%               Max
HINT                         7               N/A               N/A               N/A               N/A
";
        assert_eq!(stages(&report), expected);
    }

    fn latencies() -> CoordinatorLatencies {
        let report = |p50_us, max_us| LatencyReport {
            count: 2,
            sum_us: 30,
            p50_us,
            p75_us: 20,
            p95_us: 21,
            p98_us: 22,
            p99_us: 23,
            max_us,
        };
        CoordinatorLatencies {
            read: report(10, 24),
            scan: LatencyReport::default(),
            write: report(11, 1_000_000),
            conditional: report(12, 26),
        }
    }

    #[test]
    fn histograms_of_the_coordinator_have_nodetools_columns() {
        let expected = "\
proxy histograms
Percentile       Read Latency      Write Latency      Range Latency   CAS Read Latency  CAS Write Latency View Write Latency
                     (micros)           (micros)           (micros)           (micros)           (micros)           (micros)
50%                     10.00              11.00               0.00                NaN              12.00               0.00
75%                     20.00              20.00               0.00                NaN              20.00               0.00
95%                     21.00              21.00               0.00                NaN              21.00               0.00
98%                     22.00              22.00               0.00                NaN              22.00               0.00
99%                     23.00              23.00               0.00                NaN              23.00               0.00
Min                       NaN                NaN                NaN                NaN                NaN               0.00
Max                     24.00         1000000.00               0.00                NaN              26.00               0.00

";
        assert_eq!(coordinator(&latencies()), expected);
    }

    #[test]
    fn histograms_of_tables_have_nodetools_columns() {
        let report =
            TableLatencies { keyspace: "ks".to_owned(), table: "t".to_owned(), latencies: latencies() };
        let expected = "\
ks/t histograms
Percentile  SSTables     Write Latency      Read Latency    Partition Size        Cell Count
                              (micros)          (micros)           (bytes)
50%              NaN             11.00             10.00               NaN               NaN
75%              NaN             20.00             20.00               NaN               NaN
95%              NaN             21.00             21.00               NaN               NaN
98%              NaN             22.00             22.00               NaN               NaN
99%              NaN             23.00             23.00               NaN               NaN
Min              NaN               NaN               NaN               NaN               NaN
Max              NaN        1000000.00             24.00               NaN               NaN

";
        assert_eq!(tables(&[report]), expected);
    }

    #[test]
    fn rates_are_whole_numbers_unless_they_are_asked_for_precisely() {
        let stream = |bytes, is_mebibytes, is_precise| {
            let settings =
                RuntimeSettings { stream_throughput_bytes_per_second: bytes, ..RuntimeSettings::default() };
            stream_throughput(&settings, is_mebibytes, is_precise).map_err(|error| error.status())
        };
        assert_eq!(stream(0, false, false).unwrap(), "Current stream throughput: unlimited\n");
        assert_eq!(stream(25_000_000, false, false).unwrap(), "Current stream throughput: 200 Mb/s\n");
        assert_eq!(stream(25_000_000, false, true).unwrap(), "Current stream throughput: 200.0 Mb/s\n");
        assert_eq!(stream(24 << 20, true, false).unwrap(), "Current stream throughput: 24.0 MiB/s\n");
        assert_eq!(stream(24 << 20, false, false).unwrap_err(), 2);
        let compaction = |bytes, is_precise| compaction_throughput(bytes, is_precise).unwrap();
        assert_eq!(compaction(64 << 20, false), "Current compaction throughput: 64 MB/s\n");
        assert_eq!(compaction(0, false), "Current compaction throughput: 0 MB/s\n");
        assert_eq!(compaction(3 << 19, true), "Current compaction throughput: 1.5 MiB/s\n");
        assert!(compaction_throughput(3 << 19, false).is_err());
    }

    #[test]
    fn log_levels_are_listed() {
        let settings =
            RuntimeSettings { log_filter: "info,openraft=warn".to_owned(), ..RuntimeSettings::default() };
        let expected = "
Logger Name                                        Log Level
ROOT                                                    INFO
openraft                                                WARN
";
        assert_eq!(log_levels(&settings), expected);
    }
}
