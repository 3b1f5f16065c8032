//! The blog platform: ten requests on three designs, side by side.
//!
//! Every design is loaded with the same data and runs the same requests in the same order; each answer is compared
//! with [`expected::Expected`]. After the requests, comments and likes are added to one post by many makers at once:
//! the counts must be exact.

mod common;
pub mod design;
pub mod expected;
pub mod generate;
mod v1;
mod v2;
mod v3;

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};

use crate::client::Client;
use crate::error::{Error, ensure_equal, ensure_same_rows};
use crate::measure::Measurement;
use crate::options::Options;
use crate::progress;
use crate::report::{Group, MEASURED_COLUMNS, Table, grouped, measured_cells, per_second};
use design::Design;
use expected::Expected;
use generate::{Blog, PostNumber};
use v3::FEED_ROWS;

/// Makers at once, and additions each, in the check that counts are exact.
const CONTENDERS: usize = 16;
const ADDITIONS: u32 = 32;

/// Posts that are read whole to see that a new name reached them.
const RENAMED_POSTS_MAX: usize = 1_000;

/// Posts looked at for one that not all users like yet, beyond one or two a request.
const LIKE_TRIES: u64 = 1_000;

/// A request as the table shows it, with the guide's figures for the three designs.
struct Request {
    id: &'static str,
    what: &'static str,
    guide: [&'static str; 3],
}

const REQUESTS: [Request; 11] = [
    Request { id: "C1", what: "create / edit a user", guide: ["7 ms"; 3] },
    Request { id: "C1", what: "rename a user, with all copies", guide: ["-"; 3] },
    Request { id: "Q1", what: "get a user", guide: ["2 ms"; 3] },
    Request { id: "C2", what: "create / edit a post", guide: ["9 ms"; 3] },
    Request { id: "Q2", what: "get a post", guide: ["9 ms", "2 ms", "2 ms"] },
    Request { id: "Q3", what: "list a user's posts", guide: ["130 ms", "28 ms", "4 ms"] },
    Request { id: "C3", what: "create a comment", guide: ["7 ms"; 3] },
    Request { id: "Q4", what: "list a post's comments", guide: ["23 ms", "4 ms", "4 ms"] },
    Request { id: "C4", what: "like a post", guide: ["6 ms", "7 ms", "7 ms"] },
    Request { id: "Q5", what: "list a post's likes", guide: ["59 ms", "4 ms", "4 ms"] },
    Request { id: "Q6", what: "list the 100 newest posts", guide: ["306 ms", "83 ms", "9 ms"] },
];

/// The measurements of one design: loading, and each of [`REQUESTS`].
struct DesignResult {
    name: &'static str,
    loaded_rows: u64,
    load_time: Duration,
    measurements: Vec<Measurement>,
}

/// Loads and measures the three designs.
pub async fn run(options: &Options, client: &Client) -> Result<Vec<Table>, Error> {
    let blog = Blog::new(options.seed, options.users);
    let newest = blog.newest(FEED_ROWS);
    let outcomes = [
        Box::pin(run_design::<v1::V1<'_>>(options, client, &blog, &newest)).await?,
        Box::pin(run_design::<v2::V2<'_>>(options, client, &blog, &newest)).await?,
        Box::pin(run_design::<v3::V3<'_>>(options, client, &blog, &newest)).await?,
    ];
    Ok(vec![table(&blog, &outcomes)])
}

async fn run_design<'a, D: Design<'a>>(
    options: &Options,
    client: &'a Client,
    blog: &Blog,
    newest: &[PostNumber],
) -> Result<DesignResult, Error> {
    client.create(D::KEYSPACE, D::SCHEMA).await?;
    let design = D::prepare(client).await?;
    let started = Instant::now();
    let loaded_rows = load(options, &design, blog, newest).await?;
    let load_time = started.elapsed();
    let mut run = Run { options, blog, design: &design, expected: Expected::new(blog, newest) };
    let measurements = run.measure_all().await?;
    run.check_counts_under_contention().await?;
    run.check_feed_size().await?;
    Ok(DesignResult { name: D::NAME, loaded_rows, load_time, measurements })
}

async fn load<'a, D: Design<'a>>(
    options: &Options,
    design: &D,
    blog: &Blog,
    newest: &[PostNumber],
) -> Result<u64, Error> {
    let bar = progress::bar(format!("blog {}: loading users", D::NAME), blog.users().into());
    let rows: u64 = stream::iter(0..blog.users())
        .map(async |user| {
            let rows = design.load(&Expected::loaded_user(blog, user)).await?;
            bar.inc(1);
            Ok::<u64, Error>(rows)
        })
        .buffer_unordered(options.in_flight as usize)
        .try_fold(0, async |total, rows| Ok(total + rows))
        .await?;
    let expected = Expected::new(blog, newest);
    Ok(rows + design.finish_load(&expected.newest(FEED_ROWS)).await?)
}

/// One design at work, with what its tables must hold.
struct Run<'r, D> {
    options: &'r Options,
    blog: &'r Blog,
    design: &'r D,
    expected: Expected<'r>,
}

impl<'a, D: Design<'a>> Run<'_, D> {
    /// Measures [`REQUESTS`] in their order.
    async fn measure_all(&mut self) -> Result<Vec<Measurement>, Error> {
        let bar = progress::bar(format!("blog {}: requests", D::NAME), REQUESTS.len() as u64);
        let mut measurements = Vec::with_capacity(REQUESTS.len());
        for number in 0..REQUESTS.len() {
            measurements.push(match number {
                0 => self.put_users().await?,
                1 => self.rename_users().await?,
                2 => self.users().await?,
                3 => self.put_posts().await?,
                4 => self.posts().await?,
                5 => self.lists().await?,
                6 => self.put_comments().await?,
                7 => self.comments().await?,
                8 => self.put_likes().await?,
                9 => self.likes().await?,
                _ => self.feeds().await?,
            });
            bar.inc(1);
        }
        Ok(measurements)
    }

    fn measurement(&self) -> Measurement {
        Measurement::new(self.options.budget())
    }

    async fn check_user(&self, user: u32) -> Result<(), Error> {
        let found = self.design.user(self.blog.user_id(user)).await?.value;
        ensure_equal("Q1", &Some(self.expected.user(user)), &found)
    }

    async fn check_post(&self, post: PostNumber) -> Result<(), Error> {
        let found = self.design.post(self.blog.post_id(post)).await?.value;
        ensure_equal("Q2", &Some(self.expected.post(post)), &found)
    }

    async fn check_list(&self, user: u32) -> Result<(), Error> {
        let found = self.design.posts_of(self.blog.user_id(user)).await?.value;
        ensure_same_rows("Q3", &self.expected.posts_of(user), &found)
    }

    async fn check_newest(&self) -> Result<(), Error> {
        let found = self.design.newest(FEED_ROWS).await?.value;
        ensure_same_rows("Q6", &self.expected.newest(FEED_ROWS), &found)
    }

    /// C1: creates a user, then edits the same one.
    async fn put_users(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        let mut last = 0;
        while measured.wants_more() {
            if measured.count().is_multiple_of(2) {
                last = self.expected.create_user();
            } else {
                self.expected.edit_user(last);
            }
            measured.time(self.design.put_user(&self.expected.user(last))).await?;
            self.check_user(last).await?;
        }
        Ok(measured)
    }

    async fn rename_users(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        let mut last = 0;
        while measured.wants_more() {
            last = self.blog.pick_user(1, measured.count());
            let username = self.expected.rename_user(last);
            measured.time(self.design.rename_user(self.blog.user_id(last), &username)).await?;
            self.check_user(last).await?;
        }
        self.check_copies_of_name(last).await?;
        Ok(measured)
    }

    /// The posts that a user wrote, commented on or likes show the user's name, all of them up to a limit.
    async fn check_copies_of_name(&self, user: u32) -> Result<(), Error> {
        let _spinner = progress::spinner(format!("blog {}: copies of a new name", D::NAME));
        self.check_list(user).await?;
        self.check_newest().await?;
        let shown = self.blog.posts().filter(|&post| {
            post.user == user
                || (0..self.blog.comment_count(post))
                    .any(|index| self.blog.comment_maker(post, index) == user)
                || (0..self.blog.like_count(post)).any(|index| self.blog.like_maker(post, index) == user)
        });
        stream::iter(shown.take(RENAMED_POSTS_MAX))
            .map(async |post| {
                let post_id = self.blog.post_id(post);
                self.check_post(post).await?;
                let comments = self.design.comments(post_id).await?.value;
                ensure_same_rows("Q4", &self.expected.comments(post), &comments)?;
                let likes = self.design.likes(post_id).await?.value;
                ensure_same_rows("Q5", &self.expected.likes(post), &likes)
            })
            .buffer_unordered(CONTENDERS)
            .try_collect::<()>()
            .await
    }

    async fn users(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let user = self.blog.pick_user(2, measured.count());
            let found = measured.time(self.design.user(self.blog.user_id(user))).await?;
            ensure_equal("Q1", &Some(self.expected.user(user)), &found)?;
        }
        Ok(measured)
    }

    /// C2: creates a post, then edits the same one.
    async fn put_posts(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        let mut last = self.blog.created_post(0);
        while measured.wants_more() {
            if measured.count().is_multiple_of(2) {
                last = self.expected.create_post();
                measured.time(self.design.create_post(&self.blog.post(last, 0))).await?;
            } else {
                let edit = self.expected.edit_post(last);
                measured.time(self.design.edit_post(&self.blog.post(last, edit))).await?;
            }
            self.check_post(last).await?;
        }
        Ok(measured)
    }

    async fn posts(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let post = self.blog.pick_post(4, measured.count());
            let found = measured.time(self.design.post(self.blog.post_id(post))).await?;
            ensure_equal("Q2", &Some(self.expected.post(post)), &found)?;
        }
        Ok(measured)
    }

