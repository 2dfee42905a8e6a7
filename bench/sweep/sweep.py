"""What run.py, compare.py and worker.py share: workers that answer requests, and how results are judged.

A worker is a process that measures one peer. It reads a request a line and answers with a line of JSON:
`prepare NAME` makes inputs, compiles, runs once and answers with samples of the results; `measure SECONDS` answers
with microseconds a call. Braze's worker is `bench-sweep serve`, the others are worker.py.
"""
import json
import math
import os
import queue
import statistics
import subprocess
import sys
import threading
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(FOLDER, "workloads.txt")
# Peers that compile; the others are libraries. The best of both kinds is reported apart.
COMPILERS = ("compile", "tuned", "flex", "jax")
PEERS = ("torch", "library") + COMPILERS
# The norm of the difference to the reference over its norm, which stays below this by dtype, else the two did
# different work. Training steps and long chains of 16-bit values differ by their roundings.
TOLERANCE = {"f32": 2e-3, "f64": 2e-3, "bf16": 4e-2, "f16": 1e-2}
# At the small sizes of --check, against doubles. A value between two steps of a quantisation may go to either.
CHECK_TOLERANCE = {"f32": 3e-4, "tf32": 2e-3, "f64": 1e-9, "bf16": 3e-2, "f16": 5e-3}


class Settings:
    """The settings of a row; workloads.h has the same."""

    def __init__(self, row):
        self.values, self.dtype = row["settings"], row["dtype"]

    def __getitem__(self, key):
        return int(self.values[key])

    def get(self, key, fallback):
        return int(self.values.get(key, fallback))

    def has(self, key):
        return key in self.values

    def list(self, key):
        return [int(n) for n in self.values[key].split("x")]

    def text(self, key, fallback):
        return self.values.get(key, fallback)

    def torch_dtype(self):
        import torch

        return {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}[self.dtype]

    def jax_dtype(self):
        return {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16"}[self.dtype]


def wanted_gradients(row):
    """The inputs by which a row is differentiated, or None."""
    wanted = row["settings"].get("gradient")
    if wanted == "*":
        whole = ("i32", "i64", "bool")
        return [i["name"] for i in row["inputs"] if i["dtype"] not in whole and i["name"] != "direction"]
    return wanted and wanted.split(",")


def scramble(index):
    """The bits of workloads.h."""
    h = index * 0x9E3779B1 & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ h >> 16


def sample_count(results):
    return max(64, 16384 // results)


def sample_places(size, count):
    """None: all elements."""
    return None if size <= count else [scramble(i) % size for i in range(count)]


def find_bench_sweep(given):
    """The executable: what was given, or the folder that holds it, or that of the bundle or of the build."""
    if given and os.path.isfile(given):
        return given
    root = os.path.dirname(os.path.dirname(FOLDER))
    for folder in [given] if given else [root, os.path.join(root, "build", "dev")]:
        path = os.path.join(folder, "bin", "bench-sweep")
        if os.path.isfile(path):
            return path
    sys.exit("bench-sweep is not built; give --braze FILE, or build the target bench-sweep")


def scale_of(device):
    return "gpu" if device.startswith("cuda") else "cpu"


def list_rows(executable, path, scale):
    """All rows of a list at a scale."""
    out = subprocess.run([executable, "list", path, scale], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def read_rows(executable, scale, options):
    """The rows of the list at a scale, those that the options choose."""
    return [row for row in list_rows(executable, options.list, scale)
            if (not options.family or row["family"] in options.family)
            and (not options.half or row["half"] == options.half)
            and (not options.rows or row["name"] in options.rows)]


def add_row_options(parser):
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--list", default=LIST, help="the rows (default: workloads.txt); draw.py draws others")
    parser.add_argument("--family", nargs="*", help="some families of the list")
    parser.add_argument("--half", choices=("fit", "judge"))
    parser.add_argument("--rows", nargs="*", help="some rows, by name")
    parser.add_argument("--limit-seconds", type=float, default=math.inf, help="start no row after so long")
    parser.add_argument("--seconds", type=float, default=0.5, help="time that each peer is measured, a row")
    parser.add_argument("--rounds", type=int, default=5, help="turns into which that time is divided")
    parser.add_argument("--patience", type=float, default=300, help="seconds that a peer may take to prepare a row")


class Worker:
    """A process that measures one peer. One that dies or does not answer is started anew for the next row."""

    def __init__(self, name, command, environment=None):
        self.name, self.command = name, command
        self.environment = dict(os.environ, **(environment or {}))
        self.process, self.answers, self.reader = None, None, None

    def start(self):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            stderr=subprocess.DEVNULL, env=self.environment, bufsize=1)
            self.answers = queue.Queue()
            self.reader = threading.Thread(target=self.read, args=(self.process, self.answers), daemon=True)
            self.reader.start()

    @staticmethod
    def read(process, answers):
        with process.stdout:
            for line in process.stdout:
                if line.startswith("{"):
                    answers.put(json.loads(line))
        answers.put({"error": f"the worker ended with status {process.wait()}", "ended": True})

    def ask(self, request):
        self.start()
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is the answer

    def answer(self, seconds):
        try:
            answer = self.answers.get(timeout=max(seconds, 0.01))
        except queue.Empty:
            answer = {"error": "no answer in time", "ended": True}
        if answer.pop("ended", False):
            self.stop()
        return answer

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.reader.join()
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass  # a request that nobody read
            self.process = None


def prepare_all(workers, row, patience):
    """All at the same time, for most of it is compilation."""
    end = time.monotonic() + patience
    for worker in workers:
        worker.ask("prepare " + row["name"])
    return {worker.name: worker.answer(end - time.monotonic()) for worker in workers}


def measure_all(workers, seconds, rounds):
    """Microseconds of each worker, in turns, so that what disturbs the machine disturbs all of them."""
    samples = {worker.name: [] for worker in workers}
    broken = {}
    for turn in range(rounds):
        # Everyone follows everyone.
        first = turn % max(len(workers), 1)
        for worker in workers[first:] + workers[:first]:
            if worker.name in broken:
                continue
            worker.ask(f"measure {seconds / rounds}")
            answer = worker.answer(120 + 20 * seconds)
            if "error" in answer:
                broken[worker.name] = answer["error"]
            else:
                samples[worker.name].append(statistics.median(answer["us"]))
    return samples, broken


def difference(outputs, reference):
    """The greatest, over the results, of the norm of the difference over the norm; or what does not fit."""
    if len(outputs) != len(reference):
        return f"{len(outputs)} results instead of {len(reference)}"
    worst = 0.0
    for i, (a, b) in enumerate(zip(outputs, reference)):
        if math.prod(a["shape"]) != math.prod(b["shape"]):
            return f"result {i} has the shape {a['shape']} instead of {b['shape']}"
        far = near = 0.0
        for x, y in zip(map(float, a["values"]), map(float, b["values"])):
            if x == y or (math.isnan(x) and math.isnan(y)):
                x = y = y if math.isfinite(y) else 0.0
            far += (x - y) ** 2
            near += y * y
        if not math.isfinite(far):
            return f"result {i} is not finite where the reference is, or the other way round"
        worst = max(worst, math.sqrt(far / near) if near > 0 else math.sqrt(far))
    return worst


def write_json(path, value):
    """Whole or not at all."""
    with open(path + ".new", "w") as file:
        json.dump(value, file, indent=1)
    os.replace(path + ".new", path)
