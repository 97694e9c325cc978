"""The naive oracle: sections 1 and 2 of the theory as float64 NumPy loops.

Written from the theory alone, for reading and not for speed. It knows one pair of inputs (x, y)
and loops over their tokens. A layer is a function `Pair -> Pair`; a test composes them:

    p = raw(x, y)
    p = dense(p, 1.3, 0.2)
    p = activation(p, RELU)
    p = attention_sqrt(p, RELU, qk_std=0.8)
    p = mean_pool(p)
    p.Kxy, p.Txy

Padding is truncation, so inputs come without it; image masks name the valid pixels, and `coords`
remembers where each token sits on its grid.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special


@dataclass(frozen=True)
class Pair:
    """Kernels of one pair of inputs: second moments K, tangent kernel T, channel means m.

    Only T(x, y) is carried: no layer needs T(x, x). `same` says that y is x itself.
    """

    Kxx: np.ndarray
    Kyy: np.ndarray
    Kxy: np.ndarray
    Txy: np.ndarray
    mx: np.ndarray
    my: np.ndarray
    cx: tuple  # grid coordinates of the tokens of x: (i,) or (row, column)
    cy: tuple
    gx: tuple  # size of the grid of x: (length,) or (height, width)
    gy: tuple
    same: bool = False

    def blocks(self):
        """(K, tokens of the left input, tokens of the right) for xx, yy, xy."""
        nx, ny = len(self.mx), len(self.my)
        return (self.Kxx, nx, nx), (self.Kyy, ny, ny), (self.Kxy, nx, ny)


# --------------------------------------------------------------------------- inputs


def raw(x, y=None, x_mask=None, y_mask=None) -> Pair:
    """K_ab = x_a.y_b / features, T = 0, m_a = mean over the features. (S, C) or (H, W, C).

    y=None: y is x, the very same input. A mask (True = valid) drops tokens and keeps their places.
    """
    same = y is None
    y, y_mask = (x, x_mask) if same else (y, y_mask)
    tx, cx, gx = _tokens(x, x_mask)
    ty, cy, gy = _tokens(y, y_mask)

    def gram(left, right):
        K = np.zeros((len(left), len(right)))
        for a, u in enumerate(left):
            for b, v in enumerate(right):
                K[a, b] = sum(float(p) * float(q) for p, q in zip(u, v, strict=True)) / len(u)
        return K

    mx = np.array([float(np.mean(u)) for u in tx])
    my = np.array([float(np.mean(v)) for v in ty])
    Kxy = gram(tx, ty)
    return Pair(gram(tx, tx), gram(ty, ty), Kxy, 0 * Kxy, mx, my, cx, cy, gx, gy, same)


def _tokens(x, mask):
    x = np.asarray(x, np.float64)
    if x.ndim == 1:
        x = x[None]
    grid = x.shape[:-1]
    coords = tuple(
        at for at in itertools.product(*map(range, grid)) if mask is None or np.asarray(mask)[at]
    )
    return [x[at] for at in coords], coords, grid


def embed(ids_x, ids_y=None, w_std=1.0) -> Pair:
    """K_ab = w^2 [id_a = id_b], T = K, m = 0."""
    same = ids_y is None
    ids_y = ids_x if same else ids_y

    def equal(left, right):
        K = np.zeros((len(left), len(right)))
        for a, i in enumerate(left):
            for b, j in enumerate(right):
                K[a, b] = w_std**2 if i == j else 0.0
        return K

    nx, ny = len(ids_x), len(ids_y)
    Kxy = equal(ids_x, ids_y)
    return Pair(
        equal(ids_x, ids_x),
        equal(ids_y, ids_y),
        Kxy,
        Kxy.copy(),
        np.zeros(nx),
        np.zeros(ny),
        tuple((a,) for a in range(nx)),
        tuple((b,) for b in range(ny)),
        (nx,),
        (ny,),
        same,
    )


def class_token(p: Pair, w_std=1.0) -> Pair:
    """A trained token in front, the same for all inputs: K_00 = T_00 = w^2, 0 to the others."""

    def front(K):
        new = np.zeros((K.shape[0] + 1, K.shape[1] + 1))
        new[0, 0] = w_std**2
        new[1:, 1:] = K
        return new

    nx, ny = len(p.mx) + 1, len(p.my) + 1
    return replace(
        p,
        Kxx=front(p.Kxx),
        Kyy=front(p.Kyy),
        Kxy=front(p.Kxy),
        Txy=front(p.Txy),
        mx=np.concatenate([[0.0], p.mx]),
        my=np.concatenate([[0.0], p.my]),
        cx=tuple((a,) for a in range(nx)),
        cy=tuple((b,) for b in range(ny)),
        gx=(nx,),
        gy=(ny,),
    )


def as_sequence(p: Pair) -> Pair:
    """Forget the image: tokens in row-major order."""
    nx, ny = len(p.mx), len(p.my)
    return replace(
        p,
        cx=tuple((a,) for a in range(nx)),
        cy=tuple((b,) for b in range(ny)),
        gx=(nx,),
        gy=(ny,),
    )


# --------------------------------------------------------------------------- linear layers


def dense(p: Pair, w_std=1.0, b_std=0.0, *, standard_fan_in=None) -> Pair:
    """K' = w^2 K + b^2, T' = K' + w^2 T; with standard_fan_in the standard parametrisation."""

    def K_(K):
        new = np.zeros_like(K)
        for a, b in np.ndindex(K.shape):
            new[a, b] = w_std**2 * K[a, b] + b_std**2
        return new

    Kxy = K_(p.Kxy)
    Txy = np.zeros_like(Kxy)
    for a, b in np.ndindex(Kxy.shape):
        if standard_fan_in is None:
            Txy[a, b] = Kxy[a, b] + w_std**2 * p.Txy[a, b]
        else:
            own = standard_fan_in * p.Kxy[a, b] + (1.0 if b_std > 0 else 0.0)
            Txy[a, b] = own + w_std**2 * p.Txy[a, b]
    return _zero_mean(replace(p, Kxx=K_(p.Kxx), Kyy=K_(p.Kyy), Kxy=Kxy, Txy=Txy))


