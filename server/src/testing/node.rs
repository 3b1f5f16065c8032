//! Opens a node of one thread from its parts.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use helenus_config::Config;
use helenus_engine::io::{Clock, Disk, Environment, InlineBackground, SeededRandom, SplitMix64};
use helenus_internode::transport::Transport;
use helenus_query::functions::UuidSource;
use helenus_ring::HostId;
use helenus_testing::uuids::random_uuid;

use crate::node::addresses::Addresses;
use crate::node::assembly::{self, Assembled};
use crate::node::error::StartError;
use crate::node::identity::Identity;
use crate::node::serve::serve;
use crate::node::user_functions;
use helenus_execution::planted::PlantedBug;
use helenus_execution::shard::context::{ShardContext, ShardParts};
use helenus_node_files::small_files::NodeFiles;

/// The parts of a node, and the seed of its random numbers.
pub struct NodeParts<'a> {
    pub config: Config,
    /// The id of a node whose disk is empty.
    pub host_id: HostId,
    /// For other nodes; clients use another port.
    pub address: SocketAddr,
    pub disk: Arc<dyn Disk>,
    pub clock: Rc<dyn Clock>,
    pub transport: Rc<dyn Transport>,
    pub uuids: &'static dyn UuidSource,
    pub planted_bug: Option<PlantedBug>,
    pub random: &'a RefCell<SplitMix64>,
}

impl NodeParts<'_> {
    /// Opens the data directory, or makes it.
    pub async fn open_files(&self) -> Result<(NodeFiles, Identity), StartError> {
        let files = NodeFiles::open(self.disk.clone(), self.config.data_dir.clone()).await?;
        let shards = self.config.shards.unwrap_or(1);
        let identity = Identity::load_or_create(&files, Some(shards), || {
            Identity::with_tokens(self.host_id, shards, self.config.num_tokens)
        })
        .await?;
        Ok((files, identity))
    }

    /// Reads the stored state; no shard is open yet.
    pub async fn assemble(&self) -> Result<Assembled, StartError> {
        let (files, identity) = self.open_files().await?;
        let addresses = Addresses {
            native: SocketAddr::new(self.address.ip(), 9042),
            shard_aware_port: 19042,
            internode: Some(self.address),
            listen: Some(self.address.ip()),
        };
        let catalog_version = random_uuid(&mut self.random.borrow_mut());
        assembly::assemble(assembly::NodeParts {
            config: self.config.clone(),
            identity,
            addresses,
            files,
            started_seconds: self.clock.now_seconds(),
            catalog_version,
        })
        .await
    }

    /// Opens all shards and serves their queues in the present set of tasks.
    pub async fn open(self) -> Result<Vec<Rc<ShardContext>>, StartError> {
        let Assembled { shared, queues, state } = self.assemble().await?;
        let mut shards = Vec::with_capacity(queues.len());
        for (index, queue) in queues.into_iter().enumerate() {
            let random_seed = self.random.borrow_mut().next_u64();
            let parts = ShardParts {
                environment: Environment {
                    disk: self.disk.clone(),
                    background: Rc::new(InlineBackground::new(self.disk.clone(), self.clock.clone())),
                    clock: self.clock.clone(),
                    random: Rc::new(SeededRandom::new(!random_seed)),
                },
                transport: self.transport.clone(),
                random_seed,
                uuids: self.uuids,
                user_functions: user_functions(&self.config),
                planted_bug: self.planted_bug,
            };
            let shard = assembly::open_shard(index, shared.clone(), parts, state.clone()).await?;
            tokio::task::spawn_local(serve(shard.clone(), queue));
            shards.push(shard);
        }
        Ok(shards)
    }
}

/// Starts the work of all shards: clients may come.
pub async fn begin(shards: &[Rc<ShardContext>]) -> Result<(), StartError> {
    for shard in shards {
        assembly::begin(shard)
            .await
            .map_err(|error| StartError::Shard { shard: shard.index, message: error.to_string() })?;
    }
    Ok(())
}
