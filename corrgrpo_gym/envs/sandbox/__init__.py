"""A sandbox for programs that a model wrote, and verdicts that they cannot forge."""

from .job import CodeJob, SandboxError, SandboxUnavailable, Verdict
from .pool import Sandbox, make_sandbox

__all__ = ["CodeJob", "Sandbox", "SandboxError", "SandboxUnavailable", "Verdict", "make_sandbox"]
