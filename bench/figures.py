#!/usr/bin/env python3
"""Writes the figures of README.md and of bench/results from the JSON files in bench/results.

  figures.py            writes every table and plot anew
  figures.py --check    writes nothing; ends with status 1 and a difference if a table or plot is out of date

A table stands between the lines `<!-- figures: KIND FILE -->` and `<!-- end of figures -->`, and this script owns what
is between them. FILE is in bench/results. KIND is `all` (every peer that was measured), or `sweep` (a line for each
family, and the plot of FILE).

The files have the form that bench/sweep/run.py writes. The ratio is always that of bench/sweep/report.py: the time of
the fastest peer, eager mode and libraries included, over the time of Braze.
"""
import argparse
import difflib
import glob
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results")
sys.path.insert(0, os.path.join(ROOT, "bench", "sweep"))
sys.dont_write_bytecode = True
import report
import sweep

NAMES = {"torch": "PyTorch", "library": "library", "compile": "torch.compile", "tuned": "torch.compile, max-autotune",
         "flex": "FlexAttention", "jax": "JAX"}
EQUAL = 0.995  # a ratio below this one is bold
MARKED = re.compile(r"(<!-- figures: (\w+) (\S+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def read(name):
    with open(os.path.join(RESULTS, name)) as file:
        results = json.load(file)
    return results, results["rows"]


def duration(us):
    return f"{us / 1000:#.3g}".rstrip(".") + " ms" if us >= 1000 else f"{us:#.3g}".rstrip(".") + " us"


def peer_cell(row, peer):
    found = row["peers"].get(peer, {})
    return duration(found["us"]) + ("*" if "mode" in found else "") if "us" in found else ""


def share(row):
    """How much of the machine the kernel uses: of the bandwidth of a copy, or of the limit that binds it."""
    found = row.get("of_copy", row.get("of_limit"))
    return f"{found:.2f}" if found else ""


def ratio_cell(row):
    found = report.ratio(row, sweep.PEERS)
    return f"**{found:.2f}**" if found and found < EQUAL else f"{found:.2f}" if found else ""


def footnotes(rows):
    """The different remarks on rows, in order."""
    return list(dict.fromkeys(row["note"] for row in rows if "note" in row))


def named(row, notes):
    return row["name"].replace("*", "\\*") + (f" [{notes.index(row['note']) + 1}]" if "note" in row else "")


def remarks(notes):
    return "".join(f"\n[{i + 1}] {note}\n" for i, note in enumerate(notes))


def full_table(name, head, rows):
    del name, head
    notes = footnotes(rows)
    peers = [peer for peer in sweep.PEERS if any("us" in row["peers"].get(peer, {}) for row in rows)]
    header = ["workload", "dtype", "Braze", "of the limit", *(NAMES[peer] for peer in peers), "peer / Braze", "floor"]
    lines = [[named(row, notes), row["dtype"], peer_cell(row, "braze"), share(row),
              *(peer_cell(row, peer) for peer in peers), ratio_cell(row), row.get("floor", "")] for row in rows]
    return report.table(header, lines) + "\n" + remarks(notes)


def sweep_families(name, head, rows):
    """A line a family, over compilers and over all peers, and the plot of all rows."""
    families = dict.fromkeys(row["family"] for row in rows)
    groups = [("all", rows)] + [(family, [row for row in rows if row["family"] == family]) for family in families]
    lines = [[family, *report.summary(group, sweep.COMPILERS), *report.summary(group, sweep.PEERS)[1:]]
             for family, group in groups]
    low = f"below {report.LOW}"
    header = ["family", "workloads", "mean over compilers", low, "mean over all", low]
    stem = f"bench/results/{name.removesuffix('.json')}"
    return (f"[{head['machine']}, {head['date']}]({stem}.md):\n\n{report.table(header, lines)}\n\n"
            f"![The ratio of every workload]({stem}.svg)\n")


TABLES = {"all": full_table, "sweep": sweep_families}


def with_figures(text):
    def table(match):
        start, kind, name, end = match.groups()
        return start + TABLES[kind](name, *read(name)) + end

    return MARKED.sub(table, text)


def made():
    """Every file that this script writes, with its text."""
    pages = [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(RESULTS, "*.md")))]
    for page in pages:
        with open(page) as file:
            text = file.read()
        if MARKED.search(text):
            yield page, with_figures(text)
    for results in sorted(glob.glob(os.path.join(RESULTS, "sweep-*.json"))):
        yield results.removesuffix("json") + "svg", report.svg(*read(os.path.basename(results)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    faults = 0
    for path, text in made():
        name = os.path.relpath(path, ROOT)
        before = ""
        if os.path.exists(path):
            with open(path) as file:
                before = file.read()
        if before == text:
            continue
        if options.check:
            faults += 1
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True),
                                                      name, name + ", as made"))
        else:
            with open(path, "w") as file:
                file.write(text)
            print("wrote", name)
    if faults:
        sys.exit(f"{faults} files differ from what bench/figures.py makes; run it and commit what it writes")


if __name__ == "__main__":
    main()
