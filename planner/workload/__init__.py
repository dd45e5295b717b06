"""What a fleet is asked for: requests with arrival times and tokens, from traces, our own ledger or distributions."""
