//! The store of uploaded snapshots, as it is shown to people.

use std::fmt::Write;

use crate::reports::uploads::{DownloadReport, RemovalReport, UploadReport, UploadsReport};
use crate::tables::{bytes, columns, row};

fn moved(file_count: u64, all: u64, new_file_count: u64, new: u64) -> String {
    format!("{file_count} files ({}), of which {new_file_count} are new ({})", bytes(all), bytes(new))
}

/// What was uploaded, in a line.
pub fn uploaded(report: &UploadReport) -> String {
    let UploadReport { table_count, file_count, bytes, new_file_count, new_bytes } = *report;
    format!("uploaded {table_count} tables, {}\n", moved(file_count, bytes, new_file_count, new_bytes))
}

/// What was removed, in a line.
pub fn removed(report: &RemovalReport) -> String {
    format!("removed {} objects ({})\n", report.object_count, bytes(report.bytes))
}

/// What was downloaded.
pub fn downloaded(report: &DownloadReport) -> String {
    let files = moved(report.file_count, report.bytes, report.new_file_count, report.new_bytes);
    format!(
        "downloaded {files}, of the hosts {}\n`helenus admin import {}` writes their rows\n",
        report.hosts.join(", "),
        report.directory
    )
}

/// The uploads of all hosts.
pub fn listed(report: &UploadsReport) -> String {
    let mut text = format!("store: {}\n", report.store);
    if let Some(running) = &report.under_way {
        let (done, all) = (bytes(running.bytes_done), bytes(running.bytes));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "under way on this node: {} of {}, {} of {} files, {done} of {all}",
            running.operation, running.snapshot, running.files_done, running.file_count
        );
    }
    if report.uploads.is_empty() {
        return text + "There are no uploads\n";
    }
    let mut rows = vec![row(&["Name", "Host", "Keyspace", "Table", "Files", "Size", "Created", "Uploaded"])];
    for upload in &report.uploads {
        rows.extend(upload.tables.iter().map(|known| {
            let table = if known.table.is_empty() { &known.table_id } else { &known.table };
            row(&[
                &upload.snapshot,
                &upload.host_id,
                &known.keyspace,
                table,
                &known.file_count.to_string(),
                &bytes(known.bytes),
                &known.created_at,
                &upload.uploaded_at,
            ])
        }));
    }
    if rows.len() > 1 {
        text += &columns(&rows);
    }
    for upload in &report.uploads {
        if let Some(error) = &upload.error {
            let _ = writeln!(text, "{} of {}: {error}", upload.snapshot, upload.host_id);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::uploads::{ListedUpload, StoreProgress, UploadedTable};

    #[test]
    fn uploads_are_shown_by_table_and_damage_by_name() {
        let table = UploadedTable {
            keyspace: "shop".to_owned(),
            table: "orders".to_owned(),
            table_id: "07".to_owned(),
            created_at: "c".to_owned(),
            file_count: 2,
            bytes: 2048,
        };
        let whole = ListedUpload {
            host_id: "h".to_owned(),
            snapshot: "monday".to_owned(),
            uploaded_at: "u".to_owned(),
            tables: vec![table],
            error: None,
        };
        let damaged = ListedUpload {
            tables: Vec::new(),
            snapshot: "tuesday".to_owned(),
            error: Some("it is damaged".to_owned()),
            ..whole.clone()
        };
        let under_way = StoreProgress {
            operation: "upload".to_owned(),
            snapshot: "wednesday".to_owned(),
            file_count: 4,
            files_done: 1,
            bytes: 1024,
            bytes_done: 512,
        };
        let report = UploadsReport {
            store: "/s".to_owned(),
            uploads: vec![whole, damaged],
            under_way: Some(under_way),
        };
        assert_eq!(
            listed(&report),
            "store: /s\nunder way on this node: upload of wednesday, 1 of 4 files, 512 bytes of 1.00 KiB\n\
             Name    Host  Keyspace  Table   Files  Size      Created  Uploaded\n\
             monday  h     shop      orders  2      2.00 KiB  c        u\n\
             tuesday of h: it is damaged\n"
        );
        assert!(listed(&UploadsReport::default()).ends_with("There are no uploads\n"));
    }
}
