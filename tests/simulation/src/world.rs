//! A simulated cluster: its machines, its links, and the state that all tasks of the simulation share.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use helenus::testing::client::StatementResponse;
use helenus_engine::io::SplitMix64;
use tokio::task::LocalSet;

use crate::client::{AskError, Question, ask};
use crate::machine::Machine;
use crate::network::Links;
use crate::plan::Plan;
use crate::trace::Trace;

/// Most violations that are reported.
const VIOLATIONS_MAX: usize = 10;

/// The state that the tasks of a simulation share.
pub struct World {
    pub plan: Plan,
    /// All machines, including those that are not members yet or any more.
    pub machines: Vec<Rc<Machine>>,
    pub links: Rc<Links>,
    pub trace: Arc<Trace>,
    /// True once faults and clients must end.
    pub is_load_over: Cell<bool>,
    /// Number of members that have died for good and are not removed yet.
    pub removals: Cell<usize>,
    /// Whether a partition lasts that no other one must end.
    pub is_divided: Cell<bool>,
    /// Number of histories that were too long to be judged.
    pub unjudged: Cell<usize>,
    violations: RefCell<Vec<String>>,
    random: RefCell<SplitMix64>,
    tasks: Weak<LocalSet>,
}

impl World {
    pub fn new(
        plan: Plan,
        machines: Vec<Rc<Machine>>,
        links: Rc<Links>,
        trace: Arc<Trace>,
        tasks: &Rc<LocalSet>,
        seed: u64,
    ) -> Self {
        Self {
            plan,
            machines,
            links,
            trace,
            is_load_over: Cell::new(false),
            removals: Cell::new(0),
            is_divided: Cell::new(false),
            unjudged: Cell::new(0),
            violations: RefCell::default(),
            random: RefCell::new(SplitMix64::new(seed)),
            tasks: Rc::downgrade(tasks),
        }
    }

    /// The machines that are members or are joining; never empty.
    pub fn members(&self) -> Vec<Rc<Machine>> {
        self.machines.iter().filter(|machine| machine.is_member()).cloned().collect()
    }

    /// A random generator for a task.
    pub fn random(&self) -> SplitMix64 {
        SplitMix64::new(self.random.borrow_mut().next_u64())
    }

    /// Records a violation of a guarantee.
    pub fn violation(&self, text: String) {
        self.trace.note(format!("VIOLATION: {text}"));
        let mut violations = self.violations.borrow_mut();
        if violations.len() < VIOLATIONS_MAX {
            violations.push(text);
        }
        // More load would only hide the violation behind its consequences.
        self.is_load_over.set(true);
    }

    /// The violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.violations.borrow().clone()
    }

    /// Starts a task of the simulation, outside of all nodes.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.spawn_local(future);
        }
    }

    /// Executes a statement on some shard of some node.
    pub async fn ask_any(
        &self,
        random: &mut SplitMix64,
        question: Question,
    ) -> Result<StatementResponse, AskError> {
        let members = self.members();
        let machine = &members[random.below(members.len() as u64) as usize];
        ask(machine, random.below(16) as usize, question).await
    }

    /// Executes a statement repeatedly until it succeeds, at most `tries` times, two seconds apart.
    pub async fn insist(
        &self,
        random: &mut SplitMix64,
        question: &Question,
        tries: usize,
    ) -> Result<StatementResponse, AskError> {
        let mut last = AskError::Refused("not tried".to_owned());
        for _ in 0..tries {
            match self.ask_any(random, question.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        Err(last)
    }
}

/// Sleeps; in virtual milliseconds.
pub async fn pause_ms(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}
