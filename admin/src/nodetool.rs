//! Options as nodetool has them: one dash and several letters.

use std::ffi::OsString;

/// The arguments of the program, with the options of `nodetool snapshot` that have one dash and several letters as long ones.
pub fn with_long_options(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let is_admin = arguments.get(1).is_some_and(|word| word == "admin");
    if let Some(command) = arguments.iter().position(|word| is_admin && word == "snapshot") {
        for word in arguments.iter_mut().skip(command) {
            for (short, long) in [("-kt", "--kt-list"), ("-cf", "--table")] {
                if word == short {
                    *word = long.into();
                }
            }
        }
    }
    arguments
}
