//! What passwords must be like, and making passwords that are like that: `password_policy` of Cassandra 6, with its names, defaults and
//! texts.
//!
//! A password is refused below one set of bounds, and accepted with a warning below another. Only the bytes that the hash covers are validated.
//! Hashed passwords are not validated. Differences from Cassandra: letters are all of Unicode that have a case, not those of six languages;
//! sequences are looked for in the Latin and the Russian alphabet, digits, and rows of a US keyboard.

mod dictionary;
mod generator;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::dictionary::Dictionary;
use self::generator::{KINDS, SPECIALS, random_password};
use crate::password::effective;

/// The most that `max_length` may be.
const LENGTH_MAX: usize = 1_000;
/// Shorter sequences are in every second word.
const SEQUENCE_MIN: usize = 3;
/// Sequences that are easily guessed, with the adjective of their kind. Rows of keys also with Shift.
const SEQUENCES: [(&str, &str); 11] = [
    ("alphabetical", "abcdefghijklmnopqrstuvwxyz"),
    ("alphabetical", "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"),
    ("numerical", "0123456789"),
    ("QWERTY", "`1234567890-="),
    ("QWERTY", "~!@#$%^&*()_+"),
    ("QWERTY", "qwertyuiop[]\\"),
    ("QWERTY", "qwertyuiop{}|"),
    ("QWERTY", "asdfghjkl;'"),
    ("QWERTY", "asdfghjkl:\""),
    ("QWERTY", "zxcvbnm,./"),
    ("QWERTY", "zxcvbnm<>?"),
];
/// Attempts to make a password that the policy accepts.
const ATTEMPTS: usize = 1_000;
const ADVICE: &str = "You may also use 'GENERATED PASSWORD' upon role creation or alteration.";

/// Cassandra's classes that look at passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Validator {
    #[serde(alias = "org.apache.cassandra.db.guardrails.CassandraPasswordValidator")]
    CassandraPasswordValidator,
}

/// Cassandra's classes that make passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Generator {
    #[serde(alias = "org.apache.cassandra.db.guardrails.CassandraPasswordGenerator")]
    CassandraPasswordGenerator,
}

/// The policy. Lengths and counts are in characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PasswordPolicy {
    /// `None`: every password is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validator_class_name: Option<Validator>,
    /// `None`: no password is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generator_class_name: Option<Generator>,
    /// A password must have enough characters of more kinds than this.
    pub characteristic_warn: usize,
    pub characteristic_fail: usize,
    pub max_length: usize,
    pub length_warn: usize,
    pub length_fail: usize,
    pub upper_case_warn: usize,
    pub upper_case_fail: usize,
    pub lower_case_warn: usize,
    pub lower_case_fail: usize,
    pub digit_warn: usize,
    pub digit_fail: usize,
    pub special_warn: usize,
    pub special_fail: usize,
    /// Sequences such as `abcde` are refused from this length on.
    pub illegal_sequence_length: usize,
    /// A file of passwords that are refused, one a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dictionary: Option<PathBuf>,
    /// Whether errors and warnings list the violated rules for every role, or for superusers only.
    pub detailed_messages: bool,
}

impl Default for PasswordPolicy {
    fn default() -> Self {
        Self {
            validator_class_name: None,
            generator_class_name: None,
            characteristic_warn: 3,
            characteristic_fail: 2,
            max_length: LENGTH_MAX,
            length_warn: 12,
            length_fail: 8,
            upper_case_warn: 2,
            upper_case_fail: 1,
            lower_case_warn: 2,
            lower_case_fail: 1,
            digit_warn: 2,
            digit_fail: 1,
            special_warn: 2,
            special_fail: 1,
            illegal_sequence_length: 5,
            dictionary: None,
            detailed_messages: true,
        }
    }
}

/// One of the two sets of bounds of a policy.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    length: usize,
    kinds: usize,
    upper_case: usize,
    lower_case: usize,
    digits: usize,
    specials: usize,
}

/// A kind of characters.
struct Kind {
    name: &'static str,
    /// How many a password needs.
    least: usize,
    is_member: fn(char) -> bool,
}

impl Bounds {
    fn of_kinds(&self) -> [Kind; KINDS] {
        [
            Kind { name: "uppercase", least: self.upper_case, is_member: char::is_uppercase },
            Kind { name: "lowercase", least: self.lower_case, is_member: char::is_lowercase },
            Kind { name: "digit", least: self.digits, is_member: |character| character.is_ascii_digit() },
            Kind {
                name: "special",
                least: self.specials,
                is_member: |character| SPECIALS.contains(character),
            },
        ]
    }

