"""The queue in virtual time: one engine that runs to the next decision, and takes it.

::

    settings     how a machine behaves, and the order of its queue
    state        the tables; a workload becomes tables, tables become a schedule
    limits       what bounds jobs by their QOS, accounts and users, as tables
    loop         compiled: calendar, queue, nodes, jobs, and the loop with a backfilling rule
    engine       `Engine`: advance, view, apply
    operations   what users do to their jobs on the way
    run          `simulate`: a dispatcher decides, from the first job to the last
    decisions    decisions of a simulation, saved
"""
