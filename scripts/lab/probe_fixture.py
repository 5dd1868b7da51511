"""Reduce a file of probe_scratch.py to the points that test the workspace rules.

    python -m scripts.lab.probe_fixture scratch.json.gz tests/fixtures/scratch/points.json.gz

A point is a call and its temporary bytes in the steady state. A convolution is [ordinal, held out, tuned, sizes, bytes of
forward, input gradient, weight gradient and backward]. Another op is one point per set of arguments: [name, arguments,
keywords, bytes, bytes of growth]. A recurrent layer is identified by its parameters.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any, Final

PASSES: Final = ("forward", "dgrad", "wgrad", "backward")
RECURRENT: Final = ("_cudnn_rnn", "_cudnn_rnn_backward")
# Ops with a rule, and pointwise ops that must not have one.
OPS: Final = frozenset(
    (
        "sum", "mean", "prod", "linalg_vector_norm", "amax", "any", "argmax", "max", "var", "std", "logsumexp",
        "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm", "native_layer_norm_backward",
        "native_group_norm", "native_group_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward",
        "native_batch_norm", "native_batch_norm_backward", "mse_loss", "smooth_l1_loss", "huber_loss",
        "binary_cross_entropy_with_logits", "embedding_dense_backward", "_embedding_bag_backward", "index_put", "sort",
        "median", "randperm", "multinomial", "topk", "roll", "_safe_softmax",
        "_scaled_dot_product_cudnn_attention_backward", "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward", "mm", "addmm", "bmm",
        "baddbmm", "add", "mul", "relu", "gelu", "threshold_backward", "gelu_backward", "_softmax", "_log_softmax",
        "nll_loss_forward", "nll_loss_backward", "max_pool2d_with_indices_backward", "native_dropout", "cat",
        "embedding", "index", "gather", "scatter_add", "silu", "tanh", "sigmoid",
    )
)  # fmt: skip


def points_of(measured: dict[str, Any]) -> dict[str, Any]:
    """The points of one run of the probe."""
    convolutions, ops, recurrent = [], {}, {}
    for row in measured["rows"]:
        if "conv" in row:
            pass_figures = [_steady(row["is"].get(pass_name)) for pass_name in PASSES]
            convolutions.append(
                [row["i"], row["group"] == "held_out", row["group"] == "tuned", row["conv"], *pass_figures]
            )
            continue
        for op in row["is"].get("ops", []):
            name, (arguments, *keyword_arguments), figures = op[2].partition(".")[0], op[3], op[4]
            keywords = keyword_arguments[0] if keyword_arguments else {}
            bytes_taken, growth = figures[0] - figures[1], figures[1]
            if name in RECURRENT:
                key = [name, row["parameters"], _rows_of(arguments[0])]
                recurrent[json.dumps(key)] = [*key, bytes_taken]
            elif name in OPS:
                key = [name, arguments, keywords]
                ops[json.dumps(key)] = [*key, bytes_taken, growth]
    about = {name: measured[name] for name in ("device", "torch", "cuda", "cudnn")}
    return {**about, "convolutions": convolutions, "ops": list(ops.values()), "recurrent": list(recurrent.values())}


def _steady(pass_figures: dict[str, Any] | None) -> int | None:
    if not pass_figures or "error" in pass_figures:
        return None
    figures = pass_figures.get("steady") or pass_figures["first"]
    return int(figures[0] - figures[1])


def _rows_of(described: str | list[str]) -> int:
    sizes = (described if isinstance(described, str) else described[0]).partition(":")[0].split("x")
    return int(sizes[0]) * (int(sizes[1]) if len(sizes) == 3 else 1)


def main() -> None:
    """Read the measurements and write the points."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("points", type=Path)
    options = parser.parse_args()
    points = points_of(json.loads(gzip.decompress(options.measured.read_bytes())))
    options.points.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(points, separators=(",", ":")).encode()
    options.points.write_bytes(gzip.compress(data, 9, mtime=0))
    counts = ", ".join(f"{len(points[kind])} {kind}" for kind in ("convolutions", "ops", "recurrent"))
    print(f"{counts}; {options.points.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
