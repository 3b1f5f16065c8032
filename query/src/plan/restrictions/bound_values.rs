//! The values of restrictions for a request: what their terms evaluate to.

use std::borrow::Cow;

use cql_lite::types::{CqlType, codec};

use super::{Filter, FilterSubject, TupleTerm, Values, null_value, unset_value};
use crate::error::{RequestError, Result};
use crate::plan::like_pattern::LikePattern;
use crate::plan::term::{Bindings, Bound, Term};
use crate::schema::catalog::{Column, Table};

impl Filter {
    /// The value of a term of the filter, which must not be null or unset.
    pub fn value<'a>(&self, term: &'a Term, table: &Table, bindings: &Bindings<'a>) -> Result<Cow<'a, [u8]>> {
        let column = &table.columns[self.subject.columns()[0]];
        let name = &column.name;
        let part = if matches!(self.subject, FilterSubject::Element { .. }) { "map value" } else { "value" };
        match term.evaluate(bindings)? {
            Bound::Bytes(bytes) => Ok(bytes),
            Bound::Null if column.column_type == CqlType::Counter => {
                Err(RequestError::invalid("Invalid null value for counter increment/decrement"))
            }
            Bound::Null => Err(RequestError::invalid(format!("Unsupported null {part} for column {name}"))),
            Bound::Unset => Err(RequestError::invalid(format!("Unsupported unset {part} for column {name}"))),
        }
    }

    /// The key of the element of a map that the filter is about, if it is about one.
    pub fn element_key<'a>(
        &'a self,
        table: &Table,
        bindings: &Bindings<'a>,
    ) -> Result<Option<Cow<'a, [u8]>>> {
        let FilterSubject::Element { column, key } = &self.subject else { return Ok(None) };
        let refuse = |what: &str| {
            let name = &table.columns[*column].name;
            Err(RequestError::invalid(format!("Unsupported {what} map key for column {name}")))
        };
        match key.evaluate(bindings)? {
            Bound::Bytes(bytes) => Ok(Some(bytes)),
            Bound::Null => refuse("null"),
            Bound::Unset => refuse("unset"),
        }
    }

    /// The pattern of LIKE. `finds_parts`: an index of the column is for the parts of texts.
    pub fn like_pattern<'a>(
        &self,
        pattern: &'a Term,
        finds_parts: bool,
        table: &Table,
        bindings: &Bindings<'a>,
    ) -> Result<LikePattern> {
        let pattern = LikePattern::parse(&self.value(pattern, table, bindings)?)?;
        if finds_parts || !pattern.kind.needs_parts() {
            return Ok(pattern);
        }
        Err(RequestError::invalid(format!(
            "{} {} {} is only supported on properly indexed columns",
            table.columns[self.subject.columns()[0]].name,
            pattern.kind.name(),
            String::from_utf8_lossy(&pattern.text)
        )))
    }

    /// The values of IN on one column.
    pub fn in_values<'a>(
        &self,
        values: &'a Values,
        table: &Table,
        bindings: &Bindings<'a>,
    ) -> Result<Vec<Cow<'a, [u8]>>> {
        let name = &table.columns[self.subject.columns()[0]].name;
        if let Values::List(term) = values {
            let list = match term.evaluate(bindings)? {
                Bound::Null => return Err(no_null(name)),
                _ => self.value(term, table, bindings)?,
            };
            return list_elements(&list, name);
        }
        let mut wanted = Vec::with_capacity(values.terms().len());
        for term in values.terms() {
            // As in Cassandra, null and unset are values that no row has.
            if let Bound::Bytes(bytes) = term.evaluate(bindings)? {
                wanted.push(bytes);
            }
        }
        Ok(wanted)
    }
}

/// The elements of a list given for IN.
pub fn list_elements<'a>(list: &[u8], column: &str) -> Result<Vec<Cow<'a, [u8]>>> {
    let mut elements = Vec::new();
    let malformed = |error: codec::CodecError| match error {
        codec::CodecError::NullElement => null_value(column),
        other => RequestError::invalid(other.to_string()),
    };
    for item in codec::elements(list).map_err(malformed)? {
        elements.push(Cow::Owned(item.map_err(malformed)?.to_vec()));
    }
    Ok(elements)
}

/// The error for a null among the values of `=` and IN on several columns.
pub fn no_null(column: &str) -> RequestError {
    RequestError::invalid(format!("Invalid null value for column {column}"))
}

/// The components of a tuple with which columns are compared. `null`: the error for a null in a column.
pub fn tuple_components<'a>(
    tuple: &'a TupleTerm,
    columns: &[Column],
    bindings: &Bindings<'a>,
    null: impl Fn(&str) -> RequestError,
) -> Result<Vec<Cow<'a, [u8]>>> {
    match tuple {
        TupleTerm::Terms(terms) => {
            let component =
                |(index, (term, column)): (usize, (&'a Term, &Column))| match term.evaluate(bindings)? {
                    Bound::Bytes(bytes) => Ok(bytes),
                    Bound::Null => Err(null(&column.name)),
                    Bound::Unset if terms.len() == 1 => Err(unset_value(&column.name)),
                    Bound::Unset => Err(RequestError::invalid(format!(
                        "Invalid unset value for tuple field number {index}"
                    ))),
                };
            terms.iter().zip(columns).enumerate().map(component).collect()
        }
        TupleTerm::Tuple(term) => match term.evaluate(bindings)? {
            Bound::Bytes(bytes) => split_tuple(&bytes, columns, &null),
            Bound::Null => Err(null(&columns[0].name)),
            Bound::Unset => {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                Err(RequestError::invalid(format!("Invalid unset value for tuple ({})", names.join(","))))
            }
        },
    }
}

/// The components of a bound tuple.
pub fn split_tuple<'a>(
    bytes: &[u8],
    columns: &[Column],
    null: &impl Fn(&str) -> RequestError,
) -> Result<Vec<Cow<'a, [u8]>>> {
    let mut components = Vec::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        let field = codec::field(bytes, index).map_err(|error| RequestError::invalid(error.to_string()))?;
        components.push(Cow::Owned(field.ok_or_else(|| null(&column.name))?.to_vec()));
    }
    Ok(components)
}
