"""What copies promise: the part of the model that is about `copy=True`.

A copy is new memory, filled on the stream that was asked for (with -1 the one that the array is
ready on), after what is pending; the producer waits for it as for a consumer that has come and
gone. The memory goes back in the order of that stream where somebody vouches for it, else the host
waits.
"""

from __future__ import annotations

from . import steps as s
from .model import Array, Model, View, wants


class Copies(Model):
    """The model with copies, and what all hand-overs have in common."""

    def _live(
        self, argument: s.Argument, current: str | None, home: str | None = None
    ) -> tuple[str | None, str | None]:
        """Tell the stream that an order can be made with later, and what has to be held for it.

        A bare handle is vouched for by the library that works on it just now.
        """
        stream = s.stream_of(argument)
        if stream is None or s.is_default(stream):
            return stream, None
        if argument != stream and stream == home:
            return stream, None
        return (stream, stream) if stream in {argument, current} else (None, None)

    def _hand_out(self, name: str, view: View, held: str, consumer: str | None) -> None:
        """Make a view, a capsule or an import, which holds these; `consumer` by its object."""
        self.views[name] = view
        self.views[name] = view._replace(keeps_consumer=consumer)
        self._add(name, held, view.keeps, view.keeps_home, view.keeps_declared, consumer)

    def _asked(self, argument: s.Argument, array: Array) -> str | None:
        stream = s.stream_of(argument)
        if stream is not None:
            wants(self.lanes[self._usable(stream)].device == array.device, "another device")
        return stream

    def _copy(self, step: s.Copy) -> None:
        view = self.views[step.source]
        array = self.arrays[view.array]
        wants(step.source in self.holds and view.kind == "dlpack")
        wants(array.own and not array.empty)
        self.outside()
        stream, legacy = self._asked(step.stream, array), f"L{array.device}"
        ready = self._usable(view.ready)
        queue = stream or (legacy if step.stream is None else ready or legacy)
        self.edge(ready, queue)
        self.access(queue, view.array, write=False)
        made, memory = "x" + step.name[1:], "m" + step.name[1:]
        live, kept = (legacy, None) if step.stream is None else self._live(step.stream, None)
        self.arrays[made] = Array(
            array.device, (), False, False, live, None, True, copied_on=queue, waits=live is None
        )
        self.blocks[made] = (self.freed.get(queue, 0), 0)
        self.access(queue, made, write=True)
        self.values[made] = self.values[view.array]
        # The producer gets its memory back from somebody who worked on that stream.
        reader, held = "h" + step.name[1:], self.holds[step.source][0]
        self._hand_out(reader, view._replace(consumer=queue, lent_out=False), held, None)
        del self.named[reader]
        self._less(reader)
        self._add(memory, named=False)
        self._hand_out(
            step.name, View(made, queue, False, keeps=kept, kind="capsule"), memory, None
        )
        self.count[memory] -= 1

    def _free(self, name: str) -> None:
        array = self.arrays[name]
        if array.copied_on is not None and (array.waits or not self.strict):
            # At a moment that nobody knows the host would wait, or the stream order others.
            wants(self.doubt is None)
        if array.waits:
            self.wait_for_device(array.device)
        elif self.elsewhere and array.copied_on is not None and array.copied_on[0] == "T":
            # Another thread has no name for it.
            self.arrays[name] = array._replace(pool=f"L{array.device}")
        super()._free(name)
