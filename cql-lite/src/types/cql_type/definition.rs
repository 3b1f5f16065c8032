//! The type itself: structure, freezing, compatibility, text.

use std::fmt;
use std::sync::Arc;

use super::identifier::quote_identifier;

/// The largest dimension of a vector, as in Cassandra.
pub const MAXIMUM_VECTOR_DIMENSION: usize = 8192;

/// A CQL type, with user types resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CqlType {
    /// US-ASCII text.
    Ascii,
    /// 64-bit signed integer.
    Bigint,
    /// Any bytes.
    Blob,
    /// True or false.
    Boolean,
    /// A 64-bit counter.
    Counter,
    /// Days, as an unsigned 32-bit number centred at 2^31 = 1970-01-01.
    Date,
    /// Variable-precision decimal.
    Decimal,
    /// 64-bit IEEE 754 number.
    Double,
    /// Months, days and nanoseconds.
    Duration,
    /// The type whose only value has no bytes.
    Empty,
    /// 32-bit IEEE 754 number.
    Float,
    /// An IPv4 or IPv6 address.
    Inet,
    /// 32-bit signed integer.
    Int,
    /// 16-bit signed integer.
    Smallint,
    /// UTF-8 text; `varchar` is another name for it.
    Text,
    /// Nanoseconds since midnight.
    Time,
    /// Milliseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    /// A version 1 UUID, ordered by its time.
    Timeuuid,
    /// 8-bit signed integer.
    Tinyint,
    /// Any UUID.
    Uuid,
    /// Arbitrary-precision integer.
    Varint,
    /// A list.
    List {
        /// The type of the elements.
        element: Arc<CqlType>,
        /// Whether it is `frozen<…>`, stored as one cell.
        frozen: bool,
    },
    /// A set, ordered by its elements.
    Set {
        /// The type of the elements.
        element: Arc<CqlType>,
        /// Whether it is `frozen<…>`, stored as one cell.
        frozen: bool,
    },
    /// A map, ordered by its keys.
    Map {
        /// The type of the keys.
        key: Arc<CqlType>,
        /// The type of the values.
        value: Arc<CqlType>,
        /// Whether it is `frozen<…>`, stored as one cell.
        frozen: bool,
    },
    /// A tuple; always one cell.
    Tuple(Arc<[CqlType]>),
    /// A user type.
    UserType {
        /// Its name and fields.
        definition: Arc<UserType>,
        /// Whether it is `frozen<…>`, stored as one cell.
        frozen: bool,
    },
    /// A vector of a fixed number of elements; always one cell.
    Vector {
        /// The type of the elements.
        element: Arc<CqlType>,
        /// The number of elements.
        dimension: usize,
    },
    /// A type known by a Java class name only; its values are opaque bytes.
    Custom(Arc<str>),
}

/// The definition of a user type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserType {
    /// The keyspace it belongs to.
    pub keyspace: Arc<str>,
    /// Its name (unquoted, case-sensitive).
    pub name: Arc<str>,
    /// The names of the fields, in order.
    pub field_names: Vec<Arc<str>>,
    /// The types of the fields, in order.
    pub field_types: Vec<CqlType>,
}

impl UserType {
    /// The position of a field.
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.field_names.iter().position(|field| field.as_ref() == name)
    }
}

/// The names of the native types and the types, in alphabetical order.
const NATIVE: [(&str, CqlType); 22] = [
    ("ascii", CqlType::Ascii),
    ("bigint", CqlType::Bigint),
    ("blob", CqlType::Blob),
    ("boolean", CqlType::Boolean),
    ("counter", CqlType::Counter),
    ("date", CqlType::Date),
    ("decimal", CqlType::Decimal),
    ("double", CqlType::Double),
    ("duration", CqlType::Duration),
    ("empty", CqlType::Empty),
    ("float", CqlType::Float),
    ("inet", CqlType::Inet),
    ("int", CqlType::Int),
    ("smallint", CqlType::Smallint),
    ("text", CqlType::Text),
    ("time", CqlType::Time),
    ("timestamp", CqlType::Timestamp),
    ("timeuuid", CqlType::Timeuuid),
    ("tinyint", CqlType::Tinyint),
    ("uuid", CqlType::Uuid),
    ("varchar", CqlType::Text),
    ("varint", CqlType::Varint),
];

