//! The directives of a file, carried out one after the other.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use cql_lite::frame::Consistency;
use datadriven::TestCase;
use helenus::config::Config;
use helenus::testing::client;
use helenus_engine::TableId;
use helenus_engine::io::{CrashStyle, SimulatedDisk};
use helenus_execution::coordinator::{Outcome, RequestOptions};
use helenus_execution::shard::context::ShardContext;
use helenus_query::bind::{BorrowedValues, Rewritten, bind};
use helenus_query::error::RequestError;
use helenus_query::statement::Statement;
use helenus_testing::clock::VirtualClock;
use helenus_testing::virtual_time;
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::long::written_out;
use super::node;
use super::show::{self, Answer, Rows};
use super::values::{self, Given};

/// Pages of one answer above which a suite is taken to go in circles.
const PAGES_MAX: usize = 200;

/// A node with one client.
pub struct Suite {
    shards: Vec<Rc<ShardContext>>,
    tasks: LocalSet,
    runtime: Runtime,
    disk: SimulatedDisk,
    clock: VirtualClock,
    settings: Config,
    starts: u64,
    keyspace: Option<String>,
    prepared: Option<Statement>,
    /// Requests so far: they go to the shards in turn.
    requests: usize,
}

impl Suite {
    pub fn new() -> Self {
        let runtime = virtual_time::runtime(1);
        let clock = runtime.block_on(async { node::clock() });
        let mut suite = Self {
            shards: Vec::new(),
            tasks: LocalSet::new(),
            runtime,
            disk: SimulatedDisk::new(1),
            clock,
            settings: Config::default(),
            starts: 0,
            keyspace: None,
            prepared: None,
            requests: 0,
        };
        suite.open();
        suite
    }

    fn open(&mut self) {
        self.starts += 1;
        let opening = node::open(&self.disk, &self.clock, self.settings.clone(), self.starts);
        self.shards = self.tasks.block_on(&self.runtime, opening);
    }

    /// Carries a directive out; what it comes to.
    pub fn run(&mut self, case: &mut TestCase) -> Result<String, String> {
        let report = |error: datadriven::DataDrivenError| error.to_string();
        match case.directive.as_str() {
            "clock" => {
                let seconds = case.take_arg("advance").map_err(report)?;
                self.clock.skew.advance(Duration::from_secs(seconds));
                Ok(String::new())
            }
            "flush" => self.for_each_table(false),
            "compact" => self.for_each_table(true),
            "settings" => {
                let settings = Config::from_toml(&case.input, Path::new("helenus.toml"));
                let checked = settings.and_then(|settings| settings.validate().map(|()| settings));
                self.settings = match checked {
                    Ok(settings) => settings,
                    Err(error) => return Ok(format!("{error}\n")),
                };
                self.restart();
                Ok(String::new())
            }
            "restart" => {
                self.restart();
                Ok(String::new())
            }
            "cql" => {
                let options = options(case)?;
                let statements = split(&case.input);
                let is_one = statements.len() == 1;
                let answers = statements.into_iter().map(|text| {
                    let answer = self.text(text, &options).long();
                    if is_one { answer } else { format!("> {}\n{answer}", text.replace('\n', " ")) }
                });
                Ok(answers.collect())
            }
            "each" => {
                let dropped: Option<String> = case.try_take_arg("drop").map_err(report)?;
                let options = options(case)?;
                let (template, lines) = case.input.split_once('\n').ok_or("no template")?;
                let (before, after) = template.split_once('$').ok_or("no $ in the template")?;
                let answers = lines.lines().map(|line| {
                    let answer = self.text(&format!("{before}{line}{after}"), &options).short();
                    if let Some(table) = &dropped {
                        self.text(&format!("DROP TABLE IF EXISTS {table}"), &options);
                    }
                    format!("{line} -> {answer}\n")
                });
                Ok(answers.collect())
            }
            "prepare" => Ok(self.prepare(case.input.trim().trim_end_matches(';'))),
            "execute" => {
                let options = options(case)?;
                let statement = self.prepared.clone().ok_or("nothing is prepared")?;
                Ok(match values::read(&case.input, &statement.markers) {
                    Ok((names, values)) => self.execute(&statement, &values, &names, &options).long(),
                    Err(error) => format!("not bound: {error}\n"),
                })
            }
            other => Err(format!("no directive {other}")),
        }
    }

