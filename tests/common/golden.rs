//! The reference audits in `golden` of the reference data (CONTRIBUTING.md), described in its README.

use super::npz::NpzArchive;
use serde_json::Value;
use std::path::PathBuf;

pub struct Golden {
    npz: NpzArchive,
    /// `<model>.json`
    pub summary: Value,
    /// `selections.json`
    pub selections: Value,
    /// `<model>_trials.json`
    pub trials: String,
    /// Ids of the gallery.
    pub names: Vec<String>,
}

impl Golden {
    pub fn open(model: &str) -> Golden {
        let shared = super::shared("golden");
        let golden = shared.join("golden");
        let text = |path: PathBuf| std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let json = |name: &str| -> Value { serde_json::from_str(&text(golden.join(name))).unwrap() };
        Golden {
            npz: NpzArchive::open(golden.join(format!("{model}_trials.npz"))).unwrap(),
            summary: json(&format!("{model}.json")),
            selections: json("selections.json"),
            trials: text(golden.join(format!("{model}_trials.json"))),
            names: text(shared.join("data/omniglot28/test_names.txt")).lines().map(str::to_owned).collect(),
        }
    }

    pub fn array<T: npyz::Deserialize>(&mut self, name: &str) -> Vec<T> {
        self.npz.by_name(name).unwrap().unwrap_or_else(|| panic!("no {name}")).into_vec().unwrap()
    }

    pub fn indices(&mut self, name: &str) -> Vec<usize> {
        self.array::<i64>(name).into_iter().map(|i| i as usize).collect()
    }

    /// `selections[key]`, one number per query.
    pub fn selected(&self, key: &str) -> Vec<usize> {
        let number = |v: &Value| v.as_u64().or_else(|| v[0].as_u64()).unwrap() as usize;
        self.selections[key].as_array().unwrap().iter().map(number).collect()
    }
}
