"""What a session object remembers: its id and the length of each layer, as known here."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from .errors import is_unsure
from .types import SessionInfo


class SessionState:
    """The part of a session that needs no connection.

    Lengths follow the answers, and on a Steps stream the steps submitted. A length becomes
    unknown when a call ends without the server's word on it; the next step that needs it asks.
    """

    replays = False  # whether it is made anew when it is lost

    def __init__(self, info: SessionInfo):
        self._id = info.session_id
        self._prefix_length = info.prefix_length
        self._closed = False
        self._lengths: List[Optional[int]] = list(info.layer_lengths)

    @property
    def session_id(self) -> str:
        return self._id

    @property
    def prefix_length(self) -> int:
        return self._prefix_length

    @property
    def lengths(self) -> Tuple[Optional[int], ...]:
        """The position of the next row of each layer; None where it is not known."""
        return tuple(self._known(layer) for layer in range(len(self._lengths)))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id} lengths={list(self.lengths)}>"

    def _take(self, info: SessionInfo) -> SessionInfo:
        self._lengths = list(info.layer_lengths)
        return info

    def _known(self, layer: int) -> Optional[int]:
        """The layer's length. A layer that the model lacks has 0: the server will refuse it."""
        return self._lengths[layer] if 0 <= layer < len(self._lengths) else 0

    def _set(self, layer: int, length: Optional[int]) -> None:
        if 0 <= layer < len(self._lengths):
            self._lengths[layer] = length

    def _accept(self, session_id: str, layer: int, position: int, hidden: Any) -> bool:
        """A step was answered: these rows (a Tensor) are in the layer from `position` on.

        False: not of this session, which has another id by now.
        """
        return True

    def _gave_up(self, layer: int, position: int, rows: int, doubtful: bool) -> None:
        """A step failed. `doubtful`: it may be done all the same."""
        self._set(layer, None)

    def _end(self, layer: int, info: Any = None) -> Optional[int]:
        """Where the layer's next row belongs, by the server's word (a Session) if it is given."""
        return self._known(layer) if info is None else info.layer_lengths[layer]

    def _kept_end(self, layer: int) -> Optional[int]:
        """The layer's length by what is kept here of its rows; None: the server's word counts."""
        return None

    def _length_for(self, layer: int, position: int) -> int:
        """What the layer's length may be where a step begins at `position`."""
        return position

    def _unsettled(self, layer: int, position: int) -> bool:
        """Whether a step at `position` must wait until the session has been brought back."""
        return False

    def _failed(self, layer: int, error: BaseException, repeated: bool = False) -> None:
        """After an error of attnd's own the layer is as it was; after others nobody knows.

        Nor after a repeated call, whatever its last error: an earlier try may have appended.
        """
        if repeated or is_unsure(error):
            self._set(layer, None)

    def _rewind_failed(self, error: BaseException) -> None:
        for layer in range(len(self._lengths)):
            self._failed(layer, error)
