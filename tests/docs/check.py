#!/usr/bin/env python3
"""Checks the pages: check.py ROOT [BRAZE]

- Every relative link of every tracked page leads to a file, and its anchor to a heading of that file.
- Every command of a `console` block prints what the page shows, when BRAZE is the tool of the build.
- Every path of the form `folder/file` in README.md and CONTRIBUTING.md exists.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.abspath(sys.argv[1])
BRAZE = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
FOLDERS = ("docs", "tests", "bench", "examples", "tools")
faults = []


def pages():
    yield from (name for name in os.listdir(ROOT) if name.endswith(".md"))
    for folder in FOLDERS:
        for path, _, files in os.walk(os.path.join(ROOT, folder)):
            yield from (os.path.relpath(os.path.join(path, name), ROOT) for name in files if name.endswith(".md"))


def read(page):
    with open(os.path.join(ROOT, page)) as file:
        return file.read()


def without_code(text):
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """The names that a reader's browser gives to the headings."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-"))
    return found


def check_links(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(read(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(os.path.join(ROOT, file)):
            faults.append(f"{page}: the link {target} leads nowhere")
        elif anchor and file.endswith(".md") and anchor not in anchors(file):
            faults.append(f"{page}: {file} has no heading #{anchor}")


def check_commands(page):
    for block in re.findall(r"^```console\n(.*?)^```", read(page), re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            environment = dict(os.environ, PATH=os.path.dirname(BRAZE) + os.pathsep + os.environ["PATH"])
            done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True)
            if (done.stdout + done.stderr).strip() != shown.strip():
                faults.append(f"{page}: $ {command}\nprints\n{done.stdout}{done.stderr}")


def check_paths(page):
    """Of the words of code and of commands that look like files of this tree."""
    pattern = r"(?<![\w/.~-])((?:frontend|compiler|ir|runtime|tools|tests|bench|docs|examples)/[\w/.-]*\w)"
    for path in sorted(set(re.findall(pattern, read(page)))):
        if not os.path.exists(os.path.join(ROOT, path)):
            faults.append(f"{page}: there is no {path}")


for name in sorted(set(pages())):
    check_links(name)
    if BRAZE:
        check_commands(name)
for name in ("README.md", "CONTRIBUTING.md"):
    check_paths(name)
for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
