//! What the tables must hold: the generated data and, on top of it, counters of what a run has written.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::design::{CommentView, LikeView, LoadedPost, PostView};
use super::generate::{Blog, PostNumber, User, excerpt, username};

/// The expected contents of one design's tables.
#[derive(Debug)]
pub struct Expected<'a> {
    blog: &'a Blog,
    /// The newest generated posts, newest first.
    newest_generated: &'a [PostNumber],
    created_users: u32,
    user_edits: HashMap<u32, u32>,
    renames: HashMap<u32, u32>,
    created_posts: u64,
    post_edits: HashMap<PostNumber, u32>,
    more_comments: HashMap<PostNumber, u32>,
    more_likes: HashMap<PostNumber, u32>,
}

impl<'a> Expected<'a> {
    /// The contents right after loading.
    pub fn new(blog: &'a Blog, newest_generated: &'a [PostNumber]) -> Self {
        Self {
            blog,
            newest_generated,
            created_users: 0,
            user_edits: HashMap::new(),
            renames: HashMap::new(),
            created_posts: 0,
            post_edits: HashMap::new(),
            more_comments: HashMap::new(),
            more_likes: HashMap::new(),
        }
    }

    /// Counts a created user. Returns its number.
    pub fn create_user(&mut self) -> u32 {
        self.created_users += 1;
        self.blog.users() + self.created_users - 1
    }

    /// Counts a changed text about a user.
    pub fn edit_user(&mut self, user: u32) {
        *self.user_edits.entry(user).or_default() += 1;
    }

    /// Counts a changed name. Returns the new one.
    pub fn rename_user(&mut self, user: u32) -> String {
        *self.renames.entry(user).or_default() += 1;
        self.username(user)
    }

    /// Counts a created post. Returns its number.
    pub fn create_post(&mut self) -> PostNumber {
        self.created_posts += 1;
        self.blog.created_post(self.created_posts - 1)
    }

    /// Counts a changed post. Returns how often it was changed.
    pub fn edit_post(&mut self, post: PostNumber) -> u32 {
        let edits = self.post_edits.entry(post).or_default();
        *edits += 1;
        *edits
    }

    /// Counts a comment. Returns its index.
    pub fn add_comment(&mut self, post: PostNumber) -> u32 {
        let more = self.more_comments.entry(post).or_default();
        *more += 1;
        self.blog.comment_count(post) + *more - 1
    }

    /// Counts a like. Returns its index, or `None` if all users like the post already.
    pub fn add_like(&mut self, post: PostNumber) -> Option<u32> {
        let index = self.like_count(post);
        if index >= self.blog.users() {
            return None;
        }
        *self.more_likes.entry(post).or_default() += 1;
        Some(index)
    }

    /// Number of comments of a post.
    pub fn comment_count(&self, post: PostNumber) -> u32 {
        self.blog.comment_count(post) + self.more_comments.get(&post).copied().unwrap_or(0)
    }

    /// Number of likes of a post.
    pub fn like_count(&self, post: PostNumber) -> u32 {
        self.blog.like_count(post) + self.more_likes.get(&post).copied().unwrap_or(0)
    }

    fn username(&self, user: u32) -> String {
        username(user, self.renames.get(&user).copied().unwrap_or(0))
    }

    /// A user.
    pub fn user(&self, user: u32) -> User {
        let edits = self.user_edits.get(&user).copied().unwrap_or(0);
        self.blog.user(user, edits, self.renames.get(&user).copied().unwrap_or(0))
    }

    /// Q2.
    pub fn post(&self, post: PostNumber) -> PostView {
        let data = self.blog.post(post, self.post_edits.get(&post).copied().unwrap_or(0));
        PostView {
            id: data.id,
            author_id: data.author_id,
            username: self.username(post.user),
            title: data.title,
            body: data.body,
            comment_count: self.comment_count(post) as i32,
            like_count: self.like_count(post) as i32,
        }
    }

    fn short(&self, post: PostNumber) -> PostView {
        let view = self.post(post);
        PostView { body: excerpt(&view.body), ..view }
    }

    /// Q3: newest first.
    pub fn posts_of(&self, user: u32) -> Vec<PostView> {
        let users = u64::from(self.blog.users());
        let created = (self.created_posts + users - 1 - u64::from(user)) / users;
        let posts = self.blog.post_count(user) + created as u32;
        let mut views: Vec<PostView> =
            (0..posts).map(|index| self.short(PostNumber { user, index })).collect();
        views.sort_unstable_by_key(|view| Reverse(view.id));
        views
    }