    /// Length of the shortest password with enough characters of as many kinds as are needed.
    fn shortest(&self) -> usize {
        let mut counts = self.of_kinds().map(|kind| kind.least);
        counts.sort_unstable();
        counts.iter().take(self.kinds + 1).sum()
    }
}

impl PasswordPolicy {
    /// An example of every part.
    pub fn example() -> Self {
        Self {
            validator_class_name: Some(Validator::CassandraPasswordValidator),
            generator_class_name: Some(Generator::CassandraPasswordGenerator),
            dictionary: Some(PathBuf::from("/etc/helenus/passwords")),
            ..Self::default()
        }
    }

    fn warning(&self) -> Bounds {
        Bounds {
            length: self.length_warn,
            kinds: self.characteristic_warn,
            upper_case: self.upper_case_warn,
            lower_case: self.lower_case_warn,
            digits: self.digit_warn,
            specials: self.special_warn,
        }
    }

    fn failure(&self) -> Bounds {
        Bounds {
            length: self.length_fail,
            kinds: self.characteristic_fail,
            upper_case: self.upper_case_fail,
            lower_case: self.lower_case_fail,
            digits: self.digit_fail,
            specials: self.special_fail,
        }
    }

    /// What contradicts itself; `None`: nothing.
    pub fn problem(&self) -> Option<String> {
        if self.max_length > LENGTH_MAX {
            return Some(format!("max_length can not be greater than {LENGTH_MAX}"));
        }
        for kind in self.warning().of_kinds() {
            if kind.least > self.max_length {
                return Some(format!("{} {} characters are more than max_length", kind.least, kind.name));
            }
        }
        let generated: usize = self.warning().of_kinds().iter().map(|kind| kind.least).sum();
        if self.generator_class_name.is_some() && generated > self.max_length {
            return Some(format!(
                "generated passwords would have {generated} characters, more than max_length"
            ));
        }
        let in_order = [
            ("max_length", self.max_length, "length_warn", self.length_warn),
            ("length_warn", self.length_warn, "length_fail", self.length_fail),
            ("special_warn", self.special_warn, "special_fail", self.special_fail),
            ("digit_warn", self.digit_warn, "digit_fail", self.digit_fail),
            ("upper_case_warn", self.upper_case_warn, "upper_case_fail", self.upper_case_fail),
            ("lower_case_warn", self.lower_case_warn, "lower_case_fail", self.lower_case_fail),
            (
                "characteristic_warn",
                self.characteristic_warn,
                "characteristic_fail",
                self.characteristic_fail,
            ),
        ];
        for (more, value, less, other) in in_order {
            if value <= other {
                return Some(format!("{more} of value {value} is less or equal to {less} of value {other}"));
            }
        }
        if self.characteristic_warn >= KINDS {
            return Some(format!(
                "characteristic_warn must be less than {KINDS}: there are {KINDS} kinds of characters"
            ));
        }
        if self.illegal_sequence_length < SEQUENCE_MIN {
            return Some(format!("illegal_sequence_length can not be lower than {SEQUENCE_MIN}"));
        }
        for (bounds, key) in [(self.warning(), "length_warn"), (self.failure(), "length_fail")] {
            if bounds.shortest() > bounds.length {
                return Some(format!(
                    "{key} is {}, but the shortest password with enough characters of {} kinds has {}",
                    bounds.length,
                    bounds.kinds + 1,
                    bounds.shortest()
                ));
            }
        }
        None
    }

    /// What is wrong with a password.
    fn violations(&self, password: &str, bounds: Bounds) -> Vec<String> {
        let mut found = Vec::new();
        // Nothing else is done with what may be a whole request.
        let length = password.chars().take(self.max_length + 1).count();
        if length > self.max_length {
            found.push(format!("Password must be no more than {} characters in length.", self.max_length));
            return found;
        }
        if length < bounds.length {
            found.push(format!("Password must be {} or more characters in length.", bounds.length));
        }
        let password = effective(password);
        let is_missing = |kind: &Kind| password.chars().filter(|c| (kind.is_member)(*c)).count() < kind.least;
        let missing: Vec<String> = bounds
            .of_kinds()
            .into_iter()
            .filter(is_missing)
            .map(|Kind { name, least, .. }| {
                format!("Password must contain {least} or more {name} characters.")
            })
            .collect();
        let (present, needed) = (KINDS - missing.len(), bounds.kinds + 1);
        if present < needed {
            found.extend(missing);
            found.push(format!(
                "Password matches {present} of {KINDS} character rules, but {needed} are required."
            ));
        }
        if password.chars().any(char::is_whitespace) {
            found.push("Password contains a whitespace character.".to_owned());
        }
        found.extend(self.sequence_in(password));
        found
    }

