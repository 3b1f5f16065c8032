//! Design V2, denormalised for reads: names and counts are copied to where they are read.
//!
//! A comment or like and its count change together by a conditional batch in the post's partition: insert the row if
//! it does not exist, set the count to n + 1 if it is n. A batch that loses against another is tried again with the
//! new n; if the server cannot report whether it was applied, reading the row shows it. So the counts are exact under any
//! concurrency.
//!
//! A new name is written to the user first and then to every copy, found by reading the whole table; until that
//! has ended, readers see both names.

use std::cmp::Reverse;

use futures::{StreamExt, TryStreamExt, stream, try_join};
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlTimeuuid, MaybeUnset};
use uuid::Uuid;

use super::common::{COMMENT, FAN_OUT, LIKE, Users, newest_ids, write_rows};
use super::design::{CommentView, Design, LikeView, LoadedPost, LoadedUser, PostView};
use super::generate::{Comment, Post, User, excerpt};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// A batch that lost this often is given up.
const ATTEMPTS_MAX: u32 = 256;

pub(crate) struct V2<'a> {
    pub(super) client: &'a Client,
    pub(super) users: Users<'a>,
    create_post: PreparedStatement,
    load_post: PreparedStatement,
    edit_post: PreparedStatement,
    load_item: PreparedStatement,
    insert_item: PreparedStatement,
    item_exists: PreparedStatement,
    counts: PreparedStatement,
    set_comment_count: PreparedStatement,
    set_like_count: PreparedStatement,
    post: PreparedStatement,
    comments: PreparedStatement,
    likes: PreparedStatement,
    posts_of: PreparedStatement,
    all_ids: PreparedStatement,
    ids_of: PreparedStatement,
    items_of: PreparedStatement,
    rename_author: PreparedStatement,
    rename_maker: PreparedStatement,
}

/// The columns of a post as the statements select them.
pub(super) type PostRow = (CqlTimeuuid, Uuid, String, String, String, Option<i32>, Option<i32>);

pub(super) fn post_view((id, author_id, username, title, body, comments, likes): PostRow) -> PostView {
    PostView {
        id,
        author_id,
        username,
        title,
        body,
        comment_count: comments.unwrap_or(0),
        like_count: likes.unwrap_or(0),
    }
}

/// A comment or like; a like has no text.
type ItemRow<'r> = (CqlTimeuuid, &'static str, Uuid, Uuid, &'r str, MaybeUnset<&'r str>);

/// A comment or like to be added with its count.
struct Item<'r> {
    kind: &'static str,
    id: Uuid,
    maker_id: Uuid,
    maker_name: &'r str,
    text: MaybeUnset<&'r str>,
}

/// The counts of a post after a change, and whose post it is.
pub(super) struct Counted {
    pub comment_count: i32,
    pub like_count: i32,
    pub author_id: Uuid,
    pub pages: u64,
}

impl<'a> V2<'a> {
    pub(super) async fn prepare_in(client: &'a Client, keyspace: &str) -> Result<Self, Error> {
        let posts = format!("{keyspace}.posts");
        let columns = "post_id, author_id, username, title, body, comment_count, like_count";
        let item = "post_id, kind, id, maker_id, maker_name, comment";
        let prepare = async |statement: String| client.prepare(&statement).await;
        Ok(Self {
            client,
            users: Users::prepare(client, keyspace).await?,
            create_post: prepare(format!("INSERT INTO {posts} ({columns}) VALUES (?, ?, ?, ?, ?, 0, 0)"))
                .await?,
            load_post: prepare(format!("INSERT INTO {posts} ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)"))
                .await?,
            edit_post: prepare(format!("UPDATE {posts} SET title = ?, body = ? WHERE post_id = ?")).await?,
            load_item: prepare(format!("INSERT INTO {posts} ({item}) VALUES (?, ?, ?, ?, ?, ?)")).await?,
            insert_item: prepare(format!(
                "INSERT INTO {posts} ({item}) VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS"
            ))
            .await?,
            item_exists: prepare(format!("SELECT id FROM {posts} WHERE post_id = ? AND kind = ? AND id = ?"))
                .await?,
            counts: prepare(format!(
                "SELECT comment_count, like_count, author_id FROM {posts} WHERE post_id = ? LIMIT 1"
            ))
            .await?,
            set_comment_count: prepare(format!(
                "UPDATE {posts} SET comment_count = ? WHERE post_id = ? IF comment_count = ?"
            ))
            .await?,
            set_like_count: prepare(format!(
                "UPDATE {posts} SET like_count = ? WHERE post_id = ? IF like_count = ?"
            ))
            .await?,
            post: prepare(format!("SELECT {columns} FROM {posts} WHERE post_id = ? LIMIT 1")).await?,
            comments: prepare(format!(
                "SELECT id, maker_id, maker_name, comment FROM {posts} WHERE post_id = ? AND kind = 'comment'"
            ))
            .await?,
            likes: prepare(format!(
                "SELECT maker_id, maker_name FROM {posts} WHERE post_id = ? AND kind = 'like'"
            ))
            .await?,
            posts_of: prepare(format!(
                "SELECT DISTINCT {columns} FROM {posts} WHERE author_id = ? ALLOW FILTERING"
            ))
            .await?,
            all_ids: prepare(format!("SELECT DISTINCT post_id FROM {posts}")).await?,
            ids_of: prepare(format!(
                "SELECT DISTINCT post_id FROM {posts} WHERE author_id = ? ALLOW FILTERING"
            ))
            .await?,
            items_of: prepare(format!(
                "SELECT post_id, kind, id FROM {posts} WHERE maker_id = ? ALLOW FILTERING"
            ))
            .await?,
            rename_author: prepare(format!("UPDATE {posts} SET username = ? WHERE post_id = ?")).await?,
            rename_maker: prepare(format!(
                "UPDATE {posts} SET maker_name = ? WHERE post_id = ? AND kind = ? AND id = ?"
            ))
            .await?,
        })
    }

