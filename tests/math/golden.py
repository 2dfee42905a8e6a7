#!/usr/bin/env python3
"""tests/math/golden.py: writes tests/ops/golden_math.txt, values of the math rows made by mpmath.

Every result is the exact value rounded once (ties to even, subnormals kept), so nothing of Braze is
in it. Bodies may differ from it by their bound; 16-bit results may not differ.

    python3 tests/math/golden.py > tests/ops/golden_math.txt
"""
import random

import mpmath as mp

mp.mp.prec = 1400  # sin of the largest f64 needs 1024 bits of pi and some more

# name: significant bits, exponent of the ulp of 0, exponent above the largest number, stored bits
FORMATS = {"f16": (11, -24, 16, 16), "bf16": (8, -133, 128, 16), "f32": (24, -149, 128, 32),
           "f64": (53, -1074, 1024, 64)}


def encode(value, dtype):
    """The bits of `value` rounded to `dtype`; `value` is an mpf, or a float for signed zeros."""
    bits, low, high, width = FORMATS[dtype]
    exponent_field = ((1 << (width - bits)) - 1) << (bits - 1)
    if mp.isnan(value):
        return exponent_field | 1 << (bits - 2)
    sign = (str(value).startswith("-")) << (width - 1)
    if mp.isinf(value):
        return sign | exponent_field
    value = abs(mp.mpf(value))
    if value == 0:
        return sign
    exponent = max(int(mp.floor(mp.log(value, 2))) + 1 - bits, low)
    scaled = mp.ldexp(value, -exponent)
    if scaled >= 1 << bits:  # the logarithm was a power of two rounded down
        exponent, scaled = exponent + 1, scaled / 2
    whole = int(mp.floor(scaled))
    rest = scaled - whole
    whole += rest > 0.5 or (rest == 0.5 and whole % 2 == 1)
    if mp.ldexp(mp.mpf(whole), exponent) >= mp.ldexp(mp.mpf(1), high):
        return sign | exponent_field
    return sign | (whole + ((exponent - low) << (bits - 1)))


def decode(code, dtype):
    """The value of these bits: an mpf, or a float where that is a zero, an infinity or a NaN."""
    bits, low, _, width = FORMATS[dtype]
    negative, magnitude = code >> (width - 1), code & ((1 << (width - 1)) - 1)
    field, fraction = magnitude >> (bits - 1), magnitude & ((1 << (bits - 1)) - 1)
    if field == (1 << (width - bits)) - 1:
        return float("nan") if fraction else float("-inf") if negative else float("inf")
    if magnitude == 0:
        return -0.0 if negative else 0.0
    value = mp.ldexp(mp.mpf(fraction + ((field > 0) << (bits - 1))), low + max(field - 1, 0))
    return -value if negative else value


INF, NAN = float("inf"), float("nan")


def log_like(f, pole):
    def g(x):
        if mp.isnan(x) or x < pole:
            return NAN
        if x == pole:
            return -INF
        return INF if x == INF else (0.0 if pole == 0 and x == 1 else f(x))
    return g


def ends(f, low, high):
    """`f` with its limits; f(0) = 0 keeps its sign."""
    def g(x):
        if mp.isnan(x):
            return NAN
        if mp.isinf(x):
            return high if x > 0 else low
        value = f(mp.mpf(x))
        return x if value == 0 else value
    return g


def periodic(f):
    return lambda x: NAN if mp.isnan(x) or mp.isinf(x) else (x if f(mp.mpf(x)) == 0 else f(mp.mpf(x)))


def expm1(x):
    """e^x - 1 to full relative precision, tiny arguments included."""
    return mp.expm1(x) if abs(x) > mp.ldexp(1, -200) else x + x * x / 2


def log1p(x):
    return mp.log1p(x) if abs(x) > mp.ldexp(1, -200) else x - x * x / 2


def sparse(f, slope):
    """An odd function that is slope * x near 0, where mpmath's own method wastes time."""
    return lambda x: f(x) if abs(x) > mp.ldexp(1, -200) else slope * x


def erfc(x):
    return mp.erfc(x) if x < 40 else mp.ldexp(1, -3000)


FUNCTIONS = {
    "exp": ends(mp.exp, 0.0, INF),
    "exp2": ends(lambda x: mp.mpf(2) ** x, 0.0, INF),
    "expm1": ends(expm1, -1, INF),
    "log": log_like(mp.log, 0),
    "log2": log_like(lambda x: mp.log(x) / mp.log(2), 0),
    "log1p": log_like(lambda x: x if x == 0 else log1p(x), -1),
    "tanh": ends(sparse(mp.tanh, 1), -1, 1),
    "sigmoid": ends(lambda x: 1 / (1 + mp.exp(-x)), 0.0, 1),
    "erf": ends(lambda x: sparse(mp.erf, 2 / mp.sqrt(mp.pi))(x) if abs(x) < 40 else mp.sign(x), -1, 1),
    "erfc": ends(erfc, 2, 0.0),
    "sin": periodic(mp.sin),
    "cos": periodic(mp.cos),
}

TYPICAL = ["0.0", "-0.0", "inf", "-inf", "nan", "1", "-1", "0.5", "-0.5", "3.25"]
EDGES = {
    "exp": ["88.75", "-87.5", "-103.5", "11.0625", "-17.25", "709.75", "-745.25"],
    "exp2": ["128", "127.5", "-126.5", "-149", "15.9921875", "-24.5", "1023.5", "-1074"],
    "expm1": ["88.5", "-17", "0.3476", "0.3466", "-0.69", "11.0625", "709.5"],
    "log": ["0.75", "1.5", "0.6667", "2", "1e-40", "6e-8", "65504", "1e308"],
    "log2": ["0.75", "1.5", "0.6667", "8", "1e-40", "6e-8", "65504", "1e308"],
    "log1p": ["-0.9996", "0.5", "-0.25", "1e-40", "3e38", "65504", "-2", "1e308"],
    "tanh": ["0.17", "-0.25", "0.55", "9.01", "-8.5", "1e-40", "19"],
    "sigmoid": ["-17", "-88", "-103", "17", "88", "-9.5", "-700", "-745"],
    "erf": ["0.99", "-1.01", "3.9", "-2.3", "1e-40", "0.84", "5.9"],
    "erfc": ["0.99", "-1.01", "3.9", "9.2", "10.05", "-2.3", "26.5"],
    "sin": ["1.5708", "3.1416", "-6.2832", "65504", "1e22", "3e38", "1e308", "1.2345e5"],
    "cos": ["1.5708", "3.1416", "-6.2832", "65504", "1e22", "3e38", "1e308", "1.2345e5"],
}


def main():
    print("# golden_math.txt: the math rows, correctly rounded. Made by tests/math/golden.py with mpmath.")
    print("# name dtype input_bits -> result_bits")
    for name, function in FUNCTIONS.items():
        for dtype, (_, _, _, width) in FORMATS.items():
            rng = random.Random(f"{name} {dtype}")
            inputs = [encode(float(v) if v.strip("-") in ("0.0", "inf", "nan") else mp.mpf(v), dtype)
                      for v in TYPICAL + EDGES[name]]
            inputs.append(1)  # the least subnormal number
            while len(dict.fromkeys(inputs)) < 22:
                inputs.append(encode(mp.mpf(rng.uniform(-8, 8)), dtype))
            for code in dict.fromkeys(inputs):
                result = encode(function(decode(code, dtype)), dtype)
                print(f"{name} {dtype} 0x{code:0{width // 4}x} -> 0x{result:0{width // 4}x}")


if __name__ == "__main__":
    main()
