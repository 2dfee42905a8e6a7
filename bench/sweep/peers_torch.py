"""The workloads of the sweep in PyTorch: a function for each kind of kinds.cpp, as a user would write it.

A function takes the settings of the row and the inputs by their names, and returns the results in Braze's order.
`ALTERNATIVES` has other ways to say the same, which are peers of their own.
"""
import math

import torch
import torch.nn.functional as F


def up(x):
    """Statistics of 16-bit values are made in f32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


ACTIVATIONS = {
    "none": lambda x: x,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
}


# --- Elementwise


def copy(s, x, y):
    return y.copy_(x)


def scale(s, x):
    return x * 1.5


def axpy(s, x, y):
    return x * 1.5 + y


def activations(s, x, y, b):
    return torch.tanh(x * 1.5 + b) * torch.sigmoid(y) + F.gelu(x - y, approximate="tanh")


def chain(s, x):
    for _ in range(5):
        x = torch.tanh(x * 1.01 + 0.1) - 0.05
    return x


def gated(s, x, y):
    return ACTIVATIONS[s.text("activation", "silu")](x) * y


def activate(s, x):
    return ACTIVATIONS[s.text("activation", "gelu")](x)


# --- Norms


def normed(x, residual, norm):
    if residual is None:
        return norm(x)
    total = x + residual
    return norm(total), total


def layer_norm(s, x, scale, shift, residual=None):
    return normed(x, residual, lambda t: F.layer_norm(t, scale.shape, scale, shift))


def rms_norm(s, x, scale, residual=None):
    return normed(x, residual, lambda t: F.rms_norm(t, scale.shape, scale, 1e-6))


def group_norm(s, x, scale, shift):
    return F.group_norm(x.permute(0, 3, 1, 2), s["groups"], scale, shift).permute(0, 2, 3, 1)


def batch_norm(s, x, scale, shift):
    wide = up(x)
    variance, mean = torch.var_mean(wide, (0, 1, 2), correction=0)
    y = (wide - mean) * torch.rsqrt(variance + 1e-5) * up(scale) + up(shift)
    return y.to(x.dtype), mean, variance


def library_batch_norm(s, x, scale, shift):
    y, mean, inverse = torch.native_batch_norm(
        x.permute(0, 3, 1, 2), up(scale), up(shift), None, None, True, 0.0, 1e-5)
    return y.permute(0, 2, 3, 1), mean, inverse**-2 - 1e-5


def batch_norm_inference(s, x, scale, shift, mean, variance):
    y = F.batch_norm(x.permute(0, 3, 1, 2), mean, variance, up(scale), up(shift))
    return F.relu(y).permute(0, 2, 3, 1)


def unit_length(s, x):
    wide = up(x)
    return (wide * torch.rsqrt((wide * wide).sum(-1, keepdim=True) + 1e-12)).to(x.dtype)


# --- Losses


def cross_entropy(s, logits, labels):
    return F.cross_entropy(logits, labels)


def smoothed_cross_entropy(s, logits, labels):
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def z_loss(s, logits, labels):
    total = torch.logsumexp(logits, -1)
    return (total - logits.gather(1, labels[:, None])[:, 0] + 1e-4 * total * total).mean()


def squared_error(s, x, target):
    return F.mse_loss(x, target)


def huber(s, x, target):
    return F.huber_loss(x, target)


def binary_cross_entropy(s, x, target):
    return F.binary_cross_entropy_with_logits(x, target)


def divergence(s, x, y):
    return F.kl_div(F.log_softmax(x, -1), F.log_softmax(y, -1), reduction="batchmean", log_target=True)


# --- Softmax and reductions


def softmax(s, x):
    return torch.softmax(x, s["axis"])


def log_softmax(s, x):
    return torch.log_softmax(x, s["axis"])


def causal_softmax(s, x):
    seen = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()
    return torch.softmax((x * 0.125).masked_fill(~seen, -math.inf), -1)


def reduce(s, x):
    axes, op = tuple(s.list("axes")), s.text("op", "sum")
    if op in ("sum", "mean"):
        return getattr(torch, op)(x, axes)
    if op in ("max", "min"):
        return getattr(torch, "a" + op)(x, axes)
    if op in ("prod", "argmax"):
        return getattr(torch, op)(x, axes[0])
    if op == "any":
        return (x > 1.7).any(axes[0])
    if op == "absmax":
        return x.abs().amax(axes)
    if op == "norm":
        return torch.linalg.vector_norm(x, dim=axes)
    if op == "logsumexp":
        return torch.logsumexp(x, axes)
    variance, mean = torch.var_mean(x, axes, correction=0)
    return mean, variance


def nearest(s, x, y):
    d = x[:, None] - y[None]
    return (d * d).sum(-1).amin(1)


# --- Index work


def rotated(x, cos, sin, neighbours):
    cos, sin = cos[:, None], sin[:, None]
    if neighbours:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def rotary(s, x, cos, sin, scale=None):
    if scale is not None:
        x = F.rms_norm(x, scale.shape, scale, 1e-6)
    return rotated(x, cos, sin, s.text("pairs", "halves") == "neighbours")


def embedding(s, table, ids):
    return F.embedding(ids, table)


def permute(s, x):
    return x.permute(s.list("order")).contiguous()


def transpose_add(s, x, y):
    return x.t() + y


def join(s, x, y):
    return torch.cat((x, y), s["axis"])


def interleave(s, x, y):
    return torch.stack((x, y), -1).flatten(-2)


def roll(s, x):
    return torch.roll(x, s["by"], s["axis"])


def flip(s, x):
    return torch.flip(x, (s["axis"],))


def stencil(s, x):
    p = F.pad(x, (1, 1, 1, 1))
    return p[1:-1, 1:-1] * 0.5 + (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) * 0.125


def upsample(s, x):
    return F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode="nearest").permute(0, 2, 3, 1)


def patches(s, x):
    p = s["patch"]
    b, h, w, c = x.shape
    cut = x[:, : h // p * p, : w // p * p].reshape(b, h // p, p, w // p, p, c)
    return cut.permute(0, 1, 3, 2, 4, 5).reshape(b, -1, p * p * c)


def one_hot(s, ids):
    return (ids[:, None] == torch.arange(s["classes"], device=ids.device)).to(s.torch_dtype())


# --- Quantising


def quantize_blocks(s, x):
    wide = up(x)
    step = (wide.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-12)
    return ((wide / step).round().clamp(-127, 127) * step).to(x.dtype)


def quantize_bytes(s, x):
    wide = up(x)
    step = (wide.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-12)
    return (wide / step).round().clamp(-127, 127).to(torch.int8), step


def unpacked(s, packed, scales):
    places = torch.arange(8, dtype=torch.int32, device=packed.device) * 4
    numbers = ((packed[:, :, None] >> places & 15) - 8).to(scales.dtype)
    return (numbers.reshape(*scales.shape, s["group"]) * scales[:, :, None]).flatten(1)


def dequantize(s, packed, scales):
    return unpacked(s, packed, scales)


def packed_product(s, packed, scales, x):
    return x @ unpacked(s, packed, scales).t() * 0.05


# --- Scans, pooling, convolutions


def scan(s, x):
    op, axis = s.text("op", "sum"), s["axis"]
    if op == "max":
        return torch.cummax(x, axis).values
    return {"sum": torch.cumsum, "prod": torch.cumprod, "logsumexp": torch.logcumsumexp}[op](x, axis)


def sort(s, x):
    op, axis = s.text("op", "sort"), s["axis"]
    if op == "argsort":
        return torch.argsort(x, dim=axis, stable=True)
    if op == "sort":
        return torch.sort(x, dim=axis).values
    return torch.topk(x, s["top"], dim=axis)


def recurrence(s, decay, x):
    h, out = torch.zeros_like(x[:, 0]), []
    for i in range(x.shape[1]):
        h = decay[:, i] * h + x[:, i]
        out.append(h)
    return torch.stack(out, 1)


def pool(s, x):
    f = F.max_pool2d if s.text("op", "max") == "max" else F.avg_pool2d
    return f(x.permute(0, 3, 1, 2), s["window"], s["stride"], s.get("padding", 0)).permute(0, 2, 3, 1)


def axes_of(s):
    """The axes of images and of weights in PyTorch's order, in which it sees them without a copy."""
    if s.text("layout", "last") == "first":
        return (0, 1, 2, 3), (0, 1, 2, 3)
    return (0, 3, 1, 2), (2, 3, 0, 1) if s.get("transposed", 0) else (3, 2, 0, 1)


