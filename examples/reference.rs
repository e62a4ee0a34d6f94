//! Prints docs/reference.md: what the program itself knows of its commands, suites, measures, findings and
//! reports. `cargo xtask book` writes the page, which git ignores.

use audit::Exit;
use audit::command::Cli;
use audit::data::LAYOUTS;
use audit::judge::quantity::Quantity;
use audit::record::reason::REASONS;
use audit::report::{self, FORMATS};
use audit::suite::{Alpha, Suite};
use audit::threat::OBJECTIVES;
use audit::threat::term::{Averaging, Goal, Term, Unit};
use clap::{Arg, Command, CommandFactory};
use serde_json::{Map, Value};

const HEAD: &str = "# Reference

<!-- Written by `cargo xtask book`. -->

The program itself wrote this page. Other pages of reference: the [files that audit reads](formats.md) and the columns of its table of
trials, [reports](reports.md), [attacks](attacks.md), [operators](operators.md), and the flags of the
[trainer](reference-training.md).

";

#[allow(dead_code, reason = "the test takes the page alone")]
fn main() -> Result<(), audit::Error> {
    print!("{}", page()?);
    Ok(())
}

/// The whole page.
pub fn page() -> Result<String, audit::Error> {
    let sections = [
        ("Commands", commands()),
        ("Exit codes", exit_codes()),
        ("Suites", suites()?),
        ("Attacks", attacks()),
        ("Measures", measures()),
        ("Metrics of gates and comparisons", metrics()),
        ("Findings", findings()),
        ("Layouts of images", layouts()),
        ("Formats of reports", formats()),
        ("Fields of a JSON report", fields()?),
    ];
    let text: Vec<String> = sections.iter().map(|(title, text)| format!("## {title}\n\n{text}")).collect();
    Ok(HEAD.to_owned() + &text.join("\n"))
}

/// A table of Markdown.
fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let head: Vec<String> = head.iter().map(|cell| cell.to_string()).collect();
    let rule: Vec<String> = head.iter().map(|_| "---".into()).collect();
    let rows = rows.into_iter().map(|row| line(&row));
    line(&head) + &line(&rule).replace(' ', "") + &rows.collect::<String>()
}

/// Text as it stands in a cell.
pub fn cell(text: impl ToString) -> String {
    let text = text.to_string().replace("\n\n", " ").replace('\n', " ");
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|").replace('<', "&lt;")
}

fn code(text: impl ToString) -> String {
    format!("`{}`", text.to_string().replace('|', "\\|"))
}

fn commands() -> String {
    let mut all = Cli::command();
    all.build();
    let shown = || all.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let about = |c: &Command| cell(c.get_about().map_or(String::new(), |about| about.to_string()));
    let row = |c: &Command| vec![format!("[`{0}`](#audit-{0})", c.get_name()), about(c)];
    let mut text = table(&["command", ""], shown().map(row));
    text += "\nWithout a command, `audit` runs an audit: `audit model.onnx` is `audit run model.onnx`.\n";
    let audit: Vec<&Arg> = all.find_subcommand("run").map_or(Vec::new(), |run| visible(run).collect());
    for command in shown() {
        text += &format!("\n### audit {}\n\n{}.\n\n", command.get_name(), about(command));
        text += &flags(command, if command.get_name() == "run" { &[] } else { &audit });
        if let Some(after) = command.get_after_help() {
            text += &format!("\n```text\n{}\n```\n", after.to_string().trim_end());
        }
    }
    text
}

fn visible(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help")
}

/// The arguments of a command, each with a row; those that an audit has in the same way are named below.
pub fn flags(command: &Command, audit: &[&Arg]) -> String {
    let same = |arg: &Arg| {
        let text = |arg: &Arg| arg.get_help().map(ToString::to_string);
        audit.iter().any(|a| a.get_id() == arg.get_id() && text(a) == text(arg) && names(a) == names(arg))
    };
    let (shared, own): (Vec<&Arg>, Vec<&Arg>) = visible(command).partition(|arg| same(arg));
    let mut text = match own.is_empty() {
        true => String::new(),
        false => {
            table(&["argument", "what"], own.iter().map(|arg| vec![code(names(arg)), cell(meaning(arg))]))
        }
    };
    if !shared.is_empty() {
        let names: Vec<String> = shared.iter().map(|arg| code(names(arg))).collect();
        text += &format!("\nAs in [an audit](#audit-run): {}.\n", names.join(", "));
    }
    text
}

/// An argument as it is typed, with the names of its values.
fn names(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default().join(" ");
    let flags = [arg.get_short().map(|s| format!("-{s}")), arg.get_long().map(|l| format!("--{l}"))];
    let flags: Vec<String> = flags.into_iter().flatten().collect();
    match (flags.is_empty(), arg.get_action().takes_values()) {
        (true, _) if arg.is_required_set() => values,
        (true, _) => format!("[{values}]"),
        (false, true) => format!("{} {values}", flags.join(", ")),
        (false, false) => flags.join(", "),
    }
}

