//! The budget of a suite's attacks: ε, step size and steps.

use super::Suite;
use crate::facts::protocols::{Budget, Protocols, at, fraction, number, size};
use crate::record::{EpsAlpha, Protocol};
use crate::threat::{Ball, Plan};
use crate::yaml::Spanned;
use crate::{Error, Result};

/// A step size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Alpha {
    /// The size that a flag states, in the norm of the ball. It is the same at every ε.
    Size(f32),
    /// The size for the suite's ε, or else for the usual one. At another ε it changes in proportion.
    For {
        /// The size, in the norm of the ball.
        size: f32,
        /// The suite's own ε.
        eps: Option<f32>,
    },
    /// A share of ε.
    Share(f32),
}

impl Suite {
    /// The plan of this suite's trials, and the protocol that `auto` selects. `side` is the longer side of
    /// the model's input, in pixels.
    pub fn plan(&self, side: usize, seed: u64) -> Result<(Protocol, Plan)> {
        let protocols = Protocols::read()?;
        let protocol = match self.protocol {
            Protocol::Auto => protocols.of_side(side),
            named => named,
        };
        let budget = protocols.budget(protocol, self.form);
        let steps = self.steps.unwrap_or(budget.steps);
        let usual = self.usual(&budget)?;
        let eps = self.eps.or(usual.as_ref().map(|usual| usual.eps)).ok_or_else(|| {
            let (suite, norm) = (&self.name, self.ball.name);
            Error::usage(format!(
                "suite {suite} bounds perturbations by {norm}, and the protocols' ε is the largest change of a \
                 pixel: state `eps` too, such as 2.0, or --eps 2.0"
            ))
        })?;
        let from = self.proportion(usual);
        if let Some(images) = self.search.population
            && steps < images
        {
            return Err(Error::usage(format!(
                "schedule {} moves once for every {images} images that it tries, and {steps} steps try {steps}: state \
                 `steps` of at least {images}, or --steps",
                self.search.name
            )));
        }
        let alpha = match (self.alpha, from) {
            (Some(Alpha::Size(alpha)), _) => alpha,
            (Some(Alpha::Share(share)), _) => share * eps,
            (_, Some(from)) => from.alpha_at(eps),
            (Some(Alpha::For { size, .. }), None) => size,
            (None, None) => self.search.usual_alpha(eps, steps).min(eps),
        };
        self.refuse_long_steps(alpha, eps)?;
        let plan = Plan {
            form: self.form,
            ball: self.ball,
            mask: self.mask.clone(),
            space: self.space,
            jpeg: self.jpeg,
            eps,
            alpha,
            steps,
            search: self.search,
            restarts: self.restarts,
            seed,
            effort: self.effort,
            ladder: self.ladder,
            in_files: false,
            whole_levels: false,
        };
        Ok((protocol, plan))
    }

    /// The ε and α that the α of this suite's plan is in proportion to; `None` if α was stated for the plan's
    /// ε, or for any.
    pub fn scaled_from(&self, protocol: Protocol, plan: &Plan) -> Result<Option<EpsAlpha>> {
        if matches!(self.alpha, Some(Alpha::Size(_) | Alpha::Share(_))) {
            return Ok(None);
        }
        let from = self.proportion(self.usual(&Protocols::read()?.budget(protocol, self.form))?);
        Ok(from.filter(|from| !from.is_for(plan.eps)))
    }

    /// The usual ε of this suite's ball, with the step size for it if the protocols have one; `None` if the
    /// ball has no usual ε.
    fn usual(&self, budget: &Budget) -> Result<Option<Usual>> {
        // The protocols' sizes are for the largest change of any pixel, anywhere.
        Ok(match (self.ball.is_box, &self.mask) {
            (true, None) => {
                Some(Usual { eps: size("eps", &budget.eps)?, alpha: Some(size("alpha", &budget.alpha)?) })
            }
            (true, Some(_)) => Some(Usual { eps: 1.0, alpha: None }),
            (false, _) => None,
        })
    }

    /// The pair whose ratio α keeps: the suite's α with its own ε or the usual one, or else the protocol's
    /// pair.
    fn proportion(&self, usual: Option<Usual>) -> Option<EpsAlpha> {
        let pair = |eps: Option<f32>, alpha: Option<f32>| Some(EpsAlpha { eps: eps?, alpha: alpha? });
        match self.alpha {
            Some(Alpha::For { size, eps }) => pair(eps.or(usual.map(|usual| usual.eps)), Some(size)),
            _ => pair(usual.as_ref().map(|usual| usual.eps), usual.and_then(|usual| usual.alpha)),
        }
    }

    /// Whether its search has a step size. Most members of the strong search have their own.
    fn takes_alpha(&self) -> bool {
        self.search.takes_alpha && self.effort.is_none()
    }

