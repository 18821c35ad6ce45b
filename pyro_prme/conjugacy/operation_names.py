"""Names of torch functions by what they need of a random tensor."""

from __future__ import annotations

__all__ = ["ELEMENTWISE", "READS", "SHAPE_QUESTIONS"]

_SHAPE = """
    size dim numel len ndimension is_floating_point is_complex element_size get_device hash is_contiguous stride
"""
_READING = """
    __bool__ __int__ __float__ __complex__ __index__ __array__ item numpy tolist nonzero unique equal
    allclose is_nonzero
"""
_ALONE = """
    add radd iadd sub rsub isub subtract mul rmul imul multiply div rdiv rtruediv truediv itruediv true_divide divide
    floordiv rfloordiv floor_divide mod rmod remainder fmod pow rpow neg negative positive abs absolute sign
    eq ne lt le gt ge greater less greater_equal less_equal not_equal
    logical_not logical_and logical_or logical_xor bitwise_not invert bitwise_and bitwise_or bitwise_xor
    and or xor rand ror rxor where exp expm1 log log1p log2 log10 sqrt rsqrt reciprocal square
    sin cos tan tanh sigmoid relu softplus logit erf erfc lgamma digamma xlogy special_xlogy
    floor ceil round trunc frac clamp clip clamp_min clamp_max maximum minimum
    float double half long int bool short to type type_as
"""

#: They are answered by the wrapper itself and need no values.
SHAPE_QUESTIONS = frozenset(_SHAPE.split())
#: They would read a value that does not exist.
READS = frozenset(_READING.split())
#: They act on each element alone, so that they may be applied to every value of a discrete variable.
ELEMENTWISE = frozenset(_ALONE.split())
