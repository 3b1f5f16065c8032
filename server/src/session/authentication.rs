//! Authentication of the clients of sessions: who a client is, and whether it may send requests.

pub(crate) mod admission;
pub(crate) mod dropped_roles;
pub(crate) mod login;
pub(crate) mod logins;
pub(crate) mod stage;
mod throttle;
mod verified;
