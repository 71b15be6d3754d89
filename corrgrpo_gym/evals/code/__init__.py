"""Benchmarks whose answers are programs: LeetCodeDataset, HumanEval, MBPP, LiveCodeBench."""
