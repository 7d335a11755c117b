"""``asa graph``: a workflow, printed and checked, without running it."""

from __future__ import annotations

import argparse

from asa.cli.run import add_workflow_options, workflow_of
from asa.core.command import CommandResult
from asa.core.job import Capabilities
from asa.core.registry import BACKENDS
from asa.core.serial import to_json


class Graph:
    """Print and check a workflow."""

    help = "print and check a workflow without running it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        add_workflow_options(parser)
        parser.add_argument("--backend", help="also check that every stage can run there")
        parser.add_argument("--dot", action="store_true", help="print it in Graphviz's language")

    def run(self, options: argparse.Namespace) -> CommandResult:
        """Print it."""
        from asa.workflows.graph import make_graph

        graph = make_graph(workflow_of(options))
        site = Capabilities(site="")
        if options.backend:
            backend = BACKENDS.create(options.backend)
            site = backend.capabilities()
            backend.close()
        graph.check(site)
        return CommandResult({"rows": to_json(graph.specs(site))}, graph.to_dot() if options.dot else str(graph))
