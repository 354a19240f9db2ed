"""Unusual producers: what they may do, what they may not, and what is asked of them."""

from __future__ import annotations

import contextlib
import ctypes
import time
from types import SimpleNamespace
from typing import Any

import pytest
from producers import (
    Array,
    Cai,
    DLPack,
    Library,
    current_stream,
    in_a_circle,
    is_columns,
    judged,
    speaking,
    working_on,
)

from cai_bridge.conformance import ProducerAdapter, Verdict, check_producer, in_another_thread
from cai_bridge.conformance.lab import Late, flat
from cai_bridge.testing._kit.dlpack_abi import ExchangeTable
from cai_bridge.testing._values import compact_strides

CAI, DLPACK = ("cai",), ("dlpack",)


@pytest.mark.parametrize("may_be", [True, False])
def test_negative_strides_may_be_refused_and_columns_may_not(
    may_be: bool, lab: Any, monkeypatch: Any
) -> None:
    export = ExchangeTable.export

    def refuses(table: ExchangeTable, x: Any) -> Any:
        # The kit's own arrays, which tell whether the lab is right, are not to be refused.
        if not hasattr(x, "_region"):
            return export(table, x)
        if min(x._region.strides or (1,)) < 0 if may_be else is_columns(x):
            raise BufferError("not this one")
        return export(table, x)

    monkeypatch.setattr(ExchangeTable, "export", refuses)
    found = judged(lab, "exchange-values", ("exchange",))
    assert found.outcome == ("passed" if may_be else "failed")
    assert may_be or "layout 'columns'" in found.evidence


def test_what_an_adapter_cannot_slice_is_told(lab: Any) -> None:
    class Whole(ProducerAdapter):
        dtypes = ("float32",)

        def make(self, shape: Any, dtype: str) -> Any:
            return type("Whole", (Library.array,), {"__getitem__": None}).made(shape, dtype)

    found = check_producer(Whole, lab=lab, only="exchange-values")["exchange-values"]
    assert found.outcome == "passed"
    assert "more not judged, such as layout 'columns'" in found.evidence


def test_a_dict_that_each_array_has_by_itself_is_read(lab: Any) -> None:
    class Own(Array):
        def __init__(self, *said: Any) -> None:
            super().__init__(*said)
            self.__cuda_array_interface__ = self.interface()

    assert judged(lab, "cai-shape", kind=Own).outcome == "passed"


def test_a_type_that_is_refused_is_told(lab: Any) -> None:
    def interface(self: Array) -> Any:
        if self._region.dtype == "bool":
            raise TypeError("no bools")
        return Array.interface(self)

    found = judged(lab, "cai-typestr", CAI, interface=interface)
    assert found.outcome == "passed"
    assert "more not judged, such as " in found.evidence


def test_a_dict_is_missed_before_two_streams_are_asked_for(lab: Any) -> None:
    class Nameless(Library):
        array = speaking("Nameless", DLPACK)

        def stream(self) -> None:
            return None

    found = check_producer(Nameless, lab=lab, only="cai-pending-on-two")["cai-pending-on-two"]
    assert found.evidence == "Nameless has no __cuda_array_interface__"


