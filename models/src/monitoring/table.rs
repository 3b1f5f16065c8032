//! One of the twelve tables: a partition key and a layout, with the statements and reads they take.

use std::collections::BTreeMap;

use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlTimestamp, CqlValue};

use super::generate::{Point, Series};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// The partition key of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Metric,
    MetricHost,
    MetricHostType,
    FoldedHost,
}

impl Key {
    pub const ALL: [Key; 4] = [Key::Metric, Key::MetricHost, Key::MetricHostType, Key::FoldedHost];

    /// The columns of the partition key.
    pub fn name(self) -> &'static str {
        match self {
            Key::Metric => "metric",
            Key::MetricHost => "metric, host",
            Key::MetricHostType => "metric, host, type",
            Key::FoldedHost => "metric_type, host",
        }
    }

    fn table_suffix(self) -> &'static str {
        match self {
            Key::Metric => "by_metric",
            Key::MetricHost => "by_host",
            Key::MetricHostType => "by_type",
            Key::FoldedHost => "folded",
        }
    }

    /// The columns that name a series, of the partition key and after it.
    fn columns(self) -> &'static [&'static str] {
        match self {
            Key::FoldedHost => &["metric_type", "host"],
            _ => &["metric", "host", "type"],
        }
    }

    /// The values of [`Key::columns`].
    fn values(self, series: &Series) -> Vec<CqlValue> {
        let values = match self {
            Key::FoldedHost => vec![format!("cpu_{}", series.kind), series.host.clone()],
            _ => vec!["cpu".to_owned(), series.host.clone(), series.kind.to_owned()],
        };
        values.into_iter().map(CqlValue::Text).collect()
    }
}

/// How the points of a series are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A row each.
    Tall,
    /// All in one map.
    Wide,
    /// A map for each stretch of time of this length.
    Hybrid { grain_ms: i64 },
}

impl Layout {
    /// As printed and as in the table's name.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Tall => "tall",
            Layout::Wide => "wide",
            Layout::Hybrid { .. } => "hybrid",
        }
    }
}

/// A table with its statements.
pub struct MonitoringTable<'a> {
    client: &'a Client,
    pub key: Key,
    pub layout: Layout,
    write: PreparedStatement,
    range: PreparedStatement,
    newest: PreparedStatement,
}

impl<'a> MonitoringTable<'a> {
    /// The table's name without its keyspace.
    pub fn name(key: Key, layout: Layout) -> String {
        format!("{}_{}", layout.name(), key.table_suffix())
    }

    pub async fn prepare(client: &'a Client, key: Key, layout: Layout) -> Result<Self, Error> {
        let table = format!("monitoring.{}", Self::name(key, layout));
        let conditions: Vec<String> = key.columns().iter().map(|column| format!("{column} = ?")).collect();
        let series = conditions.join(" AND ");
        let columns = key.columns().join(", ");
        let marks = vec!["?"; key.columns().len()].join(", ");
        let (write, range, newest) = match layout {
            Layout::Tall => (
                format!("INSERT INTO {table} ({columns}, at, value) VALUES ({marks}, ?, ?)"),
                format!("SELECT at, value FROM {table} WHERE {series} AND at >= ? AND at < ?"),
                format!("SELECT at, value FROM {table} WHERE {series} LIMIT 1"),
            ),
            Layout::Wide => (
                format!("UPDATE {table} SET points[?] = ? WHERE {series}"),
                format!("SELECT points FROM {table} WHERE {series}"),
                format!("SELECT points FROM {table} WHERE {series}"),
            ),
            Layout::Hybrid { .. } => (
                format!("UPDATE {table} SET points[?] = ? WHERE {series} AND start = ?"),
                format!("SELECT start, points FROM {table} WHERE {series} AND start >= ? AND start < ?"),
                format!("SELECT start, points FROM {table} WHERE {series} LIMIT 1"),
            ),
        };
        Ok(Self {
            client,
            key,
            layout,
            write: client.prepare(&write).await?,
            range: client.prepare(&range).await?,
            newest: client.prepare(&newest).await?,
        })
    }

    /// Writes one point.
    pub async fn write(&self, series: &Series, point: Point) -> Result<(), Error> {
        let key = self.key.values(series);
        let value = CqlValue::Double(point.value);
        let values: Vec<CqlValue> = match self.layout {
            Layout::Tall => key.into_iter().chain([CqlValue::Timestamp(point.at), value]).collect(),
            Layout::Wide => [CqlValue::Timestamp(point.at), value].into_iter().chain(key).collect(),
            Layout::Hybrid { grain_ms } => {
                let start = start_of(point.at, grain_ms);
                let second = CqlValue::Int(((point.at.0 - start.0) / 1_000) as i32);
                [second, value].into_iter().chain(key).chain([CqlValue::Timestamp(start)]).collect()
            }
        };
        self.client.execute(&self.write, values).await
    }

