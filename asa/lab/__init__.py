"""The laboratory: simulated queues, traces, dispatchers, placement, forecasts, and the experiments of the papers."""
