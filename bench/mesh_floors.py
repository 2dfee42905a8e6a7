#!/usr/bin/env python3
"""Measures everything that is promised about many devices, beside the peers, and writes one table.

  mesh_floors.py                         CPU devices, and all GPUs that are there
  mesh_floors.py --only gpu --out floors.md
  PYTHON=/opt/torch/bin/python mesh_floors.py    the interpreter that has torch and jax; without them their columns stay blank

It needs Python alone, the programs `braze`, `bench-mesh` and `digits` in one folder (--bin; default: that of an unpacked
bundle or of build/release), and for the peers torch and jax (GPUs) and mpicc with mpirun (MPI). The table is written again
after each measurement, so a run that is cut off leaves what it has. The timelines of training steps are kept in a folder
beside it. Each part can run alone: --only cpu, mpi, all_reduce, training, block, or gpu for the last three.
"""
import argparse
import datetime
import glob
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PARTS = ("cpu", "mpi", "all_reduce", "training", "block")
LINE = re.compile(r"^(?:torch: |jax: |mpi: )?(.+) on (\d+): ([0-9.]+) us$", re.MULTILINE)
SMALL, LARGE, HUGE = 8 << 10, 64 << 20, 1 << 30
CPU_DEVICES = 4
LIMIT = 300
NOTES = """
What is not alike: Braze keeps AdamW's moments of bf16 parameters in f32, as JAX does here, and torch's fused AdamW in bf16. Queries, keys and
values are one product in torch and JAX, and three in Braze. DistributedDataParallel and torch.distributed have a process for each GPU, and
JAX has all GPUs in one process.
"""


class Floors:
    """The rows of the table, and what the programs printed."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.rows, self.printed, self.machine = [], [], []
        self.limit = LIMIT  # seconds for one measurement of the present part

    def add(self, work, measured, peer, value, least=None):
        """A row; `value` has to be at least `least`, if there is a floor. A value that could not be measured is None."""
        met = "not measured" if value is None else "" if least is None else "yes" if value >= least else "no"
        figure = "" if value is None else f"{value:.2f}"
        self.rows.append((work, measured, peer, figure, "" if least is None else f"{least:.3g}", met))
        self.write()

    def text(self):
        lines = [f"# Many devices, {datetime.date.today()}", "", *self.machine, ""]
        lines += ["| work | Braze | beside it | ratio | floor | met |", "| --- | ---: | ---: | ---: | ---: | --- |"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        lines += [NOTES, "What the programs printed:", "", "```", *self.printed, "```", ""]
        return "\n".join(lines)

    def write(self):
        if self.arguments.out:
            with open(self.arguments.out, "w") as file:
                file.write(self.text())

    def run(self, command, environment=None, processes=None):
        """What the command prints; None if it fails. `processes`: environments of several that run at once."""
        shown = " ".join(os.path.basename(word) if os.path.isabs(word) else word for word in command)
        self.printed.append(f"$ {shown}" + (f"    ({len(processes)} processes)" if processes else ""))
        # Each in a group of its own, so that what it starts ends with it.
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                    env={**os.environ, **(environment or {}), **one}) for one in processes or [{}]]
        outputs, failed, deadline = [], False, time.monotonic() + self.limit
        for process in started:
            try:
                outputs.append(process.communicate(timeout=max(deadline - time.monotonic(), 0.1))[0])
            except subprocess.TimeoutExpired:
                end(started)
                outputs.append(process.communicate()[0] + f"ended after {self.limit} s\n")
            failed = failed or process.returncode != 0
        text = "".join(outputs)
        kept = [line for line in text.splitlines() if line.strip()]
        self.printed += kept[-12:] if failed else [line for line in kept if LINE.match(line) or line.startswith(("  loss", "accuracy"))]
        if failed:
            self.printed.append("FAILED")
            print(f"failed: {shown}\n{text[-2000:]}", file=sys.stderr)
        self.write()
        return None if failed else text


def end(processes):
    """Ends the groups of these processes. A launcher is asked first, because its processes may be in other groups."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass
        if number == signal.SIGTERM:
            time.sleep(3)


def times(text):
    """Microseconds by what was timed."""
    return {what: float(us) for what, _, us in LINE.findall(text or "")}


def shown(us):
    return "" if us is None else f"{us:.1f} us" if us < 1000 else f"{us / 1000:.2f} ms"


