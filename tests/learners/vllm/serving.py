"""Starting and stopping `corrgrpo-gym serve`."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("corrgrpo-gym"))


def serve(model, log, *more):
    """Start a server; returns the process and its URL once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        COMMAND, "serve", "--model", str(model), "--port", str(port), "--dtype", "float32", "--enforce-eager",
        "--kv-cache-memory-bytes", str(2**28), *more,
    ]  # fmt: skip
    environment = os.environ | {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return process, url
        except OSError:
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.5)


def stop(process):
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
