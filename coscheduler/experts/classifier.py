"""Trees of other libraries as experts: whatever has ``predict_proba``, as scikit-learn's classifiers do."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from asa.core.arrays import Floats
from asa.core.errors import InvalidInput
from coscheduler.nouns import ACTIONS, JobStates


class ProbabilisticClassifier(Protocol):
    """What is expected of a fitted model: its classes are numbers of actions."""

    classes_: Any

    def predict_proba(self, features: Floats, /) -> Any: ...


class Classifier:
    """A fitted classifier that says which action is best.

    Parameters
    ----------
    model
        Fitted on `JobStates.features` (cpu, memory, parallel, elapsed, happiness) and numbers of actions, 0 to 9.
        Load it yourself: a pickle of unknown origin is a program of unknown origin.

    Raises
    ------
    InvalidInput
        When its classes are no numbers of actions.
    """

    def __init__(self, model: ProbabilisticClassifier) -> None:
        self._classes = np.asarray(model.classes_)
        if not np.all(np.isin(self._classes, np.arange(len(ACTIONS)))):
            raise InvalidInput(
                f"classes {self._classes.tolist()}: numbers of actions, 0 to {len(ACTIONS) - 1}, expected"
            )
        self._model = model

    def vote(self, states: JobStates) -> Floats:
        """Probability of each action, shape (n, m); 0 for one that the model has never seen."""
        votes = np.zeros((len(states), len(ACTIONS)))
        if len(states):
            votes[:, self._classes.astype(np.int64)] = self._model.predict_proba(states.features())
        return votes