def _zero_mean(p: Pair) -> Pair:
    return replace(p, mx=np.zeros(p.Kxx.shape[0]), my=np.zeros(p.Kyy.shape[0]))


def _windows(coords, grid, window, strides, padding):
    """For each output place: its coordinates, and the input token at each place of the window.

    A place outside the grid or the mask is None. "same" and "circular" put the window's centre at
    0, stride, 2 stride, ... (an even window reaches one further to the right); "valid" puts its
    start there, and wants all of it.
    """
    index = {at: i for i, at in enumerate(coords)}
    found = []
    for at in itertools.product(
        *(range(0, size, s) for size, s in zip(grid, strides, strict=True))
    ):
        places = []
        for offset in itertools.product(*map(range, window)):
            place = list(at)
            for k, o in enumerate(offset):
                place[k] += o if padding == "valid" else o - (window[k] - 1) // 2
                if padding == "circular":
                    place[k] %= grid[k]
            places.append(index.get(tuple(place)))
        here = all(i is not None for i in places) if padding == "valid" else at in index
        if here:
            out = tuple(a // s for a, s in zip(at, strides, strict=True))
            found.append((out, places))
    if padding == "valid":
        size = tuple((g - f) // s + 1 for g, f, s in zip(grid, window, strides, strict=True))
    else:
        size = tuple(-(-g // s) for g, s in zip(grid, strides, strict=True))
    return found, size


def _per_axis(value, axes):
    return (value,) * axes if np.isscalar(value) else tuple(value)


def conv(
    p: Pair, window, w_std=1.0, b_std=0.0, strides=1, padding="same", *, standard_width=None
) -> Pair:
    """K'_ab = w^2/|F| sum_f K_{a+f,b+f} + b^2, T' = K' + w^2/|F| sum_f T_{a+f,b+f}."""
    strides = _per_axis(strides, len(window))
    ax, size_x = _windows(p.cx, p.gx, window, strides, padding)
    ay, size_y = _windows(p.cy, p.gy, window, strides, padding)
    count = math.prod(window)

    def shared(K, left, right):
        """sum over f of K_{a+f, b+f}; places outside hold zeros."""
        new = np.zeros((len(left), len(right)))
        for a, (_, fa) in enumerate(left):
            for b, (_, fb) in enumerate(right):
                for i, j in zip(fa, fb, strict=True):
                    if i is not None and j is not None:
                        new[a, b] += K[i, j]
        return new

    def K_(K, left, right):
        return w_std**2 / count * shared(K, left, right) + b_std**2

    Kxy = K_(p.Kxy, ax, ay)
    through = w_std**2 / count * shared(p.Txy, ax, ay)
    if standard_width is None:
        Txy = Kxy + through
    else:
        own = standard_width * shared(p.Kxy, ax, ay) + (1.0 if b_std > 0 else 0.0)
        Txy = own + through
    return _zero_mean(
        replace(
            p,
            Kxx=K_(p.Kxx, ax, ax),
            Kyy=K_(p.Kyy, ay, ay),
            Kxy=Kxy,
            Txy=Txy,
            cx=tuple(at for at, _ in ax),
            cy=tuple(at for at, _ in ay),
            gx=size_x,
            gy=size_y,
        )
    )


def mix(p: Pair, Ax, Ay) -> Pair:
    """The fixed linear map of tokens f -> A f: K' = A(x) K A(y)^T, T and m likewise."""

    def both(K, A, B):
        new = np.zeros((A.shape[0], B.shape[0]))
        for a, b in np.ndindex(new.shape):
            for c, d in np.ndindex(K.shape):
                new[a, b] += A[a, c] * K[c, d] * B[b, d]
        return new

    return replace(
        p,
        Kxx=both(p.Kxx, Ax, Ax),
        Kyy=both(p.Kyy, Ay, Ay),
        Kxy=both(p.Kxy, Ax, Ay),
        Txy=both(p.Txy, Ax, Ay),
        mx=Ax @ p.mx,
        my=Ay @ p.my,
    )


def avg_pool(p: Pair, window, strides=None, padding="valid") -> Pair:
    """Mean over the valid tokens of each window. strides=None: the window, so none overlap."""
    strides = _per_axis(window if strides is None else strides, len(window))
    ax, size_x = _windows(p.cx, p.gx, window, strides, padding)
    ay, size_y = _windows(p.cy, p.gy, window, strides, padding)

    def averages(found, n):
        A = np.zeros((len(found), n))
        for a, (_, places) in enumerate(found):
            valid = [i for i in places if i is not None]
            for i in valid:
                A[a, i] += 1 / len(valid)
        return A

    new = mix(p, averages(ax, len(p.mx)), averages(ay, len(p.my)))
    return replace(
        new,
        cx=tuple(at for at, _ in ax),
        cy=tuple(at for at, _ in ay),
        gx=size_x,
        gy=size_y,
    )


def _read(p: Pair, ux, uy) -> Pair:
    """One token sum_a u_a f_a."""
    new = mix(p, np.asarray(ux)[None], np.asarray(uy)[None])
    return replace(new, cx=((0,),), cy=((0,),), gx=(1,), gy=(1,))


def mean_pool(p: Pair) -> Pair:
    return _read(p, np.full(len(p.mx), 1 / len(p.mx)), np.full(len(p.my), 1 / len(p.my)))


def sum_pool(p: Pair) -> Pair:
    return _read(p, np.ones(len(p.mx)), np.ones(len(p.my)))


def first_token(p: Pair) -> Pair:
    return _read(p, np.eye(len(p.mx))[0], np.eye(len(p.my))[0])


def last_token(p: Pair) -> Pair:
    return _read(p, np.eye(len(p.mx))[-1], np.eye(len(p.my))[-1])


def flatten(p: Pair) -> Pair:
    """K' = sum_a K_aa / sqrt(n_x n_y) over the places that both inputs have."""

    def over_places(K, left, right):
        total = 0.0
        for a, at in enumerate(left):
            for b, bt in enumerate(right):
                if at == bt:
                    total += K[a, b]
        return np.array([[total / math.sqrt(len(left) * len(right))]])

    return replace(
        p,
        Kxx=over_places(p.Kxx, p.cx, p.cx),
        Kyy=over_places(p.Kyy, p.cy, p.cy),
        Kxy=over_places(p.Kxy, p.cx, p.cy),
        Txy=over_places(p.Txy, p.cx, p.cy),
        mx=np.array([np.mean(p.mx)]),
        my=np.array([np.mean(p.my)]),
        cx=((0,),),
        cy=((0,),),
        gx=(1,),
        gy=(1,),
    )


def dropout(p: Pair, keep) -> Pair:
    """K_aa(x, x) / keep (and T_aa) on the same input and token, else unchanged."""

    def diagonal(K):
        new = K.copy()
        for a in range(K.shape[0]):
            new[a, a] = K[a, a] / keep
        return new

    cross = diagonal if p.same else np.copy
    return replace(p, Kxx=diagonal(p.Kxx), Kyy=diagonal(p.Kyy), Kxy=cross(p.Kxy), Txy=cross(p.Txy))


def scale(p: Pair, s) -> Pair:
    """f -> s f."""
    return replace(
        p,
        Kxx=s**2 * p.Kxx,
        Kyy=s**2 * p.Kyy,
        Kxy=s**2 * p.Kxy,
        Txy=s**2 * p.Txy,
        mx=s * p.mx,
        my=s * p.my,
    )


def add(pairs: Sequence[Pair], weights=None) -> Pair:
    """Sum of independent branches: K' = sum s_i^2 K_i + sum_{i != j} s_i s_j m_i m_j^T."""
    weights = [1.0] * len(pairs) if weights is None else list(weights)

    def K_(name, left, right):
        new = np.zeros_like(getattr(pairs[0], name))
        for i, p in enumerate(pairs):
            new += weights[i] ** 2 * getattr(p, name)
            for j, q in enumerate(pairs):
                if i != j:
                    for a, b in np.ndindex(new.shape):
                        new[a, b] += (
                            weights[i] * weights[j] * getattr(p, left)[a] * getattr(q, right)[b]
                        )
        return new

    return replace(
        pairs[0],
        Kxx=K_("Kxx", "mx", "mx"),
        Kyy=K_("Kyy", "my", "my"),
        Kxy=K_("Kxy", "mx", "my"),
        Txy=sum(s**2 * p.Txy for s, p in zip(weights, pairs, strict=True)),
        mx=sum(s * p.mx for s, p in zip(weights, pairs, strict=True)),
        my=sum(s * p.my for s, p in zip(weights, pairs, strict=True)),
    )


def product(p: Pair, q: Pair) -> Pair:
    """Product of independent branches: second moments and means multiply."""
    return replace(
        p,
        Kxx=p.Kxx * q.Kxx,
        Kyy=p.Kyy * q.Kyy,
        Kxy=p.Kxy * q.Kxy,
        Txy=p.Txy * q.Kxy + p.Kxy * q.Txy,
        mx=p.mx * q.mx,
        my=p.my * q.my,
    )


def residual(p: Pair, branch: Callable[[Pair], Pair], skip=1.0, weight=1.0) -> Pair:
    """skip * f + weight * branch(f)."""
    return add([p, branch(p)], [skip, weight])


# --------------------------------------------------------------------------- norms


def layer_norm(p: Pair, over="channels", eps=1e-12) -> Pair:
    """Over channels: centre each token by m_a, divide by sqrt(K_aa - m_a^2). m' = 0.

    Over "tokens and channels": one mean mu and one variance v per input.
    """
    if over == "channels":
        return _normed(p, p.mx, p.my, np.diag(p.Kxx) - p.mx**2, np.diag(p.Kyy) - p.my**2, eps)
    if over != "tokens and channels":
        raise ValueError(over)
    mux, muy = np.mean(p.mx), np.mean(p.my)
    vx, vy = np.mean(np.diag(p.Kxx)) - mux**2, np.mean(np.diag(p.Kyy)) - muy**2
    ones_x, ones_y = np.ones(len(p.mx)), np.ones(len(p.my))
    return _normed(p, mux * ones_x, muy * ones_y, vx * ones_x, vy * ones_y, eps)


def rms_norm(p: Pair, eps=1e-12) -> Pair:
    """K'_ab = K_ab / sqrt(K_aa K_bb), m'_a = m_a / sqrt(K_aa)."""
    return _normed(p, 0 * p.mx, 0 * p.my, np.diag(p.Kxx), np.diag(p.Kyy), eps)


def _normed(p: Pair, mux, muy, vx, vy, eps) -> Pair:
    """f_a -> (f_a - mu_a) / sqrt(v_a + eps); T keeps only the division."""

    def K_(K, m, mu, v, n, nu, w):
        new = np.zeros_like(K)
        for a, b in np.ndindex(K.shape):
            centred = K[a, b] - mu[a] * n[b] - m[a] * nu[b] + mu[a] * nu[b]
            new[a, b] = centred / math.sqrt((v[a] + eps) * (w[b] + eps))
        return new

    Txy = np.zeros_like(p.Txy)
    for a, b in np.ndindex(Txy.shape):
        Txy[a, b] = p.Txy[a, b] / math.sqrt((vx[a] + eps) * (vy[b] + eps))
    return replace(
        p,
        Kxx=K_(p.Kxx, p.mx, mux, vx, p.mx, mux, vx),
        Kyy=K_(p.Kyy, p.my, muy, vy, p.my, muy, vy),
        Kxy=K_(p.Kxy, p.mx, mux, vx, p.my, muy, vy),
        Txy=Txy,
        mx=(p.mx - mux) / np.sqrt(vx + eps),
        my=(p.my - muy) / np.sqrt(vy + eps),
    )


# --------------------------------------------------------------------------- activations


@dataclass(frozen=True)
class Map:
    """A function of one variable, its derivative, and where either is not smooth."""

    fn: Callable
    dfn: Callable
    kinks: tuple = ()

    def mean(self, v, mu=0.0):
        """E[fn(u)], u ~ N(mu, v)."""
        return _expect_one(self.fn, self.kinks, mu, v)

    def dual(self, v1, v2, c, mu1=0.0, mu2=0.0):
        """(E[fn(u) fn(v)], E[fn'(u) fn'(v)]) for Gaussian u, v, by converged quadrature."""
        nodes = _pair_nodes(self.kinks, v1, v2, c, mu1, mu2)
        return tuple(_expect_two(g, *nodes) for g in (self.fn, self.dfn))


_REACH = 9.5  # standard deviations: the density is 1e-20 there
_STEP = 1 / 16


def _pdf(z):
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _panels(breaks, longest=1.0, order=16):
    """Gauss-Legendre nodes and weights between consecutive breaks."""
    t, w = np.polynomial.legendre.leggauss(order)
    nodes, weights = [], []
    for lo, hi in itertools.pairwise(sorted({b for b in breaks if -_REACH <= b <= _REACH})):
        count = max(1, math.ceil((hi - lo) / longest))
        for k in range(count):
            a, b = lo + (hi - lo) * k / count, lo + (hi - lo) * (k + 1) / count
            nodes.append((a + b) / 2 + (b - a) / 2 * t)
            weights.append((b - a) / 2 * w)
    return np.concatenate(nodes), np.concatenate(weights)


def _line(kinks):
    """Nodes and weights for z ~ N(0, 1): a fine trapezium if all is smooth, panels if not."""
    if kinks:
        z, w = _panels([-_REACH, _REACH, *kinks])
    else:
        z = np.arange(-_REACH, _REACH + _STEP / 2, _STEP)
        w = np.full_like(z, _STEP)
    return z, w * _pdf(z)


def _expect_one(g, kinks, mu, v):
    if v <= 0:
        return float(g(np.float64(mu)))
    s = math.sqrt(v)
    z, w = _line([(k - mu) / s for k in kinks])
    return float(np.sum(w * g(mu + s * z)))


def _pair_nodes(kinks, v1, v2, c, mu1, mu2):
    """Points (u, v) and weights for a pair of Gaussians."""
    s1, s2 = math.sqrt(max(v1, 0.0)), math.sqrt(max(v2, 0.0))
    if s1 == 0 or s2 == 0:
        s, mu = (s2, mu2) if s1 == 0 else (s1, mu1)
        z, w = _line([(k - mu) / s for k in kinks] if s else [])
        return mu1 + s1 * z, mu2 + s2 * z, w
    rho = min(max(c / (s1 * s2), -1.0), 1.0)
    r = math.sqrt((1 - rho) * (1 + rho))
    if r < 1e-9:  # u and v are one variable
        sign = math.copysign(1.0, rho)
        z, w = _line([*((k - mu1) / s1 for k in kinks), *(sign * (k - mu2) / s2 for k in kinks)])
        return mu1 + s1 * z, mu2 + sign * s2 * z, w
    if not kinks:
        z, w = _line([])
        z1, z2 = np.meshgrid(z, z, indexing="ij")
        return mu1 + s1 * z1, mu2 + s2 * (rho * z1 + r * z2), np.multiply.outer(w, w)
    # v = k inside the inner integral at z2 = ((k - mu2)/s2 - rho z1)/r. As a function of z1 the
    # inner integral turns within a distance of about r of z2 = 0: panels grow from there.
    breaks = [-_REACH, _REACH, *((k - mu1) / s1 for k in kinks)]
    for k in kinks:
        if abs(rho) > 1e-12:
            centre = (k - mu2) / s2 / rho
            breaks += [centre + q * r * 2.0**j for q in (-1, 1) for j in range(-2, 40)] + [centre]
    z1, w1 = _panels(breaks)
    us, vs, ws = [], [], []
    for z, w in zip(z1, w1 * _pdf(z1), strict=True):
        z2, w2 = _panels([-_REACH, _REACH, *(((k - mu2) / s2 - rho * z) / r for k in kinks)])
        us.append(np.full_like(z2, mu1 + s1 * z))
        vs.append(mu2 + s2 * (rho * z + r * z2))
        ws.append(w * w2 * _pdf(z2))
    return np.concatenate(us), np.concatenate(vs), np.concatenate(ws)


def _expect_two(g, u, v, w):
    return float(np.sum(w * g(u) * g(v)))


@dataclass(frozen=True)
class Leaky(Map):
    """z for z > 0, slope * z below; zero-mean pairs in closed form.

    The function is (1 + slope)/2 z + (1 - slope)/2 |z|, and odd times even averages to zero:
    E|uv| = 2/pi s1 s2 (sqrt(1 - rho^2) + rho asin rho), E[sign u sign v] = 2/pi asin rho.
    """

    slope: float = 0.0

    def dual(self, v1, v2, c, mu1=0.0, mu2=0.0):
        if mu1 or mu2:
            return super().dual(v1, v2, c, mu1, mu2)
        size = math.sqrt(v1 * v2)
        if size == 0:
            return 0.0, ((1 + self.slope) / 2) ** 2
        # K'(x, x) on its diagonal: no rounding may decide between equal and nearly equal.
        rho = 1.0 if v1 == v2 == c else min(max(c / size, -1.0), 1.0)
        r = math.sqrt((1 - rho) * (1 + rho))
        arcsine = math.atan2(rho, r)
        odd, even = ((1 + self.slope) / 2) ** 2, ((1 - self.slope) / 2) ** 2
        value = odd * c + even * 2 / math.pi * size * (r + rho * arcsine)
        return value, odd + even * 2 / math.pi * arcsine

    def mean(self, v, mu=0.0):
        if mu:
            return super().mean(v, mu)
        return (1 - self.slope) / 2 * math.sqrt(2 * v / math.pi)


def leaky(slope) -> Leaky:
    return Leaky(
        lambda z: np.where(z > 0, z, slope * z),
        lambda z: np.where(z > 0, 1.0, slope),
        (0.0,),
        slope,
    )


@dataclass(frozen=True)
class Sign(Map):
    """Closed form only: the derivative is 2 delta, so Phi' is 4 densities of (u, v) at 0."""

    def dual(self, v1, v2, c, mu1=0.0, mu2=0.0):
        if mu1 or mu2:
            raise NotImplementedError
        det = v1 * v2 - c**2
        rho = min(max(c / math.sqrt(v1 * v2), -1.0), 1.0)
        slope = math.inf if det <= 0 else 4 / (2 * math.pi * math.sqrt(det))
        return 2 / math.pi * math.asin(rho), slope

    def mean(self, v, mu=0.0):
        return 0.0


def polynomial(*coefficients) -> Map:
    """sum_k coefficients[k] z^k."""
    p = np.polynomial.Polynomial(coefficients)
    return Map(p, p.deriv() if len(coefficients) > 1 else (lambda z: 0.0 * z))


RELU = leaky(0.0)
ABS = leaky(-1.0)
IDENTITY = leaky(1.0)
SIGN = Sign(np.sign, lambda z: 0.0 * z, (0.0,))
ERF = Map(special.erf, lambda z: 2 / math.sqrt(math.pi) * np.exp(-z * z))
GELU = Map(lambda z: z * special.ndtr(z), lambda z: special.ndtr(z) + z * _pdf(z))
SILU = Map(
    lambda z: z * special.expit(z),
    lambda z: special.expit(z) * (1 + z * special.expit(-z)),
)
TANH = Map(np.tanh, lambda z: 1 / np.cosh(z) ** 2)
SIGMOID = Map(special.expit, lambda z: special.expit(z) * special.expit(-z))
SOFTPLUS = Map(lambda z: np.logaddexp(0.0, z), special.expit)
ELU = Map(
    lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0.0))),
    lambda z: np.where(z > 0, 1.0, np.exp(np.minimum(z, 0.0))),
    (0.0,),
)
SIN = Map(np.sin, np.cos)
COS = Map(np.cos, lambda z: -np.sin(z))
GAUSSIAN = Map(lambda z: np.exp(-z * z), lambda z: -2 * z * np.exp(-z * z))


def activation(p: Pair, phi: Map) -> Pair:
    """K'_ab = Phi(K_aa, K_bb, K_ab), T'_ab = T_ab Phi'(...), m'_a = E[phi]."""
    vx, vy = np.diag(p.Kxx), np.diag(p.Kyy)

    def K_(K, v, w):
        values, slopes = np.zeros_like(K), np.zeros_like(K)
        for a, b in np.ndindex(K.shape):
            values[a, b], slopes[a, b] = phi.dual(v[a], w[b], K[a, b])
        return values, slopes

    Kxy, slopes = K_(p.Kxy, vx, vy)
    # Sign at equal inputs: an infinite slope counts nothing where nothing comes in.
    Txy = np.where(p.Txy == 0, 0.0, p.Txy * np.where(p.Txy == 0, 0.0, slopes))
    return replace(
        p,
        Kxx=K_(p.Kxx, vx, vx)[0],
        Kyy=K_(p.Kyy, vy, vy)[0],
        Kxy=Kxy,
        Txy=Txy,
        mx=np.array([phi.mean(v) for v in vx]),
        my=np.array([phi.mean(v) for v in vy]),
    )


# --------------------------------------------------------------------------- positions


def squared_exponential(p: Pair, phi, rho=1.0):
    """(Rxx, Rxy, Ryy), R_ab = rho exp(-phi |relative distance|^2), places counted from 1."""

    def places(coords, grid):
        return [[(i + 1) / n for i, n in zip(at, grid, strict=True)] for at in coords]

    return _codes(places(p.cx, p.gx), places(p.cy, p.gy), lambda d2: rho * math.exp(-phi * d2))


def decay_of_index(p: Pair, decay):
    """(Rxx, Rxy, Ryy) for any function of the squared distance of indices on the grid."""
    return _codes(p.cx, p.cy, decay)


def one_hot(p: Pair):
    """(Rxx, Rxy, Ryy), R_ab = [a = b]."""
    return decay_of_index(p, lambda d2: 1.0 if d2 == 0 else 0.0)


def _codes(left, right, decay):
    def R(u, v):
        new = np.zeros((len(u), len(v)))
        for a, b in np.ndindex(new.shape):
            new[a, b] = decay(sum((i - j) ** 2 for i, j in zip(u[a], v[b], strict=True)))
        return new

    return R(left, left), R(left, right), R(right, right)


def position(p: Pair, R, content=1.0, weight=1.0, trained=True) -> Pair:
    """K' = content K + weight R, T' = content T + weight R if the code is trained.

    R is (Rxx, Rxy, Ryy). The code has mean zero: m' = sqrt(content) m.
    """
    if R is None:
        return p
    Rxx, Rxy, Ryy = R
    return replace(
        p,
        Kxx=content * p.Kxx + weight * Rxx,
        Kyy=content * p.Kyy + weight * Ryy,
        Kxy=content * p.Kxy + weight * Rxy,
        Txy=content * p.Txy + (weight * Rxy if trained else 0.0),
        mx=math.sqrt(content) * p.mx,
        my=math.sqrt(content) * p.my,
    )


def rotary(frequencies):
    """rho(t) = mean_j cos(w_j t)."""
    return lambda t: float(np.mean([math.cos(w * t) for w in frequencies]))


def rotary_frequencies(dims, base=10000.0):
    """w_j = base^(-2j/dims), j < dims/2."""
    return [base ** (-2 * j / dims) for j in range(dims // 2)]


def alibi(n, slope):
    """-slope |a - c|."""
    return np.array([[-slope * abs(a - c) for c in range(n)] for a in range(n)])


def causal(n):
    """True where a token may look: c <= a."""
    return np.array([[c <= a for c in range(n)] for a in range(n)])


# --------------------------------------------------------------------------- attention
#
# zeta is "softmax" or a Map. mask_x, mask_y: (queries, keys) bool, True = may look; None: all.
# bias_x, bias_y: lists of fixed (queries, keys) score biases, one per kind of head, averaged over.
# rho: the rotary factor, a function of an index difference. per_key: divide by the row's keys.


def _row(zeta, scores, allowed, per_key):
    """Attention weights of one query."""
    keys = [c for c in range(len(scores)) if allowed[c]]
    out = np.zeros(len(scores))
    if not keys:
        return out
    if zeta == "softmax":
        top = max(scores[c] for c in keys)
        total = sum(math.exp(scores[c] - top) for c in keys)
        for c in keys:
            out[c] = math.exp(scores[c] - top) / total
    else:
        for c in keys:
            out[c] = float(zeta.fn(scores[c])) / (len(keys) if per_key else 1)
    return out


def _masks(mask_x, mask_y, q: Pair, k: Pair):
    full = np.ones((len(q.mx), len(k.mx)), bool), np.ones((len(q.my), len(k.my)), bool)
    return (
        full[0] if mask_x is None else np.asarray(mask_x, bool),
        full[1] if mask_y is None else np.asarray(mask_y, bool),
    )


def _biases(bias_x, bias_y, allowed_x, allowed_y):
    if bias_x is None:
        return [(np.zeros(allowed_x.shape), np.zeros(allowed_y.shape))]
    return list(zip(bias_x, bias_y, strict=True))


def _mean_pairs(like: Pair, pairs: Sequence[Pair]) -> Pair:
    """Entrywise average of kernels, with zero means: heads of several kinds."""
    new = {
        name: np.mean([getattr(p, name) for p in pairs], axis=0)
        for name in ("Kxx", "Kyy", "Kxy", "Txy")
    }
    return _zero_mean(replace(like, **new))


def attention_linear(
    p: Pair,
    zeta="softmax",
    qk_std=1.0,
    ov_std=1.0,
    b_std=0.0,
    *,
    mask_x=None,
    mask_y=None,
    R=None,
    content=1.0,
    weight=1.0,
    values=False,
    trained=True,
    rho=None,
    bias_x=None,
    bias_y=None,
    per_key=False,
    tied=True,
) -> Pair:
    """Scores over d: A = zeta(s_QK K~), K' = s_OV^2 A K A^T + b^2.

    T' = s_OV^2 A T A^T + 2 (K' - b^2) + b^2. R is (Rxx, Rxy, Ryy) of a position code.
    """
    s = position(p, R, content, weight, trained)
    v = s if values else p
    return cross_attention_linear(
        s, s, zeta, qk_std, ov_std, b_std, v=v, mask_x=mask_x, mask_y=mask_y, rho=rho,
        bias_x=bias_x, bias_y=bias_y, per_key=per_key, tied=tied,
        scores_x=s.Kxx, scores_y=s.Kyy,
    )  # fmt: skip


def cross_attention_linear(
    q: Pair,
    k: Pair,
    zeta="softmax",
    qk_std=1.0,
    ov_std=1.0,
    b_std=0.0,
    *,
    scores_x,
    scores_y,
    v: Pair | None = None,
    mask_x=None,
    mask_y=None,
    rho=None,
    bias_x=None,
    bias_y=None,
    per_key=False,
    tied=True,
) -> Pair:
    """Queries q, keys and values k at linear scale: A = zeta(s_QK K(query, key)).

    scores_x is the kernel between the queries and the keys of the first input, scores_y of the
    second; a `Pair` holds neither.
    """
    v = k if v is None else v
    allowed_x, allowed_y = _masks(mask_x, mask_y, q, k)

    def weights(K, bias, allowed):
        A = np.zeros(K.shape)
        for a in range(K.shape[0]):
            scores = np.zeros(K.shape[1])
            for c in range(K.shape[1]):
                turn = 1.0 if rho is None else rho(a - c)
                scores[c] = (qk_std * K[a, c] * turn if tied else 0.0) + bias[a, c]
            A[a] = _row(zeta, scores, allowed[a], per_key)
        return A

    heads = []
    for bx, by in _biases(bias_x, bias_y, allowed_x, allowed_y):
        Ax, Ay = weights(scores_x, bx, allowed_x), weights(scores_y, by, allowed_y)
        moved = scale(mix(v, Ax, Ay), ov_std)
        heads.append(
            replace(
                moved,
                Kxx=moved.Kxx + b_std**2,
                Kyy=moved.Kyy + b_std**2,
                Kxy=moved.Kxy + b_std**2,
                Txy=moved.Txy + 2 * moved.Kxy + b_std**2,
            )
        )
    return _mean_pairs(q, heads)


def residual_attention(p: Pair, alpha, Rx, Ry) -> Pair:
    """K' = alpha K + (1-alpha) R K R^T, T' = alpha T + (1-alpha)(2 R K R^T + R T R^T)."""
    moved = mix(p, Rx, Ry)
    branch = _zero_mean(replace(moved, Txy=moved.Txy + 2 * moved.Kxy))
    return add([p, branch], [math.sqrt(alpha), math.sqrt(1 - alpha)])


def attention_sqrt(
    p: Pair,
    zeta: Map = IDENTITY,
    qk_std=1.0,
    ov_std=1.0,
    b_std=0.0,
    *,
    R=None,
    content=1.0,
    weight=1.0,
    values=False,
    trained=True,
    **options,
) -> Pair:
    """Scores over sqrt(d), an elementwise map: tokens^4 expectations of two Gaussians."""
    s = position(p, R, content, weight, trained)
    return cross_attention_sqrt(s, s, zeta, qk_std, ov_std, b_std, v=s if values else p, **options)


def cross_attention_sqrt(
    q: Pair,
    k: Pair,
    zeta: Map = IDENTITY,
    qk_std=1.0,
    ov_std=1.0,
    b_std=0.0,
    *,
    v: Pair | None = None,
    mask_x=None,
    mask_y=None,
    rho=None,
    bias_x=None,
    bias_y=None,
    per_key=False,
) -> Pair:
    """Queries from q, keys from k, values from v (None: from k)."""
    v = k if v is None else v
    allowed_x, allowed_y = _masks(mask_x, mask_y, q, k)

    def block(Kq, Kk, Kv, vq, vk, wq, wk, left, right, bias_l, bias_r, T=None):
        """One of xx, yy, xy; vq, vk, wq, wk are variances of queries and keys on both sides."""
        K_new, T_new = np.zeros(Kq.shape), np.zeros(Kq.shape)
        for a, b in np.ndindex(Kq.shape):
            keys_a = [c for c in range(left.shape[1]) if left[a, c]]
            keys_b = [d for d in range(right.shape[1]) if right[b, d]]
            K_sum = T_sum = S_K = S_T = 0.0
            for c in keys_a:
                for d in keys_b:
                    turn = 1.0 if rho is None else rho((a - c) - (b - d))
                    value, slope = zeta.dual(
                        qk_std**2 * vq[a] * vk[c],
                        qk_std**2 * wq[b] * wk[d],
                        qk_std**2 * Kq[a, b] * Kk[c, d] * turn,
                        bias_l[a, c],
                        bias_r[b, d],
                    )
                    if per_key:
                        value /= len(keys_a) * len(keys_b)
                        slope /= len(keys_a) * len(keys_b)
                    K_sum += Kv[c, d] * value
                    if T is not None:
                        _, Tk, Tv = T
                        T_sum += Tv[c, d] * value
                        S_K += Kv[c, d] * Kk[c, d] * turn * slope
                        S_T += Kv[c, d] * Tk[c, d] * turn * slope
            K_new[a, b] = ov_std**2 * K_sum + b_std**2
            if T is not None:
                Tq = T[0]
                T_new[a, b] = (
                    b_std**2
                    + 2 * ov_std**2 * K_sum
                    + ov_std**2 * T_sum
                    + ov_std**2 * qk_std**2 * (2 * Kq[a, b] + Tq[a, b]) * S_K
                    + ov_std**2 * qk_std**2 * Kq[a, b] * S_T
                )
        return K_new, T_new

    qx, qy, kx, ky = (np.diag(K) for K in (q.Kxx, q.Kyy, k.Kxx, k.Kyy))
    heads = []
    for bx, by in _biases(bias_x, bias_y, allowed_x, allowed_y):
        Kxx, _ = block(q.Kxx, k.Kxx, v.Kxx, qx, kx, qx, kx, allowed_x, allowed_x, bx, bx)
        Kyy, _ = block(q.Kyy, k.Kyy, v.Kyy, qy, ky, qy, ky, allowed_y, allowed_y, by, by)
        Kxy, Txy = block(
            q.Kxy, k.Kxy, v.Kxy, qx, kx, qy, ky, allowed_x, allowed_y, bx, by,
            T=(q.Txy, k.Txy, v.Txy),
        )  # fmt: skip
        heads.append(replace(q, Kxx=Kxx, Kyy=Kyy, Kxy=Kxy, Txy=Txy))
    return _mean_pairs(q, heads)


def attention_softmax(p: Pair, qk_std=1.0, ov_std=1.0, b_std=0.0, *, rng, draws, R=None,
                      content=1.0, weight=1.0, values=False, trained=True, **options):  # fmt: skip
    """Softmax at sqrt scale by plain Monte Carlo: (Pair, Pair of standard errors)."""
    s = position(p, R, content, weight, trained)
    return cross_attention_softmax(
        s, s, qk_std, ov_std, b_std, rng=rng, draws=draws, v=s if values else p, **options
    )


def score_covariance(q: Pair, k: Pair, qk_std, rho=None):
    """Covariance of all scores G_ac(x) and G_bd(y) of a pair, x first, row by row."""
    nx, ny = len(q.mx), len(q.my)
    places = [(0, a, c) for a in range(nx) for c in range(len(k.mx))]
    places += [(1, b, d) for b in range(ny) for d in range(len(k.my))]
    Kq = {(0, 0): q.Kxx, (0, 1): q.Kxy, (1, 0): q.Kxy.T, (1, 1): q.Kyy}
    Kk = {(0, 0): k.Kxx, (0, 1): k.Kxy, (1, 0): k.Kxy.T, (1, 1): k.Kyy}
    C = np.zeros((len(places), len(places)))
    for i, (one, a, c) in enumerate(places):
        for j, (two, b, d) in enumerate(places):
            turn = 1.0 if rho is None else rho((a - c) - (b - d))
            C[i, j] = qk_std**2 * Kq[one, two][a, b] * Kk[one, two][c, d] * turn
    return C


def draw_scores(q: Pair, k: Pair, qk_std, rng, draws, rho=None):
    """Plain draws of G(x) and G(y): (draws, queries, keys) each."""
    C = score_covariance(q, k, qk_std, rho)
    eigenvalues, vectors = np.linalg.eigh(C)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    G = rng.standard_normal((draws, len(C))) @ root.T
    cut = len(q.mx) * len(k.mx)
    return (
        G[:, :cut].reshape(draws, len(q.mx), len(k.mx)),
        G[:, cut:].reshape(draws, len(q.my), len(k.my)),
    )


def softmax_jacobian(A):
    """dA_ac / dG_ag = A_ac ([c = g] - A_ag), as (draws, a, c, g)."""
    J = -A[:, :, :, None] * A[:, :, None, :]
    for c in range(A.shape[-1]):
        J[:, :, c, c] += A[:, :, c]
    return J


def cross_attention_softmax(
    q: Pair,
    k: Pair,
    qk_std=1.0,
    ov_std=1.0,
    b_std=0.0,
    *,
    rng,
    draws,
    v: Pair | None = None,
    mask_x=None,
    mask_y=None,
    rho=None,
    bias_x=None,
    bias_y=None,
    ntk=True,
    chunk=1000,
):
    """Queries from q, keys from k, values from v (None: from k): (Pair, standard errors).

    Every draw uses all kinds of heads (biases) with the same Gaussian scores; the draw is the
    unit of the standard error. ntk=False skips T, whose Jacobians are tokens^6 work.
    """
    v = k if v is None else v
    allowed_x, allowed_y = _masks(mask_x, mask_y, q, k)
    biases = _biases(bias_x, bias_y, allowed_x, allowed_y)
    nx, ny = q.Kxy.shape
    turn = np.ones((nx, ny, k.Kxx.shape[0], k.Kyy.shape[0]))
    if rho is not None:
        for a, b, g, h in np.ndindex(turn.shape):
            turn[a, b, g, h] = rho((a - g) - (b - h))

    def weights(G, bias, allowed):
        A = np.zeros_like(G)
        for a in range(G.shape[1]):
            if allowed[a].any():
                row = np.where(allowed[a], G[:, a] + bias[a], -np.inf)
                row = np.exp(row - row.max(axis=1, keepdims=True))
                A[:, a] = row / row.sum(axis=1, keepdims=True)
        return A

    found = {name: [] for name in ("Kxx", "Kyy", "Kxy", "Txy")}
    for start in range(0, draws, chunk):
        Gx, Gy = draw_scores(q, k, qk_std, rng, min(chunk, draws - start), rho)
        parts = {name: [] for name in found}
        for bx, by in biases:
            P, Q = weights(Gx, bx, allowed_x), weights(Gy, by, allowed_y)
            parts["Kxx"].append(ov_std**2 * np.einsum("zac,cd,zbd->zab", P, v.Kxx, P))
            parts["Kyy"].append(ov_std**2 * np.einsum("zac,cd,zbd->zab", Q, v.Kyy, Q))
            Kxy = ov_std**2 * np.einsum("zac,cd,zbd->zab", P, v.Kxy, Q)
            parts["Kxy"].append(Kxy)
            T = 2 * Kxy + ov_std**2 * np.einsum("zac,cd,zbd->zab", P, v.Txy, Q)
            if ntk:
                Jx, Jy = softmax_jacobian(P), softmax_jacobian(Q)

                def S(B, Jx=Jx, Jy=Jy):
                    inner = np.einsum("zacg,cd,zbdh->zabgh", Jx, v.Kxy, Jy, optimize=True)
                    return np.einsum("zabgh,gh,abgh->zab", inner, B, turn)

                T = T + ov_std**2 * qk_std**2 * ((2 * q.Kxy + q.Txy) * S(k.Kxy) + q.Kxy * S(k.Txy))
            parts["Txy"].append(T if ntk else np.nan * T)
        for name in found:
            found[name].append(np.mean(parts[name], axis=0) + b_std**2)
    means, errors = {}, {}
    for name, chunks in found.items():
        values = np.concatenate(chunks)
        means[name] = values.mean(axis=0)
        errors[name] = values.std(axis=0, ddof=1) / math.sqrt(draws)
    return _zero_mean(replace(q, **means)), _zero_mean(replace(q, **errors))
