//! The load of `benches/scale/run`: fills tables, and asks at a depth or at a rate. Each command prints one line of JSON.
//!
//! * At a depth (`--in-flight`) a request begins when another one ends. Latencies are those of the requests.
//! * At a rate (`--rate`) requests begin at their times whatever the others do. Latencies count from these times, so a server that
//!   stalls does not hide its stall.
//!
//! Rows are `id bigint PRIMARY KEY, v blob`. The blobs are random, so that compression does not shrink them.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use futures::stream::{FuturesUnordered, StreamExt};
use hdrhistogram::Histogram;
use helenus_engine::io::SplitMix64;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::prepared::PreparedStatement;
use serde_json::json;

/// What went wrong; it ends the program.
type Failure = Box<dyn Error>;

const LATENCY_US_MAX: u64 = 600_000_000;
/// Direct reads need memory, offsets and lengths in multiples of this.
const DIRECT_ALIGNMENT: usize = 4096;
const O_DIRECT: i32 = 0o40_000;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Creates tables `scale.<table>0` to `scale.<table><n-1>`, one after the other.
    Create {
        #[command(flatten)]
        target: Target,
        #[arg(long, default_value_t = 1)]
        tables: u64,
    },
    /// Writes rows with the ids from 0 on.
    Fill {
        #[command(flatten)]
        target: Target,
        #[arg(long)]
        rows: u64,
        /// Of each row's blob.
        #[arg(long)]
        bytes: usize,
    },
    /// Reads rows with random ids.
    Gets {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        pace: Pace,
        #[arg(long)]
        rows: u64,
    },
    /// Writes rows with random ids, one table after the other.
    Puts {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        pace: Pace,
        #[arg(long)]
        rows: u64,
        #[arg(long)]
        bytes: usize,
        #[arg(long, default_value_t = 1)]
        tables: u64,
    },
    /// Reads a file at random places, past the page cache.
    Raw {
        file: PathBuf,
        #[arg(long, default_value_t = 16384)]
        bytes: usize,
        /// Threads, each with one read under way.
        #[arg(long, default_value_t = 64)]
        in_flight: usize,
        #[arg(long)]
        seconds: u64,
    },
}

#[derive(Args)]
struct Target {
    /// HOST:PORT.
    #[arg(long)]
    node: String,
    /// The first part of the tables' names.
    #[arg(long, default_value = "t")]
    table: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Clone, Copy)]
struct Pace {
    #[arg(long)]
    seconds: u64,
    /// Requests under way, without a rate.
    #[arg(long, default_value_t = 256)]
    in_flight: usize,
    /// Requests a second.
    #[arg(long)]
    rate: Option<u64>,
}

impl Target {
    async fn connect(&self) -> Result<Session, Failure> {
        let profile = ExecutionProfile::builder().request_timeout(Some(Duration::from_mins(2)));
        let builder = SessionBuilder::new()
            .known_node(&self.node)
            .default_execution_profile_handle(profile.build().into_handle())
            .refresh_metadata_on_auto_schema_agreement(false)
            .fetch_schema_metadata(false);
        Ok(builder.build().await?)
    }

    async fn prepare_insert(&self, session: &Session, number: u64) -> Result<PreparedStatement, Failure> {
        let text = format!("INSERT INTO scale.{}{number} (id, v) VALUES (?, ?)", self.table);
        Ok(session.prepare(text).await?)
    }
}

/// A blob that is another one for each call.
struct Blobs {
    random: SplitMix64,
    bytes: usize,
}

impl Blobs {
    fn new(seed: u64, bytes: usize) -> Self {
        Self { random: SplitMix64::new(seed), bytes }
    }

    fn next(&mut self) -> Vec<u8> {
        let words = self.bytes.div_ceil(8);
        let mut blob: Vec<u8> = (0..words).flat_map(|_| self.random.next_u64().to_le_bytes()).collect();
        blob.truncate(self.bytes);
        blob
    }
}

