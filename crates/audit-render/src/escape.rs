//! Escaping of texts from files and command lines, for each format.

/// Escapes a text for HTML and XML, in text and in quoted attributes. Control characters, which XML forbids,
/// become spaces.
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
            c if c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Escapes a text for one line of Markdown, table cells included. No part of it acts as a link, a mention, a
/// tag or emphasis.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '@' => out.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
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

    #[test]
    fn words_come_back_as_they_were_quoted() {
        let all = ["audit", "--data", "my photos/it's", "", "\\", "-o", "a=b.json"];
        assert_eq!(words(&all.map(shell).join(" ")), all);
    }

    #[test]
    fn nothing_gets_through() {
        assert_eq!(markup("<a href=\"x\">'&\u{1}"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp; ");
        assert_eq!(markdown("a|b\n[x](y) @me <b>"), "a\\|b \\[x\\](y) &#64;me &lt;b&gt;");
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\tx"] {
            assert_eq!(csv(text), format!("'{text}"));
        }
        assert_eq!(csv("=A1,\"x\""), "\"'=A1,\"\"x\"\"\"");
        assert_eq!((csv("plain").as_str(), csv("a,\"b\"").as_str()), ("plain", "\"a,\"\"b\"\"\""));
    }
}
