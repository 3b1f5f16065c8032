//! Rows for property tests: of few columns, values and timestamps, so that their parts meet.

use proptest::prelude::*;

use crate::cell::{Cell, CellKind, Deletion, Expiry, Liveness};
use crate::row_writer::RowBuilder;

pub(super) const VALUES: [&[u8]; 3] = [b"", b"a", b"b"];

fn kind() -> impl Strategy<Value = CellKind> {
    prop_oneof![
        Just(CellKind::Live),
        (0..4_u32, 0..4_u32).prop_map(|(ttl, expires_at)| CellKind::Expiring(Expiry { ttl, expires_at })),
        (0..4_u32).prop_map(|local_deletion_time| CellKind::Tombstone { local_deletion_time }),
    ]
}

pub fn deletion() -> impl Strategy<Value = Deletion> {
    (0..5_i64, 0..4_u32)
        .prop_map(|(timestamp, local_deletion_time)| Deletion { timestamp, local_deletion_time })
}

pub fn row() -> impl Strategy<Value = Vec<u8>> {
    let liveness = proptest::option::of((0..6_i64, proptest::option::of((0..4_u32, 0..4_u32))));
    let cell = (0..3_u32, 0..3_usize, 0..6_i64, kind(), 0..3_usize);
    (
        liveness,
        proptest::option::weighted(0.2, deletion()),
        proptest::collection::vec((0..3_u32, deletion()), 0..2),
        proptest::collection::vec(cell, 0..6),
    )
        .prop_map(|(liveness, deletion, columns, cells)| {
            let mut builder = RowBuilder::new();
            if let Some((timestamp, expiry)) = liveness {
                let expiry = expiry.map(|(ttl, expires_at)| Expiry { ttl, expires_at });
                builder.set_liveness(Liveness { timestamp, expiry });
            }
            if let Some(deletion) = deletion {
                builder.set_deletion(deletion);
            }
            for (column, deletion) in columns {
                builder.delete_column(column, deletion);
            }
            for (column, path, timestamp, kind, value) in cells {
                let (path, value) = (VALUES[path], VALUES[value]);
                builder.cell(Cell { column, path, timestamp, kind, value });
            }
            let bytes = builder.to_bytes();
            if bytes.is_empty() { vec![0] } else { bytes }
        })
}
