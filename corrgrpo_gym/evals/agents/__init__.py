"""Agents under attack: tools whose results hold instructions that the user did not give."""
