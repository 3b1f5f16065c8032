//! Addresses that the topology does not have any more.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use helenus_ring::HostId;

/// Addresses of nodes that participate in the log and are not members (yet).
pub type AddressBook = Rc<RefCell<BTreeMap<HostId, SocketAddr>>>;
