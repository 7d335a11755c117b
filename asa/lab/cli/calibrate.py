"""``asa calibrate``: a model of a site, from its own log."""

from __future__ import annotations

import argparse
from pathlib import Path

from asa.core.command import CommandResult, positive
from asa.core.errors import InvalidInput
from asa.lab.core.signals import ends_on_signals
from asa.report.outputs import check_outputs, progress_bar


class Calibrate:
    """Make a model of a site from its log, and say how well it does on a part that it was not made from."""

    help = "make a site model from a site's own log: sacct --parsable2, SWF or PBS accounting"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("trace", metavar="TRACE", help="log of jobs with the waits they had: sacct, SWF or PBS, gzipped or not")
        add("-o", "--output", metavar="FILE", help="write the model here, for --system FILE and --backend sim:FILE")
        add("--name", help="what to call the site (the log's name)")
        add("--nodes", type=positive, metavar="N", help="nodes of the machine (those of the trace's header)")
        add("--cores-per-node", type=positive, metavar="C", help="cores of each node (those of the header, or 1)")
        add(
            "--slurm",
            metavar="FILE",
            help="machine, partitions, QOS, accounts, priority and backfill: what scontrol show config, partition and "
            "node, and sacctmgr --parsable2 show qos and assoc print, in one file",
        )
        add("--dispatcher", metavar="NAME", help="how the simulated machine is run (as Slurm, or easy)")
        add("--share", type=float, default=0.7, help="part of the log that makes the model (0.7); the rest checks it")
        add("--seeds", type=positive, default=5, help="workloads simulated for each load that is tried (5)")

    @ends_on_signals
    def run(self, options: argparse.Namespace) -> CommandResult:
        check_outputs(options, "output")
        from asa.lab.asa_paper.calibrate import calibrate
        from asa.lab.traces.load import load_trace
        from asa.lab.traces.slurm import SlurmSite, read_slurm

        if options.slurm and (options.nodes or options.cores_per_node):
            raise InvalidInput(f"--slurm {options.slurm} has the machine: leave --nodes and --cores-per-node out")
        slurm = read_slurm(options.slurm) if options.slurm else None
        trace = load_trace(options.trace, amounts=slurm is not None and len(slurm.cluster.resources) > 1)
        if slurm is None:
            slurm = SlurmSite(trace.machine(options.nodes or 0, options.cores_per_node or 0), "easy", "fifo", ())
        name = options.name or Path(options.trace).name.split(".")[0]
        with progress_bar(f"calibrating {name}") as progress:
            found = calibrate(
                trace.workload,
                slurm.cluster,
                name,
                dispatcher=options.dispatcher or slurm.dispatcher,
                priority=slurm.priority,
                share=options.share,
                seeds=options.seeds,
                progress=progress,
            )
        text = "\n".join([str(found), *(f"not simulated: {each}" for each in slurm.not_simulated)])
        if options.output:
            found.site.write(options.output)
            text += f"\n\nwritten to {options.output}: try asa compare montage --system {options.output}"
        return CommandResult({**found.to_json(), "not_simulated": list(slurm.not_simulated)}, text)
