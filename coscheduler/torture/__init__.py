"""The whole system under seeded faults: drivers, hubs, supervisors and logs on simulated machines (`asa torture`)."""
