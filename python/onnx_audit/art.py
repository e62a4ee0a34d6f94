"""A gradient file as an estimator of the Adversarial Robustness Toolbox (ART)."""

from __future__ import annotations

from typing import Any

import numpy as np
from art.estimators import BaseEstimator, LossGradientsMixin
from art.estimators.classification import ClassifierMixin

from .gradient import Gradient


class RetrievalEstimator(ClassifierMixin, LossGradientsMixin, BaseEstimator):
    """Retrieval as a classifier for ART's attacks that use the gradient of a loss.

    The logit of a class is ``scale`` times the cosine similarity of the image and the nearest gallery image
    of that class, and -``scale`` if the gallery has no image of it. ``gallery`` [N, D] are embeddings,
    ``labels`` [N] their classes, from 0 on. Images are [B, C, H, W] with pixels in [0, 1]. Works with
    ``ProjectedGradientDescent``, ``FastGradientMethod`` and ``MomentumIterativeMethod``.
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
        """Returns the logits [B, classes] of the images x [B, C, H, W]."""
        parts = [self._logits(self.model.embed(x[i : i + batch_size]))[0] for i in range(0, len(x), batch_size)]
        return np.concatenate(parts)

    def loss_gradient(self, x: Any, y: Any, **kwargs: Any) -> Any:
        """Returns the gradient of the cross-entropy with respect to the images x, [B, C, H, W].

        ``y`` are classes [B] or one-hot rows [B, classes].
        """
        embedding = self.model.embed(x)
        logits, nearest = self._logits(embedding)
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        target = y if np.ndim(y) == 2 else np.eye(self.nb_classes, dtype=np.float32)[np.asarray(y)]
        by_logit = exponentials / exponentials.sum(axis=1, keepdims=True) - target
        # cos = u·g with u = e/|e|, so ∂cos/∂e = (g - cos·u)/|e|.
        norm = np.linalg.norm(embedding, axis=1, keepdims=True)
        unit = embedding / norm
        # The logit of a class without images is constant.
        by_logit = by_logit * np.isin(np.arange(self.nb_classes), self.labels)
        by_unit = self.scale * np.einsum("bc,bcd->bd", by_logit, self.gallery[nearest])
        radial = (by_unit * unit).sum(axis=1, keepdims=True)
        return self.model.vjp(x, (by_unit - radial * unit) / norm)

    def _logits(self, embedding: Any) -> tuple[Any, Any]:
        """Returns the logits [B, classes], and the index of each class's nearest gallery image [B, classes].

        A class without images has the index 0.
        """
        cosine = embedding / np.linalg.norm(embedding, axis=1, keepdims=True) @ self.gallery.T
        nearest = np.zeros((len(embedding), self.nb_classes), int)
        logits = np.full((len(embedding), self.nb_classes), -self.scale, cosine.dtype)
        for c in np.unique(self.labels):
            items = np.flatnonzero(self.labels == c)
            nearest[:, c] = items[cosine[:, items].argmax(axis=1)]
            logits[:, c] = self.scale * cosine[:, items].max(axis=1)
        return logits, nearest

    def fit(self, x: Any, y: Any, **kwargs: Any) -> None:
        """Raises ``NotImplementedError``: the weights of a gradient file are fixed."""
        raise NotImplementedError("a gradient file can't be trained. Train a model with audit-train (docs/training.md)")

    def get_activations(self, x: Any, layer: Any, batch_size: int, framework: bool = False) -> Any:
        """Raises ``NotImplementedError``: a gradient file has no outputs of inner layers."""
        raise NotImplementedError("a gradient file has no outputs of inner layers. Use predict, or model.embed")
