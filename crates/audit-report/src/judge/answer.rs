//! The question that a comparison answers first: which model is the most robust?

use super::compared::{ComparedModel, ComparedValue};
use super::paired::PairedReports;
use super::quantity::{CLEAN_R1, EPS50, MEDIAN_EPS, Quantity};
use super::row::{Difference, Mark, State, Word};
use crate::record::Report;

/// The answer in a sentence without a full stop, or why there is none. `models` are those of `reports`, in
/// their order. A significant loss of clean R@1 against the baseline, the first of them, comes first.
pub(super) fn most_robust(models: &[ComparedModel], reports: &[Report]) -> String {
    let names = names(models);
    let answer = robust(models, reports, &names);
    match losses(models, &names) {
        None => answer.unwrap_or_else(|why| format!("Undecided which model is the most robust: {why}")),
        Some(losses) => {
            let answer =
                answer.unwrap_or_else(|why| format!("undecided which model is the most robust: {why}"));
            format!("{losses}; under attack, {answer}")
        }
    }
}

/// The models by their files' names, or by their reports' if two are equal.
fn names(models: &[ComparedModel]) -> Vec<&str> {
    let alike = |m: &ComparedModel| models.iter().filter(|other| other.model == m.model).count() > 1;
    models.iter().map(|m| if alike(m) { m.report.as_str() } else { m.model.as_str() }).collect()
}

/// The significant losses of clean R@1; `None` if no model has one.
fn losses(models: &[ComparedModel], names: &[&str]) -> Option<String> {
    let base = models.iter().find(|m| m.base)?.row(CLEAN_R1)?.value?;
    let lost = models.iter().zip(names).filter_map(|(model, name)| {
        let row = model.row(CLEAN_R1).filter(|row| row.word == Word::Worse)?;
        let by = spread(CLEAN_R1, None, row.difference.as_ref()?);
        Some((name.to_string(), CLEAN_R1.show(row.value?), by))
    });
    let lost: Vec<(String, String, String)> = lost.collect();
    match lost.as_slice() {
        [] => None,
        [(name, r1, by)] => {
            Some(format!("{name} retrieves worse on clean images: R@1 {r1} against {base:.1} ({by})"))
        }
        several => {
            let names: Vec<String> = several.iter().map(|(name, ..)| name.clone()).collect();
            let numbers: Vec<String> = several.iter().map(|(_, r1, by)| format!("{r1} ({by})")).collect();
            Some(format!(
                "{} retrieve worse on clean images: R@1 {} against {base:.1}",
                series(&names),
                series(&numbers)
            ))
        }
    }
}

/// `a`, `a and b`, or `a, b and c`.
fn series(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}

/// A difference with its interval; `norm` as in [`ComparedValue`].
fn spread(of: &Quantity, norm: Option<&str>, difference: &Difference) -> String {
    let show = |v| of.show_change_in(norm, v);
    let interval = difference
        .interval
        .map_or(String::new(), |(low, high)| format!(", 95 % {} … {}", show(low), show(high)));
    format!("{}{interval}", show(difference.value))
}

/// The most robust model by [`deciding`]. Errors: why it is undecided.
fn robust(models: &[ComparedModel], reports: &[Report], names: &[&str]) -> Result<String, String> {
    let of = deciding(models, reports)?;
    let mut known = known(of, models, reports, names)?;
    known.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (best, others) = (known[0], &known[1..]);
    let norm = models[best.0].row(of).and_then(|row| row.norm.as_deref());
    let shown = |i: usize, value: f64| {
        let above = models[i].row(of).is_some_and(|row| row.above);
        format!("{}{}", if above { "above " } else { "" }, of.show_in(norm, value))
    };
    let mut close = Vec::new();
    let mut beaten = Vec::new();
    for (i, value, _) in others {
        let pair = PairedReports::new(&reports[*i], &reports[best.0]);
        let difference = pair.difference(of);
        match difference.and_then(|d| Some((d, d.significant()?))) {
            None => {
                let why = "attacked other queries or images, so that the difference has no interval";
                return Err(format!("{} and {} {why}", names[best.0], names[*i]));
            }
            Some((d, true)) => {
                beaten.push(format!("{} of {} ({})", shown(*i, *value), names[*i], spread(of, norm, &d)))
            }
            Some((d, false)) => {
                close.push(format!("{} of {} ({})", shown(*i, *value), names[*i], spread(of, norm, &d)))
            }
        }
    }
    let unit = norm.map_or(", in 255ths,".to_string(), |norm| format!(" ({norm})"));
    let what = match () {
        () if of == EPS50 => format!("ε50{unit}"),
        () if of == MEDIAN_EPS => format!("the median ε{unit}"),
        () => format!("{} at {}", of.label, budget(best.2)),
    };
    let value = shown(best.0, best.1);
    match (close.is_empty(), beaten.is_empty()) {
        (true, _) => Ok(format!(
            "{} is the most robust: {what} is {value}, against {}",
            names[best.0],
            series(&beaten)
        )),
        (false, _) => Err(format!(
            "{what} of {} is {value}, not significantly different from {}",
            names[best.0],
            series(&close)
        )),
    }
}

