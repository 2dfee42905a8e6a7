#!/usr/bin/env python3
"""Compares two builds of Braze on one device, row by row, in turns.

  compare.py OLD NEW --device cuda:0 [--family F ...] [--half H] [--out FILE]

OLD and NEW are bench-sweep of each build, or folders whose bin/ holds it; both read the list of this folder. A row is
slower if NEW's median is more than 3 % above OLD's, or more than 0.3 us where OLD takes less than 10 us. Such a row is
measured twice more, each time longer, and counts only if it is slower each time. The exit status is 1 if one is, if
results differ, or if NEW cannot do what OLD can. Results that are not the same bits are marked; the order of a sum may
have changed.
"""
import argparse
import statistics
import sys
import time

import sweep

SHARE, LEAST_US, SHORT_US = 0.03, 0.3, 10


def is_slower(old, new):
    return new > old + LEAST_US if old < SHORT_US else new > old * (1 + SHARE)


def compare_row(row, workers, options):
    """What happened to the row: a dictionary for the table."""
    prepared = sweep.prepare_all(workers, row, options.patience)
    old, new = (prepared[name] for name in ("old", "new"))
    found = {"name": row["name"], "fault": None}
    if "outputs" not in old or "outputs" not in new:
        whats = [p.get("error") or p.get("blank") or "works" for p in (old, new)]
        return {**found, "note": f"old: {whats[0]}; new: {whats[1]}",
                "fault": "lost" if "outputs" in old else None}
    difference = sweep.difference(new["outputs"], old["outputs"])
    if isinstance(difference, str) or difference > sweep.TOLERANCE[row["dtype"]]:
        return {**found, "fault": "values", "note": f"results differ: {difference}"}
    found["note"] = "" if new["outputs"] == old["outputs"] else f"other bits, {difference:.1e}"
    for longer in (1, 2, 4):
        samples, broken = sweep.measure_all(workers, longer * options.seconds, longer * options.rounds)
        if broken:
            return {**found, "fault": "broken", "note": str(broken)}
        medians = {name: statistics.median(turns) for name, turns in samples.items()}
        found.update(medians, kernels=(old["kernels"], new["kernels"]),
                     compile_s=(old["compile_s"], new["compile_s"]))
        found["fault"] = "slower" if is_slower(medians["old"], medians["new"]) else None
        if not found["fault"]:
            break
    return found


def line(found):
    if "old" not in found:
        return f"| {found['name']} | | | | | {found['note']} | {found['fault'] or ''} |"
    kernels = "{} -> {}".format(*found["kernels"])
    return (f"| {found['name']} | {found['old']:.2f} | {found['new']:.2f} | {found['old'] / found['new']:.3f} "
            f"| {kernels} | {found['note']} | {found['fault'] or ''} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    sweep.add_row_options(parser)
    parser.add_argument("--out", help="a file that receives the figures as JSON")
    options = parser.parse_args()
    scale = sweep.scale_of(options.device)
    paths = {"old": sweep.find_bench_sweep(options.old), "new": sweep.find_bench_sweep(options.new)}
    rows = sweep.read_rows(paths["new"], scale, options)
    workers = [sweep.Worker(name, [path, "serve", options.list, scale, options.device]) for name, path in paths.items()]
    print("| workload | old us | new us | old / new | kernels | values | |")
    print("| --- | ---: | ---: | ---: | --- | --- | --- |")
    results, end = [], time.monotonic() + options.limit_seconds
    try:
        for row in rows:
            if time.monotonic() > end:
                break
            if not row["braze"]:
                continue
            results.append(compare_row(row, workers, options))
            print(line(results[-1]), flush=True)
            if options.out:
                sweep.write_json(options.out, results)
    finally:
        for worker in workers:
            worker.stop()
    timed = [found for found in results if "old" in found]
    bad = [found for found in results if found["fault"]]
    if timed:
        mean = statistics.geometric_mean(found["old"] / found["new"] for found in timed)
        print(f"\n{len(timed)} rows measured, geometric mean of old / new {mean:.3f}; {len(bad)} at fault")
    sys.exit(1 if bad or not timed else 0)


if __name__ == "__main__":
    main()
