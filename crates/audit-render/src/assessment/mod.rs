//! The conclusion of a report: a verdict, the numbers of published models, and what to do next.
//!
//! A verdict depends on robust R@1, which is an upper bound. The attacked images prove that a model is not
//! robust. That a model is robust is only as certain as the search is strong. So no verdict is good without
//! the strong search, with estimated gradients or those of another model, or with smaller perturbations than
//! those of the published models. The threshold is the share of R@1 that ES leaves of the weakest published
//! defence.

mod next;

use super::view::{bound, capital, smallest_words, within};
use audit_base::Result;
use audit_report::facts::protocols::usual_eps;
use audit_report::facts::term::Term;
use audit_report::facts::{Facts, Norm, is_robust_term};
use audit_report::judge::published::{PUBLISHED_EPS, SPANS_FROM, Span, Spans, spans};
use audit_report::judge::quantity::{ARS, ARS_STRONG, CLEAN_R1, EPS50, ERS, Quantity, ROBUST};
use audit_report::judge::row::{DASH, State, masked};
use audit_report::judge::strong::Contradictions;
use audit_report::record::{
    FEW, Report, Robust, Smallest, Space, SuiteRecord, number_of_queries, reason, size,
};
use next::{NextStep, next_steps};

/// The kind of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The numbers are invalid.
    Void,
    /// Too little was measured for a verdict, or something else than robustness within a small ε.
    Open,
    /// Attacks leave significantly less than the threshold.
    Falls,
    /// No significant difference from the threshold, or a caveat excludes a good verdict.
    Between,
    /// The strong search leaves significantly more than the threshold.
    Stands,
}

/// The verdict.
pub struct Assessment {
    /// Its kind, which decides its colour.
    pub standing: Standing,
    /// The verdict in a sentence without a full stop.
    pub headline: String,
    /// The reasons for it, in sentences.
    pub reasons: Vec<String>,
    /// What to do next.
    pub next: Vec<NextStep>,
}

/// A row of the table of references: the model or models, clean R@1, ARS, and R@1 under attack.
pub type ReferenceRow = (String, [String; 3]);

/// The verdict on a report. Errors: the published rows can't be read.
pub fn assess(report: &Report) -> Result<Assessment> {
    assess_for(report, false)
}

/// The verdict for the user whose audit made the report: next steps load the library of its command line.
pub fn assess_own(report: &Report) -> Result<Assessment> {
    assess_for(report, true)
}

fn assess_for(report: &Report, own: bool) -> Result<Assessment> {
    let spans = spans()?;
    let (standing, headline, mut reasons) = stand(report, &spans);
    if masked(report) {
        reasons.push("The model masks its gradient, so that scores of attacks along it are invalid".into());
    }
    Ok(Assessment { standing, headline, reasons, next: next_steps(report, standing, own)? })
}

/// The verdict if the numbers are valid; if not, an alarm says why. Errors: as [`assess`].
pub fn beside_alarm(report: &Report) -> Result<Option<Assessment>> {
    let found = assess(report)?;
    Ok((found.standing != Standing::Void).then_some(found))
}

/// A table of the model beside published ones, and a note on the published numbers.
pub fn references(report: &Report) -> Result<(Vec<ReferenceRow>, String)> {
    let Spans { plain, defended } = spans()?;
    let shown = |q: &'static Quantity| {
        let row = q.row(report);
        row.value.filter(|_| !row.void).map(|_| row.number())
    };
    let dash = |text: Option<String>| text.unwrap_or(DASH.into());
    let budget = report.suite.budget();
    let robust = shown(ROBUST).map(|robust| format!("{robust} (strong search, {budget})"));
    let row = |name: &str, span: Span| {
        let range = |[low, high]: [f64; 2]| match low == high {
            true => format!("{low:.1}"),
            false => format!("{low:.1} – {high:.1}"),
        };
        (name.to_string(), [range(span.clean), range(span.ars), format!("{} (ES)", range(span.after))])
    };
    let rows = vec![
        (report.model_name().to_string(), [dash(shown(CLEAN_R1)), dash(shown(ARS)), dash(robust)]),
        row("published defences", defended),
        row("plain models, published", plain),
    ];
    let note = format!(
        "Published: {SPANS_FROM}. This report: {} images, ε {}. On other images or with another ε, the comparison is rough. ES is only one \
         of the many attacks of the strong search",
        report.data.images,
        bound(&report.suite)
    );
    Ok((rows, note))
}

