"""Exports of robrank's checkpoints, compared with the public code that robrank takes its nets from."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import onnx_audit
from onnx_audit.errors import ModelError, UsageError

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx_audit import robrank  # noqa: E402

nn = torch.nn


def c2f2():
    layers = [nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 49, 1024), nn.ReLU(), nn.Linear(1024, 512))


def lenet():
    layers = [nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(500, 128))


class Hybrid(nn.Module):
    def __init__(self, repnet, features: int, classes: int = 10):
        super().__init__()
        self.repnet = repnet
        self.embnet = nn.Sequential(nn.ReLU(), nn.Linear(features, 512))
        self.clsnet = nn.Sequential(nn.ReLU(), nn.Dropout(), nn.Linear(features, classes))

    def forward(self, x):
        return self.embnet(self.repnet(x))


def of_torchvision(name: str, head: str):
    def make():
        models = pytest.importorskip("torchvision.models")
        net = getattr(models, name)()
        features = 512 if name == "resnet18" else 2048 if name.startswith("resnet") else 1280
        setattr(net, head, nn.Linear(features, 512))
        return net

    return make


def hybrid_resnet():
    net = of_torchvision("resnet18", "fc")()
    net.fc = nn.Identity()
    return Hybrid(net, 512, 100)


def without_a_head():
    net = of_torchvision("resnet18", "fc")()
    net.fc = nn.Identity()
    return net


def inception_bn():
    net = pytest.importorskip("pretrainedmodels.models.bninception").BNInception()
    net.global_pool, net.last_linear = nn.AdaptiveAvgPool2d(1), nn.Linear(1024, 512)
    return net


def efficient_net():
    net = pytest.importorskip("efficientnet_pytorch").EfficientNet.from_name("efficientnet-b0")
    net._dropout, net._fc = nn.Identity(), nn.Linear(1280, 512)
    return net


def swin():
    net = pytest.importorskip("timm").create_model("swin_tiny_patch4_window7_224", num_classes=512)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.05)
    return net


def swin_of_old(net) -> dict:
    """The state dict of timm before 0.9: merges belong to the layer before, and indices and masks are included."""
    state = {}
    for key, value in net.state_dict().items():
        key = re.sub(r"layers\.(\d)\.downsample", lambda found: f"layers.{int(found[1]) - 1}.downsample", key)
        state[key.replace("head.fc.", "head.")] = value
    for name, block in net.named_modules():
        if hasattr(block, "attn_mask") and hasattr(block, "attn"):
            state[f"{name}.attn.relative_position_index"] = block.attn.relative_position_index
            state |= {} if block.attn_mask is None else {f"{name}.attn_mask": block.attn_mask}
    return state


#: Net and name of its kind, by robrank's configuration.
CASES = {
    "rc2f2": (c2f2, "C2F2 (rc2f2)"),
    "rlenet": (lenet, "LeNet (rlenet)"),
    "hc2f2": (lambda: Hybrid(c2f2()[:8], 1024), "hybrid C2F2 (hc2f2)"),
    "rres18": (of_torchvision("resnet18", "fc"), "ResNet (rres18, rres50)"),
    "rres50": (of_torchvision("resnet50", "fc"), "ResNet (rres18, rres50)"),
    "rres18 of 512 features": (without_a_head, "ResNet (rres18, rres50)"),
    "hres18": (hybrid_resnet, "hybrid ResNet (hres18)"),
    "rmnas05": (of_torchvision("mnasnet0_5", "classifier"), "MNASNet (rmnas05, rmnas10)"),
    "rmnas10": (of_torchvision("mnasnet1_0", "classifier"), "MNASNet (rmnas05, rmnas10)"),
    "ribn": (inception_bn, "Inception-BN (ribn)"),
    "reffb0": (efficient_net, "EfficientNet (reffb0)"),
    "rswint": (swin, "Swin (rswint, rswins, rswinb, rswinl)"),
}


def made(make):
    """A net in inference mode with random statistics of batch norm."""
    torch.manual_seed(0)
    net = make()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1)
    return net.eval()


def save(file: Path, state: dict, **more) -> Path:
    """Writes a checkpoint as Lightning does."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"epoch": 74, "global_step": 3975, "pytorch-lightning_version": "1.5.9", "callbacks": {}, "lr_schedulers": []}
    torch.save(content | {"state_dict": {f"backbone.{key}": value for key, value in state.items()}} | more, file)
    return file


