"""Places of a program without which a step would be much shorter: functions, operators, loops, work that is repeated."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.family_advice import advice_for
from profiler_kit.diagnosis.phrases import Advice, advise, capitalize, join_sentences, limit_percent
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.diagnosis.work_sites import (
    MAX_LAUNCH_SHARE,
    MAX_PRODUCT_SHARE,
    MIN_OPERATOR_SAVING,
    operators_text,
    removable_sites,
    site_claim,
    site_text,
    sites_sentence,
)
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import WorkSite
from profiler_kit.units import percent

MIN_SAVING: Final = 0.15
LARGE_SAVING: Final = 0.4
# From this number of launches per step on, fewer and larger operations are possible.
MANY_LAUNCHES: Final = 50
MIN_LISTED: Final = 0.05
FEWER_OPERATIONS: Final = (
    "Do this work in fewer, larger operations, with one call for all items or with torch.compile for the function; or do it less "
    "often."
)


def _largest_site(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    site = next(iter(removable_sites(step.trace.sites, MIN_SAVING)), None)
    if site is None:
        return None
    kinds = (
        ("The function ", site.source or site.call),
        ("The operator ", site.operator),
    )
    kind, saving = next((kind for kind, name in kinds if name), ""), site.saving.median
    return StepPart(
        share=saving,
        share_name="saving without it",
        title=capitalize(f"{kind}{site_text(site)} costs {percent(saving)} of the step{operators_text(site)}"),
        sentences=(
            "A replay of the step with one operation for all rounds is that much shorter."
            if site.loop
            else "A replay of the step without its work, its launches and its waits is that much shorter.",
            sites_sentence(step.trace.sites, MIN_LISTED),
        ),
        advice=join_sentences(
            advice_for(site.loop.split(", ") if site.loop else site.operators, step.trace.operators),
            _general_advice(site),
        ),
        measures=(("launches per step", site.launches, "count"), ("rounds per step", site.rounds or None, "count")),
        claims=(site_claim(site),),
    )


def _general_advice(site: WorkSite) -> str:
    if not site.has_gradient:
        return (
            "Reuse results of the training's own forward pass, for metrics as well. Do the rest less often or before the loop. "
            "What the training needs, such as the outputs of a teacher, has to stay."
        )
    if not site.launches:
        return (
            "It computes on the CPU. Do it on the device, with tensors that are created there, or once before the loop."
        )
    if site.loop or site.launches >= MANY_LAUNCHES:
        return FEWER_OPERATIONS
    return "Do this work less often or with less data, or move it out of the step."


def _repeated(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    site = max((site for site in step.trace.sites if site.repeated), key=lambda site: site.saving.median, default=None)
    if site is None:
        return None
    what, why, advice = _REPEATED[site.repeated]
    return StepPart(
        share=site.saving.median,
        share_name="saving without it",
        title=f"{what} {percent(site.saving.median)} of the step{operators_text(site)}",
        sentences=(why, "A replay of the step without this work is that much shorter."),
        advice=advice,
        measures=(("launches per step", site.launches, "count"),),
        claims=(site_claim(site),),
    )


# Of each kind of repeated work: the title, why it is repeated, and what to do.
_REPEATED: Final[dict[str, tuple[str, str, Advice | str]]] = {
    "backward": (
        "Several backward passes through the same operators cost",
        "A step differentiates the same forward operators several times, once for each loss.",
        advise(
            "Add up the losses and call backward once: {code}. Where the gradient of each loss is needed, differentiate only up "
            "to the last shared activation, torch.autograd.grad(loss, activation), and go on from there with their sum.",
            "sum(losses).backward()",
        ),
    ),
    "weights": (
        "The same work on weights in each step costs",
        "The program trains nothing, so this work has the same result each time.",
        advise(
            "Do it once, before the loop: {code} for weight_norm and other parametrizations, a converted or fused copy of the "
            "weights otherwise.",
            "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
        ),
    ),
    "calls": (
        "Calls of a module directly after another one cost",
        "The program calls the same module several times in a row and does nothing on the device in between.",
        advise(
            "Call it once, with the inputs of all calls as one batch, and split the outputs: {code}.",
            "first, second = module(torch.cat([a, b])).chunk(2)",
        ),
    ),
    "growing": (
        "Work on inputs that grow from round to round costs",
        "Each round computes all earlier positions again, with those that are new.",
        advise(
            "Keep the results of earlier positions and pass only the new ones: a key-value cache, {code} in transformers, or "
            "buffers of the full length that each round writes into.",
            "model.generate(..., use_cache=True)",
        ),
    ),
    "unused": (
        "Gradients that no optimizer step uses cost",
        "The backward pass also goes through a part of the program whose parameters the next optimizer step does not update, and "
        "the gradients are dropped or never read: a teacher, a frozen part, a generator while its critic learns.",
        advise(
            "Run that part without gradients, under torch.no_grad(), or cut the graph behind it: {code}. Switch off the "
            "gradients of parameters that are not trained, module.requires_grad_(False).",
            "output = output.detach()",
        ),
    ),
}


REPEATED_WORK = step_rule(
    "repeated_work",
    _repeated,
    Shares(0.05, medium=0.1, high=0.3),
    """
