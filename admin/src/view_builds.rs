//! Where a view is built: how that is shown.

use std::collections::BTreeMap;

use crate::tables::{columns, row};

/// The state of a member that has built its part.
const BUILT: &str = "SUCCESS";

/// The state of the view on each member, by its address.
pub(crate) type MemberStates = BTreeMap<String, String>;

pub(crate) fn is_built(members: &MemberStates) -> bool {
    members.values().all(|state| state == BUILT)
}

/// What nodetool says first.
pub(crate) fn heading(keyspace: &str, view: &str, members: &MemberStates) -> String {
    if is_built(members) {
        format!("{keyspace}.{view} has finished building\n")
    } else {
        format!("{keyspace}.{view} has not finished building; node status is below.\n\n")
    }
}

/// The members, with names of the columns.
pub(crate) fn rows(members: &MemberStates) -> Vec<Vec<String>> {
    let mut rows = vec![row(&["Host", "Info"])];
    rows.extend(members.iter().map(|(address, state)| row(&[address, state])));
    rows
}

/// The report for people.
pub(crate) fn text(keyspace: &str, view: &str, members: &MemberStates) -> String {
    let heading = heading(keyspace, view, members);
    if is_built(members) { heading } else { heading + &columns(&rows(members)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_shown_until_all_have_built_their_part() {
        let mut members: MemberStates = [("10.0.0.1", "SUCCESS"), ("10.0.0.2", "STARTED")]
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .into();
        let shown = text("ks", "v", &members);
        assert!(
            shown.starts_with("ks.v has not finished building; node status is below.\n\nHost"),
            "{shown}"
        );
        assert!(shown.contains("10.0.0.2  STARTED"), "{shown}");
        members.insert("10.0.0.2".to_owned(), BUILT.to_owned());
        assert_eq!(text("ks", "v", &members), "ks.v has finished building\n");
    }
}
