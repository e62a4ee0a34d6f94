//! Trainings as run by their authors, as lists of flags.

use audit::Result;

/// A training of a paper, or of its released code.
pub struct Published {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line for `audit-train methods`.
    pub about: &'static str,
    /// Name of the method.
    pub method: &'static str,
    /// The flags, as a user would give them: common ones of several trainings, and its own.
    flags: [&'static str; 2],
}

/// Settings of robrank for ResNets and pairs, and of CA-TRIDE's code, which is based on it. Every image is an
/// anchor once per epoch: 105 batches per epoch on CUB, 7,875 in all.
const ROBRANK: &str = "--backbone resnet18 --dim 512 --loader pairs --batch 112 --anchors pairs --epochs 75 --lr 1e-5 \
                       --weight-decay 4e-4 --loss triplet";
/// Settings of the framework of Roth et al. (2020), from appendix A of Panum et al. docs/training.md lists
/// what that code does otherwise.
const ROTH: &str =
    "--backbone resnet50 --dim 128 --batch 112 --anchors every --weight-decay 4e-4 --resize shorter";

/// Every published training.
pub const PUBLISHED: &[Published] = &[
    Published {
        name: "none-released",
        about: "robrank's undefended nets (rres18, ptripletN)",
        method: "none",
        flags: [ROBRANK, "--sampler random"],
    },
    Published {
        name: "est-released",
        about: "EST as robrank has it (rres18d, ptripletN)",
        method: "est",
        flags: [ROBRANK, "--sampler random --eps 8/255 --alpha 1/255 --pgd-steps 32"],
    },
    Published {
        name: "act-released",
        about: "ACT as robrank has it (rres18p, ptripletN)",
        method: "act",
        flags: [ROBRANK, "--sampler random --eps 8/255 --alpha 1/255 --pgd-steps 32"],
    },
    Published {
        name: "hm-released",
        about: "HM[S, LGA] & ICS by its code (rres18ghmetsmi, ptripletN); SOP: --ics 0.05 by the paper",
        method: "hm",
        flags: [
            ROBRANK,
            "--sampler softhard --destination lga --ics 0.5 --eps 8/255 --alpha 1/255 --pgd-steps 32",
        ],
    },
    Published {
        name: "ca-tride-released",
        about: "CA-TRIDE by its code (rres18p, pgtripletN), λ of CUB; CARS: --lambda 9.5, SOP: --lambda 2",
        method: "ca-tride",
        flags: [
            ROBRANK,
            "--sampler semihard --reading released --lambda 10 --eps 8/255 --alpha 1/255 --pgd-steps 16 --progressive on",
        ],
    },
    Published {
        name: "panum-paper",
        about: "Panum et al., appendix A, on CUB and CARS; SOP: --epochs 100",
        method: "panum",
        flags: [
            ROTH,
            "--loss contrastive --sampler distance-clamped --epochs 150 --lr 1e-6 --crop-area 0.6 --gamma 0.5 --eps 0.01 --alpha 0.004 --pgd-steps 5 \
             --random-start on",
        ],
    },
    Published {
        name: "adml-paper",
        about: "ADML+A on CUB; CARS: --adversarial-weight 0.15, SOP and In-shop: 0.005 and --eps 0.01 --alpha 0.003 --pgd-steps 5",
        method: "adml",
        flags: [
            ROTH,
            "--loss multi-similarity --epochs 100 --lr 1e-5 --crop-area 0.08 --target alignment --refs clean --adversarial-weight 0.1 --eps 8/255 \
             --alpha 0.007 --pgd-steps 7",
        ],
    },
];

impl Published {
    /// The training called `name`. Error (exit code 2): there is none.
    pub fn find(name: &str) -> Result<&'static Published> {
        crate::find_row("recipe", PUBLISHED, name, |row| row.name)
    }

    /// Its flags and their values, one after another.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        self.flags.into_iter().flat_map(str::split_whitespace)
    }
}
