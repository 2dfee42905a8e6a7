#!/usr/bin/env python3
"""Measures the distinct convolutions of ResNet-50, MobileNet-v3 and a U-Net beside cuDNN: forward and both gradients.

  convolution_floors.py --out all.json                      on cuda:0; the table is printed
  convolution_floors.py --only bf16 --out bf16.json         half of it; --only takes words, and a row's name has all of them
  convolution_floors.py --device cuda:1 --only f32 --out f32.json
  convolution_floors.py --read bf16.json f32.json --markdown floors.md      one table of several files; measures nothing
  PYTHON=/opt/torch/bin/python convolution_floors.py        the interpreter that has torch; without torch its columns stay blank

Images are [batch, height, width, channels], 64 of them in bf16 and 8 in f32, where both sides may multiply in tf32. A row is one
convolution alone, without bias or activation, or one of its gradients. Graphs are those of the sweep's kind `convolution`, so the
scripts and the program of the sweep (bench-sweep) have to be there. The peer is PyTorch with channels last, which takes the fastest
algorithm of cuDNN's that it finds, and the results of both are compared. The clock is that of floors.py.

Braze compiles in several processes at once (--workers); then one is measured after the other, while nothing else runs on the device.
Results are written after each such batch, and a row that the file has is not measured again, so that a run can be made in parts
(--limit-seconds). The exit status is 1 if a floor is not met or a row failed.
"""
import argparse
import collections
import datetime
import json
import math
import os
import sys
import tempfile
import time

import floors

sys.path.insert(0, os.path.join(floors.HERE, "sweep"))
import sweep
import worker

MEAN, LEAST = 0.95, 0.6  # of the geometric mean over all rows, and of each row
DTYPES = {"bf16": 64, "f32": 8}  # with the size of the batch
DIRECTIONS = {"forward": "", "input-gradient": "x", "weight-gradient": "w"}  # with the input by which is differentiated


# --- The networks ---------------------------------------------------------------------------------

# `side` is that of the square image that comes in, `inputs` and `outputs` are all channels. Each has padding with which a stride of 1
# keeps the image, but for those of 2x2, which have none.
Layer = collections.namedtuple("Layer", "side inputs outputs window stride groups transposed", defaults=(1, 1, False))


def resnet50():
    """Of images of 224x224, with the stride in the middle of a block, as libraries have it."""
    yield Layer(224, 3, 64, 7, 2)
    side, inputs = 56, 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        yield Layer(side, inputs, width, 1)
        yield Layer(side, width, width, 3, stride)
        yield Layer(side, inputs, 4 * width, 1, stride)
        side, inputs = side // stride, 4 * width
        yield Layer(side, width, inputs, 1)
        yield Layer(side, inputs, width, 1)
        yield Layer(side, width, width, 3)


def mobilenet_v3():
    """The large one, of images of 224x224. Layers of squeeze-and-excitation see one place an image: they are products, and no rows."""
    yield Layer(224, 3, 16, 3, 2)
    side, inputs = 112, 16
    for window, expanded, outputs, stride in (
            (3, 16, 16, 1), (3, 64, 24, 2), (3, 72, 24, 1), (5, 72, 40, 2), (5, 120, 40, 1), (3, 240, 80, 2), (3, 200, 80, 1),
            (3, 184, 80, 1), (3, 480, 112, 1), (3, 672, 112, 1), (5, 672, 160, 2), (5, 960, 160, 1)):
        if expanded != inputs:
            yield Layer(side, inputs, expanded, 1)
        yield Layer(side, expanded, expanded, window, stride, expanded)
        side, inputs = side // stride, outputs
        yield Layer(side, expanded, outputs, 1)
    yield Layer(side, inputs, 960, 1)


def unet():
    """Five levels of 64 to 1024 channels over images of 128x128, two 3x3 at each level on both ways; two classes."""
    inputs = 3
    for level in range(5):
        width = 64 << level
        yield Layer(128 >> level, inputs, width, 3)
        yield Layer(128 >> level, width, width, 3)
        inputs = width
    for level in reversed(range(4)):
        width = 64 << level
        yield Layer(64 >> level, 2 * width, width, 2, 2, 1, True)
        yield Layer(128 >> level, 2 * width, width, 3)  # beside what the level had on the way down
        yield Layer(128 >> level, width, width, 3)
    yield Layer(128, 64, 2, 1)


NETWORKS = {"resnet-50": resnet50, "mobilenet-v3": mobilenet_v3, "u-net": unet}


def distinct(network):
    return list(dict.fromkeys(NETWORKS[network]()))