fn stand(report: &Report, spans: &Spans) -> (Standing, String, Vec<String>) {
    if let Some(part) = &report.part {
        let headline = format!("No verdict: this is part {} of a run", part.partition);
        return (Standing::Open, headline, vec!["`audit merge` combines the parts".into()]);
    }
    if report.errors().any(|w| !reason::MASKED_GRADIENTS.made(w)) {
        let headline = "No verdict: the numbers are invalid".into();
        return (Standing::Void, headline, Vec::new());
    }
    if let Some(found) = &report.smallest {
        return by_smallest(report, found);
    }
    if report.verification.is_some() {
        return by_decisions(report);
    }
    if let Some(robust) = &report.scores.robust_top1 {
        return by_top1(report, robust);
    }
    let (standing, headline, reasons) = match &report.scores.robust_r1 {
        None if report.lists_pairs() => {
            let headline = "No verdict: a list of pairs has no robust R@1, which a verdict needs".into();
            let read =
                "Read below how many decisions are wrong on clean images, and how many under attack".into();
            (Standing::Open, headline, [read].into_iter().chain(report.caveat()).collect())
        }
        Some(robust) => by_robust(report, robust, spans),
        None => by_ars(report, spans),
    };
    match far_above(&report.suite) {
        Some(usual) if matches!(standing, Standing::Falls | Standing::Between) => {
            let headline = format!(
                "No verdict: ε {} is far above the protocol's {usual}, and failures under such changes say little about small ones",
                report.suite.budget()
            );
            (Standing::Open, headline, reasons)
        }
        _ => (standing, headline, reasons),
    }
}

/// An ε beyond so many times the protocol's proves nothing against a model.
const FAR: f32 = 2.0;

/// The protocol's ε, if the suite's is far above it. A patch may be as visible as it likes, and protocols
/// bound no other norm.
fn far_above(suite: &SuiteRecord) -> Option<String> {
    let of_pixels = suite.mask.is_none() && Norm::counts_levels(&suite.norm);
    let usual = usual_eps(suite.protocol, suite.form).ok()?.filter(|_| of_pixels)?;
    (suite.eps > FAR * usual).then(|| SuiteRecord { eps: usual, ..suite.clone() }.budget())
}

/// The verdict of a search for the smallest perturbations: their median, and what natural corruptions cost if
/// the suite has them. It goes far beyond any ε at which robust R@1 would mean something.
fn by_smallest(report: &Report, found: &Smallest) -> (Standing, String, Vec<String>) {
    let right = found.right;
    let words = smallest_words(found);
    if right < FEW {
        let headline = format!("No verdict: too few {} ({right})", words.queries);
        let tried = format!("This audit tried {}", number_of_queries(found.queries));
        return (Standing::Open, headline, vec![tried]);
    }
    let most = size(&found.norm, f64::from(found.most), 2);
    let (headline, bound) = match found.median {
        Some(median) => {
            let median = size(&found.norm, median, 2);
            let headline = format!("{} under a change of at most {median}", words.half);
            (headline, "an upper bound: a better search may find smaller ones")
        }
        None => (
            format!(
                "More than half of the {} withstand every change up to {most} that was tried",
                words.searches
            ),
            "a better search may find smaller ones",
        ),
    };
    let median = format!(
        "This is about the smallest changes that were found for {right} {} of {}, {bound}",
        words.queries, found.queries
    );
    let headline = match &report.corruptions {
        Some(found) => format!(
            "Natural corruptions change R@1 from {:.1} to {:.1} on average. {headline}",
            found.clean_r1, found.mean_r1
        ),
        None => headline,
    };
    let fixed = "The suite searches far beyond small changes, so that robust R@1 at its ε is no verdict. `--suite robust` measures it at \
                 the protocol's ε";
    (Standing::Open, headline, [median, fixed.into()].into_iter().chain(report.caveat()).collect())
}

/// The verdict of attacks on decisions by a threshold. Published models have no such number, so that none
/// says what is robust.
fn by_decisions(report: &Report) -> (Standing, String, Vec<String>) {
    // Whether each decision is wrong, on clean images and under attack.
    let decided = report.outcomes.iter().filter(|o| o.after.accepted.is_some()).filter_map(|o| {
        let (before, after) = (Facts::find(&o.attack).ok()?.decisive().read)(o, report.suite.form)?;
        Some([before? > 0.0, after > 0.0])
    });
    let decided: Vec<[bool; 2]> = decided.collect();
    let right = decided.iter().filter(|[before, _]| !before).count();
    let failed = decided.iter().filter(|[before, after]| !before && *after).count();
    let tried = decided.len();
    if right < FEW {
        let headline = match tried {
            1 => "No verdict: this audit attacked only 1 decision".into(),
            ..FEW => format!("No verdict: this audit attacked only {tried} decisions"),
            _ => {
                format!("No verdict: only {right} of {tried} attacked decisions are correct on clean images")
            }
        };
        let why = format!("A verdict needs {FEW} correct decisions: an attack can only make these wrong");
        return (Standing::Open, headline, vec![why]);
    }
    let headline =
        format!("{} makes {failed} of {right} correct decisions wrong", capital(&change(&report.suite)));
    let reasons = "Decisions are those at the threshold of this report. No published number is comparable, and a better attack may make more \
                   of them wrong";
    (Standing::Open, headline, std::iter::once(reasons.into()).chain(report.caveat()).collect())
}

