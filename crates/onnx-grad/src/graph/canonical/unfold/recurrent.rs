//! RNN, GRU and LSTM: one step per position of the sequence and direction. Formulas as in ONNX's
//! documentation of the operators.

use super::{Done, Expansion, Node, Rewrite};
use crate::graph::canonical::standard;
use crate::graph::{Attr, DType, Tensor};

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("GRU", 7, |rw, node| unfold(rw, node, &GRU)).refuses("more than 4096 steps; layout=1"),
    standard("LSTM", 7, |rw, node| unfold(rw, node, &LSTM)).refuses("more than 4096 steps; layout=1"),
    standard("RNN", 7, |rw, node| unfold(rw, node, &RNN)).refuses("more than 4096 steps; layout=1"),
];

const MOST_STEPS: i64 = 4096;
/// Maximum number of values of a state, for the whole batch: the first state is a constant here.
const MOST_STATE: i64 = 1 << 26;

/// Differences between the three operators.
struct Kind {
    /// Number of gates, each with its own rows of the weights.
    gates: i64,
    activations: &'static [&'static str],
    step: fn(&mut Rewrite, &Cell, &str, &State) -> Result<State, String>,
}

const RNN: Kind = Kind { gates: 1, activations: &["Tanh"], step: rnn };
const GRU: Kind = Kind { gates: 3, activations: &["Sigmoid", "Tanh"], step: gru };
const LSTM: Kind = Kind { gates: 4, activations: &["Sigmoid", "Tanh", "Tanh"], step: lstm };

/// The values that a cell passes to its next step, [batch, hidden].
#[derive(Clone)]
struct State {
    h: String,
    /// LSTM only.
    c: String,
}

/// One direction's weights and settings.
struct Cell {
    hidden: i64,
    /// [hidden, gates · hidden].
    recurrent: String,
    /// [gates · hidden], the part that is added to the recurrent product.
    recurrent_bias: Option<String>,
    /// Weights of the previous and new cell in the gates: input, output, forget; each [hidden].
    peepholes: Option<[String; 3]>,
    activations: Vec<Activation>,
    clip: Option<f32>,
    /// linear_before_reset of a GRU, input_forget of an LSTM.
    variant: bool,
}

#[derive(Clone)]
struct Activation {
    name: String,
    alpha: Option<f32>,
    beta: Option<f32>,
}

impl Cell {
    /// The activation of a sum, which is clipped first if the operator says so.
    fn activate(&self, rw: &mut Rewrite, i: usize, x: &str) -> Result<String, String> {
        let clipped = match self.clip {
            Some(bound) => {
                let (low, high) = (rw.scalar(-bound), rw.scalar(bound));
                rw.op("Clip", &[x, &low, &high])
            }
            None => x.to_string(),
        };
        self.activations.get(i).ok_or("has too few activations")?.apply(rw, &clipped)
    }

    /// Part `gate` of [batch, gates · hidden].
    fn gate(&self, rw: &mut Rewrite, all: &str, gate: i64) -> String {
        let (from, to) = (rw.ints(&[gate * self.hidden]), rw.ints(&[(gate + 1) * self.hidden]));
        rw.slice_last(all, &from, &to)
    }

    /// All gates of [batch, gates · hidden].
    fn gates(&self, rw: &mut Rewrite, all: &str, count: usize) -> Vec<String> {
        rw.split(all, &vec![self.hidden; count], 1)
    }

    /// h · recurrent weights of a range of gates, with their bias.
    fn product(&self, rw: &mut Rewrite, h: &str, gates: std::ops::Range<i64>, bias: bool) -> String {
        let (from, to) = (rw.ints(&[gates.start * self.hidden]), rw.ints(&[gates.end * self.hidden]));
        let weights = rw.slice_last(&self.recurrent, &from, &to);
        let product = rw.op("MatMul", &[h, &weights]);
        match self.recurrent_bias.as_ref().filter(|_| bias) {
            Some(bias) => {
                let bias = rw.slice_last(bias, &from, &to);
                rw.op("Add", &[&product, &bias])
            }
            None => product,
        }
    }
}

