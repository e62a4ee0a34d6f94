//! The findings of the checks at load.

use super::{Measured, RUNS, SLIGHT};
use crate::check::gradient::{Along, Errors};
use crate::check::secants::{self, Secants};
use audit_model::difference::SAME;
use audit_model::estimate::POPULATION;
use audit_model::mixing::{self, Mixing};
use audit_report::record::{Found, Severity, reason};
use onnx_grad::graph::DType;

/// Behind a difference that rounding doesn't cause.
const PERSISTS: &str =
    ". Rounding does not explain this: the difference is the same if values are rounded in other directions";

/// Words for a difference of `e`, as a share of the largest value.
fn agreement(e: f64) -> String {
    match e {
        0.0 => "exactly equal".into(),
        _ => format!("they differ by at most {e:.0e} of the largest value"),
    }
}

pub fn finite(m: &Measured) -> Found {
    match &m.gradient {
        _ if !m.finite => Found::error("embeddings hold NaN or infinite values on real images"),
        Some(g) if !g.finite => Found::error(
            "the gradient has NaN or infinite values on real images. White-box attacks could not move there",
        ),
        Some(_) => Found::passed("yes, on the first images"),
        None => Found::passed("embeddings are, on the first images, and gradients are estimated from them"),
    }
}

pub fn repeatable(m: &Measured) -> Found {
    let runs = match m.repeat {
        0.0 => format!("bit for bit, in {RUNS} runs"),
        r if r > SAME => {
            format!(
                "{RUNS} runs of the same images give embeddings that differ by {r:.1e} of the largest value"
            )
        }
        r => {
            format!("{RUNS} runs of the same images differ in the last bits, by {r:.1e} of the largest value")
        }
    };
    match (&m.drawn, m.repeat) {
        (Some(drawn), _) => Found::error(format!("{drawn}. {runs}")),
        (None, r) if r > SAME => Found::error(runs),
        (None, 0.0) => Found::passed(runs),
        _ => Found::warning(runs),
    }
}

/// The result of a check that needs the file, if ONNX Runtime can't run it.
fn no_file() -> Found {
    Found::not_checked(
        "ONNX Runtime can't run the untouched file here, so there is nothing to compare with",
        "",
    )
}

pub fn parity(m: &Measured) -> Found {
    if let Some(found) = m.incomparable() {
        return found;
    }
    match m.parity {
        None => no_file().weighing(Severity::Warning),
        Some(apart) if m.parity_persists && m.within_rounding(apart) => Found::warning(format!(
            "our embeddings differ from ONNX Runtime's by {}{PERSISTS}",
            apart.in_words()
        )),
        // In this form the condition is false for NaN too.
        Some(apart) if apart.share <= m.tolerance => Found::passed(agreement(apart.share)),
        Some(apart) if m.quantised && apart.is_rounding(m.own) => Found::note(format!(
            "as far as rounding lets them: integer kernels and float arithmetic differ by {}",
            apart.in_words()
        )),
        Some(apart) => Found::error(format!(
            "our embeddings differ from ONNX Runtime's by {:.1e} of the largest value ({:.0e} is accepted)",
            apart.share, m.tolerance
        )),
    }
}

pub fn shipped(m: &Measured) -> Found {
    if let Some(found) = m.incomparable() {
        return found;
    }
    match m.shipped {
        None if m.parity.is_some() => Found::not_checked(
            "ONNX Runtime runs the file only with its graph optimiser, so there is nothing to compare with",
            "",
        ),
        None => no_file(),
        Some(apart) if m.shipped_persists && m.within_rounding(apart) => Found::warning(format!(
            "with its default options ONNX Runtime gives other embeddings than the audit: they differ by {}{PERSISTS}",
            apart.in_words()
        )),
        Some(apart) if apart.share <= m.tolerance => Found::passed(agreement(apart.share)),
        Some(apart) if m.quantised => Found::Failed(
            if apart.is_rounding(m.own) { Severity::Warning } else { Severity::Error },
            format!(
                "ONNX Runtime's integer kernels give other embeddings than the float arithmetic of the audit: they differ by {}{}",
                apart.in_words(),
                own_rounding(m)
            ),
        ),
        // NaN too.
        Some(apart) => Found::warning(format!(
            "ONNX Runtime's graph optimiser changes this model's embeddings by {:.1e} of the largest value",
            apart.share
        )),
    }
}

