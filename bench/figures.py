#!/usr/bin/env python3
"""Writes the figures of README.md and of bench/results from the JSON files in bench/results.

  figures.py            writes every table and plot anew
  figures.py --check    writes nothing; ends with status 1 and a difference if a table or plot is out of date

A table stands between the lines `<!-- figures: KIND FILE -->` and `<!-- end of figures -->`, and this script owns what
is between them. FILE is in bench/results. KIND is `readme` (one line for each workload), `all` (every peer that was
measured), or `sweep` (a sentence, and the plot of FILE).

The files have the form that bench/sweep/run.py writes. The ratio is always that of bench/sweep/report.py: the time of
the fastest peer, eager mode and libraries included, over the time of Braze.
"""
import argparse
import difflib
import glob
import html
import json
import math
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
EQUAL = 0.995  # a ratio below this one is bold, and red in the plot
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


def readme_table(name, head, rows):
    """A line a workload; the dtypes side by side. Rows that no peer has are left to the page of results."""
    del name
    rows = [row for row in rows if ratio_cell(row)]
    notes = footnotes(rows)
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    lines = {}
    for row in rows:
        line = lines.setdefault(named(row, notes), [""] * (2 * len(dtypes)))
        column = 2 * dtypes.index(row["dtype"])
        line[column:column + 2] = [peer_cell(row, "braze"), ratio_cell(row)]
    header = ["workload"] + [cell for dtype in dtypes for cell in (f"Braze, {dtype}", "fastest peer / Braze")]
    below = sum(1 for row in rows if "**" in ratio_cell(row))
    return (f"{head['machine']}, {head['date']}. In {below} of {len(rows)} measurements (bold) a peer is "
            "faster than Braze by more than 0.5 %.\n\n"
            + report.table(header, [[name, *cells] for name, cells in lines.items()]) + "\n" + remarks(notes))


def full_table(name, head, rows):
    del name, head
    notes = footnotes(rows)
    peers = [peer for peer in sweep.PEERS if any("us" in row["peers"].get(peer, {}) for row in rows)]
    header = ["workload", "dtype", "Braze", "of the limit", *(NAMES[peer] for peer in peers), "peer / Braze", "floor"]
    lines = [[named(row, notes), row["dtype"], peer_cell(row, "braze"), share(row),
              *(peer_cell(row, peer) for peer in peers), ratio_cell(row), row.get("floor", "")] for row in rows]
    return report.table(header, lines) + "\n" + remarks(notes)


def sweep_plot(name, head, rows):
    count, mean, _ = report.summary(rows, sweep.PEERS)
    ratios = [found for found in (report.ratio(row, sweep.PEERS) for row in rows) if found]
    below, far = (sum(1 for found in ratios if found < least) for least in (EQUAL, report.LOW))
    stem = f"bench/results/{name.removesuffix('.json')}"
    what = name.removeprefix("sweep-").split("-")[0].replace("all", "all families")
    return (f"[{what}]({stem}.md), {head['machine']}, {head['date']}: {count} workloads, and the geometric mean of their "
            f"ratios is {mean}. In {below} of them a peer is faster by more than 0.5 %, and in {far} the ratio is below "
            f"{report.LOW}.\n\n![The ratios of the sweep of {what}]({stem}.svg)\n")


TABLES = {"readme": readme_table, "all": full_table, "sweep": sweep_plot}


def with_figures(text):
    def table(match):
        start, kind, name, end = match.groups()
        return start + TABLES[kind](name, *read(name)) + end

    return MARKED.sub(table, text)


COLOURS = {True: "#4477aa", False: "#cc3311"}


def plot(files):
    """A panel a file, a bar a row: to the right Braze is faster. The scale is logarithmic."""
    label, left, right, line, most = 330, 340, 860, 15, 6.0
    parts, y = [], 36

    def place(ratio):
        return (left + right + math.log(min(max(ratio, 1 / most), most)) / math.log(most) * (right - left)) / 2

    for name in files:
        head, rows = read(name)
        rows = sorted((row for row in rows if ratio_cell(row)), key=lambda row: report.ratio(row, sweep.PEERS))
        parts.append(f'<text x="10" y="{y}" font-size="13" font-weight="bold">{html.escape(head["machine"])}, '
                     f'{head["date"]}</text>')
        top = y + 20
        for mark in (0.2, 0.5, 1, 2, 5):
            parts.append(f'<line x1="{place(mark):.1f}" x2="{place(mark):.1f}" y1="{top}" '
                         f'y2="{top + line * len(rows)}" stroke="{"#000" if mark == 1 else "#ccc"}"/>'
                         f'<text x="{place(mark):.1f}" y="{y + 16}" text-anchor="middle" fill="#555">{mark:g}</text>')
        for i, row in enumerate(rows):
            found, base = report.ratio(row, sweep.PEERS), top + line * i
            x = sorted((place(1), place(found)))
            text = f'{row["name"]}, {row["dtype"]}'
            text = text if len(text) <= 52 else text[:51] + "…"
            parts.append(f'<text x="{label}" y="{base + 11}" text-anchor="end">{html.escape(text)}</text>'
                         f'<rect x="{x[0]:.1f}" y="{base + 2}" width="{max(x[1] - x[0], 1):.1f}" height="{line - 4}" '
                         f'fill="{COLOURS[found >= EQUAL]}"><title>{html.escape(row["name"])}</title></rect>'
                         f'<text x="{x[1] + 4 if found >= 1 else x[0] - 4:.1f}" y="{base + 11}" '
                         f'text-anchor="{"start" if found >= 1 else "end"}" fill="#555">{found:.2f}</text>')
        y = top + line * len(rows) + 34
    height = y - 10
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="920" height="{height}" font-family="sans-serif" '
            f'font-size="11">\n'
            f'<rect width="920" height="{height}" fill="white"/>\n'
            '<text x="10" y="14" fill="#555">Time of the fastest peer over the time of Braze: above 1 Braze is faster.'
            '</text>\n' + "\n".join(parts) + "\n</svg>\n")


# What the plot of README shows, in order.
PLOTTED = ["gpu-h100-2026-11-21.json", "sweep-scans-h200-2026-11-23.json", "cpu-2026-11-21-first.json"]


def made():
    """Every file that this script writes, with its text."""
    pages = [os.path.join(ROOT, "README.md"), *sorted(glob.glob(os.path.join(RESULTS, "*.md")))]
    for page in pages:
        with open(page) as file:
            text = file.read()
        if MARKED.search(text):
            yield page, with_figures(text)
    yield os.path.join(RESULTS, "figures.svg"), plot(PLOTTED)
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
