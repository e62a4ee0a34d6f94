//! The report as JSON: a line for each field, and a line for each element of a list of objects. Objects in lists, such as the
//! outcomes of trials, take one line each, so that a report is a third of what it would be with a line for each of their fields,
//! and that a difference between two reports names the trial.

use crate::record::Report;
use crate::{Error, Result};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// A value as JSON of many lines.
pub(super) fn pretty(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|e| Error::internal(format!("the report as JSON: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    lines(report)
}

/// A value as JSON with a line for each element of a list of objects.
pub(super) fn lines(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, Lines::default()))
        .map_err(|e| Error::internal(format!("the report as JSON: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Where lines break.
#[derive(Default)]
struct Lines {
    /// The containers that are open, the innermost last.
    open: Vec<Open>,
}

struct Open {
    list: bool,
    /// Whether all of it stands on one line: it is an object in a list, or within such an object.
    one_line: bool,
    /// Whether an element began a line.
    broken: bool,
}

impl Lines {
    fn line<W: ?Sized + Write>(&self, to: &mut W) -> io::Result<()> {
        to.write_all(b"\n")?;
        (0..self.open.len()).try_for_each(|_| to.write_all(b"  "))
    }

    fn one_line(&self) -> bool {
        self.open.last().is_some_and(|parent| parent.one_line || parent.list)
    }

    /// Opens a container. An object in a list begins a line.
    fn begin<W: ?Sized + Write>(&mut self, to: &mut W, list: bool) -> io::Result<()> {
        let one_line = self.one_line();
        if !list && self.open.last().is_some_and(|parent| parent.list && !parent.one_line) {
            self.line(to)?;
            self.open.iter_mut().last().into_iter().for_each(|parent| parent.broken = true);
        }
        self.open.push(Open { list, one_line, broken: false });
        to.write_all(if list { b"[" } else { b"{" })
    }

    fn end<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        let Some(Open { list, broken, .. }) = self.open.pop() else { return Ok(()) };
        if broken {
            self.line(to)?;
        }
        to.write_all(if list { b"]" } else { b"}" })
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, true)
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, false)
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if !first {
            to.write_all(b",")?;
        }
        match self.open.iter_mut().last().filter(|parent| !parent.one_line) {
            Some(parent) => parent.broken = true,
            None => return Ok(()),
        }
        self.line(to)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(if self.open.last().is_some_and(|parent| parent.one_line) { b":" } else { b": " })
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;
    use serde::Serialize;
    use serde_json::{Serializer, Value, json};

    #[test]
    fn objects_in_lists_take_a_line_each() {
        let value = json!({ "a": 1, "b": [1.5, 2], "c": [{ "x": [{ "y": 1 }], "z": {} }, { "x": [] }], "d": { "e": [], "f": {} } });
        let mut bytes = Vec::new();
        value.serialize(&mut Serializer::with_formatter(&mut bytes, Lines::default())).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let expected = "{\n  \"a\": 1,\n  \"b\": [1.5,2],\n  \"c\": [\n    {\"x\":[{\"y\":1}],\"z\":{}},\n    {\"x\":[]}\n  ],\n  \"d\": \
                        {\n    \"e\": [],\n    \"f\": {}\n  }\n}";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
