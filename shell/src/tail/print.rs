//! Changes as they are shown: in aligned columns that grow with their values, each value on a line of its own, or as JSON.

use cql_lite::types::{
    cql_type::quote_identifier,
    json::{json_name, to_json, write_json_string},
    literal, time,
};
use unicode_width::UnicodeWidthStr;

use super::change::{Bound, Change, Edit, Field, Operation};
use crate::{
    format::visible,
    output::Layout,
    table::{NAME_COLOR, NULL_COLOR, NUMBER_COLOR, RESET, TEXT_COLOR},
};

/// The columns: time, operation, key, changes, and the images if there are any.
const NAMES: [&str; 6] = ["time", "operation", "key", "changes", "before", "after"];
/// The place of the operation among them.
const OPERATION: usize = 1;
/// The places of the images.
const BEFORE: usize = 4;
const AFTER: usize = 5;

/// Prints changes one batch after the other.
#[allow(clippy::struct_excessive_bools, reason = "independent facts of what was printed")]
#[derive(Debug)]
pub struct Printer {
    layout: Layout,
    in_color: bool,
    /// The widths of the columns so far.
    widths: [usize; 6],
    /// The places of the columns that the last header has; none: there was no header.
    shown: Vec<usize>,
    /// Changes so far.
    count: u64,
}

impl Printer {
    /// Nothing is printed yet.
    pub fn new(layout: Layout, in_color: bool) -> Self {
        Self { layout, in_color, widths: NAMES.map(str::len), shown: Vec::new(), count: 0 }
    }

    /// How many changes there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lines of more changes.
    pub fn lines(&mut self, changes: &[Change]) -> Vec<String> {
        let first = self.count + 1;
        self.count += changes.len() as u64;
        match self.layout {
            Layout::Json => changes.iter().map(json).collect(),
            Layout::Aligned => self.aligned(changes),
            Layout::Expanded => {
                changes.iter().zip(first..).flat_map(|(change, number)| expanded(change, number)).collect()
            }
        }
    }

    fn aligned(&mut self, changes: &[Change]) -> Vec<String> {
        let rows: Vec<[String; 6]> = changes.iter().map(cells).collect();
        for row in &rows {
            for (width, text) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(text.width());
            }
        }
        // Images have columns from the first one on.
        let is_needed = |place: &usize| match *place {
            BEFORE => changes.iter().any(|change| change.before.is_some()),
            AFTER => changes.iter().any(|change| change.after.is_some()),
            _ => true,
        };
        let shown = (0..NAMES.len()).filter(|place| self.shown.contains(place) || is_needed(place));
        let shown: Vec<usize> = shown.collect();
        let mut lines = Vec::new();
        if !changes.is_empty() && shown != self.shown {
            self.shown = shown;
            let names = NAMES.map(str::to_owned);
            lines.push(self.line(&names, |_| Some(NAME_COLOR)));
            let rules: Vec<String> = self.shown.iter().map(|place| "-".repeat(self.widths[*place])).collect();
            lines.push(format!("-{}-", rules.join("-+-")));
        }
        for (row, change) in rows.iter().zip(changes) {
            let color = operation_color(change.operation);
            lines.push(self.line(row, |place| (place == OPERATION).then_some(color)));
        }
        lines
    }

    fn line(&self, texts: &[String; 6], color: impl Fn(usize) -> Option<&'static str>) -> String {
        let cells = self.shown.iter().map(|&place| {
            let blanks = " ".repeat(self.widths[place].saturating_sub(texts[place].width()));
            match color(place).filter(|_| self.in_color) {
                Some(color) => format!("{color}{}{RESET}{blanks}", texts[place]),
                None => format!("{}{blanks}", texts[place]),
            }
        });
        format!(" {}", cells.collect::<Vec<_>>().join(" | ")).trim_end().to_owned()
    }
}

