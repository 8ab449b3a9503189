"""PyTorch beside whence: reads requests from standard input and answers on standard output, as peer.h describes.
  {"do": "prepare", "bench": ..., "way": ..., sizes}   tensors in; warmed up when it answers
  {"do": "run"}                                        one repetition: {"forward_ms", "backward_ms"}
  {"do": "results"}                                    what came out, as tensors; {"peak_mib"}: above the operands
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
KINDS = {"f32": torch.float32, "i64": torch.int64}


def answer(fields, tensors=()):
    tensors = [(name, tensor.detach().to("cpu", torch.float32).contiguous()) for name, tensor in tensors]
    heads = [[name, "f32", list(tensor.shape)] for name, tensor in tensors]
    answers.write(json.dumps({**fields, "tensors": heads}).encode() + b"\n")
    for _, tensor in tensors:
        answers.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * 4))
    answers.flush()


def receive(heads):
    tensors = {}
    for name, kind, shape in heads:
        kind = KINDS[kind]
        content = bytearray(source.read(math.prod(shape) * kind.itemsize))
        tensors[name] = torch.frombuffer(content, dtype=kind).reshape(shape).clone()
    return tensors


def status(key):
    """Of this process in MiB: VmRSS now, VmHWM at its highest."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(key))


class Attention:
    """One attention, q k v -> output, with the scheme's formula in the listing of its paper."""

    def __init__(self, request, tensors):
        self.cotangent = tensors.pop("cotangent").to(request["device"])
        self.leaves = {name: tensor.to(request["device"]).requires_grad_() for name, tensor in tensors.items()}
        self.scheme, self.way, self.causal = request["scheme"], request["way"], request["causal"]
        q = self.leaves["q"]
        self.heads, length, dim = q.shape[1:]
        self.scale = 1 / math.sqrt(dim)
        at = torch.arange(length, device=q.device)
        self.mask = torch.full((length, length), -math.inf, device=q.device).triu(1)
        self.distance = (at[:, None] - at[None, :]).clamp(min=0).float()
        power = 2 ** int(math.log2(self.heads))
        slopes = [2 ** (-8 * (h + 1) / power) for h in range(power)] + [2 ** (-8 * (2 * h + 1) / (2 * power)) for h in range(self.heads - power)]
        self.slopes = torch.tensor(slopes, device=q.device)
        self.alibi = -self.slopes[None, :, None, None] * self.distance
        self.function = {"eager": self.composed, "sdpa": self.sdpa, "flex": self.flex}.get(self.way) or torch.compile(self.composed, dynamic=False)
        self.has_backward = self.way != "flex" or q.is_cuda
        if self.way == "flex":
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention
            self.attend = torch.compile(flex_attention, dynamic=False)
            self.block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=q.device.type)

    def bias(self, x, base):
        if base == "alibi":
            return self.alibi
        rate, strength = (next(tensor for name, tensor in x.items() if name.endswith(end)) for end in ("rate", "strength"))
        return -strength[None, :, None, None] * torch.log1p(rate[None, :, None, None] * self.distance)

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
        elif self.scheme != "none":  # dape(base), cdape(base)
            bias = self.bias(x, self.scheme[self.scheme.index("(") + 1:-1])
            both = torch.cat((s, bias.expand(s.shape[0], -1, -1, -1)), 1)
            weights = [x[name] for name in ("hidden.weight", "hidden.bias", "output.weight", "output.bias")]
            if self.scheme.startswith("dape"):
                hidden = F.leaky_relu(F.linear(both.permute(0, 2, 3, 1), weights[0], weights[1]))
                mixed = F.linear(hidden, weights[2], weights[3]).permute(0, 3, 1, 2)
            else:
                pad = (0, weights[0].shape[-1] // 2)
                hidden = F.leaky_relu(F.conv2d(torch.tril(both), weights[0], weights[1], padding=pad))
                mixed = F.conv2d(hidden, weights[2], weights[3], padding=pad)
            s = s + bias + mixed
        return torch.matmul(torch.softmax(s + self.mask, -1), x["v"])

    def sdpa(self, x):
        if self.scheme == "none":
            return F.scaled_dot_product_attention(x["q"], x["k"], x["v"], is_causal=True)
        return F.scaled_dot_product_attention(x["q"], x["k"], x["v"], attn_mask=self.bias(x, self.scheme) + self.mask)

    def flex(self, x):
        score = None
        if self.scheme == "alibi":
            slopes = self.slopes
            score = lambda s, b, h, i, j: s - slopes[h] * (i - j)
        elif self.scheme == "kerple":
            strength, rate = x["strength"], x["rate"]
            score = lambda s, b, h, i, j: s - strength[h] * torch.log1p(rate[h] * (i - j))
        return self.attend(x["q"], x["k"], x["v"], score_mod=score, block_mask=self.block_mask)

    def run(self):
        with torch.set_grad_enabled(self.has_backward):
            inputs = self.leaves if self.has_backward else {name: tensor.detach() for name, tensor in self.leaves.items()}
            wait()
            start = time.perf_counter()
            self.output = self.function(inputs)
            wait()
            middle = time.perf_counter()
            if self.has_backward:
                self.gradients = torch.autograd.grad(self.output, list(self.leaves.values()), self.cotangent)
                wait()
        end = time.perf_counter()
        return {"forward_ms": (middle - start) * 1e3, "backward_ms": (end - middle) * 1e3 if self.has_backward else None}

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


BENCHES = {"attention": Attention}
work = None


def wait():
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def measured_peak():
    """MiB of one run above its operands, after what PyTorch and its compiler keep was given back as far as it can be."""
    work.forget()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
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
    peak = measured_peak()
    work.run()
    return {"peak_mib": max(0, peak)}


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
