"""How many engines a workload needs, by formulas: the closed form of token-budget routing, and queueing by pool."""
