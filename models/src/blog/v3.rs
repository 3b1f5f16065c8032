//! Design V3: V2, and each list is kept as a partition of its own, so every request names one partition.
//!
//! The copies are kept here, by the code that writes the post:
//!
//! * a new or edited post is written to `posts_by_user` and, if new, to the feed, which is then trimmed: all that is
//!   older than the 100th row is deleted as one range;
//! * a count is copied **with itself as its timestamp**. Counts only grow, so whichever copy arrives last, the
//!   greatest stays; and a copy that arrives after its post left the feed is older than the range deletion
//!   and so brings nothing back;
//! * a new name is one write in `posts_by_user` (a static column) and one to each of the user's rows of the feed.

use futures::{StreamExt, TryStreamExt, stream, try_join};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::common::{FAN_OUT, write_rows};
use super::design::{CommentView, Design, LikeView, LoadedUser, PostView};
use super::generate::{Comment, Post, User, excerpt};
use super::v2::{Counted, PostRow, V2, post_view};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// Rows that the feed keeps.
pub const FEED_ROWS: usize = 100;

pub(crate) struct V3<'a> {
    base: V2<'a>,
    put_listed: PreparedStatement,
    edit_listed: PreparedStatement,
    set_listed_comments: PreparedStatement,
    set_listed_likes: PreparedStatement,
    rename_listed: PreparedStatement,
    listed: PreparedStatement,
    put_feed: PreparedStatement,
    edit_feed: PreparedStatement,
    set_feed_comments: PreparedStatement,
    set_feed_likes: PreparedStatement,
    rename_feed: PreparedStatement,
    in_feed: PreparedStatement,
    feed_authors: PreparedStatement,
    feed_ids: PreparedStatement,
    trim_feed: PreparedStatement,
    feed_count: PreparedStatement,
    feed: PreparedStatement,
}

/// The timestamp under which a count is copied (see the head of this file).
fn count_timestamp(count: i32) -> i64 {
    i64::from(count) + 1
}

impl V3<'_> {
    fn client(&self) -> &Client {
        self.base.client
    }

    async fn is_in_feed(&self, post_id: CqlTimeuuid) -> Result<bool, Error> {
        Ok(self.client().select_one::<(CqlTimeuuid,)>(&self.in_feed, (post_id,)).await?.value.is_some())
    }

    async fn put_in_feed(&self, view: &PostView) -> Result<(), Error> {
        let row = (view.id, view.author_id, &view.username, &view.title, &view.body);
        self.client().execute(&self.put_feed, row).await
    }

    /// Deletes what is older than the newest 100.
    async fn trim(&self) -> Result<u64, Error> {
        let limit = i32::try_from(FEED_ROWS + 1).unwrap_or(i32::MAX);
        let newest = self.client().select::<(CqlTimeuuid,)>(&self.feed_ids, (limit,)).await?;
        if newest.value.len() > FEED_ROWS
            && let Some((oldest_kept,)) = newest.value.get(FEED_ROWS - 1)
        {
            self.client().execute(&self.trim_feed, (oldest_kept,)).await?;
        }
        Ok(newest.pages)
    }

    async fn copy_counts(
        &self,
        post_id: CqlTimeuuid,
        counted: &Counted,
        count: i32,
        listed: &PreparedStatement,
        feed: &PreparedStatement,
    ) -> Result<CountedResponse<()>, Error> {
        let timestamp = count_timestamp(count);
        let client = self.client();
        let ((), in_feed) = try_join!(
            client.execute(listed, (timestamp, count, counted.author_id, post_id)),
            self.is_in_feed(post_id)
        )?;
        if in_feed {
            client.execute(feed, (timestamp, count, post_id)).await?;
        }
        Ok(CountedResponse { value: (), rows: 3 + u64::from(in_feed), pages: counted.pages + 1 })
    }
}

