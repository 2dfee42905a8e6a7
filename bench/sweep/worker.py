#!/usr/bin/env python3
"""Measures one peer for run.py (sweep.py says how they talk).

  worker.py PEER DEVICE ROWS

PEER is torch (eager), compile (torch.compile), tuned (its max-autotune mode), library (SDPA, fused optimizers and
other functions of libraries that say a whole workload), flex (FlexAttention), jax, or reference (torch in doubles).
ROWS is a file with a JSON object a row, as `bench-sweep list` prints them.
"""
import json
import math
import os
import sys
import time

import sweep


def direction_like(peer, row, result):
    """The direction of gradients of a row that Braze cannot build, and of whose result it lists no type."""
    if not result.shape:
        return {}
    i = {"dtype": row["dtype"], "shape": list(result.shape), "low": -1, "high": 1}
    return {"direction": peer.array(i, len(row["inputs"]))}


class Torch:
    """Eager, and the base of the other ways to run PyTorch."""

    def __init__(self, device):
        import torch

        import peers_torch

        self.torch, self.functions, self.device = torch, peers_torch, device
        torch.backends.cudnn.benchmark = True

    def array(self, i, position):
        torch = self.torch
        if i.get("runs"):
            n = i["shape"][-1]
            row = torch.arange(n, device=self.device) ** 2 * int(i["high"]) // (n * n)
            return row.to(getattr(torch, "int" + i["dtype"][1:])).expand(i["shape"]).contiguous()
        count, mask = math.prod(i["shape"]), 0xFFFFFFFF
        span = torch.tensor(i["high"] - i["low"], dtype=torch.float32, device=self.device)
        low = torch.tensor(i["low"], dtype=torch.float32, device=self.device)
        salt, parts = sweep.scramble(position + 1), []
        for start in range(0, max(count, 1), 1 << 26):  # a part at a time, for the bits take eight bytes each
            h = torch.arange(start, min(count, start + (1 << 26)), device=self.device)
            h = (h ^ salt) * 0x9E3779B1 & mask
            h = (h ^ h >> 16) * 0x85EBCA6B & mask
            h = (h ^ h >> 13) * 0xC2B2AE35 & mask
            h = h ^ h >> 16
            value = (h >> 8).to(torch.float32) * 2.0**-24 * span + low
            if i["dtype"] == "bool":
                value = value < 0.5
            elif i["dtype"] in ("i32", "i64"):
                value = value.floor().to(getattr(torch, "int" + i["dtype"][1:]))
            else:
                value = value.to(sweep.Settings({"settings": {}, "dtype": i["dtype"]}).torch_dtype())
            parts.append(value)
        return torch.cat(parts).reshape(i["shape"])

    def inputs(self, row):
        made = {i["name"]: self.array(i, position) for position, i in enumerate(row["inputs"])}
        if not row["braze"] and sweep.wanted_gradients(row):
            with self.torch.no_grad():
                results = self.function(row["kind"])(sweep.Settings(row), **made)
            made.update(direction_like(self, row, self.first(results)))
        made = self.functions.restride(row["kind"], sweep.Settings(row), made)
        self.wait()
        self.started = time.perf_counter()
        return made

    def function(self, kind):
        return getattr(self.functions, kind)

    def prepare(self, row):
        torch, s = self.torch, sweep.Settings(row)
        torch.set_float32_matmul_precision("high" if s.get("tf32", 0) else "highest")
        torch.backends.cudnn.allow_tf32 = bool(s.get("tf32", 0))
        inputs = self.inputs(row)
        f, wanted = self.function(row["kind"]), sweep.wanted_gradients(row)
        if row["kind"].endswith("_step"):
            self.call = self.step(f, s, inputs)
        elif wanted:
            self.call = self.gradient(f, s, inputs, wanted)
        else:
            self.call = self.forward(f, s, inputs)
        return self.call()

    # The first result, which is what gradients are of.
    @staticmethod
    def first(results):
        return results[0] if isinstance(results, (tuple, list)) else results

    def forward(self, f, s, inputs):
        def call():
            with self.torch.no_grad():
                return f(s, **inputs)

        return call

    def gradient(self, f, s, inputs, wanted):
        torch, inputs = self.torch, dict(inputs)
        direction = inputs.pop("direction", None)
        for name in wanted:
            inputs[name].requires_grad_()
        leaves = [inputs[name] for name in wanted]

        def call():
            out = self.first(f(s, **inputs))
            if direction is None:
                return (out.detach(), *torch.autograd.grad(out, leaves))
            return torch.autograd.grad(out, leaves, direction)

        return call

    def gradients_of(self, loss_of, parameters):
        leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        loss = loss_of(leaves)
        return loss.detach(), self.torch.autograd.grad(loss, list(leaves.values()))

    def step(self, f, s, inputs):
        def call():
            with self.torch.no_grad():
                return f(s, self.with_gradients, **inputs)

        return call

    def with_gradients(self, loss_of, parameters):
        with self.torch.enable_grad():
            return self.gradients_of(loss_of, parameters)

    def wait(self):
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def release(self):
        self.call = None
        if self.device.startswith("cuda"):
            self.torch.cuda.empty_cache()

    def values(self, result, count):
        places = sweep.sample_places(result.numel(), count)
        flat = result.detach().reshape(-1)
        if places is not None:
            flat = flat[self.torch.tensor(places, device=flat.device)]
        return list(result.shape), flat.double().cpu().tolist()


