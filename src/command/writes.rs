//! What the program sends and writes, for `audit --version` and docs/privacy.md.

use std::sync::LazyLock;

/// A kind of file that the program writes.
pub struct Written {
    /// Path; `*` stands for any name.
    pub place: &'static str,
    /// Content.
    pub what: &'static str,
}

/// Every file that the program writes.
pub const WRITTEN: [Written; 6] = [
    Written {
        place: "files that you name",
        what: "reports, trials, baselines, embeddings, gradients and images, by -o and the flags that name a file or a folder to write \
               (--cache FOLDER too); `inspect --write-card` writes the card beside the model, and `demo` into audit-demo without --out",
    },
    Written {
        place: "*.journal",
        what: "beside the first -o, or --journal FILE: finished trials of a run. Removed when all reports are written",
    },
    Written {
        place: "*.partial",
        what: "beside a file that is being written. It takes the file's name when it is whole",
    },
    Written {
        place: "*/attacked.run",
        what: "in the folder of --attacked-out: a hash of the audit, and path and hash of each file, for --resume",
    },
    Written {
        place: "~/.cache/audit/check/*.json",
        what: "result of the check at load, by a hash of model and images; no pixels, no weights. Removed after 90 days, when another is written. --no-cache writes none",
    },
    Written {
        place: "~/.cache/audit/clean/*.json",
        what: "retrieval without an attack in a large gallery: ranks by image number, R@1 by name of class; no embeddings. Removed after 90 days, when another is written. --no-cache writes none",
    },
];

/// The text of `audit --version`.
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        let rows = WRITTEN.iter().map(|Written { place, what }| format!("  {place}\n      {what}\n"));
        format!(
            "{version}\n\nSends nothing: it opens no network connection. ONNX Runtime's telemetry is off, unless you set \
             ORT_DISABLE_TELEMETRY=0.\n\nWrites nothing but:\n{}\n$XDG_CACHE_HOME replaces ~/.cache; macOS has ~/Library/Caches, Windows \
             %LOCALAPPDATA%. No temporary files, except on Windows: audit-* in the temporary folder holds the model while ONNX Runtime \
             loads it. docs/privacy.md has the details.",
            rows.collect::<String>()
        )
    });
    &TEXT
}
