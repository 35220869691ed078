"""What explorers have in common; an author of one imports from here.

What the reader passes, and what is wrong with it, in one sentence:

- ``check_tensor``: an ordinary tensor of real floating-point numbers;
- ``one_type``: several tensors of one type;
- ``matrix``: two dimensions, finite numbers, at least float32;
- ``check_scores``: queries and keys whose dot products don't overflow;
- ``labels``: one label for each of some things;
- ``copy_to_cpu``: a copy that stays, whatever becomes of the original.

A module of attention:

- ``copy_for_inference``: a copy that stays, in evaluation, in float32 or float64;
- ``inputs_for``: the inputs of one call with one sequence;
- ``check_output``: what it makes of finite inputs is finite;
- ``cut``, ``check_cut``: the same weights, cut into other heads;
- ``thirds``, ``biases``: W_q, W_k and W_v, packed or not, and their biases;
- ``empty``: one whose weights are to be set;
- ``head_words``: the names of its heads.

Words and numbers:

- ``quoted``: a token, set off;
- ``format_number``, ``vector``, ``summed``: a number, a vector, a sum;
- ``difference``: how far apart two results are that may differ by rounding;
- ``listed``, ``counted``: a list of words, so many things;
- ``strongest``: what a row looks at most; ``row_in_numbers``: from each score to its weight;
- ``habits``: what each head looks at.

Programs that reproduce what is shown:

- ``assignment``: a tensor as a line of Python;
- ``as_code``: a module as lines of Python; ``all_by_hand``: its output from slices of its weights.

And the modules ``sentence``, the book's own words and matrices, and ``batch``, a module and a batch
that are drawn from a seed.
"""

from mha_widgets.kit.habits import habits
from mha_widgets.kit.module import (
    all_by_hand,
    as_code,
    biases,
    check_cut,
    check_output,
    copy_for_inference,
    cut,
    empty,
    head_words,
    inputs_for,
    thirds,
)
from mha_widgets.kit.tensors import (
    assignment,
    check_scores,
    check_tensor,
    copy_to_cpu,
    labels,
    matrix,
    one_type,
)
from mha_widgets.kit.words import (
    counted,
    difference,
    format_number,
    listed,
    quoted,
    row_in_numbers,
    strongest,
    summed,
    vector,
)

__all__ = [
    "all_by_hand",
    "as_code",
    "assignment",
    "biases",
    "check_cut",
    "check_output",
    "check_scores",
    "check_tensor",
    "copy_for_inference",
    "copy_to_cpu",
    "counted",
    "cut",
    "difference",
    "empty",
    "format_number",
    "habits",
    "head_words",
    "inputs_for",
    "labels",
    "listed",
    "matrix",
    "one_type",
    "quoted",
    "row_in_numbers",
    "strongest",
    "summed",
    "thirds",
    "vector",
]
