//! `audit gate`.

use super::args::{GateArgs, ProgressArgs};
use super::{Done, written};
use crate::judge::gate::Rules;
use crate::judge::row::alarm;
use crate::pipeline::conclude::with_verdict;
use crate::pipeline::settings::refuse_inputs;
use crate::record::reason::SAMPLING_NOISE;
use crate::record::{Report, Verdict};
use crate::report::{self, Target};
use crate::suite::Suite;
use crate::visible::visible;
use crate::{Error, Result};
use clap::Args;
use std::path::{Path, PathBuf};

/// Flags of `audit gate`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit gate report.json --fail-under eps50=0.3\n  audit gate report.json --baseline base.json \
    --max-drop robust_r1=5\n\nMetrics:\n  \
    eps50                     255ths that make half of the correct queries fail\n  \
    robust_r1                 R@1 under the strong search\n  \
    robust_r1@1/255           at a smaller ε; robust_r1_file@1/255: 8-bit files\n  \
    robust_top1               without classes, instead of robust_r1\n  \
    median_eps                median of the smallest changes (suite minimum)\n  \
    ars, ers, ars_strong      scores\n  \
    attack.ES:R               the mean after an attack (audit attacks)\n  \
    attack.ES:R.resistance    its resistance per trial; .table: by means\n  \
    attack.ES:R.worst_class   the lowest of any class; .worst_group\n  \
    benign.r1, benign.map     clean R@1 and mAP\n  \
    corruption.blur@3.r1      under a natural corruption\n\nExit codes: 0 passed · 10 a threshold is missed, or a drop is undecided · 11 worse \
    than the baseline · 12 not trustworthy · 2 unknown or missing metric"
)]
pub struct GateCommand {
    /// A saved report, .json
    pub report: PathBuf,
    /// Rules of the gate.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Also use the rules of the `gate` section of this suite
    #[arg(long)]
    pub suite: Option<String>,
    /// File to write the report with the verdict to; the extension chooses the format. May be repeated
    #[arg(short = 'o', long = "report", alias = "output", value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// How errors are shown; there is no progress.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl GateCommand {
    pub(super) fn run(&self) -> Result<Done> {
        let baseline = self.gate.baseline.iter().map(|path| ("the file of --baseline", path.as_path()));
        let suite = self.suite.iter().map(|suite| ("the file of --suite", Path::new(suite)));
        let outputs: Vec<_> = self.output.iter().map(|path| ("-o", path.as_path())).collect();
        refuse_inputs(&baseline.chain(suite).collect::<Vec<_>>(), &outputs)?;
        let report = Report::load(&self.report)?;
        let demands = self.gate.demands();
        let baseline = demands.baseline.as_deref().map(Report::load).transpose()?;
        let suite = self.suite.as_deref().map(Suite::load).transpose()?;
        let suite = suite.map_or(Vec::new(), |s| s.gate);
        let rules = Rules::settle(&suite, &demands.fail_under, &demands.fail_over, &demands.max_drop)?;
        if rules.is_empty() && baseline.is_none() {
            return Err(Error::usage(
                "the gate has no rule: add --fail-under robust_r1=30, --baseline FILE or --suite FILE",
            ));
        }
        if baseline.is_none() && !demands.max_drop.is_empty() {
            return Err(Error::usage("--max-drop compares with a baseline: add --baseline FILE"));
        }
        if baseline.is_none() && !rules.have_bounds() {
            return Err(Error::usage(
                "the gate has no rule that could fail: those of the suite are off, or compare with a baseline. Add --baseline FILE, or a \
                 bound such as --fail-under robust_r1=30",
            ));
        }
        let verdict = Verdict::judge(&report, baseline.as_ref(), &rules)?;
        let shown = report::terminal::verdict(&verdict);
        let report = with_verdict(report, verdict);
        let noise = report.warnings.iter().filter(|w| SAMPLING_NOISE.made(w));
        let noise = noise.map(|w| format!("{} [{}]: {}\n", w.word(), w.id, visible(&w.text)));
        let noise: String = noise.collect();
        report::write_all(Target::open_all(&self.output)?, None, &report, true)?;
        let alarm = alarm(&report).map_or(String::new(), |alarm| format!("{}\n", visible(&alarm)));
        Ok((alarm + &shown + &noise + &written(&self.output), report.exit()))
    }
}
