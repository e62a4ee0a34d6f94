//! Values that are one of a few names, which flags, cards and reports share.

/// A type with a few values, each with a name and a description.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// Every value, its name, and what it means in a few words; the description is empty if the name says it.
    const ALL: &'static [(Self, &'static str, &'static str)];

    /// The value's name.
    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(value, ..)| *value == self).map_or("", |(_, name, _)| name)
    }

    /// The value with this name.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, of, _)| *of == name).map(|(value, ..)| *value)
    }
}
