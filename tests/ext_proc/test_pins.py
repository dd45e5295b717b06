from controlplane.model import FormatTier, Pin
from controlplane.policy.settings import SessionRules
from ext_proc.pins import MemoryPins

FULL, QUANTIZED = Pin(FormatTier.FULL), Pin(FormatTier.QUANTIZED)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def memory_pins(clock: Clock, *, capacity: int = 10) -> MemoryPins:
    pins = MemoryPins(clock)
    pins.configure(SessionRules(ttl_seconds=10, max_sessions=capacity))
    return pins


async def test_the_first_writer_wins() -> None:
    pins = memory_pins(Clock())
    assert await pins.set_first("s", FULL) == FULL
    assert await pins.set_first("s", QUANTIZED) == FULL
    assert await pins.get("s") == FULL


async def test_a_pin_ends_its_ttl_after_the_last_use() -> None:
    clock = Clock()
    pins = memory_pins(clock)
    await pins.set_first("s", FULL)
    clock.now = 9
    assert await pins.get("s") == FULL
    clock.now = 18
    assert await pins.get("s") == FULL
    clock.now = 28
    assert await pins.get("s") is None
    assert await pins.set_first("s", QUANTIZED) == QUANTIZED


async def test_above_capacity_the_least_recently_used_gives_way() -> None:
    pins = memory_pins(Clock(), capacity=2)
    await pins.set_first("a", FULL)
    await pins.set_first("b", FULL)
    await pins.get("a")
    await pins.set_first("c", FULL)
    assert await pins.get("b") is None
    assert await pins.get("a") == FULL
    assert len(pins) == 2
