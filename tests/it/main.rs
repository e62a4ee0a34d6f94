//! The behaviour of `audit`, through the program and the public interface of the library, in one binary,
//! which is linked once. `cargo test --test it gate` runs the tests of `gate/`.
//!
//! These tests run in threads of one process. A test that needs other environment variables, another current
//! folder, a signal or a limit of memory starts the program instead. Tests that can't share a process with
//! the others are binaries of their own: `cuda.rs` (another library of ONNX Runtime), `fuzz.rs` (a limit of
//! memory, and a process for each case), `limits/` (measures time and memory) and `rules/` (no program, only
//! rules of gradients).

#[path = "../common/mod.rs"]
mod common;
mod report_fixture;
#[cfg(unix)]
#[path = "../common/tutorial.rs"]
mod tutorial;

mod attack_file;
mod attacks;
mod breakdown;
mod chosen_output;
mod cli;
mod corpus;
mod corruptions;
mod data;
mod determinism;
mod doctor;
mod doctor_gradient;
mod documentation;
mod embeddings;
mod engines;
mod every_command;
mod evidence;
mod extension;
mod file_space;
#[cfg(unix)]
mod files_kept;
mod first_mistakes;
mod foreign;
mod gate;
mod gate_ci;
mod gate_reasons;
mod geometry;
mod golden;
mod golden_replay;
mod grad_file;
mod half;
#[cfg(unix)]
mod hostile_names;
mod identity;
mod inspect;
mod integers;
mod ladder;
mod layouts;
mod layouts_audit;
mod load;
mod load_operators;
#[cfg(unix)]
mod long_runs;
mod merged_and_swept;
mod metrics;
mod models;
mod next_steps;
mod order;
mod outputs;
mod paired_reports;
mod paper;
mod papers;
mod papers_golden;
mod precisions;
#[cfg(unix)]
mod privacy;
mod quantised_masks;
mod report;
mod scale;
mod sharing;
mod short_report;
mod softened;
mod strong;
mod surfaces;
mod sweep;
#[cfg(unix)]
mod terminal;
mod threats;
mod transfer;
#[cfg(unix)]
mod tutorials;
mod verification;
#[cfg(unix)]
mod versions;
mod without_classes;
