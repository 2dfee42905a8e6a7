#!/usr/bin/env python3
"""tests/math/golden_formulas.py: writes tests/ops/golden_formulas.txt, values of the longer formula
rows (ir/ops/formulas.h) at random arguments of all magnitudes, made by mpmath.

Every result is the exact value rounded once. tests/ops/bodies_test.cpp says how far from it the rows
may be. Zeros, infinities and poles are in golden.txt.

    python3 tests/math/golden_formulas.py > tests/ops/golden_formulas.txt
"""
import random

import mpmath as mp

from golden import FORMATS, decode, encode

FUNCTIONS = {
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "erfinv": mp.erfinv,
    "lgamma": lambda x: mp.log(abs(mp.gamma(x))) if abs(x) < 1000 else mp.loggamma(x),
    "digamma": mp.digamma,
}
# The exponents of magnitudes, and of the distance from 1, that a type has room for.
MAGNITUDE = {"f16": 8, "bf16": 30, "f32": 30, "f64": 200}
CLOSENESS = {"f16": 10, "bf16": 7, "f32": 22, "f64": 50}
COUNT = {"f16": 12, "bf16": 12, "f32": 40, "f64": 40}


def argument(rng, name, dtype):
    sign, magnitude = rng.choice([1, -1]), MAGNITUDE[dtype]
    small, near_one = 2.0 ** rng.uniform(-magnitude, 0), 2.0 ** rng.uniform(-CLOSENESS[dtype], -1)
    kind = rng.randrange(4)
    if name in ("asin", "acos", "atanh", "erfinv"):
        return [rng.uniform(-1, 1), rng.uniform(-1, 1), sign * (1 - near_one), sign * small][kind]
    if name == "acosh":
        return [1 + near_one, 1 + rng.uniform(0, 4), rng.uniform(1, 20), 1 / small][kind]
    if name in ("sinh", "cosh"):
        most = {"f16": 11, "f64": 710}.get(dtype, 89)
        return [rng.uniform(-3, 3), rng.uniform(-3, 3), rng.uniform(-most, most), sign * small][kind]
    if name in ("lgamma", "digamma"):
        return [rng.uniform(0, 12), rng.uniform(-6, 0), small, rng.uniform(1, 200)][kind]
    return [rng.uniform(-4, 4), rng.uniform(-10, 10), sign * small, sign / small][kind]


def main():
    print("# golden_formulas.txt: formula rows, correctly rounded. Made by tests/math/golden_formulas.py with mpmath.")
    print("# name dtype input_bits (and for atan2 the abscissa's) -> result_bits")
    mp.mp.prec = 700

    def bits(code, dtype):
        return f"0x{code:0{FORMATS[dtype][3] // 4}x}"

    for name, function in FUNCTIONS.items():
        for dtype, count in COUNT.items():
            rng = random.Random(f"{name} {dtype}")
            for _ in range(count):
                code = encode(mp.mpf(argument(rng, name, dtype)), dtype)
                print(f"{name} {dtype} {bits(code, dtype)} -> {bits(encode(function(decode(code, dtype)), dtype), dtype)}")
    for dtype, count in COUNT.items():
        rng = random.Random(f"atan2 {dtype}")
        for _ in range(count):
            exponent = rng.uniform(-MAGNITUDE[dtype] / 2, MAGNITUDE[dtype] / 2)
            y = encode(mp.mpf(rng.choice([1, -1]) * 2.0**exponent), dtype)
            x = encode(mp.mpf(rng.choice([1, -1]) * 2.0 ** (exponent + rng.uniform(-4, 4))), dtype)
            result = encode(mp.atan2(decode(y, dtype), decode(x, dtype)), dtype)
            print(f"atan2 {dtype} {bits(y, dtype)} {bits(x, dtype)} -> {bits(result, dtype)}")


if __name__ == "__main__":
    main()
