//! What the text suites run on.

mod long;
mod node;
mod show;
mod suite;
mod values;

pub use suite::Suite;