fn operation_color(operation: Operation) -> &'static str {
    match operation {
        Operation::Insert => NUMBER_COLOR,
        Operation::DeleteRow | Operation::DeletePartition | Operation::DeleteRange => NULL_COLOR,
        _ => TEXT_COLOR,
    }
}

/// The time to the microsecond, in UTC.
fn time_text(change: &Change) -> String {
    let unix_micros = change.unix_micros();
    let seconds = time::format_timestamp(unix_micros.div_euclid(1_000_000) * 1_000);
    let seconds = seconds.trim_end_matches(".000Z").replacen('T', " ", 1);
    format!("{seconds}.{:06}+0000", unix_micros.rem_euclid(1_000_000))
}

fn cells(change: &Change) -> [String; 6] {
    let image = |fields: &Option<Vec<Field>>| fields.as_deref().map_or_else(String::new, equalities);
    [
        time_text(change),
        change.operation.name(),
        key_text(change),
        edits_text(change),
        image(&change.before),
        image(&change.after),
    ]
}

fn name(field: &Field) -> String {
    quote_identifier(&field.name).into_owned()
}

/// The value as CQL on one line.
fn value(field: &Field) -> String {
    let literal = field.literal();
    if literal.chars().any(char::is_control) { visible(&literal) } else { literal }
}

fn equalities(fields: &[Field]) -> String {
    let equality = |field: &Field| format!("{} = {}", name(field), value(field));
    fields.iter().map(equality).collect::<Vec<_>>().join(", ")
}

/// The key, with the ends of a range as a WHERE clause has them.
fn key_text(change: &Change) -> String {
    let bounds = [(&change.from, [">", "<"]), (&change.to, ["<", ">"])].map(|(bound, [sign, reversed])| {
        let bound = bound.as_ref().filter(|bound| !bound.fields.is_empty())?;
        Some(bound_text(bound, if bound.is_descending { reversed } else { sign }))
    });
    let key = equalities(&change.key);
    let parts = [Some(key).filter(|key| !key.is_empty())].into_iter().chain(bounds).flatten();
    parts.collect::<Vec<_>>().join(", ")
}

fn bound_text(bound: &Bound, sign: &str) -> String {
    let sign = if bound.is_inclusive { format!("{sign}=") } else { sign.to_owned() };
    let names = bound.fields.iter().map(name).collect::<Vec<_>>().join(", ");
    let values = bound.fields.iter().map(value).collect::<Vec<_>>().join(", ");
    if bound.fields.len() == 1 {
        format!("{names} {sign} {values}")
    } else {
        format!("({names}) {sign} ({values})")
    }
}

fn edits_text(change: &Change) -> String {
    let edits = change.edits.iter().map(|edit| match edit {
        Edit::Set(field) => format!("{} = {}", name(field), value(field)),
        Edit::Deleted(column) => format!("{} deleted", quote_identifier(column)),
        Edit::Added(field) => format!("{} + {}", name(field), value(field)),
        Edit::Removed(field) => format!("{} - {}", name(field), value(field)),
    });
    let ttl = change.ttl_seconds.map(|seconds| format!("(TTL {seconds})"));
    edits.chain(ttl).collect::<Vec<_>>().join(", ")
}

/// The lines of a change with each value on a line of its own. `number`: counted from 1.
fn expanded(change: &Change, number: u64) -> Vec<String> {
    let texts = cells(change);
    let shown = NAMES.iter().zip(&texts).enumerate().filter(|(place, _)| match *place {
        BEFORE => change.before.is_some(),
        AFTER => change.after.is_some(),
        _ => true,
    });
    let name_width = NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut lines = vec![format!("@ Change {number}"), format!("-{}-+-", "-".repeat(name_width))];
    for (_, (name, text)) in shown {
        lines.push(format!(" {name:name_width$} | {text}").trim_end().to_owned());
    }
    lines.push(String::new());
    lines
}

/// A JSON object under construction.
struct Object(String);