class Compile(Torch):
    mode = "default"

    def prepare(self, row):
        self.torch._dynamo.reset()
        return super().prepare(row)

    def compiled(self, f):
        return self.torch.compile(f, mode=self.mode, dynamic=False)

    def forward(self, f, s, inputs):
        g = self.compiled(lambda inputs: f(s, **inputs))

        def call():
            with self.torch.no_grad():
                return g(inputs)

        return call

    def gradient(self, f, s, inputs, wanted):
        """One graph of the forward and the backward pass; where that cannot be, a graph of each."""
        torch, func = self.torch, self.torch.func
        given = dict(inputs)
        direction = given.pop("direction", None)

        def whole(chosen, rest, direction):
            def value(chosen):
                return self.first(f(s, **rest, **chosen))

            if direction is None:
                gradients, out = func.grad_and_value(value)(chosen)
                return (out, *gradients.values())
            return tuple(func.vjp(value, chosen)[1](direction)[0].values())

        chosen = {name: given.pop(name) for name in wanted}
        g = self.compiled(whole)

        def call():
            with torch.no_grad():
                return g(chosen, given, direction)

        try:
            call()
            return call
        except Exception:
            torch._dynamo.reset()
            h = self.compiled(lambda inputs: f(s, **inputs))
            return super().gradient(lambda s, **inputs: h(inputs), s, inputs, wanted)

    def step(self, f, s, inputs):
        """One graph of the whole step; where that cannot be, the step with a compiled loss."""
        torch, before = self.torch, {name: t.clone() for name, t in inputs.items()}

        def gradients_of(loss_of, parameters):
            gradients, loss = torch.func.grad_and_value(loss_of)(parameters)
            return loss, [gradients[name] for name in parameters]

        g = self.compiled(lambda inputs: f(s, gradients_of, **inputs))

        def call():
            with torch.no_grad():
                return g(inputs)

        try:
            call()
        except Exception:
            torch._dynamo.reset()

            def with_compiled(loss_of, parameters):
                if self.loss is None:
                    self.loss = self.compiled(loss_of)
                return self.with_gradients(self.loss, parameters)

            self.loss = None

            def call():
                with torch.no_grad():
                    return f(s, with_compiled, **inputs)

        for name, t in before.items():  # a step changes its inputs, and the next one is the first again
            inputs[name].copy_(t)
        return call


class Tuned(Compile):
    mode = "max-autotune-no-cudagraphs"


class Library(Torch):
    def function(self, kind):
        found = self.functions.ALTERNATIVES["library"].get(kind)
        if found is None:
            raise NotImplementedError("no library has a function that says the whole")
        return found


class Flex(Compile):
    def prepare(self, row):
        make = self.functions.ALTERNATIVES["flex"].get(row["kind"])
        if make is None:
            raise NotImplementedError("FlexAttention is for attention")
        self.make = make
        return super().prepare(row)

    def function(self, kind):
        made = []

        def call(s, q, k, v, **rest):
            return made[0](q, k, v)

        def outer(s, **inputs):
            return call(s, **inputs)

        self.bind = lambda s, inputs: made.append(self.make(s, **inputs))
        return outer

    def forward(self, f, s, inputs):
        self.bind(s, inputs)
        return super().forward(f, s, inputs)

    def gradient(self, f, s, inputs, wanted):
        self.bind(s, {n: t for n, t in inputs.items() if n != "direction"})
        h = self.compiled(lambda inputs: f(s, **inputs))
        return Torch.gradient(self, lambda s, **inputs: h(inputs), s, inputs, wanted)


class Reference(Torch):
    """In doubles, of the inputs as they are at their dtype."""

    def inputs(self, row):
        return {name: t.double() if t.is_floating_point() else t for name, t in super().inputs(row).items()}


