//! Version 1 UUIDs: making them from a given time, reading their time, and the order of UUIDs.
//!
//! No clock is read: the caller passes time, clock sequence and node. The time in a UUID counts units of 100 ns since
//! 1582-10-15.

use uuid::Uuid;

/// 100 ns units from 1582-10-15 to 1970-01-01.
const GREGORIAN_TO_UNIX: i64 = 0x01B2_1DD2_1381_4000;

/// Clock sequence and node of the smallest timeuuid of a time, in the order of `timeuuid`: every byte is -128.
const MINIMUM_CLOCK_SEQUENCE_AND_NODE: u64 = 0x8080_8080_8080_8080;

/// Clock sequence and node of the largest timeuuid of a time: every byte is 127.
const MAXIMUM_CLOCK_SEQUENCE_AND_NODE: u64 = 0x7F7F_7F7F_7F7F_7F7F;

/// A version 1 UUID. `tenth_micros` (0 to 9) distinguishes UUIDs of one microsecond.
pub fn from_micros(unix_micros: i64, tenth_micros: u8, clock_sequence: u16, node: [u8; 6]) -> Uuid {
    let units = unix_micros.wrapping_mul(10).wrapping_add(i64::from(tenth_micros));
    let [n0, n1, n2, n3, n4, n5] = node;
    let [c0, c1] = (clock_sequence & 0x3FFF | 0x8000).to_be_bytes();
    assemble(units, u64::from_be_bytes([c0, c1, n0, n1, n2, n3, n4, n5]))
}

/// The smallest timeuuid, real or not, of a millisecond.
pub fn minimum(unix_millis: i64) -> Uuid {
    assemble(unix_millis.wrapping_mul(10_000), MINIMUM_CLOCK_SEQUENCE_AND_NODE)
}

/// The largest timeuuid, real or not, of a millisecond.
pub fn maximum(unix_millis: i64) -> Uuid {
    assemble(unix_millis.wrapping_mul(10_000).wrapping_add(9_999), MAXIMUM_CLOCK_SEQUENCE_AND_NODE)
}

fn assemble(unix_units: i64, clock_sequence_and_node: u64) -> Uuid {
    let time = unix_units.wrapping_add(GREGORIAN_TO_UNIX) as u64;
    let high = (time << 32) | ((time >> 16) & 0xFFFF_0000) | 0x1000 | ((time >> 48) & 0x0FFF);
    Uuid::from_u64_pair(high, clock_sequence_and_node)
}

/// The time of a version 1 UUID in units of 100 ns since the Unix epoch.
fn unix_units(uuid: &Uuid) -> i64 {
    let (high, _) = uuid.as_u64_pair();
    ((reorder_time(high) & 0x0FFF_FFFF_FFFF_FFFF) as i64).wrapping_sub(GREGORIAN_TO_UNIX)
}

/// The time of a version 1 UUID in microseconds since the Unix epoch.
pub fn unix_micros(uuid: &Uuid) -> i64 {
    unix_units(uuid).div_euclid(10)
}

/// The time of a version 1 UUID in milliseconds since the Unix epoch.
pub fn unix_millis(uuid: &Uuid) -> i64 {
    unix_units(uuid).div_euclid(10_000)
}

/// The first half of a UUID with the time fields from the most to the least significant.
#[inline]
fn reorder_time(high: u64) -> u64 {
    (high << 48) | ((high << 16) & 0xFFFF_0000_0000) | (high >> 32)
}

/// Inverse of [`reorder_time`].
#[inline]
fn restore_time(ordered: u64) -> u64 {
    (ordered >> 48) | ((ordered >> 16) & 0xFFFF_0000) | (ordered << 32)
}

/// A number whose order is that of `timeuuid`: by time, then the other bytes, each as a signed number.
#[inline]
pub(crate) fn timeuuid_sort_key(bytes: [u8; 16]) -> u128 {
    let both = u128::from_be_bytes(bytes);
    let (high, low) = ((both >> 64) as u64, both as u64);
    // The top bits hold the version (1), so signed and unsigned comparison of the time agree.
    (u128::from(reorder_time(high)) << 64) | u128::from(low ^ 0x8080_8080_8080_8080)
}

/// The UUID of a [`timeuuid_sort_key`].
#[inline]
pub(crate) fn from_timeuuid_sort_key(key: u128) -> [u8; 16] {
    let (high, low) = ((key >> 64) as u64, key as u64 ^ 0x8080_8080_8080_8080);
    ((u128::from(restore_time(high)) << 64) | u128::from(low)).to_be_bytes()
}

/// Sort key of `uuid`: the version, then the time (version 1) or the first bytes, then the other bytes.
#[inline]
pub(crate) fn uuid_sort_key(bytes: [u8; 16]) -> (u8, u128) {
    let both = u128::from_be_bytes(bytes);
    let version = ((both >> 76) & 0xF) as u8;
    if version != 1 {
        return (version, both);
    }
    (version, (u128::from(reorder_time((both >> 64) as u64)) << 64) | u128::from(both as u64))
}

/// The UUID of a [`uuid_sort_key`].
#[inline]
pub(crate) fn from_uuid_sort_key(version: u8, key: u128) -> [u8; 16] {
    if version != 1 {
        return key.to_be_bytes();
    }
    ((u128::from(restore_time((key >> 64) as u64)) << 64) | u128::from(key as u64)).to_be_bytes()
}
