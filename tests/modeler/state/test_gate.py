"""The gate: many inside at once, nobody while it is closed, and closing waits no longer than it was told to."""

from __future__ import annotations

import threading

from barograph_modeler.state.gate import Gate


def test_it_closes_when_the_last_one_has_left_and_lets_nobody_in_meanwhile():
    gate, seen, inside, leave = Gate(), [], threading.Barrier(3), threading.Event()

    def work() -> None:
        with gate.passing():
            inside.wait(120)
            leave.wait(120)
            seen.append("left")

    def late() -> None:
        with gate.passing():
            seen.append("late")

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(120)  # both are inside at once
    with gate.closed(0.01) as alone:
        assert not alone
    leave.set()
    with gate.closed(120) as alone:
        assert alone
        waiting = threading.Thread(target=late)
        waiting.start()
        waiting.join(0.05)
        assert seen == ["left", "left"]
    waiting.join(120)
    assert seen == ["left", "left", "late"]


def test_it_opens_again_after_an_error_on_either_side():
    gate = Gate()
    for side in (gate.passing(), gate.closed(1)):
        try:
            with side:
                raise ArithmeticError
        except ArithmeticError:
            pass
    with gate.closed(0) as alone:
        assert alone
    with gate.passing():
        pass
