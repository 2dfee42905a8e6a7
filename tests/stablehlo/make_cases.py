"""Makes programs of StableHLO by JAX, with arguments and results: tests/stablehlo/cases. Usage: make_cases.py FOLDER. Needs jax and numpy.

NAME.txt has a line for each argument and result: what it is, dtype, rank, extents, elements. Results are computed in f64 with the same
arguments; with each stands the greatest error of XLA's f32 on this machine.
"""

import functools
import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

rng = np.random.default_rng(1)


def normal(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def mlp():
    """A training step of a net of two layers that donates its weights."""
    weights = {"w1": normal(8, 16, scale=0.3), "b1": normal(16, scale=0.1), "w2": normal(16, 4, scale=0.3), "b2": normal(4, scale=0.1)}

    def loss(p, x, y):
        logits = jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))

    def step(p, x, y):
        value, gradient = jax.value_and_grad(loss)(p, x, y)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, gradient), value

    return step, (weights, normal(6, 8), rng.integers(0, 4, 6).astype(np.int32)), (0,)


def transformer():
    """A training step of one layer of a transformer, with dropout, an embedding and momentum."""
    width, heads, length, tokens = 8, 2, 5, 7
    weights = {name: normal(*shape, scale=0.2) for name, shape in {
        "embed": (tokens, width), "qkv": (width, 3 * width), "out": (width, width), "up": (width, 12), "down": (12, width)}.items()}

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(p, key, ids):
        x = p["embed"][ids[:, :-1]]
        q, k, v = jnp.split(norm(x) @ p["qkv"], 3, -1)
        split = lambda t: t.reshape(t.shape[0], length, heads, -1)  # noqa: E731
        scores = jnp.einsum("bihd,bjhd->bhij", split(q), split(k)) / 3
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        mixed = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores), split(v)).reshape(x.shape)
        keep = jax.random.uniform(key, x.shape, jnp.float32) < 0.9  # the same numbers in f64
        x = x + jnp.where(keep, mixed @ p["out"] / 0.9, 0)
        x = x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]
        logits = norm(x) @ p["embed"].T
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1))

    def step(p, m, key, ids):
        value, gradient = jax.value_and_grad(loss)(p, key, ids)
        m = jax.tree.map(lambda a, g: 0.9 * a + g, m, gradient)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, m), m, value

    momentum = {name: normal(*value.shape, scale=0.01) for name, value in weights.items()}
    ids = rng.integers(0, tokens, (2, length + 1)).astype(np.int32)
    return step, (weights, momentum, np.array([0, 7], np.uint32), ids), (0, 1)


def conv():
    """A training step of a small net of convolutions with pooling."""
    weights = {"c1": normal(3, 3, 1, 4, scale=0.4), "c2": normal(3, 3, 4, 6, scale=0.2), "w": normal(24, 3, scale=0.3)}

    def convolved(x, w, stride):
        return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(p, x, y):
        h = jax.nn.relu(convolved(x, p["c1"], 1))
        h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = jax.nn.relu(convolved(h, p["c2"], 2)).reshape(x.shape[0], -1)
        return jnp.mean((h @ p["w"] - y) ** 2)

    def step(p, x, y):
        value, gradient = jax.value_and_grad(loss)(p, x, y)
        return jax.tree.map(lambda a, b: a - 0.05 * b, p, gradient), value

    return step, (weights, normal(2, 8, 8, 1), normal(2, 3)), (0,)


def indexing():
    """A cache that is updated in place, slices and gathers at computed places, running sums, extremes, sorting, a counted loop."""

    def step(cache, rows, at, x):
        zero = jnp.int32(0)
        cache = jax.lax.dynamic_update_slice(cache, rows, (zero, at, zero))
        window = jax.lax.dynamic_slice(cache, (zero, at - 1, zero), (2, 3, 4))
        pairs = x[jnp.array([3, 0, -1])][:, jnp.array([1, 1, 0, 2])]
        best = jnp.argmax(x, 1)
        sums = jnp.cumsum(x, 0) + jnp.cumsum(x[::-1], 1)[::-1]
        order = jnp.sort(x, 1) + jnp.argsort(x, 1)
        y = jax.lax.fori_loop(0, 3, lambda i, c: c * 0.5 + i * x, x)
        z = x.at[best % 4, 2].set(7.0).at[1].add(x[0]).at[:, 0].multiply(2.0)
        return cache, window, pairs, best, sums, order, y, z, jax.lax.top_k(x, 2), jnp.where(at > 1, x, -x)

    arguments = (normal(2, 6, 4), normal(2, 1, 4), np.int32(3), normal(4, 5))
    return step, arguments, (0,)


def counts():
    """A training step of a model of counts, with noise on what it reads: the inverse error function, log gamma and its derivative."""
    weights = {"w": normal(4, 3, scale=0.3), "size": normal(3, scale=0.3)}

    def loss(p, key, x, y):
        u = jax.random.uniform(key, x.shape, jnp.float32, -0.99, 0.99)  # the same numbers in f64
        mean = jnp.exp((x + 0.1 * jax.lax.erf_inv(u.astype(x.dtype))) @ p["w"])
        size = jnp.exp(p["size"])
        return -jnp.mean(jax.lax.lgamma(y + size) - jax.lax.lgamma(size) - jax.lax.lgamma(y + 1) + size * jnp.log(size / (size + mean))
                         + y * jnp.log(mean / (size + mean)))

    def step(p, key, x, y):
        value, gradient = jax.value_and_grad(loss)(p, key, x, y)
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, gradient), value

    return step, (weights, np.array([0, 7], np.uint32), normal(6, 4), rng.poisson(2, (6, 3)).astype(np.float32)), (0,)


def line(kind, array, extra=""):
    array = np.asarray(array)
    names = {"bool": "bool", "int32": "i32", "int64": "i64", "uint32": "u32", "float32": "f32", "float64": "f64"}
    numbers = " ".join(f"{v:.9g}" if array.dtype == np.float32 else f"{v:.14g}" if array.dtype == np.float64 else str(int(v))
                       for v in array.ravel())
    return " ".join(filter(None, [kind, extra, names[str(array.dtype)], str(array.ndim), *map(str, array.shape), numbers]))


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    for make in (mlp, transformer, conv, indexing, counts):
        function, arguments, donated = make()
        text = jax.jit(function, donate_argnums=donated).lower(*arguments).as_text()
        (folder / f"{make.__name__}.mlir").write_text(text)
        single = jax.tree.leaves(jax.jit(function)(*arguments))
        with jax.enable_x64(True):
            # The same numbers: 32-bit integers and keys stay what they are.
            wide = jax.tree.map(lambda a: a.astype(np.float64) if a.dtype == np.float32 else a, arguments)
            double = jax.tree.leaves(jax.jit(function)(*wide))
        lines = [line("argument", a) for a in jax.tree.leaves(arguments)]
        for s, d in zip(single, double):
            error = np.abs(np.asarray(s, np.float64) - np.asarray(d, np.float64)).max(initial=0)
            if s.dtype == np.float32:  # one rounding at least
                error = max(error, 2.0**-24 * np.abs(d).max(initial=0))
            lines.append(line("result", np.asarray(d), f"{error:.3g}"))
        (folder / f"{make.__name__}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