Fires on work that a step repeats although its result is there, by what a replay of the step saves without it:

- backward work whose gradients no optimizer step uses: everything behind the last gradient of a pass that is used, and before it
  the part of each node that computes gradients of its parameters alone: the second product, kernels for the weight of a
  convolution, the sum of a bias. A gradient is unused if the first backward pass after an optimizer step adds to what is left of
  it from before, beside new gradients, or if it is new again in a later pass and the optimizer steps between update no tensor of
  its shape. The second needs `record_shapes=True` and an optimizer of at most 30 tensors, which the profiler lists;
- backward of operators after their first one in the step: losses that share a graph and are differentiated one by one
  (`retain_graph=True`). Steps that differentiate gradients do not count;
- calls of a module that directly follow another call of it (with stacks), without a launch in between: one call with a larger
  batch can do their work. The host's work goes, and of each kernel the time of the shortest one;
- work of a program that trains nothing on inputs that grow by the same size from round to round, as in generation without a
  key-value cache: of each kernel, the time of the shortest one stays, with its launch. The trace needs `record_shapes=True`;
- work on weights in a program that trains nothing: weight_norm and other parametrizations, casts, masks. Such an operator has no
  larger input than a tensor of the shape of a layer's weight, and no layer has an input of this shape. Python calls that launch
  nothing else go with it. The trace needs `record_shapes=True`.
""",
    steps=idle_steps,
)

COSTLY_PLACE = step_rule(
    "costly_place",
    _largest_site,
    Shares(MIN_SAVING, high=LARGE_SAVING),
    f"""
Fires on what the replay of a trace saves without the work of one function (with stacks): its device work, its launches, and the
host's waits there; or, from {limit_percent(MIN_OPERATOR_SAVING)} on, without one operator, wherever it is called; or without
all work of a training step that has no backward pass; or of operators in a row that each step calls once between two products;
or of the same operators at least eight times in a row, as a Python loop over parameters, items, experts, classes or time steps
calls them. One operation does the work of all rounds: the host works once, and each kernel costs only what exceeds the shortest
one. A row of layers is no loop: each round has products, and there are as many gradients of parameters as rounds. Heads and
experts look the same, but read the same value: backward adds up its gradient in each round, and no operator of a round joins an
input to a result. Without gradients, rounds with products do not count.
A function that the loop of a training step calls itself counts with all
that it calls, unless that has a backward pass: an evaluation, a teacher, an average of the weights. Work of backward belongs to
the place of its forward operator. Of work that has to be done, products stay, and of three or more launches in a row the
longest.
Such a place ranks as if it saved half, after a call that goes as a whole.
Places with more than {limit_percent(MAX_PRODUCT_SHARE)} of their time in convolutions, matrix
products, attention or recurrent layers (in a training step, only those with a backward pass) do not count, nor those with more
than {limit_percent(MAX_LAUNCH_SHARE)} of all device work, nor data loading and the optimizer, which have rules of their own. The
finding ranks after those that say why the place takes time.
""",
    topic="site",
    steps=idle_steps,
)
