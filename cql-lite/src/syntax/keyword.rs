//! The keywords of CQL, and which names they can be without quotes.

use super::ast::{Identifier, NativeType};

/// Type names that Cassandra reserves for later use. A user type of such a name must be quoted.
pub(crate) const RESERVED_TYPE_NAMES: [&str; 7] =
    ["byte", "complex", "enum", "date", "interval", "macaddr", "bitstring"];

/// Which names a keyword can be without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeywordClass {
    /// None.
    Reserved,
    /// Any.
    Unreserved,
    /// Any except user types: the keyword is a native type.
    Native(NativeType),
    /// Columns, tables and keyspaces, but neither functions nor user types.
    NotFunction,
}

macro_rules! keywords {
    ($($variant:ident $text:literal $class:expr;)*) => {
        /// A keyword. Synonyms (`TABLE`, `COLUMNFAMILY`) are separate keywords.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Keyword {
            $($variant,)*
        }

        const KEYWORDS: &[(&str, Keyword)] = &[$(($text, Keyword::$variant),)*];

        impl Keyword {
            /// The keyword in lower case.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Keyword::$variant => $text,)* }
            }

            /// Which names it can be without quotes.
            pub(crate) const fn class(self) -> KeywordClass {
                use KeywordClass::*;
                use NativeType as N;
                match self { $(Keyword::$variant => $class,)* }
            }
        }
    };
}

keywords! {
    Access "access" Unreserved;
    Add "add" Reserved;
    Aggregate "aggregate" Unreserved;
    Aggregates "aggregates" Unreserved;
    All "all" Unreserved;
    Allow "allow" Reserved;
    Alter "alter" Reserved;
    And "and" Reserved;
    Ann "ann" Unreserved;
    Apply "apply" Reserved;
    As "as" Unreserved;
    Asc "asc" Reserved;
    Ascii "ascii" Native(N::Ascii);
    Authorize "authorize" Reserved;
    Batch "batch" Reserved;
    Begin "begin" Reserved;
    Between "between" Unreserved;
    Bigint "bigint" Native(N::Bigint);
    Blob "blob" Native(N::Blob);
    Boolean "boolean" Native(N::Boolean);
    By "by" Reserved;
    Called "called" Unreserved;
    Cast "cast" NotFunction;
    Check "check" Unreserved;
    Cidrs "cidrs" Unreserved;
    Cluster "cluster" Unreserved;
    Clustering "clustering" Unreserved;
    Columnfamilies "columnfamilies" Unreserved;
    Columnfamily "columnfamily" Reserved;
    Compact "compact" Unreserved;
    Contains "contains" Unreserved;
    Count "count" NotFunction;
    Counter "counter" Native(N::Counter);
    Create "create" Reserved;
    Custom "custom" Unreserved;
    Datacenters "datacenters" Unreserved;
    Date "date" Native(N::Date);
    Decimal "decimal" Native(N::Decimal);
    Default "default" Unreserved;
    Delete "delete" Reserved;
    Desc "desc" Reserved;
    Describe "describe" Reserved;
    Distinct "distinct" NotFunction;
    Double "double" Native(N::Double);
    Drop "drop" Reserved;
    Duration "duration" Native(N::Duration);
    Entries "entries" Reserved;
    Execute "execute" Reserved;
    Exists "exists" Unreserved;
    False "false" Reserved;
    Filtering "filtering" Unreserved;
    Finalfunc "finalfunc" Unreserved;
    Float "float" Native(N::Float);
    From "from" Reserved;
    Frozen "frozen" Unreserved;
    Full "full" Reserved;
    Function "function" Unreserved;
    Functions "functions" Unreserved;
    Generated "generated" Unreserved;
    Grant "grant" Reserved;
    Group "group" Unreserved;
    Hashed "hashed" Unreserved;
    Identity "identity" Unreserved;
    If "if" Reserved;
    In "in" Reserved;
    Index "index" Reserved;
    Indexes "indexes" Unreserved;
    Inet "inet" Native(N::Inet);
    Infinity "infinity" Reserved;
    Initcond "initcond" Unreserved;
    Input "input" Unreserved;
    Insert "insert" Reserved;
    Int "int" Native(N::Int);
    Internals "internals" Unreserved;
    Into "into" Reserved;
    Is "is" Reserved;
    Json "json" NotFunction;
    Key "key" NotFunction;
    Keys "keys" Unreserved;
    Keyspace "keyspace" Reserved;
    Keyspaces "keyspaces" Unreserved;
    Language "language" Unreserved;
    Like "like" Unreserved;
    Limit "limit" Reserved;
    List "list" Unreserved;
    Login "login" Unreserved;
    Map "map" Unreserved;
    Masked "masked" Unreserved;
    Materialized "materialized" Reserved;
    Maxwritetime "maxwritetime" NotFunction;
    Mbean "mbean" Unreserved;
    Mbeans "mbeans" Unreserved;
    Modify "modify" Reserved;
    Nan "nan" Reserved;
    Nologin "nologin" Unreserved;
    Norecursive "norecursive" Reserved;
    Nosuperuser "nosuperuser" Unreserved;
    Not "not" Reserved;
    Null "null" Reserved;
    Of "of" Reserved;
    On "on" Reserved;
    Only "only" Unreserved;
    Options "options" Unreserved;
    Or "or" Reserved;
    Order "order" Reserved;
    Partition "partition" Unreserved;
    Password "password" Unreserved;
    Per "per" Unreserved;
    Permission "permission" Unreserved;
    Permissions "permissions" Unreserved;
    Primary "primary" Reserved;
    Rename "rename" Reserved;
    Replace "replace" Unreserved;
    Returns "returns" Unreserved;
    Revoke "revoke" Reserved;
    Role "role" Unreserved;
    Roles "roles" Unreserved;
    Schema "schema" Reserved;
    Select "select" Reserved;
    SelectMasked "select_masked" Unreserved;
    Set "set" Reserved;
    Sfunc "sfunc" Unreserved;
    Smallint "smallint" Native(N::Smallint);
    Static "static" Unreserved;
    Storage "storage" Unreserved;
    Stype "stype" Unreserved;
    Superuser "superuser" Unreserved;
    Superusers "superusers" Unreserved;
    Table "table" Reserved;
    Tables "tables" Unreserved;
    Text "text" Native(N::Text);
    Time "time" Native(N::Time);
    Timestamp "timestamp" Native(N::Timestamp);
    Timeuuid "timeuuid" Native(N::Timeuuid);
    Tinyint "tinyint" Native(N::Tinyint);
    To "to" Reserved;
    Token "token" Reserved;
    Trigger "trigger" Unreserved;
    True "true" Reserved;
    Truncate "truncate" Reserved;
    Ttl "ttl" NotFunction;
    Tuple "tuple" Unreserved;
    Type "type" Unreserved;
    Types "types" Unreserved;
    Unlogged "unlogged" Reserved;
    Unmask "unmask" Unreserved;
    Unset "unset" Unreserved;
    Update "update" Reserved;
    Use "use" Reserved;
    User "user" Unreserved;
    Users "users" Unreserved;
    Using "using" Reserved;
    Uuid "uuid" Native(N::Uuid);
    Values "values" Unreserved;
    Varchar "varchar" Native(N::Varchar);
    Varint "varint" Native(N::Varint);
    Vector "vector" Unreserved;
    View "view" Reserved;
    Where "where" Reserved;
    With "with" Reserved;
    Writetime "writetime" NotFunction;
}