impl Activation {
    fn apply(&self, rw: &mut Rewrite, x: &str) -> Result<String, String> {
        let named = |with_beta: bool| {
            let mut attrs: Vec<(&str, Attr)> = self.alpha.map(|a| ("alpha", a.into())).into_iter().collect();
            attrs.extend(self.beta.filter(|_| with_beta).map(|b| ("beta", b.into())));
            attrs
        };
        Ok(match self.name.to_ascii_lowercase().as_str() {
            "relu" => rw.op("Relu", &[x]),
            "tanh" => rw.op("Tanh", &[x]),
            "sigmoid" => rw.op("Sigmoid", &[x]),
            "softsign" => rw.op("Softsign", &[x]),
            "softplus" => rw.op("Softplus", &[x]),
            "leakyrelu" => rw.push("LeakyRelu", &[x], &named(false)),
            "thresholdedrelu" => rw.push("ThresholdedRelu", &[x], &named(false)),
            "elu" => rw.push("Elu", &[x], &named(false)),
            "hardsigmoid" => rw.push("HardSigmoid", &[x], &named(true)),
            "affine" => {
                let scaled = rw.scale(x, self.alpha.unwrap_or(1.0));
                let offset = rw.scalar(self.beta.unwrap_or(0.0));
                rw.op("Add", &[&scaled, &offset])
            }
            "scaledtanh" => {
                let scaled = rw.scale(x, self.beta.unwrap_or(1.0));
                let tanh = rw.op("Tanh", &[&scaled]);
                rw.scale(&tanh, self.alpha.unwrap_or(1.0))
            }
            _ => return Err(format!("activation {:?} is not known", self.name)),
        })
    }
}

/// Activations of all directions. Parameters are listed only for activations that have any.
fn activations(node: &Node, kind: &Kind, directions: usize) -> Result<Vec<Vec<Activation>>, String> {
    let mut names: Vec<String> = match node.attrs.get("activations") {
        None => kind.activations.repeat(directions).iter().map(|name| name.to_string()).collect(),
        Some(Attr::Other(other)) => other.strings(),
        Some(_) => return Err("attribute activations is no list of names".into()),
    };
    let count = kind.activations.len() * directions;
    // ONNX's default for an RNN lists both directions, even if there is one. ONNX Runtime reads the first.
    if kind.gates == 1 && names.len() == 2 {
        names.truncate(count);
    }
    if names.len() != count {
        return Err(format!("names {} activations, expected {count}", names.len()));
    }
    let list = |name: &str| node.floats(name).unwrap_or_default().iter().copied();
    let (mut alpha, mut beta) = (list("activation_alpha"), list("activation_beta"));
    let each = |name: String| {
        let (a, b) = match name.to_ascii_lowercase().as_str() {
            "affine" | "hardsigmoid" | "scaledtanh" => (alpha.next(), beta.next()),
            "leakyrelu" | "thresholdedrelu" | "elu" => (alpha.next(), None),
            _ => (None, None),
        };
        Activation { name, alpha: a, beta: b }
    };
    let all: Vec<Activation> = names.into_iter().map(each).collect();
    Ok(all.chunks(kind.activations.len()).map(<[Activation]>::to_vec).collect())
}

fn rnn(rw: &mut Rewrite, cell: &Cell, x: &str, state: &State) -> Result<State, String> {
    let product = cell.product(rw, &state.h, 0..1, true);
    let sum = rw.op("Add", &[x, &product]);
    Ok(State { h: cell.activate(rw, 0, &sum)?, c: String::new() })
}

