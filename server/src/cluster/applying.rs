//! Installs a new state of the cluster on this node.
//!
//! Order: tables are created or altered in the engine of every shard; the state is made durable, with the tables that are
//! to be dropped; every shard installs it; clients are notified. Then the dropped tables leave the engines ([`super::drops`]). A crash
//! in between leaves engine tables that the catalog does not name: those that the next entry creates, which may hold
//! writes already, and those that are stored as dropped.

use crate::cluster::address_book::AddressBook;
use crate::cluster::liveness::LivenessMonitor;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use cql_lite::frame::Event;
use helenus_engine::TableId;
use helenus_engine::shard::TableOptions;
use helenus_feed_tables::columns;
use helenus_query::error::{RequestError, Result};
use helenus_query::schema::catalog::{Catalog, CatalogView, Keyspace, Table, TableKind};
use helenus_query::schema::ddl::{ChangeTarget, ChangeType, SchemaChangeEvent, event, protocol_change};
use helenus_ring::member::{Member, MemberState};
use helenus_ring::metadata::{ClusterState, Refusal};
use helenus_ring::view::ClusterView;
use helenus_roles::RolesStep;

use helenus_execution::shard::context::{ShardContext, on_every_shard};
use helenus_execution::shard::engine_options::engine_options;
use helenus_execution::shard::file_handling::FileHandling;
use helenus_node_files::at_rest::OpenAtRest;

/// The schema events for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaNotice {
    Nothing,
    Event(SchemaChangeEvent),
    /// Several changes at once, whose events were not kept: the difference between the catalogs.
    Difference,
}

/// Installs a state. `store` makes it durable. Runs on the first shard, one at a time.
pub async fn take_over(
    context: &Rc<ShardContext>,
    addresses: &AddressBook,
    old: &ClusterState,
    new: &ClusterState,
    notice: SchemaNotice,
    store: impl Future<Output = Result<()>>,
) -> Result<()> {
    if !Arc::ptr_eq(&old.catalog, &new.catalog) {
        choose_encryption(context, new)?;
    }
    let prepared = tables_to_prepare(&old.catalog, &new.catalog, &context.node.file_handling)?;
    if !prepared.is_empty() {
        on_every_shard(context, move |context| Box::pin(prepare(context, prepared.clone()))).await?;
    }
    store.await?;
    if !Arc::ptr_eq(&old.catalog, &new.catalog) {
        context.node.layers.get::<OpenAtRest>().get().note_catalog(&new.catalog);
    }
    presume_alive(context, old, new);
    let step = if notice == SchemaNotice::Difference { RolesStep::Several } else { RolesStep::Entry };
    install(context, new, step).await?;
    context.node.applied.send_replace(new.topology.version);
    remember_addresses(addresses, old, new);
    LivenessMonitor::of(context).wake();
    let own = context.node.host_id;
    if old.topology.members.contains_key(&own) && new.topology.removed.contains(&own) {
        context.node.learn_removed(&"the metadata log");
    }
    for event in events(old, new, notice) {
        // There may be no receiver.
        let _ = context.node.events.send(event);
    }
    Ok(())
}

/// Has files of the tables encrypted that a catalog encrypts. A node that could not encrypt them ends: it would write them plain. That takes a change from
/// while it was down, before it could tell the others that it has lost its keys. A node that is no member yet has no rows, and reads in the log of
/// tables from before: it does not become one while there is such a table.
fn choose_encryption(context: &ShardContext, state: &ClusterState) -> Result<()> {
    let catalog = &state.catalog;
    if !context.node.config.encryption_at_rest.encrypts_tables()
        && state.topology.member(&context.node.host_id).is_some()
        && let Some((keyspace, table)) = catalog.encrypted_table()
    {
        let (keyspace, table) = (keyspace.to_owned(), table.to_owned());
        let refusal = Refusal::PlainMember { host_id: context.node.host_id, keyspace, table };
        context.node.fatal.send_if_modified(|fatal| {
            let is_first = fatal.is_none();
            if is_first {
                tracing::error!(reason = %refusal, "the process ends: it would write the files of an encrypted table plain");
            }
            fatal.get_or_insert(refusal.to_string());
            is_first
        });
        return Err(RequestError::Server(refusal.to_string()));
    }
    context.node.layers.get::<OpenAtRest>().get().prepare_for_catalog(catalog);
    Ok(())
}

