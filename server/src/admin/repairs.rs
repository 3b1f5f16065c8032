//! Repairs: starting, watching and cancelling them.

use std::time::Duration;

use cql_lite::types::time::format_timestamp;
use futures::future::LocalBoxFuture;
use helenus_admin::reports::{RepairReport, RepairedTable, RepairsReport};
use helenus_execution::coordinator::repair::ages::{self, RepairAge};
use helenus_execution::coordinator::repair::job::{self, RepairError};
use helenus_execution::coordinator::repair::runs::{Cause, RepairRuns, RepairScope, RunReport, RunState};
use helenus_execution::coordinator::repair::schedule;
use helenus_execution::shard::context::run_on;
use helenus_observe::{AdminError, RepairRanges, RepairRequest};

use super::{NodeAdmin, failed};

impl NodeAdmin {
    pub(super) async fn repair_ranges(&self, request: RepairRequest) -> Result<RepairReport, AdminError> {
        let data_centers =
            if request.is_local { vec![self.node.config.data_center.clone()] } else { request.data_centers };
        let scope = RepairScope {
            keyspace: request.keyspace,
            tables: request.tables,
            ranges: request.ranges,
            data_centers,
            without_dead: request.force,
            and_this_node: false,
        };
        self.carry_out(scope).await
    }

    /// Makes the ranges of this node equal to those of a data center.
    pub(super) async fn rebuild_from(
        &self,
        data_center: String,
        keyspace: Option<String>,
    ) -> Result<RepairReport, AdminError> {
        let scope = RepairScope {
            keyspace,
            ranges: RepairRanges::OfNode,
            data_centers: vec![data_center],
            and_this_node: true,
            ..RepairScope::default()
        };
        self.carry_out(scope).await
    }

    async fn carry_out(&self, scope: RepairScope) -> Result<RepairReport, AdminError> {
        // A job of the first shard, so that it completes even if the client disconnects.
        let job = |context| -> LocalBoxFuture<'static, Result<(RunReport, i64), RepairError>> {
            Box::pin(async move {
                let report = job::repair(&context, scope).await?;
                Ok((report, context.clock.now_micros()))
            })
        };
        let repaired = run_on(&self.node.links[0], job).await.map_err(|error| failed(&error))?;
        match repaired {
            Ok((report, now_micros)) => Ok(of_run(report, now_micros)),
            Err(
                error @ (RepairError::UnknownKeyspace(_)
                | RepairError::UnknownTable { .. }
                | RepairError::UnknownDataCenter(_)),
            ) => Err(AdminError::Unknown(error.to_string())),
            Err(error) => Err(AdminError::Failed(error.to_string())),
        }
    }

    pub(super) async fn repairs_report(&self) -> Result<RepairsReport, AdminError> {
        let tables = self.repaired_tables().await?;
        self.on_first_shard(|context| {
            let now_micros = context.clock.now_micros();
            let runs = RepairRuns::of(&context.node).reports();
            Ok(RepairsReport {
                is_automatic: context.node.config.automatic_repair,
                waits_for: schedule::waits_for(context).into_iter().collect(),
                away_too_long: schedule::away_too_long(context),
                repairs: runs.into_iter().map(|run| of_run(run, now_micros)).collect(),
                tables,
            })
        })
        .await
    }

    /// How old the repairs of the ranges of which this node is a replica, and not the only one, are.
    pub(super) async fn repaired_tables(&self) -> Result<Vec<RepairedTable>, AdminError> {
        let ages = run_on(&self.node.links[0], |context| Box::pin(async move { ages::ages(&context).await }))
            .await
            .map_err(|error| failed(&error))?;
        Ok(ages.into_iter().map(of_age).collect())
    }

    pub(super) fn cancel_repairs(&self, id: Option<u64>) -> Result<(), AdminError> {
        match (RepairRuns::of(&self.node).cancel(id), id) {
            (0, None) => Err(AdminError::Unknown("no repair is under way on this node".to_owned())),
            (0, Some(id)) => Err(AdminError::Unknown(format!("no repair {id} is under way on this node"))),
            _ => Ok(()),
        }
    }
}

fn of_age(age: RepairAge) -> RepairedTable {
    RepairedTable {
        repaired_at: age.repaired_micros.map(text_of),
        age_seconds: age.repaired_micros.map(|_| age.unrepaired.as_secs()),
        unrepaired_seconds: age.unrepaired.as_secs(),
        interval_seconds: age.interval.as_secs(),
        grace_seconds: age.grace.as_secs(),
        is_late: age.is_late(),
        keyspace: age.keyspace,
        table: age.table,
    }
}

fn text_of(micros: i64) -> String {
    format_timestamp(micros / 1_000)
}

fn of_run(run: RunReport, now_micros: i64) -> RepairReport {
    let elapsed = Duration::from_micros(now_micros.saturating_sub(run.began_micros).max(0) as u64);
    let is_running = run.state == RunState::Running;
    let seconds_left = (is_running && run.done > 0.0)
        .then(|| (elapsed.as_secs_f64() * (1.0 - run.done) / run.done).ceil() as u64);
    RepairReport {
        id: run.id,
        keyspace: run.scope.keyspace,
        tables: run.scope.tables,
        ranges: match run.scope.ranges {
            RepairRanges::All => "all".to_owned(),
            RepairRanges::OfNode => "of the node".to_owned(),
            RepairRanges::PrimaryOfNode => "primary".to_owned(),
            RepairRanges::Range { start, end } => format!("({start}, {end}]"),
        },
        data_centers: run.scope.data_centers,
        is_automatic: run.cause == Cause::Schedule,
        state: match run.state {
            RunState::Running => "running",
            RunState::Done => "done",
            RunState::Incomplete => "incomplete",
            RunState::Cancelled => "cancelled",
        }
        .to_owned(),
        began_at: text_of(run.began_micros),
        ended_at: run.ended_micros.map(text_of),
        percent: run.done * 100.0,
        seconds_left,
        current: run.current,
        differing_parts: run.differing_parts,
        compared_bytes: run.compared_bytes,
        received_bytes: run.received_bytes,
        sent_bytes: run.sent_bytes,
        written_mutations: run.written_mutations,
        failures: run.failures,
        failure_count: run.failure_count,
    }
}
