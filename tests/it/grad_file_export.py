"""Exports a net of PyTorch as model.onnx in a folder."""
import os, sys, torch
os.chdir(sys.argv[1])
torch.manual_seed(0)
open("net.py", "w").write("""
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.Conv2d(8, 16, 3, stride=2)
        self.token, self.out = torch.nn.Parameter(torch.randn(1, 1, 16)), torch.nn.Linear(16, 10)
    def forward(self, x):
        x = torch.nn.functional.gelu(self.b(torch.relu(self.a(x)))).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        x = torch.nn.functional.scaled_dot_product_attention(x, x, x)
        return self.out(x[:, 0])
""")
sys.path.insert(0, ".")
from net import Net
net = Net().eval()
torch.save(net.state_dict(), "net.pt")
torch.onnx.export(net, torch.rand(2, 3, 20, 20), "model.onnx", dynamo=False, opset_version=17, input_names=["x"],
                  output_names=["y"], dynamic_axes={"x": {0: "n"}, "y": {0: "n"}})
