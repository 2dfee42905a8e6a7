"""The model of main.cpp in PyTorch: the same text, sizes, initial distributions, optimizer and schedule, other random numbers.
Prints the loss of the held-out tenth after so many steps, for comparison. Needs torch:

    python3 pytorch.py [--steps 400] [--seed 1] [--rate 0.004] [--text FILE]
"""
import argparse
import math
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, HEADS, BLOCKS, CONTEXT, BATCH = 64, 4, 2, 64, 32
TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "ir", "languages.md")


def rope(x):
    """Turns x [batch, heads, n, width] by its positions; pairs are halves of the width."""
    n, half = x.shape[-2], x.shape[-1] // 2
    turns = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.outer(torch.arange(n, device=x.device, dtype=torch.float32), turns)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def linear(width, columns):
    layer = nn.Linear(width, columns)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.output = (linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        h = self.attention_norm(x)
        heads = [layer(h).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        mixed = F.scaled_dot_product_attention(rope(heads[0]), rope(heads[1]), heads[2], is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class Model(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), linear(WIDTH, characters)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embedding(ids))))


def loss_of(model, pieces):
    return F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--text", default=TEXT)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    text = open(arguments.text, "rb").read()
    characters = sorted(set(text))
    ids = torch.tensor([characters.index(c) for c in text])
    trained = len(ids) - len(ids) // 10
    pieces = lambda starts: torch.stack([ids[start:start + CONTEXT + 1] for start in starts])
    held_out = pieces(range(trained, len(ids) - CONTEXT, CONTEXT))

    model = Model(len(characters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.99), weight_decay=0.01)
    warmup = min(50, arguments.steps)
    rest = max(arguments.steps - warmup, 1)
    rate = lambda i: (i + 1) / warmup if i < warmup else (1 + math.cos(math.pi * (i - warmup) / rest)) / 2
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    print(f"{len(characters)} different characters, loss of the held-out tenth before {loss_of(model, held_out).item():.3f}")
    start = time.perf_counter()
    for i in range(arguments.steps):
        loss = loss_of(model, pieces(torch.randint(trained - CONTEXT, (BATCH,))))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (i + 1) % 100 == 0 or i + 1 == arguments.steps:
            print(f"step {i + 1:4}  loss {loss.item():.3f}", flush=True)
    seconds = time.perf_counter() - start
    print(f"loss of the held-out tenth after {loss_of(model, held_out).item():.3f}")
    print(f"a step: {1e3 * seconds / arguments.steps:.2f} ms")


main()
