//! What V2 and V3 share: posts that are rows beside their comments and likes, and a projection with the names.
//!
//! A comment or like and its count change together, in one transaction in the post's partition that does nothing if the
//! row is there already: it can be sent again at any time, and counts are exact under any concurrency. No copy is written
//! here: the server keeps the projections.

use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlTimeuuid, MaybeUnset};
use uuid::Uuid;

use super::common::{COMMENT, LIKE, Users, write_rows};
use super::design::{CommentView, Design, LikeView, Load, LoadedPost, PostView};
use super::generate::{Comment, Post, User};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// The tables that clients write.
pub(crate) struct Posts<'a> {
    pub(super) client: &'a Client,
    pub(super) users: Users<'a>,
    put_post: PreparedStatement,
    put_item: PreparedStatement,
}

/// A comment or like; a like has no text.
type ItemRow<'r> = (CqlTimeuuid, &'static str, Uuid, Uuid, MaybeUnset<&'r str>);

impl<'a> Posts<'a> {
    async fn prepare(client: &'a Client, keyspace: &str) -> Result<Self, Error> {
        let put_post = format!(
            "INSERT INTO {keyspace}.posts \
             (post_id, kind, id, maker_id, author_id, title, body, comment_count, like_count) \
             VALUES (?, 'post', ?, ?, ?, ?, ?, ?, ?)"
        );
        let put_item = format!(
            "INSERT INTO {keyspace}.posts (post_id, kind, id, maker_id, comment) VALUES (?, ?, ?, ?, ?)"
        );
        Ok(Self {
            client,
            users: Users::prepare(client, keyspace).await?,
            put_post: client.prepare(&put_post).await?,
            put_item: client.prepare(&put_item).await?,
        })
    }

    async fn put_post(&self, post: &Post, comment_count: i32, like_count: i32) -> Result<(), Error> {
        let (id, author) = (post.id, post.author_id);
        let row = (id, row_id(id), author, author, &post.title, &post.body, comment_count, like_count);
        self.client.execute(&self.put_post, row).await
    }
}

impl Load for Posts<'_> {
    async fn load_user(&self, user: &User) -> Result<u64, Error> {
        Ok(self.users.put(user).await?.rows)
    }

    async fn load_post(&self, loaded: &LoadedPost) -> Result<u64, Error> {
        let id = loaded.post.id;
        self.put_post(&loaded.post, loaded.comments.len() as i32, loaded.likes.len() as i32).await?;
        let comments = loaded.comments.iter().map(|comment| {
            (id, COMMENT, comment.id, comment.maker_id, MaybeUnset::Set(comment.text.as_str()))
        });
        let likes = loaded.likes.iter().map(|maker_id| (id, LIKE, *maker_id, *maker_id, MaybeUnset::Unset));
        let items: Vec<ItemRow<'_>> = comments.chain(likes).collect();
        write_rows(self.client, &self.put_item, &items).await?;
        Ok(1 + items.len() as u64)
    }
}

/// The id of a post's own row.
fn row_id(post_id: CqlTimeuuid) -> Uuid {
    post_id.into()
}

/// A design whose posts are found by `L` where they are listed.
pub(crate) struct Projected<'a, L> {
    pub(super) posts: Posts<'a>,
    edit_post: PreparedStatement,
    add_comment: PreparedStatement,
    add_like: PreparedStatement,
    post: PreparedStatement,
    comments: PreparedStatement,
    likes: PreparedStatement,
    lists: L,
}

/// How lists of posts are read.
pub(crate) trait Lists<'a>: Sized {
    const NAME: &'static str;
    const KEYSPACE: &'static str;
    const SCHEMA: &'static str;
    const PROJECTIONS: &'static [&'static str];

    async fn prepare(client: &'a Client) -> Result<Self, Error>;

    /// Q3.
    async fn posts_of(
        &self,
        design: &Projected<'a, Self>,
        user_id: Uuid,
    ) -> Result<CountedResponse<Vec<PostView>>, Error>;

    /// Q6.
    async fn newest(
        &self,
        design: &Projected<'a, Self>,
        count: usize,
    ) -> Result<CountedResponse<Vec<PostView>>, Error>;

    /// Number of rows of the feed, if one is kept.
    async fn feed_rows(&self) -> Result<Option<u64>, Error>;
}

/// The columns of a post as the statements select them.
pub(super) type PostRow = (CqlTimeuuid, Uuid, String, String, String, i32, i32);

pub(super) fn post_view(
    (id, author_id, username, title, body, comment_count, like_count): PostRow,
) -> PostView {
    PostView { id, author_id, username, title, body, comment_count, like_count }
}

