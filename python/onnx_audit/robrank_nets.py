"""The nets of robrank and CA-TRIDE, built from the names and shapes of a state dict.

Modules have the names of the public code, so ``load_state_dict`` can be strict. Widths and depths come from
the weights; strides, padding and pooling, which weights don't determine, are stated here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

State = dict[str, torch.Tensor]


def _conv(state: State, name: str, stride: int = 1, padding: int | None = None) -> nn.Conv2d:
    """Returns the convolution ``name``. One with a single input channel is depthwise, unless it reads grey images."""
    out, into, side, _ = state[f"{name}.weight"].shape
    groups = out if into == 1 and out > 1 and name not in ("0", "repnet.0") else 1
    padding = side // 2 if padding is None else padding
    return nn.Conv2d(into * groups, out, side, stride, padding, groups=groups, bias=f"{name}.bias" in state)


def _norm(state: State, name: str, eps: float = 1e-5) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(len(state[f"{name}.weight"]), eps=eps)


def _pair(state: State, stack: str, number: int, stride: int = 1) -> list[nn.Module]:
    """Returns a numbered convolution and the batch norm after it."""
    return [_conv(state, f"{stack}.{number}", stride), _norm(state, f"{stack}.{number + 1}")]


def _halved(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 3, 2, ceil_mode=True)


def _linear(state: State, name: str) -> nn.Module:
    """Returns the linear layer ``name``; the identity if it has no weights, as with robrank's ``embedding_dim = 0``."""
    if f"{name}.weight" not in state:
        return nn.Identity()
    out, into = state[f"{name}.weight"].shape
    return nn.Linear(into, out, f"{name}.bias" in state)


def _blocks(state: State, stack: str) -> list[str]:
    """Returns the names of the numbered modules of ``stack``, in order."""
    count = 0
    while any(key.startswith(f"{stack}.{count}.") for key in state):
        count += 1
    return [f"{stack}.{i}" for i in range(count)]


def _c2f2(state: State) -> nn.Sequential:
    return nn.Sequential(*_trunk(state, ""), nn.ReLU(), _linear(state, "9"))


def _trunk(state: State, prefix: str) -> list[nn.Module]:
    """Returns C2F2 up to its first linear layer, number 7."""
    layers = []
    for name in (f"{prefix}0", f"{prefix}3"):
        layers += [_conv(state, name), nn.ReLU(), nn.MaxPool2d(2)]
    return [*layers, nn.Flatten(), _linear(state, f"{prefix}7")]


def _lenet(state: State) -> nn.Sequential:
    convolutions = [_conv(state, "0", padding=0), nn.MaxPool2d(2), _conv(state, "2", padding=0), nn.MaxPool2d(2)]
    return nn.Sequential(*convolutions, nn.Flatten(), _linear(state, "5"), nn.ReLU(), _linear(state, "7"))


class _Hybrid(nn.Module):
    """A net for retrieval and classification, without its classifier."""

    def __init__(self, state: State) -> None:
        super().__init__()
        grey = "repnet.0.weight" in state
        self.repnet = nn.Sequential(*_trunk(state, "repnet.")) if grey else _ResNet(state, "repnet.")
        self.embnet = nn.Sequential(nn.ReLU(), _linear(state, "embnet.1"))

    def forward(self, x: torch.Tensor) -> Any:
        return self.embnet(self.repnet(x))


class _ResNet(nn.Module):
    """torchvision's ResNets of 18 to 152 layers."""

    def __init__(self, state: State, prefix: str = "") -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(state, f"{prefix}conv1", 2), _norm(state, f"{prefix}bn1")
        for i in range(1, 5):
            names = _blocks(state, f"{prefix}layer{i}")
            blocks = [_Residual(state, name, 2 if i > 1 and name == names[0] else 1) for name in names]
            setattr(self, f"layer{i}", nn.Sequential(*blocks))
        self.fc = _linear(state, f"{prefix}fc")

    def forward(self, x: torch.Tensor) -> Any:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for i in range(1, 5):
            x = getattr(self, f"layer{i}")(x)
        return self.fc(x.mean((2, 3)))


class _Residual(nn.Module):
    """A basic block (3 × 3, 3 × 3) or a bottleneck (1 × 1, 3 × 3, 1 × 1). The first 3 × 3 convolution has the stride."""

    def __init__(self, state: State, name: str, stride: int) -> None:
        super().__init__()
        self.depth = 3 if f"{name}.conv3.weight" in state else 2
        for i in range(1, self.depth + 1):
            setattr(self, f"conv{i}", _conv(state, f"{name}.conv{i}", stride if i == self.depth - 1 else 1))
            setattr(self, f"bn{i}", _norm(state, f"{name}.bn{i}"))
        self.downsample = nn.Sequential()
        if f"{name}.downsample.0.weight" in state:
            layers = [_conv(state, f"{name}.downsample.0", stride), _norm(state, f"{name}.downsample.1")]
            self.downsample = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(F.relu(y) if i > 1 else y))
        return F.relu(y + self.downsample(x))


