//! The table of operators, for `audit ops` and the documentation.

use onnx_grad::operators::{self, Class, NEWEST, OLDEST, Operator};

/// The newest opset of files that ONNX Runtime 1.31 takes.
const TAKEN: i64 = 26;

const HEAD: &str = "# Operators

<!-- Written by `cargo run -- ops --markdown > docs/operators.md`; a test compares. -->

These operators may lie on the path from the image to the embedding. Loading a model fails if this path has another operator, or
a form that is listed as refused; the error names the node. Off this path (on weights, shapes, positions) a model may have any operator
that ONNX Runtime runs.

";

const EXPANDED: &str = "
The operators below are newer than opset 21, to which all models are converted, or compute with quantised integers, or ONNX Runtime's
optimiser writes them into the models that it saves, or a converter of scikit-learn writes them behind a net (ai.onnx.ml). When a model is loaded, they are expanded into other operators, and those are differentiated. Upsample (7-9) becomes Resize,
and Scatter (9-10) becomes ScatterElements. Those of opset 27 and 28 are expanded by the library onnx-grad alone, until there is an ONNX Runtime
that takes such files.

";

const REASONS: &str = "
## Why forms are refused

*Computed in the graph*, or *from the image*, means: out of the values of the pixels. What follows from shapes and constants alone is
folded when a model is loaded, and is not refused.

| Refused | Why |
|---|---|
| sizes, scales, bounds, steps, pads, axes, a condition or a number of steps computed from the image | The shapes of later values would depend on the pixels. The gradient's graph has fixed shapes. |
| opset 27 and 28; layout=1 of GRU, LSTM and RNN; window sizes of Attention | ONNX Runtime 1.31 doesn't run such files, so that there is nothing to compare with. The library onnx-grad covers them. |
| auto_pad=SAME_* with dilations | ONNX Runtime 1.31 refuses such convolutions itself. Its pools make outputs of another size than ONNX defines. |
| Gelu of float64 | ONNX Runtime has no kernel. |
| LayerNormalization, GroupNormalization, RMSNormalization and Attention of float64; QuantizeLinear to 4-bit integers and 8-bit floats | Nets of images are exported with float32 or less, and quantised to 8 or 16 bits. |
| MaxUnpool of positions that repeat | ONNX Runtime keeps one of the values, and PyTorch's gradient goes to all. |
| DFT, inverse and of one side, to another length than its input stands for | ONNX Runtime's kernel differs from ONNX's definition. |
| MaxPool with storage_order=1 and a large window or stride; Resize with keep_aspect_ratio_policy that rounds up; Pad with mode=wrap that crops; MatMulInteger of a vector | The exporters of PyTorch and TensorFlow write none of these. |
| RoiAlign with computed regions | Regions come from a detector, which chooses boxes by their rank. PyTorch's RoIAlign has no gradient of regions either. |
| AffineGrid with align_corners and an axis of one position | ONNX's definition divides by 0. |
| ConvInteger, MatMulNBits and CausalConvWithState with computed weights; ConvTransposeWithDynamicPads with computed pads | The tools that write these operators write constants. |
| more than 4,096 steps; more than 16,777,216 pixels; more than 4,096 samples in a bin of RoiAlign | Each step is a part of the graph. Positions are float32, which counts no further. Each sample has constants in the graph. |
| Resize along an axis of more than 4,096 pixels; frames and blocks of more than 4,096 values | The gradient needs a constant matrix with the square of that many numbers, which --memory doesn't count. A Resize that repeats each pixel needs none. |
| past and present in one buffer, cache_indirection, do_rotary, state_window, keys of four dimensions | They belong to decoders that write text token by token. |
| com.microsoft::RotaryEmbedding with is_packed_batching or a scale | ONNX Runtime's kernel for the CPU looks at neither, so that there is nothing to compare with. |
| SkipSimplifiedLayerNormalization's output of the mean | ONNX Runtime's kernel leaves it 0. |
| an optional without a value | It is a branch that never runs. Exporters leave it out. |
| Unique | How many values it gives depends on the pixels. PyTorch's unique has no gradient either. |
| MelWeightMatrix | It makes filters for sound out of a few numbers, none of which is an image. |
| ai.onnx.ml's other operators: trees, vector machines, classifiers, encoders of words | Trees and labels have a slope of zero. The embedding is what they read: --output NAME. |
| ai.onnx.preview (FlexAttention), ai.onnx.preview.training | ONNX Runtime 1.31 has no kernels. FlexAttention exported as its function is covered. |
| opset 26's BitCast, float4, float8e8m0 and int2 | They have no operators in opset 21, and the bits of a float have no derivative. |

