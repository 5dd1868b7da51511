"""A sweep on a Ray cluster of two nodes on this machine; one node is lost while it works."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from waiting import is_written, wait_until

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.jobs, pytest.mark.timeout(300)]

from ray.cluster_utils import Cluster  # noqa: E402

from profiler_kit.errors import UsageError  # noqa: E402
from profiler_kit.pipeline.sweep import JOURNAL, SweepOptions, run_sweep  # noqa: E402

NET = """
import time
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        time.sleep(1)
        self.fc = torch.nn.Linear(4, WIDTH)
    def forward(self, x):
        return self.fc(x)
example_inputs = torch.ones(2, 4)
"""
COUNT = 6


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    # the workers import this checkout
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_tasks_of_a_lost_node_run_again_and_the_result_says_so(cluster: Any, tmp_path: Path) -> None:
    nodes, second = cluster
    names = []
    for width in range(1, COUNT + 1):
        file = tmp_path / f"net{width}.py"
        file.write_text(NET.replace("WIDTH", str(width)))
        names.append(str(file))
    out = tmp_path / "out"

    def lose_a_node() -> None:
        wait_until(lambda: is_written(out / JOURNAL))
        time.sleep(1.0)  # both nodes are in their next task
        nodes.remove_node(second, allow_graceful=False)

    thread = threading.Thread(target=lose_a_node)
    thread.start()
    options = SweepOptions(verb="count", engine="ray", ray_address=nodes.address)
    sweep, interrupted = run_sweep(names, out, options)
    thread.join()
    assert not interrupted
    assert [result.failure for result in sweep.results] == [""] * COUNT
    assert [result.params for result in sweep.results] == [5 * width for width in range(1, COUNT + 1)]
    keys = [json.loads(line)["task"]["model"] for line in (out / JOURNAL).read_text().splitlines()]
    assert sorted(keys) == names
    again = [result for result in sweep.results if result.attempts > 1]
    assert again
    assert "started again because their worker was lost" in sweep.notes[0]
    assert len({result.place for result in sweep.results}) == 2


def test_a_model_that_fails_is_not_tried_again(cluster: Any, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import torch\nclass Net(torch.nn.Module):\n    def __init__(self): raise OSError('gone')\n")
    options = SweepOptions(verb="count", engine="ray", ray_address=cluster[0].address)
    sweep, _ = run_sweep([str(file)], tmp_path / "out", options)
    (result,) = sweep.results
    assert "gone" in result.failure
    assert result.attempts == 1
    options = SweepOptions(engine="ray", ray_address=cluster[0].address, devices=("cuda",))
    with pytest.raises(UsageError, match="has no GPU"):
        run_sweep([str(file)], tmp_path / "out", options)