impl Object {
    fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a member; `json`: its value.
    fn add(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push_str(", ");
        }
        write_json_string(name, &mut self.0);
        self.0.push_str(": ");
        self.0.push_str(json);
    }

    fn add_text(&mut self, name: &str, text: &str) {
        let mut json = String::new();
        write_json_string(text, &mut json);
        self.add(name, &json);
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// The columns with their values as a JSON object. Bytes that are not a value of their type become a string of hex.
fn fields_json<'a>(fields: impl IntoIterator<Item = &'a Field>) -> String {
    let mut object = Object::new();
    for field in fields {
        let name = json_name(&field.name);
        match to_json(&field.cql_type, Some(&field.bytes)) {
            Ok(json) => object.add(&name, &json),
            Err(_) => object.add_text(&name, &literal::format_hex(&field.bytes)),
        }
    }
    object.end()
}

/// The change as a JSON object. Members without content are left out.
fn json(change: &Change) -> String {
    let mut object = Object::new();
    object.add_text("time", &time_text(change));
    object.add_text("id", &change.time.to_string());
    object.add_text("operation", &change.operation.name());
    object.add("key", &fields_json(&change.key));
    for (name, bound) in [("from", &change.from), ("to", &change.to)] {
        if let Some(bound) = bound.as_ref().filter(|bound| !bound.fields.is_empty()) {
            object.add(name, &fields_json(&bound.fields));
            object.add(&format!("{name}_inclusive"), &bound.is_inclusive.to_string());
        }
    }
    let of = |choose: fn(&Edit) -> Option<&Field>| change.edits.iter().filter_map(choose).collect::<Vec<_>>();
    let sets = of(|edit| if let Edit::Set(field) = edit { Some(field) } else { None });
    let added = of(|edit| if let Edit::Added(field) = edit { Some(field) } else { None });
    let removed = of(|edit| if let Edit::Removed(field) = edit { Some(field) } else { None });
    for (name, fields) in [("set", sets), ("added", added), ("removed", removed)] {
        if !fields.is_empty() {
            object.add(name, &fields_json(fields));
        }
    }
    let deleted = change.edits.iter().filter_map(|edit| match edit {
        Edit::Deleted(column) => Some(column),
        _ => None,
    });
    let deleted = deleted.map(|column| {
        let mut json = String::new();
        write_json_string(column, &mut json);
        json
    });
    let deleted: Vec<String> = deleted.collect();
    if !deleted.is_empty() {
        object.add("deleted", &format!("[{}]", deleted.join(", ")));
    }
    if let Some(seconds) = change.ttl_seconds {
        object.add("ttl", &seconds.to_string());
    }
    for (name, image) in [("before", &change.before), ("after", &change.after)] {
        if let Some(fields) = image {
            object.add(name, &fields_json(fields));
        }
    }
    object.end()
}

#[cfg(test)]
mod tests {
    use cql_lite::types::{CqlType, timeuuid};

    use super::*;

    fn int(name: &str, value: i32) -> Field {
        Field { name: name.to_owned(), cql_type: CqlType::Int, bytes: value.to_be_bytes().to_vec() }
    }

    fn text(name: &str, value: &str) -> Field {
        Field { name: name.to_owned(), cql_type: CqlType::Text, bytes: value.as_bytes().to_vec() }
    }

    fn change(operation: Operation) -> Change {
        Change {
            time: timeuuid::from_micros(1_500_000, 0, 0, [0; 6]),
            operation,
            key: vec![text("customer", "ada")],
            from: None,
            to: None,
            edits: Vec::new(),
            ttl_seconds: None,
            before: None,
            after: None,
        }
    }

