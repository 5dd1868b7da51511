"""The lines of Python that apply a configuration in a training script, by the place where they belong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profiler_kit.configurations.naming import FLAG_CHANGES, change_of
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.tuning import CodeBlock, Place

_AUTOCAST: Final = {"amp_bf16": "bfloat16", "amp_fp16": "float16"}
_AT_START: Final = (*FLAG_CHANGES, "benchmark_limit", "deterministic_algorithms", "matmul_tf32", "no_onednn")
_HALF_OF_THREADS: Final = "torch.set_num_threads(max(1, torch.get_num_threads() // 2))"
_TOTAL_LOSS: Final = "total_loss += loss.detach()  # not loss.item(), which waits; read total_loss once in many steps"
_CHECKPOINT: Final = """\
def recompute_in_backward(module):
    forward = module.forward
    module.forward = lambda *args, **kwargs: torch.utils.checkpoint.checkpoint(
        forward, *args, use_reentrant=False, **kwargs
    )
"""
# Classes of torch.optim with a fused or capturable form.
_OPTIMIZERS: Final = (
    "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
)  # fmt: skip
_CAPTURE: Final = """\
side_stream = torch.cuda.Stream()
side_stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side_stream):
    for _ in range(3):  # these steps train, too
        training_step()
torch.cuda.current_stream().wait_stream(side_stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = training_step()  # each replay overwrites this loss; the learning rate stays that of the capture"""
_LOOP_AXES: Final = frozenset({"amp_bf16", "amp_fp16", "channels_last", "dtype", "no_item", "pin_memory"})


def code_blocks(
    changes: Sequence[str], config: RunConfig, info: TargetInfo, *, device: str, rows: int | None
) -> tuple[CodeBlock, ...]:
    """The lines that apply `changes`, which make up `config`, to a script that trains `info` on `device` (``cuda``, ``cpu``).

    `rows`: the batch size of `config`; None if unknown. Blocks are in the order of a script.
    """
    writer = _Writer(changes, config, info, device.partition(":")[0], rows)
    blocks = (writer.start(), writer.model(), writer.optimizer(), writer.data(), writer.loop())
    return tuple(block for block in blocks if block is not None)


class _Writer:
    """Writes the blocks of one configuration."""

    def __init__(
        self, changes: Sequence[str], config: RunConfig, info: TargetInfo, device: str, rows: int | None
    ) -> None:
        self._axes = {change.partition("=")[0]: change for change in changes}
        self._checkpoints = [c.partition("=")[2] for c in changes if c.startswith("checkpoint=")]
        self._config = config
        self._info = info
        self._device = device
        self._rows = rows
        self._trains = info.mode == "train"

    def start(self) -> CodeBlock | None:
        """Flags: before the model is built."""
        lines = [(axis, self._line(axis)) for axis in _AT_START if axis in self._axes]
        if "threads" in self._axes:
            lines.append(("threads", _HALF_OF_THREADS if self._value("threads") == "half" else self._line("threads")))
        if "memory_limit" in self._axes:
            size = self._config.setting("memory_limit")
            lines.append(
                ("memory_limit", f"# limit the allocator to {size}: torch.cuda.set_per_process_memory_fraction")
            )
        return self._block("start", lines)

    def model(self) -> CodeBlock | None:
        """Changes of the model, after it is on its device."""
        lines: list[tuple[str, str]] = []
        if "dtype" in self._axes:
            lines.append(("dtype", self._line("dtype")))
        if "channels_last" in self._axes:
            lines.append(("channels_last", f"model = model.to(memory_format=torch.{self._layout()})"))
        if self._checkpoints:
            calls = [f'recompute_in_backward(model.get_submodule("{path}"))' for path in self._checkpoints]
            lines.append(("checkpoint", "\n".join(["import torch.utils.checkpoint", "", "", _CHECKPOINT, "", *calls])))
        if "compile" in self._axes:
            mode = self._value("compile")
            line = self._line("compile")
            lines.append(("compile", f'{line[:-1]}, mode="{mode}")' if mode else line))
        if "cuda_graph" in self._axes and not self._is_whole_step:
            lines.append(("cuda_graph", self._graph()))
        return self._block("model", lines)

    def optimizer(self) -> CodeBlock | None:
        """The optimizer and what belongs to it."""
        lines: list[tuple[str, str]] = []
        name = (self._info.optimizer or "").lower().partition("(")[0]
        forms = {"fused_optimizer": "fused"}
        if self._is_whole_step and name != "sgd":  # whose step depends on no number
            forms["cuda_graph"] = "capturable"
        used = [axis for axis in forms if axis in self._axes]
        if used:
            written = next((kind for kind in _OPTIMIZERS if kind.lower() == name), None)
            kind = f"torch.optim.{written}" if written else "type(optimizer)"
            arguments = ", ".join(f"{forms[axis]}=True" for axis in used)
            line = f"optimizer = {kind}(model.parameters(), {arguments})"
            lines.append((used[0], f"{line}  # and your learning rate and other arguments"))
        if "amp_fp16" in self._axes and self._trains:
            lines.append(("amp_fp16", f'scaler = torch.amp.GradScaler("{self._device}")'))
        if "no_item" in self._axes:
            lines.append(("no_item", f'total_loss = torch.zeros((), device="{self._device}")'))
        if self._is_whole_step:
            lines.append(("cuda_graph", self._step_graph()))
        return self._block("optimizer", lines)

    def data(self) -> CodeBlock | None:
        """The loader."""
        used = [axis for axis in ("batch", "loader_workers", "pin_memory") if axis in self._axes]
        if not used:
            return None
        arguments = {"batch_size": str(self._rows)} if self._rows is not None else {}
        if "loader_workers" in used:
            workers = self._value("loader_workers")
            arguments |= {"num_workers": workers, "persistent_workers": str(int(workers) > 0)}
        if "pin_memory" in used:
            arguments["pin_memory"] = "True"
        written = ", ".join(f"{name}={value}" for name, value in arguments.items())
        line = f"loader = torch.utils.data.DataLoader(dataset, {written})  # and your other arguments"
        return CodeBlock(
            place="data",
            changes=tuple(self._axes[axis] for axis in used),
            code=f"{line}; adapt the learning rate" if "batch" in used else line,
        )

    def loop(self) -> CodeBlock | None:
        """One step, complete, where a change needs a line in it."""
        used = [
            change
            for axis, change in self._axes.items()
            if axis in _LOOP_AXES or (axis == "cuda_graph" and self._is_whole_step)
        ]
        if not used:
            return None
        lines = list(self._moved_inputs()) if "pin_memory" in self._axes else []
        lines += self._prepared_inputs()
        if self._is_whole_step:
            lines += [f"{self._static(name)}.copy_({name})" for name in (*self._inputs(), "labels")]
            lines += ["graph.replay()", *([_TOTAL_LOSS] if "no_item" in self._axes else [])]
            return CodeBlock(place="loop", changes=tuple(used), code="\n".join(lines))
        autocast = next((kind for axis, kind in _AUTOCAST.items() if axis in self._axes), None)
        context = f'torch.autocast("{self._device}", dtype=torch.{autocast})' if autocast else ""
        if not self._trains:
            contexts = ", ".join(part for part in ("torch.no_grad()", context) if part)
            lines += [f"with {contexts}:", f"    output = {self._call()}"]
            return CodeBlock(place="loop", changes=tuple(used), code="\n".join(lines))
        forward = [f"output = {self._call()}", "loss = loss_fn(output, labels)"]
        lines += [f"with {context}:", *(f"    {line}" for line in forward)] if context else forward
        if "no_item" in self._axes:
            lines.append(_TOTAL_LOSS)
        if "amp_fp16" in self._axes:
            lines += ["scaler.scale(loss).backward()", "scaler.step(optimizer)", "scaler.update()"]
        else:
            lines += ["loss.backward()", "optimizer.step()"]
        lines.append("optimizer.zero_grad(set_to_none=True)")
        return CodeBlock(place="loop", changes=tuple(used), code="\n".join(lines))

    def _block(self, place: Place, lines: Sequence[tuple[str, str]]) -> CodeBlock | None:
        if not lines:
            return None
        changes: list[str] = []
        for axis, _ in lines:
            changes += (
                [f"checkpoint={path}" for path in self._checkpoints] if axis == "checkpoint" else [self._axes[axis]]
            )
        return CodeBlock(place=place, changes=tuple(dict.fromkeys(changes)), code="\n".join(line for _, line in lines))

    def _line(self, axis: str) -> str:
        """The line that applies `axis`, which depends on no other change."""
        change = change_of(self._axes[axis])
        assert change is not None
        return change.line

    def _value(self, axis: str) -> str:
        """The value of `axis` as written; empty for a switch."""
        return self._axes[axis].partition("=")[2]

    def _layout(self) -> str:
        """The memory format of channels_last for the dimensions of the inputs."""
        return "channels_last_3d" if any(len(tensor.shape) == 5 for tensor in self._info.inputs) else "channels_last"

    def _inputs(self) -> list[str]:
        """The variables of the inputs: ``inputs`` for a single one, else the names of the parameters."""
        names = [tensor.name for tensor in self._info.inputs]
        if len(names) > 1 and len(set(names)) == len(names) and all(name.isidentifier() for name in names):
            return names
        return ["inputs"] if len(names) <= 1 else [f"inputs[{index}]" for index in range(len(names))]

    @property
    def _is_whole_step(self) -> bool:
        """Whether a CUDA graph contains the whole step."""
        return self._axes.get("cuda_graph") == "cuda_graph=step"

    @staticmethod
    def _static(name: str) -> str:
        """The variable that holds an input of a graph: ``static_inputs``, ``static_inputs_0``."""
        return f"static_{name.replace('[', '_').replace(']', '')}"

    def _step_graph(self) -> str:
        """The capture of the whole step, after the optimizer."""
        names = [*self._inputs(), "labels"]
        call = f"model({', '.join(map(self._static, names[:-1]))})"
        forward = [f"output = {call}", "loss = loss_fn(output, static_labels)"]
        if "amp_bf16" in self._axes:
            context = f'with torch.autocast("{self._device}", dtype=torch.bfloat16, cache_enabled=False):'
            forward = [context, *(f"    {line}" for line in forward)]
        body = ["optimizer.zero_grad(set_to_none=True)", *forward, "loss.backward()", "optimizer.step()", "return loss"]
        lines = [*self._prepared_inputs(), *(f"{self._static(name)} = {name}.clone()" for name in names)]
        lines[-1] += "  # of one batch, on the device"
        return "\n".join([*lines, "", "", "def training_step():", *(f"    {line}" for line in body), "", "", _CAPTURE])

    def _call(self) -> str:
        names = self._inputs()
        if len(names) > 1 and names[0].isidentifier() and "cuda_graph" not in self._axes:
            return f"model({', '.join(f'{name}={name}' for name in names)})"
        return f"model({', '.join(names)})"

    def _graph(self) -> str:
        """The capture of the model. A graph casts parameters in each replay, so the cache of casts must be off."""
        names = self._inputs()
        line = f"model = torch.cuda.make_graphed_callables(model, ({', '.join(names)},))  # inputs of one batch, on the device"
        if "channels_last" in self._axes or "dtype" in self._axes:
            line = "\n".join([*self._prepared_inputs(), line])
        autocast = next((kind for axis, kind in _AUTOCAST.items() if axis in self._axes), None)
        if autocast is None:
            return line
        context = f'with torch.autocast("{self._device}", dtype=torch.{autocast}, cache_enabled=False):'
        return "\n".join([context, *(f"    {part}" for part in line.split("\n"))])

    def _moved_inputs(self) -> Iterator[str]:
        """The lines that move a batch in pinned memory to the device."""
        for name in (*self._inputs(), *(["labels"] if self._trains else [])):
            yield f'{name} = {name}.to("{self._device}", non_blocking=True)'

    def _prepared_inputs(self) -> Iterator[str]:
        """The lines that convert the inputs."""
        for name, tensor in zip(self._inputs(), self._info.inputs, strict=False):
            if "dtype" in self._axes and tensor.dtype.startswith(("float", "bfloat")):
                yield f"{name} = {name}.to(torch.{self._value('dtype')})"
            if "channels_last" in self._axes and len(tensor.shape) in (4, 5):
                yield f"{name} = {name}.to(memory_format=torch.{self._layout()})"
