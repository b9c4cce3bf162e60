"""What clients do, and how often."""

from __future__ import annotations

from typing import Sequence, Tuple

from . import lifecycle, moves, pipeline, steps, vandal
from .client import Action

# Name, weight, action. A line here is all that an action needs.
ACTIONS: Sequence[Tuple[str, int, Action]] = (
    ("step", 400, steps.one_step),
    ("together", 120, steps.together),
    ("pipeline", 90, pipeline.pipeline),
    ("rewind session", 50, steps.rewind_session),
    ("look around", 50, lifecycle.look_around),
    ("open", 90, lifecycle.open_session),
    ("close", 30, lifecycle.close_session),
    ("close under steps", 15, lifecycle.close_under_steps),
    ("expire", 15, lifecycle.expire),
    ("fork", 40, moves.fork),
    ("export and import", 30, moves.export_import),
    ("malformed call", 30, vandal.malformed_call),
    ("malformed connection", 10, vandal.malformed_connection),
)
