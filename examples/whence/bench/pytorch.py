"""PyTorch beside whence: reads requests from standard input and answers on standard output, as peer.h describes.
  {"do": "prepare", "bench": ..., "way": ..., ...}     tensors in; warmed up when it answers {"peak_mib"}: above the operands
  {"do": "run"}                                        one repetition: {"forward_ms", "backward_ms"}
  {"do": "results"}                                    what came out, as tensors
Ways: eager; compile (torch.compile); sdpa (scaled_dot_product_attention); flex (FlexAttention, which has no backward on the CPU)."""
import ctypes
import json
import math
import os
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit(3)

source = sys.stdin.buffer
answers = os.fdopen(os.dup(1), "wb")
silence = os.open(os.devnull, os.O_WRONLY)  # its warnings; what fails is answered
os.dup2(silence, 1)
os.dup2(silence, 2)
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
PRECISIONS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
KINDS = {"f32": torch.float32, "i64": torch.int64}


def answer(fields, tensors=()):
    tensors = [(name, tensor.detach().to("cpu", torch.float32).contiguous()) for name, tensor in tensors]
    heads = [{"name": name, "dtype": "f32", "shape": list(tensor.shape)} for name, tensor in tensors]
    answers.write(json.dumps({**fields, "tensors": heads}).encode() + b"\n")
    for _, tensor in tensors:
        answers.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * 4))
    answers.flush()


def receive(heads):
    tensors = {}
    for head in heads:
        kind, shape = KINDS[head["dtype"]], head["shape"]
        content = bytearray(source.read(math.prod(shape) * kind.itemsize))
        tensors[head["name"]] = torch.frombuffer(content, dtype=kind).reshape(shape).clone()
    return tensors


