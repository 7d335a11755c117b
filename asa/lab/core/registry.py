"""Names of the laboratory's parts; see `asa.core.registry`."""

from __future__ import annotations

from asa.core.registry import Registry

PREDICTORS = Registry("predictor", group="asa.predictors", owes=("predict", "learn"))
PLACEMENTS = Registry("placement", group="asa.placements", owes=("choose",))
PLACEMENT_METHODS = Registry("placement method", group="asa.placement_methods")
PRIORITIES = Registry("priority", group="asa.priorities")
FIGURES = Registry("figure", group="asa.figures")
TRAININGS = Registry("training", group="asa.trainings")
MODELS = Registry("trained model", group="asa.models")
