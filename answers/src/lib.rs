//! What a request came to, as an answer of the native protocol: outcomes as envelopes, errors as those of the protocol.
//!
//! * [`errors`]: the only place that maps errors of the server to codes of the protocol.
//! * [`respond`]: outcomes and errors as response envelopes.

pub mod errors;
pub mod respond;
