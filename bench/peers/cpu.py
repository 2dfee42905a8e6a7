#!/usr/bin/env python3
"""The workloads of bench/cases/cpu.cpp in PyTorch (eager and compiled) and JAX, best of several runs.

Needs torch and jax from PyPI in an environment of their own. Run it with an allocator that keeps
memory, so that page faults are not counted: MALLOC_TOP_PAD_=4294967296 MALLOC_MMAP_THRESHOLD_=8589934592
MALLOC_TRIM_THRESHOLD_=8589934592.
"""
import statistics
import time


def median_ms(call, seconds=1.0):
    call()
    call()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


CASES = {
    "axpy": ((4096, 4096), (4096, 4096)),
    "activations": ((4096, 4096), (4096, 4096), (4096,)),
    "softmax": ((4096, 4096),),
    "add_layer_norm": ((8192, 1024), (8192, 1024), (1024,), (1024,)),
    "sgemm": ((1024, 1024), (1024, 1024)),
    "linear_gelu": ((512, 768), (768, 3072), (3072,)),
    "twenty_elementwise_ops": ((4096,),),
    "sgemm_transposed": ((1024, 1024), (1024, 1024)),
    "skinny_gemm": ((64, 256), (256, 128)),
}
# The digits step: an MLP, mean cross entropy, and AdamW with these numbers.
LAYERS = (64, 256, 128, 10)
RATE, BETA1, BETA2, EPSILON, DECAY = 1e-3, 0.9, 0.999, 1e-8, 0.01


# A table of embeddings and the tokens whose gradients it gets.
TABLE, TOKENS = (50000, 512), 8192


def tokens():
    return [i * 2654435761 % (64 if i % 4 == 0 else TABLE[0]) for i in range(TOKENS)]


def torch_functions():
    import torch
    import torch.nn.functional as F

    def twenty(x):
        for _ in range(5):
            x = torch.tanh(x * 1.01 + 0.1) - 0.05
        return x

    functions = {
        "axpy": lambda x, y: x * 1.5 + y,
        "activations": lambda x, y, b: torch.tanh(x * 1.5 + b) * torch.sigmoid(y) + F.gelu(x - y, approximate="tanh"),
        "softmax": lambda x: torch.softmax(x, -1),
        "add_layer_norm": lambda x, y, g, b: F.layer_norm(x + y, (1024,), g, b),
        "sgemm": lambda x, y: x @ y,
        "linear_gelu": lambda x, w, b: F.gelu(x @ w + b),
        "twenty_elementwise_ops": twenty,
        "sgemm_transposed": lambda x, w: x @ w.T,
        "skinny_gemm": lambda x, w: x @ w,
    }
    for name, shapes in CASES.items():
        inputs = [torch.randn(shape) for shape in shapes]
        eager, compiled = functions[name], torch.compile(functions[name])
        with torch.no_grad():
            yield name, "torch", median_ms(lambda: eager(*inputs))
            yield name, "torch.compile", median_ms(lambda: compiled(*inputs))
    x, y = (torch.randn(1024, 1024, dtype=torch.bfloat16) for _ in range(2))
    yield "bf16_gemm", "torch", median_ms(lambda: x @ y)
    ids, g, table = torch.tensor(tokens()), torch.randn(TOKENS, TABLE[1]), torch.zeros(TABLE)
    gradient = lambda: torch.zeros(TABLE).index_add_(0, ids, g)
    update = lambda: table.index_add_(0, ids, g, alpha=-0.01)
    for name, eager in ("embedding_gradient", gradient), ("embedding_update", update):
        yield name, "torch", median_ms(eager)
        yield name, "torch.compile", median_ms(torch.compile(eager))
    yield from torch_digits()


def torch_digits():
    import torch
    import torch.nn.functional as F

    x, labels = torch.rand(64, LAYERS[0]), torch.full((64,), 3)

    def eager():
        layers = []
        for i, (n, m) in enumerate(zip(LAYERS, LAYERS[1:])):
            layers += [torch.nn.ReLU()] * (i > 0) + [torch.nn.Linear(n, m)]
        model = torch.nn.Sequential(*layers)
        optimizer = torch.optim.AdamW(model.parameters(), RATE, (BETA1, BETA2), EPSILON, DECAY, fused=True)

        def step():
            optimizer.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            return loss, (logits.argmax(1) == labels).float().mean()

        return step

    def loss_of(parameters):
        h = x
        for i, (w, b) in enumerate(parameters):
            h = (torch.relu(h) if i else h) @ w + b
        return F.cross_entropy(h, labels), (h.argmax(1) == labels).float().mean()

    def functional_step(parameters, m, v, t):
        gradients, (loss, accuracy) = torch.func.grad_and_value(loss_of, has_aux=True)(parameters)
        t = t + 1
        rate, scale = RATE / (1 - BETA1**t), torch.rsqrt(1 - BETA2**t)
        new_p, new_m, new_v = [], [], []
        for ps, gs, ms, vs in zip(parameters, gradients, m, v):
            new_m.append(tuple(BETA1 * a + (1 - BETA1) * g for a, g in zip(ms, gs)))
            new_v.append(tuple(BETA2 * a + (1 - BETA2) * g * g for a, g in zip(vs, gs)))
            new_p.append(tuple(p * (1 - RATE * DECAY) - rate * a / (torch.sqrt(b) * scale + EPSILON)
                               for p, a, b in zip(ps, new_m[-1], new_v[-1])))
        return new_p, new_m, new_v, t, loss, accuracy

    yield "digits_step", "torch", median_ms(eager())
    compiled = torch.compile(functional_step)
    parameters = [(torch.randn(n, m) * (2 / n) ** 0.5, torch.zeros(m)) for n, m in zip(LAYERS, LAYERS[1:])]
    zeros = [tuple(torch.zeros_like(p) for p in ps) for ps in parameters]
    state = [parameters, zeros, zeros, torch.tensor(0.0)]

    def step():
        state[:] = compiled(*state)[:4]

    with torch.no_grad():
        start = time.perf_counter()
        step()
        yield "cold_compile_digits_step", "torch.compile", (time.perf_counter() - start) * 1e3
        yield "digits_step", "torch.compile", median_ms(step)


