#!/usr/bin/env python3
"""The workloads of bench/cases/gpu.cpp in PyTorch (eager and compiled) and JAX on one GPU.

  gpu.py [--braze FILE] [--quick] [--only NAME ...] [--out RESULTS.json]

Prints a Markdown table of microseconds a call, and records it in the form that bench/figures.py reads. FILE is what `bench-gpu --benchmark_format=json` wrote in
the same session; its figures become the first columns, with their ratio to the best peer and, for
workloads that move memory, to the measured bandwidth of a copy. torch.compile is in its default
mode, for products in the faster of that and max-autotune-no-cudagraphs (marked *). Products of f32 are in f32 everywhere.
"""
import argparse
import datetime
import json
import statistics
import time

import torch
import torch.nn.functional as F

M = {"f32": torch.float32, "bf16": torch.bfloat16}


def torch_us(call, seconds=0.3):
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    samples, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 5:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(20):
            call()
        stop.record()
        stop.synchronize()
        samples.append(start.elapsed_time(stop) * 1e3 / 20)
    return statistics.median(samples)


def shapes(name):
    square, rows, long_rows = (8192, 8192), (16384, 4096), (4096, 50257)
    return {
        "scale": [square],
        "axpy": [square, square],
        "activations": [square, square, (8192,)],
        "softmax": [rows],
        "softmax_long": [long_rows],
        "add_layer_norm": [rows, rows, (4096,), (4096,)],
        "column_sum": [(16384, 8192)],
        "sum_of_squares": [(16384, 8192)],
        "transpose_add": [(8192, 16384), (16384, 8192)],
        "dot_4096": [(4096, 4096)] * 2,
        "dot_8192": [(8192, 8192)] * 2,
        "dot_tf32": [(4096, 4096)] * 2,
        "linear_gelu": [(4096, 4096), (4096, 4096), (4096,)],
        "batched_dot": [(64, 1024, 1024)] * 2,
        "linear_3d": [(16, 1000, 1024), (1024, 4096), (4096,)],
        "attention": [(8, 2048, 16, 64)] * 3,
    }[name]


NAMES = ["scale", "axpy", "activations", "softmax", "softmax_long", "add_layer_norm", "column_sum",
         "sum_of_squares", "transpose_add", "dot_4096", "dot_8192", "linear_gelu",
         "dot_tf32", "batched_dot", "linear_3d", "attention"]
ONLY_BF16 = {"dot_8192", "batched_dot", "linear_3d", "attention"}
ONLY_F32 = {"dot_tf32"}


def torch_attention(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return (torch.softmax(q @ k.transpose(2, 3) * 0.125, -1) @ v).transpose(1, 2).contiguous()


TORCH = {
    "scale": lambda x: x * 1.5,
    "axpy": lambda x, y: x * 1.5 + y,
    "activations": lambda x, y, b: torch.tanh(x * 1.5 + b) * torch.sigmoid(y) + F.gelu(x - y, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1),
    "softmax_long": lambda x: torch.softmax(x, -1),
    "add_layer_norm": lambda x, y, g, b: F.layer_norm(x + y, (4096,), g, b),
    "column_sum": lambda x: x.sum(0),
    "sum_of_squares": lambda x: (x * x).sum(),
    "transpose_add": lambda x, y: x.t() + y,
    "dot_4096": lambda x, y: x @ y,
    "dot_8192": lambda x, y: x @ y,
    "dot_tf32": lambda x, y: x @ y,
    "linear_gelu": lambda x, w, b: F.gelu(x @ w + b),
    "batched_dot": lambda x, y: x @ y,
    "linear_3d": lambda x, w, b: F.gelu(x @ w + b),
    "attention": torch_attention,
}


def jax_functions():
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_default_matmul_precision", "highest")

    def layer_norm(x, y, g, b):
        h = (x + y).astype(jnp.float32)
        d = h - h.mean(-1, keepdims=True)
        return (d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + b).astype(x.dtype)

    def attention(q, k, v):
        p = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.125, -1)
        return jnp.einsum("bhqk,bkhd->bqhd", p, v)

    functions = {
        "scale": lambda x: x * 1.5,
        "axpy": lambda x, y: x * 1.5 + y,
        "activations": lambda x, y, b: jnp.tanh(x * 1.5 + b) * jax.nn.sigmoid(y) + jax.nn.gelu(x - y),
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "softmax_long": lambda x: jax.nn.softmax(x, -1),
        "add_layer_norm": layer_norm,
        "column_sum": lambda x: x.sum(0),
        "sum_of_squares": lambda x: (x * x).sum(),
        "transpose_add": lambda x, y: x.T + y,
        "dot_4096": lambda x, y: x @ y,
        "dot_8192": lambda x, y: x @ y,
        "dot_tf32": lambda x, y: jnp.matmul(x, y, precision="tensorfloat32"),
        "linear_gelu": lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False),
        "batched_dot": lambda x, y: x @ y,
        "linear_3d": lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False),
        "attention": attention,
    }
    types = {"f32": jnp.float32, "bf16": jnp.bfloat16}

    def timed(name, dtype):
        inputs = [jax.random.normal(jax.random.PRNGKey(i), s, types[dtype]) for i, s in enumerate(shapes(name))]
        call = jax.jit(functions[name])
        call(*inputs).block_until_ready()
        samples = []
        for _ in range(10):
            start = time.perf_counter()
            for _ in range(20):
                out = call(*inputs)
            out.block_until_ready()
            samples.append((time.perf_counter() - start) * 1e6 / 20)
        return statistics.median(samples)

    return timed


