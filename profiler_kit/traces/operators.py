"""Families of operators, by name: on a CPU they stand where kernels would."""

from __future__ import annotations

import re
from typing import Final

_NAMESPACE: Final = re.compile(r"\A(aten|prims|quantized|torchvision|mkldnn|mkldnn_prepacked|xnnpack)::")
_ENGINE: Final = re.compile(
    r"\A(autograd|torch::autograd)::|\A[A-Za-z]\w*Backward\d*\Z"
)  # the engine's own bookkeeping
_BARE: Final = frozenset({"detach"})  # autograd's in-C++ detach, recorded without a namespace

# First match wins: names that contain the pattern.
_CONTAINS: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("conv", r"conv(?!ert)"),
        ("attention", r"scaled_dot_product|(flash|efficient|cudnn|overrideable)_attention|multi_head_attention"),
        ("optimizer", r"\A(_foreach_|_fused_(adam|sgd|adagrad))"),
        ("norm", r"(batch|layer|group|instance|rms)_norm|weight_norm|local_response_norm"),
        ("pool", r"pool"),
        ("loss/softmax", r"softmax|softmin|_loss|cross_entropy|kl_div|\Amse|\Actc"),
        ("rnn", r"lstm|\Agru|_gru|rnn"),
        ("index", r"index|gather|scatter|embedding|\Amasked_|\Atake|nonzero|\Aput_|bucketize|one_hot"),
        ("sort/scan", r"sort|topk|kthvalue|unique|\Acum(sum|prod|max|min)"),
        ("random", r"dropout|bernoulli|\A(rand|normal|uniform|multinomial|exponential)"),
        ("interpolate", r"upsample|interpolate|grid_sampl"),
    )
)

# Then names, without a leading or trailing underscore, that are one of these words; a ``*`` ends a word openly.
_WORDS: Final = {
    "gemm": "addmm mm bmm addbmm baddbmm matmul linear linear_backward mv addmv dot vdot inner outer ger addr einsum "
    "bilinear trilinear scaled_mm grouped_mm int_mm addmm_activation mkldnn_linear mkldnn_linear_backward*",
    "cat/copy": "copy to_copy to clone contiguous "
    "select_backward slice_backward diagonal_backward unfold_backward "
    "cat concat stack pin_memory repeat repeat_interleave pad constant_pad_nd "
    "reflection_pad* replication_pad* flip roll tril triu type_as",
    "sync": "item local_scalar_dense is_nonzero equal",  # on a device these wait for it
    "view": "view* reshape* unsafe_view t transpose permute as_strided expand expand_as squeeze unsqueeze select slice narrow "
    "detach flatten unflatten split* unsafe_split chunk unbind alias movedim swapaxes numpy_T mT resolve_conj resolve_neg "
    "lift_fresh diagonal real imag conj broadcast_to unfold set result_type can_cast",
    "alloc": "empty* new_* resize* zeros* ones* full* arange linspace scalar_tensor tensor eye efficientzerotensor",
    "reduce": "sum* mean nansum prod max min amax amin aminmax argmax argmin norm linalg_vector_norm linalg_norm "
    "frobenius_norm var std var_mean std_mean any all logsumexp count_nonzero median",
    "pointwise": "add sub rsub mul div rdiv true_divide floor_divide remainder fmod neg abs sign sgn exp* log* sqrt rsqrt square "
    "pow reciprocal clamp* threshold* relu* leaky_relu* prelu* rrelu* elu* selu celu gelu* silu* mish* hardtanh* "
    "hardswish* hardsigmoid* sigmoid* tanh* glu* softplus* softshrink* hardshrink* sin cos tan asin acos atan atan2 "
    "sinh cosh erf* floor ceil round trunc frac lerp addcmul addcdiv where eq ne lt le gt ge minimum maximum fmax "
    "fmin logical_* bitwise_* isnan isinf isneginf isposinf isfinite nan_to_num fill zero polar complex hypot xlogy amp_*",
}


def _compiled(words: str) -> re.Pattern[str]:
    return re.compile("(?:" + "|".join(re.escape(word).replace(r"\*", r"\w*") for word in words.split()) + r")\Z")


_IS_WORD: Final = tuple((family, _compiled(words)) for family, words in _WORDS.items())


def is_operator(name: str) -> bool:
    """Whether `name` is an operator's or an autograd node's, not a kernel's."""
    return bool(_NAMESPACE.match(name) or _ENGINE.match(name)) or name in _BARE


def family(name: str) -> str:
    """The family of the operator called `name` (``aten::addmm`` → ``gemm``); ``other`` for an unknown one."""
    if _ENGINE.match(name):
        return "autograd"
    plain = _NAMESPACE.sub("", name)
    for value, pattern in _CONTAINS:
        if pattern.search(plain):
            return value
    bare = plain.strip("_")
    return next((value for value, pattern in _IS_WORD if pattern.match(bare)), "other")


def families() -> frozenset[str]:
    """Every family that `family` can return."""
    return frozenset({"autograd", "other", *(value for value, _ in (*_CONTAINS, *_IS_WORD))})