    /// Writes a new post under its author's name.
    pub(super) async fn create_named(&self, post: &Post, username: &str) -> Result<(), Error> {
        let row = (post.id, post.author_id, username, &post.title, &post.body);
        self.client.execute(&self.create_post, row).await
    }

    async fn load_one(&self, loaded: &LoadedPost) -> Result<u64, Error> {
        let post = &loaded.post;
        let id = post.id;
        let counts = (loaded.comments.len() as i32, loaded.likes.len() as i32);
        let row = (id, post.author_id, &loaded.username, &post.title, &post.body, counts.0, counts.1);
        self.client.execute(&self.load_post, row).await?;
        let comments = loaded.comments.iter().map(|(comment, name)| {
            (id, COMMENT, comment.id, comment.maker_id, name.as_str(), MaybeUnset::Set(comment.text.as_str()))
        });
        let likes = loaded
            .likes
            .iter()
            .map(|like| (id, LIKE, like.maker_id, like.maker_id, like.username.as_str(), MaybeUnset::Unset));
        let items: Vec<ItemRow<'_>> = comments.chain(likes).collect();
        write_rows(self.client, &self.load_item, &items).await?;
        Ok(1 + items.len() as u64)
    }

    /// Adds a comment or like and counts it, both or neither. A row that is there already is not counted again.
    async fn add(&self, post_id: CqlTimeuuid, item: &Item<'_>) -> Result<Counted, Error> {
        let mut pages = 0;
        let mut attempts = 0;
        let set_count = if item.kind == COMMENT { &self.set_comment_count } else { &self.set_like_count };
        while attempts < ATTEMPTS_MAX {
            let counts =
                self.client.select_one::<(Option<i32>, Option<i32>, Option<Uuid>)>(&self.counts, (post_id,));
            let (comment_count, like_count, author_id) = match counts.await?.value {
                Some((comments, likes, Some(author_id))) => {
                    (comments.unwrap_or(0), likes.unwrap_or(0), author_id)
                }
                _ => return Err(missing(post_id)),
            };
            pages += 1;
            let counted = Counted { comment_count, like_count, author_id, pages };
            if attempts > 0 {
                let found =
                    self.client.select_one::<(Uuid,)>(&self.item_exists, (post_id, item.kind, item.id));
                if found.await?.value.is_some() {
                    return Ok(counted);
                }
            }
            let count = if item.kind == COMMENT { comment_count } else { like_count };
            let mut batch = Batch::new(BatchType::Logged);
            batch.append_statement(self.insert_item.clone());
            batch.append_statement(set_count.clone());
            let insert = (post_id, item.kind, item.id, item.maker_id, item.maker_name, item.text);
            let applied =
                self.client.batch_if(item.kind, &batch, (insert, (count + 1, post_id, count))).await?;
            if applied == Some(true) {
                return Ok(if item.kind == COMMENT {
                    Counted { comment_count: count + 1, ..counted }
                } else {
                    Counted { like_count: count + 1, ..counted }
                });
            }
            attempts += 1;
        }
        Err(Error::Contended { request: format!("adding a {}", item.kind), attempts })
    }

    pub(super) async fn add_comment(
        &self,
        post_id: CqlTimeuuid,
        comment: &Comment,
    ) -> Result<Counted, Error> {
        let maker_name = self.users.name(comment.maker_id).await?.value;
        let item = Item {
            kind: COMMENT,
            id: comment.id,
            maker_id: comment.maker_id,
            maker_name: &maker_name,
            text: MaybeUnset::Set(&comment.text),
        };
        let counted = self.add(post_id, &item).await?;
        Ok(Counted { pages: counted.pages + 1, ..counted })
    }

    pub(super) async fn add_like(&self, post_id: CqlTimeuuid, user_id: Uuid) -> Result<Counted, Error> {
        let maker_name = self.users.name(user_id).await?.value;
        let item = Item {
            kind: LIKE,
            id: user_id,
            maker_id: user_id,
            maker_name: &maker_name,
            text: MaybeUnset::Unset,
        };
        let counted = self.add(post_id, &item).await?;
        Ok(Counted { pages: counted.pages + 1, ..counted })
    }
}

