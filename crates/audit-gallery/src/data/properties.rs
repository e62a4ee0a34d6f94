//! Named properties; two sets can be compared.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Properties, by their names in messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Properties(BTreeMap<String, String>);

impl<'a> FromIterator<(&'a str, String)> for Properties {
    fn from_iter<T: IntoIterator<Item = (&'a str, String)>>(all: T) -> Properties {
        Properties(all.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Properties {
    /// Sets a property.
    pub fn insert(&mut self, name: &str, value: String) {
        self.0.insert(name.into(), value);
    }

    /// The differences, as "name: ours and theirs".
    pub fn differences(&self, other: &Properties) -> Vec<String> {
        let names = self.0.keys().chain(other.0.keys().filter(|name| !self.0.contains_key(*name)));
        let value = |of: &Properties, name| of.0.get(name).map_or("none".to_string(), String::clone);
        names
            .filter(|name| self.0.get(*name) != other.0.get(*name))
            .map(|name| format!("{name}: {} and {}", value(self, name), value(other, name)))
            .collect()
    }
}
