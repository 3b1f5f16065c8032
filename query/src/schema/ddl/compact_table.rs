//! CREATE TABLE … WITH COMPACT STORAGE: the rules for the columns, and the columns that clients do not see.

use cql_lite::types::CqlType;

use super::invalid;
use crate::error::Result;
use crate::schema::catalog::{Column, ColumnKind, CompactStorage, Table};

/// Refuses columns that a table WITH COMPACT STORAGE cannot have.
pub(super) fn check_compact_columns(columns: &[Column]) -> Result<()> {
    let values = || columns.iter().filter(|column| !column.is_primary_key());
    if values().any(|column| column.column_type.is_multi_cell()) {
        return invalid("Non-frozen collections and UDTs are not supported with COMPACT STORAGE");
    }
    if values().any(Column::is_static) {
        return invalid("Static columns are not supported in COMPACT STORAGE tables");
    }
    if !columns.iter().any(Column::is_clustering) {
        return match values().next() {
            Some(_) => Ok(()),
            None => invalid("No definition found that is not part of the PRIMARY KEY"),
        };
    }
    let mut names: Vec<&str> = values().map(|column| column.name.as_str()).collect();
    if names.len() > 1 {
        names.sort_unstable();
        return invalid(format!(
            "COMPACT STORAGE with composite PRIMARY KEY allows no more than one column not part of the PRIMARY KEY (got: {})",
            names.join(", ")
        ));
    }
    Ok(())
}

/// Makes a table of checked columns one WITH COMPACT STORAGE.
pub(super) fn make_compact(table: &mut Table) {
    let mut hidden_columns = Vec::new();
    let mut hide = |name: String, column_type: CqlType, kind: ColumnKind| {
        hidden_columns.push(Column { id: table.next_column_id, name, column_type, kind });
        table.next_column_id += 1;
    };
    let value_name = free_name(&table.columns, "value", 0);
    if table.clustering_key_count == 0 {
        let clustering = ColumnKind::Clustering { position: 0, descending: false };
        hide(free_name(&table.columns, "column", 1), CqlType::Text, clustering);
        let value_type = if table.is_counter { CqlType::Counter } else { CqlType::Blob };
        hide(value_name, value_type, ColumnKind::Regular);
        let values = table.columns.iter_mut().filter(|column| column.kind == ColumnKind::Regular);
        values.for_each(|column| column.kind = ColumnKind::Static);
    } else if table.columns.len() == table.partition_key_count + table.clustering_key_count {
        hide(value_name, CqlType::Empty, ColumnKind::Regular);
    }
    table.compact = Some(CompactStorage { hidden_columns });
}

/// The first name that no column has: the base with a number behind it, from `first` on. There is no number 0.
fn free_name(columns: &[Column], base: &str, first: usize) -> String {
    let names = (first..).map(|number| if number == 0 { base.to_owned() } else { format!("{base}{number}") });
    let mut free = names.filter(|name| columns.iter().all(|column| column.name != *name));
    free.next().unwrap_or_else(|| unreachable!("a table has fewer columns than there are numbers"))
}
