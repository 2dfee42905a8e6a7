#!/usr/bin/env python3
"""tools/math/fit.py: the coefficients of ir/ops/math_bodies.h.

Weighted Remez exchange in high precision. The coefficients are then rounded one by one, lowest
order first, and those still free are fitted again after each, so that the printed polynomial is
nearly the best one with coefficients of that precision. Needs mpmath (gmpy2 makes it fast).

    python3 tools/math/fit.py               every fit
    python3 tools/math/fit.py exp log2      some of them
    python3 tools/math/fit.py words         the words of 2/pi for the reduction of sin and cos
"""
import struct
import sys

import mpmath as mp

mp.mp.prec = 600


def round_to(value, bits):
    """`value` rounded to the nearest floating number with `bits` significant bits."""
    if value == 0:
        return mp.mpf(0)
    with mp.workprec(bits):
        return +value


def peaks_of(error, count):
    """One extremum per run of equal sign, and of these the `count` neighbouring ones with the largest ends."""
    peaks = []
    for i, e in enumerate(error):
        if peaks and (error[peaks[-1]] > 0) == (e > 0):
            if abs(e) > abs(error[peaks[-1]]):
                peaks[-1] = i
        else:
            peaks.append(i)
    while len(peaks) > count:
        peaks.pop(0 if abs(error[peaks[0]]) < abs(error[peaks[-1]]) else -1)
    return peaks


def remez(f, weight, powers, a, b):
    """Coefficients of u**powers minimising max |weight * (sum - f)| on [a, b], and that maximum.

    The weight may vanish inside the interval, so the exchange looks at its magnitude only."""
    n = len(powers)
    grid = [a + (b - a) * (1 - mp.cos(mp.pi * i / (40 * (n + 1)))) / 2 for i in range(40 * (n + 1) + 1)]
    fg, wg = [f(u) for u in grid], [abs(weight(u)) for u in grid]
    ref = [round(40 * (n + 1) * i / n) for i in range(n + 1)]
    coefs, worst = None, None
    for _ in range(40):
        rows = mp.matrix(n + 1, n + 1)
        rhs = mp.matrix(n + 1, 1)
        for i, g in enumerate(ref):
            for j, p in enumerate(powers):
                rows[i, j] = wg[g] * grid[g] ** p
            rows[i, n] = (-1) ** i
            rhs[i] = wg[g] * fg[g]
        solution = mp.lu_solve(rows, rhs)
        coefs, level = list(solution[:n]), abs(solution[n])
        error = [w * (sum(c * u**p for c, p in zip(coefs, powers)) - y) for u, y, w in zip(grid, fg, wg)]
        worst = max(abs(e) for e in error)
        if worst <= level * mp.mpf("1.002"):
            break
        peaks = peaks_of(error, n + 1)
        if len(peaks) < n + 1:
            break
        ref = peaks
    return coefs, worst


def absorb(weight, delta, power, free, a, b):
    """The change of the coefficients of u**free that best makes up for `delta` in that of u**power."""
    nodes = [a + (b - a) * (1 - mp.cos(mp.pi * (2 * i + 1) / 240)) / 2 for i in range(120)]
    normal, rhs = mp.matrix(len(free), len(free)), mp.matrix(len(free), 1)
    for u in nodes:
        row = [weight(u) * u**p for p in free]
        for i, x in enumerate(row):
            rhs[i] -= x * weight(u) * delta * u**power
            for j, y in enumerate(row):
                normal[i, j] += x * y
    return mp.lu_solve(normal, rhs)


