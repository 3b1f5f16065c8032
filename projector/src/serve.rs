//! Answers the requests of other nodes, and of other shards of this one.

use std::rc::Rc;

use futures::future::LocalBoxFuture;
use helenus_execution::coordinator::views::slice::Slice;
use helenus_execution::coordinator::views::wakes::Wakes;
use helenus_execution::shard::call::Serve;
use helenus_execution::shard::context::ShardContext;
use helenus_internode::service::Failure;
use helenus_ring::HostId;

use crate::fresh;
use crate::message::{ViewsRequest, ViewsResponse};

impl Serve for ViewsRequest {
    fn serve(
        self,
        context: Rc<ShardContext>,
        _from: HostId,
    ) -> LocalBoxFuture<'static, Result<ViewsResponse, Failure>> {
        Box::pin(async move {
            match self {
                Self::Written { slices } => {
                    for slice in Slice::all().filter(|slice| slices & (1 << slice.0) != 0) {
                        Wakes::of(&context).wake_slice(slice);
                    }
                    Ok(ViewsResponse::Noted)
                }
                Self::Freshen(freshen) => Ok(fresh::serve(&context, freshen).await),
            }
        })
    }

    fn name(&self) -> &'static str {
        "VIEWS"
    }
}