def ratio(a, b):
    return a / b if a and b else None


# --- CPU devices ----------------------------------------------------------------------------------


def accuracy(text):
    found = re.search(r"accuracy on .* ([0-9.]+) %", text or "")
    return float(found.group(1)) if found else None


def data():
    """Where the images are, if this is a bundle."""
    file = os.path.join(ROOT, "digits.csv.gz")
    return ["--data", file] if os.path.exists(file) else []


def digits(floors, work, many):
    """The accuracy of training on one device, and of `many`."""
    one = accuracy(floors.run([program(floors, "digits"), "--device", "cpu", *data()]))
    equal = None if one is None or many is None else float(one == many)
    floors.add(work, f"{many} %", f"{one} % on one device", equal, 1)


def measure_cpu(floors):
    n = str(CPU_DEVICES)
    got = times(floors.run([program(floors, "bench-mesh"), "all_reduce", n, "cpu", f"bytes={LARGE}", *small(floors)]))
    own, copies = got.get(f"all_reduce of {LARGE} bytes, a call and its wait"), got.get(f"copies of {LARGE} bytes, one of each thread")
    floors.add(f"{n} CPU devices, all_reduce of 64 MiB; so many threads copy as much", shown(own), shown(copies), ratio(copies, own), 0.5)
    many = floors.run([program(floors, "digits"), "--device", "cpu", "--mesh", f"data={n}", *data()], {"BRAZE_CPU_DEVICES": n})
    digits(floors, f"digits on {n} CPU devices", accuracy(many))


