"""Who may read and who may connect: 0600 files, per-run certificates, unguessable names."""
