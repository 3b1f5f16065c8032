//! Clients: execute statements on a node, with a timeout, and report the outcome.

use std::time::Duration;

use cql_lite::frame::Consistency;
use helenus::testing::client::{self, StatementResponse};
use helenus_execution::coordinator::RequestOptions;
use helenus_execution::shard::status_table::ServingState;
use helenus_query::error::RequestError;
use tokio::sync::oneshot;

use crate::machine::Machine;

/// The superuser that all clients are.
pub const ROOT: &str = "root";
/// Timeout of a client; longer than any timeout of the server.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The reason why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AskError {
    /// The statement was refused before anything was done.
    #[error("refused: {0}")]
    Refused(String),
    /// The statement may have been executed, or may be executed later.
    #[error("unknown: {0}")]
    Unknown(String),
}

/// A statement with its values in its text.
#[derive(Debug, Clone)]
pub struct Question {
    pub text: String,
    pub consistency: Consistency,
    pub serial_consistency: Option<Consistency>,
    pub page_rows: Option<usize>,
    pub paging_state: Option<Vec<u8>>,
}

impl Question {
    pub fn new(text: impl Into<String>, consistency: Consistency) -> Self {
        Self { text: text.into(), consistency, serial_consistency: None, page_rows: None, paging_state: None }
    }
}

/// Executes a statement on a shard of a node.
pub async fn ask(machine: &Machine, shard: usize, question: Question) -> Result<StatementResponse, AskError> {
    let context = machine.context(shard).filter(|_| machine.is_serving());
    let Some(context) = context else { return Err(AskError::Refused("the node is down".to_owned())) };
    if context.node.status.state() > ServingState::Serving {
        return Err(AskError::Refused("the node accepts no clients".to_owned()));
    }
    let (sender, receiver) = oneshot::channel();
    let coordinating = context.replication().coordinating();
    // Where there are no roles, it is anonymous.
    let user = context.node.config.authenticator.requires_login().then_some(ROOT);
    machine.spawn(async move {
        let options = RequestOptions {
            serial_consistency: question.serial_consistency,
            page_rows: question.page_rows,
            paging_state: question.paging_state,
            ..client::options(question.consistency)
        };
        // The client may have timed out.
        let _ = sender.send(client::ask_as(&context, user, &question.text, &options).await);
        drop(coordinating);
    });
    match tokio::time::timeout(TIMEOUT, receiver).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(error))) => Err(classify(&error)),
        Ok(Err(_)) => Err(AskError::Unknown("connection lost".to_owned())),
        Err(_) => Err(AskError::Unknown("no answer".to_owned())),
    }
}

fn classify(error: &RequestError) -> AskError {
    match error {
        RequestError::Syntax(_)
        | RequestError::Invalid(_)
        | RequestError::Configuration(_)
        | RequestError::AlreadyExists { .. }
        | RequestError::Unavailable { .. } => AskError::Refused(error.to_string()),
        _ => AskError::Unknown(error.to_string()),
    }
}
