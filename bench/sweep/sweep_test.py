#!/usr/bin/env python3
"""Tests of the sweep that need neither PyTorch nor JAX: sweep_test.py BENCH_SWEEP"""
import argparse
import ast
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import compare
import predictions
import report
import sweep

EVERYTHING = argparse.Namespace(list=sweep.LIST, family=None, half=None, rows=None)


def rows_of(scale):
    return sweep.read_rows(EXECUTABLE, scale, EVERYTHING)


def functions_of(name):
    """The parameters of each function of a module that cannot be imported here: names, and whether it takes others."""
    with open(os.path.join(sweep.FOLDER, name)) as file:
        tree = ast.parse(file.read())
    return {f.name: ({a.arg for a in f.args.args}, f.args.kwarg is not None)
            for f in tree.body if isinstance(f, ast.FunctionDef)}


def outputs(*values):
    return [{"shape": [len(v)], "values": v} for v in values]


def row(name, half, family="f", **us):
    peers = {peer: {"us": t} if t else {"blank": "not yet"} for peer, t in us.items()}
    return {"name": name, "half": half, "family": family, "dtype": "f32", "peers": peers}


class List(unittest.TestCase):
    def test_is_long_enough_and_has_two_halves(self):
        rows = rows_of("gpu")
        self.assertGreaterEqual(len(rows), 150)
        fit = sum(row["half"] == "fit" for row in rows)
        self.assertTrue(0.4 < fit / len(rows) < 0.6, f"{fit} of {len(rows)} rows are to fit")

    def test_halves_stay_what_they_are(self):
        """Another hash would mix the half that judges into the half that rules were fitted on."""
        halves = {row["name"]: row["half"] for row in rows_of("gpu")}
        for name, half in HALVES.items():
            self.assertEqual(halves[name], half, name)

    def test_peers_have_every_kind_and_take_its_inputs(self):
        for module in ("peers_torch.py", "peers_jax.py"):
            functions = functions_of(module)
            for row in rows_of("check"):
                self.assertIn(row["kind"], functions, module)
                names, others = functions[row["kind"]]
                for i in row["inputs"]:
                    if i["name"] != "direction" and not others:
                        self.assertIn(i["name"], names, f"{module}: {row['kind']}")

    def test_differentiates_by_inputs_that_it_has(self):
        for row in rows_of("check"):
            names = [i["name"] for i in row["inputs"]]
            for wanted in sweep.wanted_gradients(row) or ():
                self.assertIn(wanted, names, row["name"])

    def test_drawn_rows_have_graphs(self):
        draw = os.path.join(sweep.FOLDER, "draw.py")
        drawn = [subprocess.run([draw, seed], check=True, capture_output=True, text=True).stdout for seed in "112"]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        for text in drawn[1:]:
            done = subprocess.run([EXECUTABLE, "verify", "/dev/stdin"], input=text, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(" 0 wrong", done.stdout)

    def test_a_wrong_row_is_named_with_its_line(self):
        for text, what in (("a/b scale shape=4y", "number"), ("a/b scales shape=4", "no kind"),
                           ("ab scale shape=4", "family"), ("a/b scale shape=4\na/b scale shape=5", "another row")):
            done = subprocess.run([EXECUTABLE, "list", "/dev/stdin", "cpu"], input=text, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(what, done.stderr, text)


class Values(unittest.TestCase):
    def test_the_same_results_do_not_differ(self):
        one = outputs([1.0, 2.0], ["nan", "-inf"])
        self.assertEqual(sweep.difference(one, one), 0)

    def test_other_work_differs(self):
        self.assertAlmostEqual(sweep.difference(outputs([3.0, 4.5]), outputs([3.0, 4.0])), 0.1)
        self.assertIn("results", sweep.difference(outputs([1.0], [1.0]), outputs([1.0])))
        self.assertIn("shape", sweep.difference(outputs([1.0]), outputs([1.0, 1.0])))
        self.assertIn("finite", sweep.difference(outputs(["inf"]), outputs([1.0])))
        self.assertIn("finite", sweep.difference(outputs([1.0]), outputs(["nan"])))

    def test_values_and_places_are_those_of_bench_sweep(self):
        """Twice in the workers and once in Braze: here they are numbers of one row, which is x * 1.5."""
        worker = sweep.Worker("braze", [EXECUTABLE, "serve", sweep.LIST, "cpu", "cpu"])
        try:
            got = sweep.prepare_all([worker], {"name": "elementwise/scale"}, 240)["braze"]["outputs"][0]
        finally:
            worker.stop()
        size, bound = got["shape"][0] * got["shape"][1], 3**0.5
        places = sweep.sample_places(size, sweep.sample_count(1))
        self.assertEqual(len(got["values"]), len(places))
        for place, value in list(zip(places, got["values"]))[:100]:
            unit = (sweep.scramble(place ^ sweep.scramble(1)) >> 8) / 2**24
            self.assertAlmostEqual(value, 1.5 * (2 * bound * unit - bound), places=5)


class Figures(unittest.TestCase):
    ROWS = [row("a", "fit", braze=10, torch=20, compile=40), row("b", "judge", braze=10, torch=5, jax=20),
            row("c", "fit", braze=0, torch=5), row("d", "judge", braze=7)]

    def test_ratios_are_of_the_fastest(self):
        self.assertEqual([report.ratio(r, sweep.PEERS) for r in self.ROWS], [2, 0.5, None, None])
        self.assertEqual([report.ratio(r, sweep.COMPILERS) for r in self.ROWS], [4, 2, None, None])

    def test_a_peer_that_failed_leaves_a_doubt(self):
        failed = row("e", "fit", braze=10, torch=20)
        failed["peers"]["jax"] = {"error": "it ended"}
        self.assertEqual(report.ratio_cell(failed, sweep.PEERS), "2.00?")
        self.assertEqual(report.ratio_cell(self.ROWS[0], sweep.PEERS), "2.00")

    def test_means_and_shares(self):
        self.assertEqual(report.summary(self.ROWS, sweep.PEERS), ["2", "1.00", "50 %"])
        self.assertEqual(report.summary(self.ROWS, sweep.COMPILERS), ["2", "2.83", "0 %"])
        self.assertEqual(report.summary([], sweep.PEERS), ["0", "", ""])

    def test_table_and_plot_name_every_row(self):
        head = {"device": "cpu", "machine": "m <1>", "date": "d", "versions": {"torch": None}, "rounds": 5}
        text = report.markdown(head, self.ROWS)
        losing, others = text.split("## Below")[1].split("## The others")
        self.assertIn("| b |", losing)
        self.assertNotIn("| a |", losing)
        for name in "acd":
            self.assertIn(f"| {name} |", others)
        plot = report.svg(head, self.ROWS)
        self.assertEqual(plot.count("<title>"), 2)
        self.assertIn("m &lt;1&gt;", plot)

    def test_slower_rows(self):
        for old, new, slower in ((100, 102.9, False), (100, 103.1, True), (5, 5.29, False), (5, 5.31, True),
                                 (10, 10.31, True)):
            self.assertEqual(compare.is_slower(old, new), slower, (old, new))


class Predictions(unittest.TestCase):
    def test_within_thirty_per_cent_is_right(self):
        kernels = [{"estimate_us": e, "us": 10} for e in (7.5, 7.8, 12.9, 13.1)]
        self.assertEqual(predictions.share_right(kernels), "50 %")

    def test_calls_are_times_of_kernels_only_where_a_row_is_one_kernel(self):
        with tempfile.TemporaryDirectory() as folder:
            results, table = os.path.join(folder, "a.json"), os.path.join(folder, "b.md")
            sweep.write_json(results, [{"name": "f/one", "new": 3.5, "kernels": [2, 1]},
                                       {"name": "f/two", "new": 4.5, "kernels": [1, 2]}])
            with open(table, "w") as file:
                file.write("| workload | old us | new us | old / new | kernels |\n"
                           "| f/one | 4.0 | 3.5 | 1.143 | 2 -> 1 |\n| f/two | 4.0 | 4.5 | 0.889 | 1 -> 2 |\n")
            for path in (results, table):
                self.assertEqual(predictions.times_in(path), {"f/one": 3.5}, path)

    def test_kernels_that_are_no_longer_made_are_named(self):
        one = {"name": "k", "us": 10, "estimate_us": 11, "members": 0}
        text = predictions.report({"target": "t", "rows": [
            {"name": "f/a", "family": "f", "half": "fit", "kernels": [one], "changed": ["old"], "short": []}]})
        self.assertIn("| all | 1 | 100 % | 1.10 |", text)
        self.assertIn("do not count: 1 (f/a).", text)


class Workers(unittest.TestCase):
    def test_one_that_dies_and_one_that_is_silent_are_said_so(self):
        dead, silent = sweep.Worker("dead", ["false"]), sweep.Worker("silent", ["sleep", "60"])
        answers = {}
        for worker in (dead, silent):
            worker.ask("prepare x")
            answers[worker.name] = worker.answer(1 if worker is silent else 30)
            worker.stop()
        self.assertIn("ended", answers["dead"]["error"])
        self.assertIn("no answer", answers["silent"]["error"])

    def test_braze_prepares_and_measures(self):
        worker = sweep.Worker("braze", [EXECUTABLE, "serve", sweep.LIST, "check", "cpu"])
        try:
            prepared = sweep.prepare_all([worker], {"name": "elementwise/scale"}, 240)["braze"]
            self.assertEqual(prepared["kernels"], 1)
            samples, broken = sweep.measure_all([worker], 0.01, 2)
            self.assertEqual((len(samples["braze"]), broken), (2, {}))
            worker.ask("prepare nobody/knows-this")
            self.assertIn("no such workload", worker.answer(240)["error"])
        finally:
            worker.stop()


HALVES = {
    "norms/layer-backward": "judge",
    "softmax/rows-200003": "fit",
    "attention/causal": "fit",
    "products/llama-qkv-1": "judge",
    "steps/gpt": "judge",
    "index/stencil": "judge",
}

if __name__ == "__main__":
    EXECUTABLE = sys.argv.pop(1)
    unittest.main()
