//! An attack objective of your own: facts for reports, and a loss as a function of the embedding.
//!
//! ```text
//! cargo run --release --example own_objective -- models/hardened.onnx
//! ```

use audit::facts::{self, Facts};
use audit::threat::objective::es::ES;
use audit::threat::{Loss, Objective};
use audit::{Request, Result};

/// What reports say of it. It is measured as ES is.
static AWAY_FACTS: Facts =
    Facts { code: "AWAY", about: "Moves a query away from the mean embedding of its class.", ..facts::ES };

/// Moves a query away from the centre of its class.
static AWAY: Objective = Objective {
    facts: &AWAY_FACTS,
    loss: |context, _, trial| {
        let gallery = &context.gallery;
        let own: Vec<&[f32]> = gallery.positives(trial.query).map(|i| gallery.point(i)).collect();
        let mean = |k: usize| own.iter().map(|point| f64::from(point[k])).sum::<f64>() / own.len() as f64;
        let centre: Vec<f64> = (0..gallery.dim()).map(mean).collect();
        // Searches minimise the loss, so it is the negative distance. Its gradient is added to `gradient`.
        Loss::Point(Box::new(move |z, _, gradient| -gallery.metric.pair(z, &centre, 0.0, gradient, |_| -1.0)))
    },
    ..ES
};

fn main() -> Result<()> {
    let model = std::env::args().nth(1).unwrap_or("models/plain.onnx".into());
    let request = Request::model(&model).max_queries(40);
    // The model is checked, and all images are embedded.
    let mut embedded = audit::embed(&request)?;
    for objective in [&ES, &AWAY] {
        let outcomes = embedded.attack(&request, objective)?;
        let correct = outcomes.iter().filter(|o| o.after.hit == Some(true)).count();
        println!("{}: {correct} of {} queries are still correct", objective.code, outcomes.len());
    }
    Ok(())
}
