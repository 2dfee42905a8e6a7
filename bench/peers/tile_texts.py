#!/usr/bin/env python3
"""Products inside loops as tile texts written by hand, beside PyTorch's libraries and compiler, on one GPU.

  tile_texts.py BRAZE TEXTS > table.md

BRAZE is the command line tool, TEXTS the folder tests/tile. Each text runs on random inputs; its result is
compared with PyTorch's (the norm of the difference over the norm), then it is timed. What these texts reach
is what the compiler should reach from plain graphs. Times are medians in microseconds: of Braze, of the
kernel as the tool's --repeat measures it; of PyTorch, of a call by triton.testing.do_bench.
"""
import argparse
import json
import math
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from triton.testing import do_bench

BF16 = torch.bfloat16
folder = tempfile.TemporaryDirectory()


def torch_us(call):
    return do_bench(call, warmup=100, rep=300, return_mode="median") * 1e3


def error(got, expected):
    return ((got.float() - expected.float()).norm() / expected.float().norm()).item()


def braze_us(arguments, name, inputs, expected, case=0):
    """Median time of the kernel; stops if the results are not those expected (a dict by name)."""
    with open(os.path.join(arguments.texts, name + ".braze")) as file:
        text = file.read().split("// ----")[case].split("// run:")[0]
    source, given, got = (os.path.join(folder.name, n) for n in ("t.braze", "in.safetensors", "out.safetensors"))
    with open(source, "w") as file:
        file.write(text)
    save_file({n: t.contiguous() for n, t in inputs.items()}, given)
    command = [arguments.braze, "run", source, "--device", "cuda:0", "--inputs", given, "--trust"]
    subprocess.run([*command, "--output", got], check=True, capture_output=True)
    for output, tensor in load_file(got).items():
        e = error(tensor.cuda(), expected[output])
        assert e < 5e-3, f"{name}: {output} differs by {e}"
    timed = subprocess.run([*command, "--repeat", "100", "--json"], check=True, capture_output=True, text=True)
    return json.loads(timed.stdout)["time"][1]["median_s"] * 1e6


def row(what, ours, peers):
    best = min(us for us in peers.values() if us)
    cells = " | ".join(f"{name} {us:.1f}" for name, us in peers.items())
    print(f"| {what} | {ours:.1f} | {cells.replace(' | ', '; ')} | {best / ours:.2f} |", flush=True)


def attention(arguments, heads=64, length=4096, width=128):
    q, k, v = (torch.randn(heads, length, width, device="cuda", dtype=BF16, requires_grad=True) for _ in range(3))
    go = torch.randn(heads, length, width, device="cuda", dtype=BF16)

    def forward():
        return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]

    inputs = {"q": q.detach(), "k": k.detach(), "v": v.detach()}
    out = forward()
    with torch.no_grad():
        peers = {"SDPA": torch_us(forward)}
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            peers["FlashAttention-2"] = torch_us(forward)
    ours = braze_us(arguments, "attention", inputs, {"o": out.detach()})
    row(f"causal attention, bf16 {heads}x{length}x{width}", ours, peers)

    def backward(o):
        return torch.autograd.grad(o, (q, k, v), go, retain_graph=True)

    grads = dict(zip(("dq", "dk", "dv"), backward(out)))
    peers = {"SDPA": torch_us(lambda: backward(out))}
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        flash = forward()
        peers["FlashAttention-2"] = torch_us(lambda: backward(flash))
    with torch.no_grad():
        seen = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()
        lse = torch.stack([
            torch.logsumexp(((a.float() @ b.float().T) / math.sqrt(width)).masked_fill(~seen, -math.inf), -1)
            for a, b in zip(q, k)]) * math.log2(math.e)
        delta = (go.float() * out.float()).sum(-1)
        row_sums = torch.compile(lambda a, b: (a.float() * b.float()).sum(-1))
        sums = torch_us(lambda: row_sums(go, out))
    inputs |= {"go": go, "lse": lse, "delta": delta}
    ours = [braze_us(arguments, name, inputs, grads) for name in ("attention_queries", "attention_keys")]
    row(f"its gradients: walks over keys ({ours[0]:.1f}) and queries ({ours[1]:.1f}), row sums by torch.compile ({sums:.1f})",
        sum(ours) + sums, peers)


def gated(arguments, m=4096, k=4096, n=14336):
    x = torch.randn(m, k, device="cuda", dtype=BF16)
    w, g = (torch.randn(k, n, device="cuda", dtype=BF16) / math.sqrt(k) for _ in range(2))

    def call():
        return F.silu(x @ g) * (x @ w)

    compiled, tuned = torch.compile(call), torch.compile(call, mode="max-autotune-no-cudagraphs")
    expected = F.silu((x @ g).float()) * (x @ w).float()
    ours = braze_us(arguments, "gated_product", {"x": x, "w": w, "g": g}, {"y": expected})
    row(f"silu(x·g) * (x·w), bf16 {m}x{k}x{n}", ours,
        {"torch": torch_us(call), "torch.compile": torch_us(compiled), "max-autotune": torch_us(tuned)})


def convolution(arguments, case, size, channels, images=64):
    torch.backends.cudnn.benchmark = True
    x = torch.randn(images, channels, size, size, device="cuda", dtype=BF16).to(memory_format=torch.channels_last)
    w = (torch.randn(channels, channels, 3, 3, device="cuda", dtype=BF16) / math.sqrt(9 * channels)).to(
        memory_format=torch.channels_last)
    b = torch.randn(channels, device="cuda", dtype=BF16)

    def call():
        return F.relu(F.conv2d(x, w, b, padding=1))

    compiled = torch.compile(call)
    expected = F.relu(F.conv2d(x.float(), w.float(), b.float(), padding=1)).permute(0, 2, 3, 1)
    inputs = {"x": x.permute(0, 2, 3, 1), "w": w.permute(2, 3, 1, 0), "b": b.float()}
    ours = braze_us(arguments, "convolution", inputs, {"y": expected}, case)
    row(f"relu(conv 3x3 + b), bf16, NHWC {images}x{size}x{size}x{channels}", ours,
        {"torch": torch_us(call), "torch.compile": torch_us(compiled),
         "cuDNN's convolution alone": torch_us(lambda: F.conv2d(x, w, padding=1))})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("braze")
    parser.add_argument("texts")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| workload | Braze us | peers us | best peer / Braze |\n| --- | ---: | --- | ---: |")
    attention(arguments)
    gated(arguments)
    convolution(arguments, 0, 56, 64)
    convolution(arguments, 1, 14, 256)


if __name__ == "__main__":
    main()