    async fn lists(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let user = self.blog.pick_user(5, measured.count());
            let found = measured.time(self.design.posts_of(self.blog.user_id(user))).await?;
            ensure_same_rows("Q3", &self.expected.posts_of(user), &found)?;
        }
        Ok(measured)
    }

    async fn put_comments(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let post = self.blog.pick_post(6, measured.count());
            let comment = self.blog.comment(post, self.expected.add_comment(post));
            measured.time(self.design.comment(self.blog.post_id(post), &comment)).await?;
            self.check_post(post).await?;
        }
        Ok(measured)
    }

    async fn comments(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            // The posts that C3 commented on come first.
            let post = self.blog.pick_post(6, measured.count());
            let found = measured.time(self.design.comments(self.blog.post_id(post))).await?;
            ensure_same_rows("Q4", &self.expected.comments(post), &found)?;
        }
        Ok(measured)
    }

    async fn put_likes(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        let mut tries = 0;
        while measured.wants_more() && tries < LIKE_TRIES + 2 * self.options.requests {
            let post = self.blog.pick_post(8, tries);
            tries += 1;
            let Some(index) = self.expected.add_like(post) else { continue };
            let maker_id = self.blog.user_id(self.blog.like_maker(post, index));
            measured.time(self.design.like(self.blog.post_id(post), maker_id)).await?;
            self.check_post(post).await?;
        }
        Ok(measured)
    }

    async fn likes(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            // The posts that C4 liked come first.
            let post = self.blog.pick_post(8, measured.count());
            let found = measured.time(self.design.likes(self.blog.post_id(post))).await?;
            ensure_same_rows("Q5", &self.expected.likes(post), &found)?;
        }
        Ok(measured)
    }

    async fn feeds(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let found = measured.time(self.design.newest(FEED_ROWS)).await?;
            ensure_same_rows("Q6", &self.expected.newest(FEED_ROWS), &found)?;
        }
        Ok(measured)
    }

    /// Many makers comment on and like the newest post at once.
    async fn check_counts_under_contention(&mut self) -> Result<(), Error> {
        let post = self.expected.create_post();
        let post_id = self.blog.post_id(post);
        self.design.create_post(&self.blog.post(post, 0)).await?;
        let comments: Vec<u32> = (0..ADDITIONS).map(|_| self.expected.add_comment(post)).collect();
        let likes: Vec<u32> = (0..ADDITIONS).filter_map(|_| self.expected.add_like(post)).collect();
        let _spinner = progress::spinner(format!("blog {}: exact counts with {CONTENDERS} makers", D::NAME));
        stream::iter(comments)
            .map(async |index| self.design.comment(post_id, &self.blog.comment(post, index)).await)
            .buffer_unordered(CONTENDERS)
            .try_for_each(async |_| Ok(()))
            .await?;
        stream::iter(likes)
            .map(async |index| {
                self.design.like(post_id, self.blog.user_id(self.blog.like_maker(post, index))).await
            })
            .buffer_unordered(CONTENDERS)
            .try_for_each(async |_| Ok(()))
            .await?;
        self.check_post(post).await?;
        self.check_newest().await?;
        self.check_list(post.user).await
    }

    /// The table of the feed holds what it shows and no more.
    async fn check_feed_size(&self) -> Result<(), Error> {
        let Some(rows) = self.design.feed_rows().await? else { return Ok(()) };
        ensure_equal("the size of the feed", &(self.expected.newest(FEED_ROWS).len() as u64), &rows)
    }
}

