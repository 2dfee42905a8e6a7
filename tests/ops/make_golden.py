#!/usr/bin/env python3
"""Writes golden.txt: values of every elementwise op, from its definition, by mpmath and exact
fractions. Nothing of Braze takes part. Usage: pip install mpmath; make_golden.py > golden.txt"""

import math
import struct
from fractions import Fraction

import mpmath
from mpmath import mpf

mpmath.mp.prec = 400

# ---- element types: how an exact number becomes an element, and how an element is written

FLOATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
# Without arithmetic; the greatest number of f8e4m3 is 448, and beyond it is NaN.
STORED = {"f8e4m3": (4, -6, 8), "f8e5m2": (3, -14, 15)}
INTEGERS = {"i8": (8, True), "u8": (8, False), "i16": (16, True), "u16": (16, False), "i32": (32, True),
            "i64": (64, True), "u32": (32, False), "u64": (64, False)}
NUMERIC = list(INTEGERS) + list(FLOATS)
MOVED = ["bool"] + NUMERIC + list(STORED)
INF, NAN = float("inf"), float("nan")


def exact(x):
    """A finite number as a Fraction."""
    if isinstance(x, mpf):
        sign, man, exp, _ = x._mpf_
        return Fraction(-man if sign else man) * Fraction(2) ** exp
    return Fraction(x)


def special(x):
    return isinstance(x, float) and (math.isnan(x) or math.isinf(x))


def round_float(x, dtype):
    """The element nearest to x, ties to even. The result is a Python float, which holds them all."""
    if dtype == "f8e4m3" and isinstance(x, float) and math.isinf(x):
        return NAN
    if special(x) or (isinstance(x, float) and x == 0):
        return x
    if isinstance(x, mpf) and not mpmath.isfinite(x):
        return float(x)
    x = exact(x)
    if x == 0:
        return 0.0
    precision, least, greatest = (FLOATS | STORED)[dtype]
    exponent = max(math.floor(mpmath.log(abs(mpf(x.numerator)) / x.denominator, 2)), least)
    while exponent > least and abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    unit = Fraction(2) ** (exponent - precision + 1)
    result = round(x / unit) * unit  # Python rounds fractions half to even
    if dtype == "f8e4m3" and abs(result) > 448:
        return NAN
    if abs(result) >= Fraction(2) ** (greatest + 1):
        return INF if x > 0 else -INF
    if result == 0:
        return 0.0 if x > 0 else -0.0
    return float(result)


def wrap(x, dtype):
    bits, signed = INTEGERS[dtype]
    x %= 1 << bits
    return x - (1 << bits) if signed and x >> (bits - 1) else x


def element(x, dtype):
    """x as an element of dtype, rounded or wrapped."""
    if dtype == "bool":
        return bool(x)
    return wrap(x, dtype) if dtype in INTEGERS else round_float(x, dtype)


def text(x, dtype):
    if dtype == "bool":
        return "true" if x else "false"
    if dtype in INTEGERS:
        return str(x)
    if special(x):
        return str(x)
    if dtype == "f64":
        return repr(x)
    for digits in range(1, 17):  # the shortest text that rounds to x
        short = f"{x:.{digits}g}"
        if round_float(Fraction(short), dtype) == x:
            return "-0.0" if x == 0 and math.copysign(1, x) < 0 else short
    return repr(x)


# ---- machine rows on exact numbers


def truncate(q):
    return math.trunc(q)


def is_float(dtype):
    return dtype in FLOATS


def op_div(x, y, t):
    if is_float(t):
        return exact(x) / exact(y)
    return 0 if y == 0 else truncate(Fraction(x, y))


def op_rem(x, y, t):
    if not is_float(t) and y == 0:
        return x
    return exact(x) - exact(y) * truncate(exact(x) / exact(y)) if is_float(t) else x - y * truncate(Fraction(x, y))


def op_fma(x, y, z, t):
    value = exact(x) * exact(y) + exact(z)
    return round_float(value, "f32") if t in ("f16", "bf16") else value


def op_abs(x, t):
    return abs(x)