/// Counts members that have just begun to join as alive, so that they are written to from now on.
fn presume_alive(context: &ShardContext, old: &ClusterState, new: &ClusterState) {
    let own = context.node.host_id;
    for (host_id, member) in &new.topology.members {
        let is_new = old.is_founded() && old.topology.member(host_id).is_none();
        if is_new && *host_id != own && is_joining(member.state) {
            LivenessMonitor::of(context).presume_alive(context, *host_id);
        }
    }
}

/// Remembers the addresses of members that have just left, or whose join was cancelled: the metadata log must reach
/// them a while longer, so that they learn of it.
fn remember_addresses(addresses: &AddressBook, old: &ClusterState, new: &ClusterState) {
    let is_gone = |member: &&Arc<Member>| new.topology.member(&member.host_id).is_none();
    let gone = old.topology.members.values().filter(is_gone);
    addresses.borrow_mut().extend(gone.map(|member| (member.host_id, member.internode_address)));
}

/// Installs a state on every shard. `step`: what has led to its roles.
async fn install(context: &Rc<ShardContext>, state: &ClusterState, step: RolesStep) -> Result<()> {
    let present = context.catalog_view().clone();
    let is_same = Arc::ptr_eq(&present.catalog, &state.catalog);
    let generation = present.generation + u64::from(!is_same);
    let catalog = CatalogView::new(generation, state.catalog.clone());
    let alive = context.cluster().alive.clone();
    let cluster = Arc::new(ClusterView::new(state.topology.clone(), alive, &state.catalog));
    let (roles, denylist) = (state.roles.clone(), state.denylist.clone());
    on_every_shard(context, move |context| {
        let (catalog, cluster) = (catalog.clone(), cluster.clone());
        let (roles, denylist) = (roles.clone(), denylist.clone());
        Box::pin(async move {
            // Liveness may have changed since.
            let alive = context.cluster().alive.clone();
            context.install_roles(roles, step);
            context.install_denylist(denylist);
            context.install(catalog);
            context.install_cluster(if Arc::ptr_eq(&alive, &cluster.alive) {
                cluster
            } else {
                Arc::new(cluster.with_alive(alive))
            });
            Ok(())
        })
    })
    .await
}

async fn prepare(context: Rc<ShardContext>, tables: Vec<(TableId, TableOptions)>) -> Result<()> {
    let (known, missing): (Vec<_>, Vec<_>) =
        tables.into_iter().partition(|(id, _)| context.shard.has_table(*id));
    for (id, options) in known {
        context.shard.alter_table(id, options)?;
    }
    if !missing.is_empty() {
        context.shard.create_tables(&missing).await?;
    }
    Ok(())
}

/// The tables that are new or whose engine options may have changed, with these options.
pub fn tables_to_prepare(
    old: &Catalog,
    new: &Catalog,
    handling: &FileHandling,
) -> Result<Vec<(TableId, TableOptions)>> {
    let mut tables = Vec::new();
    for keyspace in new.keyspaces.values() {
        let known = old.keyspace(&keyspace.name);
        if known.is_some_and(|known| Arc::ptr_eq(known, keyspace)) {
            continue;
        }
        // Options depend on the keyspace's settings.
        let known = known.filter(|known| {
            known.durable_writes == keyspace.durable_writes && known.replication == keyspace.replication
        });
        let changed = Keyspace::table_differences(known.map(AsRef::as_ref), Some(keyspace));
        let stored = changed
            .into_iter()
            .filter_map(|(_, table)| table.filter(|table| table.kind == TableKind::Stored));
        for table in stored {
            tables.push((table.engine_id(), engine_options(keyspace, table, handling)?));
        }
    }
    Ok(tables)
}