impl CqlType {
    /// The native type of that name (any case), or nothing.
    pub fn native(name: &str) -> Option<CqlType> {
        NATIVE
            .iter()
            .find(|(candidate, _)| candidate.eq_ignore_ascii_case(name))
            .map(|(_, native)| native.clone())
    }

    /// All native types once each (`varchar` is `text`).
    pub fn natives() -> impl Iterator<Item = CqlType> {
        NATIVE.iter().filter(|(name, _)| *name != "varchar").map(|(_, native)| native.clone())
    }

    /// A list; an element type inside a collection is always frozen.
    pub fn list(element: CqlType, frozen: bool) -> CqlType {
        CqlType::List { element: Arc::new(element.into_frozen()), frozen }
    }

    /// A set; an element type inside a collection is always frozen.
    pub fn set(element: CqlType, frozen: bool) -> CqlType {
        CqlType::Set { element: Arc::new(element.into_frozen()), frozen }
    }

    /// A map; the types inside a collection are always frozen.
    pub fn map(key: CqlType, value: CqlType, frozen: bool) -> CqlType {
        CqlType::Map { key: Arc::new(key.into_frozen()), value: Arc::new(value.into_frozen()), frozen }
    }

    /// A tuple; everything inside is frozen.
    pub fn tuple(fields: impl IntoIterator<Item = CqlType>) -> CqlType {
        CqlType::Tuple(fields.into_iter().map(CqlType::into_frozen).collect())
    }

    /// A vector; everything inside is frozen.
    pub fn vector(element: CqlType, dimension: usize) -> CqlType {
        CqlType::Vector { element: Arc::new(element.into_frozen()), dimension }
    }

    /// The type as one cell: `frozen<self>`, with everything inside frozen.
    #[must_use]
    pub fn freeze(&self) -> CqlType {
        self.clone().into_frozen()
    }

    /// Consuming form of [`Self::freeze`].
    #[must_use]
    pub(crate) fn into_frozen(mut self) -> CqlType {
        self.set_frozen(true);
        self
    }

    /// The type with `frozen` removed at its top level.
    #[must_use]
    pub fn unfreeze(&self) -> CqlType {
        let mut unfrozen = self.clone();
        unfrozen.set_frozen(false);
        unfrozen
    }

    fn set_frozen(&mut self, value: bool) {
        if let CqlType::List { frozen, .. }
        | CqlType::Set { frozen, .. }
        | CqlType::Map { frozen, .. }
        | CqlType::UserType { frozen, .. } = self
        {
            *frozen = value;
        }
    }

    /// Whether this is a list, set or map.
    pub fn is_collection(&self) -> bool {
        matches!(self, CqlType::List { .. } | CqlType::Set { .. } | CqlType::Map { .. })
    }

    /// Whether a value is spread over many cells (a non-frozen list, set, map or user type).
    pub fn is_multi_cell(&self) -> bool {
        matches!(
            self,
            CqlType::List { frozen: false, .. }
                | CqlType::Set { frozen: false, .. }
                | CqlType::Map { frozen: false, .. }
                | CqlType::UserType { frozen: false, .. }
        )
    }

    /// Whether this is a user type.
    pub fn is_user_type(&self) -> bool {
        matches!(self, CqlType::UserType { .. })
    }

    /// Whether this is a number (an integer, a floating-point number, a decimal or a counter).
    pub fn is_numeric(&self) -> bool {
        matches!(
            self,
            CqlType::Tinyint
                | CqlType::Smallint
                | CqlType::Int
                | CqlType::Bigint
                | CqlType::Counter
                | CqlType::Float
                | CqlType::Double
                | CqlType::Varint
                | CqlType::Decimal
        )
    }

