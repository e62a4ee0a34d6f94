//! Einsum. The gradient of an operand is an Einsum of the other operands and the output's gradient, whose
//! output has the operand's subscripts.

use super::{Done, Rule, exact};
use crate::grad::Cx;
use std::collections::HashMap;

pub(super) const RULES: &[Rule] = &[exact("Einsum", einsum)];

/// An equation with one letter per axis of each operand and of the output.
struct Equation {
    terms: Vec<Vec<char>>,
    output: Vec<char>,
    /// Unused letters.
    free: Vec<char>,
}

impl Equation {
    /// Replaces ellipses by letters. A missing output consists of the letters that occur once, in order.
    fn parse(text: &str, ranks: &[usize]) -> Result<Equation, String> {
        let text: String = text.split_whitespace().collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let mut free: Vec<char> = ('a'..='z').chain('A'..='Z').filter(|&c| !text.contains(c)).collect();
        let terms: Vec<&str> = left.split(',').collect();
        let wrong = || format!("equation {text:?} doesn't fit its inputs");
        if terms.len() != ranks.len() {
            return Err(wrong());
        }
        // Number of axes of each term's ellipsis.
        let open: Vec<usize> = terms
            .iter()
            .zip(ranks)
            .map(|(t, rank)| rank.checked_sub(t.replace("...", "").len()).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        let most = open.iter().copied().max().unwrap_or(0);
        if free.len() < most {
            return Err(format!("equation {text:?} has too many subscripts"));
        }
        let rest: Vec<char> = free.split_off(most);
        let ellipsis: String = free.into_iter().collect();
        let letters = |term: &str, n: usize| -> Vec<char> {
            term.replace("...", &ellipsis[ellipsis.len() - n..]).chars().collect()
        };
        let output = match right {
            Some(right) => letters(right, most),
            None => {
                let mut once: Vec<char> = left.chars().filter(|c| c.is_ascii_alphabetic()).collect();
                once.retain(|c| left.matches(*c).count() == 1);
                once.sort_unstable();
                ellipsis.chars().chain(once).collect()
            }
        };
        let terms = terms.iter().zip(&open).map(|(t, &n)| letters(t, n)).collect();
        Ok(Equation { terms, output, free: rest })
    }
}

fn einsum(cx: &Cx) -> Done {
    let n = cx.node.inputs.len();
    let ranks: Vec<usize> = (0..n).map(|i| cx.x_shape(i).len()).collect();
    let mut equation = Equation::parse(cx.node.str("equation", ""), &ranks)?;
    let gy = cx.gy();
    let mut sizes: HashMap<char, i64> = HashMap::new();
    for (i, term) in equation.terms.iter().enumerate() {
        for (&c, &size) in term.iter().zip(cx.x_shape(i)) {
            let known = sizes.entry(c).or_insert(size);
            *known = size.max(*known);
        }
    }
    for i in (0..n).filter(|&i| cx.wants(i)).collect::<Vec<_>>() {
        let shape = cx.x_shape(i);
        let mut operands = vec![(equation.output.clone(), cx.y_shape().to_vec(), gy.clone())];
        for j in (0..n).filter(|&j| j != i) {
            operands.push((equation.terms[j].clone(), cx.x_shape(j).to_vec(), cx.x(j)));
        }
        let mut target = equation.terms[i].clone();
        for axis in 1..target.len() {
            let c = target[axis];
            if target[..axis].contains(&c) {
                // A diagonal: the gradient is 0 unless both positions are equal.
                let other = equation.free.pop().ok_or("its equation has too many subscripts")?;
                target[axis] = other;
                let eye = cx.identity(&[shape[axis], shape[axis]], shape[axis])?;
                operands.push((vec![c, other], vec![shape[axis]; 2], eye));
            }
        }
        // Axes that the operand broadcasts are summed. An axis that no other operand has, or that they all
        // broadcast, has a constant gradient.
        let varies = |c: char, size: i64| {
            operands.iter().any(|(term, of, _)| term.iter().zip(of).any(|(&t, &n)| t == c && n == size))
        };
        let kept: Vec<bool> = target
            .iter()
            .zip(shape)
            .map(|(c, &size)| size == sizes.get(c).copied().unwrap_or(size) && varies(*c, size))
            .collect();
        let output: String = target.iter().zip(&kept).filter(|(_, k)| **k).map(|(c, _)| *c).collect();
        let axes: Vec<i64> = shape.iter().zip(&kept).map(|(&s, &k)| if k { s } else { 1 }).collect();
        let (scalars, tensors): (Vec<_>, Vec<_>) = operands.iter().partition(|(term, _, _)| term.is_empty());
        let mut product: Option<String> = None;
        if !tensors.is_empty() {
            let left: Vec<String> = tensors.iter().map(|(term, _, _)| term.iter().collect()).collect();
            let names: Vec<&str> = tensors.iter().map(|(_, _, name)| name.as_str()).collect();
            let text = format!("{}->{output}", left.join(","));
            product = Some(cx.op_with("Einsum", &names, &[("equation", text.as_str().into())]));
        }
        for (_, _, name) in scalars {
            product = Some(match product {
                Some(p) => cx.mul(&p, name),
                None => name.clone(),
            });
        }
        let g = cx.reshape(&product.ok_or("has no operands")?, &axes);
        cx.give(i, if axes == shape { g } else { cx.expand(&g, shape) });
    }
    Ok(())
}