@pytest.mark.parametrize("name", CASES)
def test_the_file_embeds_as_the_net_of_the_public_code(name: str, tmp_path: Path):
    make, kind = CASES[name]
    net = made(make)
    file = save(tmp_path / "epoch=74.ckpt", swin_of_old(net) if make is swin else net.state_dict())
    out = tmp_path / "model.onnx"
    assert robrank.write(file, out).startswith(kind + ", input ")
    assert not list(tmp_path.glob("*.data")), "the weights are in the file"
    session = onnxruntime.InferenceSession(out)
    image = torch.randn(3, *session.get_inputs()[0].shape[1:])
    with torch.no_grad():
        expected = net(image)
    [found] = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["rlenet", "rmnas05", "ribn"])
def test_the_card_prepares_images_as_robrank_does(name: str, tmp_path: Path):
    make, _ = CASES[name]
    net = made(make)
    if name == "ribn":
        # Its input has pixels from 0 to 255.
        net.conv1_7x7_s2.weight.data /= 256
    robrank.write(save(tmp_path / "epoch=74.ckpt", net.state_dict()), tmp_path / "model.onnx")
    # The gradient file includes the card's preprocessing.
    gradient = onnx_audit.Gradient(tmp_path / "model.onnx")
    images = np.random.default_rng(0).random((3, *gradient.shape), np.float32)
    with torch.no_grad():
        expected = net(preprocessed(name, torch.from_numpy(images)))
    np.testing.assert_allclose(gradient.embed(images), expected, rtol=0, atol=2e-5 * float(expected.abs().max()))


def preprocessed(name: str, images):
    """The preprocessing of images in [0, 1] in robrank's forward pass."""
    if images.shape[1] == 1:
        return images
    if name != "ribn":
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        return (images - mean[:, None, None]) / std[:, None, None]
    return ((images - torch.tensor([0.502, 0.4588, 0.4078])[:, None, None]) / 0.0039).flip(1)


def test_audit_reads_the_card(tmp_path: Path):
    net = made(of_torchvision("resnet18", "fc"))
    file = save(tmp_path / "logs_cub-rres18ghmetsm-ptripletE/lightning_logs/version_0/checkpoints/epoch=74.ckpt", net.state_dict())
    out = tmp_path / "model.onnx"
    assert "metric euclidean, that of the loss ptripletE\n" in robrank.write(file, out)
    found = onnx_audit.inspect(out)
    expected = "224 × 224 RGB, stretched to 256 × 256, then a centre crop (bilinear); pixels in [0, 1] less 0.485, 0.456, 0.406, divided by 0.229, 0.224, 0.225"
    assert (found["preprocessing"], found["preprocessing_assumed"]) == (expected, False)
    assert found["machine"].endswith(", euclidean")
    assert robrank.main([str(file), "-o", str(out), "--metric", "cosine"]) == 0
    card = out.with_suffix(".yaml").read_text()
    assert "metric: cosine\n" in card and "ResNet (rres18, rres50) of robrank, from epoch=74.ckpt (SHA-256 " in card


def test_the_distance_is_that_of_the_published_tables_unless_the_path_says_otherwise(tmp_path: Path, capsys):
    file = save(tmp_path / "weights.ckpt", made(c2f2).state_dict(), state_of_a_loss=torch.ones(1))
    assert robrank.main([str(file), "-o", str(tmp_path / "model.onnx")]) == 0
    assert "metric normalized-euclidean, that of the published tables; the path has no folder logs_DATA-NET-LOSS" in capsys.readouterr().out


