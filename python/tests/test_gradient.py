"""Compares the gradient of a model in ONNX Runtime with PyTorch's autograd, and runs other libraries' attacks with it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from conftest import QUICK

import onnx_audit
from onnx_audit import binary

np = pytest.importorskip("numpy")
pytest.importorskip("onnxruntime")

#: The budget of the protocol for 28-pixel images: 77/255.
EPS = 0.30196


@pytest.fixture(scope="module")
def gradient(plain: Path) -> onnx_audit.Gradient:
    return onnx_audit.Gradient(plain)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory):
    """A net in PyTorch, and the gradient of its export."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.GELU(), torch.nn.AvgPool2d(4)]
    net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(6 * 16, 8)).eval()
    return net, onnx_audit.Gradient(net, example=torch.rand(1, 3, 16, 16), mean=0, std=1)


def test_the_gradient_is_autograd_s(pair):
    torch = pytest.importorskip("torch")
    net, gradient = pair
    assert (gradient.shape, gradient.dim) == ((3, 16, 16), 8)
    # Another batch size than in the export.
    image = torch.rand(5, 3, 16, 16, requires_grad=True)
    cotangent = torch.randn(5, 8)
    embedding = net(image)
    embedding.backward(cotangent)
    np.testing.assert_allclose(gradient.embed(image.detach()), embedding.detach(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient.vjp(image.detach(), cotangent), image.grad, rtol=1e-4, atol=1e-6)


def test_the_module_is_a_part_of_autograd(pair):
    torch = pytest.importorskip("torch")
    from onnx_audit.torch import Embedding, Retrieval

    net, gradient = pair
    gallery, labels = torch.randn(10, 8), torch.arange(10) % 4
    image = torch.rand(3, 3, 16, 16)
    results = []
    for embedding in (net, Embedding(gradient)):
        x = image.clone().requires_grad_()
        logits = Retrieval(embedding, gallery, labels)(x)
        torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 3])).backward()
        results.append((logits.detach(), x.grad))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-3, atol=1e-7)
    # The logit of a class is the largest cosine similarity to its gallery images.
    cosine = torch.nn.functional.cosine_similarity(net(image)[:, None], gallery[None], dim=2)
    expected = torch.stack([cosine[:, labels == c].max(dim=1).values for c in range(4)], dim=1)
    torch.testing.assert_close(results[0][0], 10 * expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labelled", [[0, 1, 2, 3], [0, 3]])
def test_the_estimator_has_autograd_s_gradient(pair, labelled):
    """Also if the gallery lacks classes."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("art")
    from onnx_audit.art import RetrievalEstimator
    from onnx_audit.torch import Retrieval

    net, gradient = pair
    gallery, labels = torch.randn(10, 8), torch.tensor(labelled)[torch.arange(10) % len(labelled)]
    image, classes = torch.rand(3, 3, 16, 16, requires_grad=True), torch.tensor([2, 0, 1])
    logits = Retrieval(net, gallery, labels)(image)
    torch.nn.functional.cross_entropy(logits, classes, reduction="sum").backward()
    estimator = RetrievalEstimator(gradient, gallery.numpy(), labels.numpy())
    x = image.detach().numpy()
    np.testing.assert_allclose(estimator.predict(x, batch_size=2), logits.detach(), rtol=1e-4, atol=1e-5)
    for y in (classes.numpy(), np.eye(4, dtype=np.float32)[classes.numpy()]):
        np.testing.assert_allclose(estimator.loss_gradient(x, y), image.grad, rtol=1e-3, atol=1e-7)


def test_a_gradient_file_is_not_differentiated_again(plain: Path, gradient, tmp_path: Path):
    file = tmp_path / "plain.grad.onnx"
    binary.checked(["grad", plain, "-o", file])
    x = np.random.default_rng(0).random((2, 1, 28, 28), np.float32)
    cotangent = np.ones((2, 128), np.float32)
    np.testing.assert_array_equal(onnx_audit.Gradient(file).vjp(x, cotangent), gradient.vjp(x, cotangent))


def test_wrong_shapes_are_named(gradient):
    with pytest.raises(ValueError, match=r"\[B, 1, 28, 28\], found \[2, 3, 28, 28\]"):
        gradient.embed(np.zeros((2, 3, 28, 28)))
    with pytest.raises(ValueError, match=r"\(2, 128\), found \(2, 64\)"):
        gradient.vjp(np.zeros((2, 1, 28, 28)), np.zeros((2, 64)))


class Stage:
    """One query and three gallery images for each of 12 classes, and their R@1 as measured by audit."""

    def __init__(self, folder: Path, model: Path) -> None:
        Image = pytest.importorskip("PIL.Image")
        self.model, self.folder, self.save = model, folder, Image.fromarray
        binary.checked(["images", f"--out={folder}", "--seed=5", "--classes=12", "--samples=4"])
        files = [sorted(path.glob("*.png")) for path in sorted(p for p in folder.iterdir() if p.is_dir())]
        self.queries = [kind[0] for kind in files]
        self.gallery = [file for kind in files for file in kind[1:]]
        read = lambda file: np.asarray(Image.open(file).convert("L"), np.float32)[None] / 255
        self.images = np.stack([read(file) for file in self.queries])
        self.items = np.stack([read(file) for file in self.gallery])
        self.classes = np.arange(12)
        self.labels = np.repeat(self.classes, 3)

    def r1(self, images) -> float:
        """Returns R@1, measured by audit with these images as queries. Fails if they leave the ball."""
        images = np.asarray(images)
        assert np.abs(images - self.images).max() <= EPS + 1e-6 and images.min() >= 0 and images.max() <= 1
        rows = [["path", "label", "is_query", "is_gallery"]]
        for file, image in zip(self.queries, images, strict=True):
            attacked = self.folder / f"attacked-{file.parent.name}.png"
            self.save(np.rint(255 * image[0]).astype(np.uint8)).save(attacked)
            rows.append([attacked.name, file.parent.name, 1, 0])
        rows += [[file.relative_to(self.folder), file.parent.name, 0, 1] for file in self.gallery]
        with open(self.folder / "images.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows)
        # If all queries fail, audit reports a collapsed model.
        image_list = self.folder / "images.csv"
        return onnx_audit.audit(self.model, image_list, allow_untrusted=True, **QUICK).clean_r1


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, plain: Path) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"), plain)


@pytest.fixture(scope="module")
def module(stage: Stage, gradient):
    torch = pytest.importorskip("torch")
    from onnx_audit.torch import Embedding, Retrieval

    return Retrieval(Embedding(gradient), torch.from_numpy(gradient.embed(stage.items)), torch.from_numpy(stage.labels)).eval()


#: Least clean R@1 and most R@1 under attack, in %. The plain model has robust R@1 0 at this ε (models/README.md).
CLEAN, ATTACKED = 75, 25


def test_queries_are_correct_without_an_attack(stage: Stage):
    assert stage.r1(stage.images) >= CLEAN


def by_torchattacks(module, stage):
    torchattacks = pytest.importorskip("torchattacks")
    torch = pytest.importorskip("torch")
    attack = torchattacks.PGD(module, eps=EPS, alpha=EPS / 8, steps=20)
    return attack(torch.from_numpy(stage.images), torch.from_numpy(stage.classes))


def by_foolbox(module, stage):
    foolbox = pytest.importorskip("foolbox")
    torch = pytest.importorskip("torch")
    model = foolbox.PyTorchModel(module, bounds=(0, 1), device="cpu")
    attack = foolbox.attacks.LinfPGD(steps=20)
    return attack(model, torch.from_numpy(stage.images), torch.from_numpy(stage.classes), epsilons=EPS)[1]


def by_captum(module, stage):
    robust = pytest.importorskip("captum.robust")
    torch = pytest.importorskip("torch")
    attack = robust.PGD(module, lower_bound=0, upper_bound=1)
    images, classes = torch.from_numpy(stage.images), torch.from_numpy(stage.classes)
    return attack.perturb(images, radius=EPS, step_size=EPS / 8, step_num=20, target=classes).detach()


@pytest.mark.parametrize("attack", [by_torchattacks, by_foolbox, by_captum])
def test_attacks_of_pytorch_libraries(attack, module, stage: Stage):
    assert stage.r1(attack(module, stage)) <= ATTACKED


def test_attacks_of_art(gradient, stage: Stage):
    pytest.importorskip("art")
    from art.attacks.evasion import ProjectedGradientDescentNumpy

    from onnx_audit.art import RetrievalEstimator

    estimator = RetrievalEstimator(gradient, gradient.embed(stage.items), stage.labels)
    attack = ProjectedGradientDescentNumpy(estimator, eps=EPS, eps_step=EPS / 8, max_iter=20, verbose=False)
    assert stage.r1(attack.generate(stage.images, np.eye(12, dtype=np.float32))) <= ATTACKED


def test_the_settings_of_the_attacks_are_the_bundled_protocol_s(plain: Path, images: Path):
    report = onnx_audit.audit(plain, images, **QUICK)
    assert report.json["suite"]["eps"] == pytest.approx(EPS, abs=1e-6)
