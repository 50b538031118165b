"""The tolerance rule and the float64 reference."""

import pytest
import torch

from cases.axes import DType
from suite.numerics import InDouble, RoutingReplay, compare, compare_named


def arms(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A truth of 64 rows, and what PyTorch in float32 makes of it."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(64, 32, generator=generator, dtype=torch.float64)
    return truth, truth * (1 + 3e-7 * torch.randn(64, 32, generator=generator, dtype=torch.float64))


def test_a_kernel_as_good_as_pytorch_passes() -> None:
    """Fault: a rule that only PyTorch itself can meet."""
    truth, pytorch = arms()
    generator = torch.Generator().manual_seed(9)
    kernel = truth * (1 + 3e-7 * torch.randn(64, 32, generator=generator, dtype=torch.float64))
    assert compare(kernel, pytorch, truth, DType.FLOAT32).passed


def test_one_wrong_row_of_many_fails_and_is_named() -> None:
    """Fault: a single wrong row that drowns in the mean."""
    truth, pytorch = arms()
    kernel = pytorch.clone()
    kernel[17] *= 1.0001
    comparison = compare(kernel, pytorch, truth, DType.FLOAT32)
    assert not comparison.passed
    assert comparison.worst == "row 17"


def test_a_small_error_in_every_row_fails() -> None:
    """Fault: a kernel that is a little worse everywhere, and nowhere beyond the worst row of PyTorch."""
    truth, pytorch = arms()
    pytorch[0] *= 1 + 1e-3
    comparison = compare(pytorch * (1 + 3e-6), pytorch, truth, DType.FLOAT32)
    assert not comparison.passed


def test_not_a_number_fails_whatever_the_ratio() -> None:
    """Fault: NaN, which compares as neither larger nor smaller."""
    truth, pytorch = arms()
    kernel = pytorch.clone()
    kernel[3, 3] = float("nan")
    assert not compare(kernel, pytorch, truth, DType.FLOAT32).passed


def test_an_exact_pytorch_does_not_forbid_rounding() -> None:
    """Fault: division by an error of zero."""
    truth, _ = arms()
    assert compare(truth * (1 + 1e-8), truth, truth, DType.FLOAT32).passed


def test_a_gradient_that_vanishes_in_truth_is_left_out() -> None:
    """Fault: the rounding noise of a key bias, whose gradient is zero, compared as if it meant something."""
    truth = {"weight": torch.ones(4, dtype=torch.float64), "key.bias": torch.full((4,), 1e-17, dtype=torch.float64)}
    pytorch = {"weight": torch.ones(4, dtype=torch.float64), "key.bias": torch.full((4,), 1e-9, dtype=torch.float64)}
    kernel = {"weight": torch.ones(4, dtype=torch.float64), "key.bias": torch.full((4,), 1e-7, dtype=torch.float64)}
    assert compare_named(kernel, pytorch, truth, DType.FLOAT32).passed


def test_the_reference_computes_in_float64_where_code_asks_for_float32() -> None:
    """Fault: a truth that rounds where the thing it judges rounds."""
    value = torch.tensor([1.0, 1e-12], dtype=torch.float64)
    with InDouble():
        results = [
            value.float(),
            value.to(torch.float32),
            value.to(dtype=torch.float32),
            value.type(torch.float32),
            torch.softmax(value, -1, dtype=torch.float32),
            torch.zeros(2, dtype=torch.float32),
        ]
    assert {result.dtype for result in results} == {torch.float64}


def test_a_near_tie_takes_the_recorded_expert_and_a_wrong_router_does_not() -> None:
    """Fault: rounding that flips an expert counted as an error; or a wrong router put right by the harness."""
    recorded: list[torch.Tensor] = []
    with RoutingReplay(recorded, recording=True):
        torch.topk(torch.tensor([0.5, 0.5001, 0.1], dtype=torch.float64), 1)
    with RoutingReplay(recorded, recording=False, dtype=DType.BFLOAT16):
        near = torch.topk(torch.tensor([0.5003, 0.5, 0.1]), 1)
    assert near.indices.tolist() == [1]
    with RoutingReplay(recorded, recording=False, dtype=DType.BFLOAT16):
        wrong = torch.topk(torch.tensor([0.9, 0.5, 0.1]), 1)
    assert wrong.indices.tolist() == [0]


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16])
def test_the_floor_is_one_rounding_of_the_dtype(dtype: DType) -> None:
    """Fault: one absolute tolerance for every dtype."""
    truth = torch.ones(4, 8, dtype=torch.float64)
    rounding = {DType.FLOAT32: 2**-23, DType.BFLOAT16: 2**-7, DType.FLOAT16: 2**-10}[dtype]
    assert compare(truth * (1 + 1.9 * rounding), truth, truth, dtype).passed
    assert not compare(truth * (1 + 2.1 * rounding), truth, truth, dtype).passed