def fit(name, f, weight, powers, a, b, bits=24):
    """Prints rounded coefficients, highest order first, as the bodies list them. `bits` is one
    precision or one for each coefficient."""
    powers = list(powers)
    bits = [bits] * len(powers) if isinstance(bits, int) else list(bits)
    a, b = mp.mpf(a), mp.mpf(b)
    coefs, ideal = remez(f, weight, powers, a, b)
    done = dict(zip(powers, coefs))
    for i, p in enumerate(powers):
        rounded = round_to(done[p], bits[i])
        delta, done[p] = rounded - done[p], rounded
        if powers[i + 1 :]:
            for q, change in zip(powers[i + 1 :], absorb(weight, delta, p, powers[i + 1 :], a, b)):
                done[q] += change
    grid = [a + (b - a) * i / 1500 for i in range(1501)]
    got = max(abs(weight(u) * (sum(c * u**p for p, c in done.items()) - f(u))) for u in grid)
    print(f"{name}: degree {powers[-1]}, error 2^{float(mp.log(ideal, 2)):.2f}, rounded 2^{float(mp.log(got, 2)):.2f}")
    show = (lambda c: float(c).hex()) if max(bits) > 24 else hex32
    print("   ", ", ".join(show(done[p]) for p in reversed(powers)))
    return done


def exchange(basis, rest, weight):
    """Coefficients c minimising max |weight * (rest + sum(c * basis))| over the places of a grid."""
    n, last = len(basis[0]), len(basis) - 1
    ref = [round(last * i / n) for i in range(n + 1)]
    for _ in range(60):
        rows, rhs = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
        for i, g in enumerate(ref):
            for j in range(n):
                rows[i, j] = weight[g] * basis[g][j]
            rows[i, n] = (-1) ** i
            rhs[i] = -weight[g] * rest[g]
        solution = mp.lu_solve(rows, rhs)
        coefs, level = list(solution[:n]), abs(solution[n])
        error = [w * (r + sum(c * b for c, b in zip(coefs, row))) for w, r, row in zip(weight, rest, basis)]
        if max(abs(e) for e in error) <= level * mp.mpf("1.01"):
            break
        peaks = peaks_of(error, n + 1)
        if len(peaks) < n + 1:
            break
        ref = peaks
    return coefs


def rational_fit(name, f, p_degree, q_degree, b, q0):
    """Prints p and q with p / q near f on [0, b], relative to f, and p(0) / q(0) = 1/2 exactly. A fit
    is linear if the error is weighted by the q of the fit before (Loeb)."""
    steps = 26 * (p_degree + q_degree + 2)
    grid = [b * (mp.mpf(i) / steps) ** 2 for i in range(1, steps + 1)]
    values = [f(x) for x in grid]
    done = {("p", 0): mp.mpf(q0) / 2, ("q", 0): mp.mpf(q0)}
    order = [(part, i) for i in range(1, q_degree + 1) for part in "qp" if part == "q" or i <= p_degree]
    term = lambda key, x, y: x ** key[1] if key[0] == "p" else -y * x ** key[1]
    coefs, q = dict(done), [mp.mpf(1)] * len(grid)

    def refine(free):
        nonlocal q
        if free:
            found = exchange([[term(k, x, y) for k in free] for x, y in zip(grid, values)],
                             [sum(c * term(k, x, y) for k, c in done.items()) for x, y in zip(grid, values)],
                             [1 / (y * d) for y, d in zip(values, q)])
            coefs.update(zip(free, found))
        q = [sum(coefs["q", i] * x**i for i in range(q_degree + 1)) for x in grid]
        p = [sum(coefs["p", i] * x**i for i in range(p_degree + 1)) for x in grid]
        return max(abs(u / v / y - 1) for u, v, y in zip(p, q, values))

    for _ in range(5):
        ideal = refine(order)
    for i, key in enumerate(order):
        done[key] = coefs[key] = round_to(coefs[key], 24)
        got = refine(order[i + 1 :])
    print(f"{name}: degrees {p_degree}, {q_degree}, error 2^{float(mp.log(ideal, 2)):.2f}, rounded 2^{float(mp.log(got, 2)):.2f}")
    for part, degree in (("p", p_degree), ("q", q_degree)):
        print(f"    {part}", ", ".join(hex32(coefs[part, i]) for i in reversed(range(degree + 1))))


def hex32(c):
    """The shortest decimal that reads back as the same f32."""
    value = float(c)
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return text
    return repr(value)


ln2 = mp.log(2)
nz = lambda u: u if abs(u) > mp.mpf("1e-30") else mp.mpf("1e-30")  # quotients have limits at 0


