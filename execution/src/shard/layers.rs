//! State that upper layers keep with a shard or with a node: one value for each type, added when the node is
//! assembled.
//!
//! The shard returns these values by their type and knows nothing else about them, so no layer depends on a layer
//! above it. Each layer has its own accessor, for example `ShardContext::paxos`.
//!
//! Invariant: a node is assembled with the states of all its layers. Asking for a missing state is a bug.

use std::any::{Any, TypeId, type_name};

/// States of layers by their type: `dyn Any` for one thread, `dyn Any + Send + Sync` for all threads of a node.
pub struct LayerStates<A: ?Sized> {
    states: Vec<(TypeId, Box<A>)>,
}

/// The states of the layers on one shard.
pub type ShardLayers = LayerStates<dyn Any>;
/// The states of the layers on a node, shared by its shards.
pub type NodeLayers = LayerStates<dyn Any + Send + Sync>;

impl<A: ?Sized> Default for LayerStates<A> {
    fn default() -> Self {
        Self { states: Vec::new() }
    }
}

impl ShardLayers {
    /// Adds the state of a layer. Add the most used states first: they are searched in this order.
    #[must_use]
    pub fn with<T: Any>(mut self, state: T) -> Self {
        assert!(self.find::<T>().is_none(), "{} is part of this shard already", type_name::<T>());
        self.states.push((TypeId::of::<T>(), Box::new(state)));
        self
    }

    /// The state of a layer.
    #[inline]
    pub fn get<T: Any>(&self) -> &T {
        let state = self.find::<T>().and_then(|state| state.downcast_ref());
        state.unwrap_or_else(|| missing::<T>())
    }
}

impl NodeLayers {
    /// Adds the state of a layer. Add the most used states first: they are searched in this order.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, state: T) -> Self {
        assert!(self.find::<T>().is_none(), "{} is part of this node already", type_name::<T>());
        self.states.push((TypeId::of::<T>(), Box::new(state)));
        self
    }

    /// The state of a layer.
    #[inline]
    pub fn get<T: Any + Send + Sync>(&self) -> &T {
        let state = self.find::<T>().and_then(|state| state.downcast_ref());
        state.unwrap_or_else(|| missing::<T>())
    }
}

impl<A: ?Sized> LayerStates<A> {
    #[inline]
    fn find<T: Any>(&self) -> Option<&A> {
        let wanted = TypeId::of::<T>();
        self.states.iter().find(|(id, _)| *id == wanted).map(|(_, state)| &**state)
    }
}

#[cold]
fn missing<T>() -> ! {
    unreachable!("the node was assembled without {}", type_name::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_layer_finds_its_own_state() {
        let layers = ShardLayers::default().with(7_u32).with("seven");
        assert_eq!((*layers.get::<u32>(), *layers.get::<&str>()), (7, "seven"));
        let layers = NodeLayers::default().with(8_u64);
        assert_eq!(*layers.get::<u64>(), 8);
    }

    #[test]
    #[should_panic(expected = "assembled without u32")]
    fn a_missing_layer_is_named() {
        ShardLayers::default().with(7_u64).get::<u32>();
    }
}
