//! The blog platform: ten requests on three designs, side by side.
//!
//! Every design is loaded with the same data and runs the same requests in the same order; each answer is compared
//! with [`expected::Expected`]. After the requests, comments and likes are added to one post by many makers at once:
//! the counts must be exact. At the end the server checks its projections.
//!
//! Measured writes are the writes alone, as in the guide: answers that depend on projections are looked at once these have
//! caught up.

mod common;
pub mod design;
pub mod expected;
pub mod generate;
mod projected;
mod v1;
mod v2;
mod v3;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};

use crate::client::Client;
use crate::error::{Error, ensure_equal, ensure_same_rows};
use crate::measure::{CountedResponse, Measurement};
use crate::options::Options;
use crate::progress;
use crate::report::{CHARGED_COLUMNS, Group, Table, charged_cells, grouped, latency, per_second};
use design::{Design, Load};
use expected::Expected;
use generate::{Blog, PostNumber, User};
use v3::FEED_ROWS;

/// Makers at once, and additions each, in the check that counts are exact.
const CONTENDERS: usize = 16;
const ADDITIONS: u32 = 32;

/// Posts that are read whole to see that a new name reached them.
const RENAMED_POSTS_MAX: usize = 1_000;

/// Posts looked at for one that not all users like yet, beyond one or two a request.
const LIKE_TRIES: u64 = 1_000;

