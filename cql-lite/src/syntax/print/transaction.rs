//! `BEGIN TRANSACTION`

use std::fmt::{self, Display, Formatter};

use super::write::{If, List, write_separated};
use crate::syntax::ast::{
    NamedRow, ReferencePart, Returning, RowReference, Transaction, TransactionCondition,
};

impl Display for Transaction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("BEGIN TRANSACTION")?;
        if let Some(token) = &self.token {
            write!(f, " USING TOKEN {token}")?;
        }
        for NamedRow { name, select, .. } in &self.rows {
            write!(f, " LET {name} = ({select});")?;
        }
        match &self.returning {
            None => {}
            Some(Returning::Select { select, .. }) => write!(f, " {select};")?,
            Some(Returning::References(references)) => write!(f, " SELECT {};", List(references))?,
        }
        if !self.conditions.is_empty() {
            f.write_str(" IF ")?;
            write_separated(f, " AND ", &self.conditions, |f, condition| condition.fmt(f))?;
            f.write_str(" THEN")?;
        }
        for (modification, _) in &self.modifications {
            write!(f, " {modification};")?;
        }
        f.write_str(If(!self.conditions.is_empty(), " END IF").text())?;
        f.write_str(" COMMIT TRANSACTION")
    }
}

impl Display for TransactionCondition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::IsNull { reference, negated } => write!(f, "{reference} IS {}NULL", If(*negated, "NOT ")),
            Self::Compare { left, operator, right } => write!(f, "{left} {} {right}", operator.symbol()),
        }
    }
}

impl Display for RowReference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.row.fmt(f)?;
        if let Some(column) = &self.column {
            write!(f, ".{column}")?;
        }
        match &self.part {
            None => Ok(()),
            Some(ReferencePart::Element(key)) => write!(f, "[{key}]"),
            Some(ReferencePart::Field(field)) => write!(f, ".{field}"),
        }
    }
}

impl RowReference {
    /// Its name as a result column, without quotes.
    pub fn result_name(&self) -> String {
        let column = self.column.as_ref().map(|column| format!(".{}", column.as_str())).unwrap_or_default();
        let part = match &self.part {
            None => String::new(),
            Some(ReferencePart::Element(key)) => format!("[{key}]"),
            Some(ReferencePart::Field(field)) => format!(".{}", field.as_str()),
        };
        format!("{}{column}{part}", self.row.as_str())
    }
}
