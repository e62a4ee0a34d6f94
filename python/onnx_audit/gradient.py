"""The gradient of a model, run in ONNX Runtime."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from . import binary
from .model import as_file

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from numpy import float32

#: Inputs of a file that `audit grad` writes.
INPUTS = ("image", "cotangent")


class Gradient:
    """A model and its gradient: the graph that ``audit grad`` writes (docs/gradients.md), run in ONNX Runtime.

    ``model`` is a file that ``audit grad`` wrote, or a model as ``audit`` takes it, whose gradient is then formed first.
    ``providers`` are ONNX Runtime's, the CPU by default. ``flags`` are those of ``audit grad``: ``raw=True``,
    ``mean=[0.5, 0.5, 0.5]``. Images are float32 [B, C, H, W], pixels in [0, 1], RGB or grey. Needs numpy and onnxruntime.
    """

    def __init__(
        self, model: Any, *, example: Any = None, providers: list[str] | None = None, **flags: Any
    ) -> None:
        import onnxruntime

        self._options = onnxruntime.RunOptions()
        # No backward pass where only embeddings are asked for.
        self._options.only_execute_path_to_fetches = True
        providers = providers or ["CPUExecutionProvider"]
        with TemporaryDirectory(prefix="onnx-audit-") as folder, as_file(model, example) as path:
            session = None
            if isinstance(model, (str, os.PathLike)) and not flags:
                opened = onnxruntime.InferenceSession(path, providers=providers)
                session = opened if tuple(i.name for i in opened.get_inputs()) == INPUTS else None
            if session is None:
                file = Path(folder) / "gradient.onnx"
                binary.checked(["grad", path, "-o", file, *binary.flags(flags)])
                session = onnxruntime.InferenceSession(file, providers=providers)
        self._session = session
        image, cotangent = session.get_inputs()
        #: Shape of an image: [C, H, W].
        self.shape: tuple[int, ...] = tuple(image.shape[1:])
        #: Length of an embedding, D.
        self.dim: int = cotangent.shape[1]

    def embed(self, x: ArrayLike) -> NDArray[float32]:
        """Embeddings [B, D] of the images x [B, C, H, W]."""
        import numpy

        x = self._image(x)
        return self._run("embedding", x, numpy.zeros((len(x), self.dim), numpy.float32))

    def vjp(self, x: ArrayLike, cotangent: ArrayLike) -> NDArray[float32]:
        """The product of ``cotangent`` [B, D], a loss's derivative by the embedding, with the Jacobian of the embedding: the
        loss's derivative by the image, [B, C, H, W]."""
        import numpy

        x, cotangent = self._image(x), numpy.ascontiguousarray(cotangent, numpy.float32)
        if cotangent.shape != (len(x), self.dim):
            raise ValueError(
                f"expected a cotangent for each image, of shape {(len(x), self.dim)}, found {cotangent.shape}"
            )
        return self._run("gradient", x, cotangent)

    def _image(self, x: ArrayLike) -> NDArray[float32]:
        import numpy

        x = numpy.ascontiguousarray(x, numpy.float32)
        if x.ndim != 1 + len(self.shape) or x.shape[1:] != self.shape:
            wanted = ", ".join(map(str, self.shape))
            raise ValueError(f"expected images of shape [B, {wanted}], found {list(x.shape)}")
        return x

    def _run(self, output: str, x: Any, cotangent: Any) -> NDArray[float32]:
        feed = dict(zip(INPUTS, (x, cotangent), strict=True))
        value: NDArray[float32] = self._session.run([output], feed, self._options)[0]
        return value