    fn for_each_table(&mut self, compacts: bool) -> Result<String, String> {
        let shards = self.shards.clone();
        let catalog = shards[0].catalog();
        let ids: Vec<TableId> = catalog
            .keyspaces
            .values()
            .filter(|keyspace| !keyspace.name.starts_with("system"))
            .flat_map(|keyspace| keyspace.tables.values())
            .map(|table| TableId(*table.id.as_bytes()))
            .collect();
        let work = async move {
            for shard in &shards {
                for id in &ids {
                    shard.shard.flush(*id).await.map_err(|error| error.to_string())?;
                    if compacts {
                        shard.shard.compact(*id).await.map_err(|error| error.to_string())?;
                    }
                }
            }
            Ok(String::new())
        };
        self.tasks.block_on(&self.runtime, work)
    }

    /// Pulls the plug and starts the node again.
    fn restart(&mut self) {
        self.disk.crash();
        self.shards.clear();
        self.tasks = LocalSet::new();
        self.disk.restart(CrashStyle::LoseAll, 1);
        self.open();
    }

    fn next_shard(&mut self) -> Rc<ShardContext> {
        self.clock.skew.advance(Duration::from_millis(1));
        self.requests += 1;
        self.shards[self.requests % self.shards.len()].clone()
    }

    fn text(&mut self, text: &str, options: &RequestOptions) -> Answer {
        let shard = self.next_shard();
        // The view must be given back before a statement changes the catalog.
        let text = written_out(text);
        let statement = Statement::new(&text, self.keyspace.as_deref(), &shard.catalog_view());
        match statement {
            Ok(statement) => self.pages(&shard, &statement, &[], &[], options),
            Err(error) => Answer::Said(show::error(&error)),
        }
    }

    fn prepare(&mut self, text: &str) -> String {
        let shard = self.next_shard();
        self.prepared = None;
        let view = shard.catalog_view();
        match shard.statements.prepare(&shard.node.registry, text, self.keyspace.as_deref(), &view) {
            Err(error) => format!("{}\n", show::error(&error)),
            Ok(statement) => {
                let markers: Vec<String> = statement
                    .markers
                    .iter()
                    .map(|marker| format!("{} {}", marker.name, marker.value_type))
                    .collect();
                let columns: Vec<String> = statement
                    .result_columns
                    .iter()
                    .map(|column| format!("{} {}", column.name, column.column_type))
                    .collect();
                let keys = &statement.partition_key_markers;
                let report = format!(
                    "markers: {}\npartition key: {keys:?}\ncolumns: {}\n",
                    markers.join(", "),
                    columns.join(", ")
                );
                self.prepared = Some(statement);
                report
            }
        }
    }

    fn execute(
        &mut self,
        prepared: &Statement,
        values: &[Given],
        names: &[String],
        options: &RequestOptions,
    ) -> Answer {
        let shard = self.next_shard();
        let statement = shard.statements.get(&shard.node.registry, &prepared.id, &shard.catalog_view());
        match statement {
            Ok(statement) => self.pages(&shard, &statement, values, names, options),
            Err(error) => Answer::Said(show::error(&error)),
        }
    }

