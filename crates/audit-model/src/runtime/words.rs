//! ONNX Runtime's errors in words of this program. This is the only place that reads its messages, and none
//! of them reaches a user as it is: they name files, functions and conditions of its source.

use super::{Provider, VERSION};
use crate::memory::{self, Bytes};
use audit_base::{Error, Exit};

/// Beginning of every error of a run, unless memory is missing.
const FAILED_RUN: &str = "ONNX Runtime can't compute the graph: ";

/// Whether an error is that a graph failed while it ran.
pub fn is_failed_run(e: &Error) -> bool {
    e.message.contains(FAILED_RUN)
}

/// The error for a graph that failed while it ran (exit code 3; 1 if the GPU failed).
pub(super) fn failed_run(raw: &str, provider: Provider) -> Error {
    let node = Place::in_run(raw);
    if let Some(e) = out_of_memory(raw, &node, provider) {
        return e;
    }
    let reason = reason(raw).unwrap_or_else(|| match node.operator {
        Some(_) => "its inputs have shapes or values that the operator doesn't take".into(),
        None => "its inputs have other shapes or types than a node expects".into(),
    });
    let exit = if raw.contains("CUDA") || raw.contains("CUDNN") { Exit::Internal } else { Exit::Model };
    Error { exit, ..Error::model(format!("{FAILED_RUN}{}{reason}", node.prefix())) }
}

/// The error (exit code 3) for a graph that ONNX Runtime does not compile.
pub(super) fn refused(raw: &str) -> Error {
    // Every node was folded away.
    if raw.contains("OrtValue indexes should have been populated") {
        return Error::model(
            "its output is a constant: it doesn't depend on the input. Choose another output with --output",
        );
    }
    let node = Place::in_graph(raw);
    if let Some(e) = out_of_memory(raw, &node, Provider::Cpu) {
        return e;
    }
    if raw.contains("Could not find an implementation for ") {
        return Error::model(format!(
            "{}ONNX Runtime {VERSION} has no kernel for this operator with inputs of these types. Export the model with float32 \
             values, or with another operator",
            node.prefix()
        ));
    }
    if let Some(name) = between(raw, "two nodes with same node name (", ")") {
        return Error::model(format!(
            "several nodes are called {name:?}, and ONNX Runtime takes no such file. Clear the names, which mean nothing to it. In Python: \
             `for node in model.graph.node: node.name = \"\"`, then `onnx.save(model, path)`"
        ));
    }
    // It looks at the opset of the file alone: the canonical form has an older one.
    let newest = number(raw, " is till opset ");
    if let (Some(found), Some(newest)) = (number(raw, "Opset "), newest) {
        let domain = between(raw, "support for domain ", " is till opset ").filter(|d| *d != "ai.onnx");
        let of = domain.map_or(String::new(), |domain| format!(" of {domain}"));
        return Error::model(format!(
            "uses opset {found}{of}, and {newest} is the newest that this ONNX Runtime takes. Export it again with an older one: \
             torch.onnx.export(…, opset_version=18)"
        ));
    }
    let reason = reason(raw).unwrap_or_else(|| match node.operator {
        Some(_) => {
            "its attributes, or the types or shapes of its inputs, are not those of the operator".into()
        }
        None => "its nodes do not fit together".into(),
    });
    Error::model(format!("ONNX Runtime doesn't take the graph: {}{reason}", node.prefix()))
}

/// The error for a call that is about no node: making room for a tensor, binding it, reading it.
pub(super) fn failed_call(raw: &str, doing: &str) -> Error {
    let nowhere = Place::default();
    out_of_memory(raw, &nowhere, Provider::Cpu).unwrap_or_else(|| {
        let reason = plain(raw).map_or(String::new(), |reason| format!(": {reason}"));
        Error::internal(format!("ONNX Runtime failed while {doing}{reason}"))
    })
}

/// A node that a message is about.
#[derive(Default)]
struct Place<'m> {
    operator: Option<&'m str>,
    name: Option<&'m str>,
}

