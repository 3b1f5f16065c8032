//! Why a verb failed, and the exit status, which is nodetool's: 1 for words that cannot be obeyed and for a node that cannot be
//! reached, 2 for what fails afterwards.

use crate::ask::AskError;
use crate::http::CallError;

/// The reason why a verb failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodetoolError {
    /// The words ask for what there is not.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the node's answer cannot be read: {0}")]
    Answer(#[from] serde_json::Error),
    /// The verb was carried out, and this is wrong.
    #[error("{0}")]
    Failed(String),
    /// The result, which shows that something has not ended.
    #[error("{0}")]
    Unfinished(String),
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

impl NodetoolError {
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }

    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Unfinished(_) | Self::Ask(AskError::Absent(_)) => 1,
            Self::Ask(AskError::Call(call)) => match call {
                CallError::Url(_)
                | CallError::Tls(_)
                | CallError::Login(_)
                | CallError::Unreachable { .. }
                | CallError::NoConnection { .. }
                | CallError::Nonsense { .. }
                | CallError::Refused { is_invalid: true, .. } => 1,
                CallError::NoAnswer { .. }
                | CallError::Refused { is_invalid: false, .. }
                | CallError::NotServing { .. } => 2,
            },
            Self::Ask(AskError::Runtime(_)) | Self::Answer(_) | Self::Failed(_) | Self::Output(_) => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Absence;

    #[test]
    fn the_exit_status_is_nodetools() {
        let refused = |is_invalid| CallError::Refused { reason: "x".to_owned(), is_invalid };
        let unreachable = CallError::Unreachable {
            authority: "a:1".to_owned(),
            source: std::io::ErrorKind::ConnectionRefused.into(),
        };
        for (error, status) in [
            (NodetoolError::usage("x"), 1),
            (AskError::from(Absence::Refresh).into(), 1),
            (NodetoolError::Unfinished("x".to_owned()), 1),
            (AskError::from(unreachable).into(), 1),
            (AskError::from(refused(true)).into(), 1),
            (AskError::from(refused(false)).into(), 2),
            (NodetoolError::Failed("x".to_owned()), 2),
        ] {
            assert_eq!(error.status(), status, "{error}");
        }
    }
}
