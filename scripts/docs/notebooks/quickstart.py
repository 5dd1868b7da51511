# %% [markdown]
# # Quickstart
#
# Records of profiler_kit show themselves in a notebook: a report as a page with charts, a plot as an interactive chart, a table
# as a data frame. This notebook counts a model, opens measured reports, compares them, and reads a trace.
#
# GitHub and other viewers show plots as pictures. Run the notebook to see the pages and the interactive charts:
# `pip install 'profiler-kit[all]' jupyterlab`.

# %% [markdown]
# ## Count a model
#
# `count` runs nothing on real data: it follows one training step on tensors without memory.

# %%
import torch
from torch import nn

import profiler_kit

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 16 * 16, 10),
)
counted = profiler_kit.count(model, torch.randn(8, 3, 32, 32))
counted

# %%
layers = counted.to_dataframe("layers")
layers[["path", "class", "params", "flops", "saved_bytes"]]

# %%
counted.plot("icicle", by="flops")

# %% [markdown]
# ## Measure it
#
# `profiler_kit.analyze(model, images, configs=["default"], budget_s=5)` measures the step as well. The following cells
# read a report that `analyze` measured on an H100, so that the figures are the same on every machine.

# %%
report = profiler_kit.read_report("../measured/convnet_v0_h100.json")
print(*report.verdict.sentences, sep="\n")

# %% [markdown]
# The last line of a cell shows the whole report, with the charts of `report.html`. `print(report)` shows its summary as text.

# %%
report

# %% [markdown]
# ## Ask questions
#
# `to_dataframe(name)` returns a table in base units: ns, bytes, FLOPs. An unknown name raises an error that lists all tables.
# Which settings change the step time?

# %%
runs = report.to_dataframe("runs")
runs["step_ms"] = runs["step_ns"] / 1e6
runs.nsmallest(4, "step_ns")[["config", "step_ms", "ratio", "peak_allocated_bytes", "repeatable"]].round(2)

# %%
report.plot("configurations")

# %% [markdown]
# How long does each part of the slowest convolution take, in ms, under each setting?

# %%
parts = report.to_dataframe("convolutions")
parts = parts[parts["path"] == "conv2"].pivot(index="config", columns="part", values="kernel_ns") / 1e6
parts.round(2).sort_values("dgrad")

# %% [markdown]
# What holds the memory at the peak of a step?

# %%
report.plot("memory")

# %% [markdown]
# Which findings explain the time?

# %%
findings = report.to_dataframe("findings").dropna(subset="share_percent")
findings.head(3)[["severity", "title", "share_percent"]].round(1)

# %% [markdown]
# ## Compare two reports

# %%
after = profiler_kit.read_report("../measured/convnet_v1_h100.json")
comparison = profiler_kit.compare(report, after)
print(*comparison.sentences[:3], sep="\n")

# %%
comparison.plot("waterfall")

# %% [markdown]
# ## Inspect a trace
#
# Any trace that `torch.profiler` wrote. A trace report and a report have the same names of tables where both have the table.

# %%
inspection = profiler_kit.inspect("../../tests/fixtures/traces/train.cuda.json.gz")
inspection

# %%
inspection.to_dataframe("phases")[["phase", "host_ns", "kernel_ns", "idle_ns"]]

# %%
inspection.plot("timeline")
