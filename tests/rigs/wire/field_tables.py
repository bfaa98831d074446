"""Field tables of all types, for Hypothesis; NaN, which equals nothing, is left out."""

from __future__ import annotations

from hypothesis import strategies as st

from leveret.amqp.tables import Field, Table

SCALARS: st.SearchStrategy[Field] = st.one_of(
    st.tuples(st.just("t"), st.booleans()),
    st.tuples(st.just("b"), st.integers(-(2**7), 2**7 - 1)),
    st.tuples(st.just("B"), st.integers(0, 2**8 - 1)),
    st.tuples(st.just("s"), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just("u"), st.integers(0, 2**16 - 1)),
    st.tuples(st.just("I"), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("i"), st.integers(0, 2**32 - 1)),
    st.tuples(st.sampled_from("lL"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("f"), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("d"), st.floats(allow_nan=False)),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1))),
    st.tuples(st.sampled_from("Sx"), st.binary(max_size=20)),
    st.tuples(st.just("T"), st.integers(0, 2**64 - 1)),
    st.just(("V", None)),
)
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
FIELDS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.tuples(st.just("A"), st.lists(inner, max_size=4)),
        st.tuples(st.just("F"), st.dictionaries(NAMES, inner, max_size=4)),
    ),
    max_leaves=12,
)
TABLES: st.SearchStrategy[Table] = st.dictionaries(NAMES, FIELDS, max_size=5)
