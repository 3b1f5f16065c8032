//! The source of the bytes that a table takes on disk: only an embedded node has the exact number at once.

use std::pin::Pin;

use crate::error::Error;

/// A future that may be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Answers how many bytes a table takes on disk once all of it is there.
pub trait DiskUsage: Send + Sync {
    /// Bytes of the table's files once flushed and compacted; `None` when the server has no exact answer.
    fn table_bytes<'a>(
        &'a self,
        keyspace: &'a str,
        table: &'a str,
    ) -> BoxFuture<'a, Result<Option<u64>, Error>>;
}

/// For servers that are asked over CQL: `system.size_estimates` there is refreshed every few minutes and
/// `system_views.disk_usage` counts whole MiB, so neither is precise enough for the bytes of a point.
#[derive(Debug, Clone, Copy)]
pub struct NotAvailable;

impl DiskUsage for NotAvailable {
    fn table_bytes<'a>(
        &'a self,
        _keyspace: &'a str,
        _table: &'a str,
    ) -> BoxFuture<'a, Result<Option<u64>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Asks a function of the embedded node, which flushes and compacts the table before it counts.
pub struct FromNode<F>(pub F);

impl<F, A> DiskUsage for FromNode<F>
where
    F: Fn(String, String) -> A + Send + Sync,
    A: Future<Output = Result<u64, String>> + Send + 'static,
{
    fn table_bytes<'a>(
        &'a self,
        keyspace: &'a str,
        table: &'a str,
    ) -> BoxFuture<'a, Result<Option<u64>, Error>> {
        let answer = (self.0)(keyspace.to_owned(), table.to_owned());
        Box::pin(async move {
            answer
                .await
                .map(Some)
                .map_err(|detail| Error::DiskUsage { table: format!("{keyspace}.{table}"), detail })
        })
    }
}
