# Printed equations and dying gradients in numbers: three tokens, one head of one dim, by probe. Needs torch and safetensors.
import subprocess, sys, torch
from safetensors.torch import load_file, save_file

whence = sys.argv[1] if len(sys.argv) > 1 else "build/release/whence"
squares = torch.tensor([[0], [1], [4], [9]], dtype=torch.float64)  # e[n] = n^2, so that q.e[2] = 4


def last_row(name, scheme, gate, **parameters):  # queries are 1: keys are the gates' logits, all the same
    k = torch.full((1, 1, 3, 1), gate, dtype=torch.float64).logit()
    q, v = torch.ones_like(k), torch.arange(3, dtype=k.dtype).reshape(k.shape)
    save_file({"q": q, "k": k, "v": v, "cotangent": q.clone()} | parameters, "/tmp/given.safetensors")
    command = [whence, "probe", "--scheme", scheme, "--in", "/tmp/given.safetensors", "--out", "/tmp/row.safetensors"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [round(number, 3) for number in load_file("/tmp/row.safetensors")[name].flatten()[-3:].tolist()]


for weights in "listing", "equation5":
    below, above = (last_row("position_logit", f"cope(p_max=3, interpolation={weights})", p / 3, table=squares)[0] for p in (1.999, 2.001))
    print(f"{weights}: q.e[p] = {below} just below p = 2, {above} just above")
for label, table in {"squares": squares, "zeros": 0 * squares}.items():
    print(f"table of {label}: gradients of gates {last_row('gradient.gates', 'cope(p_max=3)', 0.4, table=table)}")
print(f"open gates: positions {last_row('positions', 'cope(p_max=3)', 1 - 1e-12, table=squares)}")
for sign in "minus", "plus":
    print(f"cope_alibi, {sign}: added {last_row('position_logit', f'cope_alibi(slopes=halving, sign={sign})', 0.5)}")