fn table(blog: &Blog, outcomes: &[DesignResult]) -> Table {
    let mut groups = vec![Group::new("", &["", "request"])];
    let [rows, p50, p99, pages] = MEASURED_COLUMNS;
    groups.extend(outcomes.iter().map(|outcome| Group::new(outcome.name, &[rows, p50, p99, pages, "guide"])));
    let body = REQUESTS
        .iter()
        .enumerate()
        .map(|(number, request)| {
            let mut cells = vec![vec![request.id.to_owned(), request.what.to_owned()]];
            for (outcome, guide) in outcomes.iter().zip(request.guide) {
                let mut measured = outcome.measurements.get(number).map(measured_cells).unwrap_or_default();
                measured.push(guide.to_owned());
                cells.push(measured);
            }
            cells
        })
        .collect();
    let loaded: Vec<String> = outcomes
        .iter()
        .map(|outcome| {
            format!(
                "{} {} rows at {}/s",
                outcome.name,
                grouped(outcome.loaded_rows),
                per_second(outcome.loaded_rows, outcome.load_time)
            )
        })
        .collect();
    Table {
        title: format!(
            "Blog: {} users, {} posts",
            grouped(blog.users().into()),
            grouped(blog.posts().count() as u64)
        ),
        groups,
        text_columns: 2,
        rows: body,
        notes: vec![
            format!("loaded: {}", loaded.join(", ")),
            "one request in flight; a latency covers all statements of the request, copies included"
                .to_owned(),
            "guide: latency published for 100,000 users on a managed service (no figure for renaming)"
                .to_owned(),
            format!(
                "checked: every answer, all copies of a new name, counts after {CONTENDERS} makers at once, the feed's size"
            ),
        ],
    }
}
