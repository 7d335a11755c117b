"""A workflow as a graph of nodes: found from its result, named, ordered and checked before anything runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from asa.core.errors import AsaError, GraphError, InvalidInput
from asa.core.job import SETUP, Capabilities, Options, QueueRegime, Resources, alternatives
from asa.core.queues import misfit
from asa.core.stage import StageSpec, Width
from asa.core.task import Secrets
from asa.core.units import brief
from asa.workflows.stage import PACK, Needs, Node, Outputs, Stage, nodes_in, writes, written_by


@dataclass(frozen=True)
class Graph:
    """All nodes that a result depends on.

    Parameters
    ----------
    result
        A node, or a list, tuple or dict with nodes in it.
    nodes
        Name -> node, in topological order.
    names
        Node -> its unique name.
    predecessors
        Name -> names of the nodes it waits for.
    widths
        Name -> number of tasks, or None while only a predecessor's result will tell.
    """

    result: Any
    nodes: dict[str, Node]
    names: dict[Node, str]
    predecessors: dict[str, tuple[str, ...]]
    widths: dict[str, int | None]

    def width(self, name: str) -> int | None:
        """Number of tasks of a stage, or None while only a predecessor's result will tell."""
        return self.widths[name]

    def specs(
        self,
        site: Capabilities,
        run_time: Callable[[str, float], float] = lambda _name, walltime_s: walltime_s,
        keep_going: bool = False,
    ) -> tuple[StageSpec, ...]:
        """What the plan must know of each stage there; `run_time` predicts run times [s] from name and wall time.

        With `keep_going`, stages that do not say otherwise continue when a task has failed.
        """
        found = tuple(
            StageSpec(
                name=name,
                resources=_resources(node.stage.needs, site.for_jobs(node.stage.needs.options)),
                task=_task(node.stage.needs, site.for_jobs(node.stage.needs.options)),
                walltime_s=node.stage.needs.walltime_s,
                run_time_s=min(run_time(name, node.stage.needs.walltime_s), node.stage.needs.walltime_s),
                predecessors=self.predecessors[name],
                retries=node.stage.needs.retries,
                width=self.width(name),
                continues=keep_going if node.stage.needs.continues is None else node.stage.needs.continues,
                accepts_failed=node.stage.needs.accepts_failed,
                timeout_s=node.stage.needs.timeout_s,
                retry_delay_s=node.stage.needs.retry_delay_s,
                growth=node.stage.needs.growth if node.stage.needs.retries else 1.0,
                expands=node.stage.needs.expands,
                expect=node.stage.needs.expect,
                checkpoint=node.stage.needs.checkpoint,
                notice_s=node.stage.needs.signal_before_s if node.stage.needs.checkpoint else 0.0,
                total_s=_total_s(node),
                shares=node.stage.needs.shares,
                most=_most(node, self.width(name), site.for_jobs(node.stage.needs.options)),
                **self._places(node),
            ).holding(_likely(self.width(name), node.stage.needs.expect))
            for name, node in self.nodes.items()
        )
        return tuple(_bent(node, spec, site) for node, spec in zip(self.nodes.values(), found, strict=True))

    def copy(self) -> Graph:
        """The same graph, to be added to without a change of this one."""
        own = (dict(self.nodes), dict(self.names), dict(self.predecessors), dict(self.widths))
        return Graph(self.result, *own)

    @property
    def added(self) -> dict[tuple[str, int], Any]:
        """Task, as (stage, index), that has added stages -> what it returned, with their nodes in it."""
        found: dict[tuple[str, int], Any] = vars(self).setdefault("_added", {})  # it is none of what is kept
        return found

    def end_of(self, name: str, index: int) -> tuple[str, int, Any]:
        """The task whose result stands for that of this one, and what that is made of: `None` of what it returned, or
        a structure with nodes in it, or a node that is mapped."""
        added = self.added
        while (value := added.get((name, index))) is not None and isinstance(value, Node) and not value.mapped:
            name, index = self.names[value], 0
        return name, index, value

    def has_added(self, name: str) -> bool:
        """Whether tasks of a stage may have added others."""
        return self.nodes[name].stage.needs.expands and bool(self.added)

    def part(self, name: str, index: int, value: Any, taken: Collection[str], names: Sequence[str] = ()) -> Graph:
        """The nodes in `value`, which a task returned, as a graph of their own, with names that are free in this one.

        Rounds of one task after another are numbered; what a task of a parallel stage adds has its index in its name.

        Parameters
        ----------
        taken
            Names that are not free either.
        names
            Theirs, where they have some.

        Raises
        ------
        GraphError
            As `make_graph`.
        """
        order = topological(nodes_in(value))
        scopes: dict[str, str] = vars(self).setdefault("_scopes", {})
        scope = scopes.get(name, name)
        if self.nodes[name].mapped and len(scope) < _SCOPE_MOST:
            scope = f"{name}[{index}]"
        names = names or [self._free(f"{scope}.{node.stage.name}", taken) for node in order]
        scopes.update(dict.fromkeys(names, scope))
        return _graph(value, order, dict(zip(order, names, strict=True)))

    def _free(self, name: str, taken: Collection[str]) -> str:
        """A name like this one that no stage has."""
        used: dict[str, int] = vars(self).setdefault("_used", {})
        while True:
            used[name] = count = used.get(name, 0) + 1
            free = name if count == 1 else f"{name}-{count}"
            if free not in self.nodes and free not in taken:
                return free

    def adopt(self, part: Graph, name: str, index: int, followers: Iterable[str]) -> tuple[str, ...]:
        """Have a part that a task has added in this graph; of which of its stages the task's result is made. Those that
        wait for the task's stage, `followers`, wait for these, too."""
        self.added[name, index] = part.result
        self.nodes.update(part.nodes)
        self.names.update(part.names)
        self.widths.update(part.widths)
        self.predecessors.update((added, before or (name,)) for added, before in part.predecessors.items())
        needs = tuple(dict.fromkeys(part.names[node] for node in nodes_in(part.result)))
        for other in followers:
            kept = [before for before in self.predecessors[other] if before != name or self.nodes[name].mapped]
            self.predecessors[other] = tuple(dict.fromkeys((*kept, *needs)))
        return needs

    def _places(self, node: Node) -> dict[str, Any]:
        """Which of a parallel stage's tasks need which stages, where that is not all: as `StageSpec` has it."""
        if not node.mapped or not self.predecessors[self.names[node]]:
            return {}
        whole = {*nodes_in(node.kwargs), *node.predecessors}
        alike: dict[Node, None] = {}
        lists: dict[Node, None] = {}
        parts: dict[Node, dict[int, None]] = {}
        for column in node.args:
            if isinstance(column, Node):
                (alike if column.mapped else lists)[column] = None
            elif nodes_in(column):
                for index, item in enumerate(column):
                    for other in nodes_in(item):
                        parts.setdefault(other, {})[index] = None
        names, whole = self.names, whole | lists.keys()
        some = [(other, tuple(tasks)) for other, tasks in parts.items() if other not in whole and other not in alike]
        return {
            "alike": tuple(names[other] for other in alike if other not in whole and other not in parts),
            "parts": tuple((names[other], tasks) for other, tasks in some),
            "lists": tuple(names[other] for other in lists),
        }

    @property
    def withheld(self) -> tuple[str, ...]:
        """Names of all secrets, which no job is to have in its environment."""
        return tuple(sorted({name for node in self.nodes.values() for name in node.stage.needs.secrets}))

    def variables(self, environ: Mapping[str, str]) -> dict[str, Secrets]:
        """Stage -> variables for its tasks alone, where it has some: its secrets, and those that it was declared with.

        Raises
        ------
        GraphError
            When one is not in the environment.
        """
        found = {}
        for name, node in self.nodes.items():
            names = node.stage.needs.secrets
            for variable in names:
                if variable not in environ:
                    raise GraphError(
                        f"stage {name!r} needs the secret {variable}, and there is no such variable in this "
                        f"environment: set it where the run is started, as in 'read -rs {variable}; export {variable}'"
                    )
            if own := {**dict(node.stage.needs.env), **{variable: environ[variable] for variable in names}}:
                found[name] = Secrets(tuple(own.items()))
        return found

    @property
    def queues(self) -> list[Options]:
        """Where jobs of its stages may go, each once."""
        asked = dict.fromkeys(node.stage.needs.options for node in self.nodes.values())
        return [*dict.fromkeys(each for options in asked for each in alternatives(options))]

    def check(self, site: Capabilities) -> None:
        """Whether every stage can ever run there: in one of the queues that it may go to.

        Raises
        ------
        GraphError
            When a stage is larger or longer than the site allows, or has an option that the site does not know.
        """
        default = site
        for name, node in self.nodes.items():
            needs = node.stage.needs
            try:
                site, found = default.for_jobs(needs.options), alternatives(needs.options)
                if len(found) > 1 and default.apart is not None:
                    asked = AskedJob(_resources(needs, site), needs.walltime_s)
                    why = [misfit(asked, default.for_jobs(each), "queue", spreads=True) for each in found]
                    if all(why):
                        raise InvalidInput(f"it fits none of its queues: {'; '.join(filter(None, why))}")
                    continue
            except AsaError as error:
                raise GraphError(f"stage {name!r}: {error}") from error
            by = f"; {site.bounds}" if site.bounds else ""
            if site.largest is not None and not needs.resources.fits(site.largest):
                pretend = f"pretend with 'local:{_pretended(needs.resources, site.largest)}'"
                raise GraphError(
                    f"stage {name!r} asks for {needs.resources}, more than {site.site} ever gives to one job "
                    f"({site.largest}{by}): lower the stage's needs, or "
                    + (pretend if site.site == "local" else "choose a larger machine")
                )
            share, most = node.stage.needs.task.gpus, site.gpus_per_node
            if most is not None and share > most and not needs.launcher and site.regime is not QueueRegime.IMMEDIATE:
                raise GraphError(
                    f"a task of stage {name!r} needs {share} GPUs on one node, and nodes of {site.site} have {most} at "
                    "most: lower gpus=, or raise cores= for more tasks at once"
                )
            if site.longest_s is not None and needs.walltime_s > site.longest_s:
                raise GraphError(
                    f"stage {name!r} asks for a wall time of {brief(needs.walltime_s)}, more than the "
                    f"{brief(site.longest_s)} that {site.site} allows{by}: lower walltime="
                )

    def outputs(self, workdir: str | None = None) -> Outputs:
        """Files that programs are going to write, as far as that is known.

        Raises
        ------
        GraphError
            When two tasks, of which neither waits for the other, would write one.
        """
        found = Outputs(self.predecessors, workdir)
        for name, node in self.nodes.items():
            for index in range(self.widths[name] or 0) if writes(node) else ():
                found.add(name, index, written_by(node, index) or ())
        return found

    def tells_outputs(self, name: str) -> bool:
        """Whether it is known before anything runs which files a stage is going to write."""
        node, width = self.nodes[name], self.widths[name]
        return not writes(node) or (width is not None and all(written_by(node, each) for each in range(width)))

    def cautions(self) -> list[str]:
        """What is allowed, and seldom meant."""
        idle = {}
        for name, node in self.nodes.items():
            needs = node.stage.needs
            alone = self.widths[name] == 1 and not (needs.launcher or needs.widths)
            if alone and needs.resources.cores > needs.task.cores:
                idle[name] = needs
        if not idle:
            return []
        name, needs = next(iter(idle.items()))
        cores, own = needs.resources.cores, needs.task.cores
        others = f"; likewise {', '.join([*idle][1:])}" if len(idle) > 1 else ""
        return [
            f"stage {name!r}: cores={cores} with one task of {own} leaves {cores - own} idle: say task_cores={cores} "
            f"where the task itself uses them, or give it more tasks with .map{others}"
        ]

    def __str__(self) -> str:
        return self.described(Capabilities(site=""))

    def described(self, site: Capabilities) -> str:
        """A line for each stage: its tasks, what its job asks for there and is charged for, and what it waits for."""
        rows = []
        specs = {spec.name: spec for spec in self.specs(site)}
        for name, node in self.nodes.items():
            needs, width = node.stage.needs, self.width(name)
            about = "" if needs.expect is None else f", about {needs.expect}"
            tasks = f"tasks known at run time{about}" if width is None else f"{width} task{'s' * (width != 1)}"
            if node.mapped and width != 1 and not needs.launcher:
                tasks += f", {specs[name].resources.cores // needs.task.cores} at a time"
            if needs.expands:
                tasks += f", may add stages{f', about {needs.expect} like it' * (needs.expect is not None)}"
            after = f"  after {', '.join(self.predecessors[name])}" if self.predecessors[name] else ""
            asked, ranks = _asked(needs, site.for_jobs(needs.options), specs[name].resources), _ranks(node.stage)
            where = "".join(f", {option} {value}".rstrip() for option, value in needs.options if option != SETUP)
            rows.append(f"{name}: {tasks}, {asked}, {ranks}{brief(needs.walltime_s)}{where}{after}")
        return "\n".join(rows)

    def _repr_html_(self) -> str | None:
        from asa.report.notebook import graph_svg

        nodes = {}
        for name, node in self.nodes.items():
            cores, width = node.stage.needs.resources.cores, self.widths[name]
            tasks = f"{'?' if width is None else width} × " if node.mapped else ""
            nodes[name] = (f"{name}\n{tasks}{cores} core{'s' * (cores != 1)}", node.mapped)
        return graph_svg(nodes, [(before, name) for name, befores in self.predecessors.items() for before in befores])

    def to_dot(self) -> str:
        """The graph in Graphviz's language; parallel stages are drawn as stacks."""
        lines = ["digraph workflow {", "  rankdir=LR; node [shape=box, style=rounded];"]
        for name, node in self.nodes.items():
            shape = ', shape=box3d, style=""' if node.mapped else ""
            cores = node.stage.needs.resources.cores
            lines.append(f'  "{name}" [label="{name}\\n{cores} core{"s" * (cores != 1)}"{shape}];')
        lines += [f'  "{before}" -> "{name}";' for name, befores in self.predecessors.items() for before in befores]
        return "\n".join([*lines, "}"])


