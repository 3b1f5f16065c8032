//! Options as nodetool has them: one dash and several letters.

use std::ffi::OsString;

/// The options of commands that have one dash and several letters, and the long ones that they become.
const LONG_OPTIONS: [(&str, &[(&str, &str)]); 2] = [
    ("snapshot", &[("-kt", "--kt-list"), ("-cf", "--table")]),
    (
        "repair",
        &[
            ("-pr", "--primary-range"),
            ("-local", "--in-local-dc"),
            ("-dc", "--in-dc"),
            ("-st", "--start-token"),
            ("-et", "--end-token"),
            ("-full", "--full"),
        ],
    ),
];

/// The arguments of the program, with the options of commands of `nodetool` that have one dash and several letters as long ones.
pub fn with_long_options(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_none_or(|word| word != "admin") {
        return arguments;
    }
    let found = arguments.iter().enumerate().skip(2).find_map(|(index, word)| {
        let (_, options) = LONG_OPTIONS.iter().find(|(command, _)| word == command)?;
        Some((index, *options))
    });
    let Some((command, options)) = found else { return arguments };
    lengthen(&mut arguments[command..], options);
    arguments
}

/// Replaces short options by long ones, up to `--`.
pub(crate) fn lengthen(words: &mut [OsString], options: &[(&str, &str)]) {
    for word in words.iter_mut().take_while(|word| *word != "--") {
        if let Some((_, long)) = options.iter().find(|(short, _)| word == short) {
            *word = long.into();
        }
    }
}