class _MnasNet(nn.Module):
    """torchvision's MNASNet, of any width."""

    def __init__(self, state: State) -> None:
        super().__init__()
        layers = [*_pair(state, "layers", 0, 2), nn.ReLU(), *_pair(state, "layers", 3), nn.ReLU(), *_pair(state, "layers", 6)]
        for i, stride in enumerate((2, 2, 2, 1, 2, 1), 8):
            names = _blocks(state, f"layers.{i}")
            layers.append(nn.Sequential(*[_Inverted(state, name, stride if name == names[0] else 1) for name in names]))
        self.layers = nn.Sequential(*layers, *_pair(state, "layers", 14), nn.ReLU())
        self.classifier = _linear(state, "classifier")

    def forward(self, x: torch.Tensor) -> Any:
        return self.classifier(self.layers(x).mean((2, 3)))


class _Inverted(nn.Module):
    """An inverted residual: expansion, depthwise convolution, projection."""

    def __init__(self, state: State, name: str, stride: int) -> None:
        super().__init__()
        wide, filtered, narrow = (_pair(state, f"{name}.layers", i, stride if i == 3 else 1) for i in (0, 3, 6))
        self.layers = nn.Sequential(*wide, nn.ReLU(), *filtered, nn.ReLU(), *narrow)
        self.residual = stride == 1 and self.layers[0].in_channels == self.layers[6].out_channels

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.layers(x) if self.residual else self.layers(x)