def back(axes):
    """The order that undoes another."""
    return tuple(axes.index(axis) for axis in range(len(axes)))


def convolution(s, x, w, bias=None):
    images, weights = axes_of(s)
    f = F.conv_transpose2d if s.get("transposed", 0) else F.conv2d
    y = f(x.permute(images), w.permute(weights), bias, s.get("stride", 1), s.get("padding", s["window"] // 2),
          groups=s.get("groups", 1))
    return ACTIVATIONS[s.text("activation", "none")](y).permute(back(images))


# --- Products and chains of them


def product(s, x, w, bias=None, residual=None):
    layout = s.text("layout", "nn")
    x = x.mT if layout[0] == "t" else x
    w = w.mT if layout[1] == "t" else w
    y = x @ w
    if bias is not None:
        y = y + bias
    y = ACTIVATIONS[s.text("activation", "none")](y)
    return y if residual is None else y + residual


def merged_heads(s, x, w):
    return x.transpose(1, 2).flatten(2) @ w


def gated_mlp(s, x, gate, up, down=None, scale=None):
    if scale is not None:
        x = F.rms_norm(x, scale.shape, scale, 1e-6)
    h = ACTIVATIONS[s.text("activation", "silu")](x @ gate) * (x @ up)
    return h if down is None else h @ down


def layers_of(s, x, layers):
    for i in range(len(s.list("sizes")) - 1):
        if i:
            x = ACTIVATIONS[s.text("activation", "relu")](x)
        x = x @ layers[f"{i}.weight"] + layers[f"{i}.bias"]
    return x


def mlp(s, x, **layers):
    return layers_of(s, x, layers)


# --- Attention


def attention_mask(s, q, bias, slopes, seen, documents, keys):
    """What is added to the scores, or None, and which keys are seen, or None."""
    queries = q.shape[2]
    query = torch.arange(queries, device=q.device)[:, None] + (keys - queries)
    key = torch.arange(keys, device=q.device)
    added, mask = bias, None

    def also(condition):
        nonlocal mask
        mask = condition if mask is None else mask & condition

    if slopes is not None:
        added = slopes[:, None, None] * (key - query)
    if s.get("causal", 0):
        also(key <= query)
    if s.has("window"):
        also(query - key < s["window"])
    if seen is not None:
        also(seen[:, None, None])
    if documents is not None:
        also((documents[:, :, None] == documents[:, None])[:, None])
    return added, mask


def attention(s, q, k, v, bias=None, slopes=None, seen=None, documents=None):
    group, cap = s.get("group", 1), s.get("cap", 0)
    k, v = (t.repeat_interleave(group, 1) if group > 1 else t for t in (k, v))
    scores = up(q @ k.mT) / math.sqrt(q.shape[3])
    if cap:
        scores = torch.tanh(scores / cap) * cap
    added, mask = attention_mask(s, q, bias, slopes, seen, documents, k.shape[2])
    if added is not None:
        scores = scores + added
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, -1).to(v.dtype) @ v


