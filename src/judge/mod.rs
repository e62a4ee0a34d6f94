//! What is concluded from outcomes: scores, reasons to distrust them, gates, comparisons.

pub mod check;
pub mod compare;
pub mod gate;
pub mod quantity;
pub mod score;
