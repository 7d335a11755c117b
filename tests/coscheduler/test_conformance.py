"""Everything in the registries keeps the promises of the ports."""

import pytest

from asa.core.registry import EXPERTS, SHARING_RULES
from asa.testing import experts, sharing

RULES = (
    *SHARING_RULES,
    "space:queue=first-fit",
    "static:hard=true,share=0.9",
    "asax:importance=true,loss=walltime,decay=0.5",
    "asax:experts=cpu+contention",
    "scavenger:guests=3,order=queue",
    "scavenger:worth=100,min_rate=0.01,queue=easy",
)


@pytest.mark.parametrize("check", experts.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EXPERTS.names())
def test_experts(name, check):
    check(lambda: EXPERTS.create(name))


@pytest.mark.parametrize("check", sharing.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("spec", RULES)
def test_sharing_rules(spec, check):
    check(lambda seed: SHARING_RULES.create(spec, seed=seed))
