//! MATLAB's version 5 files, as used by data sets: struct arrays, cells, text and numbers.
//!
//! Format: "MAT-File Format", The MathWorks, chapter 1. A file is a 128-byte header and elements: type, size,
//! bytes, padded to 8; small ones in one word. An element `miCOMPRESSED` contains another one, deflated.

use flate2::read::ZlibDecoder;
use std::collections::BTreeMap;
use std::io::Read;

/// A variable of a file, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Real numbers, column by column.
    Numbers(Vec<f64>),
    /// A character array, column by column.
    Text(String),
    /// A cell array, column by column.
    Cells(Vec<Value>),
    /// A struct array: one row per entry, each with a value per field.
    Structs(Vec<BTreeMap<String, Value>>),
}

impl Value {
    /// The number, if the value is a single one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Numbers(numbers) if numbers.len() == 1 => numbers.first().copied(),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The error is the reason.
type Parsed<T> = Result<T, String>;

const INT8: u32 = 1;
const UINT8: u32 = 2;
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// Maximum size of a variable, in bytes. The lists of benchmarks take some megabytes.
const MOST_INFLATED: u64 = 1 << 28;
/// Maximum depth of cells and structs: deeper nesting is an attack on the stack.
const DEEPEST: usize = 16;

/// The variables of a file, by name.
pub fn read(bytes: &[u8]) -> Parsed<BTreeMap<String, Value>> {
    if bytes.len() < 128 || &bytes[126..128] != b"IM" {
        return Err(match bytes.starts_with(b"MATLAB 7.3") {
            true => "it is a version 7.3 (HDF5) file. Save it with -v7".into(),
            false => "it is no little-endian MATLAB version 5 file".into(),
        });
    }
    let mut rest = Bytes(&bytes[128..]);
    let mut variables = BTreeMap::new();
    while !rest.0.is_empty() {
        let (kind, data) = rest.element()?;
        let inflated;
        let (kind, data) = if kind == COMPRESSED {
            let mut all = Vec::new();
            let mut from = ZlibDecoder::new(data).take(MOST_INFLATED + 1);
            from.read_to_end(&mut all).map_err(|reason| format!("damaged: {reason}"))?;
            if all.len() as u64 > MOST_INFLATED {
                return Err(format!("a variable has more than {} MB", MOST_INFLATED >> 20));
            }
            inflated = all;
            Bytes(&inflated).element()?
        } else {
            (kind, data)
        };
        if kind == MATRIX
            && let Some((name, value)) = matrix(data, 0)?
        {
            variables.insert(name, value);
        }
    }
    Ok(variables)
}

/// Bytes, read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Parsed<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| "it ends too early")?))
    }

    /// The next element: its type and its bytes.
    fn element(&mut self) -> Parsed<(u32, &'a [u8])> {
        let word = self.word()?;
        if word >> 16 != 0 {
            let count = (word >> 16) as usize;
            let data = self.take(4)?.get(..count).ok_or("a small element is longer than 4 bytes")?;
            return Ok((word & 0xffff, data));
        }
        let count = self.word()? as usize;
        let data = self.take(count)?;
        // Compressed elements aren't padded, and the last one may not be.
        let padding = if word == COMPRESSED { 0 } else { (8 - count % 8) % 8 };
        self.take(padding.min(self.0.len()))?;
        Ok((word, data))
    }

    /// The next element as a value. `depth`: number of values around it.
    fn value(&mut self, depth: usize) -> Parsed<Value> {
        match self.element()? {
            (MATRIX, data) => {
                Ok(matrix(data, depth + 1)?.map_or(Value::Numbers(Vec::new()), |found| found.1))
            }
            (kind, _) => Err(format!("an element of type {kind} where a value was expected")),
        }
    }

    fn numbers(&mut self) -> Parsed<Vec<f64>> {
        let (kind, data) = self.element()?;
        macro_rules! as_numbers {
            ($t:ty) => {
                data.chunks_exact(size_of::<$t>())
                    .filter_map(|b| b.try_into().ok().map(|b| <$t>::from_le_bytes(b) as f64))
                    .collect()
            };
        }
        // Kinds 16, 17 and 18 are text in UTF-8, UTF-16 and UTF-32.
        Ok(match kind {
            INT8 => as_numbers!(i8),
            UINT8 | 16 => as_numbers!(u8),
            3 => as_numbers!(i16),
            4 | 17 => as_numbers!(u16),
            5 => as_numbers!(i32),
            6 | 18 => as_numbers!(u32),
            7 => as_numbers!(f32),
            9 => as_numbers!(f64),
            12 => as_numbers!(i64),
            13 => as_numbers!(u64),
            _ => return Err(format!("an element of type {kind} where numbers were expected")),
        })
    }
}

/// The body of a matrix element: its name and value; `None` for kinds that data sets don't use.
fn matrix(data: &[u8], depth: usize) -> Parsed<Option<(String, Value)>> {
    if data.is_empty() {
        return Ok(Some((String::new(), Value::Numbers(Vec::new()))));
    }
    if depth > DEEPEST {
        return Err("its values are nested too deeply".into());
    }
    let mut rest = Bytes(data);
    let flags = rest.numbers()?;
    let class = flags.first().map_or(0, |&flags| flags as u32 & 0xff);
    let sizes = rest.numbers()?;
    let name: String = letters(&rest.numbers()?);
    // Every entry takes at least one byte, so a larger size is false.
    let count = sizes.iter().product::<f64>();
    if !(0.0..=data.len() as f64).contains(&count) {
        return Err(format!("`{name}` claims {count} entries in {} bytes", data.len()));
    }
    let count = count as usize;
    let value = match class {
        1 => Value::Cells((0..count).map(|_| rest.value(depth)).collect::<Parsed<_>>()?),
        2 => {
            let length = rest.numbers()?.first().map_or(0, |&length| length as usize);
            let (_, names) = rest.element()?;
            if length == 0 {
                return Err(format!("`{name}` has fields without names"));
            }
            let names: Vec<String> = names
                .chunks(length)
                .map(|name| letters(&name.iter().map(|&b| f64::from(b)).collect::<Vec<_>>()))
                .collect();
            let row = |_| names.iter().map(|field| Ok((field.clone(), rest.value(depth)?))).collect();
            Value::Structs((0..count).map(row).collect::<Parsed<_>>()?)
        }
        4 => Value::Text(letters(&rest.numbers()?)),
        6..=15 => Value::Numbers(rest.numbers()?),
        _ => return Ok(None),
    };
    Ok(Some((name, value)))
}

/// Text from character codes, up to the first zero.
fn letters(codes: &[f64]) -> String {
    codes
        .iter()
        .map(|&code| char::from_u32(code as u32).unwrap_or('\u{fffd}'))
        .take_while(|&c| c != '\0')
        .collect()
}
