"""Which files a request may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.errors import USAGE, UsageError
from profiler_kit.mcp_server.access import Access


@pytest.fixture
def access(tmp_path: Path) -> Access:
    """Access to `project` and `traces`, with links out of them to files of the folder `outside`."""
    for name in ("project/traces", "project/run", "traces", "outside"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("project/net.py", "traces/a.json", "outside/secret.json", "outside/b.json.gz"):
        (tmp_path / name).touch()
    (tmp_path / "project" / "link.json").symlink_to(tmp_path / "outside" / "secret.json")
    (tmp_path / "project" / "run" / "rank0.json.gz").symlink_to(tmp_path / "outside" / "b.json.gz")
    (tmp_path / "project" / "inside.json").symlink_to(tmp_path / "traces" / "a.json")
    return Access(roots=(tmp_path / "project", tmp_path / "traces"))


@pytest.mark.parametrize(
    "text",
    [
        "net.py", "net.py:Net", "net.py:build", "HEAD:net.py", "main..HEAD", "./net.py", "traces",
        "inside.json", "pkg.nets:build", "timm:resnet50", "ids=8,128:int64[0:50257]", "8,3,224,224",
        "scale:=0.5", "config=Config(n_layer=2)", "flops=+10%", "-", "params@encoder.*=20M", "../traces/a.json",
        "not there.py", "x" * 5000, "a\0b",
    ],
)  # fmt: skip
def test_names_and_values_are_no_paths(text: str, access: Access) -> None:
    access.require(text)


@pytest.mark.parametrize(
    "text",
    [
        "..", "../outside/secret.json", "/etc/passwd", "/", "/dev/stdin", "link.json", "run", "HEAD:../outside/net.py",
        "hf:../outside", "hf:~", "~/x.py", "x=/etc/passwd", "../outside/inputs.py:f", "net.py:../../outside",
        "none/../../outside",
    ],
)  # fmt: skip
def test_a_path_outside_is_refused(text: str, access: Access) -> None:
    with pytest.raises(UsageError) as refused:
        access.require(text)
    assert refused.value.exit_code == USAGE
    assert refused.value.where in (text, *text.split(":"), *text.split("="))
    assert "--root" in str(refused.value.hint)


def test_all_of_a_folder_without_links_out_of_it_can_be_read(access: Access) -> None:
    (access.roots[0] / "run" / "rank0.json.gz").unlink()
    access.require("run")
    (access.roots[0] / "run" / "deeper").symlink_to(access.roots[0])
    access.require("run")