    /// Refuses a step that would leave the ball (exit code 2).
    fn refuse_long_steps(&self, alpha: f32, eps: f32) -> Result<()> {
        let stated = match self.alpha {
            Some(Alpha::Size(_)) => "--alpha",
            _ => "`alpha`",
        };
        match self.takes_alpha() && alpha > eps {
            true => Err(Error::usage(too_long(stated, alpha, eps, self.ball))),
            false => Ok(()),
        }
    }
}

/// A usual ε, with the step size for it.
#[derive(Clone, Copy)]
struct Usual {
    eps: f32,
    alpha: Option<f32>,
}

/// The error for a step size above ε.
fn too_long(stated: &str, alpha: f32, eps: f32, ball: &Ball) -> String {
    let size = |v: f32| match ball.is_box {
        true => format!("{v:.5} ({:.1}/255)", 255.0 * v),
        false => format!("{v:.5}"),
    };
    format!(
        "{stated}: the step size {} is larger than ε, {}, so that one step leaves the allowed changes. Leave {stated} out: the step size \
         then follows from ε. Or state one of at most ε",
        size(alpha),
        size(eps)
    )
}

/// Parses a step size: a size as [`parse_size`] takes it, at most the suite's own ε; or a share of ε such as
/// "2/5 of eps", above 0 and at most 1.
pub(super) fn alpha(file: &str, text: &Spanned<String>, eps: Option<f32>, ball: &Ball) -> Result<Alpha> {
    let Some(share) = text.value.strip_suffix(" of eps") else {
        let size = fraction(file, "alpha", text, ball)?;
        return match eps.filter(|eps| size > *eps) {
            Some(eps) => {
                Err(Error::usage(format!("{}: {}", at(file, text), too_long("`alpha`", size, eps, ball))))
            }
            None => Ok(Alpha::For { size, eps }),
        };
    };
    let share = number(share).map(|v| v as f32).filter(|v| *v > 0.0 && *v <= 1.0);
    share.map(Alpha::Share).ok_or_else(|| {
        Error::usage(format!(
            "{}: alpha: `{}`: expected a share of ε above 0 and at most 1, such as `2/5 of eps`",
            at(file, text),
            text.value
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BASE, refused};
    use super::*;

    #[test]
    fn budgets_by_size_and_form() {
        let plan = |name: &str, side| Suite::load(name).unwrap().plan(side, 1).unwrap();
        let (protocol, small) = plan("ars", 28);
        assert_eq!(protocol, Protocol::Rob28);
        assert_eq!((small.eps, small.alpha, small.steps, small.restarts), (0.30196, 0.011764, 32, 0));
        assert_eq!(plan("ars", 32).0, Protocol::Rob28);
        assert_eq!(plan("ars", 33).0, Protocol::Rob224);
        assert_eq!(plan("ars", 224).1.eps, 0.03137);
        let strict = plan("ers-strict", 224).1;
        assert_eq!((strict.eps, strict.alpha), ((8.0f64 / 255.0) as f32, (3.0f64 / 255.0) as f32));
        assert_eq!(plan("ars-strict", 28).1.eps, (77.0f64 / 255.0) as f32);
        assert_eq!(plan("smoke", 224).1.steps, 4);
        let own =
            Suite::parse("my.yaml", &format!("{BASE}eps: 2/255\nalpha: 0.005\nprotocol: rob28\n")).unwrap();
        let (protocol, own) = own.plan(224, 1).unwrap();
        assert_eq!(
            (protocol, own.eps, own.alpha, own.steps),
            (Protocol::Rob28, (2.0f64 / 255.0) as f32, 0.005, 32)
        );
    }

    /// Steps keep their ratio to ε: the protocol's, or that of the suite's own pair. A size from a flag
    /// stays.
    #[test]
    fn the_step_size_follows_eps() {
        let pixel = |n: f64| (n / 255.0) as f32;
        let near = |a: f32, b: f32| (a / b - 1.0).abs() < 2e-3;
        let at = |suite: &Suite, eps: f32| {
            let suite = Suite { eps: Some(eps), ..suite.clone() };
            let (protocol, plan) = suite.plan(224, 1).unwrap();
            (plan.alpha, suite.scaled_from(protocol, &plan).unwrap())
        };
        let ars = Suite::load("ars").unwrap();
        for n in [0.5, 1.0, 4.0, 16.0, 255.0] {
            let (alpha, from) = at(&ars, pixel(n));
            assert!(near(alpha, pixel(n * 3.0 / 8.0)), "{n}: {alpha}");
            assert_eq!(from, Some(EpsAlpha { eps: 0.03137, alpha: 0.011764 }), "{n}");
        }
        // The protocol's ε, truncated or not, has the protocol's α to the bit.
        for eps in [0.03137, pixel(8.0)] {
            assert_eq!(at(&ars, eps), (0.011764, None));
        }
        // Both are the suite's own.
        let own = Suite::parse("my.yaml", &format!("{BASE}eps: 4/255\nalpha: 1/255\n")).unwrap();
        assert_eq!(at(&own, pixel(4.0)), (pixel(1.0), None));
        let (alpha, from) = at(&own, pixel(2.0));
        assert!(near(alpha, pixel(0.5)) && from == Some(EpsAlpha { eps: pixel(4.0), alpha: pixel(1.0) }));
        // The suite's α without an ε is for the protocol's.
        let alone = Suite::parse("my.yaml", &format!("{BASE}alpha: 2/255\n")).unwrap();
        assert!(near(at(&alone, pixel(4.0)).0, pixel(1.0)));
        // The suite's ε without an α has the protocol's ratio.
        let only = Suite::parse("my.yaml", &format!("{BASE}eps: 16/255\n")).unwrap();
        assert!(near(only.plan(224, 1).unwrap().1.alpha, pixel(6.0)));
        let stated = Suite { alpha: Some(Alpha::Size(pixel(1.0))), ..ars.clone() };
        assert_eq!(at(&stated, pixel(2.0)), (pixel(1.0), None));
        // A search that finds its own steps refuses none.
        let adaptive = Suite { alpha: Some(Alpha::Size(0.5)), ..Suite::load("ars-strict").unwrap() };
        assert_eq!(at(&adaptive, pixel(1.0)), (0.5, None));
        // One member of the strong search has the steps of the protocol.
        assert!(near(at(&Suite::load("strong").unwrap(), pixel(1.0)).0, pixel(3.0 / 8.0)));
        // In another norm and within a mask, steps were already in proportion.
        for more in ["norm: l2\n", "patch: 0.1\n"] {
            let suite = Suite::parse("my.yaml", &format!("{BASE}{more}")).unwrap();
            assert_eq!(at(&suite, 0.5), (2.5 * 0.5 / 32.0, None));
            let few = Suite { steps: Some(2), ..suite };
            assert_eq!(at(&few, 0.5), (0.5, None), "never longer than ε");
        }
    }

    #[test]
    fn a_step_longer_than_eps_is_refused() {
        refused(
            &format!("{BASE}eps: 1/255\nalpha: 3/255\n"),
            &["line 4", "0.01176 (3.0/255)", "0.00392 (1.0/255)", "Leave `alpha` out"],
        );
        refused(&format!("{BASE}norm: l2\neps: 1\nalpha: 2\n"), &["line 5", "2.00000 is larger"]);
        refused(&format!("{BASE}alpha: 6/5 of eps\n"), &["line 3", "at most 1"]);
        let long = Suite { alpha: Some(Alpha::Size(0.5)), ..Suite::load("ars").unwrap() };
        let error = long.plan(28, 1).unwrap_err();
        assert!(error.exit == crate::Exit::Usage && error.message.contains("Leave --alpha out"), "{error}");
        // Without an ε of its own, the suite's step is for the protocol's.
        let alone = Suite::parse("my.yaml", &format!("{BASE}alpha: 0.5\n")).unwrap();
        assert!(alone.plan(28, 1).unwrap_err().message.contains("Leave `alpha` out"));
        let whole = Suite::parse("my.yaml", &format!("{BASE}eps: 0.1\nalpha: 0.1\n")).unwrap();
        assert_eq!(whole.plan(28, 1).unwrap().1.alpha, 0.1);
    }

    /// Panum et al., section 4.1: five steps of 2ε/5 from a random start, at three ε. ADML, section 5.2:
    /// seven steps of 0.007 at 8/255.
    #[test]
    fn budgets_of_papers() {
        let plan = |name: &str| Suite::load(name).unwrap().plan(224, 1).unwrap().1;
        let panum = plan("panum");
        assert_eq!((panum.eps, panum.steps, panum.search.name), (0.01, 5, "fixed-random"));
        assert!((panum.alpha - 0.004).abs() < 1e-8);
        let wider = Suite { eps: Some(0.05), ..Suite::load("panum").unwrap() };
        assert!((wider.plan(224, 1).unwrap().1.alpha - 0.02).abs() < 1e-8, "α follows ε");
        let adml = plan("adml");
        assert_eq!((adml.eps, adml.alpha, adml.steps), ((8.0f64 / 255.0) as f32, 0.007, 7));
        assert_eq!((plan("panum-fgsm").search.name, plan("panum-cw").search.name), ("fgsm", "cw"));
        assert_eq!(plan("minimum").search.name, "bisection");
        for alpha in ["0 of eps", "1.1 of eps", "x of eps", "1/2 of ε"] {
            refused(&format!("{BASE}alpha: {alpha}\n"), &["line 3", alpha]);
        }
    }
}
