//! Views: what changes in the tables that they are computed of.

pub mod changes;
pub mod slice;
pub mod wakes;
