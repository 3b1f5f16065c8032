//! Requests about repair. Used from the feature level [`helenus_ring::metadata::REPAIRS`] on.

use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_internode::service::{Failure, ServiceRequest, TrafficClass};
use helenus_ring::HostId;
use helenus_ring::placement::TokenRange;
use serde::{Deserialize, Serialize};

use super::digests::{self, DigestRequest, PartDigest};
use super::history;
use crate::coordinator::replica::answer::{self, ReadAnswer, ReadRequest, Wants};
use crate::shard::call::Serve;
use crate::shard::context::ShardContext;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RepairRequest {
    /// Send digests of parts of a table's ranges, over all shards of the node.
    Digests(DigestRequest),
    /// Send the versions of a range, with the deletions that compaction may have purged.
    Versions(ReadRequest),
    /// Note that all replicas of these ranges were equal at that time, in microseconds since the epoch.
    Repaired { table_id: u128, ranges: Vec<TokenRange>, began_micros: i64 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RepairResponse {
    /// One for each of the first parts, at least one, ordered by range and part.
    Digests(Vec<PartDigest>),
    Versions(ReadAnswer),
    Noted,
}

impl ServiceRequest for RepairRequest {
    const ID: u32 = 4;
    const TRAFFIC_CLASS: TrafficClass = TrafficClass::Stream;
    type Response = RepairResponse;
}

impl Serve for RepairRequest {
    fn serve(
        self,
        context: Rc<ShardContext>,
        _from: HostId,
    ) -> LocalBoxFuture<'static, Result<RepairResponse, Failure>> {
        Box::pin(async move {
            match self {
                Self::Digests(request) => {
                    digests::receive(&context, request).await.map(RepairResponse::Digests)
                }
                Self::Versions(request) => {
                    let request = ReadRequest { wants: Wants::AllVersions, ..request };
                    answer::receive(&context, request).await.map(RepairResponse::Versions)
                }
                Self::Repaired { table_id, ranges, began_micros } => {
                    history::note(&context, table_id, &ranges, began_micros).await?;
                    Ok(RepairResponse::Noted)
                }
            }
        })
    }

    fn name(&self) -> &'static str {
        "REPAIR"
    }
}