def q_exp(u):
    u = nz(u)
    return (mp.expm1(u) - u) / u**2


def q_log(u):
    u = nz(u)
    return (mp.log1p(u) - u + u * u / 2) / u**3


def q_log2(u):
    u = nz(u)
    return (mp.log1p(u) - u) / (u * u * ln2)


def q_tanh(z):
    h = mp.sqrt(nz(z))
    return (mp.tanh(h) - h) / h**3


def q_erf(z):
    x = mp.sqrt(nz(z))
    return mp.erf(x) / x - 1


def q_sin(z):
    r = mp.sqrt(nz(z))
    return (mp.sin(r) - r) / r**3


def q_cos(z):
    z = nz(z)
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def w_odd(f, k):
    """Relative weight of a term r**k next to f(r), for a polynomial in z = r*r."""
    return lambda z: mp.sqrt(nz(z)) ** k / f(mp.sqrt(nz(z)))


def fit_exp():
    w = lambda u: nz(u) ** 2 / mp.exp(u)
    fit("exp f32, (e^r - 1 - r) / r^2", q_exp, w, range(5), -ln2 * 0.416, ln2 * 0.586)
    fit("expm1 f32, (e^r - 1 - r) / r^2", q_exp, w, range(6), -ln2 * 0.501, ln2 * 0.501)
    fit("e^r f32, (e^r - 1 - r) / r^2", q_exp, w, range(5), -ln2 * 0.501, ln2 * 0.501)


def fit_exp2():
    for d in (5, 6):
        fit("exp2 f32, (2^f - 1) / f", lambda u: (mp.mpf(2) ** nz(u) - 1) / nz(u), lambda u: nz(u) / mp.mpf(2) ** u,
            range(d + 1), -0.5, 0.5)


def fit_log():
    for d in (6, 7):
        fit("log f32, (log(1 + f) - f + f^2/2) / f^3", q_log, lambda u: nz(u) ** 3 / mp.log1p(nz(u)), range(d + 1),
            -0.25, 0.5)


def fit_log2():
    for d in (7, 8):
        fit("log2 f32, (log2(1 + f) - f log2 e) / f^2", q_log2, lambda u: nz(u) ** 2 * ln2 / mp.log1p(nz(u)),
            range(d + 1), -mp.mpf(1) / 3, mp.mpf(1) / 3)


def fit_tanh():
    for d, b in ((2, 0.174), (3, 0.174), (2, 0.25), (3, 0.25)):
        fit(f"tanh f32, (tanh(h) - h) / h^3 in z = h^2, h < {b}", q_tanh, w_odd(mp.tanh, 3), range(d + 1), 0,
            mp.mpf(b) ** 2)


def fit_sin():
    for d in (2, 3):
        fit("sin f32, (sin(r) - r) / r^3 in z = r^2", q_sin, w_odd(mp.sin, 3), range(d + 1), 0, 1)


def fit_cos():
    for d in (2, 3):
        fit("cos f32, (cos(r) - 1 + z/2) / z^2", q_cos, lambda z: z * z / mp.cos(mp.sqrt(z)), range(d + 1), 0, 1)


def fit_erf():
    for t in (1.0,):
        for d in (5, 6):
            fit(f"erf f32 small < {t}, erf(x)/x - 1 in z", q_erf, w_odd(mp.erf, 1), range(d + 1), 0, mp.mpf(t) ** 2)
        for d in (14,):
            c = mp.mpf("1.796875")
            fit(f"erf f32 large > {t}, in a - 1.796875", lambda u: mp.erf(u + c), lambda u: 1 / mp.erf(u + c),
                range(d + 1), t - c, mp.mpf("3.93") - c)


def fit_erfc():
    for name, center, k, d in (("f32", mp.mpf("0.1875"), 3, 9), ("coarse", mp.mpf("0.25"), 2, 8)):
        def h(t):
            a = 1 / (t + center) - k
            return mp.exp(a * a) * mp.erfc(a) * (a + k)

        fit(f"erfc {name}, e^(a^2) erfc(a) (a + {k}) in 1 / (a + {k}) - {float(center)}", h, lambda t: 1 / h(t),
            range(d + 1), 1 / (mp.mpf("10.3") + k) - center, mp.mpf(1) / k - center)


