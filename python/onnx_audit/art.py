"""A gradient file as an estimator of the Adversarial Robustness Toolbox (ART)."""

from __future__ import annotations

from typing import Any

import numpy as np
from art.estimators import BaseEstimator, LossGradientsMixin
from art.estimators.classification import ClassifierMixin

from .gradient import Gradient


class RetrievalEstimator(ClassifierMixin, LossGradientsMixin, BaseEstimator):
    """Retrieval as a classifier: the logit of a class is the cosine of the image to the nearest gallery item of that class.

    ``gallery`` [N, D] are embeddings and ``labels`` [N] their classes, 0 to C-1. Images [B, C, H, W] in [0, 1] become logits
    [B, C], multiplied by ``scale``. ART's attacks that want a loss's gradient take it: ``ProjectedGradientDescent``,
    ``FastGradientMethod``, ``MomentumIterativeMethod``.
    """

    estimator_params = BaseEstimator.estimator_params + ["scale"]

    def __init__(self, gradient: Gradient, gallery: Any, labels: Any, scale: float = 10.0) -> None:
        super().__init__(model=gradient, clip_values=(0.0, 1.0))
        gallery = np.asarray(gallery, np.float32)
        self.gallery = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
        self.labels = np.asarray(labels)
        self.scale = scale
        self.nb_classes = int(self.labels.max()) + 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of an image, [C, H, W]."""
        shape: tuple[int, ...] = self.model.shape
        return shape

    def predict(self, x: Any, batch_size: int = 128, **kwargs: Any) -> Any:
        """Logits [B, C]."""
        parts = [self._logits(self.model.embed(x[i : i + batch_size]))[0] for i in range(0, len(x), batch_size)]
        return np.concatenate(parts)

    def loss_gradient(self, x: Any, y: Any, **kwargs: Any) -> Any:
        """The gradient of the cross-entropy by the images, [B, C, H, W]; y are classes [B] or one-hot rows [B, C]."""
        embedding = self.model.embed(x)
        logits, nearest = self._logits(embedding)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        target = y if np.ndim(y) == 2 else np.eye(self.nb_classes, dtype=np.float32)[np.asarray(y)]
        by_logit = shifted / shifted.sum(axis=1, keepdims=True) - target
        # cos = u·g with u = e/|e|, so that ∂cos/∂e = (g - cos·u)/|e|.
        norm = np.linalg.norm(embedding, axis=1, keepdims=True)
        unit = embedding / norm
        by_unit = self.scale * np.einsum("bc,bcd->bd", by_logit, self.gallery[nearest])
        along = (by_unit * unit).sum(axis=1, keepdims=True)
        return self.model.vjp(x, (by_unit - along * unit) / norm)

    def _logits(self, embedding: Any) -> tuple[Any, Any]:
        """Logits [B, C], and for each the gallery item that it comes from [B, C]."""
        cosine = embedding / np.linalg.norm(embedding, axis=1, keepdims=True) @ self.gallery.T
        nearest = np.empty((len(embedding), self.nb_classes), int)
        for c in range(self.nb_classes):
            items = np.flatnonzero(self.labels == c)
            nearest[:, c] = items[cosine[:, items].argmax(axis=1)]
        return self.scale * np.take_along_axis(cosine, nearest, axis=1), nearest

    def fit(self, x: Any, y: Any, **kwargs: Any) -> None:
        """Not possible: a gradient file has no trainable weights."""
        raise NotImplementedError("a gradient file is fixed and can't be trained; audit-train trains models (docs/training.md)")

    def get_activations(self, x: Any, layer: Any, batch_size: int, framework: bool = False) -> Any:
        """Not possible: a gradient file has one output."""
        raise NotImplementedError("a gradient file gives the embedding alone: use predict, or model.embed")
