# The CoPE paper's Listing 1 in PyTorch against ours: the output and every gradient, in f64. Needs torch and safetensors.
import subprocess, sys, torch
from safetensors.torch import load_file, save_file

whence = sys.argv[1] if len(sys.argv) > 1 else "build/release/whence"
torch.manual_seed(0)
q, k, v, cotangent = (torch.randn(2, 3, 16, 8, dtype=torch.float64, requires_grad=True) for _ in range(4))
table = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)  # positions 0 to 4

logits = q @ k.transpose(-1, -2) / 8**0.5 + torch.ones(16, 16).tril().log()
pos = torch.sigmoid(logits).flip(-1).cumsum(-1).flip(-1).clamp(max=4)
pos_ceil, pos_floor = pos.ceil().long(), pos.floor().long()
logits_int, w = q @ table.t(), pos - pos_floor
logits = logits + logits_int.gather(-1, pos_ceil) * w + logits_int.gather(-1, pos_floor) * (1 - w)
theirs = {"output": torch.softmax(logits, -1) @ v}
inputs = {"q": q, "k": k, "v": v, "table": table}
for name, gradient in zip(inputs, torch.autograd.grad(theirs["output"], inputs.values(), cotangent)):
    theirs["gradient." + name] = gradient

save_file({**inputs, "cotangent": cotangent}, "/tmp/given.safetensors")
subprocess.run([whence, "probe", "--scheme", "cope(p_max=4)", "--in", "/tmp/given.safetensors", "--out", "/tmp/ours.safetensors"], check=True)
ours = load_file("/tmp/ours.safetensors")
for name, tensor in theirs.items():
    print(f"{name:15} {(tensor - ours[name]).abs().max():.1e}")
