//! Requests to the holder of a slice. Used from the feature level of views on.

use helenus_internode::service::{ServiceRequest, TrafficClass};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ViewsRequest {
    /// Something was written to a followed table: in the slices whose bits are set.
    Written { slices: u16 },
    /// Answer when all that was acknowledged before a time is in a view, as far as it comes from a table's rows in one slice.
    Freshen(Freshen),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshen {
    pub slice: u8,
    /// The id of the view's build.
    pub build: u128,
    /// The base table, or the joined table.
    pub table: u128,
    /// Microseconds since the epoch.
    pub until_micros: i64,
    /// The holder gives up after this.
    pub patience_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ViewsResponse {
    Noted,
    Fresh,
    /// Another node has the slice, or the build is not one that the node knows.
    NotHeld,
    /// It did not become so in time, or the view is not built yet.
    NotYet,
}

impl ServiceRequest for ViewsRequest {
    const ID: u32 = 7;
    const TRAFFIC_CLASS: TrafficClass = TrafficClass::Control;
    type Response = ViewsResponse;
}
