#!/usr/bin/env python3
"""The workloads of bench/cases/cpu.cpp in PyTorch (eager and compiled) and JAX, best of several runs.

Needs torch and jax from PyPI in an environment of their own. Run it with an allocator that keeps
memory, so that page faults are not counted: MALLOC_TOP_PAD_=4294967296 MALLOC_MMAP_THRESHOLD_=8589934592
MALLOC_TRIM_THRESHOLD_=8589934592.
"""
import statistics
import time


def median_ms(call, seconds=2.0):
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
}


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
    }
    for name, shapes in CASES.items():
        inputs = [torch.randn(shape) for shape in shapes]
        eager, compiled = functions[name], torch.compile(functions[name])
        with torch.no_grad():
            yield name, "torch", median_ms(lambda: eager(*inputs))
            yield name, "torch.compile", median_ms(lambda: compiled(*inputs))


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
    }
    for name, shapes in CASES.items():
        keys = jax.random.split(jax.random.PRNGKey(0), len(shapes))
        inputs = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes)]
        f = jax.jit(functions[name])
        yield name, "jax", median_ms(lambda: f(*inputs).block_until_ready())


for source in (torch_functions, jax_functions):
    try:
        for name, peer, ms in source():
            print(f"{name:24} {peer:14} {ms:9.3f} ms", flush=True)
    except ImportError as error:
        print(f"{source.__name__}: skipped, {error}")
