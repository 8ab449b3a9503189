"""PyTorch beside whence: reads requests from standard input and answers on standard output, as peer.h describes.
  {"do": "prepare", "bench": ..., "way": ..., ...}     tensors in; warmed up when it answers {"peak_mib"}: above the operands
  {"do": "run"}                                        one repetition: {"forward_ms", "backward_ms"}
  {"do": "results"}                                    what came out, as tensors
  {"do": "forget"}                                     holds as little as when it began
Ways: eager; compile (torch.compile); sdpa (scaled_dot_product_attention); flex (FlexAttention, which has no backward on the CPU)."""
import ctypes
import gc
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
torch.backends.cudnn.allow_tf32 = False  # convolutions in f32, as products of matrices are: else gradients of CDAPE are off by 2 %
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
    """Attention with a scheme, in the listing of its paper, from the tensors by name: q, k, v, x where it reads the layer's input, and the
    scheme's own. What is more than queries, keys and a bias, composed() has alone."""

    def __init__(self, scheme, heads, length, head_dim, device):
        self.scheme, self.scale, self.window = scheme, 1 / math.sqrt(head_dim), length
        if scheme.startswith("window("):
            self.scheme, self.window = scheme[len("window("):scheme.index(",")], int(scheme[scheme.index("n=") + 2:-1])
        self.at = torch.arange(length, device=device)
        self.mask = torch.full((length, length), -math.inf, device=device).triu(1)
        self.mask.masked_fill_(self.at[:, None] - self.at >= self.window, -math.inf)
        self.distance = (self.at[:, None] - self.at[None, :]).clamp(min=0).float()
        power = 2 ** int(math.log2(heads))
        slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)] + [2 ** (-8 * (2 * h + 1) / (2 * power)) for h in range(heads - power)]
        self.slopes = torch.tensor(slopes, device=device)
        self.alibi = -self.slopes[None, :, None, None] * self.distance
        self.pairs = torch.arange(0, head_dim, 2, device=device) / head_dim
        self.angles = self.at[:, None] * 10000.0 ** -self.pairs

    def bias(self, x, base):
        if base == "alibi":
            return self.alibi
        rate, strength = (next(tensor for name, tensor in x.items() if name.endswith(end)) for end in ("rate", "strength"))
        return -strength[None, :, None, None] * torch.log1p(rate[None, :, None, None] * self.distance)

    def rotated(self, x, angles):
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)

    def learned_angles(self, x):
        heads = x["q"].shape[1]
        if self.scheme == "carope":
            frequency = (1 / (F.softplus(F.linear(x["x"], x["frequency.weight"], x["frequency.bias"]).double()) + 1)).transpose(1, 2)
            return (frequency.unsqueeze(-1) ** torch.arange(len(self.pairs), device=frequency.device)).cumsum(2)
        if self.scheme == "repo":
            representation = F.silu(F.linear(x["x"], x["gate.weight"])) * F.linear(x["x"], x["content.weight"])
            return F.linear(representation, x["position.weight"]).transpose(1, 2).unsqueeze(-1) * 10000.0 ** -self.pairs
        slices = x["x"].unflatten(-1, (heads, -1))
        u = (slices * (slices.square().sum(-1, keepdim=True) + 1e-6).rsqrt()).flatten(2)
        phi = F.linear(F.linear(u, x["down.weight"]), x["up.weight"])
        taps = x["convolution"].flatten(0, 1)
        steps = F.conv1d(F.pad(phi.transpose(1, 2), (taps.shape[-1] - 1, 0)), taps.unsqueeze(1), groups=phi.shape[-1])
        return 500000.0 ** -self.pairs * steps.unflatten(1, (heads, -1)).transpose(2, 3).cumsum(2)

    def prepared(self, x):
        """Queries, keys, and a bias or None."""
        q, k, bias = x["q"], x["k"], None
        if self.scheme in ("alibi", "kerple"):
            bias = self.bias(x, self.scheme)
        elif self.scheme == "rope":
            q, k = self.rotated(q, self.angles), self.rotated(k, self.angles)
        elif self.scheme == "xpos":
            power = torch.log((self.pairs + 0.4) / 1.4) * self.at[:, None] / 512
            grown = torch.cat((power, power), -1).exp()
            q, k = self.rotated(q, self.angles) * grown, self.rotated(k, self.angles) / grown
        elif self.scheme in ("carope", "repo", "selective_rope"):
            angles = self.learned_angles(x)
            q, k = self.rotated(q, angles), self.rotated(k, angles)
        elif self.scheme == "pope":
            where = self.at[:, None] * 10000.0 ** (-torch.arange(q.shape[-1], device=q.device) / q.shape[-1])
            q, k, at_k = F.softplus(q), F.softplus(k), where + x["phase"]
            q, k = torch.cat((q * where.cos(), q * where.sin()), -1), torch.cat((k * at_k.cos(), k * at_k.sin()), -1)
        elif self.scheme == "ssmax":
            q = q * (x["strength"][:, None, None] * torch.log(self.at[:, None] + 1.0))
        elif self.scheme == "qk_norm":
            q, k = (F.rms_norm(both, both.shape[-1:], x[weight], 1e-6) for both, weight in ((q, "query_weight"), (k, "key_weight")))
        elif self.scheme in ("forgetting", "cable"):
            name, rate = ("gate", F.logsigmoid) if self.scheme == "forgetting" else ("step", lambda z: -F.relu(z))
            kept = rate(F.linear(x["x"], x[name + ".weight"], x[name + ".bias"]).float()).transpose(1, 2).cumsum(-1)
            bias = kept.unsqueeze(-1) - kept.unsqueeze(-2)
            if self.scheme == "cable":
                bias = F.softplus(F.linear(x["x"], x["slope.weight"]).float()).transpose(1, 2).unsqueeze(-1) * bias
        elif self.scheme == "forgetting(gates=pairs)":
            query, key = (F.linear(x["x"], x[name]).unflatten(-1, (q.shape[1], -1)).transpose(1, 2) for name in ("gate_query.weight", "gate_key.weight"))
            kept = F.logsigmoid((query @ key.transpose(-1, -2)).float() / math.sqrt(query.shape[-1])).tril()
            bias = kept.flip(-1).cumsum(-1).flip(-1) - kept
        return q.to(x["q"].dtype), k.to(x["k"].dtype), bias

    def path_scores(self, x):
        """All keys' reflections at once: a product of them is I - W' (I + beta tril(W W'))^-1 beta W."""
        x = {name: tensor.float() for name, tensor in x.items()}  # no 16 bits in solve_triangular
        q, k, heads = x["q"], x["k"], x["q"].shape[1]
        w, taps = F.linear(F.linear(x["x"], x["down.weight"]), x["up.weight"]).transpose(1, 2), x["convolution"]
        w = F.silu(F.conv1d(F.pad(w, (taps.shape[-1] - 1, 0)), taps.unsqueeze(1), groups=taps.shape[0]))
        w = w.unflatten(1, (heads, -1)).transpose(2, 3)
        w = w * (w.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        beta = 2 * F.linear(x["x"], x["beta.weight"], x["beta.bias"]).sigmoid().transpose(1, 2).unsqueeze(-1)
        behind = (beta * (w @ w.transpose(-1, -2))).tril(-1)
        taken = torch.linalg.solve_triangular(behind, beta * (w @ k.transpose(-1, -2)).tril(-1), upper=False, unitriangular=True)
        return (q @ k.transpose(-1, -2) - (q @ w.transpose(-1, -2)).tril() @ taken) * self.scale

    def mta_pattern(self, x, s):
        kernel, mix = x["convolution"], x["pattern_mix"]
        rows, keys = kernel.shape[-2:]
        s = s.tril()
        s = s + F.conv2d(F.pad(s, (keys // 2, keys - 1 - keys // 2, rows - 1, 0)), kernel, groups=kernel.shape[0])
        pattern = torch.softmax(s + self.mask, -1)
        return pattern + torch.einsum("goc,bgcij->bgoij", mix.to(pattern.dtype), pattern.unflatten(1, (mix.shape[0], -1))).flatten(1, 2)

    def stick_pattern(self, s):
        s = s.float()
        breaks = F.logsigmoid(-s).tril(-1)
        return (F.logsigmoid(s) + breaks.flip(-1).cumsum(-1).flip(-1) - breaks).exp().tril(-1)

    def composed(self, x):
        q, k, bias = self.prepared(x)
        s = self.path_scores(x) if self.scheme == "path" else torch.matmul(q, k.transpose(-1, -2)) * self.scale
        if bias is not None:
            s = s + bias
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
        if self.scheme == "stick_breaking":
            pattern = self.stick_pattern(s)
        elif self.scheme == "mta":
            pattern = self.mta_pattern(x, s)
        elif self.scheme == "sink":
            column = x["logit"][None, :, None, None].expand(*s.shape[:3], 1)
            pattern = torch.softmax(torch.cat((s + self.mask, column), -1), -1)[..., :-1]
        else:
            pattern = torch.softmax(s + self.mask, -1)
        return self.behind(x, torch.matmul(pattern.to(x["v"].dtype), x["v"]))

    def behind(self, x, output):
        if self.scheme == "gated_output":
            output = output * F.linear(x["x"], x["gate.weight"]).sigmoid().unflatten(-1, (output.shape[1], -1)).transpose(1, 2)
        return output

    def sdpa(self, x):
        q, k, bias = self.prepared(x)
        if bias is None:
            output = F.scaled_dot_product_attention(q, k, x["v"], is_causal=True, scale=self.scale)
        else:
            output = F.scaled_dot_product_attention(q, k, x["v"], attn_mask=(bias + self.mask).to(q.dtype), scale=self.scale)
        return self.behind(x, output)


class Attention:
    """One attention, q k v -> output."""

    def __init__(self, request, tensors):
        there = {name: tensor.to(request["device"], PRECISIONS[request["precision"]]) for name, tensor in tensors.items()}
        self.cotangent = there.pop("cotangent")
        self.leaves = {name: tensor.requires_grad_() for name, tensor in there.items()}
        self.scheme, self.way = request["scheme"], request["way"]
        q = self.leaves["q"]
        self.formulas = Formulas(self.scheme, q.shape[1], q.shape[2], q.shape[3], q.device)
        composed = self.formulas.composed
        self.function = {"eager": composed, "sdpa": self.formulas.sdpa, "flex": self.flex}.get(self.way) or torch.compile(composed, dynamic=False)
        self.has_backward = self.way != "flex" or q.is_cuda
        if self.way == "flex":
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention
            self.attend = torch.compile(flex_attention, dynamic=False)
            window = self.formulas.window
            self.block_mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < window), None, None, q.shape[2], q.shape[2], device=q.device.type)

    def flex(self, x):
        score = None
        if self.formulas.scheme == "alibi":
            slopes = self.formulas.slopes
            score = lambda s, b, h, i, j: s - slopes[h] * (i - j)
        elif self.formulas.scheme == "kerple":
            strength, rate = x["strength"], x["rate"]
            score = lambda s, b, h, i, j: s - strength[h] * torch.log1p(rate[h] * (i - j))
        return self.attend(x["q"], x["k"], x["v"], score_mod=score, block_mask=self.block_mask)

    def run(self):
        backward = None
        with torch.set_grad_enabled(self.has_backward):
            inputs = self.leaves if self.has_backward else {name: tensor.detach() for name, tensor in self.leaves.items()}
            self.output, forward = timed(lambda: self.function({**inputs, **self.repeated(inputs)}))
            if self.has_backward:
                self.gradients, backward = timed(lambda: torch.autograd.grad(self.output, list(self.leaves.values()), self.cotangent))
        return {"forward_ms": forward, "backward_ms": backward}

    def repeated(self, x):
        """Keys and values for each head of queries, as transformers' models hand them to an attention of this kind."""
        return {name: x[name].repeat_interleave(x["q"].shape[1] // x[name].shape[1], 1) for name in "kv" if x[name].shape[1] < x["q"].shape[1]}

    def forget(self):
        self.output = self.gradients = None

    def operand_mib(self):
        """What a run leaves that is no surplus: the output, and the gradients of q, k and v."""
        return sum(self.leaves[name].nbytes for name in ("qqkv" if self.has_backward else "q")) / 2**20

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
            q, k, v = (self.linear(normed, f"{path}attention.{name}").view(*x.shape[:2], -1, self.dim // self.heads).transpose(1, 2)
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
        key_heads = self.p["blocks.0.attention.key.weight"].shape[0] * self.heads // self.dim
        self.kept = torch.zeros(2, self.layers, 1, key_heads, self.length, self.dim // self.heads, device=self.device)

    def attention(self, q, k, v, layer, begin):
        end = begin + q.shape[2]
        self.kept[0, layer, :, :, begin:end], self.kept[1, layer, :, :, begin:end] = k, v
        mask = self.formulas.mask[begin:end, :end]
        if self.scheme == "alibi":
            mask = mask + self.formulas.alibi[:, :, begin:end, :end]
        k, v = (self.kept[which, layer, :, :, :end] for which in (0, 1))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=k.shape[1] < self.heads)

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


def forget():
    """Compiled code goes too: after eight forms of one function PyTorch would compile no more of them."""
    global work
    work = None
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if on_gpu():
        torch.cuda.empty_cache()
    ctypes.CDLL(None).malloc_trim(0)
    return {}


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
        elif request["do"] == "forget":
            answer(forget())
        else:
            answer({}, work.results())
    except Exception as problem:  # the reader decides what it means
        answer({"failed": f"{type(problem).__name__}: {problem}".splitlines()[0][:300]})