class Jax:
    SMALL = 1 << 22

    def __init__(self, device):
        import jax
        import jax.numpy as jnp
        import numpy

        import peers_jax

        jax.config.update("jax_enable_x64", True)  # labels and steps are i64, as they are for the others
        jax.config.update("jax_default_matmul_precision", "highest")
        self.jax, self.jnp, self.numpy, self.functions = jax, jnp, numpy, peers_jax
        self.one_by_one = not device.startswith("cuda")
        if not self.one_by_one:
            jax.config.update("jax_default_device", jax.devices("gpu")[0])

    def array(self, i, position):
        count = math.prod(i["shape"])

        def fill(np):
            if i.get("runs"):
                n = i["shape"][-1]
                row = np.arange(n, dtype="int64") ** 2 * int(i["high"]) // (n * n)
                return np.broadcast_to(row.astype("int" + i["dtype"][1:]), i["shape"])
            h = np.arange(count, dtype=np.uint32) ^ np.uint32(sweep.scramble(position + 1))
            h = h * np.uint32(0x9E3779B1)
            h = (h ^ h >> 16) * np.uint32(0x85EBCA6B)
            h = (h ^ h >> 13) * np.uint32(0xC2B2AE35)
            h = h ^ h >> 16
            unit = (h >> 8).astype(np.float32) * np.float32(2.0**-24)
            value = unit * np.float32(i["high"] - i["low"]) + np.float32(i["low"])
            if i["dtype"] == "bool":
                value = value < 0.5
            elif i["dtype"] in ("i32", "i64"):
                value = np.floor(value).astype("int" + i["dtype"][1:])
            else:
                value = value.astype(sweep.Settings({"settings": {}, "dtype": i["dtype"]}).jax_dtype())
            return value.reshape(i["shape"])

        # What is small takes less time to fill than the code for its shape takes to compile.
        return self.jnp.asarray(fill(self.numpy)) if count < self.SMALL else self.jax.jit(lambda: fill(self.jnp))()

    def prepare(self, row):
        jax, s = self.jax, sweep.Settings(row)
        inputs = {i["name"]: self.array(i, position) for position, i in enumerate(row["inputs"])}
        f, wanted = getattr(self.functions, row["kind"]), sweep.wanted_gradients(row)
        if not row["braze"] and wanted:
            inputs.update(direction_like(self, row, Torch.first(jax.eval_shape(lambda i: f(s, **i), inputs))))
        jax.block_until_ready(inputs)
        self.started = time.perf_counter()
        donated = self.functions.DONATED.get(row["kind"], ())
        taken = {n: t for n, t in inputs.items() if n.startswith(donated)} if donated else {}
        kept = {n: t for n, t in inputs.items() if n not in taken}
        if wanted:
            def function(taken, kept):
                rest = {n: t for n, t in kept.items() if n not in wanted and n != "direction"}

                def value(chosen):
                    return Torch.first(f(s, **rest, **chosen))

                chosen = {n: kept[n] for n in wanted}
                if "direction" in kept:
                    gradients = jax.vjp(value, chosen)[1](kept["direction"])[0]
                    return [gradients[n] for n in wanted]
                loss, gradients = jax.value_and_grad(value)(chosen)
                return [loss] + [gradients[n] for n in wanted]
        else:
            def function(taken, kept):
                # Arguments come by their names in sorted order; the results follow those of the list.
                return f(s, **{n: taken[n] if n in taken else kept[n] for n in inputs})
        compiled = jax.jit(function, donate_argnums=0)

        def call():
            nonlocal taken
            results = compiled(taken, kept)
            if taken:
                order = [n for prefix in donated for n in inputs if n.startswith(prefix)]
                taken = dict(zip(order, results[-len(order):]))
            self.last = results
            return results

        self.call = call
        return call()

    def wait(self):
        self.jax.block_until_ready(self.last)

    def release(self):
        self.call = self.last = None
        self.jax.clear_caches()

    def values(self, result, count):
        places = sweep.sample_places(result.size, count)
        flat = (self.numpy.asarray(result) if result.size < self.SMALL else result).reshape(-1)
        if places is not None:
            flat = flat[self.numpy.array(places)]
        return list(result.shape), self.numpy.asarray(flat).astype("float64").tolist()


PEERS = {"torch": Torch, "compile": Compile, "tuned": Tuned, "library": Library, "flex": Flex, "jax": Jax,
         "reference": Reference}


def prepare(peer, row):
    """The seconds go from the inputs to the first results: tracing and compiling, and a call."""
    peer.release()
    results = peer.prepare(row)
    peer.wait()
    seconds = time.perf_counter() - peer.started
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    outputs = []
    for result in results:
        shape, values = peer.values(result, sweep.sample_count(len(results)))
        outputs.append({"shape": shape, "values": [v if math.isfinite(v) else str(v) for v in values]})
    return {"compile_s": seconds, "outputs": outputs}


def sample(peer, calls):
    one_by_one = getattr(peer, "one_by_one", False)
    start = time.perf_counter()
    for _ in range(calls):
        peer.call()
        if one_by_one:
            peer.wait()
    peer.wait()
    return (time.perf_counter() - start) / calls


def measure(peer, seconds):
    """As bench-sweep does."""
    sample(peer, 1)
    calls = int(min(max(0.005 / sample(peer, 2), 1), 100))
    us, end = [], time.perf_counter() + seconds
    while len(us) < 3 or time.perf_counter() < end:
        us.append(sample(peer, calls) * 1e6)
    return {"us": us}


def main():
    name, device, path = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    with open(path) as file:
        rows = {row["name"]: row for row in map(json.loads, file)}
    peer, missing = None, None
    try:
        peer = PEERS[name](device)
    except ModuleNotFoundError as error:
        missing = {"blank": f"not installed: {error}"}
    except Exception as error:
        missing = {"error": f"{type(error).__name__}: {error}"[:300]}
    for line in sys.stdin:
        verb, argument = line.split()
        try:
            answer = missing or (prepare(peer, rows[argument]) if verb == "prepare" else measure(peer, float(argument)))
        except NotImplementedError as error:
            answer = {"blank": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
