//! The Java class names of types, sent to drivers that do not know the type itself.

use super::definition::CqlType;
use crate::types::hex;

impl CqlType {
    /// The class name that Cassandra uses for the type, for drivers that meet it as a custom type, e.g.
    /// `org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType , 3)`.
    pub fn class_name(&self) -> String {
        const PACKAGE: &str = "org.apache.cassandra.db.marshal.";
        let simple = match self {
            CqlType::Ascii => "AsciiType",
            CqlType::Bigint => "LongType",
            CqlType::Blob => "BytesType",
            CqlType::Boolean => "BooleanType",
            CqlType::Counter => "CounterColumnType",
            CqlType::Date => "SimpleDateType",
            CqlType::Decimal => "DecimalType",
            CqlType::Double => "DoubleType",
            CqlType::Duration => "DurationType",
            CqlType::Empty => "EmptyType",
            CqlType::Float => "FloatType",
            CqlType::Inet => "InetAddressType",
            CqlType::Int => "Int32Type",
            CqlType::Smallint => "ShortType",
            CqlType::Text => "UTF8Type",
            CqlType::Time => "TimeType",
            CqlType::Timestamp => "TimestampType",
            CqlType::Timeuuid => "TimeUUIDType",
            CqlType::Tinyint => "ByteType",
            CqlType::Uuid => "UUIDType",
            CqlType::Varint => "IntegerType",
            CqlType::Custom(class) => return class.to_string(),
            CqlType::List { element, frozen } => {
                return frozen_class(&format!("{PACKAGE}ListType({})", element.class_name()), *frozen);
            }
            CqlType::Set { element, frozen } => {
                return frozen_class(&format!("{PACKAGE}SetType({})", element.class_name()), *frozen);
            }
            CqlType::Map { key, value, frozen } => {
                let class = format!("{PACKAGE}MapType({},{})", key.class_name(), value.class_name());
                return frozen_class(&class, *frozen);
            }
            CqlType::Tuple(fields) => {
                let fields: Vec<String> = fields.iter().map(CqlType::class_name).collect();
                return format!("{PACKAGE}TupleType({})", fields.join(","));
            }
            CqlType::Vector { element, dimension } => {
                return format!("{PACKAGE}VectorType({} , {dimension})", element.class_name());
            }
            CqlType::UserType { definition, frozen } => {
                let mut class = format!(
                    "{PACKAGE}UserType({},{}",
                    definition.keyspace,
                    hex::digits(definition.name.as_bytes())
                );
                for (name, field) in definition.field_names.iter().zip(&definition.field_types) {
                    class.push(',');
                    class.push_str(&hex::digits(name.as_bytes()));
                    class.push(':');
                    class.push_str(&field.class_name());
                }
                class.push(')');
                return frozen_class(&class, *frozen);
            }
        };
        format!("{PACKAGE}{simple}")
    }
}

fn frozen_class(class: &str, frozen: bool) -> String {
    if frozen { format!("org.apache.cassandra.db.marshal.FrozenType({class})") } else { class.to_owned() }
}