def digits_rows(braze):
    """The digits training step: waits for each step, as a loop that prints the loss does."""
    import cpu

    def step_us(call):
        for _ in range(5):
            call()
        torch.cuda.synchronize()
        samples = []
        for _ in range(200):
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - start) * 1e6)
        return statistics.median(samples)

    cpu.median_ms = step_us
    times = {}
    torch.set_default_device("cuda")
    for generator in (cpu.torch_digits, cpu.jax_digits):
        try:
            times.update({peer: figure for name, peer, figure in generator() if name == "digits_step"})
        except Exception as error:
            print(generator.__name__, str(error)[:100])
    own = braze.get("digits_step")
    best = min(times.values())
    cells = ["digits_step", f"{own:.1f}" if own else "-", "-"]
    cells += [f"{times[peer]:.1f}" if peer in times else "-" for peer in ("torch", "torch.compile", "jax")]
    print("| " + " | ".join(cells + [f"{best / own:.2f}" if own else "-"]) + " |")
    return record("digits training step, batch 64", "f32", own,
                  {{"torch.compile": "compile"}.get(peer, peer): us for peer, us in times.items()})


def record(name, dtype, own, times):
    """A row of bench/results/*.json."""
    peers = {peer: {"us": us} for peer, us in times.items()}
    return {"name": name, "dtype": dtype, "peers": {"braze": {"us": own} if own else {}, **peers}}


def is_dot(name):
    return "dot" in name or "linear" in name or name == "attention"


def moved_bytes(name, dtype):
    size = 4 if dtype == "f32" else 2
    numel = lambda s: __import__("math").prod(s)
    inputs = sum(numel(s) for s in shapes(name))
    out = {"column_sum": 8192, "sum_of_squares": 1}.get(name, numel(shapes(name)[0]))
    return (inputs + out) * size


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--braze")
    parser.add_argument("--only", nargs="*", default=NAMES, help="some of " + " ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="torch eager only")
    parser.add_argument("--out", help="a JSON file for bench/results")
    options = parser.parse_args()
    braze, rows = {}, []
    if options.braze:
        for row in json.load(open(options.braze))["benchmarks"]:
            if "us" in row:
                braze[row["name"].removesuffix("/real_time")] = row["us"]
    x, y = torch.empty(1 << 28, dtype=torch.float32, device="cuda"), torch.empty(1 << 28, dtype=torch.float32, device="cuda")
    copy = 2 * x.numel() * 4 / torch_us(lambda: y.copy_(x)) / 1e3
    del x, y
    print(f"Device: {torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copy:.0f} GB/s\n")
    jax_time = None
    if not options.quick:
        try:
            jax_time = jax_functions()
        except Exception as error:  # a machine without JAX still gives a table
            print("JAX is left out:", error)
    print("| workload | Braze us | of copy | torch us | torch.compile us | JAX us | best peer / Braze |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in options.only:
        torch.set_float32_matmul_precision("high" if name == "dot_tf32" else "highest")
        for dtype in ("bf16",) if name in ONLY_BF16 else ("f32",) if name in ONLY_F32 else ("f32", "bf16"):
            inputs = [torch.randn(s, dtype=torch.float32, device="cuda").to(M[dtype]) for s in shapes(name)]
            times = {"torch": torch_us(lambda: TORCH[name](*inputs))}
            if not options.quick:
                modes = {}
                for mode in ("default", "max-autotune-no-cudagraphs")[: 2 if is_dot(name) else 1]:
                    torch._dynamo.reset()
                    compiled = torch.compile(TORCH[name], mode=mode)
                    modes[mode] = torch_us(lambda: compiled(*inputs))
                best_mode = min(modes, key=modes.get)
                times["compile"] = modes[best_mode]
            del inputs
            torch.cuda.empty_cache()
            if jax_time:
                try:
                    times["jax"] = jax_time(name, dtype)
                except Exception as error:
                    print("JAX:", name, str(error)[:80])
            own = braze.get(f"{name}/{dtype}")
            best = min(times.values())
            dot = is_dot(name)
            cells = [
                f"{name} {dtype}",
                f"{own:.1f}" if own else "-",
                f"{moved_bytes(name, dtype) / own / 1e3 / copy:.2f}" if own and not dot else "-",
                f"{times['torch']:.1f}",
                f"{times['compile']:.1f}" + "*" * (best_mode != "default") if "compile" in times else "-",
                f"{times['jax']:.1f}" if "jax" in times else "-",
                f"{best / own:.2f}" if own else "-",
            ]
            print("| " + " | ".join(cells) + " |", flush=True)
            rows.append(record(f"{name} {'x'.join(map(str, shapes(name)[0]))}", dtype, own, times))
            if own and not dot:
                rows[-1]["of_copy"] = round(moved_bytes(name, dtype) / own / 1e3 / copy, 2)
    if not options.quick and options.only == NAMES:
        rows.append(digits_rows(braze))
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"device": "cuda:0", "machine": torch.cuda.get_device_name(), "versions": {"torch": torch.__version__},
                       "date": str(datetime.date.today()), "copy_gb_per_s": round(copy), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