/// The headline if too few queries were attacked for a verdict, or too few of these are correct.
fn few_correct(robust: &Robust) -> String {
    let ([right, _], queries) = (robust.correct(), robust.queries);
    if queries < FEW {
        return format!("No verdict: this audit tried only {}", number_of_queries(queries));
    }
    let are = if right == 1 { "is" } else { "are" };
    format!("No verdict: only {right} of {queries} attacked queries {are} correct on clean images")
}

/// The largest change that the suite allows, in words.
fn change(suite: &SuiteRecord) -> String {
    format!("a change of at most {}{}", suite.budget(), within(suite))
}

/// The verdict by robust R@1 with its interval, shares of all attacked queries. What published defences keep
/// of their clean R@1 is the threshold, as a share of this model's.
fn by_robust(report: &Report, robust: &Robust, spans: &Spans) -> (Standing, String, Vec<String>) {
    let [right, left] = robust.correct();
    let row = ROBUST.row(report);
    let Some((low, high)) = row.interval.filter(|_| right >= FEW) else {
        let why = format!("A verdict needs {FEW} correct ones: an attack can only make these fail");
        return (Standing::Open, few_correct(robust), vec![why]);
    };
    let [kept, most_kept] = spans.defended.kept;
    let [weakest, best] = spans.defended.kept.map(|kept| kept * robust.clean / 100.0);
    let mut reasons = vec![
        format!(
            "Robust R@1 at {} is {} % of all {} attacked queries (95 % {low:.1} – {high:.1})",
            report.suite.budget(),
            row.number(),
            row.queries
        ),
        format!(
            "Published defences keep {kept:.1} to {most_kept:.1} % of their clean R@1 under one attack, ES. For the attacked \
             queries, whose clean R@1 is {:.1} %, this would be a robust R@1 of {weakest:.1} to {best:.1} %",
            robust.clean
        ),
    ];
    let score = ARS.row(report);
    if score.value.is_some() && !score.void && Contradictions::of(report).refuted(ARS).is_some() {
        reasons.push(format!(
            "ARS, {}, is more favourable: its attacks are weaker than the strong search",
            score.number()
        ));
    }
    let caveat = report.caveat().or_else(|| smaller(&report.suite));
    let standing = match () {
        () if high < weakest => Standing::Falls,
        () if low > weakest && caveat.is_none() => Standing::Stands,
        () => Standing::Between,
    };
    let change = change(&report.suite);
    let headline = by_eps50(report, standing).unwrap_or_else(|| match standing {
        Standing::Falls => {
            format!("Not robust: {change} makes {} of {right} correct searches fail", right - left)
        }
        Standing::Stands => {
            format!("{left} of {right} correct searches withstand every attack that was tried, with {change}")
        }
        _ => format!("Neither broken nor robust: {left} of {right} correct searches withstand {change}"),
    });
    let headline =
        if beside_suite(report) { format!("{headline}, in the strong search on R@1") } else { headline };
    if standing != Standing::Falls {
        reasons.push("This is an upper bound: a better attack may lower it".into());
    }
    if standing == Standing::Between && (low..=high).contains(&weakest) {
        reasons.push(format!(
            "The interval includes the threshold of {weakest:.1} %: more queries would decide"
        ));
    }
    reasons.extend(caveat);
    (standing, headline, reasons)
}

/// Whether the suite is about something else than R@1, so that the strong search ran beside it.
fn beside_suite(report: &Report) -> bool {
    let own = report.attacks.iter().filter(|a| !is_robust_term(&a.code));
    let own: Vec<&Term> = own.filter_map(|a| Term::find(&a.code)).collect();
    let scored = [ARS, ERS, ARS_STRONG].into_iter().any(|of| of.row(report).state != State::NotMeasured);
    let on_recall = scored || report.suite.ladder.is_some() || own.iter().any(|term| term.recall);
    !own.is_empty() && !on_recall
}

