"""Random graphs of ops: all registered ones against dual numbers, and, where PyTorch is at hand, 45 of them against its float64."""
import json
import subprocess
import time

# Read by the Python that has PyTorch: draws a graph, writes it as whence_graph reads it, and prints value and gradients.
IN_TORCH = r'''
import random, sys, torch
torch.set_num_threads(1)
F, r = torch.nn.functional, random.Random(int(sys.argv[1]))
torch.manual_seed(r.randrange(1 << 30))
nodes, lines, leaves = [], [], []
def numbers(kind, x):
    lines.append(f"{kind} " + " ".join(map(str, x.shape)) + " : " + " ".join(repr(float(v)) for v in x.detach().flatten())); nodes.append(x); return len(nodes) - 1
def leaf(*shape, low=None):
    x = torch.randn(*shape, dtype=torch.float64) if low is None else torch.rand(*shape, dtype=torch.float64) + low
    x.requires_grad_(); leaves.append(x); return numbers("leaf", x)
def node(line, x):
    lines.append(line); nodes.append(x); return len(nodes) - 1
def first_maximum(x, axis):
    return torch.gather(x, axis, x.argmax(axis, keepdim=True)).squeeze(axis)
ONE = {"abs": torch.abs, "exp": torch.exp, "square": torch.square, "sin": torch.sin, "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softplus": lambda x: F.softplus(x, threshold=1e9),
       "silu": F.silu, "relu": F.relu, "leaky_relu": F.leaky_relu, "gelu": lambda x: F.gelu(x, approximate="tanh"), "gelu_erf": F.gelu, "softmax": lambda x: x.softmax(-1)}
POSITIVE = {"log": torch.log, "log1p": torch.log1p, "sqrt": torch.sqrt, "reciprocal": torch.reciprocal}
TWO = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "maximum": torch.maximum, "minimum": torch.minimum}
for _ in range(r.randint(1, 3)): leaf(r.randint(1, 4), r.randint(1, 5))
for _ in range(r.randint(2, 12)):
    a = r.choice([k for k, x in enumerate(nodes) if x.dtype == torch.float64 and x.dim() == 2]); x = nodes[a]; m, n = x.shape
    if float(x.detach().abs().max()) > 20: a = node(f"tanh {a}", torch.tanh(x)); x = nodes[a]
    kind = r.randrange(18)
    if kind < 4: name = r.choice(list(ONE)); node(f"{name} {a}", ONE[name](x))
    elif kind == 4: s = node(f"softplus {a}", F.softplus(x, threshold=1e9)); name = r.choice(list(POSITIVE)); node(f"{name} {s}", POSITIVE[name](nodes[s]))
    elif kind < 7: b = leaf(*r.choice([(m, n), (1, n), (m, 1), (n,)])); name = r.choice(list(TWO)); node(f"{name} {a} {b}", TWO[name](x, nodes[b]))
    elif kind == 7: b = leaf(m, n, low=0.5); node(f"divide {a} {b}", x / nodes[b])
    elif kind == 8: b = leaf(n, r.randint(1, 4)); node(f"matmul {a} {b}", x @ nodes[b])
    elif kind == 9:
        o = r.randint(1, 4); w, b = leaf(o, n), leaf(o); node(f"linear {a} {w} {b}", F.linear(x, nodes[w], nodes[b]))
    elif kind == 10 and n > 1: w, b = leaf(n), leaf(n); node(f"layer_norm {a} {w} {b}", F.layer_norm(x, (n,), nodes[w], nodes[b], 1e-5))
    elif kind == 11: w = leaf(n); node(f"rms_norm {a} {w}", x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * nodes[w])
    elif kind == 12: axis = r.randrange(2); name = r.choice(["sum", "mean"]); node(f"{name} {a} {axis}", getattr(x, name)(axis, keepdim=True))
    elif kind == 13: axis = r.randrange(2); name = r.choice(["cumulative_sum", "reverse_cumulative_sum"]); node(f"{name} {a} {axis}", x.cumsum(axis) if name[0] == "c" else x.flip(axis).cumsum(axis).flip(axis))
    elif kind == 14: node(f"transpose {a}", x.T)
    elif kind == 15: axis = r.randrange(2); b = r.randrange(x.shape[axis]); e = r.randint(b + 1, x.shape[axis]); node(f"slice {a} {axis} {b} {e}", x.narrow(axis, b, e - b))
    elif kind == 16:
        which = r.randrange(4)
        if which == 0: i = numbers("index", torch.randint(0, m, (r.randint(1, 5),))); node(f"take_rows {a} {i}", x[nodes[i]])
        elif which == 1: i = numbers("index", torch.randint(0, n, (m, r.randint(1, 5)))); node(f"gather {a} {i}", x.gather(1, nodes[i]))
        elif which == 2: b = numbers("mask", torch.rand(m, n) > 0.4); node(f"masked {a} {b}", torch.where(nodes[b], x, 0.0))
        elif n > 1:
            p = leaf(m, 3); s = node(f"sigmoid {p}", torch.sigmoid(nodes[p])); q = s if n == 2 else node(f"add {s} {s}", nodes[s] + nodes[s]); q = nodes[q] if n > 2 else nodes[q]; k = len(nodes) - 1
            low = q.detach().floor(); node(f"lerp_at {a} {k}", x.gather(1, low.long()) * (low + 1 - q) + x.gather(1, (low + 1).long().clamp(max=n - 1)) * (q - low))
    else: axis = r.randrange(2); b = leaf(m, n); node(f"concat {a} {b} {axis}", torch.cat([x, nodes[b]], axis))
last = max(k for k, x in enumerate(nodes) if x.dtype == torch.float64 and x.dim() == 2); x = nodes[last]
end = r.randrange(3)
if end == 0: i = numbers("index", torch.randint(0, x.shape[1], (x.shape[0],))); last = node(f"cross_entropy {last} {i}", F.cross_entropy(x, nodes[i]))
elif end == 1: y = node(f"maximum_along {last} 1", first_maximum(x, 1)); last = node(f"total {y}", nodes[y].sum())
else: c = leaf(*x.shape); y = node(f"multiply {last} {c}", x * nodes[c]); last = node(f"total {y}", nodes[y].sum())
gradients = torch.autograd.grad(nodes[last], leaves, allow_unused=True)
open(sys.argv[2], "w").write("\n".join(lines) + "\n")
print(repr(float(nodes[last].detach())))
for leaf_, g in zip(leaves, gradients): print(" ".join(repr(float(v)) for v in (torch.zeros_like(leaf_) if g is None else g).flatten()))
'''


