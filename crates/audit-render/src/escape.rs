//! Escaping of texts from files and command lines, for each format.

use audit_base::visible::is_obeyed;

/// Escapes a text for HTML and XML, in text and in quoted attributes. Control characters, which XML forbids,
/// become spaces, and so do characters that turn the text around them.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if is_obeyed(c) || matches!(c, '\u{FFFE}' | '\u{FFFF}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Escapes a text for one line of Markdown, table cells included. No part of it acts as a link, a mention, a
/// tag or emphasis.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => out.extend(['\\', c]),
            c if is_obeyed(c) => out.push(' '),
            c => out.push(c),
        }
        if links(&text[..at], c, &text[at + c.len_utf8()..]) {
            out.push_str("<!-- -->");
        }
    }
    out
}

/// Whether a forge makes a link of the texts around `c`, unless a comment behind it parts them: a mention, an
/// address, a reference to an issue. It looks for these in its HTML, in which escapes and entities are gone.
fn links(before: &str, c: char, after: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let number = after.starts_with(|c: char| c.is_ascii_digit());
    match c {
        // The @ of R@1 and mAP@R has a word before it, and no domain behind it.
        '@' => {
            let domain = after.split(|c: char| !word(c) && c != '-' && c != '.').next().unwrap_or_default();
            !before.ends_with(word) || domain.trim_end_matches('.').contains('.')
        }
        '#' => number,
        // GH-12 is GitHub's other way to write #12.
        '-' => {
            number && before.as_bytes().rchunks(2).next().is_some_and(|end| end.eq_ignore_ascii_case(b"gh"))
        }
        ':' => after.starts_with("//"),
        '.' => before.ends_with("www"),
        _ => false,
    }
}

/// One field of CSV (RFC 4180). A text that a spreadsheet would take for a formula gets an apostrophe in
/// front.
pub fn csv(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula { format!("'{text}") } else { text.to_string() };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

/// One word of a command line, quoted where a shell needs it.
pub fn shell(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=+,:@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The words of a command line that [`shell`] quoted. A report states its command line as one string, and
/// reports of earlier versions have no other record of their flags.
pub fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut chars) = (vec![String::new()], false, line.chars());
    while let Some(c) = chars.next() {
        let word = words.last_mut().expect("never empty");
        match (c, quoted) {
            ('\'', _) => quoted = !quoted,
            ('\\', false) => word.extend(chars.next()),
            (' ', false) => words.push(String::new()),
            _ => word.push(c),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GitHub links `\@me`, `&#64;me` and `\#1`, and not `@<!-- -->me` (github/cmark-gfm, issue 181). The
    /// other cases are those of its specification, "Autolinks (extension)".
    #[test]
    fn no_forge_makes_links() {
        let cases = [
            ("@me, é@me", "@<!-- -->me, é@<!-- -->me"),
            ("a@b.com", "a@<!-- -->b.com"),
            ("#1 org/repo#12 #a", "\\#<!-- -->1 org/repo\\#<!-- -->12 \\#a"),
            ("GH-12 gh-1 -1 GH-a net-1", "GH-<!-- -->12 gh-<!-- -->1 -1 GH-a net-1"),
            ("https://a.b", "https:<!-- -->//a.b"),
            ("www.a.b", "www.<!-- -->a.b"),
            ("R@1 of mAP@R, in R@1.", "R@1 of mAP@R, in R@1."),
            ("10:30, a.b", "10:30, a.b"),
        ];
        for (text, expected) in cases {
            assert_eq!(markdown(text), expected);
        }
    }

    #[test]
    fn words_come_back_as_they_were_quoted() {
        let all = ["audit", "--data", "my photos/it's", "", "\\", "-o", "a=b.json"];
        assert_eq!(words(&all.map(shell).join(" ")), all);
    }

    #[test]
    fn nothing_gets_through() {
        assert_eq!(markup("<a href=\"x\">'&\u{1}"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp; ");
        assert_eq!(markup("a\u{202e}gnp"), "a gnp");
        assert_eq!(markdown("a|b\n[x](y) <b>\u{202e}"), "a\\|b \\[x\\](y) &lt;b&gt; ");
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\tx"] {
            assert_eq!(csv(text), format!("'{text}"));
        }
        assert_eq!(csv("=A1,\"x\""), "\"'=A1,\"\"x\"\"\"");
        assert_eq!((csv("plain").as_str(), csv("a,\"b\"").as_str()), ("plain", "\"a,\"\"b\"\"\""));
    }
}