/// A request as the table shows it, with the guide's figures for the three designs: latency and request units.
struct Request {
    id: &'static str,
    what: &'static str,
    guide: [[&'static str; 2]; 3],
}

const fn request(id: &'static str, what: &'static str, guide: [[&'static str; 2]; 3]) -> Request {
    Request { id, what, guide }
}

const REQUESTS: [Request; 11] = [
    request("C1", "create / edit a user", [["7 ms", "5.71"]; 3]),
    request("C1", "rename a user, until all copies have it", [["-"; 2]; 3]),
    request("Q1", "get a user", [["2 ms", "1"]; 3]),
    request("C2", "create / edit a post", [["9 ms", "8.76"]; 3]),
    request("Q2", "get a post", [["9 ms", "19.54"], ["2 ms", "1"], ["2 ms", "1"]]),
    request("Q3", "list a user's posts", [["130 ms", "619.41"], ["28 ms", "201.54"], ["4 ms", "6.46"]]),
    request("C3", "create a comment", [["7 ms", "8.57"], ["7 ms", "15.27"], ["7 ms", "15.27"]]),
    request("Q4", "list a post's comments", [["23 ms", "27.72"], ["4 ms", "7.72"], ["4 ms", "7.72"]]),
    request("C4", "like a post", [["6 ms", "7.05"], ["7 ms", "14.67"], ["7 ms", "14.67"]]),
    request("Q5", "list a post's likes", [["59 ms", "58.92"], ["4 ms", "8.92"], ["4 ms", "8.92"]]),
    request(
        "Q6",
        "list the 100 newest posts",
        [["306 ms", "2063.54"], ["83 ms", "532.33"], ["9 ms", "16.97"]],
    ),
];

/// The measurements of one design: loading, and each of [`REQUESTS`].
struct DesignResult {
    name: &'static str,
    loaded_rows: u64,
    load_time: Duration,
    /// How long the projections took to have what was loaded, and how many rows they have at the end.
    build_time: Duration,
    projected_rows: u64,
    measurements: Vec<Measurement>,
}

/// Loads and measures the designs: all three, or V1 alone where the server has no projections.
pub async fn run(options: &Options, client: &Client) -> Result<Vec<Table>, Error> {
    let blog = Blog::new(options.seed, options.users);
    let newest = blog.newest(FEED_ROWS);
    let mut outcomes = vec![Box::pin(run_design::<v1::V1<'_>>(options, client, &blog, &newest)).await?];
    if client.has_extensions() {
        outcomes.push(Box::pin(run_design::<v2::V2<'_>>(options, client, &blog, &newest)).await?);
        outcomes.push(Box::pin(run_design::<v3::V3<'_>>(options, client, &blog, &newest)).await?);
    }
    Ok(vec![table(&blog, &outcomes)])
}

async fn run_design<'a, D: Design<'a>>(
    options: &Options,
    client: &'a Client,
    blog: &Blog,
    newest: &[PostNumber],
) -> Result<DesignResult, Error> {
    client.create(D::KEYSPACE, D::SCHEMA).await?;
    let tables = D::tables(client).await?;
    let started = Instant::now();
    let loaded_rows = load(options, D::NAME, &tables, blog).await?;
    let load_time = started.elapsed();
    let started = Instant::now();
    client.create_projections(D::SCHEMA).await?;
    let design = D::prepare(client, tables).await?;
    let mut run = Run { options, client, blog, design: &design, expected: Expected::new(blog, newest) };
    run.catch_up().await?;
    let build_time = started.elapsed();
    let measurements = run.measure_all().await?;
    run.check_counts_under_contention().await?;
    run.check_feed_size().await?;
    let projected_rows = run.check_projections().await?;
    Ok(DesignResult { name: D::NAME, loaded_rows, load_time, build_time, projected_rows, measurements })
}

/// Writes all users, and then all posts.
async fn load(options: &Options, design: &str, tables: &impl Load, blog: &Blog) -> Result<u64, Error> {
    let bar = progress::bar(format!("blog {design}: loading users"), 2 * u64::from(blog.users()));
    let users: u64 = stream::iter(0..blog.users())
        .map(async |user| {
            let rows = tables.load_user(&blog.user(user, 0, 0)).await?;
            bar.inc(1);
            Ok::<u64, Error>(rows)
        })
        .buffer_unordered(options.in_flight as usize)
        .try_fold(0, async |total, rows| Ok(total + rows))
        .await?;
    let posts: u64 = stream::iter(0..blog.users())
        .map(async |user| {
            let mut rows = 0;
            for index in 0..blog.post_count(user) {
                rows += tables.load_post(&Expected::loaded_post(blog, PostNumber { user, index })).await?;
            }
            bar.inc(1);
            Ok::<u64, Error>(rows)
        })
        .buffer_unordered(options.in_flight as usize)
        .try_fold(0, async |total, rows| Ok(total + rows))
        .await?;
    Ok(users + posts)
}

/// One design at work, with what its tables must hold.
struct Run<'r, D> {
    options: &'r Options,
    client: &'r Client,
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

    /// Runs a request: the first one for its charge, the others under the clock.
    async fn ask<T>(
        &self,
        measured: &mut Measurement,
        request: impl Future<Output = Result<CountedResponse<T>, Error>>,
    ) -> Result<T, Error> {
        if measured.has_charge() {
            return measured.time(request).await;
        }
        let (answer, charge) = self.client.charged(request).await?;
        measured.note_charge(charge);
        Ok(answer.value)
    }

    /// Waits until the projections have all that was written.
    async fn catch_up(&self) -> Result<(), Error> {
        for projection in D::PROJECTIONS {
            self.client.wait_for(projection).await?;
        }
        Ok(())
    }

    async fn user(&self, user: u32) -> Result<CountedResponse<Option<User>>, Error> {
        self.design.users().get(self.blog.user_id(user)).await
    }

    async fn check_user(&self, user: u32) -> Result<(), Error> {
        let found = self.user(user).await?.value;
        ensure_equal("Q1", &Some(self.expected.user(user)), &found)
    }

    async fn check_post(&self, post: PostNumber) -> Result<(), Error> {
        let found = self.design.post(self.blog.post_id(post)).await?.value;
        ensure_equal("Q2", &Some(self.expected.post(post)), &found)
    }

    /// The posts are as they should be once the projections have caught up.
    async fn check_posts(&self, posts: BTreeSet<PostNumber>) -> Result<(), Error> {
        self.catch_up().await?;
        stream::iter(posts)
            .map(|post| self.check_post(post))
            .buffer_unordered(CONTENDERS)
            .try_collect::<()>()
            .await
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
            let user = self.expected.user(last);
            self.ask(&mut measured, self.design.users().put(&user)).await?;
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
            let renamed = Box::pin(async {
                let written = self.design.users().rename(self.blog.user_id(last), &username).await?;
                self.catch_up().await?;
                Ok(written)
            });
            self.ask(&mut measured, renamed).await?;
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
            let found = self.ask(&mut measured, self.user(user)).await?;
            ensure_equal("Q1", &Some(self.expected.user(user)), &found)?;
        }
        Ok(measured)
    }

    /// C2: creates a post, then edits the same one.
    async fn put_posts(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        let mut last = self.blog.created_post(0);
        let mut written = BTreeSet::new();
        while measured.wants_more() {
            if measured.count().is_multiple_of(2) {
                last = self.expected.create_post();
                self.ask(&mut measured, self.design.create_post(&self.blog.post(last, 0))).await?;
            } else {
                let edit = self.expected.edit_post(last);
                self.ask(&mut measured, self.design.edit_post(&self.blog.post(last, edit))).await?;
            }
            written.insert(last);
        }
        self.check_posts(written).await?;
        Ok(measured)
    }

    async fn posts(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let post = self.blog.pick_post(4, measured.count());
            let found = self.ask(&mut measured, self.design.post(self.blog.post_id(post))).await?;
            ensure_equal("Q2", &Some(self.expected.post(post)), &found)?;
        }
        Ok(measured)
    }

    async fn lists(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let user = self.blog.pick_user(5, measured.count());
            let found = self.ask(&mut measured, self.design.posts_of(self.blog.user_id(user))).await?;
            ensure_same_rows("Q3", &self.expected.posts_of(user), &found)?;
        }
        Ok(measured)
    }

    async fn put_comments(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        let mut written = BTreeSet::new();
        while measured.wants_more() {
            let post = self.blog.pick_post(6, measured.count());
            let comment = self.blog.comment(post, self.expected.add_comment(post));
            self.ask(&mut measured, self.design.comment(self.blog.post_id(post), &comment)).await?;
            written.insert(post);
        }
        self.check_posts(written).await?;
        Ok(measured)
    }

    async fn comments(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            // The posts that C3 commented on come first.
            let post = self.blog.pick_post(6, measured.count());
            let found = self.ask(&mut measured, self.design.comments(self.blog.post_id(post))).await?;
            ensure_same_rows("Q4", &self.expected.comments(post), &found)?;
        }
        Ok(measured)
    }

    async fn put_likes(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        let mut tries = 0;
        let mut written = BTreeSet::new();
        while measured.wants_more() && tries < LIKE_TRIES + 2 * self.options.requests {
            let post = self.blog.pick_post(8, tries);
            tries += 1;
            let Some(index) = self.expected.add_like(post) else { continue };
            let maker_id = self.blog.user_id(self.blog.like_maker(post, index));
            self.ask(&mut measured, self.design.like(self.blog.post_id(post), maker_id)).await?;
            written.insert(post);
        }
        self.check_posts(written).await?;
        Ok(measured)
    }

    async fn likes(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            // The posts that C4 liked come first.
            let post = self.blog.pick_post(8, measured.count());
            let found = self.ask(&mut measured, self.design.likes(self.blog.post_id(post))).await?;
            ensure_same_rows("Q5", &self.expected.likes(post), &found)?;
        }
        Ok(measured)
    }

    async fn feeds(&mut self) -> Result<Measurement, Error> {
        let mut measured = self.measurement();
        while measured.wants_more() {
            let found = self.ask(&mut measured, self.design.newest(FEED_ROWS)).await?;
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
        self.catch_up().await?;
        self.check_post(post).await?;
        self.check_newest().await?;
        self.check_list(post.user).await
    }

    /// The server finds no fault in the projections; the number of their rows.
    async fn check_projections(&self) -> Result<u64, Error> {
        let _spinner = progress::spinner(format!("blog {}: checking projections", D::NAME));
        let mut rows = 0;
        for projection in D::PROJECTIONS {
            rows += self.client.check_projection(projection).await?;
        }
        Ok(rows)
    }

    /// The feed holds what it shows and no more.
    async fn check_feed_size(&self) -> Result<(), Error> {
        let Some(rows) = self.design.feed_rows().await? else { return Ok(()) };
        ensure_equal("the size of the feed", &(self.expected.newest(FEED_ROWS).len() as u64), &rows)
    }
}

fn table(blog: &Blog, outcomes: &[DesignResult]) -> Table {
    let mut groups = vec![Group::new("", &["", "request"])];
    let [rows, p50, p99, charge] = CHARGED_COLUMNS;
    let columns = [rows, p50, p99, charge, "guide", "units"];
    groups.extend(outcomes.iter().map(|outcome| Group::new(outcome.name, &columns)));
    let body = REQUESTS
        .iter()
        .enumerate()
        .map(|(number, request)| {
            let mut cells = vec![vec![request.id.to_owned(), request.what.to_owned()]];
            for (outcome, guide) in outcomes.iter().zip(request.guide) {
                let mut measured = charged_cells(&outcome.measurements[number]);
                measured.extend(guide.map(str::to_owned));
                cells.push(measured);
            }
            cells
        })
        .collect();
    let loaded = outcomes.iter().map(|outcome| {
        let rate = per_second(outcome.loaded_rows, outcome.load_time);
        format!("{} {} rows at {rate}/s", outcome.name, grouped(outcome.loaded_rows))
    });
    let mut notes = vec![format!("loaded: {}", loaded.collect::<Vec<_>>().join(", "))];
    let built = outcomes.iter().skip(1).map(|outcome| {
        format!(
            "{} {} rows, built in {}",
            outcome.name,
            grouped(outcome.projected_rows),
            latency(outcome.build_time)
        )
    });
    let built: Vec<String> = built.collect();
    notes.push(if built.is_empty() {
        "V2 and V3 need projections, which this server does not have".to_owned()
    } else {
        format!("projections: {}", built.join(", "))
    });
    notes.extend([
        "one request in flight; a latency covers all statements of the request; projections follow writes, and only the \
         line of renaming waits for them"
            .to_owned(),
        "charge: of one request, over its statements; guide, units: latency and request units published for 100,000 \
         users on a managed service (no figure for renaming)"
            .to_owned(),
        format!(
            "checked: every answer, all copies of a new name, counts after {CONTENDERS} makers at once, the feed's size, \
             and each projection against what it is computed of"
        ),
    ]);
    Table {
        title: format!(
            "Blog: {} users, {} posts",
            grouped(blog.users().into()),
            grouped(blog.posts().count() as u64)
        ),
        groups,
        text_columns: 2,
        rows: body,
        notes,
    }
}
