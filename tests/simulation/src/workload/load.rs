//! What every kind of load offers: clients, and the check of what was promised to them.

use std::rc::Rc;

use futures::future::LocalBoxFuture;

use crate::world::World;

/// One kind of load.
pub trait Workload {
    /// Runs before any fault.
    fn prepare(self: Rc<Self>, _world: Rc<World>) -> LocalBoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Runs one client, until the load is over.
    fn client(self: Rc<Self>, world: Rc<World>, number: usize) -> LocalBoxFuture<'static, ()>;

    /// Checks all guarantees after healing.
    fn check(self: Rc<Self>, world: Rc<World>) -> LocalBoxFuture<'static, ()>;
}
