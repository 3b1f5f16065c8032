//! Whether a node without data, whose first seed is itself, founds a cluster.
//!
//! Its disk may have been lost: then there is a cluster, and a second one of the same name would take writes that nobody finds again. So it asks
//! its other seeds until it knows.
//!
//! * One is in a cluster: the node joins that one.
//! * A majority of them answers, and none is in a cluster: they wait for this node, and it founds one. So nodes that are started together for the
//!   first time come up by themselves.
//! * Too few answer: it waits for them, and is refused after a minute. Whoever knows that there is no cluster names this node as its only seed.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use futures::future::join_all;
use helenus_execution::shard::context::ShardContext;
use helenus_internode::endpoint::Endpoint;
use helenus_query::error::{RequestError, Result};
use helenus_ring::member::MemberState;

use super::log_throttle::LogThrottle;
use super::own_member::{is_own_address, own_member};
use super::seeds::{RESOLVING_PAUSE, resolve, version_at};

/// Time for which the other seeds are waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a node lets other seeds found the cluster that wait as it does.
const OTHERS_FIRST: Duration = Duration::from_secs(5);

/// What a seed says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It is this node.
    Own,
    InCluster,
    /// It has no data, and waits for a cluster.
    Waiting,
    Nothing,
}

/// A founding that waits for other seeds.
#[derive(Debug, thiserror::Error)]
#[error(
    "this node has no data, and names itself as its first seed. It founds a cluster only when {required} of its {others} other seeds answer that \
     they are in none: otherwise its disk may have been lost, and there would be two clusters of one name. No answer from {silent}. Start them. To \
     found a cluster without them, start this node with no other seed than itself"
)]
struct TooFewAnswer {
    required: usize,
    others: usize,
    silent: String,
}

/// Whether a cluster is to be founded. Otherwise this node joins the cluster of its seeds.
pub(super) async fn is_wanted(context: &Rc<ShardContext>, seeds: &[Endpoint]) -> Result<bool> {
    let end = context.clock.monotonic() + PATIENCE;
    let (mut notices, mut has_looked_again) = (LogThrottle::default(), false);
    loop {
        let asked = join_all(seeds.iter().map(|seed| ask(context, seed))).await;
        let asked: Vec<(Answer, Vec<SocketAddr>)> = asked.into_iter().collect::<Result<_>>()?;
        let answers: Vec<(&Endpoint, Answer)> =
            seeds.iter().zip(&asked).map(|(seed, (answer, _))| (seed, *answer)).collect();
        if let Some((seed, _)) = answers.iter().find(|(_, answer)| *answer == Answer::InCluster) {
            tracing::warn!(
                %seed,
                "this node has no data, and its seed is in a cluster: it joins that one instead of founding another"
            );
            return Ok(false);
        }
        let now = context.clock.monotonic();
        let Some(missing) = missing(&answers) else {
            // Another seed may name itself first too, and see this one wait. All but one look again after a while.
            let own = own_member(context, MemberState::Normal).internode_address;
            let is_first = asked.iter().flat_map(|(_, waiting)| waiting).all(|other| own < *other);
            if has_looked_again || is_first {
                return Ok(true);
            }
            has_looked_again = true;
            context.clock.sleep(OTHERS_FIRST).await;
            continue;
        };
        if now >= end {
            return Err(RequestError::Server(missing.to_string()));
        }
        if notices.is_due(&"founding", &missing, now) {
            tracing::warn!(%missing, "other seeds are waited for");
        }
        context.clock.sleep(RESOLVING_PAUSE).await;
    }
}

/// Whose answers are missing, if a majority of the others has not answered.
fn missing(answers: &[(&Endpoint, Answer)]) -> Option<TooFewAnswer> {
    let others: Vec<_> = answers.iter().filter(|(_, answer)| *answer != Answer::Own).collect();
    let silent: Vec<String> = others
        .iter()
        .filter(|(_, answer)| *answer == Answer::Nothing)
        .map(|(seed, _)| seed.to_string())
        .collect();
    let required = if others.is_empty() { 0 } else { others.len() / 2 + 1 };
    let has_enough = others.len() - silent.len() >= required;
    (!has_enough).then(|| TooFewAnswer { required, others: others.len(), silent: silent.join(", ") })
}

/// Asks a seed at its present addresses. Returns those that wait for a cluster, too.
async fn ask(context: &Rc<ShardContext>, seed: &Endpoint) -> Result<(Answer, Vec<SocketAddr>)> {
    let addresses = match resolve(context, seed).await {
        Ok(addresses) => addresses,
        Err(error) => {
            tracing::debug!(%error, "no address of a seed");
            return Ok((Answer::Nothing, Vec::new()));
        }
    };
    // A name may stand for several nodes.
    let others: Vec<SocketAddr> =
        addresses.iter().copied().filter(|address| !is_own_address(context, *address)).collect();
    if others.is_empty() {
        return Ok((Answer::Own, Vec::new()));
    }
    let asked = others.iter().map(|address| version_at(context, None, *address));
    let mut waiting = Vec::new();
    for (address, answer) in others.iter().zip(join_all(asked).await) {
        match answer? {
            Ok(Some(0)) => waiting.push(*address),
            Ok(Some(_)) => return Ok((Answer::InCluster, Vec::new())),
            Ok(None) | Err(_) => {}
        }
    }
    Ok((if waiting.is_empty() { Answer::Nothing } else { Answer::Waiting }, waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_enough(answers: &[Answer]) -> bool {
        let seed = Endpoint::from(std::net::SocketAddr::from(([10, 0, 0, 1], 7000)));
        missing(&answers.iter().map(|answer| (&seed, *answer)).collect::<Vec<_>>()).is_none()
    }

    #[test]
    fn a_majority_of_the_other_seeds_must_answer() {
        use Answer::{Nothing, Own, Waiting};
        assert!(is_enough(&[Own]));
        assert!(is_enough(&[Own, Waiting]) && !is_enough(&[Own, Nothing]));
        assert!(is_enough(&[Own, Waiting, Waiting]) && !is_enough(&[Own, Waiting, Nothing]));
        assert!(
            is_enough(&[Own, Waiting, Waiting, Nothing]) && !is_enough(&[Own, Waiting, Nothing, Nothing])
        );
        // Named twice.
        assert!(is_enough(&[Own, Own]));
    }
}
