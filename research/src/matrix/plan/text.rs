//! The page of a plan.

use super::{MatrixPlan, Method};
use crate::matrix::lab::Lab;
use crate::matrix::outcome::TrainedModel;
use crate::matrix::page::Models;
use crate::matrix::paper::{self, Printed};
use crate::matrix::{picture, write};
use audit::Result;
use audit::judge::published;
use std::path::{Path, PathBuf};

impl MatrixPlan {
    pub(super) fn introduction(&self) -> String {
        let seeds = match self.seeds.len() {
            1 => "One seed.".into(),
            n => format!("{n} seeds: ± is the standard deviation over them."),
        };
        let mut out = format!(
            "# Methods, seeds and data\n\nWritten by `cargo research matrix`; every number follows from logs and reports. {seeds} Minutes are wall \
             time of the training. Every model is audited with `audit {}`.\n\n| method | audit-train | starts from |\n|---|---|---|\n",
            self.audit
        );
        for method in &self.methods {
            let mut first: Option<String> = None;
            for images in self.data.iter().filter(|images| !method.left_out.contains(&images.name)) {
                let words = self.words(method, &images.name).join(" ");
                let name = match &first {
                    None => method.name.clone(),
                    // Most methods have the same flags everywhere.
                    Some(first) if *first == words => continue,
                    Some(_) => format!("{}, {}", method.name, images.name),
                };
                out += &format!("| {name} | `{words}` | {} |\n", method.from.as_deref().unwrap_or("–"));
                first.get_or_insert(words);
            }
        }
        out
    }

    /// The papers' numbers of the methods beside the results here. Empty if the papers have none for this
    /// data.
    fn beside_paper(&self, data: &str, models: &[TrainedModel], lab: &Lab) -> String {
        let of = |method: &Method| models.iter().find(|m| m.spec.name == method.name);
        let stated: Vec<(&TrainedModel, &Printed)> =
            self.methods.iter().filter_map(|m| Some((of(m)?, m.printed.get(data)?))).collect();
        let mut out = paper::stated(&stated);
        let compared: Vec<(&TrainedModel, &[String], Vec<String>)> = self
            .methods
            .iter()
            .filter(|m| !m.rows.is_empty())
            .filter_map(|m| Some((of(m)?, &m.rows[..], lab.reports(&m.name))))
            .collect();
        if paper::has_rows(data) && !compared.is_empty() {
            let files: Vec<PathBuf> =
                compared.iter().flat_map(|(.., files)| files).map(PathBuf::from).collect();
            out += &match published::beside(&files, data) {
                Ok(beside) => paper::compared(&beside, &compared),
                // Other suites have none of the numbers.
                Err(why) => format!("\nNot beside the paper: {why}.\n"),
            };
        }
        if out.is_empty() {
            return out;
        }
        format!(
            "\n## Printed and here\n\nThe paper's numbers, and means over the seeds here. They are comparable where data, net, budget and number of \
             queries are the paper's.\n{out}"
        )
    }

    /// The text about a data set, with the picture written beside the page.
    pub(super) fn section(
        &self,
        name: &str,
        models: &[TrainedModel],
        lab: &Lab,
        page: &Path,
    ) -> Result<String> {
        let all = Models(models);
        let left_out = self.left_out(name).map_or(String::new(), |sentence| format!("\n{sentence}\n"));
        let beside = self.beside_paper(name, models, lab);
        let mut out = format!("\n# {name}\n{left_out}{beside}\n{}{}", all.table(), all.measures());
        if models.iter().flat_map(|m| &m.runs).any(|run| run.scores.ars.is_some()) {
            let stem = page.file_stem().unwrap_or_default().to_string_lossy();
            let beside = page.with_file_name(format!("{stem}-{name}.svg"));
            write(&beside, &picture::scatter(models))?;
            out += &all.curves(&beside.file_name().unwrap_or_default().to_string_lossy(), "");
        }
        if !self.compare.is_empty() {
            out += &all.matched(&self.compare);
        }
        Ok(out)
    }
}
