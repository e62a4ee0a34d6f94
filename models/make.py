"""Trains the two bundled models and exports them to ONNX. See README.md beside this file.

    python make.py TRAIN_FOLDER OUT_FOLDER

TRAIN_FOLDER holds PNG class folders of generated characters (28×28, grey), of another seed than the built-in
audit set. `plain.onnx` is trained with a triplet loss. `hardened.onnx` starts from it and goes on with hardness
manipulation: PGD moves anchor, positive and negative until the triplet is as hard as a gradually rising
destination, and the net learns from the triplets so moved. One log line every 100 steps goes to OUT_FOLDER/*.log.
"""
import argparse, copy, json, pathlib, time
import numpy as np, onnx, onnxruntime, torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

MARGIN = 0.2
EPSILON = 77 / 255
PAIRS = 56  # two images of each of so many classes make a batch


def net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 49, 128)
    )


def unit(model, images):
    return F.normalize(model(images), dim=1)


def load(folder):
    """Images [classes, samples, 1, 28, 28] in [0,1]."""
    classes = [sorted(c.glob("*.png")) for c in sorted(pathlib.Path(folder).iterdir())]
    pixels = np.stack([np.stack([np.asarray(Image.open(f)) for f in files]) for files in classes])
    return torch.from_numpy(pixels.astype(np.float32) / 255)[:, :, None]


def batch(images, generator):
    """Anchors, positives [PAIRS, 1, 28, 28] of different classes."""
    classes = torch.randperm(len(images), generator=generator)[:PAIRS]
    two = torch.stack([torch.randperm(images.shape[1], generator=generator)[:2] for _ in range(PAIRS)])
    return images[classes, two[:, 0]], images[classes, two[:, 1]]


def others(generator):
    """For every pair another pair, evenly drawn."""
    return (torch.arange(PAIRS) + torch.randint(1, PAIRS, (PAIRS,), generator=generator)) % PAIRS


def semihard(anchor, positive, generator):
    """For every pair a negative farther than the positive but within the margin; any other where there is none."""
    to_positive = (anchor - positive).norm(dim=1)
    to_negative = torch.cdist(anchor, positive)
    fits = (to_negative > to_positive[:, None]) & (to_negative < to_positive[:, None] + MARGIN)
    fits.fill_diagonal_(False)
    draw = torch.rand(PAIRS, PAIRS, generator=generator) * fits
    return torch.where(fits.any(1), draw.argmax(1), others(generator))


def hardness(anchor, positive, negative):
    return (anchor - positive).norm(dim=1) - (anchor - negative).norm(dim=1)


def train_plain(model, images, steps, generator, log):
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 if step < 0.7 * steps else 2e-4
        first, second = batch(images, generator)
        a, p = unit(model, first), unit(model, second)
        n = p[semihard(a.detach(), p.detach(), generator)]
        hard = hardness(a, p, n)
        loss = F.relu(hard + MARGIN).mean()
        optimiser.zero_grad(); loss.backward(); optimiser.step()
        if step % 100 == 99:
            log(step=step + 1, loss=loss.item(), hardness=hard.mean().item(), distance=torch.pdist(a.detach()).mean().item())


def perturb(model, triplet, destination, alpha, steps):
    """Moves all three images of each triplet until its hardness reaches the destination, or the steps are over."""
    images = torch.cat(triplet)
    low, high = (images - EPSILON).clamp(min=0), (images + EPSILON).clamp(max=1)
    for _ in range(steps):
        images = images.detach().requires_grad_(True)
        missing = F.relu(destination - hardness(*unit(model, images).chunk(3)))
        # Each triplet stops by itself: a missing hardness of 0 has gradient 0.
        gradient, = torch.autograd.grad((missing**2).sum(), images)
        images = (images - alpha * gradient.sign()).clamp(low, high)
    return images.detach()


def train_hardened(model, images, steps, generator, log, pgd=8, alpha=12 / 255, ics=0.5, lr=1e-3):
    optimiser = torch.optim.Adam(model.parameters(), lr)
    last = MARGIN
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = lr if step < 0.8 * steps else lr / 5
        first, second = batch(images, generator)
        third = second[others(generator)]
        progress = min(1, 2 * (step + 1) / steps)
        # Linear gradual adversary: the harder the net finds its task, the easier the next one.
        destination = -min(last, MARGIN)
        moved = perturb(model, (first, second, third), destination, progress * alpha, pgd)
        a, p, n = unit(model, moved).chunk(3)
        hard = hardness(a, p, n)
        loss = F.relu(hard + MARGIN).mean()
        last = loss.item()
        # Intra-class structure: an anchor moves no farther than its positive is.
        clean_a, clean_p = unit(model, first), unit(model, second)
        shift = (clean_a - a).norm(dim=1)
        total = loss + ics * F.relu(shift - (clean_a - clean_p).norm(dim=1)).mean()
        optimiser.zero_grad(); total.backward(); optimiser.step()
        if step % 100 == 99:
            with torch.no_grad():
                clean = hardness(clean_a, clean_p, unit(model, third)).mean().item()
            log(step=step + 1, loss=last, destination=destination, hardness_clean=clean, hardness=hard.mean().item(),
                shift=shift.mean().item(), distance=torch.pdist(clean_a.detach()).mean().item())


def export(model, path):
    torch.onnx.export(
        model.eval(), (torch.zeros(2, 1, 28, 28),), str(path), input_names=["image"], output_names=["embedding"],
        dynamic_axes={"image": {0: "batch"}, "embedding": {0: "batch"}}, opset_version=17, dynamo=False,
    )
    onnx.checker.check_model(onnx.load(path), full_check=True)
    images = torch.rand(5, 1, 28, 28)
    found, = onnxruntime.InferenceSession(str(path)).run(None, {"image": images.numpy()})
    with torch.no_grad():
        assert np.abs(found - model(images).numpy()).max() < 1e-4, f"{path}: ONNX Runtime and PyTorch differ"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain-steps", type=int, default=1500)
    parser.add_argument("--hardened-steps", type=int, default=2500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    images = load(options.train)
    model = net()
    for name, train, steps in (
        ("plain", train_plain, options.plain_steps),
        ("hardened", train_hardened, options.hardened_steps),
    ):
        began = time.time()
        with open(options.out / f"{name}.log", "w") as file:
            def log(**row):
                line = json.dumps({k: round(v, 4) for k, v in row.items()} | {"seconds": round(time.time() - began)})
                print(line, file=file, flush=True); print(name, line, flush=True)
            train(model, images, steps, generator, log)
        export(copy.deepcopy(model), options.out / f"{name}.onnx")


if __name__ == "__main__":
    main()
