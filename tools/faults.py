#!/usr/bin/env python3
"""Plants faults into a copy of Braze, one at a time, and notes which suite catches each.

Usage: tools/faults.py [--check] [--only NAME,...] [--limit SECONDS] [--jobs N] [--results FILE]
                       [--tree FOLDER] [--files REGEX] [--targets NAME,...]

tests/faults/list.txt holds the faults. All of them are built into one copy of the tree: every listed
place becomes a choice between what stands there and what the fault puts in its place, and the
environment variable BRAZE_PLANTED names the fault that is chosen. So one build serves all runs, and
the product holds nothing of it.

A fault meets the suites of CTest until one fails or exceeds its time by far, or the time of a fault is
spent: first those that the list names for its file, then all others, each in order of the processor
time that they take without faults.

  --check     only look that each text of the list stands exactly once in its file, and name all
              that do not
  --build     only build the copy
  --built     the copy is built already, perhaps on another machine
  --only      these faults, a comma between two
  --files     only faults of files whose paths begin as this regular expression says; the others are not
              planted either, so that fewer files are built anew
  --targets   build only these targets of CMake, a comma between two, and meet the suites that they have
  --limit     processor seconds of the suites that one fault meets, and of the longest of them
              (default 300)
  --suites    only suites whose names begin as this regular expression says
  --jobs      faults at a time (default: the number of processors)
  --results   writes the page of results to FILE; faults that have a line there are run again only if
              --only names them
  --tree      where the copy lies (default build/faults)
"""

import argparse
import concurrent.futures
import filecmp
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/faults/list.txt"

# Suites that look at the tree and at packages rather than at what the code does, and those that need
# a GPU.
LEFT_OUT = re.compile(r"^(style|package\.|example\.|cuda$|.*\.cuda$)")

# A fault may ask for memory without end.
MOST_BYTES = 6 << 30
# A suite that does nearly nothing for so long waits for ever, however busy the machine is. Threads that wait for each other
# may look from time to time whether they still have to.
MOST_IDLE_SECONDS, IDLE_SHARE = 120, 0.03

HEADER = """// planted.h — which fault of tests/faults/list.txt this process has.
#pragma once
#include <cstdlib>
namespace braze {
inline bool planted(int number) {
  static const int chosen = [] {
    const char* const text = std::getenv("BRAZE_PLANTED");
    return text ? std::atoi(text) : 0;
  }();
  return number == chosen;
}
}  // namespace braze
"""


class Fault:
    """One place of one file: `before` `original` `after`, and what replaces `original`."""

    def __init__(self, name, breaks, file, first_suites, pattern, where):
        self.name, self.breaks, self.file, self.first_suites = name, breaks, file, first_suites
        # By the name alone, so that a longer list leaves built files as they are.
        self.number = int(hashlib.sha256(name.encode()).hexdigest()[:7], 16)
        match = re.fullmatch(r"(.*?)@\{(.*?)=>(.*)\}@(.*)", pattern)
        if not match:
            sys.exit(f"{where}: a fault is written `text @{{original => replacement}}@ text`")
        self.before, self.original, self.replacement, self.after = (s.strip() for s in match.groups())

    def find(self, text):
        """Where the original stands in `text`: words as they are, with any white space between."""
        def words(part):
            return r"\s+".join(re.escape(word) for word in part.split())
        parts = [words(self.before), "(" + words(self.original) + ")", words(self.after)]
        found = list(re.finditer(r"\s*".join(part for part in parts if part), text))
        if len(found) != 1:
            raise ValueError(f"{self.file}: the text of fault {self.name} stands there {len(found)} "
                             f"times, not once: {self.before} @{{{self.original}}}@ {self.after}")
        return found[0].span(1)

    def chosen(self, original):
        """The text that has both: a statement if either is one, else an expression."""
        planted = f"braze::planted({self.number})"
        if any(text.endswith((";", "}")) for text in (self.original, self.replacement)):
            otherwise = f" else {{ {original} }}" if original else ""
            return f"{{ if ({planted}) {{ {self.replacement} }}{otherwise} }}"
        return f"({planted} ? ({self.replacement}) : ({original}))"


def read_list():
    """Faults in order: `## FILE: SUITES`, then `NAME: what it breaks` and, indented, the place."""
    faults, file, suites, head = [], None, (), None
    for number, line in enumerate(LIST.read_text().splitlines(), 1):
        where = f"{LIST.relative_to(ROOT)}:{number}"
        if not line.strip() or line.startswith("# "):
            continue
        if line.startswith("## "):
            file, _, named = line[3:].partition(":")
            suites = tuple(named.split())
        elif not line.startswith(" "):
            name, colon, breaks = line.partition(": ")
            if not colon:
                sys.exit(f"{where}: a fault begins `NAME: what it breaks`")
            head = (name, breaks)
        else:
            faults.append(Fault(*head, file, suites, line, where))
    for key, values in (("name", [f.name for f in faults]), ("number", [f.number for f in faults])):
        for value in values:
            if values.count(value) > 1:
                sys.exit(f"there are two faults of the {key} {value}: choose another name")
    return faults