def disagreement(ours, theirs):
    """The largest difference over the largest number, of the value and of each gradient."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        size = max([1e-3, *map(abs, b)])
        worst = max([worst, *(abs(x - y) / size if x == x else float("inf") for x, y in zip(a, b, strict=True))])
    return worst


def numbers_of(out):
    return [[float(word) for word in line.split()] for line in out.decode().splitlines()]


# One process for many graphs: importing PyTorch takes seconds.
MANY = "import sys, io, json, contextlib\nsource = sys.stdin.readline()\nsource = json.loads(source)\nfor line in sys.stdin:\n" \
       "    sys.argv = ['-', *line.split()]\n    said = io.StringIO()\n    with contextlib.redirect_stdout(said): exec(source, {})\n" \
       "    print(json.dumps(said.getvalue()), flush=True)\n"


def attack_graphs(attack, whole=False):
    program = attack.build / "tests/attack/whence_graph"
    if not program.exists():
        raise LookupError("no whence_graph; build it: cmake --build build/release --target whence_graph")
    has_torch = subprocess.run([attack.python, "-c", "import torch"], capture_output=True).returncode == 0
    seconds = max(1, min(300, (attack.end - time.time()) / (2 if has_torch else 1)))
    ended = attack.run([f"{attack.seed:x}", seconds], program=[program], limit=seconds + 60)
    attack.inputs += int(ended.out.split()[0]) if ended.out.strip() else 0
    attack.notes.append(ended.out.decode().strip())
    for line in ended.error.decode(errors="replace").strip().splitlines()[:20]:
        attack.failed(line, f"whence_graph {attack.seed:x} {seconds:.0f}")
    if ended.code not in (0, 1):
        attack.failed(f"exit code {ended.code}", f"whence_graph {attack.seed:x} {seconds:.0f}")
    if not has_torch:
        attack.notes.append("no PyTorch in --python: not compared with it")
        return
    peer = subprocess.Popen([attack.python, "-c", MANY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    peer.stdin.write(json.dumps(IN_TORCH) + f"\n{attack.seed} {attack.folder / 'first.txt'}\n")
    peer.stdin.flush()
    peer.stdout.readline()  # PyTorch is there
    file, worst, count = attack.folder / "graph.txt", 0.0, 0
    end = time.time() + seconds
    while time.time() < end:
        graph = attack.seed + count
        peer.stdin.write(f"{graph} {file}\n")
        peer.stdin.flush()
        said = peer.stdout.readline()
        if not said:
            raise ValueError(f"PyTorch's side broke off at graph {graph}")
        ended = attack.run([file], program=[program])
        count += 1
        ours = numbers_of(ended.out) if ended.code == 0 else []
        far = disagreement(ours, numbers_of(json.loads(said).encode())) if ours else float("inf")
        worst = max(worst, far)
        if far > 1e-10:
            attack.failed(f"differs by {far:.1e} from PyTorch: {ended.error.decode(errors='replace').strip()[-200:]}", f"graph {graph}: " + "; ".join(
                line[:60] for line in file.read_text().splitlines()))
    peer.stdin.close()
    attack.inputs += count
    attack.notes.append(f"{count} graphs against PyTorch, the largest difference {worst:.1e}")
