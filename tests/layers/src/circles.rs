//! Files that import each other in a circle: the strongly connected components of the imports (Tarjan, 1972).

use std::collections::BTreeMap;

use crate::graph::Import;
use crate::source::Module;

/// A line for each circle, and one for each import within it.
pub fn describe(imports: &[Import]) -> Vec<String> {
    let mut lines = Vec::new();
    for circle in find(imports) {
        lines.push(format!("{} files import each other in a circle:", circle.len()));
        for import in imports {
            if circle.contains(&&import.from) && circle.contains(&&import.to) {
                lines.push(format!(
                    "  {}:{} imports {} from {}",
                    import.from.path, import.line, import.name, import.to.path
                ));
            }
        }
    }
    lines
}

/// The components with more than one file.
fn find(imports: &[Import]) -> Vec<Vec<&Module>> {
    let mut numbers: BTreeMap<&Module, usize> = BTreeMap::new();
    for import in imports {
        for module in [&import.from, &import.to] {
            let next = numbers.len();
            numbers.entry(module).or_insert(next);
        }
    }
    let mut modules: Vec<(&Module, usize)> =
        numbers.iter().map(|(module, number)| (*module, *number)).collect();
    modules.sort_by_key(|(_, number)| *number);
    let mut edges = vec![Vec::new(); modules.len()];
    for import in imports {
        edges[numbers[&import.from]].push(numbers[&import.to]);
    }
    let mut search = Search { edges, index: vec![None; modules.len()], ..Search::default() };
    search.low = vec![0; modules.len()];
    search.is_open = vec![false; modules.len()];
    for node in 0..modules.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    let circles = search.components.into_iter().filter(|component| component.len() > 1);
    circles.map(|component| component.into_iter().map(|node| modules[node].0).collect()).collect()
}

#[derive(Default)]
struct Search {
    edges: Vec<Vec<usize>>,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    visited: usize,
    components: Vec<Vec<usize>>,
}

impl Search {
    fn visit(&mut self, node: usize) {
        let index = self.visited;
        self.visited += 1;
        self.index[node] = Some(index);
        self.low[node] = index;
        self.open.push(node);
        self.is_open[node] = true;
        for next in self.edges[node].clone() {
            match self.index[next] {
                None => {
                    self.visit(next);
                    self.low[node] = self.low[node].min(self.low[next]);
                }
                Some(index) if self.is_open[next] => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if self.low[node] == index {
            let start = self.open.iter().rposition(|open| *open == node).unwrap_or_default();
            let component = self.open.split_off(start);
            for member in &component {
                self.is_open[*member] = false;
            }
            self.components.push(component);
        }
    }
}
