//! `--partition auto`: the part of a run, from the variables of the engine that started this process.

use crate::record::Partition;

/// An engine that numbers the tasks of a job in environment variables.
struct Engine {
    name: &'static str,
    /// The task's number.
    index: &'static str,
    /// The number of tasks.
    of: &'static str,
    /// The first task's number.
    first: First,
}

/// The number of the first task.
enum First {
    Is(u64),
    /// In this variable.
    Named(&'static str, &'static str),
}

/// Every engine. [`PARTS`] has the number of tasks if the engine doesn't state it.
const ENGINES: &[Engine] = &[
    Engine {
        name: "Slurm",
        index: "SLURM_ARRAY_TASK_ID",
        of: "SLURM_ARRAY_TASK_COUNT",
        first: First::Named("SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX"),
    },
    Engine { name: "Kubernetes", index: "JOB_COMPLETION_INDEX", of: PARTS, first: First::Is(0) },
    Engine {
        name: "AWS Batch",
        index: "AWS_BATCH_JOB_ARRAY_INDEX",
        of: "AWS_BATCH_JOB_ARRAY_SIZE",
        first: First::Is(0),
    },
    Engine { name: "GNU parallel", index: "PARALLEL_SEQ", of: PARTS, first: First::Is(1) },
    Engine { name: "CircleCI", index: "CIRCLE_NODE_INDEX", of: "CIRCLE_NODE_TOTAL", first: First::Is(0) },
    Engine {
        name: "Buildkite",
        index: "BUILDKITE_PARALLEL_JOB",
        of: "BUILDKITE_PARALLEL_JOB_COUNT",
        first: First::Is(0),
    },
    Engine { name: "GitLab", index: "CI_NODE_INDEX", of: "CI_NODE_TOTAL", first: First::Is(1) },
];

/// The number of parts; overrides the engine's. A job array of the missing parts has fewer tasks than the run
/// has parts.
pub const PARTS: &str = "AUDIT_PARTS";

/// The part of this process, from its environment. Errors, in words: no engine is found, two disagree, or a
/// number is out of range.
pub fn partition(variable: impl Fn(&str) -> Option<String>) -> Result<Partition, String> {
    let number = |name: &str| -> Result<Option<u64>, String> {
        let Some(text) = variable(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| format!("{name}={text} is no number"))
    };
    let parts = number(PARTS)?;
    let mut found: Vec<(&Engine, Partition)> = Vec::new();
    for engine in ENGINES {
        let Some(index) = number(engine.index)? else { continue };
        let Some(of) = parts.map_or_else(|| number(engine.of), |of| Ok(Some(of)))? else {
            // Variables like CI_NODE_INDEX come in pairs; for other engines the user states the count.
            if engine.of == PARTS {
                return Err(format!(
                    "{} set {}={index}, and not how many parts there are: set {PARTS} to their number",
                    engine.name, engine.index
                ));
            }
            continue;
        };
        let part = place(engine, index, of, parts.is_some(), number)?;
        found.push((engine, part));
    }
    match found[..] {
        [] => Err(format!(
            "auto: no engine says which part this is: expected {}. Give the part itself, as hash:1/3",
            ENGINES.iter().map(|e| format!("{} ({})", e.index, e.name)).collect::<Vec<_>>().join(", ")
        )),
        [(_, part), ref others @ ..] => match others.iter().find(|(_, other)| *other != part) {
            None => Ok(part),
            Some((other, theirs)) => Err(format!(
                "auto: {} says that this is part {part}, but {} that it is part {theirs}. Give the part itself, as hash:1/3",
                found[0].0.name, other.name
            )),
        },
    }
}

