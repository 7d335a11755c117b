"""Estimators that follow a changing wait."""

from __future__ import annotations

import json

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from asa.estimators.loss import PAPER_GRID
from asa.lab.asa_paper.convergence import convergence, iterations_to_converge


@pytest.fixture(scope="module")
def result():
    return convergence(seeds=6)


def test_default_does_not_converge_before_the_wait_changes_again(result):
    default = result.tracking["default"]
    assert default.never >= 0.9
    assert default.hit < 0.2
    assert default.median_iterations == 200


def test_tuned_converges_in_about_six_iterations(result):
    tuned = result.tracking["tuned"]
    assert tuned.hit == pytest.approx(0.95, abs=0.015)
    assert 4 <= tuned.median_iterations <= 8
    assert tuned.never == 0


def test_greedy_is_stuck_after_a_drop(result):
    levels = np.array(result.true_waits)[::200]
    greedy = np.array(result.trajectories["greedy"])
    first_drop = next(index for index in range(1, 5) if levels[index] < levels[index - 1])
    assert (greedy[200 * first_drop :] == np.array(result.true_waits)[200 * first_drop :]).mean() < 0.05
    assert result.tracking["greedy"].never > 0.5


def test_fixed_share_follows_at_once(result):
    share = result.tracking["fixed-share"]
    assert share.hit >= 0.98
    assert share.median_iterations <= 1
    assert share.loose_p90_iterations <= 2
    assert share.never == 0


def test_noise_defeats_the_papers_loss_but_not_fixed_share():
    noisy = convergence(seeds=4, noise=0.3).tracking
    assert max(noisy[name].hit for name in ("default", "tuned", "greedy")) < 0.08
    assert noisy["fixed-share"].near_hit > 0.45
    assert noisy["fixed-share"].loose_median_iterations <= 2


def test_the_same_seed_gives_the_same_result(result):
    again = convergence(seeds=1)
    assert again.true_waits == result.true_waits
    assert again.trajectories == result.trajectories
    assert convergence(seeds=1, seed=1).true_waits != result.true_waits


def test_the_wait_changes_four_times_between_alternatives(result):
    waits = np.array(result.true_waits)
    assert set(waits) <= set(PAPER_GRID)
    assert np.flatnonzero(np.diff(waits)).tolist() == [199, 399, 599, 799]


def test_json_has_every_figure_of_every_estimator(result):
    written = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert set(written) == {"default", "tuned", "greedy", "fixed-share"}
    for figures in written.values():
        assert {"hit", "median_iterations", "p90_iterations", "never"} <= set(figures)


def test_the_figure_is_drawn(result, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "fig5.png"
    result.draw(path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("hits", "first"),
    [([1] * 10, 0), ([0, 1, 0] + [1] * 7, 0), ([0] * 3 + [1] * 10, 1), ([1, 0] * 20, 40), ([1] * 5, 5)],
)
def test_convergence_is_8_hits_of_10(hits, first):
    assert iterations_to_converge(np.array(hits, dtype=bool)) == first


@pytest.mark.parametrize(
    "arguments", [{"seeds": 0}, {"iterations": 999}, {"iterations": 45}, {"noise": -0.1}, {"noise": float("nan")}]
)
def test_bounds_of_the_arguments(arguments):
    with pytest.raises(InvalidInput, match=next(iter(arguments))):
        convergence(**arguments)
