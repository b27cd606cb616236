"""What the tests run on a Ray cluster, apart from them because every worker imports it."""

import json
import os
import signal
import time
from pathlib import Path


def dies_once(number: int, folder: str) -> list[dict[str, object]]:
    """Two rows. 0 and 1 wait for each other, so that both machines work; the first attempt at 3
    kills its worker.
    """
    import ray

    attempt = Path(folder) / f"{number}.{os.getpid()}"
    facts = {"node": ray.get_runtime_context().get_node_id(), "folder": str(Path.cwd())}
    attempt.write_text(json.dumps({**facts, "slurm": "SLURM_NTASKS" in os.environ}))
    while number < 2 and not list(Path(folder).glob(f"{1 - number}.*")):
        time.sleep(0.05)
    if number == 3 and list(Path(folder).glob("3.*")) == [attempt]:
        os.kill(os.getpid(), signal.SIGKILL)
    return [{"power": power, "value": number**power} for power in (1, 2)]


def fails(number: int) -> list[dict[str, object]]:
    raise ValueError(f"{number} is no number")


def dies(folder: str) -> list[dict[str, object]]:
    import ray

    (Path(folder) / "gpus").write_text(
        ",".join(ray.get_runtime_context().get_accelerator_ids()["GPU"])
    )
    os.kill(os.getpid(), signal.SIGKILL)
    return []