def sdpa_attention(s, q, k, v, bias=None, slopes=None, seen=None, documents=None):
    if s.get("cap", 0):
        raise NotImplementedError("scaled_dot_product_attention has no soft cap")
    grouped = {"enable_gqa": True} if s.get("group", 1) > 1 else {}
    given = [t for t in (bias, slopes, seen, documents) if t is not None]
    if s.get("causal", 0) and not s.has("window") and not given:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, **grouped)
    added, mask = attention_mask(s, q, bias, slopes, seen, documents, k.shape[2])
    if added is not None:
        added = added.to(q.dtype)
        mask = added if mask is None else added.masked_fill(~mask, -math.inf)
    return F.scaled_dot_product_attention(q, k, v, mask, **grouped)


def flex_attention(s, q, k, v, bias=None, slopes=None, seen=None, documents=None):
    """The function that is to be compiled: its block mask is made once, as a model does."""
    from torch.nn.attention import flex_attention as flex

    queries, keys, cap = q.shape[2], k.shape[2], s.get("cap", 0)
    causal, window = s.get("causal", 0), s.get("window", 0)

    def score_mod(score, b, h, i, j):
        if cap:
            score = torch.tanh(score / cap) * cap
        if bias is not None:
            score = score + bias[h, i, j]
        if slopes is not None:
            score = score + slopes[h] * (j - i - (keys - queries))
        return score

    def mask_mod(b, h, i, j):
        i = i + (keys - queries)
        conditions = [j <= i] * bool(causal) + [i - j < window] * bool(window)
        conditions += [seen[b, j]] if seen is not None else []
        conditions += [documents[b, i] == documents[b, j]] if documents is not None else []
        mask = conditions[0]
        for condition in conditions[1:]:
            mask = mask & condition
        return mask

    mask = None
    by_batch = seen is not None or documents is not None
    if causal or window or by_batch:
        mask = flex.create_block_mask(mask_mod, q.shape[0] if by_batch else None, None, queries, keys,
                                      device=q.device)
    has_score = cap or bias is not None or slopes is not None
    return lambda q, k, v: flex.flex_attention(q, k, v, score_mod=score_mod if has_score else None, block_mask=mask,
                                               enable_gqa=s.get("group", 1) > 1)


