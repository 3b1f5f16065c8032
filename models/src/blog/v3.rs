//! Design V3: V2, and the projections `posts_by_user` and `feed` keep each list as a partition, so every request names
//! one partition.

use scylla::statement::prepared::PreparedStatement;
use uuid::Uuid;

use super::design::PostView;
use super::projected::{Lists, PostRow, Projected, post_view};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// Rows that the feed keeps: its `cap`.
pub const FEED_ROWS: usize = 100;

pub(crate) type V3<'a> = Projected<'a, KeptLists<'a>>;

/// Lists that the server keeps.
pub(crate) struct KeptLists<'a> {
    client: &'a Client,
    listed: PreparedStatement,
    feed: PreparedStatement,
    feed_count: PreparedStatement,
}

impl<'a> Lists<'a> for KeptLists<'a> {
    const NAME: &'static str = "V3";
    const KEYSPACE: &'static str = "blog_v3";
    const SCHEMA: &'static str = include_str!("schema_v3.cql");
    const PROJECTIONS: &'static [&'static str] = &["blog_v3.items", "blog_v3.posts_by_user", "blog_v3.feed"];

    async fn prepare(client: &'a Client) -> Result<Self, Error> {
        let columns = "post_id, author_id, username, title, excerpt, comment_count, like_count";
        let listed = format!("SELECT {columns} FROM blog_v3.posts_by_user WHERE author_id = ?");
        let feed = format!("SELECT {columns} FROM blog_v3.feed WHERE feed = 'newest' LIMIT ?");
        Ok(Self {
            client,
            listed: client.prepare(&listed).await?,
            feed: client.prepare(&feed).await?,
            feed_count: client.prepare("SELECT count(*) FROM blog_v3.feed WHERE feed = 'newest'").await?,
        })
    }

    async fn posts_of(
        &self,
        _design: &V3<'a>,
        user_id: Uuid,
    ) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let answer = self.client.select::<PostRow>(&self.listed, (user_id,)).await?;
        Ok(answer.map(|rows| rows.into_iter().map(post_view).collect()))
    }

    async fn newest(&self, _design: &V3<'a>, count: usize) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let limit = i32::try_from(count).unwrap_or(i32::MAX);
        let answer = self.client.select::<PostRow>(&self.feed, (limit,)).await?;
        Ok(answer.map(|rows| rows.into_iter().map(post_view).collect()))
    }

    async fn feed_rows(&self) -> Result<Option<u64>, Error> {
        let count = self.client.select_one::<(i64,)>(&self.feed_count, ()).await?.value;
        Ok(count.map(|(rows,)| rows.max(0) as u64))
    }
}
