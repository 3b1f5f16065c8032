//! Ends the sessions of roles that are dropped. A role that is made under the name of a dropped one is another role, which they must not get.
//!
//! Invariant: a session is ended in the step in which its shard installs roles without its own, whether or not its client asks for
//! anything before there is another role of the name. Its next request is refused, and the connection ends; it gets no events.

use helenus_execution::shard::context::ShardContext;
use helenus_roles::{Roles, RolesStep};

use crate::session::connection;

/// Ends the sessions of a shard whose roles are not among the next ones, or may be others there.
pub fn end_sessions(context: &ShardContext, next: &Roles, step: RolesStep) {
    if context.roles_view().version() == next.version() {
        return;
    }
    let is_gone = |role: &str| step == RolesStep::Several || next.role(role).is_none();
    for connection in connection::connections(context) {
        let has_ended = connection.user.borrow().as_deref().is_some_and(is_gone);
        if has_ended {
            connection.end_session();
        }
    }
}
