//! The output of commands as a text for a snapshot: `insta::assert_snapshot!(dir.told())` compares it with a
//! file in `snapshots/`, and `INSTA_UPDATE=always cargo test` writes the file.

use super::{Ran, Temp, one_line, program, ran, words};
use std::cell::RefCell;
use std::process::Command;

/// A folder, and the commands that ran in it with their exit codes and output.
pub struct Transcript {
    dir: Temp,
    text: RefCell<String>,
}

impl Transcript {
    pub fn new(dir: Temp) -> Transcript {
        Transcript { dir, text: RefCell::default() }
    }

    /// Fails unless these arguments end with `code` and an error of `audit` or of its argument parser, print
    /// no result and leave the folder unchanged.
    #[track_caller]
    pub fn refused(&self, args: &[&str], code: i32) -> String {
        self.refused_by(program(self).args(args), code)
    }

    /// Fails unless these arguments end with `code`.
    #[track_caller]
    pub fn ended(&self, args: &[&str], code: i32) -> String {
        let Ran { out, err, .. } = ran(program(self).args(args)).ended(code);
        self.note(&format!("$ audit {}\nexit code {code}\n{out}{err}", args.join(" ")));
        out + &err
    }

    /// [`Self::refused`] for a command.
    #[track_caller]
    pub fn refused_by(&self, command: &mut Command, code: i32) -> String {
        let before = self.dir.names();
        let ran = ran(command);
        assert_eq!(ran.code, Some(code), "{command:?}: {}{}", ran.out, ran.err);
        assert_eq!(ran.out, "");
        assert!(
            (ran.err.contains("audit: ") || ran.err.contains("error: ")) && !ran.err.contains("panicked"),
            "{}",
            ran.err
        );
        assert_eq!(self.dir.names(), before, "{command:?}");
        let args: Vec<&str> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        self.note(&format!("$ audit {}\nexit code {code}\n{}", args.join(" "), ran.err));
        ran.err
    }

    /// Adds a text: an error, a part of a report.
    pub fn note(&self, text: &str) {
        let mut all = self.text.borrow_mut();
        all.push_str(portable(text).trim_end());
        all.push_str("\n\n");
    }

    pub fn told(&self) -> String {
        self.text.borrow().clone()
    }
}

impl std::ops::Deref for Transcript {
    type Target = Temp;
    fn deref(&self) -> &Temp {
        &self.dir
    }
}

/// The text without what differs between machines or runs: folders of tests, digests, and messages of ONNX
/// Runtime.
pub fn portable(text: &str) -> String {
    let begin = std::env::temp_dir().join(".tmp").display().to_string();
    let text = text.replace(env!("CARGO_TARGET_TMPDIR"), "TARGET");
    let mut text = text.replace(env!("CARGO_MANIFEST_DIR"), "CHECKOUT");
    while let Some(at) = text.find(&begin) {
        let end = at + begin.len();
        let name = text[end..].chars().take_while(char::is_ascii_alphanumeric).count();
        text.replace_range(at..end + name, "DIR");
    }
    let line = |line: &str| match line.split_once("ONNX Runtime doesn't take the graph: ") {
        Some((ours, _)) => format!("{ours}ONNX Runtime doesn't take the graph: …"),
        None => line.split(' ').map(without_digest).collect::<Vec<_>>().join(" "),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The text with `#` for each number that has decimals: the last digits of measurements differ between
/// processors.
pub fn unmeasured(text: &str) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let behind =
            rest[at..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |n| at + n);
        let number = rest[at..behind].trim_end_matches('.');
        done.push_str(&rest[..at]);
        done.push_str(if number.contains('.') { "#" } else { number });
        rest = &rest[at + number.len()..];
    }
    done + rest
}

fn without_digest(word: &str) -> String {
    let digits = word.chars().take_while(char::is_ascii_hexdigit).count();
    if digits == 64 && word.len() < 66 { format!("SHA256{}", &word[64..]) } else { word.into() }
}

/// The text from `begin` to `end`, both included, on one line.
#[track_caller]
pub fn part(text: &str, begin: &str, end: &str) -> String {
    let text = one_line(text);
    let from = text.find(begin).unwrap_or_else(|| panic!("no {begin:?} in: {text}"));
    let to = text[from..].find(end).unwrap_or_else(|| panic!("no {end:?} in: {}", &text[from..]));
    text[from..from + to + end.len()].into()
}

/// The text of a page as its reader sees it: a line for each block or row, without scripts, styles and
/// drawings.
pub fn readable(page: &str) -> String {
    let mut text = page.replace('\u{a0}', " ");
    for element in ["script", "style", "svg", "head>"] {
        let (begin, end) = (format!("<{element}"), format!("</{}>", element.trim_end_matches('>')));
        while let Some(from) = text.find(&begin) {
            let to = from + text[from..].find(&end).expect("an element that ends") + end.len();
            text.replace_range(from..to, "");
        }
    }
    for (tag, mark) in [("</td>", " | "), ("</th>", " | "), ("<br>", "\n"), ("<s>", "~"), ("</s>", "~")] {
        text = text.replace(tag, mark);
    }
    for block in words("div p tr li h1 h2 h3 section summary figcaption dt dd pre footer table figure") {
        text = text.replace(&format!("<{block}"), &format!("\n<{block}"));
    }
    let mut inside = false;
    text.retain(|c| {
        inside = (inside || c == '<') && c != '>';
        !inside && c != '>'
    });
    let lines = text.lines().map(one_line);
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}
