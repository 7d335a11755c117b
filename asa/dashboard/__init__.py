"""The live page: what happens in a run, from its event log, in a browser (`asa dashboard`) or a terminal (`asa top`).

::

    log ──> Feed ──> RunModel (or QueueModel) ──> document: tables of rows, JSON-able
                                                    │ difference(before, after)
                                                    └──> Stream, one for each viewer ──> the page's scripts

The page at a time is the replay of the events up to it, for a run that goes on, has ended or was simulated alike.
"""
