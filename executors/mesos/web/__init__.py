"""HTTP, as master and agent serve it: requests come in, answers and streams go out.

::

    Door (door.py)            the listening socket, and who may stay that has not said who it is
      Connection (serving.py)   takes requests apart, answers them in order; `http` has requests and answers
        Access (access.py)        whose token it is, and what for
        request.py                methods, content types, refusals
        Stream (streams.py)       an answer without end, and its heartbeats

`limits` has how much a peer may ask for. Nothing here knows of the two machines.
"""
