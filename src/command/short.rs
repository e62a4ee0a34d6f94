//! Text of `-h`: the flags that most audits need, on one screen. `--help` has all.

/// At most 50 lines of 80 columns. A test compares it with the flags and commands that there are.
pub const SHORT: &str = "\
How small a change to an image makes a model return the wrong match?

Usage: audit MODEL.onnx --data FOLDER [OPTIONS]
       audit COMMAND

Data
  --data PATH            a folder with a folder of images for each class,
                         or of images without classes, a list (.csv), or a
                         benchmark's folder [default: generated images]
  --max-queries N        attack at most N queries
  --card FILE            how images are prepared: a file, face-bgr or face-rgb
                         [default: MODEL.yaml, or the file of transformers,
                         timm or open_clip beside the model]
  --size, --mean, --std, --channels, --resize-shorter, --output, --metric
                         the same by flags
Attack
  --suite NAME           robust (the default), ars, full, faces, corruptions, …:
                         `audit suites` lists them; or a .yaml file
  --eps 8/255            the largest change of a pixel [default: 8/255;
                         77/255 for inputs of up to 32 pixels]
  --norm l2, --patch 0.1 other bounds
Report
  -o FILE                .html, .md, .json, .csv, .junit.xml, .sarif, …; may be
                         repeated
  -v                     print every table
  --trials FILE          the queries and targets of an earlier report
Gate
  --fail-under METRIC=N  such as eps50=2, robust_r1@1/255=60 [exit code 10]
  --baseline FILE        an earlier report; a loss beyond chance fails [11]
  --max-drop METRIC=N    how large a loss may be
Machine
  --ep cuda              run on a GPU [default: auto]
  --threads N, --batch N, --memory 4G
  --resume               continue after Ctrl-C or a crash
  -q                     show no progress

Commands
  demo                   audit two small models that come with the program
  attack                 change one photograph so that a search gets it wrong
  inspect, doctor        what is this model, and can its numbers be trusted?
  compare, gate, report  compare saved reports, judge them, change their format
  sweep, geometry        numbers by ε and steps; the embedding space
  embed, merge           parts of long runs
  grad, ops              the gradient as a file; operators with a gradient
  suites, attacks        lists
  images                 generated images for a first try
  schema, completions, man

`audit --help` has every flag, `audit COMMAND --help` those of a command.
";

/// The text, if these words of a command line ask for the short help of audits.
pub fn short_help(words: &[std::ffi::OsString]) -> Option<&'static str> {
    (words.len() == 1 && words[0] == "-h").then_some(SHORT)
}
