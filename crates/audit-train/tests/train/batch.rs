//! One batch through a method, without a training around it.

use audit_train::cli::Cli;
use audit_train::defaults;
use audit_train::defence::{Defence, Memory, Step, Update};
use audit_train::dice::Dice;
use audit_train::net::Net;
use audit_train::recipe::Recipe;
use tch::{Device, Tensor};

/// The recipe of these flags for a data set of `images` images.
pub fn recipe(words: &str, images: usize) -> audit::Result<Recipe> {
    let fixed = ["audit-train", "--data", "x", "--out", "x.onnx"];
    let cli =
        Cli::parse_words(fixed.into_iter().chain(words.split_whitespace())).unwrap_or_else(|e| panic!("{e}"));
    defaults::recipe(&cli.run, images, images / 4, "digest")
}

/// One batch of images for a recipe, at the middle of the training.
pub struct Batch {
    pub recipe: Recipe,
    pub net: Net,
    pub images: Tensor,
    pub labels: Vec<usize>,
    pub memory: Memory,
}

impl Batch {
    pub fn new(words: &str, count: i64) -> Batch {
        let recipe =
            recipe(&format!("{words} --batch {count} --epochs 10"), 1000).unwrap_or_else(|e| panic!("{e}"));
        let s = &recipe.settings;
        let of_loss = recipe.loss.start(s.classes, s.dim, 3);
        let net = Net::new(recipe.backbone, s.dim, 3, Device::Cpu).learning(of_loss);
        let (channels, side) = recipe.backbone.input;
        let images = Dice::new(1, "images", 0).tensor(&[count, channels, side, side]);
        let labels = (0..count as usize).map(|i| i / 2).collect();
        Batch { recipe, net, images, labels, memory: Memory::default() }
    }

    pub fn step(&mut self, progress: f64) -> Step<'_> {
        Step {
            defence: Defence::find(&self.recipe.settings.method).unwrap(),
            net: &self.net,
            frozen: self.net.frozen(),
            recipe: &self.recipe,
            images: &self.images,
            labels: &self.labels,
            at: 0,
            progress,
            dice: Dice::new(5, "batch", 0),
            memory: &mut self.memory,
        }
    }

    pub fn update(&mut self) -> Update {
        let step = Defence::find(&self.recipe.settings.method).unwrap().step;
        step(&mut self.step(0.5)).unwrap_or_else(|e| panic!("{e}"))
    }
}