impl<'m> Place<'m> {
    /// The innermost node that was running: the branch of an If fails before the If.
    fn in_run(raw: &'m str) -> Place<'m> {
        let Some((_, inner)) = raw.rsplit_once("while running ") else { return Place::in_graph(raw) };
        Place {
            operator: inner.split_once(" node.").map(|(operator, _)| operator),
            name: between(inner, "Name:'", "'"),
        }
    }

    /// A node that was not compiled. Messages name it in one of several ways.
    fn in_graph(raw: &'m str) -> Place<'m> {
        // What stands around the operator, and around the name.
        const FORMS: [[&str; 4]; 6] = [
            ["Op (", ")", "Node (", ")"],
            ["op_type:", ",", "node name: ", ")"],
            ["implementation for ", "(", "with name '", "'"],
            ["of Optype (", ")", "in node (", ")"],
            ["of operator (", ")", "in node (", ")"],
            ["No Op registered for ", " ", "node name: ", ")"],
        ];
        let form = FORMS.iter().find(|form| between(raw, form[0], form[1]).is_some());
        form.map_or_else(Place::default, |form| Place {
            operator: between(raw, form[0], form[1]),
            name: between(raw, form[2], form[3]),
        })
    }

    /// The node as messages call it; `None` if it is not known.
    fn label(&self) -> Option<String> {
        let operator = self.operator?;
        let name = self.name.filter(|name| !name.is_empty());
        Some(name.map_or_else(|| operator.to_string(), |name| format!("{operator} \"{name}\"")))
    }

    /// Beginning of a sentence about the node.
    fn prefix(&self) -> String {
        self.label().map_or(String::new(), |label| format!("{label}: "))
    }
}

fn between<'m>(text: &'m str, from: &str, to: &str) -> Option<&'m str> {
    Some(text.split_once(from)?.1.split_once(to)?.0)
}

/// The number that follows some words.
fn number(text: &str, after: &str) -> Option<u64> {
    let digits = text.split_once(after)?.1.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    // A number that is too large to be read is larger than any memory.
    (end > 0).then(|| digits[..end].parse().unwrap_or(u64::MAX))
}

/// The error for a message about missing memory; `None` for any other message.
fn out_of_memory(raw: &str, node: &Place, provider: Provider) -> Option<Error> {
    // Before the numbers of bytes, which follow words.
    const REQUESTED: [&str; 3] = [
        "smaller than requested bytes of",
        "requested buffer of size",
        "output tensor would require more than",
    ];
    const LACKS: [&str; 5] = [
        "bad_alloc",
        "Failed to allocate memory",
        "out of memory",
        "bad array new length",
        "cannot allocate memory",
    ];
    // Sizes that no 64 bits hold.
    const BEYOND: [&str; 3] = ["Integer overflow", "SafeIntOnOverflow", "overflows"];
    let any = |words: &[&str]| words.iter().any(|words| raw.contains(words));
    let bytes = REQUESTED.iter().find_map(|words| number(raw, words));
    if bytes.is_none() && !any(&LACKS) && !any(&BEYOND) {
        return None;
    }
    let size = match bytes {
        Some(bytes) if raw.contains("would require more than") => format!("more than {}", Bytes(bytes)),
        Some(bytes) => format!("{} more", Bytes(bytes)),
        None if any(&BEYOND) => "more values than can be counted".into(),
        None => "more memory than there is".into(),
    };
    let who = node.label().unwrap_or_else(|| "the model".into());
    Some(match provider {
        Provider::Cpu => memory::exceeded(format!("{who} needs {size}")),
        Provider::Cuda(_) => Error::model(format!(
            "{who} needs {size}, and the memory of the GPU is used up. --batch asks for fewer images at a time, --size for smaller ones"
        )),
    })
}

/// Known reasons of kernels and of the compiler: ONNX Runtime's words and ours.
const REASONS: [(&str, &str); 13] = [
    ("out of data bounds", "an index lies beyond the end of the data"),
    ("out of bounds", "an index lies beyond the end of the data"),
    ("cannot be reshaped", "its input has another number of values than the shape that is asked for"),
    ("Attempting to broadcast", "the shapes of its inputs don't fit together"),
    ("Incompatible dimensions", "the shapes of its inputs don't fit together"),
    ("Mismatch between", "the shapes of its inputs don't fit together"),
    ("dimension mismatch", "the shapes of its inputs don't fit together"),
    ("Got invalid dimensions for input", "an input has another shape than the graph declares"),
    ("Unexpected input data type", "an input has another type than the graph declares"),
    ("bound to different types", "its inputs have different types, and the operator takes one type only"),
    ("is invalid.", "an input has a type that the operator doesn't take"),
    ("Unrecognized attribute", "it has an attribute that the operator doesn't have"),
    ("No Op registered for", "no operator of this name is known in this version of the operator set"),
];