/// What the strong search found on images without classes. Published models have no such number, so that no
/// threshold says what is robust.
fn by_top1(report: &Report, robust: &Robust) -> (Standing, String, Vec<String>) {
    let row = Quantity::robust(report).row(report);
    let [right, left] = robust.correct();
    let Some((low, high)) = row.interval.filter(|_| right >= FEW) else {
        return (Standing::Open, few_correct(robust), vec![format!("A verdict needs {FEW}")]);
    };
    let eps50 = EPS50.row(report);
    let headline = match eps50.value.filter(|_| !eps50.is_above()) {
        Some(levels) => {
            format!("{} is enough to give half of the searches another answer", of_size(report, "A", levels))
        }
        None => format!("{left} of {right} searches keep their answer under {}", change(&report.suite)),
    };
    let reasons = vec![
        format!(
            "{} at {} is {} % of all {} attacked queries (95 % {low:.1} – {high:.1}), an upper bound: a better attack may lower it",
            capital(row.quantity.label),
            report.suite.budget(),
            row.number(),
            row.queries
        ),
        "The images have no classes, so that the image that the model finds without an attack counts as correct. Whether it is correct was not measured, and \
         no published number is comparable"
            .into(),
    ];
    (Standing::Open, headline, reasons.into_iter().chain(report.caveat()).collect())
}

/// How visible changes of at most so many 255ths of a pixel's range are, the smallest first. A screen of 8
/// bits a channel shows whole grey levels (IEC 61966-2-1, sRGB). 8/255 is the usual bound of attacks on
/// photographs, and 16/255 the largest of Kurakin et al., "Adversarial Machine Learning at Scale", ICLR 2017.
const VISIBILITY: [(f64, &str); 4] = [
    (1.0, "at most one grey level of a screen"),
    (8.0, "hard to see on a photograph"),
    (16.0, "visible to those who look for it"),
    (f64::INFINITY, "visible"),
];

/// How visible a change is. `levels` are 255ths.
pub fn visibility(levels: f64) -> &'static str {
    // A difference of pixels in float32 is a little larger than its whole levels.
    VISIBILITY.iter().find(|(most, _)| levels <= *most * (1.0 + 1e-5)).map_or("", |(_, words)| words)
}

/// The verdict by ε50: how small a change is enough. `None` if it was not measured, or if no change that was
/// tried is enough.
fn by_eps50(report: &Report, standing: Standing) -> Option<String> {
    let row = EPS50.row(report);
    let levels = row.value.filter(|_| !row.is_above())?;
    let begins = match standing {
        Standing::Falls => "Not robust: a",
        Standing::Between => "Neither broken nor robust: a",
        _ => "A",
    };
    Some(format!("{} is enough to make half of the correct searches fail", of_size(report, begins, levels)))
}

/// A change of so many 255ths, and how visible it is. `begins` is what stands before the word.
fn of_size(report: &Report, begins: &str, levels: f64) -> String {
    let suite = &report.suite;
    let of_pixels = Norm::counts_levels(&suite.norm) && suite.mask.is_none();
    let seen = if of_pixels { format!(", {},", visibility(levels)) } else { String::new() };
    format!("{begins} change of {}{}{seen}", size(&suite.norm, levels / 255.0, 2), within(suite))
}

/// Why attacks are weaker than those on the published models: a smaller part of the image, or a smaller ε.
fn smaller(suite: &SuiteRecord) -> Option<String> {
    let ball = Norm::find(&suite.norm).ok().filter(|ball| ball.is_box);
    match &suite.mask {
        Some(mask) => Some(format!("Published models were attacked on the whole image, this one on {mask}")),
        None if suite.space == Space::File => {
            Some("Published models were attacked at their input, this one through files".into())
        }
        None if ball.is_none() => Some("Published models were attacked in another norm".into()),
        None if suite.eps < PUBLISHED_EPS => {
            Some("Published models were attacked with ε 8/255, this one with less".into())
        }
        None => None,
    }
}

/// The verdict by ARS, where the strong search was not run. Attacks that succeed are evidence; attacks that
/// fail are not.
fn by_ars(report: &Report, spans: &Spans) -> (Standing, String, Vec<String>) {
    let [weakest, best] = spans.defended.ars;
    let found = ARS.row(report);
    let found = found.value.and_then(|value| Some((value, found.interval?)));
    let Some((value, (low, high))) = found else {
        let headline = "No verdict: neither robust R@1 nor ARS was measured well enough".into();
        return (Standing::Open, headline, report.caveat().into_iter().collect());
    };
    let range =
        format!("ARS is {value:.1} (95 % {low:.1} – {high:.1}); published defences have {weakest} to {best}");
    let mut reasons = vec![range];
    reasons.extend(report.caveat());
    if high < weakest {
        let headline = "Not robust: the attacks of the suite mostly reach their goals".into();
        return (Standing::Falls, headline, reasons);
    }
    reasons.push("That these attacks fail says little: stronger ones were not tried".into());
    (Standing::Open, "No verdict yet: no strong search was run".into(), reasons)
}
