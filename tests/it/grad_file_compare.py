"""Compares the gradients of both programs of docs/gradients.md with PyTorch."""
import os, sys, torch
os.chdir(sys.argv[1])
sys.path.insert(0, ".")
from net import Net
net = Net().eval()
net.load_state_dict(torch.load("net.pt"))
mean, std = (torch.tensor(v).view(3, 1, 1) for v in ([0.5, 0.4, 0.3], [0.2, 0.3, 0.25]))
theirs = lambda x: net((x - mean) / std)
def same(a, b, what):
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    off = ((a - b).norm() / b.norm()).item()
    assert a.shape == b.shape and off < 1e-4, (what, off)

first = {}
exec(open("0.py").read(), first)
x = torch.from_numpy(first["image"]).requires_grad_()
y = theirs(x)
same(first["embedding"], y.detach(), "embedding")
[g] = torch.autograd.grad(y, x, y.detach())
same(first["gradient"], g, "gradient")
assert (theirs(torch.from_numpy(first["moved"])) * y).sum() < (y * y).sum()

second = {}
exec(open("1.py").read(), second)
gallery = torch.randn(6, 10)
normalize = torch.nn.functional.normalize
loss = lambda logits: torch.nn.functional.cross_entropy(logits, torch.tensor([1, 4, 2]))
def gradient(model):
    x = torch.rand(3, 3, 20, 20, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss(model(x)).backward()
    return x.grad
same(gradient(second["Retrieval"](gallery)), gradient(lambda x: normalize(theirs(x)) @ normalize(gallery).T), "attack")
print("compared")
