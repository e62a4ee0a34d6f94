//! What becomes of a finished trial: a line of the journal, a changed photograph, pictures of the report.

use super::Work;
use crate::Result;
use crate::pipeline::attacked_files::AttackedFiles;
use crate::pipeline::examples::Collector;
use crate::record::Outcome;
use crate::request::Request;
use crate::shards::identity::Identity;
use crate::shards::journal::Journal;
use crate::threat::Evidence;
use std::collections::BTreeSet;

/// Where finished trials go.
pub struct Recorder<'a> {
    /// The journal, if trials are saved.
    pub journal: &'a mut Option<Journal>,
    /// Gathers the pictures of the report, if it has any.
    pub collector: Option<Collector>,
    /// Folder for changed photographs.
    pub attacked: Option<AttackedFiles>,
}

impl Recorder<'_> {
    /// Begins or continues the journal and the folder of the run `run` of `trials` trials, and returns the
    /// outcomes of an earlier process, by place. Errors (exit code 2): the journal or the folder is of
    /// another run.
    pub fn begin(
        &mut self,
        request: &Request,
        run: &Identity,
        trials: usize,
    ) -> Result<Vec<(usize, Outcome)>> {
        let part = request.run.partition.map(|part| part.to_string());
        let done = match self.journal {
            Some(journal) => journal.begin(run.clone(), part, trials)?,
            None => Vec::new(),
        };
        match done.len() {
            0 if request.run.resume => {
                request.progress.note("no trial is done yet: the run starts from the beginning")
            }
            0 => {}
            n => request.progress.note(&format!("{n} of {trials} trials are done already")),
        }
        if let Some(files) = &mut self.attacked {
            let changed = files.claim(run, request.run.resume)?;
            if changed > 0 {
                request.progress.note(&format!(
                    "--attacked-out: files that were changed since they were written are written again: {changed}"
                ));
            }
        }
        Ok(done)
    }

    /// Records the trial at `place`.
    pub(super) fn add(
        &mut self,
        work: &Work,
        place: usize,
        outcome: &Outcome,
        evidence: &Evidence,
    ) -> Result<()> {
        // The file of a trial is written before the trial is added to the journal.
        self.show(work, outcome, evidence)?;
        self.journal.as_mut().map_or(Ok(()), |journal| journal.add(place, outcome))
    }

    /// Writes the file of a trial, and keeps it for the pictures.
    pub(super) fn show(&mut self, work: &Work, outcome: &Outcome, evidence: &Evidence) -> Result<()> {
        if let Some(files) = &mut self.attacked {
            files.write(outcome, evidence)?;
        }
        if let Some(collector) = &mut self.collector {
            collector.see(&work.context.gallery, outcome, evidence);
        }
        Ok(())
    }

    /// Places of the trials of an earlier process that the report shows or the folder lacks.
    pub(super) fn missing(&self, work: &Work, outcomes: &[Outcome]) -> Vec<usize> {
        let mut places = BTreeSet::new();
        if let Some(collector) = &self.collector {
            places.extend(collector.unseen(&work.context.gallery, outcomes));
        }
        if let Some(files) = &self.attacked {
            places.extend((0..outcomes.len()).filter(|&i| !files.has(&outcomes[i])));
        }
        places.into_iter().collect()
    }

    /// Writes the list of the folder.
    pub(super) fn finish(&self, work: &Work, outcomes: &[Outcome]) -> Result<()> {
        let Some(files) = &self.attacked else { return Ok(()) };
        files.finish(outcomes, &work.context.gallery, work.dataset, work.plan.form)
    }
}