    /// The first sequence of the forbidden length, in either direction and in any case.
    fn sequence_in(&self, password: &str) -> Option<String> {
        let characters: Vec<char> = password.chars().flat_map(char::to_lowercase).collect();
        characters.windows(self.illegal_sequence_length).find_map(|window| {
            let forward: String = window.iter().collect();
            let backward: String = window.iter().rev().collect();
            let is_part = |(_, row): &&(&str, &str)| row.contains(&forward) || row.contains(&backward);
            let (kind, _) = SEQUENCES.iter().find(is_part)?;
            Some(format!("Password contains the illegal {kind} sequence '{forward}'."))
        })
    }
}

/// Why a password is not taken, or none was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("Guardrail password_policy violated: {0}")]
    Refused(String),
    #[error(
        "You have to enable password_policy and its generator_class_name to be able to generate passwords."
    )]
    NoGenerator,
    #[error(
        "It was not possible to generate a valid password in {ATTEMPTS} attempts. Check your configuration and try again."
    )]
    NoneFound,
    /// The system has no randomness.
    #[error("No password can be generated: {0}")]
    Failed(#[from] getrandom::Error),
}

/// A policy with the words of its dictionary.
#[derive(Debug, Clone, Default)]
pub struct PasswordRules {
    policy: PasswordPolicy,
    dictionary: Dictionary,
}

impl PasswordRules {
    /// `dictionary`: the content of the file that the policy names.
    pub fn new(policy: PasswordPolicy, dictionary: String) -> Self {
        Self { policy, dictionary: Dictionary::new(dictionary) }
    }

    /// Refuses a password, or returns a warning about it. `is_superuser`: of who sets it.
    pub fn check(&self, password: &str, is_superuser: bool) -> Result<Option<String>, PolicyError> {
        let Self { policy, dictionary } = self;
        if policy.validator_class_name.is_none() {
            return Ok(None);
        }
        let is_told = is_superuser || policy.detailed_messages;
        let has_case = |c: char| c.is_uppercase() || c.is_lowercase();
        let is_known = |c: char| has_case(c) || c.is_ascii_digit() || SPECIALS.contains(c);
        let counted = effective(password);
        if !counted.chars().any(has_case) && !counted.chars().all(is_known) {
            let text = if is_told {
                "Unsupported language / character set for password validator"
            } else {
                "Password complexity policy not met."
            };
            return Err(PolicyError::Refused(text.to_owned()));
        }
        let mut failures = policy.violations(password, policy.failure());
        if dictionary.contains(counted) {
            failures.insert(0, format!("Password contains the dictionary word '{counted}'."));
        }
        if !failures.is_empty() {
            let text = "Password was not set as it violated configured password strength policy.";
            return Err(PolicyError::Refused(if is_told {
                detailed(text, "error", &failures)
            } else {
                format!("{text} {ADVICE}")
            }));
        }
        let warnings = policy.violations(password, policy.warning());
        if warnings.is_empty() {
            return Ok(None);
        }
        let text = "Password was set, however it might not be strong enough according to the configured password strength policy.";
        let text = if is_told { detailed(text, "warning", &warnings) } else { text.to_owned() };
        Ok(Some(PolicyError::Refused(text).to_string()))
    }

    /// A new password that the policy accepts without a warning.
    pub fn generate(&self) -> Result<String, PolicyError> {
        let policy = &self.policy;
        if policy.generator_class_name.is_none() {
            return Err(PolicyError::NoGenerator);
        }
        for _ in 0..ATTEMPTS {
            let bounds = policy.warning();
            let password = random_password(bounds.of_kinds().map(|kind| kind.least), bounds.length)?;
            let is_word = self.dictionary.contains(effective(&password));
            if !is_word && policy.violations(&password, bounds).is_empty() {
                return Ok(password);
            }
        }
        Err(PolicyError::NoneFound)
    }
}

