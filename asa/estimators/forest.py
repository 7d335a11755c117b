"""Random regression forests on a few thousand jobs, in NumPy: all trees are grown at once, level by level.

Rows are jobs, columns what was known of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asa.estimators.loss import Vector

Table = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Trees = list[list[tuple[int, float, int]]]
"""Of each tree its nodes: column, threshold and first child; of a leaf -1, any number, and itself."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def uniform(seeds: npt.NDArray[np.uint64], draws: npt.NDArray[np.uint64]) -> Vector:
    """The numbers in [0, 1) that SplitMix64 generators with these seeds return as their draws of these numbers (1 ...).

    Arguments are broadcast; the result has their shape.
    """
    bits: npt.NDArray[np.uint64] = seeds + draws * _GAMMA
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    found: Vector = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return found


def grow(
    columns: Table, target: Vector, leaf: int, seeds: list[int], column: Codes, threshold: Table, child: Codes
) -> None:
    """Grow trees into the last three arguments, each of shape (trees, nodes); 2 n / leaf + 1 nodes suffice.

    A node is split at the value of one of its rows, drawn at random, as long as both parts have `leaf` rows or more.
    Of two such values for each of half of the columns, drawn with replacement, the one that leaves the least squared
    deviations of the target is taken; of equal ones the first.

    Parameters
    ----------
    columns
        What is known, shape (f, n).
    target
        What is to be predicted, shape (n,).
    seeds
        Of the trees, shape (trees,).
    column, threshold, child
        Column that a node asks for (-1 for a leaf); rows up to this value go to node `child`, others to the next one.

    References
    ----------
    P. Geurts, D. Ernst, L. Wehenkel, Extremely Randomized Trees, Machine Learning 63 (2006). There, thresholds are
    uniform between the least and the greatest value, one a column; values of rows need not look for these, and two of
    them predict better than one.
    """
    width, count = columns.shape
    trees, tries = len(seeds), max(1, width // 2)
    random = np.array(seeds, np.uint64)
    column[:] = -1
    # Of each open node: its tree, its place there, how many rows it has. `order` lists their rows, node after node, as
    # they were ordered in the node above.
    tree, node, size = np.arange(trees), np.zeros(trees, np.int64), np.full(trees, count)
    order = np.tile(np.arange(count), trees)
    made, drawn = np.ones(trees, np.int64), np.zeros(trees, np.int64)
    while True:
        large = size >= 2 * leaf
        order = order[np.repeat(large, size)]
        tree, node, size = tree[large], node[large], size[large]
        if not len(size):
            return
        first = size.cumsum() - size
        rank = np.arange(len(tree)) - np.searchsorted(tree, tree)  # among the open nodes of its tree
        numbers = (drawn[tree] + rank * 3 * tries)[:, None] + np.arange(1, 3 * tries + 1)
        draws = uniform(random[tree][:, None], numbers.astype(np.uint64)).reshape(len(tree), tries, 3)
        drawn += 3 * tries * np.bincount(tree, minlength=trees)
        split, chosen, cut = _best_splits(columns, target, leaf, order, first, size, draws)
        column[tree[split], node[split]], threshold[tree[split], node[split]] = chosen[split], cut[split]
        rank = np.cumsum(split) - 1
        rank -= np.searchsorted(tree[split], tree)
        below = made[tree] + 2 * rank
        child[tree[split], node[split]] = below[split]
        made += 2 * np.bincount(tree[split], minlength=trees)
        order = order[np.repeat(split, size)]
        tree, below, size, chosen, cut = tree[split], below[split], size[split], chosen[split], cut[split]
        is_low = columns[np.repeat(chosen, size), order] <= np.repeat(cut, size)
        half = 2 * np.repeat(np.arange(len(size)), size) + ~is_low
        order = order[half.argsort(kind="stable")]
        size = np.bincount(half, minlength=2 * len(size))
        tree, node = np.repeat(tree, 2), (below[:, None] + np.arange(2)).ravel()


def _best_splits(
    columns: Table,
    target: Vector,
    leaf: int,
    order: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    size: npt.NDArray[np.int64],
    draws: Vector,
) -> tuple[npt.NDArray[np.bool_], Codes, Table]:
    """Whether each node can be split, by which column, and at which value, shape (nodes,) each."""
    tries, nodes = draws.shape[1], len(size)
    shares, flat = target[order], columns.ravel()
    tried = (draws[:, :, 0] * len(columns)).astype(np.int64).T
    rows = (draws[:, :, 1:] * size[:, None, None]).astype(np.int64).transpose(1, 2, 0)
    # Of each value that is tried: how many rows of each node are below it, and the sum of their targets.
    limits = np.empty((tries, 2, nodes), np.float32)
    below, part = np.empty((tries, 2, nodes)), np.empty((tries, 2, nodes))
    for attempt in range(tries):
        place = np.repeat(tried[attempt] * columns.shape[1], size)
        place += order
        values = flat.take(place, mode="clip")  # faster than to check, and none is outside
        limits[attempt] = values[first + rows[attempt]]
        limits[attempt].sort(axis=0)
        for limit, count, amount in zip(limits[attempt], below[attempt], part[attempt], strict=True):
            is_low = (values <= np.repeat(limit, size)).astype(np.float64)  # sums of one kind of number are fastest
            np.add.reduceat(is_low, first, out=count)
            is_low *= shares
            np.add.reduceat(is_low, first, out=amount)
    above, rest = size - below, np.add.reduceat(shares, first) - part
    fits = (below >= leaf) & (above >= leaf)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(fits, part * part / below + rest * rest / above, -1.0).reshape(2 * tries, nodes)
    best, node = gain.argmax(axis=0), np.arange(nodes)  # of equal ones the first
    return gain[best, node] >= 0.0, tried[best // 2, node], limits.reshape(2 * tries, nodes)[best, node]


def leaves(rows: Table, column: Codes, threshold: Table, child: Codes) -> Codes:
    """The leaf of each tree into which each row falls, rows of shape (n, f): shape (trees, n)."""
    values, width, nodes = rows.ravel(), rows.shape[1], column.shape[1]
    asks, limits, goes = column.ravel(), threshold.ravel(), child.ravel()
    root = np.repeat(np.arange(len(column)) * nodes, len(rows))
    row = np.tile(np.arange(len(rows)) * width, len(column))
    found = np.zeros(len(root), np.int32)
    open_ = np.flatnonzero(asks[root] >= 0)
    root, row = root[open_], row[open_]
    at = root
    while len(open_):
        below = goes.take(at) + (values.take(row + asks.take(at)) > limits.take(at))
        found[open_] = below
        at = root + below
        inner = asks.take(at) >= 0
        open_, root, row, at = open_[inner], root[inner], row[inner], at[inner]
    return found.reshape(len(column), len(rows))


def as_lists(column: Codes, threshold: Table, child: Codes) -> Trees:
    """What `leaf_in_each` looks rows up in, of trees of shape (trees, nodes)."""
    own = np.where(column < 0, np.arange(column.shape[1]), child)
    trees = zip(column.tolist(), threshold.tolist(), own.tolist(), strict=True)
    return [list(zip(*parts, strict=True)) for parts in trees]


def leaf_in_each(row: list[float], trees: Trees) -> list[int]:
    """The leaf of each tree into which a row falls, shape (f,): what `leaves` returns, faster for one."""
    found = []
    for nodes in trees:
        asked, limit, below = nodes[0]
        while asked >= 0:
            asked, limit, below = nodes[below + 1 if row[asked] > limit else below]
        found.append(below)
    return found


def likeness(leaves: Codes, own: Codes, weights: Vector) -> Vector:
    """How much each row is like one's own: the mean over trees of its share in the leaf, shape (n,); adds up to 1.

    Parameters
    ----------
    leaves
        Leaf of each row, shape (trees, n).
    own
        One's own leaves, shape (trees,). A tree whose leaf holds no weight is passed over.
    weights
        Of the rows, shape (n,), 0 or more; all zero gives all zero.

    References
    ----------
    N. Meinshausen, Quantile Regression Forests, JMLR 7 (2006).
    """
    tree, row = np.divmod(np.flatnonzero(leaves == own[:, None]), leaves.shape[1])
    held = np.bincount(tree, weights[row], len(own))
    counted = held > 0.0
    shares = np.divide(1.0, held, out=np.zeros(len(held)), where=counted)
    found: Vector = np.bincount(row, shares[tree], len(weights)) * weights
    return found / max(int(counted.sum()), 1)
