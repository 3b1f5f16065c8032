//! The blog's data: every user, post, comment and like follows from the seed and its numbers.
//!
//! Nothing ends where the generated data does: a post whose index is beyond its author's generated posts is one that
//! a run creates, and the same holds for comments and likes. What a run has written is so described by counters.
//!
//! Invariants: post ids are unique, and a post that a run creates is newer than every generated one and than those
//! created before it; comments of one post are in order of time by their index; likes of one post have distinct
//! makers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use scylla::value::CqlTimeuuid;
use uuid::{Builder, Timestamp, Uuid};

use crate::random::{below, hash, text};

/// Characters of a body that a list shows.
pub const EXCERPT_CHARACTERS: usize = 100;

const POSTS_MIN: u64 = 5;
const POSTS_MAX: u64 = 50;
const COMMENTS_MAX: u64 = 25;
const LIKES_MAX: u64 = 100;

/// 2025-01-01 in ticks of 100 ns since 1582-10-15, the unit of time-based UUIDs.
const EPOCH_TICKS: u64 = 1_735_689_600 * TICKS_PER_SECOND + 0x01B2_1DD2_1381_4000;
const TICKS_PER_SECOND: u64 = 10_000_000;
/// Generated posts spread over this many windows of 2^32 ticks (7 minutes): 163 days.
const TIME_WINDOWS: u64 = 1 << 15;

// What a number is drawn for.
const USER: u64 = 1;
const POSTS: u64 = 2;
const POST: u64 = 3;
const COMMENTS: u64 = 4;
const COMMENT: u64 = 5;
const LIKES: u64 = 6;
const LIKE: u64 = 7;
const PICK: u64 = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: Uuid,
    pub username: String,
    pub about: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    pub id: CqlTimeuuid,
    pub author_id: Uuid,
    pub title: String,
    pub body: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    pub id: Uuid,
    pub maker_id: Uuid,
    pub text: String,
}

/// Names a post: the `index`-th of user `user`. From [`Blog::post_count`] on it is one that a run creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostNumber {
    pub user: u32,
    pub index: u32,
}

/// The generator.
#[derive(Debug, Clone, Copy)]
pub struct Blog {
    seed: u64,
    users: u32,
}

impl Blog {
    /// A blog of `users` (at least one) users.
    pub fn new(seed: u64, users: u32) -> Self {
        Self { seed, users: users.max(1) }
    }

    /// Number of users.
    pub fn users(&self) -> u32 {
        self.users
    }

    /// A user; `edit` counts how often a run changed the text about them, `rename` how often their name.
    pub fn user(&self, user: u32, edit: u32, rename: u32) -> User {
        let number = u64::from(user);
        let about = text(hash(self.seed, &[USER, number, u64::from(edit)]), 12);
        User { id: self.user_id(user), username: username(user, rename), about }
    }

