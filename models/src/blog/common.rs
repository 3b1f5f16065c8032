//! What the designs share: the users' table, loading items by batches, choosing the newest posts of a whole table.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use futures::{StreamExt, TryStreamExt, stream};
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::generate::User;
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// Kinds of rows in a post's partition.
pub const COMMENT: &str = "comment";
pub const LIKE: &str = "like";

/// Point reads in flight for one request that needs many.
pub const FAN_OUT: usize = 32;

/// Rows a batch when loading: some 15 KB, which every server takes.
const BATCH_ROWS: usize = 100;

/// The `users` table, the same in all designs.
pub struct Users<'a> {
    client: &'a Client,
    put: PreparedStatement,
    get: PreparedStatement,
    rename: PreparedStatement,
    name: PreparedStatement,
}

impl<'a> Users<'a> {
    pub async fn prepare(client: &'a Client, keyspace: &str) -> Result<Self, Error> {
        Ok(Self {
            client,
            put: client
                .prepare(&format!("INSERT INTO {keyspace}.users (user_id, username, about) VALUES (?, ?, ?)"))
                .await?,
            get: client
                .prepare(&format!("SELECT user_id, username, about FROM {keyspace}.users WHERE user_id = ?"))
                .await?,
            rename: client
                .prepare(&format!("UPDATE {keyspace}.users SET username = ? WHERE user_id = ?"))
                .await?,
            name: client.prepare(&format!("SELECT username FROM {keyspace}.users WHERE user_id = ?")).await?,
        })
    }

    /// C1: creates a user, or edits one.
    pub async fn put(&self, user: &User) -> Result<CountedResponse<()>, Error> {
        self.client.execute(&self.put, (user.id, &user.username, &user.about)).await?;
        Ok(CountedResponse::written(1))
    }

    /// C1 for a user's name alone.
    pub async fn rename(&self, user_id: Uuid, username: &str) -> Result<CountedResponse<()>, Error> {
        self.client.execute(&self.rename, (username, user_id)).await?;
        Ok(CountedResponse::written(1))
    }

    /// Q1: a user.
    pub async fn get(&self, user_id: Uuid) -> Result<CountedResponse<Option<User>>, Error> {
        let answer = self.client.select_one::<(Uuid, String, String)>(&self.get, (user_id,)).await?;
        Ok(answer.map(|row| row.map(|(id, username, about)| User { id, username, about })))
    }

    /// The name of a user, empty for one that does not exist.
    pub async fn name(&self, user_id: Uuid) -> Result<CountedResponse<String>, Error> {
        let answer = self.client.select_one::<(String,)>(&self.name, (user_id,)).await?;
        Ok(answer.map(|row| row.map(|(name,)| name).unwrap_or_default()))
    }

    /// The names of many users, each read once, some at a time.
    pub async fn names(
        &self,
        user_ids: impl Iterator<Item = Uuid>,
    ) -> Result<CountedResponse<HashMap<Uuid, String>>, Error> {
        let distinct: BTreeSet<Uuid> = user_ids.collect();
        let names: Vec<(Uuid, String)> = stream::iter(distinct)
            .map(|user_id| async move { Ok::<_, Error>((user_id, self.name(user_id).await?.value)) })
            .buffer_unordered(FAN_OUT)
            .try_collect()
            .await?;
        let count = names.len() as u64;
        Ok(CountedResponse { value: names.into_iter().collect(), rows: count, pages: count })
    }
}

/// Writes rows of one partition by unlogged batches of bounded size (a batch in one partition is one write).
pub async fn write_rows<V: SerializeRow>(
    client: &Client,
    statement: &PreparedStatement,
    rows: &[V],
) -> Result<(), Error> {
    for chunk in rows.chunks(BATCH_ROWS) {
        let mut batch = Batch::new(BatchType::Unlogged);
        for _ in chunk {
            batch.append_statement(statement.clone());
        }
        client.batch(statement.get_statement(), batch, chunk).await?;
    }
    Ok(())
}

/// Reads the ids of all posts by `scan` and keeps the newest: CQL orders rows only within a partition, so a table
/// that is partitioned by post has to be read whole.
pub async fn newest_ids(
    client: &Client,
    scan: &PreparedStatement,
    count: usize,
) -> Result<CountedResponse<Vec<CqlTimeuuid>>, Error> {
    let heap = BinaryHeap::with_capacity(count + 1);
    let answer = client
        .fold::<(CqlTimeuuid,), _>(scan, (), heap, |heap, (id,)| {
            heap.push(Reverse(id));
            if heap.len() > count {
                heap.pop();
            }
        })
        .await?;
    Ok(answer.map(|heap| heap.into_sorted_vec().into_iter().map(|Reverse(id)| id).collect()))
}
