//! `UPDATE system_schema.tables SET extensions = …`: the table that it names, and its new extensions.

use std::collections::BTreeMap;

use cql_lite::types::{CqlType, codec};
use helenus_engine::key::REGULAR_TAG;

use super::keys::{partition_keys, positions};
use crate::error::{RequestError, Result};
use crate::plan::modify::{ModifyPlan, Operation};
use crate::plan::term::{Bindings, Bound};
use crate::stored_key::decode_clustering;

/// The new extensions of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableExtensions {
    pub keyspace: String,
    pub table: String,
    /// Opaque bytes by name.
    pub extensions: BTreeMap<String, Vec<u8>>,
}

/// The change of a plan that [sets extensions](ModifyPlan::sets_table_extensions).
pub fn table_extensions(plan: &ModifyPlan, bindings: &Bindings<'_>) -> Result<TableExtensions> {
    let malformed = || RequestError::invalid("The extensions of one table can be set, and nothing else");
    let keys = partition_keys(&plan.partition, &plan.table, bindings)?;
    let positions = positions(&plan.clustering, &plan.table, bindings)?;
    let ([key], [position], [operation]) = (&keys[..], &positions[..], &plan.operations[..]) else {
        return Err(malformed());
    };
    let Some((&REGULAR_TAG, mut rest)) = position.split_first() else { return Err(malformed()) };
    let mut table = Vec::new();
    decode_clustering(&CqlType::Text, &mut rest, false, &mut table)?;
    let Operation::Set(value) = &operation.operation else { return Err(malformed()) };
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| RequestError::invalid("String didn't validate."))
    };
    let mut extensions = BTreeMap::new();
    match value.evaluate(bindings)? {
        Bound::Unset => return Err(malformed()),
        Bound::Null => {}
        Bound::Bytes(bytes) => {
            let invalid = |error: codec::CodecError| RequestError::invalid(error.to_string());
            for entry in codec::entries(&bytes).map_err(invalid)? {
                let (name, value) = entry.map_err(invalid)?;
                extensions.insert(text(name)?, value.to_vec());
            }
        }
    }
    Ok(TableExtensions { keyspace: text(&key.bytes)?, table: text(&table)?, extensions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::CallContext;
    use crate::plan::term::BindValue;
    use crate::schema::test_catalog::{CREATE_KEYSPACE, catalog_of};
    use crate::statement::Statement;

    fn extensions(text: &str, values: &[BindValue<'_>]) -> Result<TableExtensions> {
        let catalog = catalog_of(&[CREATE_KEYSPACE]);
        let Statement::Modify(update) = Statement::new(text, None, &catalog)? else { panic!("{text}") };
        let call = CallContext::at(0);
        assert!(update.plan.sets_table_extensions());
        table_extensions(&update.plan, &Bindings { values, call: &call })
    }

    fn expected(extensions: &[(&str, &[u8])]) -> TableExtensions {
        let extensions =
            extensions.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        TableExtensions { keyspace: "ks".to_owned(), table: "t".to_owned(), extensions }
    }

    #[test]
    fn an_update_names_a_table_and_its_extensions() {
        let given = extensions(
            "UPDATE system_schema.tables SET extensions = {'a': 0x0102, 'b': 0x} WHERE keyspace_name = 'ks' AND table_name = 't'",
            &[],
        );
        assert_eq!(given.unwrap(), expected(&[("a", &[1, 2]), ("b", &[])]));
        let map = codec::encode_entries([(&b"a"[..], &b"x"[..])].into_iter());
        let values = [BindValue::Bytes(&map), BindValue::Bytes(b"ks"), BindValue::Bytes(b"t")];
        let bound =
            "UPDATE system_schema.tables SET extensions = ? WHERE keyspace_name = ? AND table_name = ?";
        assert_eq!(extensions(bound, &values).unwrap(), expected(&[("a", b"x")]));
        let values = [BindValue::Null, BindValue::Bytes(b"ks"), BindValue::Bytes(b"t")];
        assert_eq!(extensions(bound, &values).unwrap(), expected(&[]));
    }

    #[test]
    fn other_changes_of_schema_tables_are_refused() {
        let catalog = catalog_of(&[CREATE_KEYSPACE]);
        let of_table = "WHERE keyspace_name = 'ks' AND table_name = 't'";
        for text in [
            format!("UPDATE system_schema.tables SET comment = 'x' {of_table}"),
            format!("UPDATE system_schema.tables SET extensions = {{}}, comment = 'x' {of_table}"),
            format!("UPDATE system_schema.tables USING TTL 10 SET extensions = {{}} {of_table}"),
            format!("UPDATE system_schema.tables SET extensions = {{}} {of_table} IF EXISTS"),
            format!("DELETE extensions FROM system_schema.tables {of_table}"),
            "INSERT INTO system_schema.tables (keyspace_name, table_name, extensions) VALUES ('ks', 't', {})"
                .to_owned(),
            format!("BEGIN BATCH UPDATE system_schema.tables SET extensions = {{}} {of_table}; APPLY BATCH"),
            "TRUNCATE system_schema.tables".to_owned(),
        ] {
            let refusal = Statement::new(&text, None, &catalog).unwrap_err();
            assert!(matches!(refusal, RequestError::Unauthorized(_)), "{text}: {refusal}");
        }
    }
}
