//! Operations on the snapshots of members: a member carries them out on all its shards, and has the others do so when it is asked for all.
//!
//! Invariants:
//! * The report on all members has each of them once, either with what it has done or with the reason why it has not.
//! * What is missing of the schema of a snapshot is created once, by the member that was asked, before the first one restores.
//! * Nothing is sent below the feature level [`MEMBER_SNAPSHOTS`], and about uploads nothing below [`MEMBER_UPLOADS`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use helenus_admin::reports::{ClusterSnapshots, MemberSnapshots, SnapshotReport};
use helenus_engine::{EngineError, TableId};
use helenus_internode::service::Failure;
use helenus_internode::transport::PeerError;
use helenus_observe::{RestoreRequest, SnapshotOperation, UploadRequest};
use helenus_query::error::RequestError;
use helenus_query::schema::ddl::SnapshotSchema;
use helenus_query::schema::selection::{SelectionError, TableSelection};
use helenus_ring::member::Member;
use helenus_ring::metadata::{MEMBER_SNAPSHOTS, MEMBER_UPLOADS};
use helenus_ring::topology::Topology;
use serde::{Deserialize, Serialize};

use super::message::{ClusterRequest, ClusterResponse};
use super::restore::{self, RestoreError};
use super::schema;
use super::uploads::{self, UploadError};
use helenus_execution::shard::context::{ShardContext, from_every_shard, on_every_shard};
use helenus_execution::shard::snapshots;

/// Time limit for what only reports: less than `helenus admin` waits.
const REPORT_DEADLINE: Duration = Duration::from_secs(20);
/// Time limit for what moves data. A member that dies meanwhile is noticed long before.
const WORK_DEADLINE: Duration = Duration::from_hours(24);

/// What a member asks another one for; between them as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum SnapshotOrder {
    CarryOut(SnapshotOperation),
    /// Return the schemas of the tables that this would restore.
    FindSchemas(RestoreRequest),
}

/// The answer to a [`SnapshotOrder`].
#[derive(Debug, Default, Serialize, Deserialize)]
struct SnapshotAnswer {
    report: MemberSnapshots,
    /// As in the snapshot's `schema.json`.
    schemas: Vec<String>,
}