def listed(network, layer, dtype, direction, small=False):
    """The row of the sweep's list."""
    kind = "-depthwise" if layer.groups > 1 else "-transposed" if layer.transposed else ""
    stride = f"-stride-{layer.stride}" if layer.stride > 1 else ""
    name = f"{network}/{dtype}/{direction}/{layer.window}x{layer.window}-{layer.inputs}-{layer.outputs}-of-{layer.side}{stride}{kind}"
    settings = {"batch": 2 if small else DTYPES[dtype], "height": layer.side, "width": layer.side, "groups": layer.groups,
                "in": layer.inputs // layer.groups, "out": layer.outputs // layer.groups, "window": layer.window,
                "stride": layer.stride, "dtype": dtype}
    settings.update({"padding": 0, "transposed": 1} if layer.transposed else {}, **({"tf32": 1} if dtype == "f32" else {}))
    if DIRECTIONS[direction]:
        settings["gradient"] = DIRECTIONS[direction]
    return " ".join([name, "convolution", *(f"{key}={value}" for key, value in settings.items())])


def whole_list(small=False):
    return [listed(network, layer, dtype, direction, small) for network in NETWORKS for dtype in DTYPES for direction in DIRECTIONS
            for layer in distinct(network)]


# --- The peer. It runs in the interpreter that has torch: convolution_floors.py --peer DEVICE ROWS -


class Library(worker.Torch):
    """A convolution or one gradient of it, each a call of its own."""

    def __init__(self, device):
        super().__init__(device)
        if device.startswith("cuda"):
            self.torch.cuda.set_device(device)

    def gradient(self, f, s, inputs, wanted):
        images, weights = self.functions.axes_of(s)
        x, w, direction = inputs["x"].permute(images), inputs["w"].permute(weights), inputs["direction"].permute(images)
        back = self.functions.back(images if wanted == ["x"] else weights)
        stride, padding = [s["stride"]] * 2, [s.get("padding", s["window"] // 2)] * 2
        mask = [wanted == ["x"], wanted == ["w"], False]

        def call():
            with self.torch.no_grad():
                found = self.torch.ops.aten.convolution_backward(direction, x, w, None, stride, padding, [1, 1],
                                                                 bool(s.get("transposed", 0)), [0, 0], s["groups"], mask)
            return found[mask.index(True)].permute(back)

        return call


def serve_peer(device, path):
    """Answers each request `prepare NAME` with samples of the results and microseconds a call."""
    with open(path) as file:
        rows = {row["name"]: row for row in map(json.loads, file)}
    peer = Library(device)
    for line in sys.stdin:
        try:
            answer = worker.prepare(peer, rows[line.split()[1]])
            answer["us"] = 1e6 * floors.library_seconds(peer.call, device)
        except Exception as error:  # whatever a library throws, the next row is another
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), flush=True)


# --- Measuring ------------------------------------------------------------------------------------


