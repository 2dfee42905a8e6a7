"""The training step of bench-mesh, with JAX: one process, the batch divided over the devices.

bf16 parameters and gradients, AdamW with moments in f32 (as Braze keeps them), arguments donated, attention by cuDNN where it
works.

Usage: mesh_jax.py training DEVICES [small]
"""

import os
import sys
import time

# As in Braze: multicast over NVLink is off.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS, WIDTH, HEADS, WORDS, BATCH, LENGTH = 14, 1024, 16, 16384, 8, 1024
if "small" in sys.argv[3:]:
    LAYERS, WIDTH, HEADS, WORDS, BATCH, LENGTH = 1, 16, 2, 32, 2, 8
RATE, BETA1, BETA2, EPSILON, DECAY = 3e-4, 0.9, 0.999, 1e-8, 0.01


def parameters():
    keys = iter(jax.random.split(jax.random.key(1), 3 + 4 * LAYERS))

    def normal(*shape):
        return (0.02 * jax.random.normal(next(keys), shape)).astype(jnp.bfloat16)

    def norm():
        return {"scale": jnp.ones(WIDTH, jnp.bfloat16), "shift": jnp.zeros(WIDTH, jnp.bfloat16)}

    def layer():
        return {"norm1": norm(), "qkv": normal(WIDTH, 3 * WIDTH), "o": normal(WIDTH, WIDTH), "norm2": norm(),
                "up": normal(WIDTH, 4 * WIDTH), "down": normal(4 * WIDTH, WIDTH)}

    return {"words": normal(WORDS, WIDTH), "places": normal(LENGTH, WIDTH), "norm": norm(), "out": normal(WIDTH, WORDS),
            "layers": [layer() for _ in range(LAYERS)]}


def layer_norm(x, w):
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(-1, keepdims=True)
    scaled = centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)
    return scaled.astype(x.dtype) * w["scale"] + w["shift"]


def loss_of(w, words, attention):
    x = w["words"][words] + w["places"]
    for layer in w["layers"]:
        q, k, v = (t.reshape(*t.shape[:2], HEADS, -1) for t in jnp.split(layer_norm(x, layer["norm1"]) @ layer["qkv"], 3, -1))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attention)
        x = x + mixed.reshape(x.shape) @ layer["o"]
        x = x + jax.nn.gelu(layer_norm(x, layer["norm2"]) @ layer["up"], approximate=False) @ layer["down"]
    scores = (layer_norm(x, w["norm"]) @ w["out"]).astype(jnp.float32)
    chosen = jnp.take_along_axis(scores, words[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(scores, -1) - chosen).mean()


def adamw(w, gradient, m, v, count):
    gradient = gradient.astype(jnp.float32)
    m = BETA1 * m + (1 - BETA1) * gradient
    v = BETA2 * v + (1 - BETA2) * jnp.square(gradient)
    step = m / (1 - BETA1**count) / (jnp.sqrt(v / (1 - BETA2**count)) + EPSILON)
    wide = w.astype(jnp.float32)
    return (wide - RATE * (step + DECAY * wide)).astype(w.dtype), m, v


def step_with(attention, whole):
    def step(w, state, words):
        m, v, count = state
        loss, gradient = jax.value_and_grad(loss_of)(w, words, attention)
        count = count + 1
        leaves, tree = jax.tree.flatten(w)
        made = [adamw(*one, count) for one in zip(leaves, *(jax.tree.leaves(t) for t in (gradient, m, v)))]
        w, m, v = (jax.tree.unflatten(tree, part) for part in zip(*made))
        return w, (m, v, count), loss

    # Results are kept as the arguments of the next step are.
    return jax.jit(step, donate_argnums=(0, 1), out_shardings=(whole, whole, whole))


def main():
    work, devices = sys.argv[1], int(sys.argv[2])
    if work != "training" or len(jax.devices()) < devices:
        sys.exit(f"JAX has {len(jax.devices())} devices" if work == "training" else __doc__)
    mesh = Mesh(jax.devices()[:devices], ("data",))
    whole, cut = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    words = (jnp.arange(devices * BATCH * LENGTH) * 7919 % WORDS).reshape(devices * BATCH, LENGTH)
    words = jax.device_put(words.astype(jnp.int32), cut)

    def begin():
        w = jax.device_put(parameters(), whole)

        def moments():
            return jax.device_put(jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), w), whole)

        return w, (moments(), moments(), jax.device_put(jnp.float32(0), whole))

    for attention in ("cudnn", "xla"):
        w, state = begin()
        try:
            # What is compiled ahead is not found again by a call of the function.
            step = step_with(attention, whole).lower(w, state, words).compile()
            break
        except Exception as error:  # cuDNN's attention is not for every machine and size
            print(f"attention by {attention} does not compile: {str(error).splitlines()[0]}", file=sys.stderr)
    else:
        sys.exit("no attention compiles")
    count = sum(x.size for x in jax.tree.leaves(w))

    def steps(number):
        nonlocal w, state
        for _ in range(number):
            w, state, loss = step(w, state, words)
        jax.block_until_ready((w, state, loss))
        return loss

    steps(3)
    times = []
    for _ in range(7):
        start = time.perf_counter()
        loss = steps(3)
        times.append((time.perf_counter() - start) / 3)
    print(f"jax: training step of {count} parameters on {devices}: {1e6 * sorted(times)[3]:.1f} us")
    print(f"  loss {float(loss):.3f}, attention by {attention}", flush=True)


if __name__ == "__main__":
    main()