def planted_files(faults):
    """The text of every file that has faults, with all of them."""
    files, lost = {}, []
    for file in dict.fromkeys(fault.file for fault in faults):
        path = ROOT / file
        text = path.read_text() if path.is_file() else ""
        places = []
        for fault in faults:
            if fault.file == file:
                try:
                    places.append((fault.find(text), fault))
                except ValueError as error:
                    lost.append(str(error))
        places.sort(key=lambda place: place[0])
        for (one, first), (other, second) in zip(places, places[1:]):
            if one[1] > other[0]:
                sys.exit(f"{file}: the faults {first.name} and {second.name} overlap")
        for (begin, end), fault in reversed(places):
            text = text[:begin] + fault.chosen(text[begin:end]) + text[end:]
        files[file] = '#include "planted.h"\n#line 1\n' + text
    if lost:
        sys.exit("\n".join(lost))
    return files


def write_changed(path, text):
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def build(faults, copy, targets):
    """Brings the copy up to date and builds it, or these targets. Files without faults keep their times."""
    planted = planted_files(faults)
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for name in sorted(names):
        if name in planted:
            write_changed(copy / name, planted[name])
        elif not (copy / name).is_file() or not filecmp.cmp(ROOT / name, copy / name):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)  # with a new time: what was built before is older
    write_changed(copy / "planted.h", HEADER)
    for folder, folders, files in os.walk(copy):
        here = Path(folder).relative_to(copy)
        folders[:] = [f for f in folders if str(here / f) not in ("build", "third_party")]
        for file in files:
            if str(here / file) not in names | {"planted.h"}:
                (copy / here / file).unlink()
    if (ROOT / "third_party").is_dir() and not (copy / "third_party").exists():
        (copy / "third_party").symlink_to(ROOT / "third_party")
    (copy / "build").mkdir(exist_ok=True)
    log = copy / "build/faults.log"
    print(f"building; log: {log}", flush=True)
    with log.open("w") as out:
        wanted = ["--target", *targets] if targets else []
        for command in (["cmake", "--preset", "dev"],
                        ["cmake", "--build", "--preset", "dev", *wanted, "--", "-k", "0"]):
            if subprocess.run(command, cwd=copy, stdout=out, stderr=subprocess.STDOUT).returncode != 0:
                sys.exit(f"the copy with the faults does not build; see {log}")


def processes_below(root):
    """A process and all that it started, directly or not, with the ticks that each and its ended children used."""
    ticks, children = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        process = int(stat.parent.name)
        ticks[process] = sum(int(field) for field in fields[11:15])
        children.setdefault(int(fields[1]), []).append(process)
    below, left = {}, [root]
    while left:
        process = left.pop()
        if process in ticks:
            below[process] = ticks[process]
            left += children.get(process, [])
    return below


def processor_seconds(root):
    return sum(processes_below(root).values()) / os.sysconf("SC_CLK_TCK")


def kill_all(root):
    """Suites that start processes put them into groups of their own."""
    for process in processes_below(root):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Suite:
    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name, self.command = entry["name"], entry["command"]
        self.folder = properties["WORKING_DIRECTORY"]
        self.environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        self.skip = properties.get("SKIP_RETURN_CODE")
        self.seconds = None

    def run(self, fault, most):
        """(how it failed, processor seconds); what takes more than `most` seconds hangs."""
        environment = {**os.environ, **self.environment, "BRAZE_CACHE": "off", "GTEST_FAIL_FAST": "1",
                       "BRAZE_PLANTED": str(fault.number if fault else 0)}

        def limit():
            os.setpgid(0, 0)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        with tempfile.TemporaryFile() as out:
            child = subprocess.Popen(self.command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=subprocess.STDOUT, preexec_fn=limit)
            used, look = float("-inf"), time.monotonic()
            while True:
                done, status, usage = os.wait4(child.pid, os.WNOHANG)
                if done:
                    break
                if time.monotonic() > look:
                    before, used = used, processor_seconds(child.pid)
                    look = time.monotonic() + MOST_IDLE_SECONDS
                    if used - before < IDLE_SHARE * MOST_IDLE_SECONDS:
                        kill_all(child.pid)
                        _, status, usage = os.wait4(child.pid, 0)
                        break
                time.sleep(0.1)
            child.returncode = os.waitstatus_to_exitcode(status)
            used = usage.ru_utime + usage.ru_stime
            failed = child.returncode != 0 and str(child.returncode) != str(self.skip)
            how = "hangs" if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else "fails"
            if fault is None and failed and how == "fails":
                out.seek(0)
                sys.stderr.buffer.write(out.read()[-4000:])
            return (how if failed else None), used