/// Latencies in microseconds.
struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Result<Self, Failure> {
        Ok(Self(Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)?))
    }

    fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX);
        self.0.saturating_record(micros.max(1));
    }

    fn report(&self, elapsed: Duration) -> serde_json::Value {
        let millis = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        json!({
            "count": self.0.len(),
            "per_second": self.0.len() as f64 / elapsed.as_secs_f64(),
            "p50_ms": millis(0.5),
            "p99_ms": millis(0.99),
            "p999_ms": millis(0.999),
            "max_ms": self.0.max() as f64 / 1e3,
        })
    }
}

/// Runs requests at a pace and reports their latencies. The first error ends it.
async fn run<F>(pace: Pace, mut request: impl FnMut() -> F) -> Result<serde_json::Value, Failure>
where
    F: Future<Output = Result<(), Failure>> + 'static,
{
    let latencies = Rc::new(RefCell::new(Latencies::new()?));
    let failure: Rc<RefCell<Option<Failure>>> = Rc::default();
    let under_way = Rc::new(Cell::new(0_usize));
    let begin = Instant::now();
    let end = begin + Duration::from_secs(pace.seconds);
    if let Some(rate) = pace.rate {
        for number in 0.. {
            let due = begin + Duration::from_nanos(number * 1_000_000_000 / rate.max(1));
            if due >= end || failure.borrow().is_some() {
                break;
            }
            tokio::time::sleep_until(due.into()).await;
            let (latencies, failure, under_way) = (latencies.clone(), failure.clone(), under_way.clone());
            let future = request();
            under_way.set(under_way.get() + 1);
            tokio::task::spawn_local(async move {
                match future.await {
                    Ok(()) => latencies.borrow_mut().add(due.elapsed()),
                    Err(error) => *failure.borrow_mut() = Some(error),
                }
                under_way.set(under_way.get() - 1);
            });
        }
        while under_way.get() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    } else {
        let mut running = FuturesUnordered::new();
        let timed = |future: F| async move {
            let start = Instant::now();
            future.await.map(|()| start.elapsed())
        };
        while Instant::now() < end {
            while running.len() < pace.in_flight {
                running.push(timed(request()));
            }
            if let Some(done) = running.next().await {
                latencies.borrow_mut().add(done?);
            }
        }
        while let Some(done) = running.next().await {
            done?;
        }
    }
    if let Some(error) = failure.borrow_mut().take() {
        return Err(error);
    }
    let report = latencies.borrow().report(begin.elapsed());
    Ok(report)
}

async fn create(target: &Target, tables: u64) -> Result<serde_json::Value, Failure> {
    let session = target.connect().await?;
    session
        .query_unpaged(
            "CREATE KEYSPACE IF NOT EXISTS scale WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            (),
        )
        .await?;
    let (mut latencies, begin) = (Latencies::new()?, Instant::now());
    let mut last = Latencies::new()?;
    for number in 0..tables {
        let text = format!(
            "CREATE TABLE IF NOT EXISTS scale.{}{number} (id bigint PRIMARY KEY, v blob)",
            target.table
        );
        let start = Instant::now();
        session.query_unpaged(text, ()).await?;
        latencies.add(start.elapsed());
        if number >= tables - tables.div_ceil(10) {
            last.add(start.elapsed());
        }
    }
    let elapsed = begin.elapsed();
    Ok(json!({ "all": latencies.report(elapsed), "last_tenth": last.report(elapsed) }))
}

async fn fill(target: &Target, rows: u64, bytes: usize) -> Result<serde_json::Value, Failure> {
    const IN_FLIGHT: usize = 512;
    let session = target.connect().await?;
    let insert = target.prepare_insert(&session, 0).await?;
    let (mut blobs, begin) = (Blobs::new(target.seed, bytes), Instant::now());
    let mut running = FuturesUnordered::new();
    for id in 0..rows {
        let (session, insert, blob) = (&session, &insert, blobs.next());
        running.push(async move { session.execute_unpaged(insert, (id as i64, blob)).await });
        if running.len() >= IN_FLIGHT
            && let Some(done) = running.next().await
        {
            done?;
        }
    }
    while let Some(done) = running.next().await {
        done?;
    }
    Ok(json!({ "rows": rows, "seconds": begin.elapsed().as_secs_f64() }))
}

