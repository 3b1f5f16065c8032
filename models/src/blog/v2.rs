//! Design V2, denormalised for reads: a post has its counts, and the projection `items` the names.
//!
//! Lists name no partition: Q3 asks an index on the author, Q6 reads the ids of the whole table.

use std::cmp::Reverse;

use futures::{StreamExt, TryStreamExt, stream, try_join};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::common::{FAN_OUT, newest_ids};
use super::design::{Design, PostView};
use super::generate::excerpt;
use super::projected::{Lists, Projected};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

pub(crate) type V2<'a> = Projected<'a, FoundPosts>;

/// Lists that are searched for in the table of posts.
pub(crate) struct FoundPosts {
    posts_of: PreparedStatement,
    all_ids: PreparedStatement,
}

/// A post without its author's name.
type NamelessRow = (CqlTimeuuid, String, String, i32, i32);

impl<'a> Lists<'a> for FoundPosts {
    const NAME: &'static str = "V2";
    const KEYSPACE: &'static str = "blog_v2";
    const SCHEMA: &'static str = include_str!("schema_v2.cql");
    const PROJECTIONS: &'static [&'static str] = &["blog_v2.items"];

    async fn prepare(client: &'a Client) -> Result<Self, Error> {
        let posts_of =
            "SELECT post_id, title, body, comment_count, like_count FROM blog_v2.posts WHERE author_id = ?";
        Ok(Self {
            posts_of: client.prepare(posts_of).await?,
            all_ids: client.prepare("SELECT DISTINCT post_id FROM blog_v2.posts").await?,
        })
    }

    async fn posts_of(
        &self,
        design: &V2<'a>,
        user_id: Uuid,
    ) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let (posts, name) = try_join!(
            design.posts.client.select::<NamelessRow>(&self.posts_of, (user_id,)),
            design.users().name(user_id),
        )?;
        let view = |(id, title, body, comment_count, like_count): NamelessRow| PostView {
            id,
            author_id: user_id,
            username: name.value.clone(),
            title,
            body: excerpt(&body),
            comment_count,
            like_count,
        };
        let mut views: Vec<PostView> = posts.value.into_iter().map(view).collect();
        views.sort_unstable_by_key(|view| Reverse(view.id));
        Ok(CountedResponse { value: views, rows: posts.rows, pages: posts.pages + name.pages })
    }

    async fn newest(&self, design: &V2<'a>, count: usize) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let ids = newest_ids(design.posts.client, &self.all_ids, count).await?;
        let found: Vec<CountedResponse<Option<PostView>>> =
            stream::iter(&ids.value).map(|id| design.post(*id)).buffered(FAN_OUT).try_collect().await?;
        let pages = ids.pages + found.iter().map(|answer| answer.pages).sum::<u64>();
        let shorten = |view: PostView| PostView { body: excerpt(&view.body), ..view };
        let value: Vec<PostView> = found.into_iter().filter_map(|answer| answer.value).map(shorten).collect();
        Ok(CountedResponse { rows: value.len() as u64, value, pages })
    }

    async fn feed_rows(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}
