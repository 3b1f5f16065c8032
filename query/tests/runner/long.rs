//! Long texts in a few characters: `{{x*5}}` is `xxxxx`, `{{1..3}}` is `1,2,3`.

/// The statement with its abbreviations written out.
pub fn written_out(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = after.split_once("}}").expect("an abbreviation ends with }}");
        out += before;
        if let Some((part, count)) = inside.split_once('*') {
            out += &part.repeat(count.parse().expect("a number of repetitions"));
        } else {
            let (first, last) =
                inside.split_once("..").expect("an abbreviation is text*count or first..last");
            let range = first.parse::<i32>().expect("a first number")..=last.parse().expect("a last number");
            out += &range.map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        }
        rest = after;
    }
    out + rest
}
