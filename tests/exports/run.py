"""Exports networks of PyTorch to ONNX and of Keras to StableHLO, runs them with Braze, and compares.

Usage: run.py RUNNER WORK [--suite small torchvision timm keras] [--only NAME...] [--device NAME] [--timeout S] [--results FOLDER]

RUNNER is bench-models; WORK keeps what was exported, so that only Braze runs again. A result is right if its error against f64 (the framework,
the network in f64), the greatest and the root mean square, is at most four times that of the framework's own f32. Ends with 1 if a network is
not right. Needs the packages of requirements.txt.

Where a network has jumps, as the derivatives of relu and of the greatest of a window have, one run of the framework does not say what f32 can
do: an element that rounding puts on the other side of a jump changes results by some per cent, and most runs have a few such elements, each
in other places. A network that is not right beside one run is therefore judged beside the greatest errors of that run and 16 more, whose inputs
are moved by at most one unit in the last place. If Braze is as exact as the framework, its run has the greatest error of all 18 with a
probability of 1/18, and four times the greatest of the others more seldom.
"""
import argparse
import collections
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import warnings

import numpy as np

BOUND = 4
MORE_RUNS = 16  # of the framework, where one says too little
BESIDE_RUNS = f"right beside {1 + MORE_RUNS} runs"
WHY_RUNS = ["A network with jumps (the derivatives of relu and of the greatest of a window have them) that is not right beside one run of the framework is "
            f"judged beside the greatest errors of that run and {MORE_RUNS} more, whose inputs are moved by at most one unit in the last place: an element that rounding puts "
            "on the other side of a jump changes results by some per cent, most runs have a few such elements, and each has them in other places. The last "
            "column then gives the error over the greatest of these runs.", ""]
warnings.filterwarnings("ignore")


# ---- What frameworks say --------------------------------------------------------------------------------------------

# Each has SUITES, MODEL (a file's name) and prepare.
FRAMEWORKS = {"small": "networks", "torchvision": "networks", "timm": "networks", "keras": "keras_networks"}


# Writes the model, a file for each input, what the results are in f32 and in f64, and facts.json, which is last.
def prepare(framework, network, folder):
    folder.mkdir(parents=True, exist_ok=True)
    inputs, single, exact, parameters = framework.prepare(network, folder)
    for name, value in inputs.items():
        np.save(folder / f"{name}.npy", value)
    np.savez(folder / "single.npz", **single)
    np.savez(folder / "exact.npz", **exact)
    (folder / "facts.json").write_text(json.dumps({"model": framework.MODEL, "inputs": list(inputs), "parameters": parameters}))


# ---- What Braze says ------------------------------------------------------------------------------------------------


def run_braze(runner, folder, facts, device, timeout):
    """CPU seconds of import and of compilation, and milliseconds of a call. The results are written beside the model."""
    command = [runner, str(folder / facts["model"]), "--device", device, *(f"{name}={folder / name}.npy" for name in facts["inputs"])]
    env = os.environ | {"BRAZE_CACHE": "off"}
    done = subprocess.run(command, input="0\n", capture_output=True, text=True, env=env, timeout=timeout)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or f"ended with {done.returncode}")
    ready, call = done.stdout.splitlines()
    _, import_s, _, compile_s = map(float, ready.split()[1:])
    return import_s, compile_s, float(call.split()[1])


def errors(got, exact):
    difference = np.abs(got.astype(np.float64) - exact)
    return (difference.max(), np.sqrt((difference**2).mean())) if difference.size else (0, 0)


def ratio(ours, theirs):
    return ours / theirs if theirs else 0 if ours == 0 else float("inf")


# One unit in the last place of the greatest is the least error that is asked for: few numbers may be exact by chance.
def least(exact):
    return 2.0**-23 * np.abs(exact).max(initial=0)


def errors_of(results, exact):
    return {name: errors(results[name], exact[name]) for name in exact.files}


# The greatest errors of the run of the framework and of more runs.
def errors_of_runs(framework, network, folder):
    path, exact = folder / "runs.json", np.load(folder / "exact.npz")
    if not path.exists():
        runs = [errors_of(results, exact) for results in framework.other_runs(network, MORE_RUNS)]
        path.write_text(json.dumps({name: np.max([run[name] for run in runs], axis=0).tolist() for name in exact.files}))
    more, one = json.loads(path.read_text()), errors_of(np.load(folder / "single.npz"), exact)
    return {name: np.max([more[name], one[name]], axis=0) for name in exact.files}


# The greatest error of Braze over that of the framework, and why the results are not right.
def compare(folder, facts, errors_of_framework):
    got, exact = (np.load(folder / name) for name in (facts["model"] + ".results.npz", "exact.npz"))
    worst = 0
    for name in exact.files:
        if got[name].shape != exact[name].shape:
            return worst, f"the shape is {got[name].shape} and not {exact[name].shape}"
        if not np.isfinite(got[name]).all():
            return worst, "not finite"
        theirs = (max(error, least(exact[name])) for error in errors_of_framework[name])
        worst = max([worst, *map(ratio, errors(got[name], exact[name]), theirs)])
    return worst, "" if worst <= BOUND else f"the error is more than {BOUND} times the framework's"


