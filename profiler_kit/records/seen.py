"""What a run of a program showed about its model: evidence for later loads of the same file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenModel:
    """A model that a program trained or called.

    - `class_name`: its class. `params`: the number of its parameters.
    - `built_at`: the places of the calls that built it, ``/home/me/train.py:41``, the innermost first.
    """

    class_name: str
    params: int
    built_at: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRun:
    """A program that ran, and what its steps did. Texts are those of the options that would state the same.

    - `program`: the full path of the script. `digest`: of its content, as `file_digest` computes it. `arguments`: those of the
      command line.
    - `inputs`: the inputs of the only model as texts of ``-i``; empty if these cannot describe them, or for several models.
    - `mode`: ``train`` or ``infer``. `loss`, `optimizer`: names of ``--loss`` and ``--optimizer``; None if none of them fits.
      `amp`: the type of autocast.
    """

    program: str
    digest: str
    arguments: tuple[str, ...]
    models: tuple[SeenModel, ...]
    inputs: tuple[str, ...]
    mode: str
    loss: str | None = None
    optimizer: str | None = None
    amp: str | None = None


def file_digest(content: bytes) -> str:
    """The digest of the `content` of a program."""
    import hashlib

    return hashlib.sha256(content).hexdigest()
