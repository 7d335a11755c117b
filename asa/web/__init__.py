"""HTTP/1.1, served by whatever part of ASA listens: master, agents, dashboard.

::

    Listener, Connection (server.py)   accepts connections, limits those that have not authenticated; answers requests
      RequestReader (protocol.py)        what a connection receives: a state machine without I/O, and its table
      ResponseStream                     a response without end; `Heartbeats` keep it alive
    LoopThread (loop_thread.py)        an event loop in a thread of its own, in which a server runs
    hosts.py                           names and addresses of this machine; is a request meant for it?
    errors.py                          requests that are refused, with their HTTP status

Nothing here knows what is served.
"""
