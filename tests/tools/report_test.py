"""The page of `braze report`, read as a browser would: by an HTML parser, and by a browser without a
window where there is one (BRAZE_BROWSER, else chromium).

Usage: report_test.py BRAZE SAMPLES
"""

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Elements that have no end, and those that HTML ends by itself.
VOID = {"meta", "br"}
IMPLIED = {"tr", "td", "th", "li"}
ALLOWED = VOID | IMPLIED | {
    "html", "head", "title", "style", "body", "main", "h1", "h2", "p", "table", "code", "span", "div", "svg",
    "a", "text", "path", "rect", "details", "summary", "ol"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.texts, self.rows = [], [], [], {}, []
        self.attributes = set()
        self.feed(text)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag, attributes):
        assert tag in ALLOWED, f"<{tag} {attributes}>"
        for name, value in attributes:
            assert not name.startswith("on"), f"<{tag} {name}={value}>"
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.links.append(value)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in VOID | IMPLIED:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID | IMPLIED:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> within {self.open}"
        self.open.pop()

    def handle_data(self, data):
        inner = self.open[-1] if self.open else ""
        self.texts[inner] = self.texts.get(inner, "") + data
        if "table" in self.open and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def all_text(self):
        return "".join(self.texts.values())


def braze(*arguments, **options):
    done = subprocess.run([BRAZE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    assert done.returncode == 0, f"braze {arguments}: {done.stderr}"
    return done.stdout


def check_page(text):
    page = Page(text)
    # Nothing is loaded and nothing runs.
    assert "default-src 'none'" in text and "<script" not in text.lower()
    assert not page.attributes & {"src", "srcset", "action", "formaction", "background", "data"}
    for link in page.links:
        assert link.startswith(("#", "file:///")), link
        if link.startswith("#"):
            assert link[1:] in page.ids, f"{link} leads nowhere"
    assert len(page.ids) == len(set(page.ids)), "an id stands twice"
    assert not re.search(r"url\(|@import|https?:", text), "something of the network"
    return page


def check_against_explain(file, *flags):
    """Whatever `braze explain` says of kernels and edges is on the page."""
    braze("report", file, "-o", "r.html", *flags)
    with open("r.html", encoding="utf-8") as opened:
        page = check_page(opened.read())
    said = json.loads(braze("explain", file, "--json", *flags))
    rows = [[cell.strip() for cell in row] for row in page.rows]
    for kernel in said["kernels"]:
        assert any(row and row[0] == kernel["kernel"] and len(row) > 6 for row in rows), kernel["kernel"]
        assert kernel["schedule"] in page.texts["code"], kernel["schedule"]
        for op in kernel["ops"]:
            assert op.rsplit(" at ", 1)[0] in page.texts["code"], op
    for edge in said["edges"]:
        wanted = [edge["producer"], edge["consumer"], edge["reason"], edge["costs"], edge["at"]]
        assert wanted in rows, wanted
    return page, said


def check_graph_and_lines():
    page, said = check_against_explain("softmax.braze", "--target", "x86-64-v3")
    assert "#L3" in page.links and "L3" in page.ids and "#k0" in page.links
    assert len(said["edges"]) == 9
    text = page.all_text()
    assert "7 ops in 1 kernel for x86-64-v3, standard precision" in text
    assert "estimated" in text and "measured" not in text
    for heading in ("The graph, folded by kernel", "Kernels", "Memory", "Time of compiling", "What the verdicts mean"):
        assert heading in page.texts["h2"], heading
    for step in ("fusion", "lower", "emit", "plan"):
        assert any(row and row[0].strip() == step for row in page.rows), step
    # Five kernels in a row: each leads to its own, and the temporaries between them are drawn.
    page, said = check_against_explain("softmax.braze", "--target", "x86-64-v3", "--no-fuse")
    assert [f"k{i}" in page.ids for i in range(6)] == [True] * 5 + [False]
    assert "arena" in page.ids


def check_sizes():
    page, _ = check_against_explain("pair.braze", "--target", "sim:x86-64-v3")
    with open("sized.braze", "w") as file:
        file.write("braze 1 graph\nsymbol n: 1..512\ngraph @sized(%x: f32[n, 4]) {\n"
                   "  %s = reduce sum %x {axes: [1]} : f32[n]\n  return %s\n}\n")
    assert "n = 512" in check_against_explain("sized.braze", "--target", "x86-64-v3")[0].all_text()
    braze("report", "sized.braze", "-o", "r.html", "--target", "x86-64-v3", "--symbol", "n=7")
    with open("r.html", encoding="utf-8") as opened:
        assert "n = 7" in check_page(opened.read()).all_text()


def check_measured():
    braze("report", "softmax.braze", "-o", "r.html", "--device", "cpu", "--repeat", "3")
    with open("r.html", encoding="utf-8") as opened:
        page = check_page(opened.read())
    text = page.all_text()
    assert "measured on cpu" in text and "in the median of 3" in text
    header = next(row for row in page.rows if row and row[0].strip() == "kernel")
    assert [cell.strip() for cell in header[1:3]] == ["measured", "of all"], header
    kernel = next(row for row in page.rows if row and row[0].strip() == "max_broadcast_broadcast_y")
    assert re.fullmatch(r"[0-9.]+(e[+-]?\d+)? (ns|us|ms|s)", kernel[1].strip()), kernel
    assert kernel[2].strip() == "100 %", kernel
    # Devices of which the machine's speed says nothing, and graphs without kernels.
    for device in ("sim:cpu", "interpreter"):
        braze("report", "softmax.braze", "-o", "r.html", "--device", device, "--repeat", "1")
        with open("r.html", encoding="utf-8") as opened:
            assert f"measured on {device}" in check_page(opened.read()).all_text()


HOSTILE = '<img src=x onerror=alert(1)>\'"&amp;.braze'
HOSTILE_NAMES = ("</script><script>alert(2)</script>", "'><svg onload=alert(3)>", "javascript:alert(4)")


def write_hostile():
    """Names that want to be code, wherever a text has names of its maker's."""
    with open(HOSTILE, "w") as file:
        file.write("""braze 1 graph
// <script>alert(5)</script> & <b>
graph @f(%x "<script>alert(8)</script>": f32[4]) {
  %a = neg %x : f32[4] loc("<script>alert(6)</script>":7)
  %b = exp %a : f32[4] loc("javascript:alert(7)//'><script>":1)
  return %a as "FIRST", %b as "SECOND", %x as "THIRD"
}
""".replace("FIRST", HOSTILE_NAMES[0]).replace("SECOND", HOSTILE_NAMES[1]).replace("THIRD", HOSTILE_NAMES[2]))
    return HOSTILE


def check_hostile():
    name = write_hostile()
    for flags in (("--target", "x86-64-v3", "--no-fuse"), ("--device", "cpu", "--repeat", "1")):
        braze("report", name, "-o", "hostile.html", *flags)
        with open("hostile.html", encoding="utf-8") as opened:
            page = check_page(opened.read())
        assert name in page.texts["code"] and "<script>alert(5)</script> & <b>" in page.texts["code"]
    assert any(link.endswith("/%3Cscript%3Ealert%286%29%3C/script%3E") for link in page.links), page.links


def check_refusals():
    def fails(status, text, *arguments):
        done = subprocess.run([BRAZE, "report", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert (done.returncode, text in done.stderr) == (status, True), (arguments, done)

    fails(2, "softmax.braze", "softmax.braze", "-o", "softmax.braze")
    fails(2, "give either", "softmax.braze", "-o", "r.html", "--device", "cpu", "--target", "x86-64-v3")
    fails(2, "m is not a symbol of the program", "sized.braze", "-o", "r.html", "--target", "x86-64-v3", "--symbol", "m=7")
    fails(3, "cannot be written: No such file", "softmax.braze", "-o", "/none/r.html", "--target", "x86-64-v3")
    fails(4, "is not a graph", "increment.braze", "-o", "r.html")


def browser():
    for name in (os.environ.get("BRAZE_BROWSER"), "chromium", "chromium-headless-shell", "google-chrome"):
        if name and shutil.which(name):
            return shutil.which(name)
    return None


def check_in_browser(command):
    """The tree that a browser makes of the pages has no script, and what it draws has a size."""
    def tree_of(file):
        done = subprocess.run(
            [command, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + os.getcwd() + "/profile",
             "--virtual-time-budget=2000", "--dump-dom", "file://" + os.path.abspath(file)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stdout

    braze("report", "softmax.braze", "-o", "r.html", "--target", "x86-64-v3", "--no-fuse")
    tree = tree_of("r.html")
    assert tree.count("<details class=\"kernel\">") == 5 and "<svg id=\"picture\"" in tree, tree[:2000]
    tree = tree_of("hostile.html")
    assert not re.search(r"<(script|img|iframe)\b|<[^>]*\son\w+=", tree), tree
    assert "alert(5)" in tree


def main():
    for sample in ("softmax.braze", "pair.braze", "increment.braze"):
        shutil.copy(os.path.join(SAMPLES, sample), ".")
    os.environ.update({"BRAZE_CACHE": "off", "BRAZE_CUDA_DRIVER": "none"})
    check_graph_and_lines()
    check_sizes()
    check_measured()
    check_hostile()
    check_refusals()
    command = browser()
    if command:
        check_in_browser(command)
    else:
        print("skipped: the page in a browser: there is no chromium here; BRAZE_BROWSER names one")


BRAZE, SAMPLES = sys.argv[1:3]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    try:
        main()
    finally:
        os.chdir("/")
