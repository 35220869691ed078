"""Problems with layouts and sizes, with the weights that a call returns,
and with those that a module has.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from release import OLDEST
from test_problems import KINDS, far, make, no_mask, said, same, says, warned
from torch import Tensor, nn
from torch.nn import functional as F

import mha_widgets
from mha_widgets import MultiheadAttention, trace

N, L, E, H, D = 2, 5, 12, 3, 4  # for the rows that need a layer of another library


@KINDS
def test_01_batch_first_default_mixes_the_batch(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    module = kind(6, 2).eval()
    assert module.batch_first is False
    x = torch.randn(4, 3, 6)  # meant: 4 sentences of 3 tokens
    edited = x.clone()
    edited[3] += 5.0
    for batch_first, shape, moved in ((False, (3, 4, 4), 2.839), (True, (4, 3, 3), 0.0)):
        module.batch_first = batch_first
        before, weights = module(x, x, x)
        after, _ = module(edited, edited, edited)
        assert weights.shape == shape and same(far(before[0], after[0]), moved)
    square = torch.randn(3, 3, 6)
    assert warned("no shape can tell the layouts apart", module, square, square, square)


@KINDS
def test_02_forgotten_batch_first_in_cross_attention(kind: type[nn.Module]) -> None:
    module = make(kind, 2, 8, 2, batch_first=False)
    query, key = torch.randn(1, 1, 8), torch.randn(1, 9, 8)
    ours = (
        "Got query (1, 1, 8), key (1, 9, 8) and value (1, 9, 8): 1 sequences of queries and 9 of"
        " keys, with the batch second; "
    )
    theirs = "shape '[1, 2, 4]' is invalid for input of size 72"  # (S, N * H, D), and 9 * 8 numbers
    expected = theirs if kind is nn.MultiheadAttention else f"{ours}did you mean batch_first=True?"
    assert says(said(module, query, key, key), f"RuntimeError: {expected}")
    module.batch_first = True
    assert module(query, key, key)[1].shape == (1, 1, 9)


@KINDS
def test_19_weights_are_the_mean_of_the_heads(kind: type[nn.Module]) -> None:
    module = make(kind, 19, 4, 2, bias=False).eval()
    keys = torch.diag(torch.tensor([1.0, 1.0, -1.0, -1.0]))  # the second head looks at the opposite
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([torch.eye(4) * 6, keys, torch.eye(4)]))
    x = torch.tensor([[[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]])
    mean, each = module(x, x, x)[1], module(x, x, x, average_attn_weights=False)[1]
    assert mean.shape == (1, 2, 2) and same(mean[0, 0], [0.5, 0.5], 2)
    assert each.shape == (1, 2, 2, 2) and same(each[0, :, 0], [[0.99, 0.01], [0.01, 0.99]], 2)
    assert module(x, x, x, need_weights=False, average_attn_weights=False)[1] is None
    y = torch.randn(3, 4)
    assert module(y[:1], y, y)[1].shape == (1, 3)
    assert module(y[:1], y, y, average_attn_weights=False)[1].shape == (2, 1, 3)


@KINDS
def test_20_weights_in_training_are_those_after_dropout(kind: type[nn.Module]) -> None:
    module = make(kind, 20, 4, 1, dropout=0.4)
    x, single = torch.randn(1, 6, 4), torch.randn(1, 1, 4)
    sums = module(x, x, x)[1][0].sum(-1)
    assert OLDEST or same(sums, [0.55, 0.71, 1.11, 0.84, 0.74, 1.15], 2)
    # 1 / (1 - 0.4)
    assert OLDEST or same(module(x, single, single)[1][0, :, 0], [0.0, 0.0, 1.667, 1.667, 0.0, 0.0])
    assert warned("rows don't sum to 1", module, x, x, x)
    module.eval()
    assert far(module(x, x, x)[1][0].sum(-1), torch.ones(6)) < 1e-6
    assert not warned("rows don't sum to 1", module, x, x, x)


@KINDS
def test_21_need_weights_does_not_change_dropout(kind: type[nn.Module]) -> None:
    module, x = make(kind, 21, 8, 2, dropout=0.3), torch.randn(2, 5, 8)

    def run(seed: int, need_weights: bool) -> Tensor:
        torch.manual_seed(seed)
        return module(x, x, x, need_weights=need_weights)[0]

    assert far(run(99, True), run(99, False)) < 5e-7
    assert torch.equal(run(99, True), run(99, True)) and far(run(99, True), run(98, True)) > 0.1


def test_21_both_modules_drop_the_same() -> None:
    outputs = []
    for kind in (nn.MultiheadAttention, MultiheadAttention):
        module, x = make(kind, 21, 8, 2, dropout=0.3), torch.randn(2, 5, 8)
        outputs.append(
            torch.stack(
                [module(x, x, x, need_weights=need_weights)[0] for need_weights in (True, False)]
            )
        )
    assert far(*outputs) < 5e-7


def test_22_sdpa_drops_in_evaluation_too() -> None:
    class Forgetful(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    torch.manual_seed(22)
    q = torch.randn(1, 1, 4, 4)
    module = Forgetful().eval()
    difference = far(module(q), module(q))
    assert difference > 0.1 and (OLDEST or same(difference, 3.840))
    ours = mha_widgets.scaled_dot_product_attention
    assert far(ours(q, q, q, dropout_p=0.5), ours(q, q, q, dropout_p=0.5)) > 0.1  # as documented
    for kind in (nn.MultiheadAttention, MultiheadAttention):
        attention = kind(4, 2, dropout=0.5).eval()
        for need_weights in (True, False):
            first, second = (
                attention(q[0], q[0], q[0], need_weights=need_weights)[0] for _ in range(2)
            )
            assert torch.equal(first, second)


@KINDS
@pytest.mark.parametrize(
    ("build", "row", "theirs"),
    [
        ({"add_bias_kv": True}, [0.464, 0.0, 0.0, 0.536], "to be 4, but got 5"),
        ({"add_zero_attn": True}, [0.555, 0.0, 0.0, 0.445], "to be 4, but got 5"),
        (
            {"add_bias_kv": True, "add_zero_attn": True},
            [0.339, 0.0, 0.0, 0.307, 0.354],
            "to be 5, but got 7",
        ),
    ],
    ids=["bias", "zero", "both"],
)
def test_23_appended_positions_widen_the_weights(
    kind: type[nn.Module], build: dict[str, bool], row: list[float], theirs: str
) -> None:
    torch.manual_seed(23)
    x, padding = torch.randn(2, 3, 4), torch.tensor([[False, True, True], [False] * 3])
    for drawn in (
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"add_bias_kv": True, "add_zero_attn": True},
    ):
        module = kind(
            4, 2, batch_first=True, **drawn
        ).eval()  # one after the other: each draws on from the last
        if drawn == build:
            break
    output, weights = module(x, x, x, key_padding_mask=padding)
    S = 3 + len(build)
    assert weights.shape == (2, 3, S) and same(weights[0, 0], row)
    words = f"Expected key_padded_mask.shape[1] {theirs}"
    if OLDEST:
        first, second = (int(number) for number in re.findall(r"\d+", theirs))
        words = (
            f"expecting key_padding_mask shape of (2, {first}), but got torch.Size([2, {second}])"
        )
    if kind is MultiheadAttention:
        words = f"key_padding_mask has shape {(2, S)}, but must be (N, S) = (2, 3)"
    assert says(said(module, x, x, x, key_padding_mask=no_mask(2, S)), f"AssertionError: {words}")
    traced = trace(module, x, x, x, key_padding_mask=padding)
    assert traced["mask"][0, 0, 0].tolist() == [0.0, -math.inf, -math.inf] + [0.0] * len(build)
    last = traced["k_appended"][:, :, 3:].transpose(1, 2).flatten(2)
    appended = [module.bias_k[0]] if module.bias_k is not None else []
    appended += [torch.zeros(1, 4)] if module.add_zero_attn else []
    assert torch.equal(last, torch.cat(appended).expand(2, -1, -1)) and traced.difference < 1e-6


@KINDS
def test_26_kdim_and_vdim_are_sizes_of_inputs(kind: type[nn.Module]) -> None:
    module = make(kind, 26, 8, 2, kdim=5, vdim=3)
    query, value = torch.randn(2, 4, 8), torch.randn(2, 6, 3)
    output, weights = module(query, torch.randn(2, 6, 5), value)
    assert output.shape == (2, 4, 8) and weights.shape == (2, 4, 6)
    assert {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()} == {
        "q_proj_weight": (8, 8),
        "k_proj_weight": (8, 5),
        "v_proj_weight": (8, 3),
        "in_proj_bias": (24,),
        "out_proj.weight": (8, 8),
        "out_proj.bias": (8,),
    }
    words = "expecting key weights shape of (8, 8), but got torch.Size([8, 5])"
    if kind is MultiheadAttention:
        words = (
            "k_proj_weight has shape (8, 5), but for query (2, 4, 8), key (2, 6, 8) and value (2,"
            " 6, 3) it must be (8, 8)"
        )
    assert says(said(module, query, torch.randn(2, 6, 8), value), f"AssertionError: {words}")


@KINDS
def test_27_packed_and_separate_names(kind: type[nn.Module]) -> None:
    packed, separate, biased = kind(4, 2), kind(4, 2, kdim=6), kind(4, 2, add_bias_kv=True)
    rest = ["in_proj_bias", "out_proj.weight", "out_proj.bias"]
    names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
    assert (
        list(packed.state_dict()) == ["in_proj_weight", *rest]
        and list(separate.state_dict()) == names + rest
    )
    assert sorted(set(biased.state_dict()) - set(packed.state_dict())) == ["bias_k", "bias_v"]
    assert [name for name, value in packed._parameters.items() if value is None] == names
    assert separate._parameters["in_proj_weight"] is None and separate.in_proj_bias.shape == (12,)
    assert (
        packed.bias_k is None
        and "bias_k" not in packed._parameters
        and "bias_k" in biased._parameters
    )
    missing = ", ".join(f'"{name}"' for name in names)
    with pytest.raises(RuntimeError) as raised:
        separate.load_state_dict(packed.state_dict())
    assert (
        " ".join(str(raised.value).split())
        == "Error(s) in loading state_dict for MultiheadAttention: "
        f"Missing key(s) in state_dict: {missing}. Unexpected key(s) in state_dict:"
        ' "in_proj_weight".'
    )


@KINDS
def test_28_packed_weights_start_smaller(kind: type[nn.Module]) -> None:
    torch.manual_seed(28)
    size = 256
    packed = kind(size, 4)
    # still packed
    assert kind(size, 4, kdim=size, vdim=size).in_proj_weight.shape == (
        3 * size,
        size,
    )
    separate = kind(size, 4, kdim=size + 1).q_proj_weight
    weight = packed.in_proj_weight
    assert same(weight.abs().max(), 0.0765, 4) and math.sqrt(6 / (4 * size)) == pytest.approx(
        0.0765, abs=1e-4
    )
    assert same(separate.abs().max(), 0.1083, 4) and math.sqrt(6 / (2 * size)) == pytest.approx(
        0.1083, abs=1e-4
    )
    assert (
        same(weight.std(), 0.0442, 4)
        and same(separate.std(), 0.0625, 4)
        and same(separate.std() / weight.std(), 1.412)
    )
    assert same(packed.out_proj.weight.abs().max(), 1 / math.sqrt(size), 4)
    assert not packed.in_proj_bias.any() and not packed.out_proj.bias.any()


@pytest.mark.parametrize(
    "build",
    [
        {},
        {"kdim": 5},
        {"kdim": 6, "vdim": 7},
        {"add_bias_kv": True},
        {"bias": False},
        {"kdim": 5, "add_bias_kv": True, "bias": False},
    ],
    ids=str,
)
def test_28_both_modules_start_the_same(build: dict[str, Any]) -> None:
    theirs, ours = (
        make(kind, 28, 6, 2, **build).state_dict()
        for kind in (nn.MultiheadAttention, MultiheadAttention)
    )
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@KINDS
def test_45_weights_can_be_recomputed_from_the_parameters(kind: type[nn.Module]) -> None:
    module, x = make(kind, 45, 8, 2).eval(), torch.randn(2, 5, 8)
    q, k, _ = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
    # (N, L, H, D): heads are blocks
    q_heads, k_heads = (rows.view(2, 5, 2, 4).transpose(1, 2) for rows in (q, k))
    weights = (q_heads @ k_heads.mT / 2).softmax(-1)
    assert far(weights, module(x, x, x, average_attn_weights=False)[1]) < 1e-6
    interleaved = q.view(2, 5, 4, 2).permute(0, 3, 1, 2)
    assert same(far(interleaved, q_heads), 2.50, 2)
    traced = trace(module, x, x, x, need_weights=False)
    for name, expected in {"q_heads": q_heads, "k_heads": k_heads, "weights": weights}.items():
        assert far(traced[name], expected) < 1e-6


def normal(module: nn.Module, std: float = 0.5) -> Any:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module.eval()


@KINDS
def test_48_linears_as_in_bert(kind: type[nn.Module]) -> None:
    torch.manual_seed(48)
    query, key, value, dense = (normal(nn.Linear(E, E)) for _ in range(4))
    x, keep = torch.randn(N, L, E), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    q, k, v = (linear(x).view(N, L, H, D).transpose(1, 2) for linear in (query, key, value))
    lowest = torch.finfo(torch.float32).min
    weights = (q @ k.mT / math.sqrt(D) + (1 - keep[:, None, None].float()) * lowest).softmax(-1)
    expected = dense((weights @ v).transpose(1, 2).reshape(N, L, E))
    module = kind(E, H, batch_first=True).eval()
    inner = (query, key, value)
    module.load_state_dict(
        {
            "in_proj_weight": torch.cat([linear.weight for linear in inner]),
            "in_proj_bias": torch.cat([linear.bias for linear in inner]),
            "out_proj.weight": dense.weight,
            "out_proj.bias": dense.bias,
        }
    )
    output, returned = module(x, x, x, key_padding_mask=keep == 0, average_attn_weights=False)
    assert far(output, expected) < 2e-6 and far(returned, weights) < 1e-6
    wrong = module(x, x, x, key_padding_mask=keep.bool())[0]
    assert wrong[1].isnan().all() and far(wrong[0], expected[0]) > 0.5
    assert warned(
        "Queries with no key left (sequence 1", module, x, x, x, key_padding_mask=keep.bool()
    )


@KINDS
def test_50_kernels_as_in_keras(kind: type[nn.Module]) -> None:
    torch.manual_seed(50)
    kernels, biases = torch.randn(3, E, H, D) * 0.4, torch.randn(3, H, D) * 0.4
    out_kernel, out_bias = torch.randn(H, D, E) * 0.4, torch.randn(E) * 0.4
    x, keep = torch.randn(N, L, E), (~no_mask(L, L)).tril()
    q, k, v = (
        torch.einsum("nle,ehd->nlhd", x, kernel) + bias
        for kernel, bias in zip(kernels, biases, strict=True)
    )
    scores = torch.einsum("nlhd,nshd->nhls", q, k) / math.sqrt(D)
    weights = scores.masked_fill(~keep, -math.inf).softmax(-1)
    expected = torch.einsum("nhls,nshd,hde->nle", weights, v, out_kernel) + out_bias
    module = kind(E, H, batch_first=True).eval()
    module.load_state_dict(
        {
            "in_proj_weight": torch.cat([kernel.reshape(E, E).T for kernel in kernels]),
            "in_proj_bias": biases.flatten(),
            "out_proj.weight": out_kernel.reshape(E, E).T,
            "out_proj.bias": out_bias,
        }
    )
    output, returned = module(x, x, x, attn_mask=~keep, average_attn_weights=False)
    assert far(output, expected) < 2e-6 and far(returned, weights) < 1e-6
    assert warned(
        "attn_mask blocks what a causal mask lets through", module, x, x, x, attn_mask=keep
    )
    wide = torch.empty(E, H, E)  # key_dim = embed_dim: three heads of 12 features, and not of 4
    assert wide.numel() == 3 * module.in_proj_weight[:E].numel()


@KINDS
def test_56_sizes_and_features_that_do_not_fit(kind: type[nn.Module]) -> None:
    theirs = kind is nn.MultiheadAttention
    words = (
        "embed_dim must be divisible by num_heads"
        if theirs
        else "10 features can't be cut into 3 heads of one size"
    )
    assert says(said(kind, 10, 3), f"AssertionError: {words}")
    for sizes in ((0, 1), (8, 0), (-8, 2)):
        words = "must be greater than 0, got embed_dim={} and num_heads={} instead"
        assert said(kind, *sizes) == f"ValueError: embed_dim and num_heads {words.format(*sizes)}"
    module, x = make(kind, 56, 8, 2), torch.randn(2, 3, 6)
    got = "Got query {0}, key {0} and value {0}; "
    words = "was expecting embedding dimension of 8, but got 6"
    if not theirs:
        words = got.format((2, 3, 6)) + "the query needs embed_dim = 8 features."
    assert says(said(module, x, x, x), f"AssertionError: {words}")
    for shape in ((1, 2, 3, 8), (8,)):
        y = torch.randn(*shape)
        words = (
            f"query should be unbatched 2D or batched 3D tensor but received {len(shape)}-D query"
            " tensor"
        )
        if not theirs:
            words = (
                got.format(shape) + "give all three as (N, L, E), or as (L, E) for one sequence."
            )
        assert says(said(module, y, y, y), f"AssertionError: {words}")


@KINDS
def test_56_a_dropout_that_is_no_probability_fails_late(kind: type[nn.Module]) -> None:
    module, x = make(kind, 56, 8, 2, dropout=1.5), torch.randn(2, 3, 8)
    words = "dropout probability has to be between 0 and 1, but got 1.5"
    assert said(module, x, x, x) == f"ValueError: {words}"
    assert said(module, x, x, x, need_weights=False) == f"RuntimeError: {words}"
    assert module.eval()(x, x, x)[0].isfinite().all()


@KINDS
def test_57_batches_and_lengths_that_do_not_match(kind: type[nn.Module]) -> None:
    module = make(kind, 57, 8, 2)
    theirs = kind is nn.MultiheadAttention
    for (queries, keys), (view, size) in {
        (1, 4): ([6, 2, 4], 192),
        (4, 2): ([6, 8, 4], 96),
        (2, 3): ([6, 4, 4], 144),
    }.items():
        query, key = torch.randn(queries, 3, 8), torch.randn(keys, 6, 8)
        words = f"shape '{view}' is invalid for input of size {size}"
        if not theirs:
            words = (
                f"Got query {(queries, 3, 8)}, key {(keys, 6, 8)} and value {(keys, 6, 8)}:"
                f" {queries} sequences of queries"
            )
        for need_weights in (True, False):
            assert says(
                said(module, query, key, key, need_weights=need_weights), f"RuntimeError: {words}"
            )
    query, key, value = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 6, 8)
    words = "key shape torch.Size([5, 2, 8]) does not match value shape torch.Size([6, 2, 8])"
    if not theirs:
        words = (
            "Got query (2, 3, 8), key (2, 5, 8) and value (2, 6, 8); key and value need the same"
            " shape: "
        )
        words += "every key has one value."
    assert says(said(module, query, key, value), f"AssertionError: {words}")


@KINDS
def test_58_two_dimensions_are_one_sequence_and_a_call_returns_a_tuple(
    kind: type[nn.Module],
) -> None:
    module, x = make(kind, 58, 4, 2).eval(), torch.randn(5, 4)
    output, weights = module(x, x, x)
    edited = x.clone()
    edited[4] += 3
    assert weights.shape == (5, 5) and same(
        far(module(edited, edited, edited)[0][0], output[0]), 0.466
    )
    words = (
        "TypeError: MultiheadAttention.forward() missing 2 required positional arguments: 'key' and"
        " 'value'"
    )
    assert said(nn.Sequential(module, nn.Linear(4, 4)), x) == words
    without = module(x, x, x, need_weights=False)
    assert len(without) == 2 and without[1] is None


@KINDS
def test_62_num_heads_changes_no_parameter_count_and_is_not_in_the_repr(
    kind: type[nn.Module],
) -> None:
    def count(num_heads: int, **build: bool) -> int:
        return sum(parameter.numel() for parameter in kind(64, num_heads, **build).parameters())

    assert count(1) == count(8) == 16640 == 4 * 64**2 + 4 * 64
    assert count(8, bias=False) == 16384 and count(8, add_bias_kv=True) == 16768
    text = " ".join(repr(kind(64, 8, dropout=0.1, add_zero_attn=True, batch_first=True)).split())
    assert (
        text == "MultiheadAttention( (out_proj): NonDynamicallyQuantizableLinear(in_features=64,"
        " out_features=64, bias=True) )"
    )


@KINDS
def test_67_order_of_the_tokens_makes_no_difference(kind: type[nn.Module]) -> None:
    module, x, order = (
        make(kind, 67, 8, 2).eval(),
        torch.randn(1, 5, 8),
        torch.tensor([3, 0, 4, 1, 2]),
    )
    output, weights = module(x, x, x)
    y = x[:, order]
    shuffled, shuffled_weights = module(y, y, y)
    assert far(shuffled, output[:, order]) < 1e-6 and far(shuffled, output) > 0.1
    assert far(shuffled_weights, weights[:, order][:, :, order]) < 1e-6


@KINDS
@pytest.mark.parametrize("qkv_bias", [True, False])
def test_69_one_linear_for_all_three_as_in_timm(kind: type[nn.Module], qkv_bias: bool) -> None:
    torch.manual_seed(69)
    qkv, proj = normal(nn.Linear(E, 3 * E, bias=qkv_bias)), normal(nn.Linear(E, E))
    x = torch.randn(N, L, E)
    q, k, v = qkv(x).reshape(N, L, 3, H, D).permute(2, 0, 3, 1, 4)
    expected = proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(N, L, E))
    module = kind(E, H, batch_first=True).eval()
    # bias=False would take the output's bias too
    bias = qkv.bias if qkv_bias else torch.zeros(3 * E)
    weights = {
        "in_proj_weight": qkv.weight,
        "in_proj_bias": bias,
        "out_proj.weight": proj.weight,
        "out_proj.bias": proj.bias,
    }
    module.load_state_dict(weights)
    assert far(module(x, x, x)[0], expected) < 2e-6
    assert list(kind(E, H, bias=False).state_dict()) == ["in_proj_weight", "out_proj.weight"]