class AskedJob(NamedTuple):
    """A stage's job."""

    resources: Resources
    walltime_s: float


def _resources(needs: Needs, site: Capabilities) -> Resources:
    """What a stage's job asks for there: a machine without a queue is one node; GPUs have their cores beside them."""
    whole = replace(needs.resources, options=needs.options if site.apart is not None else ())
    if whole.nodes is not None or site.regime is QueueRegime.IMMEDIATE:
        return whole
    if needs.spread == PACK or whole.gpus:
        return whole.packed(site.cores_per_node, needs.task.cores, site.gpus_per_node)
    return replace(whole, unit=needs.task.cores)


def _pretended(needs: Resources, most: Resources) -> str:
    """Options of the local backend with which it gives that much."""
    options = [f"cores={max(needs.cores, most.cores)}"]
    if needs.memory is not None and most.memory is not None and needs.memory > most.memory:
        options.append(f"memory={-(-needs.memory >> 20)}M")
    if needs.gpus > most.gpus:
        options.append(f"gpus={needs.gpus}")
    return ",".join(options)


def _bent(node: Node, spec: StageSpec, site: Capabilities) -> StageSpec:
    """A stage with the sizes that it may have there, if several; it is as wide as the narrowest of them until then."""
    if not node.stage.needs.widths:
        return spec
    from asa.core.width import ASSUMED, DECLARED, UNKNOWN, stretched, time_on

    needs, site = node.stage.needs, site.for_jobs(node.stage.needs.options)
    least, widths = needs.resources, list[Width]()
    wide = bool(needs.launcher) or not node.mapped
    for cores in needs.widths:
        memory = least.memory if wide or least.memory is None else least.memory * cores // least.cores
        size = Resources(cores, None, memory)
        made = replace(needs, resources=size, task=size if wide and not needs.launcher else needs.task)
        whole, task = _resources(made, site), _task(made, site)
        alone = math.inf if needs.launcher or site.cores_per_node is None else site.cores_per_node
        if widths and (task.cores > alone or not (site.largest is None or whole.fits(site.largest))):
            break
        widths.append(Width(whole, task, spec.walltime_s, spec.run_time_s))
    speedup = (ASSUMED if needs.speedup is None else needs.speedup) if wide else 1.0
    times = [time_on(width.resources.cores, speedup) for width in widths]
    known = "" if not wide else UNKNOWN if needs.speedup is None else DECLARED
    several = stretched(widths, times) if len(widths) > 1 else ()
    return replace(spec, resources=widths[0].resources, task=widths[0].task, widths=several, speedup=known)