def test_a_stream_is_not_let_die_where_that_may_end_the_process(lab: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(lab, "expendable", False)
    found = judged(lab, "cai-stream-lifetime")
    assert found.outcome == "skipped"
    assert found.evidence.startswith("judged only in a process that may crash")


def test_what_another_thread_does_is_waited_for(lab: Any) -> None:
    done: list[int] = []

    def work() -> None:
        time.sleep(0.05)
        done.append(1)

    in_another_thread(work, lab)
    assert done == [1]


def test_the_newest_version_that_is_asked_for_is_the_one_that_is_read(lab: Any) -> None:
    asked = set()

    def capsule(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
        asked.add(newest)
        return Array.capsule(self, stream, newest, device, copy)

    judged(lab, "dlpack-dtype", DLPACK, capsule=capsule)
    assert asked == {(1, 3), (1, 0), (2, 0), None}


def test_memory_that_is_collected_before_the_deleter_is_called_is_found(lab: Any) -> None:
    found = judged(lab, "dlpack-deleter", DLPACK, made=in_a_circle, owner=lambda a: None)
    assert found.outcome == "failed", found.evidence


def test_a_tensor_that_goes_with_what_another_left_as_garbage_is_found(lab: Any) -> None:
    class Circular:
        def __init__(self, array: Array) -> None:
            self.array, self.itself = array, self
            self.tensors = array.__dict__.setdefault("tensors", [])

        def __del__(self) -> None:
            for tensor in self.tensors:
                tensor.struct.dl_tensor.ndim = 0

    def capsule(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
        owner = Circular(self)
        tensor = self.managed("versioned" if newest else "legacy", owner=owner)
        owner.tensors.append(tensor)
        return tensor.capsule()

    found = judged(lab, "dlpack-two-exports", DLPACK, capsule=capsule)
    assert found.outcome == "failed"
    assert found.evidence.startswith("then the other says ")


def test_an_array_that_goes_as_garbage_after_the_deleter_is_gone(lab: Any) -> None:
    class Circular:
        def __init__(self, array: Array) -> None:
            self.array, self.itself = array, self

    def capsule(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
        tensor = self.managed("versioned" if newest else "legacy", owner=Circular(self))
        return tensor.capsule()

    found = judged(lab, "dlpack-deleter-anywhere", DLPACK, capsule=capsule)
    assert found.outcome == "passed", found.evidence


@pytest.mark.parametrize(
    ("held", "outcome"),
    [((False, True, False), "passed"), ((False,) * 3, "failed"), ((True,) * 3, "passed")],
)
def test_a_host_that_waits_does_so_each_time(
    held: tuple[bool, ...], outcome: str, lab: Any, monkeypatch: Any
) -> None:
    class Holds:
        """Holds back until it was asked for the first time, and then as `held` says."""

        def __init__(self, *then: bool) -> None:
            self.left = [True, *then]

        release = SimpleNamespace

        @property
        def pending(self) -> bool:
            return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    holding, holds = Holds(True), iter([Holds(one) for one in held])
    monkeypatch.setattr(lab, "rounds", 3)
    monkeypatch.setattr(lab, "no_waits", contextlib.nullcontext)
    monkeypatch.setattr(lab, "hold", lambda stream: next(holds, holding))
    found = judged(lab, "dlpack-no-synchronization", DLPACK)
    assert found.outcome == outcome, found.evidence


def test_a_stream_that_died_with_its_object_is_named(lab: Any) -> None:
    class Circular(Library):
        """Its streams are collected as garbage, and its arrays keep only their handles."""

        class Kept(Array):
            def fill(self, value: float) -> None:
                super().fill(value)
                self.handle = current_stream().handle
                self._memory.streams = []

            def ready_stream(self) -> Any:
                return getattr(self, "handle", None)

        array = type("Kept", (Cai, Kept), {})

        def stream(self) -> Any:
            stream = super().stream()
            circle = [stream]
            circle.append(circle)
            return stream

    only = "cai-stream-lifetime"
    found = check_producer(Circular, lab=lab, only=only)[only]
    assert found.outcome == "failed"
    assert ", which is gone with its object: cuEventRecord: got CUDA_ERROR_" in found.evidence


class Unnamed(Library):
    """Its streams have no names, and its adapter says how work comes to be pending."""

    def stream(self) -> None:
        return None

    def late(self, lab: Any, value: float, words: int = 64) -> Late:
        stream = lab.stream()
        hold = lab.hold(stream.handle)
        array = self.make((words,), "float32")
        with working_on(stream):
            array.fill(value)
        return Late(array, None, value, hold)


def test_work_on_streams_without_names_is_judged(lab: Any) -> None:
    def verdict(only: str) -> Verdict:
        return check_producer(Unnamed, lab=lab, only=only)[only]

    elsewhere = verdict("dlpack-pending-elsewhere")
    assert elsewhere.outcome == "passed"
    assert "more not judged, such as" in elsewhere.evidence
    told = "it names no stream, and with work pending stream 'the kit's'"
    assert verdict("cai-stream").evidence.startswith(told)


def test_a_dict_of_version_2_fails_also_beside_the_adapters_own_late(lab: Any) -> None:
    class Older(Unnamed):
        class Two(Cai, Array):
            @property
            def __cuda_array_interface__(self) -> dict[str, Any]:
                entries = {**super().__cuda_array_interface__, "version": 2}
                return {key: one for key, one in entries.items() if key != "stream"}

        array = Two

    found = check_producer(Older, lab=lab, only="cai-version")["cai-version"]
    assert (found.outcome, found.evidence) == ("failed", "version is 2, which has no stream")


def test_a_copy_in_memory_of_the_host_is_served(lab: Any) -> None:
    class Host(Library):
        dtypes = ("float32",)

        class Own(Array):
            def capsule(self, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
                if device != (1, 0):
                    return Array.capsule(self, stream, newest, device, copy)
                if copy is False:
                    raise BufferError("copy: got False; allowed: None or True")
                own = [*flat(self.tolist())]
                values = (ctypes.c_float * len(own))(*own)
                strides = [step // 4 for step in compact_strides(self._region.shape, 4)]
                tensor = self.managed(
                    ptr=ctypes.addressof(values),
                    device=device,
                    owner=values,
                    strides=strides,
                    flags=2,
                )
                return tensor.capsule()

        array = type("Own", (DLPack, Own), {})

    found = check_producer(Host, lab=lab, only="dlpack-dl-device")["dlpack-dl-device"]
    assert found.outcome == "passed"
    assert "(1, 0) is served" in found.evidence.split("; ")


def test_a_producer_that_takes_no_version_is_asked_without(lab: Any) -> None:
    class Old(Array):
        def __dlpack__(self, *, stream: Any = None) -> Any:
            return self.capsule(stream, None, None, None)

    found = judged(lab, "dlpack-version", kind=Old)
    assert (found.outcome, found.evidence) == (
        "skipped",
        "its capsules are legacy ones, which have no version",
    )


def refusing(stream: int) -> Any:
    def capsule(self: Array, asked: Any, newest: Any, device: Any, copy: Any) -> Any:
        if asked == stream:
            raise BufferError("not there")
        return Array.capsule(self, asked, newest, device, copy)

    return capsule


def test_to_refuse_stream_2_fails_in_nothing_but_that(lab: Any) -> None:
    kind = type("Odd", (Library,), {"array": speaking("Odd", DLPACK, capsule=refusing(2))})
    report = check_producer(kind, lab=lab)
    assert [one.name for one in report.failed] == ["dlpack-streams"]


class Constant(speaking("Constant", DLPACK)):  # type: ignore[misc]
    """Arrays that nobody may write."""

    def __init__(self, memory: Any, region: Any) -> None:
        super().__init__(memory, Array.at(region, readonly=True))


def test_arrays_that_are_all_read_only_have_the_flag_and_no_other(lab: Any) -> None:
    found = judged(lab, "dlpack-flags", kind=Constant)
    assert found.outcome == "passed"
    assert found.evidence.startswith("0b1 (")


def test_read_only_arrays_may_refuse_legacy_capsules(lab: Any) -> None:
    found = judged(lab, "dlpack-keywords", kind=Constant)
    assert found.outcome == "skipped"
    assert found.evidence.startswith("{'dl_device': (2, 0)}: max_version: got None; allowed: 1.0")


def test_a_copy_of_other_values_is_found(lab: Any) -> None:
    def capsule(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
        shown = Array.made(self._region.shape, self._region.dtype) if copy else self
        return Array.capsule(shown, stream, newest, device, None)

    found = judged(lab, "dlpack-copy", DLPACK, capsule=capsule)
    assert found.outcome == "failed"
    assert found.evidence.startswith("the copy holds [")


def test_a_tensor_is_asked_for_of_the_known_version_and_of_a_later_one(lab: Any) -> None:
    asked = []

    def capsule(self: Array, stream: Any, newest: Any, device: Any, copy: Any) -> Any:
        asked.append(newest)
        return Array.capsule(self, stream, newest, device, copy)

    judged(lab, "dlpack-version", DLPACK, capsule=capsule)
    assert {*asked} == {(1, 3), (2, 0), None}
