//! Types as written: names are not resolved.

use super::identifier::{Identifier, QualifiedName};

/// A type as written in a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CqlTypeName {
    /// A native type: `int`.
    Native(NativeType),
    /// `list<…>`
    List(Box<CqlTypeName>),
    /// `set<…>`
    Set(Box<CqlTypeName>),
    /// `map<…, …>`
    Map(Box<CqlTypeName>, Box<CqlTypeName>),
    /// `tuple<…>`
    Tuple(Vec<CqlTypeName>),
    /// `vector<…, dimensions>`
    Vector(Box<CqlTypeName>, u32),
    /// `frozen<…>`
    Frozen(Box<CqlTypeName>),
    /// The name of a user type.
    User(QualifiedName),
    /// A class name in single quotes.
    Custom(String),
}

macro_rules! native_types {
    ($($variant:ident $name:literal,)*) => {
        /// A native type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum NativeType {
            $(
                #[doc = concat!("`", $name, "`")]
                $variant,
            )*
        }

        impl NativeType {
            /// Every native type.
            pub const ALL: &'static [NativeType] = &[$(NativeType::$variant,)*];

            /// The name in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(NativeType::$variant => $name,)*
                }
            }
        }
    };
}

native_types! {
    Ascii "ascii",
    Bigint "bigint",
    Blob "blob",
    Boolean "boolean",
    Counter "counter",
    Date "date",
    Decimal "decimal",
    Double "double",
    Duration "duration",
    Float "float",
    Inet "inet",
    Int "int",
    Smallint "smallint",
    Text "text",
    Time "time",
    Timestamp "timestamp",
    Timeuuid "timeuuid",
    Tinyint "tinyint",
    Uuid "uuid",
    Varchar "varchar",
    Varint "varint",
}

impl CqlTypeName {
    /// A user type by its name.
    pub fn user(keyspace: Option<Identifier>, name: Identifier) -> Self {
        Self::User(QualifiedName { keyspace, name })
    }
}
