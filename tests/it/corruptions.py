import json, pathlib, sys
import numpy as np, onnxruntime
from PIL import Image
model, folder = sys.argv[1:]
files = sorted(pathlib.Path(folder).rglob("*.png"))
x = np.stack([np.asarray(Image.open(f).convert("L"), np.float32) / 255 for f in files])[:, None]
labels = np.array([f.parent.name for f in files])
session = onnxruntime.InferenceSession(model)
def embed(x):
    e = np.concatenate([session.run(None, {session.get_inputs()[0].name: x[i:i + 1].astype(np.float32)})[0] for i in range(len(x))])
    return e.astype(np.float64) / np.linalg.norm(e, axis=1, keepdims=True)
gallery = embed(x)
def found(queries):
    first, ap = [], []
    for i, q in enumerate(queries):
        d = np.linalg.norm(gallery - q, axis=1)
        d[i] = np.inf
        hits = (labels[np.argsort(d, kind="stable")[:-1]] == labels[i]).astype(float)
        first.append(hits[0])
        ap.append((hits.cumsum() / np.arange(1, len(hits) + 1) * hits).sum() / hits.sum())
    return [100 * float(np.mean(first)), 100 * float(np.mean(ap))]
mean = x.mean(axis=(2, 3), keepdims=True)
out = {"clean": found(gallery)}
out["contrast"] = [found(embed(np.clip((x - mean) * c + mean, 0, 1))) for c in (0.75, 0.5, 0.4, 0.3, 0.15)]
out["brightness"] = [found(embed(np.clip(x + c, 0, 1))) for c in (0.05, 0.1, 0.15, 0.2, 0.3)]
print(json.dumps(out))
