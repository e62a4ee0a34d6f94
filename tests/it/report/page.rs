//! The page: text that stays text, examples, colours, a browser's view.

use super::*;

#[test]
fn text_from_files_stays_text() {
    let report = judged();
    for format in ["html", "junit.xml", "md"] {
        let text = rendered(&report, format);
        // A page has one script, its own, which has no attribute.
        assert_eq!(text.matches("<script").count(), usize::from(format == "html"), "{format}");
        assert!(!text.contains("<script>alert"), "{format}");
        assert!(text.contains("&lt;script"), "{format}: the text is to be shown, not dropped");
        assert!(!text.contains('\u{1}'), "{format}");
    }
    let page = rendered(&report, "html");
    assert!(["http://", "https://", "@import"].iter().all(|link| !page.contains(link)), "no network");
    // A norm is text of the file too, which labels contain.
    let mut normed = judged();
    add_strong_search(&mut normed);
    normed.suite.norm = NASTY.into();
    for format in ["html", "junit.xml", "md"] {
        let text = rendered(&normed, format);
        assert!(!text.contains("<script>alert") && !text.contains('\u{1}'), "{format}");
    }
    // A name doesn't turn the text around it.
    let mut turned = judged();
    turned.data.source = "photo\u{202e}gnp.exe".into();
    for format in ["html", "junit.xml", "md"] {
        assert!(!rendered(&turned, format).contains('\u{202e}'), "{format}");
    }
    let mut broken = judged();
    let examples = broken.examples.as_mut().unwrap();
    examples.trials[0].clean = format!("{PIXEL}\" onerror=\"x");
    assert!(!rendered(&broken, "html").contains("onerror"));
    // With classes, names occur in more places; the page's policy allows only its own script.
    let mut labelled = judged();
    labelled.labels = labelled.outcomes.iter().map(|o| (o.query.clone(), NASTY.to_string())).collect();
    let page = rendered(&labelled, "html");
    assert!(page.contains("The weakest 20 of 60 queries") && page.contains("One class"));
    let escaped = |page: &str| page.matches("&lt;script").count();
    assert!(escaped(&page) > escaped(&rendered(&report, "html")) + 20);
    assert!(page.matches("<script").count() == 1 && !page.contains("<script>alert"));
    let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
    let hash = STANDARD.encode(Sha256::digest(script));
    assert!(page.contains(&format!("default-src 'none'; script-src 'sha256-{hash}';")), "{}", &page[..600]);
    // A cell stays in its row: no raw line break or bar.
    for line in rendered(&report, "md").lines().filter(|l| l.starts_with('|')) {
        assert!(line.ends_with('|'), "{line}");
    }
}

/// The page of an audit of a bundled model on generated images.
#[test]
#[ignore = "slow"]
fn a_real_audit_shows_examples() {
    let dir = Temp::new();
    let flags = ["--suite", "smoke", "-q", "--pictures", "-o", "r.json", "-o", "r.html"];
    ran(program(&dir).args(flags).arg(bundled("hardened.onnx"))).ended(0);
    let report = Report::load(&dir.join("r.json")).unwrap();
    let examples = report.examples.unwrap();
    // Every attack of the suite, each with three trials, one of which withstood more than the others.
    let codes: BTreeSet<&str> = report.outcomes.iter().map(|o| o.attack.as_str()).collect();
    let shown = |code: &str| examples.trials.iter().filter(|e| e.attack == code).collect::<Vec<_>>();
    assert!(codes.contains("CA+") && codes.contains("R1"));
    for code in codes {
        assert_eq!(shown(code).len(), 3, "{code}");
        let of =
            |e: &&Example| report.outcomes.iter().find(|o| o.query == e.query && o.attack == code).unwrap();
        let mine: Vec<_> = shown(code).iter().map(of).collect();
        // A query that is wrong without an attack shows nothing.
        let lossy = |o: &&Outcome| o.attack == code && o.before.hit != Some(false);
        let all = || report.outcomes.iter().filter(lossy);
        let farthest = all().map(|o| o.shift).fold(0.0, f64::max);
        assert_eq!(mine[0].shift, farthest);
        // These attacks are about hits: if one withstood, one is shown.
        if all().any(|o| o.before.hit == Some(true) && o.after.hit == Some(true)) {
            assert!(mine.iter().any(|o| o.after.hit == Some(true)), "{code}: none that failed");
        }
    }
    for e in &examples.trials {
        assert_eq!((e.nearest_before.len(), e.nearest_after.len()), (5, 5));
        let outcome = report.outcomes.iter().find(|o| o.query == e.query && o.attack == e.attack).unwrap();
        assert!(e.attack == "R1" || e.losses.len() == outcome.steps + 1);
        let shown = e.nearest_before.iter().chain(&e.nearest_after);
        assert!(shown.into_iter().all(|n| examples.thumbnails.contains_key(&n.id)));
        // A candidate that rises to the top is in the ranking of its target.
        if e.attack == "CA+" && outcome.after.rank == Some(0.0) {
            assert_eq!(e.nearest_after[0].id, e.query);
        }
    }
    assert!(!examples.map.queries.is_empty() && examples.map.gallery.len() > 100);
    // One query that an attack made wrong comes above all others.
    let page = dir.text("r.html");
    let (above, below) = page.split_once("Can I trust it?").unwrap();
    says(above, &["What does an attack look like?", "images that both find"]);
    assert!(above.matches("class=\"card example\"").count() == 1 && below.contains("Show me more"));
}