/// The gates are update, reset and hidden.
fn gru(rw: &mut Rewrite, cell: &Cell, x: &str, state: &State) -> Result<State, String> {
    let both = rw.ints(&[2 * cell.hidden]);
    let zero = rw.ints(&[0]);
    let product = cell.product(rw, &state.h, 0..2, true);
    let input = rw.slice_last(x, &zero, &both);
    let sum = rw.op("Add", &[&input, &product]);
    let activated = cell.activate(rw, 0, &sum)?;
    let gates = cell.gates(rw, &activated, 2);
    let (update, reset) = (&gates[0], &gates[1]);
    let product = if cell.variant {
        let product = cell.product(rw, &state.h, 2..3, true);
        rw.op("Mul", &[reset, &product])
    } else {
        let kept = rw.op("Mul", &[reset, &state.h]);
        cell.product(rw, &kept, 2..3, true)
    };
    let input = cell.gate(rw, x, 2);
    let sum = rw.op("Add", &[&input, &product]);
    let new = cell.activate(rw, 1, &sum)?;
    // (1 − z)·new + z·h
    let difference = rw.op("Sub", &[&state.h, &new]);
    let part = rw.op("Mul", &[update, &difference]);
    Ok(State { h: rw.op("Add", &[&new, &part]), c: String::new() })
}

/// The gates are input, output, forget and cell.
fn lstm(rw: &mut Rewrite, cell: &Cell, x: &str, state: &State) -> Result<State, String> {
    let product = cell.product(rw, &state.h, 0..4, true);
    let sum = rw.op("Add", &[x, &product]);
    let gates = cell.gates(rw, &sum, 4);
    let peep = |rw: &mut Rewrite, gate: &str, i: usize, c: &str| match &cell.peepholes {
        Some(weights) => {
            let part = rw.op("Mul", &[&weights[i], c]);
            rw.op("Add", &[gate, &part])
        }
        None => gate.to_string(),
    };
    let input = peep(rw, &gates[0], 0, &state.c);
    let input = cell.activate(rw, 0, &input)?;
    let forget = if cell.variant {
        let one = rw.scalar(1.0);
        rw.op("Sub", &[&one, &input])
    } else {
        let forget = peep(rw, &gates[2], 2, &state.c);
        cell.activate(rw, 0, &forget)?
    };
    let new = cell.activate(rw, 1, &gates[3])?;
    let (kept, added) = (rw.op("Mul", &[&forget, &state.c]), rw.op("Mul", &[&input, &new]));
    let c = rw.op("Add", &[&kept, &added]);
    let output = peep(rw, &gates[1], 1, &c);
    let output = cell.activate(rw, 0, &output)?;
    let shown = cell.activations.get(2).ok_or("has too few activations")?.apply(rw, &c)?;
    Ok(State { h: rw.op("Mul", &[&output, &shown]), c })
}

fn unfold(rw: &mut Rewrite, node: &Node, kind: &Kind) -> Done {
    let (x, recurrent) = (node.x(0)?, node.x(2)?);
    let (shape, sizes) = (rw.shape(&x)?, rw.shape(&recurrent)?);
    let (&[steps, batch, _], &[directions, _, hidden]) = (shape.as_slice(), sizes.as_slice()) else {
        return Err(format!(
            "its input has shape {shape:?} and its recurrent weights {sizes:?}, expected three dimensions each"
        ));
    };
    if steps > MOST_STEPS || steps == 0 {
        return Err(format!("has {steps} steps, expected 1 to {MOST_STEPS}"));
    }
    if !(1..=2).contains(&directions) {
        return Err(format!("has {directions} directions, expected 1 or 2"));
    }
    if batch.checked_mul(hidden).filter(|values| (0..=MOST_STATE).contains(values)).is_none() {
        return Err(format!("its state has {batch} x {hidden} values, more than {MOST_STATE}"));
    }
    let activations = activations(node, kind, directions as usize)?;
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut last: Vec<State> = Vec::new();
    for (d, activations) in (0..directions).zip(activations) {
        let (cell, products) = cell(rw, node, kind, d, hidden, activations)?;
        let (shown, state) = run(rw, node, kind, d, [steps, batch], &cell, &products)?;
        all.push(shown);
        last.push(state);
    }
    if let Some(out) = node.output(0) {
        let parts: Vec<String> = all
            .iter()
            .map(|shown| {
                let part = rw.name("direction");
                rw.stack(shown, 0, &part);
                part
            })
            .collect();
        rw.stack(&parts, 1, out);
    }
    let parts: [fn(State) -> String; 2] = [|state| state.h, |state| state.c];
    for (i, part) in parts.into_iter().enumerate() {
        if let Some(out) = node.output(1 + i) {
            let parts: Vec<String> = last.iter().cloned().map(part).collect();
            rw.stack(&parts, 0, out);
        }
    }
    Ok(())
}

