//! v5 segments: checksums, packing, splitting, rejection.

use bytes::BytesMut;
use cql_lite::frame::{
    Decoder, FrameError, Role,
    segment::{PAYLOAD_BYTES_MAX, SegmentEncoder, SegmentFormat, SegmentHeader, TRAILER_BYTES, crc24, crc32},
};

use super::{hex, unhex};

const OPTIONS_V5: &str = "050000000500000000";
const BODY_BYTES_MAX: usize = 1 << 24;

/// A response envelope with a body of `length` bytes.
fn envelope(version_byte: u8, stream: i16, length: usize, fill: u8) -> Vec<u8> {
    let [high, low] = stream.to_be_bytes();
    let mut bytes = vec![version_byte, 0, high, low, 0x07];
    bytes.extend_from_slice(&(length as u32).to_be_bytes());
    bytes.resize(9 + length, fill);
    bytes
}

fn segments(format: SegmentFormat, envelopes: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    SegmentEncoder::new(format).encode(envelopes, &mut out);
    out
}

fn decoder(format: SegmentFormat) -> Decoder {
    let mut decoder = Decoder::new(Role::Server, BODY_BYTES_MAX);
    decoder.start_segments(format);
    decoder
}

/// All envelopes in `bytes`, fed in chunks: stream and body of each.
fn decode_all(decoder: &mut Decoder, bytes: &[u8], chunk: usize) -> Result<Vec<(i16, Vec<u8>)>, FrameError> {
    let mut input = BytesMut::new();
    let mut envelopes = Vec::new();
    for chunk in bytes.chunks(chunk) {
        input.extend_from_slice(chunk);
        while let Some(envelope) = decoder.next(&mut input)? {
            envelopes.push((envelope.header.stream, envelope.body.to_vec()));
        }
    }
    assert!(input.is_empty());
    Ok(envelopes)
}

#[test]
fn header_vectors() {
    let vectors = [
        (0, true, "000002", "6a36c4"),
        (0, false, "000000", "77e77d"),
        (1, true, "010002", "7256ac"),
        (1, false, "010000", "6f8715"),
        (9, true, "090002", "a4c8c1"),
        (9, false, "090000", "b91978"),
        (50, true, "320002", "a5ffee"),
        (50, false, "320000", "b82e57"),
        (93, true, "5d0002", "c5526e"),
        (93, false, "5d0000", "d883d7"),
        (131_071, true, "ffff03", "254047"),
        (131_071, false, "ffff01", "3891fe"),
    ];
    for (payload_bytes, self_contained, fields, checksum) in vectors {
        let bytes = unhex(&format!("{fields}{checksum}"));
        let crc = crc24(&bytes[..3]).to_le_bytes();
        assert_eq!(hex(&crc[..3]), checksum);
        let header = SegmentHeader::parse(SegmentFormat::Plain, &bytes).unwrap();
        assert_eq!(header, Some(SegmentHeader { payload_bytes, uncompressed_bytes: None, self_contained }));
    }
}

#[test]
fn whole_segment_vectors() {
    let plain = segments(SegmentFormat::Plain, &unhex(OPTIONS_V5));
    assert_eq!(hex(&plain), "090002a4c8c10500000005000000001086284d");
    let raw_in_lz4 = segments(SegmentFormat::Lz4, &unhex(OPTIONS_V5));
    assert_eq!(hex(&raw_in_lz4), "0900000004c2b8950500000005000000001086284d");
    assert_eq!(hex(&crc32(&[b'b'; 50]).to_le_bytes()), "7aaeeb7c");

    let compressed = unhex("0b006400042dacc41f6201001950626262626225c4f9e0");
    let header = SegmentHeader::parse(SegmentFormat::Lz4, &compressed).unwrap().unwrap();
    assert_eq!(
        header,
        SegmentHeader { payload_bytes: 11, uncompressed_bytes: Some(50), self_contained: true }
    );
    let payload = &compressed[8..19];
    assert_eq!(crc32(payload).to_le_bytes(), compressed[19..]);
    assert_eq!(lz4_flex::block::decompress(payload, 50).unwrap(), [b'b'; 50]);
}

#[test]
fn envelopes_share_segments_and_come_out_again_whatever_the_chunks() {
    let mut envelopes = Vec::new();
    let lengths = [0, 1, 300, 131_062, 131_063, 400_000, 5, 70_000, 70_000, 17];
    for (stream, length) in lengths.into_iter().enumerate() {
        envelopes.extend(envelope(5, stream as i16, length, stream as u8));
    }
    for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
        let bytes = segments(format, &envelopes);
        for chunk in [977, 65_536, bytes.len()] {
            let decoded = decode_all(&mut decoder(format), &bytes, chunk).unwrap();
            let expected: Vec<_> = (0..lengths.len())
                .map(|stream| (stream as i16, vec![stream as u8; lengths[stream]]))
                .collect();
            assert!(decoded == expected);
        }
    }
}

#[test]
fn small_envelopes_share_one_segment_and_large_ones_are_split_minimally() {
    let small: Vec<u8> = (0..100).flat_map(|stream| envelope(5, stream, 20, 0)).collect();
    assert_eq!(segments(SegmentFormat::Plain, &small).len(), 6 + small.len() + TRAILER_BYTES);
    let large = envelope(5, 0, 2 * PAYLOAD_BYTES_MAX - 9, 0);
    assert_eq!(segments(SegmentFormat::Plain, &large).len(), 2 * (6 + PAYLOAD_BYTES_MAX + TRAILER_BYTES));
}