/// Why a graph or a node was refused, if the message says it in words: ours, with the words of the message if
/// they are sentences for people.
fn reason(raw: &str) -> Option<String> {
    // The number and the words of a fault of the GPU.
    if let Some(reason) = ["CUDA failure ", "CUDNN failure "].iter().find_map(|from| between(raw, from, ";"))
    {
        return Some(format!("the GPU failed (CUDA {}). See whether `nvidia-smi` shows it", reason.trim()));
    }
    let ours = REASONS.iter().find(|(theirs, _)| raw.contains(theirs)).map(|(_, ours)| *ours);
    match (ours, plain(raw)) {
        (Some(ours), Some(words)) => Some(format!("{ours} ({words})")),
        (Some(ours), None) => Some(ours.into()),
        (None, words) => words,
    }
}

/// The last sentence of a message, if it is one for people: without files, functions, conditions and marks of
/// the source.
fn plain(raw: &str) -> Option<String> {
    const MARKS: [&str; 16] = [
        "::", "/", "\\", "==", "!=", ">=", "<=", "&&", "||", "->", "()", "(op_type", "node.", "node (",
        "Status", "_",
    ];
    // What stands in front of the sentence.
    const FRONTS: [&str; 6] =
        ["Status Message: ", " was false. ", "Error] ", "[ShapeInferenceError] ", "Type Error: ", " : "];
    let mut words = raw.trim();
    for front in FRONTS {
        words = words.rsplit_once(front).map_or(words, |(_, words)| words);
    }
    let words = words.trim().lines().next().unwrap_or_default().trim().trim_end_matches('.');
    let for_people =
        words.contains(' ') && words.len() <= 160 && !MARKS.iter().any(|mark| words.contains(mark));
    for_people.then(|| words.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No mark of the C++ around a message.
    #[track_caller]
    fn clean(message: &str) {
        for raw in [
            "/onnxruntime_src",
            "Status Message",
            "Non-zero",
            "::",
            "BFCArena",
            ".cc",
            "[ShapeInferenceError]",
            "ONNXRuntimeError",
        ] {
            assert!(!message.contains(raw), "{raw} in {message}");
        }
    }

    const ARENA: &str = "Non-zero status code returned while running ConstantOfShape node. Name:'bomb' Status Message: \
        /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, \
        onnxruntime::Stream*) Available memory of 1072692992 is smaller than requested bytes of 8589934592\n";

    #[test]
    fn what_lacks_memory_is_named_with_its_size() {
        let old = "Failed to allocate memory for requested buffer of size 8589934592";
        let tile = "Non-zero status code returned while running Tile node. Name:'t' Status Message: Tile output tensor would require \
            more than 4294967296 bytes, which exceeds the supported maximum of 4294967296 bytes.";
        let within =
            format!("Non-zero status code returned while running If node. Name:'if' Status Message: {ARENA}");
        let overflow = "Non-zero status code returned while running Pad node. Name:'' Status Message: \
            /onnxruntime_src/onnxruntime/core/common/safeint.h:17 static void \
            SafeIntExceptionHandler<onnxruntime::OnnxRuntimeException>::SafeIntOnOverflow() Integer overflow\n";
        for (raw, words) in [
            (ARENA, "ConstantOfShape \"bomb\" needs 8.0 GiB more, and "),
            (&within, "ConstantOfShape \"bomb\" needs 8.0 GiB more, and "),
            (old, "the model needs 8.0 GiB more, and "),
            (tile, "Tile \"t\" needs more than 4.0 GiB, and "),
            (overflow, "Pad needs more values than can be counted, and "),
            (
                "Exception during initialization: std::bad_alloc",
                "the model needs more memory than there is, and ",
            ),
        ] {
            for e in
                [failed_run(raw, Provider::Cpu), refused(raw), failed_call(raw, "making room for a tensor")]
            {
                clean(&e.message);
                assert!(e.exit == Exit::Model && e.message.contains("--memory SIZE"), "{e}");
                assert!(!is_failed_run(&e));
            }
            let e = failed_run(raw, Provider::Cpu);
            assert!(e.message.starts_with(words), "{e}");
        }
        let e = failed_run(ARENA, Provider::Cuda(Default::default()));
        assert!(e.message.contains("memory of the GPU"), "{e}");
    }

    #[test]
    fn reasons_are_said_without_the_source() {
        let gather = "Non-zero status code returned while running Gather node. Name:'g' Status Message: indices element out of data \
            bounds, idx=7 must be within the inclusive range [-3,2]";
        let reshape = "Non-zero status code returned while running Reshape node. Name:'r' Status Message: \
            /onnxruntime_src/onnxruntime/core/providers/cpu/tensor/reshape_helper.h:47 onnxruntime::ReshapeHelper::ReshapeHelper(const \
            onnxruntime::TensorShape&, onnxruntime::TensorShapeVector&, bool) input_shape_size == size was false. The input tensor cannot \
            be reshaped to the requested shape. Input shape:{2,144}, requested shape:{7}\n";
        let other = "Non-zero status code returned while running Foo node. Name:'f' Status Message: a.cc:7 static int a::b(int) x == y was false.";
        let e = failed_run(gather, Provider::Cpu);
        assert!(e.message.contains("Gather \"g\": an index lies beyond the end of the data"), "{e}");
        for raw in [gather, reshape, other, "whatever::this(is) at /onnxruntime_src/x.cc:3"] {
            let e = failed_run(raw, Provider::Cpu);
            clean(&e.message);
            assert!(e.exit == Exit::Model && is_failed_run(&e), "{e}");
        }
        assert!(
            failed_run(reshape, Provider::Cpu)
                .message
                .contains("Reshape \"r\": its input has another number of values")
        );
        assert!(
            failed_run(other, Provider::Cpu).message.contains("Foo \"f\": its inputs have shapes or values")
        );
        let fault = "CUDA failure 700: an illegal memory access was encountered ; GPU=0 ; hostname=x ; file=/onnxruntime_src/a.cc ; line=3";
        let e = failed_run(fault, Provider::Cuda(Default::default()));
        assert!(e.exit == Exit::Internal && e.message.contains("700: an illegal memory access"), "{e}");
        clean(&e.message);
    }

    #[test]
    fn refusals_name_the_node() {
        for (raw, words) in [
            (
                "Node (bomb) Op (ConstantOfShape) [ShapeInferenceError] shape input tensor must have non-negative elements",
                "ConstantOfShape \"bomb\": shape input tensor must have non-negative elements",
            ),
            (
                "Could not find an implementation for Gelu(20) node with name 'act'",
                "Gelu \"act\": ONNX Runtime",
            ),
            (
                "Type Error: Type parameter (T) of Optype (Add) bound to different types (tensor(float) and tensor(double) in node (sum).",
                "Add \"sum\": its inputs have different types",
            ),
            (
                "[ShapeInferenceError] (op_type:Conv, node name: c1): [ShapeInferenceError] Attribute pads has incorrect size",
                "Conv \"c1\": Attribute pads has incorrect size",
            ),
            (
                "/onnxruntime_src/onnxruntime/core/graph/model_load_utils.h:46 void onnxruntime::model_load_utils::ValidateOpsetForDomain(int) \
                 ONNX Runtime only *guarantees* support for models stamped with official released onnx opset versions. Opset 28 is \
                 under development and support for this is limited. Current official support for domain ai.onnx is till opset 26.",
                "uses opset 28, and 26 is the newest that this ONNX Runtime takes",
            ),
            (
                "/onnxruntime_src/onnxruntime/core/graph/graph.cc:9 a::b() x was false. ",
                "do not fit together",
            ),
        ] {
            let e = refused(raw);
            clean(&e.message);
            assert!(e.exit == Exit::Model && e.message.contains(words), "{e}");
        }
    }
}
