"""One run at a time, first come first served."""

from __future__ import annotations

import random
import threading

import pytest

from kvdemo.errors import TooBusy
from kvdemo.generation.turnstile import Turnstile


def test_the_first_goes_at_once_and_the_others_see_their_places() -> None:
    turnstile = Turnstile(max_waiting=5)
    first, second, third = turnstile.join(), turnstile.join(), turnstile.join()
    assert [first.wait(0), second.wait(0), third.wait(0)] == [True, False, False]
    assert [first.place, second.place, third.place] == [0, 1, 2]
    first.leave()
    assert [second.wait(0), third.place] == [True, 1]


def test_who_gives_up_waiting_does_not_hold_the_line() -> None:
    turnstile = Turnstile(max_waiting=5)
    first, second, third = turnstile.join(), turnstile.join(), turnstile.join()
    second.leave()
    second.leave()
    first.leave()
    assert third.wait(0)
    assert turnstile.length == 1


def test_a_full_line_is_refused_in_words() -> None:
    turnstile = Turnstile(max_waiting=1)
    turnstile.join(), turnstile.join()
    with pytest.raises(TooBusy, match="1 requests wait already"):
        turnstile.join()


def test_who_is_patient_takes_his_place_in_a_full_line_and_comes_in_his_turn() -> None:
    turnstile = Turnstile(max_waiting=1)
    first, second = turnstile.join(), turnstile.join()
    patient = turnstile.join(patient=True)
    assert patient.place == 2
    with pytest.raises(TooBusy):
        turnstile.join()
    first.leave()
    assert [second.wait(0), patient.wait(0)] == [True, False]
    second.leave()
    assert patient.wait(0)


def test_at_most_one_runs_over_200_random_interleavings() -> None:
    turnstile = Turnstile(max_waiting=200)
    running, most, mistakes = 0, 0, []
    lock = threading.Lock()
    dice = random.Random(7)
    gives_up = [dice.random() < 0.3 for _ in range(200)]

    def visitor(impatient: bool) -> None:
        nonlocal running, most
        ticket = turnstile.join()
        try:
            if impatient and not ticket.wait(0):
                return
            while not ticket.wait(1):
                pass
            with lock:
                running += 1
                most = max(most, running)
                if running > 1:
                    mistakes.append(running)
            with lock:
                running -= 1
        finally:
            ticket.leave()

    threads = [threading.Thread(target=visitor, args=(impatient,)) for impatient in gives_up]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, mistakes, turnstile.length) == (1, [], 0)