/// The number that decides: ε50, or the median of the smallest perturbations, if every report has it under
/// the same largest ε, because it distinguishes models whose robust R@1 is 0 at the largest ε. Otherwise
/// robust R@1, and also if several models are above that ε, because sizes do not distinguish them. Errors:
/// the reports have different kinds of robust R@1.
fn deciding(models: &[ComparedModel], reports: &[Report]) -> Result<&'static Quantity, String> {
    let measured = |m: &ComparedModel, of: &Quantity| {
        m.row(of).is_some_and(|row| row.state == State::Measured && !row.void)
    };
    let left = Quantity::robust(&reports[0]);
    if reports.iter().any(|report| Quantity::robust(report) != left) {
        return Err(
            "some were audited on images with classes and some without, which are different measurements"
                .into(),
        );
    }
    let same = reports.iter().all(|report| report.suite.budget() == reports[0].suite.budget());
    let above = |of: &Quantity| models.iter().filter(|m| m.row(of).is_some_and(|row| row.above)).count();
    let told = |of: &&Quantity| same && above(of) < 2 && models.iter().all(|m| measured(m, of));
    Ok([EPS50, MEDIAN_EPS].into_iter().find(told).unwrap_or(left))
}

/// A number of each model: its place, the number and its row. Errors: a model has none that can be compared.
fn known<'m>(
    of: &'static Quantity,
    models: &'m [ComparedModel],
    reports: &[Report],
    names: &[&str],
) -> Result<Vec<(usize, f64, &'m ComparedValue)>, String> {
    let label = Quantity::robust(&reports[0]).label;
    let rows: Vec<Option<&ComparedValue>> = models.iter().map(|m| m.row(of)).collect();
    if rows.iter().all(Option::is_none) {
        return Err(match reports.iter().all(Report::lists_pairs) {
            // A list of pairs has no R@1, whatever the flags.
            true => {
                format!("decisions about pairs were attacked, and not {label}. Compare {}", attacked(models))
            }
            false => {
                format!("no report has {label}. Audit with the strong search: leave out --strong-sample off")
            }
        });
    }
    let mut known: Vec<(usize, f64, &ComparedValue)> = Vec::new();
    for (i, row) in rows.into_iter().enumerate() {
        let name = names[i];
        // The first model has no row of a number that only others have.
        let Some(row) = row else {
            let why = of.row(&reports[i]).why.unwrap_or_default();
            return Err(format!("{name} has no {label} ({why})"));
        };
        let why = row.why.as_deref().unwrap_or_default();
        match (row.state, row.value) {
            (State::NotMeasured, _) => return Err(format!("{name} has no {label} ({why})")),
            (State::Withheld, _) => {
                return Err(format!("{label} of {name} is {}: {why}", row.state.text()));
            }
            _ if row.void => {
                return Err(format!("{label} of {name} is {}", Mark::Untrusted.text()));
            }
            (State::Measured, value) => known.extend(value.map(|value| (i, value, row))),
        }
    }
    if known.iter().any(|(_, _, row)| row.eps != known[0].2.eps) {
        let each: Vec<String> = known
            .iter()
            .map(|(i, value, row)| format!("{} {value:.1} at {}", names[*i], budget(row)))
            .collect();
        return Err(format!("{label} was measured under different ε: {}", each.join(", ")));
    }
    Ok(known)
}

/// The names of the numbers of single attacks that models have.
fn attacked(models: &[ComparedModel]) -> String {
    let has = |of: &&Quantity| models.iter().any(|m| m.row(of).is_some_and(|row| row.value.is_some()));
    let names: Vec<String> = Quantity::of_terms().filter(has).map(|of| of.name.to_string()).collect();
    series(&names)
}

/// The ε at which a number was measured.
fn budget(row: &ComparedValue) -> String {
    row.eps.clone().unwrap_or_default()
}
