#!/usr/bin/env python3
"""Compares the estimates of the cost model with what kernels take, over the graphs of the sweep.

  predictions.py BUILD --device cuda:0 --out FILE.json [--markdown FILE.md] [--family F ...] [--half H]

BUILD is a folder whose bin/ holds `bench-sweep` and `braze`. For each row, `braze explain --measure` runs the graph and
prints the estimate and the median time of each kernel. Results are written after each row, and a row that the file has
is not measured again: --limit-seconds divides a long run. An estimate is right if it is within 30 % of the time.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import sweep

WITHIN = math.log(1.3)


def kernels_of(braze, graph, device, patience):
    """The kernels of a graph with their estimates and times, or what went wrong."""
    command = [braze, "explain", graph, "--measure", "--json", "--device", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {patience} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[0]}
    found = json.loads(done.stdout)["kernels"]
    return {"kernels": [{"name": k["kernel"], "estimate_us": k["predicted_s"] * 1e6, "us": k["median_s"] * 1e6}
                        for k in found if k["predicted_s"] > 0 and k["median_s"] > 0]}


def measured(options, build):
    bench, braze = (os.path.join(build, "bin", name) for name in ("bench-sweep", "braze"))
    scale = sweep.scale_of(options.device)
    results = {"device": options.device, "rows": []}
    if os.path.exists(options.out):
        with open(options.out) as file:
            results = json.load(file)
    done = {row["name"] for row in results["rows"]}
    end = time.monotonic() + options.limit_seconds
    for row in sweep.read_rows(bench, scale, options):
        if row["name"] in done or not row["braze"]:
            continue
        if time.monotonic() > end:
            print(f"stopped after {options.limit_seconds:.0f} s; run it again for the other rows")
            break
        graph = subprocess.run([bench, "graph", sweep.LIST, scale, row["name"]], capture_output=True, text=True, check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".braze") as file:
            file.write(graph.stdout)
            file.flush()
            found = kernels_of(braze, file.name, options.device, options.patience)
        results["rows"].append({"name": row["name"], "family": row["family"], "half": row["half"], **found})
        sweep.write_json(options.out, results)
    return results


def share_right(kernels):
    right = sum(abs(math.log(k["estimate_us"] / k["us"])) <= WITHIN for k in kernels)
    return f"{100 * right / len(kernels):.0f} %"


def line(name, kernels):
    mean = math.exp(sum(math.log(k["estimate_us"] / k["us"]) for k in kernels) / len(kernels))
    return f"| {name} | {len(kernels)} | {share_right(kernels)} | {mean:.2f} |"


def report(results):
    def kernels(holds):
        return [k for row in results["rows"] if holds(row) for k in row.get("kernels", [])]

    families = list(dict.fromkeys(row["family"] for row in results["rows"]))
    lines = ["# Estimates of the cost model beside the clock", "",
             f"Made by `bench/sweep/predictions.py`, device {results['device']}. An estimate is right if it is within 30 % of the "
             "median time of the kernel. Constants of the model are fitted on the half `fit`.", "",
             "| kernels of | number | right | geometric mean of estimate / time |", "| --- | ---: | ---: | ---: |"]
    groups = [("all", lambda row: True)]
    groups += [(f"half {half}", lambda row, half=half: row["half"] == half) for half in ("fit", "judge")]
    groups += [(family, lambda row, family=family: row["family"] == family) for family in families]
    lines += [line(name, found) for name, holds in groups if (found := kernels(holds))]
    worst = [(row["name"], k) for row in results["rows"] for k in row.get("kernels", [])]
    worst.sort(key=lambda pair: -abs(math.log(pair[1]["estimate_us"] / pair[1]["us"])))
    lines += ["", "The estimates that are farthest from the time:", "", "| row | kernel | estimate us | us |", "| --- | --- | ---: | ---: |"]
    lines += [f"| {row} | {k['name']} | {k['estimate_us']:.1f} | {k['us']:.1f} |" for row, k in worst[:20]]
    broken = [row for row in results["rows"] if "error" in row]
    lines += [f"\n{row['name']}: {row['error']}" for row in broken]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    sweep.add_row_options(parser)
    parser.add_argument("--out", required=True, help="a JSON file, continued if it exists")
    parser.add_argument("--markdown", help="a file for the table; without it, the table is printed")
    options = parser.parse_args()
    text = report(measured(options, options.build))
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
