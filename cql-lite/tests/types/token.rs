//! Tokens and shards against the values that drivers compute.

use cql_lite::types::token::{
    composite_components, murmur3_first_half, shard_of, token, write_composite_component,
};
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    cql_lite::types::literal::parse_hex(text).unwrap()
}

#[test]
fn tokens_of_drivers() {
    let cases: [(Vec<u8>, i64); 31] = [
        (b"123".to_vec(), -7_468_325_962_851_647_638),
        (hex("00ff10fa99").repeat(10), 5_837_342_703_291_459_765),
        (vec![0xFE; 8], -8_927_430_733_708_461_935),
        (vec![0x10; 8], 1_446_172_840_243_228_796),
        (b"9223372036854775807".to_vec(), 7_162_290_910_810_015_547),
        (b"test".to_vec(), -6_017_608_668_500_074_083),
        (b"xd".to_vec(), 4_507_812_186_440_344_727),
        (b"primary_key".to_vec(), -1_632_642_444_691_073_360),
        ("kremówki".as_bytes().to_vec(), 4_354_931_215_268_080_151),
        (hex("00104327529fb645dd00b883ec39ae448bb800000400066a6b00"), -9_223_371_632_693_506_265),
        (hex("0102030405060708090a0b0c0d0e0f10"), -5_563_837_382_979_743_776),
        (hex("02030405060708090a0b0c0d0e0f1011"), -1_513_403_162_740_402_161),
        (vec![0xFF; 16], -2_824_192_546_314_762_522),
        (hex("00010203ffffffffffffffffffffffff"), 6_463_632_673_159_404_390),
        (vec![0xFE; 17], -1_672_437_813_826_982_685),
        (vec![0xFE; 4], 4_566_408_979_886_474_012),
        (vec![0; 4], -3_485_513_579_396_041_028),
        (hex("00017f7f"), 6_573_459_401_642_635_627),
        (hex("e2e7e2e7e2e701"), 2_222_373_981_930_033_306),
        (hex("0000000000000080"), 78_142_285_821_850_151),
        (b"hello".to_vec(), 0xcbd8_a7b3_41bd_9b02_u64 as i64),
        (b"hello, world".to_vec(), 0x342f_ac62_3a5e_bc8e),
        (b"19 Jan 2038 at 3:14:07 AM".to_vec(), 0xb89e_5988_b737_affc_u64 as i64),
        (b"The quick brown fox jumps over the lazy dog.".to_vec(), 0xcd99_481f_9ee9_02c9_u64 as i64),
        (1i32.to_be_bytes().to_vec(), -4_069_959_284_402_364_209),
        ((-1i32).to_be_bytes().to_vec(), 7_297_452_126_230_313_552),
        (1i64.to_be_bytes().to_vec(), 6_292_367_497_774_912_474),
        (b"a".to_vec(), -8_839_064_797_231_613_815),
        (hex("0004000000010000016100"), 6_516_349_416_904_725_244),
        (composite(&[b"a", b""]), -7_005_710_260_653_943_986),
        (composite(&[&1i32.to_be_bytes(), &2i32.to_be_bytes()]), 4_881_097_376_275_569_167),
    ];
    for (key, expected) in cases {
        assert_eq!(token(&key), expected, "{key:?}");
    }
}

#[test]
fn hashes_of_every_tail_length() {
    const HASHES: [u64; 20] = [
        0x0,
        0x2ac9_debe_d546_a380,
        0x649e_4eaa_7fc1_708e,
        0xce68_f60d_7c35_3bdb,
        0x0f95_757c_e7f3_8254,
        0x0f04_e459_497f_3fc1,
        0x88c0_a925_86be_0a27,
        0x13eb_9fb8_2606_f7a6,
        0x8236_039b_7387_354d,
        0x4c1e_8751_9fe7_38ba,
        0x3f96_52ac_3eff_eb24,
        0x3f33_760d_ed90_06c6,
        0xaed7_0a66_3185_4cb1,
        0x8a29_9a8f_8e0e_2da7,
        0x624b_675c_7792_49a6,
        0xa4b2_03bb_1d90_b9a3,
        0xa329_3ad6_98ec_b99a,
        0xbc74_0023_dbd5_0048,
        0x3fe5_ab98_37d2_5cdd,
        0x2d03_38c1_ca87_d132,
    ];
    for (length, expected) in HASHES.iter().enumerate() {
        assert_eq!(murmur3_first_half(&b"0123456789012345678"[..length]) as u64, *expected, "{length}");
    }
}

fn composite(components: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::new();
    for component in components {
        assert!(write_composite_component(component, &mut key));
    }
    key
}

#[test]
fn composite_keys_are_framed() {
    let key = composite(&[&1i32.to_be_bytes(), b"a"]);
    assert_eq!(key, hex("0004000000010000016100"));
    assert_eq!(composite_components(&key).collect::<Vec<_>>(), [&[0, 0, 0, 1][..], b"a"]);
    assert!(!write_composite_component(&vec![0; 65_536], &mut Vec::new()));
    assert_eq!(composite_components(&key[..7]).count(), 1);
}

#[test]
fn shards_of_drivers() {
    assert_eq!(shard_of(-9_219_783_007_514_621_794, 4, 12), 3);
    assert_eq!(shard_of(9_222_582_454_147_032_830, 4, 12), 3);
    for (key, shard) in [("a", 4), ("b", 6), ("c", 6), ("e", 4), ("100000", 2)] {
        assert_eq!(shard_of(token(key.as_bytes()), 12, 12), shard, "{key}");
    }
    for (shards, expected) in [(8, [6, 7, 3]), (3, [2, 2, 1]), (2, [1, 1, 0]), (1, [0, 0, 0])] {
        let actual = ["test", "xd", "primary_key"].map(|key| shard_of(token(key.as_bytes()), shards, 12));
        assert_eq!(actual, expected, "{shards}");
    }
}

proptest! {
    #[test]
    fn whole_blocks_hash_as_the_textbook_says(blocks in proptest::collection::vec(any::<[u8; 16]>(), 0..6)) {
        let key = blocks.concat();
        let both = murmur3::murmur3_x64_128(&mut key.as_slice(), 0).unwrap();
        prop_assert_eq!(murmur3_first_half(&key), both as u64 as i64);
    }

    #[test]
    fn a_shard_is_one_of_the_shards(token in any::<i64>(), shards in 1..200u32) {
        prop_assert!(shard_of(token, shards, 12) < shards);
    }
}
