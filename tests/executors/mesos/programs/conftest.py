# Programs for processes of their own: importing pymesos would change how this one takes signals.
collect_ignore_glob = ["pymesos_*.py"]