def op_shl(x, y, t):
    width = INTEGERS[t][0]
    return x << y if 0 <= y < width else 0


def op_shr(x, y, t):
    width = INTEGERS[t][0]
    return x >> y if 0 <= y < width else (-1 if x < 0 else 0)


def root(x):
    return mpmath.sqrt(mpf(x))


MACHINE = {
    "add": (NUMERIC, lambda x, y, t: exact(x) + exact(y) if is_float(t) else x + y),
    "sub": (NUMERIC, lambda x, y, t: exact(x) - exact(y) if is_float(t) else x - y),
    "mul": (NUMERIC, lambda x, y, t: exact(x) * exact(y) if is_float(t) else x * y),
    "div": (NUMERIC, op_div),
    "rem": (NUMERIC, op_rem),
    "fma": (list(FLOATS), op_fma),
    "neg": (NUMERIC, lambda x, t: -x),
    "abs": (NUMERIC, op_abs),
    "min": (["bool"] + NUMERIC, lambda x, y, t: min(x, y)),
    "max": (["bool"] + NUMERIC, lambda x, y, t: max(x, y)),
    "sqrt": (list(FLOATS), lambda x, t: root(x)),
    "floor": (list(FLOATS), lambda x, t: float(math.floor(x))),
    "ceil": (list(FLOATS), lambda x, t: math.copysign(float(math.ceil(x)), x)),
    "round_even": (list(FLOATS), lambda x, t: math.copysign(float(round(x)), x)),
    "trunc": (list(FLOATS), lambda x, t: math.copysign(float(math.trunc(x)), x)),
    "logical_and": (["bool"] + list(INTEGERS), lambda x, y, t: x & y),
    "logical_or": (["bool"] + list(INTEGERS), lambda x, y, t: x | y),
    "logical_xor": (["bool"] + list(INTEGERS), lambda x, y, t: x ^ y),
    "logical_not": (["bool"] + list(INTEGERS), lambda x, t: not x if t == "bool" else ~x),
    "shl": (list(INTEGERS), op_shl),
    "shr": (list(INTEGERS), op_shr),
}
COMPARISONS = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}

# ---- math and formula rows, from their definitions

e = mpmath.exp


def sigmoid(x):
    return 1 / (1 + e(-x))


def clip(x, low, high):
    return min(max(x, low), high)


def power(x, y):
    return NAN if x < 0 and y != mpmath.floor(y) else mpmath.power(x, y)


MATH = {
    "exp": e,
    "exp2": lambda x: mpf(2) ** x,
    "log": lambda x: mpmath.log(x),
    "log2": lambda x: mpmath.log(x, 2),
    "log1p": lambda x: mpmath.log(1 + x),
    "expm1": lambda x: e(x) - 1,
    "tanh": lambda x: (e(2 * x) - 1) / (e(2 * x) + 1),
    "sigmoid": sigmoid,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "pow": power,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "square": lambda x: x * x,
    "sign": lambda x: mpmath.sign(x),
    "relu": lambda x: max(x, mpf(0)),
    "leaky_relu": lambda x, y: x if x > 0 else x * y,
    "elu": lambda x, y: x if x > 0 else y * (e(x) - 1),
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (1 + mpmath.erf(x / mpmath.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpf("0.044715") * x**3))),
    "softplus": lambda x: mpmath.log(1 + e(x)),
    "hard_sigmoid": lambda x: clip(x / 6 + mpf(1) / 2, mpf(0), mpf(1)),
    "hard_tanh": lambda x: clip(x, mpf(-1), mpf(1)),
    "hard_swish": lambda x: x * clip(x / 6 + mpf(1) / 2, mpf(0), mpf(1)) if x > -3 else -0.0,
    "clamp": lambda x, y, z: clip(x, y, z),
    "tan": lambda x: mpmath.tan(x),
    "asin": lambda x: mpmath.asin(x),
    "acos": lambda x: mpmath.acos(x),
    "atan": lambda x: mpmath.atan(x),
    "atan2": lambda y, x: mpmath.atan2(y, x),
    "sinh": lambda x: (e(x) - e(-x)) / 2,
    "cosh": lambda x: (e(x) + e(-x)) / 2,
    "asinh": lambda x: mpmath.log(x + mpmath.sqrt(x * x + 1)),
    "acosh": lambda x: mpmath.log(x + mpmath.sqrt(x * x - 1)),
    "atanh": lambda x: mpmath.log((1 + x) / (1 - x)) / 2,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.root(abs(x), 3),
    "erfinv": lambda x: mpmath.erfinv(x),
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "digamma": lambda x: mpmath.digamma(x),
    "round_away": lambda x: math.copysign(math.floor(abs(x) + mpf(1) / 2), x),
}
INTEGER_FORMULAS = {
    "square": lambda x: x * x,
    "sign": lambda x: (x > 0) - (x < 0),
    "relu": lambda x: max(x, 0),
    "clamp": lambda x, y, z: clip(x, y, z),
}

