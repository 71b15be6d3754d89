"""An office with a mailbox, some of whose messages hold instructions that the user did not give."""

from .env import AgentEnv

__all__ = ["AgentEnv"]
