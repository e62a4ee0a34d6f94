//! The page of an attacked file: photograph, file and difference, and what is found before and after.

use super::{Attacked, AttackedFile, Found};
use crate::data::{Photograph, Pixels};
use crate::files::hex;
use crate::pictures::{PHOTOGRAPH, SIDES, difference, encoded};
use crate::pipeline::describe;
use crate::pipeline::open::Subject;
use crate::record::{Data, Warning};
use crate::report::html::examples::image;
use crate::report::html::page::{conditions, finding, scripted, section, sentence, table};
use crate::report::view::Grid;
use crate::report::visibility;
use crate::request::Request;
use crate::{Error, Result};
use maud::{Markup, html};

/// What a page shows besides the result.
pub(super) struct Shown<'a> {
    pub request: &'a Request,
    pub subject: &'a Subject,
    /// The images that were embedded; `None` if none had to be.
    pub data: Option<&'a Data>,
    pub warnings: Vec<&'a Warning>,
    pub photograph: &'a Photograph,
    /// The file as it is read again.
    pub attacked: &'a Photograph,
    /// As the model takes it; `None` of a search.
    pub reference: Option<&'a Pixels>,
}

/// Renders the page of a file that was found.
pub(super) fn render(result: &AttackedFile, shown: &Shown) -> Result<Vec<u8>> {
    let attacked =
        result.attacked.as_ref().ok_or_else(|| Error::internal("a page without an attacked file"))?;
    let [_, height, width] = result.shape;
    let name = result.attack.photograph.file_name().unwrap_or_default().to_string_lossy();
    let lead = html! { "A photograph of " (width) " × " (height) " pixels, changed so that it " (part(&result.goal)) "." };
    let sections = html! {
        (summary(result, attacked, shown)) (pictures(result, attacked, shown)?) (found(result, attacked, shown)?)
        (measured(result, attacked, shown))
    };
    Ok(scripted("Attacked file", &name, &lead.into_string(), &sections.into_string()))
}

/// A part of a sentence in which `backticks` enclose code.
fn part(text: &str) -> Markup {
    html! { @for (i, part) in text.split('`').enumerate() { @if i % 2 == 0 { (part) } @else { code { (part) } } } }
}

/// What the file does, and what was allowed.
fn summary(result: &AttackedFile, attacked: &Attacked, shown: &Shown) -> Markup {
    let AttackedFile { goal, eps, .. } = result;
    let levels = if *eps == 1 { "1 grey level of 255" } else { &format!("{eps} grey levels of 255") };
    let allowed = format!(
        "Each value of each pixel might change by at most {levels}: {}. {}.",
        visibility(f64::from(*eps)),
        match result.attack.jpeg {
            None => result.change(attacked),
            Some(_) => format!("The file was {}", result.change(attacked)),
        }
    );
    html! {
        section.card.banner.fail {
            strong { (result.attack.image().map_or("The attacked photograph".into(), |file| file.display().to_string())) " " (part(goal)) "." }
            p.note { (allowed) }
            @if let Some(note) = result.already_wrong() { p.note { (sentence(&note)) "." } }
        }
        @if !shown.warnings.is_empty() {
            section.card { @for warning in &shown.warnings {
                (finding("warned", &warning.word().to_uppercase(), html! { (sentence(&warning.text)) " " code { (warning.id) } }))
            } }
        }
    }
}

fn pictures(result: &AttackedFile, attacked: &Attacked, shown: &Shown) -> Result<Markup> {
    let shape = result.shape;
    // The largest change is shown as black or white.
    let amplification = 0.5 * 255.0 / attacked.largest.max(1) as f32;
    let (before, after) = (&shown.photograph.data, &shown.attacked.data);
    let trio = [
        (encoded(before, shape, PHOTOGRAPH)?, "photograph".to_string()),
        (encoded(after, shape, PHOTOGRAPH)?, "attacked".into()),
        (
            encoded(&difference(after, before, amplification), shape, PHOTOGRAPH)?,
            format!("difference × {amplification:.1}, grey where nothing changed"),
        ),
    ];
    let file = match result.attack.image() {
        Some(file) => format!("the attacked file is {}", file.display()),
        None => "-o attacked.png writes the attacked file".into(),
    };
    let lead = format!(
        "A click on a picture shows it large. The page holds copies, of at most {PHOTOGRAPH} pixels a side and larger ones as JPEG; {file}."
    );
    let content = html! {
        .card.example { .trio.file { @for (picture, caption) in &trio {
            figure { (image(picture, caption)) figcaption { (caption) } }
        } } }
    };
    Ok(section("What was changed?", &lead, content))
}

