//! What a connection may do, as far as it was decided.

use std::cell::{Cell, RefCell};

use hashbrown::HashSet;
use helenus_query::statement::{Statement, StatementId};
use helenus_roles::Roles;

/// Most decisions that a connection remembers.
const DECISIONS_MAX: usize = 4_096;

/// The decisions for the role of a connection. A connection logs in once.
#[derive(Debug, Default)]
pub struct Decisions {
    /// The roles on which the decisions were made.
    version: Cell<Option<u64>>,
    is_superuser: Cell<bool>,
    /// The statements that it may execute, with the generations of their catalogs.
    allowed: RefCell<HashSet<(StatementId, u64)>>,
}

impl Decisions {
    /// Forgets what was decided on other roles.
    pub fn renew(&self, roles: &Roles, user: Option<&str>) {
        if self.version.get() == Some(roles.version()) {
            return;
        }
        self.version.set(Some(roles.version()));
        self.is_superuser.set(user.is_some_and(|user| roles.is_superuser(user)));
        self.allowed.borrow_mut().clear();
    }

    pub fn is_superuser(&self) -> bool {
        self.is_superuser.get()
    }

    /// Whether it was decided that the statement may be executed.
    pub fn allow(&self, statement: &Statement) -> bool {
        self.allowed.borrow().contains(&(statement.id, statement.generation))
    }

    /// Remembers that the statement may be executed, as long as roles and catalog are the same.
    pub fn remember(&self, statement: &Statement) {
        let mut allowed = self.allowed.borrow_mut();
        if allowed.len() >= DECISIONS_MAX {
            allowed.clear();
        }
        allowed.insert((statement.id, statement.generation));
    }
}
