#!/usr/bin/env python3
"""Measures attention, decoding, skinny products and a gated MLP beside the libraries, and writes one table.

  floors.py                                       on cuda:0, in a few minutes
  floors.py --only decode,products --out floors.md
  PYTHON=/opt/torch/bin/python floors.py          the interpreter that has torch; without torch its columns stay blank

It needs Python alone and the program `braze` in a folder (--bin; default: that of an unpacked bundle or of build/release), and for
the peers torch with CUDA. Peers are library calls: scaled_dot_product_attention, forward and backward apart; cuBLAS; a copy. The
table is written again after each measurement, so a run that is cut off leaves what it has. Parts: attention, backward (gradients
alone), step (the result and the gradients), decode, products, mlp. convolution_floors.py does the same for convolutions.

Braze and the peers are judged by one clock: what a call adds when many follow one another and only the last one is waited for, the
median of several samples. Calls of a peer that are shorter than SHORT seconds are recorded in a CUDA graph, so that the work of
Python does not count. A whole call of Braze with its wait stands beside it. On a CPU both are single calls.
"""
import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PARTS = ("attention", "backward", "step", "decode", "products", "mlp")
SHORT = 100e-6  # seconds
SAMPLE = 20e-3  # seconds that a sample of a peer takes at most, if it has several calls


# --- Graphs ---------------------------------------------------------------------------------------


class Graph:
    """Text of a graph, op by op."""

    def __init__(self):
        self.inputs, self.lines = [], []

    def input(self, name, kind):
        self.inputs.append(f"%{name}: {kind}")
        return f"%{name}"

    def op(self, text):
        self.lines.append(f"  %{len(self.lines)} = {text}")
        return f"%{len(self.lines) - 1}"

    def text(self, **outputs):
        named = ", ".join(f'{value} as "{name}"' for name, value in outputs.items())
        return f"braze 1 graph\ngraph @floor({', '.join(self.inputs)}) {{\n" + "\n".join(self.lines) + f"\n  return {named}\n}}\n"


