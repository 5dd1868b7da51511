"""All sources of inputs, the most trusted first: the first that has inputs is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.loading.evidence.announcements import input_note
from profiler_kit.loading.evidence.data_sets import from_data_set
from profiler_kit.loading.evidence.model_calls import from_model_call
from profiler_kit.loading.evidence.record import Evidence, Provider
from profiler_kit.loading.evidence.search import from_earlier_search, from_search
from profiler_kit.loading.evidence.stated import from_caller, from_example, from_loader, from_options, from_recipe
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.meta.batch import resized

PROVIDERS: Final[tuple[Provider, ...]] = (
    from_caller,  # of the Python function
    from_options,  # -i
    from_loader,  # train_loader, get_loader() of the file
    from_recipe,  # the configuration of a model zoo
    from_earlier_search,
    from_example,  # inputs returned with the model, example_inputs, example_input_array
    from_model_call,  # a call of the model in a script, a README or a docstring
    from_data_set,  # the data set that a training loop loads
    from_search,  # on meta tensors; raises an error if nothing runs
)


def find_inputs(subject: Subject) -> Evidence:
    """The evidence of the first provider, in the requested batch size. Raises TargetError or UsageError."""
    evidence = next(filter(None, (provider(subject) for provider in PROVIDERS)), None)
    assert evidence is not None  # the search raises
    size = subject.size(evidence.value)
    if size is None:
        return evidence
    notes = evidence.notes
    if evidence.loader is not None:
        replaced = f"the batch size of {evidence.loader.name}, whose other batches are not used"
        notes += (input_note(f"--batch {size} replaces {replaced}"),)
    return replace(evidence, value=resized(evidence.value, size), notes=notes, loader=None)