class _Same(nn.Conv2d):
    """A convolution with TensorFlow's padding SAME: output side ⌈side / stride⌉, an odd pixel goes below and right."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        # Images are square, and the export fixes their side.
        extra = max((-(-x.shape[2] // stride) - 1) * stride + kernel - x.shape[2], 0)
        return super().forward(F.pad(x, [extra // 2, extra - extra // 2] * 2))


def _same(state: State, name: str, stride: int = 1) -> _Same:
    plain = _conv(state, name, stride)
    bias = plain.bias is not None
    return _Same(plain.in_channels, plain.out_channels, plain.kernel_size, stride, groups=plain.groups, bias=bias)


class _EfficientNet(nn.Module):
    """EfficientNet of the package efficientnet_pytorch."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _same(state, "_conv_stem", 2), _norm(state, "_bn0", 1e-3)
        # A stage begins with the block that changes the number of channels; that block has the stride.
        strides = iter((1, 2, 2, 2, 1, 2, 1))
        channels = self._conv_stem.out_channels
        self._blocks = nn.ModuleList()
        for name in _blocks(state, "_blocks"):
            out = len(state[f"{name}._project_conv.weight"])
            self._blocks.append(_Squeezed(state, name, next(strides) if out != channels else 1, out == channels))
            channels = out
        self._conv_head, self._bn1 = _same(state, "_conv_head"), _norm(state, "_bn1", 1e-3)
        self._fc = _linear(state, "_fc")

    def forward(self, x: torch.Tensor) -> Any:
        x = F.silu(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return self._fc(F.silu(self._bn1(self._conv_head(x))).mean((2, 3)))


class _Squeezed(nn.Module):
    """An inverted residual with squeeze and excitation."""

    def __init__(self, state: State, name: str, stride: int, residual: bool) -> None:
        super().__init__()
        self.residual, self.widens = residual, f"{name}._expand_conv.weight" in state
        if self.widens:
            self._expand_conv, self._bn0 = _same(state, f"{name}._expand_conv"), _norm(state, f"{name}._bn0", 1e-3)
        self._depthwise_conv, self._bn1 = _same(state, f"{name}._depthwise_conv", stride), _norm(state, f"{name}._bn1", 1e-3)
        self._se_reduce, self._se_expand = _conv(state, f"{name}._se_reduce"), _conv(state, f"{name}._se_expand")
        self._project_conv, self._bn2 = _same(state, f"{name}._project_conv"), _norm(state, f"{name}._bn2", 1e-3)

    def forward(self, x: torch.Tensor) -> Any:
        y = F.silu(self._bn0(self._expand_conv(x))) if self.widens else x
        y = F.silu(self._bn1(self._depthwise_conv(y)))
        y = y * self._se_expand(F.silu(self._se_reduce(y.mean((2, 3), keepdim=True)))).sigmoid()
        y = self._bn2(self._project_conv(y))
        return x + y if self.residual else y


class _InceptionBn(nn.Module):
    """Inception with batch norm: ``bninception`` of the package pretrainedmodels."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.inceptions = sorted({key[:12] for key in state if key.startswith("inception_")})
        halving = [name for name in self.inceptions if f"{name}_1x1.weight" not in state]
        strides = {f"{name}_{part}": 2 for name in halving for part in ("3x3", "double_3x3_2")} | {"conv1_7x7_s2": 2}
        for name in [key.removesuffix(".weight") for key in state if key.endswith(".weight")]:
            dimensions = state[f"{name}.weight"].dim()
            if dimensions == 4:
                self.add_module(name, _conv(state, name, strides.get(name, 1)))
            else:
                self.add_module(name, _norm(state, name) if dimensions == 1 else _linear(state, name))

    def forward(self, x: torch.Tensor) -> Any:
        x = _halved(self._unit(x, "conv1_7x7_s2"))
        x = _halved(self._unit(x, "conv2_3x3_reduce", "conv2_3x3"))
        for name in self.inceptions:
            branches = [
                self._unit(x, f"{name}_3x3_reduce", f"{name}_3x3"),
                self._unit(x, f"{name}_double_3x3_reduce", f"{name}_double_3x3_1", f"{name}_double_3x3_2"),
            ]
            if not hasattr(self, f"{name}_1x1"):
                branches.append(_halved(x))
            else:
                last = name == self.inceptions[-1]
                pooled = F.max_pool2d(x, 3, 1, 1) if last else F.avg_pool2d(x, 3, 1, 1)
                branches = [self._unit(x, f"{name}_1x1"), *branches, self._unit(pooled, f"{name}_pool_proj")]
            x = torch.cat(branches, 1)
        return self.last_linear(x.mean((2, 3)))

    def _unit(self, x: torch.Tensor, *names: str) -> torch.Tensor:
        for name in names:
            x = F.relu(getattr(self, f"{name}_bn")(getattr(self, name)(x)))
        return x


class _Swin(nn.Module):
    """Swin transformers of timm before 0.9, as robrank uses. Their state dicts have the masks of shifted windows."""

    def __init__(self, state: State) -> None:
        super().__init__()
        weight = state["patch_embed.proj.weight"]
        self.patch_embed = nn.Module()
        self.patch_embed.proj = nn.Conv2d(weight.shape[1], len(weight), weight.shape[2], weight.shape[2])
        self.patch_embed.norm = _layer_norm(state, "patch_embed.norm")
        self.layers = nn.ModuleList()
        for name in _blocks(state, "layers"):
            layer = nn.Module()
            layer.blocks = nn.Sequential(*[_Windows(state, block) for block in _blocks(state, f"{name}.blocks")])
            layer.downsample = _Merge(state, f"{name}.downsample") if f"{name}.downsample.norm.weight" in state else nn.Identity()
            self.layers.append(layer)
        self.norm, self.head = _layer_norm(state, "norm"), _linear(state, "head")

    def forward(self, x: torch.Tensor) -> Any:
        x = self.patch_embed.norm(self.patch_embed.proj(x).permute(0, 2, 3, 1))
        for layer in self.layers:
            x = layer.downsample(layer.blocks(x))
        return self.head(self.norm(x).mean((1, 2)))


class _Merge(nn.Module):
    """Patch merging: four neighbours become one position with twice the channels."""

    def __init__(self, state: State, name: str) -> None:
        super().__init__()
        self.norm, self.reduction = _layer_norm(state, f"{name}.norm"), _linear(state, f"{name}.reduction")

    def forward(self, x: torch.Tensor) -> Any:
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, 3)))


class _Windows(nn.Module):
    """Attention within windows of [B, H, W, C], then an MLP. Windows are shifted by half if the state dict has a mask."""

    def __init__(self, state: State, name: str) -> None:
        super().__init__()
        self.norm1, self.norm2 = _layer_norm(state, f"{name}.norm1"), _layer_norm(state, f"{name}.norm2")
        self.attn = nn.Module()
        self.attn.qkv, self.attn.proj = _linear(state, f"{name}.attn.qkv"), _linear(state, f"{name}.attn.proj")
        for buffer in ("relative_position_bias_table", "relative_position_index"):
            self.attn.register_buffer(buffer, state[f"{name}.attn.{buffer}"].clone())
        mask = state.get(f"{name}.attn_mask")
        self.register_buffer("attn_mask", None if mask is None else mask.clone())
        self.mlp = nn.Module()
        self.mlp.fc1, self.mlp.fc2 = _linear(state, f"{name}.mlp.fc1"), _linear(state, f"{name}.mlp.fc2")
        self.heads = state[f"{name}.attn.relative_position_bias_table"].shape[1]
        self.window = round(len(state[f"{name}.attn.relative_position_index"]) ** 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = 0 if self.attn_mask is None else self.window // 2
        y = torch.roll(self.norm1(x), (-shift, -shift), (1, 2))
        x = x + torch.roll(self._attention(y), (shift, shift), (1, 2))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.norm2(x))))

    def _attention(self, x: torch.Tensor) -> Any:
        _, height, width, channels = x.shape
        rows, columns, side = height // self.window, width // self.window, self.window
        x = x.reshape(-1, rows, side, columns, side, channels).transpose(2, 3)
        # After the permutation: [3, B, windows, heads, positions, channels of a head].
        qkv = self.attn.qkv(x).reshape(-1, rows * columns, side * side, 3, self.heads, channels // self.heads)
        query, key, value = qkv.permute(3, 0, 1, 4, 2, 5).unbind(0)
        bias = self.attn.relative_position_bias_table[self.attn.relative_position_index.long().view(-1)]
        score = (query * (channels // self.heads) ** -0.5) @ key.transpose(-2, -1)
        score = score + bias.view(side * side, side * side, self.heads).permute(2, 0, 1)
        if self.attn_mask is not None:
            score = score + self.attn_mask[:, None]
        x = (score.softmax(-1) @ value).transpose(2, 3).reshape(-1, rows, columns, side, side, channels)
        return self.attn.proj(x.transpose(2, 3).reshape(-1, height, width, channels))


def _layer_norm(state: State, name: str) -> nn.LayerNorm:
    return nn.LayerNorm(len(state[f"{name}.weight"]))


class Preprocessing(NamedTuple):
    """Preprocessing of robrank's data sets: input shape [C, H, W], and the keys of a model card."""

    shape: tuple[int, int, int]
    card: str


#: mnist, fashion: pixels in [0, 1], unchanged.
_GREY = Preprocessing((1, 28, 28), "channels: grey\nrange: [0, 1]\nmean: [0]\nstd: [1]\n")
#: cub, cars, sop: torchvision's Resize((256, 256)) and CenterCrop((224, 224)), then the mean and std of ImageNet.
_RESIZED = "range: [0, 1]\nresize: [256, 256]\ninterpolation: bilinear\n"
_RGB = Preprocessing((3, 224, 224), f"channels: rgb\n{_RESIZED}mean: [0.485, 0.456, 0.406]\nstd: [0.229, 0.224, 0.225]\n")
#: The constants of robrank's ``renorm_ibn``, in the net's order of channels: blue, green, red.
_BGR = Preprocessing((3, 224, 224), f"channels: bgr\n{_RESIZED}mean: [0.4078, 0.4588, 0.502]\nstd: [0.0039, 0.0039, 0.0039]\n")


@dataclass(frozen=True)
class Net:
    """A kind of net."""

    #: Common name, and the configurations of robrank that use it.
    name: str
    #: Weights that identify it. The first kind of NETS that has all of its marks in a state dict is used.
    marks: tuple[str, ...]
    preprocessing: Preprocessing
    build: Callable[[State], nn.Module]
    #: Prefix of weights that don't affect the embedding.
    unused: str = "none"


#: All kinds of retrieval nets, in the order in which their marks are tried.
NETS: tuple[Net, ...] = (
    Net("C2F2 (rc2f2)", ("0.weight", "3.weight", "7.weight", "9.weight"), _GREY, _c2f2),
    Net("LeNet (rlenet)", ("0.weight", "2.weight", "5.weight", "7.weight"), _GREY, _lenet),
    Net("hybrid C2F2 (hc2f2)", ("repnet.0.weight", "embnet.1.weight"), _GREY, _Hybrid, "clsnet."),
    Net("hybrid ResNet (hres18)", ("repnet.conv1.weight", "embnet.1.weight"), _RGB, _Hybrid, "clsnet."),
    Net("ResNet (rres18, rres50)", ("conv1.weight", "bn1.weight", "layer4.0.conv1.weight"), _RGB, _ResNet),
    Net("MNASNet (rmnas05, rmnas10)", ("layers.0.weight", "layers.8.0.layers.0.weight"), _RGB, _MnasNet),
    Net("EfficientNet (reffb0)", ("_conv_stem.weight", "_conv_head.weight"), _RGB, _EfficientNet),
    Net("Inception-BN (ribn)", ("conv1_7x7_s2.weight", "inception_3a_1x1.weight"), _BGR, _InceptionBn),
    Net("Swin (rswint, rswins, rswinb, rswinl)", ("patch_embed.proj.weight", "layers.0.blocks.1.attn_mask"), _RGB, _Swin),
)
