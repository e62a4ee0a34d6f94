//! Conclusions from outcomes: scores, checks that look for reasons to distrust them, gates and comparisons.

pub mod answer;
pub mod breakdown;
pub mod clean;
pub mod compare;
pub mod compared;
pub mod corruption;
pub mod crossed;
pub mod division;
pub mod exact;
pub mod gate;
mod ladder;
pub mod mean;
pub mod paired;
pub mod published;
pub mod quantity;
pub mod reading;
pub mod retrieval;
pub mod row;
pub mod score;
pub mod share;
pub mod smallest;
mod stars;
pub mod strong;
pub mod survivors;
pub mod verification;
