#!/usr/bin/env python3
"""Writes pytorch_figures.h: losses, gradients and training runs as PyTorch computes them.

    pip install torch; python3 tests/frontend/pytorch_figures.py > tests/frontend/pytorch_figures.h
"""
import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def text(x):
    x = float(x)
    return "NAN" if x != x else repr(x)


def array(name, values, comment=None):
    if comment:
        print(f"/// {comment}")
    values = torch.as_tensor(values, dtype=torch.float64).flatten().tolist()
    lines, line = [], "   "
    for value in values:
        item = f" {text(value)},"
        if len(line) + len(item) > 100:
            lines.append(line)
            line = "   "
        line += item
    print(f"inline const std::vector<double> {name} = {{")
    print("\n".join(lines + [line]) + "\n};")


# ---- cross_entropy

LOGITS = [[0.0, 1, 2], [5, 5, 5], [1, 1, 1], [9, 2, 0]]


def cross_entropy(name, labels, **options):
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    loss = F.cross_entropy(logits, torch.tensor(labels), **options)
    loss.backward()
    array(f"k{name}Loss", [loss.detach()], f"cross_entropy of labels {labels} {options or ''}".rstrip())
    array(f"k{name}Gradient", logits.grad)


# ---- the second moment of 16-bit parameters, with gradients that are given


def given_gradient(step, i):
    """Large at first, then small: a second moment that does not decay holds the steps back."""
    return (1 if step <= 10 else 2.0**-7) * (1 + i % 3) * (-1) ** i


def adamw_given(dtype, steps=60, lr=0.01, decay=0.1):
    w = torch.tensor([1.0, -0.5, 0.25, 2], dtype=dtype)
    m = v = torch.zeros(4)
    for step in range(1, steps + 1):
        g = torch.tensor([given_gradient(step, i) for i in range(4)])
        m = m * 0.9 + g * (1 - 0.9)
        v = v * 0.999 + g * g * (1 - 0.999)
        value = w.float() * (1 - lr * decay)
        value = value - lr * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
        w = value.to(dtype)
    return w.double(), m, v


# ---- training with f32 master weights


def grid(rows, columns, a, b, modulus, scale):
    return torch.tensor([[((i * a + j * b) % modulus - modulus // 2) / scale for j in range(columns)]
                         for i in range(rows)], dtype=torch.float32)


def train(dtype, make_optimizer, steps, scaler=None):
    x, labels = grid(16, 8, 7, 5, 11, 5.0).to(dtype), torch.tensor([(i * i + 1) % 3 for i in range(16)])
    w1 = grid(8, 16, 3, 7, 13, 16.0).requires_grad_()
    w2 = grid(16, 3, 5, 3, 7, 8.0).requires_grad_()
    optimizer = make_optimizer([w1, w2])
    losses, scales = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        logits = torch.relu(x @ w1.to(dtype)) @ w2.to(dtype)
        loss = F.cross_entropy(logits.float(), labels)
        losses.append(loss.item())
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        else:
            loss.backward()
            optimizer.step()
    return losses, scales


# ---- attention


def wave(shape, phase):
    """Numbers that the tests make by the same formula."""
    count = torch.Size(shape).numel()
    return torch.sin(0.37 * torch.arange(count, dtype=torch.float64) + phase).reshape(shape)


def attention(name, mask=None, **options):
    """Queries [2, 3, 4, 4], keys [2, 5, 2, 4], values [2, 5, 2, 2]; PyTorch has the heads before the rows."""
    q, k, v = wave([2, 3, 4, 4], 0.1), wave([2, 5, 2, 4], 0.2), wave([2, 5, 2, 2], 0.3)
    y = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask, enable_gqa=True, **options)
    array(f"k{name}Attention", y.transpose(1, 2), f"scaled_dot_product_attention, heads in groups{name and ', '}{name.lower()}")


def rope(name, to_pairs, from_pairs):
    """As Meta's Llama does it: pairs are complex numbers, multiplied by those of the angles. x is [2, 3, 2, 6]."""
    x, positions = wave([2, 3, 2, 6], 0.4), torch.tensor([0.0, 1, 7], dtype=torch.float64)
    angles = torch.outer(positions, 100.0 ** (-torch.arange(0, 6, 2, dtype=torch.float64) / 6))
    turned = torch.view_as_complex(to_pairs(x).contiguous()) * torch.polar(torch.ones_like(angles), angles)[:, None]
    array(f"k{name}Rope", from_pairs(torch.view_as_real(turned)), f"x turned at positions 0, 1, 7, base 100: {name.lower()}")


def multi_head():
    """x [2, 3, 8] through a causal layer of 4 heads."""
    layer = torch.nn.MultiheadAttention(8, 4, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(wave([24, 8], 0.5))
        layer.in_proj_bias.copy_(wave([24], 0.6))
        layer.out_proj.weight.copy_(wave([8, 8], 0.7))
        layer.out_proj.bias.copy_(wave([8], 0.8))
        x = wave([2, 3, 8], 0.9)
        later = torch.ones(3, 3, dtype=torch.bool).triu(1)
        array("kMultiHead", layer(x, x, x, attn_mask=later, need_weights=False)[0], "torch.nn.MultiheadAttention, causal")


def main():
    print(f"// pytorch_figures.h: made by pytorch_figures.py with PyTorch {torch.__version__.split('+')[0]}.")
    print("#pragma once\n\n#include <cmath>\n#include <vector>\n\nnamespace braze::pytorch {\n")
    cross_entropy("All", [1, 2, 0, 0])
    cross_entropy("Some", [1, -100, 2, 0])
    cross_entropy("Ignored", [-100, -100, -100, -100])
    cross_entropy("Other", [1, 2, 0, 2], ignore_index=2)
    for name, dtype in (("Bf16", torch.bfloat16), ("F16", torch.float16)):
        w, m, v = adamw_given(dtype)
        array(f"kGiven{name}Parameters", w, "adamw, 60 steps with given gradients: parameter, f32 moments")
        array(f"kGiven{name}First", m)
        array(f"kGiven{name}Second", v)
    adamw = lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1)
    nesterov = lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
    array("kBf16AdamWLosses", train(torch.bfloat16, adamw, 40)[0], "bf16 with f32 master weights")
    array("kBf16MomentumLosses", train(torch.bfloat16, nesterov, 40)[0])
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=6)
    losses, scales = train(torch.float16, adamw, 40, scaler)
    array("kF16Losses", losses, "f16 with f32 master weights and a GradScaler of growth_interval 6")
    array("kF16Scales", scales, "after each step")
    attention("")
    attention("Causal", torch.ones(3, 5, dtype=torch.bool).tril(1), scale=0.75)
    attention("Biased", wave([4, 3, 5], 1.1) + torch.zeros(3, 5, dtype=torch.float64).masked_fill(torch.arange(5) == 2, -torch.inf))
    rope("Halves", lambda x: x.unflatten(-1, (2, 3)).transpose(-1, -2), lambda x: x.transpose(-1, -2))
    rope("Neighbours", lambda x: x.unflatten(-1, (3, 2)), lambda x: x)
    multi_head()
    print("\n}  // namespace braze::pytorch")


main()