/// How much rounding alone changes a quantised model's embeddings, in words, if it is much.
fn own_rounding(m: &Measured) -> String {
    let much = m.own.filter(|own| !own.is_rounding(None));
    much.map_or(String::new(), |own| {
        format!(
            ". Rounding alone does much here: if no pixel changes by more than {SLIGHT:.0e}, the file's own embeddings differ by {}",
            own.in_words()
        )
    })
}

pub fn company(m: &Measured) -> Found {
    match &m.company {
        _ if m.repeat > SAME => Found::not_checked("the same images have other embeddings at every run", ""),
        None => Found::passed("the model takes one image at a time"),
        Some(mixing) if !mixing.matters() => Found::passed(agreement(mixing.change)),
        Some(mixing) if m.mixes() => {
            Found::error(format!("{}. {}", mixing.in_words(), mixing::way_out(m.fixed)))
        }
        Some(mixing) => Found::warning(format!(
            "the audit takes one image at a time; in larger batches, {}",
            mixing.in_words()
        )),
    }
}

pub fn batch_size(m: &Measured) -> Found {
    if let Some(found) = m.incomparable() {
        return found;
    }
    match (&m.alone, m.sizes) {
        (Some(why), _) => Found::note(format!(
            "the model takes one image at a time, although the file leaves the batch open: {why}"
        )),
        (None, None) if m.parity.is_none() => no_file(),
        (None, None) => Found::passed("the file's batch is fixed"),
        _ if m.company.as_ref().is_some_and(Mixing::matters) => {
            Found::not_checked("in larger batches, images change each other's embeddings", "")
        }
        (None, Some(size)) if size.persists || size.apart.share > SAME.max(m.tolerance) => {
            let rounding = m.quantised && !size.persists && size.apart.is_rounding(m.own);
            Found::Failed(
                if rounding { Severity::Warning } else { Severity::Error },
                format!(
                    "in batches of {} the same images have embeddings that differ by {}{}",
                    size.each,
                    size.apart.in_words(),
                    if size.persists { PERSISTS } else { "" }
                ),
            )
        }
        (None, Some(size)) => Found::passed(agreement(size.apart.share)),
    }
}

pub fn precision(m: &Measured) -> Found {
    let name = match m.precision {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        _ => return Found::passed("yes"),
    };
    let text = format!(
        "the deployed model computes in {name}; the audit computes embeddings and gradients in float32, so that small \
         gradients don't become zero. The embeddings differ by "
    );
    match m.parity {
        Some(apart) => {
            Found::note(format!("{text}{:.1e} of the largest value on the first images", apart.share))
        }
        None => Found::warning(text + "an unknown amount: ONNX Runtime can't run the untouched file here"),
    }
}

pub fn estimated(m: &Measured) -> Found {
    match m.estimated {
        false => Found::passed("exact: derived from the model's graph"),
        true => Found::warning(format!(
            "gradients were estimated from forward passes ({POPULATION} per step, NES), not derived from the graph"
        )),
    }
}

/// The result of a check of the gradient, if none was computed.
fn unformed(m: &Measured) -> Found {
    match m.estimated {
        true => Found::not_checked("gradients are estimated", reason::EXACT_GRADIENT),
        false => Found::not_checked("the embeddings aren't finite, so that no gradient was computed", ""),
    }
}

/// The result of a check of the gradient, if it is zero on every image.
fn no_gradient() -> Found {
    Found::not_checked("the gradient isn't finite, or zero on every image", "")
}

/// The result of a check that needs finite differences, if there are none.
fn no_differences() -> Found {
    Found::not_checked(
        "the gradient couldn't be compared with finite differences: the model quantises with scales that are per channel or \
         computed at run time, and finite differences need fixed rounding",
        "",
    )
}

/// The result of the check of a quantised model's gradient, if the model does not change along it.
fn not_followed(secants: Secants) -> Found {
    Found::error(format!(
        "the gradient fails its check: it passes straight through rounding, and along it the model makes {:.0} % of the predicted \
         change (at least {:.0} % are expected). Quantisers have a slope in the gradient that they don't have in the model",
        100.0 * secants.share(),
        100.0 * secants::LEAST
    ))
}

