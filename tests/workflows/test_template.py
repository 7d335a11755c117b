from __future__ import annotations

from typing import Any

import pytest

from asa.core.errors import InvalidInput
from asa.workflows.graph import make_graph
from asa.workflows.stage import Node, merge, parallel, sequence, split, stage


@stage
def cut(text: str) -> list[str]:
    return list(text)


@stage
def shout(letter: str) -> str:
    return letter.upper()


@stage
def glue(letters: list[str]) -> str:
    return "".join(letters)


def order(result: Any) -> list[str]:
    return list(make_graph(result).nodes)


def test_a_sequence_hands_each_result_on() -> None:
    node = sequence(cut, glue)("abc")
    assert node.stage is glue
    assert node.args[0].stage is cut
    assert node.args[0].args == ("abc",)


def test_only_the_first_step_gets_the_templates_arguments() -> None:
    node = sequence(lambda *, text: cut(text), glue)(text="abc")
    assert order(node) == ["cut", "glue"]


def test_parallel_of_one_stage_is_a_task_per_element() -> None:
    node = parallel(shout)(["a", "b"])
    assert (node.mapped, node.args) == (True, (["a", "b"],))


def test_parallel_of_several_gives_each_the_same_input() -> None:
    first, second = parallel(cut, shout)("abc")
    assert (first.stage, second.stage) == (cut, shout)
    assert first.args == second.args == ("abc",)


def test_split_and_merge() -> None:
    assert order(split(cut, shout)("abc")) == ["cut", "shout"]
    assert split(cut, shout)("abc").mapped
    assert order(merge(shout, glue)(["a"])) == ["shout", "glue"]


def test_templates_nest() -> None:
    whole = sequence(split(cut, shout), glue)
    assert order(whole("abc")) == ["cut", "shout", "glue"]
    many = parallel(whole)(["abc", "de"])
    assert [node.stage for node in many] == [glue, glue]
    assert order(many) == ["cut", "shout", "glue", "cut-2", "shout-2", "glue-2"]


def test_a_template_cannot_be_repeated_over_a_result() -> None:
    with pytest.raises(InvalidInput, match="a template can only be repeated over a list that is known before"):
        parallel(sequence(cut, glue))(cut("abc"))


@pytest.mark.parametrize("template", [sequence, parallel])
def test_a_template_of_nothing(template: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"{template.__name__}\(\) needs at least one stage"):
        template()


def test_a_template_is_made_of_stages_not_of_their_calls() -> None:
    with pytest.raises(InvalidInput, match=r"sequence\(\) is made of stages and templates, not of <node cut>"):
        sequence(cut("abc"), glue)
    with pytest.raises(InvalidInput, match=r"parallel\(\) is made of stages and templates, not of 5"):
        parallel(5)
    assert isinstance(sequence(cut)("abc"), Node)