fn detailed(text: &str, kind: &str, violations: &[String]) -> String {
    format!("{text} To fix this {kind}, the following has to be resolved: {} {ADVICE}", violations.join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn rules() -> PasswordRules {
        PasswordRules::new(PasswordPolicy::example(), "Tr0ub4dor&3\n\nCorrect-Horse9\n".to_owned())
    }

    fn refusal(password: &str) -> String {
        rules().check(password, false).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn without_a_validator_every_password_is_taken() {
        assert_eq!(PasswordRules::default().check("a", false), Ok(None));
        assert_eq!(PasswordRules::default().generate(), Err(PolicyError::NoGenerator));
    }

    #[test]
    fn passwords_are_refused_below_the_bounds() {
        for (password, reason) in [
            ("aB3$", "Password must be 8 or more characters in length."),
            ("abzdefgz", "Password matches 1 of 4 character rules, but 3 are required."),
            ("abzdefgz", "Password must contain 1 or more uppercase characters."),
            ("aB3$ kQ9!xWz", "Password contains a whitespace character."),
            ("aB3$abcdeQ9!", "Password contains the illegal alphabetical sequence 'abcde'."),
            ("aB3$EDCBAQ9!", "Password contains the illegal alphabetical sequence 'edcba'."),
            ("aB3$87654Q9!", "Password contains the illegal numerical sequence '87654'."),
            ("aB3$ytrewQ9!", "Password contains the illegal QWERTY sequence 'ytrew'."),
            ("Correct-Horse9", "Password contains the dictionary word 'Correct-Horse9'."),
            ("卡桑德拉-卡桑德拉山山羊棚", "Unsupported language / character set for password validator"),
        ] {
            let refusal = refusal(password);
            assert!(refusal.starts_with("Guardrail password_policy violated: "), "{password}: {refusal}");
            assert!(refusal.contains(reason), "{password}: {refusal}");
        }
        let long = "aB3$".repeat(251);
        assert!(refusal(&long).contains("no more than 1000 characters"), "{}", refusal(&long));
        let without_effect = format!("{}B3$B3$", "a".repeat(72));
        assert!(
            refusal(&without_effect).contains("matches 1 of 4"),
            "the hash is that of the first 72 bytes"
        );
        assert_eq!(refusal("aB3$abcdQ9!x"), "", "four letters in a row are none too many");
    }

    #[test]
    fn passwords_between_the_bounds_are_taken_with_a_warning() {
        let warning = rules().check("aB3$kQ9!", false).unwrap().unwrap();
        assert!(warning.contains("Password must be 12 or more characters in length."), "{warning}");
        assert_eq!(rules().check("aB3$kQ9!xWzv", false), Ok(None));
        assert_eq!(rules().check("山13g.^Tg$棚Sd", false), Ok(None));
    }

    #[test]
    fn details_may_be_for_superusers_only() {
        let policy = PasswordPolicy { detailed_messages: false, ..PasswordPolicy::example() };
        let rules = PasswordRules::new(policy, String::new());
        let refusal = |is_superuser| rules.check("short", is_superuser).unwrap_err().to_string();
        assert!(refusal(true).contains("8 or more characters"));
        assert!(!refusal(false).contains("characters") && refusal(false).contains("GENERATED PASSWORD"));
    }

    #[test]
    fn generated_passwords_are_accepted_without_a_warning_and_differ() {
        let rules = rules();
        let generated: HashSet<String> = (0..200).map(|_| rules.generate().unwrap()).collect();
        assert_eq!(generated.len(), 200);
        for password in generated {
            assert_eq!(password.chars().count(), 12);
            assert_eq!(rules.check(&password, true), Ok(None), "{password}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_named() {
        let problem = |change: fn(&mut PasswordPolicy)| {
            let mut policy = PasswordPolicy::default();
            change(&mut policy);
            policy.problem().unwrap_or_default()
        };
        assert_eq!(problem(|_| {}), "");
        assert!(problem(|policy| policy.max_length = 2_000).contains("max_length"));
        assert!(problem(|policy| policy.length_warn = 8).contains("length_warn of value 8 is less or equal"));
        assert!(problem(|policy| policy.characteristic_warn = 4).contains("there are 4 kinds"));
        assert!(problem(|policy| policy.illegal_sequence_length = 2).contains("illegal_sequence_length"));
        assert!(problem(|policy| policy.special_warn = 100).contains("the shortest password"));
        assert!(problem(|policy| policy.special_warn = usize::MAX).contains("more than max_length"));
        let generated = problem(|policy| {
            *policy = PasswordPolicy { special_warn: 30, max_length: 20, ..PasswordPolicy::example() };
        });
        assert!(generated.contains("more than max_length"), "{generated}");
        let generated = problem(|policy| {
            *policy = PasswordPolicy {
                special_warn: 10,
                upper_case_warn: 9,
                max_length: 20,
                ..PasswordPolicy::example()
            };
        });
        assert!(generated.contains("generated passwords would have 23"), "{generated}");
        assert_eq!(PasswordPolicy::example().problem(), None);
    }
}
