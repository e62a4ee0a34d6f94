//! Paragraphs in lines of a terminal.

use super::width;
use audit_base::visible::visible;
use unicode_width::UnicodeWidthStr;

/// Wraps a paragraph at spaces. Lines after the first are indented.
pub fn wrap(text: &str) -> String {
    wrap_in(text, width())
}

/// Wraps a paragraph beside `head`. Lines after the first are indented by its width. Lines that the text has
/// itself are kept.
pub fn wrap_under(head: &str, text: &str) -> String {
    let used = head.width();
    let indent = format!("\n{}", " ".repeat(used));
    let lines = text.lines().map(|line| wrap_in(line, width().saturating_sub(used)));
    head.to_string() + &lines.collect::<Vec<_>>().join("\n").replace('\n', &indent)
}

pub(super) fn wrap_in(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in visible(text).split(' ') {
        let last = lines.len() - 1;
        let used = lines[last].width();
        if used > 0 && used + 1 + word.width() > width {
            let shown = lines[last].trim_end().len();
            lines[last].truncate(shown);
            lines.push(format!("  {word}"));
        } else {
            if used > 0 {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::wrap_in;

    /// A Chinese character takes two columns of a terminal.
    #[test]
    fn wide_characters_take_two_columns() {
        let wrapped = wrap_in("甲甲甲甲 乙乙乙乙 abcd abcd", 10);
        assert_eq!(wrapped, "甲甲甲甲\n  乙乙乙乙\n  abcd\n  abcd");
    }
}
