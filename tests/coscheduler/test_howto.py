import doctest
from dataclasses import fields
from pathlib import Path

from coscheduler.sharing.scavenger import ScavengerOptions

DOCS = Path(__file__).parents[2] / "docs"


def test_the_howto_runs_as_printed():
    page = DOCS / "howto" / "write-a-sharing-rule.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 5 and not failed


def test_the_page_tells_every_option_of_the_scavenger():
    page = (DOCS / "coscheduler.md").read_text()
    for option in fields(ScavengerOptions):
        assert f"`{option.name}`" in page
