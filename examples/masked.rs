//! Writes a model behind every mask of tests/common/masked.rs: `masked MODEL.onnx FOLDER`. The files are
//! FOLDER/NAME.onnx, and FOLDER/NAME.yaml where the model has a card. Masked models retrieve as the model
//! does and hide their gradient; an audit should call none of them robust.

#[path = "../tests/common/masked.rs"]
mod masked;

use onnx_grad::Graph;
use std::path::Path;

type Anything = Box<dyn std::error::Error>;

fn main() -> Result<(), Anything> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, folder] = args.as_slice() else {
        return Err("two arguments are expected: masked MODEL.onnx FOLDER".into());
    };
    let (model, folder) = (Path::new(model), Path::new(folder));
    let graph = Graph::load(model).map_err(|e| e.to_string())?;
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let card = model.with_extension("yaml");
    // The card names the file that it belongs to by its hash; a masked model is another file.
    let card = card.is_file().then(|| std::fs::read_to_string(&card)).transpose()?.map(|text| {
        let lines = text.lines().filter(|line| !line.starts_with("sha256:") && !line.starts_with("source:"));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    });
    for mask in masked::MASKS {
        let path = folder.join(mask.name).with_extension("onnx");
        std::fs::write(&path, mask.apply(&graph).encode())?;
        if let Some(card) = &card {
            std::fs::write(path.with_extension("yaml"), card)?;
        }
        println!("{:<16} {:?}: {}", mask.name, mask.place, mask.formula);
    }
    Ok(())
}