const LONGEST_BYTES: usize = 14;
const SLOTS: usize = 1024;
const EMPTY: u8 = u8::MAX;

const _: () = assert!(KEYWORDS.len() < EMPTY as usize && KEYWORDS.len() * 2 < SLOTS);

/// A hash table with linear probing, from lower-case words to their index in `KEYWORDS`.
static TABLE: [u8; SLOTS] = build_table();

const fn hash(word: &[u8]) -> usize {
    let mut hash: u32 = 0x811c_9dc5;
    let mut at = 0;
    while at < word.len() {
        hash = (hash ^ word[at].to_ascii_lowercase() as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    (hash ^ (hash >> 15)) as usize % SLOTS
}

const fn build_table() -> [u8; SLOTS] {
    let mut table = [EMPTY; SLOTS];
    let mut index = 0;
    while index < KEYWORDS.len() {
        let text = KEYWORDS[index].0.as_bytes();
        assert!(text.len() <= LONGEST_BYTES);
        let mut slot = hash(text);
        while table[slot] != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = index as u8;
        index += 1;
    }
    table
}

impl Keyword {
    /// Looks up a word, in any letter case.
    pub(crate) fn find(word: &str) -> Option<Self> {
        if word.len() > LONGEST_BYTES {
            return None;
        }
        let mut slot = hash(word.as_bytes());
        // The table is never full, so every search ends at an empty slot.
        while let Some((text, keyword)) = KEYWORDS.get(usize::from(TABLE[slot])) {
            if text.eq_ignore_ascii_case(word) {
                return Some(*keyword);
            }
            slot = (slot + 1) % SLOTS;
        }
        None
    }
}

impl Identifier {
    /// Whether the name can be printed without quotes.
    pub fn is_plain(&self) -> bool {
        is_plain_word(self.as_str())
            && Keyword::find(self.as_str()).is_none_or(|keyword| keyword.class() != KeywordClass::Reserved)
    }
}

/// Whether a word has the form of an unquoted lower-case name.
pub(crate) fn is_plain_word(word: &str) -> bool {
    let mut bytes = word.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::cql_type::quote_identifier;

    #[test]
    fn every_keyword_is_found_in_any_case() {
        for (text, keyword) in KEYWORDS {
            assert_eq!(Keyword::find(text), Some(*keyword));
            assert_eq!(Keyword::find(&text.to_ascii_uppercase()), Some(*keyword));
            assert_eq!(keyword.text(), *text);
        }
        for word in ["", "selec", "selects", "a_word_that_is_longer_than_all"] {
            assert_eq!(Keyword::find(word), None);
        }
    }

    /// The list of `quote_identifier` is Cassandra's, which lacks the two literals.
    #[test]
    fn reserved_keywords_are_quoted_in_types_and_columns() {
        for (text, keyword) in KEYWORDS {
            if keyword.class() == KeywordClass::Reserved && !matches!(keyword, Keyword::True | Keyword::False)
            {
                assert!(quote_identifier(text).starts_with('"'), "{text}");
            }
        }
    }

    #[test]
    fn every_native_type_is_a_keyword() {
        for native in NativeType::ALL {
            let keyword = Keyword::find(native.name()).unwrap();
            assert_eq!(keyword.class(), KeywordClass::Native(*native));
        }
    }
}