#[test]
fn incompressible_payloads_are_stored_raw() {
    let mut noise = envelope(5, 1, 1000, 0);
    let mut state = 1_u32;
    for byte in &mut noise[9..] {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    let bytes = segments(SegmentFormat::Lz4, &noise);
    assert_eq!(bytes.len(), 8 + noise.len() + TRAILER_BYTES);
    let decoded = decode_all(&mut decoder(SegmentFormat::Lz4), &bytes, bytes.len()).unwrap();
    assert_eq!(decoded, [(1, noise[9..].to_vec())]);
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let good = segments(SegmentFormat::Plain, &envelope(5, 1, 4, 7));
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let error = decoder(SegmentFormat::Plain).next(&mut bad).unwrap_err();
        assert!(error.is_fatal());
        assert!(error.to_string().starts_with("Corrupt segment"), "{error}");
    }
}

#[test]
fn a_self_contained_segment_must_hold_whole_envelopes() {
    let cut = &envelope(5, 1, 20, 0)[..15];
    let mut bytes = raw_segment(cut, true);
    assert_eq!(decoder(SegmentFormat::Plain).next(&mut bytes), Err(FrameError::EnvelopeCut));
}

#[test]
fn nothing_may_come_between_the_parts_of_an_envelope() {
    let whole = envelope(5, 1, 20, 0);
    let mut bytes = raw_segment(&whole[..15], false);
    bytes.unsplit(raw_segment(&envelope(5, 2, 0, 0), true));
    assert_eq!(decoder(SegmentFormat::Plain).next(&mut bytes), Err(FrameError::SegmentInterleaved));

    let mut bytes = raw_segment(&whole[..15], false);
    bytes.unsplit(raw_segment(&[&whole[15..], &[0][..]].concat(), false));
    assert_eq!(decoder(SegmentFormat::Plain).next(&mut bytes), Err(FrameError::SplitEnvelopeOverrun));
}

#[test]
fn parts_may_be_of_any_size() {
    let whole = envelope(5, 1, 20, 7);
    let mut bytes = BytesMut::new();
    for part in whole.chunks(4) {
        bytes.unsplit(raw_segment(part, false));
    }
    let decoded = decode_all(&mut decoder(SegmentFormat::Plain), &bytes, bytes.len()).unwrap();
    assert_eq!(decoded, [(1, vec![7; 20])]);
}

#[test]
fn an_envelope_over_the_limit_is_skipped_and_the_next_one_is_read() {
    for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
        for length in [2_000, 300_000] {
            let mut bytes = segments(format, &[envelope(5, 1, length, 0), envelope(5, 2, 3, 9)].concat());
            let mut decoder = Decoder::new(Role::Server, 1_000);
            decoder.start_segments(format);
            let error = decoder.next(&mut bytes).unwrap_err();
            assert!(matches!(error, FrameError::TooLarge { limit: 1_000, stream: 1, .. }), "{error}");
            assert!(!error.is_fatal());
            let next = decoder.next(&mut bytes).unwrap().unwrap();
            assert_eq!((next.header.stream, next.body), (2, &[9, 9, 9][..]));
            assert_eq!(decoder.next(&mut bytes), Ok(None));
        }
    }
}

#[test]
fn segments_are_bounded_as_long_as_they_are_to_be() {
    for format in [SegmentFormat::Plain, SegmentFormat::Lz4] {
        let fits = segments(format, &envelope(5, 1, 1_000, 0));
        let many = segments(format, &[envelope(5, 1, 900, 0), envelope(5, 2, 900, 0)].concat());
        let mut decoder = Decoder::new(Role::Server, 1 << 20);
        decoder.start_segments(format);
        decoder.set_limit(1_000, true);
        assert_eq!(decode_all(&mut decoder, &fits, fits.len()).unwrap().len(), 1);
        let refused = decode_all(&mut decoder, &many, many.len()).unwrap_err();
        assert_eq!(refused, FrameError::SegmentTooLarge { length: 1_818, limit: 1_009 });
        assert!(refused.is_fatal());
        let mut decoder = Decoder::new(Role::Server, 1 << 20);
        decoder.start_segments(format);
        decoder.set_limit(1_000, false);
        assert_eq!(decode_all(&mut decoder, &many, many.len()).unwrap().len(), 2);
    }
}

#[test]
fn an_empty_segment_is_refused() {
    let mut bytes = raw_segment(&[], true);
    assert_eq!(decoder(SegmentFormat::Plain).next(&mut bytes), Err(FrameError::EmptySegment));
}

/// One plain segment of any payload.
fn raw_segment(payload: &[u8], self_contained: bool) -> BytesMut {
    let bits = payload.len() as u32 | u32::from(self_contained) << 17;
    let fields = &bits.to_le_bytes()[..3];
    let mut out = BytesMut::from(fields);
    out.extend_from_slice(&crc24(fields).to_le_bytes()[..3]);
    out.extend_from_slice(payload);
    out.extend_from_slice(&crc32(payload).to_le_bytes());
    out
}
