//! Texts from models, images and reports of other people on a terminal. A control character in a name could
//! clear the screen, set the clipboard or write a verdict of its own.

use std::borrow::Cow;

/// Whether a terminal would obey the character instead of showing it: control characters (C0, DEL, C1), and
/// those that change the direction of the text around them.
pub fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The text for a terminal: what it would obey is written as `\u{1b}`. Lines are kept.
pub fn visible(text: &str) -> Cow<'_, str> {
    written(text, |c| is_obeyed(c) && c != '\n', |c| c.escape_unicode().to_string())
}

/// A name for one line of a terminal: [`visible`], and no line ends in it.
pub fn visible_name(name: &str) -> Cow<'_, str> {
    written(name, is_obeyed, |c| c.escape_unicode().to_string())
}

/// JSON for a terminal. Only strings of JSON can have such characters, and they stay the same strings.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    written(json, |c| is_obeyed(c) && c != '\n', |c| format!("\\u{:04x}", u32::from(c)))
}

fn written(text: &str, is_hidden: impl Fn(char) -> bool, write: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&is_hidden) {
        return text.into();
    }
    text.chars().map(|c| if is_hidden(c) { write(c) } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_terminal_obeys_what_is_written() {
        let hostile = "\u{1b}[2J\u{7}a\r\n\u{7f}\u{9b}m\u{202e}txt.exe\u{2069} é\t🙂";
        let shown = visible(hostile);
        assert_eq!(shown, "\\u{1b}[2J\\u{7}a\\u{d}\n\\u{7f}\\u{9b}m\\u{202e}txt.exe\\u{2069} é\\u{9}🙂");
        assert_eq!(visible(&shown), shown);
        assert_eq!(visible_name("a\nb"), "a\\u{a}b");
        assert!(matches!(visible("plain\ntext"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_the_same_json() {
        let (json, shown) = ("{\n  \"a\": \"\\u001b\u{7f}\u{9b}\u{202e}x\"\n}", visible_json);
        assert_eq!(shown(json), "{\n  \"a\": \"\\u001b\\u007f\\u009b\\u202ex\"\n}");
    }
}