def measure_batch(rows, workers, peer, options):
    """The results of as many rows as there are workers."""
    end = time.monotonic() + options.limit
    for row, one in zip(rows, workers):
        one.ask("prepare " + row["name"])
    prepared = [one.answer(end - time.monotonic()) for _, one in zip(rows, workers)]
    results = []
    for row, one, found in zip(rows, workers, prepared):
        result = {"name": row["name"]}
        if "error" not in found:
            one.ask(f"measure {options.seconds}")
            found = {**found, **one.answer(options.limit)}
        if "error" in found:
            result["error"] = found["error"]
        else:
            result.update(kernels=found["kernels"], compile_s=found["compile_s"], braze_us=sorted(found["us"])[len(found["us"]) // 2])
        results.append(result)
    for row, result, found in zip(rows, results, prepared if peer else []):
        peer.ask("prepare " + row["name"])
        them = peer.answer(options.limit)
        if "error" in them:
            result["library_error"] = them["error"]
            continue
        result["library_us"] = them["us"]
        if "outputs" in found:
            far = sweep.difference(found["outputs"], them["outputs"])
            result["difference"] = far
            if isinstance(far, str) or far > sweep.TOLERANCE[row["dtype"]]:
                result["error"] = f"differs from the library: {far}"
    return results


def measure(options):
    executable = sweep.find_bench_sweep(os.path.join(options.bin, "bench-sweep"))
    scale, python = "check" if options.small else "gpu", floors.torch_python(options.device)
    results = {"device": options.device, "machine": floors.machine_of(options.bin, options.device),
               "date": datetime.date.today().isoformat(), "rows": []}
    if options.out and os.path.exists(options.out):
        with open(options.out) as file:
            results = json.load(file)
    done = {row["name"] for row in results["rows"]}
    end = time.monotonic() + options.limit_seconds
    with tempfile.TemporaryDirectory() as folder:
        path, rows_path = os.path.join(folder, "list.txt"), os.path.join(folder, "rows.json")
        with open(path, "w") as file:
            file.write("\n".join(whole_list(options.small)) + "\n")
        rows = sweep.list_rows(executable, path, scale)
        with open(rows_path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        rows = [row for row in rows if row["name"] not in done and all(word in row["name"] for word in options.only)]
        workers = [sweep.Worker("braze", [executable, "serve", path, scale, options.device]) for _ in range(options.workers)]
        peer = sweep.Worker("library", [python, os.path.abspath(__file__), "--peer", options.device, rows_path]) if python else None
        try:
            for start in range(0, len(rows), len(workers)):
                if time.monotonic() > end:
                    print(f"stopped after {options.limit_seconds:.0f} s before {len(rows) - start} rows; run it again", file=sys.stderr)
                    break
                results["rows"] += measure_batch(rows[start:start + len(workers)], workers, peer, options)
                if options.out:
                    sweep.write_json(options.out, results)
        finally:
            for one in workers + [peer] * bool(peer):
                one.stop()
    return results


# --- The table ------------------------------------------------------------------------------------


def ratio(row):
    """Above 1 where Braze is faster; None where that is not known."""
    return row["library_us"] / row["braze_us"] if "error" not in row and "library_us" in row else None


def summary(rows):
    """The number of ratios, their geometric mean, how many lie below the floor of a row, and how many rows failed."""
    ratios = [r for r in map(ratio, rows) if r is not None]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    return len(ratios), mean, sum(r < LEAST for r in ratios), sum("error" in row for row in rows)


def is_met(rows):
    _, mean, low, failed = summary(rows)
    return not failed and not low and (mean is None or mean >= MEAN)


def markdown(files):
    rows = [row for results in files for row in results["rows"]]
    lines = ["# Convolutions beside cuDNN", ""]
    lines += [line for results in files for line in (f"{results['date']}: {results['machine']}", "")]
    lines += [f"Asked for: a geometric mean of {MEAN} of the library's time over Braze's, no row below {LEAST}.", "",
              f"| network | dtype | direction | rows | geometric mean | below {LEAST} | failed |",
              "| --- | --- | --- | ---: | ---: | ---: | ---: |"]
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row["name"].split("/")[:3]), []).append(row)
    for group, of_group in [*groups.items(), (("all", "", ""), rows)]:
        count, mean, low, failed = summary(of_group)
        lines.append(f"| {' | '.join(group)} | {count} | {'' if mean is None else f'{mean:.2f}'} | {low} | {failed} |")
    lines += ["", "| convolution | kernels | Braze us | library us | library / Braze | |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    shown = lambda row, key, form: format(row[key], form) if key in row else ""
    for row in rows:
        of_row = ratio(row)
        said = row.get("error") or row.get("library_error") or ("below" if of_row is not None and of_row < LEAST else "")
        lines.append(f"| {row['name']} | {shown(row, 'kernels', 'd')} | {shown(row, 'braze_us', '.1f')} | {shown(row, 'library_us', '.1f')} | "
                     f"{'' if of_row is None else f'{of_row:.2f}'} | {said} |")
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:2] == ["--peer"]:
        return serve_peer(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    floors.add_options(parser)
    parser.add_argument("--device", default="cuda:0", help="of Braze and of the peer: cpu, cuda:0, cuda:1 ..")
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="rows whose names have all of these words")
    parser.add_argument("--out", help="the file of the results, JSON, continued if it exists")
    parser.add_argument("--read", nargs="*", metavar="FILE", help="results of former runs; measures nothing")
    parser.add_argument("--markdown", help="a file for the table; without it, the table is printed")
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1), help="processes that compile at once")
    parser.add_argument("--seconds", type=float, default=0.05, help="time that Braze is measured, a row")
    parser.add_argument("--limit-seconds", type=float, default=math.inf, help="start no batch after so long")
    options = parser.parse_args()
    files = []
    for path in options.read or ():
        with open(path) as file:
            files.append(json.load(file))
    files = files or [measure(options)]
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(markdown(files))
    else:
        sys.stdout.write(markdown(files))
    return 0 if is_met([row for results in files for row in results["rows"]]) else 1


if __name__ == "__main__":
    sys.exit(main())