def suites(copy, wanted, limit, jobs):
    """The suites of at most `limit` seconds without a fault, the quickest first. Those that fail without
    one say nothing and are left out."""
    shown = subprocess.run(["ctest", "--preset", "dev", "--show-only=json-v1"], cwd=copy, check=True,
                           capture_output=True, text=True).stdout
    out = [Suite(entry) for entry in json.loads(shown)["tests"]
           if "command" in entry and not LEFT_OUT.match(entry["name"]) and re.match(wanted, entry["name"])]
    times = copy / "build/suites.json"
    known = json.loads(times.read_text()) if times.is_file() else {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(suite.run, None, int(limit)): suite for suite in out if suite.name not in known}
        for done in concurrent.futures.as_completed(running):
            how, seconds = done.result()
            if how == "fails":
                print(f"left out: {running[done].name} fails without a fault", flush=True)
                continue
            known[running[done].name] = seconds
            times.write_text(json.dumps(known, indent=1))
    out = [suite for suite in out if suite.name in known]
    for suite in out:
        suite.seconds = known[suite.name]
    return sorted((s for s in out if s.seconds < limit), key=lambda suite: suite.seconds)


def judge(fault, all_suites, limit):
    """The line of one fault in the results."""
    spent = 0.0
    named = [s for s in all_suites if s.name.startswith(fault.first_suites or ("-",))]
    for suite in named + [s for s in all_suites if s not in named]:
        if spent + suite.seconds > limit:
            break
        how, seconds = suite.run(fault, int(5 * suite.seconds + 10))
        spent += seconds
        if how:
            return f"{suite.name}{' (hangs)' if how == 'hangs' else ''} | {spent:.1f}"
    return f"**survives** | {spent:.1f}"


def write_page(path, faults, lines, limit):
    """The page: reasons that somebody wrote below a survivor stay."""
    caught = sum("**survives**" not in lines[f.name] for f in faults if f.name in lines)
    judged = sum(f.name in lines for f in faults)
    old = path.read_text() if path.is_file() else ""
    reasons = old[old.index("## Survivors"):] if "## Survivors" in old else "## Survivors\n\nNone.\n"
    out = ["# Planted faults\n",
           "Written by `tools/faults.py`, but for the reasons at the end. Each fault of `list.txt` stood alone in the code,",
           "and met suites until one failed: those that the list names for its file, then all others, the quick ones first.",
           f"Seconds: what these took on a processor; a fault meets suites of {limit:.0f} seconds at most.\n",
           f"**{caught} of {judged} are caught: {100 * caught / max(judged, 1):.1f} %**; {len(faults)} are listed.\n",
           "| fault | what it breaks | caught by | seconds |", "| --- | --- | --- | --- |"]
    for fault in faults:
        if fault.name in lines:
            out.append(f"| {fault.name} | {fault.breaks.replace('|', chr(92) + '|')} | {lines[fault.name]} |")
    path.write_text("\n".join(out) + "\n\n" + reasons)


def read_page(path):
    """The results of faults by name."""
    lines = {}
    if path and path.is_file():
        for line in path.read_text().splitlines():
            match = re.fullmatch(r"\| ([a-z0-9-]+) \| .* \| ([^|]+ \| [\d.]+) \|", line)
            if match:
                lines[match[1]] = match[2]
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--built", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--suites", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path)
    parser.add_argument("--tree", type=Path, default=ROOT / "build/faults")
    parser.add_argument("--files", default="")
    parser.add_argument("--targets", default="")
    options = parser.parse_args()
    faults = read_list()
    planted_files(faults)
    print(f"{len(faults)} faults, each at one place")
    if options.check:
        return
    lines = read_page(options.results)
    named = set(filter(None, options.only.split(",")))
    planted = [f for f in faults if re.match(options.files, f.file)]
    chosen = [f for f in planted if (f.name in named if named else f.name not in lines)]
    # One of each file, then the second ones: a run that is broken off has seen something of all.
    chosen.sort(key=lambda fault: [f.name for f in faults if f.file == fault.file].index(fault.name))
    unknown = named - {f.name for f in planted}
    if unknown:
        sys.exit(f"there is no fault {', '.join(sorted(unknown))}" + (" in these files" if options.files else ""))
    if not options.built:
        build(planted, options.tree, list(filter(None, options.targets.split(","))))
    if options.build:
        return
    all_suites = suites(options.tree, options.suites, options.limit, options.jobs)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(judge, fault, all_suites, options.limit): fault for fault in chosen}
        for done in concurrent.futures.as_completed(running):
            fault = running[done]
            lines[fault.name] = done.result()
            print(f"{fault.name} | {lines[fault.name]}", flush=True)
            if options.results:
                write_page(options.results, faults, lines, options.limit)
    survivors = [f.name for f in chosen if "**survives**" in lines[f.name]]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught; survivors: {', '.join(survivors) or 'none'}")


if __name__ == "__main__":
    main()
