//! Tables of plain text: columns in groups, numbers to the right, notes below.

use std::fmt;
use std::time::Duration;

use crate::measure::Measurement;

/// A column group: a head over some columns.
#[derive(Debug, Clone)]
pub struct Group {
    pub head: String,
    pub columns: Vec<String>,
}

impl Group {
    /// A group of the named columns.
    pub fn new(head: &str, columns: &[&str]) -> Self {
        Self { head: head.to_owned(), columns: columns.iter().map(|&column| column.to_owned()).collect() }
    }
}

/// A table; `Display` renders it. A cell longer than its column may run over the rest of its group.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub title: String,
    pub groups: Vec<Group>,
    /// Columns at the start of the first group that hold text: aligned left.
    pub text_columns: usize,
    /// For each row and each group its cells; fewer cells than columns: the last one spans the rest.
    pub rows: Vec<Vec<Vec<String>>>,
    pub notes: Vec<String>,
}

const COLUMN_GAP: &str = "  ";
const GROUP_GAP: &str = "  | ";

impl Table {
    /// Widths of the columns of each group, wide enough for their heads and for cells that span them.
    fn widths(&self) -> Vec<Vec<usize>> {
        let mut all = Vec::with_capacity(self.groups.len());
        for (index, group) in self.groups.iter().enumerate() {
            let mut widths: Vec<usize> = group.columns.iter().map(|column| length(column)).collect();
            let mut total = length(&group.head);
            for cells in self.rows.iter().filter_map(|row| row.get(index)) {
                if cells.len() == widths.len() {
                    for (width, cell) in widths.iter_mut().zip(cells) {
                        *width = (*width).max(length(cell));
                    }
                } else {
                    let spanned: Vec<usize> = cells.iter().map(|cell| length(cell)).collect();
                    total = total.max(group_width(&spanned));
                }
            }
            let missing = total.saturating_sub(group_width(&widths));
            if let Some(last) = widths.last_mut() {
                *last += missing;
            }
            all.push(widths);
        }
        all
    }

    fn write_cells(
        &self,
        formatter: &mut fmt::Formatter<'_>,
        widths: &[Vec<usize>],
        cells_of: impl Fn(usize) -> Vec<String>,
    ) -> fmt::Result {
        let mut line = String::new();
        for (index, widths) in widths.iter().enumerate() {
            if index > 0 {
                line.push_str(GROUP_GAP);
            }
            let cells = cells_of(index);
            let spans = cells.len() < widths.len();
            let mut left = group_width(widths);
            for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
                if column > 0 {
                    line.push_str(COLUMN_GAP);
                    left = left.saturating_sub(COLUMN_GAP.len());
                }
                let last = column + 1 == cells.len();
                let width = if spans && last { left } else { *width };
                let padding = " ".repeat(width.saturating_sub(length(cell)));
                if (spans && last) || (index == 0 && column < self.text_columns) {
                    line.push_str(cell);
                    line.push_str(&padding);
                } else {
                    line.push_str(&padding);
                    line.push_str(cell);
                }
                left = left.saturating_sub(width);
            }
        }
        writeln!(formatter, "{}", line.trim_end())
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn group_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + COLUMN_GAP.len() * widths.len().saturating_sub(1)
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        writeln!(formatter, "{}", self.title)?;
        writeln!(formatter)?;
        self.write_cells(formatter, &widths, |index| {
            self.groups.get(index).map(|group| vec![group.head.clone()]).unwrap_or_default()
        })?;
        self.write_cells(formatter, &widths, |index| {
            self.groups.get(index).map(|group| group.columns.clone()).unwrap_or_default()
        })?;
        let rule: Vec<String> = widths.iter().map(|widths| "-".repeat(group_width(widths))).collect();
        writeln!(formatter, "{}", rule.join("--+-"))?;
        for row in &self.rows {
            self.write_cells(formatter, &widths, |index| row.get(index).cloned().unwrap_or_default())?;
        }
        if !self.notes.is_empty() {
            writeln!(formatter)?;
        }
        for note in &self.notes {
            writeln!(formatter, "* {note}")?;
        }
        Ok(())
    }
}

/// The heads of [`measured_cells`].
pub const MEASURED_COLUMNS: [&str; 4] = ["rows", "p50", "p99", "pages"];

/// Rows, median, 99th percentile and pages of a measurement.
pub fn measured_cells(measurement: &Measurement) -> Vec<String> {
    if measurement.count() == 0 {
        return vec!["-".to_owned(); MEASURED_COLUMNS.len()];
    }
    vec![
        mean(measurement.rows_mean()),
        latency(measurement.latency(0.50)),
        latency(measurement.latency(0.99)),
        if measurement.pages_mean() == 0.0 { "-".to_owned() } else { mean(measurement.pages_mean()) },
    ]
}

/// The heads of [`charged_cells`].
pub const CHARGED_COLUMNS: [&str; 4] = ["rows", "p50", "p99", "charge"];

/// Rows, median, 99th percentile and charge of a measurement.
pub fn charged_cells(measurement: &Measurement) -> Vec<String> {
    let mut cells = measured_cells(measurement);
    cells.truncate(CHARGED_COLUMNS.len() - 1);
    cells.push(measurement.charge().map_or_else(|| "-".to_owned(), grouped));
    cells
}

/// A latency with three digits or so.
pub fn latency(latency: Duration) -> String {
    let microseconds = latency.as_micros() as f64;
    if microseconds < 10_000.0 {
        format!("{:.2} ms", microseconds / 1e3)
    } else if microseconds < 1_000_000.0 {
        format!("{:.0} ms", microseconds / 1e3)
    } else {
        format!("{:.2} s", microseconds / 1e6)
    }
}

/// A mean: whole where it is whole or large.
pub fn mean(value: f64) -> String {
    if value >= 1_000.0 || (value - value.round()).abs() < 0.05 {
        grouped(value.round() as u64)
    } else {
        format!("{value:.1}")
    }
}

/// A number with its thousands apart.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate per second over `elapsed`.
pub fn per_second(count: u64, elapsed: Duration) -> String {
    grouped((count as f64 / elapsed.as_secs_f64().max(1e-6)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(mean(12.0), "12");
        assert_eq!(mean(12.34), "12.3");
        assert_eq!(mean(5_060.3), "5,060");
        assert_eq!(latency(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(latency(Duration::from_millis(130)), "130 ms");
        assert_eq!(latency(Duration::from_millis(2_500)), "2.50 s");
    }

    #[test]
    fn groups_stand_side_by_side_and_a_long_cell_spans_its_group() {
        let table = Table {
            title: "T".to_owned(),
            groups: vec![Group::new("", &["what"]), Group::new("tall", &["a", "b"])],
            text_columns: 1,
            rows: vec![
                vec![vec!["x".to_owned()], vec!["1".to_owned(), "22".to_owned()]],
                vec![vec!["yy".to_owned()], vec!["refused".to_owned()]],
            ],
            notes: vec!["n".to_owned()],
        };
        let expected = "\
T

      | tall
what  | a     b
------+--------
x     | 1    22
yy    | refused

* n
";
        assert_eq!(table.to_string(), expected);
    }
}
