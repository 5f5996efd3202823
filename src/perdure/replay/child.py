"""A process that checks histories, one after another, until its input ends. Started by `perdure.replay.pool`."""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import sys
import traceback
from typing import BinaryIO

import msgspec

from perdure.codec.base import open_chain
from perdure.replay.check import Code, check
from perdure.replay.code import load
from perdure.replay.frames import LENGTH_BYTES, Answer, Order
from perdure.replay.history import History
from perdure.runtime.registry import StepRegistry

_SPARE_S = 2
"""So much longer than its patience a body may keep this process, before the process ends with it."""


def main() -> None:
    """Take an order, then histories."""
    given, answers = _pipes()
    order = msgspec.msgpack.decode(_read(given), type=Order)
    try:
        sys.path[:] = order.path
        known = {name: load(place) for name, place in order.places.items()}
        codec = open_chain((order.codec,), {order.codec: order.options})
    except BaseException as error:  # noqa: BLE001 - the user's modules may raise anything, SystemExit too
        _write(answers, Answer(_told(error)))
        return
    _write(answers, Answer())
    logging.disable()  # what a replay logs was logged when it happened
    gc.freeze()
    steps = StepRegistry()
    codes: dict[str, Code] = {name: Code(workflow, steps, codec) for name, workflow in known.items()}
    while data := _read(given):
        history = msgspec.msgpack.decode(data, type=History)
        signal.alarm(math.ceil(order.patience_s) + _SPARE_S)
        finding = check(history, codes[history.workflow], order.patience_s)
        signal.alarm(0)
        _write(answers, Answer(finding=finding))


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take standard input and output for us alone: what the user's code prints is not for the pool."""
    given, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return given, answers


def _read(given: BinaryIO) -> bytes:
    head = given.read(LENGTH_BYTES)
    return given.read(int.from_bytes(head, "big")) if len(head) == LENGTH_BYTES else b""


def _write(answers: BinaryIO, answer: Answer) -> None:
    data = msgspec.msgpack.encode(answer)
    answers.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    answers.flush()


def _told(error: BaseException) -> str:
    last = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen ")]
    return f"{last} ({frames[-1].filename}:{frames[-1].lineno})" if frames else last


if __name__ == "__main__":
    main()
