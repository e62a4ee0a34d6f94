"""Images of appendix E of Panum et al. (arXiv:2102.07265): two classes whose pixels are independent and
Gaussian, with means 0.25 and 0.75 and standard deviation 0.025; 254 of each to train on, 258 of each to test
with. 28 pixels wide, where the paper has 3 x 224 x 224.

    python research/tools/gaussian_classes.py target/gaussian
"""

import pathlib
import sys

import numpy as np
from PIL import Image

draw = np.random.default_rng(0)
for part, count in [("train", 254), ("test", 258)]:
    for name, mean in [("a", 0.25), ("b", 0.75)]:
        folder = pathlib.Path(sys.argv[1]) / part / name
        folder.mkdir(parents=True, exist_ok=True)
        for at in range(count):
            pixels = np.clip(draw.normal(mean, 0.025, (28, 28)), 0, 1)
            Image.fromarray(np.uint8(np.rint(255 * pixels))).save(folder / f"{at:03}.png")