## Operators of com.microsoft that are not covered

- Those with a kernel for CUDA or another device alone, such as BiasAdd, BiasSoftmax, BiasSplitGelu, GroupNorm, NhwcConv, PackedAttention, QOrdered*: on the
  CPU there is nothing to compare an expansion with.
- Those of text and of decoders: tokens, embeddings of tokens, beam search, sampling, GroupQueryAttention and other attention over a cache,
  mixtures of experts (MoE, QMoE), weights of 4 bits in the formats of bitsandbytes (MatMulBnb4, MatMulFpQ4), gates and norms of language models.
- CropAndResize and MaxpoolWithMask: crops by boxes and pools over valid sizes, of detectors and of text recognition.
- DynamicQuantizeLSTM, AttnLSTM: recurrent operators of speech. The standard LSTM, GRU and RNN are covered.
- com.microsoft.nchwc, which ONNX Runtime writes when it saves a model with *all* optimisations: channels lie in blocks as wide as the registers of the machine that
  saved it, and the file doesn't say how wide. Save with ORT_ENABLE_EXTENDED.
";

/// An operator in words: its name, the opsets that it is understood in, its class, and what is refused.
pub type OperatorRow = [String; 4];

/// Every operator: those with a rule, by name, and those that are expanded.
pub fn rows() -> [Vec<OperatorRow>; 2] {
    let (mut expanded, mut ruled): (Vec<Operator>, Vec<Operator>) =
        operators::all().partition(|o| o.class == Class::Expanded);
    ruled.retain(|o| !expanded.iter().any(|e| e.domain == o.domain && e.name == o.name));
    ruled.sort_by_key(|o| o.name);
    expanded.sort_by_key(|e| (e.domain, e.name));
    let row = |o: &Operator| {
        let (name, opsets) = match o.domain {
            "" => {
                let newest = if o.since > TAKEN { NEWEST } else { TAKEN };
                (o.name.to_string(), format!("{}-{newest}", o.since.max(OLDEST)))
            }
            domain => (format!("{domain}::{}", o.name), "1".to_string()),
        };
        [name, opsets, class_name(o.class).0.to_string(), o.refused.to_string()]
    };
    [ruled, expanded].map(|operators| operators.iter().map(row).collect())
}

/// The page docs/operators.md.
pub fn markdown() -> String {
    let [ruled, expanded] = rows();
    let of_ruled = |class: &str| ruled.iter().any(|row| row[2] == class);
    let mut classes: Vec<_> =
        operators::all().map(|o| class_name(o.class)).filter(|c| of_ruled(c.0)).collect();
    classes.sort_unstable();
    classes.dedup();
    let classes: String =
        classes.iter().map(|(name, meaning)| format!("- **{name}**: {meaning}.\n")).collect();
    let table = |rows: &[OperatorRow]| {
        let rows: String = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
        format!("| Operator | Opset | Class | Refused |\n|---|---|---|---|\n{rows}")
    };
    format!("{HEAD}{classes}\n{}{EXPANDED}{}{REASONS}", table(&ruled), table(&expanded))
}

/// The class of an operator's gradient in a word; `None` where it has none.
pub fn class_of(name: &str) -> Option<&'static str> {
    operators::all().find(|o| o.name == name && o.class != Class::Expanded).map(|o| class_name(o.class).0)
}

/// A class in a word, and what that means.
fn class_name(class: Class) -> (&'static str, &'static str) {
    match class {
        Class::Exact => (
            "exact",
            "the operator's derivative, and at kinks the value that PyTorch takes. A Clip of the image takes that of clamp, 1 at its bounds, \
             and any other that of hardtanh, 0. Of equal values, MaxPool takes the first. GlobalMaxPool, ReduceMax and ReduceMin divide the \
             gradient among them, as amax does; adaptive_max_pool2d, which is exported as GlobalMaxPool too, would take the first",
        ),
        Class::StraightThrough => {
            ("straight-through", "the derivative without the rounding. The report names the nodes")
        }
        Class::Discrete => ("discrete", "passes no gradient on"),
        Class::Flat => ("flat", "the derivative is zero almost everywhere. The report names the nodes"),
        Class::Unfolded => (
            "unfolded",
            "its steps are written one behind the other when the model is loaded, and those are differentiated",
        ),
        Class::Expanded => ("expanded", "written with other operators when the model is loaded"),
    }
}
