//! Text of `audit attack`.

use super::{Attacked, AttackedFile, Found};
use std::fmt::Write;

impl AttackedFile {
    /// For people.
    pub fn text(&self) -> String {
        let AttackedFile { attack, goal, shape: [_, height, width], system, eps, clean, attacked, .. } = self;
        let photograph = attack.photograph.display();
        let mut out = format!("{photograph} · {width} × {height}\n");
        let mut line = |what: &str, text: &str| {
            let _ = writeln!(out, "{what:<9} {text}");
        };
        system.iter().for_each(|(what, text)| line(what, text));
        line("clean", &self.result(clean));
        self.already_wrong().into_iter().for_each(|note| line("note", &note));
        let Some(attacked) = attacked else {
            let files = attack.files.iter().filter(|file| file.exists());
            let earlier: String =
                files.map(|file| format!("; the earlier {} is as it was", file.display())).collect();
            let _ = writeln!(
                out,
                "no file within {eps}/255 of {photograph} was found that {goal}: nothing is written{earlier}"
            );
            if *eps < 255 {
                let _ = writeln!(out, "help: try --eps {}/255", (2 * eps).min(255));
            }
            return out;
        };
        line("attacked", &self.result(&attacked.found));
        let _ = writeln!(out, "{} {goal}: {}", self.subject(), self.change(attacked));
        if let Some(page) = attack.page() {
            let page = page.display();
            let more = if attack.image().is_some() { "" } else { "; add -o attacked.png to write the file" };
            let _ = writeln!(out, "{page} shows it{more}");
        }
        out
    }

    /// The result, in a line.
    fn result(&self, found: &Found) -> String {
        let Some(first) = found.nearest.first() else { return String::new() };
        match (found.accepted, &first.class) {
            (Some(accepted), _) => {
                let decision = if accepted { "accepted" } else { "refused" };
                format!("{}: {decision}", first.in_words(self.metric))
            }
            (None, class) => {
                let class = class.as_ref().map_or(String::new(), |class| format!(" (class {class})"));
                format!("{}{class}, distance {:.4}", first.id, first.distance)
            }
        }
    }

    /// That the search is wrong without an attack, if the gallery says so.
    pub(super) fn already_wrong(&self) -> Option<String> {
        let class = self.wrong.as_ref()?;
        Some(format!("the photograph is of class `{class}`: the search is wrong without an attack"))
    }

    /// The attacked file by its name, if it has one.
    pub(super) fn subject(&self) -> String {
        self.attack.image().map_or("the attacked photograph".into(), |file| file.display().to_string())
    }

    /// By how much it was changed.
    pub(super) fn change(&self, attacked: &Attacked) -> String {
        let (largest, share) = (attacked.largest, 100.0 * attacked.share);
        match self.attack.jpeg {
            None => format!("{share:.0} % of the values changed, by {largest}/255 at most"),
            Some(quality) => format!(
                "changed by {}/255 at most, then saved as JPEG {quality}, which makes it {largest}/255 at most",
                self.eps
            ),
        }
    }
}
