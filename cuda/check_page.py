"""The page that cuda/check files: tables of what was measured, and of the kernels of a step in ncu's words or the emulator's."""
import csv
import re

NANOSECONDS = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6}  # by ncu's names, of all its versions
ROWS_OF_KERNELS = 24


def short(name):
    """A kernel's name without namespaces and template arguments, but with the function that it computes.
    >>> short("void whence::gpu::kernel<whence::gpu::<unnamed>::BinaryPacks<whence::BFloat16, whence::functions::Add>>(T1)")
    'BinaryPacks Add'
    >>> short("void whence::gpu::kernel<whence::gpu::(anonymous namespace)::SortTile>(T1)")
    'SortTile'
    >>> short("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1>(T1::Params)")
    'cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align1'
    >>> short("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT")
    'nvjet (cuBLAS)'
    >>> short("void cublasLt::epilogue::impl::globalKernel<8, 32, float>(T4)")
    'globalKernel'
    """
    function = re.search(r"functions::(\w+)", name)
    name = name.replace("<unnamed>::", "").replace("(anonymous namespace)::", "")
    inner = re.search(r"\b(?:kernel|Kernel2?|for_each_index)<(.*)>\(", name)
    head = re.split(r"[<(]", inner[1] if inner else name.removeprefix("void "))[0].split("::")[-1].strip()
    if head.startswith("nvjet"):
        return "nvjet (cuBLAS)"
    return head + (" " + function[1] if function else "")


def kernels_of_a_step(said, marker="CrossEntropy"):
    """[[kernel, launches, us of all], ...] of one step, the longest first, from `ncu --csv --page raw` over several steps: what lies between
    the last two launches of the marker, which each step has once. None where it was launched less than twice.
    >>> step = [("CrossEntropy<float>", "2,000"), ("Softmax<float, 4>", "500"), ("Softmax<float, 4>", "700")]
    >>> rows = [f'"{n}","void whence::gpu::kernel<whence::gpu::<unnamed>::{name}>(T1)","{ns}"' for n, (name, ns) in enumerate(2 * step)]
    >>> words = ["==PROF== Connected", '"ID","Kernel Name","gpu__time_duration.sum"', '"","","ns"', *rows, '{"bench":"step"}']
    >>> kernels_of_a_step("\\n".join(words))
    [['CrossEntropy', 1, 2.0], ['Softmax', 2, 1.2]]
    >>> kernels_of_a_step("==ERROR== no kernels were profiled") is None
    True
    """
    rows = list(csv.reader(line for line in said.splitlines() if line.startswith('"')))
    if len(rows) < 3:
        return None
    name, time = (rows[0].index(column) for column in ("Kernel Name", "gpu__time_duration.sum"))
    scale = NANOSECONDS[rows[1][time]] / 1e3
    launches = [(short(row[name]), float(row[time].replace(",", "")) * scale) for row in rows[2:]]
    ends = [at for at, (kernel, _) in enumerate(launches) if kernel == marker]
    if len(ends) < 2:
        return None
    found = {}
    for kernel, us in launches[ends[-2]:ends[-1]]:
        total = found.setdefault(kernel, [kernel, 0, 0.0])
        total[1] += 1
        total[2] += us
    return sorted(([kernel, count, round(us, 1)] for kernel, count, us in found.values()), key=lambda row: -row[2])


