//! A store that speaks the protocol of S3, by the crate `object_store`.
//!
//! Invariant: what is put in parts is there when its last request is answered; parts of one that was cut off stay in the keeping of the bucket,
//! which is to be told to remove them (`AbortIncompleteMultipartUpload`).

mod http;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    BackoffConfig, MultipartUpload, ObjectStore, ObjectStoreExt, PutMultipartOptions, RetryConfig,
};

use self::http::{HyperConnector, text};
use crate::address::StoreOptions;
use crate::error::StoreError;
use crate::store::{Contents, ObjectInParts, Store, StoreFuture, StoredObject};

/// How often a request is sent again, and for how long at most. Together with the pauses it is less than an operator's command waits for a
/// report while the store refuses connections.
const RETRIES: usize = 6;
const RETRY_TIMEOUT: Duration = Duration::from_mins(3);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Silence within contents or a list after which it is an error.
const PIECE_TIMEOUT: Duration = Duration::from_mins(1);

/// A bucket, or a part of one.
#[derive(Debug, Clone)]
pub struct S3Store {
    bucket: Arc<AmazonS3>,
    address: String,
    /// What the names of objects begin with in the bucket.
    prefix: String,
}

/// Puts the parts together that errors are made of.
fn failed(action: &'static str, object: &str, store: &str, error: &object_store::Error) -> StoreError {
    let (object, store) = (object.to_owned(), store.to_owned());
    match error {
        object_store::Error::NotFound { .. } if action == "read" => StoreError::Missing { object, store },
        error => StoreError::Object { action, object, store, reason: text(error) },
    }
}

fn silent(action: &'static str, object: &str, store: &str) -> StoreError {
    let reason = format!("nothing has come for {} seconds", PIECE_TIMEOUT.as_secs());
    StoreError::Object { action, object: object.to_owned(), store: store.to_owned(), reason }
}

impl S3Store {
    /// Without `access_key_id` in the options the variables `AWS_…` of the environment count, and where there are none the machine's role.
    pub fn new(options: &StoreOptions, bucket: String, prefix: String) -> Result<Self, StoreError> {
        let mut builder = if let Some(key) = &options.access_key_id {
            let mut builder = AmazonS3Builder::new().with_access_key_id(key);
            if let Some(secret) = options.secret()? {
                builder = builder.with_secret_access_key(secret);
            }
            builder
        } else {
            AmazonS3Builder::from_env()
        };
        if let Some(region) = &options.region {
            builder = builder.with_region(region);
        }
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        let retry = RetryConfig {
            backoff: BackoffConfig { init_backoff: FIRST_PAUSE, max_backoff: LONGEST_PAUSE, base: 2.0 },
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
        };
        let built =
            builder.with_bucket_name(bucket).with_retry(retry).with_http_connector(HyperConnector).build();
        let bucket = built
            .map_err(|error| StoreError::Unusable { store: options.address.clone(), reason: text(&error) })?;
        Ok(Self { bucket: Arc::new(bucket), address: options.address.clone(), prefix })
    }

    fn path(&self, action: &'static str, name: &str) -> Result<Path, StoreError> {
        Path::parse(format!("{}{name}", self.prefix))
            .map_err(|error| failed(action, name, &self.address, &error.into()))
    }

    /// A name without what all in the bucket begin with.
    fn name(&self, path: &Path) -> Option<String> {
        path.as_ref().strip_prefix(&self.prefix).map(str::to_owned)
    }
}

impl Store for S3Store {
    fn address(&self) -> &str {
        &self.address
    }

    fn list<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<StoredObject>> {
        async move {
            let path = self.path("list", folder)?;
            let mut listing = self.bucket.list(Some(&path));
            let mut found = Vec::new();
            loop {
                let next = tokio::time::timeout(PIECE_TIMEOUT, listing.next()).await;
                let Some(entry) = next.map_err(|_| silent("list", folder, &self.address))? else { break };
                let entry = entry.map_err(|error| failed("list", folder, &self.address, &error))?;
                let name = self.name(&entry.location);
                found.extend(name.map(|name| StoredObject { name, bytes: entry.size }));
            }
            found.sort();
            Ok(found)
        }
        .boxed()
    }

    fn folders<'a>(&'a self, folder: &'a str) -> StoreFuture<'a, Vec<String>> {
        async move {
            let path = self.path("list", folder)?;
            let listing = self.bucket.list_with_delimiter(Some(&path)).await;
            let listing = listing.map_err(|error| failed("list", folder, &self.address, &error))?;
            let folders = listing.common_prefixes.iter();
            let mut names: Vec<String> = folders
                .filter_map(|path| path.parts().next_back().map(|part| part.as_ref().to_owned()))
                .collect();
            names.sort();
            Ok(names)
        }
        .boxed()
    }

    fn size<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Option<u64>> {
        async move {
            match self.bucket.head(&self.path("look at", name)?).await {
                Ok(found) => Ok(Some(found.size)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(failed("look at", name, &self.address, &error)),
            }
        }
        .boxed()
    }

    fn get<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Contents> {
        async move {
            let got = self.bucket.get(&self.path("read", name)?).await;
            let got = got.map_err(|error| failed("read", name, &self.address, &error))?;
            let (name, store) = (name.to_owned(), self.address.clone());
            let pieces = futures::stream::try_unfold(got.into_stream(), move |mut pieces| {
                let (name, store) = (name.clone(), store.clone());
                async move {
                    let next = tokio::time::timeout(PIECE_TIMEOUT, pieces.next()).await;
                    let piece = next.map_err(|_| silent("read", &name, &store))?.transpose();
                    let piece = piece.map_err(|error| failed("read", &name, &store, &error))?;
                    Ok(piece.map(|piece| (piece, pieces)))
                }
            });
            Ok(pieces.boxed())
        }
        .boxed()
    }

    fn put<'a>(&'a self, name: &'a str, contents: Bytes) -> StoreFuture<'a, ()> {
        async move {
            let put = self.bucket.put(&self.path("write", name)?, contents.into()).await;
            put.map(drop).map_err(|error| failed("write", name, &self.address, &error))
        }
        .boxed()
    }

    fn begin<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Box<dyn ObjectInParts>> {
        async move {
            let path = self.path("write", name)?;
            let begun = self.bucket.put_multipart_opts(&path, PutMultipartOptions::default()).await;
            let upload = begun.map_err(|error| failed("write", name, &self.address, &error))?;
            let (name, store) = (name.to_owned(), self.address.clone());
            Ok(Box::new(S3Parts { upload, name, store }) as Box<dyn ObjectInParts>)
        }
        .boxed()
    }

    fn delete<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        async move {
            match self.bucket.delete(&self.path("remove", name)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(failed("remove", name, &self.address, &error)),
            }
        }
        .boxed()
    }
}

/// An object in parts.
struct S3Parts {
    upload: Box<dyn MultipartUpload>,
    name: String,
    store: String,
}

impl ObjectInParts for S3Parts {
    fn part(&mut self, contents: Bytes) -> StoreFuture<'_, ()> {
        let put = self.upload.put_part(contents.into());
        let (name, store) = (&self.name, &self.store);
        async move { put.await.map_err(|error| failed("write", name, store, &error)) }.boxed()
    }

    fn complete(mut self: Box<Self>) -> StoreFuture<'static, ()> {
        async move {
            let completed = self.upload.complete().await;
            completed.map(drop).map_err(|error| failed("write", &self.name, &self.store, &error))
        }
        .boxed()
    }

    fn abandon(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            // The bucket's own rule removes what is left.
            let _ = self.upload.abort().await;
        }
        .boxed()
    }
}