async fn gets(target: &Target, pace: Pace, rows: u64) -> Result<serde_json::Value, Failure> {
    let session = Rc::new(target.connect().await?);
    let text = format!("SELECT v FROM scale.{}0 WHERE id = ?", target.table);
    let select = Rc::new(session.prepare(text).await?);
    let mut random = SplitMix64::new(target.seed);
    run(pace, move || {
        let (session, select) = (session.clone(), select.clone());
        let id = (random.next_u64() % rows) as i64;
        async move {
            let found = session.execute_unpaged(&select, (id,)).await?.into_rows_result()?;
            if found.rows_num() == 1 { Ok(()) } else { Err(format!("no row with id {id}").into()) }
        }
    })
    .await
}

async fn puts(
    target: &Target,
    pace: Pace,
    (rows, bytes): (u64, usize),
    tables: u64,
) -> Result<serde_json::Value, Failure> {
    let session = Rc::new(target.connect().await?);
    let mut inserts = Vec::new();
    for number in 0..tables {
        inserts.push(Rc::new(target.prepare_insert(&session, number).await?));
    }
    let (mut random, mut blobs) = (SplitMix64::new(target.seed), Blobs::new(target.seed, bytes));
    let mut inserts = inserts.into_iter().cycle();
    run(pace, move || {
        let (session, insert) = (session.clone(), inserts.next());
        let (id, blob) = ((random.next_u64() % rows) as i64, blobs.next());
        async move {
            let insert = insert.ok_or("there are no tables")?;
            session.execute_unpaged(&insert, (id, blob)).await?;
            Ok(())
        }
    })
    .await
}

fn raw(file: &PathBuf, bytes: usize, in_flight: usize, seconds: u64) -> Result<serde_json::Value, Failure> {
    let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(file)?;
    let places = file.metadata()?.len() / bytes as u64;
    if places == 0 {
        return Err("the file is shorter than a read".into());
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let new = || Latencies::new().map_err(|error| error.to_string());
    let read = |seed: usize| -> Result<Latencies, String> {
        let mut latencies = new()?;
        let mut random = SplitMix64::new(seed as u64);
        let mut buffer = vec![0_u8; bytes + DIRECT_ALIGNMENT];
        let first = buffer.as_ptr().align_offset(DIRECT_ALIGNMENT);
        while Instant::now() < end {
            let start = Instant::now();
            let offset = random.next_u64() % places * bytes as u64;
            file.read_exact_at(&mut buffer[first..first + bytes], offset)
                .map_err(|error| error.to_string())?;
            latencies.add(start.elapsed());
        }
        Ok(latencies)
    };
    let mut all = Latencies::new()?;
    let read = &read;
    std::thread::scope(|scope| -> Result<(), Failure> {
        let threads: Vec<_> = (0..in_flight).map(|seed| scope.spawn(move || read(seed))).collect();
        for thread in threads {
            all.0.add(&thread.join().map_err(|_| "a thread has panicked")??.0)?;
        }
        Ok(())
    })?;
    Ok(all.report(begin.elapsed()))
}

fn carry_out(command: &Command) -> Result<serde_json::Value, Failure> {
    if let Command::Raw { file, bytes, in_flight, seconds } = command {
        return raw(file, *bytes, *in_flight, *seconds);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        match command {
            Command::Create { target, tables } => create(target, *tables).await,
            Command::Fill { target, rows, bytes } => fill(target, *rows, *bytes).await,
            Command::Gets { target, pace, rows } => gets(target, *pace, *rows).await,
            Command::Puts { target, pace, rows, bytes, tables } => {
                puts(target, *pace, (*rows, *bytes), *tables).await
            }
            Command::Raw { .. } => Err("it needs no connection".into()),
        }
    })
}

fn main() -> ExitCode {
    match carry_out(&Arguments::parse().command) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
