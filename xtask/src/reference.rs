//! Where the reference data lie, from the root of the checkout. CONTRIBUTING.md says what they are. Tests
//! share this file.

pub const REFERENCE: &str = "../shared";