/// The cell of direction `d`, and the products of all inputs with its weights, [steps, batch, gates ·
/// hidden].
fn cell(
    rw: &mut Rewrite,
    node: &Node,
    kind: &Kind,
    d: i64,
    hidden: i64,
    activations: Vec<Activation>,
) -> Result<(Cell, String), String> {
    let mut turned = |i: usize| -> Result<String, String> {
        let own = rw.entry(&node.x(i)?, d, 0);
        Ok(rw.transpose(&own, &[1, 0]))
    };
    let (own, recurrent) = (turned(1)?, turned(2)?);
    let (mut products, mut recurrent_bias) = (rw.op("MatMul", &[&node.x(0)?, &own]), None);
    if let Some(bias) = node.input(3) {
        let bias = rw.entry(bias, d, 0);
        let (zero, middle, end) =
            (rw.ints(&[0]), rw.ints(&[kind.gates * hidden]), rw.ints(&[2 * kind.gates * hidden]));
        let first = rw.slice_last(&bias, &zero, &middle);
        products = rw.op("Add", &[&products, &first]);
        recurrent_bias = Some(rw.slice_last(&bias, &middle, &end));
    }
    let peepholes = node.input(7).map(|p| {
        let own = rw.entry(p, d, 0);
        [0, 1, 2].map(|i| {
            let (from, to) = (rw.ints(&[i * hidden]), rw.ints(&[(i + 1) * hidden]));
            rw.slice_last(&own, &from, &to)
        })
    });
    let clip = node.given_float("clip");
    let variant = node.int("linear_before_reset", 0) != 0 || node.int("input_forget", 0) != 0;
    Ok((Cell { hidden, recurrent, recurrent_bias, peepholes, activations, clip, variant }, products))
}

/// All steps of direction `d`: what each shows, and the last state.
fn run(
    rw: &mut Rewrite,
    node: &Node,
    kind: &Kind,
    d: i64,
    [steps, batch]: [i64; 2],
    cell: &Cell,
    products: &str,
) -> Result<(Vec<String>, State), String> {
    let reverse = node.str("direction", "forward") == "reverse" || d == 1;
    let values = vec![0.0; (batch * cell.hidden) as usize];
    let zeros = rw.constant(Tensor::f32(&[batch, cell.hidden], &values));
    let mut first = |i: usize| match node.input(i) {
        Some(given) => rw.entry(given, d, 0),
        None => zeros.clone(),
    };
    let mut state = State { h: first(5), c: first(6) };
    let parts = rw.slices(products, 0, steps);
    let mut shown = vec![String::new(); steps as usize];
    for k in 0..steps {
        let t = if reverse { steps - 1 - k } else { k };
        let next = (kind.step)(rw, cell, &parts[t as usize], &state)?;
        (state, shown[t as usize]) = mask_step(rw, node, t, batch, state, next, &zeros);
    }
    Ok((shown, state))
}

/// State and output of step t. If a sequence has already ended: its old state, and 0.
fn mask_step(
    rw: &mut Rewrite,
    node: &Node,
    t: i64,
    batch: i64,
    old: State,
    next: State,
    zeros: &str,
) -> (State, String) {
    let Some(lengths) = node.input(4) else {
        return (next.clone(), next.h);
    };
    let lengths = rw.reshape(lengths, &[batch, 1]);
    let lengths = rw.cast(&lengths, DType::I64);
    let at = rw.ints(&[t]);
    let inside = rw.op("Less", &[&at, &lengths]);
    let mut choose = |new: &str, old: &str| rw.op("Where", &[&inside, new, old]);
    let shown = choose(&next.h, zeros);
    let h = choose(&next.h, &old.h);
    let c = if next.c.is_empty() { String::new() } else { choose(&next.c, &old.c) };
    (State { h, c }, shown)
}
