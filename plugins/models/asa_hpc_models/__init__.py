"""Networks for the dispatchers `dras-pg` and `dras-dql` on Theta's 4,392 nodes, named in the group ``asa.models``.

Beside each safetensors file, a JSON file has the command that trained it, its plan and its validation curve.
"""

from pathlib import Path

THETA_DQL = Path(__file__).with_name("theta-dql.safetensors")
THETA_PG = Path(__file__).with_name("theta-pg.safetensors")
