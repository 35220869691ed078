"""Multi-head attention as a module, in place of torch.nn.MultiheadAttention."""

from __future__ import annotations

from inspect import unwrap

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from mha_widgets.attention.checks import in_words_of
from mha_widgets.attention.functional import multi_head_attention_forward
from mha_widgets.attention.native import conditions
from mha_widgets.attention.nested import nest, pad_nested
from mha_widgets.attention.steps import SEPARATE

_attend = unwrap(multi_head_attention_forward)  # what torch says first, its module says


class MultiheadAttention(nn.MultiheadAttention):
    """Let every position gather what it needs from others, with several heads at once.

    ``MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_o`` with
    ``head_h = softmax((Q W_q,h) (K W_k,h).T / sqrt(D)) (V W_v,h)``. A drop-in for
    ``torch.nn.MultiheadAttention``: the same arguments, parameters, initial values under the same
    seed, state dict, numbers and layout in memory, and a subclass of it, for the tools that look
    for that class. It differs in what torch leaves to its native fast path: ours has none, so a row
    whose keys are all blocked, ``is_causal`` and errors are the same in evaluation as in training.
    (An ``nn.TransformerEncoderLayer`` around it still has its own, which calls neither.) With
    ``need_weights=False`` all is left to ``F.scaled_dot_product_attention``; second derivatives and
    ``torch.func.jvp`` then need ``sdpa_kernel(SDPBackend.MATH)``. TorchScript can't compile it: use
    ``torch.export``.

    Args:
        embed_dim: E, the features of queries and outputs; ``d_model`` in the paper.
        num_heads: H; each head works on D = E / H features, ``d_k = d_v`` in the paper.
        dropout: the share of weights that are set to 0 in training.
        bias: add biases in the projections, those of the inputs and that of the output.
        add_bias_kv: append a learned key and value to every sequence, after its last position.
        add_zero_attn: append a key and a value of zeros, after all others.
        kdim: Ek, the features of keys; E if not given.
        vdim: Ev, the features of values; E if not given.
        batch_first: inputs and output are (N, L, E) instead of (L, N, E).
        device: where the parameters are made.
        dtype: their floating type.

    Raises:
        ValueError: a size below 1.
        AssertionError: ``embed_dim`` can't be divided by ``num_heads``.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.2, and
    https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> attention = MultiheadAttention(embed_dim=8, num_heads=4, batch_first=True)
    >>> x = torch.randn(2, 5, 8)
    >>> output, weights = attention(x, x, x)
    >>> output.shape, weights.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 5, 5]))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                "embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError(
                f"embed_dim must be divisible by num_heads: {embed_dim} features can't be cut into "
                f"{num_heads} heads of one size; choose a num_heads that divides them."
            )
        nn.Module.__init__(self)  # the parameters are made here, not by torch's constructor
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.dropout = dropout
        self.add_zero_attn = add_zero_attn
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.batch_first = batch_first
        # nn.TransformerEncoderLayer asks
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        packed = self._qkv_same_embed_dim
        self.register_parameter(
            "in_proj_weight", parameter(3 * embed_dim, embed_dim) if packed else None
        )
        for name, features in zip(SEPARATE, (embed_dim, self.kdim, self.vdim), strict=True):
            self.register_parameter(name, None if packed else parameter(embed_dim, features))
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        # Dynamic quantization would replace a plain Linear,
        # whose weight is read here and not called.
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        self.bias_k = parameter(1, 1, embed_dim) if add_bias_kv else None
        self.bias_v = parameter(1, 1, embed_dim) if add_bias_kv else None
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (
            self.in_proj_weight,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
        ):
            if weight is not None:
                nn.init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                nn.init.xavier_normal_(bias)

    @in_words_of(nn.MultiheadAttention.forward)
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend: see :func:`multi_head_attention_forward` for arguments, results and errors.

        With one NestedTensor as query, key and value, in inference and without masks, the output is
        a NestedTensor too; the weights are padded with zeros to the longest sequence.

        >>> attention = MultiheadAttention(embed_dim=8, num_heads=4)
        >>> sequence = torch.randn(5, 8)  # (L, E): one alone
        >>> output, weights = attention(sequence, sequence, sequence, average_attn_weights=False)
        >>> output.shape, weights.shape
        (torch.Size([5, 8]), torch.Size([4, 5, 5]))
        """
        if isinstance(query, Tensor) and query.is_nested:
            return self._forward_nested(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights
            )
        separate = (
            {} if self._qkv_same_embed_dim else {name: getattr(self, name) for name in SEPARATE}
        )
        out_proj = self.out_proj
        return _attend(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            out_proj.weight,
            out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            **separate,
        )

    def _forward_nested(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        average_attn_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        reasons = conditions(self, query, key, value, key_padding_mask, attn_mask)
        if reasons:
            raise AssertionError(
                "A NestedTensor is taken in inference only, as torch's fast path takes it, but"
                f" {'; '.join(reason.words for reason in reasons)}; otherwise use"
                " query.to_padded_tensor(0.0) and a key_padding_mask."
            )
        padded, padding = pad_nested(query)
        output, weights = self.forward(
            padded, padded, padded, padding, need_weights, average_attn_weights=average_attn_weights
        )
        if weights is not None:
            weights = weights.masked_fill(
                padding.view(len(padding), *[1] * (weights.dim() - 3), -1, 1), 0.0
            )
        return nest(output, padding), weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Merge both masks as torch's native operations take them.

        ``nn.TransformerEncoderLayer`` asks its attention for this in inference.

        Args:
            attn_mask: (L, L) or (N * H, L, L), boolean or float, or None.
            key_padding_mask: (N, L), of the same type, or None.
            query: (N, L, E).

        Returns:
            The mask and its type: ``(None, None)`` without masks; ``key_padding_mask`` as it is and
            1 if it is alone; otherwise both merged as (N, H, L, L), blocked where either blocks,
            and 2. Type 0, an (L, L) mask as it is, is known to the native operations; torch's
            module never gives it, nor does ours.

        Raises:
            RuntimeError: a mask whose shape doesn't fit.

        Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

        >>> attention = MultiheadAttention(embed_dim=8, num_heads=4, batch_first=True)
        >>> attn_mask, padding = torch.zeros(5, 5).bool(), torch.zeros(2, 5).bool()
        >>> mask, mask_type = attention.merge_masks(attn_mask, padding, torch.zeros(2, 5, 8))
        >>> mask.shape, mask_type
        (torch.Size([2, 4, 5, 5]), 2)
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        N, L, _ = query.shape
        merged = attn_mask.view(N if attn_mask.dim() == 3 else 1, -1, L, L).expand(
            N, self.num_heads, L, L
        )
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(N, 1, 1, L)
        return merged, 2
