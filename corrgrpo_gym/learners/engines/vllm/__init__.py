"""Sampling with vLLM: in this process (`local`), or in a server of its own (`server`, started by `serve`)."""