def _total_s(node: Node) -> float | None:
    """How long a task with checkpoints is expected to run in all [s], where that was said."""
    needs = node.stage.needs
    return float(needs.run_time) if needs.checkpoint and isinstance(needs.run_time, int | float) else None


def _most(node: Node, width: int | None, site: Capabilities) -> int:
    """How many tasks the site's largest job holds, where nothing is said of how large the stage's is to be, and where
    its number of tasks is expected or, on a machine without a queue, it is mapped; else 0."""
    needs = node.stage.needs
    whole, task, there = _resources(needs, site), needs.task, site.largest
    if needs.expands or needs.sized or needs.launcher or whole.nodes:
        return 0
    mine = site.regime is QueueRegime.IMMEDIATE and node.mapped and there is not None
    if not mine and (width is not None or needs.expect is None):
        return 0
    if there is None:
        return needs.expect or 0
    found = there.cores // task.cores
    if task.memory and there.memory is not None:
        found = min(found, there.memory // task.memory)
    return min(found, there.gpus // task.gpus) if task.gpus else found


def _likely(width: int | None, expect: int | None) -> int:
    """How many tasks a stage is taken to have: as many as it may, where nothing is known."""
    return width if width is not None else sys.maxsize if expect is None else expect


def _asked(needs: Needs, site: Capabilities, asked: Resources) -> str:
    """What a stage's job asks for, and is charged for."""
    if needs.widths:
        return f"{', '.join(map(str, needs.widths[:-1]))} or {needs.widths[-1]} cores"
    packs = needs.spread == PACK and asked.nodes is None and asked.cores > 1
    return f"{asked}{' on as few nodes as hold them' * packs} (charged {site.charged(asked)})"


def _task(needs: Needs, site: Capabilities) -> Resources:
    """What one task holds: with a launcher the stage's all, on as many nodes, unless the site is a single machine."""
    if not needs.launcher:
        return replace(needs.task, options=needs.options if site.apart is not None else ())
    whole = _resources(needs, site)
    return replace(whole, nodes=None) if site.regime is QueueRegime.IMMEDIATE else whole


def _ranks(stage: Stage[..., Any]) -> str:
    if (launch := stage.launch) is None:
        return ""
    nodes = stage.needs.resources.nodes
    over = "" if nodes is None else f" on {nodes} node{'s' * (nodes != 1)}"
    return f"{launch.ranks} rank{'s' * (launch.ranks != 1)}{over} by {launch.kind}, "


def make_graph(result: Any) -> Graph:
    """The graph that leads to `result`; `result` where that is one already.

    Stages are named as they are met. What is to be the same graph in another process, where a set has another order, is
    therefore sent as a graph.

    Raises
    ------
    GraphError
        When there is no node in `result`, the nodes wait for each other in a circle, a stage is mapped over lists of
        different lengths, a structure of its arguments cannot be made anew with results in it, or two tasks would write
        one file.
    """
    if isinstance(result, Graph):
        return result
    if not (results := nodes_in(result)):
        raise GraphError(
            f"{result!r} is not a workflow: it contains no call of a stage. Decorate a function with @asa.stage, call "
            "it, and pass what the call returns"
        )
    order = topological(results)
    names: dict[Node, str] = {}
    used: dict[str, int] = {}
    for node in order:
        used[node.stage.name] = count = used.get(node.stage.name, 0) + 1
        names[node] = node.stage.name if count == 1 else f"{node.stage.name}-{count}"
    graph = _graph(result, order, names)
    graph.outputs()
    return graph


_SCOPE_MOST = 200
"""Where a name is so long, stages that a task adds are named after its stage, without its number [characters]."""


def _graph(result: Any, order: list[Node], names: dict[Node, str]) -> Graph:
    return Graph(
        result=result,
        nodes={names[node]: node for node in order},
        names=names,
        predecessors={names[node]: tuple(dict.fromkeys(names[other] for other in _inputs(node))) for node in order},
        widths=_widths(order, names),
    )


def _widths(order: list[Node], names: dict[Node, str]) -> dict[str, int | None]:
    widths: dict[str, int | None] = {}
    for node in order:
        found: set[int | None] = {1}
        if node.mapped:
            found = {_length(item, widths, names) for item in node.args}
        if len(known := sorted(width for width in found if width is not None)) > 1:
            raise GraphError(f"stage {names[node]!r} maps over lists of different lengths: {known}")
        # An empty list makes no task, so that no task would notice that another list is longer.
        widths[names[node]] = known[0] if known and (known != [0] or None not in found) else None
    return widths


def _length(item: list[Any] | Node, widths: dict[str, int | None], names: dict[Node, str]) -> int | None:
    if isinstance(item, Node):
        return widths[names[item]] if item.mapped else None
    return len(item)


def _inputs(node: Node) -> list[Node]:
    try:
        return [*nodes_in((node.args, node.kwargs)), *node.predecessors]
    except InvalidInput as error:
        raise GraphError(f"stage {node.stage.name!r}: {error}") from error


def topological(results: list[Node]) -> list[Node]:
    """Nodes before what needs them, first mentioned first; iterative, so that long chains do not end in recursion."""
    order: list[Node] = []
    done: set[Node] = set()
    on_path: dict[Node, None] = {}
    work: list[tuple[Node, Iterator[Node]]] = []

    def enter(node: Node) -> None:
        on_path[node] = None
        work.append((node, iter(_inputs(node))))

    for result in results:
        if result not in done:
            enter(result)
        while work:
            node, inputs = work[-1]
            for other in inputs:
                if other in on_path:
                    path = [*on_path][[*on_path].index(other) :]
                    circle = " -> ".join(item.stage.name for item in [*path, other])
                    raise GraphError(f"the workflow has a cycle, so it could never start: {circle}")
                if other not in done:
                    enter(other)
                    break
            else:
                work.pop()
                del on_path[node]
                done.add(node)
                order.append(node)
    return order
