"""Kernels in Triton: a bf16 matmul, a peer of RLX's, and f32 multiply-adds alone, which bound what an f32 matmul can reach."""

import torch
import triton
import triton.language as tl
from rows import LINKS, WIDTH

# Warps of a program of multiply-adds.
WARPS = 4


def tilings():
    """Tile sizes, warps and stages that a matmul is measured with."""
    of = [
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 128, 64, 8, 4),
        (128, 128, 64, 4, 4),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 5),
        (64, 256, 64, 8, 4),
    ]
    return [
        triton.Config({"TILE_M": m, "TILE_N": n, "TILE_K": k}, num_warps=warps, num_stages=stages)
        for m, n, k, warps, stages in of
    ]


@triton.jit
def product(a, b, c, m, n, k, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """A tile of `c = a · b`, all of them rows after rows. Eight rows of tiles are done before the next eight, so that what they read is in the cache."""
    group = 8
    down, across = tl.cdiv(m, TILE_M), tl.cdiv(n, TILE_N)
    program = tl.program_id(0)
    first = program // (group * across) * group
    high = min(down - first, group)
    row = first + program % (group * across) % high
    column = program % (group * across) // high
    rows, columns = row * TILE_M + tl.arange(0, TILE_M), column * TILE_N + tl.arange(0, TILE_N)
    deep = tl.arange(0, TILE_K)
    left = a + (rows % m)[:, None] * k + deep[None, :]
    right = b + deep[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for at in range(0, tl.cdiv(k, TILE_K)):
        rest = k - at * TILE_K
        x = tl.load(left, mask=deep[None, :] < rest, other=0.0)
        y = tl.load(right, mask=deep[:, None] < rest, other=0.0)
        total = tl.dot(x, y, total)
        left += TILE_K
        right += TILE_K * n
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def multiply_adds(out, rounds, factor, term, WIDTH: tl.constexpr, LINKS: tl.constexpr):
    """Eight chains, of which no link can wait for another chain's."""
    x = tl.arange(0, WIDTH).to(tl.float32)
    a, b, c, d = x, x + 1.0, x + 2.0, x + 3.0
    e, f, g, h = x + 4.0, x + 5.0, x + 6.0, x + 7.0
    for _ in range(rounds):
        for _ in tl.static_range(LINKS):
            a, b = tl.fma(a, factor, term), tl.fma(b, factor, term)
            c, d = tl.fma(c, factor, term), tl.fma(d, factor, term)
            e, f = tl.fma(e, factor, term), tl.fma(f, factor, term)
            g, h = tl.fma(g, factor, term), tl.fma(h, factor, term)
    tl.store(out + tl.arange(0, WIDTH), a + b + c + d + e + f + g + h)


def run_multiply_adds(out, rounds, programs):
    multiply_adds[(programs,)](out, rounds, 0.999, 0.001, WIDTH=WIDTH, LINKS=LINKS, num_warps=WARPS)


class Matmul:
    """A product by the tiling that is fastest for its sizes, measured at the first call."""

    def __init__(self, device):
        one = triton.Config({"TILE_M": 32, "TILE_N": 32, "TILE_K": 32}, num_warps=4, num_stages=2)
        self.tuned = triton.autotune(tilings(), key=["m", "n", "k"])(product) if device == "cuda" else None
        self.one = one

    def __call__(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype, device=a.device)

        def grid(meta):
            return (triton.cdiv(m, meta["TILE_M"]) * triton.cdiv(n, meta["TILE_N"]),)

        if self.tuned:
            self.tuned[grid](a, b, c, m, n, k)
        else:
            product[grid](a, b, c, m, n, k, **self.one.kwargs)
        return c
