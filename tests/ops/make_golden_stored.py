#!/usr/bin/env python3
"""Writes golden_stored.txt: the floats for storage alone, as the package ml_dtypes has them. Nothing of Braze
takes part. Usage: pip install ml_dtypes numpy; make_golden_stored.py > golden_stored.txt"""

import ml_dtypes
import numpy as np

FORMATS = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}


def words(values):
    """The bits of f32, of NaN those of one NaN."""
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    return " ".join(f"{b:08x}" for b in bits)


def points(values):
    """What is a number, half way between two, or next to that; and what is beyond all of them."""
    finite = np.unique(np.abs(values[np.isfinite(values)])).astype(np.float32)
    step = finite[-1] - finite[-2]
    ends = np.array([finite[-1] + step / 2, finite[-1] + step, 2 * finite[-1], 1e30, np.inf], np.float32)
    middles = (finite[1:] + finite[:-1]) / 2
    out = np.concatenate([finite, middles, ends])
    out = np.concatenate([out, np.nextafter(out, np.float32(np.inf)), np.nextafter(out, np.float32(0))])
    out = np.unique(np.concatenate([out, np.array([1e-40, 1e-45], np.float32)]))
    return np.concatenate([out, -out, np.array([np.nan], np.float32)]).astype(np.float32)


def main():
    print("// golden_stored.txt: floats for storage alone, by ml_dtypes and make_golden_stored.py.")
    print("// dtype: all 256 elements in f32, by their bits; then the f32 of the next line become those of the third.")
    for name, dtype in FORMATS.items():
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        given = points(values)
        with np.errstate(over="ignore", invalid="ignore"):
            stored = given.astype(dtype)
        nan = np.isnan(stored.astype(np.float32))
        bits = np.where(nan, np.uint8(0x7F), stored.view(np.uint8))
        print(f"{name}: {words(values)}")
        print(words(given))
        print(" ".join(f"{b:02x}" for b in bits))


main()
