#!/usr/bin/env python3
"""Runs the sweep: Braze and its peers on the same values, in turns, on one device.

  run.sh --device cpu --out results.json              every row of workloads.txt at the size for CPUs
  run.sh --device cuda:0 --family norms softmax --half fit --out fit.json
  run.sh --check                                      every row, small, against doubles; no figures

Results are written after each row, and rows that the file has are not measured again, so that a sweep can be made in
parts (--limit-seconds). report.py makes the table and the plot.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time

import sweep


def machine(device):
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name()
    with open("/proc/cpuinfo") as file:
        models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores of {models[0] if models else platform.machine()}"


def versions(peers):
    found = {}
    for package in ("torch", "jax") if peers else ():
        try:
            found[package] = __import__(package).__version__
        except ImportError:
            found[package] = None
    return found


def workers_of(options, executable, scale, device, peers, folder):
    rows = os.path.join(folder, "rows.json")
    with open(rows, "w") as file:
        for row in sweep.list_rows(executable, options.list, scale):
            file.write(json.dumps(row) + "\n")
    # Frameworks keep their memory, so that page faults are not counted as our speed.
    environment = {"MALLOC_TOP_PAD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "8589934592",
                   "MALLOC_TRIM_THRESHOLD_": "8589934592", "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                   "TF_CPP_MIN_LOG_LEVEL": "3"}
    if device == "cpu":
        environment["JAX_PLATFORMS"] = "cpu"
    workers = [sweep.Worker("braze", [executable, "serve", options.list, scale, device])]
    for peer in peers:
        command = [sys.executable, os.path.join(sweep.FOLDER, "worker.py"), peer, device, rows]
        workers.append(sweep.Worker(peer, command, environment))
    return workers


def facts(prepared):
    return {key: prepared[key] for key in ("compile_s", "kernels", "blank", "error") if key in prepared}


def judge(prepared, reference, tolerance):
    """Marks the peers whose results are not those of the reference, or of the first peer that has some."""
    having = [name for name in [reference, *prepared] if "outputs" in prepared.get(name, {})]
    if not having:
        return None
    for name in having:
        found = sweep.difference(prepared[name]["outputs"], prepared[having[0]]["outputs"])
        prepared[name]["difference"] = found
        if isinstance(found, str) or found > tolerance:
            prepared[name]["error"] = f"differs from {having[0]}: {found}"
    return having[0]


def run_row(row, workers, options):
    prepared = sweep.prepare_all(workers, row, options.patience)
    reference = judge(prepared, "torch", sweep.TOLERANCE[row["dtype"]])
    ready = [w for w in workers if "outputs" in prepared[w.name] and "error" not in prepared[w.name]]
    samples, broken = sweep.measure_all(ready, options.seconds, options.rounds)
    peers = {}
    for worker in workers:
        peers[worker.name] = facts(prepared[worker.name])
        if worker.name in broken:
            peers[worker.name]["error"] = broken[worker.name]
        elif samples.get(worker.name):
            turns = samples[worker.name]
            peers[worker.name].update(us=statistics.median(turns), turns=turns)
    keep = ("name", "family", "half", "kind", "dtype", "settings", "braze")
    return {**{key: row[key] for key in keep}, "reference": reference, "peers": peers}


def figures(row):
    def one(name, peer):
        if "us" in peer:
            return f"{name} {peer['us']:.1f}"
        return f"{name}: {peer.get('error') or peer.get('blank')}"

    return ", ".join(one(name, peer) for name, peer in row["peers"].items()
                     if "us" in peer or "error" in peer or name == "braze")


def measured(options, executable):
    scale = sweep.scale_of(options.device)
    rows = sweep.read_rows(executable, scale, options)
    results = {"rows": []}
    if os.path.exists(options.out):
        with open(options.out) as file:
            results = json.load(file)
        if results["device"] != options.device:
            sys.exit(f"{options.out} is of the device {results['device']}; give another --out")
    results.update(device=options.device, machine=machine(options.device), versions=versions(options.peers),
                   date=datetime.date.today().isoformat(), seconds=options.seconds, rounds=options.rounds)
    done = {row["name"] for row in results["rows"]}
    end = time.monotonic() + options.limit_seconds
    with tempfile.TemporaryDirectory() as folder:
        workers = workers_of(options, executable, scale, options.device, options.peers, folder)
        try:
            for row in rows:
                if row["name"] in done:
                    continue
                if time.monotonic() > end:
                    print(f"stopped after {options.limit_seconds:.0f} s; run it again for the other rows")
                    break
                results["rows"].append(run_row(row, workers, options))
                sweep.write_json(options.out, results)
                print(f"{row['name']}: {figures(results['rows'][-1])}", flush=True)
        finally:
            for worker in workers:
                worker.stop()


def verdict(name, peer):
    if "error" in peer:
        return f"{name} IS WRONG: {peer['error']}"
    return f"{name} {peer['difference']:.1e}" if "outputs" in peer else f"{name}: {peer['blank']}"


def checked(options, executable):
    """Braze and the given peers at small sizes against doubles. Returns the exit status."""
    rows = sweep.read_rows(executable, "check", options)
    wrong = judged = 0
    end = time.monotonic() + options.limit_seconds
    with tempfile.TemporaryDirectory() as folder:
        workers = workers_of(options, executable, "check", options.device, ["reference", *options.peers], folder)
        try:
            for row in rows:
                if time.monotonic() > end:
                    print(f"stopped after {options.limit_seconds:.0f} s before {row['name']}")
                    break
                prepared = sweep.prepare_all(workers, row, options.patience)
                if "outputs" not in prepared["reference"]:
                    print(f"{row['name']}: no reference: {facts(prepared['reference'])}", flush=True)
                    wrong += 1
                    continue
                tf32 = row["settings"].get("tf32", "0") != "0"
                judge(prepared, "reference", sweep.CHECK_TOLERANCE["tf32" if tf32 else row["dtype"]])
                del prepared["reference"]
                judged += "outputs" in prepared["braze"]
                wrong += sum("error" in peer for peer in prepared.values())
                said = [verdict(*item) for item in prepared.items() if "blank" not in item[1] or item[0] == "braze"]
                print(f"{row['name']}: {', '.join(said)}", flush=True)
        finally:
            for worker in workers:
                worker.stop()
    print(f"{judged} rows of Braze judged, {sum(not row['braze'] for row in rows)} not yet; {wrong} wrong")
    return 1 if wrong or not judged else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sweep.add_row_options(parser)
    parser.add_argument("--out", help="the file of the results, JSON")
    parser.add_argument("--braze", help="bench-sweep, or the folder whose bin/ holds it")
    parser.add_argument("--peers", nargs="*", choices=sweep.PEERS, help="default: all but tuned; for --check none")
    parser.add_argument("--check", action="store_true", help="values at small sizes, no figures")
    options = parser.parse_args()
    if not options.check and not options.out:
        parser.error("give --out FILE, or --check")
    if options.peers is None:
        options.peers = [] if options.check else [peer for peer in sweep.PEERS if peer != "tuned"]
    executable = sweep.find_bench_sweep(options.braze)
    sys.exit(checked(options, executable) if options.check else measured(options, executable))


if __name__ == "__main__":
    main()