# The bits of x as an unsigned number, and the width.
BITS = {
    "popcount": lambda x, width: x.bit_count(),
    "count_leading_zeros": lambda x, width: width - x.bit_length(),
}

# ---- where the ops are evaluated

POSITIVE = {"sqrt", "rsqrt", "log", "log2"}
FLOAT_POINTS = [0.1, -1.25, 2.5, -0.375, 5.75, -3.5, 1e-3]
INTEGER_POINTS = {
    "i8": [7, -3, 127, -128, 65, -10, 0],
    "u8": [7, 3, 255, 128, 65, 10, 0],
    "i16": [7, -3, 2**15 - 1, -(2**15), 257, -10, 0],
    "u16": [7, 3, 2**16 - 1, 2**15, 257, 10, 0],
    "i32": [7, -3, 2**31 - 1, -(2**31), 65537, -10, 0],
    "i64": [7, -3, 2**63 - 1, -(2**63), 2**32 + 1, -10, 0],
    "u32": [7, 3, 2**32 - 1, 2**31, 65537, 10, 0],
    "u64": [7, 3, 2**64 - 1, 2**63, 2**32 + 1, 10, 0],
}


def points(name, dtype):
    if dtype == "bool":
        return [False, True]
    if dtype in INTEGERS:
        return INTEGER_POINTS[dtype]
    source = [abs(p) for p in FLOAT_POINTS] if name in POSITIVE else FLOAT_POINTS
    if name == "log1p":
        source = [p for p in source if p > -1]
    if name in ("asin", "acos", "atanh", "erfinv"):
        source = [p / 8 for p in source]
    if name == "acosh":
        source = [1 + abs(p) for p in source]
    return [element(Fraction(p), dtype) for p in source]


# Pairs for pow, and where it is special, with what ISO C (annex F) says that it is.
POWERS = [(0.1, -1.25), (2.5, 0.5), (2.5, -0.375), (5.75, -3.5), (1e-3, 0.1), (-1.25, 3), (-3.5, -2), (-3.5, 2.5)]
SPECIAL_POWERS = [((0.0, 0.0), 1.0), ((NAN, 0.0), 1.0), ((1.0, NAN), 1.0), ((NAN, 1.0), NAN), ((0.0, -2.0), INF),
                  ((-0.0, -3.0), -INF), ((-0.0, 3.0), -0.0), ((-0.0, 2.0), 0.0), ((-0.0, 0.5), 0.0),
                  ((-1.0, INF), 1.0), ((-1.0, -INF), 1.0), ((0.5, INF), 0.0), ((0.5, -INF), INF), ((-2.0, INF), INF),
                  ((-2.0, -INF), 0.0), ((-INF, -3.0), -0.0), ((-INF, -2.0), 0.0), ((-INF, 3.0), -INF),
                  ((-INF, 0.5), INF), ((INF, -0.5), 0.0), ((INF, 0.5), INF), ((-1.0, 0.5), NAN), ((-1.0, NAN), NAN)]

