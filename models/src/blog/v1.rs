//! Design V1, normalised: every fact is written once, so writes are one row and reads gather.
//!
//! Q2 takes four requests (post, author, two counts), Q4 and Q5 look up each name, Q3 asks an index on the author, which is in
//! no partition's key, and Q6 reads the whole table.

use std::cmp::Reverse;

use futures::{StreamExt, TryStreamExt, stream, try_join};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlTimeuuid, MaybeUnset};
use uuid::Uuid;

use super::common::{COMMENT, FAN_OUT, LIKE, Users, newest_ids, write_rows};
use super::design::{CommentView, Design, LikeView, Load, LoadedPost, PostView};
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

impl Load for V1<'_> {
    async fn load_user(&self, user: &User) -> Result<u64, Error> {
        Ok(self.users.put(user).await?.rows)
    }

    async fn load_post(&self, loaded: &LoadedPost) -> Result<u64, Error> {
        let id = loaded.post.id;
        self.create_post(&loaded.post).await?;
        let comments = loaded.comments.iter().map(|comment| {
            (id, COMMENT, comment.id, comment.maker_id, MaybeUnset::Set(comment.text.as_str()))
        });
        let likes = loaded.likes.iter().map(|maker_id| (id, LIKE, *maker_id, *maker_id, MaybeUnset::Unset));
        let items: Vec<ItemRow<'_>> = comments.chain(likes).collect();
        write_rows(self.client, &self.put_item, &items).await?;
        Ok(1 + items.len() as u64)
    }
}

impl<'a> Design<'a> for V1<'a> {
    const NAME: &'static str = "V1";
    const KEYSPACE: &'static str = "blog_v1";
    const SCHEMA: &'static str = include_str!("schema_v1.cql");
    const PROJECTIONS: &'static [&'static str] = &[];

    type Tables = Self;

    async fn tables(client: &'a Client) -> Result<Self, Error> {
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
                    "SELECT DISTINCT post_id, author_id, title, body FROM blog_v1.posts WHERE author_id = ?",
                )
                .await?,
            all_ids: client.prepare("SELECT DISTINCT post_id FROM blog_v1.posts").await?,
        })
    }

    async fn prepare(_client: &'a Client, tables: Self) -> Result<Self, Error> {
        Ok(tables)
    }

    fn users(&self) -> &Users<'a> {
        &self.users
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