    #[test]
    fn columns_are_aligned_over_all_batches() {
        let mut printer = Printer::new(Layout::Aligned, false);
        assert_eq!(printer.lines(&[]), Vec::<String>::new());
        let edits = vec![
            Edit::Set(int("quantity", 6)),
            Edit::Deleted("Note".to_owned()),
            Edit::Added(text("tags", "a")),
            Edit::Removed(text("tags", "b\n")),
        ];
        let update = Change { edits, ttl_seconds: Some(60), ..change(Operation::Update) };
        assert_eq!(
            printer.lines(&[update]),
            [
                " time                            | operation | key              | changes".to_owned(),
                ["-".repeat(33), "-".repeat(11), "-".repeat(18), "-".repeat(66)].join("+"),
                " 1970-01-01 00:00:01.500000+0000 | UPDATE    | customer = 'ada' | \
                 quantity = 6, \"Note\" deleted, tags + 'a', tags - 'b\\n', (TTL 60)"
                    .to_owned(),
            ]
        );
        let before = vec![int("quantity", 6)];
        let delete = Change { before: Some(before), ..change(Operation::DeleteRow) };
        let lines = printer.lines(&[delete]);
        assert!(lines[0].ends_with("| before"), "{lines:?}");
        assert!(
            lines[2].contains("| DELETE ROW | customer = 'ada' |") && lines[2].ends_with("| quantity = 6")
        );
        assert_eq!(printer.lines(&[change(Operation::Insert)]).len(), 1);
        assert_eq!(printer.count(), 3);
    }

    #[test]
    fn a_range_reads_as_a_condition() {
        let bound =
            |fields: Vec<Field>, is_inclusive| Some(Bound { fields, is_inclusive, is_descending: false });
        let range = Change {
            from: bound(vec![int("a", 1), int("b", 2)], true),
            to: bound(vec![int("a", 3)], false),
            ..change(Operation::DeleteRange)
        };
        assert_eq!(key_text(&range), "customer = 'ada', (a, b) >= (1, 2), a < 3");
        let newest_first = Change {
            from: Some(Bound { fields: vec![int("a", 9)], is_inclusive: true, is_descending: true }),
            to: Some(Bound { fields: vec![int("a", 3)], is_inclusive: false, is_descending: true }),
            ..change(Operation::DeleteRange)
        };
        assert_eq!(key_text(&newest_first), "customer = 'ada', a <= 9, a > 3");
        let open = Change {
            from: bound(Vec::new(), true),
            to: bound(vec![int("a", 3)], true),
            ..change(Operation::DeleteRange)
        };
        assert_eq!(key_text(&open), "customer = 'ada', a <= 3");
        assert_eq!(
            json(&open),
            "{\"time\": \"1970-01-01 00:00:01.500000+0000\", \"id\": \"ID\", \"operation\": \"DELETE RANGE\", \
             \"key\": {\"customer\": \"ada\"}, \"to\": {\"a\": 3}, \"to_inclusive\": true}"
                .replace("ID", &open.time.to_string())
        );
    }

    #[test]
    fn json_has_a_member_for_each_kind_of_edit() {
        let edits = vec![
            Edit::Set(int("n", 6)),
            Edit::Deleted("note".to_owned()),
            Edit::Added(text("tags", "a")),
            Edit::Removed(text("tags", "b")),
        ];
        let update = Change {
            edits,
            ttl_seconds: Some(60),
            before: Some(Vec::new()),
            after: Some(vec![int("n", 6)]),
            ..change(Operation::Update)
        };
        let shown = json(&update);
        assert!(
            shown.ends_with(
                "\"set\": {\"n\": 6}, \"added\": {\"tags\": \"a\"}, \"removed\": {\"tags\": \"b\"}, \
                 \"deleted\": [\"note\"], \"ttl\": 60, \"before\": {}, \"after\": {\"n\": 6}}"
            ),
            "{shown}"
        );
    }

    #[test]
    fn expanded_changes_are_numbered() {
        let mut printer = Printer::new(Layout::Expanded, false);
        let insert = Change { edits: vec![Edit::Set(int("n", 6))], ..change(Operation::Insert) };
        assert_eq!(
            printer.lines(&[insert]),
            [
                "@ Change 1",
                "-----------+-",
                " time      | 1970-01-01 00:00:01.500000+0000",
                " operation | INSERT",
                " key       | customer = 'ada'",
                " changes   | n = 6",
                "",
            ]
        );
    }
}