def attention(batch, groups, heads, n, m, width, causal, part="attention"):
    """Of queries [batch, groups * heads, n, width] that share keys [batch, groups, m, width] in bf16: the result, its gradients, or both."""
    g = Graph()
    q, k, v = (g.input(name, f"bf16[{batch}, {count}, {rows}, {width}]")
               for name, count, rows in (("q", groups * heads, n), ("k", groups, m), ("v", groups, m)))
    own, pairs, rows = f"[{batch}, {groups}, {heads}, {n}, {width}]", f"[{batch}, {groups}, {heads}, {n}, {m}]", f"[{batch}, {groups}, {heads}, {n}]"
    over_width, over_keys = "{batch: [0, 1] x [0, 1], contract: [4] x [3]}", "{batch: [0, 1] x [0, 1], contract: [4] x [2]}"
    over_rows = "{batch: [0, 1] x [0, 1], contract: [2, 3] x [2, 3]}"
    spread = lambda x: g.op(f"broadcast {x} {{axes: [0, 1, 2, 3]}} : f32{pairs}")
    queries = g.op(f"reshape {q} : bf16{own}")
    scale, low, zero = g.op(f"constant {width ** -0.5} : f32[]"), g.op("constant -inf : f32[]"), g.op("constant 0 : f32[]")
    scores = g.op(f"dot {queries}, {k} {over_width} : f32{pairs}")
    scores = g.op(f"mul {scores}, {scale} : f32{pairs}")
    if causal:
        row, column = (g.op(f"iota {{axis: {axis}}} : i32[{n}, {m}]") for axis in (0, 1))
        seen = g.op(f"le {column}, {row} : bool[{n}, {m}]")
        seen = g.op(f"broadcast {seen} {{axes: [3, 4]}} : bool{pairs}")
        scores = g.op(f"select {seen}, {scores}, {low} : f32{pairs}")
    most = spread(g.op(f"reduce max {scores} {{axes: [4]}} : f32{rows}"))
    e = g.op(f"exp {g.op(f'sub {scores}, {most} : f32{pairs}')} : f32{pairs}")
    total = spread(g.op(f"reduce sum {e} {{axes: [4]}} : f32{rows}"))
    p = g.op(f"div {e}, {total} : f32{pairs}")
    half = g.op(f"convert {p} : bf16{pairs}")
    y = {}
    if part != "backward":
        mixed = g.op(f"dot {half}, {v} {over_keys} : bf16{own}")
        y = {"y": g.op(f"reshape {mixed} : bf16[{batch}, {groups * heads}, {n}, {width}]")}
    if part in ("attention", "decode"):
        return g.text(**y)
    arriving = g.op(f"reshape {g.input('g', f'bf16[{batch}, {groups * heads}, {n}, {width}]')} : bf16{own}")
    of_p = g.op(f"dot {arriving}, {v} {over_width} : bf16{pairs}")
    dv = g.op(f"dot {half}, {arriving} {over_rows} : bf16[{batch}, {groups}, {m}, {width}]")
    of_p = g.op(f"convert {of_p} : f32{pairs}")
    quotient = g.op(f"div {of_p}, {total} : f32{pairs}")
    lost = g.op(f"mul {g.op(f'neg {of_p} : f32{pairs}')}, {p} : f32{pairs}")
    lost = g.op(f"div {lost}, {total} : f32{pairs}")
    lost = spread(g.op(f"reduce sum {lost} {{axes: [4]}} : f32{rows}"))
    of_scores = g.op(f"mul {g.op(f'add {quotient}, {lost} : f32{pairs}')}, {e} : f32{pairs}")
    if causal:
        of_scores = g.op(f"select {seen}, {of_scores}, {zero} : f32{pairs}")
    of_scores = g.op(f"convert {g.op(f'mul {of_scores}, {scale} : f32{pairs}')} : bf16{pairs}")
    dq = g.op(f"dot {of_scores}, {k} {over_keys} : bf16{own}")
    dk = g.op(f"dot {of_scores}, {queries} {over_rows} : bf16[{batch}, {groups}, {m}, {width}]")
    return g.text(**y, dq=g.op(f"reshape {dq} : bf16[{batch}, {groups * heads}, {n}, {width}]"), dk=dk, dv=dv)


def product(m, k, n):
    g = Graph()
    x, w = g.input("x", f"bf16[{m}, {k}]"), g.input("w", f"bf16[{k}, {n}]")
    return g.text(y=g.op(f"dot {x}, {w} {{contract: [1] x [0]}} : bf16[{m}, {n}]"))


def gated_mlp(m, width, hidden):
    g = Graph()
    x, down = g.input("x", f"bf16[{m}, {width}]"), g.input("down", f"bf16[{hidden}, {width}]")
    gate, up = (g.op(f"dot {x}, {g.input(name, f'bf16[{width}, {hidden}]')} {{contract: [1] x [0]}} : bf16[{m}, {hidden}]")
                for name in ("gate", "up"))
    h = g.op(f"mul {g.op(f'silu {gate} : bf16[{m}, {hidden}]')}, {up} : bf16[{m}, {hidden}]")
    return g.text(y=g.op(f"dot {h}, {down} {{contract: [1] x [0]}} : bf16[{m}, {width}]"))


# --- Peers. This part runs in the interpreter that has torch: floors.py --peers DEVICE < work -----


