"""Networks that ASA's laboratory finds by their names in the group ``asa.models``: `theta-pg` and `theta-dql` for the
dispatchers `dras-pg` and `dras-dql` on Theta's 4,392 nodes, `nsa` for the placement method of that name.

Beside each safetensors file, a JSON file has the command that trained it, its plan and its validation curve.
"""

from pathlib import Path

NSA = Path(__file__).with_name("nsa.safetensors")
THETA_DQL = Path(__file__).with_name("theta-dql.safetensors")
THETA_PG = Path(__file__).with_name("theta-pg.safetensors")