def status(key):
    """Of this process in MiB: VmRSS now, VmHWM at its highest."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


def on_gpu():
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def wait():
    if on_gpu():
        torch.cuda.synchronize()


def timed(function):
    """What it returns, and its milliseconds."""
    wait()
    start = time.perf_counter()
    found = function()
    wait()
    return found, (time.perf_counter() - start) * 1e3


class Formulas:
    """Attention with a scheme, in the listing of its paper, from the tensors by name: q, k, v and the scheme's own."""

    def __init__(self, scheme, heads, length, head_dim, device):
        self.scheme, self.scale = scheme, 1 / math.sqrt(head_dim)
        at = torch.arange(length, device=device)
        self.mask = torch.full((length, length), -math.inf, device=device).triu(1)
        self.distance = (at[:, None] - at[None, :]).clamp(min=0).float()
        power = 2 ** int(math.log2(heads))
        slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)] + [2 ** (-8 * (2 * h + 1) / (2 * power)) for h in range(heads - power)]
        self.slopes = torch.tensor(slopes, device=device)
        self.alibi = -self.slopes[None, :, None, None] * self.distance
        self.angles = at[:, None] * 10000.0 ** (-torch.arange(0, head_dim, 2, device=device) / head_dim)

    def bias(self, x, base):
        if base == "alibi":
            return self.alibi
        rate, strength = (next(tensor for name, tensor in x.items() if name.endswith(end)) for end in ("rate", "strength"))
        return -strength[None, :, None, None] * torch.log1p(rate[None, :, None, None] * self.distance)

    def rotated(self, x):
        first, second = x.chunk(2, -1)
        cos, sin = self.angles.cos(), self.angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)

    def composed(self, x):
        s = torch.matmul(x["q"], x["k"].transpose(-1, -2)) * self.scale
        if self.scheme in ("alibi", "kerple"):
            s = s + self.bias(x, self.scheme)
        elif self.scheme == "cope":
            s = s + self.mask
            last = x["table"].shape[0] - 1
            position = torch.sigmoid(s).flip(-1).cumsum(dim=-1).flip(-1).clamp(max=last)
            above, below = position.ceil().long(), position.floor().long()
            z = torch.matmul(x["q"], x["table"].t())
            w = position - below
            s = s + (z.gather(-1, above) * w + z.gather(-1, below) * (1 - w))
        elif "dape" in self.scheme:  # dape(base), cdape(base)
            bias = self.bias(x, self.scheme[self.scheme.index("(") + 1:-1])
            both = torch.cat((s, bias.expand(s.shape[0], -1, -1, -1).to(s.dtype)), 1)
            weights = [x[name] for name in ("hidden.weight", "hidden.bias", "output.weight", "output.bias")]
            if self.scheme.startswith("dape"):
                hidden = F.leaky_relu(F.linear(both.permute(0, 2, 3, 1), weights[0], weights[1]))
                mixed = F.linear(hidden, weights[2], weights[3]).permute(0, 3, 1, 2)
            else:
                pad = (0, weights[0].shape[-1] // 2)
                hidden = F.leaky_relu(F.conv2d(torch.tril(both), weights[0], weights[1], padding=pad))
                mixed = F.conv2d(hidden, weights[2], weights[3], padding=pad)
            s = s + bias + mixed
        return torch.matmul(torch.softmax(s + self.mask, -1).to(x["v"].dtype), x["v"])

    def sdpa(self, x):
        if self.scheme in ("none", "absolute"):
            return F.scaled_dot_product_attention(x["q"], x["k"], x["v"], is_causal=True)
        if self.scheme == "rope":
            return F.scaled_dot_product_attention(self.rotated(x["q"]), self.rotated(x["k"]), x["v"], is_causal=True)
        return F.scaled_dot_product_attention(x["q"], x["k"], x["v"], attn_mask=(self.bias(x, self.scheme) + self.mask).to(x["q"].dtype))


class Attention:
    """One attention, q k v -> output."""

    def __init__(self, request, tensors):
        self.cotangent = tensors.pop("cotangent").to(request["device"])
        self.leaves = {name: tensor.to(request["device"]).requires_grad_() for name, tensor in tensors.items()}
        self.scheme, self.way = request["scheme"], request["way"]
        q = self.leaves["q"]
        self.formulas = Formulas(self.scheme, q.shape[1], q.shape[2], q.shape[3], q.device)
        composed = self.formulas.composed
        self.function = {"eager": composed, "sdpa": self.formulas.sdpa, "flex": self.flex}.get(self.way) or torch.compile(composed, dynamic=False)
        self.has_backward = self.way != "flex" or q.is_cuda
        if self.way == "flex":
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention
            self.attend = torch.compile(flex_attention, dynamic=False)
            self.block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], q.shape[2], device=q.device.type)

    def flex(self, x):
        score = None
        if self.scheme == "alibi":
            slopes = self.formulas.slopes
            score = lambda s, b, h, i, j: s - slopes[h] * (i - j)
        elif self.scheme == "kerple":
            strength, rate = x["strength"], x["rate"]
            score = lambda s, b, h, i, j: s - strength[h] * torch.log1p(rate[h] * (i - j))
        return self.attend(x["q"], x["k"], x["v"], score_mod=score, block_mask=self.block_mask)

    def run(self):
        backward = None
        with torch.set_grad_enabled(self.has_backward):
            inputs = self.leaves if self.has_backward else {name: tensor.detach() for name, tensor in self.leaves.items()}
            self.output, forward = timed(lambda: self.function(inputs))
            if self.has_backward:
                self.gradients, backward = timed(lambda: torch.autograd.grad(self.output, list(self.leaves.values()), self.cotangent))
        return {"forward_ms": forward, "backward_ms": backward}

    def forget(self):
        self.output = self.gradients = None

    def operand_mib(self):
        """What a run leaves that is no surplus: the output, and the gradients of q, k and v."""
        return self.leaves["q"].numel() * 4 * (4 if self.has_backward else 1) / 2**20

    def results(self):
        named = [("output", self.output)]
        if self.has_backward:
            named += [("gradient of " + name, gradient) for name, gradient in zip(self.leaves, self.gradients)]
        return named