/// The part with an engine's number `index`. `count_is_stated`: whether [`PARTS`] stated `of`. If so, numbers
/// are those of parts.
fn place(
    engine: &Engine,
    index: u64,
    of: u64,
    count_is_stated: bool,
    number: impl Fn(&str) -> Result<Option<u64>, String>,
) -> Result<Partition, String> {
    let first = match engine.first {
        First::Is(first) => first,
        // A part's number is the task's own, whichever tasks run: array=1-64, and later array=3,7-9.
        First::Named(..) if count_is_stated => 1,
        First::Named(min, max) => {
            let first = number(min)?.unwrap_or(1);
            let last = number(max)?.unwrap_or(first + of - 1);
            if last.checked_sub(first) != of.checked_sub(1) {
                return Err(format!(
                    "auto: {} runs {of} tasks with numbers from {first} to {last}, so that some are left out. Set {PARTS} to the \
                     number of parts, and number the tasks from 1",
                    engine.name
                ));
            }
            first
        }
    };
    let wrong = || {
        format!(
            "auto: {} says {}={index} of {of}; its first number is {first}, so that the last is {}",
            engine.name,
            engine.index,
            (first + of).saturating_sub(1)
        )
    };
    let place = index.checked_sub(first).filter(|place| *place < of).ok_or_else(wrong)?;
    format!("hash:{}/{of}", place + 1).parse()
}

#[cfg(test)]
mod tests {
    use super::partition;

    fn found(variables: &[(&str, &str)]) -> Result<String, String> {
        let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        partition(value).map(|part| part.to_string())
    }

    /// The numbers follow the engines' own documentation: GitLab counts from 1, Kubernetes, AWS Batch and
    /// CircleCI from 0, and Slurm from the start of the array.
    #[test]
    fn parts_are_those_of_the_engine() {
        let slurm = |id, count, min, max| {
            [
                ("SLURM_ARRAY_TASK_ID", id),
                ("SLURM_ARRAY_TASK_COUNT", count),
                ("SLURM_ARRAY_TASK_MIN", min),
                ("SLURM_ARRAY_TASK_MAX", max),
            ]
        };
        assert_eq!(found(&slurm("0", "8", "0", "7")).unwrap(), "hash:1/8");
        assert_eq!(found(&slurm("10", "8", "10", "17")).unwrap(), "hash:1/8");
        assert_eq!(found(&slurm("17", "8", "10", "17")).unwrap(), "hash:8/8");
        // Only parts 3 and 7 to 9 again: four tasks, of a run of more parts.
        let again = slurm("7", "4", "3", "9");
        assert!(found(&again).unwrap_err().contains("AUDIT_PARTS"));
        assert_eq!(found(&[&again[..], &[("AUDIT_PARTS", "16")]].concat()).unwrap(), "hash:7/16");
        assert_eq!(found(&[("JOB_COMPLETION_INDEX", "0"), ("AUDIT_PARTS", "4")]).unwrap(), "hash:1/4");
        assert!(found(&[("JOB_COMPLETION_INDEX", "0")]).unwrap_err().contains("AUDIT_PARTS"));
        assert_eq!(
            found(&[("AWS_BATCH_JOB_ARRAY_INDEX", "3"), ("AWS_BATCH_JOB_ARRAY_SIZE", "4")]).unwrap(),
            "hash:4/4"
        );
        assert_eq!(found(&[("CI_NODE_INDEX", "1"), ("CI_NODE_TOTAL", "4")]).unwrap(), "hash:1/4");
        assert_eq!(found(&[("CIRCLE_NODE_INDEX", "1"), ("CIRCLE_NODE_TOTAL", "4")]).unwrap(), "hash:2/4");
        assert_eq!(found(&[("PARALLEL_SEQ", "2"), ("AUDIT_PARTS", "4")]).unwrap(), "hash:2/4");
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let wrong: [(&[(&str, &str)], &str); 6] = [
            (&[], "no engine"),
            (&[("CI_NODE_INDEX", "0"), ("CI_NODE_TOTAL", "4")], "first number is 1"),
            (&[("CI_NODE_INDEX", "5"), ("CI_NODE_TOTAL", "4")], "the last is 4"),
            (&[("AWS_BATCH_JOB_ARRAY_INDEX", "4"), ("AWS_BATCH_JOB_ARRAY_SIZE", "4")], "the last is 3"),
            (&[("CI_NODE_INDEX", "one"), ("CI_NODE_TOTAL", "4")], "no number"),
            (
                &[
                    ("CI_NODE_INDEX", "1"),
                    ("CI_NODE_TOTAL", "4"),
                    ("CIRCLE_NODE_INDEX", "1"),
                    ("CIRCLE_NODE_TOTAL", "4"),
                ],
                "but GitLab that it is",
            ),
        ];
        for (variables, expected) in wrong {
            let error = found(variables).unwrap_err();
            assert!(error.contains(expected), "{variables:?}: {error}");
        }
    }
}
