//! What is loaded from files for the connections of one kind: those of clients, or those between nodes.
//!
//! Invariants: a connection is made with one complete set of files; files that cannot be used leave the former set in use, and are told
//! once for each change; no session is resumed where certificates of peers are checked, so a certificate that has expired or is
//! revoked opens no connection.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::TlsError;
use crate::files::{Files, Stamp};
use crate::material::{Material, Use, load};
use crate::names::date;
use crate::stream::Stream;

/// Days before the expiry of a certificate on which it is told.
pub const HINT_DAYS: [i64; 3] = [30, 7, 1];
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The set of files that is in use.
pub struct Encryption {
    files: Files,
    purpose: Use,
    state: Mutex<State>,
}

struct State {
    material: Arc<Material>,
    /// Of the files when they were last loaded, whether or not they could be used.
    stamps: Vec<Option<Stamp>>,
    /// The hint of an expiry that was given last, in days.
    hinted_days: Option<i64>,
}

impl Encryption {
    pub fn open(files: Files, purpose: Use, now_seconds: i64) -> Result<Self, TlsError> {
        let stamps = files.stamps();
        let material = Arc::new(load(&files, purpose, 1, now_seconds)?);
        Ok(Self { files, purpose, state: Mutex::new(State { material, stamps, hinted_days: None }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a whole one: a panic of another holder of the lock leaves the state usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The set for the next connection.
    pub fn material(&self) -> Arc<Material> {
        self.state().material.clone()
    }

    pub fn certificate_path(&self) -> &Path {
        &self.files.certificate
    }

    /// Loads the files if one has changed since they were last loaded. Returns whether they are in use now. It reads from the disk.
    pub fn reload_if_changed(&self, now_seconds: i64) -> Result<bool, TlsError> {
        let stamps = self.files.stamps();
        if self.state().stamps == stamps {
            return Ok(false);
        }
        self.reload(now_seconds).map(|()| true)
    }

    /// Loads the files. It reads from the disk. If they cannot be used, the former ones stay in use.
    pub fn reload(&self, now_seconds: i64) -> Result<(), TlsError> {
        // Taken before they are read: a file that changes meanwhile is read again the next time.
        let stamps = self.files.stamps();
        let number = self.material().number + 1;
        let loaded = load(&self.files, self.purpose, number, now_seconds);
        let mut state = self.state();
        state.stamps = stamps;
        state.material = Arc::new(loaded?);
        state.hinted_days = None;
        Ok(())
    }

    /// Why a connection whose other side has shown a certificate must end: it has expired, or it is not accepted any more with the
    /// files that were loaded since.
    pub fn objection(&self, stream: &Stream, now_seconds: i64) -> Option<String> {
        let names = stream.peer_names()?;
        if names.not_after_seconds < now_seconds {
            return Some(format!("it was valid until {}", date(names.not_after_seconds)));
        }
        let material = self.material();
        let verifier = material.verifier.as_ref()?;
        if stream.material_number() == Some(material.number) {
            return None;
        }
        match stream.peer_certificates_accepted_by(verifier, now_seconds) {
            Ok(()) => {
                stream.note_material(material.number);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Seconds until the certificate expires; negative afterwards.
    pub fn seconds_until_expiry(&self, now_seconds: i64) -> i64 {
        self.material().expires_seconds.saturating_sub(now_seconds)
    }

    /// The seconds that are left, if another threshold of [`HINT_DAYS`] has been passed since the last call.
    pub fn take_expiry_hint(&self, now_seconds: i64) -> Option<i64> {
        let left = self.seconds_until_expiry(now_seconds);
        let passed = HINT_DAYS.into_iter().chain([0]).filter(|days| left <= days * DAY_SECONDS).min()?;
        let mut state = self.state();
        if state.hinted_days == Some(passed) {
            return None;
        }
        state.hinted_days = Some(passed);
        Some(left)
    }
}
