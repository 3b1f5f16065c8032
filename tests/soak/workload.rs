//! The objects in CQL: how a version is written, and what a whole version looks like when it is read back.

use std::time::Duration;

use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use crate::error::SoakError;
use crate::ledger::{Kind, Ledger, Object};

const SCHEMA: [&str; 5] = [
    "CREATE KEYSPACE IF NOT EXISTS soak WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE IF NOT EXISTS soak.rows (id bigint PRIMARY KEY, version bigint, a text, b blob, c bigint, d text)",
    "CREATE TABLE IF NOT EXISTS soak.batches (id bigint, slot bigint, version bigint, newest bigint static, \
     PRIMARY KEY (id, slot))",
    "CREATE TABLE IF NOT EXISTS soak.logs (id bigint, seq bigint, filler text, PRIMARY KEY (id, seq)) \
     WITH CLUSTERING ORDER BY (seq DESC)",
    "CREATE TABLE IF NOT EXISTS soak.counters (id bigint PRIMARY KEY, hits counter)",
];

/// Rows of a batch partition that every version overwrites; above them one row moves with the version.
const SLOTS: i64 = 4;
const MOVING_SLOT: i64 = 100;
/// Rows of a log below the acknowledged version that are read again in every round.
const LOG_OVERLAP: u64 = 200;

/// A session with everything prepared.
pub struct Workload {
    session: Session,
    put_row: PreparedStatement,
    get_row: PreparedStatement,
    change_batch: Batch,
    get_batch: PreparedStatement,
    append_log: PreparedStatement,
    get_log: PreparedStatement,
    count: PreparedStatement,
    get_count: PreparedStatement,
}

fn driver(what: &str) -> impl Fn(&dyn std::error::Error) -> SoakError + '_ {
    move |error| SoakError::Refused(format!("{what}: {error}"))
}

impl Workload {
    /// Connects to `ADDRESS:PORT` and creates the tables that are missing.
    pub async fn connect(address: &str) -> Result<Self, SoakError> {
        let session = SessionBuilder::new()
            .known_node(address)
            .schema_agreement_interval(Duration::from_millis(10))
            .keepalive_interval(Duration::from_secs(30))
            .build()
            .await
            .map_err(|error| driver("connect")(&error))?;
        for statement in SCHEMA {
            session.query_unpaged(statement, &[]).await.map_err(|error| driver(statement)(&error))?;
        }
        let prepare = async |text: &str| {
            let mut prepared = session.prepare(text).await.map_err(|error| driver(text)(&error))?;
            prepared.set_consistency(Consistency::LocalOne);
            Ok::<_, SoakError>(prepared)
        };
        let mut change_batch = Batch::new(BatchType::Unlogged);
        change_batch.set_consistency(Consistency::LocalOne);
        let set_slot = prepare("INSERT INTO soak.batches (id, slot, version) VALUES (?, ?, ?)").await?;
        for _ in 0..=SLOTS {
            change_batch.append_statement(set_slot.clone());
        }
        change_batch.append_statement(prepare("DELETE FROM soak.batches WHERE id = ? AND slot = ?").await?);
        change_batch.append_statement(prepare("UPDATE soak.batches SET newest = ? WHERE id = ?").await?);
        Ok(Self {
            put_row: prepare("INSERT INTO soak.rows (id, version, a, b, c, d) VALUES (?, ?, ?, ?, ?, ?)")
                .await?,
            get_row: prepare("SELECT version, a, b, c, d FROM soak.rows WHERE id = ?").await?,
            change_batch,
            get_batch: prepare("SELECT slot, version, newest FROM soak.batches WHERE id = ?").await?,
            append_log: prepare("INSERT INTO soak.logs (id, seq, filler) VALUES (?, ?, ?)").await?,
            get_log: prepare("SELECT seq FROM soak.logs WHERE id = ? AND seq > ?").await?,
            count: prepare("UPDATE soak.counters SET hits = hits + 1 WHERE id = ?").await?,
            get_count: prepare("SELECT hits FROM soak.counters WHERE id = ?").await?,
            session,
        })
    }

    /// Writes the next version of one of the ledger's objects and notes whether it was acknowledged.
    pub async fn write(&self, ledger: &mut Ledger) -> Result<(), SoakError> {
        let Some(object) = ledger.choose() else { return Ok(()) };
        object.issued += 1;
        let (id, version) = (object.id, object.issued as i64);
        match object.kind {
            Kind::Row => {
                let (a, b, c, d) = columns(id, version);
                self.execute(&self.put_row, (id, version, a, b, c, d)).await?;
            }
            Kind::Batch => {
                let slot = |n: i64| (id, n, version);
                let moved = (id, MOVING_SLOT + version, version);
                let values = (
                    slot(0),
                    slot(1),
                    slot(2),
                    slot(3),
                    moved,
                    (id, MOVING_SLOT + version - 1),
                    (version, id),
                );
                let done = self.session.batch(&self.change_batch, values).await;
                done.map_err(|error| driver("batch")(&error))?;
            }
            Kind::Log => self.execute(&self.append_log, (id, version, filler(version))).await?,
            Kind::Counter => self.execute(&self.count, (id,)).await?,
        }
        object.acknowledged = object.issued;
        Ok(())
    }