    /// A user's id, without the rest.
    pub fn user_id(&self, user: u32) -> Uuid {
        let (high, low) = (self.draw(USER, &[user.into(), 1]), self.draw(USER, &[user.into(), 2]));
        Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes()).into_uuid()
    }

    /// Number of posts generated for a user, 5 to 50.
    pub fn post_count(&self, user: u32) -> u32 {
        (POSTS_MIN + below(self.draw(POSTS, &[user.into()]), POSTS_MAX - POSTS_MIN + 1)) as u32
    }

    /// The post that a run creates as its `sequence`-th (from 0): the users take turns.
    pub fn created_post(&self, sequence: u64) -> PostNumber {
        let user = (sequence % u64::from(self.users)) as u32;
        PostNumber { user, index: self.post_count(user) + (sequence / u64::from(self.users)) as u32 }
    }

    /// A post; `edit` counts how often a run changed it.
    pub fn post(&self, post: PostNumber, edit: u32) -> Post {
        let numbers = [post.user.into(), post.index.into()];
        let draw = self.draw(POST, &[numbers[0], numbers[1], edit.into()]);
        Post {
            id: self.post_id(post),
            author_id: self.user_id(post.user),
            title: text(draw, 6),
            body: text(draw ^ 1, 40 + below(draw, 40)),
        }
    }

    /// A post's id, which holds its time.
    pub fn post_id(&self, post: PostNumber) -> CqlTimeuuid {
        CqlTimeuuid::from(time_uuid(
            self.post_ticks(post),
            self.draw(POST, &[post.user.into(), post.index.into()]),
        ))
    }

    fn post_ticks(&self, post: PostNumber) -> u64 {
        match post.index.checked_sub(self.post_count(post.user)) {
            None => {
                let window = below(self.draw(POST, &[post.user.into(), post.index.into(), 7]), TIME_WINDOWS);
                EPOCH_TICKS + (window << 32) + u64::from(post.user) * 64 + u64::from(post.index)
            }
            Some(round) => {
                let sequence = u64::from(round) * u64::from(self.users) + u64::from(post.user);
                EPOCH_TICKS + ((TIME_WINDOWS + 1) << 32) + sequence * TICKS_PER_SECOND
            }
        }
    }

    /// Number of comments generated for a post, 0 to 25; none for one that a run creates.
    pub fn comment_count(&self, post: PostNumber) -> u32 {
        self.count_of(COMMENTS, post, COMMENTS_MAX)
    }

    /// Number of likes generated for a post, 0 to 100 but never more than there are users.
    pub fn like_count(&self, post: PostNumber) -> u32 {
        self.count_of(LIKES, post, LIKES_MAX).min(self.users)
    }

    fn count_of(&self, what: u64, post: PostNumber, most: u64) -> u32 {
        if post.index >= self.post_count(post.user) {
            return 0;
        }
        below(self.draw(what, &[post.user.into(), post.index.into()]), most + 1) as u32
    }

    /// The number of the user who wrote the `index`-th comment of a post.
    pub fn comment_maker(&self, post: PostNumber, index: u32) -> u32 {
        let draw = self.draw(COMMENT, &[post.user.into(), post.index.into(), index.into()]);
        below(draw, self.users.into()) as u32
    }

    /// The `index`-th comment of a post, oldest first.
    pub fn comment(&self, post: PostNumber, index: u32) -> Comment {
        let draw = self.draw(COMMENT, &[post.user.into(), post.index.into(), index.into()]);
        let ticks = self.post_ticks(post) + (u64::from(index) + 1) * 60 * TICKS_PER_SECOND;
        Comment {
            id: time_uuid(ticks, draw),
            maker_id: self.user_id(self.comment_maker(post, index)),
            text: text(draw, 4 + below(draw.rotate_left(17), 12)),
        }
    }

    /// The number of the user of the `index`-th like of a post; distinct for `index` below the number of users.
    pub fn like_maker(&self, post: PostNumber, index: u32) -> u32 {
        let start = below(self.draw(LIKE, &[post.user.into(), post.index.into()]), self.users.into());
        ((start + u64::from(index)) % u64::from(self.users)) as u32
    }

    /// All posts that are generated for all users.
    pub fn posts(&self) -> impl Iterator<Item = PostNumber> + '_ {
        (0..self.users)
            .flat_map(|user| (0..self.post_count(user)).map(move |index| PostNumber { user, index }))
    }

    /// The `count` newest generated posts, newest first.
    pub fn newest(&self, count: usize) -> Vec<PostNumber> {
        let mut newest = BinaryHeap::with_capacity(count + 1);
        for post in self.posts() {
            newest.push(Reverse((self.post_ticks(post), post)));
            if newest.len() > count {
                newest.pop();
            }
        }
        newest.into_sorted_vec().into_iter().map(|Reverse((_, post))| post).collect()
    }

    /// A user for the `request`-th request of some kind.
    pub fn pick_user(&self, kind: u64, request: u64) -> u32 {
        below(self.draw(PICK, &[kind, request]), self.users.into()) as u32
    }

    /// A generated post for the `request`-th request of some kind.
    pub fn pick_post(&self, kind: u64, request: u64) -> PostNumber {
        let user = self.pick_user(kind, request);
        let index = below(self.draw(PICK, &[kind, request, 1]), self.post_count(user).into()) as u32;
        PostNumber { user, index }
    }

    fn draw(&self, what: u64, numbers: &[u64]) -> u64 {
        numbers.iter().fold(hash(self.seed, &[what]), |state, number| hash(state, &[*number]))
    }
}

