"""LeetCode: seven rewards for one program, on the published data or an embedded problem family."""
