"""Free memory is dirtied, and given back."""

import mlx.core as mx

from conformance.backend.memory import churn


def test_no_memory_is_held_afterwards():
    mx.synchronize()
    before = mx.get_active_memory()
    churn()
    mx.synchronize()
    assert mx.get_active_memory() <= before


def test_buffers_are_filled_with_nan_and_with_huge_numbers(monkeypatch):
    values = []
    full = mx.full

    def recorded(shape, value, dtype):
        values.append((shape[0], value))
        return full(shape, value, dtype)

    monkeypatch.setattr(mx, "full", recorded)
    churn(rounds=2)
    sizes = {size for size, _ in values}
    assert {64, 65536} <= sizes
    for size in sizes:
        filled = [value for other, value in values if other == size]
        assert any(value != value for value in filled)  # NaN
        assert any(value == 1e9 for value in filled)


def test_live_arrays_are_left_alone():
    x = mx.arange(256).astype(mx.float32)
    mx.eval(x)
    churn(rounds=3)
    assert x.tolist() == list(range(256))
