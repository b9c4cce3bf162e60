"""numpy to the wire and back."""

import numpy as np
import pytest

from attnd import tensors
from attnd._proto import attnd_pb2 as pb

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


@pytest.mark.parametrize(
    "dtype, wire", [(np.float32, pb.DTYPE_F32), (np.float16, pb.DTYPE_F16)]
)
def test_array_keeps_its_bits(dtype, wire):
    array = np.random.default_rng(1).standard_normal((5, 7)).astype(dtype)
    tensor = tensors.to_tensor(array)
    assert (tensor.dtype, list(tensor.shape), len(tensor.data)) == (wire, [5, 7], array.nbytes)
    assert tensor.data == array.tobytes()
    back = tensors.from_tensor(tensor)
    assert back.dtype == dtype and np.array_equal(back, array)


def test_output_is_read_only_and_without_a_copy():
    tensor = tensors.to_tensor(np.ones((2, 3), np.float32))
    back = tensors.from_tensor(tensor)
    assert not back.flags.writeable and not back.flags.owndata


def test_strided_rows_are_made_contiguous():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (array[::2], array[:, ::2], array.T):
        assert tensors.to_tensor(view).data == view.tobytes()


def test_conversion_on_the_wire():
    array = np.array([[1.0, -2.5]], np.float32)
    assert tensors.to_tensor(array, "f16").data == array.astype("<f2").tobytes()
    assert tensors.to_tensor(array.astype("f2"), np.float32).data == array.tobytes()


def test_bf16_rounds_to_nearest_even_and_keeps_nan_and_infinity():
    values = [1.0, 1.00390625, 1.01171875, 3.4e38, np.inf, -np.inf, np.nan, 0.0]
    # 1 + 2^-8 is half way and goes down to even 1.0; 1 + 3·2^-8 is half way and goes up.
    bits = [0x3F80, 0x3F80, 0x3F82, 0x7F80, 0x7F80, 0xFF80, 0x7FC0, 0x0000]
    tensor = tensors.to_tensor(np.array([values], np.float32), "bf16")
    assert tensor.dtype == pb.DTYPE_BF16
    assert np.frombuffer(tensor.data, "<u2").tolist() == bits


def test_every_nan_stays_nan_in_bf16():
    nans = np.array([[0x7F800001, 0xFFFFFFFF, 0xFF800001]], np.uint32).view(np.float32)
    back = tensors.from_tensor(tensors.to_tensor(nans, "bf16")).astype(np.float32)
    assert np.isnan(back).all()


def test_bf16_arrives_as_ml_dtypes_or_widened():
    tensor = tensors.to_tensor(np.array([[1.5, -3.0]], np.float32), "bf16")
    back = tensors.from_tensor(tensor)
    expected = np.float32 if ml_dtypes is None else ml_dtypes.bfloat16
    assert back.dtype == expected
    assert back.astype(np.float32).tolist() == [[1.5, -3.0]]
    if ml_dtypes is not None:
        assert tensors.to_tensor(back).data == tensor.data


@pytest.mark.parametrize(
    "hidden, error, text",
    [
        (np.zeros((2, 2)), TypeError, "float64"),
        (np.zeros((2, 2), np.int8), TypeError, "int8"),
        (np.zeros((2, 2), ">f4"), TypeError, "byte order"),
        ([[1.0]], TypeError, "list"),
        (np.zeros(3, np.float32), ValueError, "[3]"),
        (np.zeros((1, 1, 1), np.float32), ValueError, "[1, 1, 1]"),
    ],
)
def test_other_arrays_are_refused_before_sending(hidden, error, text):
    with pytest.raises(error) as refused:
        tensors.to_tensor(hidden)
    assert text in str(refused.value) and "expected" in str(refused.value)


def test_names_of_dtypes():
    assert tensors.dtype_name("f32") == tensors.dtype_name("float32") == "f32"
    assert tensors.dtype_name(np.float16) == "f16"
    assert tensors.wire_dtype(None) == pb.DTYPE_UNSPECIFIED
    for wrong in ("int8", "f64", np.int32):
        with pytest.raises(TypeError):
            tensors.wire_dtype(wrong)


def test_an_answer_of_unknown_dtype_is_an_error():
    with pytest.raises(ValueError, match="wire dtype 4"):
        tensors.from_tensor(pb.Tensor(dtype=pb.DTYPE_INT8, shape=[1, 1], data=b"\0"))
