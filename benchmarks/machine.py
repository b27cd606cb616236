"""The line that every table of results begins with."""

import platform
from pathlib import Path

import torch


def describe_machine():
    """Name the processor or GPU and the versions that a figure was measured with."""
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        version = f"CUDA {torch.version.cuda}"
    else:
        models = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        name = f"{models[0] if models else platform.processor()}, {torch.get_num_threads()} threads"
        version = platform.machine()
    return f"{name}; PyTorch {torch.__version__}, {version}, Python {platform.python_version()}"