# Zeros, infinities, NaN and poles, with what ISO C says that they are; digamma as in JAX.
ODD = [(0.0, 0.0), (-0.0, -0.0), (NAN, NAN)]
SPECIAL = {
    "tan": ODD + [(INF, NAN), (-INF, NAN)],
    "asin": ODD + [(1.5, NAN), (-INF, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (INF, NAN), (NAN, NAN)],
    "atan": ODD,
    "sinh": ODD + [(INF, INF), (-INF, -INF)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN)],
    "asinh": ODD + [(INF, INF), (-INF, -INF)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-2.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "atanh": ODD + [(1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN)],
    "cbrt": ODD + [(INF, INF), (-INF, -INF), (-8.0, -2.0)],
    "erfinv": ODD + [(1.0, INF), (-1.0, -INF), (1.5, NAN)],
    "lgamma": [(1.0, 0.0), (2.0, 0.0), (0.0, INF), (-0.0, INF), (-3.0, INF), (INF, INF), (-INF, INF), (NAN, NAN)],
    "digamma": [(0.0, NAN), (-3.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "round_away": ODD + [(0.5, 1.0), (-0.5, -1.0), (1.5, 2.0), (2.5, 3.0), (-0.25, -0.0), (INF, INF)],
}
# ISO C: the angles of axes, of zeros and of infinities, as multiples of pi / 4.
ANGLES = [((0.0, 1.0), 0.0), ((-0.0, 1.0), -0.0), ((0.0, 0.0), 0.0), ((-0.0, 0.0), -0.0), ((0.0, -0.0), 4),
          ((-0.0, -0.0), -4), ((0.0, -1.0), 4), ((-0.0, -1.0), -4), ((1.0, 0.0), 2), ((-1.0, -0.0), -2),
          ((1.0, INF), 0.0), ((-1.0, INF), -0.0), ((1.0, -INF), 4), ((-1.0, -INF), -4), ((INF, 1.0), 2), ((-INF, 1.0), -2),
          ((INF, INF), 1), ((INF, -INF), 3), ((-INF, INF), -1), ((-INF, -INF), -3), ((NAN, 1.0), NAN), ((1.0, NAN), NAN)]


def special_rows(name, dtype):
    if name == "pow":
        return SPECIAL_POWERS
    if name == "atan2":
        return [(o, element(mpmath.pi * a / 4, dtype) if isinstance(a, int) else a) for o, a in ANGLES]
    rows = [((x,), r) for x, r in SPECIAL.get(name, [])]
    least = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}[dtype]
    if name in ("tan", "asin", "atan", "sinh", "asinh", "atanh"):
        rows += [((x,), x) for x in (least, -3 * least)]
    if name == "atan":
        rows += [((x,), element(s * mpmath.pi / 2, dtype)) for x, s in ((INF, 1), (-INF, -1))]
    if name == "cbrt":
        rows += [((x,), element(MATH[name](mpf(x)), dtype)) for x in (least, -3 * least)]
    return rows


def operand_tuples(name, arity, dtype):
    if name == "pow":
        return [tuple(element(Fraction(v), dtype) for v in pair) for pair in POWERS]
    values = points(name, dtype)
    if arity == 1:
        return [(v,) for v in values]
    if name in ("shl", "shr"):
        return [(v, s) for v, s in zip(values, [1, 5, 31, 2, 0, 40, 3])]
    if name in ("leaky_relu", "elu"):
        slope = element(Fraction(1, 8), dtype)
        return [(v, slope) for v in values]
    if name == "clamp":
        low, high = (2, 9) if dtype in INTEGERS else (-1.0, 2.0)
        return [(v, low, high) for v in values]
    if dtype == "bool":
        return [(a, b) for a in values for b in values]
    shifted = values[1:] + values[:1]
    pairs = list(zip(values, shifted)) + [(values[0], values[0])]
    if arity == 2:
        return pairs
    return [(a, b, c) for (a, b), c in zip(pairs, values[2:] + values[:2])]


def line(head, dtypes, result, rows):
    cells = []
    for operands, value in rows:
        shown = ", ".join(text(o, t) for o, t in zip(operands, dtypes))
        cells.append(f"({shown}) = {text(value, result)}")
    print(f"{head}: {', '.join(cells)}")


def main():
    print("// golden.txt: elementwise ops at a few points, computed outside of Braze by make_golden.py.")
    print("// op dtype: (operands) = result, ...; convert and bitcast: op dtype to dtype: ...")
    for name, (dtypes, value) in MACHINE.items():
        arity = value.__code__.co_argcount - 1
        for t in dtypes:
            rows = [(o, element(value(*o, t), t)) for o in operand_tuples(name, arity, t)]
            line(f"{name} {t}", [t] * arity, t, rows)
    for name, value in COMPARISONS.items():
        for t in ["bool"] + NUMERIC:
            line(f"{name} {t}", [t, t], "bool", [(o, value(*o)) for o in operand_tuples(name, 2, t)])
    for t in MOVED:
        pairs = operand_tuples("select", 2, t)
        rows = [((c, a, b), a if c else b) for (a, b) in pairs for c in (True, False)]
        line(f"select {t}", ["bool", t, t], t, rows)
    for t in FLOATS:
        line(f"is_nan {t}", [t], "bool", [((v,), v != v) for v in points("is_nan", t) + [INF, NAN]])
    for source in MOVED:
        for target in MOVED:
            rows = []
            values = list(points("convert", source))
            if source in FLOATS | STORED:
                values += [element(Fraction(v), source) for v in (3 * 10**9, -3 * 10**9, 1 + 2**-9, 127.75, -128.75,
                                                                  200, 40000, 3 * 10**19)]
                values += [element(v, source) for v in (INF, -INF, NAN, -0.0)]
            if source == "i64":
                values += [2**62 + 2**54 + 1, 2**53 + 1, -(2**40) - 1]
            if source == "u64":
                values += [2**63 + 2**55 + 1, 2**63 + 2**55, 2**53 + 1, 2**63 + 2**39 + 1]
            for v in values:
                if target == "bool":
                    out = v != 0
                elif target in INTEGERS and source in FLOATS | STORED:
                    bits, signed = INTEGERS[target]
                    low = -(1 << (bits - 1)) if signed else 0
                    high = (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1
                    out = 0 if v != v else (high if v > 0 else low) if math.isinf(v) else clip(math.trunc(v), low, high)
                else:
                    out = element(int(v) if source == "bool" else v, target)
                rows.append(((v,), out))
            line(f"convert {source} to {target}", [source], target, rows)
    formats = {"f32": "<f", "i32": "<i", "u32": "<I", "f64": "<d", "i64": "<q", "u64": "<Q", "f16": "<e", "i16": "<h",
               "u16": "<H", "i8": "<b", "u8": "<B"}
    for source, target in [("f32", "i32"), ("f32", "u32"), ("i32", "f32"), ("u32", "i32"), ("i32", "u32"),
                           ("f64", "i64"), ("i64", "f64"), ("u32", "f32"), ("u64", "f64"), ("u64", "i64"),
                           ("i16", "u16"), ("u16", "f16"), ("f16", "i16"), ("i8", "u8"), ("u8", "i8")]:
        one = {"i8": 127, "u8": 200, "i16": 15360, "u16": 15360}.get(source, 1065353216)
        values = points("bitcast", source) if source in FLOATS else [0, 1, one, 7]
        rows = [((v,), struct.unpack(formats[target], struct.pack(formats[source], v))[0]) for v in values]
        line(f"bitcast {source} to {target}", [source], target, rows)
    for name, value in MATH.items():
        arity = value.__code__.co_argcount if hasattr(value, "__code__") and name not in ("exp", "erf", "erfc", "sin", "cos") else 1
        for t in FLOATS:
            rows = [(o, element(value(*[mpf(v) for v in o]), t)) for o in operand_tuples(name, arity, t)]
            line(f"{name} {t}", [t] * arity, t, rows + special_rows(name, t))
        if name in INTEGER_FORMULAS:
            for t in INTEGERS:
                rows = [(o, element(INTEGER_FORMULAS[name](*o), t)) for o in operand_tuples(name, arity, t)]
                line(f"{name} {t}", [t] * arity, t, rows)
    for name, value in BITS.items():
        for t, (width, _) in INTEGERS.items():
            rows = [((v,), value(v % (1 << width), width)) for v in INTEGER_POINTS[t]]
            line(f"{name} {t}", [t], t, rows)


main()