COUNTERS = {"gpu__time_duration.sum": "ns", "sm__inst_executed.avg.per_cycle_active": "instructions a clock", "sm__warps_active.avg.per_cycle_active": "warps",
            "lts__t_sectors_op_write.sum": "sectors written", "dram__bytes.sum": "bytes of HBM",
            "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio": "wait for code",
            "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "for memory",
            "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "for results"}


def counters_of_kernels(said):
    """[[kernel, number of each of COUNTERS], ...] of the last launch of each kernel, from `ncu --csv --page raw`.
    >>> words = ['"Kernel Name",' + ",".join(f'"{name}"' for name in COUNTERS), '"",' + ",".join(['""'] * len(COUNTERS))]
    >>> counters_of_kernels("\\n".join([*words, '"void kernel<whence::gpu::MixForward<T, 3>>(T1)",' + ",".join(f'"{n},000"' for n in range(len(COUNTERS)))]))
    [['MixForward', 0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0]]
    """
    rows = list(csv.reader(line for line in said.splitlines() if line.startswith('"')))
    if len(rows) < 3:
        return []
    places = [rows[0].index(name) for name in COUNTERS]
    found = {row[rows[0].index("Kernel Name")]: [float(row[at].replace(",", "")) for at in places] for row in rows[2:]}
    return [[short(name), *numbers] for name, numbers in found.items()]


def launches_counted(said):
    """The same from the emulator's table, which counts launches and knows no time.
    >>> launches_counted("kernel (emulated; bytes)       launches  blocks\\ncopy, rows in packs       42      3\\nall 1       42      3")
    [['copy, rows in packs', 42, None]]
    """
    table = said[said.index("kernel (emulated; bytes)"):].splitlines()[1:]
    found = (re.match(r"(\S.*?) {2,}(\d+) ", line) for line in table)
    return [[row[1], int(row[2]), None] for row in found if row and not re.fullmatch(r"all \d+", row[1])]


def kernel_table(kernels):
    lines = ["| ms | launches | us each | kernel |", "|---|---|---|---|"]
    for kernel, launches, us in kernels[:ROWS_OF_KERNELS]:
        lines.append(f"| - | {launches} | - | {kernel} |" if us is None else f"| {us / 1e3:.2f} | {launches} | {us / launches:.0f} | {kernel} |")
    total = "-" if kernels[0][2] is None else f"{sum(us for _, _, us in kernels) / 1e3:.2f}"
    return lines + [f"| {total} | {sum(launches for _, launches, _ in kernels)} | | all {len(kernels)} |"]


def step_table(stages):
    """Ours over PyTorch eager and compiled by precision, tokens per second."""
    lines = ["| precision | whence tokens/s | whence, one graph | PyTorch eager | compiled | whence / eager | graph / compiled |",
             "|---|---|---|---|---|---|---|"]
    for precision in ("bf16", "f32", "f16"):
        found = stages.get("train_" + precision, {}).get("found", {})
        speeds = {row["form"]: row["tokens_per_second"] for row in found.get("rows", []) if row["scheme"] == "absolute"}
        if not speeds:
            continue
        speeds |= {row["way"]: row["batch"] * row["length"] / row["theirs_ms"] * 1e3 for row in found["beside"]}
        ours, graph, eager, compiled = (speeds.get(name, float("nan")) for name in ("steps", "graph", "eager", "compile"))
        cells = [f"{ours:.0f}", f"{graph:.0f}", f"{eager:.0f}", f"{compiled:.0f}", f"{ours / eager:.2f}", f"{graph / compiled:.2f}"]
        lines.append(f"| {precision} | " + " | ".join(cells).replace("nan", "-") + " |")
    return lines


def scheme_table(rows):
    """Our steps as one graph, by scheme."""
    found = {row["scheme"]: row for row in rows if row.get("form") == "graph"}
    lines = ["| bf16, one graph | tokens/s | ms | over alibi's |", "|---|---|---|---|"]
    for scheme, row in found.items():
        lines.append(f"| {scheme} | {row['tokens_per_second']:.0f} | {row['both_ms']:.1f} | {row['both_ms'] / found['alibi']['both_ms']:.2f} |")
    return lines


def table(rows, keys, column_of):
    """A line for each of what `keys` names, a column for each executor or way of PyTorch: forward / backward ms."""
    columns = list(dict.fromkeys(column_of(row) for row in rows))
    lines = ["| " + " | ".join([*keys, *(f"{column}, forward / backward ms" for column in columns)]) + " |", "|---" * (len(keys) + len(columns)) + "|"]
    cells = {}
    for row in rows:
        cells.setdefault(tuple(row[key] for key in keys), {})[column_of(row)] = f"{row['forward_ms']:.3f} / {row['backward_ms']:.3f}"
    return lines + ["| " + " | ".join([*map(str, of), *(found.get(column, "-") for column in columns)]) + " |" for of, found in cells.items()]


def beside(stage):
    """PyTorch's rows as table() reads ours."""
    return [{**row, "executor": "PyTorch " + row["way"], "forward_ms": row["theirs_forward_ms"],
             "backward_ms": row.get("theirs_backward_ms", float("nan")), "dtype": row["precision"]} for row in stage["found"]["beside"]]


def page(facts, stages, names):
    """Of what passed; what did not is named, and no number of it is shown."""
    device = facts["device"]
    lines = [f"# {device['name']}", "", f"Driver {device['driver']}, toolkit {device['toolkit']}, code {facts['code_hash']}.", ""]
    if isinstance(facts["programs"], dict):
        lines += [f"The programs were given, not built here: {facts['programs']['version']}. That they are of this code nobody has checked.", ""]
    lines += ["| stage | outcome | s | |", "|---|---|---|---|"]
    for name in filter(stages.get, names):
        stage = stages[name]
        remark = stage["found"].get("summary", "") if stage["outcome"] == "passed" else stage["reason"]
        lines.append(f"| {name} | {stage['outcome']} | {stage['seconds']} | {remark.replace('|', chr(92) + '|')} |")
    if missing := [name for name in names if name not in stages]:
        lines += ["", f"Not run: {', '.join(missing)}."]
    passed = {name: stages[name] for name in names if name in stages and stages[name]["outcome"] == "passed"}
    if any(name.startswith("train_") for name in passed):
        lines += ["", "## A training step" + ("" if facts["emulated"] else " of 124M parameters, 16 sequences of 512 tokens"), "", *step_table(passed)]
    if "train_bf16" in passed:
        lines += ["", *scheme_table(passed["train_bf16"]["found"]["rows"])]
    for name in passed:
        if name.startswith("profile_"):
            lines += ["", "## Kernels of a step: " + passed[name]["found"]["scheme"], "", *kernel_table(passed[name]["found"]["kernels"])]
    if rows := passed.get("counters", {}).get("found", {}).get("counters"):
        lines += ["", "## Counters of the mix", "", "| kernel | " + " | ".join(COUNTERS.values()) + " |", "|---" * (len(COUNTERS) + 1) + "|"]
        lines += ["| " + " | ".join([kernel, *(f"{number:.4g}" for number in numbers)]) + " |" for kernel, *numbers in rows]
    if op_rows := [row for name in ("ops_bf16", "ops_f32") if name in passed for row in [*passed[name]["found"]["rows"], *beside(passed[name])]]:
        lines += ["", "## Ops", "", *table(op_rows, ("op", "precision"), lambda row: row.get("executor", "whence"))]
    if rows := [row for name in ("attention", "attention_bf16") if name in passed for row in [*passed[name]["found"]["rows"], *beside(passed[name])]]:
        lines += ["", "## Attention", "", *table(rows, ("scheme", "length", "dtype"), lambda row: row["executor"])]
    return lines