/// Two reports compared, as a page.
fn comparison(dir: &Temp) -> String {
    let files = [0.5, 0.3].map(|strength| {
        let mut report = fixture(strength);
        report.model.path = format!("models/a_rather_long_name-of-a-model-checkpoint-{strength}.onnx");
        dir.write(&format!("{strength}.json"), rendered(&report, "json"))
    });
    let comparison = audit::judge::compare::compare(&files, None, false).unwrap();
    String::from_utf8(audit::feature::compare::page(&comparison).unwrap()).unwrap()
}

/// Every colour of text contrasts with both backgrounds, in light and dark, by 4.5 to 1: WCAG 2.2, success
/// criterion 1.4.3, with its definitions of contrast and relative luminance.
#[test]
fn every_text_stands_out() {
    let page = rendered(&judged(), "html");
    let schemes: Vec<&str> = page.split(":root {").skip(1).map(|s| s.split('}').next().unwrap()).collect();
    assert_eq!(schemes.len(), 3, "light, dark, print");
    for scheme in &schemes[..2] {
        let luminance = |name: &str| {
            let value = scheme.split(&format!("--{name}: #")).nth(1).unwrap().split(';').next().unwrap();
            let wide = |c: char| [c, c].iter().collect::<String>();
            let digits: String =
                if value.len() == 3 { value.chars().map(wide).collect() } else { value.into() };
            let linear = |at: usize| {
                let c = f64::from(u8::from_str_radix(&digits[at..at + 2], 16).unwrap()) / 255.0;
                if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
            };
            0.2126 * linear(0) + 0.7152 * linear(2) + 0.0722 * linear(4)
        };
        for text in ["ink", "soft", "faint", "bad", "good", "warn"] {
            for behind in ["card", "page"] {
                let (a, b) = (luminance(text), luminance(behind));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= 4.5, "{text} on {behind}: {contrast:.2} in {scheme}");
            }
        }
    }
}

/// Browsers break lines after each hyphen; a flag stays on one line.
#[test]
fn flags_stay_on_one_line() {
    let page = rendered(&judged(), "html");
    assert!(page.contains("<span class=\"flag\">--suite</span> robust"), "{page}");
    assert!(page.contains(".flag { white-space: nowrap; }"));
}

/// Every column has a name. What scrolls has one too, and is reached by the keyboard.
#[test]
fn tables_are_for_everybody() {
    let dir = Temp::new();
    let mut regions = 0;
    for page in [rendered(&judged(), "html"), comparison(&dir)] {
        assert!(!page.contains("<th></th>") && !page.contains("<th class=\"n\"></th>"), "{page}");
        for tag in page.split("<div class=\"").skip(1) {
            let (class, rest) = tag.split_once('"').unwrap();
            if class.split(' ').any(|name| name == "scroll") {
                let named = rest.strip_prefix(" tabindex=\"0\" role=\"region\" aria-label=\"");
                assert!(named.is_some_and(|name| !name.starts_with('"')), "{class}: {page}");
                regions += 1;
            }
        }
    }
    assert!(regions >= 2, "{regions}");
}

/// Opens the pages at the widths of a phone and of a desktop: nothing overflows, every picture loads, the
/// console stays empty.
#[test]
#[ignore = "needs Chromium"]
fn the_pages_open_in_a_browser() {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let browser = names.iter().find(works).expect("Chromium");
    let dir = Temp::new();
    let escape = report::escape::markup;
    let mut alarming = judged();
    alarming.warnings.push(warning("an-error", "error", NASTY));
    let pages = [("audit", rendered(&alarming, "html"), 13), ("compare", comparison(&dir), 0)];
    for ((name, page, images), width) in pages.iter().flat_map(|page| [(page, 390), (page, 1400)]) {
        // In a frame: a window can't be as narrow as a phone.
        let frame = escape(page);
        let wrapper = format!(
            "<!doctype html><html><body><iframe style=\"border:0;width:{width}px;height:900px\" srcdoc=\"{frame}\"></iframe>\
             <script>const used = page => {{ const table = page.querySelector('table.sort'); if (!table) return 'plain';\
             const moved = () => [...table.tBodies[0].rows].map(row => Number(row.cells[4].dataset.key));\
             table.querySelectorAll('th button')[4].click(); const sorted = moved().every((v, i, all) => !i || all[i - 1] <= v);\
             page.querySelector('.example img').dispatchEvent(new KeyboardEvent('keydown', {{ key: ' ' }})); return sorted + ' ' + page.querySelector('dialog').open }};\
             addEventListener('load', () => {{ const page = document.querySelector('iframe').contentDocument;\
             const images = [...page.images]; document.body.innerHTML = '<p>' + [images.length, images.filter(i => \
             i.naturalWidth == 0).length, page.documentElement.scrollWidth > {width}, page.scripts.length, used(page)].join(' ') + '</p>' }})\
             </script></body></html>"
        );
        let path = dir.write(&format!("{name}{width}.html"), wrapper);
        let profile = dir.join(&format!("profile-{name}{width}"));
        let mut command = Command::new(browser);
        command.args(words("--headless --no-sandbox --disable-gpu --enable-logging=stderr --dump-dom"));
        command.arg(format!("--user-data-dir={}", profile.display()));
        let done = command.arg(format!("file://{}", path.display())).output().unwrap();
        let dom = String::from_utf8_lossy(&done.stdout);
        let log = String::from_utf8_lossy(&done.stderr);
        assert!(!log.contains("CONSOLE"), "{log}");
        let used = if *images > 0 { "true true" } else { "plain" };
        let expected = format!("<p>{images} 0 false 1 {used}</p>");
        let what = "pictures, broken, too wide, scripts, sorted, enlarged";
        assert!(dom.contains(&expected), "{name} at {width}: {what}: {dom}");
    }
}