/// The transaction that adds a row and counts it, unless the row is there.
fn addition(keyspace: &str, kind: &str, count: &str) -> String {
    format!(
        "BEGIN TRANSACTION \
         LET present = (SELECT id FROM {keyspace}.posts WHERE post_id = ? AND kind = '{kind}' AND id = ?); \
         IF present IS NULL THEN \
         INSERT INTO {keyspace}.posts (post_id, kind, id, maker_id, comment) VALUES (?, '{kind}', ?, ?, ?); \
         UPDATE {keyspace}.posts SET {count} += 1 WHERE post_id = ? AND kind = 'post' AND id = ?; \
         END IF COMMIT TRANSACTION"
    )
}

impl<'a, L: Lists<'a>> Design<'a> for Projected<'a, L> {
    const NAME: &'static str = L::NAME;
    const KEYSPACE: &'static str = L::KEYSPACE;
    const SCHEMA: &'static str = L::SCHEMA;
    const PROJECTIONS: &'static [&'static str] = L::PROJECTIONS;

    type Tables = Posts<'a>;

    async fn tables(client: &'a Client) -> Result<Posts<'a>, Error> {
        Posts::prepare(client, L::KEYSPACE).await
    }

    async fn prepare(client: &'a Client, posts: Posts<'a>) -> Result<Self, Error> {
        let keyspace = L::KEYSPACE;
        let of_kind = |columns: &str, kind: &str| {
            format!("SELECT {columns} FROM {keyspace}.items WHERE post_id = ? AND kind = '{kind}'")
        };
        let edit_post = format!(
            "UPDATE {keyspace}.posts SET title = ?, body = ? WHERE post_id = ? AND kind = 'post' AND id = ?"
        );
        let post = "post_id, maker_id, username, title, body, comment_count, like_count";
        Ok(Self {
            posts,
            edit_post: client.prepare(&edit_post).await?,
            add_comment: client.prepare(&addition(keyspace, COMMENT, "comment_count")).await?,
            add_like: client.prepare(&addition(keyspace, LIKE, "like_count")).await?,
            post: client.prepare(&of_kind(post, "post")).await?,
            comments: client.prepare(&of_kind("id, maker_id, username, comment", COMMENT)).await?,
            likes: client.prepare(&of_kind("maker_id, username", LIKE)).await?,
            lists: L::prepare(client).await?,
        })
    }

    fn users(&self) -> &Users<'a> {
        &self.posts.users
    }

    async fn create_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        self.posts.put_post(post, 0, 0).await?;
        Ok(CountedResponse::written(1))
    }

    async fn edit_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        let values = (&post.title, &post.body, post.id, row_id(post.id));
        self.posts.client.execute(&self.edit_post, values).await?;
        Ok(CountedResponse::written(1))
    }

    async fn post(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Option<PostView>>, Error> {
        let answer = self.posts.client.select_one::<PostRow>(&self.post, (post_id,)).await?;
        Ok(answer.map(|row| row.map(post_view)))
    }

    async fn posts_of(&self, user_id: Uuid) -> Result<CountedResponse<Vec<PostView>>, Error> {
        self.lists.posts_of(self, user_id).await
    }

    async fn comment(&self, post_id: CqlTimeuuid, comment: &Comment) -> Result<CountedResponse<()>, Error> {
        let (id, maker_id, text) = (comment.id, comment.maker_id, &comment.text);
        let values = (post_id, id, post_id, id, maker_id, text, post_id, row_id(post_id));
        self.posts.client.transact(&self.add_comment, values).await?;
        Ok(CountedResponse::written(2))
    }

    async fn comments(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<CommentView>>, Error> {
        let client = self.posts.client;
        let answer = client.select::<(Uuid, Uuid, String, String)>(&self.comments, (post_id,)).await?;
        Ok(answer.map(|rows| {
            rows.into_iter()
                .map(|(id, maker_id, username, text)| CommentView { id, maker_id, username, text })
                .collect()
        }))
    }

    async fn like(&self, post_id: CqlTimeuuid, user_id: Uuid) -> Result<CountedResponse<()>, Error> {
        let text: MaybeUnset<&str> = MaybeUnset::Unset;
        let values = (post_id, user_id, post_id, user_id, user_id, text, post_id, row_id(post_id));
        self.posts.client.transact(&self.add_like, values).await?;
        Ok(CountedResponse::written(2))
    }

    async fn likes(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<LikeView>>, Error> {
        let answer = self.posts.client.select::<(Uuid, String)>(&self.likes, (post_id,)).await?;
        Ok(answer.map(|rows| {
            rows.into_iter().map(|(maker_id, username)| LikeView { maker_id, username }).collect()
        }))
    }

    async fn newest(&self, count: usize) -> Result<CountedResponse<Vec<PostView>>, Error> {
        self.lists.newest(self, count).await
    }

    async fn feed_rows(&self) -> Result<Option<u64>, Error> {
        self.lists.feed_rows().await
    }
}
