"""The token estimate as all control planes learn it together: from the access log, through etcd, to the filters.

`learning` computes; here its statistics are kept, shared, and turned into the calibrations that routing tables carry.
"""