# --- Optimizers, in place


def group_of(inputs, name):
    return [t for n, t in inputs.items() if n.startswith(name + ".")]


RATE, BETA1, BETA2, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01


def stepped(parameters, gradients, m, v, step):
    gradients = [g.to(a.dtype) for g, a in zip(gradients, m)]
    step.add_(1)
    torch._foreach_lerp_(m, gradients, 1 - BETA1)
    torch._foreach_mul_(v, BETA2)
    torch._foreach_addcmul_(v, gradients, gradients, 1 - BETA2)
    t = step.to(m[0].dtype)
    rate, root = RATE / (1 - BETA1**t), torch.sqrt(1 - BETA2**t)
    denominator = torch._foreach_sqrt(v)
    torch._foreach_div_(denominator, root)
    torch._foreach_add_(denominator, EPSILON)
    moved = torch._foreach_div(m, denominator)
    torch._foreach_mul_(moved, rate)
    if parameters[0].dtype == m[0].dtype:
        torch._foreach_mul_(parameters, 1 - RATE * DECAY)
        torch._foreach_sub_(parameters, moved)
    else:
        wide = torch._foreach_mul([p.to(m[0].dtype) for p in parameters], 1 - RATE * DECAY)
        torch._foreach_copy_(parameters, torch._foreach_sub(wide, moved))
    return parameters + [step] + m + v


def adamw(s, step, **inputs):
    p, g, m, v = (group_of(inputs, n) for n in ("parameter", "gradient", "m", "v"))
    return stepped(p, g, m, v, step)


