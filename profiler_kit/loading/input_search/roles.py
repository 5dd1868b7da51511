"""The kind of value that each parameter of forward receives, from its name, its annotation, and the text of forward."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import nn

from profiler_kit.loading.program.parameter_reads import reads_of
from profiler_kit.loading.program.reading import source_tree
from profiler_kit.loading.vocabulary import Role, input_concept, name_words, says
from profiler_kit.meta.batch import signature_of_forward

# Parameters of attention layers, in the notation of papers and of torch.nn.functional
_ATTENTION_NAMES: Final = (
    frozenset({"q", "k"}), frozenset({"k", "v"}), frozenset({"query", "key"}), frozenset({"key", "value"}),
    frozenset({"queries", "keys"}), frozenset({"keys", "values"}), frozenset({"x_q", "x_k"}), frozenset({"xq", "xk"}),
)  # fmt: skip
_ATTENTION_PARTS: Final = frozenset().union(*_ATTENTION_NAMES, {"v", "value", "values", "xv", "x_v"})
_ANNOTATIONS: Final = (
    (re.compile(r"^(builtins\.)?int\b"), Role.INTEGER),
    (re.compile(r"^(builtins\.)?float\b"), Role.NUMBER),
    (re.compile(r"^(builtins\.)?bool\b"), Role.FLAG),
    (re.compile(r"^(typing\.)?(list|List|Sequence|Iterable|tuple|Tuple)\["), Role.LIST),
    (re.compile(r"^(typing\.|collections\.abc\.)?(dict|Dict|Mapping)\b"), Role.DICT),
)


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of forward. `is_optional`: it has a default, with `takes_none` None.

    `keys` are the keys that forward reads from a dict, `items` the names that it unpacks a list into, and `texts` those that it
    compares the value with.
    """

    name: str
    role: Role
    is_keyword: bool = False
    is_optional: bool = False
    takes_none: bool = False
    keys: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def role_of(name: str, annotation: str = "") -> Role:
    """The role of a parameter, from its annotation if that says more than ``Tensor``, else from its name."""
    for pattern, role in _ANNOTATIONS:
        if pattern.match(annotation.removeprefix("Optional[")):
            # the state of an LSTM is a tuple of tensors
            return Role.STATE if role is Role.LIST and says(name, "state") else role
    if annotation.endswith("LongTensor") and not (says(name, "mask") or says(name, "label")):
        return Role.TOKENS
    concept = input_concept(name)
    if concept is None or concept.role is None or (concept.role is Role.TOKENS and says(name, "image")):
        return Role.DATA
    return _mask_role(name_words(name)) if concept.role is Role.MASK else concept.role


def _mask_role(words: frozenset[str]) -> Role:
    """``src_key_padding_mask`` has one value per token, ``src_mask`` one per pair of tokens in torch.nn.Transformer."""
    if words & {"padding", "pad"}:
        return Role.PADDING_MASK
    return Role.ATTENTION_MASK if words & {"attn", "src", "tgt", "trg", "memory", "causal"} else Role.MASK


def forward_parameters(model: nn.Module, named: frozenset[str] = frozenset()) -> tuple[Parameter, ...]:
    """The parameters of the model's forward, in order. Those in `named` need a value; without a signature, it is one input.

    Without a required parameter, the first parameter with a default needs a value, or one positional value for ``*inputs``.
    """
    try:
        parameters = signature_of_forward(model)
    except (TypeError, ValueError):
        return (Parameter(name="input", role=Role.DATA),)
    tree = source_tree(
        getattr(type(model), "forward", None)
    )  # a class does not have the methods that torch.jit compiles
    single = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    required = {p.name for p in single if p.default is p.empty or p.name in named}
    listed = single
    if not required:
        listed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        listed = listed or [p for p in parameters if p.kind is p.VAR_POSITIONAL]
        required = {p.name for p in listed[:1]}
    values = tuple(_parameter(p, tree, is_optional=p.name not in required) for p in listed)
    keywords = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "")
    keys = reads_of(tree, keywords).keys  # of ``kwargs["labels"]``: forward needs this keyword
    values += tuple(
        Parameter(name=key, role=role_of(key), is_keyword=True) for key in sorted(keys) if key.isidentifier()
    )
    names = {parameter.name.lower() for parameter in values if not parameter.is_optional}
    if not any(pair <= names for pair in _ATTENTION_NAMES):
        return values or (Parameter(name="input", role=Role.DATA),)
    return tuple(
        replace(parameter, role=Role.ATTENTION) if parameter.name.lower() in _ATTENTION_PARTS else parameter
        for parameter in values
    )


def _parameter(parameter: inspect.Parameter, tree: ast.AST, *, is_optional: bool) -> Parameter:
    reads = reads_of(tree, parameter.name)
    items = tuple(item.id if isinstance(item, ast.Name) else "_" for item in reads.unpacked)
    items = items or (("_",) * reads.count if reads.is_numbered else ())
    role = role_of(parameter.name, _annotation_text(parameter.annotation))
    if reads.keys:
        role = Role.DICT
    elif set(items) == {"_"} and role in (Role.DATA, Role.TOKENS):
        role = Role.LIST
    return Parameter(
        name=parameter.name,
        role=role,
        is_keyword=parameter.kind is parameter.KEYWORD_ONLY,
        is_optional=is_optional,
        takes_none=parameter.default is None,
        keys=tuple(sorted(reads.keys)),
        items=items,
        texts=reads.texts,
    )


def _annotation_text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
