"""Tokens a second of PyTorch for the model and the turns of bench-decode: a static cache of keys and values, f16 weights, and a step
compiled with mode reduce-overhead, which records CUDA graphs (TORCH_LOGS=perf_hints says where it does not).

Usage: decode_torch.py [--device NAME] [--tokens N] [--context N] [--turns N] [--dtype NAME] [--mode NAME]
"""
import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, KV_HEADS, SIZE, HIDDEN, TOKENS, BASE = 30, 576, 9, 3, 64, 1536, 49152, 100000


def rotate(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


class Layer(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * SIZE, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(1, KV_HEADS, context, SIZE))
        self.register_buffer("values", torch.zeros(1, KV_HEADS, context, SIZE))

    def forward(self, x, position, cosine, sine, visible):
        qkv = self.qkv(self.attention_norm(x)).view(1, 1, HEADS + 2 * KV_HEADS, SIZE).transpose(1, 2)
        q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), 1)
        self.keys[:, :, position] = rotate(k, cosine, sine)
        self.values[:, :, position] = v
        keys, values = (cache.repeat_interleave(HEADS // KV_HEADS, 1) for cache in (self.keys, self.values))
        mixed = functional.scaled_dot_product_attention(rotate(q, cosine, sine), keys, values, attn_mask=visible)
        x = x + self.output(mixed.transpose(1, 2).reshape(1, 1, WIDTH))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(Layer(context) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, 1e-5)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        angles = torch.arange(context)[:, None] * BASE ** (-torch.arange(0, SIZE, 2) / SIZE)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())
        self.register_buffer("visible", torch.tril(torch.ones(context, context, dtype=torch.bool)))

    def forward(self, token, position):
        """The token that follows, [1, 1]."""
        x = self.embedding(token)
        at = (position, self.cosine[position], self.sine[position], self.visible[position][None, None])
        for layer in self.layers:
            x = layer(x, *at)
        return functional.linear(self.norm(x), self.embedding.weight).argmax(-1)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--device", default="cuda:0")
    arguments.add_argument("--tokens", type=int, default=256)
    arguments.add_argument("--context", type=int, default=2048)
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--dtype", default="float16")
    arguments.add_argument("--mode", default="reduce-overhead")
    given = arguments.parse_args()
    torch.manual_seed(1)
    model = Model(given.context).to(given.device, getattr(torch, given.dtype))
    step = torch.compile(model, mode=given.mode, fullgraph=True)
    rates = []
    # This form of attention is what the compiler fuses best where one query is asked.
    with torch.no_grad(), nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        for turn in range(given.turns + 1):  # the first one compiles
            token = torch.ones(1, 1, dtype=torch.int64, device=given.device)
            position = torch.zeros(1, dtype=torch.int64, device=given.device)
            start = time.perf_counter()
            for _ in range(given.tokens):
                token = step(token, position).clone()
                position += 1
                token.item()
            if turn:
                rates.append(given.tokens / (time.perf_counter() - start))
    print(f"torch.compile: {statistics.median(rates):.1f} tokens a second in the median of {given.turns} turns, "
          f"{min(rates):.1f} to {max(rates):.1f}", flush=True)


if __name__ == "__main__":
    main()
