//! Changes of what every member must obey at once (roles, the partition denylist): put into the metadata log, and acknowledged when every live
//! member has applied them, or has had ten seconds to. So what is refused is refused on all of them, but for those that are cut off.

use std::rc::Rc;
use std::time::Duration;

use helenus_query::error::{RequestError, Result};
use helenus_ring::metadata::{Command, CommandOutcome, Refusal};

use super::propose::{propose, wait_applied_everywhere};
use helenus_execution::shard::context::ShardContext;

/// Time limit for a change to get into the metadata log: less than the ten seconds that drivers wait for an answer.
const PROPOSE_DEADLINE: Duration = Duration::from_secs(8);
/// Time to wait for live members that have not applied a change.
pub const AGREEMENT_PATIENCE: Duration = Duration::from_secs(10);
/// Attempts to get a change into the log beside those of other members.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(50);

/// Puts a change into the metadata log and waits until the live members have applied it. The command has an id, so that it may enter the log
/// more than once.
pub async fn carry_out(context: &Rc<ShardContext>, command: Command) -> Result<()> {
    for _ in 0..ATTEMPTS {
        match propose(context, command.clone(), PROPOSE_DEADLINE).await? {
            CommandOutcome::Applied { version } => {
                wait_applied_everywhere(context, version, AGREEMENT_PATIENCE).await;
                return Ok(());
            }
            CommandOutcome::Conflict { .. } | CommandOutcome::Busy { .. } => context.clock.sleep(PAUSE).await,
            CommandOutcome::Refused(
                refusal @ (Refusal::Roles(_)
                | Refusal::RolesTooEarly { .. }
                | Refusal::Denylist(_)
                | Refusal::DenylistTooEarly { .. }),
            ) => return Err(RequestError::invalid(refusal.to_string())),
            CommandOutcome::Refused(refusal) => return Err(RequestError::Server(refusal.to_string())),
        }
    }
    Err(RequestError::Server(format!("could not {command} beside changes of other members")))
}
