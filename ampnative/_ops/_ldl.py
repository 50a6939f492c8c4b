"""L D L^T of symmetric and Hermitian matrices in LAPACK's form: rows and columns exchanged as needed (Bunch and Kaufman, 1977).

    D: blocks of 1 x 1 and 2 x 2.      LD, lower triangle:   d          d
    pivots, from 1:  p >= 1: 1 x 1,    below D: L            l  d       e  f      two equal negative pivots: one block d e f
    p < 0: half of a 2 x 2 block                             l  l  d    l  l  d
"""

from __future__ import annotations

import math

import numpy as np

_ALPHA = (1 + math.sqrt(17)) / 8  # bounds the growth of elements


def _size(x: np.ndarray) -> np.ndarray:
    return np.abs(x.real) + np.abs(x.imag) if np.iscomplexobj(x) else np.abs(x)


def _pivot(a: np.ndarray, k: int) -> tuple[int, int] | None:
    """The row to bring to the front, and the block's size; None for a column of zeros."""
    n = len(a)
    own = _size(a[k, k])
    below = k + 1 + int(np.argmax(_size(a[k + 1 :, k]))) if k < n - 1 else k
    most = _size(a[below, k]) if k < n - 1 else 0.0
    if not max(own, most) > 0:
        return None
    if own >= _ALPHA * most:
        return k, 1
    row = max(np.max(_size(a[below, k:below])), np.max(_size(a[below + 1 :, below]), initial=0.0))
    if own >= _ALPHA * most * (most / row):
        return k, 1
    return (below, 1) if _size(a[below, below]) >= _ALPHA * row else (below, 2)


def factor(given: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """(LD, pivots, number of the first block of D that is zero, or 0) of one matrix; only its lower triangle is read."""
    conj = np.conj if hermitian else np.asarray
    a = np.tril(given).copy()
    n, k, info = len(a), 0, 0
    pivots = np.zeros(n, np.int32)
    while k < n:
        if hermitian and np.iscomplexobj(a):
            np.fill_diagonal(a[k:, k:], a[k:, k:].diagonal().real)  # rounding must not make it complex
        chosen = _pivot(a, k)
        row, step = chosen or (k, 1)
        last = k + step - 1
        if row != last:
            a[[last, row], k:last] = a[[row, last], k:last]
            a[row + 1 :, [last, row]] = a[row + 1 :, [row, last]]
            a[last + 1 : row, last], a[row, last + 1 : row] = conj(a[row, last + 1 : row]).copy(), conj(a[last + 1 : row, last]).copy()
            a[row, last] = conj(a[row, last])
            a[last, last], a[row, row] = a[row, row], a[last, last]
        rest = slice(k + step, n)
        if chosen is None:
            info = info or k + 1
        elif k + step < n:
            block = a[k : k + step, k : k + step].copy()
            if step == 2:
                block[0, 1] = conj(block[1, 0])
            x = a[rest, k : k + step].copy()
            low = x @ np.linalg.inv(block) if step == 2 else x / block
            a[rest, rest] -= np.tril(low @ conj(x).T)
            a[rest, k : k + step] = low
        pivots[k : k + step] = row + 1 if step == 1 else -(row + 1)
        k += step
    return a, pivots, info


def _blocks(pivots: np.ndarray) -> list[tuple[int, int, int]]:
    """(start, size, exchanged row) of the blocks of D."""
    found, k = [], 0
    while k < len(pivots):
        size = 1 if pivots[k] > 0 else 2
        found.append((k, size, abs(int(pivots[k])) - 1))
        k += size
    return found


def solve(factors: np.ndarray, pivots: np.ndarray, given: np.ndarray, hermitian: bool) -> np.ndarray:
    """X of A X = B for one matrix."""
    conj = np.conj if hermitian else np.asarray
    x = given.astype(np.result_type(factors, given))
    blocks = _blocks(pivots)
    for k, size, row in blocks:
        last, rest = k + size - 1, slice(k + size, None)
        x[[last, row]] = x[[row, last]]
        x[rest] -= factors[rest, k : k + size] @ x[k : k + size]
        block = factors[k : k + size, k : k + size].copy()
        if size == 2:
            block[0, 1] = conj(block[1, 0])
        with np.errstate(all="ignore"):
            x[k : k + size] = np.linalg.solve(block, x[k : k + size]) if size == 2 else x[k : k + size] / block
    for k, size, row in reversed(blocks):
        last, rest = k + size - 1, slice(k + size, None)
        x[k : k + size] -= conj(factors[rest, k : k + size]).T @ x[rest]
        x[[last, row]] = x[[row, last]]
    return x
