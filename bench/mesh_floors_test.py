"""Checks mesh_floors.py on CPU devices in the place of GPUs: mesh_floors_test.py SCRIPT BIN"""
import os
import subprocess
import sys
import tempfile


def main():
    script, programs = sys.argv[1:]
    environment = {**os.environ, "BRAZE_CPU_DEVICES": "2", "BRAZE_CUDA_DRIVER": "none"}
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "table.md")
        ran = subprocess.run([sys.executable, script, "--bin", programs, "--device", "cpu", "--devices", "2,4", "--small",
                              "--only", "gpu", "--limit", "100,training=200", "--out", table], env=environment, capture_output=True, text=True)
        with open(table) as file:
            text = file.read()
        traces = [os.path.basename(where) for where, _, files in os.walk(os.path.join(folder, "table-traces")) if files]
    problems = []
    if traces != ["one-process"] * 2:
        problems.append(f"timelines: {traces}")
    if "FAILED" in text:
        problems.append("a program failed")
    if "4 devices like cpu are not there" not in ran.stderr:
        problems.append("it does not say that there are only two devices")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| 2 GPUs")]
    measured = {row[0].removeprefix("| 2 GPUs, "): row[1] for row in rows}
    for work in ("one process, all_reduce of 8 KiB, a call; torch.distributed", "one process, training step, efficiency; on one", "one process, training step, state divided, efficiency; on one",
                 "block of Llama-3 8B's sizes; torch, divided by hand"):
        if not measured.get(work, "").endswith((" us", " ms")):
            problems.append(f"{work}: {measured.get(work)}")
    # Collectives of CPU devices are between kernels, so nothing is hidden in their timeline.
    hidden = next((row for row in rows if "communication hidden, by the timeline: " in row[0]), [])
    if hidden[3:5] != ["0.00", "0.8"]:
        problems.append(f"hidden communication: {hidden}")
    # The other measure compares times, which may be anything here, but they have to be there.
    share = next((row for row in rows if "communication hidden, by the clock: " in row[0]), [])
    if len(share) != 6 or not share[1] or not share[2] or not share[3] or share[4] != "0.8":
        problems.append(f"times of communication: {share}")
    if problems:
        print("\n".join([*problems, text, ran.stderr]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
