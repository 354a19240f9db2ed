"""Further producers that break a requirement of the exchange API, or of both protocols."""

from __future__ import annotations

from broken_producers import behind, exporting, kept, saying
from more_producers import EXCHANGE, also, reads_others
from more_producers_cai import any_other_stream
from more_producers_lifetime import a_block_for_all
from producers import device

also("exchange-table", "version 2 only", table={"version": (2, 0)})
also("exchange-table", "no stream", table={"stream": 0})
also("exchange-table", "no tensor", table={"from_object": 0})
also(
    "exchange-values",
    "strides count bytes",
    EXCHANGE,
    exchanged=lambda self: self.managed(strides=self._region.strides),
)
also(
    "exchange-values",
    "the offset of a slice is ignored",
    EXCHANGE,
    exchanged=lambda self: self.managed(ptr=self._region.ptr - max(behind(self), 0)),
)
also(
    "exchange-values",
    "negative strides are positive",
    EXCHANGE,
    exchanged=lambda self: self.managed(strides=[abs(s) // 4 for s in self._region.strides]),
)
also("exchange-values", "the library reads others", EXCHANGE, tolist=reads_others)
also(
    "exchange-borrowed",
    "it has another shape",
    EXCHANGE,
    lent=lambda self: self.managed(shape=self._region.shape[::-1]),
)
also(
    "exchange-borrowed",
    "it is on another device",
    EXCHANGE,
    lent=lambda self: self.managed(device=(2, 1)),
)
also(
    "exchange-borrowed",
    "its items have another type",
    EXCHANGE,
    lent=lambda self: self.managed(dtype=(0, 32, 1)),
)
also(
    "exchange-stream",
    "one without the work",
    EXCHANGE,
    settle=lambda self: None,
    work_stream=classmethod(lambda cls: any_other_stream(None)),
)
also(
    "exchange-stream",
    "2, which waits for nothing",
    EXCHANGE,
    settle=lambda self: None,
    work_stream=classmethod(lambda cls: 2),
)
also("exchange-pending-on-two", "nothing is settled", EXCHANGE, settle=lambda self: None)


def settle_the_first(self):
    for one in self._memory.streams[:1]:
        device().legacy.wait(one.record())


also(
    "exchange-pending-on-two",
    "1 waits for the first",
    EXCHANGE,
    settle=settle_the_first,
    work_stream=classmethod(lambda cls: 1),
)


def kept_when_exchanged(self):
    kept.append(self)
    return self.managed()


also("exchange-owner", "a list keeps it", EXCHANGE, exchanged=kept_when_exchanged)
also(
    "exchange-owner",
    "the same memory is given to all",
    EXCHANGE,
    exchanged=lambda self: self.managed(ptr=a_block_for_all(self)),
)

also(
    "both-agree",
    "the tensor has another shape",
    capsule=exporting(shape=lambda a: a._region.shape[::-1]),
)
also(
    "both-agree",
    "the tensor has signs, and the dict has none",
    interface=saying(typestr=lambda *_: "<u4"),
)
also(
    "both-agree",
    "slices begin elsewhere",
    capsule=exporting(ptr=lambda a: a._region.ptr - (a.contiguous and behind(a))),
)
