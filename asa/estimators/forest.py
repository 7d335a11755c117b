"""Random regression forests on a few thousand jobs, compiled: grown in milliseconds, asked in microseconds.

Rows are jobs, columns what was known of them. Import this where it is needed: it needs numba.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from asa.estimators.loss import Vector
from asa.lab.core.compiled import compiled_alone

Table = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]


@compiled_alone
def _random(state: npt.NDArray[np.uint64]) -> float:
    """The next number in [0, 1) of a SplitMix64 generator: one integer of state, no global one."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return float(bits >> np.uint64(11)) * 2.0**-53


@compiled_alone
def grow(columns: Table, target: Vector, leaf: int, seed: int, column: Codes, threshold: Table, child: Codes) -> None:
    """Grow one tree into the last three arguments, each of shape (nodes,); 2 n / leaf + 1 nodes suffice.

    A node is split at the value of one of its rows, drawn at random, as long as both parts have `leaf` rows or more.
    Of two such values for each of half of the columns, drawn with replacement, the one that leaves the least squared
    deviations of the target is taken.

    Parameters
    ----------
    columns
        What is known, shape (f, n).
    target
        What is to be foretold, shape (n,).
    column, threshold, child
        Column that a node asks for (-1 for a leaf); rows up to this value go to node `child`, others to the next one.

    References
    ----------
    P. Geurts, D. Ernst, L. Wehenkel, Extremely Randomized Trees, Machine Learning 63 (2006). There, thresholds are
    uniform between the least and the greatest value, one a column; values of rows need not look for these, and two of
    them foretell better than one.
    """
    width, count = columns.shape
    state = np.array([seed], dtype=np.uint64)
    order, nodes = np.arange(count), len(column)
    first, last = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    last[0], made, node = count, 1, 0
    while node < made:
        low, high = first[node], last[node]
        column[node] = -1
        if high - low >= 2 * leaf and made + 2 <= nodes:
            total = 0.0
            for place in range(low, high):
                total += target[order[place]]
            best, chosen, cut = -1.0, -1, np.float32(0.0)
            for _ in range(max(1, width // 2)):
                tried = int(_random(state) * width)
                one = columns[tried, order[low + int(_random(state) * (high - low))]]
                two = columns[tried, order[low + int(_random(state) * (high - low))]]
                if one > two:
                    one, two = two, one
                below_one, below_two, part_one, part_two = 0, 0, 0.0, 0.0
                for place in range(low, high):
                    row = order[place]
                    value, share = columns[tried, row], target[row]
                    is_one, is_two = value <= one, value <= two  # sums without branches, which nobody could foresee
                    below_one += is_one
                    below_two += is_two
                    part_one += is_one * share
                    part_two += is_two * share
                for limit, below, part in ((one, below_one, part_one), (two, below_two, part_two)):
                    above = high - low - below
                    if below >= leaf and above >= leaf:
                        gain = part * part / below + (total - part) * (total - part) / above
                        if gain > best:
                            best, chosen, cut = gain, tried, limit
            if chosen >= 0:
                left, right = low, high - 1
                while left <= right:
                    if columns[chosen, order[left]] <= cut:
                        left += 1
                    else:
                        order[left], order[right] = order[right], order[left]
                        right -= 1
                column[node], threshold[node], child[node] = chosen, cut, made
                first[made], last[made], first[made + 1], last[made + 1] = low, left, left, high
                made += 2
        node += 1


@compiled_alone
def drop(rows: Table, column: Codes, threshold: Table, child: Codes, leaves: Codes) -> None:
    """Write the leaf of each tree into which each row falls, rows of shape (n, f), to `leaves`, shape (trees, n)."""
    for tree in range(len(leaves)):
        for row in range(len(rows)):
            node = 0
            while column[tree, node] >= 0:
                below = rows[row, column[tree, node]] <= threshold[tree, node]
                node = child[tree, node] + (0 if below else 1)
            leaves[tree, row] = node


@compiled_alone
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
    found = np.zeros(len(weights))
    matches = np.empty(len(weights), np.int64)
    trees = 0
    for tree in range(len(own)):
        count, held = 0, 0.0
        for row in range(len(weights)):
            if leaves[tree, row] == own[tree] and weights[row] > 0.0:
                matches[count] = row
                held += weights[row]
                count += 1
        trees += count > 0
        for match in range(count):
            found[matches[match]] += weights[matches[match]] / held
    return found / max(trees, 1)
