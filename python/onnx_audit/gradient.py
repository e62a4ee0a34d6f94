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
    """A model and its gradient: the graph that ``audit grad`` writes (docs/gradients.md), run in ONNX
    Runtime.

    ``model`` is a file that ``audit grad`` wrote, or a model as in ``audit``; ``audit grad`` then runs first,
    with ``flags`` such as ``raw=True`` or ``mean=[0.5, 0.5, 0.5]``. ``example`` is as in ``audit``.
    ``providers`` are ONNX Runtime's; by default, the CPU. Images are float32 [B, C, H, W], RGB or grey, with
    pixels in [0, 1]. Needs numpy and onnxruntime.
    """

    def __init__(
        self, model: Any, *, example: Any = None, providers: list[str] | None = None, **flags: Any
    ) -> None:
        import onnxruntime

        self._options = onnxruntime.RunOptions()
        # Skips the backward pass if only the embedding is requested.
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
        """Returns the embeddings [B, D] of the images ``x`` [B, C, H, W].

        Raises ``ValueError`` for images of another shape.
        """
        import numpy

        x = self._image(x)
        return self._run("embedding", x, numpy.zeros((len(x), self.dim), numpy.float32))

    def vjp(self, x: ArrayLike, cotangent: ArrayLike) -> NDArray[float32]:
        """Returns the gradient of a loss with respect to the images ``x``, [B, C, H, W].

        ``cotangent`` [B, D] is the gradient of the loss with respect to the embeddings. Raises ``ValueError``
        for other shapes.
        """
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
            expected = ", ".join(map(str, self.shape))
            raise ValueError(f"expected images of shape [B, {expected}], found {list(x.shape)}")
        return x

    def _run(self, output: str, x: Any, cotangent: Any) -> NDArray[float32]:
        feed = dict(zip(INPUTS, (x, cotangent), strict=True))
        value: NDArray[float32] = self._session.run([output], feed, self._options)[0]
        return value
