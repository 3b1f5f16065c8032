//! Opens the store at an address.

use crate::address::{StoreAddress, StoreOptions};
use crate::directory::DirectoryStore;
use crate::error::StoreError;
use crate::store::Store;

/// Opens a store. Whether it answers shows at the first request.
pub fn open(options: &StoreOptions) -> Result<Box<dyn Store>, StoreError> {
    let refused = |reason| StoreError::Address { address: options.address.clone(), reason };
    match StoreAddress::parse(&options.address).map_err(refused)? {
        StoreAddress::Directory(path) => Ok(Box::new(DirectoryStore::new(path))),
        #[cfg(feature = "s3")]
        StoreAddress::S3 { bucket, prefix } => {
            Ok(Box::new(crate::s3::S3Store::new(options, bucket, prefix)?))
        }
        #[cfg(not(feature = "s3"))]
        StoreAddress::S3 { .. } => Err(refused("this program was built without the feature `s3`")),
    }
}
