//! Random passwords, from the system's source of randomness.

/// Kinds of characters of which passwords need some: upper case, lower case, digits, others.
pub(super) const KINDS: usize = 4;
/// Characters that are neither letters nor digits, as Cassandra has them.
pub(super) const SPECIALS: &str = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~";

/// Generates a password of `length` characters, or more if the minima need them. `least`: the minimum of each kind of characters.
pub(super) fn random_password(least: [usize; KINDS], length: usize) -> Result<String, getrandom::Error> {
    let kinds: [Vec<char>; KINDS] =
        [('A'..='Z').collect(), ('a'..='z').collect(), ('0'..='9').collect(), SPECIALS.chars().collect()];
    let mut characters = Vec::new();
    for (kind, least) in kinds.iter().zip(least) {
        for _ in 0..least {
            characters.push(kind[random_below(kind.len())?]);
        }
    }
    let all: Vec<char> = kinds.concat();
    while characters.len() < length {
        characters.push(all[random_below(all.len())?]);
    }
    // Fisher and Yates.
    for last in (1..characters.len()).rev() {
        characters.swap(last, random_below(last + 1)?);
    }
    Ok(characters.into_iter().collect())
}

/// A number below a bound, each as likely as the others.
fn random_below(bound: usize) -> Result<usize, getrandom::Error> {
    let bound = bound as u64;
    let fair = u64::MAX - u64::MAX % bound;
    loop {
        let drawn = getrandom::u64()?;
        if drawn < fair {
            return Ok((drawn % bound) as usize);
        }
    }
}
