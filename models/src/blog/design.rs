//! What each of the blog's designs must do: the ten requests, plus loading and renaming.
//!
//! A design answers with the same values whatever its tables are, so that one run measures and checks all of them.

use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::common::Users;
use super::generate::{Comment, Post, User};
use crate::client::Client;
use crate::error::Error;
use crate::measure::CountedResponse;

/// A post as read: whole (Q2) or with its body cut to an excerpt (Q3, Q6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostView {
    pub id: CqlTimeuuid,
    pub author_id: Uuid,
    pub username: String,
    pub title: String,
    pub body: String,
    pub comment_count: i32,
    pub like_count: i32,
}

/// A comment as read (Q4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentView {
    pub id: Uuid,
    pub maker_id: Uuid,
    pub username: String,
    pub text: String,
}

/// A like as read (Q5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LikeView {
    pub maker_id: Uuid,
    pub username: String,
}

/// A post with all that is loaded with it.
#[derive(Debug, Clone)]
pub struct LoadedPost {
    pub post: Post,
    /// Oldest first.
    pub comments: Vec<Comment>,
    /// Makers of the likes.
    pub likes: Vec<Uuid>,
}

/// The tables of a design before anything is computed of them.
pub(crate) trait Load {
    /// Writes a user; the number of rows.
    async fn load_user(&self, user: &User) -> Result<u64, Error>;

    /// Writes a post with its comments and likes; the number of rows.
    async fn load_post(&self, post: &LoadedPost) -> Result<u64, Error>;
}

/// One design. Lists come back newest first; likes in order of their maker's id as the table has it.
pub(crate) trait Design<'a>: Sized {
    /// As printed.
    const NAME: &'static str;
    const KEYSPACE: &'static str;
    /// The `.cql` file of its tables and projections.
    const SCHEMA: &'static str;
    /// The names of its projections.
    const PROJECTIONS: &'static [&'static str];

    type Tables: Load;

    /// Prepares what loading needs; the tables exist, the projections do not yet.
    async fn tables(client: &'a Client) -> Result<Self::Tables, Error>;

    /// Prepares the other statements; the projections exist.
    async fn prepare(client: &'a Client, tables: Self::Tables) -> Result<Self, Error>;

    /// The table of users.
    fn users(&self) -> &Users<'a>;

    /// C2: creates a post.
    async fn create_post(&self, post: &Post) -> Result<CountedResponse<()>, Error>;

    /// C2: changes title and body of a post.
    async fn edit_post(&self, post: &Post) -> Result<CountedResponse<()>, Error>;

    /// Q2: a post.
    async fn post(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Option<PostView>>, Error>;

    /// Q3: a user's posts in short form, newest first.
    async fn posts_of(&self, user_id: Uuid) -> Result<CountedResponse<Vec<PostView>>, Error>;

    /// C3: comments on a post.
    async fn comment(&self, post_id: CqlTimeuuid, comment: &Comment) -> Result<CountedResponse<()>, Error>;

    /// Q4: a post's comments, newest first.
    async fn comments(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<CommentView>>, Error>;

    /// C4: likes a post; once for each user.
    async fn like(&self, post_id: CqlTimeuuid, user_id: Uuid) -> Result<CountedResponse<()>, Error>;

    /// Q5: a post's likes.
    async fn likes(&self, post_id: CqlTimeuuid) -> Result<CountedResponse<Vec<LikeView>>, Error>;

    /// Q6: the newest posts in short form.
    async fn newest(&self, count: usize) -> Result<CountedResponse<Vec<PostView>>, Error>;

    /// Number of rows of the feed, for designs that keep one.
    async fn feed_rows(&self) -> Result<Option<u64>, Error>;
}