impl<'a> Design<'a> for V3<'a> {
    const NAME: &'static str = "V3";
    const KEYSPACE: &'static str = "blog_v3";
    const SCHEMA: &'static str = include_str!("schema_v3.cql");

    async fn prepare(client: &'a Client) -> Result<Self, Error> {
        let listed = "blog_v3.posts_by_user";
        let of_listed = "WHERE author_id = ? AND post_id = ?";
        let feed = "blog_v3.feed";
        let of_feed = "WHERE feed = 'newest' AND post_id = ?";
        let columns = "post_id, author_id, username, title, excerpt, comment_count, like_count";
        let prepare = async |statement: String| client.prepare(&statement).await;
        Ok(Self {
            base: V2::prepare_in(client, Self::KEYSPACE).await?,
            put_listed: prepare(format!(
                "INSERT INTO {listed} (author_id, post_id, username, title, excerpt) VALUES (?, ?, ?, ?, ?)"
            ))
            .await?,
            edit_listed: prepare(format!("UPDATE {listed} SET title = ?, excerpt = ? {of_listed}")).await?,
            set_listed_comments: prepare(format!(
                "UPDATE {listed} USING TIMESTAMP ? SET comment_count = ? {of_listed}"
            ))
            .await?,
            set_listed_likes: prepare(format!(
                "UPDATE {listed} USING TIMESTAMP ? SET like_count = ? {of_listed}"
            ))
            .await?,
            rename_listed: prepare(format!("UPDATE {listed} SET username = ? WHERE author_id = ?")).await?,
            listed: prepare(format!("SELECT {columns} FROM {listed} WHERE author_id = ?")).await?,
            put_feed: prepare(format!(
                "INSERT INTO {feed} (feed, post_id, author_id, username, title, excerpt) \
                 VALUES ('newest', ?, ?, ?, ?, ?)"
            ))
            .await?,
            edit_feed: prepare(format!("UPDATE {feed} SET title = ?, excerpt = ? {of_feed} IF EXISTS"))
                .await?,
            set_feed_comments: prepare(format!(
                "UPDATE {feed} USING TIMESTAMP ? SET comment_count = ? {of_feed}"
            ))
            .await?,
            set_feed_likes: prepare(format!("UPDATE {feed} USING TIMESTAMP ? SET like_count = ? {of_feed}"))
                .await?,
            rename_feed: prepare(format!("UPDATE {feed} SET username = ? {of_feed} IF EXISTS")).await?,
            in_feed: prepare(format!("SELECT post_id FROM {feed} {of_feed}")).await?,
            feed_authors: prepare(format!("SELECT post_id, author_id FROM {feed} WHERE feed = 'newest'"))
                .await?,
            feed_ids: prepare(format!("SELECT post_id FROM {feed} WHERE feed = 'newest' LIMIT ?")).await?,
            trim_feed: prepare(format!("DELETE FROM {feed} WHERE feed = 'newest' AND post_id < ?")).await?,
            feed_count: prepare(format!("SELECT count(*) FROM {feed} WHERE feed = 'newest'")).await?,
            feed: prepare(format!("SELECT {columns} FROM {feed} WHERE feed = 'newest' LIMIT ?")).await?,
        })
    }

    async fn load(&self, user: &LoadedUser) -> Result<u64, Error> {
        let mut written = self.base.load(user).await?;
        let views: Vec<PostView> = user.posts.iter().map(super::design::LoadedPost::short).collect();
        let rows: Vec<_> = views
            .iter()
            .map(|view| (view.author_id, view.id, &view.username, &view.title, &view.body))
            .collect();
        let counts = |count: fn(&PostView) -> i32| -> Vec<(i64, i32, Uuid, CqlTimeuuid)> {
            views
                .iter()
                .map(|view| (count_timestamp(count(view)), count(view), view.author_id, view.id))
                .collect()
        };
        write_rows(self.client(), &self.put_listed, &rows).await?;
        write_rows(self.client(), &self.set_listed_comments, &counts(|view| view.comment_count)).await?;
        write_rows(self.client(), &self.set_listed_likes, &counts(|view| view.like_count)).await?;
        written += views.len() as u64;
        Ok(written)
    }

    async fn finish_load(&self, newest: &[PostView]) -> Result<u64, Error> {
        for view in newest {
            self.put_in_feed(view).await?;
            for (statement, count) in
                [(&self.set_feed_comments, view.comment_count), (&self.set_feed_likes, view.like_count)]
            {
                self.client().execute(statement, (count_timestamp(count), count, view.id)).await?;
            }
        }
        Ok(newest.len() as u64)
    }

    async fn put_user(&self, user: &User) -> Result<CountedResponse<()>, Error> {
        self.base.put_user(user).await
    }

    async fn rename_user(&self, user_id: Uuid, username: &str) -> Result<CountedResponse<()>, Error> {
        let renamed = self.base.rename_user(user_id, username).await?;
        self.client().execute(&self.rename_listed, (username, user_id)).await?;
        let feed = self.client().select::<(CqlTimeuuid, Uuid)>(&self.feed_authors, ()).await?;
        let of_user = feed.value.into_iter().filter(|(_, author_id)| *author_id == user_id);
        let in_feed = stream::iter(of_user)
            .map(|(post_id, _)| self.client().execute_if(&self.rename_feed, (username, post_id)))
            .buffer_unordered(FAN_OUT)
            .try_fold(0, async |rows, applied| Ok(rows + u64::from(applied)))
            .await?;
        Ok(CountedResponse { value: (), rows: renamed.rows + 1 + in_feed, pages: renamed.pages + feed.pages })
    }

    async fn user(&self, user_id: Uuid) -> Result<CountedResponse<Option<User>>, Error> {
        self.base.user(user_id).await
    }

    async fn create_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        let username = self.base.users.name(post.author_id).await?.value;
        self.base.create_named(post, &username).await?;
        let view = PostView {
            id: post.id,
            author_id: post.author_id,
            username,
            title: post.title.clone(),
            body: excerpt(&post.body),
            comment_count: 0,
            like_count: 0,
        };
        let row = (view.author_id, view.id, &view.username, &view.title, &view.body);
        try_join!(self.client().execute(&self.put_listed, row), self.put_in_feed(&view))?;
        let pages = 1 + self.trim().await?;
        Ok(CountedResponse { value: (), rows: 3, pages })
    }

    async fn edit_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        self.base.edit_post(post).await?;
        let short = excerpt(&post.body);
        let listed = (&post.title, &short, post.author_id, post.id);
        let ((), in_feed) =
            try_join!(self.client().execute(&self.edit_listed, listed), self.is_in_feed(post.id))?;
        if in_feed {
            // Conditional: the post may leave the feed at this moment, and an update would bring a part of it back.
            self.client().execute_if(&self.edit_feed, (&post.title, &short, post.id)).await?;
        }
        Ok(CountedResponse { value: (), rows: 2 + u64::from(in_feed), pages: 1 })
    }

    async fn post(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Option<PostView>>, Error> {
        self.base.post(post_id).await
    }

    async fn posts_of(&self, user_id: Uuid) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let answer = self.client().select::<PostRow>(&self.listed, (user_id,)).await?;
        Ok(answer.map(|rows| rows.into_iter().map(post_view).collect()))
    }

    async fn comment(&self, post_id: CqlTimeuuid, comment: &Comment) -> Result<CountedResponse<()>, Error> {
        let counted = self.base.add_comment(post_id, comment).await?;
        let count = counted.comment_count;
        self.copy_counts(post_id, &counted, count, &self.set_listed_comments, &self.set_feed_comments).await
    }

    async fn comments(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<CommentView>>, Error> {
        self.base.comments(post_id).await
    }

    async fn like(&self, post_id: CqlTimeuuid, user_id: Uuid) -> Result<CountedResponse<()>, Error> {
        let counted = self.base.add_like(post_id, user_id).await?;
        let count = counted.like_count;
        self.copy_counts(post_id, &counted, count, &self.set_listed_likes, &self.set_feed_likes).await
    }

    async fn likes(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<LikeView>>, Error> {
        self.base.likes(post_id).await
    }

    async fn newest(&self, count: usize) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let limit = i32::try_from(count).unwrap_or(i32::MAX);
        let answer = self.client().select::<PostRow>(&self.feed, (limit,)).await?;
        Ok(answer.map(|rows| rows.into_iter().map(post_view).collect()))
    }

    async fn feed_rows(&self) -> Result<Option<u64>, Error> {
        let count = self.client().select_one::<(i64,)>(&self.feed_count, ()).await?.value;
        Ok(count.map(|(rows,)| rows.max(0) as u64))
    }
}
