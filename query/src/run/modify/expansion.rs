//! The INSERT of constants that an INSERT JSON stands for once its document is known.

use std::collections::BTreeMap;

use cql_lite::types::json;

use crate::error::{RequestError, Result};
use crate::plan::modify::{JsonInsert, ModifyPlan, fill_insert};
use crate::plan::term::{Bindings, Bound, Term};

/// The plan that an INSERT JSON stands for. `None`: the plan is no INSERT JSON and stands for itself.
#[inline]
pub fn expand(plan: &ModifyPlan, bindings: &Bindings<'_>) -> Result<Option<ModifyPlan>> {
    plan.json.as_ref().map(|insert| insert_of_constants(plan, insert, bindings)).transpose()
}

fn insert_of_constants(
    plan: &ModifyPlan,
    insert: &JsonInsert,
    bindings: &Bindings<'_>,
) -> Result<ModifyPlan> {
    let document = match insert.document.evaluate(bindings)? {
        Bound::Bytes(bytes) => bytes,
        Bound::Null | Bound::Unset => {
            return Err(RequestError::invalid("Got null for INSERT JSON values"));
        }
    };
    let text = std::str::from_utf8(&document)
        .map_err(|_| RequestError::invalid("Could not decode JSON string as a map: it is not UTF-8"))?;
    let table = &plan.table;
    let invalid = |error: json::JsonError| RequestError::invalid(error.to_string());
    let mut document = match json::parse(text).map_err(invalid)? {
        serde_json::Value::Object(document) => document,
        serde_json::Value::Null => return Err(RequestError::invalid("Got null for INSERT JSON values")),
        _ => return Err(RequestError::invalid(format!("Could not decode JSON string as a map: {text}"))),
    };
    let mut terms: Vec<Option<Term>> = Vec::with_capacity(table.columns.len());
    let mut given: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    for (key, value) in std::mem::take(&mut document) {
        given.insert(json::name_of_json_key(&key), value);
    }
    for column in &table.columns {
        terms.push(match given.remove(&column.name) {
            None if insert.default_unset && !column.is_primary_key() => None,
            None => Some(Term::Constant(None)),
            Some(value) => {
                Some(Term::Constant(json::from_parsed(&column.column_type, &value).map_err(|error| {
                    RequestError::invalid(format!("Error decoding JSON value for {}: {error}", column.name))
                })?))
            }
        });
    }
    if let Some((unknown, _)) = given.into_iter().next() {
        return Err(RequestError::invalid(format!(
            "JSON values map contains unrecognized column: {unknown}"
        )));
    }
    let mut expanded = ModifyPlan {
        json: None,
        partition: Vec::new(),
        clustering: Vec::new(),
        operations: Vec::new(),
        ..plan.clone()
    };
    // A document with static columns only needs no clustering key: Cassandra refuses it.
    let is_given = |index: usize| terms[index].as_ref().is_some_and(|term| !term.is_null());
    let (statics, others) = (0..table.columns.len())
        .skip(table.partition_key_count)
        .filter(|&index| is_given(index))
        .partition::<Vec<usize>, _>(|&index| table.columns[index].is_static());
    if !statics.is_empty() && others.is_empty() && table.clustering_key_count > 0 {
        for (index, term) in terms.iter_mut().enumerate().skip(table.partition_key_count) {
            if !table.columns[index].is_static() || term.as_ref().is_some_and(Term::is_null) {
                *term = None;
            }
        }
    }
    fill_insert(&mut expanded, terms)?;
    Ok(expanded)
}