def fused_adamw(s, step, **inputs):
    p, g, m, v = (group_of(inputs, n) for n in ("parameter", "gradient", "m", "v"))
    if p[0].dtype != m[0].dtype:
        raise NotImplementedError("the fused step takes one dtype")
    step.add_(1)
    count = step.to(torch.float32)
    torch._fused_adamw_(p, g, m, v, [], [count] * len(p), amsgrad=False, lr=RATE, beta1=BETA1, beta2=BETA2,
                        weight_decay=DECAY, eps=EPSILON, maximize=False)
    return p + [step] + m + v


def momentum(s, **inputs):
    p, g, v = (group_of(inputs, n) for n in ("parameter", "gradient", "v"))
    torch._foreach_mul_(v, 0.9)
    torch._foreach_add_(v, g)
    torch._foreach_add_(p, v, alpha=-0.01)
    return p + v


def sgd(s, **inputs):
    p = group_of(inputs, "parameter")
    torch._foreach_add_(p, group_of(inputs, "gradient"), alpha=-0.01)
    return p


def lion(s, **inputs):
    p, g, m = (group_of(inputs, n) for n in ("parameter", "gradient", "m"))
    g = [x.to(a.dtype) for x, a in zip(g, m)]
    step = torch._foreach_mul(m, 0.9)
    torch._foreach_add_(step, g, alpha=0.1)
    torch._foreach_sign_(step)
    wide = torch._foreach_mul([x.to(a.dtype) for x, a in zip(p, m)], 1 - 1e-4 * 0.1)
    torch._foreach_add_(wide, step, alpha=-1e-4)
    torch._foreach_copy_(p, wide)
    torch._foreach_mul_(m, 0.99)
    torch._foreach_add_(m, g, alpha=0.01)
    return p + m


def clip(s, **inputs):
    g = group_of(inputs, "gradient")
    total = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(g)))
    torch._foreach_mul_(g, (1 / (total + 1e-6)).clamp(max=1))
    return g


def average(s, **inputs):
    a, p = group_of(inputs, "average"), group_of(inputs, "parameter")
    torch._foreach_mul_(a, 0.999)
    torch._foreach_add_(a, [x.to(y.dtype) for x, y in zip(p, a)], alpha=0.001)
    return a


def accumulate(s, **inputs):
    total, g = group_of(inputs, "sum"), group_of(inputs, "gradient")
    torch._foreach_add_(total, [x.to(y.dtype) for x, y in zip(g, total)])
    return total


# --- Blocks and steps


def block_of(s, w, prefix, x, cos, sin):
    style = s.text("style", "gpt")
    is_llama = style == "llama"
    batch, length, width = x.shape
    dim, group = s["dim"], s.get("group", 1)

    def norm(name, t):
        scale = w[f"{prefix}{name}.scale"]
        if is_llama:
            return F.rms_norm(t, scale.shape, scale, 1e-6)
        return F.layer_norm(t, scale.shape, scale, w[f"{prefix}{name}.shift"])

    def layer(name, t):
        y = t @ w[f"{prefix}{name}.weight"]
        bias = f"{prefix}{name}.bias"
        return y + w[bias] if bias in w else y

    def heads(name, t):
        return layer(name, t).view(batch, length, -1, dim)

    def attend(t):
        q, k, v = heads("q", t), heads("k", t), heads("v", t)
        if is_llama:
            q, k = rotated(q, cos, sin, False), rotated(k, cos, sin, False)
        grouped = {"enable_gqa": True} if group > 1 else {}
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                           is_causal=style != "bert", **grouped)
        return layer("o", y.transpose(1, 2).reshape(batch, length, width))

    def feed(t):
        if is_llama:
            return layer("down", F.silu(layer("gate", t)) * layer("up", t))
        return layer("down", F.gelu(layer("up", t)))

    if style == "bert":
        h = norm("norm1", x + attend(x))
        return norm("norm2", h + feed(h))
    h = x + attend(norm("norm1", x))
    return h + feed(norm("norm2", h))