def test_state_dicts_of_other_forms(tmp_path: Path):
    net = made(c2f2)
    image = torch.rand(2, 1, 28, 28)
    state = net.state_dict()
    forms = {
        "bare": state,
        "prefixed": {f"backbone.{key}": value for key, value in state.items()},
        "compiled": {"state_dict": {f"backbone._orig_mod.{key}": value for key, value in state.items()}},
        "margin": {"state_dict": {f"backbone.{key}": value for key, value in state.items()} | {"lossfunc.beta": torch.ones(1)}},
        "half": {key: value.half() for key, value in state.items()},
    }
    for name, form in forms.items():
        torch.save(form, tmp_path / name)
        found, kind = robrank.load(tmp_path / name)
        assert kind.name == "C2F2 (rc2f2)" and not found.training
        torch.testing.assert_close(found(image), net(image), rtol=0, atol=1e-3 if name == "half" else 0)


class ModelCheckpoint:
    """Stands for a callback of Lightning. Old checkpoints use its class as the key of its state."""


class Runs:
    """A pickle that runs code when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


def test_no_code_of_a_checkpoint_runs(tmp_path: Path):
    net = made(c2f2)
    known = save(tmp_path / "known.ckpt", net.state_dict(), callbacks={ModelCheckpoint: {"best": ModelCheckpoint()}})
    torch.testing.assert_close(robrank.load(known)[0].state_dict(), net.state_dict())
    trap = save(tmp_path / "trap.ckpt", net.state_dict(), callbacks=Runs(tmp_path / "made"))
    with pytest.raises(ModelError, match=r"trap\.ckpt: not a checkpoint that can be read without running its code: "):
        robrank.load(trap)
    assert not (tmp_path / "made").exists()


def test_wrong_checkpoints_are_refused(tmp_path: Path, capsys):
    def refused(content, error: type[Exception], *words: str) -> None:
        file = tmp_path / "wrong.ckpt"
        torch.save(content, file)
        with pytest.raises(error) as failed:
            robrank.load(file)
        for word in ("wrong.ckpt: ", *words):
            assert word in str(failed.value), failed.value

    state = made(c2f2).state_dict()
    weights = {f"blocks.{i}.weight": torch.ones(2, 2) for i in range(9)}
    found = "found blocks.0.weight, blocks.1.weight, blocks.2.weight, blocks.3.weight, blocks.4.weight, blocks.5.weight and 3 more"
    refused({"state_dict": weights}, ModelError, "expected the weights of C2F2 (rc2f2), LeNet (rlenet)", found, "onnx_audit.model.export")
    refused({"epoch": 3, "model": "c2f2"}, ModelError, "expected a state dict", "found epoch, model")
    refused({k: v for k, v in state.items() if k != "3.bias"} | {"3.scale": torch.ones(1)}, ModelError, "C2F2 (rc2f2)", "3.scale")
    refused(state | {"7.weight": torch.ones(3, 5)}, ModelError, "C2F2 (rc2f2)", "don't fit")
    refused(state | {"9.weight": torch.ones(10, 1024), "9.bias": torch.ones(10)}, ModelError, "10 outputs is a classifier")
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    assert robrank.main([str(tmp_path / "text.ckpt"), "-o", str(tmp_path / "a.onnx")]) == 3
    assert robrank.main([str(tmp_path / "none.ckpt"), "-o", str(tmp_path / "a.onnx")]) == 2
    assert re.search(r"onnx_audit\.robrank: .*none\.ckpt: no such file\. Give ", capsys.readouterr().err)
    with pytest.raises(UsageError, match=r"expected a name that ends in \.onnx"):
        robrank.write(tmp_path / "none.ckpt", tmp_path / "a.pt")