    /// The types directly inside: elements, key and value, fields.
    pub fn components(&self) -> Vec<&CqlType> {
        match self {
            CqlType::List { element, .. }
            | CqlType::Set { element, .. }
            | CqlType::Vector { element, .. } => vec![element],
            CqlType::Map { key, value, .. } => vec![key, value],
            CqlType::Tuple(fields) => fields.iter().collect(),
            CqlType::UserType { definition, .. } => definition.field_types.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the type or one inside it is the user type.
    pub fn references_user_type(&self, keyspace: &str, name: &str) -> bool {
        if let CqlType::UserType { definition, .. } = self
            && definition.keyspace.as_ref() == keyspace
            && definition.name.as_ref() == name
        {
            return true;
        }
        self.components().iter().any(|component| component.references_user_type(keyspace, name))
    }

    /// Whether `predicate` holds for the type or one inside it.
    pub fn any(&self, predicate: &dyn Fn(&CqlType) -> bool) -> bool {
        predicate(self) || self.components().iter().any(|component| component.any(predicate))
    }

    /// The same type with a user type replaced by its new definition wherever it occurs.
    #[must_use]
    pub fn with_user_type(&self, definition: &Arc<UserType>) -> CqlType {
        match self {
            CqlType::UserType { definition: current, frozen } => {
                if current.keyspace == definition.keyspace && current.name == definition.name {
                    return CqlType::UserType { definition: definition.clone(), frozen: *frozen };
                }
                let mut changed = UserType::clone(current);
                for field in &mut changed.field_types {
                    *field = field.with_user_type(definition);
                }
                CqlType::UserType { definition: Arc::new(changed), frozen: *frozen }
            }
            CqlType::List { element, frozen } => {
                CqlType::List { element: Arc::new(element.with_user_type(definition)), frozen: *frozen }
            }
            CqlType::Set { element, frozen } => {
                CqlType::Set { element: Arc::new(element.with_user_type(definition)), frozen: *frozen }
            }
            CqlType::Map { key, value, frozen } => CqlType::Map {
                key: Arc::new(key.with_user_type(definition)),
                value: Arc::new(value.with_user_type(definition)),
                frozen: *frozen,
            },
            CqlType::Tuple(fields) => {
                CqlType::Tuple(fields.iter().map(|field| field.with_user_type(definition)).collect())
            }
            CqlType::Vector { element, dimension } => CqlType::Vector {
                element: Arc::new(element.with_user_type(definition)),
                dimension: *dimension,
            },
            other => other.clone(),
        }
    }

    /// The length in bytes that every non-empty value has, if there is one. It decides how a vector frames its
    /// elements, so it follows Cassandra: `tinyint`, `smallint`, `date` and `time` count as variable there.
    pub fn fixed_length(&self) -> Option<usize> {
        match self {
            CqlType::Boolean => Some(1),
            CqlType::Int | CqlType::Float => Some(4),
            CqlType::Bigint | CqlType::Double | CqlType::Timestamp => Some(8),
            CqlType::Uuid | CqlType::Timeuuid => Some(16),
            CqlType::Empty => Some(0),
            CqlType::Vector { element, dimension } => {
                element.fixed_length().and_then(|length| length.checked_mul(*dimension))
            }
            _ => None,
        }
    }

    /// Whether values of type `other` are valid values of this type unchanged (the same type; text from
    /// ascii; blob from anything; varint from int and bigint; uuid from timeuuid; and so on inside tuples and
    /// frozen collections).
    pub fn is_value_compatible_with(&self, other: &CqlType) -> bool {
        match (self, other) {
            (CqlType::Blob, _)
            | (CqlType::Text, CqlType::Ascii)
            | (CqlType::Varint, CqlType::Int | CqlType::Bigint | CqlType::Timestamp)
            | (CqlType::Uuid, CqlType::Timeuuid)
            | (CqlType::Bigint, CqlType::Timestamp)
            | (CqlType::Date, CqlType::Int)
            | (CqlType::Time, CqlType::Bigint) => true,
            (CqlType::List { element, frozen }, CqlType::List { element: theirs, frozen: their_frozen })
            | (CqlType::Set { element, frozen }, CqlType::Set { element: theirs, frozen: their_frozen }) => {
                frozen == their_frozen && element.is_value_compatible_with(theirs)
            }
            (
                CqlType::Map { key, value, frozen },
                CqlType::Map { key: their_key, value: their_value, frozen: their_frozen },
            ) => {
                frozen == their_frozen
                    && key.is_value_compatible_with(their_key)
                    && value.is_value_compatible_with(their_value)
            }
            (CqlType::Tuple(fields), CqlType::Tuple(theirs)) => {
                fields.len() >= theirs.len()
                    && fields.iter().zip(theirs.iter()).all(|(a, b)| a.is_value_compatible_with(b))
            }
            (
                CqlType::UserType { definition, frozen },
                CqlType::UserType { definition: theirs, frozen: f },
            ) => {
                frozen == f
                    && definition.keyspace == theirs.keyspace
                    && definition.name == theirs.name
                    && definition.field_types.len() >= theirs.field_types.len()
                    && definition
                        .field_types
                        .iter()
                        .zip(&theirs.field_types)
                        .all(|(a, b)| a.is_value_compatible_with(b))
            }
            (same, other) => same == other,
        }
    }

    /// Whether a value of type `source` can be assigned to this type: [`Self::is_value_compatible_with`], ignoring
    /// `frozen`.
    pub fn is_assignable_from(&self, source: &CqlType) -> bool {
        self.freeze().is_value_compatible_with(&source.freeze())
    }

    /// The option code of the native protocol (`0x0000` for types that travel as a custom class name).
    pub(crate) fn option_code(&self) -> u16 {
        match self {
            CqlType::Custom(_) | CqlType::Vector { .. } | CqlType::Empty => 0x0000,
            CqlType::Ascii => 0x0001,
            CqlType::Bigint => 0x0002,
            CqlType::Blob => 0x0003,
            CqlType::Boolean => 0x0004,
            CqlType::Counter => 0x0005,
            CqlType::Decimal => 0x0006,
            CqlType::Double => 0x0007,
            CqlType::Float => 0x0008,
            CqlType::Int => 0x0009,
            CqlType::Timestamp => 0x000B,
            CqlType::Uuid => 0x000C,
            CqlType::Text => 0x000D,
            CqlType::Varint => 0x000E,
            CqlType::Timeuuid => 0x000F,
            CqlType::Inet => 0x0010,
            CqlType::Date => 0x0011,
            CqlType::Time => 0x0012,
            CqlType::Smallint => 0x0013,
            CqlType::Tinyint => 0x0014,
            CqlType::Duration => 0x0015,
            CqlType::List { .. } => 0x0020,
            CqlType::Map { .. } => 0x0021,
            CqlType::Set { .. } => 0x0022,
            CqlType::UserType { .. } => 0x0030,
            CqlType::Tuple(_) => 0x0031,
        }
    }
}

impl fmt::Display for CqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frozen = match self {
            CqlType::List { frozen, .. }
            | CqlType::Set { frozen, .. }
            | CqlType::Map { frozen, .. }
            | CqlType::UserType { frozen, .. } => *frozen,
            CqlType::Tuple(_) => true,
            _ => false,
        };
        if frozen {
            f.write_str("frozen<")?;
        }
        match self {
            CqlType::List { element, .. } => write!(f, "list<{element}>")?,
            CqlType::Set { element, .. } => write!(f, "set<{element}>")?,
            CqlType::Map { key, value, .. } => write!(f, "map<{key}, {value}>")?,
            CqlType::Vector { element, dimension } => write!(f, "vector<{element}, {dimension}>")?,
            CqlType::Tuple(fields) => {
                f.write_str("tuple<")?;
                for (index, field) in fields.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{field}")?;
                }
                f.write_str(">")?;
            }
            CqlType::UserType { definition, .. } => f.write_str(&quote_identifier(&definition.name))?,
            CqlType::Custom(class) => write!(f, "'{class}'")?,
            CqlType::Text => f.write_str("text")?,
            native => {
                let name =
                    NATIVE.iter().find(|(_, candidate)| candidate == native).map_or("", |(name, _)| *name);
                f.write_str(name)?;
            }
        }
        if frozen { f.write_str(">") } else { Ok(()) }
    }
}
