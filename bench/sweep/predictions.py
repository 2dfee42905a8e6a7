#!/usr/bin/env python3
"""Compares the estimates of the cost model with what kernels take, over the graphs of the sweep.

  predictions.py BUILD --device cuda:0 --out TIMES.json               measures each kernel
  predictions.py BUILD --times RESULTS ... --device cuda:0 --target TARGET --out TIMES.json
                                                       takes times that BUILD has measured before
  predictions.py BUILD --recorded TIMES.json           compares its estimates with recorded times

BUILD is a folder whose bin/ holds `bench-sweep` and `braze`. TIMES.json has kernels with their schedules and times.

Measuring: for each row, `braze explain --measure` runs the graph and prints the median time of each kernel. Results are
written after each row, and a row that the file has is not measured again: --limit-seconds divides a long run.

Taking: RESULTS are results of run.py, of compare.py (JSON, or a page with its tables; the times are those of its new
build) or of this script before it wrote schedules. Of a whole call, the time is that of a kernel only if the row is one
kernel. A row replaces what the file has of it. TARGET describes the machine, as `braze explain` prints it.

Comparing needs no device. A recorded time counts only if BUILD makes a kernel of the same name with the same schedule that
moves the same bytes; otherwise the report says so. An estimate is right if it is within 30 % of the time.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

import sweep

WITHIN = math.log(1.3)
# Calls on a GPU follow each other without waiting. A launch hides behind the call before, unless that one is so short that
# the host cannot keep up.
LEAST_CALL_LAUNCHES = 4


class Build:
    def __init__(self, options):
        self.bench = sweep.find_bench_sweep(options.bench or options.build)
        self.braze = os.path.join(options.build, "bin", "braze")
        self.list = options.list

    def explain(self, scale, row, patience, *arguments):
        """What `braze explain --json` says about the graph of a row, or {"error": what went wrong}."""
        graph = subprocess.run([self.bench, "graph", self.list, scale, row], capture_output=True, text=True, check=True)
        with tempfile.NamedTemporaryFile("w", suffix=".braze") as file:
            file.write(graph.stdout)
            file.flush()
            command = [self.braze, "explain", file.name, "--json", *arguments]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
            except subprocess.TimeoutExpired:
                return {"error": f"took more than {patience} s"}
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["no message"])[0]}
        return json.loads(done.stdout)

    def explain_for(self, target, scale, row, patience):
        """The same for a machine that need not be here. Simulated code is made without an assembler."""
        return self.explain(scale, row, patience, "--target", "sim:" + target.removeprefix("sim:"))


def identity(kernel):
    """What two kernels that take the same time share."""
    return {"name": kernel["kernel"], "schedule": kernel["schedule"],
            "bytes": f"{kernel['bytes_read']} {kernel['bytes_written']}"}


def read_json(path, otherwise):
    if not os.path.exists(path):
        return otherwise
    with open(path) as file:
        return json.load(file)


# --- Measuring and taking ---------------------------------------------------------------------------------------------


def measured(options):
    build = Build(options)
    scale = sweep.scale_of(options.device)
    results = read_json(options.out, {"device": options.device, "target": None, "rows": []})
    done = {row["name"] for row in results["rows"]}
    end = time.monotonic() + options.limit_seconds
    for row in sweep.read_rows(build.bench, scale, options):
        if row["name"] in done or not row["braze"]:
            continue
        if time.monotonic() > end:
            print(f"stopped after {options.limit_seconds:.0f} s; run it again for the other rows")
            break
        found = build.explain(scale, row["name"], options.patience, "--measure", "--device", options.device)
        results["target"] = found.get("target", results["target"])
        entry = {"name": row["name"], "family": row["family"], "half": row["half"]}
        if "error" in found:
            entry["error"] = found["error"]
        else:
            entry["kernels"] = [{**identity(k), "us": k["median_s"] * 1e6} for k in found["kernels"] if k["median_s"] > 0]
        results["rows"].append(entry)
        sweep.write_json(options.out, results)
    return results


def times_in(path):
    """{row: microseconds of a call} of rows that are one kernel, or {row: {kernel: microseconds}}."""
    if path.endswith(".md"):
        with open(path) as file:
            cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in file if line.startswith("|")]
        return {c[0]: float(c[2]) for c in cells if len(c) > 4 and "/" in c[0] and c[4].endswith("-> 1")}
    found = read_json(path, None)
    if isinstance(found, list):
        return {row["name"]: row["new"] for row in found if row.get("kernels", [0, 0])[1] == 1}
    if any("peers" in row for row in found["rows"]):
        braze = {row["name"]: row["peers"].get("braze", {}) for row in found["rows"]}
        return {name: peer["us"] for name, peer in braze.items() if peer.get("kernels") == 1 and "us" in peer}
    return {row["name"]: {k["name"]: k["us"] for k in row.get("kernels", [])} for row in found["rows"]}


def taken(options):
    build = Build(options)
    scale = sweep.scale_of(options.device)
    results = read_json(options.out, {"device": options.device, "target": options.target, "rows": []})
    rows = {row["name"]: row for row in results["rows"]}
    listed = {row["name"]: row for row in sweep.read_rows(build.bench, scale, options)}
    for path in options.times:
        for name, times in times_in(path).items():
            if name not in listed:
                continue
            found = build.explain_for(results["target"], scale, name, options.patience)
            kernels = found.get("kernels", [])
            entry = {"name": name, "family": listed[name]["family"], "half": listed[name]["half"],
                     "from": os.path.basename(path)}
            if isinstance(times, dict):
                entry["kernels"] = [{**identity(k), "us": times[k["kernel"]]} for k in kernels if k["kernel"] in times]
            elif len(kernels) == 1:
                entry["kernels"] = [{**identity(kernels[0]), "us": times, "call": True}]
            if entry.get("kernels"):
                rows[name] = entry
    results["rows"] = [rows[name] for name in listed if name in rows]
    sweep.write_json(options.out, results)
    return results


# --- Comparing --------------------------------------------------------------------------------------------------------


def launch_us(target):
    return 1e6 * float(re.search(r"\blaunch=(\S+)", target).group(1))


def estimated(options):
    """The recorded times with estimates, and the kernels that are no longer made."""
    build = Build(options)
    results = read_json(options.recorded, None)
    if results is None:
        sys.exit(f"there is no file {options.recorded}")
    scale = sweep.scale_of(results["device"])
    target = options.target or results["target"]
    out = {**results, "rows": []}
    chosen = {row["name"] for row in sweep.read_rows(build.bench, scale, options)}
    for row in results["rows"]:
        if row["name"] not in chosen:
            continue
        found = build.explain_for(target, scale, row["name"], options.patience)
        out["target"] = found.get("target", target)
        made = {json.dumps(identity(k)): k for k in found.get("kernels", [])}
        entry = {**row, "kernels": [], "changed": [], "short": []}
        if "error" in found:
            entry["error"] = found["error"]
        for recorded in row.get("kernels", []):
            now = made.get(json.dumps({key: recorded[key] for key in ("name", "schedule", "bytes")}))
            hidden = launch_us(out["target"]) if recorded.get("call") and scale == "gpu" else 0
            if not now or now["predicted_s"] <= 0:
                entry["changed"].append(recorded["name"])
            elif recorded["us"] < LEAST_CALL_LAUNCHES * hidden:
                entry["short"].append(recorded["name"])
            else:
                entry["kernels"].append({"name": recorded["name"], "us": recorded["us"], "members": len(now["members"]),
                                         "estimate_us": now["predicted_s"] * 1e6 - hidden})
        out["rows"].append(entry)
    return out


def share_right(kernels):
    right = sum(abs(math.log(k["estimate_us"] / k["us"])) <= WITHIN for k in kernels)
    return f"{100 * right / len(kernels):.0f} %"


def line(name, kernels):
    mean = math.exp(sum(math.log(k["estimate_us"] / k["us"]) for k in kernels) / len(kernels))
    return f"| {name} | {len(kernels)} | {share_right(kernels)} | {mean:.2f} |"


def report(results):
    def kernels(holds, joined=False):
        return [k for row in results["rows"] if holds(row) for k in row["kernels"] if (k["members"] > 0) == joined]

    def names(what):
        return [row["name"] for row in results["rows"] for _ in row[what]]

    families = list(dict.fromkeys(row["family"] for row in results["rows"]))
    lines = ["# Estimates of the cost model beside the clock", "",
             f"Made by `bench/sweep/predictions.py`. Machine: {results['target']}. An estimate is right if it is within 30 % of the "
             "recorded time of the kernel. Constants of the model are fitted on the half `fit`.", "",
             "| kernels of | number | right | geometric mean of estimate / time |", "| --- | ---: | ---: | ---: |"]
    groups = [("all", lambda row: True)]
    groups += [(f"half {half}", lambda row, half=half: row["half"] == half) for half in ("fit", "judge")]
    groups += [(family, lambda row, family=family: row["family"] == family) for family in families]
    lines += [line(name, found) for name, holds in groups if (found := kernels(holds))]
    if several := kernels(lambda row: True, joined=True):
        lines.append(line("launches of several kernels, which the rows above leave out", several))
    lines += ["", f"Recorded times of kernels that the compiler no longer makes like this, which do not count: {len(names('changed'))}"
              + "".join(f"{', ' if i else ' ('}{name}" for i, name in enumerate(dict.fromkeys(names("changed"))))
              + (")." if names("changed") else ".")]
    if short := names("short"):
        lines += ["", f"Calls that are too short to tell the time of a kernel: {', '.join(short)}."]
    worst = [(row["name"], k) for row in results["rows"] for k in row["kernels"] if not k["members"]]
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
    parser.add_argument("--out", help="a JSON file of times, continued if it exists")
    parser.add_argument("--times", nargs="+", metavar="RESULTS", help="results that BUILD has measured; adds them to --out")
    parser.add_argument("--recorded", metavar="TIMES", help="a JSON file of times; compares estimates with it")
    parser.add_argument("--target", help="with --times or --recorded: the machine, as `braze explain` prints it")
    parser.add_argument("--bench", help="bench-sweep, where BUILD has none")
    parser.add_argument("--markdown", help="a file for the table; without it, the table is printed")
    options = parser.parse_args()
    if not options.out and not options.recorded:
        parser.error("give --out for times to be measured or taken, or --recorded for a comparison")
    if options.times and not options.target and not os.path.exists(options.out or ""):
        parser.error("--times needs --target, the machine on which they were measured")
    if options.out:
        (taken if options.times else measured)(options)
        options.recorded = options.recorded or (None if options.times else options.out)
    if not options.recorded:
        return
    text = report(estimated(options))
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