def block(s, x, cos=None, sin=None, **w):
    return block_of(s, w, "", x, cos, sin)


def cell(gates, c):
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def lstm_cell(s, x, h, c, w, u, bias):
    return cell(x @ w + h @ u + bias, c)


def lstm(s, x, h, c, w, u, bias):
    given, out = x @ w + bias, []
    for gates in given:
        h, c = cell(gates + h @ u, c)
        out.append(h)
    return torch.stack(out), c


def library_lstm(s, x, h, c, w, u, bias):
    weights = [w.t().contiguous(), u.t().contiguous(), bias, torch.zeros_like(bias)]
    y, _, c = torch._VF.lstm(x, (h[None], c[None]), weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)
    return y, c[0]


def mixer(s, x, scale1, shift1, w1, w2, scale2, shift2, w3, w4):
    along = F.layer_norm(x, scale1.shape, scale1, shift1).mT
    h = x + (F.gelu(along @ w1) @ w2).mT
    return h + F.gelu(F.layer_norm(h, scale2.shape, scale2, shift2) @ w3) @ w4


def residual_block(s, x, w1, w2, w3, scale1, scale2, scale3, shift1, shift2, shift3):
    def layer(t, w, scale, shift):
        y = F.conv2d(t.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=w.shape[0] // 2)
        return F.batch_norm(y, None, None, scale, shift, training=True).permute(0, 2, 3, 1)

    h = F.relu(layer(x, w1, scale1, shift1))
    h = F.relu(layer(h, w2, scale2, shift2))
    return F.relu(x + layer(h, w3, scale3, shift3))


# --- Images


def squeeze_excite(s, x, w1, bias1, w2, bias2):
    hidden = F.relu(x.mean((1, 2)) @ w1 + bias1)
    return x * torch.sigmoid(hidden @ w2 + bias2)[:, None, None]


def convnext(s, x, w, scale, shift, w1, bias1, w2, gain):
    images, weights = (0, 3, 1, 2), (3, 2, 0, 1)
    y = F.conv2d(x.permute(images), w.permute(weights), padding=s["window"] // 2, groups=s["channels"])
    y = F.layer_norm(y.permute(back(images)), scale.shape, scale, shift)
    return x + F.gelu(y @ w1 + bias1) @ w2 * gain


def resize(s, x):
    y = F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear", align_corners=False)
    return y.permute(0, 2, 3, 1)


def likeness(s, x, y):
    def smooth(t):
        return F.avg_pool2d(t.permute(0, 3, 1, 2), s["window"], 1)

    mx, my = smooth(x), smooth(y)
    vx, vy, both = smooth(x * x) - mx * mx, smooth(y * y) - my * my, smooth(x * y) - mx * my
    chart = (2 * mx * my + 1e-4) * (2 * both + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
    return chart.mean()


def windows_of(s, qkv):
    batch, rows, cols, window, heads, dim = (s[n] for n in ("batch", "rows", "cols", "window", "heads", "dim"))
    split = qkv.view(batch, rows, window, cols, window, 3, heads, dim).permute(5, 0, 1, 3, 6, 2, 4, 7)
    return split.reshape(3, batch * rows * cols, heads, window * window, dim)


def unwindowed(s, y):
    batch, rows, cols, window, heads, dim = (s[n] for n in ("batch", "rows", "cols", "window", "heads", "dim"))
    grid = y.view(batch, rows, cols, heads, window, window, dim).permute(0, 1, 4, 2, 5, 3, 6)
    return grid.reshape(batch, rows * window, cols * window, heads * dim)


def window_attention(s, qkv, bias):
    q, k, v = windows_of(s, qkv)
    scores = up(q @ k.mT / math.sqrt(s["dim"])) + up(bias)
    return unwindowed(s, torch.softmax(scores, -1).to(v.dtype) @ v)


def library_window_attention(s, qkv, bias):
    q, k, v = windows_of(s, qkv)
    return unwindowed(s, F.scaled_dot_product_attention(q, k, v, bias))


# --- Sequences


def linear_attention(s, q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    norms = (up(q) * up(k).sum(2, keepdim=True)).sum(-1, keepdim=True)
    return (up(q @ (k.mT @ v)) / norms).to(q.dtype)


def retention(s, q, k, v, decay):
    place = torch.arange(s["length"], device=q.device)
    distance = (place[:, None] - place).to(decay.dtype)
    powers = torch.where(distance >= 0, torch.exp(decay[:, None, None] * distance), 0.0)
    scores = q @ k.mT / math.sqrt(s["dim"])
    return (up(scores) * powers).to(q.dtype) @ v


def relative_bias(s, table):
    place, reach = torch.arange(s["length"], device=table.device), s["reach"]
    return table[:, (place - place[:, None]).clamp(-reach, reach) + reach]


def relative(s, q, k, v, table):
    scores = up(q @ k.mT) * 0.125 + up(relative_bias(s, table))
    return torch.softmax(scores, -1).to(v.dtype) @ v


def library_relative(s, q, k, v, table):
    return F.scaled_dot_product_attention(q, k, v, relative_bias(s, table), scale=0.125)


def selective(s, x, step, a, b, c):
    h, out = x.new_zeros(x.shape[0], x.shape[2], a.shape[1]), []
    for t in range(x.shape[1]):
        h = torch.exp(step[:, t, :, None] * a) * h + (step[:, t] * x[:, t])[:, :, None] * b[:, t, None]
        out.append((h * c[:, t, None]).sum(-1))
    return torch.stack(out, 1)


def spectrum(s, sound, bands):
    window = s["window"]
    place = torch.arange(window, device=sound.device)
    turn = 2 * math.pi / window
    hann = 0.5 - torch.cos(place.to(sound.dtype) * turn) * 0.5
    angle = (place[:, None] * place[: window // 2 + 1] % window).to(sound.dtype) * turn
    frames = sound.unfold(1, window, s["hop"]) * hann
    real, imaginary = frames @ torch.cos(angle), frames @ torch.sin(angle)
    return torch.log((real * real + imaginary * imaginary) @ bands + 1e-6)


def library_spectrum(s, sound, bands):
    hann = torch.hann_window(s["window"], device=sound.device, dtype=sound.dtype)
    spectra = torch.stft(sound, s["window"], s["hop"], window=hann, center=False, return_complex=True)
    return torch.log(spectra.abs().square().mT @ bands + 1e-6)


# --- Parts of networks


def low_rank(s, x, w, down, up):
    return x @ w + x @ down @ up * 2.0


def experts(s, x, router, w1, w2):
    chances = torch.softmax(up(x @ router), -1)
    gates = torch.where(chances == chances.amax(1, keepdim=True), chances, 0.0)
    each = F.gelu(x @ w1) @ w2
    return (up(each) * gates.t()[:, :, None]).sum(0).to(x.dtype)


def graph_layer(s, x, strength, w, **edges):
    made = x @ w
    return F.relu(torch.zeros_like(made).index_add(0, edges["to"], made[edges["from"]] * strength))


def contrastive(s, x, y):
    def unit(t):
        wide = up(t)
        return (wide * torch.rsqrt((wide * wide).sum(1, keepdim=True) + 1e-12)).to(t.dtype)

    logits = up(unit(x) @ unit(y).t()) * 10
    own = torch.diagonal(logits)
    return (torch.logsumexp(logits, 1) + torch.logsumexp(logits, 0) - 2 * own).mean() * 0.5


def focal(s, logits, targets):
    chance = torch.sigmoid(logits)
    loss = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    missed = chance * (1 - targets) + (1 - chance) * targets
    return (loss * missed * missed).mean()


def adafactor(s, p, g, of_rows, of_cols):
    squares = g * g + 1e-30
    of_rows.mul_(0.99).add_(squares.mean(1), alpha=0.01)
    of_cols.mul_(0.99).add_(squares.mean(0), alpha=0.01)
    step = g * torch.rsqrt((of_rows / of_rows.mean())[:, None] * of_cols)
    length = torch.sqrt((step * step).mean())
    p.sub_(step / length.clamp_min(1.0) * 0.01)
    return p, of_rows, of_cols


def orthogonal(s, x):
    wide = up(x)
    x = (wide * torch.rsqrt((wide * wide).sum() + 1e-7)).to(x.dtype)
    for _ in range(5):
        a = x @ x.t()
        x = x * 3.4445 + (a * -4.775 + a @ a * 2.0315) @ x
    return x


# --- Science


def bodies(s, x, mass):
    away = x - x[:, None]
    inverse = torch.rsqrt((away * away).sum(2) + 0.01)
    return ((mass * inverse**3)[:, :, None] * away).sum(1)


def transport(s, cost):
    kernel = cost * -2
    cols = torch.zeros_like(kernel[:, :1])
    for _ in range(s["turns"]):
        rows = -torch.logsumexp(kernel + cols, 2, keepdim=True)
        cols = -torch.logsumexp(kernel + rows, 1, keepdim=True)
    return torch.exp(kernel + rows + cols)


def clusters(s, x, centres):
    distances = (centres * centres).sum(1) - x @ centres.t() * 2
    chosen = F.one_hot(distances.argmin(1), s["clusters"]).to(x.dtype)
    return chosen.t() @ x / chosen.sum(0)[:, None].clamp_min(1.0)


def heat(s, x):
    for _ in range(2):
        around = x * -6
        for axis in range(3):
            around = around + torch.roll(x, -1, axis) + torch.roll(x, 1, axis)
        x = x + around * 0.1
    return x


def covariance(s, x):
    centred = x - x.mean(0, keepdim=True)
    return centred.t() @ centred / (s["rows"] - 1)


# --- Training steps


def trained(inputs, loss_of, gradients_of):
    """A step: `gradients_of` is the way to differentiate, which depends on the peer."""
    parameters = {n.removeprefix("parameter."): t for n, t in inputs.items() if n.startswith("parameter.")}
    loss, gradients = gradients_of(loss_of, parameters)
    m, v = group_of(inputs, "m"), group_of(inputs, "v")
    return [loss] + stepped(list(parameters.values()), gradients, m, v, inputs["step"])


def mlp_step(s, gradients_of, **inputs):
    def loss(w):
        return F.cross_entropy(layers_of(s, inputs["x"], w), inputs["labels"])

    return trained(inputs, loss, gradients_of)


def transformer_step(s, gradients_of, **inputs):
    def loss(w):
        x = F.embedding(inputs["tokens"], w["embedding"])
        if "positions" in w:
            x = x + w["positions"]
        for i in range(s["layers"]):
            x = block_of(s, w, f"layer{i}.", x, inputs.get("cos"), inputs.get("sin"))
        logits = up(x @ w["head"])
        return F.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten())

    return trained(inputs, loss, gradients_of)


ALTERNATIVES = {
    "library": {
        "attention": sdpa_attention,
        "adamw": fused_adamw,
        "batch_norm": library_batch_norm,
        "lstm": library_lstm,
        "window_attention": library_window_attention,
        "relative": library_relative,
        "spectrum": library_spectrum,
    },
    "flex": {"attention": flex_attention},
}


def restride(kind, s, inputs):
    """Weights of convolutions as cuDNN wants them for images whose channels come last."""
    if kind not in ("convolution", "residual_block") or s.text("layout", "last") == "first":
        return inputs
    axes = axes_of(s)[1]
    for name in ("w", "w1", "w2", "w3"):
        if name in inputs:
            w = inputs[name].permute(axes).contiguous(memory_format=torch.channels_last)
            inputs[name] = w.permute(back(axes))
    return inputs
