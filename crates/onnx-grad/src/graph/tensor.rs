//! Constant tensors of a graph: an element type, a shape and little-endian bytes.

use super::external::is_external;
use super::proto;
use half::{bf16, f16};
use prost::bytes::Bytes;

/// Reads the external data of a tensor.
pub(super) type External<'a> = &'a dyn Fn(&proto::TensorProto) -> std::result::Result<Bytes, String>;

/// Element types by their ONNX code (`TensorProto.DataType`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DType {
    #[default]
    F32,
    F16,
    BF16,
    F64,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
    /// Any other type, by its ONNX code. 8-bit floats and 4-bit integers are stored; strings and complex
    /// numbers are not.
    Other(i32),
}

/// Type, ONNX code, bytes per element, name.
const CODES: [(DType, i32, usize, &str); 13] = [
    (DType::F32, 1, 4, "float32"),
    (DType::U8, 2, 1, "uint8"),
    (DType::I8, 3, 1, "int8"),
    (DType::U16, 4, 2, "uint16"),
    (DType::I16, 5, 2, "int16"),
    (DType::I32, 6, 4, "int32"),
    (DType::I64, 7, 8, "int64"),
    (DType::Bool, 9, 1, "bool"),
    (DType::F16, 10, 2, "float16"),
    (DType::F64, 11, 8, "float64"),
    (DType::U32, 12, 4, "uint32"),
    (DType::U64, 13, 8, "uint64"),
    (DType::BF16, 16, 2, "bfloat16"),
];

impl DType {
    /// The ONNX code.
    pub fn from_code(code: i32) -> Self {
        CODES.iter().find(|c| c.1 == code).map_or(DType::Other(code), |c| c.0)
    }
    /// The ONNX code.
    pub fn code(self) -> i32 {
        match self {
            DType::Other(code) => code,
            _ => CODES.iter().find(|c| c.0 == self).map_or(0, |c| c.1),
        }
    }
    /// Name in ONNX and NumPy, such as `uint8`.
    pub fn name(self) -> &'static str {
        match self {
            DType::Other(8) => "string",
            DType::Other(_) => "of a type that isn't covered",
            _ => CODES.iter().find(|c| c.0 == self).map_or("", |c| c.3),
        }
    }
    /// Bytes per element; `None` for types that aren't stored, or not in whole bytes.
    pub fn size(self) -> Option<usize> {
        match self {
            DType::Other(17..=20) => Some(1),
            _ => CODES.iter().find(|c| c.0 == self).map(|c| c.2),
        }
    }
    /// Bytes of `count` elements; `None` for types that aren't stored.
    fn bytes(self, count: u64) -> Option<u64> {
        match self {
            // Two 4-bit integers per byte.
            DType::Other(21 | 22) => Some(count.div_ceil(2)),
            _ => count.checked_mul(self.size()? as u64),
        }
    }
    /// Whether tensors of this type can be stored.
    pub(super) fn is_stored(code: i32) -> bool {
        narrow(code).is_some() || DType::from_code(code).bytes(1).is_some()
    }
    /// The smallest and the largest value to which numbers are quantised in this type; `None` for types that
    /// nothing is quantised to.
    pub fn quantised_range(self) -> Option<(f32, f32)> {
        match self {
            DType::U8 => Some((0.0, 255.0)),
            DType::I8 => Some((-128.0, 127.0)),
            DType::U16 => Some((0.0, 65535.0)),
            DType::I16 => Some((-32768.0, 32767.0)),
            // 4-bit integers.
            DType::Other(21) => Some((0.0, 15.0)),
            DType::Other(22) => Some((-8.0, 7.0)),
            // 8-bit floats: e4m3fn, e4m3fnuz, e5m2 and e5m2fnuz.
            DType::Other(17) => Some((-448.0, 448.0)),
            DType::Other(18) => Some((-240.0, 240.0)),
            DType::Other(19 | 20) => Some((-57344.0, 57344.0)),
            _ => None,
        }
    }
    /// Whether values of this type can have a gradient.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
    }
}

/// A constant. Clones share the bytes, because the forward and the backward graph use the same weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<i64>,
    /// Elements, little-endian, row-major.
    pub bytes: Bytes,
}

/// Types that are newer than the canonical opset: bits per element, and name.
pub(super) fn narrow(code: i32) -> Option<(u32, &'static str)> {
    match code {
        23 => Some((4, "float4e2m1")),
        24 => Some((8, "float8e8m0")),
        25 => Some((2, "uint2")),
        26 => Some((2, "int2")),
        _ => None,
    }
}