def library_seconds(call, device):
    """What a call adds when many follow one another; on a CPU the time of a call."""
    import torch

    for _ in range(3):
        call()
    if device == "cpu":
        times = []
        for _ in range(7):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return sorted(times)[3]

    def in_a_row(calls, count, samples=9):
        times = []
        for _ in range(samples):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            calls()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) / (1e3 * count))
        return sorted(times)[samples // 2]

    count = max(1, min(20, int(SAMPLE / in_a_row(call, 1, 3))))
    plain = in_a_row(lambda: [call() for _ in range(count)], count)
    if plain > SHORT:
        return plain
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return min(plain, in_a_row(graph.replay, count))


def run_peer(name, sizes, device):
    import torch
    import torch.nn.functional as F

    new = lambda *shape: torch.randn(shape, device=device, dtype=torch.bfloat16)
    seconds = lambda call: library_seconds(call, device)
    if name in ("attention", "backward", "step"):
        batch, groups, heads, n, m, width, causal = sizes
        q, k, v = new(batch, groups * heads, n, width), new(batch, groups, m, width), new(batch, groups, m, width)
        forward = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=heads > 1)
        if name == "attention":
            return seconds(forward)
        inputs = [x.requires_grad_() for x in (q, k, v)]
        y, direction = forward(), new(batch, groups * heads, n, width)
        if name == "step":
            return seconds(lambda: torch.autograd.grad(forward(), inputs, direction))
        return seconds(lambda: torch.autograd.grad(y, inputs, direction, retain_graph=True))
    if name == "decode":  # a copy that reads and writes as many bytes as keys and values have
        batch, groups, _, _, m, width, _ = sizes
        source = new(batch, groups, m, width)
        target = torch.empty_like(source)
        return seconds(lambda: target.copy_(source))
    if name == "products":
        m, k, n = sizes
        x, w, transposed = new(m, k), new(k, n), new(n, k)
        return min(seconds(lambda: x @ w), seconds(lambda: F.linear(x, transposed)))
    m, width, hidden = sizes
    x, gate, up, down = new(m, width), new(width, hidden), new(width, hidden), new(hidden, width)
    return seconds(lambda: (F.silu(x @ gate) * (x @ up)) @ down)


# --- The table ------------------------------------------------------------------------------------


