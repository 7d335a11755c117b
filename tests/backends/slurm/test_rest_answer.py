"""What slurmrestd's refusals and failures amount to; the bodies are those of 22.05 unless a test says otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

from asa.backends.slurm.rest_parse import Denied, NoSuchPage, Silent, Unauthorized, content
from asa.backends.slurm.words import SiteRefusal
from asa.core.errors import BackendError

ASKED = "GET /slurm/v0.0.38/jobs at here"


def failure(status: int, *errors: dict[str, Any], **more: Any) -> BackendError:
    with pytest.raises(BackendError) as caught:
        content(status, json.dumps({"errors": errors, **more}), ASKED)
    assert str(caught.value).startswith(ASKED)
    return caught.value


def test_an_answer() -> None:
    assert content(200, '{"errors": [], "jobs": []}', ASKED) == {"errors": [], "jobs": []}


def test_a_job_that_was_taken_with_a_remark() -> None:
    held = {"error_code": 2042, "error": "Job is in held state, pending scheduler release"}
    assert content(200, json.dumps({"errors": [held], "job_id": 14}), ASKED)["job_id"] == 14


def test_a_refusal_in_the_sites_words() -> None:
    error = failure(500, {"error_code": 2000, "error": "Invalid partition name specified"})
    assert isinstance(error, SiteRefusal)
    assert error.reason == "Invalid partition name specified"


def test_an_option_that_cannot_be_read() -> None:
    error = failure(
        200,
        {"error": "Unable to parse time", "error_code": 2054},
        {
            "description": 'Unable to process key "begin_time"',
            "error_number": -1,
            "error": "Unspecified error",
            "source": "slurm_process_option_data",
        },
        {"error_code": 9001, "error": "Failure during parsing"},
    )
    assert isinstance(error, Denied)
    assert not error.transient
    assert error.reason.splitlines()[:2] == ["Unable to parse time", 'Unable to process key "begin_time"']


def test_words_are_not_said_twice() -> None:
    error = failure(
        500,
        {
            "description": "unable to kill JobId=7777 with signal 9: Invalid job id specified",
            "error_number": 2017,
            "error": "Invalid job id specified",
        },
    )
    assert isinstance(error, Denied)
    assert error.numbers == {2017}
    assert error.reason == "unable to kill JobId=7777 with signal 9: Invalid job id specified"
    error = failure(
        500, {"description": "job update failed", "error_number": 2017, "error": "Invalid job id specified"}
    )
    assert isinstance(error, Denied)
    assert error.reason == "Invalid job id specified (job update failed)"


@pytest.mark.parametrize(
    "error",
    [
        {"error_code": 1800, "error": "Unable to contact slurm controller (connect failure)"},
        {"description": "job update failed", "error_number": 1000, "error": "Unexpected message received"},
        {
            "description": "Failed connecting to slurmdbd",
            "error_number": 7000,
            "error": "Unable to connect to database",
        },
        {"error_code": 5005, "error": "Zero Bytes were transmitted or received"},
    ],
)
def test_a_daemon_that_does_not_answer(error: dict[str, Any]) -> None:
    found = failure(500, error)
    assert found.transient
    assert not isinstance(found, Silent)


def test_a_controller_that_is_silent_or_rejects_the_token() -> None:
    said = {"description": "slurmctld config is unable to load", "error_number": -1, "error": "Unspecified error"}
    for error in (said, {"error": "Unspecified error", "errno": -1}):
        found = failure(500, error)
        assert isinstance(found, Silent)
        assert found.transient


def test_a_token_that_is_not_accepted() -> None:
    found = failure(200, {"error_number": 1007, "error": "Protocol authentication error", "source": "x"}, jobs=[])
    assert isinstance(found, Unauthorized)
    with pytest.raises(Unauthorized, match="Authentication failure") as caught:
        content(401, "Authentication failure", ASKED)
    assert not caught.value.transient


def test_a_page_that_is_not_there() -> None:
    with pytest.raises(NoSuchPage):
        content(404, "Unable find requested URL. Please view /openapi/v3 for API reference.", ASKED)
    later = {"error_number": 9100, "error": "Unable to find requested URL"}
    assert isinstance(failure(404, later), NoSuchPage)
    assert isinstance(failure(404, {"error_number": 2017, "error": "Invalid job id specified"}), Denied)


@pytest.mark.parametrize(("status", "transient"), [(502, True), (429, True), (503, True), (200, False), (400, False)])
def test_an_answer_that_is_not_slurmrestds(status: int, transient: bool) -> None:
    for text in ("<html>Bad Gateway</html>", "[]"):
        with pytest.raises(BackendError, match=f"HTTP {status}.*expected JSON from slurmrestd") as caught:
            content(status, text, ASKED)
        assert caught.value.transient is transient


def test_a_redirection_is_not_followed() -> None:
    with pytest.raises(BackendError, match="HTTP 302") as caught:
        content(302, "", ASKED)
    assert not caught.value.transient
