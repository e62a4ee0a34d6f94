//! Command lines as text.

/// The words of a command line. A path is one word, whatever blanks it has: lines have it in quotation marks,
/// as `{path:?}` writes it.
pub fn words(line: &str) -> Vec<&str> {
    let parts = line.split('"').enumerate();
    let words = parts.map(|(i, part)| match i % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect::<Vec<_>>().concat()
}