/// Moves the inline data out of a tensor: bytes unchanged, numbers little-endian. Strings and complex numbers
/// stay.
pub(super) fn take_inline(p: &mut proto::TensorProto) -> Bytes {
    if !p.raw_data.is_empty() {
        return std::mem::take(&mut p.raw_data);
    }
    let dtype = DType::from_code(p.data_type);
    // int32_data has every narrower type, one element each; types of less than a byte, one byte each.
    let size = dtype.size().unwrap_or(1);
    fn bytes<T, const N: usize>(values: &mut Vec<T>, f: impl Fn(T) -> [u8; N]) -> Bytes {
        std::mem::take(values).into_iter().flat_map(f).collect()
    }
    match dtype {
        DType::F32 => bytes(&mut p.float_data, f32::to_le_bytes),
        DType::F64 => bytes(&mut p.double_data, f64::to_le_bytes),
        DType::I64 => bytes(&mut p.int64_data, i64::to_le_bytes),
        DType::U32 => bytes(&mut p.uint64_data, |v| (v as u32).to_le_bytes()),
        DType::U64 => bytes(&mut p.uint64_data, u64::to_le_bytes),
        _ => std::mem::take(&mut p.int32_data)
            .into_iter()
            .flat_map(|v| v.to_le_bytes().into_iter().take(size))
            .collect(),
    }
}

