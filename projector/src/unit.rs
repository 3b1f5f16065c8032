//! Units of views as values of statements, and as they are stored.

use helenus_engine::key::REGULAR_TAG;
use helenus_query::error::{RequestError, Result};
use helenus_query::run::keys;
use helenus_query::schema::catalog::Table;
use helenus_query::stored_key::{PartitionKey, composite_key, key_components};
use helenus_views::computation::Values;

/// The columns of a partition key.
pub fn components(key: &PartitionKey, count: usize) -> Result<Values> {
    Ok(key_components(&key.bytes, count)?.into_iter().map(|range| Some(key.bytes[range].to_vec())).collect())
}

/// A unit as an entry of the log names it: the stored partition key, and the position of its clustering columns. A row of a view is named
/// by its key in the same way.
pub fn stored_unit(base: &Table, unit: &Values) -> Result<(PartitionKey, Vec<u8>)> {
    let (partition_key, clustering) = unit.split_at(base.partition_key_count);
    let null = || RequestError::Server("a unit of a view has a part of its key that is null".to_owned());
    let bytes = partition_key.iter().map(|value| value.as_deref().ok_or_else(null));
    let bytes = match bytes.collect::<Result<Vec<&[u8]>>>()?.as_slice() {
        [only] => only.to_vec(),
        several => composite_key(several)?,
    };
    let mut position = vec![REGULAR_TAG];
    for (column, value) in base.clustering_key().iter().zip(clustering) {
        keys::encode(column, value.as_deref().ok_or_else(null)?, &mut position)?;
    }
    Ok((PartitionKey::of(base.partitioner(), bytes), position))
}
