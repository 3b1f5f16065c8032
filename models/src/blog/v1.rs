//! Design V1, normalised: every fact is written once, so writes are one row and reads gather.
//!
//! Q2 takes four requests (post, author, two counts), Q4 and Q5 look up each name, and Q3 and Q6 read the whole
//! table because no partition is named.

use std::cmp::Reverse;

use futures::{StreamExt, TryStreamExt, stream, try_join};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlTimeuuid, MaybeUnset};
use uuid::Uuid;

use super::common::{COMMENT, FAN_OUT, LIKE, Users, newest_ids, write_rows};
use super::design::{CommentView, Design, LikeView, LoadedUser, PostView};
use super::generate::{Comment, Post, User, excerpt};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

pub(crate) struct V1<'a> {
    client: &'a Client,
    users: Users<'a>,
    put_post: PreparedStatement,
    put_item: PreparedStatement,
    post: PreparedStatement,
    count: PreparedStatement,
    comments: PreparedStatement,
    likes: PreparedStatement,
    posts_of: PreparedStatement,
    all_ids: PreparedStatement,
}

/// A comment or like; a like has no text.
type ItemRow<'r> = (CqlTimeuuid, &'static str, Uuid, Uuid, MaybeUnset<&'r str>);

impl V1<'_> {
    /// Author's name and counts for a post whose own columns are known.
    async fn complete(&self, post: Post) -> Result<CountedResponse<PostView>, Error> {
        let (name, comments, likes) = try_join!(
            self.users.name(post.author_id),
            self.client.select_one::<(i64,)>(&self.count, (post.id, COMMENT)),
            self.client.select_one::<(i64,)>(&self.count, (post.id, LIKE)),
        )?;
        let count = |row: Option<(i64,)>| row.map_or(0, |(count,)| count as i32);
        let view = PostView {
            id: post.id,
            author_id: post.author_id,
            username: name.value,
            title: post.title,
            body: post.body,
            comment_count: count(comments.value),
            like_count: count(likes.value),
        };
        Ok(CountedResponse { value: view, rows: 1, pages: name.pages + comments.pages + likes.pages })
    }

    /// Completes posts, some at a time, in the order given, with excerpts; `pages` were read to find them.
    async fn complete_all(
        &self,
        posts: Vec<Post>,
        pages: u64,
    ) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let views: Vec<CountedResponse<PostView>> =
            stream::iter(posts).map(|post| self.complete(post)).buffered(FAN_OUT).try_collect().await?;
        let pages = pages + views.iter().map(|view| view.pages).sum::<u64>();
        let rows = views.len() as u64;
        let value = views
            .into_iter()
            .map(|view| PostView { body: excerpt(&view.value.body), ..view.value })
            .collect();
        Ok(CountedResponse { value, rows, pages })
    }

    async fn plain_post(&self, post_id: CqlTimeuuid) -> Result<Option<Post>, Error> {
        let row = self.client.select_one::<(Uuid, String, String)>(&self.post, (post_id,)).await?.value;
        Ok(row.map(|(author_id, title, body)| Post { id: post_id, author_id, title, body }))
    }
}