pub fn zero(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    let flat = m.flat.as_ref().map_or(String::new(), |n| format!(": no gradient passes through {n}"));
    match g.zero {
        0 => Found::passed(format!("on all {} images", m.count)),
        zero if zero == m.count => {
            Found::error(format!("the gradient is zero on every image of the first batch{flat}"))
        }
        zero => {
            // In a batch of eight, one image without gradient may be chance; two are not.
            let severity = if zero > 1 { Severity::Error } else { Severity::Warning };
            Found::Failed(severity, format!("the gradient is zero on {zero} of {} images{flat}", m.count))
        }
    }
}

pub fn right(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    if let Some(found) = m.incomparable() {
        return found;
    }
    if let Some(secants) = g.secants.filter(|secants| secants.refute()) {
        return not_followed(secants);
    }
    let flat = m
        .flat
        .as_ref()
        .map_or(String::new(), |n| format!(". No gradient passes through {n}, constant almost everywhere"));
    match g.errors {
        None if g.is_none(m.count) => no_gradient(),
        None => no_differences().weighing(Severity::Warning),
        Some(e) if e.accepted() => Found::passed(format!(
            "it differs by {}, medians of {} directional derivatives",
            e.in_words(),
            e.directions
        )),
        Some(e) if e.rounding => {
            Found::not_checked("rounding is larger than the image's influence on the embedding", "")
        }
        Some(e) => Found::error(format!(
            "the gradient fails its check: directional derivatives differ from finite differences of the model by {} ({}){flat}",
            e.in_words(),
            Errors::limits()
        )),
    }
}

pub fn deviates(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    if let Some(found) = m.incomparable() {
        return found;
    }
    let errors = match g.errors {
        Some(e) if e.accepted() => e,
        _ => return Found::not_checked("the gradient isn't confirmed", ""),
    };
    // The finite differences hold the roundings of one run. Other kernels round a few values the other way.
    let (explained, apart): (Vec<&Along>, Vec<&Along>) =
        errors.deviations().partition(|along| along.off <= g.unsettled);
    let apart = apart.into_iter().map(|along| {
        let [off, precision] = [along.off, along.precision].map(|share| 100.0 * share);
        format!("{off:.2} % along {}, where their precision is {precision:.2} %", along.kind.along)
    });
    let apart: Vec<String> = apart.collect();
    match (apart.is_empty(), explained.is_empty()) {
        (true, true) => Found::passed("no difference exceeds their precision"),
        (true, false) => Found::passed(format!(
            "no difference exceeds what rounding to integers explains: if no pixel changes by more than {SLIGHT:.0e}, the gradient \
             changes by {:.1} %",
            100.0 * g.unsettled
        )),
        (false, _) => Found::warning(format!(
            "the gradient differs from finite differences by more than their precision explains: {}",
            apart.join("; ")
        )),
    }
}

pub fn hidden(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    match g.errors {
        Some(e) if e.rounding => Found::warning(
            "it hardly does: a change of pixels by a tenth of their range changes it by little more than float32 rounding, so \
             that no finite differences confirm the gradient",
        ),
        Some(_) => Found::passed("by more than float32 rounding"),
        None if g.is_none(m.count) => no_gradient(),
        None => no_differences(),
    }
}

pub fn straight_through(m: &Measured) -> Found {
    match &m.straight_through {
        Some(nodes) => Found::warning(format!(
            "the gradient passes through {nodes} as if nothing were rounded (straight-through estimator)"
        )),
        None if m.estimated => unformed(m),
        None => Found::passed("no operator on the gradient's path rounds"),
    }
}

pub fn flat(m: &Measured) -> Found {
    match &m.flat {
        Some(nodes) => {
            Found::warning(format!("no gradient passes through {nodes}, constant almost everywhere"))
        }
        None if m.estimated => unformed(m),
        None => Found::passed("yes: no operator on the way has a zero gradient"),
    }
}

pub fn saturated(m: &Measured) -> Found {
    /// Share of dead pixels, in per cent, above which they are more than a black border.
    const MOST_DEAD: f64 = 90.0;
    /// Cosine below which the gradient's direction counts as lost.
    const UNSTEADY: f64 = 0.1;
    let Some(g) = &m.gradient else { return unformed(m) };
    if g.is_none(m.count) {
        return no_gradient();
    }
    let text = format!(
        "{:.0} % of the pixels have no influence; after a change of one grey level, the cosine of the gradient with itself is {:.2}",
        g.dead, g.steady
    );
    Found::judged(g.dead > MOST_DEAD || g.steady < UNSTEADY, Severity::Warning, text)
}
