//! The trainer's main.

fn main() {
    let t = tch::Tensor::from_slice(&[1f32, 2.0]);
    t.print();
    println!("{}", tch::Cuda::is_available());
}
