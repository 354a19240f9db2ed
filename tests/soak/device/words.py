"""What the model knows of arrays and views: plain records."""

from __future__ import annotations

from typing import NamedTuple

from .. import steps as s
from .strangers import STRANGE

SILENT = {"cai0", "cai1", "cai2"}


class StreamRef(NamedTuple):
    """A stream that is used later, and who keeps it alive.

    That is the context of a default stream ("always"), an object that is held ("object"), or the
    exporter of a dict that names it, who is asked again and may have moved ("exporter"), or must
    not have ("pinned"); or nobody ("nobody"). The legacy default stream is "unsaid" where a dict
    named none, which may mean that work is pending there.
    """

    stream: str
    by: str = "always"
    # Who keeps it besides an exporter that cannot be asked.
    besides: str | None = None


class User(NamedTuple):
    """Who works on memory, as far as the bridge is told.

    "nobody"; "declined" by -1; at "home", on the producer's own stream, where `kept` is who keeps
    that one if the producer may move; "unread", whoever reads the dict; "unnamed", who has read it,
    `seen` being the streams that libraries worked on then; "on" a stream that is kept; or "unkept",
    on a stream that nobody keeps.
    """

    kind: str = "nobody"
    kept: StreamRef | None = None
    stream: str = ""
    seen: tuple[StreamRef, ...] = ()
    # The GPU of a stream that was named.
    at: int | None = None


class Array(NamedTuple):
    """An array of the program."""

    device: int
    speaks: tuple[str, ...]
    readonly: bool
    empty: bool
    pool: str | None
    pending: str | None
    # Whether it is memory of the GPU's own; else every GPU works on it.
    own: bool = True
    # Of a library's array that is made of a capsule: the array whose memory it is.
    root: str | None = None
    # Of a copy: the stream that it was made on.
    copied_on: str | None = None

    @property
    def is_strange(self) -> bool:
        """Whether no row of the habits vouches for its type."""
        return STRANGE in self.speaks

    def says(self, protocol: str) -> str | None:
        """Name the array's form of "dlpack" or "cai", if it speaks that."""
        return next((kind for kind in self.speaks if kind.startswith(protocol)), None)


class View(NamedTuple):
    """A view, or a capsule or tensor that was made of an array."""

    array: str
    # The stream that the view names, and what a consumer waits for; None where nobody keeps it.
    ready: str | None
    on: StreamRef | None
    readonly: bool
    # Where the producer's streams are, and the consumer's.
    place: int
    at: int
    home: StreamRef | None = None
    # Streams that wait at the end besides the producer's: declared ones, and those of the consumers
    # of the views between.
    upstream: tuple[StreamRef, ...] = ()
    user: User = User()
    kind: str = ""
    # Whether a managed tensor holds the memory, whatever becomes of the producer's object.
    tensor: bool = False
    # Whether the memory is a copy's, which is freed at the end.
    copy: bool = False
    # Whether it was borrowed, for work on the legacy default stream.
    lent: bool = False
    # Whether it is handed out as one GPU's own memory.
    gpus: bool = True
    # Of a capsule: whether it says its version.
    versioned: bool = True
    # Whether a dict named no stream at the import, and is asked again.
    unnamed: bool = False

    def handed_on(self, user: User) -> View:
        """Tell the same for another consumer: whoever had it before is upstream."""
        before = self.user
        stands_in = before.kind == "home" and before.kept and before.kept.stream != before.stream
        lasting = before.kept is not None and not stands_in
        kept = (*before.seen, *((before.kept,) if lasting else ()))
        moves = self.home is not None and self.home.by == "exporter"
        left = before.kind == "home" and moves and (before.kept is None or stands_in)
        unkept = left or before.kind == "unkept"
        kept += (StreamRef(before.stream, "nobody"),) if unkept else ()
        return self.above(*kept)._replace(user=user)

    def above(self, *kept: StreamRef) -> View:
        """Tell the same with more streams upstream."""
        upstream = list(self.upstream)
        for one in kept:
            same = {(known.stream, known.by == "nobody") for known in upstream}
            upstream += [] if (one.stream, one.by == "nobody") in same else [one]
        return self._replace(upstream=tuple(upstream))

    def known(self) -> list[StreamRef]:
        """List the streams that it has to do with, and who keeps them."""
        known = (self.on, self.home, *self.upstream, self.user.kept, *self.user.seen)
        return [one for one in known if one is not None]

    def names(self) -> set[str]:
        """List the streams that it knows, alive or not."""
        return {one.stream for one in self.known()} | {self.user.stream}

    def streams(self) -> tuple[str, ...]:
        """List the streams whose objects are held."""
        found = [one.stream for one in self.known() if "object" in {one.by, one.besides}]
        return tuple(stream for stream in found if not s.is_default(stream))
