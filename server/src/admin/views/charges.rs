//! Views of what requests are charged: `charges` by the hour, and the heaviest statements of each table.

use std::collections::BTreeMap;
use std::rc::Rc;

use helenus_execution::coordinator::top_partitions::Period;
use helenus_execution::shard::context::ShardContext;
use helenus_observe::AdminError;
use helenus_observe::charge_sums::{ChargeSum, ChargeSums, ChargedTo, Place};
use helenus_observe::receipt::Count;
use helenus_query::schema::virtual_tables::RowWriter;

use super::source::Views;
use crate::session::charges::Charges;

/// In the place of the statement where a sum is of all that have none of their own.
const OTHERS: &str = "(others)";
/// Most statements of a table that are told of each sampler.
const STATEMENTS_MAX: usize = 10;
const MICROS_A_MILLISECOND: i64 = 1_000;

/// The counts that have a column of their name in `charges`.
const COUNTS: [Count; 13] = [
    Count::BytesBetweenNodes,
    Count::BytesRead,
    Count::BytesSent,
    Count::BytesWritten,
    Count::PartitionsWritten,
    Count::RangesRead,
    Count::RowsRead,
    Count::RowsSent,
    Count::RowsWritten,
    Count::TombstonesRead,
    Count::Transactions,
    Count::WaitedMicros,
    Count::WorkedMicros,
];

/// A name, and the figure of a sum by which statements are compared.
type Sampler = (&'static str, fn(&ChargeSum) -> u64);

/// What statements are compared by.
const SAMPLERS: [Sampler; 7] = [
    ("BYTES_SENT", |sum| sum.counts.get(Count::BytesSent)),
    ("BYTES_WRITTEN", |sum| sum.counts.get(Count::BytesWritten)),
    ("CHARGE", |sum| sum.charge),
    ("REQUESTS", |sum| sum.requests),
    ("ROWS_READ", |sum| sum.counts.get(Count::RowsRead)),
    ("TOMBSTONES_READ", |sum| sum.counts.get(Count::TombstonesRead)),
    ("WORKED_TIME", |sum| sum.counts.get(Count::WorkedMicros)),
];

/// The hours of all shards together, by the microsecond at which each began.
async fn hours(views: &Views) -> Result<BTreeMap<i64, ChargeSums>, AdminError> {
    let look = |context: Rc<ShardContext>| std::future::ready(Ok(Charges::hours(&context)));
    let shards = views.admin.on_every_shard(move |context| Box::pin(look(context))).await?;
    let mut hours: BTreeMap<i64, Vec<ChargeSums>> = BTreeMap::new();
    for (began, sums) in shards.into_iter().flatten() {
        hours.entry(began).or_default().push(sums);
    }
    Ok(hours.into_iter().map(|(began, sums)| (began, ChargeSums::merged(&sums))).collect())
}

/// `charges`.
pub async fn charges(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    let others = ChargedTo { statement: OTHERS.to_owned(), ..ChargedTo::default() };
    for (began, sums) in hours(views).await? {
        let rest = Place { to: others.clone(), sum: *sums.others(), missed: 0 };
        let rest = (rest.sum.requests > 0).then_some(&rest);
        for Place { to, sum, missed } in sums.places().into_iter().chain(rest) {
            let mut row = writer.row();
            row.set("hour", began / MICROS_A_MILLISECOND)
                .set("keyspace_name", to.keyspace.as_str())
                .set("table_name", to.table.as_str())
                .set("role", to.role.as_str())
                .set("statement", to.statement.as_str())
                .set("requests", sum.requests as i64)
                .set("failed", sum.failed as i64)
                .set("charge", sum.charge as i64)
                .set("missed", *missed as i64);
            for count in COUNTS {
                row.set(count.name(), sum.counts.get(count) as i64);
            }
        }
    }
    Ok(())
}

/// `top_statements`.
pub async fn top_statements(views: &Views, writer: &mut RowWriter<'_>) -> Result<(), AdminError> {
    for period in Period::ALL {
        let sums: Vec<ChargeSums> = match period {
            Period::Minutes => {
                let look =
                    |context: Rc<ShardContext>| std::future::ready(Ok(Charges::last_minutes(&context)));
                views.admin.on_every_shard(move |context| Box::pin(look(context))).await?
            }
            Period::Hours => {
                let look = |context: Rc<ShardContext>| std::future::ready(Ok(Charges::last_hours(&context)));
                views.admin.on_every_shard(move |context| Box::pin(look(context))).await?
            }
        };
        let sums = ChargeSums::merged(&sums);
        let mut tables: BTreeMap<(&str, &str), Vec<&Place>> = BTreeMap::new();
        for place in sums.places() {
            tables.entry((&place.to.keyspace, &place.to.table)).or_default().push(place);
        }
        for ((keyspace, table), mut places) in tables {
            for (sampler, value) in SAMPLERS {
                places.sort_by_key(|place| std::cmp::Reverse(value(&place.sum)));
                let top = places.iter().filter(|place| value(&place.sum) > 0).take(STATEMENTS_MAX);
                for (rank, place) in (1..).zip(top) {
                    writer
                        .row()
                        .set("keyspace_name", keyspace)
                        .set("table_name", table)
                        .set("period", period.name())
                        .set("sampler", sampler)
                        .set("rank", rank)
                        .set("role", place.to.role.as_str())
                        .set("statement", place.to.statement.as_str())
                        .set("requests", place.sum.requests as i64)
                        .set("value", value(&place.sum) as i64)
                        .set("missed", (sampler == "CHARGE").then_some(place.missed as i64));
                }
            }
        }
    }
    Ok(())
}
