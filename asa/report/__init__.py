"""Reports of a run, from its event log alone: `write_report` makes a page, a picture or numbers of it."""

from asa.report.write import write_report

__all__ = ["write_report"]
