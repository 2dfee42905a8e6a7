#!/usr/bin/env python3
"""Draws a list of workloads whose sizes nobody chose: those of workloads.txt, with other extents.

  draw.py SEED > drawn.txt            every row once; run.py, compare.py and predictions.py take it as --list drawn.txt
  draw.py SEED --family norms losses  some families

Each extent is multiplied by a factor between a half and 1.6. Of four results two become multiples of 8, one a multiple of
64, and one stays as it fell, odd or even. Head widths are drawn from those of known models. What a row is (windows,
strides, heads, dtypes, flags) stays. The seed and the name of a row decide its draw, so that rows may come and go.
"""
import argparse
import random
import re
import sys

import sweep

# What is no extent is not drawn: `heads`, `group`, `window`, `stride`, ... make another kind of workload.
EXTENTS = {"shape", "rows", "cols", "classes", "batch", "height", "width", "channels", "length", "tokens", "count", "m", "k",
           "n", "inner", "queries", "keys", "in", "out", "vocabulary", "sizes"}
HEAD_WIDTHS = (32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256)
# Channels and widths of layers are multiples of 8 in nearly all networks.
WIDTHS = {"channels", "width", "in", "out", "inner", "sizes", "k", "n"}


def drawn_extent(extent, is_width, chance):
    if extent <= 16:
        return extent if extent <= 1 else max(2, round(extent * chance.uniform(0.5, 2)))
    size = extent * 2 ** chance.uniform(-1, 0.7)
    step = chance.choice((8, 8, 64, 8 if is_width else 1))
    return max(step, step * round(size / step))


def drawn_word(word, widths, least, chance):
    key, value = word.split("=")
    if key == "dim":
        near = [width for width in HEAD_WIDTHS if int(value) / 2 <= width <= 2 * int(value)]
        return f"dim={chance.choice(near)}"
    if key not in EXTENTS:
        return word
    smallest = least if key in ("height", "width") else 1
    extents = [max(drawn_extent(int(n), key in widths, chance), smallest) for n in value.split("x")]
    return f"{key}=" + "x".join(map(str, extents))


def drawn_row(line, seed):
    name, kind, *words = line.split()
    chance = random.Random(f"{seed} {name}")
    is_image = any(word.startswith("height=") for word in words)
    # The width of an image is none of channels, and a window fits into the image.
    widths = WIDTHS - {"width"} if is_image else WIDTHS
    least = max([int(word.split("=")[1]) for word in words if word.startswith("window=")], default=1) if is_image else 1
    return " ".join([name, kind, *(word if word == "|" else drawn_word(word, widths, least, chance) for word in words)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--family", nargs="*")
    options = parser.parse_args()
    print(f"# Drawn from workloads.txt by draw.py with the seed {options.seed}.")
    with open(sweep.LIST) as file:
        rows = [line for line in file if re.match(r"\w", line)]
    for line in rows:
        if not options.family or line.split("/")[0] in options.family:
            print(drawn_row(line, options.seed))


if __name__ == "__main__":
    main()