/// Its help, its values and its default.
fn meaning(arg: &Arg) -> String {
    let mut text = arg.get_help().map_or(String::new(), ToString::to_string);
    let values = arg.get_possible_values();
    if arg.get_action().takes_values() && !values.is_empty() {
        let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
        text += &format!(" [values: {}]", values.join(", "));
    }
    if !arg.get_default_values().is_empty()
        && !arg.is_hide_default_value_set()
        && arg.get_action().takes_values()
    {
        let values: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        text += &format!(" [default: {}]", values.join(" "));
    }
    text
}

/// An address as a link.
fn link(address: &str) -> String {
    let plain = address.trim_start_matches("https://");
    let name = match plain.split_once('/') {
        Some(("arxiv.org", id)) => id.replace("abs/", "arXiv:"),
        Some(("doi.org", id)) => format!("doi:{id}"),
        Some((host, _)) => host.into(),
        None => plain.into(),
    };
    format!("[{name}]({address})")
}

fn exit_codes() -> String {
    let done =
        vec!["0".into(), "done".into(), "The command did what it was asked to; no gate failed.".into()];
    let rows = Exit::ALL
        .iter()
        .map(|(exit, short, when)| vec![(*exit as u8).to_string(), short.to_string(), cell(when)]);
    table(&["code", "", "when"], std::iter::once(done).chain(rows))
}

fn suites() -> Result<String, audit::Error> {
    let mut rows = Vec::new();
    for (name, about) in Suite::built_in()? {
        let suite = Suite::load(&name)?;
        let attack = |e: &audit::suite::SuiteAttack| match e.objective.several {
            Some((key, _)) if e.count > 1 => format!("{} {key}={}", e.objective.code, e.count),
            _ => e.objective.code.to_owned(),
        };
        let attacks: Vec<String> = suite.attacks.iter().map(attack).collect();
        let mut budget = vec![format!("norm {}", suite.ball.name)];
        budget.extend(suite.eps.map(|eps| format!("ε {eps}")));
        budget.extend(suite.alpha.map(|alpha| match alpha {
            Alpha::Size(alpha) | Alpha::For { size: alpha, .. } => format!("α {alpha}"),
            Alpha::Share(share) => format!("α {share} ε"),
        }));
        budget.extend(suite.steps.map(|steps| format!("{steps} step{}", if steps == 1 { "" } else { "s" })));
        budget.push(match suite.effort {
            Some(effort) => format!("strong search, effort {effort}"),
            None => format!("schedule {}", suite.search.name),
        });
        budget.extend((suite.restarts > 0).then(|| format!("{} restarts", suite.restarts)));
        budget.extend(suite.max_queries.map(|most| format!("{most} queries at most")));
        let scores: Vec<&str> = suite.scores.iter().map(|score| score.name()).collect();
        rows.push(vec![
            code(&name),
            cell(about),
            suite.form.to_string(),
            cell(attacks.join(", ")),
            budget.join(", "),
            scores.join(", "),
        ]);
    }
    let text =
        table(&["suite", "", "form", "attacks", "budget, where it is not the protocol's", "scores"], rows);
    Ok(text
        + "\nThe protocol is `rob28` where the longer side of the input is 32 pixels at most, else `rob224`; \
           [suites/protocols.yaml](../suites/protocols.yaml) has their ε, α and steps. Besides every suite but those of the strong search, a \
           sample of the queries is attacked for robust R@1.\n")
}

fn attacks() -> String {
    let row = |o: &audit::threat::Objective| {
        let terms: Vec<String> = o.terms.iter().map(|term| code(term.name)).collect();
        vec![
            code(o.code),
            cell(o.about),
            o.several.map_or(String::new(), |(key, _)| code(key)),
            terms.join(", "),
        ]
    };
    table(&["attack", "", "number of targets", "measures"], OBJECTIVES.iter().map(row))
}

fn measures() -> String {
    let row = |term: &Term| {
        let unit = match term.unit {
            Unit::Percentile => "rank, % of the images",
            Unit::Percent => "share, %",
            Unit::Plain => "plain number",
        };
        let goal = match term.goal {
            Goal::Lowest => "lowest",
            Goal::Highest => "highest",
        };
        let resistance = match term.resistance {
            None => "",
            Some(Averaging::Trials) => "mean over trials",
            Some(Averaging::Means) => "of the means",
        };
        let [ars, strong] = term.weights;
        let parts = [(term.ers.is_some(), "ERS"), (ars > 0, "ARS"), (strong > 0, "ARS, strong")];
        let parts: Vec<&str> = parts.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        let [low, high] = term.range;
        vec![
            code(term.name),
            cell(term.label),
            unit.into(),
            format!("{low} to {high}"),
            goal.into(),
            resistance.into(),
            parts.join("; "),
            link(term.source),
        ]
    };
    let head = ["measure", "", "unit", "range", "the attacker wants the", "resistance", "part of", "source"];
    "Each is measured before and after the attack. Resistance is 100 where the attack changes nothing, and 0 where it gets all that it \
     wants.\n\n"
        .to_owned()
        + &table(&head, Term::all().map(row))
}

