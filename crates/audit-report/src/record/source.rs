//! Addresses of the papers and pages that define attacks, measures and checks, or say why a check matters.
//! The rows of their tables name them, and reports link them.

/// Zhou et al., "Adversarial Ranking Attack and Defense", ECCV 2020: CA and QA.
pub const RANKING_ATTACK: &str = "https://arxiv.org/abs/2002.11293";
/// Zhou et al., "Adversarial Attack and Defense in Deep Ranking", T-PAMI 2024: ERS and its attacks.
pub const DEEP_RANKING: &str = "https://arxiv.org/abs/2106.03614";
/// Zhou et al., "Practical Relative Order Attack in Deep Ranking", ICCV 2021: FOA.
pub const ORDER_ATTACK: &str = "https://arxiv.org/abs/2103.05248";
/// Tian et al., "Collapse-Aware Triplet Decoupling for Adversarially Robust Image Retrieval", ICML 2024: ARS,
/// collapse.
pub const CA_TRIDE: &str = "https://arxiv.org/abs/2312.07364";
/// Tolias et al., "Targeted Mismatch Adversarial Attack", ICCV 2019: TMA.
pub const TARGETED_MISMATCH: &str = "https://arxiv.org/abs/1908.09163";
/// Wang et al., "Transferable, Controllable, and Inconspicuous Adversarial Attacks on Person
/// Re-identification With Deep Mis-Ranking", CVPR 2020: LTM.
pub const MIS_RANKING: &str = "https://arxiv.org/abs/2004.04199";
/// Panum et al., "Adversarial Deep Metric Learning": NN-push, the anchor, the smallest perturbation.
pub const PANUM: &str = "https://arxiv.org/abs/2102.07265";
/// Wang and Isola, "Understanding Contrastive Representation Learning through Alignment and Uniformity on the
/// Hypersphere", ICML 2020. The paper that attacks both (ADML) has no public address.
pub const ALIGNMENT_UNIFORMITY: &str = "https://arxiv.org/abs/2005.10242";
/// Schroff et al., "FaceNet", CVPR 2015: the triplet loss, and embeddings in place of class scores.
pub const FACENET: &str = "https://arxiv.org/abs/1503.03832";
/// Moosavi-Dezfooli et al., "Universal adversarial perturbations", CVPR 2017.
pub const UNIVERSAL: &str = "https://arxiv.org/abs/1610.08401";
/// Sharif et al., "Accessorize to a Crime", CCS 2016: dodging and impersonation.
pub const DODGING: &str = "https://doi.org/10.1145/2976749.2978392";
/// Struppek et al., "Learning to Break Deep Perceptual Hashing", FAccT 2022: evasion and collision.
pub const PERCEPTUAL_HASHES: &str = "https://arxiv.org/abs/2111.06628";
/// Madry et al., "Towards Deep Learning Models Resistant to Adversarial Attacks", ICLR 2018: the ball, PGD.
pub const BALL: &str = "https://arxiv.org/abs/1706.06083";
/// Croce and Hein, "Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free
/// attacks", ICML 2020.
pub const ENSEMBLE: &str = "https://arxiv.org/abs/2003.01690";
/// Athalye et al., "Obfuscated Gradients Give a False Sense of Security", ICML 2018.
pub const MASKING: &str = "https://arxiv.org/abs/1802.00420";
/// Carlini et al., "On Evaluating Adversarial Robustness", 2019.
pub const EVALUATING: &str = "https://arxiv.org/abs/1902.06705";
/// Pintor et al., "Indicators of Attack Failure", NeurIPS 2022.
pub const ATTACK_FAILURE: &str = "https://arxiv.org/abs/2106.09947";
/// Ilyas et al., "Black-box Adversarial Attacks with Limited Queries and Information", ICML 2018: NES.
pub const NES: &str = "https://arxiv.org/abs/1804.08598";
/// Goodfellow et al., "Explaining and Harnessing Adversarial Examples", ICLR 2015: FGSM; what 8 bits a pixel
/// discard.
pub const FGSM: &str = "https://arxiv.org/abs/1412.6572";
/// Bengio et al., "Estimating or Propagating Gradients Through Stochastic Neurons", 2013: the
/// straight-through estimator.
pub const STRAIGHT_THROUGH: &str = "https://arxiv.org/abs/1308.3432";
/// Baydin et al., "Automatic Differentiation in Machine Learning: a Survey", 2018: gradients, and finite
/// differences beside them.
pub const DIFFERENTIATION: &str = "https://arxiv.org/abs/1502.05767";
/// Micikevicius et al., "Mixed Precision Training", ICLR 2018: what float16 loses.
pub const MIXED_PRECISION: &str = "https://arxiv.org/abs/1710.03740";
/// Ioffe and Szegedy, "Batch Normalization", 2015: statistics of the batch in training mode.
pub const BATCH_NORMALISATION: &str = "https://arxiv.org/abs/1502.03167";
/// Wang et al., "NormFace", 2017: embeddings compared by their direction.
pub const NORMFACE: &str = "https://arxiv.org/abs/1704.06369";
/// Musgrave et al., "A Metric Learning Reality Check", ECCV 2020: measures of retrieval, and how to compare
/// by them.
pub const RETRIEVAL: &str = "https://arxiv.org/abs/2003.08505";
/// Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
/// Perturbations", ICLR 2019.
pub const CORRUPTIONS: &str = "https://arxiv.org/abs/1903.12261";
/// Zheng et al., "Person Re-identification: Past, Present and Future", 2016: the cumulative match curve.
pub const RE_IDENTIFICATION: &str = "https://arxiv.org/abs/1610.02984";
/// Barz and Denzler, "Do We Train on Test Data? Purging CIFAR of Near-Duplicates", 2019.
pub const NEAR_DUPLICATES: &str = "https://arxiv.org/abs/1902.00423";
/// Gebru et al., "Datasheets for Datasets", 2018: what should be known of a data set.
pub const DATASHEETS: &str = "https://arxiv.org/abs/1803.09010";
/// Torralba and Efros, "Unbiased look at dataset bias", CVPR 2011: numbers on one data set say little of
/// another.
pub const DATA_BIAS: &str = "https://doi.org/10.1109/CVPR.2011.5995347";
/// Efron, "Bootstrap Methods: Another Look at the Jackknife", 1979: intervals by resampling.
pub const BOOTSTRAP: &str = "https://doi.org/10.1214/aos/1176344552";
/// Goldberg, "What Every Computer Scientist Should Know About Floating-Point Arithmetic", 1991: infinities
/// and NaN.
pub const FLOATING_POINT: &str = "https://doi.org/10.1145/103162.103163";
/// Manning et al., "Introduction to Information Retrieval", 2008: precision, R-precision, mAP.
pub const RANKED_RETRIEVAL: &str =
    "https://nlp.stanford.edu/IR-book/html/htmledition/evaluation-of-ranked-retrieval-results-1.html";
/// That book: NMI.
pub const CLUSTERING: &str =
    "https://nlp.stanford.edu/IR-book/html/htmledition/evaluation-of-clustering-1.html";
/// Vinh et al., "Information Theoretic Measures for Clusterings Comparison", JMLR 2010: AMI.
pub const ADJUSTED_MUTUAL_INFORMATION: &str = "https://jmlr.org/papers/v11/vinh10a.html";
/// The definitions of ONNX's operators.
pub const ONNX_OPERATORS: &str = "https://onnx.ai/onnx/operators/";
/// What ONNX Runtime rewrites in a graph.
pub const GRAPH_OPTIMISATIONS: &str =
    "https://onnxruntime.ai/docs/performance/model-optimizations/graph-optimizations.html";
/// How ONNX Runtime divides a graph among execution providers.
pub const EXECUTION_PROVIDERS: &str = "https://onnxruntime.ai/docs/execution-providers/";
/// ONNX Runtime's CUDA provider, and its option use_tf32.
pub const CUDA_PROVIDER: &str = "https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html";
/// Pretrained models of torchvision: why a model's own preprocessing matters.
pub const PREPROCESSING: &str = "https://docs.pytorch.org/vision/stable/models.html";