def jax_functions():
    import jax
    import jax.numpy as jnp

    def twenty(x):
        for _ in range(5):
            x = jnp.tanh(x * 1.01 + 0.1) - 0.05
        return x

    def layer_norm(x, y, g, b):
        h = x + y
        d = h - h.mean(-1, keepdims=True)
        return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + b

    functions = {
        "axpy": lambda x, y: x * 1.5 + y,
        "activations": lambda x, y, b: jnp.tanh(x * 1.5 + b) * jax.nn.sigmoid(y) + jax.nn.gelu(x - y),
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "add_layer_norm": layer_norm,
        "sgemm": lambda x, y: x @ y,
        "linear_gelu": lambda x, w, b: jax.nn.gelu(x @ w + b, approximate=False),
        "twenty_elementwise_ops": twenty,
        "sgemm_transposed": lambda x, w: x @ w.T,
        "skinny_gemm": lambda x, w: x @ w,
    }
    for name, shapes in CASES.items():
        keys = jax.random.split(jax.random.PRNGKey(0), len(shapes))
        inputs = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes)]
        f = jax.jit(functions[name])
        if name == "twenty_elementwise_ops":
            start = time.perf_counter()
            f(*inputs).block_until_ready()
            yield "cold_compile_twenty_ops", "jax", (time.perf_counter() - start) * 1e3
        yield name, "jax", median_ms(lambda: f(*inputs).block_until_ready())
    x, y = (jax.random.normal(key, (1024, 1024), jnp.bfloat16) for key in jax.random.split(jax.random.PRNGKey(0)))
    f = jax.jit(lambda x, y: x @ y)
    yield "bf16_gemm", "jax", median_ms(lambda: f(x, y).block_until_ready())
    ids, g = jnp.array(tokens()), jax.random.normal(jax.random.PRNGKey(0), (TOKENS, TABLE[1]))
    gradient = jax.jit(lambda ids, g: jnp.zeros(TABLE).at[ids].add(g))
    yield "embedding_gradient", "jax", median_ms(lambda: gradient(ids, g).block_until_ready())
    add = jax.jit(lambda table, ids, g: table.at[ids].add(g * -0.01), donate_argnums=0)
    table = [jnp.zeros(TABLE)]

    def update():
        table[0] = add(table[0], ids, g)
        table[0].block_until_ready()

    yield "embedding_update", "jax", median_ms(update)
    yield from jax_digits()


def jax_digits():
    import jax
    import jax.numpy as jnp

    def loss_of(parameters, x, labels):
        h = x
        for i, (w, b) in enumerate(parameters):
            h = (jax.nn.relu(h) if i else h) @ w + b
        picked = jnp.take_along_axis(jax.nn.log_softmax(h), labels[:, None], 1)
        return -picked.mean(), (h.argmax(1) == labels).mean()

    def step(parameters, m, v, t, x, labels):
        (loss, accuracy), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters, x, labels)
        t = t + 1
        rate, scale = RATE / (1 - BETA1**t), jax.lax.rsqrt(1 - BETA2**t)
        m = jax.tree.map(lambda a, g: BETA1 * a + (1 - BETA1) * g, m, gradients)
        v = jax.tree.map(lambda a, g: BETA2 * a + (1 - BETA2) * g * g, v, gradients)
        parameters = jax.tree.map(
            lambda p, a, b: p * (1 - RATE * DECAY) - rate * a / (jnp.sqrt(b) * scale + EPSILON), parameters, m, v)
        return parameters, m, v, t, loss, accuracy

    jitted = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    keys = jax.random.split(jax.random.PRNGKey(1), 3)
    parameters = [(jax.random.normal(k, (n, m)) * (2 / n) ** 0.5, jnp.zeros(m))
                  for k, n, m in zip(keys, LAYERS, LAYERS[1:])]
    state = [parameters, *(jax.tree.map(jnp.zeros_like, parameters) for _ in range(2)), jnp.float32(0)]
    x, labels = jax.random.uniform(keys[0], (64, LAYERS[0])), jnp.full((64,), 3)

    def run():
        *state[:], loss, accuracy = jitted(*state, x, labels)
        jax.block_until_ready((state, loss, accuracy))

    start = time.perf_counter()
    run()
    yield "cold_compile_digits_step", "jax", (time.perf_counter() - start) * 1e3
    yield "digits_step", "jax", median_ms(run)


def main():
    for source in (torch_functions, jax_functions):
        try:
            for name, peer, ms in source():
                print(f"{name:24} {peer:14} {ms:9.3f} ms", flush=True)
        except ImportError as error:
            print(f"{source.__name__}: skipped, {error}")


if __name__ == "__main__":
    main()
