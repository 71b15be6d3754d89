"""AgentDojo: an agent with tools, a user's task, and instructions injected in what the tools say."""

from .env import AgentDojoEnv

__all__ = ["AgentDojoEnv"]