/// What the photograph and the file find.
fn found(result: &AttackedFile, attacked: &Attacked, shown: &Shown) -> Result<Markup> {
    match shown.reference {
        Some(reference) => compared(result, attacked, shown, reference),
        None => searched(result, attacked, shown),
    }
}

fn picture(pixels: &Pixels, subject: &Subject) -> Result<String> {
    let prep = &subject.prep;
    encoded(&pixels.data, [prep.channels, prep.height, prep.width], SIDES[0])
}

fn searched(result: &AttackedFile, attacked: &Attacked, shown: &Shown) -> Result<Markup> {
    let rank = |name: &str, found: &Found| -> Result<Markup> {
        let mut figures = Vec::new();
        for item in &found.nearest {
            let dataset = &shown.subject.dataset;
            let place = dataset.items.iter().position(|of| of.id == item.id);
            let pixels = place.map(|place| dataset.pixels(place, &shown.subject.prep)).transpose()?;
            let shown = pixels.map(|pixels| picture(&pixels, shown.subject)).transpose()?;
            let class = if item.wanted { "miss" } else { "plain" };
            figures.push(html! {
                figure.(class) title=(item.id) {
                    @if let Some(shown) = shown { (image(&shown, &item.id)) } @else { small { (item.id) } }
                    i { "✗" }
                    figcaption { @if let Some(class) = &item.class { (class) br; } (format!("{:.4}", item.distance)) }
                }
            });
        }
        Ok(html! { .rank { span { (name) } @for figure in figures { (figure) } } })
    };
    let lead = "The nearest images of the gallery as the model takes them, with class and distance. ✗ marks the images of which the attack tried to bring one to the first place.";
    let content = html! { .card.example.found { (rank("clean", &result.clean)?) (rank("attacked", &attacked.found)?) } };
    Ok(section("What is found?", lead, content))
}

fn compared(result: &AttackedFile, attacked: &Attacked, shown: &Shown, reference: &Pixels) -> Result<Markup> {
    let rows = [("clean", &result.clean), ("attacked", &attacked.found)].map(|(name, found)| {
        let distance = found.nearest.first().map_or(f64::NAN, |first| first.distance);
        let cosine = result.metric.cosine(distance).map_or("–".into(), |cosine| format!("{cosine:.4}"));
        let decision = if found.accepted == Some(true) { "accepted" } else { "refused" };
        vec![name.into(), format!("{distance:.4}"), cosine, decision.into()]
    });
    let name = result.system.first().map_or("", |(_, words)| words);
    let threshold = result.system.last().map_or("", |(_, words)| words);
    let small = |of: &Photograph| encoded(&of.data, result.shape, SIDES[0]);
    let trio = [
        (small(shown.photograph)?, "clean", "clean".into()),
        (small(shown.attacked)?, "attacked, small", "attacked".into()),
        (picture(reference, shown.subject)?, name, format!("reference: {name}")),
    ];
    let lead = format!("A face near the reference is accepted: {threshold}.");
    let content = html! {
        .card.example {
            .trio { @for (picture, alt, caption) in &trio { figure { (image(picture, alt)) figcaption { (caption) } } } }
            (table(&Grid::new(&["photograph", "distance", "cosine", "decision"], &[0, 3], rows)))
        }
    };
    Ok(section("Is it accepted?", &lead, content))
}

fn measured(result: &AttackedFile, attacked: &Attacked, shown: &Shown) -> Markup {
    let Shown { request, subject, data, photograph, .. } = shown;
    let hash = |sha256: &str| html! { br; code { "sha256 " (sha256) } };
    let mut rows = vec![
        ("Photograph", html! { (result.attack.photograph.display()) (hash(&hex(&photograph.digest))) }),
        ("Attacked file", html! { (result.subject()) (hash(&attacked.sha256)) }),
        ("Budget", html! { "ε " (result.eps) "/255 in each value of the photograph" }),
        ("Search", html! { "the strong search, seed " (request.seed) }),
        ("Tool", html! { (describe::tool(request, subject).in_words()) }),
    ];
    rows.extend(request.command.as_ref().map(|command| ("Command", html! { code { (command) } })));
    let lead = "The file itself was measured: decoded, resized, cropped and embedded.";
    conditions(&describe::model(subject), *data, rows, lead)
}