    /// The points of `from <= time < to`, newest first.
    pub async fn range(
        &self,
        series: &Series,
        from: CqlTimestamp,
        to: CqlTimestamp,
    ) -> Result<CountedResponse<Vec<Point>>, Error> {
        let mut values = self.key.values(series);
        let (mut points, pages) = match self.layout {
            Layout::Tall => {
                values.extend([CqlValue::Timestamp(from), CqlValue::Timestamp(to)]);
                let answer = self.client.select::<(CqlTimestamp, f64)>(&self.range, values).await?;
                (answer.value.into_iter().map(|(at, value)| Point { at, value }).collect(), answer.pages)
            }
            Layout::Wide => self.whole(&self.range, values).await?,
            Layout::Hybrid { grain_ms } => {
                values.extend([CqlValue::Timestamp(start_of(from, grain_ms)), CqlValue::Timestamp(to)]);
                let answer = self.client.select::<HybridRow>(&self.range, values).await?;
                (answer.value.into_iter().flat_map(hybrid_points).collect(), answer.pages)
            }
        };
        points.retain(|point: &Point| from <= point.at && point.at < to);
        Ok(CountedResponse { rows: points.len() as u64, value: points, pages })
    }

    /// The newest point.
    pub async fn newest(&self, series: &Series) -> Result<CountedResponse<Option<Point>>, Error> {
        let values = self.key.values(series);
        let (point, pages) = match self.layout {
            Layout::Tall => {
                let answer = self.client.select_one::<(CqlTimestamp, f64)>(&self.newest, values).await?;
                (answer.value.map(|(at, value)| Point { at, value }), answer.pages)
            }
            Layout::Wide => {
                let (points, pages) = self.whole(&self.newest, values).await?;
                (points.first().copied(), pages)
            }
            Layout::Hybrid { .. } => {
                let answer = self.client.select_one::<HybridRow>(&self.newest, values).await?;
                (answer.value.and_then(|row| hybrid_points(row).next()), answer.pages)
            }
        };
        Ok(CountedResponse { rows: u64::from(point.is_some()), value: point, pages })
    }

    /// What EXPLAIN says of these requests: lines of a table.
    pub async fn explain(
        &self,
        series: &Series,
        from: CqlTimestamp,
        to: CqlTimestamp,
    ) -> Result<Vec<Vec<String>>, Error> {
        let name = Self::name(self.key, self.layout);
        let values = self.key.values(series);
        let bounds = match self.layout {
            Layout::Wide => Vec::new(),
            _ => vec![CqlValue::Timestamp(from), CqlValue::Timestamp(to)],
        };
        let range: Vec<CqlValue> = values.iter().cloned().chain(bounds).collect();
        let mut lines = self.client.explain(&format!("range, {name}"), &self.range, range).await?;
        lines.extend(self.client.explain(&format!("newest, {name}"), &self.newest, values).await?);
        Ok(lines)
    }

    /// All points of a wide row, newest first, and the pages read.
    async fn whole(
        &self,
        statement: &PreparedStatement,
        values: Vec<CqlValue>,
    ) -> Result<(Vec<Point>, u64), Error> {
        let answer =
            self.client.select_one::<(Option<BTreeMap<CqlTimestamp, f64>>,)>(statement, values).await?;
        let entries = answer.value.and_then(|(points,)| points).unwrap_or_default();
        let points = entries.into_iter().rev().map(|(at, value)| Point { at, value }).collect();
        Ok((points, answer.pages))
    }
}

/// Start of a row and its values by the second within it.
type HybridRow = (CqlTimestamp, Option<BTreeMap<i32, f64>>);

/// The points of a hybrid row, newest first.
fn hybrid_points((start, values): HybridRow) -> impl Iterator<Item = Point> {
    let point = move |(second, value)| Point { at: CqlTimestamp(start.0 + i64::from(second) * 1_000), value };
    values.unwrap_or_default().into_iter().rev().map(point)
}

fn start_of(at: CqlTimestamp, grain_ms: i64) -> CqlTimestamp {
    CqlTimestamp(at.0 - at.0.rem_euclid(grain_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_of_a_hybrid_row_come_back_with_their_times() {
        let row = (CqlTimestamp(3_600_000), Some(BTreeMap::from([(0, 1.0), (10, 2.0)])));
        let points: Vec<Point> = hybrid_points(row).collect();
        assert_eq!(points[0], Point { at: CqlTimestamp(3_610_000), value: 2.0 });
        assert_eq!(points[1], Point { at: CqlTimestamp(3_600_000), value: 1.0 });
    }

    #[test]
    fn a_row_starts_at_a_multiple_of_its_grain() {
        assert_eq!(start_of(CqlTimestamp(3_600_001), 3_600_000), CqlTimestamp(3_600_000));
        assert_eq!(start_of(CqlTimestamp(-1), 60_000), CqlTimestamp(-60_000));
    }

    #[test]
    fn each_table_of_the_schema_is_named_by_key_and_layout() {
        let schema = include_str!("schema.cql");
        for key in Key::ALL {
            for layout in [Layout::Tall, Layout::Wide, Layout::Hybrid { grain_ms: 60_000 }] {
                let head = format!("CREATE TABLE monitoring.{} (", MonitoringTable::name(key, layout));
                assert!(schema.contains(&head), "{head}");
            }
        }
    }
}