/// The name of a user after `rename` changes.
pub fn username(user: u32, rename: u32) -> String {
    if rename == 0 { format!("user{user}") } else { format!("user{user}-renamed{rename}") }
}

/// The short form of a body.
pub fn excerpt(body: &str) -> String {
    body.chars().take(EXCERPT_CHARACTERS).collect()
}

fn time_uuid(ticks: u64, draw: u64) -> Uuid {
    let [_, _, mut node @ ..] = draw.to_be_bytes();
    // The multicast bit marks a node that is no network address (RFC 9562).
    node[0] |= 1;
    Uuid::new_v1(Timestamp::from_gregorian_time(ticks, (draw >> 50) as u16), &node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const BLOG: Blog = Blog { seed: 3, users: 150 };

    #[test]
    fn data_follows_from_the_seed_alone() {
        let post = PostNumber { user: 4, index: 2 };
        assert_eq!(BLOG.post(post, 0), Blog::new(3, 150).post(post, 0));
        assert_ne!(BLOG.post(post, 0).id, Blog::new(4, 150).post(post, 0).id);
        assert_eq!(BLOG.user(9, 0, 0), Blog::new(3, 150).user(9, 0, 0));
    }

    #[test]
    fn counts_stay_in_the_ranges_of_the_guide() {
        for post in BLOG.posts() {
            assert!((5..=50).contains(&BLOG.post_count(post.user)));
            assert!(BLOG.comment_count(post) <= 25);
            assert!(BLOG.like_count(post) <= 100);
        }
        let few = Blog::new(3, 2);
        assert!(few.posts().all(|post| few.like_count(post) <= 2));
    }

    #[test]
    fn ids_are_unique() {
        let posts: HashSet<_> = BLOG.posts().map(|post| *BLOG.post_id(post).as_bytes()).collect();
        assert_eq!(posts.len(), BLOG.posts().count());
        let users: HashSet<_> = (0..150).map(|user| BLOG.user_id(user)).collect();
        assert_eq!(users.len(), 150);
    }

    #[test]
    fn an_edit_changes_the_text_and_keeps_the_id() {
        let post = PostNumber { user: 4, index: 2 };
        assert_eq!(BLOG.post(post, 0).id, BLOG.post(post, 1).id);
        assert_ne!(BLOG.post(post, 0).body, BLOG.post(post, 1).body);
        assert_eq!(BLOG.user(4, 0, 0).id, BLOG.user(4, 3, 1).id);
        assert_ne!(BLOG.user(4, 0, 0).username, BLOG.user(4, 0, 1).username);
    }

    #[test]
    fn created_posts_are_newer_than_all_before_them() {
        let newest = BLOG.newest(1)[0];
        let mut last = BLOG.post_id(newest);
        for sequence in 0..400 {
            let post = BLOG.created_post(sequence);
            assert!(post.index >= BLOG.post_count(post.user));
            assert!(BLOG.post_id(post) > last, "created post {sequence} is not the newest");
            last = BLOG.post_id(post);
        }
    }

    #[test]
    fn the_newest_are_those_with_the_greatest_ids() {
        let mut ids: Vec<CqlTimeuuid> = BLOG.posts().map(|post| BLOG.post_id(post)).collect();
        ids.sort_unstable_by(|left, right| right.cmp(left));
        let newest: Vec<CqlTimeuuid> = BLOG.newest(100).into_iter().map(|post| BLOG.post_id(post)).collect();
        assert_eq!(newest, ids[..100]);
    }

    #[test]
    fn comments_are_in_order_of_time_and_likes_have_distinct_makers() {
        let post = PostNumber { user: 4, index: 2 };
        let ids: Vec<_> = (0..30).map(|index| CqlTimeuuid::from(BLOG.comment(post, index).id)).collect();
        assert!(ids.is_sorted());
        let makers: HashSet<_> = (0..150).map(|index| BLOG.like_maker(post, index)).collect();
        assert_eq!(makers.len(), 150);
    }
}
