//! Tensors of ONNX Runtime, and their values.

use super::fault;
use audit_base::Result;
use onnx_grad::graph::{DType, Tensor};
use ort::memory::Allocator;
use ort::value::{DynTensor, DynValue, TensorElementType, ValueType};

/// A tensor that ONNX Runtime owns, on any device.
pub struct RuntimeTensor(pub(super) DynValue);

/// A tensor that keeps its memory from run to run. One session writes it ([`super::Binding::output`]) and
/// another reads it ([`super::Binding::input`]), without a copy and without an allocation.
pub struct BoundTensor {
    pub(super) tensor: DynTensor,
    /// Host buffer for transfers, where the tensor is on a device.
    staging: Option<DynTensor>,
}

impl RuntimeTensor {
    /// Shape and values in host memory. Errors: the tensor is not float32.
    pub fn floats(&self) -> Result<(&[i64], &[f32])> {
        let (shape, values) = self.0.try_extract_tensor::<f32>().map_err(fault("reading a result"))?;
        Ok((shape, values))
    }

    /// Shape and values, converted to float32; `None` of a type that is no number or half of one.
    pub fn numbers(&self) -> Option<(Vec<i64>, Vec<f32>)> {
        fn convert<T: ort::value::PrimitiveTensorElementType + Copy>(
            value: &DynValue,
            number: impl Fn(T) -> f32,
        ) -> Option<(Vec<i64>, Vec<f32>)> {
            let (shape, values) = value.try_extract_tensor::<T>().ok()?;
            Some((shape.to_vec(), values.iter().map(|v| number(*v)).collect()))
        }
        let ValueType::Tensor { ty, .. } = self.0.dtype() else { return None };
        match dtype(*ty) {
            DType::F32 => convert::<f32>(&self.0, |v| v),
            DType::F64 => convert::<f64>(&self.0, |v| v as f32),
            DType::I64 => convert::<i64>(&self.0, |v| v as f32),
            DType::I32 => convert::<i32>(&self.0, |v| v as f32),
            DType::I16 => convert::<i16>(&self.0, f32::from),
            DType::I8 => convert::<i8>(&self.0, f32::from),
            DType::U16 => convert::<u16>(&self.0, f32::from),
            DType::U8 => convert::<u8>(&self.0, f32::from),
            DType::Bool => convert::<bool>(&self.0, f32::from),
            _ => None,
        }
    }

    /// The tensor as a constant, unless it has more than `most` values, or values of a type that states no
    /// shapes.
    pub(super) fn constant(&self, most: usize) -> Option<Tensor> {
        fn bytes<T: ort::value::PrimitiveTensorElementType + Copy, const N: usize>(
            value: &DynValue,
            most: usize,
            bytes: impl Fn(T) -> [u8; N],
        ) -> Option<(Vec<i64>, Vec<u8>)> {
            let (shape, values) = value.try_extract_tensor::<T>().ok()?;
            (values.len() <= most).then(|| (shape.to_vec(), values.iter().flat_map(|v| bytes(*v)).collect()))
        }
        let ValueType::Tensor { ty, .. } = self.0.dtype() else { return None };
        let dtype = dtype(*ty);
        let (shape, bytes) = match dtype {
            DType::I64 => bytes(&self.0, most, i64::to_le_bytes),
            DType::I32 => bytes(&self.0, most, i32::to_le_bytes),
            DType::F32 => bytes(&self.0, most, f32::to_le_bytes),
            DType::F64 => bytes(&self.0, most, f64::to_le_bytes),
            DType::Bool => bytes(&self.0, most, |v: bool| [u8::from(v)]),
            _ => None,
        }?;
        Some(Tensor { dtype, shape, bytes: bytes.into() })
    }

    pub(super) fn ints(&self) -> Result<Vec<i64>> {
        let (_, values) = self.0.try_extract_tensor::<i64>().map_err(fault("reading a result"))?;
        Ok(values.to_vec())
    }
}

impl BoundTensor {
    /// A tensor in an allocator's memory, with any content.
    pub(super) fn new(allocator: &Allocator, dtype: DType, shape: Vec<i64>) -> ort::Result<BoundTensor> {
        let tensor = DynTensor::new(allocator, element_type(dtype)?, shape)?;
        Ok(BoundTensor { tensor, staging: None })
    }

    /// Writes `values` to the start of the tensor and zeros to the rest. Errors: the tensor is not float32,
    /// or there are too many values.
    pub fn write(&mut self, values: &[f32]) -> Result<()> {
        let mut write = || match self.on_host() {
            true => fill(&mut self.tensor, values),
            false => {
                fill(self.staging()?, values)?;
                self.staging.iter().try_for_each(|staging| staging.copy_into(&mut self.tensor))
            }
        };
        write().map_err(fault("writing a tensor"))
    }

    /// The values, copied to the host where the tensor is on a device. Errors: the tensor is not float32.
    pub fn read(&mut self) -> Result<&[f32]> {
        self.values().map_err(fault("reading a tensor"))
    }

    fn values(&mut self) -> ort::Result<&[f32]> {
        if !self.on_host() {
            self.staging()?;
            self.staging.iter_mut().try_for_each(|staging| self.tensor.copy_into(staging))?;
        }
        Ok(self.staging.as_ref().unwrap_or(&self.tensor).try_extract_tensor()?.1)
    }

    fn on_host(&self) -> bool {
        self.tensor.memory_info().is_cpu_accessible()
    }

    /// The host buffer, allocated at the first use.
    fn staging(&mut self) -> ort::Result<&mut DynTensor> {
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => {
                let shape = self.tensor.shape().to_vec();
                DynTensor::new(&Allocator::default(), *self.tensor.data_type(), shape)?
            }
        };
        Ok(self.staging.insert(staging))
    }
}

fn fill(tensor: &mut DynTensor, values: &[f32]) -> ort::Result<()> {
    let (shape, room) = tensor.try_extract_tensor_mut::<f32>()?;
    let Some((first, rest)) = room.split_at_mut_checked(values.len()) else {
        return Err(ort::Error::new(format!("{} values were given for the shape {shape:?}", values.len())));
    };
    first.copy_from_slice(values);
    rest.fill(0.0);
    Ok(())
}

/// The element types of tensors here, and in ONNX Runtime.
const ELEMENTS: [(DType, TensorElementType); 13] = [
    (DType::F32, TensorElementType::Float32),
    (DType::F16, TensorElementType::Float16),
    (DType::BF16, TensorElementType::Bfloat16),
    (DType::F64, TensorElementType::Float64),
    (DType::I64, TensorElementType::Int64),
    (DType::I32, TensorElementType::Int32),
    (DType::I16, TensorElementType::Int16),
    (DType::I8, TensorElementType::Int8),
    (DType::U64, TensorElementType::Uint64),
    (DType::U32, TensorElementType::Uint32),
    (DType::U16, TensorElementType::Uint16),
    (DType::U8, TensorElementType::Uint8),
    (DType::Bool, TensorElementType::Bool),
];

fn element_type(dtype: DType) -> ort::Result<TensorElementType> {
    let known = ELEMENTS.iter().find(|(ours, _)| *ours == dtype).map(|(_, theirs)| *theirs);
    known.ok_or_else(|| ort::Error::new(format!("no tensor can be made of {dtype:?}")))
}

pub(super) fn dtype(ty: TensorElementType) -> DType {
    ELEMENTS.iter().find(|(_, theirs)| *theirs == ty).map_or(DType::Other(0), |(ours, _)| *ours)
}
