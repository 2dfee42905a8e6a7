#!/usr/bin/env python3
"""A table and a plot of what run.py measured.

  report.py RESULTS.json ... --markdown table.md --svg plot.svg

A row's ratio is the time of the best peer over Braze's: above 1 Braze is faster. "Compilers" are torch.compile in both
modes, FlexAttention and JAX; "all" has PyTorch's libraries too. Rows that Braze cannot do yet, or that failed, have no
ratio; they are counted and named, and a row without peers is no win.
"""
import argparse
import html
import json
import math
import statistics
import sys

import sweep

LOW = 0.85


def read(paths):
    """The rows of all files; of a row that occurs twice the later one."""
    rows, head = {}, None
    for path in paths:
        with open(path) as file:
            results = json.load(file)
        if head and head["device"] != results["device"]:
            sys.exit(f"{path} is of the device {results['device']}, not {head['device']}")
        head = results
        rows.update({row["name"]: row for row in results["rows"]})
    return head, list(rows.values())


def best(row, peers):
    """The time and the name of the fastest of these peers, or None."""
    found = [(row["peers"][p]["us"], p) for p in peers if "us" in row["peers"].get(p, {})]
    return min(found) if found else None


def ratio(row, peers):
    found, own = best(row, peers), row["peers"]["braze"].get("us")
    return found[0] / own if found and own else None


def summary(rows, peers):
    """Rows with a ratio, geometric mean, share below LOW."""
    ratios = [r for r in (ratio(row, peers) for row in rows) if r]
    if not ratios:
        return ["0", "", ""]
    low = sum(r < LOW for r in ratios)
    return [str(len(ratios)), f"{statistics.geometric_mean(ratios):.2f}", f"{100 * low / len(ratios):.0f} %"]


def table(header, rows):
    kinds = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, kinds, *rows])


def summaries(rows):
    groups = [("all", rows)] + [(f"half: {half}", [r for r in rows if r["half"] == half]) for half in ("fit", "judge")]
    cascades = [r for r in rows if r["family"] not in ("convolutions", "attention")]
    groups.append(("without convolutions and attention", cascades))
    groups += [(f"the same, {half}", [r for r in cascades if r["half"] == half]) for half in ("fit", "judge")]
    families = dict.fromkeys(row["family"] for row in rows)
    groups += [(family, [r for r in rows if r["family"] == family]) for family in families]
    header = ["rows", "listed"]
    for over in ("over compilers", "over all"):
        header += [over, "geometric mean", f"below {LOW}"]
    return table(header, [[name, str(len(group))] + summary(group, sweep.COMPILERS) + summary(group, sweep.PEERS)
                          for name, group in groups])


def cell(peer):
    if "us" in peer:
        return f"{peer['us']:.4g}"
    return "wrong" if "differs" in peer.get("error", "") else "failed" if "error" in peer else ""


def ratio_cell(row, peers):
    """With a question mark where one of the peers failed, for it might have been the best."""
    found = ratio(row, peers)
    doubt = "?" if any("error" in row["peers"].get(p, {}) for p in peers) else ""
    return f"{found:.2f}{doubt}" if found else ""


def cells(row):
    peers = row["peers"]
    own = peers["braze"].get("blank") or cell(peers["braze"])
    return ([row["name"], row["half"], row["dtype"], str(peers["braze"].get("kernels", "")), own]
            + [cell(peers.get(p, {})) for p in sweep.PEERS]
            + [ratio_cell(row, sweep.COMPILERS), ratio_cell(row, sweep.PEERS)])


HEADER = ["workload", "half", "dtype", "kernels", "Braze us", *sweep.PEERS, "over compilers", "over all"]


def markdown(head, rows):
    known = {row["name"]: ratio(row, sweep.PEERS) for row in rows}
    ranked = sorted((row for row in rows if known[row["name"]]), key=lambda row: known[row["name"]])
    losing = [row for row in ranked if known[row["name"]] < LOW]
    rest = [row for row in ranked if known[row["name"]] >= LOW]
    silent = [row for row in rows if not known[row["name"]]]
    made = ", ".join(f"{name} {version or 'not installed'}" for name, version in head["versions"].items())
    faults = [f"- {row['name']}: {name}: {peer.get('error')}" for row in rows for name, peer in row["peers"].items()
              if "error" in peer]
    parts = [
        f"# The sweep on {head['device']}, {head['date']}",
        f"{head['machine']}; {made}. Microseconds a call, medians of {head['rounds']} turns. A ratio is the time of "
        "the best peer over Braze's; with a question mark a peer failed. A blank is a peer that is missing or "
        "has no such function.",
        summaries(rows),
        f"## Below {LOW} of the best", table(HEADER, map(cells, losing)),
        "## The others", table(HEADER, map(cells, rest)),
        "## Without a ratio", table(HEADER, map(cells, silent)),
    ]
    if faults:
        parts += ["## What failed", "\n".join(faults)]
    return "\n\n".join(parts) + "\n"


COLOURS = {"fit": "#4477aa", "judge": "#ee8866"}


def svg(head, rows):
    """A bar a row, from slowest to fastest against the best peer; the height is the logarithm of the ratio."""
    ratios = sorted((ratio(row, sweep.PEERS), row["name"], row["half"]) for row in rows if ratio(row, sweep.PEERS))
    width, top, bottom = max(640, 8 * len(ratios) + 90), 40, 400
    most = max([2.0] + [max(r, 1 / r) for r, _, _ in ratios])
    marks = [m for m in (0.1, 0.2, 0.5, 0.85, 1, 2, 5, 10) if 1 / most <= m <= most]

    def height(r):
        return (top + bottom) / 2 - math.log(r) / math.log(most) * (bottom - top) / 2

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="440" font-family="sans-serif" '
             'font-size="11">',
             f'<rect width="{width}" height="440" fill="white"/>',
             f'<text x="60" y="20" font-size="13">best peer / Braze, {html.escape(head["machine"])}, {head["date"]}: '
             f'{len(ratios)} of {len(rows)} workloads</text>']
    for m in marks:
        y = height(m)
        stroke = "#000" if m == 1 else "#ccc"
        lines.append(f'<line x1="55" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="{stroke}"/>'
                     f'<text x="50" y="{y + 4:.1f}" text-anchor="end">{m:g}</text>')
    for i, (r, name, half) in enumerate(ratios):
        y, middle = height(r), height(1)
        lines.append(f'<rect x="{60 + 8 * i}" y="{min(y, middle):.1f}" width="6" '
                     f'height="{max(abs(y - middle), 1):.1f}" fill="{COLOURS[half]}">'
                     f'<title>{html.escape(name)}: {r:.2f}</title></rect>')
    for i, (half, colour) in enumerate(COLOURS.items()):
        lines.append(f'<rect x="{60 + 80 * i}" y="418" width="10" height="10" fill="{colour}"/>'
                     f'<text x="{75 + 80 * i}" y="427">{half}</text>')
    return "\n".join(lines + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--markdown", help="file of the table; default: stdout")
    parser.add_argument("--svg", help="file of the plot")
    options = parser.parse_args()
    head, rows = read(options.results)
    text = markdown(head, rows)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text)
    else:
        print(text, end="")
    if options.svg:
        with open(options.svg, "w") as file:
            file.write(svg(head, rows))


if __name__ == "__main__":
    main()
