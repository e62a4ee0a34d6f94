//! The report as JSON: a line for each field, and a line for each element of a list of objects. Objects in
//! lists, such as the outcomes of trials, take one line each, so that a report is a third of what it would be
//! with a line for each of their fields, and that a difference between two reports names the trial.

use audit_base::{Error, Result};
use audit_report::judge::quantity::Quantity;
use audit_report::judge::row::{Mark, Row, State};
use audit_report::judge::strong::Contradictions;
use audit_report::record::Report;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// A value as JSON of many lines.
pub fn pretty(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes =
        serde_json::to_vec_pretty(value).map_err(|e| Error::internal(format!("the result as JSON: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The results of an audit, and how they were measured.
// The name of the type in the schema is that of what is read back: nothing reads the numbers, which follow
// from the rest.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub(super) struct Listed<'r> {
    #[serde(flatten)]
    report: &'r Report,
    /// Every number of the report by its name in gates, as all formats for people show it.
    numbers: Vec<Number>,
}

/// A number that was measured, and robust R@1 in any case.
#[derive(Serialize, JsonSchema)]
struct Number {
    /// Its name in gates, such as `ars` or `attack.ES:R`.
    name: &'static str,
    /// The value; absent unless it was measured and may be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// Whether the number is only known to be larger than `value`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    above: bool,
    /// Its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<(f64, f64)>,
    /// Number of queries behind it; 0 if it was not measured.
    queries: usize,
    /// Whether it was measured and may be shown.
    state: State,
    /// Why it was not measured, or is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Why the value is invalid or unreliable: the model masks the gradient that its attacks follow, another
    /// finding invalidates it, or a stronger attack contradicts it. Absent if nothing is known against it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mark: Option<Mark>,
}

fn numbers(report: &Report) -> Vec<Number> {
    let known = Contradictions::of(report);
    let rows = Quantity::of(report).map(|quantity| quantity.row(report));
    let listed =
        rows.filter(|row| row.state != State::NotMeasured || row.quantity == Quantity::robust(report));
    let number = |row: Row| Number {
        // The state says that it is withheld.
        mark: row.mark(&known).filter(|mark| *mark != Mark::Withheld),
        name: row.quantity.name,
        above: row.is_above(),
        value: row.value,
        interval: row.interval,
        queries: row.queries,
        state: row.state,
        why: row.why,
    };
    listed.map(number).collect()
}

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    render_short(report, report)
}

/// As [`render`], of a report whose trials are in another file. Its numbers are those of the `whole`.
pub(super) fn render_short(report: &Report, whole: &Report) -> Result<Vec<u8>> {
    lines(&Listed { report, numbers: numbers(whole) })
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
