//! Which files of a disk are encrypted, where not all are.

use std::path::Path;

/// Decides by the path of a file. Its answers may change while the disk is used; each call goes by the present one.
pub trait Scope: Send + Sync {
    /// Whether a file that is made at this path is encrypted.
    fn encrypts(&self, path: &Path) -> bool;

    /// Whether a file at this path may be plain, also where plain files are refused.
    fn accepts_plain(&self, path: &Path) -> bool;

    /// Whether no plain file of another directory may be linked to this path: it is copied, and the copy is encrypted.
    fn refuses_links(&self, path: &Path) -> bool;
}
