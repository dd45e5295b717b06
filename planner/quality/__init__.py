"""The measured quality gap between format tiers: the same requests answered by both, compared, and told in numbers.

`sample` and `prompts` hold requests, `asking` makes of them what is sent, `judging` has the system explain them,
`sending` sends, `measuring` runs it all; `answers`, `pairs`, `measured`, `statistics` and `summary` make numbers of it;
`comparing`, `conclusion` and `advice` judge these, all without I/O; `report`, `terminal` and `plot` show it.
"""
