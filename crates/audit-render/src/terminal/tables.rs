//! Tables that fit into the columns of a terminal.

use super::Paint;
use super::wrapped::wrap_in;
use crate::view::Grid;
use audit_base::visible::visible;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use unicode_width::UnicodeWidthStr;

/// Columns that a line takes, without its colours.
pub(super) fn columns(line: &str) -> usize {
    line.split('\u{1b}')
        .enumerate()
        .map(|(i, part)| match (i, part.split_once('m')) {
            (1.., Some((_, shown))) => shown.width(),
            _ => part.width(),
        })
        .sum()
}

pub(super) fn unframed(table: &mut Table) {
    table.load_style(presets::NOTHING).column_iter_mut().for_each(|column| {
        column.set_padding((0, 1));
    });
}

/// A table in at most `width` columns. One that is wider loses its frame, then its column `spare`; at last
/// the columns `words` are broken into lines. Numbers never are.
pub fn fitted(mut table: Table, width: usize, words: &[usize], spare: Option<usize>) -> String {
    let fits = |table: &Table| table.lines().all(|line| columns(&line) <= width);
    if fits(&table) {
        return table.to_string();
    }
    unframed(&mut table);
    if let Some(column) = spare.filter(|_| !fits(&table)).and_then(|at| table.column_mut(at)) {
        column.set_constraint(ColumnConstraint::Hidden);
    }
    if !fits(&table) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width as u16);
        for (_, column) in table.column_iter_mut().enumerate().filter(|(at, _)| !words.contains(at)) {
            if column.constraint() != Some(&ColumnConstraint::Hidden) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    // Without a frame, the last column needs no padding.
    table.trim_fmt()
}

/// A table in at most `width` columns, as [`fitted`] makes it. If its numbers and the longest words of its
/// text don't fit, each row is a paragraph: its text, and its numbers with the names of their columns.
pub fn table(grid: &Grid, width: usize, paint: Paint) -> String {
    let longest = |text: &str, broken: bool| {
        let lengths = text.split(|c: char| c == '\n' || broken && c == ' ').map(|part| part.width());
        lengths.max().unwrap_or(0)
    };
    let cells = |i: usize| std::iter::once(&grid.head[i]).chain(grid.rows.iter().map(move |row| &row[i]));
    let least = |i: usize| cells(i).map(|cell| longest(cell, grid.is_text(i))).max().unwrap_or(0);
    if (0..grid.head.len()).map(|i| least(i) + 1).sum::<usize>() > width + 1 {
        let paragraph = |row: &Vec<String>| {
            let (text, numbers): (Vec<usize>, Vec<usize>) = (0..row.len()).partition(|i| grid.is_text(*i));
            let text: Vec<&str> =
                text.iter().map(|i| row[*i].as_str()).filter(|cell| !cell.is_empty()).collect();
            // No line ends within a pair.
            let pair = |i: usize| match grid.strengths {
                true => format!("{} at {}", row[i], grid.head[i]),
                false => format!("{} {}", grid.head[i], row[i]),
            };
            let pairs: Vec<String> = numbers.into_iter().map(|i| pair(i).replace(' ', "\u{a0}")).collect();
            let text = if text.is_empty() { String::new() } else { format!("{}: ", text.join(", ")) };
            wrap_in(&format!("{text}{}", pairs.join(" · ")), width).replace('\u{a0}', " ")
        };
        return grid.rows.iter().map(paragraph).collect::<Vec<_>>().join("\n");
    }
    let mut table = paint.table();
    let seen = |row: &Vec<String>| row.iter().map(|cell| visible(cell).into_owned()).collect::<Vec<_>>();
    table.set_header(seen(&grid.head));
    table.add_rows(grid.rows.iter().map(seen));
    for (i, column) in table.column_iter_mut().enumerate() {
        let text = grid.is_text(i);
        column.set_cell_alignment(if text { CellAlignment::Left } else { CellAlignment::Right });
    }
    let words: Vec<usize> = (0..grid.head.len()).filter(|i| grid.is_text(*i)).collect();
    fitted(table, width, &words, None)
}
