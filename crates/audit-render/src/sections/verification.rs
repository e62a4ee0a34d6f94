//! Decisions by a threshold: error rates without an attack, of the attacked pairs, and by group.

use super::{Content, Medium, Section};
use crate::html::page::{section, table};
use crate::view::{Grid, capital, percent};
use audit_report::judge::row::DASH;
use audit_report::record::{Acceptance, Report, Verification};
use maud::{Markup, html};

/// The section; empty if no attack is about a threshold.
pub const SECTION: Section = Section { content, brief: true, page: Some(page) };

fn page(report: &Report) -> Markup {
    if report.verification.is_none() {
        return Markup::default();
    }
    let Content { sentences, tables } = content(report, Medium::Page);
    let content = html! {
        .card { @for text in sentences { p { (capital(&text)) "." } } }
        @for (about, grid) in tables { .card { p { (capital(about)) "." } (table(&grid)) } }
    };
    section(
        "Whom does it accept?",
        "Decisions at a threshold, without an attack and after the attacks.",
        content,
    )
}

/// Rows of groups that reports for people show at most.
const MOST_GROUPS: usize = 20;

fn content(report: &Report, _: Medium) -> Content {
    match &report.verification {
        Some(found) => Content { sentences: sentences(report, found), tables: tables(found) },
        None => Content::default(),
    }
}

/// The threshold, and the error rates without an attack.
fn sentences(report: &Report, found: &Verification) -> Vec<String> {
    let within = |interval: Option<(f64, f64)>, digits: usize| {
        interval.map_or(String::new(), |(low, high)| format!(" (95 % {low:.digits$} – {high:.digits$})"))
    };
    let t = found.threshold;
    let cosine = report.model.metric.cosine(t);
    let cosine = cosine.map_or(String::new(), |least| format!(", a cosine of at least {least:.4}"));
    let pairs = if found.listed { "pairs of the list" } else { "pairs of images by class" };
    let threshold = format!(
        "decisions: a pair is accepted at a distance of at most {t:.4}{}{cosine} ({}). Attacks are judged at this threshold",
        within(found.threshold_interval, 4),
        report.suite.threshold.map_or("threshold not stated".into(), |stated| stated.to_string()),
    );
    let shared = match found.identities {
        // Of an older version.
        0 => "; intervals treat these as if no two shared an image".into(),
        count => format!(", of {count} identities"),
    };
    let chosen = match report.suite.threshold {
        Some(Acceptance::Far(_)) => "; these pairs also gave the threshold",
        _ => "",
    };
    let clean = format!(
        "without an attack: FAR {:.3} %{}, TAR {:.1} %{}, EER {:.2} %{}, on {} genuine and {} impostor \
         {pairs}{shared}{chosen}",
        found.far,
        within(found.far_interval, 3),
        found.tar,
        within(found.tar_interval, 1),
        found.eer,
        within(found.eer_interval, 2),
        found.genuine,
        found.impostor,
    );
    let folds = found.folds.as_ref().map(|folds| {
        let shared = match folds.shared {
            0 => String::new(),
            count => format!(". The error is too small, as folds share identities ({count})"),
        };
        format!(
            "without an attack, by LFW's protocol: accuracy {:.2} ± {:.2} %, the mean over {} folds and its standard error; each fold is decided at \
             the threshold that is best on the others{shared}",
            folds.mean,
            folds.standard_error,
            folds.accuracy.len()
        )
    });
    [threshold, clean].into_iter().chain(folds).collect()
}

/// The tables that have rows, with their titles.
fn tables(found: &Verification) -> Vec<(&'static str, Grid)> {
    let spread = |(low, high): (f64, f64)| format!("{low:.1} – {high:.1}");
    let attacked = found.attacked.iter().map(|row| {
        let attacks = if row.attacks.is_empty() { "none".into() } else { row.attacks.join(", ") };
        let eer = format!("{:.1}", row.eer);
        let [genuine, impostor] = [row.genuine, row.impostor].map(|n| n.to_string());
        vec![attacks, genuine, impostor, eer, row.eer_interval.map_or(DASH.into(), spread), percent(row.tar)]
    });
    let mut groups: Vec<_> = found.groups.iter().collect();
    groups.sort_by(|a, b| b.after.total_cmp(&a.after));
    let groups = groups.into_iter().take(MOST_GROUPS).map(|row| {
        let numbers = [
            format!("{:.1}", row.before),
            format!("{:.1}", row.after),
            row.interval.map_or(DASH.into(), spread),
        ];
        [vec![row.group.clone(), row.attack.clone(), row.pairs.to_string()], numbers.to_vec()].concat()
    });
    let tables = [
        (
            "attacked pairs, in %; TAR at the threshold with the same false accept rate on these pairs",
            Grid::new(&["attacks", "genuine", "impostor", "EER", "95 %", "TAR at FAR"], &[0], attacked),
        ),
        (
            "wrong decisions by group, in %, the most first; the JSON report has all groups",
            Grid::new(&["group", "attack", "pairs", "before", "after", "95 %"], &[0, 1], groups),
        ),
    ];
    tables.into_iter().filter(|(_, grid)| !grid.rows.is_empty()).collect()
}
