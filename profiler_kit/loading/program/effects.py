"""Statements that must not run: training, data sets, downloads, processes, files. Recognized in the syntax tree.

This saves time and gives the reason for a skipped statement. `side_effects` stops every other act.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final

from profiler_kit.loading.program.imports import origin_of
from profiler_kit.loading.program.names import FunctionNode, all_nodes, argument, walk_scope

TRAINING, DATA, DOWNLOAD = "training loop", "data set", "download"
FILES, PROCESSES, DISPLAY = "file output", "processes", "display"
_BY_WEIGHT: Final = (TRAINING, DATA, DOWNLOAD, PROCESSES, FILES, DISPLAY)

_TRAINING_METHODS: Final = {"backward", "fit", "train_on_batch", "zero_grad"}
_LOADER: Final = re.compile(r"(loader|data_?set|batches|corpus)s?$", re.IGNORECASE)
_DATA_MODULES: Final = (
    "torchvision.datasets", "torchaudio.datasets", "torchtext.datasets", "torchtext.data", "torchtext.legacy",
    "torch_geometric.datasets", "datasets.load_dataset", "sklearn.datasets.fetch", "tensorflow.keras.datasets",
    "keras.datasets", "pandas.read_", "numpy.loadtxt", "numpy.genfromtxt",
)  # fmt: skip
_DOWNLOADS: Final = (
    "urllib.request", "requests.", "wget.", "gdown.", "huggingface_hub.", "torch.hub.load", "torch.hub.download_url_to_file",
)  # fmt: skip
_FILES: Final = (
    "torch.save", "os.makedirs", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.", "torchvision.utils.save_image",
    "torch.utils.tensorboard.SummaryWriter", "tensorboardX.", "wandb.", "logging.FileHandler", "torch.onnx.export",
    "numpy.save", "json.dump", "pickle.dump", "yaml.dump", "mlflow.", "neptune.", "cv2.imwrite",
)  # fmt: skip
_PROCESSES: Final = (
    "subprocess.", "os.system", "os.popen", "os.fork", "os.exec", "os.spawn", "multiprocessing.", "torch.multiprocessing.",
    "torch.distributed.init_process_group", "torch.distributed.launch", "accelerate.Accelerator", "ray.",
)  # fmt: skip
_DISPLAY: Final = ("matplotlib.pyplot.", "cv2.imshow", "cv2.waitKey", "visdom.", "IPython.display")
_CALLS: Final = (
    (DATA, _DATA_MODULES),
    (DOWNLOAD, _DOWNLOADS),
    (FILES, _FILES),
    (PROCESSES, _PROCESSES),
    (DISPLAY, _DISPLAY),
)


def effect_of(statement: ast.AST, origins: Mapping[str, str], functions: Mapping[str, str] = {}) -> str | None:
    """Why `statement` must not run, such as `TRAINING`; None for a harmless statement.

    `functions` are the document's functions that must not run, with the reason.
    """
    reasons: set[str | None] = set()
    for node in walk_scope(statement):
        if isinstance(node, (ast.For, ast.AsyncFor)) and any(
            isinstance(name, ast.Name) and _LOADER.search(name.id) for name in all_nodes(node.iter)
        ):
            reasons.add(TRAINING)
        elif isinstance(node, ast.Call):
            reasons.add(_effect_of_call(node, origins, functions))
    return next((reason for reason in _BY_WEIGHT if reason in reasons), None)


def _effect_of_call(call: ast.Call, origins: Mapping[str, str], functions: Mapping[str, str]) -> str | None:
    if isinstance(call.func, ast.Name) and call.func.id in functions:
        return functions[call.func.id]
    if isinstance(call.func, ast.Attribute) and call.func.attr in _TRAINING_METHODS:
        return TRAINING
    if getattr(argument(call, "download"), "value", None) is True:
        return DATA
    origin = origin_of(call.func, origins)
    if origin is None:
        return None
    for reason, prefixes in _CALLS:
        if origin.startswith(prefixes):
            return reason
    if origin == "open" and _writes(argument(call, "mode", 1)):
        return FILES
    return None


def _writes(mode: ast.expr | None) -> bool:
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(set("wax+") & set(mode.value))


def functions_with_effects(functions: Mapping[str, FunctionNode], origins: Mapping[str, str]) -> dict[str, str]:
    """The functions that must not run, with the reason: their bodies do it, or call a function that does."""
    reasons: dict[str, str] = {}
    changed = True
    while changed:
        changed = False
        for name, function in functions.items():
            if name in reasons:
                continue
            for statement in function.body:
                reason = effect_of(statement, origins, reasons)
                if reason in (TRAINING, DATA, PROCESSES):
                    reasons[name] = reason
                    changed = True
                    break
    return reasons
