#!/usr/bin/env python3
"""Checks the pages: check.py ROOT [BRAZE [--write]]

- Every relative link of every tracked page leads to a file, and its anchor to a heading of that file.
- The code below `<!-- code: FILE NAME -->` stands between `// [NAME]` and `// [end]` in a file that is compiled.
- Every block of Python parses.
- Every command of a `console` block prints what the page shows, when BRAZE is the tool of the build.
- The commands and options in docs/reference/cli.md are those of the tool's help. `--write` makes them so.
- Every path of the form `folder/file` in README.md and CONTRIBUTING.md exists.
- The page on using Braze names every public header.
"""
import os
import re
import subprocess
import sys
import textwrap

ROOT = os.path.abspath(sys.argv[1])
BRAZE = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
WRITE = "--write" in sys.argv[3:]
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


def check_code(page):
    text = read(page)
    for file, name, block in re.findall(r"^<!-- code: (\S+) (\S+) -->\n```cpp\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        piece = re.search(rf"^ *// \[{name}\]\n(.*?)^ *// \[end\]", read(file), re.DOTALL | re.MULTILINE)
        if not piece:
            faults.append(f"{page}: {file} has no code [{name}]")
        elif textwrap.dedent(piece[1]) != block:
            faults.append(f"{page}: the code [{name}] of {file} is\n{textwrap.dedent(piece[1])}")
    if text.count("<!-- code: ") != len(re.findall(r"^<!-- code: \S+ \S+ -->\n```cpp$", text, re.MULTILINE)):
        faults.append(f"{page}: a line <!-- code: FILE NAME --> has no block of C++ below it")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        try:
            compile(block, page, "exec")
        except SyntaxError as error:
            faults.append(f"{page}: Python does not parse: {error.msg}: {error.text}")


def printed(command):
    environment = dict(os.environ, PATH=os.path.dirname(BRAZE) + os.pathsep + os.environ["PATH"])
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True)
    return (done.stdout + done.stderr).strip()


def check_commands(page):
    for block in re.findall(r"^```console\n(.*?)^```", read(page), re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            output = printed(command)
            if output != shown.strip():
                faults.append(f"{page}: $ {command}\nprints\n{output}")


def entries(help_text, title):
    """What the help lists below a title: pairs of a name and a text."""
    listed = re.search(rf"^{title}:.*\n((?:  .*\n)*)", help_text + "\n", re.MULTILINE)
    return re.findall(r"^  (\S.*?)  +(\S.*)$", listed[1], re.MULTILINE) if listed else []


def check_headers():
    """The page on using Braze names every public header."""
    page = read("docs/guides/using.md")
    for library in ("ir", "runtime", "compiler", "frontend"):
        for header in os.listdir(os.path.join(ROOT, library, "include", "braze")):
            if header != "braze.h" and f"`{header}`" not in page:
                faults.append(f"docs/guides/using.md does not name {library}/include/braze/{header}")


def commands_page():
    """The subcommands, and for each its examples, arguments and options, in Markdown."""

    def cell(text):
        return text.replace("|", "\\|")

    commands = entries(printed("braze --help"), "Subcommands")
    lines = ["| command | what it does |", "| --- | --- |"]
    lines += [f"| [`braze {name}`](#braze-{name}) | {cell(purpose)} |" for name, purpose in commands]
    for name, purpose in commands:
        text = printed(f"braze {name} --help")
        examples = re.search(r"^Examples:\n((?:  .*\n)*)", text, re.MULTILINE)
        usage = re.search(r"^Usage: (.*)$", text, re.MULTILINE)
        lines += ["", f"### braze {name}", "", purpose, "", "```", usage[1], "", *(line.strip() for line in
                  examples[1].splitlines()), "```", "", "| argument | meaning |", "| --- | --- |"]
        for title in ("Positionals", "Options"):
            for argument, meaning in entries(text, title):
                argument = re.sub(r" (TEXT|REQUIRED|U?INT|FLOAT)\b(:\S+)?", "", argument)
                if not argument.startswith("-h"):
                    lines.append(f"| `{cell(argument)}` | {cell(meaning)} |")
    return "\n".join(lines)


def check_help(page):
    text = read(page)
    begin, end = "<!-- from the tool's help -->\n", "<!-- end of the help -->\n"
    if begin not in text or end not in text:
        faults.append(f"{page}: the marks around the help are missing")
        return
    before, _, rest = text.partition(begin)
    shown, _, behind = rest.partition(end)
    made = commands_page() + "\n"
    if shown != made and WRITE:
        with open(os.path.join(ROOT, page), "w") as file:
            file.write(before + begin + made + end + behind)
    elif shown != made:
        faults.append(f"{page}: the options are not those of the tool; run tests/docs/check.py ROOT BRAZE --write")


def check_paths(page):
    """Of the words of code and of commands that look like files of this tree."""
    pattern = r"(?<![\w/.~-])((?:frontend|compiler|ir|runtime|tools|tests|bench|docs|examples)/[\w/.-]*\w)"
    for path in sorted(set(re.findall(pattern, read(page)))):
        if not os.path.exists(os.path.join(ROOT, path)):
            faults.append(f"{page}: there is no {path}")


for name in sorted(set(pages())):
    check_links(name)
    check_code(name)
    if BRAZE:
        check_commands(name)
if BRAZE:
    check_help("docs/reference/cli.md")
for name in ("README.md", "CONTRIBUTING.md"):
    check_paths(name)
check_headers()
for fault in faults:
    print(fault)
sys.exit(1 if faults else 0)
