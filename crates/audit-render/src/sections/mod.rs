//! What the terminal and Markdown show below the attacks, section by section, and what the page shows of the
//! same.

mod corruption;
mod verification;

use crate::view::{Grid, crafted, retrieval, smallest, weakest, weakest_by_attack};
use audit_report::record::Report;
use maud::Markup;

/// Where a section is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A terminal, whose tables have no room for intervals.
    Terminal,
    /// Markdown or HTML.
    Page,
}

/// What a section has; empty if the report has nothing for it.
#[derive(Default)]
pub struct Content {
    /// Sentences without a full stop.
    pub sentences: Vec<String>,
    /// Tables, each below a title without a full stop, or below the sentences if that is empty.
    pub tables: Vec<(&'static str, Grid)>,
}

/// A row of [`SECTIONS`].
pub struct Section {
    /// What the terminal and Markdown show.
    pub content: fn(&Report, Medium) -> Content,
    /// Whether its sentences are in the summary of an audit.
    pub brief: bool,
    /// Its section of the page; `None` if that is another one.
    pub page: Option<fn(&Report) -> Markup>,
}

/// Every section, in its order.
pub static SECTIONS: [Section; 6] = [
    below_attacks(attacked_retrieval),
    Section {
        brief: true,
        ..below_attacks(|report, _| sentences(report.smallest.iter().map(smallest).collect()))
    },
    corruption::SECTION,
    below_attacks(|report, _| sentences(crafted(report))),
    below_attacks(weakest_parts),
    verification::SECTION,
];

/// A section that only the terminal and Markdown have.
const fn below_attacks(content: fn(&Report, Medium) -> Content) -> Section {
    Section { content, brief: false, page: None }
}

fn sentences(sentences: Vec<String>) -> Content {
    Content { sentences, tables: Vec::new() }
}

fn attacked_retrieval(report: &Report, medium: Medium) -> Content {
    let title = match medium {
        Medium::Terminal => "retrieval without an attack and under attack, in %",
        Medium::Page => "what attacked queries find, in %",
    };
    Content {
        sentences: Vec::new(),
        tables: retrieval(report).map(|grid| (title, grid)).into_iter().collect(),
    }
}

fn weakest_parts(report: &Report, medium: Medium) -> Content {
    let table = weakest_by_attack(report).filter(|_| medium == Medium::Page);
    let title = "the weakest classes and groups under each attack";
    Content { sentences: weakest(report), tables: table.map(|grid| (title, grid)).into_iter().collect() }
}
