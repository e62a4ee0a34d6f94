//! Command lines as text.

/// The words of a command line. A path is one word, whatever blanks it has: lines have it in quotation marks,
/// as `{path:?}` writes it.
///
/// Panics: a quotation mark within a word, as in `--data="a b"`.
pub fn words(line: &str) -> Vec<&str> {
    let parts: Vec<&str> = line.split('"').collect();
    let apart = |(i, part): (usize, &&str)| {
        let (first, last) = (i == 0, i + 1 == parts.len());
        (first || part.is_empty() || part.starts_with(char::is_whitespace))
            && (last || part.is_empty() || part.ends_with(char::is_whitespace))
    };
    assert!(parts.iter().enumerate().step_by(2).all(apart), "a quotation mark within a word: {line}");
    let parts = parts.iter().enumerate();
    let words = parts.map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![*part],
    });
    words.collect::<Vec<_>>().concat()
}
