#!/usr/bin/env python3
"""Makes the pictures of this folder, which the pages show: make.py BRAZE [--check]

explain.svg is a terminal with a command of the tool and what it prints; chat.svg shows chat.txt, a talk that was
recorded on two cores of a CPU; the badges are facts that the pages state. With --check nothing is written, and a picture that is not what this makes is an error.
"""
import html
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
COMMAND = "braze explain tests/tools/softmax.braze --target x86-64-v3"
BADGES = (("language", "C++20"), ("python", "3.9 and later"), ("runs", "x86-64 and NVIDIA GPUs"),
          ("license", "Apache-2.0"))

VERDICTS = {"fused": "#3fb950", "inlined": "#58a6ff", "input": "#8b949e"}


def coloured(line):
    """A line of the output as the inside of a <text>."""
    text = html.escape(line, quote=False)
    if line.startswith("$"):
        return f'<tspan fill="#e6edf3" font-weight="bold">{text}</tspan>'
    if line.startswith(">"):
        return f'<tspan fill="#58a6ff">{text}</tspan>'
    if not line.startswith(" "):
        return f'<tspan fill="#d2a8ff">{text}</tspan>'
    text = re.sub(r"( at \S+)$", r'<tspan fill="#6e7681">\1</tspan>', text)
    return re.sub(r"(?<= )(fused|inlined|input)(?= )",
                  lambda m: f'<tspan fill="{VERDICTS[m[1]]}">{m[1]}</tspan>', text, count=1)


def terminal(lines):
    step, letter = 17, 7.8
    width = int(max(map(len, lines)) * letter) + 32
    height = len(lines) * step + 28
    rows = "\n".join(
        f'<text x="16" y="{28 + i * step}" xml:space="preserve">{coloured(line)}</text>' for i, line in enumerate(lines))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="ui-monospace, monospace" font-size="13" fill="#c9d1d9">\n<title>{html.escape(lines[0][2:])}</title>\n'
            f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n{rows}\n</svg>\n')


def badge(name, value):
    left, right = (int(len(text) * 6.6) + 16 for text in (name, value))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" font-family="sans-serif" '
            f'font-size="11" fill="#fff" text-anchor="middle">\n<title>{name}: {value}</title>\n'
            f'<rect width="{left + right}" height="20" rx="3" fill="#3b82f6"/>'
            f'<path d="M3 0H{left}V20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3" fill="#444c56"/>\n'
            f'<text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{value}</text>\n</svg>\n')


def made(braze):
    words = [braze, *COMMAND.split()[1:]]
    printed = subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
                             env=dict(os.environ, NO_COLOR="1")).stdout
    yield "explain.svg", terminal([f"$ {COMMAND}", *printed.rstrip("\n").split("\n")])
    with open(os.path.join(HERE, "chat.txt")) as file:
        yield "chat.svg", terminal(file.read().rstrip("\n").split("\n"))
    for name, value in BADGES:
        yield f"{name}.svg", badge(name, value)


def main():
    check = "--check" in sys.argv[2:]
    stale = False
    for name, text in made(os.path.abspath(sys.argv[1])):
        path = os.path.join(HERE, name)
        if not check:
            with open(path, "w") as file:
                file.write(text)
            continue
        there = None
        if os.path.exists(path):
            with open(path) as file:
                there = file.read()
        if there != text:
            print(f"docs/pictures/{name} is not what docs/pictures/make.py makes; run it with this build's braze")
            stale = True
    return 1 if stale else 0


sys.exit(main())