def measure_mpi(floors):
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                   "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "BRAZE_THREADS": "1",
                   "BRAZE_CUDA_DRIVER": "none"}
    n = str(CPU_DEVICES)
    for name in ("openmpi", "mpich"):
        launcher, compiler = shutil.which(f"mpirun.{name}"), shutil.which(f"mpicc.{name}")
        if not launcher or not compiler:
            floors.add(f"{n} ranks of {name}, all_reduce of 64 MiB; MPI's own", "", "", None, 0.5)
            continue
        with tempfile.TemporaryDirectory() as folder:
            peer = os.path.join(folder, "mpi_all_reduce")
            subprocess.run([compiler, "-O2", "-o", peer, os.path.join(HERE, "peers", "mpi_all_reduce.c")], check=True)
            # In turns, as the machine may not be quiet.
            own, mpi = [], []
            for _ in range(3):
                mpi += times(floors.run([launcher, "-n", n, peer], environment)).values()
                got = times(floors.run([launcher, "-n", n, program(floors, "bench-mesh"), "all_reduce", n, "cpu", f"bytes={LARGE}", *small(floors)], environment))
                own += [us for what, us in got.items() if what == f"all_reduce of {LARGE} bytes, a call and its wait"]
        own, mpi = (sorted(them)[len(them) // 2] if them else None for them in (own, mpi))
        floors.add(f"{n} ranks of {name}, all_reduce of 64 MiB; MPI's own", shown(own), shown(mpi), ratio(mpi, own), 0.5)
        many = floors.run([launcher, "-n", n, program(floors, "digits"), "--device", "cpu", "--mesh", f"data={n}", *data()], environment)
        digits(floors, f"digits on {n} ranks of {name}", accuracy(many))


# --- GPUs -----------------------------------------------------------------------------------------


def peer(floors, work, n, script="mesh.py"):
    python = floors.arguments.jax if script == "mesh_jax.py" else floors.arguments.torch
    if not python:
        return {}
    return times(floors.run([python, os.path.join(HERE, "peers", script), work, str(n)]))


def ranks(folder, n):
    """The environments of n processes, with a GPU each, that meet in a folder."""
    return [{"BRAZE_RANK": str(rank), "BRAZE_WORLD": str(n), "BRAZE_RENDEZVOUS": folder} for rank in range(n)]


def by_process(floors, command, n):
    """What a command prints in one process with all GPUs, and then in a process for each GPU."""
    yield "one process", floors.run(command)
    if not floors.arguments.device.startswith("cpu"):  # they do not meet in a folder
        with tempfile.TemporaryDirectory() as folder:
            yield "a process each", floors.run(command, processes=ranks(os.path.join(folder, "run"), n))


def bus_rate(n, us):
    """GB/s, as NCCL's own tests count them."""
    return 2 * (n - 1) / n * HUGE / us / 1e3


def measure_all_reduce(floors, n):
    command = [program(floors, "bench-mesh"), "all_reduce", str(n), floors.arguments.device, *small(floors)]
    torch = peer(floors, "all_reduce", n)
    for how, text in by_process(floors, command, n):
        got = times(text)
        for what in ("a call", "a call and its wait"):
            us, them = (all.get(f"all_reduce of {SMALL} bytes, {what}") for all in (got, torch))
            # At most 0.7 of the peer's time.
            floors.add(f"{n} GPUs, {how}, all_reduce of 8 KiB, {what}; torch.distributed", shown(us), shown(them), ratio(them, us), 1 / 0.7)
        us, them = (all.get(f"all_reduce of {HUGE} bytes, a call") for all in (got, torch))
        rates = [f"{bus_rate(n, x):.0f} GB/s" if x else "" for x in (us, them)]
        floors.add(f"{n} GPUs, {how}, all_reduce of 1 GiB; torch.distributed", *rates, ratio(them, us), 0.95)


def hidden_share(floors, files):
    text = floors.run([program(floors, "braze"), "timeline", *files, "--json"]) if files else None
    devices = json.loads(text)["devices"] if text else []
    shares = [device["hidden_share"] for device in devices if device["collective_seconds"] > 0]
    return min(shares) if shares else None


def trace_folder(floors, what):
    """A new folder for timelines, beside the table."""
    base = os.path.splitext(os.path.abspath(floors.arguments.out))[0] + "-traces" if floors.arguments.out else tempfile.mkdtemp()
    folder = os.path.join(base, f"{what}-{datetime.datetime.now():%H%M%S}")
    os.makedirs(folder)
    return folder


def measure_training(floors, n, alone):
    """A step on n GPUs. `alone` is the time on one."""
    command = [program(floors, "bench-mesh"), "training", str(n), floors.arguments.device, *small(floors)]
    torch = next(iter(peer(floors, "training", n).values()), None)
    jax = next(iter(peer(floors, "training", n, "mesh_jax.py").values()), None)

    def time_in(text):
        return next((us for what, us in times(text).items() if what.startswith("training step")), None)

    if n == 1:
        us = time_in(floors.run(command))
        floors.add("1 GPU, training step; torch.compile", shown(us), shown(torch), ratio(torch, us))
        floors.add("1 GPU, training step; JAX", shown(us), shown(jax), ratio(jax, us))
        return us
    apart = exchange = None
    # Last, each GPU keeps a part of AdamW's state of each matrix, and updates its part of the parameters. As many bytes are exchanged.
    for divided in ([], ["divided"]):
        folder = trace_folder(floors, f"{n}{'-divided' if divided else ''}")
        for how, text in by_process(floors, [*command, *divided, f"trace={folder}/%p.json"], n):
            us, got = time_in(text), times(text)
            work = f"{n} GPUs, {how}, training step" + (", state divided" if divided else "")
            apart = got.get("the same step without communication", apart)
            exchange = got.get("its communication alone", exchange)
            files = glob.glob(folder + "/*.json")
            share = hidden_share(floors, files) if text else None
            kept = os.path.join(folder, how.replace(" ", "-"))
            os.makedirs(kept)
            for file in files:  # those of the next run are others
                os.rename(file, os.path.join(kept, os.path.basename(file)))
            floors.add(f"{work}, efficiency; on one", shown(us), shown(alone), ratio(alone, us), 0.97 if n == 4 else None)
            floors.add(f"{work}; torch.compile and DDP", shown(us), shown(torch), ratio(torch, us))
            floors.add(f"{work}; JAX", shown(us), shown(jax), ratio(jax, us))
            if n == 4:
                floors.add(f"{work}; 30 ms", shown(us), shown(30000.0), ratio(30000.0, us), 1)
            # The floor is for both measures. First what the exchange adds to the step, in its own time: of the rest it can be
            # said that kernels hide it.
            hidden = 1 - (us - apart) / exchange if us and apart and exchange else None
            floors.add(f"{work}; the same without communication", shown(us), shown(apart), ratio(apart, us))
            floors.add(f"{work}, communication hidden, by the clock: 1 - (step - the same without) / communication alone",
                       shown(us and apart and us - apart), shown(exchange), hidden, 0.8)
            # Then what the timeline says of collectives beside kernels. It counts the waits of a GPU for the others as their time,
            # and each launch is visible, so none is recorded.
            floors.add(f"{work}, communication hidden, by the timeline: collectives beside kernels, on the device with the least",
                       "", "", share, 0.8)
    return None


def measure_block(floors, n):
    text = floors.run([program(floors, "bench-mesh"), "block", str(n), floors.arguments.device, *small(floors)])
    us, them = (next(iter(got.values()), None) for got in (times(text), peer(floors, "block", n)))
    floors.add(f"{n} GPUs, block of Llama-3 8B's sizes; torch, divided by hand", shown(us), shown(them), ratio(them, us), 1 if n > 1 else None)


# --- All ------------------------------------------------------------------------------------------


def program(floors, name):
    return os.path.join(floors.arguments.bin, name)


def small(floors):
    return ["small"] if floors.arguments.small else []


def describe(floors):
    """Says which machine this is, and returns the number of its GPUs."""
    text = subprocess.run([program(floors, "braze"), "devices", "--json"], capture_output=True, text=True).stdout
    names = [device["name"] for device in json.loads(text)["devices"]] if text else []
    doctor = subprocess.run([program(floors, "braze"), "devices"], capture_output=True, text=True).stdout
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    floors.machine = [f"{len(os.sched_getaffinity(0))} cores of {cpu}. `braze devices` says:", "", "```", doctor.rstrip(), "```", "",
                      "A ratio is the time beside Braze's over Braze's time, and has to be at least the floor, where there is one.",
                      "Each time is the median of seven runs; with MPI, of three such medians, in turns with MPI's own."]
    kind = floors.arguments.device.split(":")[0]
    return sum(name.split(":")[0] == kind for name in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folders = [folder for folder in (os.path.join(ROOT, "bin"), os.path.join(ROOT, "build", "release", "bin")) if os.path.isdir(folder)]
    parser.add_argument("--bin", default=folders[0] if folders else ".", help="folder with the programs")
    parser.add_argument("--out", help="file for the table")
    parser.add_argument("--only", default="all", help="parts: " + ", ".join(PARTS) + ", gpu, all")
    parser.add_argument("--devices", default="2,4", help="numbers of GPUs")
    parser.add_argument("--device", default="cuda:0", help="one of the kind that stands for GPUs")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--limit", default=str(LIMIT),
                        help="seconds for one measurement: a number, and PART=NUMBER for parts that need another (300,training=600)")
    arguments = parser.parse_args()
    arguments.bin = os.path.abspath(arguments.bin)
    python = os.environ.get("PYTHON", sys.executable)
    has_torch = subprocess.run([python, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode == 0
    arguments.torch = python if has_torch else None
    has_jax = subprocess.run([python, "-c", "import jax; assert jax.devices()[0].platform == 'gpu'"], capture_output=True).returncode == 0
    arguments.jax = python if has_jax else None
    limits = {}
    for word in arguments.limit.split(","):
        part, _, seconds = word.rpartition("=")
        if part not in ("", *PARTS) or not seconds.isdigit():
            parser.error(f"{word} is no limit")
        limits[part] = int(seconds)
    parts = set()
    for word in arguments.only.split(","):
        if word not in (*PARTS, "gpu", "all"):
            parser.error(f"{word} is not a part")
        parts |= set(PARTS if word == "all" else PARTS[2:] if word == "gpu" else [word])

    floors = Floors(arguments)
    there = describe(floors)

    def measures(part):
        floors.limit = limits.get(part, limits.get("", LIMIT))
        return part in parts

    if measures("cpu"):
        measure_cpu(floors)
    if measures("mpi"):
        measure_mpi(floors)
    counts = [int(word) for word in arguments.devices.split(",")]
    alone = None
    if there > 0 and measures("training"):
        alone = measure_training(floors, 1, None)
    if there > 0 and measures("block"):
        measure_block(floors, 1)
    for n in counts:
        if n > there:
            print(f"{n} devices like {arguments.device} are not there", file=sys.stderr)
            continue
        if measures("all_reduce"):
            measure_all_reduce(floors, n)
        if measures("training"):
            measure_training(floors, n, alone)
        if measures("block"):
            measure_block(floors, n)
    print(floors.text())
    return 1 if any(row[-1] == "no" for row in floors.rows) or "FAILED" in floors.printed else 0


if __name__ == "__main__":
    sys.exit(main())
