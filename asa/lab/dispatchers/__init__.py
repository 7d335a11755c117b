"""Dispatchers: which queued jobs start now. Each is a pure function of a `QueueView`."""
