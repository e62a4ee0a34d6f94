//! The usual budgets of attacks, read from suites/protocols.yaml, and sizes of perturbations in words.

use super::Norm;
use crate::record::{Form, Protocol};
use audit_base::yaml::{self, Spanned};
use audit_base::{Error, Result};
use serde::Deserialize;

const FILE: &str = "suites/protocols.yaml";
const TEXT: &str = include_str!("../../../../suites/protocols.yaml");

/// The content of suites/protocols.yaml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocols {
    small_side: usize,
    rob28: Forms,
    rob224: Forms,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Forms {
    published: Budget,
    corrected: Budget,
}

/// A budget of attacks, with values as the file spells them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The largest change of a pixel.
    pub eps: Spanned<String>,
    /// The step.
    pub alpha: Spanned<String>,
    /// The number of steps.
    pub steps: usize,
}

impl Protocols {
    /// Reads the table. Errors: it is damaged.
    pub fn read() -> Result<Protocols> {
        yaml::read(FILE, TEXT)
    }

    /// The budget of a protocol. `auto` is one for large images.
    pub fn budget(self, protocol: Protocol, form: Form) -> Budget {
        let forms = if protocol == Protocol::Rob28 { self.rob28 } else { self.rob224 };
        match form {
            Form::Published => forms.published,
            Form::Corrected => forms.corrected,
        }
    }

    /// The protocol for models whose input's longer side has `side` pixels.
    pub fn of_side(&self, side: usize) -> Protocol {
        if side <= self.small_side { Protocol::Rob28 } else { Protocol::Rob224 }
    }
}

/// The largest change of a pixel that a protocol allows in a form; `None` for `auto`, which depends on the
/// model. Errors: the protocols can't be read.
pub fn usual_eps(protocol: Protocol, form: Form) -> Result<Option<f32>> {
    if protocol == Protocol::Auto {
        return Ok(None);
    }
    size("eps", &Protocols::read()?.budget(protocol, form).eps).map(Some)
}

/// The usual largest change of a pixel for models whose input's longer side has `side` pixels. Errors: the
/// protocols can't be read.
pub fn usual_eps_of_side(side: usize) -> Result<f32> {
    let protocols = Protocols::read()?;
    let protocol = protocols.of_side(side);
    size("eps", &protocols.budget(protocol, Form::Corrected).eps)
}

/// A size of the protocols, which are for the largest change of any pixel, without a mask.
pub fn size(key: &str, text: &Spanned<String>) -> Result<f32> {
    fraction(FILE, key, text, &super::LINF)
}

/// Parses a change of a pixel: "8/255" or "0.031", above 0 and at most 1.
pub fn parse_fraction(text: &str) -> Result<f32> {
    let bounds = "above 0 and at most 1, because pixels lie in [0, 1]";
    number(text).filter(|v| *v <= 1.0).map(|v| v as f32).filter(|v| *v > 0.0).ok_or_else(|| {
        let levels = text.trim().parse::<u8>().ok().filter(|levels| *levels > 1);
        let meant = levels.map_or(String::new(), |levels| format!(". Did you mean {levels}/255?"));
        Error::usage(format!("`{text}`: expected a fraction like 8/255 or a decimal, {bounds}{meant}"))
    })
}

/// Parses a size in the norm `norm`. In the maximum norm it is a fraction of at most 1; in other norms it may
/// be larger.
pub fn parse_size(text: &str, norm: &Norm) -> Result<f32> {
    if norm.is_box {
        return parse_fraction(text);
    }
    number(text).map(|v| v as f32).filter(|v| *v > 0.0 && v.is_finite()).ok_or_else(|| {
        Error::usage(format!("`{text}`: expected a length such as 2.0, above 0, in the norm {}", norm.name))
    })
}

/// A decimal number, or a quotient of two.
pub fn number(text: &str) -> Option<f64> {
    let decimal = |t: &str| t.trim().parse::<f64>().ok();
    match text.split_once('/') {
        Some((top, bottom)) => decimal(top).zip(decimal(bottom)).map(|(top, bottom)| top / bottom),
        None => decimal(text),
    }
}

/// Parses the value of `key` in `file` with [`parse_size`].
pub fn fraction(file: &str, key: &str, text: &Spanned<String>, norm: &Norm) -> Result<f32> {
    parse_size(&text.value, norm).map_err(|e| e.context(format!("{}: {key}", at(file, text))))
}

/// The place of a value: file and line.
pub fn at<T>(file: &str, value: &Spanned<T>) -> String {
    format!("{file}, line {}", value.referenced.line())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{LINF, NORMS};

    /// A size is above 0 as the number that attacks compute with, float32.
    #[test]
    fn sizes_that_float32_rounds_to_zero_are_none() {
        for norm in NORMS {
            assert!(parse_size("1e-60", norm).is_err(), "{}", norm.name);
        }
        assert_eq!(parse_size("8/255", &LINF).unwrap(), (8.0f64 / 255.0) as f32);
        assert!(parse_size("1.00000001", &LINF).is_err());
    }
}