def fit_gelu():
    fit("e^(-r/2) f32, (e^(-r/2) - 1 + r/2) / r^2", lambda r: (mp.expm1(-nz(r) / 2) + nz(r) / 2) / nz(r) ** 2,
        lambda r: nz(r) ** 2 / mp.exp(-r / 2), range(5), -ln2 * mp.mpf("1.01"), ln2 * mp.mpf("1.01"))
    rational_fit("gelu f32, e^(a^2/2) P(X <= -a)", lambda a: mp.erfc(a / mp.sqrt(2)) * mp.exp(a * a / 2) / 2, 4, 5,
              mp.mpf("14.4"), mp.mpf("1.25"))


def q_atanh(z):
    s = mp.sqrt(nz(z))
    return (2 * mp.atanh(s) / s - 2) / nz(z)


def fit_pow():
    """The tail of log2 in pow, with a relative error near 2^-65 of the logarithm."""
    fit("pow f64, (atanh(s)/s - 1 - z/3) / z^2 in z = s^2",
        lambda z: (mp.atanh(mp.sqrt(nz(z))) / mp.sqrt(nz(z)) - 1 - nz(z) / 3) / nz(z) ** 2,
        lambda z: nz(z) ** 2, range(8), 0, 0.0401, 53)


def fit_f64():
    half = mp.mpf(1) / 2
    fit("exp f64, (e^r - 1 - r) / r^2", q_exp, lambda u: nz(u) ** 2 / mp.exp(u), range(11), -ln2 * 0.501, ln2 * 0.501, 53)
    fit("exp2 f64, (2^f - 1) / f", lambda u: (mp.mpf(2) ** nz(u) - 1) / nz(u), lambda u: nz(u) / mp.mpf(2) ** u,
        range(11), -half, half, 53)
    fit("log f64, (2 atanh(s)/s - 2) / s^2 in s^2", q_atanh, lambda z: nz(z) / 2, range(7), 0, 0.0401, 53)
    fit("tanh f64, (tanh(h) - h) / h^3 in h^2", q_tanh, w_odd(mp.tanh, 3), range(7), 0, 0.0626, 53)
    fit("sin f64, (sin(r) - r) / r^3 in r^2", q_sin, w_odd(mp.sin, 3), range(7), 0, 1, 53)
    fit("cos f64, (cos(r) - 1 + z/2) / z^2", q_cos, lambda z: nz(z) ** 2 / mp.cos(mp.sqrt(z)), range(7), 0, 1, 53)
    fit("erf f64, erf(x)/x - 1 in z", q_erf, w_odd(mp.erf, 1), range(12), 0, 1, 53)
    center, k = mp.mpf("0.125"), mp.mpf(4)

    def h(t):
        a = 1 / (t + center) - k
        return mp.exp(a * a) * mp.erfc(a) * (a + k)

    fit("erfc f64, e^(a^2) erfc(a) (a + 4) in 1 / (a + 4) - 0.125", h, lambda t: 1 / h(t), range(23),
        1 / (mp.mpf("27.5") + k) - center, 1 / k - center, 53)


def print_words():
    """2/pi behind 25 (f32) or 54 (f64) zero bits, in words of 32 bits."""
    with mp.workprec(1600):
        for name, count, zeros in (("f32", 7, 25), ("f64", 38, 54)):
            stream = int(mp.floor(mp.ldexp(2 / mp.pi, 32 * count - zeros)))
            print(name, ", ".join(f"0x{(stream >> (32 * (count - 1 - i))) & 0xffffffff:08x}" for i in range(count)))


if __name__ == "__main__":
    table = {name[4:]: value for name, value in list(globals().items()) if name.startswith("fit_")}
    table["words"] = print_words
    for wanted in sys.argv[1:] or table:
        table[wanted]()