fn metrics() -> String {
    let row = |q: &'static Quantity| {
        let [low, high] = q.range;
        let better = if q.lower_is_better { "lower" } else { "higher" };
        vec![code(q.name), format!("{low} to {high}"), better.into()]
    };
    "Names for `--fail-under`, `--fail-over`, `--max-drop`, `audit compare --sort` and the `gate:` of a suite. `.resistance` is the mean over \
     trials, `.table` the ratio of means that published tables print.\n\n"
        .to_owned()
        + &table(&["metric", "range", "more robust where it is"], Quantity::all().map(row))
}

fn findings() -> String {
    let row = |reason: &&audit::record::Reason| {
        vec![code(reason.id), reason.when.into(), cell(reason.asks), cell(reason.advice), link(reason.source)]
    };
    "[Reasons to distrust a result](trust.md) has what each one is compared with.\n\n".to_owned()
        + &table(&["finding", "looked for", "the question", "what to do", "source"], REASONS.iter().map(row))
}

fn layouts() -> String {
    table(&["layout", "where the images lie"], LAYOUTS.iter().map(|l| vec![code(l.name), cell(l.about)]))
}

fn formats() -> String {
    let extensions: Vec<String> = FORMATS.iter().map(|f| code(format!(".{}", f.extension))).collect();
    format!(
        "The extension of `-o` chooses: {}. [Reports](reports.md) says what each one is for.\n",
        extensions.join(", ")
    )
}

/// A table for each type of the JSON Schema, in the order in which they are met.
fn fields() -> Result<String, audit::Error> {
    let schema: Value = serde_json::from_str(&report::schema()?).expect("audit schema prints JSON");
    let mut text =
        "`audit schema` prints the same as JSON Schema. A field marked with `?` may be absent.\n".to_owned();
    let mut met = vec!["Report".to_owned()];
    let mut at = 0;
    while at < met.len() {
        let name = met[at].clone();
        let kind = if at == 0 { &schema } else { &schema["$defs"][&name] };
        text += &format!("\n### {name}\n\n{}\n\n", cell(kind["description"].as_str().unwrap_or_default()));
        text += &match kind["properties"].as_object() {
            Some(properties) => object(kind, properties, &mut met),
            None => format!("{}\n", values(kind, &mut met)),
        };
        at += 1;
    }
    Ok(text)
}

/// The fields of an object.
fn object(kind: &Value, properties: &Map<String, Value>, met: &mut Vec<String>) -> String {
    let required = |name: &str| kind["required"].as_array().is_some_and(|all| all.iter().any(|r| r == name));
    let rows: Vec<Vec<String>> = properties
        .iter()
        .map(|(name, field)| {
            let mark = if required(name) { "" } else { " ?" };
            let about = cell(field["description"].as_str().unwrap_or_default());
            vec![format!("{}{mark}", code(name)), shape(field, met), about]
        })
        .collect();
    table(&["field", "type", "what"], rows)
}

/// The values of a type that is no object.
fn values(kind: &Value, met: &mut Vec<String>) -> String {
    let Some(choices) = kind["oneOf"].as_array() else { return format!("Type: {}.", shape(kind, met)) };
    let choice = |one: &Value| {
        let about = one["description"].as_str().map_or(String::new(), |about| format!(": {}", cell(about)));
        format!("- {}{about}", shape(one, met))
    };
    choices.iter().map(choice).collect::<Vec<_>>().join("\n")
}

/// A type in a few words; types of the schema are links.
fn shape(field: &Value, met: &mut Vec<String>) -> String {
    if let Some(path) = field["$ref"].as_str() {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let link = format!("[{name}](#{})", name.to_lowercase());
        if !met.contains(&name) {
            met.push(name);
        }
        return link;
    }
    if let Some(value) = field.get("const") {
        return code(value.as_str().map_or(value.to_string(), str::to_owned));
    }
    if let Some(all) = field["enum"].as_array() {
        return all.iter().map(|v| code(v.as_str().unwrap_or("null"))).collect::<Vec<_>>().join(", ");
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(all) = field[key].as_array() {
            return all.iter().map(|one| shape(one, met)).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(all) = field["type"].as_array() {
        let one = |kind: &Value| {
            let mut one = field.clone();
            one["type"] = kind.clone();
            one
        };
        return all.iter().map(|kind| shape(&one(kind), met)).collect::<Vec<_>>().join(" or ");
    }
    match field["type"].as_str() {
        Some("array") => match field["prefixItems"].as_array() {
            Some(all) => {
                format!("list of {}", all.iter().map(|one| shape(one, met)).collect::<Vec<_>>().join(", "))
            }
            None => format!("list of {}", shape(&field["items"], met)),
        },
        Some("object") if field["additionalProperties"].is_object() => {
            format!("by name: {}", shape(&field["additionalProperties"], met))
        }
        Some("object") => {
            let properties = field["properties"].as_object().into_iter().flatten();
            let all: Vec<String> =
                properties.map(|(name, one)| format!("{} {}", code(name), shape(one, met))).collect();
            format!("object of {}", all.join(", "))
        }
        Some("integer") => "whole number".into(),
        Some("string") => "text".into(),
        Some("boolean") => "true or false".into(),
        Some(other) => other.into(),
        None => "any".into(),
    }
}
