"""Checks convolution_floors.py without a GPU and without torch: convolution_floors_test.py BIN"""
import collections
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import convolution_floors as convolutions
from convolution_floors import Layer

SCRIPT = os.path.abspath(convolutions.__file__)


def row(name, braze, library, **more):
    return {"name": name, "kernels": 1, "braze_us": braze, "library_us": library, **more}


class Networks(unittest.TestCase):
    def test_multiply_adds_are_those_of_the_networks(self):
        """All layers of ResNet-50, each as often as it stands there, do the 4.09 thousand millions an image that are published."""
        def millions(layer):
            places = (layer.side if layer.transposed else layer.side // layer.stride) ** 2
            return places * layer.window**2 * layer.inputs // layer.groups * layer.outputs / 1e6

        # What is listed is the first block of each stage, and what the second one has that differs. A stage has 2, 3, 5 and 2 more
        # blocks. In the first stage the 3x3 is listed twice, for there it has no stride in the first block either.
        counts = collections.Counter(convolutions.NETWORKS["resnet-50"]())
        for (width, side), blocks in zip(((64, 56), (128, 28), (256, 14), (512, 7)), (2, 3, 5, 2)):
            counts[Layer(side, width, 4 * width, 1)] += blocks
            counts[Layer(side, 4 * width, width, 1)] += blocks - 1
            counts[Layer(side, width, width, 3)] += blocks - (side != 56)
        counts[Layer(56, 64, 64, 3)] -= 1
        self.assertAlmostEqual(sum(n * millions(layer) for layer, n in counts.items()), 4087, delta=2)

    def test_rows_are_distinct_and_as_many_as_there_are(self):
        counts = {network: len(convolutions.distinct(network)) for network in convolutions.NETWORKS}
        self.assertEqual(counts, {"resnet-50": 23, "mobilenet-v3": 34, "u-net": 19})
        names = [line.split()[0] for line in convolutions.whole_list()]
        self.assertEqual(len(names), 6 * sum(counts.values()))
        self.assertEqual(len(set(names)), len(names))

    def test_each_layer_takes_what_another_gives(self):
        for network in convolutions.NETWORKS:
            layers = convolutions.distinct(network)
            given = {((la.side * la.stride if la.transposed else la.side // la.stride), la.outputs) for la in layers}
            for layer in layers[1:]:
                fits = (layer.side, layer.inputs) in given
                pooled = (2 * layer.side, layer.inputs) in given and network != "mobilenet-v3"
                joined = network == "u-net" and (layer.side, layer.inputs // 2) in given
                self.assertTrue(fits or pooled or joined, (network, layer))

    def test_graphs_are_sound(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "list.txt")
            with open(path, "w") as file:
                file.write("\n".join(convolutions.whole_list()))
            done = subprocess.run([os.path.join(BIN, "bench-sweep"), "verify", path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertTrue(done.stdout.startswith("456 workloads, 456 of which Braze has the ops"), done.stdout)


class Figures(unittest.TestCase):
    ROWS = [row("a/bf16/forward/x", 10, 20), row("a/bf16/forward/y", 20, 10),
            row("a/f32/forward/x", 10, 5, error="differs from the library: 1"), {"name": "a/f32/forward/y", "error": "it ended"}]

    def test_rows_that_failed_have_no_ratio(self):
        self.assertEqual([convolutions.ratio(r) for r in self.ROWS], [2, 0.5, None, None])

    def test_means_and_counts(self):
        self.assertEqual(convolutions.summary(self.ROWS), (2, 1.0, 1, 2))
        self.assertEqual(convolutions.summary([]), (0, None, 0, 0))

    def test_floors(self):
        for ratios, met in (((1, 1), True), ((0.94, 0.94), False), ((0.59, 9), False), ((), True)):
            self.assertEqual(convolutions.is_met([row("a/b/c/d", 1, r) for r in ratios]), met, ratios)
        self.assertFalse(convolutions.is_met([{"name": "a/b/c/d", "error": "it ended"}]))

    def test_table(self):
        text = convolutions.markdown([{"date": "d", "machine": "m", "rows": self.ROWS[:2]},
                                      {"date": "e", "machine": "n", "rows": self.ROWS[2:]}])
        for line in ("| a | bf16 | forward | 2 | 1.00 | 1 | 0 |", "| a | f32 | forward | 0 |  | 0 | 2 |", "| all |  |  | 2 | 1.00 | 1 | 2 |",
                     "| a/bf16/forward/y | 1 | 20.0 | 10.0 | 0.50 | below |", "| a/f32/forward/y |  |  |  |  | it ended |"):
            self.assertIn(line, text.splitlines())


class Run(unittest.TestCase):
    def test_a_run_is_continued(self):
        """On the CPU and without torch: a network's smallest rows, the second time none."""
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            command = [sys.executable, SCRIPT, "--bin", BIN, "--device", "cpu", "--small", "--workers", "2", "--seconds", "0.001",
                       "--only", "1x1-960-160", "f32", "--out", out]
            environment = {**os.environ, "PYTHON": "false"}
            first = subprocess.run(command, env=environment, capture_output=True, text=True)
            with open(out) as file:
                results = json.load(file)
            self.assertEqual(len(results["rows"]), 3, first.stderr)
            for found in results["rows"]:
                self.assertTrue(found.get("braze_us", 0) > 0 and found["kernels"] >= 1 and "library_us" not in found, found)
            stamp = os.stat(out).st_mtime_ns
            second = subprocess.run(command, env=environment, capture_output=True, text=True)
            self.assertEqual((first.returncode, second.returncode), (0, 0), first.stderr + second.stderr)
            self.assertEqual((second.stdout, os.stat(out).st_mtime_ns), (first.stdout, stamp))


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main()
