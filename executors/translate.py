"""Between the words of the port (tasks, events) and those of the wire (orders, outcomes)."""

from __future__ import annotations

from asa.core.event import Event, TaskDone, TaskFailed
from asa.core.task import Task
from executors.wire import Order, Outcome


def order(task: Task, ticket: int, spanning: bool) -> Order:
    """A task as it travels; unless `spanning`, all it needs is on one node, whatever it says of nodes."""
    nodes = (task.resources.nodes or 1) if spanning else 1
    each = task.resources.on_each(nodes)
    return Order(
        ticket,
        task.stage,
        task.index,
        task.function,
        task.arguments,
        task.inputs,
        each.cores,
        each.memory or 0,
        each.gpus,
        nodes,
        task.launch,
    )


def event(order: Order, outcome: Outcome, allocation: str, node: str) -> Event:
    """What became of an order, as an event at the time [s since the epoch] that its node says."""
    stage, index, value = order.stage, order.number, outcome.value
    if value is None:
        return TaskFailed(
            outcome.ended, stage, index, allocation, node, outcome.started,
            outcome.error, outcome.traceback, outcome.stderr, outcome.infrastructure,
        )  # fmt: skip
    data, path = (value, None) if isinstance(value, bytes) else (None, value)
    return TaskDone(outcome.ended, stage, index, allocation, node, outcome.started, data, path)


def lost(order: Order, allocation: str, node: str, reason: str, now: float) -> TaskFailed:
    """An order went with its node, which is not its fault."""
    error = f"node {node} was lost: {reason}"
    return TaskFailed(now, order.stage, order.number, allocation, node, now, error, infrastructure=True)
