//! Prints EXPLAIN.

use std::fmt::{self, Display, Formatter};

use super::write::If;
use crate::syntax::ast::Explain;

impl Display for Explain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { analyze, json, statement } = self;
        write!(f, "EXPLAIN {}{}{statement}", If(*analyze, "ANALYZE "), If(*json, "FORMAT JSON "))
    }
}