impl Tensor {
    /// A float32 tensor.
    pub fn f32(shape: &[i64], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor { dtype: DType::F32, shape: shape.to_vec(), bytes }
    }
    /// An int64 tensor.
    pub fn i64(shape: &[i64], values: &[i64]) -> Self {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor { dtype: DType::I64, shape: shape.to_vec(), bytes }
    }
    /// A one-dimensional int64 tensor, the form of axes, shapes and pads.
    pub fn ints(values: &[i64]) -> Self {
        Self::i64(&[values.len() as i64], values)
    }
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }
    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The elements as int64; `None` unless the type is an integer or boolean.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        Some(match self.dtype {
            DType::I64 => self.each(i64::from_le_bytes),
            DType::I32 => self.each(|b| i32::from_le_bytes(b) as i64),
            DType::I16 => self.each(|b| i16::from_le_bytes(b) as i64),
            DType::U16 => self.each(|b| u16::from_le_bytes(b) as i64),
            DType::U32 => self.each(|b| u32::from_le_bytes(b) as i64),
            DType::I8 => self.each(|b: [u8; 1]| b[0] as i8 as i64),
            DType::U8 | DType::Bool => self.each(|b: [u8; 1]| b[0] as i64),
            _ => return None,
        })
    }
    /// The elements as float32; `None` unless the type is a float. Half precision is widened, double
    /// narrowed.
    pub fn to_f32s(&self) -> Option<Vec<f32>> {
        Some(match self.dtype {
            DType::F32 => self.each(f32::from_le_bytes),
            DType::F64 => self.each(|b| f64::from_le_bytes(b) as f32),
            DType::BF16 => self.each(|b| bf16::from_le_bytes(b).to_f32()),
            DType::F16 => self.each(|b| f16::from_le_bytes(b).to_f32()),
            _ => return None,
        })
    }

    /// A float32 tensor in float16, rounded to nearest; infinite beyond ±65504. `None` for any other type.
    pub fn to_half(&self) -> Option<Tensor> {
        let values = (self.dtype == DType::F32).then(|| self.to_f32s())??;
        let bytes = values.into_iter().flat_map(|v| f16::from_f32(v).to_le_bytes()).collect();
        Some(Tensor { dtype: DType::F16, shape: self.shape.clone(), bytes })
    }

    fn each<const N: usize, T>(&self, f: impl Fn([u8; N]) -> T) -> Vec<T> {
        self.bytes.as_chunks::<N>().0.iter().map(|bytes| f(*bytes)).collect()
    }

    pub(super) fn from_proto(p: &mut proto::TensorProto, external: External) -> Result<Self, String> {
        if let Some((bits, _)) = narrow(p.data_type) {
            return Self::from_narrow(p, bits);
        }
        let dtype = DType::from_code(p.data_type);
        if dtype.bytes(1).is_none() {
            return Err(format!("has element type {}, which is not supported", p.data_type));
        }
        let shape = p.dims.clone();
        if shape.iter().any(|&d| d < 0) {
            return Err(format!("has shape {shape:?}"));
        }
        let count = shape
            .iter()
            .try_fold(1u64, |n, &d| n.checked_mul(d as u64))
            .filter(|n| dtype.bytes(*n).is_some_and(|bytes| bytes < 1 << 40))
            .ok_or_else(|| format!("has shape {shape:?}"))?;
        let bytes: Bytes = match is_external(p) {
            true => external(p)?,
            false => take_inline(p),
        };
        let expected = dtype.bytes(count).unwrap_or(0);
        if bytes.len() as u64 != expected {
            let found = bytes.len();
            return Err(format!("of shape {shape:?} should hold {expected} bytes and holds {found}"));
        }
        Ok(Tensor { dtype, shape, bytes })
    }

    /// A tensor of a type that is newer than the canonical opset, in the next wider type with all of its
    /// values.
    fn from_narrow(p: &mut proto::TensorProto, bits: u32) -> Result<Self, String> {
        let shape = p.dims.clone();
        let per_byte = 8 / bits as usize;
        let count = shape
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))
            .filter(|n| *n < 1 << 40);
        let count = count.ok_or_else(|| format!("has shape {shape:?}"))?;
        let packed = take_inline(p);
        if packed.len() != count.div_ceil(per_byte) {
            let (expected, found) = (count.div_ceil(per_byte), packed.len());
            return Err(format!("of shape {shape:?} should hold {expected} bytes and holds {found}"));
        }
        let mask = (((1u16 << bits) - 1) & 0xff) as u8;
        let values = (0..count).map(|i| (packed[i / per_byte] >> (bits as usize * (i % per_byte))) & mask);
        Ok(match p.data_type {
            25 => Tensor { dtype: DType::U8, shape, bytes: values.collect() },
            26 => Tensor {
                dtype: DType::I8,
                shape,
                bytes: values.map(|v| if v > 1 { v | 0xfc } else { v }).collect(),
            },
            // ±0, 0.5, 1, 1.5, 2, 3, 4 and 6, in float8e4m3fn.
            23 => {
                let wide = |v: u8| {
                    [0x00, 0x30, 0x38, 0x3c, 0x40, 0x44, 0x48, 0x4c][usize::from(v & 7)] | ((v & 8) << 4)
                };
                Tensor { dtype: DType::Other(17), shape, bytes: values.map(wide).collect() }
            }
            // Powers of two, from 2⁻¹²⁷.
            _ => {
                let power = |v: u8| if v == 255 { f32::NAN } else { (f32::from(v) - 127.0).exp2() };
                Tensor::f32(&shape, &values.map(power).collect::<Vec<f32>>())
            }
        })
    }

    pub(super) fn to_proto(&self, name: &str) -> proto::TensorProto {
        proto::TensorProto {
            name: name.to_string(),
            data_type: self.dtype.code(),
            dims: self.shape.clone(),
            raw_data: self.bytes.clone(),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every float16 is reproduced, and halves are rounded to even (IEEE 754's default).
    #[test]
    fn float16_is_rounded_to_nearest() {
        let bits = |v: f32| {
            let half = Tensor::f32(&[1], &[v]).to_half().unwrap();
            (u16::from_le_bytes([half.bytes[0], half.bytes[1]]), half.to_f32s().unwrap()[0])
        };
        let value = |h: u16| {
            let bytes = h.to_le_bytes().to_vec().into();
            Tensor { dtype: DType::F16, shape: vec![1], bytes }.to_f32s().unwrap()[0]
        };
        for h in 0..=u16::MAX {
            let v = value(h);
            if v.is_nan() {
                assert!(bits(v).1.is_nan());
                continue;
            }
            assert_eq!(bits(v).0, h, "{v}");
            let next = value(h.wrapping_add(1));
            if next.is_finite() && h & 0x7fff < 0x7bff {
                let middle = (v + next) / 2.0; // exact in float32
                assert_eq!(bits(middle).0, h + (h & 1), "{middle}");
                assert_eq!(bits(middle + (v - middle) / 64.0).0, h);
                assert_eq!(bits(middle + (next - middle) / 64.0).0, h + 1);
            }
        }
        assert_eq!(
            [65519.0, 65520.0, 1e9, 1e-9, -1e-9].map(|v| bits(v).0),
            [0x7bff, 0x7c00, 0x7c00, 0, 0x8000]
        );
    }
}