class Floors:
    def __init__(self, arguments):
        self.arguments, self.rows, self.machine = arguments, [], ""

    def write(self):
        lines = [f"# Floors of attention and products, {datetime.date.today()}", "", self.machine, ""]
        lines += ["| work | kernels | Braze | a call with its wait | library | library / Braze | floor | met |",
                  "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        text = "\n".join(lines) + "\n"
        if self.arguments.out:
            with open(self.arguments.out, "w") as file:
                file.write(text)
        return text

    def braze(self, text):
        """The number of kernels, the time of calls in a row and that of a call with its wait; None if it fails."""
        with tempfile.NamedTemporaryFile("w", suffix=".braze") as file:
            file.write(text)
            file.flush()
            try:
                ran = subprocess.run([os.path.join(self.arguments.bin, "braze"), "run", file.name, "--device", self.arguments.device,
                                      "--repeat", "50", "--json"], capture_output=True, text=True, timeout=self.arguments.limit)
            except subprocess.TimeoutExpired as error:
                print(error, file=sys.stderr)
                return None
        if ran.returncode != 0:
            print(ran.stderr, file=sys.stderr)
            return None
        found = json.loads(ran.stdout)
        call = found["time"][0]["median_s"]
        return found["kernels"], found.get("in_a_row_s", call), call

    def peers(self, work):
        """The time of the library for each (name, sizes), in one process; None where there is none."""
        if not self.arguments.torch:
            return [None] * len(work)
        device = "cpu" if self.arguments.device.split(":")[0] == "cpu" else "cuda"
        ran = subprocess.run([self.arguments.torch, os.path.abspath(__file__), "--peers", device], input=json.dumps(work),
                             stdout=subprocess.PIPE, text=True, timeout=10 * self.arguments.limit)
        times = [None if line == "failed" else float(line) for line in ran.stdout.split()]
        return times + [None] * (len(work) - len(times))

    def add(self, work, text, floor, them):
        own = self.braze(text)
        shown = lambda s: "" if s is None else f"{1e6 * s:.1f} us"
        ratio = them / own[1] if own and them else None
        met = "failed" if not own else "" if ratio is None or floor is None else "yes" if ratio >= floor else "no"
        count, in_a_row, call = own or (None, None, None)
        self.rows.append((work, "" if count is None else str(count), shown(in_a_row), shown(call), shown(them),
                          "" if ratio is None else f"{ratio:.2f}", "" if floor is None else f"{floor:.2f}", met))
        self.write()


def torch_python(device):
    """The interpreter that has torch for a device of Braze, or None."""
    python = os.environ.get("PYTHON", sys.executable)
    needed = "import torch" if device.startswith("cpu") else "import torch; assert torch.cuda.is_available()"
    return python if subprocess.run([python, "-c", needed], capture_output=True).returncode == 0 else None


def machine_of(folder, device):
    """What the program braze in a folder says about a device, in a line."""
    listed = subprocess.run([os.path.join(folder, "braze"), "devices"], capture_output=True, text=True).stdout
    return next((line.strip() for line in listed.splitlines() if line.strip().startswith(device + " ")), device)


def add_options(parser):
    """What the scripts of floors share."""
    folders = [folder for folder in (os.path.join(ROOT, "bin"), os.path.join(ROOT, "build", "release", "bin")) if os.path.isdir(folder)]
    parser.add_argument("--bin", default=folders[0] if folders else ".", help="folder with the programs")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one measurement")


def work_of(part, small):
    """What is measured: its title, the name and the sizes for its peer, its graph, its floor."""
    out = []
    less = (lambda n: max(n // 64, 1)) if small else (lambda n: n)
    if part in ("attention", "backward", "step"):
        shapes = [(4, 16, 4096, 128, 0.85, 0.6), (16, 16, 1024, 64, 0.75, None), (4, 8, 4096, 256, 0.75, None)]
        for batch, heads, n, width, forward, backward in shapes if part == "attention" else shapes[:1]:
            for causal in (0, 1):
                sizes = (less(batch), less(heads), 1, less(n), less(n), width, causal)
                what = f"{batch}x{heads}x{n}x{width}, {'causal' if causal else 'full'}"
                title, floor = {"attention": (f"attention {what}", forward),
                                "backward": (f"gradients of attention {what}; SDPA's backward alone", backward),
                                "step": (f"attention {what} and its gradients; SDPA forward and backward", None)}[part]
                out.append((title, part, sizes, attention(*sizes, part=part), floor))
    elif part == "decode":
        for batch, keys in ((1, 8192), (1, 65536), (4, 32768), (16, 8192), (16, 32768)):
            sizes = (less(batch), 8, 4, 1, less(keys), 128, 0)
            out.append((f"one query, 32 heads in 8 groups, {keys} keys, batch {batch}; a copy of as many bytes", part, sizes, attention(*sizes), 0.8))
    elif part == "products":
        for m in (1, 3, 16, 24, 64, 200):
            sizes = (m, less(8192), less(8192))
            out.append((f"{m}x8192x8192", part, sizes, product(*sizes), 1.05))
    else:
        sizes = (less(4096), less(4096), less(14336))
        out.append(("gated MLP 4096x4096x14336", part, sizes, gated_mlp(*sizes), 1.03))
    return out


def main():
    if sys.argv[1:2] == ["--peers"]:
        for name, sizes in json.load(sys.stdin):
            try:
                print(run_peer(name, sizes, sys.argv[2]), flush=True)
            except RuntimeError as error:
                print("failed", flush=True)
                print(f"{name} {sizes}: {error}", file=sys.stderr)
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--device", default="cuda:0", help="a device of Braze; peers run on the first GPU, or on the CPU for cpu")
    parser.add_argument("--out", help="file for the table")
    parser.add_argument("--only", default="all", help="parts: " + ", ".join(PARTS) + ", all")
    arguments = parser.parse_args()
    arguments.torch = torch_python(arguments.device)
    parts = PARTS if arguments.only == "all" else arguments.only.split(",")
    for part in parts:
        if part not in PARTS:
            parser.error(f"{part} is not a part")
    floors = Floors(arguments)
    floors.machine = machine_of(arguments.bin, arguments.device)
    work = [one for part in parts for one in work_of(part, arguments.small)]
    peers = floors.peers([(name, sizes) for _, name, sizes, _, _ in work])
    for (title, _, _, text, floor), them in zip(work, peers):
        floors.add(title, text, floor, them)
    print(floors.write())
    return 1 if any(row[-1] in ("no", "failed") for row in floors.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