/// The reason why an operation on snapshots was not carried out, by one member or at all.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("nothing was done: the programs of these members are too old for an operation on all members: {}", list(.0))]
    OlderMembers(Vec<SocketAddr>),
    #[error("the member is down")]
    Down,
    #[error("the member has not answered the question")]
    OtherAnswer,
    #[error("a message between members cannot be read or written: {0}")]
    Message(#[from] serde_json::Error),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Selection(#[from] SelectionError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Upload(#[from] UploadError),
    #[error(transparent)]
    Request(#[from] RequestError),
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Takes snapshots of tables on this node: of all tables or, if one of them has a snapshot of that name, of none.
pub async fn take(
    context: &Rc<ShardContext>,
    name: String,
    tables: &TableSelection,
) -> Result<(), SnapshotError> {
    let tables = tables.tables(&context.catalog())?;
    let ids: Vec<TableId> = tables.iter().map(|table| table.engine_id()).collect();
    // Also what only some of the shards have, after a snapshot that failed half way.
    let present = from_every_shard(context, |context| {
        Box::pin(async move { Ok(context.shard.list_snapshots().await?) })
    })
    .await?;
    if present.iter().flatten().any(|entry| entry.name == name && ids.contains(&entry.table)) {
        return Err(RequestError::from(EngineError::SnapshotExists(name)).into());
    }
    on_every_shard(context, move |context| {
        let (name, ids) = (name.clone(), ids.clone());
        Box::pin(async move {
            for id in ids {
                snapshots::take_named(&context, id, name.clone()).await?;
            }
            Ok(())
        })
    })
    .await?;
    Ok(())
}

/// The snapshots of this node, by name, keyspace and table.
pub async fn list_all(context: &Rc<ShardContext>) -> Result<Vec<SnapshotReport>, SnapshotError> {
    let shards =
        from_every_shard(context, |context| Box::pin(async move { snapshots::list(&context).await })).await?;
    let mut reports: BTreeMap<(String, String), SnapshotReport> = BTreeMap::new();
    for listed in shards.into_iter().flatten() {
        let (name, table_id) = (listed.entry.name, listed.entry.table.to_string());
        let report = reports.entry((name.clone(), table_id.clone())).or_insert(SnapshotReport {
            name,
            table_id,
            keyspace: listed.keyspace,
            table: listed.table,
            created_at: listed.created_at,
            expires_at: listed.expires_at,
            disk_bytes: 0,
        });
        report.disk_bytes += listed.bytes;
    }
    let mut reports: Vec<SnapshotReport> = reports.into_values().collect();
    // Ids are no order for a reader: they say when a table was created, and that with the fast part of the clock first.
    reports.sort_by(|a, b| (&a.name, &a.keyspace, &a.table).cmp(&(&b.name, &b.keyspace, &b.table)));
    Ok(reports)
}

/// Removes the snapshots of a name from this node.
pub async fn clear(context: &Rc<ShardContext>, name: String) -> Result<(), SnapshotError> {
    on_every_shard(context, move |context| {
        let name = name.clone();
        Box::pin(async move { Ok(context.shard.clear_snapshot(&name).await?) })
    })
    .await?;
    Ok(())
}

/// Carries out what another member, or this one, asks this node for. Call on the first shard.
async fn carry_out(
    context: &Rc<ShardContext>,
    order: SnapshotOrder,
) -> Result<SnapshotAnswer, SnapshotError> {
    let mut answer = SnapshotAnswer::default();
    match order {
        SnapshotOrder::CarryOut(SnapshotOperation::Take { name, tables }) => {
            take(context, name.clone(), &tables).await?;
            answer.report.snapshots = list_all(context).await?;
            answer.report.snapshots.retain(|snapshot| snapshot.name == name);
        }
        SnapshotOrder::CarryOut(SnapshotOperation::List) => {
            answer.report.snapshots = list_all(context).await?;
        }
        SnapshotOrder::CarryOut(SnapshotOperation::Clear { name }) => clear(context, name).await?,
        SnapshotOrder::CarryOut(SnapshotOperation::Restore(request)) => {
            answer.report.tables = restore::restore(context, request).await?;
        }
        SnapshotOrder::CarryOut(SnapshotOperation::Upload(request)) => {
            answer.report.uploaded = Some(uploads::upload(context, request).await?);
        }
        SnapshotOrder::CarryOut(SnapshotOperation::RemoveUpload { name }) => {
            answer.report.removed = Some(uploads::remove(context, name, None).await?);
        }
        SnapshotOrder::FindSchemas(RestoreRequest { name, keyspace, table, .. }) => {
            let found = restore::schemas(context, &name, keyspace.as_ref(), table.as_ref()).await?;
            answer.schemas = found.values().map(SnapshotSchema::encode).collect::<Result<_, _>>()?;
        }
    }
    Ok(answer)
}

/// Executes [`ClusterRequest::Snapshots`].
pub async fn handle(context: &Rc<ShardContext>, order: &str) -> Result<ClusterResponse, Failure> {
    let order = serde_json::from_str(order).map_err(|error| Failure::Malformed(error.to_string()))?;
    let failed = |error: &dyn std::fmt::Display| Failure::Internal(error.to_string());
    let answer = carry_out(context, order).await.map_err(|error| failed(&error))?;
    let answer = serde_json::to_string(&answer).map_err(|error| failed(&error))?;
    Ok(ClusterResponse::Snapshots { answer })
}

/// What a member answers, or the reason why it has not carried the order out.
async fn ask(
    context: &Rc<ShardContext>,
    member: &Member,
    request: &ClusterRequest,
    deadline: Duration,
) -> SnapshotAnswer {
    let asked = async {
        if !context.cluster().is_alive(&member.host_id) {
            return Err(SnapshotError::Down);
        }
        match context.ask(member, 0, request, deadline).await? {
            ClusterResponse::Snapshots { answer } => Ok(serde_json::from_str(&answer)?),
            _ => Err(SnapshotError::OtherAnswer),
        }
    };
    let mut answer: SnapshotAnswer = match asked.await {
        Ok(answer) => answer,
        Err(error) => {
            tracing::warn!(member = %member.internode_address, %error, "a member has not carried out an operation on snapshots");
            let report = MemberSnapshots { error: Some(error.to_string()), ..MemberSnapshots::default() };
            SnapshotAnswer { report, ..SnapshotAnswer::default() }
        }
    };
    answer.report.host_id = member.host_id.to_string();
    answer.report.address = member.internode_address.to_string();
    answer
}

async fn ask_all<'a>(
    context: &Rc<ShardContext>,
    members: impl Iterator<Item = &'a Arc<Member>>,
    order: SnapshotOrder,
    deadline: Duration,
) -> Result<Vec<SnapshotAnswer>, SnapshotError> {
    let request = ClusterRequest::Snapshots { order: serde_json::to_string(&order)? };
    let asked = members.map(|member| ask(context, member, &request, deadline));
    Ok(futures::future::join_all(asked).await)
}

/// Refuses what members with older programs would not understand.
fn check_programs(topology: &Topology, operation: &SnapshotOperation) -> Result<(), SnapshotError> {
    let needed = match operation {
        SnapshotOperation::Upload(_) | SnapshotOperation::RemoveUpload { .. } => MEMBER_UPLOADS,
        SnapshotOperation::Take { .. }
        | SnapshotOperation::List
        | SnapshotOperation::Clear { .. }
        | SnapshotOperation::Restore(_) => MEMBER_SNAPSHOTS,
    };
    if topology.feature_level >= needed {
        return Ok(());
    }
    let older = topology.members.values().filter(|member| member.feature_version < needed);
    Err(SnapshotError::OlderMembers(older.map(|member| member.internode_address).collect()))
}

/// Has all members carry an operation out. Call on the first shard.
pub async fn everywhere(
    context: &Rc<ShardContext>,
    operation: SnapshotOperation,
) -> Result<ClusterSnapshots, SnapshotError> {
    let topology = context.cluster().topology.clone();
    check_programs(&topology, &operation)?;
    let (name, operation, deadline) = match operation {
        SnapshotOperation::Take { name, tables } => {
            // All members take the same tables, and names that nobody knows are refused once.
            let tables = TableSelection::by_name(&tables.tables(&context.catalog())?);
            (Some(name.clone()), SnapshotOperation::Take { name, tables }, WORK_DEADLINE)
        }
        SnapshotOperation::List => (None, operation, REPORT_DEADLINE),
        SnapshotOperation::Clear { ref name }
        | SnapshotOperation::RemoveUpload { ref name }
        | SnapshotOperation::Upload(UploadRequest { ref name, .. }) => {
            (Some(name.clone()), operation, WORK_DEADLINE)
        }
        SnapshotOperation::Restore(ref request) => (Some(request.name.clone()), operation, WORK_DEADLINE),
    };
    let answers = match operation {
        SnapshotOperation::Restore(request) => restore_everywhere(context, &topology, request).await?,
        other => {
            let order = SnapshotOrder::CarryOut(other);
            ask_all(context, topology.members.values(), order, deadline).await?
        }
    };
    let mut members: Vec<MemberSnapshots> = answers.into_iter().map(|answer| answer.report).collect();
    members.sort_by(|left, right| left.address.cmp(&right.address));
    Ok(ClusterSnapshots { name, members })
}

/// Has all members that have a snapshot restore it, after what is missing of its schema was created.
async fn restore_everywhere(
    context: &Rc<ShardContext>,
    topology: &Topology,
    request: RestoreRequest,
) -> Result<Vec<SnapshotAnswer>, SnapshotError> {
    restore::check_ring(context)?;
    let order = SnapshotOrder::FindSchemas(request.clone());
    let mut found = ask_all(context, topology.members.values(), order, REPORT_DEADLINE).await?;
    let mut schemas = BTreeMap::new();
    for text in found.iter().flat_map(|answer| &answer.schemas) {
        let schema = snapshots::decode_schema(snapshots::CATALOG_FILE.as_ref(), text.as_bytes())?;
        if let Entry::Vacant(place) = schemas.entry(schema.table().engine_id()) {
            place.insert(schema);
        }
    }
    restore::check_count(schemas.len(), &request)?;
    for schema in schemas.values() {
        schema::make_place(context, schema, request.into.as_ref().unwrap_or(&schema.table().name)).await?;
    }
    found.retain(|answer| answer.report.error.is_some());
    let lacks = |member: &Member| {
        let host_id = member.host_id.to_string();
        found.iter().any(|answer| answer.report.host_id == host_id)
    };
    let holders: Vec<_> = topology.members.values().filter(|member| !lacks(member)).collect();
    let order = SnapshotOrder::CarryOut(SnapshotOperation::Restore(request));
    let restored = ask_all(context, holders.into_iter(), order, WORK_DEADLINE).await?;
    found.extend(restored);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use helenus_ring::HostId;
    use helenus_testing::member;

    use super::*;

    #[test]
    fn members_with_older_programs_are_named_and_not_asked() {
        let versions = [(1, MEMBER_SNAPSHOTS), (2, MEMBER_SNAPSHOTS - 1), (3, MEMBER_SNAPSHOTS - 2)];
        let known = |(number, feature_version)| {
            let host_id = HostId::from_u128(number);
            (host_id, Arc::new(Member { feature_version, ..member(host_id, "dc", "rack", &[]) }))
        };
        let members: BTreeMap<HostId, Arc<Member>> = versions.into_iter().map(known).collect();
        let older: Vec<_> = members.values().skip(1).map(|member| member.internode_address).collect();
        let topology =
            |feature_level| Topology { feature_level, members: members.clone(), ..Topology::default() };
        let refused = check_programs(&topology(MEMBER_SNAPSHOTS - 2), &SnapshotOperation::List)
            .unwrap_err()
            .to_string();
        assert!(refused.starts_with("nothing was done") && refused.ends_with(&list(&older)), "{refused}");
        check_programs(&topology(MEMBER_SNAPSHOTS), &SnapshotOperation::List).unwrap();
        let removal = SnapshotOperation::RemoveUpload { name: "n".to_owned() };
        assert!(check_programs(&topology(MEMBER_SNAPSHOTS), &removal).is_err());
        check_programs(&topology(MEMBER_UPLOADS), &removal).unwrap();
    }
}