    /// Q4: newest first.
    pub fn comments(&self, post: PostNumber) -> Vec<CommentView> {
        (0..self.comment_count(post))
            .rev()
            .map(|index| {
                let comment = self.blog.comment(post, index);
                CommentView {
                    id: comment.id,
                    maker_id: comment.maker_id,
                    username: self.username(self.blog.comment_maker(post, index)),
                    text: comment.text,
                }
            })
            .collect()
    }

    /// Q5: by descending id of the maker.
    pub fn likes(&self, post: PostNumber) -> Vec<LikeView> {
        let mut likes: Vec<LikeView> = (0..self.like_count(post))
            .map(|index| {
                let maker = self.blog.like_maker(post, index);
                LikeView { maker_id: self.blog.user_id(maker), username: self.username(maker) }
            })
            .collect();
        likes.sort_unstable_by_key(|like| Reverse(like.maker_id));
        likes
    }

    /// Q6: created posts, the last one first, then generated ones.
    pub fn newest(&self, count: usize) -> Vec<PostView> {
        let created = (0..self.created_posts).rev().map(|sequence| self.blog.created_post(sequence));
        created
            .chain(self.newest_generated.iter().copied())
            .take(count)
            .map(|post| self.short(post))
            .collect()
    }

    /// A generated post with all that is loaded with it.
    pub fn loaded_post(blog: &Blog, post: PostNumber) -> LoadedPost {
        let comments = (0..blog.comment_count(post)).map(|index| blog.comment(post, index)).collect();
        let likes = (0..blog.like_count(post)).map(|index| blog.user_id(blog.like_maker(post, index)));
        LoadedPost { post: blog.post(post, 0), comments, likes: likes.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_is_what_is_expected() {
        let blog = Blog::new(5, 120);
        let newest = blog.newest(100);
        let expected = Expected::new(&blog, &newest);
        let post = PostNumber { user: 7, index: 0 };
        let (loaded, view) = (Expected::loaded_post(&blog, post), expected.post(post));
        assert_eq!((loaded.post.id, &loaded.post.body), (view.id, &view.body));
        assert_eq!(loaded.comments.len() as i32, view.comment_count);
        assert_eq!(loaded.likes.len() as i32, view.like_count);
        assert_eq!(expected.newest(100).len(), 100);
        assert!(expected.newest(100).is_sorted_by(|left, right| left.id > right.id));
    }

    #[test]
    fn writes_are_counted_where_they_are_read() {
        let blog = Blog::new(5, 120);
        let newest = blog.newest(100);
        let mut expected = Expected::new(&blog, &newest);
        let post = PostNumber { user: 3, index: 1 };
        let before = expected.post(post);
        expected.add_comment(post);
        expected.add_like(post).unwrap();
        expected.rename_user(3);
        let after = expected.post(post);
        assert_eq!(after.comment_count, before.comment_count + 1);
        assert_eq!(after.like_count, before.like_count + 1);
        assert_eq!(after.username, "user3-renamed1");
        assert_eq!(expected.comments(post).len() as i32, after.comment_count);
        assert_eq!(expected.likes(post).len() as i32, after.like_count);
    }

    #[test]
    fn created_posts_lead_the_feed_and_their_authors_lists() {
        let blog = Blog::new(5, 3);
        let newest = blog.newest(100);
        let mut expected = Expected::new(&blog, &newest);
        let created: Vec<PostNumber> = (0..4).map(|_| expected.create_post()).collect();
        let last = blog.post_id(created[3]);
        assert_eq!(expected.newest(100)[0].id, last);
        assert_eq!(expected.posts_of(0)[0].id, last);
        assert_eq!(expected.posts_of(0).len(), blog.post_count(0) as usize + 2);
        assert_eq!(expected.posts_of(1).len(), blog.post_count(1) as usize + 1);
    }

    #[test]
    fn a_post_that_all_like_takes_no_more_likes() {
        let blog = Blog::new(5, 1);
        let mut expected = Expected::new(&blog, &[]);
        let post = expected.create_post();
        assert_eq!(expected.add_like(post), Some(0));
        assert_eq!(expected.add_like(post), None);
    }
}
