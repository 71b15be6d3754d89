"""Benchmarks of tool calls: RLLA, API-Bank, BFCL."""
