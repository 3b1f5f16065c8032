//! What writes have to do with views: who keeps them learns that something was written. The rest is in the crate `helenus-projector`.
//!
//! | module | concept |
//! |---|---|
//! | [`mod@slice`] | the ring is cut into slices |
//! | [`wakes`] | who keeps a slice learns that something was written |

pub mod slice;
pub mod wakes;