# Every reason that a message of Braze lists, by operator; the message itself where it lists none.
def reasons(message):
    found = re.findall(r'^\s+".*" \((\S+), opset [^)]*\): (.*)$', message, re.M)
    return sorted({f"{op}: {why}" for op, why in found}) or [message.splitlines()[0][:200] if message else "no message"]


# A row of the table, and the reasons why the network is not right.
def judge(given, framework, suite, name, network):
    folder = given.work / suite / name
    row = {}
    try:
        if not (folder / "facts.json").exists():
            prepare(framework, network, folder)
        facts = json.loads((folder / "facts.json").read_text())
        row = {"parameters": facts["parameters"]}
        row["import_s"], row["compile_s"], row["ms"] = run_braze(given.runner, folder, facts, given.device, given.timeout)
        row["worst"], why = compare(folder, facts, errors_of(np.load(folder / "single.npz"), np.load(folder / "exact.npz")))
        if row["worst"] > BOUND and hasattr(framework, "other_runs"):
            row["of_runs"], why = compare(folder, facts, errors_of_runs(framework, network, folder))
        return row, [why] if why else []
    except subprocess.TimeoutExpired:
        return row, [f"took more than {given.timeout} s"]
    except Exception as error:  # the others are still of interest
        return row, reasons(str(error))


def cells(name, row, why):
    def text(key, form):
        return form.format(row[key]) if key in row else ""

    parameters = "{:.2f} M".format(row["parameters"] / 1e6) if row else ""
    right = f"{BESIDE_RUNS}: {row['of_runs']:.2f}" if "of_runs" in row else "right"
    return " | ".join(["| " + name, parameters, text("worst", "{:.2f}"), text("import_s", "{:.2f}"), text("compile_s", "{:.2f}"), text("ms", "{:.3g}"),
                       "; ".join(why).replace("\n", " ").replace("|", "\\|") or right]) + " |"


def rows_of(page):
    """The row of each network of a page of results."""
    return {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if re.match(r"\| \S+ \| [\d.]* M? \|", line)}


def why_not(row):
    return [why for why in row.removesuffix(" |").split(" | ")[-1].split("; ") if not why.startswith("right")]


def page(suite, device, lines, count):
    framework = "Keras as StableHLO" if suite == "keras" else "PyTorch as ONNX"
    failures = collections.Counter(why for line in lines for why in why_not(line))
    right = sum(not why_not(line) for line in lines)
    beside_runs = sum(BESIDE_RUNS in line for line in lines)
    counted = f"{right} of {len(lines)} are right" + (f", {beside_runs} of them beside {1 + MORE_RUNS} runs" if beside_runs else "")
    text = [f"# Networks of {framework}, on {'a CPU' if device == 'cpu' else device}: {suite}", "",
            "Made by `tests/exports/run.sh`. The error of a network is the greatest of Braze against f64 over that of the framework's f32, of maxima and "
            f"of root mean squares, over all results; up to {BOUND} is right. Import and compilation are cold, in seconds of all threads; a call is in "
            "milliseconds, the fastest of three, while other programs ran on the machine.", "", *(WHY_RUNS if beside_runs else []), f"{counted}; {count - len(lines)} of the suite were not run.", "",
            "| network | parameters | error | import | compilation | call | |", "| --- | ---: | ---: | ---: | ---: | ---: | --- |", *lines]
    if failures:
        text += ["", "| reason | networks |", "| --- | ---: |", *(f"| {why} | {count} |" for why, count in failures.most_common())]
    return "\n".join(text) + "\n"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("runner")
    arguments.add_argument("work", type=pathlib.Path)
    arguments.add_argument("--suite", nargs="*", default=list(FRAMEWORKS), choices=list(FRAMEWORKS))
    arguments.add_argument("--only", nargs="*")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--timeout", type=int, default=600)
    arguments.add_argument("--results", type=pathlib.Path)
    given = arguments.parse_args()
    all_right = True
    for suite in given.suite:
        framework = importlib.import_module(FRAMEWORKS[suite])
        networks = framework.SUITES[suite]()
        path = given.results and given.results / (f"{suite}.md" if given.device == "cpu" else f"{suite}-{given.device.replace(':', '-')}.md")
        # With --only, the page keeps the other rows.
        rows = rows_of(path.read_text()) if given.only and path and path.exists() else {}
        judged = 0
        for name, network in networks.items():
            if given.only and name not in given.only:
                continue
            row, why = judge(given, framework, suite, name, network)
            rows[name] = cells(name, row, why)
            judged += 1
            all_right &= not why
            print(rows[name], flush=True)
            if path:  # after each: all of them take hours
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(page(suite, given.device, [rows[name] for name in networks if name in rows], len(networks)))
        right = sum(not why_not(row) for row in rows.values())
        print(f"{suite}: {judged} were run; {right} of {len(rows)} are right", flush=True)
    sys.exit(0 if all_right else 1)


if __name__ == "__main__":
    main()
