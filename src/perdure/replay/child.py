"""A process that checks histories, one after another, until its input ends. Started by `perdure.replay.pool`."""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from perdure.codec.base import Chain, open_chain
from perdure.replay.check import Code, check
from perdure.replay.code import load
from perdure.replay.frames import LENGTH_BYTES, Answer, Order
from perdure.replay.history import History
from perdure.runtime.carried import NOTHING, frozen
from perdure.runtime.registry import StepRegistry

_SPARE_S = 2
"""So much longer than its patience a body may keep this process, before the process ends with it."""


class NotLoaded(Exception):
    """The code cannot be loaded; the text says all that there is to say."""


Load = Callable[[Order, Chain], dict[str, Code]]
"""(what is to be checked against, how values are stored) -> the code by workflow. May raise anything."""


def main() -> None:
    """Check histories against code that lies on the path."""
    serve(_deployed)


def _deployed(order: Order, codec: Chain) -> dict[str, Code]:
    sys.path[:] = order.path
    steps = StepRegistry()
    known = {name: load(place) for name, place in order.places.items()}
    return {name: Code(workflow, steps, codec, frozen(workflow, NOTHING)) for name, workflow in known.items()}


def serve(load_code: Load) -> None:
    """Take an order, then histories."""
    given, answers = _pipes()
    order = msgspec.msgpack.decode(_read(given), type=Order)
    try:
        codes = load_code(order, open_chain((order.codec,), {order.codec: order.options}))
    except BaseException as error:  # noqa: BLE001 - the user's modules may raise anything, SystemExit too
        _write(answers, Answer(str(error) if isinstance(error, NotLoaded) else _told(error)))
        return
    _write(answers, Answer())
    logging.disable()  # what a replay logs was logged when it happened
    gc.freeze()
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
