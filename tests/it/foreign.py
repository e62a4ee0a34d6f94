import json, pathlib, sys
import numpy as np, onnxruntime
from PIL import Image
model, folder, outcomes, names, values = sys.argv[1:]
targets = np.array(json.loads(values)).reshape(len(json.loads(names)), -1)
targets /= np.linalg.norm(targets, axis=1, keepdims=True)
place = {name: i for i, name in enumerate(json.loads(names))}
session = onnxruntime.InferenceSession(model)
for o in json.loads(outcomes):
    x = np.asarray(Image.open(pathlib.Path(folder) / o["query"]).convert("L"), np.float32)[None, None] / 255
    e = session.run(None, {session.get_inputs()[0].name: x})[0][0].astype(np.float64)
    e /= np.linalg.norm(e)
    d = np.linalg.norm(targets - e, axis=1)
    aimed = [place[t] for t in o["targets"]]
    found = e @ targets[aimed[0]] if o["attack"] == "TMA" else np.mean([(d < d[t]).sum() for t in aimed])
    assert abs(found - o["before"]) < (1e-5 if o["attack"] == "TMA" else 1e-9), (o, found)
    if o["attack"] == "QA-":
        assert aimed == [d.argmin()], o
print("agrees")
