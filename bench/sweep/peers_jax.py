"""The workloads of the sweep in JAX: a function for each kind of kinds.cpp, as a user would write it.

A function takes the settings of the row and the inputs by their names, and returns the results in Braze's order.
"""
import math

import jax
import jax.numpy as jnp
import numpy
from jax import lax


def up(x):
    """Statistics of 16-bit values are made in f32."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


ACTIVATIONS = {
    "none": lambda x: x,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
}


# --- Elementwise


def copy(s, x, y):
    return [jnp.copy(x)]


def scale(s, x):
    return x * 1.5


def axpy(s, x, y):
    return x * 1.5 + y


def activations(s, x, y, b):
    return jnp.tanh(x * 1.5 + b) * jax.nn.sigmoid(y) + jax.nn.gelu(x - y)


def chain(s, x):
    for _ in range(5):
        x = jnp.tanh(x * 1.01 + 0.1) - 0.05
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


def layer_normed(x, scale, shift):
    wide = up(x)
    d = wide - wide.mean(-1, keepdims=True)
    unit = d * lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5)
    return (unit * up(scale) + up(shift)).astype(x.dtype)


def rms_normed(x, scale):
    wide = up(x)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * up(scale)).astype(x.dtype)


def layer_norm(s, x, scale, shift, residual=None):
    return normed(x, residual, lambda t: layer_normed(t, scale, shift))


def rms_norm(s, x, scale, residual=None):
    return normed(x, residual, lambda t: rms_normed(t, scale))


def standardized(wide, axes):
    mean = wide.mean(axes, keepdims=True)
    d = wide - mean
    variance = (d * d).mean(axes, keepdims=True)
    return d * lax.rsqrt(variance + 1e-5), mean.squeeze(axes), variance.squeeze(axes)


def group_norm(s, x, scale, shift):
    grouped = up(x).reshape(*x.shape[:3], s["groups"], -1)
    unit = standardized(grouped, (1, 2, 4))[0].reshape(x.shape)
    return (unit * up(scale) + up(shift)).astype(x.dtype)


def batch_norm(s, x, scale, shift):
    unit, mean, variance = standardized(up(x), (0, 1, 2))
    return (unit * up(scale) + up(shift)).astype(x.dtype), mean, variance


def batch_norm_inference(s, x, scale, shift, mean, variance):
    unit = (up(x) - mean) * lax.rsqrt(variance + 1e-5)
    return jax.nn.relu(unit * up(scale) + up(shift)).astype(x.dtype)


def unit_length(s, x):
    wide = up(x)
    return (wide * lax.rsqrt((wide * wide).sum(-1, keepdims=True) + 1e-12)).astype(x.dtype)


# --- Losses


def chosen(logits, labels):
    return jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]


def cross_entropy_of(logits, labels):
    return (jax.nn.logsumexp(logits, -1) - chosen(logits, labels)).mean()


def cross_entropy(s, logits, labels):
    return cross_entropy_of(up(logits), labels).astype(logits.dtype)


def smoothed_cross_entropy(s, logits, labels):
    total = jax.nn.logsumexp(logits, -1)
    return (total - 0.9 * chosen(logits, labels) - 0.1 * logits.mean(-1)).mean()


def z_loss(s, logits, labels):
    total = jax.nn.logsumexp(logits, -1)
    return (total - chosen(logits, labels) + 1e-4 * total * total).mean()


def squared_error(s, x, target):
    return jnp.square(x - target).mean()


def huber(s, x, target):
    d = x - target
    a = jnp.abs(d)
    return jnp.where(a < 1, 0.5 * d * d, a - 0.5).mean()


def binary_cross_entropy(s, x, target):
    return (jnp.maximum(x, 0) - x * target + jnp.log1p(jnp.exp(-jnp.abs(x)))).mean()


def divergence(s, x, y):
    student, teacher = jax.nn.log_softmax(x), jax.nn.log_softmax(y)
    return (jnp.exp(teacher) * (teacher - student)).sum(-1).mean()


# --- Softmax and reductions


def softmax(s, x):
    return jax.nn.softmax(up(x), s["axis"]).astype(x.dtype)


def log_softmax(s, x):
    return jax.nn.log_softmax(up(x), s["axis"]).astype(x.dtype)


def causal_softmax(s, x):
    seen = jnp.tri(*x.shape[-2:], dtype=bool)
    return jax.nn.softmax(jnp.where(seen, up(x * 0.125), -jnp.inf), -1).astype(x.dtype)


def reduce(s, x):
    axes, op = tuple(s.list("axes")), s.text("op", "sum")
    if op in ("sum", "mean", "max", "min", "prod"):
        return getattr(jnp, op)(x, axes)
    if op == "argmax":
        return jnp.argmax(x, axes[0])
    if op == "any":
        return (x > 1.7).any(axes)
    if op == "absmax":
        return jnp.abs(x).max(axes)
    if op == "norm":
        return jnp.sqrt(jnp.square(up(x)).sum(axes)).astype(x.dtype)
    if op == "logsumexp":
        return jax.nn.logsumexp(up(x), axes).astype(x.dtype)
    wide = up(x)
    return wide.mean(axes).astype(x.dtype), wide.var(axes).astype(x.dtype)


def nearest(s, x, y):
    d = x[:, None] - y[None]
    return (d * d).sum(-1).min(1)


# --- Index work


def rotated(x, cos, sin, neighbours):
    cos, sin = cos[:, None], sin[:, None]
    if neighbours:
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack((a * cos - b * sin, b * cos + a * sin), -1).reshape(x.shape)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def rotary(s, x, cos, sin, scale=None):
    if scale is not None:
        x = rms_normed(x, scale)
    return rotated(x, cos, sin, s.text("pairs", "halves") == "neighbours")


def embedding(s, table, ids):
    return table[ids]


def permute(s, x):
    return x.transpose(s.list("order"))


def transpose_add(s, x, y):
    return x.T + y


def join(s, x, y):
    return jnp.concatenate((x, y), s["axis"])


def interleave(s, x, y):
    return jnp.stack((x, y), -1).reshape(*x.shape[:-1], -1)


def roll(s, x):
    return jnp.roll(x, s["by"], s["axis"])


def flip(s, x):
    return jnp.flip(x, s["axis"])


def stencil(s, x):
    p = jnp.pad(x, 1)
    return p[1:-1, 1:-1] * 0.5 + (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) * 0.125


def upsample(s, x):
    return x.repeat(2, 1).repeat(2, 2)


def patches(s, x):
    p = s["patch"]
    b, h, w, c = x.shape
    cut = x[:, : h // p * p, : w // p * p].reshape(b, h // p, p, w // p, p, c)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(b, -1, p * p * c)


def one_hot(s, ids):
    return jax.nn.one_hot(ids, s["classes"], dtype=s.jax_dtype())


# --- Quantising


def quantize_blocks(s, x):
    wide = up(x)
    step = jnp.maximum(jnp.abs(wide).max(-1, keepdims=True) / 127, 1e-12)
    return (jnp.clip(jnp.round(wide / step), -127, 127) * step).astype(x.dtype)


def quantize_bytes(s, x):
    wide = up(x)
    step = jnp.maximum(jnp.abs(wide).max(-1, keepdims=True) / 127, 1e-12)
    return jnp.clip(jnp.round(wide / step), -127, 127).astype(jnp.int8), step


def unpacked(s, packed, scales):
    places = jnp.arange(8, dtype=jnp.int32) * 4
    numbers = ((packed[:, :, None] >> places & 15) - 8).astype(scales.dtype)
    return (numbers.reshape(*scales.shape, s["group"]) * scales[:, :, None]).reshape(packed.shape[0], -1)


def dequantize(s, packed, scales):
    return unpacked(s, packed, scales)


def packed_product(s, packed, scales, x):
    return x @ unpacked(s, packed, scales).T * 0.05


# --- Scans, pooling, convolutions


def scan(s, x):
    op, axis = s.text("op", "sum"), s["axis"]
    if op in ("sum", "prod"):
        return {"sum": jnp.cumsum, "prod": jnp.cumprod}[op](x, axis)
    return {"max": lax.cummax, "logsumexp": lax.cumlogsumexp}[op](x, axis)


def sort(s, x):
    op, axis = s.text("op", "sort"), s["axis"]
    if op == "argsort":
        return jnp.argsort(x, axis)
    if op == "sort":
        return jnp.sort(x, axis)
    return lax.top_k(x, s["top"])  # along the last axis


def recurrence(s, decay, x):
    def join(a, b):
        return a[0] * b[0], b[0] * a[1] + b[1]

    return lax.associative_scan(join, (decay, x), axis=1)[1]


def pool(s, x):
    window, stride, padding = s["window"], s["stride"], s.get("padding", 0)
    is_max = s.text("op", "max") == "max"
    edges = [(0, 0)] + [(padding, padding)] * 2 + [(0, 0)]
    start = numpy.array(-numpy.inf if is_max else 0, x.dtype)  # a constant, so that JAX knows the gradient
    join = lax.max if is_max else lax.add
    y = lax.reduce_window(x, start, join, (1, window, window, 1), (1, stride, stride, 1), edges)
    return y if is_max else y / (window * window)


def convolved(x, w, edge, stride=1, **options):
    return lax.conv_general_dilated(x, w, (stride, stride), [(edge, edge)] * 2, **options)


LAST = ("NHWC", "HWIO", "NHWC")


def convolution(s, x, w, bias=None):
    first, stride = s.text("layout", "last") == "first", s.get("stride", 1)
    edge = s.get("padding", s["window"] // 2)
    options = {"dimension_numbers": ("NCHW", "OIHW", "NCHW") if first else LAST,
               "precision": "tensorfloat32" if s.get("tf32", 0) else None}
    if s.get("transposed", 0):  # taps in reverse order over elements that are `stride` apart
        y = convolved(x, jnp.flip(w, (0, 1)), s["window"] - 1 - edge, lhs_dilation=(stride, stride), **options)
    else:
        y = convolved(x, w, edge, stride, feature_group_count=s.get("groups", 1), **options)
    if bias is not None:
        y = y + (bias[:, None, None] if first else bias)
    return ACTIVATIONS[s.text("activation", "none")](y)


# --- Products and chains of them


def product(s, x, w, bias=None, residual=None):
    layout = s.text("layout", "nn")
    x = x.mT if layout[0] == "t" else x
    w = w.mT if layout[1] == "t" else w
    y = jnp.matmul(x, w, precision="tensorfloat32" if s.get("tf32", 0) else None)
    if bias is not None:
        y = y + bias
    y = ACTIVATIONS[s.text("activation", "none")](y)
    return y if residual is None else y + residual


def merged_heads(s, x, w):
    batch, heads, length, dim = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * dim) @ w


def gated_mlp(s, x, gate, up, down=None, scale=None):
    if scale is not None:
        x = rms_normed(x, scale)
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


def attention(s, q, k, v, bias=None, slopes=None, seen=None, documents=None):
    batch, heads, queries, dim = q.shape
    kept, keys = k.shape[1:3]
    grouped = q.reshape(batch, kept, heads // kept, queries, dim)
    wide = jnp.promote_types(q.dtype, jnp.float32)
    scores = jnp.einsum("bhgqd,bhkd->bhgqk", grouped, k, preferred_element_type=wide) / math.sqrt(dim)
    cap = s.get("cap", 0)
    if cap:
        scores = jnp.tanh(scores / cap) * cap
    query, key = jnp.arange(queries)[:, None] + (keys - queries), jnp.arange(keys)
    if bias is not None:
        scores = scores + bias.reshape(kept, -1, queries, keys)
    if slopes is not None:
        scores = scores + slopes.reshape(kept, -1, 1, 1) * (key - query)
    mask = True
    if s.get("causal", 0):
        mask = mask & (key <= query)
    if s.has("window"):
        mask = mask & (query - key < s["window"])
    if seen is not None:
        mask = mask & seen[:, None, None, None]
    if documents is not None:
        mask = mask & (documents[:, :, None] == documents[:, None])[:, None, None]
    if mask is not True:
        scores = jnp.where(mask, scores, -jnp.inf)
    weights = jax.nn.softmax(scores, -1).astype(v.dtype)
    return jnp.einsum("bhgqk,bhkd->bhgqd", weights, v).reshape(q.shape)


# --- Optimizers: old values are donated


def group_of(inputs, name):
    return [t for n, t in inputs.items() if n.startswith(name + ".")]


RATE, BETA1, BETA2, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01


def stepped(parameters, gradients, m, v, step):
    step = step + 1
    t = step.astype(m[0].dtype)
    rate, root = RATE / (1 - BETA1**t), jnp.sqrt(1 - BETA2**t)
    gradients = [g.astype(a.dtype) for g, a in zip(gradients, m)]
    m = [BETA1 * a + (1 - BETA1) * g for a, g in zip(m, gradients)]
    v = [BETA2 * a + (1 - BETA2) * g * g for a, g in zip(v, gradients)]
    parameters = [(p.astype(a.dtype) * (1 - RATE * DECAY) - rate * a / (jnp.sqrt(b) / root + EPSILON)).astype(p.dtype)
                  for p, a, b in zip(parameters, m, v)]
    return parameters + [step] + m + v


def adamw(s, step, **inputs):
    p, g, m, v = (group_of(inputs, n) for n in ("parameter", "gradient", "m", "v"))
    return stepped(p, g, m, v, step)


def momentum(s, **inputs):
    p, g, v = (group_of(inputs, n) for n in ("parameter", "gradient", "v"))
    v = [0.9 * a + b for a, b in zip(v, g)]
    return [a - 0.01 * b for a, b in zip(p, v)] + v


def sgd(s, **inputs):
    return [p - 0.01 * g for p, g in zip(group_of(inputs, "parameter"), group_of(inputs, "gradient"))]


def lion(s, **inputs):
    p, g, m = (group_of(inputs, n) for n in ("parameter", "gradient", "m"))
    g = [x.astype(a.dtype) for x, a in zip(g, m)]
    p = [(x.astype(a.dtype) * (1 - 1e-4 * 0.1) - 1e-4 * jnp.sign(0.9 * a + 0.1 * b)).astype(x.dtype)
         for x, a, b in zip(p, m, g)]
    return p + [0.99 * a + 0.01 * b for a, b in zip(m, g)]


def clip(s, **inputs):
    g = group_of(inputs, "gradient")
    total = jnp.sqrt(sum(jnp.square(up(x)).sum() for x in g))
    return [(up(x) * jnp.minimum(1 / (total + 1e-6), 1)).astype(x.dtype) for x in g]


def average(s, **inputs):
    return [0.999 * a + 0.001 * p.astype(a.dtype)
            for a, p in zip(group_of(inputs, "average"), group_of(inputs, "parameter"))]


def accumulate(s, **inputs):
    return [a + g.astype(a.dtype) for a, g in zip(group_of(inputs, "sum"), group_of(inputs, "gradient"))]


# The inputs that results take the place of; those results are the last ones, in the order of the inputs.
DONATED = {
    "copy": ("y",),
    "adamw": ("parameter.", "step", "m.", "v."),
    "momentum": ("parameter.", "v."),
    "sgd": ("parameter.",),
    "adafactor": ("p", "of_rows", "of_cols"),
    "lion": ("parameter.", "m."),
    "clip": ("gradient.",),
    "average": ("average.",),
    "accumulate": ("sum.",),
    "mlp_step": ("parameter.", "step", "m.", "v."),
    "transformer_step": ("parameter.", "step", "m.", "v."),
}


# --- Blocks and steps


def block_of(s, w, prefix, x, cos, sin):
    style = s.text("style", "gpt")
    is_llama = style == "llama"
    batch, length, width = x.shape
    dim, group = s["dim"], s.get("group", 1)

    def norm(name, t):
        scale = w[f"{prefix}{name}.scale"]
        return rms_normed(t, scale) if is_llama else layer_normed(t, scale, w[f"{prefix}{name}.shift"])

    def layer(name, t):
        y = t @ w[f"{prefix}{name}.weight"]
        bias = f"{prefix}{name}.bias"
        return y + w[bias] if bias in w else y

    def heads(name, t):
        return layer(name, t).reshape(batch, length, -1, dim)

    def attend(t):
        q, k, v = heads("q", t), heads("k", t), heads("v", t)
        if is_llama:
            q, k = rotated(q, cos, sin, False), rotated(k, cos, sin, False)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=style != "bert")
        return layer("o", y.reshape(batch, length, width))

    def feed(t):
        if is_llama:
            return layer("down", jax.nn.silu(layer("gate", t)) * layer("up", t))
        return layer("down", ACTIVATIONS["gelu"](layer("up", t)))

    if style == "bert":
        h = norm("norm1", x + attend(x))
        return norm("norm2", h + feed(h))
    h = x + attend(norm("norm1", x))
    return h + feed(norm("norm2", h))


def block(s, x, cos=None, sin=None, **w):
    return block_of(s, w, "", x, cos, sin)


def cell(gates, c):
    i, f, g, o = jnp.split(gates, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def lstm_cell(s, x, h, c, w, u, bias):
    return cell(x @ w + h @ u + bias, c)


def lstm(s, x, h, c, w, u, bias):
    def step(state, gates):
        h, c = cell(gates + state[0] @ u, state[1])
        return (h, c), h

    (_, c), y = lax.scan(step, (h, c), x @ w + bias)
    return y, c


def mixer(s, x, scale1, shift1, w1, w2, scale2, shift2, w3, w4):
    gelu = ACTIVATIONS["gelu"]
    h = x + (gelu(layer_normed(x, scale1, shift1).mT @ w1) @ w2).mT
    return h + gelu(layer_normed(h, scale2, shift2) @ w3) @ w4


def residual_block(s, x, w1, w2, w3, scale1, scale2, scale3, shift1, shift2, shift3):
    def norm(t, scale, shift):
        return (standardized(up(t), (0, 1, 2))[0] * up(scale) + up(shift)).astype(t.dtype)

    def layer(t, w, scale, shift):
        return norm(convolved(t, w, w.shape[0] // 2, dimension_numbers=LAST), scale, shift)

    h = jax.nn.relu(layer(x, w1, scale1, shift1))
    h = jax.nn.relu(layer(h, w2, scale2, shift2))
    return jax.nn.relu(x + layer(h, w3, scale3, shift3))


# --- Images


def squeeze_excite(s, x, w1, bias1, w2, bias2):
    hidden = jax.nn.relu(x.mean((1, 2)) @ w1 + bias1)
    return x * jax.nn.sigmoid(hidden @ w2 + bias2)[:, None, None]


def convnext(s, x, w, scale, shift, w1, bias1, w2, gain):
    y = convolved(x, w, s["window"] // 2, dimension_numbers=LAST, feature_group_count=s["channels"])
    hidden = layer_normed(y, scale, shift) @ w1 + bias1
    return x + ACTIVATIONS["gelu"](hidden) @ w2 * gain


def resize(s, x):
    return jax.image.resize(x, (x.shape[0], 2 * x.shape[1], 2 * x.shape[2], x.shape[3]), "bilinear")


def likeness(s, x, y):
    def smooth(t):
        window = (1, s["window"], s["window"], 1)
        sums = lax.reduce_window(t, numpy.array(0, t.dtype), lax.add, window, (1, 1, 1, 1), "VALID")
        return sums / s["window"] ** 2

    mx, my = smooth(x), smooth(y)
    vx, vy, both = smooth(x * x) - mx * mx, smooth(y * y) - my * my, smooth(x * y) - mx * my
    chart = (2 * mx * my + 1e-4) * (2 * both + 9e-4) / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))
    return chart.mean()


def window_attention(s, qkv, bias):
    batch, rows, cols, window, heads, dim = (s[n] for n in ("batch", "rows", "cols", "window", "heads", "dim"))
    split = qkv.reshape(batch, rows, window, cols, window, 3, heads, dim).transpose(5, 0, 1, 3, 6, 2, 4, 7)
    q, k, v = split.reshape(3, batch * rows * cols, heads, window * window, dim)
    scores = up(q @ k.mT * (1 / math.sqrt(dim))) + up(bias)
    y = jax.nn.softmax(scores, -1).astype(v.dtype) @ v
    grid = y.reshape(batch, rows, cols, heads, window, window, dim).transpose(0, 1, 4, 2, 5, 3, 6)
    return grid.reshape(batch, rows * window, cols * window, heads * dim)


# --- Sequences


def linear_attention(s, q, k, v):
    q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    norms = (up(q) * up(k).sum(2, keepdims=True)).sum(-1, keepdims=True)
    return (up(q @ (k.mT @ v)) / norms).astype(q.dtype)


def retention(s, q, k, v, decay):
    place = jnp.arange(s["length"])
    distance = (place[:, None] - place).astype(decay.dtype)
    powers = jnp.where(distance >= 0, jnp.exp(decay[:, None, None] * distance), 0.0)
    scores = q @ k.mT * (1 / math.sqrt(s["dim"]))
    return (up(scores) * powers).astype(q.dtype) @ v


def relative(s, q, k, v, table):
    place, reach = jnp.arange(s["length"]), s["reach"]
    bias = table[:, jnp.clip(place - place[:, None], -reach, reach) + reach]
    scores = up(q @ k.mT) * 0.125 + up(bias)
    return jax.nn.softmax(scores, -1).astype(v.dtype) @ v


def selective(s, x, step, a, b, c):
    def turn(h, given):
        x, step, b, c = given
        h = jnp.exp(step[:, :, None] * a) * h + (step * x)[:, :, None] * b[:, None]
        return h, (h * c[:, None]).sum(-1)

    start = jnp.zeros((x.shape[0], x.shape[2], a.shape[1]), x.dtype)
    turns = tuple(t.swapaxes(0, 1) for t in (x, step, b, c))
    return lax.scan(turn, start, turns)[1].swapaxes(0, 1)


def spectrum(s, sound, bands):
    window = s["window"]
    place = jnp.arange(window)
    turn = 2 * math.pi / window
    hann = 0.5 - jnp.cos(place.astype(sound.dtype) * turn) * 0.5
    angle = (place[:, None] * place[: window // 2 + 1] % window).astype(sound.dtype) * turn
    frames = sound[:, jnp.arange(s["frames"])[:, None] * s["hop"] + place] * hann
    real, imaginary = frames @ jnp.cos(angle), frames @ jnp.sin(angle)
    return jnp.log((real * real + imaginary * imaginary) @ bands + 1e-6)


# --- Parts of networks


def low_rank(s, x, w, down, up):
    return x @ w + x @ down @ up * 2.0


def experts(s, x, router, w1, w2):
    chances = jax.nn.softmax(up(x @ router), -1)
    gates = jnp.where(chances == chances.max(1, keepdims=True), chances, 0.0)
    each = ACTIVATIONS["gelu"](x @ w1) @ w2
    return (up(each) * gates.T[:, :, None]).sum(0).astype(x.dtype)


def graph_layer(s, x, strength, w, **edges):
    made = x @ w
    return jax.nn.relu(jnp.zeros_like(made).at[edges["to"]].add(made[edges["from"]] * strength))


def contrastive(s, x, y):
    def unit(t):
        wide = up(t)
        return (wide * lax.rsqrt((wide * wide).sum(1, keepdims=True) + 1e-12)).astype(t.dtype)

    logits = up(unit(x) @ unit(y).T) * 10
    own = jnp.diagonal(logits)
    both = jax.nn.logsumexp(logits, 1) + jax.nn.logsumexp(logits, 0)
    return (both - 2 * own).mean() * 0.5


def focal(s, logits, targets):
    chance = jax.nn.sigmoid(logits)
    loss = jnp.maximum(logits, 0) - logits * targets + jnp.log1p(jnp.exp(-jnp.abs(logits)))
    missed = chance * (1 - targets) + (1 - chance) * targets
    return (loss * missed * missed).mean()


def adafactor(s, p, g, of_rows, of_cols):
    squares = g * g + 1e-30
    rows = of_rows * 0.99 + squares.mean(1) * 0.01
    cols = of_cols * 0.99 + squares.mean(0) * 0.01
    step = g * lax.rsqrt((rows / rows.mean())[:, None] * cols)
    length = jnp.sqrt((step * step).mean())
    return [p - step / jnp.maximum(length, 1.0) * 0.01, rows, cols]


def orthogonal(s, x):
    wide = up(x)
    x = (wide * lax.rsqrt((wide * wide).sum() + 1e-7)).astype(x.dtype)
    for _ in range(5):
        a = x @ x.T
        x = x * 3.4445 + (a * -4.775 + a @ a * 2.0315) @ x
    return x


# --- Science


def bodies(s, x, mass):
    away = x - x[:, None]
    inverse = lax.rsqrt((away * away).sum(2) + 0.01)
    return ((mass * inverse**3)[:, :, None] * away).sum(1)


def transport(s, cost):
    kernel = cost * -2
    cols = jnp.zeros_like(kernel[:, :1])
    for _ in range(s["turns"]):
        rows = -jax.nn.logsumexp(kernel + cols, 2, keepdims=True)
        cols = -jax.nn.logsumexp(kernel + rows, 1, keepdims=True)
    return jnp.exp(kernel + rows + cols)


def clusters(s, x, centres):
    distances = (centres * centres).sum(1) - x @ centres.T * 2
    chosen = jax.nn.one_hot(distances.argmin(1), s["clusters"], dtype=x.dtype)
    return chosen.T @ x / jnp.maximum(chosen.sum(0)[:, None], 1.0)


def heat(s, x):
    for _ in range(2):
        around = x * -6
        for axis in range(3):
            around = around + jnp.roll(x, -1, axis) + jnp.roll(x, 1, axis)
        x = x + around * 0.1
    return x


def covariance(s, x):
    centred = x - x.mean(0, keepdims=True)
    return centred.T @ centred / (s["rows"] - 1)


# --- Training steps


def trained(inputs, loss_of):
    parameters = {n.removeprefix("parameter."): t for n, t in inputs.items() if n.startswith("parameter.")}
    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    m, v = group_of(inputs, "m"), group_of(inputs, "v")
    return [loss] + stepped(list(parameters.values()), [gradients[n] for n in parameters], m, v, inputs["step"])


def mlp_step(s, **inputs):
    return trained(inputs, lambda w: cross_entropy_of(layers_of(s, inputs["x"], w), inputs["labels"]))


def transformer_step(s, **inputs):
    def loss(w):
        x = w["embedding"][inputs["tokens"]]
        if "positions" in w:
            x = x + w["positions"]
        for i in range(s["layers"]):
            x = block_of(s, w, f"layer{i}.", x, inputs.get("cos"), inputs.get("sin"))
        return cross_entropy_of(up(x @ w["head"]), inputs["labels"])

    return trained(inputs, loss)