impl<'a> Design<'a> for V1<'a> {
    const NAME: &'static str = "V1";
    const KEYSPACE: &'static str = "blog_v1";
    const SCHEMA: &'static str = include_str!("schema_v1.cql");

    async fn prepare(client: &'a Client) -> Result<Self, Error> {
        Ok(Self {
            client,
            users: Users::prepare(client, Self::KEYSPACE).await?,
            put_post: client
                .prepare("INSERT INTO blog_v1.posts (post_id, author_id, title, body) VALUES (?, ?, ?, ?)")
                .await?,
            put_item: client
                .prepare(
                    "INSERT INTO blog_v1.posts (post_id, kind, id, maker_id, comment) VALUES (?, ?, ?, ?, ?)",
                )
                .await?,
            post: client
                .prepare("SELECT author_id, title, body FROM blog_v1.posts WHERE post_id = ? LIMIT 1")
                .await?,
            count: client
                .prepare("SELECT count(*) FROM blog_v1.posts WHERE post_id = ? AND kind = ?")
                .await?,
            comments: client
                .prepare(
                    "SELECT id, maker_id, comment FROM blog_v1.posts WHERE post_id = ? AND kind = 'comment'",
                )
                .await?,
            likes: client
                .prepare("SELECT maker_id FROM blog_v1.posts WHERE post_id = ? AND kind = 'like'")
                .await?,
            posts_of: client
                .prepare(
                    "SELECT DISTINCT post_id, author_id, title, body FROM blog_v1.posts \
                     WHERE author_id = ? ALLOW FILTERING",
                )
                .await?,
            all_ids: client.prepare("SELECT DISTINCT post_id FROM blog_v1.posts").await?,
        })
    }

    async fn load(&self, user: &LoadedUser) -> Result<u64, Error> {
        self.users.put(&user.user).await?;
        let mut rows = 1;
        for loaded in &user.posts {
            let id = loaded.post.id;
            self.create_post(&loaded.post).await?;
            let comments = loaded.comments.iter().map(|(comment, _)| {
                (id, COMMENT, comment.id, comment.maker_id, MaybeUnset::Set(comment.text.as_str()))
            });
            let likes =
                loaded.likes.iter().map(|like| (id, LIKE, like.maker_id, like.maker_id, MaybeUnset::Unset));
            let items: Vec<ItemRow<'_>> = comments.chain(likes).collect();
            write_rows(self.client, &self.put_item, &items).await?;
            rows += 1 + items.len() as u64;
        }
        Ok(rows)
    }

    async fn finish_load(&self, _newest: &[PostView]) -> Result<u64, Error> {
        Ok(0)
    }

    async fn put_user(&self, user: &User) -> Result<CountedResponse<()>, Error> {
        self.users.put(user).await?;
        Ok(CountedResponse::written(1))
    }

    async fn rename_user(&self, user_id: Uuid, username: &str) -> Result<CountedResponse<()>, Error> {
        self.users.rename(user_id, username).await?;
        Ok(CountedResponse::written(1))
    }

    async fn user(&self, user_id: Uuid) -> Result<CountedResponse<Option<User>>, Error> {
        self.users.get(user_id).await
    }

    async fn create_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        self.client.execute(&self.put_post, (post.id, post.author_id, &post.title, &post.body)).await?;
        Ok(CountedResponse::written(1))
    }

    async fn edit_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        self.create_post(post).await
    }

    async fn post(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Option<PostView>>, Error> {
        let Some(post) = self.plain_post(post_id).await? else {
            return Ok(CountedResponse { value: None, rows: 0, pages: 1 });
        };
        let mut answer = self.complete(post).await?.map(Some);
        answer.pages += 1;
        Ok(answer)
    }

    async fn posts_of(&self, user_id: Uuid) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let found =
            self.client.select::<(CqlTimeuuid, Uuid, String, String)>(&self.posts_of, (user_id,)).await?;
        let mut posts: Vec<Post> = found
            .value
            .into_iter()
            .map(|(id, author_id, title, body)| Post { id, author_id, title, body })
            .collect();
        posts.sort_unstable_by_key(|post| Reverse(post.id));
        self.complete_all(posts, found.pages).await
    }

    async fn comment(&self, post_id: CqlTimeuuid, comment: &Comment) -> Result<CountedResponse<()>, Error> {
        let row = (post_id, COMMENT, comment.id, comment.maker_id, &comment.text);
        self.client.execute(&self.put_item, row).await?;
        Ok(CountedResponse::written(1))
    }

    async fn comments(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<CommentView>>, Error> {
        let found = self.client.select::<(Uuid, Uuid, String)>(&self.comments, (post_id,)).await?;
        let names = self.users.names(found.value.iter().map(|(_, maker_id, _)| *maker_id)).await?;
        let name_of = |maker_id: &Uuid| names.value.get(maker_id).cloned().unwrap_or_default();
        let pages = found.pages + names.pages;
        let rows = found.rows;
        let value = found
            .value
            .into_iter()
            .map(|(id, maker_id, text)| CommentView { id, maker_id, username: name_of(&maker_id), text })
            .collect();
        Ok(CountedResponse { value, rows, pages })
    }

    async fn like(&self, post_id: CqlTimeuuid, user_id: Uuid) -> Result<CountedResponse<()>, Error> {
        let text: MaybeUnset<&str> = MaybeUnset::Unset;
        self.client.execute(&self.put_item, (post_id, LIKE, user_id, user_id, text)).await?;
        Ok(CountedResponse::written(1))
    }

    async fn likes(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<LikeView>>, Error> {
        let found = self.client.select::<(Uuid,)>(&self.likes, (post_id,)).await?;
        let names = self.users.names(found.value.iter().map(|(maker_id,)| *maker_id)).await?;
        let name_of = |maker_id: &Uuid| names.value.get(maker_id).cloned().unwrap_or_default();
        let pages = found.pages + names.pages;
        let rows = found.rows;
        let value = found
            .value
            .into_iter()
            .map(|(maker_id,)| LikeView { maker_id, username: name_of(&maker_id) })
            .collect();
        Ok(CountedResponse { value, rows, pages })
    }

    async fn newest(&self, count: usize) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let ids = newest_ids(self.client, &self.all_ids, count).await?;
        let found: Vec<Option<Post>> =
            stream::iter(&ids.value).map(|id| self.plain_post(*id)).buffered(FAN_OUT).try_collect().await?;
        let pages = ids.pages + found.len() as u64;
        self.complete_all(found.into_iter().flatten().collect(), pages).await
    }

    async fn feed_rows(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}