    /// Asks for page after page.
    fn pages(
        &mut self,
        shard: &Rc<ShardContext>,
        statement: &Statement,
        values: &[Given],
        names: &[String],
        options: &RequestOptions,
    ) -> Answer {
        let mut options = options.clone();
        let mut rows = Rows::default();
        let mut warnings = Vec::new();
        loop {
            let outcome = self.once(shard, statement, values, names, &options, &mut warnings);
            let answer = match outcome {
                Err(error) => Answer::Said(show::error(&error)),
                Ok(Outcome::Void | Outcome::Warned(_)) => Answer::Void,
                Ok(Outcome::SetKeyspace(keyspace)) => {
                    let said = format!("keyspace {keyspace}");
                    self.keyspace = Some(keyspace);
                    Answer::Said(said)
                }
                Ok(Outcome::SchemaChange { change, warnings: more }) => {
                    warnings.extend(more);
                    Answer::Said(show::schema_change(&change))
                }
                Ok(Outcome::OwnRows { columns, page, .. }) => Answer::Rows(Rows {
                    names: columns.iter().map(|column| column.name.clone()).collect(),
                    pages: vec![show::decode(&columns, &page.rows, page.row_count)],
                }),
                Ok(Outcome::Rows(page)) => {
                    let columns = &statement.result_columns;
                    rows.names = columns.iter().map(|column| column.name.clone()).collect();
                    rows.pages.push(show::decode(columns, &page.rows, page.row_count));
                    options.paging_state = page.paging_state.map(|state| state.encode(statement.fingerprint));
                    if options.paging_state.is_some() && rows.pages.len() < PAGES_MAX {
                        continue;
                    }
                    Answer::Rows(rows)
                }
            };
            if warnings.is_empty() {
                return answer;
            }
            let warnings: Vec<String> = warnings.iter().map(|text| format!("warning: {text}")).collect();
            return Answer::Said(format!("{}\n{}", warnings.join("\n"), answer.long().trim_end()));
        }
    }

    fn once(
        &mut self,
        shard: &Rc<ShardContext>,
        statement: &Statement,
        values: &[Given],
        names: &[String],
        options: &RequestOptions,
        warnings: &mut Vec<String>,
    ) -> Result<Outcome, RequestError> {
        let work = async {
            let rewritten = Rewritten::default();
            let values: Vec<_> = values.iter().map(Given::value).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let values: BorrowedValues<'_> = bind(&statement.markers, &values, &names, &rewritten)?;
            client::execute(shard, statement, &values, options, warnings).await
        };
        self.tasks.block_on(&self.runtime, work)
    }
}

fn options(case: &mut TestCase) -> Result<RequestOptions, String> {
    let report = |error: datadriven::DataDrivenError| error.to_string();
    let level = |text: Option<String>| -> Result<Option<Consistency>, String> {
        text.map(|text| text.parse().map_err(|_| format!("no consistency level {text}"))).transpose()
    };
    let options = RequestOptions {
        consistency: level(case.try_take_arg("consistency").map_err(report)?)?.unwrap_or(Consistency::One),
        serial_consistency: level(case.try_take_arg("serial").map_err(report)?)?,
        page_rows: case.try_take_arg("page").map_err(report)?,
        paging_state: None,
        timestamp: case.try_take_arg("timestamp").map_err(report)?,
        now_seconds: case.try_take_arg("now").map_err(report)?,
        deadline: None,
        is_of_client: false,
    };
    case.expect_empty().map_err(report)?;
    Ok(options)
}

/// Statements end with `;` at the end of a line; a batch ends with `APPLY BATCH;`.
fn split(input: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for line in input.split_inclusive('\n') {
        end += line.len();
        let text = input[start..end].trim();
        let upper = text.to_uppercase();
        let is_ended = ["APPLY BATCH", "COMMIT TRANSACTION"].iter().any(|end| upper.contains(end));
        let is_open_batch = upper.starts_with("BEGIN") && !is_ended;
        if let Some(statement) = text.strip_suffix(';')
            && !is_open_batch
        {
            statements.push(statement);
            start = end;
        }
    }
    let rest = input[start..].trim();
    if !rest.is_empty() {
        statements.push(rest);
    }
    statements
}
