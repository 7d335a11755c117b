import json

import numpy as np
import pytest

from asa.core.errors import InvalidInput
from coscheduler.nouns import ACTIONS, JobStates
from coscheduler.sharing.experts import Classifier, LearnedContention, MetricTree, cpu, elapsed, memory, stage
from coscheduler.testing import check_expert, job_states

M = len(ACTIONS)


def states(**columns):
    n = len(next(iter(columns.values())))
    default = {"cpu": 0.5, "memory": 0.5, "parallel": False, "elapsed": 0.5, "happiness": 2.0}
    return JobStates(**{name: np.array(columns.get(name, [value] * n)) for name, value in default.items()})


def peaks(expert, **columns):
    return [ACTIONS[action] for action in expert.vote(states(**columns)).argmax(axis=1)]


def test_the_papers_trees():
    assert peaks(cpu(), cpu=[0.05, 0.3, 0.76, 0.99]) == [0.9, 0.7, 0.2, 0.0]
    assert peaks(memory(), memory=[0.2, 0.4, 0.41, 0.75, 0.76]) == [0.5, 0.5, 0.3, 0.3, 0.0]
    assert peaks(stage(), parallel=[False, True]) == [0.7, 0.2]
    assert peaks(elapsed(), elapsed=[0.1, 0.3, 0.6, 0.9]) == [0.2, 0.3, 0.4, 0.6]


@pytest.mark.parametrize("make", [cpu, memory, stage, elapsed])
def test_the_unhappy_give_nothing_and_those_near_one_half(make):
    tree = make()
    unhappy, near, happy = tree.vote(states(happiness=[0.99, 1.0, 1.1])) @ np.array(ACTIONS)
    assert unhappy < 0.1
    assert unhappy < near < happy


def test_a_tree_survives_json():
    tree = cpu()
    again = MetricTree.of(json.loads(json.dumps(tree.table())))
    assert np.array_equal(again.vote(job_states(50)), tree.vote(job_states(50)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "mood"}, "'mood' is no metric"),
        ({"cuts": [0.5, 0.5]}, "increasing thresholds"),
        ({"cuts": [0.1, 0.2]}, "3 by 2 leaves expected"),
        ({"leaves": [[[0.5] * M] * 2] * 2}, "no distribution"),
        ({"leaves": [[[1.0]] * 2] * 2}, "voted with shape"),
    ],
)
def test_a_broken_tree_is_refused(change, message):
    table = {"metric": "cpu", "cuts": [0.5], "happy_cuts": [1.0], "leaves": [[[1 / M] * M] * 2] * 2}
    with pytest.raises(InvalidInput, match=message):
        MetricTree.of(table | change)


class Model:
    """As scikit-learn's classifiers: knows actions 0 and 7 only."""

    classes_ = np.array([0, 7])

    def predict_proba(self, features):
        assert features.shape[1] == 5 and np.isfinite(features).all()
        return np.stack([features[:, 0], 1 - features[:, 0]], axis=1)


def test_any_classifier_is_an_expert():
    check_expert(lambda: Classifier(Model()))
    assert peaks(Classifier(Model()), cpu=[0.1, 0.9]) == [0.7, 0.0]


def test_classes_that_are_no_actions_are_refused():
    class Wrong(Model):
        classes_ = np.array([0, 10])

    with pytest.raises(InvalidInput, match="numbers of actions"):
        Classifier(Wrong())


def test_a_scikit_learn_tree_is_an_expert():
    tree = pytest.importorskip("sklearn.tree")
    many = job_states(300)
    best = (many.cpu < 0.5) * 6
    model = tree.DecisionTreeClassifier(max_depth=2, random_state=0).fit(many.features(), best)
    check_expert(lambda: Classifier(model))
    assert peaks(Classifier(model), cpu=[0.1, 0.9]) == [0.6, 0.0]


def test_contention_is_learned_where_it_is_and_giving_less_never_looks_worse():
    expert = LearnedContention()
    assert peaks(expert, cpu=[0.1, 0.9]) == [0.9, 0.9]
    for _ in range(20):
        expert.learn(states(cpu=[0.9]), 6, 0.8)
    busy, idle = peaks(expert, cpu=[0.9, 0.1])
    assert busy == 0.5
    assert idle == 0.9
    with pytest.raises(InvalidInput, match="shape"):
        expert.restore({"loss": [[0.0]], "count": [[0.0]]})
