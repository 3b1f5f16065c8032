//! How nodes talk: requests with a deadline from a shard of one node to a shard of another.
//!
//! [`transport::Transport`] carries bytes and is handed in (TCP in a real node, a simulated network in tests);
//! [`message`] says what they mean; [`dispatch`] has them carried out.

pub mod dispatch;
pub mod message;
pub mod transport;
