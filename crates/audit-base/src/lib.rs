//! What all crates of `audit` share: errors with exit codes, files that are read and written safely, random
//! numbers that depend on a seed and a name, YAML with errors that name the line, values with a few names,
//! means, chances and quantiles, loops on all threads, panics of libraries that become errors, text escaped
//! for terminals, and the memory that is free.

/// Rows of a table are shown and told apart by their names.
#[macro_export]
macro_rules! known_by_name {
    ($row:ty) => {
        impl ::std::fmt::Debug for $row {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name)
            }
        }

        impl PartialEq for $row {
            fn eq(&self, other: &Self) -> bool {
                self.name == other.name
            }
        }
    };
}

/// Shows values of types by their `name`.
#[macro_export]
macro_rules! shown_by_name {
    ($($named:ty),*) => {$(
        impl ::std::fmt::Display for $named {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }
    )*};
}

/// In serde, values of these types are texts, which `FromStr` reads and `Display` writes.
#[macro_export]
macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = <$name as ::std::str::FromStr>::Err;
            fn try_from(text: String) -> ::std::result::Result<$name, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    )*};
}

pub mod choice;
pub mod distributions;
pub mod error;
pub mod files;
pub mod guard;
pub mod memory;
pub mod numbers;
pub mod parallel;
pub mod random;
pub mod visible;
pub mod yaml;

pub use error::{Error, Exit, Result};