    async fn execute(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<(), SoakError> {
        let done = self.session.execute_unpaged(statement, values).await;
        done.map(drop).map_err(|error| driver(statement.get_statement())(&error))
    }

    async fn rows<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Vec<R>, SoakError>
    where
        R: for<'a> DeserializeRow<'a, 'a>,
    {
        let text = statement.get_statement();
        let result = self.session.execute_unpaged(statement, values).await;
        let result = result.map_err(|error| driver(text)(&error))?;
        let result = result.into_rows_result().map_err(|error| driver(text)(&error))?;
        let rows = result.rows::<R>().map_err(|error| driver(text)(&error))?;
        rows.collect::<Result<_, _>>().map_err(|error| driver(text)(&error))
    }

    /// Reads every object and compares it with what the ledger allows; what was read is acknowledged from then on.
    pub async fn verify(&self, ledger: &mut Ledger, whole: bool) -> Result<(), SoakError> {
        for object in &mut ledger.objects {
            let found = match object.kind {
                Kind::Row => self.version_of_row(object).await?,
                Kind::Batch => self.version_of_batch(object).await?,
                Kind::Log => self.version_of_log(object, whole).await?,
                Kind::Counter => self.version_of_counter(object).await?,
            };
            if !(object.acknowledged..=object.issued).contains(&found) {
                let (acknowledged, issued) = (object.acknowledged, object.issued);
                return violation(
                    object,
                    &format!("stands at version {found}, acknowledged {acknowledged}, asked for {issued}"),
                );
            }
            object.acknowledged = found;
            object.issued = found;
        }
        Ok(())
    }

    async fn version_of_row(&self, object: &Object) -> Result<u64, SoakError> {
        type Columns = (Option<i64>, Option<String>, Option<Vec<u8>>, Option<i64>, Option<String>);
        match self.rows::<Columns>(&self.get_row, (object.id,)).await?.as_slice() {
            [] => Ok(0),
            [(Some(version), Some(a), Some(b), Some(c), Some(d))]
                if (a.clone(), b.clone(), *c, d.clone()) == columns(object.id, *version) =>
            {
                Ok(*version as u64)
            }
            rows => violation(object, &format!("is half there: {rows:?}")),
        }
    }

    async fn version_of_batch(&self, object: &Object) -> Result<u64, SoakError> {
        type Slot = (Option<i64>, Option<i64>, Option<i64>);
        let rows = self.rows::<Slot>(&self.get_batch, (object.id,)).await?;
        let Some((_, _, Some(version))) = rows.first().copied() else {
            return if rows.is_empty() {
                Ok(0)
            } else {
                violation(object, &format!("is half there: {rows:?}"))
            };
        };
        let slots = (0..SLOTS).chain([MOVING_SLOT + version]);
        let expected: Vec<Slot> = slots.map(|slot| (Some(slot), Some(version), Some(version))).collect();
        if rows == expected {
            Ok(version as u64)
        } else {
            violation(object, &format!("is half there: {rows:?}"))
        }
    }

    async fn version_of_log(&self, object: &Object, whole: bool) -> Result<u64, SoakError> {
        let start = if whole { 0 } else { object.acknowledged.saturating_sub(LOG_OVERLAP) };
        let rows = self.rows::<(i64,)>(&self.get_log, (object.id, start as i64)).await?;
        let newest = start + rows.len() as u64;
        let without_gap = rows.iter().map(|(seq,)| *seq as u64).eq((start + 1..=newest).rev());
        if without_gap {
            Ok(newest)
        } else {
            violation(object, &format!("has gaps or doubles above {start}: {rows:?}"))
        }
    }

    async fn version_of_counter(&self, object: &Object) -> Result<u64, SoakError> {
        let rows = self.rows::<(Option<scylla::value::Counter>,)>(&self.get_count, (object.id,)).await?;
        Ok(rows.first().and_then(|(hits,)| hits.as_ref()).map_or(0, |hits| hits.0 as u64))
    }
}

fn violation<T>(object: &Object, what: &str) -> Result<T, SoakError> {
    Err(SoakError::Violation(format!("{:?} {} {what}", object.kind, object.id)))
}

/// The columns of a version of a row: of different lengths, all of them telling the version.
fn columns(id: i64, version: i64) -> (String, Vec<u8>, i64, String) {
    let blob = version.to_be_bytes().repeat(1 + version.unsigned_abs() as usize % 40);
    (format!("{id}/{version}"), blob, version.wrapping_mul(7), filler(version))
}

fn filler(version: i64) -> String {
    format!("{version},").repeat(1 + version.unsigned_abs() as usize % 50)
}
