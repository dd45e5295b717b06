"""Recorded decisions against another policy: what would change."""
