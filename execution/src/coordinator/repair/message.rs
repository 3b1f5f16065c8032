//! Requests about repair. Used from the feature level [`helenus_ring::metadata::REPAIRS`] on.

use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_engine::TableId;
use helenus_engine::shard::Unopened;
use helenus_internode::service::{Failure, ServiceRequest, TrafficClass};
use helenus_query::error::RequestError;
use helenus_ring::HostId;
use helenus_ring::placement::TokenRange;
use serde::{Deserialize, Serialize};

use super::digests::{self, DigestRequest, PartDigest};
use super::history;
use super::mending::{self, DamagedFiles};
use crate::coordinator::paxos::open;
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
    /// As [`Self::Digests`], without what files may hold that could not be opened. Sent from the feature level
    /// [`helenus_ring::metadata::MENDING`] on, as those that follow.
    DigestsAroundDamage(DigestRequest),
    /// Name the files of a table that could not be opened.
    DamagedFiles { table_id: u128 },
    /// Give up those of these files all of whose tokens were fetched from the other replicas.
    GiveUp { table_id: u128, files: DamagedFiles, fetched: Vec<TokenRange> },
    /// Name the partitions of a table, in ranges given by first and last token, with transactions of before that time whose outcome is open.
    OpenTransactions { table_id: u128, ranges: Vec<(i64, i64)>, before_micros: i64 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RepairResponse {
    /// One for each of the first parts, at least one, ordered by range and part.
    Digests(Vec<PartDigest>),
    Versions(ReadAnswer),
    Noted,
    DamagedFiles(DamagedFiles),
    GivenUp {
        files: u64,
    },
    /// Tokens and keys of partitions: the first ones, none only if there are none.
    OpenTransactions(Vec<(i64, Vec<u8>)>),
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
                    let digests = digests::receive(&context, request, Unopened::Refused);
                    digests.await.map(RepairResponse::Digests)
                }
                Self::DigestsAroundDamage(request) => {
                    let digests = digests::receive(&context, request, Unopened::LeftOut);
                    digests.await.map(RepairResponse::Digests)
                }
                Self::Versions(request) => {
                    let wants = match request.wants {
                        Wants::AllVersionsAroundDamage => Wants::AllVersionsAroundDamage,
                        _ => Wants::AllVersions,
                    };
                    let request = ReadRequest { wants, ..request };
                    answer::receive(&context, request).await.map(RepairResponse::Versions)
                }
                Self::Repaired { table_id, ranges, began_micros } => {
                    history::note(&context, table_id, &ranges, began_micros).await?;
                    Ok(RepairResponse::Noted)
                }
                Self::DamagedFiles { table_id } => {
                    mending::damaged_files(&context, table_id).await.map(RepairResponse::DamagedFiles)
                }
                Self::GiveUp { table_id, files, fetched } => {
                    let files = mending::give_up(&context, table_id, files, &fetched).await?;
                    Ok(RepairResponse::GivenUp { files })
                }
                Self::OpenTransactions { table_id, ranges, before_micros } => {
                    let table = TableId(table_id.to_be_bytes());
                    let open = open::open(&context, table, ranges, before_micros).await;
                    let failed = |error: RequestError| Failure::Internal(error.to_string());
                    open.map(RepairResponse::OpenTransactions).map_err(failed)
                }
            }
        })
    }

    fn name(&self) -> &'static str {
        "REPAIR"
    }
}
