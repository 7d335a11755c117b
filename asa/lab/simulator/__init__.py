"""The queue in virtual time: one engine that runs to the next decision, and takes it.

::

    settings      how a machine behaves               priority     the order of its queue
    load          a workload becomes tables           result       tables become a schedule
    engine        `Engine`: advance, view, apply      edits        what users do to their jobs on the way
    learning      predictors of run times             replay       the log in words, and what follows from it
    served        an engine and a dispatcher          run          `simulate`: both, from the first job to the last
    validate      laws that schedules keep; knows nothing of the engine

Compiled, from the tables up, each calling those before it::

    state         the tables, and the codes in them
    heap          the calendar as a heap              waitlist     who waits, and what holds whom back
    nodes         what nodes have left, who holds it  machine      jobs are submitted, start, end, wait again
    calendar      time passes to the next decision    drive        and a backfilling rule decides
"""