fn events(old: &ClusterState, new: &ClusterState, notice: SchemaNotice) -> Vec<Event> {
    let mut events = Vec::new();
    // First: a member that takes the place of another one may have its address.
    for (host_id, member) in &old.topology.members {
        if !is_joining(member.state) && new.topology.member(host_id).is_none() {
            events.push(Event::NodeRemoved(member.native_address));
        }
    }
    for (host_id, member) in &new.topology.members {
        let was_normal = old.topology.member(host_id).is_some_and(|known| !is_joining(known.state));
        if !is_joining(member.state) && !was_normal && old.is_founded() {
            events.push(Event::NodeAdded(member.native_address));
        }
    }
    match notice {
        SchemaNotice::Nothing => {}
        SchemaNotice::Event(event) => {
            // A statement about a table changes the log of its feed, too.
            let logs = schema_difference(&old.catalog, &new.catalog).into_iter().filter(|change| {
                change.target == ChangeTarget::Table
                    && change.keyspace == event.keyspace
                    && columns::base_name(&change.name) == Some(event.name.as_str())
            });
            let changes = [event.clone()].into_iter().chain(logs);
            events.extend(changes.map(|change| Event::SchemaChange(protocol_change(change))));
        }
        SchemaNotice::Difference => {
            let changes = schema_difference(&old.catalog, &new.catalog);
            events.extend(changes.into_iter().map(|change| Event::SchemaChange(protocol_change(change))));
        }
    }
    events
}

fn is_joining(state: MemberState) -> bool {
    matches!(state, MemberState::Joining(_))
}

/// The events of the changes that may have led from one catalog to another.
fn schema_difference(old: &Catalog, new: &Catalog) -> Vec<SchemaChangeEvent> {
    let mut events = Vec::new();
    for (name, keyspace) in &new.keyspaces {
        match old.keyspace(name) {
            None => {
                events.push(event(ChangeType::Created, ChangeTarget::Keyspace, name, ""));
                keyspace_difference(None, keyspace, &mut events);
            }
            Some(known) if Arc::ptr_eq(known, keyspace) => {}
            Some(known) => {
                let settings = |keyspace: &Keyspace| (keyspace.replication.clone(), keyspace.durable_writes);
                if settings(known) != settings(keyspace) {
                    events.push(event(ChangeType::Updated, ChangeTarget::Keyspace, name, ""));
                }
                keyspace_difference(Some(known), keyspace, &mut events);
            }
        }
    }
    let gone = old.keyspaces.keys().filter(|name| !new.keyspaces.contains_key(*name));
    events.extend(gone.map(|name| event(ChangeType::Dropped, ChangeTarget::Keyspace, name, "")));
    events
}

fn keyspace_difference(old: Option<&Arc<Keyspace>>, new: &Keyspace, events: &mut Vec<SchemaChangeEvent>) {
    let known = |change, target, name: &str| event(change, target, &new.name, name);
    for (name, user_type) in &new.types {
        match old.and_then(|old| old.types.get(name)) {
            None => events.push(known(ChangeType::Created, ChangeTarget::Type, name)),
            Some(before) if before != user_type => {
                events.push(known(ChangeType::Updated, ChangeTarget::Type, name));
            }
            Some(_) => {}
        }
    }
    for (before, table) in Keyspace::table_differences(old.map(AsRef::as_ref), Some(new)) {
        let of_table = |change, table: &Table| known(change, ChangeTarget::Table, &table.name);
        let is_same = before.zip(table).is_some_and(|(before, table)| before.id == table.id);
        match (before, table) {
            (Some(before), Some(table)) if is_same => {
                if before.columns != table.columns || before.options != table.options {
                    events.push(of_table(ChangeType::Updated, table));
                }
            }
            (before, table) => {
                events.extend(before.map(|before| of_table(ChangeType::Dropped, before)));
                events.extend(table.map(|table| of_table(ChangeType::Created, table)));
            }
        }
    }
    let Some(old) = old else { return };
    for name in old.types.keys().filter(|name| !new.types.contains_key(*name)) {
        events.push(known(ChangeType::Dropped, ChangeTarget::Type, name));
    }
}
