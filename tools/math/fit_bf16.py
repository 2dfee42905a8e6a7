#!/usr/bin/env python3
"""tools/math/fit_bf16.py: the polynomials of the bf16 bodies in ir/ops/math_bodies.h.

A bf16 has 65,536 values, so that every input gives two linear conditions on the coefficients of
p(u) / q(u): the result must lie between the ties around the correctly rounded one, by a relative
margin for the roundings and approximations of the body. A linear program finds coefficients that
meet them all. tests/math/exhaustive_native.cpp then runs the bodies. Needs numpy and scipy.

    python3 tools/math/fit_bf16.py            every fit
    python3 tools/math/fit_bf16.py tanh erf   some of them
"""
import sys

import numpy as np
from scipy import special
from scipy.optimize import linprog

HALF_LOG2_E = np.float32(0.72134751)
MARGINS = [2.0**-m for m in (18, 18.5, 19, 19.5, 20, 20.5, 21, 21.5, 22)]

with np.errstate(over="ignore", invalid="ignore"):
    ALL = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
ALL = ALL[np.isfinite(ALL)]


def between_ties(y):
    """The ends of the interval of magnitudes that round to bf16 as |y| does."""
    y = np.abs(y)
    exponent = np.maximum(np.frexp(y)[1] - 8, -133)
    rounded = np.ldexp(np.rint(np.ldexp(y, -exponent)), exponent)
    above = np.ldexp(1.0, np.maximum(np.frexp(rounded)[1] - 8, -133))
    below = np.where((np.frexp(rounded)[0] == 0.5) & (above > 2.0**-133), above / 2, above)
    return np.maximum(rounded - below / 2, 0), rounded + above / 2


def rational(u, low, high, p_degree, q_degree, p0=None):
    """Coefficients of p and q, lowest order first, q(0) = 1, with low < p(u) / q(u) < high."""
    scale = u.max()
    v = u / scale
    p = np.stack([v**k for k in range(p_degree + 1)], 1)
    q = np.stack([v**k for k in range(1, q_degree + 1)], 1) if q_degree else np.zeros((len(v), 0))
    best = None
    for margin in reversed(MARGINS):
        least, most = (low * (1 + margin))[:, None], (high * (1 - margin))[:, None]
        rows = np.concatenate([np.hstack([-p, least * q]), np.hstack([p, -most * q])])
        sides = np.concatenate([-least, most])
        weights = 1 / np.maximum(np.abs(sides), 1e-30)
        keep = np.concatenate([low > 0, np.isfinite(high)])
        bounds = [(p0, p0) if p0 else (None, None)] + [(None, None)] * (p_degree + q_degree)
        tolerance = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
        found = linprog(np.zeros(len(bounds)), A_ub=(rows * weights)[keep], b_ub=(sides * weights)[keep, 0],
                        bounds=bounds, method="highs-ds", options=tolerance)
        if found.status != 0:
            break
        powers = scale ** np.concatenate([np.arange(p_degree + 1), np.arange(1, q_degree + 1)])
        best = margin, found.x / powers
    return best


def show(name, best, p_degree):
    if best is None:
        print(f"{name}: no polynomials of these degrees")
        return
    margin, c = best
    print(f"{name}: margin 2^{np.log2(margin):.1f}")
    for label, part in (("p", c[: p_degree + 1]), ("q", np.concatenate([[1.0], c[p_degree + 1 :]]))):
        print(f"    {label}", ", ".join(str(np.float32(x)) for x in part[::-1]))


def odd(name, f, limit, p_degree, q_degree):
    """f(x) = x p(x^2) / q(x^2) up to `limit`."""
    x = ALL[(ALL > 2.0**-20) & (ALL <= limit)].astype(np.float64)
    low, high = between_ties(f(x))
    show(name, rational(x * x, low / x, high / x, p_degree, q_degree), p_degree)


def gaussian(name, f, limit, factor, p_degree, q_degree, p0):
    """f(x) = low(x, r) for r = p(|x|) / q(|x|) times e^(factor x^2), mirrored for the other sign."""
    x = ALL[(np.abs(ALL) > 2.0**-14) & (np.abs(ALL) < limit)]
    half = (x * x * np.float32(factor * HALF_LOG2_E)).astype(np.float64)
    e, x = np.exp2(2 * half), x.astype(np.float64)
    low, high = f(x)
    show(name, rational(np.abs(x), np.maximum(low, 0) / e, high / e, p_degree, q_degree, p0), p_degree)


def gelu_tail(x):
    """The bounds of P(X <= -|x|) that x P(X <= x) sets."""
    low, high = (end / np.abs(x) for end in between_ties(x * special.ndtr(x)))
    return np.where(x < 0, low, 1 - high), np.where(x < 0, high, 1 - low)


def erfc_tail(x):
    low, high = between_ties(special.erfc(x))
    return np.where(x < 0, 2 - high, low), np.where(x < 0, 2 - low, high)


def softplus():
    x = ALL[(np.abs(ALL) > 2.0**-20) & (np.abs(ALL) < 100)]
    u = np.exp2(2 * (np.abs(x) * -HALF_LOG2_E).astype(np.float64))
    x = x.astype(np.float64)
    low, high = between_ties(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))
    line = np.maximum(x, 0)
    show("softplus, log1p(u) / u", rational(u, (low - line) / u, (high - line) / u, 5, 0), 5)


FITS = {
    "tanh": lambda: odd("tanh", np.tanh, 3.6, 2, 2),
    "erf": lambda: odd("erf", special.erf, 2.25, 6, 0),
    "gelu": lambda: gaussian("gelu", gelu_tail, 13.5, -0.5, 2, 4, 0.5),
    "erfc": lambda: gaussian("erfc", erfc_tail, 9.6, -1, 2, 3, 1.0),
    "softplus": softplus,
}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or FITS:
        FITS[wanted]()