fn missing(post_id: CqlTimeuuid) -> Error {
    Error::WrongAnswer { request: "C3/C4".to_owned(), detail: format!("the post {post_id} does not exist") }
}

impl<'a> Design<'a> for V2<'a> {
    const NAME: &'static str = "V2";
    const KEYSPACE: &'static str = "blog_v2";
    const SCHEMA: &'static str = include_str!("schema_v2.cql");

    async fn prepare(client: &'a Client) -> Result<Self, Error> {
        Self::prepare_in(client, Self::KEYSPACE).await
    }

    async fn load(&self, user: &LoadedUser) -> Result<u64, Error> {
        self.users.put(&user.user).await?;
        let mut rows = 1;
        for loaded in &user.posts {
            rows += self.load_one(loaded).await?;
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
        let (posts, items) = try_join!(
            self.client.select::<(CqlTimeuuid,)>(&self.ids_of, (user_id,)),
            self.client.select::<(CqlTimeuuid, String, Uuid)>(&self.items_of, (user_id,)),
        )?;
        stream::iter(posts.value)
            .map(|(post_id,)| self.client.execute(&self.rename_author, (username, post_id)))
            .buffer_unordered(FAN_OUT)
            .try_collect::<()>()
            .await?;
        stream::iter(items.value)
            .map(|(post_id, kind, id)| self.client.execute(&self.rename_maker, (username, post_id, kind, id)))
            .buffer_unordered(FAN_OUT)
            .try_collect::<()>()
            .await?;
        Ok(CountedResponse { value: (), rows: 1 + posts.rows + items.rows, pages: posts.pages + items.pages })
    }

    async fn user(&self, user_id: Uuid) -> Result<CountedResponse<Option<User>>, Error> {
        self.users.get(user_id).await
    }

    async fn create_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        let username = self.users.name(post.author_id).await?.value;
        self.create_named(post, &username).await?;
        Ok(CountedResponse { value: (), rows: 1, pages: 1 })
    }

    async fn edit_post(&self, post: &Post) -> Result<CountedResponse<()>, Error> {
        self.client.execute(&self.edit_post, (&post.title, &post.body, post.id)).await?;
        Ok(CountedResponse::written(1))
    }

    async fn post(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Option<PostView>>, Error> {
        let answer = self.client.select_one::<PostRow>(&self.post, (post_id,)).await?;
        Ok(answer.map(|row| row.map(post_view)))
    }

    async fn posts_of(&self, user_id: Uuid) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let answer = self.client.select::<PostRow>(&self.posts_of, (user_id,)).await?;
        Ok(answer.map(|rows| {
            let mut views: Vec<PostView> = rows.into_iter().map(post_view).map(shorten).collect();
            views.sort_unstable_by_key(|view| Reverse(view.id));
            views
        }))
    }

    async fn comment(&self, post_id: CqlTimeuuid, comment: &Comment) -> Result<CountedResponse<()>, Error> {
        let counted = self.add_comment(post_id, comment).await?;
        Ok(CountedResponse { value: (), rows: 2, pages: counted.pages })
    }

    async fn comments(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<CommentView>>, Error> {
        let answer = self.client.select::<(Uuid, Uuid, String, String)>(&self.comments, (post_id,)).await?;
        Ok(answer.map(|rows| {
            rows.into_iter()
                .map(|(id, maker_id, username, text)| CommentView { id, maker_id, username, text })
                .collect()
        }))
    }

    async fn like(&self, post_id: CqlTimeuuid, user_id: Uuid) -> Result<CountedResponse<()>, Error> {
        let counted = self.add_like(post_id, user_id).await?;
        Ok(CountedResponse { value: (), rows: 2, pages: counted.pages })
    }

    async fn likes(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<LikeView>>, Error> {
        let answer = self.client.select::<(Uuid, String)>(&self.likes, (post_id,)).await?;
        Ok(answer.map(|rows| {
            rows.into_iter().map(|(maker_id, username)| LikeView { maker_id, username }).collect()
        }))
    }

    async fn newest(&self, count: usize) -> Result<CountedResponse<Vec<PostView>>, Error> {
        let ids = newest_ids(self.client, &self.all_ids, count).await?;
        let found: Vec<CountedResponse<Option<PostView>>> =
            stream::iter(&ids.value).map(|id| self.post(*id)).buffered(FAN_OUT).try_collect().await?;
        let pages = ids.pages + found.iter().map(|answer| answer.pages).sum::<u64>();
        let value: Vec<PostView> = found.into_iter().filter_map(|answer| answer.value).map(shorten).collect();
        Ok(CountedResponse { rows: value.len() as u64, value, pages })
    }

    async fn feed_rows(&self) -> Result<Option<u64>, Error> {
        Ok(None)
    }
}

fn shorten(view: PostView) -> PostView {
    PostView { body: excerpt(&view.body), ..view }
}
