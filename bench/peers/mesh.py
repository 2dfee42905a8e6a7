"""What bench-mesh times, with PyTorch: torch.distributed, DistributedDataParallel, and a block that
is divided by hand. One process for each GPU.

Usage: mesh.py all_reduce|training|block DEVICES
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, WORDS, BATCH, LENGTH = 14, 1024, 16, 16384, 8, 1024
BLOCK = {"width": 4096, "heads": 32, "head": 128, "hidden": 14336, "tokens": 4096}


def time_of(calls, call):
    """Seconds of a call: the median of some runs of several calls and a wait for the last."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / calls)
    return sorted(times)[len(times) // 2]


def say(rank, what, devices, seconds):
    if rank == 0:
        print(f"torch: {what} on {devices}: {1e6 * seconds:.1f} us", flush=True)


def time_all_reduce(rank, devices):
    for size in (8 << 10, 1 << 20, 64 << 20, 1 << 30):
        x = torch.ones(size // 4, device="cuda")

        def waited():
            dist.all_reduce(x)
            torch.cuda.synchronize()

        say(rank, f"all_reduce of {size} bytes, a call", devices, time_of(20, lambda: dist.all_reduce(x)))
        say(rank, f"all_reduce of {size} bytes, a call and its wait", devices, time_of(1, waited))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(*t.shape[:2], HEADS, -1).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words):
        x = self.words(words) + self.places(torch.arange(LENGTH, device=words.device))
        return F.cross_entropy(self.out(self.norm(self.layers(x))).float().flatten(0, 1), words.flatten())


def time_training(rank, devices):
    model = Model().cuda().bfloat16()
    count = sum(p.numel() for p in model.parameters())
    if devices > 1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    words = (torch.arange(BATCH * LENGTH, device="cuda") * 7919 % WORDS).view(BATCH, LENGTH)

    def step():
        model(words).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    say(rank, f"training step of {count} parameters", devices, time_of(3, step))


def time_block(rank, devices):
    b = BLOCK
    heads, hidden = b["heads"] // devices, b["hidden"] // devices

    def weight(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02

    ones = torch.ones(b["width"], device="cuda", dtype=torch.bfloat16)
    qkv, o = weight(b["width"], 3 * heads * b["head"]), weight(heads * b["head"], b["width"])
    gate_up, down = weight(b["width"], 2 * hidden), weight(hidden, b["width"])
    x = weight(b["tokens"], b["width"])

    def before(x):
        q, k, v = (F.rms_norm(x, (b["width"],), ones) @ qkv).chunk(3, -1)
        q, k, v = (t.view(-1, heads, b["head"]).transpose(0, 1).unsqueeze(0) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed[0].transpose(0, 1).reshape(-1, heads * b["head"]) @ o

    def between(x, y):
        x = x + y
        gate, up = (F.rms_norm(x, (b["width"],), ones) @ gate_up).chunk(2, -1)
        return x, (F.silu(gate) * up) @ down

    def after(z, y):
        return z + y

    before, between, after = torch.compile(before), torch.compile(between), torch.compile(after)

    def block():
        with torch.no_grad():
            y = before(x)
            if devices > 1:
                dist.all_reduce(y)
            z, y = between(x, y)
            if devices > 1:
                dist.all_reduce(y)
            return after(z, y)

    say(rank, f"block of {b['width']}, {b['tokens']} tokens", devices, time_of(10, block))


def run(rank, work, devices, meeting):
    # As in Braze: multicast over NVLink is off.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.cuda.set_device(rank)
    if devices > 1:
        dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=devices)
    {"all_reduce": time_all_reduce, "training": time_training, "block": time_block}[work](rank, devices)
    if devices > 1:
        dist.destroy_process_group()


def main():
    work, devices = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        if devices == 1:
            run(0, work, 1, meeting)
        else:
            torch.multiprocessing.spawn(run, (work, devices, meeting), nprocs=devices)


if __name__ == "__main__":
    main()
