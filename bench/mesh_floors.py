#!/usr/bin/env python3
"""Measures everything that is promised about many devices, beside the peers, and writes one table.

  mesh_floors.py                         CPU devices, and all GPUs that are there
  mesh_floors.py --only gpu --out floors.md
  PYTHON=/opt/torch/bin/python mesh_floors.py    the interpreter that has torch; without torch its columns stay blank

It needs Python alone, the programs `braze`, `bench-mesh` and `digits` in one folder (--bin; default: that of an unpacked
bundle or of build/release), and for the peers torch (GPUs) and mpicc with mpirun (MPI). The table is written again after
each measurement, so a run that is cut off leaves what it has. Each part can run alone: --only cpu, mpi, all_reduce,
training, block, or gpu for the last three.
"""
import argparse
import datetime
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
PARTS = ("cpu", "mpi", "all_reduce", "training", "block")
LINE = re.compile(r"^(?:torch: |mpi: )?(.+) on (\d+): ([0-9.]+) us$", re.MULTILINE)
SMALL, LARGE, HUGE = 8 << 10, 64 << 20, 1 << 30
CPU_DEVICES = 4


class Floors:
    """The rows of the table, and what the programs printed."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.rows, self.printed, self.machine = [], [], []

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
        lines += ["", "What the programs printed:", "", "```", *self.printed, "```", ""]
        return "\n".join(lines)

    def write(self):
        if self.arguments.out:
            with open(self.arguments.out, "w") as file:
                file.write(self.text())

    def run(self, command, environment=None, processes=None):
        """What the command prints; None if it fails. `processes`: environments of several that run at once."""
        shown = " ".join(os.path.basename(word) if os.path.isabs(word) else word for word in command)
        self.printed.append(f"$ {shown}" + (f"    ({len(processes)} processes)" if processes else ""))
        started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                    env={**os.environ, **(environment or {}), **one}) for one in processes or [{}]]
        outputs, failed = [], False
        for process in started:
            try:
                outputs.append(process.communicate(timeout=self.arguments.limit)[0])
            except subprocess.TimeoutExpired:
                for other in started:
                    other.kill()
                outputs.append(process.communicate()[0] + f"ended after {self.arguments.limit} s\n")
            failed = failed or process.returncode != 0
        text = "".join(outputs)
        kept = [line for line in text.splitlines() if line.strip()]
        self.printed += kept[-12:] if failed else [line for line in kept if LINE.match(line) or line.startswith(("  loss", "accuracy"))]
        if failed:
            self.printed.append("FAILED")
            print(f"failed: {shown}\n{text[-2000:]}", file=sys.stderr)
        self.write()
        return None if failed else text


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


def peer(floors, work, n):
    if not floors.arguments.torch:
        return {}
    return times(floors.run([floors.arguments.torch, os.path.join(HERE, "peers", "mesh.py"), work, str(n)]))


def ranks(folder, n):
    """The environments of n processes, with a GPU each, that meet in a folder."""
    return [{"BRAZE_RANK": str(rank), "BRAZE_WORLD": str(n), "BRAZE_RENDEZVOUS": folder} for rank in range(n)]


def bus_rate(n, us):
    """GB/s, as NCCL's own tests count them."""
    return 2 * (n - 1) / n * HUGE / us / 1e3


def measure_all_reduce(floors, n):
    command = [program(floors, "bench-mesh"), "all_reduce", str(n), floors.arguments.device, *small(floors)]
    torch = peer(floors, "all_reduce", n)
    with tempfile.TemporaryDirectory() as folder:
        by_process = {"one process": times(floors.run(command))}
        if not floors.arguments.device.startswith("cpu"):  # they do not meet in a folder
            by_process["a process each"] = times(floors.run(command, processes=ranks(os.path.join(folder, "run"), n)))
    for how, got in by_process.items():
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


def measure_training(floors, n, alone):
    """A step on n GPUs. `alone` is the time on one."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program(floors, "bench-mesh"), "training", str(n), floors.arguments.device, *small(floors)]
        text = floors.run([*command, f"trace={folder}/%p.json"] if n > 1 else command)
        share = hidden_share(floors, glob.glob(folder + "/*.json")) if text and n > 1 else None
    us = next((us for what, us in times(text).items() if what.startswith("training step")), None)
    them = next(iter(peer(floors, "training", n).values()), None)
    if n == 1:
        floors.add("1 GPU, training step; torch.compile", shown(us), shown(them), ratio(them, us))
        return us
    floors.add(f"{n} GPUs, training step, efficiency; on one", shown(us), shown(alone), ratio(alone, us), 0.97 if n == 4 else None)
    floors.add(f"{n} GPUs, training step; torch.compile and DDP", shown(us), shown(them), ratio(them, us))
    if n == 4:
        floors.add(f"{n} GPUs, training step; 30 ms", shown(us), shown(30000.0), ratio(30000.0, us), 1)
    floors.add(f"{n} GPUs, communication hidden behind kernels, on the device with the least", "", "", share, 0.8)
    return us


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
    parser.add_argument("--limit", type=int, default=300, help="seconds for one measurement")
    arguments = parser.parse_args()
    arguments.bin = os.path.abspath(arguments.bin)
    python = os.environ.get("PYTHON", sys.executable)
    has_torch = subprocess.run([python, "-c", "import torch; assert torch.cuda.is_available()"], capture_output=True).returncode == 0
    arguments.torch = python if has_torch else None
    parts = set()
    for word in arguments.only.split(","):
        if word not in (*PARTS, "gpu", "all"):
            parser.error(f"{word} is not a part")
        parts |= set(PARTS if word == "all" else PARTS[2:] if word == "gpu" else [word])

    floors = Floors(arguments)
    there = describe(floors)
    if "cpu" in parts:
        measure_cpu(floors)
    if "mpi" in parts:
        measure_mpi(floors)
    counts = [int(word) for word in arguments.devices.split(",")]
    alone = None
    if "training" in parts and there > 0:
        alone = measure_training(floors, 1, None)
    if "block" in parts and there > 0:
        measure_block(floors, 1)
    for n in counts:
        if n > there:
            print(f"{n} devices like {arguments.device} are not there", file=sys.stderr)
            continue
        if "all_reduce" in parts:
            measure_all_reduce(floors, n)
        if "training" in parts:
            measure_training(floors, n, alone)
        if "block" in parts:
            measure_block(floors, n)
    print(floors.text())
    return 1 if any(row[-1] == "no" for row in floors.rows) or "FAILED" in floors.printed else 0


if __name__ == "__main__":
    sys.exit(main())
