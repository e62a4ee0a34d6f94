//! space
