"""The side of the sandbox that runs inside the jail, with untrusted code: standard library only."""
