//! The guardrails of a node as Cassandra's `getguardrailsconfig` prints them.

use std::collections::BTreeMap;

use serde_json::Value;

/// Which guardrails are printed, and how.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct GuardrailsArguments {
    /// Those of one kind only.
    #[arg(short = 'c', long, value_enum, conflicts_with = "name")]
    pub(crate) category: Option<Category>,
    /// Prints both limits of a threshold under the names of their settings.
    #[arg(long)]
    pub(crate) expand: bool,
    /// This one only: a setting, or a threshold without its kind (`tables_threshold`).
    pub(crate) name: Option<String>,
}

/// A guardrail, and what it is to be.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GuardrailChange {
    /// A flag or list (`group_by_enabled`), or a threshold without its kind (`tables_threshold`).
    pub(crate) name: String,
    /// true or false for a flag; two numbers or sizes for a threshold, for failures and for warnings; any number for a list. null takes a
    /// limit away, and [] all values of a list.
    #[arg(allow_hyphen_values = true)]
    pub(crate) values: Vec<String>,
}

impl GuardrailChange {
    /// The parameters of the request.
    pub(crate) fn parameters(&self) -> Vec<(&'static str, String)> {
        let values = Some(self.values.join(",")).filter(|values| !values.is_empty());
        let values = values.map(|values| ("values", values));
        std::iter::once(("name", self.name.clone())).chain(values).collect()
    }
}

/// The kinds of guardrails, in the order in which they are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Category {
    Flags,
    Thresholds,
    Values,
    Others,
}

/// Settings that are flags, although lists of values have such names too.
const WARNING_FLAGS: [&str; 2] = ["intersect_filtering_query_warned", "zero_ttl_on_twcs_warned"];
/// What the settings of a threshold end with.
const LIMITS: [&str; 2] = ["_fail_threshold", "_warn_threshold"];

impl Category {
    fn of(setting: &str) -> Self {
        let ends_with = |ends: &[&str]| ends.iter().any(|end| setting.ends_with(end));
        if ends_with(&["_enabled"]) || WARNING_FLAGS.contains(&setting) {
            Self::Flags
        } else if ends_with(&LIMITS) {
            Self::Thresholds
        } else if ends_with(&["_warned", "_ignored", "_disallowed"]) {
            Self::Values
        } else {
            Self::Others
        }
    }
}

impl GuardrailsArguments {
    /// The lines for these guardrails: name and value, or the value alone if one was named.
    pub(crate) fn rows(&self, guardrails: &BTreeMap<String, Value>) -> Vec<Vec<String>> {
        let mut lines: BTreeMap<(Category, String), Vec<String>> = BTreeMap::new();
        for (setting, value) in guardrails {
            let category = Category::of(setting);
            if self.category.is_some_and(|wanted| wanted != category) {
                continue;
            }
            let is_joined = category == Category::Thresholds && !self.expand;
            let threshold = LIMITS.iter().find_map(|end| setting.strip_suffix(end)).filter(|_| is_joined);
            let name = threshold.map_or_else(|| setting.clone(), |name| format!("{name}_threshold"));
            // The limit of errors comes first, as the settings are in the order of their names.
            lines.entry((category, name)).or_default().push(text(value));
        }
        let is_alone = self.category.is_none() && lines.len() == 1;
        let joined = |values: Vec<String>| match values.as_slice() {
            [value] => value.clone(),
            values => format!("[{}]", values.join(", ")),
        };
        let row =
            |((_, name), values)| if is_alone { vec![joined(values)] } else { vec![name, joined(values)] };
        lines.into_iter().map(row).collect()
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => format!("[{}]", values.iter().map(text).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(category: Option<Category>, expand: bool, named: &[&str]) -> Vec<String> {
        let all = [
            ("allow_filtering_enabled", json!(true)),
            ("collection_size_fail_threshold", json!("8MiB")),
            ("collection_size_warn_threshold", Value::Null),
            ("data_disk_usage_max_disk_size_bytes", Value::Null),
            ("tables_fail_threshold", json!(20)),
            ("tables_warn_threshold", json!(-1)),
            ("table_properties_warned", json!(["cdc", "comment"])),
            ("zero_ttl_on_twcs_warned", json!(false)),
        ];
        let given = all.into_iter().filter(|(name, _)| named.is_empty() || named.contains(name));
        let given = given.map(|(name, value)| (name.to_owned(), value)).collect();
        let arguments = GuardrailsArguments { category, expand, name: None };
        arguments.rows(&given).iter().map(|row| row.join(" ")).collect()
    }

    #[test]
    fn guardrails_are_listed_by_kind_with_both_limits_in_a_line() {
        let expected = [
            "allow_filtering_enabled true",
            "zero_ttl_on_twcs_warned false",
            "collection_size_threshold [8MiB, null]",
            "tables_threshold [20, -1]",
            "table_properties_warned [cdc, comment]",
            "data_disk_usage_max_disk_size_bytes null",
        ];
        assert_eq!(lines(None, false, &[]), expected);
        assert_eq!(lines(Some(Category::Thresholds), false, &[]), expected[2..4]);
        assert_eq!(lines(Some(Category::Others), false, &[]), expected[5..]);
        let expanded = [
            "collection_size_fail_threshold 8MiB",
            "collection_size_warn_threshold null",
            "tables_fail_threshold 20",
            "tables_warn_threshold -1",
        ];
        assert_eq!(lines(Some(Category::Thresholds), true, &[]), expanded);
    }

    #[test]
    fn one_that_is_named_is_its_value_alone() {
        assert_eq!(lines(None, false, &["tables_fail_threshold"]), ["20"]);
        assert_eq!(lines(None, false, &["tables_fail_threshold", "tables_warn_threshold"]), ["[20, -1]"]);
        assert_eq!(lines(None, false, &["allow_filtering_enabled"]), ["true"]);
    }
}