class Model:
    """A pre-norm transformer; attention(q, k, v, layer, begin) is that of its kind."""

    def __init__(self, request, tensors, trained):
        self.device, self.layers, self.heads, self.scheme = (request[name] for name in ("device", "layers", "heads", "scheme"))
        self.tokens = tensors.pop("tokens").to(self.device)
        self.p = {name: tensor.to(self.device).requires_grad_(trained) for name, tensor in tensors.items()}
        self.dim, self.length = self.p["embedding.weight"].shape[1], self.tokens.shape[1]
        self.formulas = Formulas(self.scheme, self.heads, self.length, self.dim // self.heads, self.device)

    def linear(self, x, name):
        return F.linear(x, self.p[name + ".weight"], self.p[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, (self.dim,), self.p[name + ".weight"], self.p[name + ".bias"])

    def logits(self, begin, end):
        """Of the tokens from `begin` to `end`."""
        x = F.embedding(self.tokens[:, begin:end], self.p["embedding.weight"])
        if self.scheme == "absolute":
            x = x + self.p["position.table"][begin:end]
        for layer in range(self.layers):
            path = f"blocks.{layer}."
            normed = self.norm(x, path + "norm1")
            q, k, v = (self.linear(normed, f"{path}attention.{name}").view(*x.shape[:2], self.heads, -1).transpose(1, 2)
                       for name in ("query", "key", "value"))
            attended = self.attention(q, k, v, layer, begin).transpose(1, 2).reshape(x.shape)
            x = x + self.linear(attended, path + "attention.output")
            x = x + self.linear(F.gelu(self.linear(self.norm(x, path + "norm2"), path + "mlp.in"), approximate="tanh"), path + "mlp.out")
        return F.linear(self.norm(x, "norm"), self.p["embedding.weight"])


class Step(Model):
    """Training steps: scaled_dot_product_attention wherever the scheme allows it, fused AdamW, autocast for 16 bits."""

    def __init__(self, request, tensors):
        self.targets = tensors.pop("targets").to(request["device"])
        super().__init__(request, tensors, trained=True)
        self.storage = PRECISIONS[request["precision"]]
        fused = self.scheme in ("none", "absolute", "rope", "alibi", "kerple")
        self.attend = self.formulas.sdpa if fused else self.formulas.composed
        self.loss_of = torch.compile(self.loss, dynamic=False) if request["way"] == "compile" else self.loss
        self.optimizer = torch.optim.AdamW(self.p.values(), lr=3e-4, weight_decay=0.1, fused=True)
        self.scaler = torch.amp.GradScaler(self.device, enabled=request["precision"] == "f16")
        loss = self.forward()
        self.scaler.scale(loss).backward()
        self.first = [("loss", loss)] + [("gradient of " + name, x.grad.clone()) for name, x in self.p.items()]

    def attention(self, q, k, v, layer, begin):
        own = f"blocks.{layer}.attention.position."
        return self.attend({"q": q, "k": k, "v": v} | {name[len(own):]: tensor for name, tensor in self.p.items() if name.startswith(own)})

    def loss(self):
        return F.cross_entropy(self.logits(0, self.length).flatten(0, 1).float(), self.targets.flatten())

    def forward(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=self.storage, enabled=self.storage != torch.float32):
            return self.loss_of()

    def learn(self, loss):
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.p.values(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        loss.item()

    def run(self):
        loss, forward = timed(self.forward)
        return {"forward_ms": forward, "backward_ms": timed(lambda: self.learn(loss))[1]}

    def results(self):
        found, self.first = self.first, None
        return found


class Decode(Model):
    """Tokens one by one, with keys and values of earlier ones kept in place."""

    def __init__(self, request, tensors):
        super().__init__(request, tensors, trained=False)
        if self.scheme not in ("none", "absolute", "alibi"):
            raise ValueError(f"no peer for decoding with {self.scheme}")
        self.prompt = request["prompt"]
        self.kept = torch.zeros(2, self.layers, 1, self.heads, self.length, self.dim // self.heads, device=self.device)

    def attention(self, q, k, v, layer, begin):
        end = begin + q.shape[2]
        self.kept[0, layer, :, :, begin:end], self.kept[1, layer, :, :, begin:end] = k, v
        mask = self.formulas.mask[begin:end, :end]
        if self.scheme == "alibi":
            mask = mask + self.formulas.alibi[:, :, begin:end, :end]
        return F.scaled_dot_product_attention(q, self.kept[0, layer, :, :, :end], self.kept[1, layer, :, :, :end], attn_mask=mask)

    def decode(self):
        for at in range(self.prompt, self.length):
            self.last = self.logits(at, at + 1)

    def run(self):
        with torch.inference_mode():
            self.logits(0, self.prompt)
            return {"forward_ms": timed(self.decode)[1]}

    def results(self):
        return [("logits", self.last)]


class Op:
    """One op on the inputs that were given."""

    FUNCTIONS = {
        "add": lambda a, b: a + b,
        "gelu": lambda x: F.gelu(x, approximate="tanh"),
        "heads apart": lambda x: x.permute(0, 2, 1, 3).contiguous(),
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias),
        "cumulative_sum": lambda x: x.cumsum(-1),
        "embedding": lambda table, picks: F.embedding(picks, table),
        "cross_entropy": lambda x, picks: F.cross_entropy(x, picks),
        "linear": lambda x, weight, bias: F.linear(x, weight, bias),
    }

    def __init__(self, request, tensors):
        storage = PRECISIONS[request["precision"]]
        there = {name: tensor.to(request["device"], storage if tensor.is_floating_point() else tensor.dtype) for name, tensor in tensors.items()}
        self.cotangent = there.pop("cotangent")
        self.inputs = [tensor.requires_grad_() if tensor.is_floating_point() else tensor for tensor in there.values()]
        self.leaves = [tensor for tensor in self.inputs if tensor.requires_grad]
        function = self.FUNCTIONS[request["op"]]
        self.function = torch.compile(function, dynamic=False) if request["way"] == "compile" else function

    def forward(self):
        self.output = self.function(*self.inputs)

    def backward(self):
        self.gradients = torch.autograd.grad(self.output, self.leaves, self.cotangent.to(self.output.dtype), retain_graph=True)

    def run(self, series=5):
        of_series = [timed(lambda: [each() for _ in range(series)])[1] / series for each in (self.forward, self.backward)]
        return dict(zip(("forward_ms", "backward_ms"), of_series))

    def results(self):
        return [("output", self.output)] + [(f"gradient of input {k}", gradient) for k, gradient in enumerate(self.gradients)]


BENCHES = {"attention": Attention, "decode": Decode, "step": Step, "ops": Op}
work = None


def measured_peak():
    """MiB of one run above its operands, after what PyTorch and its compiler keep was given back as far as it can be."""
    work.forget()
    if on_gpu():
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        work.run()
        return (torch.cuda.max_memory_allocated() - base) / 2**20 - work.operand_mib()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    base = status("VmRSS")
    work.run()
    return status("VmHWM") - base - work.operand_mib()


def prepare(request, tensors):
    global work
    work = None
    work = BENCHES[request["bench"]](request, tensors)
    work.run()
    peak = {"peak_mib": max(0, measured_peak())} if hasattr(work, "operand_mib") else {}
    work.run()
    return peak


answer({"version": torch.__version__.split("+")[0]})
while line := source.readline():
    request = json.loads(line)
    tensors = receive(request["tensors"])
    try:
        if request["do"] == "prepare":
            answer(prepare(request, tensors))
        elif request["do"] == "run":
            answer(work.run())
        else:
            answer({}, work.results())
    except Exception as problem:  # the reader decides what it means
        answer({"failed": f"{type(problem).__name__}: {problem}".splitlines()[0][:300]})
