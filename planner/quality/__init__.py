"""The measured quality gap between format tiers: the same requests answered by both, compared, and told in numbers.

`sample` and `prompts` hold requests, `asking` makes of them what is sent, `judging` has the system explain them,
`sending` sends, `measuring` runs it all; `answers`, `pairs`, `measured`, `statistics`, `summary` and `advice` make
numbers of it and do no I/O; `report`, `terminal` and `plot` show them.
"""
