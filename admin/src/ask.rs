//! Asks a node to carry out a command.

use std::time::Duration;

use serde_json::Value;

use crate::command::AdminCommand;
use crate::http::{self, Call, CallError};
use crate::login::Login;
use crate::password::Password;
use crate::place::Place;
use crate::request::Absence;

/// Who carries out commands.
pub(crate) trait Ask {
    /// The answer to a command, when it is there.
    fn ask(&self, command: &AdminCommand) -> Result<Value, AskError>;
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error(transparent)]
    Absent(#[from] Absence),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("cannot begin: {0}")]
    Runtime(#[source] std::io::Error),
}

/// A running node.
pub(crate) struct Node {
    pub place: Place,
    pub login: Login,
    /// For the command that needs one.
    pub password: Option<Password>,
    /// `None`: as long as the command may take.
    pub timeout: Option<Duration>,
}

impl Ask for Node {
    fn ask(&self, command: &AdminCommand) -> Result<Value, AskError> {
        let call = Call { password: self.password.clone(), ..command.call()? };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AskError::Runtime)?;
        let answer = runtime.block_on(http::call(&self.place, &self.login, &call, self.timeout));
        // A look-up of a name that is still in progress is not waited for.
        runtime.shutdown_background();
        Ok(answer?)
    }
}
