"""Other libraries' ways to hand work over, and to take results away."""
