//! How far a connection is, and what it may send then.
//!
//! Invariant: before [`Stage::Ready`] no message has an effect on anything but its own connection.

use cql_lite::frame::Opcode;

/// The stages of a connection, in their order. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The client has not sent STARTUP.
    Established,
    /// The client was asked to log in.
    Authenticating,
    /// The client is in: it logged in, or need not.
    Ready,
}

impl Stage {
    /// Why a message is refused; `None`: it is not. The texts are Cassandra's.
    #[inline]
    pub fn refusal(self, opcode: Opcode) -> Option<String> {
        let is_admitted = match self {
            Self::Established => matches!(opcode, Opcode::Startup | Opcode::Options),
            // OPTIONS is a sign of life for some drivers, which send it in any state.
            Self::Authenticating => matches!(opcode, Opcode::AuthResponse | Opcode::Options),
            Self::Ready => !matches!(opcode, Opcode::Startup | Opcode::AuthResponse) && !is_response(opcode),
        };
        (!is_admitted).then(|| self.refusal_text(opcode))
    }

    #[cold]
    fn refusal_text(self, opcode: Opcode) -> String {
        let name = opcode.name();
        if is_response(opcode) {
            let number = opcode as u8;
            return format!(
                "Wrong protocol direction (expected RESPONSE, got REQUEST) for opcode {number} ({name})"
            );
        }
        match self {
            Self::Established => format!("Unexpected message {name}, expecting STARTUP or OPTIONS"),
            Self::Authenticating => format!("Unexpected message {name}, expecting SASL_RESPONSE"),
            Self::Ready => format!("Unexpected message {name}, the connection is already initialized"),
        }
    }
}

/// Whether only servers send it.
fn is_response(opcode: Opcode) -> bool {
    match opcode {
        Opcode::Error
        | Opcode::Ready
        | Opcode::Authenticate
        | Opcode::Supported
        | Opcode::Result
        | Opcode::Event
        | Opcode::AuthChallenge
        | Opcode::AuthSuccess => true,
        Opcode::Startup
        | Opcode::Options
        | Opcode::Query
        | Opcode::Prepare
        | Opcode::Execute
        | Opcode::Register
        | Opcode::Batch
        | Opcode::AuthResponse => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every opcode that there is.
    const OPCODES: [Opcode; 16] = [
        Opcode::Error,
        Opcode::Startup,
        Opcode::Ready,
        Opcode::Authenticate,
        Opcode::Options,
        Opcode::Supported,
        Opcode::Query,
        Opcode::Result,
        Opcode::Prepare,
        Opcode::Execute,
        Opcode::Register,
        Opcode::Event,
        Opcode::Batch,
        Opcode::AuthChallenge,
        Opcode::AuthResponse,
        Opcode::AuthSuccess,
    ];

    #[test]
    fn before_a_login_nothing_is_taken_but_what_leads_to_it() {
        let taken = |stage: Stage| {
            OPCODES.into_iter().filter(|opcode| stage.refusal(*opcode).is_none()).collect::<Vec<_>>()
        };
        assert_eq!(taken(Stage::Established), [Opcode::Startup, Opcode::Options]);
        assert_eq!(taken(Stage::Authenticating), [Opcode::Options, Opcode::AuthResponse]);
        let requests = [
            Opcode::Options,
            Opcode::Query,
            Opcode::Prepare,
            Opcode::Execute,
            Opcode::Register,
            Opcode::Batch,
        ];
        assert_eq!(taken(Stage::Ready), requests);
    }

    #[test]
    fn refusals_have_cassandras_texts() {
        for (stage, opcode, text) in [
            (Stage::Established, Opcode::Query, "Unexpected message QUERY, expecting STARTUP or OPTIONS"),
            (
                Stage::Established,
                Opcode::AuthResponse,
                "Unexpected message AUTH_RESPONSE, expecting STARTUP or OPTIONS",
            ),
            (Stage::Authenticating, Opcode::Query, "Unexpected message QUERY, expecting SASL_RESPONSE"),
            (Stage::Authenticating, Opcode::Startup, "Unexpected message STARTUP, expecting SASL_RESPONSE"),
            (
                Stage::Ready,
                Opcode::Startup,
                "Unexpected message STARTUP, the connection is already initialized",
            ),
            (
                Stage::Authenticating,
                Opcode::Result,
                "Wrong protocol direction (expected RESPONSE, got REQUEST) for opcode 8 (RESULT)",
            ),
        ] {
            assert_eq!(stage.refusal(opcode).as_deref(), Some(text));
        }
    }
}
