"""A gradient file as a PyTorch module, for torchattacks, foolbox, captum and other code that calls ``backward``."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import normalize

from .gradient import Gradient


class _Function(torch.autograd.Function):
    """The embedding, with the file's gradient as its backward pass."""

    @staticmethod
    def forward(ctx: Any, image: torch.Tensor, gradient: Gradient) -> torch.Tensor:
        ctx.save_for_backward(image)
        ctx.gradient = gradient
        return _like(gradient.embed(_array(image)), image)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None]:
        [image] = ctx.saved_tensors
        return _like(ctx.gradient.vjp(_array(image), _array(cotangent)), image), None


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().float().contiguous().numpy()


def _like(array: Any, image: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(array).to(image)


class Embedding(torch.nn.Module):
    """Maps images [B, C, H, W] in [0, 1] to embeddings [B, D]. Has a first derivative only."""

    def __init__(self, gradient: Gradient) -> None:
        super().__init__()
        self.gradient = gradient

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        embedding: torch.Tensor = _Function.apply(image, self.gradient)
        return embedding


class Retrieval(torch.nn.Module):
    """Retrieval as a classifier, the model of attacks on classifiers.

    Maps images [B, C, H, W] to logits [B, classes]. The logit of a class is ``scale`` times the cosine
    similarity of the image and the nearest gallery image of that class, and -``scale`` if the gallery has no
    image of it. ``gallery`` [N, D] are embeddings, ``labels`` [N] their classes, from 0 on.
    """

    def __init__(
        self, embedding: torch.nn.Module, gallery: torch.Tensor, labels: torch.Tensor, scale: float = 10.0
    ) -> None:
        super().__init__()
        self.embedding, self.scale = embedding, scale
        self.register_buffer("gallery", normalize(gallery.float()))
        self.register_buffer("labels", labels.long())
        self.classes = int(labels.max()) + 1

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        cosine = normalize(self.embedding(image)) @ self.gallery.T
        logits = cosine.new_full((len(image), self.classes), -1.0)
        labels = self.labels.expand(len(image), -1)
        return self.scale * logits.scatter_reduce(1, labels, cosine, "amax")
